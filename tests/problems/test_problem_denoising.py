"""Denoising: the energy from its definition, the noise, and its removal by minima."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.data.images import load_image, to_grey, write_image
from inference_lab.problems.image_denoising import DenoisingProblem, ImageDenoising, psnr


def slow_energy(family: ImageDenoising, problem: DenoisingProblem, labels: np.ndarray) -> float:
    """Return the energy pixel by pixel; the noisy image is recovered from the cheapest labels."""
    height, width = problem.shape
    k, weight = family.levels, float(problem.info["weight"])
    q = {"linear": 1, "quadratic": 2, "potts": 0}[family.smoothness]
    linear = family.data == "linear" or (family.data is None and family.noise == "impulse")
    total = 0.0
    for r in range(height):
        for c in range(width):
            row = problem.graph.unary[r * width + c]
            # With costs |x - g|^p of two levels, g is known, since they stay below the cap.
            if linear:
                a = int(row.argmin())
                b = a + 1 if a + 1 < k and (a == 0 or row[a + 1] <= row[a - 1]) else a - 1
                g = a + (row[a] if b > a else -row[a]) if row[a] + row[b] < 1.5 else a
            else:
                g = (row[0] - row[1] + 1.0) / 2.0 if math.isinf(family.data_cap) else math.nan
            deviation = abs(int(labels[r, c]) - g)
            total += min(deviation if linear else deviation**2, family.data_cap)
            steps = [(0, 1), (1, 0)] + ([(1, 1), (1, -1)] if family.diagonals else [])
            for down, right in steps:
                r2, c2 = r + down, c + right
                if 0 <= r2 < height and 0 <= c2 < width:
                    jump = abs(int(labels[r, c]) - int(labels[r2, c2]))
                    total += weight * (float(jump > 0) if q == 0 else min(jump**q, family.cap))
    return total


@given(
    seed=st.integers(0, 10**6),
    levels=st.sampled_from([2, 3, 7, 16]),
    noise=st.sampled_from(["gaussian", "impulse"]),
    data=st.sampled_from([None, "linear", "quadratic"]),
    smoothness=st.sampled_from(["potts", "linear", "quadratic"]),
    weight=st.sampled_from([None, 0.0, 2.5]),
    diagonals=st.booleans(),
)
def test_energy_is_that_of_the_definition(
    seed: int,
    levels: int,
    noise: str,
    data: str | None,
    smoothness: str,
    weight: float | None,
    diagonals: bool,
) -> None:
    family = ImageDenoising(
        levels=levels,
        noise=noise,  # type: ignore[arg-type]
        data=data,  # type: ignore[arg-type]
        smoothness=smoothness,  # type: ignore[arg-type]
        weight=weight,
        diagonals=diagonals,
        height=4,
        width=5,
        seed=seed,
    )
    problem = family.build()
    labels = np.random.default_rng(seed).integers(0, levels, (4, 5))
    expected = slow_energy(family, problem, labels)
    assert problem.graph.energy(labels.ravel()) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_data_costs_are_capped() -> None:
    plain, capped = (ImageDenoising(data_cap=cap).build().graph for cap in (math.inf, 4.0))
    assert np.array_equal(capped.unary, np.minimum(plain.unary, 4.0))


def test_noise_has_the_requested_strength() -> None:
    problem = ImageDenoising(levels=256, height=100, width=100, strength=10.0).build()
    assert problem.info["noisy_psnr"] == pytest.approx(10 * math.log10(255**2 / 100), abs=0.2)
    # 1.4 times the variance, in levels of one grey value.
    assert problem.info["weight"] == pytest.approx(140.0)
    flips = ImageDenoising(levels=2, noise="impulse", height=100, width=100, strength=0.2).build()
    assert flips.truth is not None
    wrong = (flips.graph.unary.argmin(axis=1) != flips.truth).mean()
    assert wrong == pytest.approx(0.2, abs=0.015)
    clean = ImageDenoising(strength=0.0, weight=0.0).build()
    assert "noisy_psnr" not in clean.info
    assert np.array_equal(clean.graph.unary.argmin(axis=1), clean.truth)


def test_seeds_of_image_and_noise_do_not_depend_on_each_other() -> None:
    one, two = ImageDenoising().build(), ImageDenoising(noise="impulse", strength=0.3).build()
    assert np.array_equal(one.truth, two.truth)
    assert not np.array_equal(one.truth, ImageDenoising(seed=1).build().truth)


def test_scores_by_hand() -> None:
    graph = il.FactorGraph.potts(np.zeros((4, 3)), [(0, 1)], 1.0)
    problem = DenoisingProblem(
        "p",
        graph,
        truth=np.array([0, 1, 2, 2]),
        shape=(2, 2),
        palette=np.array([0, 128, 255], np.uint8),
    )
    scores = problem.score([0, 1, 2, 1])
    assert scores["accuracy"] == 0.75
    assert scores["psnr"] == pytest.approx(10 * math.log10(255**2 / (127**2 / 4)))
    assert problem.score([0, 1, 2, 2])["psnr"] == math.inf
    assert psnr(np.array([0.0, 4.0]), np.array([0, 0], np.uint8)) == pytest.approx(
        10 * math.log10(65025 / 8)
    )


@pytest.mark.parametrize(
    ("settings_of", "accuracy"),
    [
        ({}, 0.8),
        ({"smoothness": "quadratic"}, 0.8),
        ({"levels": 2, "noise": "impulse"}, 0.98),
        ({"noise": "impulse"}, 0.97),
        ({"levels": 2, "strength": 90.0, "diagonals": True}, 0.98),
    ],
)
def test_minima_remove_noise(settings_of: dict[str, object], accuracy: float) -> None:
    """They gain at least 4 decibels; the chosen weights are plausible for all kinds of noise."""
    problem = ImageDenoising(**settings_of).build()  # type: ignore[arg-type]
    solution = il.solve(problem.graph, "alpha-expansion", seed=0)
    assert solution.labels is not None
    scores = problem.score(solution.labels)
    assert scores["psnr"] > problem.info["noisy_psnr"] + 4.0
    assert scores["accuracy"] > accuracy


def test_own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    colours = load_image("flower")[::10, ::10]
    write_image(tmp_path / "small.png", colours)
    photograph = ImageDenoising(str(tmp_path / "small.png"), levels=32).build()
    assert photograph.shape == (43, 64)
    grey = to_grey(colours)
    assert photograph.truth is not None
    shown = photograph.picture(photograph.truth)
    assert shown is not None
    assert np.abs(shown.astype(int) - grey).max() <= 5  # half of 255 / 31
    monkeypatch.chdir(tmp_path)
    write_image("mask.png", np.array([[0, 255, 0], [255, 0, 255]], np.uint8))
    mask = ImageDenoising("mask.png", levels=2, noise="impulse").build()
    assert mask.truth is not None
    assert mask.truth.tolist() == [0, 1, 0, 1, 0, 1]
    assert mask.name == "image-denoising(image=mask.png, levels=2, noise=impulse)"
