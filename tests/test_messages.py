"""Frequent mistakes of users raise errors with the fault, its place, and a correction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.clustering import PCKMeans
from inference_lab.convert import from_networkx

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])


def potts(unary: Any, edge: tuple[int, int] = (0, 1), weight: Any = 0.5) -> il.FactorGraph:
    return il.FactorGraph.potts(unary, [edge], weight)


def solve(solver: Any = "icm", **more: Any) -> Any:
    return il.solve(GRAPH, solver, **more)


def fit(**pairs: Any) -> Any:
    return PCKMeans(2).fit(np.arange(6.0).reshape(3, 2), **pairs)


def without_costs() -> Any:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_node("a", colour="red")
    return from_networkx(graph)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "text in a DataFrame": (
        lambda: potts(pd.DataFrame([[0.0, "x"], [0.6, 0.0]])),
        ValueError,
        "unary[0] must be an array of numbers: not all of them are real numbers",
    ),
    "a limit with its unit": (
        lambda: solve(time_limit="5s"),
        TypeError,
        "time_limit must be a number of seconds or None, got '5s'",
    ),
    "a limit with its unit, in a comparison": (
        lambda: il.compare(GRAPH, "icm", time_limit="5s"),
        TypeError,  # type: ignore[arg-type]
        "time_limit must be a number of seconds or None, got '5s'",
    ),
    "half a seed": (
        lambda: solve(seed=1.5),
        TypeError,
        "seed must be an integer or None, got 1.5",
    ),
    "half a seed, in a comparison": (
        lambda: il.compare(GRAPH, "icm", seeds=1.5),
        ValueError,  # type: ignore[arg-type]
        "seeds must be a number of seeds or a sequence of them, got 1.5",
    ),
    "a setting as an argument": (
        lambda: solve("loopy-bp(schedule=sequential)", damping=0.5),
        TypeError,
        "solve() has no argument 'damping'; solver settings belong in its spec, as in \"loopy-bp(",
    ),
    "a setting as an argument, in a comparison": (
        lambda: il.compare(GRAPH, "loopy-bp", damping=0.5),
        TypeError,  # type: ignore[arg-type]
        "compare() has no argument 'damping'; solver settings belong in its spec, as in \"loopy",
    ),
    "a setting without its name": (
        lambda: solve("loopy-bp(0.5)"),
        il.SpecError,
        "cannot read spec 'loopy-bp(0.5)' at position 9: expected a setting's name; settings of "
        "loopy-bp: schedule, damping, tolerance, max_sweeps\n  loopy-bp(0.5)\n"
        "           ^",
    ),
    "another spelling": (lambda: solve("MeanField"), il.SpecError, "did you mean 'mean-field'?"),
    "a method in words": (
        lambda: solve("loopy belief propagation"),
        il.SpecError,
        "unknown solver 'loopy belief propagation'; did you mean",
    ),
    "the class of a solver": (
        lambda: solve(type(il.Solver)),
        TypeError,
        "a solver is a spec string or a Solver object, got <class 'abc.ABCMeta'>; an object of it",
    ),
    "a path to nowhere in place of a graph": (
        lambda: il.solve("model.uai", "icm"),
        FileNotFoundError,
        "model.uai does not exist",
    ),
    "arrays in place of a graph": (
        lambda: il.solve(np.zeros((2, 2)), "icm"),
        TypeError,  # type: ignore[arg-type]
        "graph must be a FactorGraph, a Problem, a spec or the path of a model file, got array(",
    ),
    "another name of the time limit": (
        lambda: solve(timeout=5),
        TypeError,
        "solve() has no argument 'timeout'; did you mean 'time_limit'?",
    ),
    "two solvers in one string": (
        lambda: solve("icm,loopy-bp"),
        il.SpecError,
        "'icm,loopy-bp' does not name one solver; several solvers are a list, or --solver NAME",
    ),
    "two solvers in one string, with settings": (
        lambda: il.compare(GRAPH, "icm(restarts=2), loopy-bp"),
        il.SpecError,
        "'icm(restarts=2), loopy-bp' does not name one solver",
    ),
    "two solvers with a space": (
        lambda: solve("icm loopy-bp"),
        il.SpecError,
        "'icm loopy-bp' does not name one solver; several solvers are a list",
    ),
    "pairs of names without the names": (
        lambda: fit(must_link=np.array([("a", "b")], dtype=object)),
        TypeError,
        "must_link[0, 0] = 'a' is not an integer; pairs hold row numbers, or names of rows where "
        "fit is given those of all rows as sample_ids",
    ),
    "a folder": (
        lambda: il.read("models"),
        ValueError,
        "models is a folder, which holds a.uai, b.fg.gz; a model file is needed",
    ),
    "a loop": (
        lambda: potts(np.zeros((2, 2)), (1, 1)),
        ValueError,
        "edges[0] = (1, 1) joins a variable to itself; add the diagonal of its costs to the unary",
    ),
    "a node without costs": (
        without_costs,
        ValueError,
        "node 'a' has no attribute 'unary', the costs of its labels (its attributes: 'colour'); "
        "where labels cost nothing by themselves, give k zeros: "
        "nx.set_node_attributes(graph, [0.0] * k, 'unary')",
    ),
    "a misspelt name": (
        lambda: il.FactorGrpah,
        AttributeError,
        "module 'inference_lab' has no attribute 'FactorGrpah'; did you mean 'FactorGraph'?",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_python(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("b.fg.gz", "a.uai", "notes.txt"):
        (tmp_path / "models" / name).touch()
    call, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("reprodcue estep-regimes", "Did you mean 'reproduce'?"),
        ("solve potts-grid(3)", "seed\n  potts-grid(3)\n             ^\n"),
        ("compare potts-grid --solver loopy-bp(0.5)", "max_sweeps\n  loopy-bp(0.5)\n  "),
    ],
)
def test_mistakes_in_commands(command: str, message: str) -> None:
    """Other one-line errors are tested in ``cli/test_cli.py``."""
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_every_form_of_a_problem_is_solved(tmp_path: Path) -> None:
    """A spec, a family, a problem and a file are accepted like a graph."""
    il.write(GRAPH, tmp_path / "model.uai")
    pair = il.Problem("pair", GRAPH)
    for source in (GRAPH, pair, tmp_path / "model.uai", str(tmp_path / "model.uai")):
        assert il.solve(source, "brute-force").energy == pytest.approx(0.5)
    assert il.solve("ising(size=2)", "icm").labels.size == 4  # type: ignore[union-attr]


def test_graphs_are_named_in_comparisons() -> None:
    """A mapping and pairs give the names of tables; lists of specs and graphs work as before."""

    def names(problems: Any) -> list[str]:
        return [r.problem for r in il.compare(problems, "icm", isolate=False).records]

    assert names({"a": GRAPH, "b": "ising(size=2)"}) == ["a", "b"]
    assert names([("a", GRAPH), ("b", GRAPH)]) == ["a", "b"]
    assert names({"a": il.Problem("b", GRAPH)}) == ["a"]
    assert names(("ising(size=2)", GRAPH)) == [
        "ising(size=2)",
        f"graph-{GRAPH.content_hash[:8]}",
    ]


def test_auto_is_the_default_solver() -> None:
    """It is the default at both temperatures, in Python and on the command line, as documented."""
    for temperature in (0.0, 1.0):
        solution = il.solve(GRAPH, temperature=temperature)
        assert (solution.solver, solution.energy) == ("auto", 0.5)
        assert (solution.marginals is None) == (temperature == 0)
    done = CliRunner().invoke(main, ["solve", "ising(size=2)", "--json"])
    assert json.loads(done.stdout)["solver"] == "auto"


def test_failing_property_raises_its_own_error() -> None:
    class Broken(il.FactorGraph):
        @property
        def width(self) -> int:
            return self.unary.no_such_thing  # type: ignore[attr-defined,no-any-return]

    broken = object.__new__(Broken)
    broken.__setstate__(GRAPH.__getstate__())
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = broken.width
