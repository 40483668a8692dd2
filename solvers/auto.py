"""Portfolio: looks at the structure of the graph and runs what suits it, in stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.persistency import SHRINKING, Reduction, reduce
from inference_lab.contract import Outcome, Run, Solution, Solver, Status
from inference_lab.graph.arrays import NO_FORM, POTTS, TABLE, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.feasibility import n_entries
from inference_lab.hardness.evidence import class_of, evidence
from inference_lab.hardness.measures import frustration
from inference_lab.registry.registry import as_solver
from inference_lab.solvers.tree_dp import TreeDP
from inference_lab.solving import solve
from inference_lab.specs.settings import setting

#: Tables of junction trees that are built without further thought, in bytes.
_SMALL_TREE = 1 << 26
#: Variables up to which an LP or an SDP is worth a try.
_DENSE = 2000
#: Entries of pairwise tables up to which an ILP is worth a try.
_ILP_ENTRIES = 60_000
#: Edges a variable up to which a graph counts as sparse.
_SPARSE = 2.5
#: Edges a variable up to which an ILP of two labels is worth a short try.
_LOOSE = 5.0
#: Variables above which anneals find lower energies than a population in the same time.
_LARGE = 200
#: Variables, edges and factors up to which an order of elimination is looked for.
_ELIMINABLE = 10_000
#: Share of the first try of a solver that is likely to prove.
_TRY = 0.3
#: Variables and edges up to which frustration is measured; it takes a tenth of a second then.
_MEASURED = 100_000
#: Variables and edges from which on messages need most of the time there is.
_VAST = 1_000_000
#: Share of the budget that the first descent may take, and the reduction.
_FIRST = 0.05
#: Where that is short, evaluations of the energy that some sweeps of the descent take, and the
#: share they may take.
_DESCENT = 60.0
_LONG_DESCENT = 0.5
_REDUCTION = 0.1


class Stage(NamedTuple):
    """One step of a plan: a solver, its share of the time that is left, and why it is there.

    A solver is left out whose share is not at least twice the seconds that it takes to begin. One
    that starts `afresh` is given the labelling of the first descent instead of the best so far.
    """

    solver: str
    share: float
    why: str
    begin: float = 0.0
    afresh: bool = False


#: Where no other stage could begin in time, the first descent has not come to its end.
_UNFINISHED = [Stage("icm", 1.0, "the descent goes on")]

#: Seconds for an entry of a table that branch and bound takes to build what it searches.
_SECONDS_AN_ENTRY = 2e-6


def structure(graph: FactorGraph) -> str:
    """Say in a few words what kind of energy a graph holds.

    Returns
    -------
    {"forest", "higher-order", "binary", "attractive", "signed-potts", "pairwise"}
        "attractive": all terms favour equal or near labels (Potts, truncated linear or quadratic);
        "signed-potts": one cost for equal and one for unequal labels, of either sign.
    """
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


def plan(graph: FactorGraph, whole: FactorGraph | None = None) -> Iterator[Stage]:
    """Yield the stages for a graph of which nothing more can be ruled out cheaply.

    A stage is asked for only when those before have left the question open. What the records of a
    study say is asked of the `whole` that the graph is what is left of, as it was of its problems.
    """
    kind = structure(graph)
    n, m = graph.n_variables, graph.n_edges
    if kind == "forest":
        yield Stage("tree-dp", 1.0, "a forest: dynamic programming is exact")
        return
    # Looking for an order of elimination takes a second for some ten thousand variables.
    eliminable = n + m + graph.n_factors <= _ELIMINABLE
    small = f"junction-tree(max_bytes={_SMALL_TREE})"
    if eliminable and as_solver(small).supports(graph, 0.0) is None:
        # Not all of the time: half of it may go into an order that is not found.
        yield Stage(small, 0.2, "small treewidth: elimination is exact")
    # Grids and the like, where short cycles carry the frustration.
    sparse = m <= _SPARSE * n
    first, second = (graph.cardinalities[graph.edges[:, end]] for end in (0, 1))
    entries = first @ second + graph.table_values.size
    why = "small enough for branch and bound"
    ilp = [Stage("ilp", 0.6, why)] if int(entries) <= _ILP_ENTRIES else []
    why = "loosely tied: cutting planes and branching often prove soon"
    tried = [stage._replace(share=0.6 if sparse else _TRY, why=why) for stage in ilp]
    general = kind in ("pairwise", "higher-order")
    if general:
        # It proves many a graph of general tables in a moment, and says early what it cannot.
        begin = _SECONDS_AN_ENTRY * n_entries(graph)
        yield Stage("branch-and-bound", 0.2, "a short exact search over cost functions", begin)
        # What an exact search has come upon would make all of the population like itself.
        why = "a population of local optima, for whatever follows"
        yield Stage("memetic", 0.3, why, afresh=True)
    either_sign = kind in ("binary", "signed-potts")
    if kind == "attractive":
        yield Stage("trw-s(tighten=cycles)", 0.7, "bounds, often tight on attractive terms")
        yield Stage("alpha-expansion", 0.7, "attractive terms: expansion moves go on from there")
    elif either_sign:
        stages = [Stage("memetic", 0.3, "terms of either sign: a population of local optima")]
        if kind == "binary" and m > _LOOSE * n and n > _LARGE:
            why = "two labels, large and dense: many short anneals"
            yield Stage("simulated-annealing", 0.4, why)
        if sparse:
            why = "few neighbours: exact moves on large subgraphs"
            stages.append(Stage("subgraph-search", 0.2, why))
        if kind == "binary" and m <= _LOOSE * n:
            stages += tried
        if not sparse and n <= _DENSE:
            why = "frustrated and dense: the LP says little"
            stages.append(Stage("semidefinite", 0.7, why))
        if kind == "binary":
            why = "two labels: clusters over frustrated cycles often prove"
            stages.append(Stage("mplp", 0.6, why))
        else:
            why = "clusters raise the bound over cycles"
            stages.append(Stage("trw-s(tighten=cycles)", 0.6, why))
        yield from _by_evidence(stages + ilp, graph if whole is None else whole, kind)
    elif kind == "pairwise":
        yield Stage("trw-s(tighten=cycles)", 0.5, "general tables: messages, then clusters")
        yield Stage("mplp", 0.4, "another way to the same bound")
    else:
        yield from tried
        yield Stage("trw-s", 0.3, "messages along chains, where the factors are of a form it knows")
        yield Stage("mplp", 0.5, "higher-order terms: max-product LP with clusters")
    if not either_sign:
        yield from ilp
    if eliminable and as_solver("junction-tree").supports(graph, 0.0) is None:
        yield Stage("junction-tree", 0.8, "its tables still fit into memory")
    if general:
        yield Stage("memetic", 0.4, "another population, before more is tried to prove")
        yield Stage("branch-and-bound", 0.5, "the exact search again, with more time")
    yield Stage("toulbar2", 0.9, "search over cost functions, where it is installed")


def _by_evidence(stages: list[Stage], whole: FactorGraph, kind: str) -> list[Stage]:
    """Return stages in the order that problems of a study speak for that are about as frustrated.

    The relaxation first where it is likely to be tight; then who found the best energies where it
    was not; then a short try of who proved most of those, if that was half of them; then the stages
    as they are. So are those of graphs with more pairs a variable than any problem of the study
    had. In large graphs of more than two labels messages come first, if there are costs of
    variables that they could pass on, then single changes, and then what gives a bound.
    """
    known = evidence()
    n, m = whole.n_variables, whole.n_edges
    if n + m > _MEASURED and kind == "signed-potts" and np.ptp(whole.unary_values) > 0:
        why = "large: closest from a hundred thousand variables on (estep-scaling)"
        rest = sorted(stages, key=lambda stage: not stage.solver.startswith("trw-s"))
        on = Stage("icm", 1.0, "single changes from where the messages led")
        # With a million points the sweeps of ten seconds are still too few.
        share = 0.6 if n + m <= _VAST else 0.85
        return [Stage("loopy-bp(damping=0.5)", share, why), on, *rest]
    if n + m > _MEASURED or m > known["most_pairs_a_variable"] * n:
        return stages
    such = known["classes"][class_of(frustration(whole))]
    left = such["not_tight"]
    told = f"of {left['problems']} such problems of {known['study']}"
    ordered = []
    # Of two labels, persistency has taken what the relaxation knows.
    if kind == "signed-potts" and such["tight_interval"][0] > 0.5:
        why = f"tight on {such['tight']} of {such['problems']} such problems of {known['study']}"
        ordered.append(Stage("trw-s", 0.3, why))
    for stage in stages:
        if stage.solver in left["best"]:
            ordered.append(stage._replace(why=f"{stage.why}; best on average {told}"))
    proofs = {stage.solver: left["proved_by"].get(stage.solver, 0) for stage in stages}
    prover = max(proofs, key=lambda solver: proofs[solver])
    if 2 * proofs[prover] >= left["problems"] > 0:
        ordered.append(Stage(prover, _TRY, f"proved {proofs[prover]} {told}"))
    return ordered + [stage for stage in stages if stage.solver not in left["best"]]


def searches(graph: FactorGraph) -> list[Stage]:
    """Return searches for better labellings, for the time that a plan leaves."""
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

    Forests are solved exactly at once. Else labels that some optimum does without are ruled out
    (persistency), which alone solves binary submodular energies. What is left is solved exactly
    where it is a forest or of small treewidth. Else stages follow that depend on the terms: TRW-S,
    and expansion moves from its labelling, for attractive ones, memetic search, exact moves on
    subgraphs or a semidefinite relaxation for Potts terms of either sign, a short exact search and
    message passing tightened by clusters for others, then branch and bound, elimination with larger
    tables, toulbar2 if it is installed, and further searches for labellings in turn, as size and
    time allow. For terms of either sign the records of a study say which goes first, by how
    frustrated the graph is (`inference_lab.diagnose`). Each stage starts from the best labelling so
    far; the run ends when bound and energy meet.

    At T > 0: elimination where it fits, else loopy belief propagation for the marginals, and mean
    field and tree-reweighted propagation for bounds on the log-partition.

    Parameters
    ----------
    seconds : float
        Budget where the run has no time limit.

    Guarantees
    ----------
    The best labelling and the largest bound of all stages; `optimal` where they meet. At T > 0 the
    log-partition is ``"exact"`` where elimination was possible, else an estimate, with bounds in
    the diagnostics.

    Diagnostics
    -----------
    ``structure``; ``share_fixed`` of the variables by persistency; ``plan``: for each stage its
    solver, why it was chosen, its seconds, energy, bound and status, and its ``runs`` if there were
    several.

    Complexity
    ----------
    That of the stages, each with a share of the time that is left.

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

    start_up: ClassVar[float] = 20.0

    seconds: float = setting(10.0, above=0, below=math.inf)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover every graph, at any temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Reduce the graph, then run the stages of the plan."""
        end = self.seconds if run.time_limit is None else run.time_limit
        if run.temperature > 0:
            return _marginals(graph, run, end)
        if graph.is_forest:
            # Nothing is to be gained by ruling labels out first.
            outcome = TreeDP().run(graph, run)
            outcome.diagnostics |= {"structure": "forest", "share_fixed": 0.0, "plan": []}
            return outcome
        # Of two labels one cut may settle everything; else a descent comes first.
        binary = int(graph.cardinalities.max(initial=1)) <= 2
        reduction = _reduced(graph, run, end) if binary else None
        if reduction is not None and reduction.settled:
            return _settled(reduction, run)
        run.bound(graph.sum_of_minima)
        first = unary_minimum(graph)
        run.offer(first)
        sweeps = min(run.evaluations(_DESCENT), _LONG_DESCENT * end)
        descent = solve(graph, "icm", time_limit=max(_FIRST * end, sweeps), initial=run.initial)
        if descent.labels is not None:
            first = descent.labels
            run.offer(first)
        if reduction is None:
            reduction = _reduced(graph, run, end)
        if reduction.settled:
            return _settled(reduction, run)
        rest = reduction.graph
        plans: list[dict[str, Any]] = []
        diagnostics: dict[str, Any] = {"share_fixed": reduction.share_fixed, "plan": plans}
        start = best = reduction.restrict(first)
        diagnostics["structure"] = structure(rest)
        best_energy = float(rest.energy(best))
        iterations = 0
        converged = False
        more = searches(rest)
        # A budget is used until it is spent; without one, every search ends by itself.
        for stage in itertools.chain(
            plan(rest, graph),
            _UNFINISHED if descent.status is Status.LIMIT else (),
            more[:1] if run.time_limit is None else itertools.cycle(more),
        ):
            left = end - run.seconds
            if run.proved or left <= 0 or run.should_stop(iterations):
                break
            if stage.share * left < 2.0 * stage.begin:
                continue
            if as_solver(stage.solver).supports(rest, 0.0) is not None:
                continue
            solution = solve(
                rest,
                stage.solver,
                seed=int(run.rng.integers(2**32)),
                time_limit=stage.share * left,
                max_iterations=_iterations_left(run, iterations),
                initial=start if stage.afresh else best,
                on_offer=lambda point: run.bound(point.lower_bound),
                # Nothing is lost if this run is ended by force.
                on_improve=lambda labels, energy, seconds: _tell(
                    run, reduction.expand, labels, energy
                ),
            )
            if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
                continue
            iterations += solution.iterations
            said = _said(stage, solution)
            before = next((done for done in plans if done["solver"] == stage.solver), None)
            if before is None:
                plans.append(said)
            else:
                before |= said | {
                    "seconds": before["seconds"] + said["seconds"],
                    "energy": min(before["energy"], said["energy"]),
                    "lower_bound": max(before["lower_bound"], said["lower_bound"]),
                    "runs": before.get("runs", 1) + 1,
                }
            if solution.labels is not None:
                run.offer(reduction.expand(solution.labels))
                if solution.energy < best_energy:
                    best, best_energy = solution.labels, solution.energy
            if solution.status == Status.INFEASIBLE:
                return Outcome(infeasible=True, iterations=iterations, diagnostics=diagnostics)
            if solution.status == Status.OPTIMAL:
                converged = True
                break
        else:
            # All that was planned has come to its own end.
            converged = all(done["status"] == "converged" for done in plans)
        return Outcome(
            converged=converged or run.proved, iterations=iterations, diagnostics=diagnostics
        )


def _reduced(graph: FactorGraph, run: Run, end: float) -> Reduction:
    """Rule out labels, as long as that may take."""
    return reduce(
        graph,
        lambda: run.seconds >= _REDUCTION * end - run.evaluations(SHRINKING) or run.should_stop(),
        keep_forms=True,
    )


def _settled(reduction: Reduction, run: Run) -> Outcome:
    """Report that nothing was left to be solved."""
    diagnostics = {"share_fixed": reduction.share_fixed, "plan": []}
    if reduction.infeasible:
        return Outcome(infeasible=True, diagnostics=diagnostics)
    run.bound(reduction.graph.constant)
    run.offer(reduction.fixed)
    return Outcome(converged=True, diagnostics=diagnostics)


def _tell(
    run: Run, expand: Callable[[IntArray], IntArray], labels: IntArray, energy: float
) -> None:
    if energy < run.best_energy:
        run.offer(expand(labels))


def _iterations_left(run: Run, done: int) -> int | None:
    return None if run.max_iterations is None else max(1, run.max_iterations - done)


def _said(stage: Stage, solution: Solution) -> dict[str, Any]:
    return {
        "solver": stage.solver,
        "why": stage.why,
        "seconds": round(solution.seconds, 4),
        "energy": solution.energy,
        "lower_bound": solution.lower_bound,
        "status": solution.status.value,
    }


def _marginals(graph: FactorGraph, run: Run, end: float) -> Outcome:
    """Answer at T > 0: exactly if elimination fits, else by propagation, with bounds."""
    stages = [
        Stage("tree-dp", 1.0, "a forest: dynamic programming is exact"),
        Stage("junction-tree", 1.0, "the tables of elimination fit into memory: exact"),
        Stage("loopy-bp", 0.5, "marginals and the Bethe estimate"),
        Stage("trw-bp", 0.6, "an upper bound on the log-partition"),
        Stage("mean-field", 1.0, "a lower bound on the log-partition"),
    ]
    diagnostics: dict[str, Any] = {"plan": []}
    answer: Solution | None = None
    iterations = 0
    for stage in stages:
        left = end - run.seconds
        if answer is not None and (left <= 0 or run.should_stop(iterations)):
            break
        if as_solver(stage.solver).supports(graph, run.temperature) is not None:
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
        diagnostics["plan"].append(_said(stage, solution))
        if solution.labels is not None:
            run.offer(solution.labels)
        run.bound(solution.lower_bound)
        if solution.status == Status.INFEASIBLE:
            return Outcome(infeasible=True, iterations=iterations, diagnostics=diagnostics)
        if solution.log_partition_kind in ("lower", "upper"):
            diagnostics[f"log_partition_{solution.log_partition_kind}"] = solution.log_partition
        better = answer is None or answer.marginals is None
        if better and solution.marginals is not None:
            answer = solution
        if solution.log_partition_kind == "exact":
            answer = solution
            break
    if answer is None:
        return Outcome(iterations=iterations, diagnostics=diagnostics)
    return Outcome(
        converged=answer.status == Status.CONVERGED,
        iterations=iterations,
        marginals=answer.marginals,
        log_partition=answer.log_partition,
        log_partition_kind=answer.log_partition_kind,
        diagnostics=diagnostics,
    )
