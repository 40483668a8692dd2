"""Predictions in batches, and fits on a sample that holds all pairs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import (
    ConstrainedClusterCV,
    ConstrainedGaussianMixture,
    PCKMeans,
    TVClust,
    fit_on_sample,
)
from inference_lab.clustering.large_data import batches
from inference_lab.constraints import Constraints


def drawn(n: int = 3_000, d: int = 4) -> tuple[np.ndarray, np.ndarray, Constraints]:
    """Draw points of three groups in single precision, and pairs."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=n)
    points = (rng.normal(size=(n, d)) + 4.0 * np.eye(3, d)[truth]).astype(np.float32)
    return points, truth, Constraints.sample(truth, 60, rng)


def copied(rows: np.ndarray) -> np.ndarray:
    """Return 90 copies of rows, which are more than one batch holds."""
    return np.concatenate([rows] * 90)


def test_batches_hold_all_rows_in_order():
    points = np.arange(2_560_000.0).reshape(640_000, 4)
    for data in (points, csr_array(points), pd.DataFrame(points)):
        parts = list(batches(data))
        assert [part.shape[0] for part in parts] == [262_144, 262_144, 115_712]
    assert (np.concatenate(list(batches(points))) == points).all()
    rows = [[1.0], [2.0]]
    assert list(batches(rows)) == [rows]


@pytest.mark.parametrize(
    "model",
    [
        PCKMeans(3, random_state=0),
        TVClust(5, random_state=0),
        ConstrainedGaussianMixture(3, random_state=0),
        ConstrainedClusterCV(
            3, candidates=[("k-means", KMeans(n_init=1)), ("pairs", PCKMeans())], random_state=0
        ),
    ],
)
def test_predictions_do_not_depend_on_the_container(model, tmp_path):
    array = pytest.importorskip("dask.array")
    points, _, pairs = drawn()
    model.fit(points, **pairs.fit_params())
    whole = copied(np.concatenate([model.predict(points[:90]), model.predict(points[90:])]))
    points = copied(points)
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    for data in (
        points,
        mapped,
        array.from_array(mapped, chunks=(63_000, 4)),
        array.from_array(points, chunks=(90_000, 3)),
    ):
        labels = model.predict(data)
        assert labels.dtype == np.int64 and (labels == whole).all()


def test_predictions_make_no_copy_of_the_data(tmp_path):
    points = np.lib.format.open_memmap(
        tmp_path / "points.npy", mode="w+", dtype=np.float32, shape=(400_000, 20)
    )
    points[:] = np.random.default_rng(0).normal(size=points.shape)
    model = PCKMeans(10, random_state=0).fit(points[:2_000])
    tracemalloc.start()
    model.predict(points)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A copy in double precision would take twice the bytes of the data, the costs as many.
    assert peak < points.nbytes


def test_a_sample_holds_all_pairs_and_its_labels_are_kept():
    array = pytest.importorskip("dask.array")
    points, _, pairs = drawn()
    hard = pairs.with_weights(ml_weight=np.inf, cl_weight=np.inf)
    model = PCKMeans(3, random_state=0)
    labels = fit_on_sample(model, copied(points), 500, random_state=0, **hard.fit_params())
    assert model.labels_.size == 500
    assert model.violations_.must_link == model.violations_.cannot_link == 0
    ml, cl = pairs.must_link, pairs.cannot_link
    assert (labels[ml[:, 0]] == labels[ml[:, 1]]).all()
    assert (labels[cl[:, 0]] != labels[cl[:, 1]]).all()
    full = PCKMeans(3, random_state=0).fit(points, **hard.fit_params())
    assert adjusted_rand_score(copied(full.labels_), labels) > 0.95

    blocks = array.from_array(copied(points), chunks=(63_000, 4))
    again = fit_on_sample(model, blocks, 500, random_state=0, **hard.fit_params())
    assert (again == labels).all()


def test_arguments_reach_the_fit_of_the_sample():
    points, truth, pairs = drawn()
    names = [f"point {row}" for row in range(len(points))]
    frame = pd.DataFrame(points, index=names).rename(columns=str)
    partial_labels = np.where(np.arange(len(points)) < 30, truth, -1)
    weight = np.where(np.arange(len(points)) % 2, 1.0, 2.0)

    class Watched(PCKMeans):
        def fit(self, X, y=None, **arguments):
            self.arguments_ = arguments
            return super().fit(X, y, **arguments)

    model = make_pipeline(StandardScaler(), Watched(3, random_state=0))
    labels = fit_on_sample(
        model,
        frame,
        200,
        random_state=0,
        pairs=pairs.to_frame(names),
        ml_weight=1.0,
        cl_weight="auto",
        partial_labels=partial_labels,
        sample_weight=weight,
    )
    arguments = model[-1].arguments_
    assert len(arguments["must_link"]) == len(pairs.must_link)
    assert (np.asarray(arguments["ml_weight"]) == 1.0).all() and arguments["cl_weight"] == "auto"
    assert (arguments["partial_labels"] >= 0).sum() == 30
    assert set(arguments["sample_weight"]) == {1.0, 2.0}
    assert (labels[:30] == truth[:30]).all()

    # Without weights, the default of the estimator holds.
    fit_on_sample(model, frame, 200, random_state=0, pairs=pairs.to_frame(names))
    assert "ml_weight" not in model[-1].arguments_


def test_a_sample_is_as_large_as_asked_for_and_no_larger_than_the_data():
    points, _, pairs = drawn(100)
    model = PCKMeans(3, random_state=0)
    assert (fit_on_sample(model, points, random_state=0) == model.labels_).all()
    fit_on_sample(model, points, 1, random_state=0, **pairs.fit_params())
    assert model.labels_.size == pairs.touches(np.arange(100)).size
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1, got 0"):
        fit_on_sample(model, points, 0)


def test_data_of_unknown_length_are_refused():
    array = pytest.importorskip("dask.array")
    points = array.from_array(drawn()[0], chunks=(700, 4))
    with pytest.raises(TypeError, match=r"unknown number of rows.*compute_chunk_sizes\(\)"):
        fit_on_sample(PCKMeans(3), points[points[:, 0] > 0])
