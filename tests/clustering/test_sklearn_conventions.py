"""All exported estimators keep scikit-learn's conventions."""

import re
import warnings

import numpy as np
import pytest
from clusterers import KINDS, QUICK, estimator_of
from places import ROOT
from sklearn.cluster import KMeans
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import inference_lab.clustering as clustering

#: Settings other than the defaults: quicker ones, or settings of code that defaults do not reach.
SETTINGS = {
    "KernelHMRFKMeans": [{}, {"kernel": "linear", "local_search": False}],
    "TVClust": [{"max_iter": 10}],
    **{name: [settings] for name, settings in QUICK.items()},
}
#: Reason why weights differ from repeated rows in another order, as for scikit-learn's KMeans;
#: test_weights_and_labels tests equality from one start and in one order.
UNEQUAL = {
    "COPKMeans": "starts at rows of a permutation",
    "ConstrainedSpectral": "copies take the places of other neighbours",
    "DPMeans": "copies are visited one by one",
    "FlexibleSpectral": "copies take the places of other neighbours",
    "KernelHMRFKMeans": "copies move one by one",
    "RDPMeans": "copies are visited one by one",
    "TVClust": "the number of components comes from scikit-learn's KMeans",
}
WEIGHT_CHECKS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)


# On the few distinct points of some checks, a metric rightly uses one feature.
@pytest.mark.filterwarnings("ignore::inference_lab.clustering.DegenerateMetricWarning")
@pytest.mark.filterwarnings("ignore:y marks no point as unlabelled")
@pytest.mark.parametrize(
    "estimator",
    [e(**settings) for e in KINDS for settings in SETTINGS.get(e.__name__, [{}])],
    ids=repr,
)
def test_check_estimator(estimator):
    # Two starts suffice, because the checks are of the treatment of input.
    if estimator.get_params().get("n_init", 1) != 1:
        estimator.set_params(n_init=2)
    reason = UNEQUAL.get(type(estimator).__name__)
    results = check_estimator(
        estimator,
        on_skip=None,
        on_fail=None,
        expected_failed_checks=dict.fromkeys(WEIGHT_CHECKS, reason) if reason else None,
    )
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert failed == []
    assert len(results) > 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*UNEQUAL, "KMeans"])
def test_exceptions_are_still_needed(name):
    kind = KMeans if name == "KMeans" else getattr(clustering, name)
    # Some settings may pass, depending on the rounding of the machine.
    with pytest.raises(AssertionError):
        for settings in SETTINGS.get(name, [{}]):
            getattr(estimator_checks, WEIGHT_CHECKS[0])(name, kind(**settings))


def test_documents_name_the_exceptions():
    text = (ROOT / "docs/howto/clustering.md").read_text(encoding="utf-8")
    sentence = re.search(r"15 of these 22 estimators[^.]*\.[^.]*\.", text).group()
    assert set(re.findall(r"`([A-Z]\w+)`", sentence)) - {"KMeans"} == set(UNEQUAL)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "15 of the 22 pass all of scikit-learn's `check_estimator`; seven fail only" in readme
    assert (len(UNEQUAL), len(KINDS)) == (7, 22)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_true_classes_do_not_leak_in(kind):
    # Pipelines and searches pass y to fit; a clustering that used it would leak labels.
    rng = np.random.default_rng(0)
    points = rng.random(size=(30, 3)) + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = estimator_of(kind, n_clusters=2).fit(points)
        two = estimator_of(kind, n_clusters=2).fit(points, rng.integers(2, size=30))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.labels_.dtype.kind == "i"


@pytest.mark.parametrize("estimator", KINDS, ids=lambda e: e.__name__)
def test_notebooks_show_parameters_without_warnings(estimator):
    # scikit-learn takes the help of each parameter from the docstring, and warns of other sections.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = estimator()._repr_html_()
    assert "n_init" not in estimator().get_params() or "n_init" in page
