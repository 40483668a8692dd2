"""Valid inequalities for the Gram matrix of a labelling, and the search for violated ones.

A labelling of ``N`` nodes by ``k`` labels gives the matrix ``X`` with ``X_ij = 1`` where labels are
equal and ``-1 / (k - 1)`` elsewhere. With ``y_ij = ((k - 1) X_ij + 1) / k``, the indicator of equal
labels, three sorts of inequalities are used:

* *triangles* ``y_ij + y_il - y_jl <= 1``, and for two labels ``y_ij + y_il + y_jl >= 1``, found by
  enumeration;
* *hypermetric* ones (two labels): ``(sum_p b_p x_p)^2 >= 1`` for integers ``b`` of odd sum, on 5 to
  7 nodes with any signs;
* *patterns* (more labels) on 4 to 7 nodes: cliques, two-partitions, wheels and odd cycles with
  their 2-chords, as found by Chopra and Rao for the ``k``-partition polytope.

The right-hand side of a pattern ``sum_pr D_pr y_pr <= r`` is found by enumerating the partitions
of its nodes into ``k`` classes, so that an inequality is valid for every pattern and any nodes.

References
----------
S. Chopra, M. R. Rao, "The partition problem", Mathematical Programming 59, 1993.
M. Deza, M. Laurent, "Geometry of cuts and metrics", Springer 1997, ch. 28 (hypermetric).
M. Groetschel, Y. Wakabayashi, "Facets of the clique partitioning polytope", Mathematical
Programming 47, 1990 (two-partitions, 2-chorded odd cycles).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from inference_lab._numba import lean_kernel
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of

#: Largest pattern whose partitions are enumerated: 877 of 7 nodes.
_LARGEST = 7
#: Searches in a round for all patterns together, and the minimum and maximum for one pattern.
_SEARCHES = 3600
_FEWEST = 20
_MOST = 600
#: Rounds of replacing the nodes of a pattern one by one; a handful suffices.
_ROUNDS = 20


class Pattern(NamedTuple):
    """A pattern of coefficients: ``sum_{p<r} weights[p, r] X_pr <= bound`` on any nodes."""

    weights: FloatArray
    bound: float


def _partitions(size: int, k: int) -> FloatArray:
    """Return the indicators of equal classes, (partitions, pairs), of all partitions into k."""
    rows: list[list[int]] = [[]]
    for _ in range(size):
        rows = [[*row, c] for row in rows for c in range(min(max(row, default=-1) + 2, k))]
    classes = np.array(rows)
    first, second = np.triu_indices(size, 1)
    return np.asarray(classes[:, first] == classes[:, second], dtype=np.float64)


def _as_pattern(weights: FloatArray, k: int) -> Pattern:
    """Return the pattern in ``X`` of weights of the indicators ``y``, with its bound."""
    np.fill_diagonal(weights, 0.0)
    above = weights[np.triu_indices(len(weights), 1)]
    bound = float((_partitions(len(weights), k) @ above).max())
    return Pattern(weights, (bound * k - float(above.sum())) / (k - 1))


@functools.cache
def patterns(k: int) -> tuple[Pattern, ...]:
    """Return the patterns for ``k`` labels; for two labels, up to signs of the nodes."""
    # Example: among five nodes with two labels at least four pairs agree, so the sum of ``X`` over
    # the ten pairs is at least 4 - 6 = -2.
    if k == 2:
        multiples = [[1] * 5, [2] + [1] * 5, [1] * 7, [2, 2] + [1] * 5, [3] + [1] * 6]
        return tuple(_as_pattern(np.array(-np.outer(b, b), dtype=np.float64), 2) for b in multiples)
    result = []
    for q in range(4, _LARGEST + 1):
        if q > k:
            result.append(_as_pattern(-np.ones((q, q)), k))
        for a in range(1, (q + 1) // 2):
            side = np.arange(q) < a
            result.append(_as_pattern(np.where(side[:, None] == side, -1.0, 1.0), k))
        distance = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
        if q % 2 == 0:
            wheel = np.zeros((q, q))
            rim = np.minimum(distance[1:, 1:], q - 1 - distance[1:, 1:])
            wheel[1:, 1:] = np.where(rim == 1, -1.0, 0.0)
            wheel[0] = wheel[:, 0] = 1.0
            result.append(_as_pattern(wheel, k))
        elif q >= 5:
            step = np.minimum(distance, q - distance)
            chorded = np.where(step == 1, 1.0, np.where(step == 2, -1.0, 0.0))
            result.append(_as_pattern(chorded, k))
    if k >= _LARGEST:
        # At least two of k + 1 nodes agree.
        pairs = (k + 1) * k / 2
        weights = np.eye(k + 1) - 1.0
        result.append(Pattern(weights, (-k + pairs) / (k - 1)))
    return tuple(result)


class CutRows:
    """Inequalities ``sum_p value_p X[i_p, j_p] <= rhs`` with ``i > j``, and their multipliers.

    Entries between nodes from `fixed_from` on have the value `fixed`; they move to the right-hand
    side. ``ptr`` (r+1,) divides the flat terms into rows; ``norm`` (r,) is the sum of squared
    values, ``key`` identifies a row among rows of one kind.
    """

    def __init__(self, fixed_from: int, fixed: float) -> None:
        self.fixed_from, self.fixed = fixed_from, fixed
        self.ptr = np.zeros(1, dtype=np.int64)
        self.i: IntArray = np.empty(0, dtype=np.int64)
        self.j: IntArray = np.empty(0, dtype=np.int64)
        self.value = np.empty(0)
        self.rhs = np.empty(0)
        self.norm = np.empty(0)
        self.multiplier = np.empty(0)
        self.key: IntArray = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.rhs.size)

    def add(
        self,
        nodes: tuple[IntArray, IntArray],
        value: FloatArray,
        rhs: FloatArray,
        key: IntArray,
    ) -> None:
        """Add rows of equal length: ``nodes``, ``value`` (r, t), ``rhs`` and ``key`` (r,)."""
        count, terms = value.shape
        high, low = np.maximum(*nodes), np.minimum(*nodes)
        is_fixed = low >= self.fixed_from
        rhs = rhs - self.fixed * np.where(is_fixed, value, 0.0).sum(axis=1)
        value = np.where(is_fixed, 0.0, value)
        self.ptr = np.concatenate([self.ptr, self.ptr[-1] + np.arange(1, count + 1) * terms])
        self.i = np.concatenate([self.i, high.ravel()])
        self.j = np.concatenate([self.j, low.ravel()])
        self.value = np.concatenate([self.value, value.ravel()])
        self.rhs = np.concatenate([self.rhs, rhs])
        self.norm = np.concatenate([self.norm, (value * value).sum(axis=1)])
        self.multiplier = np.concatenate([self.multiplier, np.zeros(count)])
        self.key = np.concatenate([self.key, key])

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Drop all other rows."""
        lengths = np.diff(self.ptr)
        terms = np.repeat(mask, lengths)
        self.i, self.j, self.value = self.i[terms], self.j[terms], self.value[terms]
        self.ptr = starts_of(lengths[mask])
        for name in ("rhs", "norm", "multiplier", "key"):
            setattr(self, name, getattr(self, name)[mask])

    def merged(self, of: IntArray) -> CutRows:
        """Return the rows after node i became node ``of[i]``; merged nodes have ``X_ij = 1``."""
        row = np.repeat(np.arange(len(self)), np.diff(self.ptr))
        i, j = of[self.i], of[self.j]
        n = int(of.max()) + 1
        one = i == j
        where = np.maximum(i, j)[~one] * n + np.minimum(i, j)[~one]
        terms = csr_array((self.value[~one], (row[~one], where)), shape=(len(self), n * n))
        rows = CutRows(n, self.fixed)
        rows.ptr = terms.indptr.astype(np.int64)
        rows.i, rows.j = np.divmod(terms.indices.astype(np.int64), n)
        rows.value = terms.data
        rows.rhs = self.rhs - np.bincount(row[one], self.value[one], len(self))
        rows.norm = terms.multiply(terms).sum(axis=1)
        rows.multiplier = self.multiplier.copy()
        # Rows that are found again only cost an inequality.
        rows.key = -1 - np.arange(len(self))
        rows.keep(rows.norm > 0.0)
        return rows

    def slacks(self, x: FloatArray) -> FloatArray:
        """Return ``rhs`` minus left-hand side of each row at the lower triangle of ``x``."""
        if len(self) == 0:
            return np.empty(0)
        return self.rhs - np.add.reduceat(self.value * x[self.i, self.j], self.ptr[:-1])


@lean_kernel
def _triangles_of(
    x: FloatArray, i: int, two: bool, threshold: float, codes: IntArray, violations: FloatArray
) -> int:
    """Write the violated triangles with this largest node; return their number."""
    # A code is ``((i N + j) N + l) 4 + sort`` for ``i > j > l``.
    n = x.shape[0]
    count = 0
    for j in range(1, i):
        a = x[i, j]
        for m in range(j):
            b = x[i, m]
            c = x[j, m]
            largest = max(max(a + b - c, a + c - b), b + c - a)
            if two:
                largest = max(largest, -a - b - c)
            if largest - 1.0 <= threshold:
                continue
            if two and largest == -a - b - c:
                sort = 3
            elif largest == a + b - c:
                sort = 0
            elif largest == a + c - b:
                sort = 1
            else:
                sort = 2
            codes[count] = ((i * n + j) * n + m) * 4 + sort
            violations[count] = largest - 1.0
            count += 1
    return count


class TriangleSearch:
    """Search for the `most` violated triangles, in steps between which a clock can be checked.

    Only the lower triangle of `x` is read; `two` is true for two labels, and `threshold` is the
    least violation. If there are more than `work` triangles, largest nodes are sampled.
    """

    def __init__(
        self,
        x: FloatArray,
        two: bool,
        threshold: float,
        limit: int,
        work: int,
        rng: np.random.Generator,
    ) -> None:
        n = x.shape[0]
        self.x, self.two, self.limit, self._threshold = x, two, limit, threshold
        #: The most violated triangles so far, then those with the last largest node.
        self._codes = np.empty(4 * limit + n * n // 2, dtype=np.int64)
        self._violations = np.empty(self._codes.size)
        self._count = 0
        tops = np.arange(n)
        if n**3 / 6 > work:
            tops = rng.permutation(n)
            tops = tops[: max(1, int(np.searchsorted(np.cumsum(tops**2 / 2), work)))]
        self.tops: IntArray = tops.astype(np.int64)

    def look(self, top: int) -> None:
        """Examine all triangles with this largest node."""
        codes, violations = self._codes, self._violations
        self._count += _triangles_of(
            self.x, top, self.two, self._threshold, codes[self._count :], violations[self._count :]
        )
        limit = 2 * self.limit
        if self._count > 2 * limit:
            best = np.argpartition(-violations[: self._count], limit)[:limit]
            codes[:limit], violations[:limit] = codes[best], violations[best]
            self._count = limit
            self._threshold = float(violations[:limit].min())

    def codes(self, old_codes: IntArray) -> IntArray:
        """Return the codes of the most violated triangles that are not known yet."""
        codes, violations = self._codes[: self._count], self._violations[: self._count]
        new = ~np.isin(codes, old_codes)
        codes, violations = codes[new], violations[new]
        return codes[np.argsort(-violations, kind="stable")[: self.limit]]


def add_triangles(rows: CutRows, codes: IntArray, n: int) -> None:
    """Add triangles as rows ``s X_ij + t X_il + u X_jl <= 1``; the keys are the codes."""
    sort, rest = codes % 4, codes // 4
    i, j, m = rest // (n * n), rest // n % n, rest % n
    signs = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    nodes = np.stack([i, i, j], axis=1), np.stack([j, m, m], axis=1)
    rows.add(nodes, signs[sort], np.ones(codes.size), codes)


@lean_kernel
def _climb(
    x: FloatArray,
    weights: FloatArray,
    signed: bool,
    nodes: IntArray,
    signs: FloatArray,
    score: FloatArray,
    value: FloatArray,
) -> None:
    """Replace the nodes of patterns one by one while ``sum D_pr s_p s_r X_pr`` rises."""
    # Each row of ``nodes`` (t, q) holds distinct initial nodes; ``signs`` (t, q) stay 1 unless
    # `signed`. ``value`` (t,) receives the sums.
    n = x.shape[0]
    q = weights.shape[0]
    for t in range(nodes.shape[0]):
        for _ in range(_ROUNDS):
            changed = False
            for p in range(q):
                for v in range(n):
                    score[v] = 0.0
                for r in range(q):
                    if r == p or weights[p, r] == 0.0:
                        continue
                    u = nodes[t, r]
                    w = weights[p, r] * signs[t, r]
                    for v in range(n):
                        score[v] += w * x[u, v]
                node = nodes[t, p]
                current = score[node] * signs[t, p]
                for r in range(q):
                    if r != p:
                        score[nodes[t, r]] = np.nan
                best = node
                best_sign = signs[t, p]
                best_score = current + 1e-9
                for v in range(n):
                    if score[v] > best_score:
                        best_score = score[v]
                        best = v
                        best_sign = 1.0
                    elif signed and -score[v] > best_score:
                        best_score = -score[v]
                        best = v
                        best_sign = -1.0
                if best != node or best_sign != signs[t, p]:
                    nodes[t, p] = best
                    signs[t, p] = best_sign
                    changed = True
            if not changed:
                break
        total = 0.0
        for p in range(q):
            for r in range(p):
                both = signs[t, p] * signs[t, r]
                total += weights[p, r] * both * x[nodes[t, p], nodes[t, r]]
        value[t] = total


class PatternPool:
    """The patterns for `k` labels, and how often each was found violated."""

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        self.k, self.rng = k, rng
        self._score = np.ones(len(patterns(k)))

    def find(
        self, x: FloatArray, threshold: float, old_keys: IntArray, should_stop: Callable[[], bool]
    ) -> list[ViolatedInequalities]:
        """Search for all patterns, most often for patterns found violated before."""
        violated = []
        share = self._score / self._score.sum()
        for number, pattern in enumerate(patterns(self.k)):
            starts = int(np.clip(share[number] * _SEARCHES, _FEWEST, _MOST))
            result = find_patterns(
                x, pattern, number, self.k == 2, starts, threshold, old_keys, self.rng
            )
            count = 0 if result is None else result.depth.size
            self._score[number] = 0.5 * self._score[number] + count + 0.1
            if result is not None and count:
                violated.append(result)
            if should_stop():
                break
        return violated


class ViolatedInequalities(NamedTuple):
    """Violated inequalities of one pattern."""

    # ``nodes`` (t, q), ``signs`` (t, q), ``depth`` (t,): violation by the norm of the coefficients.

    pattern: Pattern
    nodes: IntArray
    signs: FloatArray
    depth: FloatArray
    key: IntArray


def find_patterns(
    x: FloatArray,
    pattern: Pattern,
    number: int,
    signed: bool,
    starts: int,
    threshold: float,
    old_keys: IntArray,
    rng: np.random.Generator,
) -> ViolatedInequalities | None:
    """Search by local improvement from random nodes for violated inequalities of one pattern."""
    n, q = x.shape[0], len(pattern.weights)
    if q > n:
        return None
    # Nodes are distinct, because their offsets from the first node increase and stay below n.
    rise = np.sort(rng.integers(0, n - q + 1, size=(starts, q)), axis=1) + np.arange(q)
    nodes = rng.permuted((rise + rng.integers(0, n, size=(starts, 1))) % n, axis=1)
    signs = rng.choice(np.array([-1.0, 1.0]), size=(starts, q)) if signed else np.ones((starts, q))
    value = np.empty(starts)
    _climb(x, pattern.weights, signed, nodes, signs, np.empty(n), value)
    violation = value - pattern.bound
    keys = _keys(number, nodes, signs, pattern)
    _, first = np.unique(keys, return_index=True)
    first = first[(violation[first] > threshold) & ~np.isin(keys[first], old_keys)]
    norm = np.sqrt((pattern.weights**2).sum() / 2)
    return ViolatedInequalities(
        pattern, nodes[first], signs[first], violation[first] / norm, keys[first]
    )


def _keys(number: int, nodes: IntArray, signs: FloatArray, pattern: Pattern) -> IntArray:
    """Return keys that are equal for rows with equal nodes; a clash only costs an inequality."""
    # Nodes enter with their sign relative to the first and with the sum of their coefficients,
    # which distinguishes their roles.
    role = np.round(pattern.weights.sum(axis=1)).astype(np.int64) + 64
    lowest = nodes.argmin(axis=1)
    relative = signs * np.take_along_axis(signs, lowest[:, None], axis=1)
    mixed = (nodes.astype(np.uint64) * 2 + (relative > 0)) * 128 + role.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (mixed + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        total = mixed.sum(axis=1) + np.uint64(number)
    # Negative, so that no triangle has this key.
    return np.asarray(-1 - (total >> np.uint64(1)).astype(np.int64))


def add_patterns(
    rows: CutRows, violated: ViolatedInequalities, mask: npt.NDArray[np.bool_]
) -> None:
    """Add the chosen inequalities as rows."""
    nodes, signs = violated.nodes[mask], violated.signs[mask]
    first, second = np.nonzero(np.triu(violated.pattern.weights, 1))
    value = violated.pattern.weights[first, second] * signs[:, first] * signs[:, second]
    rows.add(
        (nodes[:, first], nodes[:, second]),
        value,
        np.full(len(nodes), violated.pattern.bound),
        violated.key[mask],
    )
