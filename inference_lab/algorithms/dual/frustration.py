"""Find clusters that raise the bound: triangulated frustrated cycles.

D. Sontag, D. K. Choe, Y. Li, "Efficiently searching for frustrated cycles in MAP inference",
UAI 2012 (projection graph).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.dual.clusters import DualClusters, pair_keys
from inference_lab.algorithms.dual.reparametrisation import Dual, stretches
from inference_lab.contract import Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray, starts_of
from inference_lab.kernels.messages import edge_cost

#: Most edges of the projection graph; the strongest ones are kept.
_MAX_PROJECTED = 4_000_000
#: Links that the cycle search examines from one root.
_EFFORT = 3000
#: Most cycles from one root in one search.
_PER_ROOT = 4
#: Roots searched between two checks of the clock.
_ROOTS = 2000


# ------------------------------------------------------------------ the projection graph


class EdgeCosts(NamedTuple):
    """Scratch for the remaining costs of one edge, and the least entries of its columns."""

    # ``entries`` are row-major; ``best`` and ``second`` (k,) are the two least entries of each
    # column, ``at`` (k,) is the row of the least.

    entries: FloatArray
    best: FloatArray
    second: FloatArray
    at: IntArray


@inlined
def least_without(columns: int, row: int, table: EdgeCosts) -> tuple[float, float, int]:
    """Return the least entry outside a row, the least in other columns, and the first's column."""
    one = np.inf
    two = np.inf
    where = -1
    for b in range(columns):
        value = table.second[b] if table.at[b] == row else table.best[b]
        if value < one:
            two = one
            one = value
            where = b
        elif value < two:
            two = value
    return one, two, where


@lean_kernel
def project(
    g: GraphArrays,
    begin: int,
    end: int,
    dual: Dual,
    hard: bool,
    threshold: float,
    table: EdgeCosts,
    nodes: IntArray,
    strength: FloatArray,
) -> int:
    """Write the projection-graph links of the edges from `begin` to `end`; return their number."""
    # Its nodes are the splits of a variable's labels into one label and the rest, numbered like the
    # unaries. A link of two splits has strength ``min over labels on different sides - min over
    # labels on equal sides`` of the remaining costs of their edge. Links below `threshold` in
    # absolute value are left out.
    count = 0
    costs, best, second, at = table
    for e in range(begin, end):
        i, j = g.edges[e, 0], g.edges[e, 1]
        ki, kj = g.cardinalities[i], g.cardinalities[j]
        if ki == 1 or kj == 1:
            continue
        pi, pj = dual.half_ptr[2 * e], dual.half_ptr[2 * e + 1]
        for a in range(ki):
            for b in range(kj):
                costs[a * kj + b] = (
                    edge_cost(g, e, a, b) - dual.from_edge[pi + a] - dual.from_edge[pj + b]
                )
                if hard and (
                    np.isinf(dual.unary[g.unary_ptr[i] + a])
                    or np.isinf(dual.unary[g.unary_ptr[j] + b])
                ):
                    costs[a * kj + b] = np.inf
        # The two least entries of each column.
        for b in range(kj):
            best[b] = np.inf
            second[b] = np.inf
            at[b] = -1
        for a in range(ki):
            for b in range(kj):
                value = costs[a * kj + b]
                if value < best[b]:
                    second[b] = best[b]
                    best[b] = value
                    at[b] = a
                elif value < second[b]:
                    second[b] = value
        for a in range(1 if ki == 2 else ki):
            outside, other, where = least_without(kj, a, table)
            row_best = np.inf
            row_second = np.inf
            row_at = -1
            for b in range(kj):
                value = costs[a * kj + b]
                if value < row_best:
                    row_second = row_best
                    row_best = value
                    row_at = b
                elif value < row_second:
                    row_second = value
            for b in range(1 if kj == 2 else kj):
                column = second[b] if at[b] == a else best[b]
                differ = min(column, row_second if row_at == b else row_best)
                same = min(costs[a * kj + b], other if where == b else outside)
                if np.isinf(differ) and np.isinf(same):
                    continue
                value = differ - same
                if abs(value) >= threshold:
                    nodes[count, 0] = g.unary_ptr[i] + a
                    nodes[count, 1] = g.unary_ptr[j] + b
                    strength[count] = value
                    count += 1
    return count


class Projection(NamedTuple):
    """Projection graph: links of each node by descending strength, with separate signs."""

    # ``variable`` is the variable of each node.

    ptr: IntArray
    to: Int32Array
    size: FloatArray
    differ: npt.NDArray[np.bool_]
    variable: Int32Array


# ------------------------------------------------------------------ frustrated cycles


class CycleSearch(NamedTuple):
    """State of the search for cycles, an entry for each node; `stamp` marks those reached."""

    stamp: IntArray
    depth: Int32Array
    parent: Int32Array
    parity: npt.NDArray[np.bool_]
    queue: Int32Array


@inlined
def ways_meet(search: CycleSearch, a: int, b: int) -> int:
    """Return the number of nodes on the two paths up to the lowest common ancestor."""
    length = 1
    while a != b:
        if search.depth[a] >= search.depth[b]:
            a = search.parent[a]
        else:
            b = search.parent[b]
        length += 1
    return length


@inlined
def write_cycle(graph: Projection, search: CycleSearch, a: int, b: int, cycle: Int32Array) -> bool:
    """Write the variables from node ``a`` up and down to ``b``; return whether all differ."""
    low, high = 0, cycle.size - 1
    while a != b:
        if search.depth[a] >= search.depth[b]:
            cycle[low] = graph.variable[a]
            low += 1
            a = search.parent[a]
        else:
            cycle[high] = graph.variable[b]
            high -= 1
            b = search.parent[b]
    cycle[low] = graph.variable[a]
    for s in range(cycle.size):
        for t in range(s):
            if cycle[s] == cycle[t]:
                return False
    return True


@lean_kernel
def frustrated_cycles(
    graph: Projection,
    roots: IntArray,
    mark: int,
    threshold: float,
    per_root: int,
    longest: int,
    search: CycleSearch,
    ends: IntArray,
    cycles: Int32Array,
) -> int:
    """Find short frustrated cycles: an odd number of links prefers different sides."""
    # From each root, a breadth-first search over links of at least `threshold` assigns a side to
    # every node. A link that contradicts the sides of its two nodes closes a cycle. Cycles that
    # visit a variable twice, by different splits, are left out. Root ``r`` of the list stamps the
    # nodes it reaches with ``mark + r + 1``, which must be unused.
    count = 0
    used = 0
    for root in roots:
        mark += 1
        search.stamp[root] = mark
        search.depth[root] = 0
        search.parent[root] = -1
        search.parity[root] = False
        search.queue[0] = root
        head = 0
        tail = 1
        n_cycles = 0
        limit = longest // 2
        effort = _EFFORT
        while head < tail and n_cycles < per_root and effort > 0:
            u = search.queue[head]
            head += 1
            if search.depth[u] > limit:
                break
            for p in range(graph.ptr[u], graph.ptr[u + 1]):
                if graph.size[p] < threshold:
                    break
                effort -= 1
                v = graph.to[p]
                side = search.parity[u] != graph.differ[p]
                if search.stamp[v] != mark:
                    search.stamp[v] = mark
                    search.depth[v] = search.depth[u] + 1
                    search.parent[v] = u
                    search.parity[v] = side
                    search.queue[tail] = v
                    tail += 1
                    continue
                if search.parity[v] == side:
                    continue
                length = ways_meet(search, u, v)
                if length > longest or length < 3:
                    continue
                if count == ends.size or used + length > cycles.size:
                    return count
                if not write_cycle(graph, search, u, v, cycles[used : used + length]):
                    continue
                used += length
                ends[count] = used
                count += 1
                n_cycles += 1
                # Further cycles from this root must be about as short as the first one.
                limit = min(limit, search.depth[u])
                if n_cycles == per_root:
                    break
    return count


@lean_kernel
def triangulate(
    n: int, keys: IntArray, ends: IntArray, count: int, cycles: Int32Array, out: Int32Array
) -> int:
    """Cut cycles into triangles that share a variable; return the number of triangles."""
    # The shared variable is the one with most chords among the existing pairs. `keys` holds the
    # pairs sorted, as ``i * n + j`` with ``i < j``.
    made = 0
    begin = 0
    for q in range(count):
        length = ends[q] - begin
        best, n_best = 0, -1
        for p in range(length if length > 3 else 1):
            there = 0
            i = cycles[begin + p]
            for d in range(2, length - 1):
                j = cycles[begin + (p + d) % length]
                key = np.int64(min(i, j)) * n + max(i, j)
                at = np.searchsorted(keys, key)
                there += at < keys.size and keys[at] == key
            if there > n_best:
                best, n_best = p, there
        i = cycles[begin + best]
        for d in range(1, length - 1):
            j = cycles[begin + (best + d) % length]
            l = cycles[begin + (best + d + 1) % length]  # noqa: E741
            out[made, 0] = min(i, min(j, l))
            out[made, 2] = max(i, max(j, l))
            out[made, 1] = i + j + l - out[made, 0] - out[made, 2]
            made += 1
        begin = ends[q]
    return made


@lean_kernel
def link_up(
    graph: Projection,
    order: IntArray,
    nodes: IntArray,
    strength: FloatArray,
    size: FloatArray,
    free: IntArray,
) -> None:
    """Write links in the given order to both nodes; `free` (nodes,) holds the next positions."""
    for link in order:
        for end in range(2):
            p = free[nodes[link, end]]
            free[nodes[link, end]] += 1
            graph.to[p] = nodes[link, 1 - end]
            graph.size[p] = size[link]
            # Links of positive strength prefer ends on equal sides.
            graph.differ[p] = strength[link] < 0.0


def make_projection(clusters: DualClusters, tolerance: float, run: Run) -> Projection | None:
    """Build the projection graph of links above `tolerance`; None without links or out of time."""
    graph, g = clusters.graph, clusters.g
    sizes = graph.cardinalities[clusters.edges].prod(axis=1)
    widest = int(graph.cardinalities.max(initial=1))
    table = EdgeCosts(
        np.empty(int(sizes.max(initial=1))),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest, dtype=np.int64),
    )
    threshold = tolerance
    nodes = np.empty((0, 2), dtype=np.int64)
    strength = np.empty(0)
    for lo, hi in stretches(8 * sizes):
        if run.should_stop():
            return None
        room = int(sizes[lo:hi].sum())
        new_nodes = np.empty((room, 2), dtype=np.int64)
        new_strength = np.empty(room)
        count = project(
            g, lo, hi, clusters.dual, clusters.hard, threshold, table, new_nodes, new_strength
        )
        nodes = np.concatenate([nodes, new_nodes[:count]])
        strength = np.concatenate([strength, new_strength[:count]])
        if strength.size > _MAX_PROJECTED:
            selection = np.argpartition(-np.abs(strength), _MAX_PROJECTED)[:_MAX_PROJECTED]
            selection.sort()
            nodes, strength = nodes[selection], strength[selection]
            threshold = float(np.abs(strength).min())
    if strength.size == 0:
        return None
    size = np.abs(strength)
    # Infinite strengths become finite, because the search halves its threshold from the largest.
    size = np.minimum(size, 4.0 * float(size[np.isfinite(size)].max(initial=1.0)))
    if run.should_stop():
        return None
    variable = np.repeat(np.arange(graph.n_variables, dtype=np.int32), graph.cardinalities)
    projection = Projection(
        starts_of(np.bincount(nodes.ravel(), minlength=variable.size)),
        np.empty(2 * size.size, dtype=np.int32),
        np.empty(2 * size.size),
        np.empty(2 * size.size, dtype=np.bool_),
        variable,
    )
    strongest_first = np.argsort(-size, kind="stable")
    link_up(projection, strongest_first, nodes, strength, size, projection.ptr[:-1].copy())
    return projection


def find_cycles(
    clusters: DualClusters, longest: int, wanted: int, tolerance: float, run: Run
) -> Int32Array:
    """Return triangles that triangulate frustrated cycles, the strongest cycles first."""
    # Links weaker than `tolerance` are left out, because no cycle gains more than its weakest link.
    new_triangles = np.empty((0, 3), dtype=np.int32)
    projection = make_projection(clusters, tolerance, run)
    if projection is None:
        return new_triangles
    n, n_nodes = clusters.graph.n_variables, projection.variable.size
    search = CycleSearch(
        np.zeros(n_nodes, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int32),
        np.empty(n_nodes, dtype=np.int32),
        np.empty(n_nodes, dtype=np.bool_),
        np.empty(n_nodes, dtype=np.int32),
    )
    keys = pair_keys(n, clusters.edges)
    keys.sort()
    roots = run.rng.permutation(np.flatnonzero(np.diff(projection.ptr)))
    threshold, weakest = float(projection.size.max()), float(projection.size.min())
    ends = np.empty(_ROOTS * _PER_ROOT, dtype=np.int64)
    cycles = np.empty(ends.size * longest, dtype=np.int32)
    triangles = np.empty((cycles.size, 3), dtype=np.int32)
    mark = 0
    while threshold > 0.5 * weakest and len(new_triangles) < wanted:
        # The threshold is halved each time, down to the weakest link.
        threshold *= 0.5
        for begin in range(0, roots.size, _ROOTS):
            if run.should_stop() or len(new_triangles) >= 2 * wanted:
                return new_triangles
            part = roots[begin : begin + _ROOTS]
            count = frustrated_cycles(
                projection, part, mark, threshold, _PER_ROOT, longest, search, ends, cycles
            )
            mark += part.size
            made = triangulate(n, keys, ends, count, cycles, triangles)
            if made:
                new_triangles = clusters.new_ones(np.concatenate([new_triangles, triangles[:made]]))
    return new_triangles
