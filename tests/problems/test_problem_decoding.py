"""Decoding: likelihoods and parities from their definitions, the best word by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.problems.decoding import Decoding


def parity_checks(problem: il.Problem, bits: int) -> list[tuple[tuple[int, ...], int]]:
    """Read scopes and parities off the hard factors, which must be parity checks."""
    graph = problem.graph
    checks = []
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        odd = np.indices(table.shape).sum(axis=0) % 2
        parity = int(np.isinf(table.flat[0]))
        assert np.array_equal(np.isfinite(table), odd == parity)
        assert set(np.unique(table)) == {0.0, math.inf}
        checks.append((scope, parity))
    assert graph.n_variables == bits
    return checks


@given(
    degrees=st.sampled_from([(1, 3), (2, 4), (3, 6), (3, 4), (2, 5)]),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_gallager_codes_are_regular(degrees: tuple[int, int], blocks: int, seed: int) -> None:
    bit, check = degrees
    n = check * blocks
    problem = Decoding(length=n, bit_degree=bit, check_degree=check, seed=seed).build()
    checks = parity_checks(problem, n)
    assert len(checks) == n * bit // check
    assert all(len(set(scope)) == check for scope, _ in checks)
    assert np.bincount([v for scope, _ in checks for v in scope], minlength=n).tolist() == [bit] * n
    assert problem.truth is not None
    for scope, parity in checks:
        assert problem.truth[list(scope)].sum() % 2 == parity


def test_costs_of_the_binary_symmetric_channel() -> None:
    n = 42 * 12
    problem = Decoding(length=n, noise=0.1).build()
    unary = problem.graph.unary
    assert np.exp(-unary).sum(axis=1) == pytest.approx(1.0)
    assert sorted(set(np.round(np.exp(-unary).ravel(), 12))) == [0.1, 0.9]
    assert problem.truth is not None
    errors = (unary.argmin(axis=1) != problem.truth).mean()
    assert errors == problem.info["channel_errors"] == pytest.approx(0.1, abs=0.05)
    wrong = round(errors * n)
    expected = -wrong * math.log(0.1) - (n - wrong) * math.log(0.9)
    assert problem.graph.energy(problem.truth) == pytest.approx(expected)
    assert 0.4 < problem.truth.mean() < 0.6  # words are random, not the zero word


def test_costs_of_the_gaussian_channel() -> None:
    problem = Decoding(length=6000, channel="awgn", noise=0.8).build()
    unary = problem.graph.unary
    # (y - 1)^2 / 2s^2 and (y + 1)^2 / 2s^2: both roots give the same y.
    ratio = unary[:, 1] - unary[:, 0]
    y = ratio * 0.8**2 / 2
    assert np.allclose(unary[:, 0], (y - 1) ** 2 / (2 * 0.64))
    assert problem.truth is not None
    noise = y - (1.0 - 2.0 * problem.truth)
    assert noise.std() == pytest.approx(0.8, rel=0.05)
    assert noise.mean() == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(
    "family",
    [
        Decoding(length=300, noise=0.04),
        Decoding(length=300, channel="awgn", noise=0.7),
    ],
    ids=lambda family: family.spec,
)
def test_belief_propagation_decodes(family: Decoding) -> None:
    """Below the threshold of the code, bit-wise decoding by marginals leaves no errors."""
    problem = family.build()
    assert problem.info["channel_errors"] > 0.02
    solution = il.solve(problem.graph, "loopy-bp", seed=0, temperature=1.0, time_limit=20)
    assert solution.marginals is not None
    labels = np.array([row.argmax() for row in solution.marginals])
    assert problem.score(labels)["bit_errors"] == 0.0


def test_scores_count_bits_and_blocks() -> None:
    problem = Decoding(length=12).build()
    assert problem.truth is not None
    labels = problem.truth.copy()
    labels[[0, 3, 4]] ^= 1
    assert problem.score(labels) == {
        "bit_errors": 0.25,
        "block_error": 1.0,
        "accuracy": 0.75,
    }
