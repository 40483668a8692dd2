"""All exported estimators keep scikit-learn's conventions."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator

import inference_lab.clustering as clustering

ESTIMATORS = [
    getattr(clustering, name)
    for name in clustering.__all__
    if inspect.isclass(getattr(clustering, name))
    and issubclass(getattr(clustering, name), BaseEstimator)
]


def test_all_are_found():
    assert len(ESTIMATORS) >= 11


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_check_estimator(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator(), on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert failed == []
    assert len(results) > 30


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_true_classes_do_not_leak_in(estimator):
    # Pipelines and searches pass y to fit; a clustering that looked at it would be cheating.
    rng = np.random.default_rng(0)
    points = rng.random(size=(30, 3)) + 0.1
    settings = {"n_clusters": 2} if "n_clusters" in estimator().get_params() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = estimator(random_state=0, **settings).fit(points)
        two = estimator(random_state=0, **settings).fit(points, rng.integers(2, size=30))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.labels_.dtype.kind == "i"
