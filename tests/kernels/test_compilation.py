"""Compilation of kernels: its time is counted separately, and few types are compiled."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba import typeof

from inference_lab import _numba
from inference_lab._numba import inlined
from inference_lab.algorithms.belief_propagation.schedules import renumber
from inference_lab.algorithms.cuts import dead_end_elimination
from inference_lab.algorithms.cuts.partial_optimality import reduce
from inference_lab.algorithms.dual.clusters import DualClusters
from inference_lab.algorithms.dual.reparametrisation import start_dual
from inference_lab.algorithms.payable_costs import capped
from inference_lab.compile_timer import timer
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables
from inference_lab.kernels.treewidth_moves import soften


def test_a_first_call_takes_compile_time_and_hardly_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_numba, "_FOLDER", str(tmp_path))

    def share(values: np.ndarray) -> float:
        @inlined
        def scaled(values, at, factor):
            """Return a value times a factor."""
            return values[at] * factor

        begin, compiled = time.perf_counter(), timer.seconds
        scaled(values, 1, 2)
        return (timer.seconds - compiled) / (time.perf_counter() - begin)

    # Another process may take the processor between compiling and the end of the call.
    shares = [share(np.ones(3, dtype=kind)) for kind in (np.float32, np.float64, np.int64)]
    assert 0.9 < max(shares) <= 1.0


def test_a_renamed_argument_type_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba's cache refers to the class by name, and fails to load if it is gone."""
    monkeypatch.setattr(_numba, "_FOLDER", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, name in enumerate(["Before", "After"]):
        monkeypatch.delitem(sys.modules, "renamed", raising=False)
        (tmp_path / "renamed.py").write_text(
            "from typing import NamedTuple\n"
            "from inference_lab._numba import kernel\n"
            f"class {name}(NamedTuple):\n    value: float\n"
            f"@kernel\ndef plus(pair):\n    return pair.value + {number}\n"
        )
        importlib.invalidate_caches()
        made = importlib.import_module("renamed")
        assert made.plus(getattr(made, name)(2.0)) == 2.0 + number


def test_kernels_are_compiled_for_one_type_of_graph():
    """The arrays come from construction, renumbering, softening and clusters."""
    rng = np.random.default_rng(0)
    edges = np.stack(np.triu_indices(6, 1), axis=1)
    tables = rng.normal(size=(len(edges), 3, 3))
    graph = FactorGraph.from_terms(
        rng.normal(size=(6, 3)),
        [OwnTables(edges, tables)],
        [((0, 1, 2), rng.normal(size=(3, 3, 3)))],
    )
    clusters = DualClusters(graph, start_dual(graph))
    clusters.add(np.array([[1, 2, 3]], dtype=np.int32))
    others = [
        clusters.g,
        renumber(graph.arrays, graph.breadth_first_order),
        soften(graph),
        capped(graph, 0.5).arrays,
        graph.with_unary(rng.normal(size=(6, 3))).arrays,
    ]
    assert {typeof(g) for g in others} == {typeof(graph.arrays)}


def test_factor_kernels_are_not_compiled_for_pairwise_graphs():
    step = dead_end_elimination._worst_of_factor
    before = len(step.overloads)
    rng = np.random.default_rng(0)
    unary, pairs = rng.random((6, 2)), np.stack(np.triu_indices(6, 1), axis=1)
    graph = FactorGraph.potts(unary, pairs, rng.choice([-1.0, 1.0], len(pairs)))
    reduce(graph, lambda: False)
    assert len(step.overloads) == before
