"""Pairs, tables and measures of the comparison with PCCC."""

from __future__ import annotations

import numpy as np
import pytest
from pccc import (
    SHARES,
    Pairs,
    best_variant,
    log_odds,
    measures,
    noisy_pairs,
    points_of,
    read_table,
    right_pairs,
)


@pytest.mark.parametrize(
    "name, share, must, cannot",
    # Table W2 of the external appendix, and W3 for the last.
    [
        ("n300-k10-s10", SHARES["COL2"][1], 46, 389),
        ("n300-k10-s10", SHARES["COL2"][2], 89, 946),
        ("n300-k50-s40", SHARES["COL2"][-1], 209, 10966),
        ("n500-k20", 0.1, 58, 1167),
    ],
)
def test_synthetic_sets_have_the_published_numbers_of_pairs(name, share, must, cannot):
    _, classes = points_of(name, None)
    pairs = right_pairs(classes, share)
    assert (len(pairs.must), len(pairs.cannot)) == (must, cannot)
    assert (classes[pairs.must[:, 0]] == classes[pairs.must[:, 1]]).all()
    assert (classes[pairs.cannot[:, 0]] != classes[pairs.cannot[:, 1]]).all()


def test_noisy_pairs_are_as_often_right_as_their_confidence():
    classes = np.arange(2000) % 2
    pairs = noisy_pairs(classes, 0.05, 0.5)
    right = np.concatenate(
        [
            classes[pairs.must[:, 0]] == classes[pairs.must[:, 1]],
            classes[pairs.cannot[:, 0]] != classes[pairs.cannot[:, 1]],
        ]
    )
    confidence = np.concatenate([pairs.must_confidence, pairs.cannot_confidence])
    assert confidence.min() >= 0.5
    for low in (0.5, 0.75):
        part = (confidence >= low) & (confidence < low + 0.25)
        assert right[part].mean() == pytest.approx(low + 0.125, abs=0.03)
    assert (pairs.must[:, 0] < pairs.must[:, 1]).all()


def test_tables_of_keel_and_uci():
    text = "@relation a\n@attribute X real[0, 1]\n@data\nX,Y,Class\n1.0E-1, 2, b\n3,4,a\n\n"
    points, classes = read_table(text, ",", -1)
    assert points.tolist() == [[0.1, 2.0], [3.0, 4.0]]
    assert classes.tolist() == [1, 0]
    assert read_table("T,2,8\nI,5,12", ",", 0)[0].tolist() == [[2.0, 8.0], [5.0, 12.0]]


def test_measures_of_a_clustering():
    points = np.array([[0.0], [2.0], [10.0], [13.0]])
    pairs = Pairs(np.array([[0, 1], [1, 2]]), np.array([[2, 3]]), np.ones(2), np.ones(1))
    figures = measures(points, np.array([0, 0, 1, 1]), np.array([5, 5, 9, 9]), pairs)
    assert figures == {"ari": 1.0, "inertia": 6.5, "must_violations": 1, "violations": 1}
    assert log_odds(np.array([0.5, 0.75, 1.0])) == pytest.approx([0.0, np.log(3.0), np.inf])


def test_the_variant_of_a_group_has_the_highest_mean():
    rows = [{"A": {"ari": "0.9"}, "B": {"ari": "0.8"}}, {"A": {"ari": ""}, "B": {"ari": "0.5"}}]
    assert best_variant(rows) == "B"
