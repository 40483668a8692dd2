"""Supervision given to `fit`: pairs, labels of some points, and sample weights.

`supervision_of` reads all arguments of ``fit``; its steps follow it. What is about pairs alone is
in `inference_lab.constraints`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.folds import Fold, n_rows, origin_of_rows
from inference_lab.constraints import Constraints
from inference_lab.constraints.centroids import numbered_like
from inference_lab.constraints.frames import from_frame, index_ids, names_in
from inference_lab.constraints.pair_arrays import Pairs, missing, pair_array
from inference_lab.constraints.pairs import pairs_outside, whole_numbers
from inference_lab.constraints.sample_ids import SampleIds, refuse_cut, rows_of_pairs
from inference_lab.graph.arrays import FloatArray, IntArray

_KINDS = ("must_link", "cannot_link")
_WEIGHTS = ("ml_weight", "cl_weight")


class PairArguments(TypedDict, total=False):
    """Arguments of ``fit`` that give pairs."""

    must_link: Pairs | None
    cannot_link: Pairs | None
    pairs: Any
    ml_weight: npt.ArrayLike | Literal["auto"] | None
    cl_weight: npt.ArrayLike | Literal["auto"] | None
    sample_ids: npt.ArrayLike | None


class FitArguments(PairArguments, total=False):
    """Arguments of ``fit`` besides the data, the same for all estimators that take pairs."""

    partial_labels: npt.ArrayLike | None
    sample_weight: npt.ArrayLike | None


#: The names of the arguments that give pairs.
PAIR_ARGUMENTS = tuple(PairArguments.__annotations__)
#: All arguments of ``fit`` but X.
_ARGUMENTS = ("y", *FitArguments.__annotations__)


@dataclass(frozen=True)
class Supervision:
    """Supervision of a fit: constraints, known labels (-1 elsewhere), sample weights.

    ``sample_weight`` is None for ones; ``n_repeated`` counts the listed pairs that repeat others.
    ``auto`` has the names of the weights of pairs that the fit is to choose; they are 1 here.
    """

    constraints: Constraints
    known: IntArray
    sample_weight: FloatArray | None
    n_repeated: int = 0
    auto: tuple[str, ...] = ()

    @property
    def sample_weight_or_ones(self) -> FloatArray:
        """Sample weights, shape (n,)."""
        return np.ones(self.known.size) if self.sample_weight is None else self.sample_weight

    def groups(self) -> IntArray:
        """Return the known labels, -1 elsewhere, renumbered without gaps."""
        held = np.flatnonzero(self.known >= 0)
        result = np.full(self.known.size, -1, dtype=np.int64)
        result[held] = np.unique(self.known[held], return_inverse=True)[1]
        return result

    def labels_as_pairs(self) -> Constraints:
        """Return the constraints and a spanning set of pairs of weight one for the labels."""
        given, n = self.constraints, self.known.size
        known = Constraints.from_labels(self.known, scheme="chains")
        chain = pairs_outside(known.must_link, given.must_link, n)
        apart = pairs_outside(known.cannot_link, given.cannot_link, n)
        return Constraints(
            np.concatenate([given.must_link, chain]),
            np.concatenate([given.cannot_link, apart]),
            np.concatenate([given.ml_weights, np.ones(len(chain))]),
            np.concatenate([given.cl_weights, np.ones(len(apart))]),
            n_points=given.n_points,
        )

    def only(self, rows: IntArray) -> Supervision:
        """Return the supervision of some of the points, renumbered."""
        return Supervision(
            self.constraints.restrict(rows, renumber=True),
            self.known[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
            self.n_repeated,
            self.auto,
        )

    def sample(self, size: int, rng: np.random.Generator, *, pairs_first: bool = False) -> IntArray:
        """Return the rows of random points, with their partners and all known labels.

        About half of the points are drawn; the others are their partners, so that points occur in
        pairs nearly as often as in all data. With `pairs_first`, points in pairs are drawn before
        others, so that the sample holds few pairs, too.
        """
        n = self.known.size
        chosen = np.zeros(n, dtype=np.bool_)
        order = rng.permutation(n)
        if pairs_first:
            coupled = np.zeros(n, dtype=np.bool_)
            coupled[self.constraints.touches(np.arange(n))] = True
            order = order[np.argsort(~coupled[order], kind="stable")]
        chosen[order[: size // 2]] = True
        pairs = np.concatenate([self.constraints.must_link, self.constraints.cannot_link])
        partners = np.unique(pairs[chosen[pairs].any(axis=1)])
        partners = partners[~chosen[partners]]
        chosen[rng.permutation(partners)[: size - size // 2]] = True
        # If there are too few partners, other points fill the sample.
        others = order[~chosen[order]]
        chosen[others[: max(0, size - int(chosen.sum()))]] = True
        return np.flatnonzero(chosen | (self.known >= 0))


def without_pairs(n_points: int, sample_weight: FloatArray | None = None) -> Supervision:
    """Return supervision by sample weights alone."""
    nothing = Constraints(None, None, n_points=n_points)
    return Supervision(nothing, np.full(n_points, -1), sample_weight)


def supervision_of(
    X: Any,
    arguments: Mapping[str, Any],
    *,
    n_clusters: int | None = None,
    default_weight: float | Literal["auto"] = 1.0,
    allow_auto: bool = False,
) -> Supervision:
    """Turn the arguments of ``fit`` into supervision of rows.

    Parameters
    ----------
    X : data of any type, as ``fit`` gets them
        They give the number of rows, and an index with their names.
    arguments : mapping
        Some of the other arguments of ``fit`` by name, see `HMRFKMeans.fit`.
    n_clusters : int, optional
        Number of clusters that labels can name.
    default_weight : float or "auto"
        Weight of pairs where `arguments` give None.
    allow_auto : bool
        Whether weights may be "auto"; `Supervision.auto` then has their names.
    """
    unknown = arguments.keys() - {*_ARGUMENTS}
    if unknown:
        raise TypeError(f"fit has no arguments {sorted(unknown)}")
    given = dict.fromkeys(_ARGUMENTS) | dict(arguments)
    n = n_rows(X)
    table = None if given["pairs"] is None else _read_table(X, given)
    if table is not None:
        given |= _weights_with(table, given)
    for name in _WEIGHTS:
        given[name] = default_weight if given[name] is None else given[name]
    auto = tuple(name for name in _WEIGHTS if allow_auto and isinstance(given[name], str))
    for name in auto:
        if given[name] != "auto":
            raise ValueError(f"{name} must be auto, got {given[name]!r}")
        given[name] = 1.0
    known = _read_labels(given, n, n_clusters)
    sample_weight = _read_sample_weight(given["sample_weight"], n)
    if table is None:
        constraints = _read_lists(n, given)
        return Supervision(constraints, known, sample_weight, constraints.n_repeated, auto)
    constraints = table.with_weights(given["ml_weight"], given["cl_weight"])
    return Supervision(constraints, known, sample_weight, table.n_repeated, auto)


# ---------------------------------------------------------------------- a table of pairs


def _read_table(X: Any, arguments: Mapping[str, Any]) -> Constraints:
    """Return the pairs of the argument `pairs`, a data frame."""
    table, ids = arguments["pairs"], arguments.get("sample_ids")
    others = [name for name in _KINDS if arguments.get(name) is not None]
    if others:
        raise ValueError(
            f"pairs and {others[0]} both give pairs; give one of them, as "
            "Constraints.to_frame and Constraints.from_frame turn each into the other"
        )
    n = n_rows(X)
    wording = {}
    if ids is None:
        ids = _row_names(table, X)
        wording = _IN_INDEX if hasattr(X, "iloc") else _WITHOUT_INDEX
    parts = from_frame(table, ids, **wording)
    if parts.n_points != n:
        raise ValueError(f"sample_ids must have shape ({n},), got ({parts.n_points},)")
    if isinstance(ids, SampleIds):
        refuse_cut(ids, len(table), "pairs")
    return Constraints(**vars(parts))


#: Arguments of `rows_named` that complete its errors.
_IN_INDEX = {"whose": "names in the index of X"}
_WITHOUT_INDEX = {
    "whose": "row numbers of X",
    "advice": (
        "X has no index here: name its rows by sample_ids=df.index, or keep the index through the "
        'steps of a pipeline by pipeline.set_output(transform="pandas")'
    ),
}


def _row_names(table: Any, X: Any) -> Any:
    """Return the names to which pairs in a table refer if ``fit`` gets none.

    They are the index of X, or row numbers. If scikit-learn splits the data, they are those of all
    data, because pairs may name rows of other folds.
    """
    n = n_rows(X)
    fold, split, piped = origin_of_rows(n, table)
    if fold is not None and fold.rows.size != n:
        raise ValueError(
            f"a step changed the number of rows from {fold.rows.size} to {n}, so pairs cannot be "
            "looked up; name the rows by sample_ids"
        )
    whole = X if fold is None else fold.X
    if not hasattr(X, "iloc"):
        before = whole if hasattr(whole, "iloc") else piped
        if before is not None and not np.array_equal(before.index, np.arange(len(before))):
            wrap = "SampleIds(df.index)" if fold is not None else "df.index"
            raise ValueError(
                "pairs name rows by the index of the data, which a step of the pipeline has "
                'dropped: keep it by pipeline.set_output(transform="pandas"), or pass '
                f"sample_ids={wrap} to this step (as pckmeans__sample_ids, for a step of this name)"
            )
        if fold is None:
            _refuse_split(split, "i and j of pairs")
    names = index_ids(whole.index if hasattr(whole, "iloc") else np.arange(n_rows(whole)))
    return names if fold is None else names[fold.rows]


def _refuse_split(split: Fold | None, numbers: str) -> None:
    """Refuse pairs of row numbers in cross-validation, of which the caller knows nothing."""
    if split is not None:
        raise ValueError(
            f"{numbers} number the {n_rows(split.X)} rows of X, of which cross-validation fits "
            f"{split.rows.size}, so that they would mean other rows; name the rows by sample_ids "
            "(constraints.fit_params(sample_ids=...) gives all arguments)"
        )


def _weights_with(table: Constraints, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights of a table, and where it has none, those of ``fit``.

    A table without weights has weights of 1, as in `Constraints.fit_params`.
    """
    weights = {}
    for name in _WEIGHTS:
        listed, number = getattr(table, name), arguments.get(name)
        plain = not isinstance(listed, np.ndarray) and listed == 1.0
        if number is not None and (not plain or np.ndim(number)):
            raise ValueError(
                f"{name} must be a number or 'auto' where pairs is a data frame, and left out "
                "where that has weights"
            )
        weights[name] = number if plain else listed
    return weights


# ---------------------------------------------------------------------- lists of pairs


def _read_lists(n_points: int, arguments: Mapping[str, Any]) -> Constraints:
    """Return the pairs of the arguments `must_link` and `cannot_link`."""
    ids, lists = arguments["sample_ids"], {name: arguments[name] for name in _KINDS}
    weights = {name: arguments[name] for name in _WEIGHTS}
    present = [name for name in _KINDS if has_pairs(lists[name])]
    if ids is not None:
        ids = ids if isinstance(ids, SampleIds) else SampleIds(ids)
        if ids.shape != (n_points,):
            raise ValueError(f"sample_ids must have shape ({n_points},), got {ids.shape}")
        for name, weight in zip(_KINDS, _WEIGHTS, strict=True):
            if name in present:
                lists[name], weights[weight] = rows_of_pairs(
                    ids, lists[name], weights[weight], name
                )
    elif present:
        _refuse_split(origin_of_rows(n_points).split, "must_link and cannot_link")
    return Constraints(**lists, **weights, n_points=n_points)


def has_pairs(pairs: object) -> bool:
    """Whether any pairs are given; other types are refused elsewhere."""
    return pairs is not None and (not isinstance(pairs, Sized) or len(pairs) > 0)


# ---------------------------------------------------------------------- labels and sample weights


def _read_labels(arguments: Mapping[str, Any], n_points: int, n_clusters: int | None) -> IntArray:
    """Return the labels of some points, which `y` or `partial_labels` hold, -1 elsewhere."""
    labels, name = partly_labelled(arguments["y"]), "y"
    if labels is None:
        labels, name = arguments["partial_labels"], "partial_labels"
    elif arguments["partial_labels"] is not None:
        raise ValueError(
            "y and partial_labels both hold labels, -1 where a point has none; give one of them"
        )
    return read_partial_labels(labels, n_points, n_clusters, name)


def partly_labelled(y: Any) -> Any:
    """Return `y` if some labels are -1 or missing, else None: full labels are for scoring."""
    if y is None:
        return None
    given = np.asarray(y)
    if given.dtype.kind in "if" and (given == -1).any():
        return y
    return y if missing(given).any() else None


def read_partial_labels(
    partial_labels: npt.ArrayLike | None,
    n_points: int,
    n_clusters: int | None,
    name: str = "partial_labels",
    least: int = -1,
) -> IntArray:
    """Validate labels of some points, or of all points if `least` is 0."""
    if partial_labels is None:
        return np.full(n_points, -1, dtype=np.int64)
    without = "-1 for a point without a label" if least < 0 else "a label for each point"
    given = np.asarray(partial_labels)
    if given.shape != (n_points,):
        raise ValueError(
            f"{name} has shape {given.shape}; shape ({n_points},) is needed, {without}"
        )
    absent = missing(given)
    if least < 0 and absent.any():
        given = np.where(absent, -1, given)
    given = whole_numbers(given, name, f"numbers of clusters are needed, {without}")
    most = np.inf if n_clusters is None else n_clusters - 1
    outside = np.flatnonzero((given < least) | (given > most))
    if outside.size:
        at = int(outside[0])
        to = "on" if n_clusters is None else f"to n_clusters - 1 = {n_clusters - 1}"
        raise ValueError(
            f"{name}[{at}] = {given[at]} is not a cluster; 0 {to} are allowed, {without}"
        )
    return given.astype(np.int64)


def _read_sample_weight(sample_weight: npt.ArrayLike | None, n_points: int) -> FloatArray | None:
    """Validate sample weights; return None if all are 1."""
    if sample_weight is None:
        return None
    given = np.asarray(sample_weight, dtype=np.float64)
    if given.shape != (n_points,):
        raise ValueError(
            f"sample_weight has shape {given.shape}; shape ({n_points},) is needed, a weight for "
            "each point"
        )
    wrong = np.flatnonzero(~(np.isfinite(given) & (given >= 0)))
    if wrong.size:
        raise ValueError(
            f"sample_weight[{wrong[0]}] = {given[wrong[0]]:g}; finite numbers that are not "
            "negative are allowed"
        )
    if not given.any():
        raise ValueError("sample_weight is zero everywhere; some point has to count")
    return None if (given == 1.0).all() else given


# ---------------------------------------------------------------------- other calls


def refuse_pairs(y: Any, X: Any, estimator: Any, method: str = "fit") -> None:
    """Refuse pairs passed as labels, which ``fit`` and ``score`` may ignore."""
    columns = getattr(y, "columns", None)
    if isinstance(y, Constraints):
        held, remedy = "Constraints", "**constraints.fit_params()"
    elif columns is not None and {"i", "j"} <= set(columns):
        held, remedy = "a table of pairs", "pairs=frame"
    elif isinstance(y, set | frozenset | Iterator):
        held, remedy = f"a {type(y).__name__}", "must_link=pairs, or cannot_link=pairs"
    else:
        rows = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else y
        shape = tuple(getattr(rows, "shape", ()))
        if shape[1:] != (2,) or (X is not None and shape[0] == n_rows(X)):
            return
        held, remedy = f"{shape[0]} pairs", "must_link=pairs, or cannot_link=pairs"
    call = f"give them as {method}(X, {remedy})"
    if "must_link" not in inspect.signature(getattr(estimator, method)).parameters:
        call = f"{type(estimator).__name__} takes no pairs"
    raise TypeError(f"y of {method} is {held}; {call}: its second argument holds labels")


def names_in_pairs(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``fit`` without data, with names of all points as `sample_ids`.

    Without `sample_ids`, the points are those in the pairs, in the order in which they occur.
    """
    given = dict(given)
    if given["sample_ids"] is not None:
        given["sample_ids"] = index_ids(given["sample_ids"])
        return given
    names: list[Any] = []
    if given["pairs"] is not None:
        names += names_in(given["pairs"]).to_numpy(dtype=object).ravel().tolist()
    for kind in ("must_link", "cannot_link"):
        if given[kind] is not None:
            given[kind] = pair_array(given[kind], kind)
            names += given[kind].ravel().tolist()
    if not names:
        raise ValueError(
            "without X, points are those of the pairs or of sample_ids; none are given"
        )
    given["sample_ids"] = index_ids(list(dict.fromkeys(names)))
    return given


def agreeing(labels: IntArray, known: IntArray, n_clusters: int) -> IntArray:
    """Renumber clusters so that most points get their known label."""
    rows = np.flatnonzero(known >= 0)
    if rows.size == 0:
        return labels
    return np.argsort(numbered_like(labels[rows], known[rows], n_clusters))[labels]
