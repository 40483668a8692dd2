"""Graph without some labels: the energies of the remaining labellings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from strategies import labellings

from inference_lab.algorithms.cuts.reduction import shrink
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph


def mixed(seed: int) -> FactorGraph:
    """Draw factors of three to five variables with one to three labels, some entries forbidden."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, 7)
    factors = []
    for arity in rng.integers(1, 6, 12).tolist():
        scope = rng.choice(counts.size, arity, replace=False)
        table = rng.normal(size=counts[scope])
        factors.append((scope.tolist(), np.where(rng.random(table.shape) < 0.05, np.inf, table)))
    return FactorGraph.from_factors(counts, factors)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["mixed arities", *FAMILIES])
def test_reduced_graph_keeps_energies(family, seed, share):
    graph = mixed(seed) if family == "mixed arities" else random_graph(family, seed)
    rng = np.random.default_rng(seed)
    alive = rng.random(graph.unary_values.size) < share
    # Every variable keeps a label.
    alive[graph.unary_ptr[:-1] + rng.integers(0, graph.cardinalities)] = True
    n_alive = np.array(
        [part.sum() for part in np.split(alive, graph.unary_ptr[1:-1])], dtype=np.int64
    )
    reduction = shrink(graph, alive, n_alive[: graph.n_variables], False, 1)
    if reduction.infeasible:
        whole = labellings(graph)
        mask = alive[graph.unary_ptr[:-1] + whole].all(axis=1)
        assert (graph.energy(whole[mask]) == math.inf).all()
        return
    small = labellings(reduction.graph)
    mapped, energies = graph.energy(reduction.expand(small)), reduction.graph.energy(small)
    finite = np.isfinite(mapped)
    assert (np.isfinite(energies) == finite).all()
    scale = max(1.0, graph.magnitude)
    assert np.abs(energies[finite] - mapped[finite]).max(initial=0.0) <= 1e-12 * scale


def test_factors_keep_their_order_and_their_entries():
    """Tables are equal bit for bit at all arities; constants are added in order."""
    rng = np.random.default_rng(0)
    scopes = [(0, 1, 2), (3, 1, 2, 0), (0, 3), (1, 4, 2), (4, 3, 2)]
    counts = [2, 3, 1, 3, 2]
    tables = [rng.normal(size=[counts[v] for v in scope]) for scope in scopes]
    graph = FactorGraph.from_factors(counts, list(zip(scopes, tables, strict=True)), 0.1)
    alive = np.array([0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1], dtype=bool)
    n_alive = np.array([1, 2, 1, 3, 1])
    reduction = shrink(graph, alive, n_alive, False, 1)
    # Two variables remain: one with its first and last label, one with all labels.
    expected = FactorGraph.from_terms(
        [np.zeros(2), tables[2][1]],
        factors=[
            ((0,), tables[0][1, [0, 2], 0]),
            ((1, 0), tables[1][:, [0, 2], 0, 1]),
            ((0,), tables[3][[0, 2], 1, 0]),
            ((1,), tables[4][1, :, 0]),
        ],
        constant=0.1,
    )
    assert reduction.graph.content_hash == expected.content_hash
    alive[[4, 7, 8]] = False
    nothing = shrink(graph, alive, np.ones(5, dtype=np.int64), False, 1)
    labels = nothing.fixed
    assert nothing.settled and nothing.graph.constant == pytest.approx(graph.energy(labels))
