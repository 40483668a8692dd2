"""Pairs in cross-validation, searches and pipelines of scikit-learn."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from clusterers import KINDS, estimator_of
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import (
    ConstrainedClusterCV,
    ContradictoryPairsWarning,
    CorrelationClustering,
    DPMeans,
    MetricKMeans,
    MPCKMeans,
    PCKMeans,
    RepeatedPairsWarning,
    SeededKMeans,
    SizeConstrainedKMeans,
    TVClust,
    folds,
    supervision,
)
from inference_lab.constraints import Constraints, SampleIds

X, Y = load_iris(return_X_y=True)
#: Numbers that are no row numbers: a lookup by position would take other rows.
NAMES = {
    "text": pd.Index([f"flower {row}" for row in range(150)]),
    "number": pd.Index(np.random.default_rng(1).permutation(150)),
}
PAIRS = Constraints.sample(Y, 110, np.random.default_rng(0))
FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.fixture(params=[False, True], ids=["unrouted", "routed"])
def routing(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Switch scikit-learn's metadata routing off and on."""
    with sklearn.config_context(enable_metadata_routing=request.param):
        yield request.param


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Ignore the warning about searches without routing, which has its own test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "score was given no pairs", UserWarning)
        yield


def search(estimator: Any = None, prefix: str = "", **settings: Any) -> Any:
    """Return a search over numbers of clusters, whose errors are raised."""
    grid = {f"{prefix}n_clusters": [2, 3, 6]}
    model = PCKMeans(random_state=0) if estimator is None else estimator
    return GridSearchCV(model, grid, cv=FOLDS, error_score="raise", **settings)


def scores(fitted: Any) -> list[float]:
    values: list[float] = fitted.cv_results_["mean_test_score"].tolist()
    return values


@pytest.mark.parametrize("index", NAMES.values(), ids=NAMES)
def test_searches_take_a_table_of_names(index: pd.Index, routing: bool) -> None:
    """The pairs of a fold are those between its rows, as with `SampleIds`."""
    frame = pd.DataFrame(X, index=index).add_prefix("x")
    expected = scores(search().fit(X, **PAIRS.fit_params(sample_ids=np.arange(150))))
    assert scores(search().fit(frame, pairs=PAIRS.to_frame(index))) == pytest.approx(expected)
    assert scores(search().fit(X, pairs=PAIRS.to_frame())) == expected
    named = search().fit(X, pairs=PAIRS.to_frame(index), sample_ids=SampleIds(index))
    assert scores(named) == expected
    best = search().fit(frame, pairs=PAIRS.to_frame(index)).best_estimator_
    assert best.constraints_.must_link.tolist() == PAIRS.must_link.tolist()


def test_searches_in_other_processes_take_tables(routing: bool) -> None:
    frame = pd.DataFrame(X, index=NAMES["text"])
    pairs = PAIRS.to_frame(NAMES["text"])
    alone = scores(search().fit(frame, pairs=pairs))
    assert scores(search(n_jobs=2).fit(frame, pairs=pairs)) == alone


@pytest.mark.parametrize("index", NAMES.values(), ids=NAMES)
def test_cross_validation_takes_a_table_of_names(index: pd.Index, routing: bool) -> None:
    frame = pd.DataFrame(X, index=index)
    model = PCKMeans(3, random_state=0)
    settings: dict[str, Any] = {"cv": FOLDS, "error_score": "raise", "return_train_score": True}
    by_ids = PAIRS.fit_params(sample_ids=np.arange(150))
    expected = cross_validate(model, X, params=by_ids, **settings)
    for data, pairs in ((frame, PAIRS.to_frame(index)), (X, PAIRS.to_frame())):
        results = cross_validate(model, data, params={"pairs": pairs}, **settings)
        for name in ("test_score", "train_score"):
            assert results[name] == pytest.approx(expected[name])
        plain = cross_val_score(model, data, params={"pairs": pairs}, cv=FOLDS)
        assert plain == pytest.approx(expected["test_score"])


def test_searches_within_cross_validation_take_tables(routing: bool) -> None:
    """Each search splits the rows of a fold, and names stay those of all data."""
    frame = pd.DataFrame(X, index=NAMES["number"])
    many = Constraints.sample(Y, 1000, np.random.default_rng(0))
    named = many.fit_params(sample_ids=np.arange(150))
    expected = cross_val_score(search(), X, params=named, cv=2, error_score="raise")
    for data, pairs in ((frame, many.to_frame(NAMES["number"])), (X, many.to_frame())):
        fold_scores = cross_val_score(
            search(), data, params={"pairs": pairs}, cv=2, error_score="raise"
        )
        assert fold_scores == pytest.approx(expected)


def test_misspelt_names_are_errors_in_folds() -> None:
    frame = pd.DataFrame(X, index=NAMES["text"])
    pairs = PAIRS.to_frame(NAMES["text"])
    pairs.loc[3, "j"] = "flower O"
    with pytest.raises(ValueError, match="pairs names 'flower O', which is not among the 150"):
        search().fit(frame, pairs=pairs)


def test_a_table_of_as_many_pairs_as_rows_is_refused() -> None:
    """scikit-learn cuts it like a column of the data."""
    pairs = Constraints.sample(Y, 150, np.random.default_rng(0)).to_frame(NAMES["text"])
    with pytest.raises(ValueError, match="as many pairs as there are samples"):
        search().fit(pd.DataFrame(X, index=NAMES["text"]), pairs=pairs)


def test_iterators_would_be_empty_in_the_second_fold() -> None:
    ids = SampleIds(np.arange(150))
    with pytest.raises(TypeError, match=r"must_link is of type zip.*; give list\(must_link\)"):
        search().fit(X, must_link=zip([0, 2], [1, 3], strict=True), sample_ids=ids)


# ---------------------------------------------------------------------- estimators that fit others


@pytest.mark.parametrize("kind", [MetricKMeans, TVClust, MPCKMeans, SizeConstrainedKMeans])
def test_estimators_that_fit_others_take_pairs_in_folds(kind: Any, routing: bool) -> None:
    """The inner fit numbers the rows of the fold, which is no reason to refuse its pairs."""
    pairs = PAIRS.restrict(np.arange(0, 150, 2))
    model = estimator_of(kind)
    grid = GridSearchCV(
        model, {"random_state": [0]}, cv=3, scoring="adjusted_rand_score", error_score="raise"
    )
    grid.fit(X, Y, **pairs.fit_params(sample_ids=np.arange(150)))
    by_ids = grid.best_score_
    index = NAMES["number"]
    grid.fit(pd.DataFrame(X, index=index), Y, pairs=pairs.to_frame(index))
    assert grid.best_score_ == pytest.approx(by_ids)


def test_choice_of_an_estimator_takes_pairs_in_folds(routing: bool) -> None:
    candidates = [("PCKMeans", PCKMeans()), ("scaled", make_pipeline(StandardScaler(), PCKMeans()))]
    model = ConstrainedClusterCV(3, candidates=candidates, n_repeats=1, random_state=0)
    grid = GridSearchCV(
        model, {"n_splits": [3]}, cv=2, scoring="adjusted_rand_score", error_score="raise"
    )
    grid.fit(X, Y, pairs=PAIRS.to_frame())
    assert grid.best_estimator_.cv_results_["failure"].tolist() == ["", ""]


class Drawing(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Estimator of a user, which passes row numbers on."""

    def fit(self, X: Any, y: Any = None, must_link: Any = None) -> Drawing:
        """Fit with the pairs."""
        self.labels_ = PCKMeans(3).fit(X, must_link=must_link).labels_
        return self


def test_row_numbers_are_refused_in_folds() -> None:
    with pytest.raises(ValueError, match="must_link and cannot_link number the 150 rows of X"):
        search().fit(X, must_link=PAIRS.must_link)
    with pytest.raises(ValueError, match="name the rows by sample_ids"):
        cross_val_score(
            Drawing(),
            X,
            Y,
            params={"must_link": [(0, 1)]},
            scoring="adjusted_rand_score",
            error_score="raise",
        )


class Variables:
    """The variables of a frame as Python 3.13 has them: a mapping whose keys are a list."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def keys(self) -> list[str]:
        """Return the names as a list, which has no order of sets."""
        return list(self.values)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def test_frames_of_python_3_13_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`frame.f_locals` is a proxy there, with a list as its keys."""
    pairs = PAIRS.to_frame()
    train = np.arange(0, 150, 2)
    called = {"X": X, "train": train, "test": train + 1, "fit_params": {"pairs": pairs}}

    def frame(name: str, function: str, variables: dict[str, Any], back: Any) -> Any:
        return SimpleNamespace(
            f_locals=Variables(variables),
            f_globals={"__name__": name},
            f_code=SimpleNamespace(co_name=function),
            f_back=back,
        )

    outer = frame("sklearn.model_selection._validation", "_fit_and_score", called, None)
    inner = frame("inference_lab.clustering.hmrf_kmeans", "fit", {"X": X[train]}, outer)
    monkeypatch.setattr(folds, "sys", SimpleNamespace(_getframe=lambda depth: inner))
    part = supervision.supervision_of(X[train], {"pairs": pairs}).constraints
    expected = PAIRS.restrict(train, renumber=True)
    assert part.must_link.tolist() == expected.must_link.tolist()
    with pytest.raises(ValueError, match="must_link and cannot_link number the 150 rows of X"):
        supervision.supervision_of(X[train], {"must_link": [(0, 1)]})


# ---------------------------------------------------------------------- pipelines


def step_name(name: str, routed: bool) -> str:
    """Return the name of an argument of the last step, as ``Pipeline.fit`` takes it."""
    return name if routed else f"pckmeans__{name}"


@pytest.mark.parametrize("index", NAMES.values(), ids=NAMES)
def test_pipelines_that_drop_the_index_name_the_remedy(index: pd.Index, routing: bool) -> None:
    frame, pairs = pd.DataFrame(X, index=index).add_prefix("x"), PAIRS.to_frame(index)
    arguments = {step_name("pairs", routing): pairs}
    model = make_pipeline(StandardScaler(), PCKMeans(3, random_state=0))
    remedy = r'set_output\(transform="pandas"\), or pass sample_ids='
    with pytest.raises(ValueError, match=rf"{remedy}df\.index"):
        model.fit(frame, **arguments)
    with pytest.raises(ValueError, match=rf"{remedy}SampleIds\(df\.index\)"):
        search(model, "pckmeans__").fit(frame, **arguments)
    # Both remedies work, and give the fit to arrays.
    expected = make_pipeline(StandardScaler(), PCKMeans(3, random_state=0)).fit(
        X,
        **{step_name("must_link", routing): PAIRS.must_link},
        **{step_name("cannot_link", routing): PAIRS.cannot_link},
    )
    ids = {step_name("sample_ids", routing): index}
    labels = model.fit(frame, **arguments, **ids)[-1].labels_
    np.testing.assert_array_equal(labels, expected[-1].labels_)
    pandas = make_pipeline(StandardScaler(), PCKMeans(3, random_state=0))
    pandas.set_output(transform="pandas")
    labels = pandas.fit(frame, **arguments)[-1].labels_
    np.testing.assert_array_equal(labels, expected[-1].labels_)
    by_ids = {step_name("sample_ids", routing): SampleIds(index)}
    by_name = scores(search(model, "pckmeans__").fit(frame, **arguments, **by_ids))
    assert by_name == pytest.approx(scores(search(pandas, "pckmeans__").fit(frame, **arguments)))


def test_pipelines_of_rows_without_names_take_row_numbers(routing: bool) -> None:
    model = make_pipeline(StandardScaler(), PCKMeans(3, random_state=0))
    arguments = {step_name("pairs", routing): PAIRS.to_frame()}
    for data in (X, pd.DataFrame(X)):
        constraints = model.fit(data, **arguments)[-1].constraints_
        assert constraints.must_link.tolist() == PAIRS.must_link.tolist()


def test_names_without_an_index_name_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"has no index here: name its rows by sample_ids=df"):
        PCKMeans(3).fit(X, pairs=PAIRS.to_frame(NAMES["text"]))


# ---------------------------------------------------------------------- pairs as labels


@pytest.mark.parametrize(
    ("pairs", "call"),
    [
        (PAIRS.to_frame(), r"fit\(X, pairs=frame\)"),
        (PAIRS.to_frame()[["i", "j"]], r"fit\(X, pairs=frame\)"),
        (PAIRS, r"fit\(X, \*\*constraints.fit_params\(\)\)"),
        (PAIRS.must_link, r"fit\(X, must_link=pairs, or cannot_link=pairs\)"),
        ([(0, 1), (2, 3)], r"fit\(X, must_link=pairs"),
        ({(0, 1)}, r"fit\(X, must_link=pairs"),
        (iter([(0, 1)]), r"fit\(X, must_link=pairs"),
    ],
    ids=["frame", "columns", "Constraints", "array", "list", "set", "iterator"],
)
@pytest.mark.parametrize(
    "kind", [*KINDS, ConstrainedClusterCV, CorrelationClustering], ids=lambda kind: kind.__name__
)
def test_pairs_by_position_are_refused(kind: Any, pairs: Any, call: str) -> None:
    without = (DPMeans, SeededKMeans)
    takes = "must_link" in inspect.signature(kind.fit).parameters and not issubclass(kind, without)
    expected = call if takes else "takes no pairs"
    if kind is DPMeans:
        expected = "RDPMeans does|fit"
    for method in ("fit", "fit_predict"):
        with pytest.raises(TypeError, match=expected):
            getattr(estimator_of(kind), method)(X, pairs)


def test_pairs_by_position_are_refused_in_scores() -> None:
    model = PCKMeans(3, random_state=0).fit(X)
    with pytest.raises(TypeError, match=r"y of score is a table of pairs.*score\(X, pairs=frame"):
        model.score(X, PAIRS.to_frame())
    assert model.score(X, Y) == model.score(X)


def test_constraints_as_a_table_name_the_call() -> None:
    with pytest.raises(TypeError, match=r"pairs is of type Constraints.*pairs=constraints.to_fra"):
        PCKMeans(3).fit(X, pairs=PAIRS)


# ---------------------------------------------------------------------- faults of pairs


def faults(model: Any, data: Any = X, **pairs: Any) -> dict[Any, str]:
    """Return the warnings about faults of pairs, by their classes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data, **pairs)
    kinds = (ContradictoryPairsWarning, RepeatedPairsWarning)
    assert all(warning.filename == __file__ for warning in caught if warning.category in kinds)
    warnings_of_pairs = [warning for warning in caught if warning.category in kinds]
    assert len({warning.category for warning in warnings_of_pairs}) == len(warnings_of_pairs)
    return {warning.category: str(warning.message) for warning in warnings_of_pairs}


PAIRED: list[Any] = [
    kind
    for kind in [*KINDS, ConstrainedClusterCV]
    if "must_link" in inspect.signature(kind.fit).parameters and kind is not DPMeans
]


@pytest.mark.parametrize("kind", PAIRED, ids=lambda kind: kind.__name__)
def test_contradictions_and_repetitions_are_reported(kind: Any) -> None:
    small = X[::5]
    chain = {"must_link": [(0, 1), (1, 2), (1, 0)], "cannot_link": [(0, 2), (0, 20)]}
    soft = {"ml_weight": 1.0, "cl_weight": 1.0}
    messages = faults(estimator_of(kind), small, **chain, **soft)
    assert messages[ContradictoryPairsWarning].startswith(
        "contradictory pairs: must-links connect the points of 1 of 2 cannot-links, (0, 2)"
    )
    assert messages[RepeatedPairsWarning].startswith("repeated pairs: 1 of 5 are listed before")
    right = {"must_link": [(0, 1), (1, 2)], "cannot_link": [(0, 20)]}
    assert faults(estimator_of(kind), small, **right, **soft) == {}


def test_tables_report_contradictions_and_repetitions() -> None:
    pairs = Constraints([(0, 1), (1, 2)], [(0, 2)], n_points=150).to_frame()
    twice = pd.concat([pairs, pairs.iloc[:1].rename(columns={"i": "j", "j": "i"})])
    messages = faults(PCKMeans(3, random_state=0), pairs=twice)
    assert set(messages) == {ContradictoryPairsWarning, RepeatedPairsWarning}
    assert "1 of 4" in messages[RepeatedPairsWarning]


def test_pairs_of_weight_zero_and_hard_ones_are_no_contradictions() -> None:
    chain = {"must_link": [(0, 1), (1, 2)], "cannot_link": [(0, 2)]}
    model = PCKMeans(3, random_state=0)
    assert faults(model, **chain, ml_weight=[1.0, 0.0], cl_weight=1.0) == {}
    assert faults(model, **chain, ml_weight=1.0, cl_weight=0.0) == {}
    messages = faults(model, **chain, ml_weight=np.inf, cl_weight=1.0)
    assert set(messages) == {ContradictoryPairsWarning}


def test_votes_of_correlation_clustering_are_no_contradictions() -> None:
    pairs = {"must_link": [(0, 1), (1, 2), (1, 0)], "cannot_link": [(0, 2)]}
    assert set(faults(CorrelationClustering(), **pairs)) == {RepeatedPairsWarning}
