"""Unordered pairs of points as arrays: drawing, numbering and listing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import IntArray
from inference_lab.specs.whole_numbers import as_whole

#: Floats below this size hold whole numbers exactly.
_EXACT = 2.0**53
#: floor(sqrt(2**63 - 1)): i * n_points + j must fit into an int64.
MAX_POINTS = 3_037_000_499


def point_indices(value: npt.ArrayLike, n_points: int, *, name: str) -> IntArray:
    """Turn an index array or a boolean mask over points into distinct indices.

    Parameters
    ----------
    value : array-like of int, shape (m,), or of bool, shape (n_points,)
        Indices in ``0..n_points-1`` without repetition, or a mask.
    n_points : int
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
    array = whole_numbers(array, name, "row numbers or a boolean mask are needed")
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


def sample_pairs(n: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw exactly `count` distinct unordered pairs out of ``0..n-1``, every set equally likely.

    Parameters
    ----------
    n, count : int
    rng : numpy.random.Generator

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
    return np.column_stack(_unrank(distinct_integers(n * (n - 1) // 2, count, rng)))


def check_generator(rng: object) -> None:
    """Refuse seeds and legacy generators, with the remedy in the message.

    Parameters
    ----------
    rng : object

    Raises
    ------
    TypeError
        If it is not a `numpy.random.Generator`.

    Examples
    --------
    >>> check_generator(np.random.default_rng(0))
    >>> check_generator(0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    TypeError: rng is of type int; a numpy.random.Generator is needed, such as ...
    """
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng is of type {type(rng).__name__}; a numpy.random.Generator is needed, "
            "such as numpy.random.default_rng(seed)"
        )


def whole_numbers(array: npt.NDArray[Any], name: str, allowed: str) -> npt.NDArray[Any]:
    """Return an array of whole numbers as integers, whatever type holds them.

    Floats come from `numpy.loadtxt`, objects from tables of pandas that allow missing values.

    Raises
    ------
    TypeError
        If an entry is not a whole number; the message has its place and value.
    """
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "f" and (np.abs(array) < _EXACT).all() and (array % 1 == 0).all():
        return array.astype(np.int64)
    entries = list(array.flat) if array.dtype.kind in "mM" else array.ravel().tolist()
    numbers = [as_whole(entry) for entry in entries]
    if None in numbers:
        at = numbers.index(None)
        place = ", ".join(str(int(axis)) for axis in np.unravel_index(at, array.shape))
        raise TypeError(f"{name}[{place}] = {entries[at]!r} is not an integer; {allowed}")
    # Objects, because numbers may be too large for integers of 64 bits.
    return np.array(numbers, dtype=object).reshape(array.shape)


def codes_of(pairs: IntArray, n_points: int) -> IntArray:
    """Encode sorted pairs as ``i * n_points + j``, whose order is lexicographic."""
    codes: IntArray = pairs[:, 0] * n_points + pairs[:, 1]
    return codes


def pairs_outside(pairs: IntArray, others: IntArray, n_points: int) -> IntArray:
    """Return the pairs that are not among others, in either order of their ends."""
    codes = codes_of(np.sort(pairs, axis=1), n_points)
    return pairs[~np.isin(codes, codes_of(others, n_points))]


def pairs_inside(start: IntArray, size: IntArray) -> IntArray:
    """Return all pairs of positions inside each block ``start[c] .. start[c] + size[c] - 1``."""
    position = np.arange(int(size.sum()))
    partners = np.repeat(start + size, size) - position - 1  # the later positions of the block
    first = np.repeat(position, partners)
    offset = np.arange(first.size) - np.repeat(np.cumsum(partners) - partners, partners)
    return np.column_stack((first, first + 1 + offset))


def pairs_across(
    start: IntArray,
    size: IntArray,
    blocks: IntArray,
) -> IntArray:
    """Return all pairs of positions across each pair of blocks in `blocks`, shape (b, 2)."""
    left, right = blocks[:, 0], blocks[:, 1]
    count = size[left] * size[right]
    cell = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    row, column = np.divmod(cell, np.repeat(size[right], count))
    return np.column_stack(
        (np.repeat(start[left], count) + row, np.repeat(start[right], count) + column)
    )


def sorted_distinct(values: IntArray) -> IntArray:
    """Return the distinct values in ascending order; sorting is faster than ``np.unique``."""
    ordered = np.sort(values)
    is_first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    distinct: IntArray = ordered[is_first]
    return distinct


def distinct_integers(population: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw a uniformly random subset of ``0..population-1`` of exactly `count` elements."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    if population <= 4 * count:
        subset: IntArray = rng.permutation(population)[:count]
        return subset
    # ``Generator.choice(replace=False)`` may allocate the whole population, up to 50 times
    # ``count``.  Instead: the set of distinct values of independent draws is, given its size,
    # a uniform subset, and so is a random part of it.  On average at least 3/4 of a round's draws
    # are new.
    distinct = np.zeros(0, dtype=np.int64)
    while distinct.size < count:
        missing = count - distinct.size
        drawn = rng.integers(population, size=missing + missing // 8 + 16)
        distinct = sorted_distinct(np.concatenate((distinct, drawn)))
    if distinct.size > count:
        surplus = distinct.size - count
        keep = np.ones(distinct.size, dtype=bool)
        keep[distinct_integers(distinct.size, surplus, rng)] = False
        distinct = distinct[keep]
    return distinct


def _unrank(
    ranks: IntArray,
) -> tuple[IntArray, IntArray]:
    """Invert ``rank = high (high - 1) / 2 + low`` for ``0 <= low < high``."""
    high = ((1.0 + np.sqrt(1.0 + 8.0 * ranks)) / 2.0).astype(np.int64)
    # Rounding of the square root is off by at most one within the int64 range.
    high -= high * (high - 1) // 2 > ranks
    high += high * (high + 1) // 2 <= ranks
    return ranks - high * (high - 1) // 2, high
