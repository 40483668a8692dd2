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
from inference_lab.constraints.constraints import as_relative, constraints_of
from inference_lab.constraints.frames import from_frame, index_ids, names_in
from inference_lab.constraints.pair_answers import LogOdds
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
    ml_weight: npt.ArrayLike | LogOdds | Literal["auto"] | None
    cl_weight: npt.ArrayLike | LogOdds | Literal["auto"] | None
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
    partial_labels: IntArray
    sample_weight: FloatArray | None
    n_repeated: int = 0
    auto: tuple[str, ...] = ()

    @property
    def sample_weight_or_ones(self) -> FloatArray:
        """Sample weights, shape (n,)."""
        return (
            np.ones(self.partial_labels.size) if self.sample_weight is None else self.sample_weight
        )

    def groups(self) -> IntArray:
        """Return the known labels, -1 elsewhere, renumbered without gaps."""
        rows = np.flatnonzero(self.partial_labels >= 0)
        result = np.full(self.partial_labels.size, -1, dtype=np.int64)
        result[rows] = np.unique(self.partial_labels[rows], return_inverse=True)[1]
        return result

    def labels_as_pairs(self) -> Constraints:
        """Return the constraints and a spanning set of pairs of weight one for the labels."""
        pairs, n = self.constraints, self.partial_labels.size
        implied = Constraints.from_labels(self.partial_labels, scheme="chains")
        chain = pairs_outside(implied.must_link, pairs.must_link, n)
        apart = pairs_outside(implied.cannot_link, pairs.cannot_link, n)
        return Constraints(
            np.concatenate([pairs.must_link, chain]),
            np.concatenate([pairs.cannot_link, apart]),
            np.concatenate([pairs.ml_weights, np.ones(len(chain))]),
            np.concatenate([pairs.cl_weights, np.ones(len(apart))]),
            n_points=pairs.n_points,
        )

    def only(self, rows: IntArray) -> Supervision:
        """Return the supervision of some of the points, renumbered."""
        return Supervision(
            self.constraints.restrict(rows, renumber=True),
            self.partial_labels[rows],
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
        n = self.partial_labels.size
        in_sample = np.zeros(n, dtype=np.bool_)
        order = rng.permutation(n)
        if pairs_first:
            coupled = np.zeros(n, dtype=np.bool_)
            coupled[self.constraints.touches(np.arange(n))] = True
            order = order[np.argsort(~coupled[order], kind="stable")]
        in_sample[order[: size // 2]] = True
        pairs = np.concatenate([self.constraints.must_link, self.constraints.cannot_link])
        partners = np.unique(pairs[in_sample[pairs].any(axis=1)])
        partners = partners[~in_sample[partners]]
        in_sample[rng.permutation(partners)[: size - size // 2]] = True
        # If there are too few partners, other points fill the sample.
        others = order[~in_sample[order]]
        in_sample[others[: max(0, size - int(in_sample.sum()))]] = True
        return np.flatnonzero(in_sample | (self.partial_labels >= 0))


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
    values = dict.fromkeys(_ARGUMENTS) | dict(arguments)
    n = n_rows(X)
    table = None if values["pairs"] is None else _read_table(X, values)
    if table is not None:
        values |= _weights_with(table, values)
    relative = _read_log_odds(values) if table is None else table.is_relative
    for name in _WEIGHTS:
        values[name] = default_weight if values[name] is None else values[name]
    auto = tuple(name for name in _WEIGHTS if allow_auto and isinstance(values[name], str))
    for name in auto:
        if values[name] != "auto":
            raise ValueError(f"{name} must be auto, got {values[name]!r}")
        values[name] = 1.0
    if relative and default_weight == "auto":
        auto = _WEIGHTS
    partial_labels = _read_labels(values, n, n_clusters)
    sample_weight = _read_sample_weight(values["sample_weight"], n)
    if table is None:
        constraints = _read_lists(n, values)
        n_repeated = constraints.n_repeated
        constraints = as_relative(constraints) if relative else constraints
        return Supervision(constraints, partial_labels, sample_weight, n_repeated, auto)
    constraints = table
    if not relative:
        constraints = table.with_weights(values["ml_weight"], values["cl_weight"])
    return Supervision(constraints, partial_labels, sample_weight, table.n_repeated, auto)


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
    return constraints_of(parts)


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
        if table.is_relative and number == "auto":
            number = None
        plain = not isinstance(listed, np.ndarray) and listed == 1.0
        if number is not None and (not plain or np.ndim(number)):
            raise ValueError(
                f"{name} must be a number or 'auto' where pairs is a data frame, and left out "
                "where that has weights, confidences or groups"
            )
        weights[name] = number if plain else listed
    return weights


# ---------------------------------------------------------------------- lists of pairs


def _read_log_odds(values: dict[str, Any]) -> bool:
    """Replace weights that are `LogOdds` by relative weights; return whether there are any."""
    present = [name for name in _WEIGHTS if isinstance(values[name], LogOdds)]
    for name in present:
        values[name] = values[name].relative
    for name in _WEIGHTS if present else ():
        if isinstance(values[name], str) or values[name] is None:
            values[name] = 1.0
        elif name not in present:
            raise ValueError(f"{present[0]} is LogOdds, so {name} must be LogOdds or left out")
    return bool(present)


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
    labels = np.asarray(y)
    if labels.dtype.kind in "if" and (labels == -1).any():
        return y
    return y if missing(labels).any() else None


def read_partial_labels(
    partial_labels: npt.ArrayLike | None,
    n_points: int,
    n_clusters: int | None,
    name: str = "partial_labels",
    smallest: int = -1,
) -> IntArray:
    """Validate labels of some points, or of all points if `smallest` is 0."""
    if partial_labels is None:
        return np.full(n_points, -1, dtype=np.int64)
    without = "-1 for a point without a label" if smallest < 0 else "a label for each point"
    labels = np.asarray(partial_labels)
    if labels.shape != (n_points,):
        raise ValueError(
            f"{name} has shape {labels.shape}; shape ({n_points},) is needed, {without}"
        )
    absent = missing(labels)
    if smallest < 0 and absent.any():
        labels = np.where(absent, -1, labels)
    labels = whole_numbers(labels, name, f"numbers of clusters are needed, {without}")
    largest = np.inf if n_clusters is None else n_clusters - 1
    outside = np.flatnonzero((labels < smallest) | (labels > largest))
    if outside.size:
        at = int(outside[0])
        to = "on" if n_clusters is None else f"to n_clusters - 1 = {n_clusters - 1}"
        raise ValueError(
            f"{name}[{at}] = {labels[at]} is not a cluster; 0 {to} are allowed, {without}"
        )
    return labels.astype(np.int64)


def _read_sample_weight(sample_weight: npt.ArrayLike | None, n_points: int) -> FloatArray | None:
    """Validate sample weights; return None if all are 1."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_points,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}; shape ({n_points},) is needed, a weight for "
            "each point"
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        raise ValueError(
            f"sample_weight[{wrong[0]}] = {weights[wrong[0]]:g}; finite numbers that are not "
            "negative are allowed"
        )
    if not weights.any():
        raise ValueError("sample_weight is zero everywhere; some point has to count")
    return None if (weights == 1.0).all() else weights


# ---------------------------------------------------------------------- other calls


def refuse_pairs(y: Any, X: Any, estimator: Any, method: str = "fit") -> None:
    """Refuse pairs passed as labels, which ``fit`` and ``score`` may ignore."""
    columns = getattr(y, "columns", None)
    if isinstance(y, Constraints):
        content, remedy = "Constraints", "**constraints.fit_params()"
    elif columns is not None and {"i", "j"} <= set(columns):
        content, remedy = "a table of pairs", "pairs=frame"
    elif isinstance(y, set | frozenset | Iterator):
        content, remedy = f"a {type(y).__name__}", "must_link=pairs, or cannot_link=pairs"
    else:
        rows = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else y
        shape = tuple(getattr(rows, "shape", ()))
        if shape[1:] != (2,) or (X is not None and shape[0] == n_rows(X)):
            return
        content, remedy = f"{shape[0]} pairs", "must_link=pairs, or cannot_link=pairs"
    call = f"give them as {method}(X, {remedy})"
    if "must_link" not in inspect.signature(getattr(estimator, method)).parameters:
        call = f"{type(estimator).__name__} takes no pairs"
    raise TypeError(f"y of {method} is {content}; {call}: its second argument holds labels")


def names_in_pairs(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``fit`` without data, with names of all points as `sample_ids`.

    Without `sample_ids`, the points are those in the pairs, in the order in which they occur.
    """
    arguments = dict(arguments)
    if arguments["sample_ids"] is not None:
        arguments["sample_ids"] = index_ids(arguments["sample_ids"])
        return arguments
    names: list[Any] = []
    if arguments["pairs"] is not None:
        names += names_in(arguments["pairs"]).to_numpy(dtype=object).ravel().tolist()
    for kind in ("must_link", "cannot_link"):
        if arguments[kind] is not None:
            arguments[kind] = pair_array(arguments[kind], kind)
            names += arguments[kind].ravel().tolist()
    if not names:
        raise ValueError(
            "without X, points are those of the pairs or of sample_ids; none are given"
        )
    arguments["sample_ids"] = index_ids(list(dict.fromkeys(names)))
    return arguments


def agreeing(labels: IntArray, partial_labels: IntArray, n_clusters: int) -> IntArray:
    """Renumber clusters so that most points get their known label."""
    rows = np.flatnonzero(partial_labels >= 0)
    if rows.size == 0:
        return labels
    return np.argsort(numbered_like(labels[rows], partial_labels[rows], n_clusters))[labels]
