"""Names of rows: translation of pairs of names, and detection of wrong names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import Pairs, missing, pair_array, refuse_unordered
from inference_lab.formatting import warn

_P = ParamSpec("_P")
_R = TypeVar("_R")

_SHOWN = 5  # unknown names listed in a message


def renamed(old: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Accept a former name of the argument `sample_ids`, with a `FutureWarning`."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **named: _P.kwargs) -> _R:
            if old in named:
                if "sample_ids" in named:
                    raise TypeError(f"{old} and sample_ids are one argument; give sample_ids")
                warn(
                    f"{old} of {function.__qualname__} is now sample_ids, as everywhere else; "
                    f"{old} will be refused from version 0.2 on",
                    FutureWarning,
                )
                named["sample_ids"] = named.pop(old)
            return function(*args, **named)

        return call

    return decorate


def names_of(
    sample_ids: Sequence[Hashable] | npt.NDArray[Any], n_points: int | None = None
) -> list[Any]:
    """Check the names of points: one each, all different."""
    names = sample_ids.tolist() if isinstance(sample_ids, np.ndarray) else list(sample_ids)
    if n_points is not None and len(names) != n_points:
        raise ValueError(
            f"sample_ids has {len(names)} names for {n_points} points; one each is needed"
        )
    seen: dict[Any, int] = {}
    for at, name in enumerate(names):
        if seen.setdefault(name, at) != at:
            raise ValueError(
                f"sample_ids names {name!r} twice, at {seen[name]} and {at}; each row needs a name "
                "of its own"
            )
    return names


class SampleIds(np.ndarray[Any, np.dtype[Any]]):
    """Names of the rows of a data set; a part of it retains the names of all rows.

    Cross-validation passes ``fit`` some of the rows with their names, and all of the pairs. Pairs
    with a row of another fold are left out; an unknown name is an error.

    Parameters
    ----------
    sample_ids : (n,) array-like
        All different, and none is missing (NaN, None, NA).

    Raises
    ------
    ValueError
        If the shape is wrong, or a name is missing or occurs twice.

    Examples
    --------
    >>> ids = SampleIds(["a", "b", "c"])
    >>> part = ids[[0, 2]]
    >>> part.tolist(), part.everyone.tolist()
    (['a', 'c'], ['a', 'b', 'c'])
    """

    #: The names of all rows.
    everyone: npt.NDArray[Any]

    @renamed("ids")
    def __new__(cls, sample_ids: npt.ArrayLike | Sequence[Hashable]) -> Self:
        """Check the names."""
        names = np.asarray(sample_ids)
        if names.ndim != 1:
            raise ValueError(f"sample_ids has shape {names.shape}; a name for each row is needed")
        _refuse_missing(names, "sample_ids")
        names_of(names)
        return names.view(cls)

    def __array_finalize__(self, of: object) -> None:
        """Keep the names of all rows in parts and copies."""
        self.everyone = getattr(of, "everyone", np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the names of all rows, which arrays of other classes do not have."""
        return _part, (np.asarray(self), self.everyone)


def _part(ids: npt.NDArray[Any], everyone: npt.NDArray[Any]) -> SampleIds:
    made = ids.view(SampleIds)
    made.everyone = everyone
    return made


def _refuse_missing(names: npt.NDArray[Any], name: str) -> None:
    """Refuse missing names, which equal nothing."""
    absent = missing(names)
    if absent.any():
        at = np.argwhere(absent)[0].tolist()
        raise ValueError(
            f"{name}{at} is {names[tuple(at)]}, which equals nothing, so it cannot name a row"
        )


def rows_named(
    ids: SampleIds,
    pairs: npt.NDArray[Any],
    name: str,
    whose: str = "sample_ids",
    advice: str = (
        "In cross-validation, where pairs name rows of other folds, give "
        "sample_ids=SampleIds(names), as constraints.fit_params(sample_ids=names) does"
    ),
) -> npt.NDArray[np.int64]:
    """Return the rows that pairs name, -1 for rows outside this part."""
    _refuse_missing(pairs, name)
    everyone = ids.everyone.tolist()
    row = dict.fromkeys(everyone, -1) | {sample_id: at for at, sample_id in enumerate(ids.tolist())}
    named = pairs.ravel().tolist()
    unknown = list(dict.fromkeys(sample_id for sample_id in named if sample_id not in row))
    if unknown:
        shown = ", ".join(map(repr, unknown[:_SHOWN]))
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        rows = ", ".join(map(repr, everyone[:2]))
        unlike = ""
        kinds = [type(sample_id).__name__ for sample_id in (unknown[0], *everyone[:1])]
        if len(set(kinds)) > 1:
            unlike = (
                f" The pairs hold {kinds[0]}, {whose} are {kinds[1]}: names must be equal, and 1 "
                "is not '1'."
            )
        raise ValueError(
            f"{name} names {shown}{more}, which is not among the {len(everyone)} {whose}, such "
            f"as {rows}.{unlike} {advice}"
        )
    return np.array([row[sample_id] for sample_id in named], dtype=np.int64).reshape(-1, 2)


def rows_of_pairs(
    ids: SampleIds, pairs: Pairs, weight: npt.ArrayLike, name: str
) -> tuple[npt.NDArray[np.int64], npt.ArrayLike]:
    """Return the rows of pairs of names, and weights, without pairs with a row in another fold."""
    if isinstance(pairs, Iterator) and ids.size < ids.everyone.size:
        raise TypeError(
            f"{name} is of type {type(pairs).__name__}, which the first fold has read to its end; "
            f"give list({name})"
        )
    names = pair_array(pairs, name)
    weights = np.asarray(weight)
    weight_name = f"{name[0]}l_weight"
    refuse_unordered(pairs, weight, name, weight_name)
    if weights.ndim and weights.shape != (len(names),):
        raise ValueError(
            f"{weight_name} has shape {weights.shape}; a scalar or one weight for each of the "
            f"{len(names)} rows of {name} is needed"
        )
    refuse_cut(ids, len(names), name)
    rows = rows_named(ids, names, name)
    present = np.asarray((rows >= 0).all(axis=1))
    return rows[present], weights[present] if weights.ndim else weights


def refuse_cut(ids: SampleIds, n_pairs: int, name: str) -> None:
    """Refuse as many pairs as rows of a fold, as scikit-learn cuts them like columns of data."""
    if ids.size < ids.everyone.size and n_pairs == ids.size:
        raise ValueError(
            f"{name} has as many pairs as there are samples ({ids.size}), so cross-validation "
            "cannot distinguish it from a column of the data and may have cut it; repeat a pair "
            "to make the numbers differ"
        )
