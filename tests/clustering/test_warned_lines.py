"""Warnings about a fit name the line of the user's code that called it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import (
    LCVQE,
    AnnealedConstrainedKMeans,
    ConstrainedClusterCV,
    ConstrainedGaussianMixture,
    ConstrainedKMeans,
    ConstrainedSpectral,
    ConstraintsNotMetWarning,
    ContradictoryPairsWarning,
    COPKMeans,
    CorrelationClustering,
    DegenerateMetricWarning,
    HMRFKMeans,
    MergedClassesWarning,
    MetricKMeans,
    PairWeightWarning,
    PCKMeans,
    RepeatedPairsWarning,
    SeededKMeans,
    TVClust,
)
from inference_lab.constraints import Constraints

X, Y = load_iris(return_X_y=True)
CHAIN = {"must_link": [(0, 1), (1, 2), (2, 1)], "cannot_link": [(0, 2)]}
BOTH = {"must_link": [(0, 1), (2, 3)], "cannot_link": [(0, 1), (2, 3)]}
#: The edges of a wheel of five spokes, which need four clusters.
WHEEL = [(i, (i + 1) % 5) for i in range(5)] + [(i, 5) for i in range(5)]
HARD = {"cannot_link": WHEEL, "cl_weight": np.inf}
FAINT = {"must_link": [(0, 1)], "cannot_link": [(0, 60)], "ml_weight": 1e-9, "cl_weight": 1e-9}


def few() -> Any:
    """Return 20 random points."""
    return np.random.default_rng(0).normal(size=(20, 2))


def angles() -> tuple[Any, dict[str, Any]]:
    """Return points of two directions with pairs, for which a metric degenerates."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 20)
    points = rng.random((40, 6)) + 2.0 * np.eye(6)[truth]
    return points, Constraints.sample(truth, 40, rng).fit_params()


def merging() -> dict[str, Any]:
    """Return pairs with a fifth of wrong ones, which merge classes."""
    rng = np.random.default_rng(0)
    return Constraints.sample(Y, 200, rng).flip(0.2, rng).fit_params()


def narrow() -> Any:
    """Return a model whose metric degenerates."""
    return HMRFKMeans(2, distortion="cosine", metric="gradient", max_iter=300, random_state=0)


def comparison() -> Any:
    """Return a choice between an estimator without pairs and one that hard pairs can fail."""
    candidates = [("seeded", SeededKMeans()), ("hard", PCKMeans())]
    return ConstrainedClusterCV(3, candidates=candidates, n_repeats=1, random_state=0)


#: An estimator, its data, arguments of ``fit`` and a warning.
CASES: list[tuple[Any, Any, Any, type[Warning]]] = [
    *[
        (kind, X, CHAIN, category)
        for kind in (PCKMeans(3), LCVQE(3), TVClust(3, max_iter=2), MetricKMeans(3))
        for category in (ContradictoryPairsWarning, RepeatedPairsWarning)
    ],
    (ConstrainedSpectral(3), X, CHAIN, RepeatedPairsWarning),
    (ConstrainedGaussianMixture(3), X, CHAIN, RepeatedPairsWarning),
    (comparison(), X, CHAIN, RepeatedPairsWarning),
    (comparison(), X, {"must_link": [(0, 1)]}, UserWarning),
    (
        comparison(),
        X,
        {
            **CHAIN,
            "cannot_link": [(0, 2), (0, 1), (3, 60)],
            "ml_weight": np.inf,
            "cl_weight": np.inf,
        },
        UserWarning,
    ),
    (CorrelationClustering(), X, CHAIN, RepeatedPairsWarning),
    (CorrelationClustering(max_clusters=3), few(), HARD, ConstraintsNotMetWarning),
    (PCKMeans(3), X, {**BOTH, "ml_weight": "auto", "cl_weight": "auto"}, PairWeightWarning),
    (PCKMeans(3), X, FAINT, PairWeightWarning),
    (PCKMeans(3, random_state=0), few(), HARD, ConstraintsNotMetWarning),
    (
        ConstrainedGaussianMixture(3, covariance_type="spherical"),
        few(),
        HARD,
        ConstraintsNotMetWarning,
    ),
    (AnnealedConstrainedKMeans(3, random_state=0), few(), HARD, ConstraintsNotMetWarning),
    (COPKMeans(3, max_failures=2), few(), {"cannot_link": WHEEL}, ConstraintsNotMetWarning),
    (PCKMeans(3, closure="drop"), X, merging(), MergedClassesWarning),
    (narrow(), *angles(), DegenerateMetricWarning),
    (SeededKMeans(3), X, {"y": Y}, UserWarning),
    (ConstrainedKMeans(3), X, {"y": Y}, UserWarning),
]


def place(call: Callable[[], object], category: type[Warning]) -> tuple[str, int]:
    """Return file and line of the only warning of a category."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = [item for item in caught if item.category is category]
    return warning.filename, warning.lineno


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{type(case[0]).__name__}-{case[3].__name__}"
)
def test_each_warning_names_the_line(case: Any) -> None:
    model, points, arguments, category = case
    fit = lambda: model.fit(points, **arguments)  # noqa: E731
    assert place(fit, category) == (__file__, fit.__code__.co_firstlineno)
    predict = lambda: model.fit_predict(points, **arguments)  # noqa: E731
    assert place(predict, category) == (__file__, predict.__code__.co_firstlineno)


class Named(PCKMeans):
    """Estimator of a user, which changes arguments of ``fit``."""

    def fit(self, X: Any, y: Any = None, **arguments: Any) -> Named:
        """Fit with hard pairs."""
        return super().fit(X, y, cl_weight=np.inf, **arguments)


@pytest.mark.parametrize("method", ["fit", "fit_predict"])
def test_estimators_of_users_are_outside(method: str) -> None:
    call = getattr(Named(3, random_state=0), method)
    line = place(lambda: call(few(), cannot_link=WHEEL), ConstraintsNotMetWarning)
    assert line == (__file__, Named.fit.__code__.co_firstlineno + 2)


def test_scores_and_searches_name_the_line_that_called() -> None:
    """A search fits, and scores, from a line of scikit-learn."""
    folder = str(Path(sklearn.__file__).parent)
    named = Constraints.sample(Y, 60, np.random.default_rng(0)).fit_params(sample_ids=range(150))
    model = PCKMeans(3, random_state=0)
    part = {**named, "sample_ids": named["sample_ids"][:100]}
    score = lambda: model.fit(X[:100], **part).score(X[100:])  # noqa: E731
    assert place(score, UserWarning) == (__file__, score.__code__.co_firstlineno)
    search = GridSearchCV(model, {"n_clusters": [2]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), PCKMeans(3, closure="drop", random_state=0))
    steps = {f"pckmeans__{name}": value for name, value in merging().items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, **named)
        pipeline.fit(X, **steps)
    assert {warning.category for warning in caught} >= {UserWarning, MergedClassesWarning}
    assert all(warning.filename.startswith(folder) for warning in caught)
