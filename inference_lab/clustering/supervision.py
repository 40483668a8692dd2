"""Supervision given to `fit`: pairs, labels of some points, and sample weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.folds import Fold, n_rows, origin
from inference_lab.constraints import Constraints
from inference_lab.constraints.centroids import numbered_like
from inference_lab.constraints.constraints import selected
from inference_lab.constraints.frames import from_frame, index_ids, names_in
from inference_lab.constraints.pair_arrays import Pairs, missing, pair_array, refuse_unordered
from inference_lab.constraints.pairs import pairs_outside, whole_numbers
from inference_lab.constraints.sample_ids import SampleIds, rows_named
from inference_lab.graph.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Supervision:
    """Supervision of a fit: constraints, known labels (-1 elsewhere), sample weights.

    ``sample_weight`` is None for ones; ``n_repeated`` counts the listed pairs that repeat others.
    """

    constraints: Constraints
    known: IntArray
    sample_weight: FloatArray | None
    n_repeated: int = 0

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
        )

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Return the rows of random points, with their partners and all known labels.

        About half of the points are drawn; the others are their partners, so that points occur in
        pairs nearly as often as in all data.
        """
        n = self.known.size
        chosen = np.zeros(n, dtype=np.bool_)
        order = rng.permutation(n)
        chosen[order[: size // 2]] = True
        pairs = np.concatenate([self.constraints.must_link, self.constraints.cannot_link])
        partners = np.unique(pairs[chosen[pairs].any(axis=1)])
        partners = partners[~chosen[partners]]
        chosen[rng.permutation(partners)[: size - size // 2]] = True
        # If there are too few partners, other points fill the sample.
        others = order[~chosen[order]]
        chosen[others[: max(0, size - int(chosen.sum()))]] = True
        return np.flatnonzero(chosen | (self.known >= 0))


def agreeing(labels: IntArray, known: IntArray, n_clusters: int) -> IntArray:
    """Renumber clusters so that most points get their known label."""
    held = np.flatnonzero(known >= 0)
    if held.size == 0:
        return labels
    return np.argsort(numbered_like(labels[held], known[held], n_clusters))[labels]


def of_positive_weight(given: Constraints) -> Constraints:
    """Return the constraints without the pairs of weight zero."""
    return selected(given, given.ml_weights > 0, given.cl_weights > 0)


def refuse_hard(given: Constraints) -> None:
    """Refuse pairs of infinite weight."""
    for name, pairs, weights in (
        ("ml_weight", given.must_link, given.ml_weights),
        ("cl_weight", given.cannot_link, given.cl_weights),
    ):
        hard = np.flatnonzero(np.isinf(weights))
        if hard.size:
            i, j = pairs[hard[0]].tolist()
            raise ValueError(
                f"{name} must be finite here, but that of the pair ({i}, {j}) is inf; this "
                "estimator cannot make a pair hard"
            )


def take_frame(given: dict[str, Any], X: Any) -> dict[str, Any]:
    """Replace the argument `pairs` of ``fit``, a data frame, by constraints and weights.

    A frame without weights has weights of 1, as in `Constraints.fit_params`.
    """
    given = dict(given)
    frame = given.pop("pairs", None)
    if frame is None:
        return given
    others = [name for name in ("must_link", "cannot_link") if given.get(name) is not None]
    if others:
        raise ValueError(
            f"pairs and {others[0]} both give pairs; give one of them, as "
            "Constraints.to_frame and Constraints.from_frame turn each into the other"
        )
    n = n_rows(X)
    ids = given.get("sample_ids")
    wording = {}
    if ids is None:
        ids = _row_names(frame, X)
        wording = _IN_INDEX if hasattr(X, "iloc") else _WITHOUT_INDEX
    parts = from_frame(frame, ids, **wording)
    if parts.n_points != n:
        raise ValueError(f"sample_ids must have shape ({n},), got ({parts.n_points},)")
    if isinstance(ids, SampleIds) and ids.size < ids.everyone.size:
        _refuse_cut(len(frame), n, "pairs")
    made = Constraints(**vars(parts))
    for name, weights in (("ml_weight", made.ml_weight), ("cl_weight", made.cl_weight)):
        plain = not isinstance(weights, np.ndarray) and weights == 1.0
        if given.get(name) is None:
            given[name] = None if plain else weights
        elif not plain or np.ndim(given[name]):
            raise ValueError(
                f"{name} must be a number or 'auto' where pairs is a data frame, and left out "
                "where that has weights"
            )
    return {**given, "constraints": made}


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


def read_supervision(
    n_points: int,
    n_clusters: int | None,
    *,
    constraints: Constraints | None = None,
    must_link: Pairs | None = None,
    cannot_link: Pairs | None = None,
    ml_weight: npt.ArrayLike = 1.0,
    cl_weight: npt.ArrayLike = 1.0,
    sample_ids: npt.ArrayLike | None = None,
    y: npt.ArrayLike | None = None,
    partial_labels: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> Supervision:
    """Turn the arguments of ``fit`` into supervision of rows."""
    labels, named = partly_labelled(y), "y"
    if labels is None:
        labels, named = partial_labels, "partial_labels"
    elif partial_labels is not None:
        raise ValueError(
            "y and partial_labels both hold labels, -1 where a point has none; give one of them"
        )
    known = read_partial_labels(labels, n_points, n_clusters, named)
    sample_weight = _read_sample_weight(sample_weight, n_points)
    if constraints is not None:
        # From a data frame, in which names have been looked up.
        made = constraints.with_weights(ml_weight, cl_weight)
        return Supervision(made, known, sample_weight, constraints.n_repeated)
    ids = None
    if sample_ids is not None:
        ids = sample_ids if isinstance(sample_ids, SampleIds) else SampleIds(sample_ids)
        if ids.shape != (n_points,):
            raise ValueError(f"sample_ids must have shape ({n_points},), got {ids.shape}")
    elif has_pairs(must_link) or has_pairs(cannot_link):
        _refuse_split(origin(n_points).split, "must_link and cannot_link")
    if ids is not None:
        must_link, ml_weight = _by_ids(ids, must_link, ml_weight, n_points, "must_link")
        cannot_link, cl_weight = _by_ids(ids, cannot_link, cl_weight, n_points, "cannot_link")
    constraints = Constraints(must_link, cannot_link, ml_weight, cl_weight, n_points=n_points)
    return Supervision(constraints, known, sample_weight, constraints.n_repeated)


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


def has_pairs(pairs: object) -> bool:
    """Whether any pairs are given; other types are refused elsewhere."""
    return pairs is not None and (not isinstance(pairs, Sized) or len(pairs) > 0)


#: Arguments of `rows_named` that complete its errors.
_IN_INDEX = {"whose": "names in the index of X"}
_WITHOUT_INDEX = {
    "whose": "row numbers of X",
    "advice": (
        "X has no index here: name its rows by sample_ids=df.index, or keep the index through the "
        'steps of a pipeline by pipeline.set_output(transform="pandas")'
    ),
}


def _row_names(frame: Any, X: Any) -> Any:
    """Return the names to which pairs in a frame refer if ``fit`` gets none.

    They are the index of X, or row numbers. If scikit-learn splits the data, they are those of all
    data, because pairs may name rows of other folds.
    """
    n = n_rows(X)
    fold, split, piped = origin(n, frame)
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


def _refuse_cut(n_pairs: int, n_points: int, name: str) -> None:
    """Refuse as many pairs as points, because scikit-learn cuts them like columns of the data."""
    if n_pairs == n_points:
        raise ValueError(
            f"{name} has as many pairs as there are samples ({n_points}), so cross-validation "
            "cannot distinguish it from a column of the data and may have cut it; repeat a pair "
            "to make the numbers differ"
        )


def _by_ids(
    ids: SampleIds,
    pairs: Pairs | None,
    weight: npt.ArrayLike,
    n_points: int,
    name: str,
) -> tuple[Pairs | None, npt.ArrayLike]:
    """Return the rows of pairs of names, without pairs with a row in another fold, and weights."""
    if pairs is None or not has_pairs(pairs):
        return pairs, weight
    if isinstance(pairs, Iterator) and ids.size < ids.everyone.size:
        raise TypeError(
            f"{name} is of type {type(pairs).__name__}, which the first fold has read to its end; "
            f"give list({name})"
        )
    given = pair_array(pairs, name)
    weights = np.asarray(weight)
    weight_name = f"{name[0]}l_weight"
    refuse_unordered(pairs, weight, name, weight_name)
    if weights.ndim and weights.shape != (len(given),):
        raise ValueError(
            f"{weight_name} has shape {weights.shape}; a scalar or one weight for each of the "
            f"{len(given)} rows of {name} is needed"
        )
    if ids.size < ids.everyone.size:
        _refuse_cut(len(given), n_points, name)
    rows = rows_named(ids, given, name)
    present = np.asarray((rows >= 0).all(axis=1))
    return rows[present], weights[present] if weights.ndim else weights
