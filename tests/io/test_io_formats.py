"""Choice of the format, UAI files of costs, and files of potentials."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import inference_lab as il
from inference_lab.io import FormatError, supported_formats, supported_suffixes, uai
from inference_lab.problems.file import File

COSTS = b"MARKOV 2 2 3  3  1 0  2 0 1  0   2 0 1.5   6 0 1 2 -3 inf 5   1 -0.25"


def test_suffixes_and_formats() -> None:
    """Every suffix is known, compressed or not, and so are formats without one."""
    nameless = ("max-cut", "clique-partitioning")
    suffixed = ("uai", "fg", "wcsp", "cfn", "dd", "qubo")
    assert sorted(supported_formats()) == sorted((*suffixed, *nameless))
    assert supported_suffixes() == tuple(
        f".{name}{packed}" for name in suffixed for packed in ("", ".gz", ".xz")
    )


def test_only_graphs_are_written(tmp_path: Path) -> None:
    """Swapped arguments are refused as well, and no file is made."""
    graph = il.FactorGraph.potts([[0.0, 1.0]], [], [])
    with pytest.raises(TypeError, match=r"a FactorGraph, then a path; got '.*model\.uai'"):
        il.write(str(tmp_path / "model.uai"), graph)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"cfn can be read only; write \.uai"):
        il.write(graph, tmp_path / "m.cfn")
    assert not list(tmp_path.iterdir())


def test_named_format_comes_before_the_suffix(tmp_path: Path) -> None:
    """The names of the files have no suffix of a format, or another one."""
    path = tmp_path / "g05_60.0"
    path.write_text("2 1\n1 2 3\n")
    with pytest.raises(FormatError, match=r"unknown kind of model file; .* max-cut, qubo"):
        il.read(path)
    assert il.read(path, format="max-cut").energy([0, 1]) == -3.0
    assert il.read(path, format="qubo").energy([1, 1]) == 6.0
    misnamed = tmp_path / "cut.uai"
    misnamed.write_text("2 1\n1 2 3\n")
    assert il.read(misnamed, format="max-cut").energy([0, 1]) == -3.0
    with pytest.raises(FormatError, match=r"unknown format 'maxcut'; did you mean 'max-cut'"):
        il.read(path, format="maxcut")


def test_evidence_goes_with_every_format(tmp_path: Path) -> None:
    """It refers to variables and labels by number."""
    (tmp_path / "m.wcsp").write_text("t 1 2 1 9 2 1 0 0 1 1 4")
    (tmp_path / "m.evid").write_text("1 0 1")
    graph = il.read(tmp_path / "m.wcsp", evidence=tmp_path / "m.evid")
    assert graph.energy([[0], [1]]).tolist() == [math.inf, 4.0]


def test_costs_are_energies_as_they_are() -> None:
    """Costs include zeros, negative ones, infinity and the constant."""
    graph = uai.parse(COSTS, "here.uai", costs=True)
    x = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert graph.energy(x).tolist() == [-0.25, 0.75, 1.75, -1.75, math.inf, 6.25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MARKOV 1 2 1 1 0 2 0 nan", r"factor 0 over \(0,\), entry 1: the cost is 'nan'"),
        ("MARKOV 1 2 1 1 0 2 0 -inf", r"the cost is '-inf'; costs are finite numbers, or inf"),
        ("MARKOV 1 2 1 1 0 2 1e999 0", r"entry 0: the cost is '1e999'; costs are finite"),
        ("MARKOV 1 2 1 1 0 2 -1e999 0", r"the cost is '-1e999'"),
        (
            "MARKOV 1 2 1 0 1 inf",
            r"factor 0 over \(\), entry 0: .*'inf'; costs are finite numbers$",
        ),
        ("MARKOV 1 2 1 1 0 3 0 0", r"needs a table of 2 entries"),
    ],
)
def test_costs_that_are_refused(text: str, message: str) -> None:
    """The values cannot be meant as costs."""
    with pytest.raises(FormatError, match=message):
        uai.parse(text.encode(), "here.uai", costs=True)


def test_costs_through_read_and_the_problem_family(tmp_path: Path) -> None:
    """The setting is in the problem's name; other formats refuse it."""
    (tmp_path / "m.uai").write_bytes(COSTS)
    assert il.read(tmp_path / "m.uai", costs=True).energy([0, 0]) == -0.25
    (tmp_path / "zeros.uai").write_text("MARKOV 1 2 1 1 0 2 0 0")
    with pytest.raises(FormatError, match="is read with costs=True"):
        il.read(tmp_path / "zeros.uai")
    assert il.read(tmp_path / "zeros.uai", costs=True).energy([1]) == 0.0
    problem = File(str(tmp_path / "m.uai"), costs=True).build()
    assert problem.name.endswith("m.uai, costs=true)")
    assert problem.graph.energy([0, 0]) == -0.25
    (tmp_path / "m.fg").write_text("0")
    with pytest.raises(ValueError, match=r"costs=True means .*m\.fg is read as fg"):
        il.read(tmp_path / "m.fg", costs=True)
    cut = tmp_path / "cut.txt"
    cut.write_text("2 1\n1 2 3\n")
    named = File(str(cut), format="max-cut").build()
    assert named.graph.energy([0, 1]) == -3.0
    assert named.name.endswith("cut.txt, format=max-cut)")
