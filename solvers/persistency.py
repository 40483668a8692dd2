"""Persistency: rule out labels by partial optimality, then solve the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from inference_lab.algorithms.cuts.partial_optimality import SHRINKING, reduce
from inference_lab.algorithms.payable_costs import payable
from inference_lab.contract import Outcome, Run, Solver, Status
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.registry.registry import as_solver
from inference_lab.solving import solve


@dataclass(frozen=True)
class Persistency(Solver):
    """Shrink the problem by partial optimality, and pass the rest to another solver.

    Dead-end elimination and roof duality (`inference_lab.algorithms.cuts.partial_optimality`) rule
    out labels, and keep an optimal labelling. Another solver works on the reduced problem; its
    labellings and bounds are mapped back.

    Parameters
    ----------
    then : str
        Spec of the solver for the rest, for instance ``"ilp"`` or ``"trw-s"``; settings in
        quotes: ``persistency(then="loopy-bp(damping=0.5)")``.

    Guarantees
    ----------
    As the solver for the rest: the reduced problem has the same least energy, so its bounds hold.
    If nothing is left, the answer is exact.

    Iterations
    ----------
    Counted by the solver for the rest.

    Diagnostics
    -----------
    ``share_fixed`` of the variables, ``share_ruled_out`` of the labels, ``variables_left``,
    ``edges_left``, ``rounds``, ``reduction_seconds``; of the other solver its ``then_status``,
    ``then_message`` and ``then`` (its diagnostics).

    Complexity
    ----------
    A round takes for each variable O(k^2) an edge of the diagonal kinds, O(k^3) a table (O(k^2)
    above 16 labels), table size times k^2 a larger factor; a minimum cut where no variable has
    more than two labels left. Memory: linear, besides the other solver.

    References
    ----------
    R. Goldstein, "Efficient rotamer elimination applied to protein side-chains and related spin
    glasses", Biophysical Journal 66(5), 1994. P. Hammer, P. Hansen, B. Simeone, "Roof duality,
    complementation and persistency in quadratic 0-1 optimization", Mathematical Programming 28,
    1984.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "persistency(then=icm)")
    >>> s.energy, s.status.value, s.diagnostics["share_fixed"]
    (0.5, 'optimal', 1.0)
    """

    version: ClassVar[int] = 3
    startup_cost: ClassVar[float] = 20.0

    then: str = "ilp"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        as_solver(self.then)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Shrink the problem, solve the rest, and map the answer back."""
        graph = payable(graph, run)
        # With two labels the first cut is fast and often the last, so nothing is offered before.
        if int(graph.cardinalities.max(initial=0)) > 2:
            run.offer(unary_minimum(graph))
        before = run.seconds
        limited = run.time_limit is not None
        reduction = reduce(
            graph, lambda: limited and run.remaining <= run.estimated_seconds(SHRINKING)
        )
        rest = reduction.graph
        labels_left = reduction.labels.size + int((reduction.fixed >= 0).sum())
        diagnostics: dict[str, Any] = {
            "share_fixed": reduction.share_fixed,
            "share_ruled_out": 1.0 - labels_left / max(1, graph.unary_values.size),
            "variables_left": rest.n_variables,
            "edges_left": rest.n_edges,
            "rounds": reduction.rounds,
            "reduction_seconds": run.seconds - before,
        }
        if reduction.infeasible:
            return Outcome(infeasible=True, diagnostics=diagnostics)
        if rest.n_variables == 0:
            # The constant of the reduced graph is a sum of the same costs in another order.
            run.bound(run.offer(reduction.fixed))
            return Outcome(converged=True, diagnostics=diagnostics)
        run.offer(reduction.expand(unary_minimum(rest)))
        limit = None if run.time_limit is None else run.remaining
        # Read once, because the clock goes on.
        if limit is not None and limit <= 0.0:
            return Outcome(diagnostics=diagnostics)
        solution = solve(
            rest,
            self.then,
            seed=int(run.rng.integers(2**32)),
            time_limit=limit,
            max_iterations=run.max_iterations,
            initial=None if run.initial is None else reduction.restrict(run.initial),
            on_offer=lambda point: run.bound(point.lower_bound),
        )
        diagnostics["then_status"] = solution.status.value
        diagnostics["then_message"] = solution.message
        diagnostics["then"] = dict(solution.diagnostics)
        if solution.labels is not None:
            run.offer(reduction.expand(solution.labels))
        return Outcome(
            converged=solution.status in (Status.OPTIMAL, Status.CONVERGED),
            infeasible=solution.status == Status.INFEASIBLE,
            iterations=solution.iterations,
            diagnostics=diagnostics,
        )
