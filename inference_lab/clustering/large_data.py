"""Large data: predictions in batches of rows, and fits on a sample that holds all pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from inference_lab.clustering.supervision import FitArguments, Supervision, supervision_of
from inference_lab.graph.arrays import IntArray
from inference_lab.specs.whole_numbers import as_whole

#: Numbers in a batch of rows: eight megabytes in double precision.
_ENTRIES = 1 << 20


def batches(X: Any) -> Iterator[Any]:
    """Yield the rows of data in batches; Dask collections are computed one block at a time.

    Arrays, memory-mapped or not, CSR matrices, data frames and Dask arrays and frames are divided.
    Other data, and data of few rows, are one batch.
    """
    if hasattr(X, "dask"):
        if hasattr(X, "partitions") and hasattr(X, "divisions"):
            blocks = (X.partitions[at] for at in range(X.npartitions))
        else:
            whole_rows = X.rechunk({1: -1}) if X.ndim == 2 else X
            blocks = (whole_rows.blocks[at] for at in range(whole_rows.numblocks[0]))
        for block in blocks:
            yield from batches(block.compute())
        return
    if not (isinstance(X, np.ndarray) or issparse(X) or hasattr(X, "iloc")) or len(X.shape) != 2:
        yield X
        return
    n, d = X.shape
    step = max(1, _ENTRIES // max(1, d))
    if n <= step:
        yield X
        return
    rows = X.tocsr() if issparse(X) else getattr(X, "iloc", X)
    for begin in range(0, n, step):
        yield rows[begin : begin + step]


def fit_on_sample(
    estimator: Any,
    X: Any,
    n_samples: int = 200_000,
    *,
    random_state: Any = None,
    **arguments: Unpack[FitArguments],
) -> IntArray:
    """Fit an estimator on a sample that holds all points of pairs; label the others in batches.

    For data that do not fit into memory. X is read twice: the rows of the sample, then all rows.

    Parameters
    ----------
    estimator : estimator with ``fit`` and ``predict``, or a pipeline that ends in one
        It is fitted in place.
    X : (n, d) array, `numpy.memmap`, CSR matrix, data frame or Dask array
        No copy is made of it.
    n_samples : int
        Rows of the sample: all points of pairs, all of known label, and random others. It is larger
        if these points are more.
    random_state : int, RandomState or None
        Seeds the sample.
    **arguments
        Pairs, weights and labels as in `HMRFKMeans.fit`, for all rows of X.

    Returns
    -------
    (n,) int64 array
        The labels of the fit for rows in the sample, and predictions for others.

    Raises
    ------
    ValueError, TypeError
        If data, pairs or settings cannot be used; see ``fit`` of the estimator.

    Notes
    -----
    **Memory.** The sample, the labels, and one batch of rows, or one block of a Dask array.

    Examples
    --------
    >>> import numpy as np
    >>> from inference_lab.clustering import PCKMeans, fit_on_sample
    >>> X = np.repeat(np.float32([[0.0], [8.0]]), 50_000, axis=0)
    >>> model = PCKMeans(2, random_state=0)
    >>> labels = fit_on_sample(model, X, 1_000, must_link=[(0, 1)], random_state=0)
    >>> labels.size, model.labels_.size, bool(labels[0] != labels[-1])
    (100000, 1000, True)
    """
    size = as_whole(n_samples)
    if size is None or size < 1:
        raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if not isinstance(n, int | np.integer):
        raise TypeError(
            f"X has an unknown number of rows, {n!r}: a Dask array needs compute_chunk_sizes(), a "
            "Dask frame to_dask_array(lengths=True)"
        )
    frame = X if hasattr(X, "iloc") else np.empty((n, 0))
    supervision = supervision_of(frame, arguments, allow_auto=True)
    rows = _sample(supervision, size, random_state)
    sample = _rows_of(X, rows)
    estimator.fit(sample, **_prefixed(estimator, _arguments(supervision.only(rows), arguments)))
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    labels = np.concatenate([np.asarray(estimator.predict(batch)) for batch in batches(X)])
    labels[rows] = last.labels_
    return labels.astype(np.int64, copy=False)


def _sample(supervision: Supervision, size: int, random_state: Any) -> IntArray:
    """Return the rows of pairs and labels, and random others, ascending."""
    n = supervision.partial_labels.size
    in_sample = supervision.partial_labels >= 0
    in_sample[supervision.constraints.touches(np.arange(n))] = True
    others = np.flatnonzero(~in_sample)
    n_drawn = min(others.size, max(0, size - int(in_sample.sum())))
    seed = int(check_random_state(random_state).randint(2**31))
    drawn = np.random.default_rng(seed).choice(others, n_drawn, replace=False)
    in_sample[drawn] = True
    return np.flatnonzero(in_sample)


def _rows_of(X: Any, rows: IntArray) -> Any:
    """Return rows of data in memory."""
    if hasattr(X, "dask"):
        return X[rows].compute()
    if hasattr(X, "iloc"):
        # Pairs are row numbers, not names of the index.
        return X.iloc[rows].reset_index(drop=True)
    return np.asarray(X[rows]) if isinstance(X, np.ndarray) else X[rows]


def _arguments(supervision: Supervision, arguments: FitArguments) -> dict[str, Any]:
    """Return the arguments of ``fit`` for the sample; what was not given keeps its default."""
    result = supervision.constraints.fit_params()
    for name in ("ml_weight", "cl_weight"):
        if name in supervision.auto:
            result[name] = "auto"
        elif arguments.get(name) is not None:
            result[name] = getattr(supervision.constraints, name)
    if not len(supervision.constraints):
        result = {}
    if (supervision.partial_labels >= 0).any():
        result["partial_labels"] = supervision.partial_labels
    if supervision.sample_weight is not None:
        result["sample_weight"] = supervision.sample_weight
    return result


def _prefixed(estimator: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the name of the last step, if the estimator is a pipeline."""
    if not isinstance(estimator, Pipeline):
        return arguments
    return {f"{estimator.steps[-1][0]}__{name}": value for name, value in arguments.items()}
