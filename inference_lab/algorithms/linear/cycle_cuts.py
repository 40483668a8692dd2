"""Cuts for frustrated problems: cycle inequalities, separated on solutions of the LP.

``z = u_ia + u_jb - 2 P(a, b)`` indicates that ``x_i = a`` and ``x_j = b`` differ in truth value.
Around a cycle ``C`` the truth value changes an even number of times, so that

``sum_{F} z - sum_{C - F} z <= |F| - 1``   for every subset ``F`` of odd size.

The most violated inequality through a node is a shortest path in two copies of the graph of label
pairs (Barahona, Mahjoub 1986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.linear.backends import Relaxed
from inference_lab.algorithms.linear.incremental import IncrementalRelaxation
from inference_lab.algorithms.linear.label_pairs import ALWAYS, label_pairs
from inference_lab.algorithms.linear.model import CsrArray, LinearModel, Rows
from inference_lab.graph.arrays import FloatArray, Int32Array, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.heap import Heap, clear, empty_heap, pop, push, rise

#: Least violation of a cut. Smaller violations leave almost nothing to branch and bound.
_VIOLATION = 1e-4
#: Cost per pair of a cycle, because short cycles should come first: their rows are sparse and gain
#: more. It falls from round to round, so that in the end no cycle is missed.
_STEP = 0.03
_STEP_FALLS = 0.85
_LEAST_STEP = 1e-4
#: Cuts with more slack than this are dropped from the LP, which keeps its value.
_SLACK = 1e-3
#: Least violation of a consistency row, above the tolerance of LP solvers.
_INCONSISTENT = 1e-6
#: Rounds end when this many together gain less than this share of the total gain.
_PATIENCE = 5
_GAIN = 1e-3
#: Most cycles of one round, and most pairs of all of them.
_MOST_CYCLES = 2000
_MOST_PAIRS = 60_000
#: Pairs visited in one call of a kernel: about 0.1 s.
_STRETCH = 10_000_000
#: Most pairs; with more, the LP is far too large for rounds of cuts.
_TOO_MANY_PAIRS = 5_000_000


class _Projection(NamedTuple):
    """Graph of label pairs: nodes are columns ``u_ia``; each arc has its pair and its flip."""

    # The second of two labels is the complement of the first. Its pairs are assigned to the first
    # label with ``flip`` set, which exchanges equal and different truth values.

    ptr: IntArray
    to: Int32Array
    pair: IntArray
    flip: npt.NDArray[np.uint8]


class _CycleSearch(NamedTuple):
    """State of the shortest-path search over both copies of every node, 2 v and 2 v + 1."""

    # ``nearest`` holds the frontier; its keys are the distances. ``via`` is the arc by which a node
    # was reached, times two, plus one if the arc changes copies; ``seen`` has an entry for each
    # node.

    nearest: Heap
    before: IntArray
    via: IntArray
    touched: IntArray
    seen: IntArray


class _Found(NamedTuple):
    """Concatenated cycles: pairs (times two, plus one if in ``F``), ends, weights."""

    # ``size`` (1,): the number of cycles.

    codes: IntArray
    ends: IntArray
    weights: FloatArray
    size: IntArray


@lean_kernel
def _violated_cycles(
    graph: _Projection,
    z: FloatArray,
    roots: IntArray,
    begin: int,
    shortest: float,
    step: float,
    work: int,
    s: _CycleSearch,
    record: _Found,
) -> int:
    """Find a simple cycle shorter than `shortest` in a closed walk through each root, if any."""
    # Returns the root to continue from once `work` arcs have been visited or `record` is full. The
    # search is restored: distances ``inf``, an empty frontier, `seen` -1.
    count = record.size[0]
    used = record.ends[count - 1] if count > 0 else 0
    distance = s.nearest.key
    r = begin
    while r < roots.size and work > 0 and count < record.ends.size:
        start = 2 * roots[r]
        target = start + 1
        distance[start] = 0.0
        s.touched[0] = start
        touched = 1
        push(s.nearest, start)
        reached = False
        while s.nearest.size[0] > 0:
            node = pop(s.nearest)
            if node == target:
                reached = True
                break
            v = node >> 1
            side = node & 1
            work -= 2 * (graph.ptr[v + 1] - graph.ptr[v])
            for p in range(graph.ptr[v], graph.ptr[v + 1]):
                weight = z[graph.pair[p]]
                so_far = distance[node] + step
                for odd in range(2):
                    there = so_far + (1.0 - weight if odd else weight)
                    other = 2 * graph.to[p] + (side ^ odd ^ graph.flip[p])
                    if there >= shortest or there >= distance[other]:
                        continue
                    if np.isinf(distance[other]):
                        s.touched[touched] = other
                        touched += 1
                    distance[other] = there
                    s.before[other] = node
                    s.via[other] = 2 * p + odd
                    if s.nearest.place[other] < 0:
                        push(s.nearest, other)
                    else:
                        rise(s.nearest, other)
        if reached:
            # Walk back to the first node visited twice; the part in between is an odd cycle.
            length = 0
            node = target
            while s.seen[node >> 1] < 0:
                s.seen[node >> 1] = node
                node = s.before[node]
                length += 1
            last = s.seen[node >> 1]
            if used + length <= record.codes.size:
                while last != node:
                    code = s.via[last]
                    record.codes[used] = 2 * graph.pair[code >> 1] + (code & 1)
                    used += 1
                    last = s.before[last]
                record.ends[count] = used
                record.weights[count] = distance[s.seen[node >> 1]] - distance[node]
                count += 1
            else:
                # The arrays are full, so this root is the first of the next call.
                work = 0
                r -= 1
            node = target
            while s.seen[node >> 1] >= 0:
                s.seen[node >> 1] = -1
                node = s.before[node]
        clear(s.nearest)
        for q in range(touched):
            distance[s.touched[q]] = np.inf
        r += 1
    record.size[0] = count
    return int(r)


class _Separation:
    """Separation of cuts that a solution of the LP violates."""

    def __init__(self, graph: FactorGraph, model: LinearModel) -> None:
        self.n_columns = model.n_columns
        self.graph = graph
        self.label_pairs = label_pairs(graph)
        self._project(graph, model.n_node_columns)
        self._next_root = 0
        self._step = _STEP
        # Pairs with a column for equal labels; the pairs of an edge form one run.
        of_edge = np.flatnonzero(self.label_pairs.edge >= 0)
        self.joint = of_edge[self.label_pairs.both[of_edge] >= 0]
        owner = self.label_pairs.edge[self.joint]
        first = np.concatenate([[True], owner[1:] != owner[:-1]]) if owner.size else owner > 0
        self.run_ptr = np.append(np.flatnonzero(first), owner.size)
        self.run_of = np.cumsum(first) - 1
        k = graph.cardinalities[graph.edges]
        pairs = (k.max(axis=1) == 2) & (np.bincount(owner, minlength=graph.n_edges) == 2)
        self._equalities = pairs[owner]

    def _project(self, graph: FactorGraph, n_nodes: int) -> None:
        owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        k = graph.cardinalities[owner]
        label = np.arange(n_nodes) - graph.unary_ptr[owner]
        flips = (k == 2) & (label == 1)
        node = np.arange(n_nodes) - flips
        used = np.flatnonzero((k[self.label_pairs.first] > 1) & (k[self.label_pairs.second] > 1))
        first, second = self.label_pairs.first[used], self.label_pairs.second[used]
        source = np.concatenate([node[first], node[second]])
        target = np.concatenate([node[second], node[first]])
        order = np.argsort(source, kind="stable")
        degree = np.bincount(source, minlength=n_nodes)
        flip = flips[first] ^ flips[second]
        self.projection = _Projection(
            ptr=starts_of(degree),
            to=target[order].astype(np.int32),
            pair=np.concatenate([used, used])[order],
            flip=np.concatenate([flip, flip])[order].astype(np.uint8),
        )
        self.roots = np.flatnonzero(degree > 1)
        both = 2 * n_nodes
        self._search = _CycleSearch(
            nearest=empty_heap(np.full(both, np.inf)),
            before=np.empty(both, dtype=np.int64),
            via=np.empty(both, dtype=np.int64),
            touched=np.empty(both, dtype=np.int64),
            seen=np.full(n_nodes, -1, dtype=np.int64),
        )

    def cuts(self, x: FloatArray, out_of_time: Callable[[], bool]) -> tuple[CsrArray, FloatArray]:
        """Return rows and right-hand sides of cuts that `x` violates."""
        rows = Rows()
        self._consistency(x, rows)
        self._cycles(x, rows, out_of_time)
        matrix, rhs = rows.build(self.n_columns)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix, rhs

    def _consistency(self, x: FloatArray, rows: Rows) -> None:
        """Add the rows that the model omits but that make ``d`` a joint distribution."""
        # ``d_a <= u_ia``, ``d_a <= u_ja`` and ``u_ia + u_ja - d_a + sum_{b != a} d_b <= 1``. The
        # costs alone enforce these only until a cut involves ``d``.
        if self.joint.size == 0:
            return
        d = self.label_pairs.both[self.joint]
        ends = (self.label_pairs.first[self.joint], self.label_pairs.second[self.joint])
        for node in ends:
            at = np.flatnonzero(x[d] > x[node] + _INCONSISTENT)
            rows.add(np.stack([d[at], node[at]], axis=1), [1.0, -1.0], 0.0)
        total = np.add.reduceat(x[d], self.run_ptr[:-1])[self.run_of]
        beyond = x[ends[0]] + x[ends[1]] - 2.0 * x[d] + total > 1.0 + _INCONSISTENT
        # With two labels at both ends this is an equality; adding it from the start saves rounds.
        at = np.flatnonzero(beyond | self._equalities)
        self._equalities = np.zeros_like(beyond)
        if at.size == 0:
            return
        begin = self.run_ptr[self.run_of[at]]
        count = self.run_ptr[self.run_of[at] + 1] - begin
        row = np.repeat(np.arange(at.size), count)
        inside = np.arange(row.size) - (np.cumsum(count) - count)[row] + begin[row]
        # A label's own variable is added twice: once with the others, once with factor -2.
        columns = np.concatenate([ends[0][at], ends[1][at], d[at], d[inside]])
        values = np.concatenate([np.ones(2 * at.size), np.full(at.size, -2.0), np.ones(row.size)])
        owner = np.concatenate([np.tile(np.arange(at.size), 3), row])
        order = np.argsort(owner, kind="stable")
        rows.add_ragged(columns[order], values[order], count + 3, 1.0)

    def _cycles(self, x: FloatArray, rows: Rows, out_of_time: Callable[[], bool]) -> None:
        both = self.label_pairs.both
        z = x[self.label_pairs.first] + x[self.label_pairs.second]
        z[both >= 0] -= 2.0 * x[both[both >= 0]]
        z[both == ALWAYS] = 0.0
        np.clip(z, 0.0, 1.0, out=z)
        cycles: list[IntArray] = []
        while not cycles and not out_of_time():
            step, self._step = self._step, max(_LEAST_STEP, _STEP_FALLS * self._step)
            cycles = self._search_cycles(z, step, out_of_time)
            if not cycles:
                if step == _LEAST_STEP:
                    return
                self._step = _LEAST_STEP
        if cycles:
            self._add_cycles(cycles, rows)

    def _search_cycles(
        self, z: FloatArray, step: float, out_of_time: Callable[[], bool]
    ) -> list[IntArray]:
        """Return distinct violated cycles, the most violated first."""
        record = _Found(
            codes=np.empty(_MOST_PAIRS, dtype=np.int64),
            ends=np.empty(_MOST_CYCLES, dtype=np.int64),
            weights=np.empty(_MOST_CYCLES),
            size=np.zeros(1, dtype=np.int64),
        )
        root = self._next_root
        n_remaining = self.roots.size
        work = 3 * _STRETCH
        # Visits each root at most once, from where the last round stopped. After the limit of work
        # it continues only to find a first cycle.
        while (
            n_remaining > 0 and record.size[0] < _MOST_CYCLES and (work > 0 or record.size[0] == 0)
        ):
            if out_of_time():
                break
            stop = min(self.roots.size, root + n_remaining)
            reached = _violated_cycles(
                self.projection,
                z,
                self.roots[:stop],
                root,
                1.0 - _VIOLATION,
                step,
                _STRETCH,
                self._search,
                record,
            )
            if reached == root:
                break
            n_remaining -= reached - root
            work -= _STRETCH if reached < stop else 0
            root = reached % self.roots.size
        self._next_root = root
        count = int(record.size[0])
        starts = np.concatenate([[0], record.ends[: max(0, count - 1)]])
        seen: set[bytes] = set()
        cycles = []
        for c in np.argsort(record.weights[:count], kind="stable").tolist():
            # Duplicates are removed, because a cycle is found from many of its nodes.
            cycle = np.sort(record.codes[starts[c] : record.ends[c]])
            if cycle.tobytes() not in seen:
                seen.add(cycle.tobytes())
                cycles.append(cycle)
        return cycles

    def _add_cycles(self, cycles: list[IntArray], rows: Rows) -> None:
        """Add ``sum_F z - sum_{C - F} z <= |F| - 1`` for each cycle."""
        codes = np.concatenate(cycles)
        owner = np.repeat(np.arange(len(cycles)), [cycle.size for cycle in cycles])
        odd = np.bincount(owner, weights=codes & 1, minlength=len(cycles))
        sign = np.where(codes & 1, 1.0, -1.0)
        pair = codes >> 1
        both = self.label_pairs.both[pair]
        # A hard must-pair makes z 0.
        free = np.flatnonzero(both != ALWAYS)
        joint = np.flatnonzero(both >= 0)
        columns = np.concatenate(
            [self.label_pairs.first[pair[free]], self.label_pairs.second[pair[free]], both[joint]]
        )
        values = np.concatenate([sign[free], sign[free], -2.0 * sign[joint]])
        owners = np.concatenate([owner[free], owner[free], owner[joint]])
        order = np.argsort(owners, kind="stable")
        lengths = np.bincount(owners, minlength=len(cycles))
        rows.add_ragged(columns[order], values[order], lengths, odd - 1.0)


def tighten(
    graph: FactorGraph,
    relaxation: IncrementalRelaxation,
    relaxed: Relaxed,
    remaining: Callable[[], float] = lambda: math.inf,
) -> Iterator[Relaxed]:
    """Add cuts to `relaxation`, which `relaxed` solves, and yield the solution of each round.

    The last solution may have no ``x``: time ran out, or no labelling has finite energy.

    Guarantees
    ----------
    Every labelling satisfies every cut. The value of the LP never falls. Rounds end when no cycle
    is violated by more than 1e-4, when five together gain less than a thousandth of the total gain,
    or when time runs out.

    Complexity
    ----------
    A round solves the LP from the last basis and takes O(pairs log nodes) per node, where a node is
    a label of a variable. If that takes more than about a third of a second, each round covers only
    some of the nodes, in turn.

    References
    ----------
    F. Barahona, A. R. Mahjoub, "On the cut polytope", Mathematical Programming 36, 1986.
    D. Sontag, T. Jaakkola, "New outer bounds on the marginal polytope", NIPS 2007 (several labels).
    """
    separation = _Separation(graph, relaxation.model)
    if separation.label_pairs.first.size > _TOO_MANY_PAIRS:
        return
    base = relaxation.model.b_ub.size
    values = [relaxed.value]
    while relaxed.x is not None:
        rows, rhs = separation.cuts(relaxed.x, lambda: remaining() <= 0.0)
        if rhs.size == 0 or remaining() <= 0.0:
            return
        model = relaxation.model
        slack = model.b_ub[base:] - model.a_ub[base:] @ relaxed.x
        relaxation.change(base + np.flatnonzero(slack > _SLACK), rows, rhs)
        relaxed = relaxation.solve(remaining())
        yield relaxed
        values.append(relaxed.value)
        gain = relaxed.value - values[0]
        if len(values) > _PATIENCE and relaxed.value - values[-1 - _PATIENCE] <= _GAIN * gain:
            return
