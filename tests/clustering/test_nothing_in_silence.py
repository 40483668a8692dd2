"""Pairs, names and weights without effect are refused or reported."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, KFold

from inference_lab.clustering import (
    ConstrainedLinkage,
    ConstrainedSpectral,
    DPMeans,
    HMRFKMeans,
    InfeasibleConstraintsError,
    MetricKMeans,
    PairWeightWarning,
    PCKMeans,
    RDPMeans,
)
from inference_lab.clustering.pair_odds import log_odds
from inference_lab.constraints import Constraints, SampleIds

X, Y = load_iris(return_X_y=True)
NAMES = np.array([f"flower {i}" for i in range(150)])


# ---------------------------------------------------------------------- names of rows


@pytest.mark.parametrize(
    ("pairs", "names", "supervision"),
    [
        ([("x", "y")], NAMES, "must_link names 'x', 'y', which is not among the 150 sample_ids"),
        ([[0, 16]], np.arange(150).astype(str), "names must be equal, and 1 is not '1'"),
        ([("a", "b")], np.full(150, "a"), "sample_ids names 'a' twice"),
        ([(np.nan, np.nan)], np.full(150, np.nan), "sample_ids.0. is nan, which equals nothing"),
        ([(0.0, np.nan)], np.arange(150.0), "must_link.0, 1. is nan, which equals nothing"),
    ],
)
def test_names_that_no_row_has_are_refused(pairs: Any, names: Any, supervision: str) -> None:
    with pytest.raises(ValueError, match=supervision):
        PCKMeans(3, random_state=0).fit(X, must_link=pairs, sample_ids=names)


def test_slices_of_names_know_the_names_of_all_rows() -> None:
    """Pairs with rows of other folds are omitted; an unknown name is an error there, too."""
    part = pickle.loads(pickle.dumps(SampleIds(NAMES)[:100]))
    model = PCKMeans(3, random_state=0)
    pairs = [(NAMES[0], NAMES[1]), (NAMES[0], NAMES[120])]
    fitted = model.fit(X[:100], must_link=pairs, sample_ids=part)
    assert fitted.constraints_.must_link.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="'nobody'"):
        clone(model).fit(X[:100], must_link=[(NAMES[0], "nobody")], sample_ids=part)


def test_plain_names_are_refused_in_folds() -> None:
    pairs = Constraints.sample(Y, 60, np.random.default_rng(0)).fit_params(sample_ids=NAMES)
    search = GridSearchCV(PCKMeans(random_state=0), {"n_clusters": [2]}, cv=KFold(3, shuffle=True))
    search.set_params(error_score="raise")
    with pytest.raises(ValueError, match="give sample_ids=SampleIds"):
        search.fit(X, **{**pairs, "sample_ids": NAMES})


# ---------------------------------------------------------------------- contradictions


@pytest.mark.parametrize("kind", [ConstrainedLinkage, ConstrainedSpectral, MetricKMeans])
def test_hard_pairs_that_contradict_each_other_are_refused(kind: Any) -> None:
    hard = {"ml_weight": np.inf, "cl_weight": np.inf}
    with pytest.raises(InfeasibleConstraintsError, match="no labelling satisfies the constraints"):
        kind(3).fit(X, must_link=[(0, 1), (1, 2)], cannot_link=[(0, 2)], **hard)
    kind(3).fit(X, must_link=[(0, 1), (1, 2)], cannot_link=[(0, 60)], **hard)


def contradicted(count: int) -> Constraints:
    """Return 600 right pairs of iris, some of which are also in the other list."""
    right = Constraints.sample(Y, 600, np.random.default_rng(0))
    cannot = np.concatenate([right.cannot_link, right.must_link[:count]])
    return Constraints(right.must_link, cannot, n_points=150)


def test_a_handful_of_contradictions_leaves_weight_to_pairs() -> None:
    """With 5 of 605 pairs in both lists the log-odds fall, but not to 0."""
    odds = [log_odds(contradicted(count)) for count in (0, 1, 2, 5, 20)]
    assert all(later < earlier for earlier, later in itertools.pairwise(odds))
    # The log-odds of 6 wrong pairs among the 610 checked ones.
    assert odds[3] > 4.0 and odds[4] > 3.0


def test_weights_that_vanish_are_warned_of() -> None:
    pairs = [(i, i + 1) for i in range(0, 40, 2)]
    with pytest.warns(PairWeightWarning, match="these pairs do not count; give numbers"):
        HMRFKMeans(3, random_state=0).fit(
            X, must_link=pairs, cannot_link=pairs, ml_weight="auto", cl_weight="auto"
        )


# ---------------------------------------------------------------------- open clusters


def test_dp_means_refuses_pairs() -> None:
    with pytest.raises(TypeError, match="RDPMeans does"):
        DPMeans(3).fit(X, must_link=[(0, 1)])
    assert DPMeans(3, random_state=0).fit(X).n_clusters_ >= 2


@pytest.mark.parametrize(("noise", "limit"), [(0.0, 0.95), (0.1, 0.9), (0.2, 0.8)])
def test_pairs_act_with_the_defaults_of_rdp_means(noise: float, limit: float) -> None:
    """Compare 700 pairs on iris, some of them wrong, with no pairs."""
    pairs = Constraints.sample(Y, 700, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    swap_ml = rng.random(len(pairs.must_link)) < noise
    swap_cl = rng.random(len(pairs.cannot_link)) < noise
    supervision = {
        "must_link": np.concatenate([pairs.must_link[~swap_ml], pairs.cannot_link[swap_cl]]),
        "cannot_link": np.concatenate([pairs.cannot_link[~swap_cl], pairs.must_link[swap_ml]]),
    }
    without = adjusted_rand_score(Y, DPMeans(3, random_state=0).fit(X).labels_)
    agreement = adjusted_rand_score(Y, RDPMeans(3, random_state=0).fit(X, **supervision).labels_)
    assert agreement > max(without, limit)


# ---------------------------------------------------------------------- score


def test_score_is_the_balanced_share_of_pairs_kept() -> None:
    model = PCKMeans(2, random_state=0).fit(X)
    one = model.predict(X)
    near = [(0, 1), (0, 60)]
    assert model.score(X, must_link=near) == np.mean(one[[0, 0]] == one[[1, 60]])
    assert model.score(X, must_link=[(0, 1)], cannot_link=near) == 0.75
    assert model.score(X) < 0
    with pytest.raises(ValueError, match="no pair has both of its points"):
        model.score(X[:50], must_link=[(NAMES[60], NAMES[61])], sample_ids=SampleIds(NAMES)[:50])


def test_searches_choose_the_number_of_clusters_by_held_out_pairs() -> None:
    """Metadata routing passes them without a scorer; without pairs the largest number would win."""
    pairs = Constraints.sample(Y, 200, np.random.default_rng(0))
    grid = {"n_clusters": [2, 3, 6, 10]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(PCKMeans(random_state=0), grid, cv=KFold(3, shuffle=True))
        search.fit(X, Y, **pairs.fit_params(sample_ids=NAMES))
    assert search.best_params_["n_clusters"] in (2, 3)
