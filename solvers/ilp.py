"""Integer linear program: the exact optimum by branch and bound, with a bound at any time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from inference_lab.algorithms.cuts.partial_optimality import SHRINKING, reduce
from inference_lab.algorithms.cuts.reduction import Reduction
from inference_lab.algorithms.linear.backends import LinearSolver, Relaxed, seconds_to_start
from inference_lab.algorithms.linear.cycle_cuts import tighten
from inference_lab.algorithms.linear.incremental import IncrementalRelaxation
from inference_lab.algorithms.linear.integer_program import fix_by_reduced_costs, solve_integer
from inference_lab.algorithms.linear.model import LinearModel, build_linear_model, model_size
from inference_lab.algorithms.parts import solve_parts, solve_rest
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.algorithms.symmetry import break_symmetry
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import TABLE, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend
from inference_lab.solvers.kernighan_lin import KernighanLin

#: Sweeps of the descent that finds a first labelling; ICM needs about ten.
_SWEEPS = 200

#: Share of the time that is kept for the steps after the cuts.
_SHARE_AFTER_CUTS = 0.2

#: Share of the time that is left for moves of several variables, before branch and bound.
_SHARE_OF_MOVES = 0.1

#: Nonzeros of models that are solved before anything is reduced: some hundredths of a second. On
#: most E-steps of this size the relaxation is integral, and the code of persistency and of local
#: search, 20 CPU s to compile, is not needed (record 047).
_SMALL_MODEL = 10_000

#: Seconds a column that HiGHS takes before it checks the clock, as measured on E-steps.
_SETUP_SECONDS = 1e-5


@dataclass(frozen=True)
class ILP(LinearSolver):
    """Minimise the energy exactly as an integer linear program.

    The model is the LP of `inference_lab.algorithms.linear.model.build_linear_model` with binary
    node variables. Copies of interchangeable labels (`inference_lab.algorithms.symmetry`) shrink
    the problem first, and so does persistency, unless the model is small and its relaxation
    integral. Rounds of cuts (`inference_lab.algorithms.linear.cycle_cuts`) tighten the relaxation;
    its solutions are rounded and improved by ICM and Kernighan-Lin. If no labelling meets the
    bound, reduced costs fix further labels, and branch and bound solves the rest.

    Parameters
    ----------
    backend : str
        ``"highs"``, or the name of a solver in ``pulp.listSolvers()`` for branch and bound, for
        instance ``"PULP_CBC_CMD"``. The relaxation is solved with HiGHS.
    cuts : "cycles" or None
        Tighten the relaxation by cycle inequalities, or leave cuts to the solver. They help where
        cycles are frustrated: on E-steps of iris with 300 constraints, 20% of them flipped, the gap
        at the root falls from 50% to 2%.
    reduce : bool
        Rule out labels beforehand; not where there are label costs.
    parts : bool
        Solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    Exact when it ends before the time limit. Under one it returns the best labelling and the larger
    of two bounds: of the relaxation with cuts and, with HiGHS, of branch and bound. Cuts take at
    most 80% of the time. Branch and bound prunes within an absolute 1e-6, which scaling makes about
    1e-9 of the energy; the bound is lowered by it. The bound of the relaxation holds whatever HiGHS
    returns; branch and bound, and infeasibility, rely on the solver's arithmetic.

    Iterations
    ----------
    One, if branch and bound is run. (HiGHS takes a limit on nodes and goes on beyond it.)

    Diagnostics
    -----------
    ``share_fixed`` (of the variables, by persistency, where it was tried), ``columns``, ``rows``,
    ``build_seconds``, ``lp_seconds``, ``lp_status``, ``lp_bound``. Where the relaxation is not
    enough: ``cut_rounds``, ``cuts``, ``cut_seconds``, ``cut_bound``, ``columns_left``,
    ``ilp_seconds``, ``ilp_status``, ``nodes`` (HiGHS only).

    Complexity
    ----------
    Exponential in the worst case; E-steps whose relaxation is integral end at the root node.

    References
    ----------
    Q. Huangfu, J. Hall, "Parallelizing the dual revised simplex method", Mathematical Programming
    Computation 10, 2018 (HiGHS).
    F. Barahona, A. R. Mahjoub, "On the cut polytope", Mathematical Programming 36, 1986.
    J. H. Kappes, M. Speth, G. Reinelt, C. Schnorr, "Higher-order segmentation via multicuts",
    CVIU 143, 2016 (cycle cuts for signed Potts terms).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "ilp")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    label_costs: ClassVar[bool] = True
    version: ClassVar[int] = 3
    startup_cost: ClassVar[float] = 40.0

    backend: str = "highs"
    cuts: Literal["cycles"] | None = "cycles"
    reduce: bool = True
    parts: bool = True

    def __post_init__(self) -> None:
        """Check the settings; the backend is ``"highs"`` or known to PuLP."""
        super().__post_init__()
        if self.backend == "highs":
            return
        import pulp

        backends = pulp.listSolvers()
        if self.backend not in backends:
            raise ValueError(
                f"backend must be highs or one of {', '.join(backends)}, got {self.backend!r}"
            )

    def missing(self) -> str | None:
        """Return None if the backend is installed, else the reason and the available backends."""
        if self.backend == "highs":
            return None
        import pulp

        available = pulp.listSolvers(onlyAvailable=True)
        if self.backend in available:
            return None
        usable = ", ".join(["highs", *available])
        return f"backend {self.backend} is not installed here; available: {usable}"

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Shrink the graph, build the model, solve it, report its labelling and its bound."""
        graph = payable(graph, run)
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        run.offer(unary_minimum(graph))
        search = _ILPSearch(self, graph, run)
        small = model_size(search.graph).nonzeros <= _SMALL_MODEL
        if small and self.reduce:
            outcome = search.relax()
            if outcome is not None:
                return outcome
        if self.parts:
            outcome = solve_parts(lambda part, inner, _: self.run(part, inner), graph, run)
            if outcome is not None:
                return outcome
        # Persistency covers variables and terms, but not label costs.
        if self.reduce and not graph.n_label_costs:
            search.shrink()
        if search.infeasible:
            return Outcome(infeasible=True, diagnostics=search.diagnostics)
        if search.settled():
            return Outcome(converged=True, diagnostics=search.diagnostics)
        if self.parts and search.reduction is not None:
            # Without the labels that persistency rules out, the graph may fall apart.
            outcome = solve_rest(
                lambda part, inner, _: self.run(part, inner), search.reduction, run
            )
            if outcome is not None:
                return replace(outcome, diagnostics=outcome.diagnostics | search.diagnostics)
        if seconds_to_start(model_size(search.graph).nonzeros) > run.remaining:
            search.diagnostics["lp_status"] = "no time for an LP of this size"
            return Outcome(diagnostics=search.diagnostics)
        return search.relax() or search.polish() or search.tighten() or search.branch()


def _is_smaller(reduced: FactorGraph, graph: FactorGraph) -> bool:
    """Whether the LP of a reduced graph is easier than the LP of the original graph."""
    # A Potts term whose ends have lost different labels becomes a table. On E-steps of 200 points
    # the LP with such tables took four times as long, unless it had less than half the nonzeros.
    if (reduced.edge_kinds == TABLE).sum() <= (graph.edge_kinds == TABLE).sum():
        return True
    return 2 * model_size(reduced).nonzeros <= model_size(graph).nonzeros


class _ILPSearch:
    """One run: the reduced graph, its model, and the mapping of answers back."""

    def __init__(self, settings: ILP, graph: FactorGraph, run: Run) -> None:
        self.settings = settings
        self.run = run
        self.diagnostics: dict[str, Any] = {}
        symmetry = break_symmetry(graph)
        if symmetry is not None:
            allowed = symmetry.allowed(graph)
            graph = graph.with_unary(np.where(allowed, graph.unary_values, math.inf))
        self.graph = graph
        self.infeasible = False
        self.reduction: Reduction | None = None
        #: The graph whose relaxation is solved.
        self._relaxed_graph: FactorGraph | None = None

    def shrink(self) -> None:
        """Rule out labels by persistency."""
        run, graph = self.run, self.graph
        shrinking = run.estimated_seconds(SHRINKING)
        reduction = reduce(graph, lambda: run.remaining <= shrinking)
        self.infeasible = reduction.infeasible
        self.diagnostics["share_fixed"] = reduction.share_fixed
        fewer = reduction.graph.unary_values.size < graph.unary_values.size
        if _is_smaller(reduction.graph, graph) and (fewer or self._relaxed_graph is None):
            self.reduction = reduction
            self.graph = reduction.graph

    def settled(self) -> bool:
        """Whether the reduction has left nothing to be decided."""
        if self.graph.n_variables:
            return False
        # The constant of the reduced graph is a sum of the same costs in another order.
        self.run.bound(self.offer(np.empty(0, dtype=np.int64)))
        return True

    def offer(self, labels: IntArray) -> float:
        """Offer a labelling of the reduced graph."""
        if self.reduction is not None:
            labels = self.reduction.expand(labels)
        return self.run.offer(labels)

    def round(self, x: Any) -> IntArray:
        """Round a solution of the LP and descend; offer and return the labelling."""
        labels = self.model.labels(x) if x is not None else unary_minimum(self.graph)
        order = self.run.rng.permutation(self.graph.n_variables)
        descend(self.graph, labels, order, _SWEEPS)
        self.offer(labels)
        return labels

    def relax(self) -> Outcome | None:
        """Solve the relaxation of the graph, once; return the outcome if it is final."""
        if self._relaxed_graph is self.graph:
            return None
        self._relaxed_graph = self.graph
        begin = time.perf_counter()
        self.model = build_linear_model(self.graph)
        built = time.perf_counter()
        self.relaxation = IncrementalRelaxation(self.model)
        # At most half of the time, because the relaxation may not end in time.
        self.relaxed = self.relaxation.solve(0.5 * self.run.remaining)
        self.diagnostics |= {
            "columns": self.model.n_columns,
            "rows": self.model.n_rows,
            "build_seconds": built - begin,
            "lp_seconds": time.perf_counter() - built,
            "lp_status": self.relaxed.message,
        }
        if self.relaxed.infeasible:
            return Outcome(infeasible=True, diagnostics=self.diagnostics)
        if self.relaxed.x is not None:
            self.diagnostics["lp_bound"] = self.relaxed.bound
        self.run.bound(self.relaxed.bound, self.relaxed.residual)
        if self.relaxed.x is not None:
            self.offer(self.model.labels(self.relaxed.x))
        return self._proved()

    def polish(self) -> Outcome | None:
        """Round the solution of the relaxation and descend; return the outcome if it is final."""
        self.labels = self.round(self.relaxed.x)
        return self._proved()

    def _proved(self) -> Outcome | None:
        if self.run.proved:
            return Outcome(converged=True, diagnostics=self.diagnostics)
        return None

    def tighten(self) -> Outcome | None:
        """Add cuts and improve the labelling; return the outcome if it is final."""
        run = self.run
        begin = time.perf_counter()
        # Rounds that gain are worth more than branching; ``inf - inf`` is avoided without a limit.
        reserve_s = _SHARE_AFTER_CUTS * run.remaining if run.time_limit is not None else 0.0
        rounds = 0
        infeasible = False
        # The last solution; a round that time cuts short has none.
        solved: Relaxed = self.relaxed
        model: LinearModel = self.model
        if self.settings.cuts is not None:
            for relaxed in tighten(
                self.graph, self.relaxation, self.relaxed, lambda: run.remaining - reserve_s
            ):
                rounds += 1
                infeasible = relaxed.infeasible
                run.bound(relaxed.bound, relaxed.residual)
                if relaxed.x is None:
                    break
                solved, model = relaxed, self.relaxation.model
                self.labels = self.round(relaxed.x)
                if run.proved:
                    break
            self.diagnostics |= {
                "cut_rounds": rounds,
                "cuts": model.b_ub.size - self.model.b_ub.size,
                "cut_seconds": time.perf_counter() - begin,
                "cut_bound": solved.bound,
            }
            if infeasible:
                return Outcome(infeasible=True, diagnostics=self.diagnostics)
        self.relaxed, self.model = solved, model
        if not run.proved and not self.graph.n_label_costs:
            self._improve()
        return self._proved()

    def _improve(self) -> None:
        """Improve the last labelling by moves of several variables."""
        run = self.run
        local = Run(
            self.graph,
            seed=run.rng,
            initial=self.labels,
            clock=run.clock,
            time_limit=None if run.time_limit is None else _SHARE_OF_MOVES * run.remaining,
        )
        KernighanLin().run(self.graph, local)
        if local.best_labels is not None:
            self.offer(local.best_labels)

    def branch(self) -> Outcome:
        """Solve the remaining program by branch and bound."""
        run, diagnostics, model = self.run, self.diagnostics, self.model
        if self.relaxed.x is not None:
            model = fix_by_reduced_costs(
                model, self.relaxed.dual_eq, self.relaxed.dual_ub, run.best_energy
            )
        n_columns = int((model.upper > 0.0).sum())
        diagnostics["columns_left"] = n_columns
        if _SETUP_SECONDS * n_columns > run.remaining:
            diagnostics["ilp_status"] = "no time to start branch and bound"
            return Outcome(diagnostics=diagnostics)
        begin = time.perf_counter()
        result = solve_integer(
            model,
            self.settings.backend,
            gap=run.best_energy - run.lower_bound,
            time_limit=run.remaining,
        )
        diagnostics["ilp_seconds"] = time.perf_counter() - begin
        diagnostics["ilp_status"] = result.message
        diagnostics["nodes"] = result.nodes
        if result.infeasible and run.best_energy == math.inf:
            return Outcome(infeasible=True, iterations=1, diagnostics=diagnostics)
        claimed = None
        if result.x is not None:
            energy = self.offer(model.labels(result.x))
            # Before optimality, the model's value may exceed the energy of its own labels, because
            # the variables of the terms need not be the best for them.
            if result.optimal and energy <= run.best_energy:
                claimed = result.value
        if not math.isnan(result.bound):
            # The program excludes labels that cannot improve on the best labelling.
            lower_bound = min(result.bound, run.best_energy) - result.tolerance
            run.bound(lower_bound, 2.0 * result.tolerance)
        return Outcome(
            converged=result.optimal,
            iterations=1,
            claimed_energy=claimed,
            diagnostics=diagnostics,
        )
