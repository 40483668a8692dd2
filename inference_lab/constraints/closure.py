"""Implied constraints and the choice among contradictory ones, for `Constraints.close`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import Parts, Weight
from inference_lab.constraints.pairs import codes_of, pairs_across, pairs_inside, sorted_distinct
from inference_lab.graph.arrays import FloatArray, IntArray


class ContradictionError(ValueError):
    """A cannot-link pair lies inside a connected component of the must-link graph.

    Attributes
    ----------
    pairs : ndarray of int64, shape (r, 2)
        The contradicting cannot-link pairs, all of them.
    """

    def __init__(self, message: str, pairs: IntArray) -> None:
        super().__init__(message)
        self.pairs = pairs

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the pairs: the default rebuilds from ``args``, which lacks them."""
        return type(self), (self.args[0], self.pairs)


def contradicting(parts: Parts, component: IntArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of `cannot_link` whose ends lie in one component."""
    same: npt.NDArray[np.bool_] = (
        component[parts.cannot_link[:, 0]] == component[parts.cannot_link[:, 1]]
    )
    return same


def closed(
    parts: Parts, component: IntArray, limit: int
) -> tuple[IntArray, IntArray, Weight, Weight]:
    """Return all pairs implied by constraints without contradictions, and their weights."""
    size = np.bincount(component, minlength=1)
    blocks = sorted_distinct(
        codes_of(np.sort(component[parts.cannot_link], axis=1), parts.n_points)
    )
    joined = np.column_stack(np.divmod(blocks, max(parts.n_points, 1)))
    # Both counts are at most n_points ** 2 / 2, so they fit into an int64.
    inside = int((size * (size - 1) // 2).sum())
    across = int((size[joined[:, 0]] * size[joined[:, 1]]).sum())
    if inside + across > limit:
        raise ValueError(
            f"the closure has {inside} must-link and {across} cannot-link pairs, more than "
            f"max_pairs = {limit}; the largest must-link component has {int(size.max())} of "
            f"{parts.n_points} points. Raise max_pairs, or use the constraints unclosed"
        )

    members = np.argsort(component, kind="stable")
    start = np.cumsum(size) - size
    all_ml = members[pairs_inside(start, size)]
    all_cl = np.sort(members[pairs_across(start, size, joined)], axis=1)
    return (
        all_ml,
        all_cl,
        _extend_weight(parts.must_link, parts.ml_weight, all_ml, parts.n_points),
        _extend_weight(parts.cannot_link, parts.cl_weight, all_cl, parts.n_points),
    )


def merged(parts: Parts, component: IntArray) -> tuple[IntArray, FloatArray]:
    """Return one cannot-link for each joined pair of components, with their summed weight."""
    size = np.bincount(component, minlength=1)
    first = np.unique(component, return_index=True)[1]
    weights = parts.cl_weights
    between, sums = _summed(component[parts.cannot_link], weights, parts.n_points)
    _, counts = _summed(component[parts.cannot_link], np.ones(weights.size), parts.n_points)
    inferred = size[between[:, 0]] * size[between[:, 1]] - counts
    if weights.size:
        # An infinite mean of no inferred pairs adds nothing.
        sums += np.where(inferred > 0, np.where(inferred > 0, inferred, 1.0) * weights.mean(), 0.0)
    return first[between], sums


def surviving(
    parts: Parts, component: IntArray, disputed: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the must-links and cannot-links left after a vote of contradictory ones."""
    from inference_lab.constraints.vote import vote
    from inference_lab.graph.arrays import connected

    ml_weights, cl_weights = parts.ml_weights, parts.cl_weights
    # Points that hard must-links connect are one voter.
    hard = np.isposinf(ml_weights)
    unit = connected(parts.n_points, parts.must_link[hard])
    never = contradicting(parts, unit) & np.isposinf(cl_weights)
    if never.any():
        pairs = parts.cannot_link[never]
        i, j = pairs[0].tolist()
        raise ContradictionError(
            f"{len(pairs)} cannot-link pair(s) of infinite weight join points that must-links "
            f"of infinite weight connect, the first ({i}, {j}); hard pairs cannot be outvoted",
            pairs,
        )
    # Components without contradictions are kept, and no pair between components joins them.
    in_dispute = np.zeros(parts.n_points, dtype=np.bool_)
    in_dispute[component[parts.cannot_link[disputed, 0]]] = True
    ml_votes = in_dispute[component[parts.must_link[:, 0]]] & ~hard
    ml_units, cl_units = unit[parts.must_link], unit[parts.cannot_link]
    voters = np.concatenate((ml_units[ml_votes], cl_units[disputed]))
    votes = np.concatenate((ml_weights[ml_votes], -cl_weights[disputed]))
    group = vote(int(unit.max()) + 1, *_summed(voters, votes, parts.n_points))
    ml = ~ml_votes | (group[ml_units[:, 0]] == group[ml_units[:, 1]])
    part = connected(parts.n_points, parts.must_link[ml])
    # Between two parts: the must-links that did not survive against all cannot-links.
    ml_parts, cl_parts = part[parts.must_link], part[parts.cannot_link]
    voters = np.concatenate((ml_parts[~ml], cl_parts))
    votes = np.concatenate((ml_weights[~ml], -cl_weights))
    sides, balance = _summed(voters, votes, parts.n_points)
    codes = codes_of(sides, parts.n_points)
    cl = cl_parts[:, 0] != cl_parts[:, 1]
    rows = np.searchsorted(codes, codes_of(np.sort(cl_parts[cl], axis=1), parts.n_points))
    against = np.zeros(codes.size, dtype=bool)
    against[np.searchsorted(codes, codes_of(np.sort(ml_parts[~ml], axis=1), parts.n_points))] = True
    cl[cl] = (balance[rows] < 0) | ~against[rows]
    return ml, cl


def _extend_weight(
    pairs: IntArray,
    weight: Weight,
    closed: IntArray,
    n_points: int,
) -> Weight:
    """Return weights of the closed pairs: given pairs keep theirs, inferred ones get the mean."""
    if not isinstance(weight, np.ndarray):
        return weight
    if weight.size == 0:
        return np.zeros(0)
    codes, closed_codes = codes_of(pairs, n_points), codes_of(closed, n_points)
    at = np.minimum(np.searchsorted(codes, closed_codes), codes.size - 1)
    is_input = codes[at] == closed_codes
    return np.where(is_input, weight[at], weight.mean())


def _summed(pairs: IntArray, values: FloatArray, n_points: int) -> tuple[IntArray, FloatArray]:
    """Return the distinct unordered pairs, ascending, with the sums of their values."""
    codes = codes_of(np.sort(pairs, axis=1), n_points)
    distinct, place = np.unique(codes, return_inverse=True)
    sums = np.bincount(place.reshape(-1), weights=values, minlength=distinct.size)
    return np.stack(np.divmod(distinct, max(n_points, 1)), axis=1), sums.astype(np.float64)
