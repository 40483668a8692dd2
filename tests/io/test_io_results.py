"""Result files of the competitions: published ones, both dialects, and round trips."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inference_lab as il
from inference_lab.io import FormatError
from inference_lab.io.results import (
    LogPartition,
    read_labels,
    read_log_partition,
    read_marginals,
    write_labels,
    write_log_partition,
    write_marginals,
)


def models(data_dir: Path, collection: str) -> list[Path]:
    folder = data_dir / "map" / collection
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}")
    return sorted([*folder.glob("*.uai"), *folder.glob("*.uai.gz")])


def beside(path: Path, suffix: str) -> Path:
    return path.parent / (path.name.removesuffix(".gz") + suffix)


# ------------------------------------------------------------------ published results


def test_published_marginals_fit_their_models(data_dir: Path) -> None:
    """Check variables, labels and evidence of .MAR files, and .PR files against best labellings."""
    found = models(data_dir, "uai2014_mar")
    assert len(found) == 23
    for path in found:
        graph = il.read(path, evidence=beside(path, ".evid"))
        marginals = read_marginals(beside(path, ".MAR"))
        assert [row.size for row in marginals] == graph.cardinalities.tolist()
        for i, row in enumerate(marginals):
            assert (row[np.isposinf(graph.unary_of(i))] == 0).all()
        z = read_log_partition(beside(path, ".PR"))
        assert z.natural == pytest.approx(z.base_10 * math.log(10), rel=1e-15)
        # One labelling is one summand of the partition function.
        likely = np.array([int(row.argmax()) for row in marginals])
        assert -graph.energy(likely) <= z.natural + 1e-3 * abs(z.natural)


def test_published_partition_function_is_in_base_10(data_dir: Path) -> None:
    """The model has nearly all its mass on one labelling, with energy ``-ln Z``."""
    path = data_dir / "map" / "uai2014_mar" / "DBN_14.uai"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    graph = il.read(path)
    marginals = read_marginals(beside(path, ".MAR"))
    likely = np.array([int(row.argmax()) for row in marginals])
    z = read_log_partition(beside(path, ".PR"))
    assert z.base_10 == 151.155
    assert -graph.energy(likely) == pytest.approx(z.natural, abs=2e-3)


# ------------------------------------------------------------------ the formats


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "here.out"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MPE\n3 0 1 0\n", [0, 1, 0]),
        ("MAP\n3\n0 1 2", [0, 1, 2]),
        ("mpe 1 0", [0]),
        ("MPE\n1\n3 0 1 0\n", [0, 1, 0]),  # with the number of samples
        ("MPE\n1\n1 4\n", [4]),
        ("MPE 0", []),
        ("MPE\n3 1 1 1\n-BEGIN-\n3 0 1 0\n-BEGIN-\n2 7 8", [7, 8]),
    ],
)
def test_labellings(tmp_path: Path, text: str, expected: list[int]) -> None:
    """Files with and without the number of samples are read; the last solution counts."""
    assert read_labels(written(tmp_path, text)).tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MAR\n2 2 0.1 0.9 3 0.2 0.2 0.6", [[0.1, 0.9], [0.2, 0.2, 0.6]]),
        ("MAR\n1\n2 2 0.1 0.9 3 0.2 0.2 0.6", [[0.1, 0.9], [0.2, 0.2, 0.6]]),
        ("MAR 1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR 1 1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR 1 1 1", [[1.0]]),
        ("MAR 1 1 1 1", [[1.0]]),
        ("MAR 0", []),
        ("MAR 1 2 1 0 -BEGIN- 1 2 0.333333 0.666666", [[0.333333, 0.666666]]),
    ],
)
def test_marginals(tmp_path: Path, text: str, expected: list[list[float]]) -> None:
    """Files with and without the number of samples are read; the last solution counts."""
    assert [row.tolist() for row in read_marginals(written(tmp_path, text))] == expected


@pytest.mark.parametrize(
    ("text", "base_10"),
    [("PR\n-0.2008", -0.2008), ("PR\n1\n2.5", 2.5), ("pr 1", 1.0), ("PR\n-inf\n", -math.inf)],
)
def test_partition_functions(tmp_path: Path, text: str, base_10: float) -> None:
    """Files are in base 10; both logarithms are available by name."""
    found = read_log_partition(written(tmp_path, text))
    assert found == LogPartition(base_10 * math.log(10), base_10)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_labels, "", r"the file is empty; expected MPE or MAP"),
        (read_labels, "MAR 1 0", r"token 1: expected MPE or MAP, got 'MAR'"),
        (read_labels, "MPE", r"the file ends where the number of variables"),
        (read_labels, "MPE\n3 0 1", r"line 2, token 1: 3 variables are announced, and 2 labels"),
        (read_labels, "MPE 2 0 -1", r"variable 1: expected a label, an integer >= 0, got '-1'"),
        (read_labels, "MPE 2 0 0.5", r"variable 1: .*got '0.5'"),
        (read_labels, "MPE 99999999999 0", r"99999999999 variables are announced, and 1 labels"),
        (read_labels, "MPE 2 0 x", r"expected a number, got 'x'"),
        (read_marginals, "MAR", r"the file ends where the number of variables"),
        (read_marginals, "MAR 5 2 0.5 0.5", r"variables is '5', but at most 1 fit"),
        (read_marginals, "MAR 1 3 0.5 0.5", r"labels of variable 0 is '3', but at most 2 fit"),
        (read_marginals, "MAR 1 2 0.5 1.5", r"variable 0: expected a probability, .* got '1.5'"),
        (read_marginals, "MAR 1 2 0.5 nan", r"expected a probability, 0 to 1, got 'nan'"),
        (read_marginals, "MAR 1 2 0.5 0.4", r"labels add up to 0.9"),
        (read_marginals, "MAR 2 0 2 0.5 0.5", r"the probabilities of its 0 labels add up to 0"),
        (read_marginals, "MAR 1 1 1 7", r"1 surplus tokens after the last variable, from '7'"),
        (read_log_partition, "PR", r"expected one number, .* got 0"),
        (read_log_partition, "PR 3 4", r"expected one number, .* got 2"),
        (read_log_partition, "PR nan", r"expected a base-10 logarithm, got 'nan'"),
        (read_log_partition, "PR inf", r"expected a base-10 logarithm, got 'inf'"),
    ],
)
def test_errors_name_fault_and_position(tmp_path: Path, read: Any, text: str, message: str) -> None:
    """Check each kind of file."""
    path = written(tmp_path, text)
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))


# ------------------------------------------------------------------ round trips


def test_results_of_a_solver_round_trip(tmp_path: Path) -> None:
    """Values are exact, for ragged and for equal numbers of labels."""
    for unary in ([[0.3, 0.1], [0.2, 0.7]], [[0.3, 0.1, 0.7], [0.2, 0.4]]):
        graph = il.FactorGraph.from_terms(unary, [il.DiagonalTerms([(0, 1)], 0.0, 1.0)])
        soft = il.solve(graph, "brute-force", temperature=1.0)
        write_marginals(tmp_path / "m.MAR", soft.marginals)
        again = read_marginals(tmp_path / "m.MAR")
        assert [row.tolist() for row in again] == [list(row) for row in soft.marginals]
        write_log_partition(tmp_path / "m.PR", soft.log_partition)
        assert read_log_partition(tmp_path / "m.PR").natural == pytest.approx(
            soft.log_partition, rel=1e-15
        )
        best = il.solve(graph, "brute-force")
        write_labels(tmp_path / "m.MAP", best.labels, task="MAP")
        assert (tmp_path / "m.MAP").read_text().startswith("MAP\n2 ")
        assert read_labels(tmp_path / "m.MAP").tolist() == best.labels.tolist()


def test_evidence_of_probability_zero(tmp_path: Path) -> None:
    """Its logarithm is minus infinity in every base."""
    write_log_partition(tmp_path / "m.PR.gz", -math.inf)
    assert b"-inf" in gzip.decompress((tmp_path / "m.PR.gz").read_bytes())
    assert read_log_partition(tmp_path / "m.PR.gz") == (-math.inf, -math.inf)


@pytest.mark.parametrize(
    ("write", "value", "message"),
    [
        (write_labels, [[0, 1]], r"labels must be integers of shape \(n,\), got int64 of shape"),
        (write_labels, [0.5], r"labels must be integers"),
        (write_labels, [0, -1], r"labels\[1\] = -1; labels count from 0"),
        (write_marginals, [[0.5, 0.5], [0.5, 0.4]], r"marginals\[1\] adds up to 0.9"),
        (write_marginals, [[1.5, -0.5]], r"marginals\[0\] must be probabilities"),
        (write_marginals, [[math.nan, 1.0]], r"marginals\[0\] must be probabilities"),
        (write_marginals, [[]], r"marginals\[0\] must be probabilities"),
        (write_log_partition, math.nan, r"log_partition must be a number or -inf"),
        (write_log_partition, math.inf, r"log_partition must be a number or -inf"),
    ],
)
def test_invalid_results_are_not_written(
    tmp_path: Path, write: Any, value: Any, message: str
) -> None:
    """The error names the position."""
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "m.out", value)
    assert not list(tmp_path.iterdir())


def test_unknown_task(tmp_path: Path) -> None:
    """Competitions define two names."""
    with pytest.raises(ValueError, match="task must be 'MPE' or 'MAP', got 'MMAP'"):
        write_labels(tmp_path / "m.out", [0], task="MMAP")
