"""Scores against scikit-learn, against brute force over pairs, and at the edges."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from inference_lab.results.scoring import (
    Average,
    adjusted_rand,
    matched_accuracy,
    nmi,
    pairwise_f,
    score,
)

MEASURES = [pairwise_f, nmi, adjusted_rand, matched_accuracy]

Labels = npt.NDArray[np.int64]


@st.composite
def two_labellings(draw: st.DrawFn, largest: int = 30) -> tuple[Labels, Labels]:
    n = draw(st.integers(1, largest))
    rows = st.lists(st.integers(-1, 5), min_size=n, max_size=n)
    return np.array(draw(rows)), np.array(draw(rows))


# --- against independent computations ---------------------------------------------------------


@given(two_labellings())
def test_nmi_and_ari_equal_scikit_learn(pair: tuple[Labels, Labels]) -> None:
    truth, labels = pair
    assert adjusted_rand_score(truth, labels) == pytest.approx(adjusted_rand(truth, labels))
    assert nmi(truth, labels) == nmi(truth, labels, "arithmetic")
    averages: tuple[Average, ...] = ("arithmetic", "geometric")
    for average in averages:
        expected = normalized_mutual_info_score(truth, labels, average_method=average)
        assert expected == pytest.approx(nmi(truth, labels, average), abs=1e-9)


@given(two_labellings(12))
def test_pairwise_f_equals_counting_pairs(pair: tuple[Labels, Labels]) -> None:
    truth, labels = pair
    together = [
        (truth[i] == truth[j], labels[i] == labels[j])
        for i, j in combinations(range(len(truth)), 2)
    ]
    both = sum(t and p for t, p in together)
    true = sum(t for t, _ in together)
    predicted = sum(p for _, p in together)
    f = 2 * both / (true + predicted) if true + predicted else 1.0
    assert f == pytest.approx(pairwise_f(truth, labels))


@given(two_labellings())
def test_matched_accuracy_equals_an_assignment_of_all_cells(
    pair: tuple[Labels, Labels],
) -> None:
    dense = contingency_matrix(*pair)
    best = dense[linear_sum_assignment(dense, maximize=True)].sum()
    assert matched_accuracy(*pair) == best / len(pair[0])


@given(two_labellings(), st.permutations(range(-1, 6)))
def test_scores_ignore_names_and_order_of_points(
    pair: tuple[Labels, Labels], names: list[int]
) -> None:
    truth, labels = pair
    renamed = np.array(names)[labels + 1]
    order = np.random.default_rng(0).permutation(len(truth))
    expected = score(truth, labels)
    assert expected == pytest.approx(score(truth[order], renamed[order]))
    assert expected == pytest.approx(score(truth.astype(str), renamed))


# --- edges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_equal_partitions_score_exactly_one(measure: object) -> None:
    assert callable(measure)
    random = np.random.default_rng(0).integers(7, size=101)
    for labels in ([3], [3, 3, 3], [1, 2, 3], [0, 0, 1], random):
        assert 1.0 == measure(labels, -np.array(labels))


@pytest.mark.parametrize("measure", MEASURES)
def test_empty_is_nan(measure: object) -> None:
    assert callable(measure)
    assert math.isnan(measure([], []))


@pytest.mark.parametrize("measure", [*MEASURES, score])
def test_input_errors(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[3, 2\]"):
        measure([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match=r"1d array, got an array of shape \(1, 2\)"):
        measure([0, 1], [[0, 1]])
    with pytest.raises(ValueError, match="truth contains NaN"):
        measure([0, np.nan], [0, 1])


def test_unknown_average() -> None:
    with pytest.raises(ValueError, match="average = 'max' is unknown"):
        nmi([0], [0], "max")  # type: ignore[arg-type]


def test_large_inputs_stay_sparse() -> None:
    """A dense table of this size has 7 GB."""
    n = 30_000
    labels = np.random.default_rng(0).permutation(n)
    assert {"pairwise_f": 1.0, "nmi": 1.0, "ari": 1.0, "accuracy": 1.0} == score(
        np.arange(n), labels
    )
    assert 20 / n == matched_accuracy(np.arange(n) % 20, labels)
    assert 0.5 == matched_accuracy(np.arange(n) // 2, labels)


# --- score ------------------------------------------------------------------------------------


def test_score_keys_and_scored_points() -> None:
    truth = np.array([0, 0, 1, 1, 2, 2])
    labels = np.array([0, 1, 1, 1, 2, 0])
    assert ["pairwise_f", "nmi", "ari", "accuracy"] == list(score(truth, labels))
    points = [4, 2, 3, 1]
    mask = np.isin(np.arange(6), points)
    expected = score(truth[points], labels[points])
    assert expected == score(truth, labels, scored=points)
    assert expected == score(truth, labels, scored=mask)
    assert expected != score(truth, labels)
    assert all(type(v) is float for v in expected.values())
    assert all(math.isnan(v) for v in score(truth, labels, scored=[]).values())
    with pytest.raises(IndexError):
        score(truth, labels, scored=[0, 6])


def test_import_is_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys, inference_lab.results.scoring, inference_lab.constraints.centroids; "
        "sys.exit(any(m in sys.modules for m in ('sklearn', 'scipy.optimize', 'pandas')))"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
