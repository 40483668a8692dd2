"""Data sets of single studies match the descriptions in their papers."""

from __future__ import annotations

import numpy as np
import pytest

from inference_lab.reports.patterns import PATTERNS, four_clouds
from inference_lab.reports.textures import gabor_magnitudes, site_centres, site_features
from inference_lab.studies.study_points import load_points


def test_patterns_are_as_described():
    sizes = {name: np.bincount(make()[1]).tolist() for name, make in PATTERNS.items()}
    assert sizes == {
        "two-spirals": [250, 250],
        "cluster-in-cluster": [250, 256],
        "corners": [138] * 4,
        "half-kernel": [250, 250],
        "crescent-full-moon": [75, 225],
        "outlier": [138, 138, 12, 12],
    }
    for name, make in PATTERNS.items():
        points, labels = make()
        again = load_points(name)
        assert (again.values == points).all() and (again.labels == labels).all()
        # Nearest neighbours reveal the classes, regardless of their centres.
        apart = ((points[:, None] - points) ** 2).sum(axis=2) + np.diag(np.full(len(points), 1e9))
        assert (labels[apart.argmin(axis=1)] == labels).mean() > 0.95


def test_the_toy_data_are_as_described():
    """Upper and lower explain the data better than left and right, which are almost separable."""
    points, labels = four_clouds()
    assert np.bincount(labels).tolist() == [100, 100]
    upper = (points[:, 1] > 0).astype(np.int64)
    assert sorted(np.bincount(2 * labels + upper).tolist()) == [50] * 4

    def spread(groups):
        return sum(
            ((points[groups == g] - points[groups == g].mean(axis=0)) ** 2).sum() for g in (0, 1)
        )

    assert spread(upper) < 0.5 * spread(labels)
    heights = [
        np.ptp(load_points(f"lange-toy{ratio}").values[:, 1]) for ratio in ("-1.1", "-1.6", "")
    ]
    assert np.allclose(np.diff(heights), [2 * 0.5, 2 * 0.4], atol=0.3)
    assert 0.985 <= ((points[:, 0] > 0) == labels).mean() <= 1.0


def test_textures_of_a_mosaic(data_dir):
    """Features separate the regions if a classifier may use the truth."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    points = load_points("outex-000", data_dir)
    assert points.values.shape == (101 * 101, 24)
    assert np.bincount(points.labels).min() > 1900
    np.testing.assert_allclose(points.values.mean(axis=0), 0.0, atol=1e-9)
    spread = points.values.std(axis=0)
    np.testing.assert_allclose(spread[3:], 1.0, atol=1e-9)
    assert (spread[:3] == 0).all()  # no pixel is that dark
    classifier = LinearDiscriminantAnalysis().fit(points.values, points.labels)
    assert classifier.score(points.values, points.labels) > 0.95


def test_gabor_filters_answer_to_their_wave_alone():
    """Each filter responds most to a wave of its own length and direction, none to constants."""
    y, x = np.mgrid[:96, :96]
    at = 0
    for wavelength in (4.0, 8.0, 16.0):
        for turn in range(4):
            angle = np.pi * turn / 4
            wave = np.cos(2 * np.pi / wavelength * (x * np.cos(angle) + y * np.sin(angle)))
            strength = gabor_magnitudes(100.0 + wave)[:, 48, 48]
            assert strength.argmax() == at
            # Half of the amplitude: the other half is in the wave of opposite direction.
            assert strength[at] == pytest.approx(0.5, abs=0.01)
            at += 1
    np.testing.assert_allclose(gabor_magnitudes(np.full((40, 40), 77.0)), 0.0, atol=1e-9)


def test_histograms_of_sites():
    image = np.zeros((60, 60), dtype=np.uint8)
    image[:, 30:] = 255
    features = site_features(image, sites=6, window=3)
    assert features.shape == (36, 24)
    left_half = np.tile(np.arange(6) < 3, 6)
    for column, sign in ((0, 1.0), (11, -1.0)):
        np.testing.assert_allclose(features[left_half, column], sign)
        np.testing.assert_allclose(features[~left_half, column], -sign)
    assert (features[:, 1:11] == 0).all()
    assert site_centres(512, 101)[[0, -1]].tolist() == [2, 509]
    with pytest.raises(ValueError, match="window must be odd, got 4"):
        site_features(image, sites=6, window=4)
    with pytest.raises(ValueError, match="at least 101 x 101"):
        site_features(image)
