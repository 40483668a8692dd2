"""Pairwise constraints: must-link and cannot-link pairs over ``n_points`` points.

The convention throughout: pairs are unordered, each pair counts once, and weights are
non-negative in the units of the distortion.  Everything here is vectorised over the pairs; no
routine allocates anything of size ``n_points ** 2``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

__all__ = [
    "ClosurePolicy",
    "Constraints",
    "ContradictionError",
    "check_generator",
    "point_indices",
]

ClosurePolicy: TypeAlias = Literal["raise", "drop", "keep"]
Weight: TypeAlias = "float | npt.NDArray[np.float64]"

_SHOWN = 5  # pairs listed in a message or in a repr before it is cut
_MAX_POINTS = 3_037_000_499  # floor(sqrt(2**63 - 1)): i * n_points + j must fit into an int64


class ContradictionError(ValueError):
    """A cannot-link pair lies inside a connected component of the must-link graph.

    Attributes
    ----------
    pairs : ndarray of int64, shape (r, 2)
        The contradicting cannot-link pairs, all of them.
    """

    def __init__(self, message: str, pairs: npt.NDArray[np.int64]) -> None:
        super().__init__(message)
        self.pairs = pairs

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the pairs: the default rebuilds from ``args``, which lacks them."""
        return type(self), (self.args[0], self.pairs)


def point_indices(value: npt.ArrayLike, n_points: int, *, name: str) -> npt.NDArray[np.int64]:
    """Turn an index array or a boolean mask over points into distinct indices.

    Parameters
    ----------
    value : array-like of int, shape (m,), or of bool, shape (n_points,)
        Indices in ``0..n_points-1`` without repetition, or a mask.
    n_points : int
        Number of points that the indices refer to.
    name : str
        Name of the argument, for the error messages.

    Returns
    -------
    ndarray of int64, shape (m,)
        Indices in the order given; ascending when a mask was given.

    Raises
    ------
    ValueError
        If the shape is wrong, an index is out of range, or an index occurs twice.
    TypeError
        If the values are neither integers nor booleans.

    Examples
    --------
    >>> point_indices([True, False, True], 3, name="scored")
    array([0, 2])
    """
    array = np.asarray(value)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; a 1-D array of points is needed")
    if array.dtype == np.bool_:
        if array.size != n_points:
            raise ValueError(
                f"{name} is a boolean mask of length {array.size}; it needs one entry for each of "
                f"the {n_points} points"
            )
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; integer indices or a boolean mask needed")
    outside = np.flatnonzero((array < 0) | (array >= n_points))
    if outside.size:
        at = int(outside[0])
        raise ValueError(
            f"{name}[{at}] = {array[at]} is not a point; "
            f"indices from 0 to n_points - 1 = {n_points - 1} are allowed"
        )
    indices = array.astype(np.int64)
    order = np.argsort(indices, kind="stable")
    repeated = np.flatnonzero(indices[order[1:]] == indices[order[:-1]])
    if repeated.size:
        first, second = int(order[repeated[0]]), int(order[repeated[0] + 1])
        raise ValueError(
            f"{name}[{second}] = {indices[second]} already occurs at {name}[{first}]; "
            "each point may be listed once"
        )
    return indices


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Constraints:
    r"""Must-link and cannot-link pairs with their weights, validated and in canonical form.

    The pairs enter the clustering energy as

    .. math::

        \sum_{(i,j) \in M} w_{ij} \varphi_{ij} [l_i \ne l_j]
        + \sum_{(i,j) \in C} \bar w_{ij} \bar\varphi_{ij} [l_i = l_j],

    every unordered pair counted once (Basu, Bilenko and Mooney, KDD 2004, eq. 9; their eqs. 3 and 5
    count it twice).

    Parameters
    ----------
    must_link, cannot_link : array-like of int, shape (p, 2) and (q, 2), or None
        Pairs of distinct points in any order; ``None`` or an empty list means no pairs.  A pair
        that is listed several times, in either order, is one pair.  The same pair may be in both
        lists (noisy answers do that); `contradictions` reports it.
    ml_weight, cl_weight : float or array-like of float, shape (p,) and (q,), default 1.0
        One weight for all pairs of a kind, or one per listed pair; ``>= 0``, ``+inf`` makes a
        pair hard.  Repeated listings of a pair must agree on its weight: neither the sum nor the
        last one is more plausible than the other, so the object refuses to choose.
    n_points : int, keyword-only
        Number of points that the indices refer to.

    Attributes
    ----------
    must_link, cannot_link : ndarray of int64, shape (p, 2) and (q, 2)
        Read-only, each row ``i < j``, rows distinct and in lexicographic order.
    ml_weight, cl_weight : float or ndarray of float64, shape (p,) and (q,)
        Read-only and aligned with the stored rows; a scalar stays a scalar.
    n_points : int
        Number of points.

    Raises
    ------
    TypeError
        If pairs are not integers or weights are not real numbers.
    ValueError
        If a shape is wrong, an index out of range, a point paired with itself, a weight negative
        or NaN, or a pair listed twice with different weights.

    Examples
    --------
    >>> c = Constraints([[1, 0], [1, 2], [0, 1]], [[2, 3]], n_points=5)
    >>> c
    Constraints(2 must-link, 1 cannot-link, n_points=5)
    >>> c.must_link.tolist()
    [[0, 1], [1, 2]]
    >>> c.close().cannot_link.tolist()
    [[0, 3], [1, 3], [2, 3]]
    """

    must_link: npt.NDArray[np.int64]
    cannot_link: npt.NDArray[np.int64]
    ml_weight: float | npt.NDArray[np.float64] = 1.0
    cl_weight: float | npt.NDArray[np.float64] = 1.0
    n_points: int = field(kw_only=True)

    def __init__(
        self,
        must_link: npt.ArrayLike | None,
        cannot_link: npt.ArrayLike | None,
        ml_weight: npt.ArrayLike = 1.0,
        cl_weight: npt.ArrayLike = 1.0,
        *,
        n_points: int,
    ) -> None:
        n = _count(n_points, name="n_points", smallest=0, largest=_MAX_POINTS)
        ml_pairs, ml_values = _canonical(must_link, ml_weight, n, "must_link", "ml_weight")
        cl_pairs, cl_values = _canonical(cannot_link, cl_weight, n, "cannot_link", "cl_weight")
        object.__setattr__(self, "must_link", ml_pairs)
        object.__setattr__(self, "cannot_link", cl_pairs)
        object.__setattr__(self, "ml_weight", ml_values)
        object.__setattr__(self, "cl_weight", cl_values)
        object.__setattr__(self, "n_points", n)

    @classmethod
    def sample(
        cls,
        labels: npt.ArrayLike,
        n: int,
        rng: np.random.Generator,
        among: npt.ArrayLike | None = None,
        *,
        ml_weight: float = 1.0,
        cl_weight: float = 1.0,
    ) -> Constraints:
        r"""Draw `n` distinct unordered pairs of points and type them by their labels.

        Every set of `n` pairs out of the :math:`m(m-1)/2` pairs among `m` points is equally likely;
        a pair becomes must-link iff its two labels are equal (the random queries of the papers'
        learning curves; Basu, Bilenko and Mooney, KDD 2004, section 4).

        Parameters
        ----------
        labels : array-like, shape (n_points,)
            True classes: integers, strings, or anything that compares with ``==``.
        n : int
            Number of pairs, at most the number available.
        rng : numpy.random.Generator
            Source of all randomness.
        among : array-like of int, shape (m,), or of bool, shape (n_points,), optional
            The points that pairs may touch (the training points, say); default: all.
        ml_weight, cl_weight : float, default 1.0
            Weights of the result.

        Returns
        -------
        Constraints
            Exactly `n` pairs.

        Raises
        ------
        ValueError
            If `n` is negative or exceeds the number of available pairs.

        Notes
        -----
        Memory is :math:`O(n + m)`; two million pairs among a million points take about a second.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> Constraints.sample([0, 0, 1, 1], 6, rng)
        Constraints(2 must-link, 4 cannot-link, n_points=4)
        """
        check_generator(rng)
        truth = np.asarray(labels)
        if truth.ndim != 1:
            raise ValueError(f"labels has shape {truth.shape}; shape (n_points,) is needed")
        if truth.dtype.kind == "f" and np.isnan(truth).any():
            at = int(np.flatnonzero(np.isnan(truth))[0])
            raise ValueError(f"labels[{at}] is NaN; every point needs a class")
        n_points = int(truth.size)
        points = None if among is None else point_indices(among, n_points, name="among")
        m = n_points if points is None else int(points.size)
        available = m * (m - 1) // 2
        count = _count(n, name="n", smallest=0)
        if count > available:
            raise ValueError(
                f"n = {count} distinct pairs were asked for, but {m} points have only "
                f"{available} unordered pairs"
            )
        pairs = sample_pairs(m, count, rng)
        if points is not None:
            pairs = points[pairs]
        together = np.asarray(truth[pairs[:, 0]] == truth[pairs[:, 1]], dtype=bool)
        return cls(
            pairs[together],
            pairs[~together],
            ml_weight=ml_weight,
            cl_weight=cl_weight,
            n_points=n_points,
        )

    @property
    def ml_weights(self) -> npt.NDArray[np.float64]:
        """Weight of each must-link pair, shape (p,), float64, read-only."""
        return np.broadcast_to(np.asarray(self.ml_weight, dtype=np.float64), len(self.must_link))

    @property
    def cl_weights(self) -> npt.NDArray[np.float64]:
        """Weight of each cannot-link pair, shape (q,), float64, read-only."""
        return np.broadcast_to(np.asarray(self.cl_weight, dtype=np.float64), len(self.cannot_link))

    def __len__(self) -> int:
        """Total number of pairs of both kinds."""
        return len(self.must_link) + len(self.cannot_link)

    def __repr__(self) -> str:
        """Short: counts and non-default weights, never the pairs themselves."""
        parts = [f"{len(self.must_link)} must-link, {len(self.cannot_link)} cannot-link"]
        for name, weight in (("ml_weight", self.ml_weight), ("cl_weight", self.cl_weight)):
            if isinstance(weight, np.ndarray):
                parts.append(f"{name}=<per pair>")
            elif weight != 1.0:
                parts.append(f"{name}={weight:g}")
        parts.append(f"n_points={self.n_points}")
        return f"Constraints({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same pairs with the same weights over the same points.

        A scalar weight equals a per-pair array that holds that value everywhere.
        """
        if not isinstance(other, Constraints):
            return NotImplemented
        return (
            self.n_points == other.n_points
            and np.array_equal(self.must_link, other.must_link)
            and np.array_equal(self.cannot_link, other.cannot_link)
            and np.array_equal(self.ml_weights, other.ml_weights)
            and np.array_equal(self.cl_weights, other.cl_weights)
        )

    def __hash__(self) -> int:
        """Hash of the pairs; weights are left out, which keeps it consistent with ``==``."""
        return hash((self.n_points, self.must_link.tobytes(), self.cannot_link.tobytes()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore after pickling, which does not preserve the read-only flag of arrays."""
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    def with_weights(
        self,
        ml_weight: npt.ArrayLike | None = None,
        cl_weight: npt.ArrayLike | None = None,
    ) -> Constraints:
        """Return the same pairs with other weights.

        Parameters
        ----------
        ml_weight, cl_weight : float or array-like of float, optional
            New weights; an array is aligned with the *stored* rows of `must_link` or
            `cannot_link`.  ``None`` keeps the present weights.

        Returns
        -------
        Constraints

        Examples
        --------
        >>> Constraints([[0, 1]], None, n_points=2).with_weights(ml_weight=2.5).ml_weight
        2.5
        """
        return Constraints(
            self.must_link,
            self.cannot_link,
            self.ml_weight if ml_weight is None else ml_weight,
            self.cl_weight if cl_weight is None else cl_weight,
            n_points=self.n_points,
        )

    def components(self) -> npt.NDArray[np.int64]:
        """Return the connected component of the must-link graph that each point belongs to.

        Returns
        -------
        ndarray of int64, shape (n_points,)
            Component numbers ``0..C-1``; a point without must-links is a component of its own.

        Examples
        --------
        >>> Constraints([[0, 2]], None, n_points=3).components()
        array([0, 1, 0])
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        if self.n_points == 0:
            return np.zeros(0, dtype=np.int64)
        ones = np.ones(len(self.must_link), dtype=np.int8)
        graph = coo_array(
            (ones, (self.must_link[:, 0], self.must_link[:, 1])),
            shape=(self.n_points, self.n_points),
        )
        _, component = connected_components(graph.tocsr(), directed=False)
        return np.asarray(component, dtype=np.int64)

    def neighbourhoods(self) -> list[npt.NDArray[np.int64]]:
        """Return the must-link components of two or more points, largest first.

        Returns
        -------
        list of ndarray of int64
            Ascending point indices of each component; components of equal size are ordered by
            their smallest point.

        References
        ----------
        Basu, Bilenko and Mooney, "A probabilistic framework for semi-supervised clustering",
        KDD 2004, section 3.3.

        Examples
        --------
        >>> c = Constraints([[0, 5], [1, 2], [2, 3]], None, n_points=6)
        >>> [n.tolist() for n in c.neighbourhoods()]
        [[1, 2, 3], [0, 5]]
        """
        component = self.components()
        if component.size == 0:
            return []
        size = np.bincount(component)
        # Stable: points stay ascending inside a component.
        members = np.argsort(component, kind="stable")
        members = members[size[component[members]] >= 2]
        size = size[size >= 2]
        if size.size == 0:
            return []
        groups = np.split(members, np.cumsum(size)[:-1])
        smallest = np.array([group[0] for group in groups])
        return [groups[g] for g in np.lexsort((smallest, -size))]

    def contradictions(self) -> npt.NDArray[np.int64]:
        """Return the cannot-link pairs whose ends are connected by must-links.

        This includes every pair that is in both lists.

        Returns
        -------
        ndarray of int64, shape (r, 2)
            Rows of `cannot_link`.

        Examples
        --------
        >>> c = Constraints([[0, 1], [1, 2]], [[0, 2], [0, 3]], n_points=4)
        >>> c.contradictions().tolist()
        [[0, 2]]
        """
        return self.cannot_link[self._contradicting(self.components())]

    def close(self, policy: ClosurePolicy = "raise", *, max_pairs: int = 5_000_000) -> Constraints:
        r"""Return the transitive closure: all pairs that the given ones imply.

        With :math:`N_1, N_2, \dots` the connected components of the must-link graph, the closure
        has every pair inside an :math:`N_p` as must-link, and every pair of
        :math:`N_p \times N_q` as cannot-link if at least one cannot-link joins the two.

        Parameters
        ----------
        policy : {"raise", "drop", "keep"}, default "raise"
            What to do if a cannot-link lies inside a component: raise `ContradictionError`; drop
            those cannot-links and close the rest; or keep the constraints as given, *unclosed*.
            Without contradictions all three close.
        max_pairs : int, default 5_000_000
            Largest size of the result.  A component of `s` points alone has ``s (s - 1) / 2``
            pairs.

        Returns
        -------
        Constraints
            Idempotent: closing it again changes nothing.  A scalar weight stays the scalar.  With
            per-pair weights a given pair keeps its own and an inferred pair gets the mean weight
            of the given pairs of its kind (those that were not dropped).

        Raises
        ------
        ContradictionError
            If there are contradictions and `policy` is "raise".
        ValueError
            If the closure would have more than `max_pairs` pairs.

        Notes
        -----
        Closure changes the *scale* of the penalties: one given pair becomes up to
        :math:`|N_p| |N_q|` pairs of the same weight.  Under noise the components percolate into
        one another (on iris, 5 % wrong answers can join 146 of the 150 points), so noisy
        constraints are better left as they are.

        References
        ----------
        Basu, Bilenko and Mooney, KDD 2004, section 3.3; Basu, PhD thesis, 2005, section 4.4.3.

        Examples
        --------
        >>> Constraints([[0, 1], [1, 2]], [[2, 3]], n_points=4).close()
        Constraints(3 must-link, 3 cannot-link, n_points=4)
        """
        if policy not in get_args(ClosurePolicy):
            raise ValueError(f"policy = {policy!r} is unknown; allowed: 'raise', 'drop', 'keep'")
        limit = _count(max_pairs, name="max_pairs", smallest=0)
        component = self.components()
        contradicting = self._contradicting(component)
        if contradicting.any():
            pairs = self.cannot_link[contradicting]
            if policy == "raise":
                shown = ", ".join(f"({i}, {j})" for i, j in pairs[:_SHOWN].tolist())
                more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
                raise ContradictionError(
                    f"{len(pairs)} cannot-link pair(s) join points that must-links connect: "
                    f"{shown}{more}; use policy='drop' to drop them or policy='keep' to leave the "
                    "constraints unclosed",
                    pairs,
                )
            if policy == "keep":
                return self
        cannot_link = self.cannot_link[~contradicting]
        cl_weight = self.cl_weight
        if isinstance(cl_weight, np.ndarray):
            cl_weight = cl_weight[~contradicting]

        size = np.bincount(component, minlength=1)
        blocks = _sorted_distinct(_codes(np.sort(component[cannot_link], axis=1), self.n_points))
        joined = np.column_stack(np.divmod(blocks, max(self.n_points, 1)))
        # Both counts are at most n_points ** 2 / 2, so they fit into an int64.
        inside = int((size * (size - 1) // 2).sum())
        across = int((size[joined[:, 0]] * size[joined[:, 1]]).sum())
        if inside + across > limit:
            raise ValueError(
                f"the closure has {inside} must-link and {across} cannot-link pairs, more than "
                f"max_pairs = {limit}; the largest must-link component has {int(size.max())} of "
                f"{self.n_points} points. Raise max_pairs, or use the constraints unclosed"
            )

        members = np.argsort(component, kind="stable")
        start = np.cumsum(size) - size
        all_ml = members[_pairs_inside(start, size)]
        all_cl = np.sort(members[_pairs_across(start, size, joined)], axis=1)
        return Constraints(
            all_ml,
            all_cl,
            _extend_weight(self.must_link, self.ml_weight, all_ml, self.n_points),
            _extend_weight(cannot_link, cl_weight, all_cl, self.n_points),
            n_points=self.n_points,
        )

    def flip(self, share: float, rng: np.random.Generator) -> Constraints:
        """Turn a random share of the pairs into the other kind (noisy answers).

        Parameters
        ----------
        share : float in [0, 1]
            Exactly ``round(share * len(self))`` distinct pairs change kind (Python's rounding:
            halves go to the even number); all choices are equally likely.
        rng : numpy.random.Generator
            Source of all randomness.

        Returns
        -------
        Constraints
            As many pairs as before.  If both weights are scalars they stay so, and a flipped pair
            takes the weight of its new kind; otherwise both become per-pair and every pair keeps
            the weight it had.

        Raises
        ------
        ValueError
            If `share` is outside [0, 1], or some pair is in both lists: such a pair has no kind
            that could be flipped.

        Examples
        --------
        >>> c = Constraints([[0, 1], [1, 2], [2, 3]], [[0, 3]], n_points=4)
        >>> c.flip(1.0, np.random.default_rng(0))
        Constraints(1 must-link, 3 cannot-link, n_points=4)
        """
        check_generator(rng)
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share = {share!r} is not allowed; a number from 0 to 1 is needed")
        both = np.intersect1d(
            _codes(self.must_link, self.n_points),
            _codes(self.cannot_link, self.n_points),
            assume_unique=True,
        )
        if both.size:
            i, j = divmod(int(both[0]), self.n_points)
            raise ValueError(
                f"{both.size} pair(s) are both must-link and cannot-link, the first is ({i}, {j}); "
                "flip needs every pair to be of one kind"
            )
        total = len(self)
        chosen = _distinct_integers(total, round(share * total), rng)
        is_ml = np.arange(total) < len(self.must_link)
        is_ml[chosen] = ~is_ml[chosen]
        pairs = np.concatenate((self.must_link, self.cannot_link))
        ml_weight: Weight = self.ml_weight
        cl_weight: Weight = self.cl_weight
        if isinstance(ml_weight, np.ndarray) or isinstance(cl_weight, np.ndarray):
            weights = np.concatenate((self.ml_weights, self.cl_weights))
            ml_weight, cl_weight = weights[is_ml], weights[~is_ml]
        return Constraints(
            pairs[is_ml], pairs[~is_ml], ml_weight, cl_weight, n_points=self.n_points
        )

    def _contradicting(self, component: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mask over the rows of `cannot_link` whose ends lie in one component."""
        same: npt.NDArray[np.bool_] = (
            component[self.cannot_link[:, 0]] == component[self.cannot_link[:, 1]]
        )
        return same


def sample_pairs(n: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw exactly `count` distinct unordered pairs out of ``0..n-1``, every set equally likely.

    Returns
    -------
    (count, 2) array of int64, with ``i < j`` in each row

    Notes
    -----
    `count` must not exceed ``n (n - 1) / 2``. Memory is O(count + n).

    Examples
    --------
    >>> sample_pairs(3, 3, np.random.default_rng(0)).tolist()
    [[1, 2], [0, 1], [0, 2]]
    """
    return np.column_stack(_unrank(_distinct_integers(n * (n - 1) // 2, count, rng)))


def check_generator(rng: object) -> None:
    """Refuse seeds and legacy generators, with the remedy in the message."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng is of type {type(rng).__name__}; a numpy.random.Generator is needed, "
            "such as numpy.random.default_rng(seed)"
        )


def _count(value: object, *, name: str, smallest: int, largest: int | None = None) -> int:
    """Read an integer argument and check its range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} = {value!r} is not an integer") from None
    if number < smallest or (largest is not None and number > largest):
        upper = "" if largest is None else f" and at most {largest}"
        raise ValueError(f"{name} = {number} is not allowed; at least {smallest}{upper} is needed")
    return number


def _canonical(
    pairs: npt.ArrayLike | None,
    weight: npt.ArrayLike,
    n_points: int,
    pairs_name: str,
    weight_name: str,
) -> tuple[npt.NDArray[np.int64], Weight]:
    """Validate one kind of pairs; return them sorted and distinct, with aligned weights."""
    given = _read_pairs(pairs, n_points, pairs_name)
    values = _read_weight(weight, len(given), weight_name, pairs_name)
    ordered = np.sort(given, axis=1)
    codes = _codes(ordered, n_points)
    if np.all(codes[1:] > codes[:-1]):  # already canonical: the common case, and no copy needed
        distinct = ordered
    else:
        order = np.argsort(codes, kind="stable")
        in_order = codes[order]
        is_first = np.concatenate(([True], in_order[1:] != in_order[:-1]))
        distinct = ordered[order[is_first]]
        if isinstance(values, np.ndarray):
            group = np.cumsum(is_first) - 1
            kept = values[order[is_first]]
            differs = np.flatnonzero(values[order] != kept[group])
            if differs.size:
                second = int(order[differs[0]])
                first = int(order[is_first][group[differs[0]]])
                i, j = ordered[second].tolist()
                raise ValueError(
                    f"{pairs_name} lists the pair ({i}, {j}) twice with different weights: "
                    f"{weight_name}[{first}] = {values[first]:g} and "
                    f"{weight_name}[{second}] = {values[second]:g}; give each pair one weight"
                )
            values = kept
    distinct.setflags(write=False)
    if isinstance(values, np.ndarray):
        values.setflags(write=False)
    return distinct, values


def _read_pairs(pairs: npt.ArrayLike | None, n_points: int, name: str) -> npt.NDArray[np.int64]:
    """Validate an array of pairs, errors giving the position of the first offender."""
    if pairs is None:
        return np.zeros((0, 2), dtype=np.int64)
    try:
        array = np.asarray(pairs)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not an array of shape (number of pairs, 2): {error}") from None
    if array.size == 0 and array.shape in ((0,), (0, 2)):
        return np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} has shape {array.shape}; shape (number of pairs, 2) is needed")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; integer point indices are needed")
    outside = np.argwhere((array < 0) | (array >= n_points))
    if len(outside):
        row, column = outside[0].tolist()
        raise ValueError(
            f"{name}[{row}, {column}] = {array[row, column]} is not a point; "
            f"indices from 0 to n_points - 1 = {n_points - 1} are allowed"
        )
    selfish = np.flatnonzero(array[:, 0] == array[:, 1])
    if selfish.size:
        row = int(selfish[0])
        raise ValueError(
            f"{name}[{row}] = ({array[row, 0]}, {array[row, 1]}) pairs a point with itself; "
            "two different points are needed"
        )
    return array.astype(np.int64)


def _read_weight(weight: npt.ArrayLike, n_pairs: int, name: str, pairs_name: str) -> Weight:
    """Validate a scalar or per-pair weight; +inf (a hard constraint) is allowed."""
    try:
        array = np.asarray(weight)
    except ValueError as error:
        raise ValueError(f"{name} is neither a number nor a 1-D array: {error}") from None
    if array.dtype.kind not in "iuf":
        if array.size:
            raise TypeError(f"{name} has dtype {array.dtype}; real numbers are needed")
    if array.ndim and array.shape != (n_pairs,):
        raise ValueError(
            f"{name} has shape {array.shape}; a scalar or one weight for each of the "
            f"{n_pairs} rows of {pairs_name} is needed"
        )
    values = array.astype(np.float64)
    bad = np.flatnonzero(~(values >= 0.0))  # the negation catches NaN as well
    if bad.size:
        place = f"{name}[{bad[0]}]" if array.ndim else name
        raise ValueError(
            f"{place} = {values.flat[bad[0]]} is not allowed; "
            "weights are >= 0, and +inf makes a pair hard"
        )
    return values if array.ndim else float(values)


def _codes(pairs: npt.NDArray[np.int64], n_points: int) -> npt.NDArray[np.int64]:
    """Encode sorted pairs as ``i * n_points + j``, whose order is lexicographic."""
    codes: npt.NDArray[np.int64] = pairs[:, 0] * n_points + pairs[:, 1]
    return codes


def _extend_weight(
    given: npt.NDArray[np.int64],
    weight: Weight,
    closed: npt.NDArray[np.int64],
    n_points: int,
) -> Weight:
    """Weights of the closed pairs: given pairs keep theirs, inferred ones get the mean."""
    if not isinstance(weight, np.ndarray):
        return weight
    if weight.size == 0:
        return np.zeros(0)
    given_codes, closed_codes = _codes(given, n_points), _codes(closed, n_points)
    at = np.minimum(np.searchsorted(given_codes, closed_codes), given_codes.size - 1)
    was_given = given_codes[at] == closed_codes
    return np.where(was_given, weight[at], weight.mean())


def _pairs_inside(
    start: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """All pairs of positions inside each block ``start[c] .. start[c] + size[c] - 1``."""
    position = np.arange(int(size.sum()))
    partners = np.repeat(start + size, size) - position - 1  # the later positions of the block
    first = np.repeat(position, partners)
    offset = np.arange(first.size) - np.repeat(np.cumsum(partners) - partners, partners)
    return np.column_stack((first, first + 1 + offset))


def _pairs_across(
    start: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """All pairs of positions across each pair of blocks in `blocks`, shape (b, 2)."""
    left, right = blocks[:, 0], blocks[:, 1]
    count = size[left] * size[right]
    cell = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    row, column = np.divmod(cell, np.repeat(size[right], count))
    return np.column_stack(
        (np.repeat(start[left], count) + row, np.repeat(start[right], count) + column)
    )


def _sorted_distinct(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the distinct values in ascending order.

    On two million integers numpy 2.4's ``np.unique``, which hashes, takes 1.8 s and this 0.02 s.
    """
    ordered = np.sort(values)
    is_first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    distinct: npt.NDArray[np.int64] = ordered[is_first]
    return distinct


def _distinct_integers(
    population: int, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw a uniformly random subset of ``0..population-1`` of exactly `count` elements."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    if population <= 4 * count:
        chosen: npt.NDArray[np.int64] = rng.permutation(population)[:count]
        return chosen
    # ``Generator.choice(replace=False)`` may allocate the whole population, up to 50 times
    # ``count``.  Instead: the set of distinct values of independent draws is, given its size,
    # a uniform subset, and so is a random part of it.  On average at least 3/4 of a round's draws
    # are new.
    distinct = np.zeros(0, dtype=np.int64)
    while distinct.size < count:
        missing = count - distinct.size
        drawn = rng.integers(population, size=missing + missing // 8 + 16)
        distinct = _sorted_distinct(np.concatenate((distinct, drawn)))
    if distinct.size > count:
        surplus = distinct.size - count
        keep = np.ones(distinct.size, dtype=bool)
        keep[_distinct_integers(distinct.size, surplus, rng)] = False
        distinct = distinct[keep]
    return distinct


def _unrank(
    ranks: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Invert ``rank = high (high - 1) / 2 + low`` for ``0 <= low < high``."""
    high = ((1.0 + np.sqrt(1.0 + 8.0 * ranks)) / 2.0).astype(np.int64)
    # Rounding of the square root is off by at most one within the int64 range.
    high -= high * (high - 1) // 2 > ranks
    high += high * (high + 1) // 2 <= ranks
    return ranks - high * (high - 1) // 2, high
