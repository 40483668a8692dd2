"""Tree-reweighted belief propagation: marginals and an upper bound on the log-partition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab.algorithms.belief_propagation.forests import (
    Forests,
    appearance,
    cover,
    spanning_forest,
)
from inference_lab.algorithms.belief_propagation.reweighted import (
    RootedForest,
    State,
    TRWWorkspace,
    Update,
    collect,
    forest_energy,
    mutual_information,
    pseudo_marginals,
    sweep,
)
from inference_lab.algorithms.elimination.arc_consistency import Domains, allowed_labels
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.label_cost_encoding import run_on_star
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, least_labels
from inference_lab.kernels.messages import cost_scale, unflatten
from inference_lab.specs.settings import setting

#: Entries that messages read between two checks of the clock.
_CHUNK = 1 << 22

#: Probability of the first added forest, and the least probability that is tried.
_FIRST_STEP, _LAST_STEP = 0.25, 0.01
#: Tolerance of the messages between updates of the probabilities.
_ROUGH = 1e-3
#: Most sweeps between these updates.
_ROUGH_SWEEPS = 20


def new_message(
    table: FloatArray, rho: float, temperature: float, belief: FloatArray, back: FloatArray
) -> FloatArray:
    """Return the message of a table (k_i, k_j) to ``i``, times ``rho``."""
    # The update of tree-reweighted sum-product (Wainwright, Jaakkola, Willsky 2005), as energies:
    # with ``n = rho m`` for the message ``m``, and the belief ``b_j`` being the unary of ``j`` and
    # all ``n`` that arrive there,
    #
    # ``n_i(x) = -rho T log sum_y exp(-(theta(x, y) + rho b_j(y) - n_j(y)) / (rho T))``,
    #
    # normalised so that its least entry is 0.
    exponents = -(table + rho * belief - back) / (rho * temperature)
    message = -rho * temperature * np.logaddexp.reduce(exponents, axis=1)
    return np.asarray(message - message.min())


@dataclass(frozen=True)
class TRWBP(IterativeSolver["_Passing"]):
    """Tree-reweighted sum-product (Wainwright, Jaakkola, Willsky 2005), on terms of two variables.

    The terms are spread over spanning forests; term ``c`` appears with probability ``rho_c``. For
    any messages ``n`` the energy is an average of energies on forests, with unaries
    ``b_i - sum_c n_c / rho_c`` over the forest's terms at ``i`` (``b_i`` the unary plus all
    messages) and terms ``theta_c / rho_c``. By Hoelder's inequality

        ``log Z <= sum_F share_F log Z_F``,

    and dynamic programming gives each ``Z_F``. Message passing lowers the bound; at convergence it
    is the least that these ``rho`` allow: the maximum over locally consistent marginals of ``-<E> /
    T + sum_i H_i - sum_c rho_c (sum_{i in c} H_i - H_c)``. For factors there is
    `WeightedMiniBuckets`.

    Parameters
    ----------
    trees : int
        Least number of spanning forests; more are drawn until every term is in one.
    tree_updates : int
        Number of conditional gradient steps on the probabilities: the spanning forest of the
        largest mutual information joins the others.
    damping : float in [0, 1)
        Share of the old message that is kept; not applied on forests.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps, over all updates of the probabilities.

    Guarantees
    ----------
    `log_partition` is an upper bound (kind ``"upper"``) whenever message passing stops, also with
    hard terms; it is tight on forests. Only a time limit before the forests are drawn leaves none.
    The marginals are pseudo-marginals. `converged` means that the messages did, which is not
    guaranteed.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal terms, O(k^2) for tables, and O(k) for each variable
    and label cost. The bound costs as much for each term of each forest, an update of the
    probabilities about 20 sweeps. Memory: two message
    arrays of ``8 * 2 m k`` bytes each, and 8 n bytes for each of about ``max(trees, 2 m / n)``
    forests.

    References
    ----------
    M. J. Wainwright, T. S. Jaakkola, A. S. Willsky, "A new class of upper bounds on the log
    partition function", IEEE Trans. Inf. Theory 51(7), 2005: the bound, the tree-reweighted
    sum-product messages, and the conditional gradient in the edge probabilities.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0]] * 3, [(0, 1), (1, 2), (2, 0)], 0.5)
    >>> s = il.solve(g, "trw-bp", temperature=1.0)
    >>> exact = il.solve(g, "brute-force", temperature=1.0).log_partition
    >>> s.log_partition_kind, 0.0 < s.log_partition - exact < 0.02
    ('upper', True)
    """

    label_costs: ClassVar[bool] = True

    trees: int = setting(8, at_least=1)
    tree_updates: int = setting(10, at_least=0)
    damping: float = setting(0.3, at_least=0, below=1)
    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(1000, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover every graph without higher-order factors at T > 0."""
        if temperature == 0:
            return "trw-bp finds marginals: it needs a temperature above 0"
        if graph.n_factors:
            return "terms have at most two variables; weighted-mini-buckets covers larger ones"
        return None

    def start(self, graph: FactorGraph, run: Run) -> _Passing | Outcome:
        """Draw forests that cover all terms."""
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        domains = allowed_labels(graph)
        if not domains.feasible:
            return Outcome(converged=True, infeasible=True)
        forests = cover(graph, self.trees, run)
        if forests is None:
            run.offer(np.zeros(graph.n_variables, dtype=np.int64))
            return Outcome()
        return _Passing(self, graph, run, domains, forests)

    def step(self, state: _Passing, run: Run, done: int) -> Progress:
        """Sweep, and update the probabilities where the messages have roughly settled."""
        if state.improving and state.bounded and state.before is None:
            state.before = state.copy()
            state.join(state.share)
        change = state.sweep(backwards=done % 2 == 1)
        if change is None:
            return Progress(finished=True)
        if not state.improving:
            return Progress(change <= self.tolerance)
        if change <= _ROUGH or state.sweeps == _ROUGH_SWEEPS:
            state.judge()
        return Progress()

    def finish(self, state: _Passing, run: Run, outcome: Outcome) -> Outcome:
        """Evaluate the bound and the marginals."""
        if state.sweeps or not state.bounded:
            state.judge()
        graph = run.graph
        marginals = state.marginals()
        run.offer(least_labels(graph, -marginals))
        outcome.marginals = unflatten(graph, marginals)
        outcome.log_partition, outcome.log_partition_kind = state.best_bound, "upper"
        outcome.diagnostics = {
            "trees": int(state.forests.share.size),
            "tree_updates": state.updates,
            "least_probability": float(state.state.rho.min(initial=1.0)),
            "last_change": state.change,
        }
        return outcome


class _Passing:
    """The forests and messages of a run."""

    def __init__(
        self, settings: TRWBP, graph: FactorGraph, run: Run, domains: Domains, forests: Forests
    ) -> None:
        self.settings, self.graph, self.run, self.forests = settings, graph, run, forests
        self.arrays = graph.arrays
        unary = np.full(graph.unary_values.size, np.inf)
        owner = np.repeat(np.arange(graph.n_variables), domains.sizes)
        entries = graph.unary_ptr[owner] + domains.labels
        unary[entries] = graph.unary_values[entries]
        ptr = starts_of(graph.cardinalities[graph.edges.ravel()[graph.arrays.adj_half]])
        rho = appearance(graph, forests)
        self.state = State(
            unary, ptr, np.zeros(ptr[-1]), graph.arrays.reverse_positions(), rho, unary.copy()
        )
        width = int(graph.cardinalities.max(initial=1))
        self.work = TRWWorkspace(np.empty(width), np.empty(width), np.empty(width))
        self.order = graph.breadth_first_order
        damping = 0.0 if graph.is_forest else settings.damping
        self.update = Update(run.temperature, damping, cost_scale(graph))
        self.change = math.inf
        # `sweeps` counts from the last bound; `before` is for undoing an update of probabilities.
        self.sweeps = self.updates = 0
        self.best_bound = math.inf
        self.share = _FIRST_STEP
        self.bounded = False
        self.improving = settings.tree_updates > 0 and not graph.is_forest
        self.before: tuple[Forests, State] | None = None

    def sweep(self, backwards: bool) -> float | None:
        """Sweep over all variables; return the largest change, or None if time ran out."""
        change = 0.0
        self.sweeps = self.sweeps + 1
        step = -1 if backwards else 1
        at = self.order.size - 1 if backwards else 0
        while 0 <= at < self.order.size:
            at, renewed = sweep(
                self.arrays, self.order, step, at, self.update, self.state, self.work, _CHUNK
            )
            change = max(change, renewed)
            if self.run.remaining <= 0.0 and 0 <= at < self.order.size:
                return None
        self.change = change
        return change

    def judge(self) -> None:
        """Evaluate the bound; undo an update of the probabilities that has not lowered it."""
        bound = self.bound()
        if self.before is not None:
            self.updates += 1
            if bound >= self.best_bound:
                self.restore(self.before)
                self.share /= 2
        self.best_bound = min(self.best_bound, bound)
        self.before = None
        self.bounded = True
        self.sweeps = 0
        updates = self.settings.tree_updates
        self.improving = self.improving and self.updates < updates and self.share >= _LAST_STEP

    def bound(self) -> float:
        """Return the upper bound on the log-partition by the current messages."""
        values = [
            share
            * forest_energy(
                self.arrays,
                RootedForest(order, up),
                self.run.temperature,
                self.state,
                self.work,
            )
            for order, up, share in zip(*self.forests, strict=True)
        ]
        return -(math.fsum(values) + self.graph.constant) / self.run.temperature

    def marginals(self) -> FloatArray:
        """Return the pseudo-marginals, flat like the unaries."""
        out = np.empty(self.graph.unary_values.size)
        pseudo_marginals(self.arrays, self.run.temperature, self.state, out)
        return out

    def information(self) -> FloatArray:
        """Return the mutual information of the pseudo-marginals of each edge, (m,)."""
        out = np.zeros(self.state.rho.size)
        mutual_information(self.arrays, self.run.temperature, self.state, self.work, out)
        return out

    def join(self, step: float) -> None:
        """Give the forest of largest mutual information the probability `step`."""
        heaviest_first = np.argsort(-self.information(), kind="stable")
        order, up = spanning_forest(self.graph, heaviest_first)
        self.forests = self.forests.joined(order, up, step)
        rho = appearance(self.graph, self.forests)
        # The messages stay the same, but are stored scaled by the probabilities.
        scale = rho / self.state.rho
        of_edge = np.repeat(scale[self.arrays.adj_half >> 1], np.diff(self.state.ptr))
        self.state = self.state._replace(rho=rho, messages=self.state.messages * of_edge)
        collect(self.arrays, self.state)

    def copy(self) -> tuple[Forests, State]:
        """Return the state that `restore` needs to undo a step."""
        return self.forests, self.state._replace(messages=self.state.messages.copy())

    def restore(self, before: tuple[Forests, State]) -> None:
        """Go back to an earlier state."""
        self.forests, self.state = before
        collect(self.arrays, self.state)
