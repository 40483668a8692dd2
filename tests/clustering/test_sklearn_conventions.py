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
#: Settings other than the default ones: quicker, or of code that those do not reach.
SETTINGS = {
    "AnnealedConstrainedKMeans": [{"cooling": 0.1}],
    "AnnealedConstrainedMixture": [{"cooling": 0.1}],
    "KernelHMRFKMeans": [
        {},
        {"kernel": "linear", "sigma": "smallest", "local_search": False},
        {"form": "normalised-cut"},
    ],
    "TVClust": [{"max_iter": 10}],
    "TVClustSampler": [{"n_samples": 10, "burn_in": 0, "thinning": 1}],
}
#: Starts are drawn from rows in their order, which equal rows in another order change, as in
#: scikit-learn's own k-means; from the same start, test_weights_and_labels tests the same.
DRAWN = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "the start is drawn",
)


def test_all_are_found():
    assert len(ESTIMATORS) >= 11


# Of the few distinct points of some checks, a metric rightly looks at one feature.
@pytest.mark.filterwarnings("ignore::inference_lab.clustering.DegenerateMetricWarning")
@pytest.mark.filterwarnings("ignore:y marks no point as unlabelled")
@pytest.mark.parametrize(
    "estimator",
    [e(**settings) for e in ESTIMATORS for settings in SETTINGS.get(e.__name__, [{}])],
    ids=repr,
)
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None, expected_failed_checks=DRAWN)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert failed == []
    assert len(results) > 30


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_true_classes_do_not_leak_in(estimator):
    # Pipelines and searches pass y to fit; a clustering that looked at it would be cheating.
    rng = np.random.default_rng(0)
    points = rng.random(size=(30, 3)) + 0.1
    known = estimator().get_params()
    settings = {k: v for k, v in {"n_clusters": 2, "random_state": 0}.items() if k in known}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = estimator(**settings).fit(points)
        two = estimator(**settings).fit(points, rng.integers(2, size=30))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.labels_.dtype.kind == "i"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_notebooks_show_parameters_without_warnings(estimator):
    # scikit-learn takes the help of each parameter from the docstring, and warns of other sections.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = estimator()._repr_html_()
    assert "n_init" not in estimator().get_params() or "n_init" in page
