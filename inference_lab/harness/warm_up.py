"""Run solvers on small graphs before they are timed, so that all kernels are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from inference_lab.contract import Solver
from inference_lab.graph.arrays import DIAGONAL, POTTS, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms, OwnTables, PairwiseTerms

#: Number of edges of each kind whose ends make up the warm-up graph.
_WARM_UP_EDGES = 6

#: Number of variables in the fully connected part of the hard graph: at this size, relaxations with
#: cuts leave gaps for small numbers of labels.
_HARD = 16

#: Number of variables in its second part, a ring, whose labels are decided by cuts.
_RING = 24

#: Solvers whose later stages are compiled when a run first needs them, because most runs do not
#: (record 047). Compilation is not counted as solving time.
_STAGED = frozenset({"ilp"})

#: Time limit in seconds of each warm-up run, without loading.
_SECONDS = 2.0


def warm_up_graph(graph: FactorGraph) -> FactorGraph:
    """Return a small part of a graph with every family of terms of the graph."""
    variable_set: set[int] = {0} if graph.n_variables else set()
    for kind in np.unique(graph.edge_kinds):
        first = np.flatnonzero(graph.edge_kinds == kind)[:_WARM_UP_EDGES]
        variable_set.update(int(v) for v in graph.edges[first].ravel())
    factor = None
    if graph.n_factors:
        factor = graph.higher_order(int(np.diff(graph.table_ptr).argmin()))
        variable_set.update(factor[0])
    variables = np.array(sorted(variable_set), dtype=np.int64)
    number = np.full(graph.n_variables, -1)
    number[variables] = np.arange(variables.size)
    inside = np.flatnonzero((number[graph.edges] >= 0).all(axis=1))
    unary: Any = [graph.unary_of(int(v)) for v in variables]
    if graph.n_labels is not None:
        unary = np.array(unary)
    small = FactorGraph.from_terms(
        unary,
        [OwnTables(number[graph.edges[inside]], [graph.edge_table(int(e)) for e in inside])],
        [] if factor is None else [([int(number[v]) for v in factor[0]], factor[1])],
    )
    return small.with_label_costs(1.0) if graph.n_label_costs else small


def hard_graph(graph: FactorGraph) -> FactorGraph | None:
    """Return a small graph with the same kinds of edges on which no method ends early."""
    if not graph.n_edges:
        return None
    rng = np.random.default_rng(0)
    k = int(np.bincount(graph.cardinalities).argmax())
    kinds = np.unique(graph.edge_kinds).tolist()
    pairs = np.stack(np.triu_indices(_HARD, 1), axis=1)
    signs = rng.choice(np.array([-1.0, 1.0]), len(pairs))
    # The second part is an attractive ring with chords.
    ring = _HARD + np.arange(_RING)
    close = np.concatenate([np.stack([ring, np.roll(ring, -by)], axis=1) for by in (1, 5)])
    terms = [
        _terms(edges[at :: len(kinds)], rises[at :: len(kinds)], kind, k, rng)
        for edges, rises in ((pairs, signs), (close, np.full(len(close), -0.3)))
        for at, kind in enumerate(kinds)
    ]
    unary = np.concatenate([0.1 * rng.random((_HARD, k)), rng.random((_RING, k))])
    made = FactorGraph.from_terms(unary, terms)
    return made.with_label_costs(0.1) if graph.n_label_costs else made


def _terms(
    pairs: IntArray, rises: FloatArray, kind: int, k: int, rng: np.random.Generator
) -> PairwiseTerms:
    """Return terms of one kind, in which equal labels cost about `rises` more than others."""
    same = rises * (1.0 + rng.random(len(pairs)))
    if kind == POTTS:
        return DiagonalTerms(pairs, same, np.zeros(len(pairs)))
    costs = same[:, None] + 0.1 * rng.random((len(pairs), k))
    if kind == DIAGONAL:
        return DiagonalTerms(pairs, costs, np.zeros(len(pairs)))
    return OwnTables(pairs, costs[:, :, None] * np.eye(k) + 0.1 * rng.random((len(pairs), k, k)))


def warmth(solver: Solver, graph: FactorGraph, temperature: float) -> tuple[Any, ...]:
    """Return the key of all graphs that share the compiled kernels of a solver."""
    families = (
        tuple(np.unique(graph.edge_kinds).tolist()),
        graph.n_factors > 0,
        graph.n_labels is None,
        graph.has_infinite,
        graph.n_label_costs > 0,
    )
    return (type(solver), solver.spec, families, temperature > 0)


def warm_up(solver: Solver, graph: FactorGraph, temperature: float) -> None:
    """Run a solver on small graphs, so that later timings exclude loading and compilation."""
    from inference_lab.solving import solve

    try:
        if solver.missing() is None and solver.unsupported_reason(graph, temperature) is None:
            solve(warm_up_graph(graph), solver, time_limit=_SECONDS, temperature=temperature)
            hard = hard_graph(graph)
            if hard is not None and solver.name() not in _STAGED:
                solve(hard, solver, time_limit=_SECONDS, temperature=temperature)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass
