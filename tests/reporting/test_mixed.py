"""Mixed models against the theory of balanced designs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inference_lab.reporting.mixed import mixed_model

pytest.importorskip("statsmodels")


def balanced(seed=0, sets=8, draws=4, noises=(0.0, 0.1, 0.3)):
    """Return gains of a balanced design: 0.05 and 0.02 for a standard deviation of the noise."""
    rng = np.random.default_rng(seed)
    spread = np.std(noises)
    gains, facts = [], []
    for unit in range(sets):
        own = 0.03 * rng.normal()
        for draw in range(draws):
            of_draw = 0.02 * rng.normal()
            for noise in noises:
                slope = 0.02 * (noise - np.mean(noises)) / spread
                gain = 0.05 + own + of_draw + slope + 0.01 * rng.normal()
                gains.append((str(unit), str(draw), gain))
                facts.append({"noise": noise, "weight": math.exp(noise)})
    return gains, facts


def test_a_balanced_design_has_the_coefficients_of_least_squares():
    """Random intercepts change no fixed effect, and the mean varies as means of sets do."""
    gains, facts = balanced()
    mean, noise = mixed_model(gains, facts, ["noise"])
    y = np.array([g for _, _, g in gains])
    x = np.array([f["noise"] for f in facts])
    x = (x - x.mean()) / x.std()
    assert mean.value == pytest.approx(y.mean(), abs=1e-6)
    assert noise.value == pytest.approx((x * y).mean(), abs=1e-6)
    of_sets = [np.mean([g for u, _, g in gains if u == str(unit)]) for unit in range(8)]
    half = 1.96 * np.std(of_sets, ddof=1) / math.sqrt(8)
    assert (mean.high - mean.low) / 2 == pytest.approx(half, rel=0.02)
    # The slope is within draws: variation between sets and draws does not blur it.
    rest = y.reshape(8, 4, 3) - x.reshape(8, 4, 3) * noise.value
    rest = rest - rest.mean(axis=2, keepdims=True)
    error = math.sqrt((rest**2).sum() / (8 * 4 * 2 - 1) / len(y))
    assert (noise.high - noise.low) / 2 == pytest.approx(1.96 * error, rel=0.02)
    assert noise.p_value < 1e-6


def test_logarithms_and_draws_of_one_pair():
    gains, facts = balanced(seed=1)
    by_log = mixed_model(gains, facts, ["log weight"])[1]
    assert by_log.value == pytest.approx(mixed_model(gains, facts, ["noise"])[1].value)
    alone = [(u, str(n), g) for n, (u, _, g) in enumerate(gains)]
    assert mixed_model(alone, facts, ["noise"])[1].value == pytest.approx(by_log.value, abs=1e-6)


def test_models_that_cannot_be_fitted_are_refused():
    gains, facts = balanced(sets=2)
    with pytest.raises(ValueError, match="effect 'noise' must vary"):
        mixed_model(gains, [{"noise": 1.0}] * len(gains), ["noise"])
    one = [(u, d, g) for (u, d, g) in gains if u == "0"]
    with pytest.raises(ValueError, match="two sets at least, got 1"):
        mixed_model(one, facts[: len(one)], ["noise"])
