"""Results that the fits of a comparison share: k-means without pairs, and starts from pairs.

`ConstrainedClusterCV` fits many candidates to the same points, and to nearly the same pairs. Inside
`shared_starts` each result below is computed once. Results do not depend on the fits that share
them, so a fit in another process, which shares nothing, is the same.

docs/decisions/057-a-race-of-candidates.md has the reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import numpy as np

from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.distortions.distortions import Distortion, SquaredEuclidean
from inference_lab.distortions.points import Points, is_sparse
from inference_lab.graph.arrays import FloatArray

T = TypeVar("T")

#: Starts of the k-means without pairs that gives all fits a start.
_STARTS = 10

#: Results by what they depend on; None outside of `shared_starts`.
_results: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("results", default=None)
#: Whether the fit is the final one of a comparison.
_final: ContextVar[bool] = ContextVar("final", default=False)


@contextmanager
def shared_starts() -> Iterator[None]:
    """Share results between the fits of the block; an inner block shares those of the outer one."""
    if _results.get() is not None:
        yield
        return
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


@contextmanager
def all_starts() -> Iterator[None]:
    """Make the final fit of a comparison, with all starts where these lead to better optima."""
    token = _final.set(True)
    try:
        yield
    finally:
        _final.reset(token)


def few_starts(full_metric: bool) -> bool:
    """Whether a fit has the shared start in place of random ones.

    So do all fits of a comparison. The final fit does if it learns a full metric: among more
    starts, the least objective may belong to a degenerate metric, which no pair has judged.
    """
    return _results.get() is not None and (full_metric or not _final.get())


def once(kind: str, depends_on: tuple[Any, ...], compute: Callable[[], T]) -> T:
    """Return a result that depends on some values only, computed once in `shared_starts`."""
    results = _results.get()
    if results is None:
        return compute()
    key = (kind, *map(_key, depends_on))
    if key not in results:
        results[key] = compute()
    return cast(T, results[key])


def centroids_without_pairs(
    points: Points, n_clusters: int, distortion: Distortion, sample_weight: FloatArray | None
) -> FloatArray | None:
    """Return the centroids of k-means without pairs; None if the costs are no squared distances."""
    if type(distortion) is not SquaredEuclidean or distortion.metric is not None:
        return None

    def fit() -> FloatArray:
        model = BregmanKMeans(n_clusters, n_init=_STARTS, random_state=0)
        centroids: FloatArray = model.fit(points, sample_weight=sample_weight).cluster_centers_
        return centroids.astype(np.float64)

    return once("centroids without pairs", (points, n_clusters, sample_weight), fit)


def _key(value: Any) -> Any:
    """Return a value, or the digest of an array, to look a result up by."""
    if is_sparse(value):
        return tuple(_key(part) for part in (value.data, value.indices, value.indptr, value.shape))
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
        return str(value.dtype), value.shape, digest
    return value
