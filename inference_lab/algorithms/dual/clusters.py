"""Reparametrisations with clusters of three variables (Sontag et al. 2008, see `MPLP`)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.dual.cluster_updates import (
    Room,
    least_of_clusters,
    pass_on,
    update_clusters,
)
from inference_lab.algorithms.dual.reparametrisation import (
    ULPS,
    ClusterArrays,
    Dual,
    decode,
    make_scratch,
    no_clusters,
    refresh,
    stretches,
    sum_of_least,
    update_factors,
    update_stars,
)
from inference_lab.contract import Run
from inference_lab.graph.arrays import NO_FORM, TABLE, Int32Array, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph


class DualClusters:
    """Reparametrisation with clusters of three variables.

    Pairs inside a cluster get tables of their own, which change with the parts that clusters pass
    on. All other terms stay unchanged. Pairs without a term get one, and are counted in
    ``new_pairs``; ``memory`` is the bytes of the clusters and of the tables of pairs.
    """

    def __init__(self, graph: FactorGraph, dual: Dual) -> None:
        self.graph = graph
        self.dual = dual
        self.hard = graph.has_infinite
        self.arrays = no_clusters(graph)
        self.new_pairs = 0
        # `_base` has the tables of pairs without the parts of clusters.
        self._shared = graph.pairwise_values.size
        self._pool = graph.pairwise_values.copy()
        self._base = np.empty(0)
        self._kinds = graph.edge_kinds.copy()
        self._weights = graph.edge_weights.copy()
        self._offsets = graph.edge_offsets.copy()
        self._forms = graph.arrays.forms.copy()
        self._has_table = np.zeros(graph.n_edges, dtype=bool)
        self.edges = graph.edges
        self._work = make_scratch(graph)
        self._arrange()

    # -------------------------------------------------------------- construction

    def _pair_edges(self, pairs: Int32Array) -> Int32Array:
        """Return the edge of each pair ``(i, j)``, ``i < j``; add missing edges and tables."""
        cardinalities = self.graph.cardinalities
        keys = pair_keys(self.graph.n_variables, self.edges)
        order = np.argsort(keys)
        asked = pairs[:, 0].astype(np.int64) * self.graph.n_variables + pairs[:, 1]
        wanted = np.unique(asked)
        at = np.searchsorted(keys, wanted, sorter=order)
        there = at < keys.size
        there[there] = keys[order[at[there]]] == wanted[there]
        edge = np.empty(wanted.size, dtype=np.int64)
        edge[there] = order[at[there]]
        new = wanted[~there]
        edge[~there] = len(self.edges) + np.arange(new.size)
        added = np.stack(np.divmod(new, max(self.graph.n_variables, 1)), axis=1).astype(np.int32)
        # Existing edges get tables of their own, new edges tables of zeros.
        convert = edge[there]
        convert = convert[~self._has_table[convert]]
        tables = [self.graph.edge_table(int(e)).ravel() for e in convert]
        zeros = cardinalities[added].prod(axis=1)
        sizes = np.concatenate([np.array([t.size for t in tables], dtype=np.int64), zeros])
        starts = self._pool.size + starts_of(sizes)
        fresh = np.concatenate([*tables, np.zeros(int(zeros.sum()))])
        self._base = np.concatenate([self._base, fresh])
        self._pool = np.concatenate([self._pool, fresh])
        self._kinds[convert] = TABLE
        self._weights[convert] = 1.0
        self._offsets[convert] = starts[: convert.size]
        self._forms[convert] = NO_FORM
        self._has_table[convert] = True
        count = new.size
        self.new_pairs += count
        self.edges = np.concatenate([self.edges, added])
        self._kinds = np.append(self._kinds, np.full(count, TABLE, dtype=np.uint8))
        self._weights = np.append(self._weights, np.ones(count))
        self._offsets = np.append(self._offsets, starts[convert.size : -1])
        self._forms = np.append(self._forms, np.full(count, NO_FORM, dtype=np.uint8))
        self._has_table = np.append(self._has_table, np.ones(count, dtype=bool))
        halves = starts_of(cardinalities[added.ravel()])
        ptr = self.dual.half_ptr
        self.dual = self.dual._replace(
            half_ptr=np.concatenate([ptr, ptr[-1] + halves[1:]]),
            from_edge=np.concatenate([self.dual.from_edge, np.zeros(int(halves[-1]))]),
        )
        return edge[np.searchsorted(wanted, asked)].astype(np.int32)

    def add(self, members: Int32Array) -> None:
        """Add clusters, one per row, with ascending variables."""
        edges = self._pair_edges(members[:, [[0, 1], [0, 2], [1, 2]]].reshape(-1, 2))
        _, entries = self._sizes(members)
        old = self.arrays
        self.arrays = ClusterArrays(
            variables=np.concatenate([old.variables, members]),
            edges=np.concatenate([old.edges, edges.reshape(-1, 3)]),
            part_ptr=np.append(old.part_ptr, old.part_ptr[-1] + np.cumsum(entries)),
            parts=np.append(old.parts, np.zeros(int(entries.sum()))),
            inside_ptr=old.inside_ptr,
            inside=old.inside,
            pool=self._pool,
        )
        self._arrange()

    def _sizes(self, members: Int32Array) -> tuple[IntArray, IntArray]:
        """Return the sizes of the joint tables of clusters, and of all their pairs."""
        k = self.graph.cardinalities[members]
        total = k.sum(axis=1)
        return k.prod(axis=1), (total * total - (k * k).sum(axis=1)) // 2

    def cost_of(self, members: Int32Array) -> tuple[IntArray, IntArray]:
        """Return the approximate entries that a sweep visits for each cluster, and its bytes."""
        joint, pairs = self._sizes(members)
        # Bytes: the parts, and the tables of pairs kept twice, in the worst case all new.
        return 4 * joint + 20 * pairs, 24 * pairs + 200

    def _arrange(self) -> None:
        """Rebuild adjacency, scratch and stretches of bounded work."""
        graph, edges, clusters = self.graph, self.edges, self.arrays
        # Adjacency only: kinds and costs are inserted below.
        plain = replace(
            graph,
            edges=edges,
            edge_kinds=np.zeros(len(edges), dtype=np.uint8),
            edge_weights=np.zeros(len(edges)),
            edge_offsets=np.zeros(len(edges), dtype=np.int64),
            pairwise_values=np.zeros(1),
        ).arrays
        self.g = plain._replace(
            kinds=self._kinds,
            weights=self._weights,
            offsets=self._offsets,
            pairwise=self._pool,
            forms=self._forms,
        ).read_only()
        sizes = graph.cardinalities[edges]
        self.memory = 16 * self._base.size + 8 * clusters.parts.size
        largest = int(self._sizes(clusters.variables)[1].max(initial=1))
        self.room = Room(np.empty(largest), np.empty(largest))
        dense = np.where(self._kinds == TABLE, sizes.prod(axis=1), 4 * sizes.max(axis=1, initial=1))
        stars = 10.0 + np.bincount(
            edges.ravel(), weights=np.repeat(dense, 2), minlength=graph.n_variables
        )
        self._stars = stretches(stars.astype(np.int64))
        self._factors = stretches(np.diff(graph.table_ptr) * np.diff(graph.factor_ptr) ** 2)
        self._clusters = stretches(self.cost_of(clusters.variables)[0])
        # The clusters of each variable, and its position in them.
        members = clusters.variables.ravel()
        self.arrays = clusters._replace(
            inside_ptr=starts_of(np.bincount(members, minlength=graph.n_variables)),
            inside=np.argsort(members, kind="stable"),
        )

    def new_ones(self, candidates: Int32Array) -> Int32Array:
        """Return the distinct rows that are not clusters yet."""
        clusters = self.arrays.variables
        rows = np.concatenate([clusters, candidates])
        # The sort is stable, so known clusters come before repeats of them.
        order = np.lexsort(rows.T[::-1])
        differ = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
        first = order[np.concatenate([[True], differ])] if len(order) else order
        new: Int32Array = candidates[np.sort(first[first >= len(clusters)]) - len(clusters)]
        return new

    # -------------------------------------------------------------- sweeps

    @property
    def count(self) -> int:
        """Number of clusters."""
        return len(self.arrays.variables)

    def sweep(self, run: Run, backwards: bool) -> bool:
        """Sweep over all variables, factors and clusters once; return False if time ran out."""
        step = -1 if backwards else 1
        for begin, end in self._stars[::step]:
            if run.should_stop():
                return False
            update_stars(self.g, begin, end, backwards, self.dual, self.hard, self._work)
        for begin, end in self._factors[::step]:
            if run.should_stop():
                return False
            update_factors(self.g, begin, end, backwards, self.dual, self.hard, self._work)
        for begin, end in self._clusters[::step]:
            if run.should_stop():
                return False
            update_clusters(
                self.g, begin, end, backwards, self.dual, self.arrays, self.hard, self.room
            )
        return True

    def redistribute_costs(self) -> None:
        """Move all differences between labels from the variables into the terms."""
        update_stars(self.g, 0, self.graph.n_variables, False, self.dual, self.hard, self._work)

    def bound(self) -> float:
        """Return the lower bound, lowered by the rounding error; ``inf`` if infeasible."""
        tables = self._pool[self._shared :]
        tables[:] = np.where(np.isinf(tables), np.inf, self._base)
        scale = pass_on(self.g, self.arrays) + refresh(self.g, self.dual)
        pairs = sum_of_least(self.g, self.dual, self.hard, self._work)
        if math.isinf(pairs):
            return math.inf
        minima = np.empty(self.count)
        least_of_clusters(self.g, self.dual, self.arrays, self.hard, self.room, minima)
        if np.isinf(minima).any():
            return math.inf
        # numpy sums pairwise, which keeps the rounding error within a few units in the last place.
        total = float(minima.sum())
        scale += float(np.abs(minima).sum()) + abs(pairs) + abs(self.graph.constant)
        self.rounding = ULPS * scale
        return pairs + total + self.graph.constant - self.rounding

    def decode(self, backwards: bool) -> IntArray:
        """Return the labelling that the reparametrisation suggests."""
        n = self.graph.n_variables
        x = np.empty(n, dtype=np.int64)
        order = np.arange(n)[:: -1 if backwards else 1].copy()
        decode(self.g, order, self.dual, self.arrays, self.hard, self._work, x)
        return x


def pair_keys(n: int, edges: Int32Array) -> npt.NDArray[np.int64]:
    """Return ``min * n + max`` of the ends of each edge."""
    return np.asarray(edges.min(axis=1).astype(np.int64) * n + edges.max(axis=1))
