"""Mean field: the best fully factorised distribution, annealed for the best labelling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run, run_bytes
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray, blocks
from inference_lab.graph.factor_graph import FactorGraph, least_labels
from inference_lab.kernels.factor_messages import add_expectation
from inference_lab.kernels.messages import (
    aligned_zeros,
    cost_scale,
    edge_cost,
    least,
    unflatten,
)
from inference_lab.specs.settings import setting

#: A label whose field is this many temperatures above the best gets probability 0 (2e-22).
_CUTOFF = 50.0
#: Spread of the random fields, in temperatures, that break symmetry between tied labels.
_NOISE = 0.1
#: Variables of a block of temporary arrays, each with its labels.
_BLOCK = 4096
#: Temperatures of annealing, as shares of four times the mean cost.
_SHARES = (*(0.5**stage for stage in range(10)), 1e-3)
#: Times that the cap of infinite costs doubles at a given temperature, before it is large enough.
_RISES = 6
#: Most sweeps at each temperature of annealing but the last.
_ANNEAL_SWEEPS = 5
#: Change of a probability at which q counts as settled while the temperature has still to fall. On
#: E-steps and grids it gave the same labellings as 1e-6, with a third fewer updates; 0.03 did not.
_FOLLOWED = 1e-2


class UpdateRule(NamedTuple):
    """The parameters of an update."""

    # ``cap`` is the largest cost, in place of an infinite one. A variable is skipped if its
    # neighbours changed by at most ``tolerance``.

    temperature: float
    cap: float
    tolerance: float


def potts_gains(graph: FactorGraph, cap: float) -> FloatArray | None:
    """Return the change of a label's field per unit of its probability at a neighbour, (2m,).

    None if not all terms are Potts terms between variables with equal numbers of labels. Up to a
    constant, a Potts term adds nothing else.
    """
    g = graph.arrays
    if graph.n_labels is None or graph.n_factors or g.kinds.any():
        return None
    gains = np.empty(g.adj_half.size)
    for part in blocks(gains.size):
        edge = g.adj_half[part] >> 1
        gains[part] = np.minimum(g.pairwise[g.offsets[edge]], cap) - np.minimum(
            g.weights[edge], cap
        )
    return gains


def renewed_distribution(
    unary: FloatArray,
    terms: Iterable[tuple[FloatArray, int, Sequence[FloatArray]]],
    temperature: float,
) -> FloatArray:
    """Return the ``q_i`` that minimises the free energy given the other distributions."""
    # The update rule, (3.6) to (3.8) of Lange et al. 2005: ``q(a) ~ exp(-field(a) / T)`` normalised
    # with ``field(a) = unary(a) + sum over terms of E[theta(a, others)]``. A term consists of its
    # table, the position of the variable in its scope, and the distributions of the scope. The
    # compiled update is equivalent, and cheaper for terms of a simple form.
    field = unary
    for table, axis, scope in terms:
        expected = np.moveaxis(table, axis, 0)
        for q in reversed([*scope[:axis], *scope[axis + 1 :]]):
            expected = expected @ q
        field = field + expected
    weights = np.exp(-(field - field.min()) / temperature)
    return np.asarray(weights / weights.sum())


@inlined
def potts_costs(
    g: GraphArrays, gains: FloatArray, i: int, k: int, q: FloatArray, cap: float, field: FloatArray
) -> None:
    """Fill the field of a variable of `k` labels, up to a constant, from its edges."""
    start = np.uint64(g.unary_ptr[i])
    for b in range(k):
        a = np.uint64(b)
        field[a] = min(g.unary[start + a], cap)
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        # All variables have `k` labels.
        other = np.uint64(g.adj_var[p] * k)
        gain = gains[p]
        for b in range(k):
            a = np.uint64(b)
            field[a] += gain * q[other + a]


@inlined
def expected_costs(
    g: GraphArrays,
    i: int,
    q: FloatArray,
    cap: float,
    digits: IntArray | None,
    gains: FloatArray | None,
    field: FloatArray,
) -> None:
    """Fill ``field[a]``, the expected cost of label ``a`` of variable ``i`` under the others' q."""
    # With `gains`, the result is up to a constant. Without `digits`, factors are left out.
    k = g.cardinalities[i]
    if gains is not None:
        potts_costs(g, gains, i, k, q, cap, field)
        return
    start = g.unary_ptr[i]
    for a in range(k):
        field[a] = min(g.unary[start + a], cap)
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        h = g.adj_half[p]
        e = h >> 1
        j = g.adj_var[p]
        kj = g.cardinalities[j]
        other = g.unary_ptr[j]
        kind = g.kinds[e]
        offset = g.offsets[e]
        if kind != TABLE:
            differ = min(g.weights[e], cap)
            for a in range(k):
                field[a] += differ
            for a in range(min(k, kj)):
                same = min(g.pairwise[offset + a * kind], cap)
                field[a] += (same - differ) * q[other + a]
            continue
        stride_a = 1
        stride_b = k
        if h & 1 == 0:
            stride_a = kj
            stride_b = 1
        for a in range(k):
            total = 0.0
            for b in range(kj):
                cost = g.weights[e] * g.pairwise[offset + a * stride_a + b * stride_b]
                total += q[other + b] * min(cost, cap)
            field[a] += total
    if digits is not None:
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            add_expectation(g, g.inc_slot[p], q, cap, digits, field)


@inlined_minimum
def soften(k: int, temperature: float, field: FloatArray) -> None:
    """Turn a field into the probabilities ``exp(-field / T)``, normalised, in place."""
    lowest = least(k, field)
    scale = -1.0 / temperature
    for b in range(k):
        a = np.uint64(b)
        below = scale * (field[a] - lowest)
        # Written out, because the library's exponential is not vectorised: a Taylor series of
        # degree 11 of a 128th of the exponent, squared seven times. The relative error is 1e-13
        # unless the result is tiny.
        t = max(below, -_CUTOFF) / 128.0
        share = 1.0 + t / 8.0 * (1.0 + t / 9.0 * (1.0 + t / 10.0 * (1.0 + t / 11.0)))
        share = 1.0 + t / 4.0 * (1.0 + t / 5.0 * (1.0 + t / 6.0 * (1.0 + t / 7.0 * share)))
        share = 1.0 + t * (1.0 + t / 2.0 * (1.0 + t / 3.0 * share))
        for _ in range(7):
            share *= share
        field[a] = share if below > -_CUTOFF else 0.0
    total = 0.0
    for b in range(k):
        total += field[b]
    scale = 1.0 / total
    for b in range(k):
        field[b] *= scale


@inlined_minimum
def _store(g: GraphArrays, i: int, new: FloatArray, q: FloatArray, priority: FloatArray) -> None:
    """Store the new ``q_i``, and add its change to the priorities of its neighbours."""
    start = np.uint64(g.unary_ptr[i])
    change = 0.0
    for b in range(g.cardinalities[i]):
        a = np.uint64(b)
        change = max(change, abs(new[a] - q[start + a]))
        q[start + a] = new[a]
    if change > 0.0:
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            priority[np.uint64(g.adj_var[p])] += change
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if g.scopes[s] != i:
                    priority[np.uint64(g.scopes[s])] += change


@lean_kernel
def mean_field_sweep(
    g: GraphArrays,
    visits: tuple[int, int, int],
    rule: UpdateRule,
    q: FloatArray,
    priority: FloatArray,
    field: FloatArray,
    digits: IntArray | None,
    gains: FloatArray | None,
) -> int:
    """Update one variable after another, in place; return the number of updates."""
    # Each update minimises the free energy over one ``q_i``. ``priority[i]`` adds up the changes of
    # the neighbours since the last update of ``i``, which is skipped up to the tolerance. `visits`
    # are the first number of a variable, the one after the last, and the step.
    updated = 0
    first, stop, step = visits
    for i in range(first, stop, step):
        if priority[i] <= rule.tolerance:
            continue
        updated += 1
        priority[i] = 0.0
        expected_costs(g, i, q, rule.cap, digits, gains, field)
        soften(g.cardinalities[i], rule.temperature, field)
        _store(g, i, field, q, priority)
    return updated


@lean_kernel
def free_energy(
    g: GraphArrays, temperature: float, q: FloatArray, field: FloatArray, digits: IntArray | None
) -> float:
    """Return ``F(q) = E_q[E] + T sum q log q``, without the graph's constant."""
    # Infinite if q gives weight to a forbidden combination. For every q, ``-F / T`` is a lower
    # bound on ``log Z``.
    total = 0.0
    for t in range(q.size):
        if q[t] > 0.0:
            total += q[t] * (g.unary[t] + temperature * np.log(q[t]))
    for e in range(g.edges.shape[0]):
        i, j = g.edges[e, 0], g.edges[e, 1]
        ki, kj = g.cardinalities[i], g.cardinalities[j]
        first, second = q[g.unary_ptr[i] :], q[g.unary_ptr[j] :]
        if g.kinds[e] == TABLE:
            for a in range(ki):
                for b in range(kj):
                    weight = first[a] * second[b]
                    if weight > 0.0:
                        total += weight * edge_cost(g, e, a, b)
            continue
        # Sums over smaller labels, because 1 - q loses precision where q is near 1.
        apart, below_first, below_second = 0.0, 0.0, 0.0
        for a in range(max(ki, kj)):
            one = first[a] if a < ki else 0.0
            other = second[a] if a < kj else 0.0
            apart += one * below_second + other * below_first
            below_first += one
            below_second += other
            if one * other > 0.0:
                total += one * other * edge_cost(g, e, a, a)
        if apart > 0.0:
            total += apart * g.weights[e]
    if digits is not None:
        for f in range(g.factor_ptr.size - 1):
            i = g.scopes[g.factor_ptr[f]]
            field[: g.cardinalities[i]] = 0.0
            add_expectation(g, g.factor_ptr[f], q, np.inf, digits, field)
            for a in range(g.cardinalities[i]):
                if q[g.unary_ptr[i] + a] > 0.0:
                    total += q[g.unary_ptr[i] + a] * field[a]
    return total


@dataclass(frozen=True)
class MeanField(IterativeSolver["Annealing"]):
    """Naive mean field by coordinate ascent (Lange et al. 2005, sec. 3.2; Wainwright, Jordan 2008).

    Minimises the free energy ``F(q) = E_q[E] + T sum_i sum_a q_i(a) log q_i(a)`` over products
    ``q(x) = prod_i q_i(x_i)`` by ``q_i(a) ~ exp(-field_i(a) / T)`` with ``field_i(a)`` the expected
    cost of label ``a``. At T > 0 the q are the marginals; at T = 0 the temperature falls
    geometrically from the scale of the costs and the most probable labels are offered at each
    step (deterministic annealing).

    If several labels of a variable tie for the least unary, they start from slightly perturbed
    fields, unless initial marginals are given: a symmetric q can be a saddle.

    Infinite costs count as a finite cap while q is sought; the bound on the log-partition uses the
    true costs.

    Parameters
    ----------
    tolerance : float
        Largest change of a probability at which q counts as settled; 0.01 while the temperature
        has still to fall.
    max_sweeps : int
        Limit on the sweeps at the given temperature, or at the last one of annealing.

    Guarantees
    ----------
    The free energy never rises. At T > 0 ``-F / T`` is a lower bound on the log-partition. No bound
    on the energy.

    Complexity
    ----------
    A sweep costs O(k) a neighbour for diagonal terms, O(k^2) for tables, O(table size * arity) for
    higher-order factors. Memory: one number a label, two an edge.

    References
    ----------
    T. Lange, M. H. C. Law, A. K. Jain, J. M. Buhmann, "Learning with constrained and unlabelled
    data", CVPR 2005, eqs. (3.6)-(3.8).
    M. J. Wainwright, M. I. Jordan, "Graphical models, exponential families, and variational
    inference", 2008, sec. 5.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "mean-field").energy
    0.5
    >>> s = il.solve(g, "mean-field", temperature=1.0)
    >>> s.log_partition_kind, round(s.log_partition, 3)
    ('lower', 0.474)
    """

    version: ClassVar[int] = 2
    startup_cost: ClassVar[float] = 32.0

    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(10_000, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support every graph at every temperature."""
        return None

    @property
    def most_iterations(self) -> float:
        """No overall limit, because each temperature has its own."""
        return math.inf

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Count the distribution, the priorities and the gains of Potts terms."""
        # The marginals are checked in a copy; infinite costs are replaced in one.
        copies = 1 + (temperature > 0.0 or graph.has_infinite)
        entries = copies * graph.unary_values.size + graph.n_variables + 2 * graph.n_edges
        return run_bytes(graph, 8 * entries)

    def start(self, graph: FactorGraph, run: Run) -> Annealing:
        """Start from the given marginals, or the unaries alone."""
        return Annealing(self, graph, run)

    def step(self, state: Annealing, run: Run, done: int) -> Progress:
        """Make one sweep, at the next temperature if the last one is complete."""
        if state.over:
            state.cool()
        settled = state.sweep()
        return Progress(settled and state.last, finished=state.over and state.last)

    def decode(self, state: Annealing, run: Run, done: int) -> IntArray | None:
        """Return the most probable labels at the end of a temperature."""
        return state.labels() if state.over else None

    def finish(self, state: Annealing, run: Run, outcome: Outcome) -> Outcome:
        """Offer the last labels; at T > 0 add the marginals and the bound."""
        if not state.over or outcome.iterations == 0:
            run.offer(state.labels())
        if run.temperature > 0.0:
            # Rounding errors at forbidden combinations would make the bound infinite. They may be
            # trimmed, because any q gives a valid bound.
            state.trim()
            outcome.marginals = unflatten(state.graph, state.q)
            outcome.log_partition = -state.free_energy() / run.temperature
            outcome.log_partition_kind = "lower"
        return outcome


class RaggedRows(NamedTuple):
    """The starts and the lengths of rows of values, one after the other, none of them empty."""

    starts: IntArray
    sizes: IntArray

    def repeated(self, ufunc: np.ufunc, values: npt.NDArray[Any]) -> FloatArray:
        """Reduce the values of each row, and repeat the result for each value."""
        reduced = ufunc.reduceat(values, self.starts)
        return np.repeat(np.asarray(reduced, dtype=np.float64), self.sizes)


class Annealing:
    """The distribution q of a run, its schedule of temperatures, and the current one."""

    def __init__(self, settings: MeanField, graph: FactorGraph, run: Run) -> None:
        self.settings, self.graph = settings, graph
        self.arrays = graph.arrays
        self.field = aligned_zeros(int(graph.cardinalities.max(initial=1)))
        arity = int(np.diff(graph.factor_ptr).max(initial=0))
        # Without factors, kernels get None, so that their code is not compiled.
        self.digits = np.empty(arity, dtype=np.int64) if arity else None
        self.priority = np.empty(graph.n_variables)
        self.falling = self._falling(run.temperature)
        self.temperature, self.cap = self.falling[0]
        self.gains = potts_gains(graph, self.cap)
        self.q = self._start(self.temperature, run)
        self.stage = -1
        self.cool()

    @property
    def last(self) -> bool:
        """Whether the temperature falls no further."""
        return self.stage == len(self.falling) - 1

    def _falling(self, temperature: float) -> list[tuple[float, float]]:
        """Return the schedule of temperatures, each with the cap that replaces infinity."""
        # The cap grows until a forbidden label underflows, but gradually, because hard terms that
        # bind from the start freeze the first labels.
        graph = self.graph
        scale = cost_scale(graph)
        falling = [4.0 * scale * share for share in _SHARES]
        if not graph.has_infinite:
            return [(t, np.inf) for t in ([temperature] if temperature > 0.0 else falling)]
        # No sum of finite costs at a variable is larger than half of the last cap.
        costs = np.concatenate([graph.unary_values, *graph.edge_extremes(), graph.table_values])
        largest = float(np.abs(costs[np.isfinite(costs)]).max(initial=0.0))
        last = 2.0 * largest * float(1 + graph.degrees.max(initial=0))
        last += max(4.0 * scale, 1e4 * temperature)
        temperatures = [temperature] * _RISES if temperature > 0.0 else falling
        caps = [min(last, (scale + temperature) * 2.0**s) for s in range(len(temperatures))]
        return [*zip(temperatures, caps, strict=True), (temperatures[-1], last)]

    def cool(self) -> None:
        """Move to the next temperature and mark the variables as due."""
        self.stage += 1
        self.temperature, cap = self.falling[self.stage]
        self.sweeps = 0
        self.over = False
        # If all costs are finite, variables without neighbours are skipped while the temperature
        # falls, because they have their best labels from the start.
        self.priority[:] = np.inf
        self.tolerance = self.settings.tolerance
        if not self.last:
            self.tolerance = max(_FOLLOWED, self.tolerance)
            if not self.graph.has_infinite:
                self.priority[self.graph.degrees == 0] = 0.0
        if self.gains is not None and cap != self.cap:
            self.gains = potts_gains(self.graph, cap)
        self.cap = cap

    def _start(self, temperature: float, run: Run) -> FloatArray:
        """Return the given distribution or the one of the unaries, perturbed where labels tie."""
        graph = self.graph
        if run.initial_marginals is not None and run.temperature > 0.0:
            return run.initial_marginals.copy()
        q = np.empty(graph.unary_values.size)
        for part in blocks(graph.n_variables, _BLOCK):
            starts = graph.unary_ptr[part.start : part.stop + 1]
            field = q[starts[0] : starts[-1]]
            np.minimum(graph.unary_values[starts[0] : starts[-1]], self.cap, out=field)
            rows = RaggedRows(starts[:-1] - starts[0], graph.cardinalities[part])
            if run.initial is not None and run.temperature > 0.0:
                # Start near the given labelling, by lowering its costs by one temperature.
                field[rows.starts + run.initial[part]] -= temperature
            tied = field == rows.repeated(np.minimum, field)
            tied &= rows.repeated(np.add, tied.astype(np.int64)) > 1
            tied &= np.repeat(graph.degrees[part] > 0, rows.sizes)
            if tied.any():
                field[tied] += run.rng.normal(scale=_NOISE * temperature, size=int(tied.sum()))
            field -= rows.repeated(np.minimum, field)
            np.exp(-field / temperature, out=field)
            field /= rows.repeated(np.add, field)
        return q

    def sweep(self) -> bool:
        """Make one sweep, forwards or backwards; return whether the distribution has settled."""
        rule = UpdateRule(self.temperature, self.cap, self.tolerance)
        scratch = self.priority, self.field, self.digits, self.gains
        n = self.graph.n_variables
        visits = (n - 1, -1, -1) if self.sweeps % 2 else (0, n, 1)
        mean_field_sweep(self.arrays, visits, rule, self.q, *scratch)
        settings = self.settings
        self.sweeps += 1
        settled = bool(self.priority.max(initial=0.0) <= self.tolerance)
        self.over = settled or self.sweeps == (settings.max_sweeps if self.last else _ANNEAL_SWEEPS)
        return settled

    def labels(self) -> IntArray:
        """Return the most probable label of each variable, shape (n,)."""
        graph = self.graph
        if graph.n_labels is None:
            return least_labels(graph, -self.q)
        return np.asarray(self.q.reshape(-1, graph.n_labels).argmax(axis=1), dtype=np.int64)

    def free_energy(self) -> float:
        """Return the free energy of q."""
        inner = free_energy(self.arrays, self.temperature, self.q, self.field, self.digits)
        return float(inner + self.graph.constant)

    def trim(self) -> None:
        """Remove weight of forbidden combinations that is due to rounding."""
        # Sets probabilities below 1e-12 to zero; graphs without infinite costs are left alone.
        if self.graph.n_variables == 0 or not self.graph.has_infinite:
            return
        allowed = np.isfinite(self.graph.unary_values)
        rows = RaggedRows(self.graph.unary_ptr[:-1], self.graph.cardinalities)
        # A run stopped at a low cap may have left weight, even all of it, on forbidden labels.
        self.q[(self.q < 1e-12) | ~allowed] = 0.0
        self.q[(rows.repeated(np.add, self.q) == 0.0) & allowed] = 1.0
        self.q /= rows.repeated(np.add, self.q)
