"""Connected components of a graph, solved one by one within one budget.

A sparse graph falls into components, and so does what persistency leaves of a denser one. A search
over all of them at once multiplies their difficulty; apart, their times and their bounds add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.reduction import Reduction
from inference_lab.algorithms.elimination.tree_passes import TreePasses, make_plan
from inference_lab.algorithms.multicut.signed_graph import why_no_partition
from inference_lab.contract import Outcome, Run, TracePoint
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import EdgeBlock, Unaries

#: Binary logarithm of the labellings of a component up to which elimination is certain to be quick:
#: no table is larger.
_SMALL_STATES = 20.0
#: Largest share of the remaining time for the elimination of small components.
_ELIMINATION_SHARE = 0.25
#: Table entries that it processes in a second (180 to 390 million were measured).
_ENTRIES_PER_SECOND = 2e8
#: Share of the variables from which on a component's improvements are offered at once, and not when
#: the component is done. An offer evaluates the whole graph.
_LARGE_SHARE = 0.1


class Part(NamedTuple):
    """A part of a graph: the numbers of its variables, and its terms without the constant."""

    variables: IntArray
    graph: FactorGraph


def split(graph: FactorGraph, part_of: IntArray) -> list[Part]:
    """Return the parts of a graph, given the part of each variable; no term joins two parts."""
    # Everything is sorted by parts once, so that the work does not grow with their number.
    count = int(part_of.max(initial=-1)) + 1
    variables = _by_part(part_of, count)
    edges = _by_part(part_of[graph.edges[:, 0]], count)
    factors = _by_part(part_of[graph.factor_scopes[graph.factor_ptr[:-1]]], count)
    number = np.empty(graph.n_variables, dtype=np.int64)
    parts = []
    for nodes, ends, members in zip(variables, edges, factors, strict=True):
        number[nodes] = np.arange(nodes.size)
        sizes = graph.cardinalities[nodes]
        values = graph.unary_values[_ranges(graph.unary_ptr[nodes], sizes)]
        parts.append(
            Part(
                nodes,
                FactorGraph.from_terms(
                    Unaries(sizes, starts_of(sizes), values),
                    [_edges(graph, ends, number)] if ends.size else [],
                    _factors(graph, members, number),
                ),
            )
        )
    return parts


def _by_part(part_of: IntArray, count: int) -> list[IntArray]:
    """Return the places of each part, in their order."""
    order = np.argsort(part_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part_of, minlength=count))[:-1])


def _ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the numbers of several ranges, one after the other."""
    first = starts_of(lengths)
    return np.repeat(starts - first[:-1], lengths) + np.arange(first[-1])


def _edges(graph: FactorGraph, edges: IntArray, number: IntArray) -> EdgeBlock:
    """Return edges with new numbers of their ends, and with the costs that they use."""
    starts, lengths, stretch = graph.stretches(edges)
    offsets = starts_of(lengths)
    return EdgeBlock(
        number[graph.edges[edges]].astype(np.int32),
        graph.edge_kinds[edges],
        graph.edge_weights[edges],
        offsets[stretch],
        graph.pairwise_values[_ranges(starts, lengths)],
    )


def _factors(graph: FactorGraph, factors: IntArray, number: IntArray) -> Factors:
    """Return higher-order factors with new numbers of their variables."""
    arities = np.diff(graph.factor_ptr)[factors]
    sizes = np.diff(graph.table_ptr)[factors]
    scopes = graph.factor_scopes[_ranges(graph.factor_ptr[factors], arities)]
    tables = graph.table_values[_ranges(graph.table_ptr[factors], sizes)]
    return Factors.of(arities, number[scopes], sizes, tables)


def parts_to_solve(graph: FactorGraph) -> tuple[IntArray, FloatArray] | None:
    """Return the part of each variable, and the size of each part in the logarithm of its states.

    Parts are the components that have cycles. Trees are easy for every method, and join the largest
    part. None if there are fewer than two components with cycles.
    """
    components = graph.components
    count = int(components.max(initial=-1)) + 1
    if count < 2:
        return None
    arities = np.diff(graph.factor_ptr)
    first = graph.factor_scopes[graph.factor_ptr[:-1]]
    # The factor graph of a tree has one incidence less than it has variables and factors.
    surplus = (
        np.bincount(components[graph.edges[:, 0]], minlength=count)
        + np.bincount(components[first], weights=arities - 1.0, minlength=count)
        - np.bincount(components, minlength=count)
    )
    cyclic = np.flatnonzero(surplus >= 0)
    if cyclic.size < 2:
        return None
    weights = np.log2(graph.cardinalities)
    states = np.asarray(np.bincount(components, weights, minlength=count), dtype=np.float64)
    part = np.full(count, int(np.argmax(states[cyclic])), dtype=np.int64)
    part[cyclic] = np.arange(cyclic.size)
    return part[components], states[cyclic]


@dataclass
class _Assembly:
    """The labels and bounds of all parts, reported to the run on the whole graph."""

    graph: FactorGraph
    run: Run
    parts: list[Part]
    labels: IntArray
    iterations: int
    bounds: list[float] = field(init=False)
    proved: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        # Where labels are only names of clusters, the clusters of different parts have different
        # names, if there are enough.
        n, k = self.graph.n_variables, self.graph.n_labels
        self.names = starts_of([part.variables.size for part in self.parts])
        self.are_names = k is not None and k >= n and why_no_partition(self.graph) is None
        self.bounds = [part.graph.sum_of_minima for part in self.parts]
        self.proved = [False] * len(self.parts)
        self.run.offer(self.labels)
        self.report()

    def report(self) -> None:
        """Report the bound of the whole graph."""
        if all(self.proved):
            # The labelling is optimal in each part; sums of the parts differ by rounding only.
            self.run.bound(self.run.offer(self.labels))
        else:
            self.run.bound(math.fsum([self.graph.constant, *self.bounds]))

    def adopt(self, number: int, labels: IntArray) -> None:
        """Set the labels of a part."""
        if self.are_names:
            labels = self.names[number] + np.unique(labels, return_inverse=True)[1]
        self.labels[self.parts[number].variables] = labels

    def part_run(self, number: int, time_limit: float | None) -> Run:
        """Return the run on a part, whose improvements reach the whole graph."""
        part = self.parts[number]
        run = self.run
        at_once = part.variables.size >= _LARGE_SHARE * self.labels.size

        def improve(labels: IntArray, energy: float, seconds: float) -> None:
            self.adopt(number, labels)
            if at_once:
                run.offer(self.labels)

        def raise_bound(point: TracePoint) -> None:
            if point.lower_bound > self.bounds[number]:
                self.bounds[number] = point.lower_bound
                self.report()

        iterations = run.max_iterations
        return Run(
            part.graph,
            seed=run.rng,
            initial=self.labels[part.variables],
            time_limit=time_limit,
            max_iterations=None if iterations is None else max(1, iterations - self.iterations),
            on_offer=raise_bound,
            on_improve=improve,
            clock=run.clock,
        )

    def finish(self, number: int, part_run: Run, outcome: Outcome) -> None:
        """Take over the result of a part."""
        self.iterations += outcome.iterations
        self.proved[number] = part_run.proved
        self.bounds[number] = max(self.bounds[number], part_run.lower_bound)
        self.run.offer(self.labels)
        self.report()


def solve_parts(
    solve: Callable[[FactorGraph, Run, float], Outcome],
    graph: FactorGraph,
    run: Run,
    seconds: float = math.inf,
    iterations: int = 0,
) -> Outcome | None:
    """Solve the components with cycles of a graph apart; None if there is only one.

    Small components are eliminated together. The others are solved by `solve`, smallest first, each
    with a share by its size of the remaining time, which is its third argument. `seconds` is the
    budget of a run without a time limit, and `iterations` were made before. Answers and bounds of
    finished components are kept when the time ends.
    """
    if run.temperature > 0:
        return None
    division = parts_to_solve(graph)
    if division is None:
        return None
    part_of, states = division
    small = _small(graph, part_of, states, run.remaining)
    # The small parts are one from here on, with the last number.
    numbers = np.cumsum(~small) - 1
    numbers[small] = n_large = int((~small).sum())
    parts = split(graph, numbers[part_of])
    labels = unary_minimum(graph) if run.best_labels is None else run.best_labels.copy()
    assembly = _Assembly(graph, run, parts, labels, iterations)
    diagnostics = {"parts": int(states.size), "parts_eliminated": int(small.sum())}

    end = run.seconds + seconds
    outcomes: list[Outcome] = []
    order = sorted(range(n_large), key=lambda number: parts[number].variables.size)
    if len(parts) > n_large:
        order.insert(0, n_large)
    sizes = [float(part.graph.unary_values.size + part.graph.n_edges) for part in parts]
    for place, number in enumerate(order):
        budget_s = run.remaining if run.time_limit is not None else end - run.seconds
        if budget_s <= 0.0 or run.should_stop(assembly.iterations):
            break
        if number < n_large:
            budget_s *= sizes[number] / math.fsum(sizes[other] for other in order[place:])
        part_run = assembly.part_run(number, None if run.time_limit is None else budget_s)
        if number == n_large:
            outcome = _eliminated(parts[number].graph, part_run)
        else:
            outcome = solve(parts[number].graph, part_run, budget_s)
        if outcome.infeasible or outcome.unsupported:
            return replace(outcome, diagnostics=diagnostics | outcome.diagnostics)
        assembly.finish(number, part_run, outcome)
        outcomes.append(outcome)
    diagnostics["parts_proved"] = sum(assembly.proved[:n_large])
    largest = outcomes[-1].diagnostics if outcomes else {}
    return Outcome(
        converged=len(outcomes) == len(parts) and all(outcome.converged for outcome in outcomes),
        iterations=assembly.iterations,
        diagnostics=_joined([outcome.diagnostics for outcome in outcomes], largest) | diagnostics,
    )


def solve_rest(
    solve: Callable[[FactorGraph, Run, float], Outcome],
    reduction: Reduction,
    run: Run,
    seconds: float = math.inf,
) -> Outcome | None:
    """Solve the parts of a reduced graph apart, as `solve_parts` does; report to the given run."""
    if parts_to_solve(reduction.graph) is None:
        return None
    rest = reduction.run_on_rest(run)
    return solve_parts(solve, rest.graph, rest, seconds)


def go_on_by_parts(
    solve: Callable[[FactorGraph, Run], Outcome], graph: FactorGraph, run: Run, outcome: Outcome
) -> Outcome:
    """Return an outcome on the whole graph, or where it proves nothing that of the parts."""
    done = outcome.iterations
    if run.proved or outcome.infeasible or run.should_stop(done):
        return outcome
    apart = solve_parts(lambda part, inner, _: solve(part, inner), graph, run, iterations=done)
    return apart or outcome


def _joined(every: list[dict[str, Any]], largest: dict[str, Any]) -> dict[str, Any]:
    """Return the diagnostics of the largest part, with the plans of all parts one after another."""
    plans = [stage for one in every for stage in one.get("plan", [])]
    return largest | ({"plan": plans} if "plan" in largest else {})


def _small(graph: FactorGraph, part_of: IntArray, states: FloatArray, remaining: float) -> Any:
    """Flag the parts to be eliminated: those with few labellings, as many as the time allows."""
    small = states <= _SMALL_STATES
    # The table of the first variable is the largest, and adds up its terms; the others together
    # are no larger.
    terms = np.bincount(part_of, weights=1.0 + graph.degrees) / np.bincount(part_of)
    seconds = 2.0 * np.exp2(np.minimum(states, 60.0)) * terms / _ENTRIES_PER_SECOND
    order = np.argsort(seconds)
    within = np.empty(states.size, dtype=bool)
    within[order] = np.cumsum(seconds[order]) <= _ELIMINATION_SHARE * remaining
    return small & within


def _eliminated(graph: FactorGraph, run: Run) -> Outcome:
    """Return the exact outcome of a graph of small components."""
    plan = make_plan(graph, _SMALL_STATES, math.inf)
    if plan.tree is None:
        return Outcome(converged=True, infeasible=not plan.domains.feasible)
    outcome = Outcome()
    passes = TreePasses(plan, plan.tree, 0.0, False)
    total = passes.upward(graph.arrays, run, outcome)
    outcome.iterations = 0
    if math.isinf(total):
        return Outcome(converged=True, infeasible=True)
    if not math.isnan(total):
        outcome.converged = True
        run.offer(passes.decoded())
        run.bound(run.best_energy)
    return outcome
