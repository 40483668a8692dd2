"""Exact answers by enumerating every labelling: the referee for small graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from inference_lab._numba import inlined, int64, kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.messages import half_cost, unflatten
from inference_lab.kernels.priced_descent import enter, leave, opening
from inference_lab.specs.settings import setting

#: Steps of the enumeration between two checks of the clock: some 10 ms.
_CHUNK = 1 << 20


class Enumeration(NamedTuple):
    """The depth-first walk over prefixes ``x_0, ..., x_d``, as it stands between two chunks."""

    labels: IntArray  # (n,) current labelling
    following: IntArray  # (n,) next label to try
    prefix: FloatArray  # (n,) energy of the terms within the variables before each level
    rows: FloatArray  # flat, like the unaries: see `_fill_row`
    used: IntArray  # (s,) variables before the current level with a label of each priced set
    depth: IntArray  # (1,) current level; -1 when everything has been enumerated
    best_labels: IntArray  # (n,)
    best: FloatArray  # (1,) least energy seen
    sums: FloatArray  # (n,) weight of the labellings seen below the current prefix
    marginals: FloatArray  # flat, like the unaries


def _start(graph: FactorGraph) -> Enumeration:
    """Return the walk before its first step, with the row of the first variable filled."""
    n = graph.n_variables
    prefix = np.empty(n)
    prefix[0] = graph.constant
    return Enumeration(
        labels=np.zeros(n, dtype=np.int64),
        following=np.zeros(n, dtype=np.int64),
        prefix=prefix,
        rows=graph.unary_values.copy(),
        used=np.zeros(graph.n_label_costs, dtype=np.int64),
        depth=np.zeros(1, dtype=np.int64),
        best_labels=np.zeros(n, dtype=np.int64),
        best=np.full(1, np.inf),
        sums=np.zeros(n),
        marginals=np.zeros(graph.unary_values.size),
    )


@inlined
def _fill_row(g: GraphArrays, strides: IntArray, d: int, labels: IntArray, row: FloatArray) -> None:
    """Fill the cost of each label of a variable, by its unary and its terms with earlier ones."""
    k = g.cardinalities[d]
    for b in range(k):
        row[b] = g.unary[g.unary_ptr[d] + b]
    for p in range(g.adj_ptr[d], g.adj_ptr[d + 1]):
        j = g.adj_var[p]
        if j < d:
            half = int64(g.adj_half[p])
            for b in range(k):
                row[b] += half_cost(g, half, b, labels[j])
    for p in range(g.inc_ptr[d], g.inc_ptr[d + 1]):
        slot = g.inc_slot[p]
        f = g.slot_factor[slot]
        start = g.table_ptr[f]
        complete = True
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            j = g.scopes[s]
            complete &= j <= d
            if j < d:
                start += strides[s] * labels[j]
        if complete:
            for b in range(k):
                row[b] += g.tables[start + b * strides[slot]]


@kernel
def _enumerate(
    g: GraphArrays,
    p: LabelCosts,
    strides: IntArray,
    walk: Enumeration,
    steps: int,
    temperature: float,
) -> None:
    """Enumerate on for about `steps` nodes of the tree of prefixes."""
    # With ``temperature == 0`` look for the first labelling of least energy, otherwise add up the
    # weights ``exp(-(E - best) / temperature)``.
    labels, following, prefix, rows = walk.labels, walk.following, walk.prefix, walk.rows
    sums, marginals, used = walk.sums, walk.marginals, walk.used
    cardinalities, unary_ptr = g.cardinalities, g.unary_ptr
    last = labels.size - 1
    k_last = cardinalities[last]
    row = unary_ptr[last]
    weigh = temperature > 0.0
    best = walk.best[0]
    d = walk.depth[0]
    while d >= 0 and steps > 0:
        if d == last:
            base = prefix[d]
            steps -= k_last
            if weigh:
                total = 0.0
                for b in range(k_last):
                    # Summed in the order of the first walk, so that no exponent is positive.
                    energy = base + rows[row + b] + opening(p, used, b)
                    weight = math.exp(-(energy - best) / temperature)
                    marginals[unary_ptr[d] + b] += weight
                    total += weight
                sums[d] = total
            else:
                for b in range(k_last):
                    energy = base + rows[row + b] + opening(p, used, b)
                    if energy < best:
                        best = energy
                        labels[d] = b
                        walk.best_labels[:] = labels
        else:
            a = following[d]
            if a < cardinalities[d]:
                steps -= 1
                following[d] = a + 1
                energy = prefix[d] + rows[unary_ptr[d] + a] + opening(p, used, a)
                # All labellings with an infinite prefix have infinite energy.
                if energy < math.inf:
                    labels[d] = a
                    enter(p, used, a)
                    d += 1
                    _fill_row(g, strides, d, labels, rows[unary_ptr[d] : unary_ptr[d + 1]])
                    prefix[d] = energy
                    following[d] = 0
                    sums[d] = 0.0
                continue
        # Everything below this prefix has been seen: back to the variable before.
        d -= 1
        if d >= 0:
            leave(p, used, labels[d])
        if weigh and d >= 0:
            marginals[unary_ptr[d] + labels[d]] += sums[d + 1]
            sums[d] += sums[d + 1]
    walk.best[0] = best
    walk.depth[0] = d


@dataclass(frozen=True)
class BruteForce(Solver):
    """Enumerate all labellings; minimum, marginals and log-partition are exact.

    At ``T = 0``: ``argmin_x E(x)``, on ties the first in lexicographic order, with its energy as
    lower bound. At ``T > 0``, with ``Z = sum_x exp(-E(x) / T)``: the marginals
    ``p_i(a) = sum_{x: x_i = a} exp(-E(x) / T) / Z``, ``log Z``, and the best labelling.

    The search walks the tree of prefixes ``x_0, ..., x_d`` and skips only prefixes that cost
    ``+inf``. Weights are relative to the minimum, which a first walk finds.

    Parameters
    ----------
    max_states : int
        Graphs with more labellings are not supported.

    Guarantees
    ----------
    Exact up to the rounding of sums: status `optimal` at ``T = 0``, `log_partition_kind`
    ``"exact"`` at ``T > 0``, `infeasible` if and only if every labelling costs ``+inf``. Under
    a time limit the best labelling so far, without bound, marginals and log-partition.

    Notes
    -----
    Complexity: O(states * d) with d the number of terms at the last variables, if each variable has
    two labels or more. Memory: a few copies of the unaries. On one core, 2^24 binary labellings
    take 0.25 s (``T > 0``: 0.7 s) on a cycle and 1.6 s (3.3 s) on the complete graph.

    An iteration is about a million steps of a walk.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "brute-force")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    >>> il.solve(g, "brute-force", temperature=1.0).marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    """

    label_costs: ClassVar[bool] = True

    max_states: int = setting(2**24, at_least=1, at_most=2**62)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover every graph of at most `max_states` labellings."""
        if graph.log2_states > 62:
            found = f"about 2^{graph.log2_states:.0f}"
        else:
            states = math.prod(graph.cardinalities.tolist())
            if states <= self.max_states:
                return None
            found = str(states)
        return f"{found} labellings are too many to enumerate: max_states is {self.max_states}"

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Enumerate in chunks, offering each improvement."""
        exact_at = run.temperature > 0
        if graph.n_variables == 0:
            run.offer(np.empty(0, dtype=np.int64))
            run.bound(graph.constant)
            return Outcome(
                converged=True,
                claimed_energy=graph.constant,
                marginals=[] if exact_at else None,
                log_partition=-graph.constant / run.temperature if exact_at else None,
                log_partition_kind="exact" if exact_at else None,
            )
        walk, strides = _start(graph), graph.scope_strides
        chunks = 0
        offered = math.inf
        while walk.depth[0] >= 0 and not run.should_stop(chunks):
            _enumerate(graph.arrays, graph.label_costs, strides, walk, _CHUNK, 0.0)
            chunks += 1
            if walk.best[0] < offered:
                offered = float(walk.best[0])
                run.offer(walk.best_labels)
        if walk.depth[0] >= 0:
            claimed = offered if math.isfinite(offered) else None
            return Outcome(iterations=chunks, claimed_energy=claimed)
        if not math.isfinite(offered):
            return Outcome(converged=True, infeasible=True, iterations=chunks)
        # The evaluator's energy, because that of the walk differs in the last bits.
        run.bound(run.best_energy)
        outcome = Outcome(converged=True, iterations=chunks, claimed_energy=offered)
        if not exact_at:
            return outcome

        walk = _start(graph)
        walk.best[0] = offered
        while walk.depth[0] >= 0 and not run.should_stop(outcome.iterations):
            _enumerate(graph.arrays, graph.label_costs, strides, walk, _CHUNK, run.temperature)
            outcome.iterations += 1
        if walk.depth[0] >= 0:
            outcome.converged = False
            return outcome
        total = _total(graph, walk)
        outcome.marginals = unflatten(graph, walk.marginals / total)
        outcome.log_partition = math.log(total) - offered / run.temperature
        outcome.log_partition_kind = "exact"
        return outcome


def _total(graph: FactorGraph, walk: Enumeration) -> float:
    """Return the sum of all weights; it is at least 1, the weight of the best labelling."""
    return float(walk.marginals[: int(graph.cardinalities[0])].sum())
