"""Pairwise constraints: must-link and cannot-link pairs over ``n_points`` points.

Pairs are unordered and count once; weights are non-negative, in the units of the distortion.
Everything is vectorised over the pairs, and memory is linear in their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

import inference_lab.constraints.frames as frames
from inference_lab.constraints.closure import (
    ContradictionError,
    closed,
    contradicting,
    merged,
    surviving,
)
from inference_lab.constraints.pair_answers import USUAL_ODDS, LogOdds, PairAnswers
from inference_lab.constraints.pair_arrays import (
    Pairs,
    Parts,
    Weight,
    canonical,
    read_classes,
    refuse_both,
)
from inference_lab.constraints.pair_sets import pairs_in_set, watch_single
from inference_lab.constraints.pairs import (
    MAX_POINTS,
    check_generator,
    distinct_integers,
    point_indices,
)
from inference_lab.constraints.sample_ids import SampleIds, names_of, renamed, rows_of_pairs
from inference_lab.constraints.sampling import drawn, implied_pairs
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.whole_numbers import check_count

ClosurePolicy: TypeAlias = Literal["raise", "drop", "keep", "vote"]
Ids: TypeAlias = "Sequence[Hashable] | npt.NDArray[Any]"

_SHOWN = 5  # pairs listed in a message or in a repr before it is cut


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Constraints(Parts):
    r"""Must-link and cannot-link pairs with their weights, validated and in canonical form.

    The pairs enter the clustering energy as

    .. math::

        \sum_{(i,j) \in M} w_{ij} \varphi_{ij} [l_i \ne l_j]
        + \sum_{(i,j) \in C} \bar w_{ij} \bar\varphi_{ij} [l_i = l_j],

    every unordered pair counted once (Basu, Bilenko and Mooney, KDD 2004, eq. 9; eqs. 3 and 5 count
    it twice).

    Parameters
    ----------
    must_link, cannot_link : array-like or iterable of int, shape (p, 2) and (q, 2), or None
        Pairs of distinct points in any order: an array, a frame, a list, a set, or an iterator such
        as ``zip``. Numbers may have any type without a fraction. ``None`` or an empty list for no
        pairs. Repeated pairs count once. A pair may be in both lists (noisy answers); see
        `contradictions`.
    ml_weight, cl_weight : float or array-like of float, shape (p,) and (q,), default 1.0
        One weight for all pairs of a kind, or one per listed pair; ``>= 0``, ``+inf`` makes a
        pair hard. Repeated pairs must have equal weights. For pairs in a set, one weight.
    n_points : int, keyword-only
        Number of points that the indices refer to.

    Attributes
    ----------
    must_link, cannot_link : ndarray of int64, shape (p, 2) and (q, 2)
        Read-only, each row ``i < j``, rows distinct and in lexicographic order.
    ml_weight, cl_weight : float or ndarray of float64, shape (p,) and (q,)
        Read-only and aligned with the stored rows; a scalar stays a scalar.
    n_points : int
    n_repeated : int
        Number of listed pairs that repeat others of their kind; not part of ``==``.

    Raises
    ------
    TypeError
        If pairs are not whole numbers or weights are not real numbers.
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

    # Not fields; defaults, because older pickles do not have them.
    n_repeated = 0
    #: Whether weights are multiples of the weight of a pair that is right nine times in ten.
    is_relative = False
    #: The answers that the pairs sum up, if they have confidences or groups.
    answers: PairAnswers | None = None

    def __init__(
        self,
        must_link: Pairs | None,
        cannot_link: Pairs | None,
        ml_weight: npt.ArrayLike = 1.0,
        cl_weight: npt.ArrayLike = 1.0,
        *,
        n_points: int,
    ) -> None:
        n = check_count(n_points, name="n_points", smallest=0, largest=MAX_POINTS)
        ml_pairs, ml_values, ml_repeats = canonical(
            must_link, ml_weight, n, "must_link", "ml_weight"
        )
        cl_pairs, cl_values, cl_repeats = canonical(
            cannot_link, cl_weight, n, "cannot_link", "cl_weight"
        )
        object.__setattr__(self, "must_link", ml_pairs)
        object.__setattr__(self, "cannot_link", cl_pairs)
        object.__setattr__(self, "ml_weight", ml_values)
        object.__setattr__(self, "cl_weight", cl_values)
        object.__setattr__(self, "n_points", n)
        object.__setattr__(self, "n_repeated", ml_repeats + cl_repeats)

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

        Every set of `n` pairs is equally likely; pairs of equal labels become must-links (Basu,
        Bilenko and Mooney, KDD 2004, section 4).

        Parameters
        ----------
        labels : array-like, shape (n_points,)
            True classes: integers, strings, or anything that can be hashed; none is missing.
        n : int
            Number of pairs, at most the number available.
        rng : numpy.random.Generator
        among : array-like of int, shape (m,), or of bool, shape (n_points,), optional
            The points that pairs may touch, such as training points; default: all.
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

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> Constraints.sample([0, 0, 1, 1], 6, rng)
        Constraints(2 must-link, 4 cannot-link, n_points=4)
        """
        check_generator(rng)
        classes = read_classes(labels)
        return cls(*drawn(classes, n, rng, among), ml_weight, cl_weight, n_points=classes.size)

    @classmethod
    def from_labels(
        cls,
        labels: npt.ArrayLike,
        *,
        unlabelled: object = -1,
        scheme: Literal["pairs", "chains"] = "pairs",
        ml_weight: float = 1.0,
        cl_weight: float = 1.0,
        max_pairs: int = 5_000_000,
    ) -> Constraints:
        r"""Turn known classes of some points into constraints.

        Parameters
        ----------
        labels : array-like, shape (n_points,)
            Classes: integers, strings, or anything that can be hashed, perhaps a column of pandas.
            Unknown where they equal `unlabelled`, and where they are missing (NaN, None, NA).
        unlabelled : object, default -1
        scheme : {"pairs", "chains"}
            All pairs of labelled points; or a chain of must-links through each class and one
            cannot-link between the first points of each two classes, which imply all others.
        ml_weight, cl_weight : float, default 1.0
        max_pairs : int, default 5_000_000
            Most pairs allowed.

        Returns
        -------
        Constraints

        Raises
        ------
        ValueError
            If there would be more than `max_pairs` pairs.

        Examples
        --------
        >>> labels = [0, -1, 0, 1, 0]
        >>> chains = Constraints.from_labels(labels, scheme="chains")
        >>> chains
        Constraints(2 must-link, 1 cannot-link, n_points=5)
        >>> chains.close() == Constraints.from_labels(labels)
        True
        """
        if scheme not in ("pairs", "chains"):
            raise ValueError(f"scheme = {scheme!r} is unknown; allowed: 'pairs', 'chains'")
        limit = check_count(max_pairs, name="max_pairs", smallest=0)
        classes = read_classes(labels, unlabelled=unlabelled, partial=True)
        return cls(
            *implied_pairs(classes, scheme, limit), ml_weight, cl_weight, n_points=classes.size
        )

    @classmethod
    @renamed("index")
    def from_frame(cls, frame: Any, sample_ids: Any) -> Constraints:
        """Read pairs from a data frame, where they hold names of the rows of another one.

        Parameters
        ----------
        frame : pandas.DataFrame
            A row for each pair. Columns ``i`` and ``j``: names in `sample_ids`; ``kind``:
            "must-link" or "cannot-link"; perhaps ``weight``, 1 by default. Instead of a weight, a
            pair may have a ``confidence``, the probability that it is right, and a ``group``: who
            gave it (see Notes). Or a row for each member of a set: ``set``, ``row``, ``kind``.
        sample_ids : pandas.Index, sequence or SampleIds
            The names of the points, of any type, all different. For part of some `SampleIds`,
            pairs with points outside are left out.

        Returns
        -------
        Constraints
            Pairs of a kind that all have the same weight have a scalar weight.

        Raises
        ------
        ValueError, TypeError
            If columns are missing or unknown, a name is in no row, a point is paired with itself,
            a kind is unknown, a weight is missing or negative, or a pair has two weights.

        Examples
        --------
        >>> import pandas as pd
        >>> flowers = pd.DataFrame({"petal": [1.4, 1.3, 4.7]}, index=["ann", "bob", "cat"])
        >>> pairs = pd.DataFrame(
        ...     [("ann", "bob", "must-link"), ("cat", "ann", "cannot-link")],
        ...     columns=["i", "j", "kind"],
        ... )
        >>> c = Constraints.from_frame(pairs, flowers.index)
        >>> c.must_link.tolist(), c.cannot_link.tolist()
        ([[0, 1]], [[0, 2]])
        """
        return constraints_of(frames.from_frame(frame, sample_ids))

    @renamed("index")
    def to_frame(self, sample_ids: Any = None) -> Any:
        """Return a data frame with a row for each pair, which `from_frame` reads back.

        Parameters
        ----------
        sample_ids : pandas.Index or sequence, shape (n_points,), optional
            Names of the points; default: their numbers.

        Returns
        -------
        pandas.DataFrame
            Columns ``i``, ``j``, ``kind`` and ``weight``; must-links first. Pairs with confidences
            or groups have these columns in place of weights, and a row for each answer.

        Examples
        --------
        >>> c = Constraints([[0, 1]], [[0, 2]], n_points=3)
        >>> print(c.to_frame(["ann", "bob", "cat"]).to_string(index=False))
          i   j        kind  weight
        ann bob   must-link     1.0
        ann cat cannot-link     1.0
        """
        return frames.to_frame(self, sample_ids, self.answers)

    @classmethod
    @renamed("ids")
    def read_csv(
        cls,
        path: str | os.PathLike[str],
        n_points: int | None = None,
        *,
        sample_ids: Ids | None = None,
        columns: Sequence[str] = (),
        on_note: Callable[[str], None] | None = None,
    ) -> Constraints:
        """Read pairs from a file with the columns ``i``, ``j``, ``kind`` and ``weight``.

        Parameters
        ----------
        path : path
            Text as of a spreadsheet, or an XLSX workbook: separators and encoding are recognised.
            The header names the columns, in any order; the default weight is 1. The kind is
            "must-link" or "cannot-link", or a word or number for these: ML and CL, yes and no, true
            and false, same and different, 1 and 0, 1 and -1. Empty lines and blanks around cells
            are skipped.
        n_points : int, optional
            Number of points; ``i`` and ``j`` are then numbers from 0.
        sample_ids : sequence, optional
            Instead of `n_points`: the names of the points, as in ``i`` and ``j``.
        columns : sequence of three or four str, optional
            The names of these columns in the file, which may then have others.
        on_note : callable, optional
            Called with a sentence on the meaning of words for the kinds, and on unused columns.

        Returns
        -------
        Constraints
            Pairs of a kind that all have the same weight have a scalar weight.

        Raises
        ------
        FormatError
            A `ValueError` that names the file and the line.
        OSError
            If the file cannot be opened.

        Examples
        --------
        >>> c = Constraints([[0, 1]], [[1, 2]], n_points=3)
        >>> c.write_csv("pairs.csv", sample_ids=["ant", "bee", "cat"])
        >>> Constraints.read_csv("pairs.csv", sample_ids=["ant", "bee", "cat"]) == c
        True
        """
        if n_points is not None:
            n_points = check_count(n_points, name="n_points", smallest=0, largest=MAX_POINTS)
        if (n_points is None) == (sample_ids is None):
            raise TypeError("give either n_points or sample_ids")
        names = map(str, range(n_points or 0) if sample_ids is None else names_of(sample_ids))
        note = on_note or (lambda sentence: None)
        return constraints_of(frames.read_csv(Path(path), list(names), columns, note))

    @renamed("ids")
    def write_csv(self, path: str | os.PathLike[str], *, sample_ids: Ids | None = None) -> None:
        """Write the pairs to a CSV file, which `read_csv` reads back exactly.

        Parameters
        ----------
        path : path
        sample_ids : sequence, shape (n_points,), optional
            Names of the points, written by ``str``; default: their numbers.

        Raises
        ------
        ValueError
            If two names have the same text.

        Examples
        --------
        >>> c = Constraints([[0, 1]], [[0, 2]], n_points=3)
        >>> c.write_csv("pairs.csv", sample_ids=["a", "b", "c"])
        >>> Constraints.read_csv("pairs.csv", sample_ids=["a", "b", "c"])
        Constraints(1 must-link, 1 cannot-link, n_points=3)
        """
        frames.write_csv(self, Path(path), sample_ids, self.answers)

    @classmethod
    def from_sets(
        cls,
        must_link: Sequence[Sequence[Hashable]] = (),
        cannot_link: Sequence[Sequence[Hashable]] = (),
        *,
        n_points: int | None = None,
        sample_ids: Ids | None = None,
        ml_weight: float = 1.0,
        cl_weight: float = 1.0,
    ) -> Constraints:
        """Turn sets of points that belong together, or of which no two do, into pairs.

        Parameters
        ----------
        must_link : sequence of sequences
            Sets whose points belong together: all pairs of a set of up to 20 points, and a chain of
            pairs through a larger one, in the order of its points.
        cannot_link : sequence of sequences
            Sets of which no two points belong together: all pairs.
        n_points : int, optional
            Number of points; sets then hold numbers from 0.
        sample_ids : sequence, optional
            Instead of `n_points`: the names of the points, as in the sets.
        ml_weight, cl_weight : float, default 1.0

        Returns
        -------
        Constraints
            Pairs that occur in several sets count once.

        Raises
        ------
        ValueError, TypeError
            If a point is twice in a set, or is not among the points.

        Examples
        --------
        >>> c = Constraints.from_sets([[0, 1, 2]], [[0, 4]], n_points=5)
        >>> c.must_link.tolist(), c.cannot_link.tolist()
        ([[0, 1], [0, 2], [1, 2]], [[0, 4]])
        """
        if (n_points is None) == (sample_ids is None):
            raise TypeError("give either n_points or sample_ids")
        watch_single(sum(len(members) == 1 for members in (*must_link, *cannot_link)))
        ids = None if sample_ids is None else SampleIds(sample_ids)
        if ids is None:
            size = check_count(n_points, name="n_points", smallest=0, largest=MAX_POINTS)
        else:
            size = int(ids.size)

        def pairs(sets: Sequence[Sequence[Hashable]], name: str) -> Pairs:
            together = name == "must_link"
            links = [pair for members in sets for pair in pairs_in_set(list(members), together)]
            return links if ids is None or not links else rows_of_pairs(ids, links, 1.0, name)[0]

        ml, cl = pairs(must_link, "must_link"), pairs(cannot_link, "cannot_link")
        return cls(ml, cl, ml_weight, cl_weight, n_points=size)

    def __len__(self) -> int:
        """Return the total number of pairs of both kinds."""
        return len(self.must_link) + len(self.cannot_link)

    def __repr__(self) -> str:
        """Return counts and non-default weights, never the pairs themselves."""
        parts = [f"{len(self.must_link)} must-link, {len(self.cannot_link)} cannot-link"]
        for name, weight in (("ml_weight", self.ml_weight), ("cl_weight", self.cl_weight)):
            if isinstance(weight, np.ndarray):
                parts.append(f"{name}=<per pair>")
            elif weight != 1.0:
                parts.append(f"{name}={weight:g}")
        parts.append(f"n_points={self.n_points}")
        return f"Constraints({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        """Whether pairs, weights and points are equal; a scalar equals an array of that value."""
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
        """Return a hash of the pairs, without weights, so that it is consistent with ``==``."""
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
            `cannot_link`.  ``None`` keeps the current weights.

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

    def fit_params(self, sample_ids: Ids | None = None) -> dict[str, Any]:
        """Return the keyword arguments for ``fit`` of the clustering estimators.

        Weights of 1, the default here, are left out: the default of ``fit`` then holds, which is on
        the scale of the data. For weights of 1 pass them to ``fit``.

        Parameters
        ----------
        sample_ids : array-like, shape (n_points,), optional
            Distinct names of the rows. Pairs then consist of names, and `SampleIds` are added:
            cross-validation needs both, since it passes some rows only.

        Returns
        -------
        dict

        Raises
        ------
        ValueError
            If `sample_ids` are not as many as the points, not all different, or NaN.

        Examples
        --------
        >>> from inference_lab.clustering import PCKMeans
        >>> c = Constraints([[0, 3]], None, 100.0, n_points=4)
        >>> model = PCKMeans(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]], **c.fit_params())
        >>> model.violations_.must_link
        0
        """
        ml, cl = self.must_link, self.cannot_link
        named = {}
        if sample_ids is not None:
            ids = SampleIds(sample_ids)
            if ids.shape != (self.n_points,):
                raise ValueError(
                    f"sample_ids has shape {ids.shape}; a name for each of the {self.n_points} "
                    "points is needed"
                )
            ml = ids.everyone[ml]
            cl = ids.everyone[cl]
            named = {"sample_ids": ids}
        if self.answers is not None:
            ids = SampleIds(np.arange(self.n_points)) if sample_ids is None else named["sample_ids"]
            frame = self.answers.to_frame(ids.everyone)
            return {"pairs": frame, "sample_ids": ids}
        weights: dict[str, Any] = {"ml_weight": self.ml_weight, "cl_weight": self.cl_weight}
        if self.is_relative:
            weights = {
                "ml_weight": LogOdds(self.ml_weights * USUAL_ODDS),
                "cl_weight": LogOdds(self.cl_weights * USUAL_ODDS),
            }
        nondefault = {
            name: w for name, w in weights.items() if isinstance(w, np.ndarray) or w != 1.0
        }
        return {"must_link": ml, "cannot_link": cl, **nondefault, **named}

    def touches(self, points: npt.ArrayLike) -> IntArray:
        """Return the given points that some pair touches, ascending.

        Parameters
        ----------
        points : array-like of int, or of bool, shape (n_points,)
            For held-out points, the result must be empty.

        Returns
        -------
        ndarray of int64

        Examples
        --------
        >>> c = Constraints([[0, 1]], [[1, 3]], n_points=5)
        >>> c.touches([2, 3, 4])
        array([3])
        """
        wanted = np.zeros(self.n_points, dtype=np.bool_)
        wanted[point_indices(points, self.n_points, name="points")] = True
        touched = np.zeros(self.n_points, dtype=np.bool_)
        touched[self.must_link] = touched[self.cannot_link] = True
        return np.flatnonzero(wanted & touched).astype(np.int64, copy=False)

    def restrict(self, points: npt.ArrayLike, *, renumber: bool = False) -> Constraints:
        """Return the pairs with both ends among some points.

        Parameters
        ----------
        points : array-like of int, shape (m,), or of bool, shape (n_points,)
        renumber : bool
            Number the points by their place in `points`, for data restricted to these rows.

        Returns
        -------
        Constraints
            Over as many points as before, or over ``m`` points.

        Examples
        --------
        >>> c = Constraints([[0, 3], [3, 4]], [[1, 3]], n_points=5)
        >>> c.restrict([4, 3, 1], renumber=True).must_link.tolist()
        [[0, 1]]
        """
        rows = point_indices(points, self.n_points, name="points")
        place = np.full(self.n_points, -1, dtype=np.int64)
        place[rows] = np.arange(rows.size)
        inside = place >= 0
        ml = inside[self.must_link[:, 0]] & inside[self.must_link[:, 1]]
        cl = inside[self.cannot_link[:, 0]] & inside[self.cannot_link[:, 1]]
        number = np.where(inside, np.arange(self.n_points), -1)
        size = rows.size if renumber else self.n_points
        result = selected(self, ml, cl, place if renumber else number, size)
        if self.answers is not None:
            part = self.answers.of_points(place if renumber else number, size)
            object.__setattr__(result, "answers", part)
        return result

    def components(self) -> IntArray:
        """Return the connected component of each point in the must-link graph.

        Returns
        -------
        ndarray of int64, shape (n_points,)
            Component numbers ``0..C-1``; a point without must-links is a component of its own.

        Examples
        --------
        >>> Constraints([[0, 2]], None, n_points=3).components()
        array([0, 1, 0])
        """
        from inference_lab.graph.arrays import connected

        return connected(self.n_points, self.must_link)

    def neighbourhoods(self) -> list[IntArray]:
        """Return the must-link components of two or more points, largest first.

        Returns
        -------
        list of ndarray of int64
            Ascending point indices of each component; components of equal size are ordered by
            their smallest point.

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

    def contradictions(self) -> IntArray:
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
        return self.cannot_link[contradicting(self, self.components())]

    def close(
        self,
        policy: ClosurePolicy = "raise",
        *,
        max_pairs: int = 5_000_000,
        merge: bool = False,
    ) -> Constraints:
        r"""Return the transitive closure: all pairs that the given ones imply.

        Must-links join all points of a component of the must-link graph; cannot-links join all
        points of two components that one cannot-link joins.

        Parameters
        ----------
        policy : {"raise", "drop", "keep", "vote"}, default "raise"
            Treatment of cannot-links inside a component: raise `ContradictionError`; drop them and
            close the rest; keep the constraints as given, *unclosed*; or close the result of a
            `vote`. Without contradictions all four agree.
        max_pairs : int, default 5_000_000
            Largest size of the result.
        merge : bool, default False
            For hard must-links only: keep the must-links, and add one cannot-link between each two
            components, of the summed weight of all. Every labelling that keeps the must-links
            violates the same weight; memory is linear.

        Returns
        -------
        Constraints
            Idempotent. A scalar weight stays a scalar. With per-pair weights, given pairs keep
            theirs, and inferred pairs get the mean weight of the given pairs of their kind.

        Raises
        ------
        ContradictionError
            If there are contradictions and `policy` is "raise"; if hard pairs contradict each
            other and it is "vote".
        ValueError
            If the closure would have more than `max_pairs` pairs, or `merge` is set and some
            must-link is not hard.

        Notes
        -----
        Closure changes the *scale* of the penalties: one pair becomes up to :math:`|N_p| |N_q|`
        pairs. Under noise components merge (on iris, 5 % wrong answers can join 146 of the 150
        points), so noisy constraints are better left unclosed, or voted on.

        References
        ----------
        Basu, Bilenko and Mooney, KDD 2004, section 3.3; Basu, PhD thesis, 2005, section 4.4.3.

        Examples
        --------
        >>> Constraints([[0, 1], [1, 2]], [[2, 3]], n_points=4).close()
        Constraints(3 must-link, 3 cannot-link, n_points=4)
        """
        if policy not in get_args(ClosurePolicy):
            allowed = ", ".join(map(repr, get_args(ClosurePolicy)))
            raise ValueError(f"policy = {policy!r} is unknown; allowed: {allowed}")
        limit = check_count(max_pairs, name="max_pairs", smallest=0)
        if merge and not np.isposinf(self.ml_weights).all():
            raise ValueError(
                f"merge=True needs must-links of infinite weight; {self.ml_weights.min():g} is "
                "among the weights, for which a component may be torn apart"
            )
        component = self.components()
        at_odds = contradicting(self, component)
        if at_odds.any():
            pairs = self.cannot_link[at_odds]
            if policy == "raise":
                shown = ", ".join(f"({i}, {j})" for i, j in pairs[:_SHOWN].tolist())
                more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
                raise ContradictionError(
                    f"{len(pairs)} cannot-link pair(s) join points that must-links connect: "
                    f"{shown}{more}; 'drop' in place of 'raise' drops them, 'keep' leaves the "
                    "constraints unclosed, and 'vote' drops those that the others outvote",
                    pairs,
                )
            if policy == "keep":
                return self
            if policy == "vote":
                return self.vote().close(max_pairs=limit, merge=merge)
        consistent = self
        if at_odds.any():
            consistent = selected(self, cl=~at_odds)
        if merge:
            apart, weights = merged(consistent, component)
            return Constraints(
                self.must_link, apart, self.ml_weight, weights, n_points=self.n_points
            )
        return Constraints(*closed(consistent, component, limit), n_points=self.n_points)

    def vote(self) -> Constraints:
        r"""Return the pairs that remain after contradictory ones vote, which removes noise.

        Correlation clustering puts the points into groups :math:`g` that violate little weight,

        .. math::

            \sum_M w_{ij} [g_i \ne g_j] + \sum_C \bar w_{ij} [g_i = g_j],

        by merging the groups with the largest surplus of must-links, then moving single points, in
        turn. Then each pair is judged by its groups:

        * inside a group, must-links survive, and cannot-links do not;
        * between two groups no must-link survives, and cannot-links do if they outweigh them.

        So one wrong must-link between two classes is outvoted, where the closure merges them.

        Returns
        -------
        Constraints
            Without contradictions; unchanged if there were none. Its must-link components are the
            groups.

        Raises
        ------
        ContradictionError
            If hard must-links connect the points of a hard cannot-link. Other hard pairs always
            survive, and pairs of weight zero have no vote.

        Guarantees
        ----------
        Deterministic: in ties, points of lower numbers come first. The weight of the dropped
        pairs is a local optimum under merging two groups or moving a point.

        Complexity
        ----------
        :math:`O(p \log^2 p)` for `p` pairs in contradictory components, and a few sweeps over them.

        References
        ----------
        N. Bansal, A. Blum, S. Chawla, "Correlation clustering", Machine Learning 56, 2004.

        Examples
        --------
        Two triangles, joined by one must-link and kept apart by two cannot-links:

        >>> triangles = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
        >>> c = Constraints([*triangles, (0, 3)], [(1, 4), (2, 5)], n_points=6)
        >>> c.close("drop")
        Constraints(15 must-link, 0 cannot-link, n_points=6)
        >>> c.vote()
        Constraints(6 must-link, 2 cannot-link, n_points=6)
        """
        component = self.components()
        disputed = contradicting(self, component)
        if not disputed.any():
            return self
        return selected(self, *surviving(self, component, disputed))

    def flip(self, share: float, rng: np.random.Generator) -> Constraints:
        """Turn a random share of the pairs into the other kind (noisy answers).

        Parameters
        ----------
        share : float in [0, 1]
            Exactly ``round(share * len(self))`` distinct pairs change kind; all choices are equally
            likely.
        rng : numpy.random.Generator

        Returns
        -------
        Constraints
            The same number of pairs. Scalar weights stay, and a flipped pair takes the weight of
            its new kind; per-pair weights stay with their pairs.

        Raises
        ------
        ValueError
            If `share` is outside [0, 1], or some pair is in both lists.

        Examples
        --------
        >>> c = Constraints([[0, 1], [1, 2], [2, 3]], [[0, 3]], n_points=4)
        >>> c.flip(1.0, np.random.default_rng(0))
        Constraints(1 must-link, 3 cannot-link, n_points=4)
        """
        check_generator(rng)
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share = {share!r} is not allowed; a number from 0 to 1 is needed")
        refuse_both(self, "flip needs every pair to be of one kind")
        total = len(self)
        flipped = distinct_integers(total, round(share * total), rng)
        is_ml = np.arange(total) < len(self.must_link)
        is_ml[flipped] = ~is_ml[flipped]
        pairs = np.concatenate((self.must_link, self.cannot_link))
        ml_weight: Weight = self.ml_weight
        cl_weight: Weight = self.cl_weight
        if isinstance(ml_weight, np.ndarray) or isinstance(cl_weight, np.ndarray):
            weights = np.concatenate((self.ml_weights, self.cl_weights))
            ml_weight, cl_weight = weights[is_ml], weights[~is_ml]
        return Constraints(
            pairs[is_ml], pairs[~is_ml], ml_weight, cl_weight, n_points=self.n_points
        )


def selected(
    constraints: Constraints,
    ml: npt.NDArray[np.bool_] | None = None,
    cl: npt.NDArray[np.bool_] | None = None,
    place: IntArray | None = None,
    n_points: int | None = None,
) -> Constraints:
    """Return some of the must-links and cannot-links, perhaps over renumbered points."""
    pairs, weights = [], []
    for links, weight, rows in (
        (constraints.must_link, constraints.ml_weight, ml),
        (constraints.cannot_link, constraints.cl_weight, cl),
    ):
        mask = slice(None) if rows is None else rows
        pairs.append(links[mask] if place is None else place[links[mask]])
        weights.append(weight[mask] if isinstance(weight, np.ndarray) else weight)
    size = constraints.n_points if n_points is None else n_points
    result = Constraints(*pairs, *weights, n_points=size)
    return as_relative(result) if constraints.is_relative else result


def as_relative(constraints: Constraints) -> Constraints:
    """Return constraints with relative weights: pairs right nine times in ten have 1."""
    result = constraints.with_weights()
    object.__setattr__(result, "is_relative", True)
    return result


def constraints_of(content: Parts | PairAnswers) -> Constraints:
    """Return constraints with the pairs of a table, or with the pairs that its answers sum up."""
    if isinstance(content, Parts):
        return Constraints(**vars(content))
    result = summed(content, content.log_odds())
    object.__setattr__(result, "answers", content)
    return result


def summed(answers: PairAnswers, log_odds: FloatArray) -> Constraints:
    """Return each pair once, with the sum of its answers as a relative weight."""
    return as_relative(Constraints(**vars(answers.sums(log_odds))))


def of_positive_weight(constraints: Constraints) -> Constraints:
    """Return the constraints without the pairs of weight zero."""
    return selected(constraints, constraints.ml_weights > 0, constraints.cl_weights > 0)
