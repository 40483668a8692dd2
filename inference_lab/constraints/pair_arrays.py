"""Arrays of pairs and weights of `Constraints`, checked and in canonical form."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pairs import codes_of, whole_numbers
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.terms import DiagonalTerms

Weight: TypeAlias = "float | FloatArray"
#: Pairs as people hold them: arrays and frames, lists and sets, generators and ``zip``.
Pairs: TypeAlias = "npt.ArrayLike | Iterable[Collection[Hashable]]"


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """Fields of `Constraints`, before they are checked and in canonical form."""

    must_link: IntArray
    cannot_link: IntArray
    ml_weight: Weight
    cl_weight: Weight
    n_points: int

    @property
    def ml_weights(self) -> FloatArray:
        """Weight of each must-link pair, shape (p,), float64, read-only."""
        return np.broadcast_to(np.asarray(self.ml_weight, dtype=np.float64), len(self.must_link))

    @property
    def cl_weights(self) -> FloatArray:
        """Weight of each cannot-link pair, shape (q,), float64, read-only."""
        return np.broadcast_to(np.asarray(self.cl_weight, dtype=np.float64), len(self.cannot_link))

    def terms(
        self, ml_costs: FloatArray | None = None, cl_costs: FloatArray | None = None
    ) -> list[DiagonalTerms]:
        """Return terms that cost violated pairs.

        Parameters
        ----------
        ml_costs, cl_costs : (pairs,) array of float, optional
            Costs of violated must-links and cannot-links; their weights by default.

        Returns
        -------
        list of DiagonalTerms

        Examples
        --------
        >>> import inference_lab as il
        >>> must, cannot = il.Constraints([(0, 1)], [(1, 2)], n_points=3).terms()
        >>> must
        DiagonalTerms(edges=array([[0, 1]]), same=0.0, differ=array([1.]))
        """
        return [
            DiagonalTerms(self.must_link, differ=self.ml_weights if ml_costs is None else ml_costs),
            DiagonalTerms(self.cannot_link, same=self.cl_weights if cl_costs is None else cl_costs),
        ]


def refuse_both(parts: Parts, why: str) -> None:
    """Refuse pairs that are in both lists."""
    n = parts.n_points
    both = np.intersect1d(
        codes_of(parts.must_link, n), codes_of(parts.cannot_link, n), assume_unique=True
    )
    if both.size:
        i, j = divmod(int(both[0]), n)
        raise ValueError(
            f"the pair ({i}, {j}) is both must-link and cannot-link ({both.size} such pairs); {why}"
        )


def refuse_hard(parts: Parts) -> None:
    """Refuse pairs of infinite weight."""
    for name, pairs, weights in (
        ("ml_weight", parts.must_link, parts.ml_weights),
        ("cl_weight", parts.cannot_link, parts.cl_weights),
    ):
        hard = np.flatnonzero(np.isinf(weights))
        if hard.size:
            i, j = pairs[hard[0]].tolist()
            raise ValueError(
                f"{name} must be finite here, but that of the pair ({i}, {j}) is inf; this "
                "estimator cannot make a pair hard"
            )


def canonical(
    pairs: Pairs | None,
    weight: npt.ArrayLike,
    n_points: int,
    pairs_name: str,
    weight_name: str,
) -> tuple[IntArray, Weight, int]:
    """Validate one kind of pairs; return them sorted and distinct, with aligned weights.

    The last number is that of the listed pairs that repeat others.
    """
    rows = _read_pairs(pairs, n_points, pairs_name)
    values = _read_weight(weight, len(rows), weight_name, pairs_name)
    refuse_unordered(pairs, weight, pairs_name, weight_name)
    ordered = np.sort(rows, axis=1)
    codes = codes_of(ordered, n_points)
    if np.all(codes[1:] > codes[:-1]):  # already canonical: the common case, and no copy needed
        distinct = ordered
    else:
        order = np.argsort(codes, kind="stable")
        in_order = codes[order]
        is_first = np.concatenate(([True], in_order[1:] != in_order[:-1]))
        distinct = ordered[order[is_first]]
        if isinstance(values, np.ndarray):
            group = np.cumsum(is_first) - 1
            distinct_values = values[order[is_first]]
            differs = np.flatnonzero(values[order] != distinct_values[group])
            if differs.size:
                second = int(order[differs[0]])
                first = int(order[is_first][group[differs[0]]])
                i, j = ordered[second].tolist()
                raise ValueError(
                    f"{pairs_name} lists the pair ({i}, {j}) twice with different weights: "
                    f"{weight_name}[{first}] = {values[first]:g} and "
                    f"{weight_name}[{second}] = {values[second]:g}; give each pair one weight"
                )
            values = distinct_values
    distinct.setflags(write=False)
    if isinstance(values, np.ndarray):
        values.setflags(write=False)
    return distinct, values, len(rows) - len(distinct)


def pair_array(pairs: Pairs, name: str) -> npt.NDArray[Any]:
    """Return pairs of row numbers or names, in any collection, as an array of shape (p, 2).

    Raises
    ------
    TypeError
        If the pairs are `Constraints` or a mapping.
    ValueError
        If they do not have two ends each.
    """
    if hasattr(pairs, "must_link"):
        raise TypeError(
            f"{name} are {type(pairs).__name__}, of which .must_link and .cannot_link are pairs; "
            "fit(X, **constraints.fit_params()) takes them all"
        )
    if isinstance(pairs, Mapping):
        raise TypeError(f"{name} is a mapping; list(mapping) are pairs, and its values are not")
    rows: Any = pairs
    if (
        not hasattr(pairs, "__array__")
        and isinstance(pairs, Iterable)
        and not isinstance(pairs, str)
    ):
        # Pairs have no order, so their ends may be sets, too.
        rows = [tuple(row) if isinstance(row, Set) else row for row in pairs]
    try:
        array = np.asarray(rows)
        if array.dtype.kind in "US" and isinstance(rows, list):
            # NumPy turns numbers beside texts into texts, which would be other names.
            objects = np.asarray(rows, dtype=object)
            if not all(isinstance(entry, str | bytes) for entry in objects.flat):
                array = objects
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not an array of shape (number of pairs, 2): {error}") from None
    if array.size == 0 and array.shape in ((0,), (0, 2)):
        return np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        advice = ""
        if hasattr(pairs, "columns"):
            advice = "; a data frame with the columns i, j and kind is read by fit(X, pairs=frame)"
        elif array.ndim == 2 and array.shape[0] == array.shape[1] > 2:
            advice = "; np.argwhere(np.triu(matrix)) are the pairs of a matrix"
        raise ValueError(
            f"{name} has shape {array.shape}; shape (number of pairs, 2) is needed{advice}"
        )
    return array


def refuse_unordered(
    pairs: object, weight: npt.ArrayLike | None, pairs_name: str, weight_name: str
) -> None:
    """Refuse a weight for each pair of a set, which has no order."""
    if isinstance(pairs, set | frozenset) and np.ndim(weight):  # type: ignore[arg-type]
        raise ValueError(
            f"{pairs_name} is a set, whose pairs have no order, so {weight_name} must be one "
            "number; give a list for a weight for each"
        )


def _read_pairs(pairs: Pairs | None, n_points: int, name: str) -> IntArray:
    """Validate an array of pairs; errors give the position of the first invalid one."""
    if pairs is None:
        return np.zeros((0, 2), dtype=np.int64)
    array = whole_numbers(
        pair_array(pairs, name),
        name,
        "pairs hold row numbers, or names of rows where fit is given those of all rows as "
        "sample_ids",
    )
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
    if array.dtype.kind == "O" and all(
        isinstance(value, Real) and not isinstance(value, bool) for value in array.flat
    ):
        array = array.astype(np.float64)
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


def missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of missing values: NaN, NaT, None and NA, as pandas defines them."""
    if values.dtype.kind in "biuSU":
        return np.zeros(values.shape, dtype=np.bool_)
    import pandas as pd

    return np.asarray(pd.isna(values), dtype=np.bool_)


def read_classes(
    labels: npt.ArrayLike | Sequence[Hashable], *, unlabelled: object = -1, partial: bool = False
) -> IntArray:
    """Return the number of the class of each point.

    With `partial`, classes equal to `unlabelled`, and missing ones, are unknown and get -1.
    """
    classes = np.asarray(labels)
    if classes.dtype.kind in "US" and not hasattr(labels, "dtype"):
        # NumPy turns NaN beside texts into a text.
        classes = np.asarray(labels, dtype=object)
    if classes.ndim != 1:
        raise ValueError(f"labels has shape {classes.shape}; shape (n_points,) is needed")
    unknown = missing(classes)
    if partial:
        word = np.empty(1, dtype=object)
        word[0] = unlabelled
        if isinstance(unlabelled, int | str) or not missing(word)[0]:
            present = ~unknown
            unknown[present] = np.asarray(classes[present] == unlabelled, dtype=np.bool_)
    elif unknown.any():
        at = int(unknown.argmax())
        raise ValueError(
            f"labels[{at}] is missing ({classes[at]}); every point needs a class "
            "(Constraints.from_labels takes classes of some points)"
        )
    numbers = np.full(classes.size, -1, dtype=np.int64)
    of_known = classes[~unknown]
    if of_known.dtype.kind == "O":
        # By equality, because classes of several types have no order.
        places: dict[Hashable, int] = {}
        numbers[~unknown] = [places.setdefault(name, len(places)) for name in of_known.tolist()]
    else:
        numbers[~unknown] = np.unique(of_known, return_inverse=True)[1]
    return numbers


def symmetric_matrix(n: int, pairs: IntArray, values: npt.NDArray[Any]) -> Any:
    """Return the sparse (n, n) matrix with a value at both entries of each pair; repeats add up."""
    from scipy.sparse import coo_array

    half = coo_array((values, np.asarray(pairs).T), shape=(n, n))
    return (half + half.T).tocsr()


def signed_matrix(parts: Parts) -> Any:
    """Return the symmetric matrix of must-link weights and negative cannot-link weights."""
    pairs = np.concatenate([parts.must_link, parts.cannot_link])
    return symmetric_matrix(
        parts.n_points, pairs, np.concatenate([parts.ml_weights, -parts.cl_weights])
    )
