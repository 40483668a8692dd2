"""Max-cut and QUBO files: published cuts and optima, signs, and damage."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import damage
import hypothesis.strategies as st
import numpy as np
import pytest
from damage import damaged
from hypothesis import given
from places import published
from slow_words import uncommented

import inference_lab as il
from inference_lab.io import FormatError, biqmac

SMALL = damage.SMALL["max-cut"]


def read(path: Path, row: dict[str, str]) -> il.FactorGraph:
    return il.read(path, format="max-cut" if row["type"] == "maxcut (max)" else "qubo")


def entries(path: Path) -> np.ndarray:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return np.array([line.split() for line in text.splitlines()[1:] if line.strip()], dtype=float)


def value(rows: np.ndarray, kind: str, x: np.ndarray) -> float:
    """Return the value of a labelling, from the definition."""
    i, j = rows[:, 0].astype(int) - 1, rows[:, 1].astype(int) - 1
    if kind == "max-cut":
        return float(rows[x[i] != x[j], 2].sum())
    twice = np.where(i == j, 1, 2)
    return float((twice * rows[:, 2] * x[i] * x[j]).sum())


def test_instances_have_their_sizes_and_values() -> None:
    """All instances, at random labellings; the energy is minus the cut, or the value."""
    rng = np.random.default_rng(0)
    instances = published("maxcut_qubo")
    assert len(instances) == 25
    for path, row in instances:
        graph = read(path, row)
        rows = entries(path)
        assert graph.n_variables == int(row["vars"])
        assert len(rows) == int(row["factors"])
        sign, kind = (-1, "max-cut") if "max" in row["type"] else (1, "qubo")
        x = rng.integers(2, size=(5, graph.n_variables))
        assert graph.energy(x).tolist() == [sign * value(rows, kind, labels) for labels in x]


@pytest.mark.parametrize(
    ("name", "cut"), [("G1.txt.gz", 11624), ("G11.txt", 562), ("G14.txt", 3058), ("be100.1", 19412)]
)
def test_published_cuts(name: str, cut: int) -> None:
    """They belong to the vectors of +1 and -1 published beside the instances."""
    (path, row), *_ = [
        pair for pair in published("maxcut_qubo") if pair[1]["file"].startswith(name)
    ]
    vector = (path.parent / f"{name.partition('.txt')[0]}_cut.txt").read_text()
    sides = np.array(vector.replace(",", " ").split(), dtype=np.int64)
    assert set(sides.tolist()) == {-1, 1}
    assert read(path, row).energy((sides + 1) // 2) == -cut


@pytest.mark.parametrize("name", ["gka1b.sparse", "bqp50-1.sparse"])
def test_optima(name: str) -> None:
    """Enumeration or the integer program attains the values of the Biq Mac library."""
    ((path, row),) = published("maxcut_qubo", file=name)
    graph = read(path, row)
    solver = "brute-force" if graph.n_variables <= 20 else "ilp"
    solution = il.solve(graph, solver, time_limit=60.0)
    assert solution.status is il.Status.OPTIMAL
    sign = -1 if "max" in row["type"] else 1
    assert solution.energy == sign * float(row["value"])


@given(st.integers(0, 2**32 - 1), st.sampled_from(["max-cut", "qubo"]))
def test_random_problems(seed: int, kind: str) -> None:
    """Problems have repeated entries in either direction, and entries on the diagonal."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 6)), int(rng.integers(0, 12))
    rows = np.column_stack([rng.integers(1, n + 1, (m, 2)), rng.integers(-9, 10, m)]).astype(float)
    text = f"{n} {m}\n" + "\n".join(f"{i:.0f} {j:.0f} {w}" for i, j, w in rows)
    parse = biqmac.parse_max_cut if kind == "max-cut" else biqmac.parse_qubo
    graph = parse(text.encode(), "here")
    sign = -1 if kind == "max-cut" else 1
    for labels in itertools.product(range(2), repeat=n):
        expected = sign * value(rows, kind, np.array(labels))
        assert graph.energy(labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("parse", [biqmac.parse_max_cut, biqmac.parse_qubo])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file ends where the number of vertices is expected"),
        ("3", r"the file ends where the number of entries is expected"),
        ("3 2 1 2 5", r"the number of entries is '2', but at most 1 fit"),
        ("3 1 1 2 5 1 3 5", r"3 surplus tokens after the 1 entries 'i j w', from '1'"),
        ("3 1 1 4 5", r"line 1, token 4: entry 0: expected a vertex, 1 to 3, got '4'"),
        ("3 1 0 1 5", r"entry 0: expected a vertex, 1 to 3, got '0'"),
        ("3 1 1 2 nan", r"entry 0: expected its weight, a finite number .* got 'nan'"),
        ("3 1 1 2 1e999", r"entry 0: expected its weight, .* got '1e999'"),
        ("99999999 0", r"99999999 vertices; at most 1000002 are read"),
    ],
)
def test_errors_name_fault_and_position(
    parse: Callable[[bytes, str], Any], text: str, message: str
) -> None:
    """Check errors of both kinds of files."""
    with pytest.raises(FormatError, match=message) as caught:
        parse(text.encode(), "here")
    assert str(caught.value).startswith("here")


# ------------------------------------------------------------------ max-cut without weights


def test_edges_without_weights_weigh_one() -> None:
    """All lines have two numbers, as many as announced."""
    graph = biqmac.parse_max_cut(b"# rudy\n5 3\n1 2\n\n2 3 # an edge\n5 4\n", "here")
    weighted = biqmac.parse_max_cut(b"5 3\n1 2 1\n2 3 1\n5 4 1\n", "here")
    x = list(itertools.product(range(2), repeat=5))
    assert graph.energy(x).tolist() == weighted.energy(x).tolist()
    assert graph.energy([0, 1, 0, 0, 1]) == -3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # The first six numbers of a file of three weighted entries.
        ("3 3\n1 2 1\n2 3 1\n", r"the number of entries is '3', but at most 2 fit"),
        ("3 2\n1 2\n2\n3", r"the number of entries is '2', but at most 1 fit"),
        ("3 2\n1 2 2 3", r"the number of entries is '2', but at most 1 fit"),
        ("3 2\n1 2\n2 3 1", r"the number of entries is '2', but at most 1 fit"),
        ("3 2\n1 2\n2 4", r"line 3, token 6: entry 1: expected a vertex, 1 to 3, got '4'"),
    ],
)
def test_files_that_are_cut_are_not_read_without_weights(text: str, message: str) -> None:
    """Entries are told from numbers of weighted ones by their lines."""
    with pytest.raises(FormatError, match=message):
        biqmac.parse_max_cut(text.encode(), "here")


def test_entries_of_quadratic_problems_need_weights() -> None:
    with pytest.raises(FormatError, match="the number of entries is '2', but at most 1 fit"):
        biqmac.parse_qubo(b"3 2\n1 2\n2 3\n", "here")


# ------------------------------------------------------------------ qbsolv


@given(st.integers(0, 2**32 - 1))
def test_files_of_qbsolv_count_each_entry_once_from_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    q = np.triu(rng.integers(-9, 10, (n, n)) / 4) * (rng.random((n, n)) < 0.7)
    entries = sorted(zip(*np.nonzero(q), strict=True), key=lambda ij: ij[0] != ij[1])
    diagonal = sum(i == j for i, j in entries)
    text = "c made by a test\np qubo unconstrained "
    text += f"{n} {diagonal} {len(entries) - diagonal}\n"
    text += "".join(f"{i} {j} {q[i, j]}\n" for i, j in entries)
    graph = biqmac.parse_qubo(text.encode(), "here.qubo")
    for x in itertools.product(range(2), repeat=n):
        assert graph.energy(x) == pytest.approx(np.array(x) @ q @ np.array(x))


def test_the_suffix_qubo_is_known(tmp_path: Path) -> None:
    """The line `p` tells the layout: the other one counts from 1, and entries twice."""
    (tmp_path / "a.QUBO").write_text("p qubo 0 2 0 1\n0 1 4\n")
    (tmp_path / "b.qubo").write_text("2 1\n1 2 4\n")
    assert il.read(tmp_path / "a.QUBO").energy([1, 1]) == 4
    assert il.read(tmp_path / "b.qubo").energy([1, 1]) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p qubo 0", r"the file ends where the number of vertices is expected"),
        ("p qubo 0 2 0 2 0 0 3", r"the number of entries off the diagonal is '2', .* at most 1"),
        ("p qubo 0 2 1 1\n0 0 3\n", r"2 entries 'i j w' are announced, but at most 1 are there"),
        ("p qubo 0 2 1 0\n0 0 3\n0 1 3", r"3 surplus tokens after the 1 entries 'i j w'"),
        ("p qubo 0 2 1 0\n0 1 3", r"1 entries on the diagonal are announced, 0 are there"),
        ("p qubo 0 2 1 0\n2 2 3", r"line 2, token 7: entry 0: expected a vertex, 0 to 1, got '2'"),
        ("p qubo 0 2 1 0\n1 1 x", r"line 2, token 9: expected a number, got 'x'"),
        ("p qubo 0 9999999 0 0", r"9999999 vertices; at most 1000003 are read"),
        ("p cnf 2 1", r"line 1, token 1: expected a number, got 'p'"),
    ],
)
def test_errors_in_files_of_qbsolv(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        biqmac.parse_qubo(text.encode(), "here.qubo")


@given(damaged(SMALL), st.sampled_from(["max-cut", "qubo"]))
def test_damage_is_refused_or_read_as_it_stands(data: bytes, kind: str) -> None:
    """Only FormatError is raised; a file that is read has the values of its entries."""
    parse = biqmac.parse_max_cut if kind == "max-cut" else biqmac.parse_qubo
    try:
        graph = parse(data, "here")
    except FormatError:
        return
    numbers = np.array(uncommented(data).decode().split(), dtype=float)
    m = int(numbers[1])
    weighted = numbers.size == 2 + 3 * m
    rows = numbers[2:].reshape(m, 3 if weighted else 2)
    assert weighted or kind == "max-cut"
    rows = rows if weighted else np.column_stack([rows, np.ones(m)])
    x = np.random.default_rng(0).integers(2, size=(3, graph.n_variables))
    sign = -1 if kind == "max-cut" else 1
    expected = [sign * value(rows, kind, row) for row in x]
    np.testing.assert_allclose(graph.energy(x), expected, atol=1e-9)
