"""Decoding: likelihoods and parities from their definitions, the best word by enumeration."""

from __future__ import annotations

import itertools
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
    found = []
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        odd = np.indices(table.shape).sum(axis=0) % 2
        parity = int(np.isinf(table.flat[0]))
        assert np.array_equal(np.isfinite(table), odd == parity)
        assert set(np.unique(table)) == {0.0, math.inf}
        found.append((scope, parity))
    assert graph.n_variables == bits
    return found


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


@pytest.mark.parametrize("code", ["gallager", "hamming"])
def test_costs_of_the_binary_symmetric_channel(code: str) -> None:
    n = 42 * 12
    problem = Decoding(code, length=n, noise=0.1).build()  # type: ignore[arg-type]
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


def test_chains_are_the_same_code() -> None:
    """The minimum over the partial sums equals the energy of the table form, for every word."""
    table = Decoding(length=10, bit_degree=1, check_degree=5).build()
    chain = Decoding(length=10, bit_degree=1, check_degree=5, checks="chain").build()
    assert chain.graph.n_variables == 10 + 2 * 2
    assert int(np.diff(chain.graph.factor_ptr).max()) == 3
    words = np.array(list(itertools.product((0, 1), repeat=10)))
    sums = np.array(list(itertools.product((0, 1), repeat=4)))
    full = np.concatenate([np.repeat(words, 16, axis=0), np.tile(sums, (1024, 1))], axis=1)
    best = chain.graph.energy(full).reshape(1024, 16).min(axis=1)
    assert np.allclose(best, table.graph.energy(words))
    assert np.isfinite(best).sum() == 1024 // 4
    assert chain.truth is not None and table.truth is not None
    assert chain.graph.energy(chain.truth) == pytest.approx(table.graph.energy(table.truth))
    long = Decoding(length=60, bit_degree=2, check_degree=30, checks="chain").build()
    assert long.truth is not None
    assert math.isfinite(long.graph.energy(long.truth))


def test_hamming_words_differ_in_three_bits() -> None:
    """There are 16 words a block, and any single flip is corrected to the word sent."""
    problem = Decoding("hamming", length=7).build()
    words = np.array(list(itertools.product((0, 1), repeat=7)))
    code = words[np.isfinite(problem.graph.energy(words))]
    assert len(code) == 16
    distances = (code[:, None] != code[None]).sum(axis=2)
    assert distances[~np.eye(16, dtype=bool)].min() == 3
    mended = 0
    for seed in range(12):
        problem = Decoding("hamming", length=7, noise=0.1, seed=seed).build()
        solution = il.solve(problem.graph, "brute-force")
        assert solution.labels is not None
        if problem.info["channel_errors"] <= 1 / 7 + 1e-12:
            assert problem.score(solution.labels)["bit_errors"] == 0.0
            mended += problem.info["channel_errors"] > 0
    assert mended > 0


def test_repeat_accumulate_words_are_sums_of_repetitions() -> None:
    problem = Decoding("repeat-accumulate", length=12, repeats=3).build()
    graph = problem.graph
    assert graph.n_variables == 4 + 12
    # For each choice of information bits one word: every sum follows from the ones before it.
    states = np.array(list(itertools.product((0, 1), repeat=16)))
    words = states[np.isfinite(graph.energy(states))]
    assert len(words) == 16
    assert len({tuple(w[:4]) for w in words.tolist()}) == 16
    # Differences of the sums are the permuted repetitions: each bit occurs three times.
    steps = np.diff(np.concatenate([np.zeros((16, 1), int), words[:, 4:]], axis=1), axis=1) % 2
    assert np.array_equal(steps.sum(axis=1), 3 * words[:, :4].sum(axis=1))
    assert problem.truth is not None
    assert problem.truth.tolist() in words.tolist()
    assert (graph.unary[:4] == 0).all()


def test_trellis_words_equal_outputs_of_the_shift_register() -> None:
    """Outputs b_t + b_(t-1) + b_(t-2) and b_t + b_(t-2), by a loop, for all inputs."""
    family = Decoding("convolutional", length=12, noise=0.2)
    problem = family.build()
    graph = problem.graph
    assert graph.is_forest
    # Recover the received bits from the trellis: a transition costs its two outputs.
    cheap, dear = -math.log(0.8), -math.log(0.2)
    finite: dict[tuple[int, ...], float] = {}
    for states in itertools.product(range(4), repeat=7):
        energy = graph.energy(np.array(states))
        if math.isfinite(energy):
            finite[states] = energy
    assert len(finite) == 2**4
    # E = cheap * agreements + dear * disagreements with the 12 received bits.
    outputs = {}
    for bits in itertools.product((0, 1), repeat=4):
        stream = [*bits, 0, 0]
        states, sent = [0], []
        for t, b in enumerate(stream):
            before = stream[t - 1] if t >= 1 else 0
            earlier = stream[t - 2] if t >= 2 else 0
            sent += [(b + before + earlier) % 2, (b + earlier) % 2]
            states.append(2 * b + before)
        outputs[tuple(states)] = np.array(sent)
    assert set(outputs) == set(finite)
    matches = []
    for received in itertools.product((0, 1), repeat=12):
        wrong = {s: int((np.array(received) != sent).sum()) for s, sent in outputs.items()}
        if all(math.isclose(finite[s], dear * w + cheap * (12 - w)) for s, w in wrong.items()):
            matches.append(received)
    assert len(matches) >= 1
    assert problem.truth is not None
    sent = outputs[tuple(problem.truth.tolist())]
    flips = [(np.array(received) != sent).mean() for received in matches]
    assert any(math.isclose(f, problem.info["channel_errors"]) for f in flips)


def test_the_viterbi_word_is_at_least_as_likely_as_the_one_sent() -> None:
    problem = Decoding("convolutional", length=1000, noise=0.04).build()
    solution = il.solve(problem.graph, "junction-tree")
    assert solution.status == "optimal"
    assert solution.labels is not None and problem.truth is not None
    assert solution.energy <= problem.graph.energy(problem.truth) + 1e-9
    scores = problem.score(solution.labels)
    assert scores["bit_errors"] < problem.info["channel_errors"] / 4


@pytest.mark.parametrize(
    "family",
    [
        Decoding(length=300, noise=0.04),
        Decoding(length=300, noise=0.04, checks="chain"),
        Decoding(length=300, channel="awgn", noise=0.7),
        Decoding("repeat-accumulate", length=300, noise=0.05),
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
    problem = Decoding(length=12, checks="chain").build()
    assert problem.truth is not None
    labels = problem.truth.copy()
    labels[[0, 3, 4]] ^= 1
    labels[-1] ^= 1  # a partial sum is no bit of the word
    assert problem.score(labels) == {
        "bit_errors": 0.25,
        "block_error": 1.0,
        "accuracy": 0.75,
    }
    trellis = Decoding("convolutional", length=24).build()
    assert trellis.truth is not None
    labels = trellis.truth.copy()
    labels[1] ^= 2  # the newest bit of the state after the first bit
    assert trellis.score(labels)["bit_errors"] == pytest.approx(1 / 10)
    labels = trellis.truth.copy()
    labels[1] ^= 1  # an older bit, which another variable carries
    assert trellis.score(labels)["bit_errors"] == 0.0
