"""Loopy belief propagation: min-sum for the best labelling, sum-product for marginals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.belief_propagation.bethe import bethe_marginals, decode
from inference_lab.algorithms.belief_propagation.schedules import (
    DOWN,
    UP,
    News,
    collect,
    few_directions,
    in_order,
    make_general,
    make_network,
    make_trees,
    network_bytes,
    pass_along,
    renumber,
    sequential_sweep,
)
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Marginals, Outcome, Run, run_bytes
from inference_lab.graph.arrays import FloatArray, IntArray, freeze
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.bp_updates import General, MessageRule, Network, Scratch
from inference_lab.kernels.messages import (
    GENERAL,
    aligned_zeros,
    cost_scale,
    message_limit,
    unflatten,
)
from inference_lab.specs.settings import setting

#: Sweeps after which messages that have not settled are damped, and by how much.
_UNDAMPED = 50
_DAMPING = 0.5
#: Damping before: slight along chains, because messages oscillate where integer costs tie.
_FIRST = {"chains": 0.05}


def soft_minimum(values: FloatArray, temperature: float, axis: tuple[int, ...]) -> FloatArray:
    """Return ``-T log sum exp(-values / T)`` over axes, and the minimum at T = 0."""
    minimum = values.min(axis=axis, keepdims=True)
    if temperature > 0.0:
        shifted = values - np.where(np.isfinite(minimum), minimum, 0.0)
        with np.errstate(divide="ignore"):  # all infinite
            rest = np.log(np.exp(-shifted / temperature).sum(axis=axis, keepdims=True))
        minimum = np.where(np.isfinite(minimum), minimum - temperature * rest, np.inf)
    return np.asarray(np.squeeze(minimum, axis=axis))


def renewed_message(
    table: FloatArray, cavities: Mapping[int, FloatArray], to: int, temperature: float
) -> FloatArray:
    """Return the message of a term to the variable at position `to` of its scope."""
    # The update rule of the method, (6) of Kschischang, Frey and Loeliger 2001 in energies: ``m(b)
    # = soft-min over the labels of the others of theta(b, others) + sum of their cavities``. A
    # cavity is (5): the unary of a variable and all its messages except the one of this term. The
    # compiled update is equivalent, and cheaper for terms of a simple form.
    others = tuple(s for s in range(table.ndim) if s != to)
    for s in others:
        table = table + cavities[s].reshape([-1 if axis == s else 1 for axis in range(table.ndim)])
    message = soft_minimum(table, temperature, others)
    return message - message.min() if np.isfinite(message.min()) else message


@dataclass(frozen=True)
class LoopyBP(IterativeSolver["Passes"]):
    """Belief propagation on graphs with cycles (Pearl 1988; Yedidia, Freeman, Weiss 2005).

    At T = 0 messages are min-sum (max-product): ``m(b) = min_a theta(a, b) + cavity(a)``; at
    T > 0 sum-product with ``-T log sum exp`` in place of the minimum, all in the log domain and
    normalised to minimum zero.

    Parameters
    ----------
    schedule : {"auto", "sequential"}
        ``sequential``: variables in breadth-first order, there and back, each sending to later ones
        and skipped if nothing new arrived. By default messages at T = 0 on grids without
        higher-order factors go there and back along the rows, then along the columns (BP-M; Tappen
        and Freeman 2003), and elsewhere are sequential.
    damping : float in [0, 1), or None
        Share of the old message that is kept, in the log domain; none on forests. By default 0
        (0.05 along chains), and 0.5 once 50 sweeps have not converged.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps. A sweep is at most n variable updates; along chains each message once.

    Guarantees
    ----------
    On forests exact: best labelling with proof at T = 0, marginals and log-partition at T > 0. On
    graphs with cycles the best labelling seen is returned, and the log-partition is the Bethe
    approximation. Arc consistency removes labels that hard terms forbid, which proves infeasibility
    if a variable keeps none. `converged` means that the messages did.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal and (T = 0) truncated linear and quadratic terms,
    O(k^2) for tables, O(table size * arity^2) for higher-order factors. Memory: one message array
    of ``8 * 2 m k`` bytes; 48 bytes an edge for the layout, 24 more and beliefs as large as the
    unaries along chains.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss, "Constructing free-energy approximations and
    generalized belief propagation algorithms", IEEE Trans. Inf. Theory 51(7), 2005.
    F. R. Kschischang, B. J. Frey, H.-A. Loeliger, "Factor graphs and the sum-product algorithm",
    IEEE Trans. Inf. Theory 47(2), 2001.
    M. F. Tappen, W. T. Freeman, "Comparison of graph cuts with belief propagation for stereo, using
    identical MRF parameters", ICCV 2003.
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

    startup_cost: ClassVar[float] = 80.0

    schedule: Literal["auto", "sequential"] = "auto"
    damping: float | None = setting(None, at_least=0, below=1)
    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(1000, at_least=1)

    def schedule_for(self, graph: FactorGraph, temperature: float) -> str:
        """Return the schedule on a graph, ``forest`` without cycles."""
        if graph.is_forest:
            return "forest"
        grid = self.schedule == "auto" and temperature == 0.0 and few_directions(graph)
        return "chains" if grid else "sequential"

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support every graph at every temperature."""
        return None

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Count the messages, their layout and the data of sweeps."""
        chains = self.schedule_for(graph, temperature) == "chains"
        return run_bytes(graph, network_bytes(graph, temperature, chains))

    def start(self, graph: FactorGraph, run: Run) -> Passes | Outcome:
        """Start the messages from zero, or from the given marginals."""
        passes = Passes(self, graph, run.temperature)
        if not passes.feasible:
            return Outcome(infeasible=True)
        if run.initial_marginals is not None and run.temperature > 0.0:
            passes.recall(run.initial_marginals)
        return passes

    def step(self, state: Passes, run: Run, done: int) -> Progress:
        """Make one sweep."""
        return Progress(state.sweep(done))

    def decode(self, state: Passes, run: Run, done: int) -> IntArray:
        """Return the best label of each variable when it was last updated."""
        return state.labels()

    def finish(self, state: Passes, run: Run, outcome: Outcome) -> Outcome:
        """Decode the last messages; add marginals, or the proof on a forest."""
        state.decode(run)
        outcome.diagnostics = {"updates": state.updates, "last_change": state.change}
        exact = outcome.converged and state.graph.is_forest
        if run.temperature > 0.0:
            outcome.marginals, outcome.log_partition = state.marginals()
            outcome.log_partition_kind = "exact" if exact else "estimate"
        elif exact:
            run.bound(run.best_energy)
        return outcome


class Passes:
    """Messages of a run and the data to update and decode them."""

    # ``net`` describes the graph with its variables in ``order``, and with infinite unaries at
    # labels that hard terms forbid. Every array with an entry per variable has that order:
    # breadth-first, or by number along a grid. Unaries and beliefs stay in the order of the graph.

    def __init__(self, settings: LoopyBP, graph: FactorGraph, temperature: float) -> None:
        n = graph.n_variables
        self.graph = graph
        name = settings.schedule_for(graph, temperature)
        self.feasible = True
        unary = graph.unary_values
        if graph.has_infinite:
            domains = allowed_labels(graph)
            self.feasible = domains.feasible
            unary = np.where(domains.allowed, unary, np.inf)
        if name == "chains":
            self.order = freeze(np.arange(n))
        else:
            self.order = graph.breadth_first_order
        self.net = make_network(graph.arrays, self.order, unary, temperature)
        n_entries = (self.net.cardinalities * np.diff(self.net.adj_ptr)).sum()
        plain = graph.n_labels is not None and graph.n_factors == 0
        plain = plain and not (self.net.arcs["way"] == GENERAL).any()
        # Graphs without general terms pass None, so that kernels compile no code for them.
        self.needed = None if plain else self.general
        self.temperature = temperature or None
        self.messages = aligned_zeros(int(n_entries))
        width = int(graph.cardinalities.max(initial=1))
        self.work = Scratch(*(aligned_zeros(width) for _ in Scratch._fields))
        damping = _FIRST.get(name, 0.0) if settings.damping is None else settings.damping
        self._calms_down = settings.damping is None and name != "forest"
        self.rule = MessageRule(
            damping=0.0 if name == "forest" else float(damping),
            limit=message_limit(graph, temperature),
            scale=cost_scale(graph),
            tolerance=settings.tolerance,
        )
        self.x = np.zeros(n, dtype=np.int64)
        self.updates = 0
        self.change = np.inf
        self.schedule = SCHEDULES[name](self)

    @cached_property
    def general(self) -> General:
        """The arrays for general terms and factors, with the variables in order."""
        arrays = renumber(self.graph.arrays, self.order)
        return make_general(self.graph, arrays._replace(unary=self.net.unary))

    @property
    def model(self) -> tuple[Network, General | None, float | None, MessageRule]:
        """The first arguments of every sweep."""
        return self.net, self.needed, self.temperature, self.rule

    def recall(self, marginals: FloatArray) -> None:
        """Start from the messages of variables whose unaries alone give these marginals."""
        assert self.temperature is not None
        likely = np.maximum(marginals, np.finfo(np.float64).tiny)
        # Read-only like the unaries that it replaces, so that no kernel is compiled again.
        unary = freeze(-self.temperature * np.log(likely))
        net, self.net = self.net, self.net._replace(unary=unary)
        self.sweep(0)
        self.net = net
        self.schedule.restart()

    def sweep(self, number: int) -> bool:
        """Make one sweep; return whether the messages have converged."""
        if self.graph.n_variables == 0:
            return True
        if self._calms_down and number == _UNDAMPED:
            # Damping changes the update, so every message is due.
            self.rule = self.rule._replace(damping=_DAMPING)
            self.schedule.restart()
        self.change = self.schedule.sweep(self, number)
        return bool(self.change <= self.rule.tolerance)

    def labels(self) -> IntArray:
        """Return the best label of each variable when it was last updated."""
        x = np.empty_like(self.x)
        x[self.order] = self.x
        return x

    def decode(self, run: Run) -> None:
        """Offer the labelling decoded in order from the messages."""
        general = self.needed
        g = self.graph.arrays
        if general is not None:
            g = general.g
            general = general._replace(to_factor=general.to_factor.copy())
            half = g.adj_half
        elif isinstance(self.schedule, Chains):
            half = g.adj_half
        else:
            half = freeze(in_order(g.adj_half, g.adj_ptr, self.order))
        self.x[:] = -1
        decode(self.net, g, half, general, self.messages, self.x, self.work)
        run.offer(self.labels())

    def marginals(self) -> tuple[Marginals, float]:
        """Return marginals and Bethe log-partition."""
        temperature = self.temperature
        assert temperature is not None
        flat, log_z = bethe_marginals(self.net, self.general, self.messages, temperature, self.work)
        return unflatten(self.graph, flat), log_z - self.graph.constant / temperature


class Sequential:
    """Updates of one variable after another, forwards and backwards."""

    def __init__(self, passes: Passes) -> None:
        self.priority = np.full(2 * passes.x.size, np.inf)

    def restart(self) -> None:
        """Mark all variables as due."""
        self.priority[:] = np.inf

    def sweep(self, passes: Passes, number: int) -> float:
        """Sweep up or down the order."""
        self.visit(passes, UP if number % 2 == 0 else DOWN)
        return float(self.priority.max())

    def visit(self, p: Passes, direction: int) -> None:
        """Visit the variables whose incoming messages changed."""
        p.updates += sequential_sweep(*p.model, direction, p.messages, self.priority, p.x, p.work)


class Forest(Sequential):
    """Updates from the leaves of a forest to the roots and back, which make every message final."""

    def sweep(self, passes: Passes, number: int) -> float:
        """Sweep towards the roots at even numbers, back at odd ones."""
        self.restart()
        self.visit(passes, DOWN if number % 2 == 0 else UP)
        # Two sweeps are exact, so changes by rounding do not count.
        return 0.0 if number else np.inf


class Chains:
    """Updates forwards and backwards along the chains of a grid, one direction after another."""

    def __init__(self, passes: Passes) -> None:
        self.trees, self.groups = make_trees(passes.graph.arrays)
        self.state = passes.messages, np.empty_like(passes.net.unary)
        n = passes.x.size
        self.news = News(np.zeros(n), np.empty(passes.net.arcs.size), np.zeros(1))
        self.restart()
        collect(passes.net, passes.needed, self.state, passes.x, passes.work)

    def restart(self) -> None:
        """Mark all messages as due."""
        self.news.sent[:] = -np.inf

    def sweep(self, passes: Passes, number: int) -> float:
        """Pass along all chains of each direction, forwards and backwards."""
        p = passes
        news = self.news
        news.largest[:] = 0.0
        for (first, last), direction in itertools.product(self.groups, (UP, DOWN)):
            part = direction, first, last
            p.updates += pass_along(*p.model, self.trees, *part, news, self.state, p.work)
        collect(p.net, p.needed, self.state, p.x, p.work)
        return float(news.largest[0])


#: Schedules by the results of `LoopyBP.schedule_for`.
SCHEDULES: dict[str, type[Sequential | Chains]] = {
    "forest": Forest,
    "sequential": Sequential,
    "chains": Chains,
}
