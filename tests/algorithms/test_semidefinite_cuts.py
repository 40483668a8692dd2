"""Inequalities for Gram matrices of labellings: valid for all, and found if violated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from inference_lab.algorithms.semidefinite.cuts import (
    CutRows,
    TriangleSearch,
    add_patterns,
    add_triangles,
    find_patterns,
    patterns,
)


def gram(labels: np.ndarray, k: int) -> np.ndarray:
    """Return the Gram matrix of a labelling: 1 for equal labels, -1 / (k - 1) elsewhere."""
    return np.where(labels[:, None] == labels, 1.0, -1.0 / (k - 1))


def all_labellings(q: int, k: int) -> np.ndarray:
    return np.array(list(itertools.product(range(k), repeat=q)))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_patterns_hold_for_all_labellings_and_with_equality_for_some(k: int) -> None:
    for pattern in patterns(k):
        q = len(pattern.weights)
        upper = np.triu(pattern.weights, 1)
        sums = [float((upper * gram(x, k)).sum()) for x in all_labellings(q, min(k, 3))]
        if k <= 3:
            assert max(sums) == pytest.approx(pattern.bound, abs=1e-9)
        assert max(sums) <= pattern.bound + 1e-9


def test_cliques_of_many_labels_hold() -> None:
    k = 9
    clique = patterns(k)[-1]
    assert len(clique.weights) == k + 1
    for labels in (np.arange(k + 1) % k, np.arange(k + 1) // 2, np.zeros(k + 1)):
        total = float((np.triu(clique.weights, 1) * gram(labels, k)).sum())
        assert total <= clique.bound + 1e-9
    # It is tight if all labels are in use and one is used twice.
    tight = float((np.triu(clique.weights, 1) * gram(np.arange(k + 1) % k, k)).sum())
    assert tight == pytest.approx(clique.bound)


def brute_triangles(x: np.ndarray, two: bool) -> dict[float, int]:
    """Return the violation of the worst inequality of each triple, and the count of each."""
    n = len(x)
    violations = []
    for j, i, h in itertools.combinations(range(n), 3):
        a, b, c = x[i, j], x[h, i], x[h, j]
        sides = [b + c - a, b + a - c, c + a - b] + ([-a - b - c] if two else [])
        violations.append(round(max(sides) - 1.0, 12))
    values, counts = np.unique([v for v in violations if v > 0.1], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("two", [True, False])
def test_all_violated_triangles_are_found(two: bool) -> None:
    rng = np.random.default_rng(0)
    x = np.tril(rng.uniform(-0.7, 1.0, size=(12, 12)), -1)
    x += x.T
    np.fill_diagonal(x, 1.0)
    search = TriangleSearch(x, two, 0.1, 1000, 10**9, rng)
    for top in search.tops.tolist():
        search.look(top)
    codes = search.codes(np.empty(0, dtype=np.int64))
    rows = CutRows(12, -1.0)
    add_triangles(rows, codes, 12)
    violations = np.round(-rows.slacks(x), 12)
    values, counts = np.unique(violations, return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == brute_triangles(x, two)
    assert (rows.key == codes).all()
    # None of them is found again.
    assert search.codes(rows.key).size == 0


def test_a_full_buffer_keeps_the_most_violated_triangles() -> None:
    rng = np.random.default_rng(1)
    x = np.tril(rng.uniform(-1.0, 1.0, size=(40, 40)), -1)
    x += x.T
    slacks = []
    for size in (20, 10**5):
        search = TriangleSearch(x, True, 0.0, size, 10**9, rng)
        for top in search.tops.tolist():
            search.look(top)
        rows = CutRows(40, -1.0)
        add_triangles(rows, search.codes(np.empty(0, dtype=np.int64))[:20], 40)
        slacks.append(np.sort(-rows.slacks(x)))
    assert slacks[0].size == 20
    assert slacks[0] == pytest.approx(slacks[1])


def test_large_matrices_are_sampled() -> None:
    rng = np.random.default_rng(2)
    search = TriangleSearch(np.zeros((100, 100)), True, 0.1, 10, 10_000, rng)
    assert 0 < search.tops.size < 20
    assert np.unique(search.tops).size == search.tops.size


def test_a_violated_pattern_is_found_and_added() -> None:
    """Five of seven nodes are spread evenly: ``X = -1/4`` between them, far from labellings."""
    x = np.full((7, 7), 0.2)
    x[:5, :5] = -0.25
    np.fill_diagonal(x, 1.0)
    rng = np.random.default_rng(3)
    pentagon = patterns(2)[0]
    none = np.empty(0, dtype=np.int64)
    violated = find_patterns(x, pentagon, 0, True, 50, 0.1, none, rng)
    assert violated is not None
    deepest = int(violated.depth.argmax())
    assert sorted(violated.nodes[deepest].tolist()) == [0, 1, 2, 3, 4]
    # The sum of X over the ten pairs is -2.5, not at least -2.
    assert violated.depth[deepest] * np.sqrt(10) == pytest.approx(0.5)
    rows = CutRows(7, -1.0)
    add_patterns(rows, violated, violated.depth > 0.0)
    assert rows.slacks(x) == pytest.approx(-violated.depth * np.sqrt(10))
    for x_ in all_labellings(7, 2):
        assert rows.slacks(gram(x_, 2)).min() >= -1e-9
    again = find_patterns(x, pentagon, 0, True, 50, 0.1, rows.key, rng)
    assert again is not None and again.depth.size == 0
    assert find_patterns(x[:4, :4], pentagon, 0, True, 5, 0.1, none, rng) is None


def test_rows_drop_fixed_entries_and_keep_selected_rows() -> None:
    rows = CutRows(4, -0.5)
    nodes = np.array([[1, 2], [5, 3]]), np.array([[0, 1], [4, 0]])
    rows.add(nodes, np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([1.0, 2.0]), np.array([7, 8]))
    # The entry between nodes 4 and 5 is fixed at -0.5.
    assert rows.rhs.tolist() == [1.0, 3.5]
    assert rows.norm.tolist() == [5.0, 1.0]
    x = np.arange(36.0).reshape(6, 6)
    assert rows.slacks(x).tolist() == [1.0 - x[1, 0] - 2 * x[2, 1], 3.5 + x[3, 0]]
    rows.keep(np.array([False, True]))
    assert rows.key.tolist() == [8] and rows.slacks(x).tolist() == [3.5 + x[3, 0]]
