"""The constraints object: canonical form, errors, closure, sampling, noise."""

from __future__ import annotations

import copy
import pickle
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.constraints import Constraints, ContradictionError, point_indices


@st.composite
def constraint_sets(draw: st.DrawFn, per_pair: bool = True) -> Constraints:
    n = draw(st.integers(2, 12))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1])
    normal = st.lists(pair, max_size=10, unique_by=lambda p: (min(p), max(p)))
    ml, cl = draw(normal), draw(normal)
    weights: list[float | list[float]] = [2.0, 3.0]
    if per_pair and draw(st.booleans()):
        number = st.floats(0.0, 10.0)
        weights = [[draw(number) for _ in ml], [draw(number) for _ in cl]]
    return Constraints(ml, cl, weights[0], weights[1], n_points=n)


def as_set(pairs: npt.NDArray[np.int64]) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in pairs}


def brute_closure(c: Constraints) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Close by applying the two rules until nothing changes; contradictions are dropped first."""
    linked = np.eye(c.n_points, dtype=bool)
    for i, j in c.must_link:
        linked[i, j] = linked[j, i] = True
    for k in range(c.n_points):  # Warshall
        linked |= np.outer(linked[:, k], linked[k])
    ml = {(i, j) for i, j in combinations(range(c.n_points), 2) if linked[i, j]}
    cl = set()
    for i, j in c.cannot_link:
        if not linked[i, j]:
            for a in np.flatnonzero(linked[i]):
                for b in np.flatnonzero(linked[j]):
                    cl.add((int(min(a, b)), int(max(a, b))))
    return ml, cl


# --- canonical form ---------------------------------------------------------------------------


def test_pairs_are_ordered_sorted_distinct_and_read_only() -> None:
    c = Constraints([[3, 1], [0, 2], [1, 3]], [[4, 0]], n_points=5)
    assert [[0, 2], [1, 3]] == c.must_link.tolist()
    assert [[0, 4]] == c.cannot_link.tolist()
    assert c.must_link.dtype == np.int64
    assert len(c) == 3
    with pytest.raises(ValueError, match="read-only"):
        c.must_link[0, 0] = 9
    with pytest.raises(AttributeError):
        c.n_points = 3  # type: ignore[misc]


def test_per_pair_weights_follow_their_pairs() -> None:
    c = Constraints([[3, 1], [0, 2], [1, 3]], None, [5.0, 7.0, 5.0], n_points=5)
    assert [7.0, 5.0] == c.ml_weights.tolist()
    with pytest.raises(ValueError, match="read-only"):
        c.ml_weight[0] = 1.0  # type: ignore[index]


def test_input_arrays_are_neither_kept_nor_changed() -> None:
    pairs = np.array([[0, 1], [1, 2]])
    weights = np.array([1.0, 2.0])
    c = Constraints(pairs, None, weights, n_points=3)
    pairs[0] = weights[0] = 2
    assert [[0, 1], [1, 2]] == c.must_link.tolist()
    assert [1.0, 2.0] == c.ml_weights.tolist()


def test_empty_constraints() -> None:
    empties: list[npt.ArrayLike | None] = [None, [], np.zeros((0, 2), int), np.zeros((0, 2))]
    for empty in empties:
        c = Constraints(empty, empty, n_points=4)
        assert (0, 2) == c.must_link.shape
        assert len(c) == 0
        assert c == c.close()
        assert [] == c.neighbourhoods()
        assert (0, 2) == c.contradictions().shape
        assert c == c.flip(1.0, np.random.default_rng(0))
    none = Constraints(None, None, n_points=0)
    assert none == none.close()
    assert [] == none.neighbourhoods()
    assert Constraints(None, None, [], [], n_points=1) == Constraints(None, None, n_points=1)


def test_equality_hash_copy_and_pickle() -> None:
    c = Constraints([[0, 1], [1, 2]], [[2, 3]], [1.0, 2.0], 4.0, n_points=5)
    same = Constraints([[2, 1], [1, 0]], [[3, 2]], [2.0, 1.0], [4.0], n_points=5)
    assert c == same
    assert hash(c) == hash(same)
    assert c != same.with_weights(cl_weight=3.0)
    assert c != Constraints([[0, 1], [1, 2]], [[2, 3]], [1.0, 2.0], 4.0, n_points=6)
    assert c != "constraints"
    for twin in (pickle.loads(pickle.dumps(c)), copy.deepcopy(c)):
        assert c == twin
        assert not twin.must_link.flags.writeable
        assert not twin.ml_weights.flags.writeable
        assert not np.asarray(twin.ml_weight).flags.writeable


def test_repr_is_short() -> None:
    many = Constraints.sample(np.arange(1000) % 3, 5000, np.random.default_rng(0))
    assert len(repr(many)) < 100
    assert "ml_weight=<per pair>, cl_weight=inf" in repr(
        Constraints([[0, 1]], None, [2.0], np.inf, n_points=2)
    )


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"must_link": [[0, 1, 2]]}, ValueError, r"must_link has shape \(1, 3\)"),
        ({"must_link": [0, 1]}, ValueError, r"must_link has shape \(2,\)"),
        ({"must_link": [[0, 1], [2]]}, ValueError, "must_link is not an array of shape"),
        ({"must_link": [[0, 1.5]]}, TypeError, r"must_link\[0, 1\] = 1.5 is not an integer"),
        ({"must_link": [[True, False]]}, TypeError, r"must_link\[0, 0\] = True is not an"),
        ({"must_link": [[0, 1], [2, 9]]}, ValueError, r"must_link\[1, 1\] = 9 .* 0 to .* = 4"),
        ({"cannot_link": [[-1, 1]]}, ValueError, r"cannot_link\[0, 0\] = -1 is not a point"),
        ({"cannot_link": [[0, 1], [3, 3]]}, ValueError, r"cannot_link\[1\] = \(3, 3\) .* itself"),
        ({"must_link": np.array([[0, 2**63]], np.uint64)}, ValueError, "= 9223372036854775808 is"),
        ({"ml_weight": np.nan}, ValueError, "ml_weight = nan is not allowed"),
        ({"cl_weight": -1}, ValueError, "cl_weight = -1.0 is not allowed"),
        ({"ml_weight": "heavy"}, TypeError, "ml_weight has dtype"),
        ({"ml_weight": True}, TypeError, "ml_weight has dtype bool"),
        ({"ml_weight": [1.0, 2.0]}, ValueError, r"ml_weight has shape \(2,\).* each of the 1 rows"),
        (
            {"must_link": [[0, 1], [1, 2]], "ml_weight": [1.0, -0.5]},
            ValueError,
            r"ml_weight\[1\] = -0.5",
        ),
        (
            {"must_link": [[0, 1], [1, 2], [1, 0]], "ml_weight": [1.0, 2.0, 3.0]},
            ValueError,
            r"pair \(0, 1\) twice .* ml_weight\[0\] = 1 and ml_weight\[2\] = 3",
        ),
        ({"n_points": -1}, ValueError, "n_points = -1 is not allowed"),
        ({"n_points": 2.5}, TypeError, "n_points = 2.5 is not an integer"),
        ({"n_points": 2**40}, ValueError, "n_points = 1099511627776 is not allowed; .* at most"),
    ],
)
def test_errors_name_argument_value_position(
    arguments: dict[str, object], kind: type[Exception], message: str
) -> None:
    complete: dict[str, object] = {"must_link": [[0, 1]], "cannot_link": None, "n_points": 5}
    complete.update(arguments)
    with pytest.raises(kind, match=message):
        Constraints(**complete)  # type: ignore[arg-type]


def test_infinite_weights_are_hard_constraints() -> None:
    c = Constraints([[0, 1], [1, 2]], None, [1.0, np.inf], n_points=3)
    assert [1.0, np.inf] == c.ml_weights.tolist()
    assert np.inf == Constraints(None, None, cl_weight=np.inf, n_points=3).cl_weight


def test_point_indices_errors() -> None:
    with pytest.raises(ValueError, match=r"among\[2\] = 4 already occurs at among\[0\]"):
        point_indices([4, 1, 4], 5, name="among")
    with pytest.raises(ValueError, match=r"among\[1\] = 5 is not a point"):
        point_indices([4, 5], 5, name="among")
    with pytest.raises(ValueError, match="boolean mask of length 2"):
        point_indices([True, False], 5, name="among")
    with pytest.raises(ValueError, match=r"among has shape \(1, 1\)"):
        point_indices([[1]], 5, name="among")
    with pytest.raises(TypeError, match=r"among\[1\] = 1.5 is not an integer; row numbers or a"):
        point_indices([1.0, 1.5], 5, name="among")
    assert point_indices([3.0, 1.0], 5, name="among").tolist() == [3, 1]
    assert point_indices([], 5, name="among").dtype == np.int64


# --- closure ----------------------------------------------------------------------------------


@given(constraint_sets())
def test_closure_equals_brute_force_and_is_idempotent(c: Constraints) -> None:
    closed = c.close("drop")
    ml, cl = brute_closure(c)
    assert ml == as_set(closed.must_link)
    assert cl == as_set(closed.cannot_link)
    assert closed == closed.close("raise")


@given(constraint_sets())
def test_policies_on_contradictions(c: Constraints) -> None:
    component = c.components()
    bad = [(i, j) for i, j in c.cannot_link.tolist() if component[i] == component[j]]
    assert bad == [tuple(p) for p in c.contradictions().tolist()]
    if bad:
        with pytest.raises(ContradictionError, match=r"cannot-link pair\(s\) join") as caught:
            c.close()
        assert bad == [tuple(p) for p in caught.value.pairs.tolist()]
        assert c is c.close("keep")
        assert np.array_equal(caught.value.pairs, pickle.loads(pickle.dumps(caught.value)).pairs)
    else:
        assert c.close("raise") == c.close("drop") == c.close("keep")
    assert (0, 2) == c.close("drop").contradictions().shape


@given(constraint_sets())
def test_closure_keeps_given_weights_and_infers_the_mean(c: Constraints) -> None:
    closed = c.close("drop")
    dropped = as_set(c.contradictions())
    for pairs, weights, new_pairs, new_weights in (
        (c.must_link, c.ml_weights, closed.must_link, closed.ml_weights),
        (c.cannot_link, c.cl_weights, closed.cannot_link, closed.cl_weights),
    ):
        old_weights = {
            (i, j): w
            for (i, j), w in zip(pairs.tolist(), weights.tolist(), strict=True)
            if pairs is c.must_link or (i, j) not in dropped
        }
        for (i, j), w in zip(new_pairs.tolist(), new_weights.tolist(), strict=True):
            assert w == pytest.approx(old_weights.get((i, j), np.mean(list(old_weights.values()))))
    if not isinstance(c.ml_weight, np.ndarray):
        assert c.ml_weight == closed.ml_weight


def test_same_pair_in_both_lists_is_a_contradiction() -> None:
    c = Constraints([[0, 1]], [[1, 0], [1, 2]], n_points=3)
    assert [[0, 1]] == c.contradictions().tolist()
    assert [[0, 2], [1, 2]] == c.close("drop").cannot_link.tolist()


def test_contradiction_message_lists_the_first_few() -> None:
    chain = [[i, i + 1] for i in range(9)]
    c = Constraints(chain, [[0, j] for j in range(2, 10)], n_points=10)
    with pytest.raises(ContradictionError, match=r"8 cannot-link .*\(0, 2\), .*\(0, 6\) and 3 mor"):
        c.close()


def test_unknown_policy() -> None:
    with pytest.raises(ValueError, match="policy = 'ignore' is unknown"):
        Constraints(None, None, n_points=1).close("ignore")  # type: ignore[arg-type]


def test_chain_of_100_000_points() -> None:
    n = 100_000
    chain = np.column_stack((np.arange(n - 1), np.arange(1, n)))
    c = Constraints(chain, [[0, n - 1]], n_points=n)
    (only,) = c.neighbourhoods()
    assert np.array_equal(np.arange(n), only)
    assert [[0, n - 1]] == c.contradictions().tolist()
    with pytest.raises(ValueError, match="largest must-link component has 100000 of 100000"):
        c.close("drop")


def test_guard_counts_cannot_link_pairs_too() -> None:
    stars = [[0, i] for i in range(1, 50)] + [[50, i] for i in range(51, 100)]
    c = Constraints(stars, [[0, 50]], n_points=100)
    pairs = 2 * (50 * 49 // 2) + 50 * 50
    assert pairs == len(c.close(max_pairs=pairs))
    with pytest.raises(ValueError, match=r"2450 must-link and 2500 .* max_pairs = 4949"):
        c.close(max_pairs=pairs - 1)


def test_neighbourhoods_largest_first_then_smallest_point() -> None:
    c = Constraints([[8, 9], [2, 3], [4, 5], [5, 6]], [[0, 1]], n_points=10)
    assert [[4, 5, 6], [2, 3], [8, 9]] == [n.tolist() for n in c.neighbourhoods()]


# --- sampling and noise -----------------------------------------------------------------------


@given(st.integers(2, 30), st.integers(1, 4), st.integers(0, 2**32 - 1), st.data())
def test_sampled_pairs_agree_with_labels_and_stay_among(
    n_points: int, n_classes: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n_points)
    among = rng.permutation(n_points)[: data.draw(st.integers(0, n_points))]
    available = among.size * (among.size - 1) // 2
    n = data.draw(st.integers(0, available))
    c = Constraints.sample(labels, n, rng, among)
    assert n == len(c)
    assert all(labels[i] == labels[j] for i, j in c.must_link)
    assert all(labels[i] != labels[j] for i, j in c.cannot_link)
    assert set(np.concatenate((c.must_link, c.cannot_link)).ravel()) <= set(among)
    assert (0, 2) == c.contradictions().shape
    with pytest.raises(ValueError, match=f"only {available} unordered pairs"):
        Constraints.sample(labels, available + 1, rng, among)


def test_sample_takes_a_mask_and_string_labels() -> None:
    c = Constraints.sample(
        ["a", "b", "a", "b"], 3, np.random.default_rng(0), among=[True, True, True, False]
    )
    assert [[0, 2]] == c.must_link.tolist()
    assert [[0, 1], [1, 2]] == c.cannot_link.tolist()


@pytest.mark.parametrize("n", [3, 20])
def test_sample_is_uniform_over_pairs(n: int) -> None:
    """Both branches (dense permutation, sparse rejection) draw every pair equally often."""
    rng = np.random.default_rng(5)
    hits = np.zeros((12, 12))
    rounds = 3000
    for _ in range(rounds):
        c = Constraints.sample(np.zeros(12), n, rng)
        hits[c.must_link[:, 0], c.must_link[:, 1]] += 1
    observed = hits[np.triu_indices(12, 1)] / rounds
    expected = n / 66
    deviation = np.sqrt(expected * (1 - expected) / rounds)
    assert np.abs(observed - expected).max() < 5 * deviation


def test_sample_large_without_quadratic_memory() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(10, size=300_000)
    c = Constraints.sample(labels, 500_000, rng)
    assert 500_000 == len(c)
    assert len(c.must_link) / len(c) == pytest.approx(0.1, abs=0.005)


def test_sample_is_repeatable_and_needs_a_generator() -> None:
    labels = np.arange(50) % 3
    draws = [Constraints.sample(labels, 40, np.random.default_rng(3)) for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0] != Constraints.sample(labels, 40, np.random.default_rng(4))
    with pytest.raises(TypeError, match=r"rng is of type int; a numpy.random.Generator is needed"):
        Constraints.sample(labels, 40, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"labels\[1\] is missing \(nan\)"):
        Constraints.sample([0.0, np.nan], 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="n = -1 is not allowed"):
        Constraints.sample(labels, -1, np.random.default_rng(0))


@given(st.integers(0, 60), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1), st.booleans())
def test_flip_changes_exactly_the_share(n: int, share: float, seed: int, per_pair: bool) -> None:
    rng = np.random.default_rng(seed)
    c = Constraints.sample(np.arange(12) % 3, n, rng)
    if per_pair:
        c = c.with_weights(rng.random(len(c.must_link)), rng.random(len(c.cannot_link)))
    noisy = c.flip(share, rng)
    assert len(c) == len(noisy)
    flipped = as_set(c.must_link) & as_set(noisy.cannot_link)
    flipped |= as_set(c.cannot_link) & as_set(noisy.must_link)
    assert round(share * n) == len(flipped)
    if per_pair:
        pairs = [as_set(k.must_link) | as_set(k.cannot_link) for k in (c, noisy)]
        assert pairs[0] == pairs[1]
        assert weight_of(c) == weight_of(noisy)


def weight_of(c: Constraints) -> dict[tuple[int, int], float]:
    pairs = np.concatenate((c.must_link, c.cannot_link)).tolist()
    weights = np.concatenate((c.ml_weights, c.cl_weights)).tolist()
    return {(i, j): w for (i, j), w in zip(pairs, weights, strict=True)}


def test_flip_errors() -> None:
    rng = np.random.default_rng(0)
    c = Constraints([[0, 1]], [[0, 1], [1, 2]], n_points=3)
    with pytest.raises(ValueError, match=r"\(0, 1\) is both .* \(1 such pairs\); flip"):
        c.flip(0.5, rng)
    for share in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="share = "):
            Constraints([[0, 1]], None, n_points=3).flip(share, rng)


def test_with_weights_keeps_weights_not_given() -> None:
    c = Constraints([[0, 1]], [[1, 2]], 2.0, 3.0, n_points=3)
    changed = c.with_weights(cl_weight=[7.0])
    assert 2.0 == changed.ml_weight
    assert [7.0] == changed.cl_weights.tolist()
    assert 3.0 == c.cl_weight
