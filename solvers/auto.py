"""Portfolio: choose solvers by the structure of the graph and run them in stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.partial_optimality import SHRINKING, reduce
from inference_lab.algorithms.cuts.reduction import Reduction
from inference_lab.algorithms.elimination.forest import solve_forest
from inference_lab.algorithms.multicut.signed_graph import edge_gains, why_no_partition
from inference_lab.algorithms.parts import solve_rest
from inference_lab.algorithms.search.first_labelling import n_table_entries
from inference_lab.algorithms.symmetry import break_symmetry
from inference_lab.contract import Outcome, Run, Solution, Solver, Status
from inference_lab.graph.arrays import NO_FORM, POTTS, TABLE, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.registry.registry import as_solver
from inference_lab.solvers.junction_tree import JunctionTree
from inference_lab.solving import memory_shortage, solve
from inference_lab.specs.settings import setting

#: Most variables for the semidefinite relaxation.
_SDP_VARIABLES = 2000
#: Most entries of tables for an ILP, and of Potts terms, which need fewer columns: of the 95
#: E-steps with more entries than the former, it proved 24 in two seconds.
_ILP_ENTRIES = 60_000
_ILP_POTTS = 200_000
#: Most edges a variable of a sparse graph, such as a grid.
_SPARSE = 2.5
#: Most edges a variable for a short run of the ILP with two labels.
_LOOSE = 5.0
#: From this many variables on, annealing finds lower energies than a population in the same time.
_LARGE = 200
#: Slow annealing to a low temperature. On G14, four runs in half a second cut 3058 on average, two
#: of 2000 sweeps with reheats 3052. In half a minute twelve runs cut 3061 and 3062, four 3060 to
#: 3063.
_ANNEALS = "simulated-annealing(restarts={}, reheats=0, sweeps=1000000, end_ratio=0.03)"
#: Seconds of the budget for each such run, and their least number.
_SECONDS_AN_ANNEAL, _FEWEST_ANNEALS = 5.0, 4
#: On tables of many labels, such as scen06, larger regions and more patience end lower in a second.
_PATIENT_MEMETIC = "memetic(region=100, patience=0.3)"
#: An elimination of at most this many seconds comes first.
_SHORT_ELIMINATION = 0.5
#: Most variables, edges and factors for which an elimination order is searched.
_ELIMINABLE = 10_000
#: Product of table entries and open part (see `plan`) up to which an ILP is likely to prove in a
#: second; the limit grows with the square root of the time. Of 563 E-steps that the LP relaxation
#: left open it proved half below this limit (estep-regimes). The product orders 91 % of pairs of a
#: problem proved in half a second and an unproved one correctly, frustration 68 %. With two labels
#: it proved the ten grids of `instances` with a product up to 85, and not the three from 427 on.
_CLOSED_IN_A_SECOND = {"signed-potts": 2500.0, "binary": 150.0}
#: Multiple of that limit beyond which it proved one in twenty.
_UNLIKELY = 4.0
#: Largest open part that an exact search over tables closes within a few times the time.
_NEARLY_CLOSED = 0.05
#: From this open part on, a proof is unlikely, and time goes to better labellings.
_WIDE_OPEN = 0.5
#: Variables and edges from which on message passing comes first.
_MESSAGES_FIRST = 100_000
#: Variables and edges from which on message passing needs most of the time.
_VAST = 1_000_000
#: Share of the budget for the first descent. If this many evaluations of the energy, the time of
#: some sweeps, take longer, they are the limit, up to the second share.
_DESCENT_SHARE, _DESCENT_EVALUATIONS, _MOST_DESCENT_SHARE = 0.05, 60.0, 0.5
#: Stages whose code takes ten processor seconds to compile. One that would get a smaller share of
#: the whole budget is left out: it would hardly begin (record 047).
_SLOW_TO_COMPILE = frozenset({"trw-s(tighten=cycles)", "semidefinite"})
_LEAST_SHARE = 0.03
#: Share of the budget for the reduction.
_REDUCTION_SHARE = 0.1


class Stage(NamedTuple):
    """One stage of a plan: a solver with its share of the remaining time and the reason."""

    solver: str
    share: float
    why: str
    #: Seconds before its search begins; the stage is skipped if its share is not twice as long.
    begin: float = 0.0
    #: Whether it starts without the best labelling so far.
    afresh: bool = False


#: The last stage if the time limit ended the first descent.
_UNFINISHED = [Stage("icm", 1.0, "the descent goes on")]

#: Seconds an entry of a table that branch and bound takes to build its cost functions.
_SECONDS_AN_ENTRY = 2.5e-7


def structure(graph: FactorGraph) -> str:
    """Return the kind of energy of a graph."""
    # "attractive": all terms favour equal or near labels (Potts, truncated linear or quadratic);
    # "signed-potts": one cost for equal and one for unequal labels, of either sign.
    if graph.n_factors:
        return "higher-order"
    if graph.is_forest:
        return "forest"
    if int(graph.cardinalities.max(initial=1)) <= 2:
        return "binary"
    arrays = graph.arrays
    potts = arrays.kinds == POTTS
    same = np.zeros(graph.n_edges)
    same[potts] = arrays.pairwise[arrays.offsets[potts]]
    with np.errstate(invalid="ignore"):
        attractive = potts & (arrays.weights >= same)
    near = (arrays.kinds == TABLE) & (arrays.forms != NO_FORM)
    if (attractive | near).all():
        return "attractive"
    return "signed-potts" if potts.all() else "pairwise"


def plan(
    graph: FactorGraph,
    open_part: Callable[[], float] = lambda: 1.0,
    seconds: float = 10.0,
) -> Iterator[Stage]:
    """Yield the stages for a reduced graph, each if no stage before it proved optimality."""
    # ``open_part()`` is the gap between best energy and bound, relative to the gap between best
    # energy and the sum of the least costs.
    kind = structure(graph)
    n, m = graph.n_variables, graph.n_edges
    if kind == "forest":
        yield Stage("junction-tree", 1.0, "a forest: elimination is exact")
        return
    # The search for an elimination order takes a second for some ten thousand variables.
    eliminable = n + m + graph.n_factors <= _ELIMINABLE
    takes = JunctionTree().foreseen(graph) if eliminable else math.inf
    elimination = Stage("junction-tree", 0.6, "small treewidth: elimination is exact", takes)
    later = [elimination] if _SHORT_ELIMINATION < takes < math.inf else []
    if takes <= _SHORT_ELIMINATION:
        yield elimination
    entries = n_table_entries(graph)
    why = "small enough for branch and bound"
    potts = kind in ("binary", "signed-potts")
    most = _ILP_POTTS if potts else _ILP_ENTRIES
    ilp = [Stage("ilp", 0.6, why)] if entries <= most else []
    if kind == "attractive":
        yield Stage("trw-s", 0.7, "bounds, often tight on attractive terms")
        yield Stage("alpha-expansion", 0.7, "attractive terms: expansion moves go on from there")
        yield Stage("trw-s(tighten=cycles)", 0.7, "clusters raise the bound over cycles")
        yield from later + ilp
    elif potts:
        few = graph.cardinalities[0] < n
        if kind == "signed-potts" and few and break_symmetry(graph) is not None:
            why = "labels are interchangeable: a short exact search among one of all copies"
            yield Stage("branch-and-bound", 0.1, why, begin=_SECONDS_AN_ENTRY * entries)
        partition = kind == "signed-potts" and why_no_partition(graph) is None
        if partition and (edge_gains(graph) > 0.0).any():
            why = "labels are only names of clusters: a search over partitions"
            yield Stage("multicut(anneals=1000000)", 0.6, why)
        closed = _CLOSED_IN_A_SECOND[kind] * math.sqrt(seconds)
        anneals = _ANNEALS.format(max(_FEWEST_ANNEALS, round(seconds / _SECONDS_AN_ANNEAL)) - 1)
        yield from _of_either_sign(
            graph, kind, ilp, later, anneals, lambda: open_part() * entries / closed
        )
    else:
        yield from _of_tables(graph, kind, ilp, later, open_part)
    if takes == math.inf and eliminable and JunctionTree().supports(graph, 0.0) is None:
        yield Stage("junction-tree", 0.8, "an order of elimination may yet be found")
    if kind in ("pairwise", "higher-order"):
        yield Stage("memetic", 0.4, "another population, before more is tried to prove")
        yield Stage("branch-and-bound", 0.5, "the exact search again, with more time")
    yield Stage("toulbar2", 0.9, "search over cost functions, where it is installed")


def _of_either_sign(
    graph: FactorGraph,
    kind: str,
    ilp: list[Stage],
    later: list[Stage],
    anneals: str,
    far: Callable[[], float],
) -> Iterator[Stage]:
    """Yield the stages for Potts terms of either sign, by the distance to a proof."""
    # An ILP is likely to prove if ``far() <= 1``. Stages in `later` prove for certain, but may take
    # longer than the first ones.
    n, m = graph.n_variables, graph.n_edges
    sparse = m <= _SPARSE * n
    why = "terms of either sign: a population of local optima"
    population = Stage("memetic", 0.3, why)
    if n + m > _MESSAGES_FIRST and kind == "signed-potts" and np.ptp(graph.unary_values) > 0:
        why = "large: closest from a hundred thousand variables on (estep-scaling)"
        # With a million points the sweeps of ten seconds are still too few.
        share = 0.6 if n + m <= _VAST else 0.85
        yield Stage("loopy-bp(damping=0.5)", share, why)
        yield Stage("icm", 1.0, "single changes from where the messages led")
        yield Stage("trw-s(tighten=cycles)", 0.6, "clusters raise the bound over cycles")
        yield population
    elif kind == "binary" and not sparse:
        if m > _LOOSE * n and n > _LARGE:
            why = "two labels, large and dense: many short anneals"
            yield Stage(anneals, 0.5, why)
        yield population._replace(share=0.5 if n > _LARGE else 0.3)
        if m <= _LOOSE * n:
            why = "loosely tied: cutting planes and branching often prove soon"
            yield from (stage._replace(share=0.3, why=why) for stage in ilp)
        yield from later
    else:
        if kind == "binary":
            # Persistency has already used single variables.
            yield Stage("mplp", 0.1, "a first bound, from clusters over cycles")
        else:
            yield Stage("trw-s", 0.1, "a first bound: tight on most E-steps (estep-regimes)")
        # Afresh, because a population that starts from one labelling stays close to it.
        yield population._replace(share=0.2, afresh=True)
        if far() <= 1.0:
            why = "an ILP proves most graphs of its size of which so little is left open"
            yield from (stage._replace(share=0.75, why=why) for stage in ilp)
        yield from later
        # If a proof is unlikely, more of the time goes to better labellings.
        share = 0.4 if far() <= _UNLIKELY else 0.6
        if kind == "signed-potts":
            yield population._replace(share=share)
            share = 0.2
        if sparse:
            why = "few neighbours: exact moves on large subgraphs"
            yield Stage("subgraph-search", share, why)
    if not sparse and n <= _SDP_VARIABLES:
        yield Stage("semidefinite", 0.7, "frustrated and dense: the LP bound is weak")
    if kind == "binary":
        yield Stage("mplp", 0.6, "two labels: clusters over frustrated cycles often prove")
    else:
        yield Stage("trw-s(tighten=cycles)", 0.6, "clusters raise the bound over cycles")
    yield from ilp


def _of_tables(
    graph: FactorGraph,
    kind: str,
    ilp: list[Stage],
    later: list[Stage],
    open_part: Callable[[], float],
) -> Iterator[Stage]:
    """Yield the stages for general tables and higher-order terms, by the open part."""
    n, terms = graph.n_variables, graph.n_edges + graph.n_factors
    # Branch and bound solves many of these graphs quickly, and detects early if it cannot.
    search = Stage("branch-and-bound", 0.25, "a short exact search over cost functions")
    yield search._replace(begin=_SECONDS_AN_ENTRY * n_table_entries(graph))
    yield from later
    if open_part() <= _NEARLY_CLOSED:
        yield search._replace(share=0.7, why="the exact search goes on: little is left open")
    if kind == "higher-order":
        why = "messages along chains, where the factors are of a form it knows"
        yield Stage("trw-s", 0.25, why)
    elif open_part() >= 1.0:
        yield Stage("trw-s", 0.1, "a first bound")
    if terms > _LOOSE * n:
        yield Stage("simulated-annealing", 0.3, "dense: short anneals")
    elif terms <= _SPARSE * n:
        yield Stage("subgraph-search", 0.3, "few neighbours: exact moves on large subgraphs")
    why = "a population of local optima, for whatever follows"
    population = Stage(_PATIENT_MEMETIC, 0.4, why, afresh=True)
    if terms > _LOOSE * n or open_part() < _WIDE_OPEN:
        yield population
    else:
        yield population._replace(share=0.75)
        yield population._replace(why="another one: a proof is far")
    if kind == "pairwise":
        yield Stage("trw-s(tighten=cycles)", 0.5, "general tables: messages, then clusters")
        yield Stage("mplp", 0.4, "another way to the same bound")
    else:
        if open_part() < _WIDE_OPEN:
            yield search._replace(share=0.6, why="the exact search again, from a better labelling")
        share = 0.6 if graph.n_edges <= _SPARSE * n else 0.3
        yield from (stage._replace(share=share, why="often proves soon") for stage in ilp)
        yield Stage("trw-s", 0.3, "more sweeps")
        yield Stage("mplp", 0.5, "higher-order terms: max-product LP with clusters")
    yield from ilp


def searches(graph: FactorGraph) -> list[Stage]:
    """Return searches for better labellings, for the time after a plan."""
    sparse = graph.n_edges <= _SPARSE * graph.n_variables
    if graph.n_label_costs:
        names = ["simulated-annealing"]
    elif sparse and not graph.n_factors:
        names = ["subgraph-search", "memetic"]
    else:
        names = ["memetic", "simulated-annealing"]
    return [Stage(name, 1.0, "time is left: on to better labellings") for name in names]


@dataclass(frozen=True)
class Auto(Solver):
    """Choose solvers by the structure of the graph and run them within one budget.

    Forests are solved exactly. Otherwise persistency rules out labels first, and elimination solves
    the rest if its treewidth is small. Further stages depend on the terms: TRW-S and expansion
    moves for attractive terms; memetic search, subgraph search or a semidefinite relaxation for
    Potts terms of either sign; message passing tightened by clusters for others. Branch and bound,
    elimination with larger tables, toulbar2 (if installed) and further local searches follow as
    size and time allow. Each stage starts from the best labelling so far; the run ends when bound
    and energy meet.

    At T > 0: elimination where it fits, else estimates by elimination with copies of variables, on
    large graphs by loopy belief propagation; then bounds on the log-partition, from below by
    mean field, from above by tree-reweighted propagation and weighted mini-buckets.

    Parameters
    ----------
    seconds : float
        Budget of a run without a time limit.
    parts : bool
        After the reduction, solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    The best labelling and the largest bound of all stages; `optimal` where they meet. At T > 0 the
    log-partition is ``"exact"`` where elimination was possible, else an estimate, with bounds in
    the diagnostics; an exact one beside estimated marginals is a ``"lower"`` bound, with
    ``log_partition_exact`` in the diagnostics.

    Diagnostics
    -----------
    ``structure``; ``share_fixed`` of the variables by persistency; ``plan``: solver, reason,
    seconds, energy, bound and status of each stage, and its ``runs`` if there were several.

    Complexity
    ----------
    The complexity of the stages, each with a share of the remaining time.

    References
    ----------
    B. Hurley et al., "Multi-language evaluation of exact solvers in graphical model discrete
    optimization", Constraints 21, 2016: no solver dominates.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "auto")
    >>> s.energy, s.status.value, s.diagnostics["structure"]
    (0.5, 'optimal', 'forest')
    """

    version: ClassVar[int] = 4
    startup_cost: ClassVar[float] = 20.0

    seconds: float = setting(10.0, above=0, below=math.inf)
    parts: bool = True

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support every graph at every temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Reduce the graph, then run the stages of the plan."""
        end = self.seconds if run.time_limit is None else run.time_limit
        outcome = self._outcome(graph, run, end)
        if run.time_limit is None and not outcome.converged:
            spent = run.seconds >= end
            outcome.stopped_by = f"seconds={self.seconds:g}" if spent else "those of its stages"
        return outcome

    def _outcome(self, graph: FactorGraph, run: Run, end: float) -> Outcome:
        """Reduce the graph and run the stages, for this many seconds."""
        if run.temperature > 0:
            return _marginals(graph, run, end)
        if graph.is_forest:
            # Exact without a reduction. A forest of edges needs little of the code of elimination.
            pairs = not graph.n_factors and not graph.n_label_costs
            outcome = solve_forest(graph, run) if pairs else JunctionTree().run(graph, run)
            outcome.diagnostics |= {"structure": "forest", "share_fixed": 0.0, "plan": []}
            return outcome
        # With two labels a single cut may settle the whole graph; else a descent comes first.
        binary = int(graph.cardinalities.max(initial=1)) <= 2
        reduction = _reduced(graph, run, end) if binary else None
        if reduction is not None and reduction.settled:
            return _settled(reduction, run)
        run.bound(graph.sum_of_minima)
        labels, finished = _descent(graph, run, end)
        if reduction is None:
            reduction = _reduced(graph, run, end)
        if reduction.settled:
            return _settled(reduction, run)
        if self.parts:
            apart = solve_rest(self._on_part, reduction, run, end - run.seconds)
            if apart is not None:
                apart.diagnostics["share_fixed"] = reduction.share_fixed
                return apart
        portfolio = _Portfolio(run, reduction, reduction.restrict(labels))
        return portfolio.outcome(graph.sum_of_minima, end, finished)

    def _on_part(self, part: FactorGraph, run: Run, seconds: float) -> Outcome:
        """Run the portfolio on a component."""
        return replace(self, seconds=max(1e-3, seconds)).run(part, run)


def _descent(graph: FactorGraph, run: Run, end: float) -> tuple[IntArray, bool]:
    """Offer the cheapest labels and the result of ICM; return it, and whether ICM finished."""
    first = unary_minimum(graph)
    run.offer(first)
    sweeps = min(run.estimated_seconds(_DESCENT_EVALUATIONS), _MOST_DESCENT_SHARE * end)
    descent = solve(
        graph,
        "icm",
        time_limit=max(_DESCENT_SHARE * end, sweeps),
        initial=run.initial,
        seed=int(run.rng.integers(2**32)),
    )
    if descent.labels is not None:
        first = descent.labels
        run.offer(first)
    return first, descent.status is not Status.LIMIT


class _Portfolio:
    """The stages on the reduced graph, and its best labelling."""

    def __init__(self, run: Run, reduction: Reduction, best: IntArray) -> None:
        self.run, self.reduction = run, reduction
        self.best, self.best_energy = best, float(reduction.graph.energy(best))
        self.iterations = 0
        self.plans: list[dict[str, Any]] = []
        #: Stages that have begun, whose code is loaded.
        self._begun: set[str] = set()

    def outcome(self, least: float, end: float, finished: bool) -> Outcome:
        """Run the stages of the plan until one proves optimality or the budget is spent."""
        run, rest = self.run, self.reduction.graph

        def open_part() -> float:
            way = run.best_energy - least
            return (run.best_energy - run.lower_bound) / way if 0.0 < way < math.inf else 1.0

        diagnostics = {
            "share_fixed": self.reduction.share_fixed,
            "plan": self.plans,
            "structure": structure(rest),
        }
        more = searches(rest)
        stages = itertools.chain(
            plan(rest, open_part, end),
            () if finished else _UNFINISHED,
            # A time limit is used until it is spent; without one, every search ends by itself.
            more[:1] if run.time_limit is None else itertools.cycle(more),
        )
        converged = False
        for stage in stages:
            left = end - run.seconds
            if run.proved or left <= 0 or run.should_stop(self.iterations):
                break
            slow = stage.solver in _SLOW_TO_COMPILE and stage.solver not in self._begun
            if slow and stage.share * left < _LEAST_SHARE * end:
                continue
            status = self._make(stage, left)
            if status is Status.INFEASIBLE:
                return Outcome(infeasible=True, iterations=self.iterations, diagnostics=diagnostics)
            if status is Status.OPTIMAL:
                converged = True
                break
        else:
            converged = all(done["status"] == "converged" for done in self.plans)
        return Outcome(
            converged=converged or run.proved,
            iterations=self.iterations,
            diagnostics=diagnostics,
        )

    def _make(self, stage: Stage, left: float) -> Status | None:
        """Run one stage on the reduced graph; return its status, or None if it is left out."""
        run, rest = self.run, self.reduction.graph
        if stage.share * left < 2.0 * stage.begin:
            return None
        method = as_solver(stage.solver)
        if method.supports(rest, 0.0) is not None or memory_shortage(method, rest, 0.0) is not None:
            return None
        self._begun.add(stage.solver)
        solution = solve(
            rest,
            stage.solver,
            seed=int(run.rng.integers(2**32)),
            time_limit=stage.share * left,
            max_iterations=_iterations_left(run, self.iterations),
            initial=None if stage.afresh else self.best,
            absolute_gap=run.absolute_gap,
            on_offer=lambda point: run.bound(point.lower_bound),
            on_improve=self._forward,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            return None
        self.iterations += solution.iterations
        self._note(stage, solution)
        if solution.labels is not None:
            run.offer(self.reduction.expand(solution.labels))
            if solution.energy < self.best_energy:
                self.best, self.best_energy = solution.labels, solution.energy
        return solution.status

    def _forward(self, labels: IntArray, energy: float, seconds: float) -> None:
        """Offer an improvement of a stage immediately, so that it survives a killed run."""
        if energy < self.run.best_energy:
            self.run.offer(self.reduction.expand(labels))

    def _note(self, stage: Stage, solution: Solution) -> None:
        """Add a stage to the diagnostics; runs of one solver are summed up."""
        facts = _facts(stage, solution)
        before = next((done for done in self.plans if done["solver"] == stage.solver), None)
        if before is None:
            self.plans.append(facts)
            return
        before |= facts | {
            "seconds": before["seconds"] + facts["seconds"],
            "energy": min(before["energy"], facts["energy"]),
            "lower_bound": max(before["lower_bound"], facts["lower_bound"]),
            "runs": before.get("runs", 1) + 1,
        }


def _reduced(graph: FactorGraph, run: Run, end: float) -> Reduction:
    """Rule out labels within the share of the budget for the reduction."""

    def over() -> bool:
        building = run.estimated_seconds(SHRINKING)
        return run.seconds >= _REDUCTION_SHARE * end - building or run.should_stop()

    return reduce(graph, over, keep_forms=True)


def _settled(reduction: Reduction, run: Run) -> Outcome:
    """Return the outcome of a graph that the reduction solves."""
    diagnostics = {"share_fixed": reduction.share_fixed, "plan": []}
    if reduction.infeasible:
        return Outcome(infeasible=True, diagnostics=diagnostics)
    # The constant of the reduced graph is a sum of the same costs in another order.
    run.bound(run.offer(reduction.fixed))
    return Outcome(converged=True, diagnostics=diagnostics)


def _iterations_left(run: Run, done: int) -> int | None:
    return None if run.max_iterations is None else max(1, run.max_iterations - done)


def _facts(stage: Stage, solution: Solution) -> dict[str, Any]:
    return {
        "solver": stage.solver,
        "why": stage.why,
        "seconds": round(solution.seconds, 4),
        "energy": solution.energy,
        "lower_bound": solution.lower_bound,
        "status": solution.status.value,
    }


def _marginals(graph: FactorGraph, run: Run, end: float) -> Outcome:
    """Return the outcome at T > 0: exact if elimination fits, else by propagation, with bounds."""
    small = graph.n_variables + graph.n_edges + graph.n_factors <= _ELIMINABLE
    elimination = "junction-tree(estimate=True)" if small else "junction-tree"
    stages = [
        Stage(elimination, 1.0, "elimination: exact where its tables fit"),
        Stage("loopy-bp", 0.5, "marginals and the Bethe estimate"),
        Stage("mean-field", 0.4, "a lower bound on the log-partition"),
        Stage("trw-bp", 0.5, "an upper bound on the log-partition"),
        Stage("weighted-mini-buckets", 1.0, "a closer one, except on large graphs of pairs"),
    ]
    diagnostics: dict[str, Any] = {"plan": []}
    bounds: dict[str, list[float]] = {"lower": [], "upper": []}
    answer: Solution | None = None
    exact: float | None = None
    iterations = 0
    for stage in stages:
        left = end - run.seconds
        found = answer is not None or exact is not None
        if found and (left <= 0 or run.should_stop(iterations)):
            break
        if answer is not None and stage.solver == "loopy-bp":
            continue
        method = as_solver(stage.solver)
        reason = method.supports(graph, run.temperature)
        if reason is not None or memory_shortage(method, graph, run.temperature) is not None:
            continue
        solution = solve(
            graph,
            stage.solver,
            seed=int(run.rng.integers(2**32)),
            time_limit=max(1e-3, stage.share * left),
            max_iterations=_iterations_left(run, iterations),
            temperature=run.temperature,
            initial=run.initial,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            continue
        iterations += solution.iterations
        diagnostics["plan"].append(_facts(stage, solution))
        if solution.labels is not None:
            run.offer(solution.labels)
        run.bound(solution.lower_bound)
        if solution.status == Status.INFEASIBLE:
            return Outcome(infeasible=True, iterations=iterations, diagnostics=diagnostics)
        if solution.log_partition is not None and solution.log_partition_kind in bounds:
            bounds[solution.log_partition_kind].append(solution.log_partition)
        if solution.log_partition_kind == "exact" or "log_partition_exact" in solution.diagnostics:
            exact = solution.log_partition
        if answer is None and solution.marginals is not None:
            answer = solution
        if exact is not None and answer is not None:
            break
    if bounds["lower"]:
        diagnostics["log_partition_lower"] = max(bounds["lower"])
    if bounds["upper"]:
        diagnostics["log_partition_upper"] = min(bounds["upper"])
    outcome = Outcome(iterations=iterations, diagnostics=diagnostics)
    if answer is not None:
        outcome.converged = answer.status == Status.CONVERGED
        outcome.marginals = answer.marginals
        outcome.log_partition = answer.log_partition
        outcome.log_partition_kind = answer.log_partition_kind
    if exact is not None:
        own = answer is None or answer.log_partition_kind == "exact"
        outcome.log_partition, outcome.log_partition_kind = exact, "exact" if own else "lower"
        diagnostics["log_partition_exact"] = True
    return outcome
