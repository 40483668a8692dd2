"""Loopy belief propagation: min-sum for the best labelling, sum-product for marginals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.belief_propagation.decoding import bethe_marginals, decode
from inference_lab.algorithms.belief_propagation.layout import (
    make_general,
    make_links,
    make_scratch,
    message_starts,
    renumber,
)
from inference_lab.algorithms.belief_propagation.schedules import (
    DOWN,
    UP,
    Part,
    residual_sweep,
    sequential_sweep,
    synchronous_sweep,
)
from inference_lab.algorithms.crew import Crew, Stage, Waves
from inference_lab.algorithms.elimination.domains import allowed_labels
from inference_lab.algorithms.label_cost_star import run_on_star
from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import freeze
from inference_lab.kernels.beliefs import General, Network, Step
from inference_lab.kernels.heap import empty_heap
from inference_lab.kernels.messages import GENERAL, aligned_zeros, cost_scale, unflatten
from inference_lab.specs.settings import setting

#: Sweeps after which messages that have not settled are damped, and by how much.
_UNDAMPED = 50
_DAMPING = 0.5


def soft_minimum(values: FloatArray, temperature: float, axis: tuple[int, ...]) -> FloatArray:
    """Return ``-T log sum exp(-values / T)`` over axes, and the minimum at T = 0."""
    least = values.min(axis=axis, keepdims=True)
    if temperature > 0.0:
        shifted = values - np.where(np.isfinite(least), least, 0.0)
        with np.errstate(divide="ignore"):  # all infinite
            rest = np.log(np.exp(-shifted / temperature).sum(axis=axis, keepdims=True))
        least = np.where(np.isfinite(least), least - temperature * rest, np.inf)
    return np.asarray(np.squeeze(least, axis=axis))


def renewed_message(
    table: FloatArray, cavities: Mapping[int, FloatArray], to: int, temperature: float
) -> FloatArray:
    """Return the message of a term to the variable at position `to` of its scope.

    The update rule of the method, (6) of Kschischang, Frey and Loeliger 2001 in energies:
    ``m(b) = soft-min over the labels of the others of theta(b, others) + sum of their cavities``.
    A cavity is (5): the unary of a variable and all its messages but that of this term. What is
    compiled comes to the same, cheaper for terms of a simple form.
    """
    others = tuple(s for s in range(table.ndim) if s != to)
    for s in others:
        table = table + cavities[s].reshape([-1 if axis == s else 1 for axis in range(table.ndim)])
    message = soft_minimum(table, temperature, others)
    return message - message.min() if np.isfinite(message.min()) else message


@dataclass(frozen=True)
class LoopyBP(Solver):
    """Belief propagation on graphs with cycles (Pearl 1988; Yedidia, Freeman, Weiss 2005).

    At T = 0 messages are min-sum (max-product): ``m(b) = min_a theta(a, b) + cavity(a)``; at
    T > 0 sum-product with ``-T log sum exp`` in place of the minimum, all in the log domain and
    normalised to minimum zero.

    Parameters
    ----------
    schedule : {"sequential", "residual", "synchronous"}
        Variables in breadth-first order, there and back again, each sending to those that come
        after it, and skipped where nothing new arrived; the variable with the largest incoming
        change next (Elidan et al. 2006, by variables); or all messages at once from those of the
        last sweep.
    damping : float in [0, 1), or None
        Share of the old message that is kept, in the log domain; not applied on forests. By
        default none at first, and a half once 50 sweeps have not settled the messages.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps; a sweep is at most n variable updates, one way in the sequential schedule.
    threads : int or None
        Threads that share the sweeps of the sequential schedule: variables are updated at once
        where no term joins them. Results do not depend on their number. With it, a variable is
        visited after a change above the tolerance; without it (None), also after several that are
        in sum, so that messages differ a little where they are not exact.

    Guarantees
    ----------
    On forests exact: best labelling with proof at T = 0 (also with ties), marginals and
    log-partition at T > 0. On graphs with cycles none; the best labelling seen is returned, and
    the log-partition is the Bethe approximation. Labels that hard terms forbid are taken out
    before (arc consistency); where a variable keeps none, infeasibility is proved on any graph.
    `converged` is said only when the messages did.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal and (T = 0) truncated linear and quadratic terms,
    O(k^2) for tables, O(table size * arity^2) for higher-order factors, O(k) for each variable and
    label cost (a factor over all variables, by its star encoding); at T > 0 two to five
    exponentials or logarithms a label. Memory: one message array of ``8 * 2 m k`` bytes, two for
    the synchronous schedule; 112 bytes an edge for the layout, and a copy of the unaries.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss, "Constructing free-energy approximations and
    generalized belief propagation algorithms", IEEE Trans. Inf. Theory 51(7), 2005.
    F. R. Kschischang, B. J. Frey, H.-A. Loeliger, "Factor graphs and the sum-product algorithm",
    IEEE Trans. Inf. Theory 47(2), 2001.
    G. Elidan, I. McGraw, D. Koller, "Residual belief propagation", UAI 2006.
    S. Basu, thesis, 2005, appendix A.1 (the E-step).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "loopy-bp")
    >>> s.energy, s.status
    (0.5, <Status.OPTIMAL: 'optimal'>)
    >>> il.solve(g, "loopy-bp", temperature=1.0).marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    """

    label_costs: ClassVar[bool] = True
    start_up: ClassVar[float] = 80.0

    schedule: Literal["sequential", "residual", "synchronous"] = "sequential"
    damping: float | None = setting(None, at_least=0, below=1)
    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(1000, at_least=1)
    threads: int | None = setting(None, at_least=1)

    def __post_init__(self) -> None:
        """Check the settings, and what they must be to each other."""
        super().__post_init__()
        if self.threads is not None and self.schedule != "sequential":
            raise ValueError(
                f"threads can share the sequential schedule only, got schedule={self.schedule!r}"
            )

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Every graph, every temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages until they settle or the budget is spent; decode on the way."""
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        with Crew(self.threads) as crew:
            return self._pass(graph, run, crew)

    def _pass(self, graph: FactorGraph, run: Run, crew: Crew) -> Outcome:
        passes = Passes(self, graph, run.temperature, crew)
        if not passes.feasible:
            return Outcome(infeasible=True)
        if run.initial_marginals is not None and run.temperature > 0.0:
            passes.recall(run.initial_marginals)
        sweeps = 0
        converged = False
        while not (converged or sweeps >= self.max_sweeps or run.should_stop(sweeps)):
            converged = passes.sweep(sweeps)
            sweeps += 1
            run.offer(passes.labels())
        passes.decode(run)
        exact = converged and graph.is_forest
        outcome = Outcome(
            converged=converged,
            iterations=sweeps,
            diagnostics={"updates": passes.updates, "last_change": passes.change},
        )
        if run.temperature > 0.0:
            outcome.marginals, outcome.log_partition = passes.marginals()
            outcome.log_partition_kind = "exact" if exact else "estimate"
        elif exact:
            run.bound(run.best_energy)
        return outcome


class Passes:
    """Messages of a run and what is needed to renew and decode them.

    ``arrays`` are those of the graph with its variables in breadth-first order, for threads sorted
    into waves, and infinite unaries at labels that hard terms forbid; all that has an entry a
    variable is in that order.

    Parameters
    ----------
    settings : LoopyBP
    graph : FactorGraph
    temperature : float
    crew : Crew, optional
        Who makes the sequential sweeps.
    """

    def __init__(
        self, settings: LoopyBP, graph: FactorGraph, temperature: float, crew: Crew | None = None
    ) -> None:
        n = graph.n_variables
        self.schedule = "forest" if graph.is_forest else settings.schedule
        self.graph = graph
        self._crew = crew or Crew(None)
        self._order = graph.breadth_first_order
        self._stages: list[Stage] = [[(0, n)]]
        if settings.threads is not None:
            waves = Waves.of(graph, self._order)
            self._order, self._stages = waves.order, waves.stages(graph)
        self.arrays, self._entries = renumber(graph.arrays, self._order)
        self.feasible = True
        if graph.has_infinite:
            domains = allowed_labels(graph)
            self.feasible = domains.feasible
            unary = np.where(domains.allowed, graph.unary_values, np.inf)
            self.arrays = self.arrays._replace(unary=unary[self._entries]).read_only()
        start = message_starts(self.arrays)
        self.net = Network(
            self.arrays.cardinalities,
            self.arrays.unary_ptr,
            self.arrays.unary,
            self.arrays.adj_ptr,
            start,
            make_links(self.arrays, start, temperature),
        )
        n_entries = (self.net.cardinalities * np.diff(self.net.adj_ptr)).sum()
        self.messages = aligned_zeros(int(n_entries))
        self.general = make_general(graph, self.arrays)
        plain = graph.n_labels is not None and graph.n_factors == 0
        plain = plain and not (self.net.links["way"] == GENERAL).any()
        # What the graph does not need is not handed to kernels, nor compiled.
        self._needed = None if plain else self.general
        self._temperature = temperature or None
        self._works = [make_scratch(graph) for _ in range(self._crew.size)]
        self._calms_down = settings.damping is None and self.schedule != "forest"
        damping = 0.0 if self.schedule == "forest" else settings.damping or 0.0
        at_once = settings.threads is not None
        self._step = Step(damping, cost_scale(graph), settings.tolerance, at_once)
        self._x = np.zeros(n, dtype=np.int64)
        self.updates = 0
        self.change = np.inf
        self.priority = np.full(2 * n, np.inf)
        self.pending = np.zeros(n)
        self._second = np.empty(self.messages.size if self.schedule == "synchronous" else 0)
        n_queued = n if self.schedule == "residual" else 0
        # Finite, distinct keys: every variable is visited once first, in order.
        self.heap = empty_heap(-np.arange(n_queued, 0, -1, dtype=np.float64) - 1e6)
        self.heap.items[:] = self.heap.place[:] = np.arange(n_queued)
        self.heap.size[0] = n_queued

    def recall(self, marginals: FloatArray) -> None:
        """Begin with the messages that variables of these marginals would send on their own."""
        net, self.net = self.net, self.net._replace(unary=self._as_costs(marginals))
        self.sweep(0)
        self.net = net
        self.priority[:] = np.inf

    def _as_costs(self, marginals: FloatArray) -> FloatArray:
        assert self._temperature is not None
        likely = np.maximum(marginals[self._entries], np.finfo(np.float64).tiny)
        # As read-only as the unaries in whose place it is: kernels are compiled for one of the two.
        return freeze(-self._temperature * np.log(likely))

    def sweep(self, number: int) -> bool:
        """Make one sweep; return whether the messages have converged."""
        n = self.graph.n_variables
        if n == 0:
            return True
        if self._calms_down and number == _UNDAMPED:
            # Held back, every message has to be renewed.
            self._step = self._step._replace(damping=_DAMPING)
            self.priority[:] = np.inf
        net, general, temperature, step = self.net, self._needed, self._temperature, self._step
        messages, x, work = self.messages, self._x, self._works[0]
        if self.schedule == "synchronous":
            self.updates += n
            self.change = synchronous_sweep(
                net, general, temperature, step, messages, self._second, self.pending, x, work
            )
        elif self.schedule == "residual":
            self.updates += residual_sweep(
                net, general, temperature, step, messages, self.heap, self.pending, x, work
            )
            self.change = float(-self.heap.key.min())
        else:
            forest = self.schedule == "forest"
            if forest:
                self.priority[:] = np.inf
            # On a forest from the leaves to the roots first, and back.
            self._sweep_in_turn(DOWN if (number % 2 == 0) == forest else UP)
            if forest:
                # Then every message is final, whatever rounding would make of a test for change.
                self.change = 0.0 if number else np.inf
                return number > 0
            self.change = float(self.priority.max())
        return bool(self.change <= self._step.tolerance)

    def _sweep_in_turn(self, direction: int) -> None:
        def update(member: int, first: int, last: int) -> int:
            part, work = Part(direction, first, last), self._works[member]
            net, general, temperature = self.net, _own(self._needed), self._temperature
            messages, priority = self.messages, self.priority
            return sequential_sweep(
                net, general, part, temperature, self._step, messages, priority, self._x, work
            )

        stages = self._stages if direction == UP else self._stages[::-1]
        self.updates += self._crew.sweep(stages, update)

    def labels(self) -> IntArray:
        """Return the best label of each variable when it was last updated."""
        x = np.empty_like(self._x)
        x[self._order] = self._x
        return x

    def decode(self, run: Run) -> None:
        """Offer the labellings that the messages suggest."""
        general = self._needed
        if general is not None:
            general = general._replace(to_factor=general.to_factor.copy())
        for in_order in (False, True):

            def choose(member: int, first: int, last: int, in_order: bool = in_order) -> int:
                work, part = self._works[member], (first, last)
                decode(self.net, _own(general), self.messages, in_order, part, self._x, work)
                return 0

            self._x[:] = -1
            self._crew.sweep(self._stages, choose)
            run.offer(self.labels())

    def marginals(self) -> tuple[Marginals, float]:
        """Return marginals and Bethe log-partition."""
        temperature = self._temperature
        assert temperature is not None
        flat, log_z = bethe_marginals(
            self.net, self.general, self.messages, temperature, self._works[0]
        )
        ordered = np.empty_like(flat)
        ordered[self._entries] = flat
        return unflatten(self.graph, ordered), log_z - self.graph.constant / temperature


def _own(general: General | None) -> General | None:
    """Return the same with scratch of its own."""
    if general is None:
        return None
    return general._replace(
        digits=np.empty_like(general.digits), infinite=np.empty_like(general.infinite)
    )
