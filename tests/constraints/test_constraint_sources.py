"""Constraints from files, labels and noisy answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from inference_lab.constraints import Constraints, ContradictionError
from inference_lab.constraints.vote import vote
from inference_lab.graph.arrays import connected

IRIS = load_iris().target


@st.composite
def constraints(draw, hard=True):
    n = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count = draw(st.integers(0, n * (n - 1) // 2))
    c = Constraints.sample(rng.integers(3, size=n), count, rng)
    how = draw(st.sampled_from(["one", "each"]))
    if how == "one":
        return c.with_weights(2.5, 0.125)
    weights = [rng.gamma(1.0, size=len(p)) + 1e-3 for p in (c.must_link, c.cannot_link)]
    if hard:
        for values in weights:
            values[rng.random(values.size) < 0.2] = np.inf
    return c.with_weights(*weights)


@given(c=constraints(), named=st.booleans())
def test_files_round_trip(c, named, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    ids = (
        [f"point, {i}\n" if i % 3 == 0 else f'"{i}"' for i in range(c.n_points)] if named else None
    )
    c.write_csv(folder / "c.csv", sample_ids=ids)
    given_points = {"sample_ids": ids} if named else {"n_points": c.n_points}
    assert Constraints.read_csv(folder / "c.csv", **given_points) == c


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("i,j\n0,1\n", ": pairs must have the columns i, j, kind"),
        ("i,j,kind,weight\n0,1,must-link\n", ": line 2 has not one field for each column"),
        (
            "i,j,kind,weight\n0,1,must-link,1\n\n0,9,must-link,1\n",
            ": line 4 (i='0', j='9', kind='must-link', ",
        ),
        ("i,j,kind,weight\n0,-1,must-link,1\n", ": line 2 (i='0', j='-1'"),
        (
            "i,j,kind,weight\n0,0,must-link,1\n",
            "weight=1.0) pairs a point with itself",
        ),
        (
            "i,j,kind,weight\n0,1,may-link,1\n",
            ": line 2 (i='0', j='1', kind='may-link'",
        ),
        ("i,j,kind,weight\n0,1,must-link,-1\n", "weight='-1') has no weight that is a number"),
        ("i,j,kind,weight\n0,1,must-link,nan\n", "weight='nan') has no weight that is a number"),
        ("i,j,kind,weight\n0,1,must-link,__import__('os')\n", ": line 2 (i="),
        (
            "i,j,kind,weight\n0,1,must-link,1\n1,0,must-link,2\n",
            "twice as one kind, with",
        ),
        (b"i,j,kind\n0,\x81,must-link\n", "byte 0x81 in position 11"),
    ],
)
def test_a_bad_csv_file_is_named_with_its_line(tmp_path, content, message):
    path = tmp_path / "c.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"c\.csv") as caught:
        Constraints.read_csv(path, 5)
    assert message in str(caught.value)


def test_blanks_around_cells_are_skipped(tmp_path):
    """Files are written by hand; blanks count only where names have them."""
    path = tmp_path / "c.csv"
    path.write_text('i, j ,kind, weight\n 1,  "0, b", must-link ,\t2.5\n\n0,1 , cannot-link,1\n')
    read = Constraints.read_csv(path, sample_ids=["0", "1", "0, b"])
    assert read.must_link.tolist() == [[1, 2]] and read.cannot_link.tolist() == [[0, 1]]
    assert (read.ml_weights.tolist(), read.cl_weights.tolist()) == ([2.5], [1.0])
    path.write_text("i,j,kind\n0, 1,must-link\n")
    with pytest.raises(ValueError, match=r"line 2 \(.* names no point"):
        Constraints.read_csv(path, sample_ids=["0", " 0", "1"])
    spaced = Constraints([[0, 1]], [], n_points=2)
    spaced.write_csv(path, sample_ids=[" a", "a "])
    assert Constraints.read_csv(path, sample_ids=[" a", "a "]) == spaced
    path.write_text("i, j, kind\n")
    assert len(Constraints.read_csv(path, 3)) == 0


def test_labels_give_pairs_or_chains_that_imply_them():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(60) < 0.5, -1, rng.integers(4, size=60))
    every = Constraints.from_labels(labels)
    labelled = np.flatnonzero(labels >= 0)
    assert len(every) == labelled.size * (labelled.size - 1) // 2
    assert (labels[every.must_link[:, 0]] == labels[every.must_link[:, 1]]).all()
    assert (labels[every.cannot_link[:, 0]] != labels[every.cannot_link[:, 1]]).all()
    chains = Constraints.from_labels(labels, scheme="chains")
    assert len(chains) < labelled.size + 6
    assert chains.close() == every
    # A chain through 100,000 points, without recursion.
    long = Constraints.from_labels(np.zeros(100_000, dtype=int), scheme="chains")
    assert len(long) == 99_999
    assert len(long.neighbourhoods()) == 1


@given(seed=st.integers(0, 10**6), share=st.floats(0.1, 0.9))
def test_no_held_out_point_is_ever_touched(seed, share):
    rng = np.random.default_rng(seed)
    train, test = np.split(rng.permutation(150), [round(150 * share)])
    drawn = Constraints.sample(IRIS, 40, rng, among=train)
    assert drawn.touches(test).size == 0
    assert drawn.close().touches(test).size == 0
    assert set(drawn.touches(train)) == set(
        np.unique([*drawn.must_link.ravel(), *drawn.cannot_link.ravel()])
    )


def test_noise_percolates_through_closure_but_not_through_the_vote():
    # Answers about 3 % of the ordered pairs of iris, 5 % of them wrong, as in Khashabi et al.
    sizes, voted, purity = [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        noisy = Constraints.sample(IRIS, 665, rng).flip(0.05, rng)
        sizes.append(np.bincount(noisy.close("drop", max_pairs=10**6).components()).max())
        clean = noisy.close("vote")
        assert clean.contradictions().size == 0
        component = clean.components()
        largest = np.bincount(component).max()
        voted.append(largest)
        groups = [IRIS[component == g] for g in np.unique(component)]
        purity.append(sum(np.bincount(g).max() for g in groups) / 150)
    assert min(sizes) >= 140
    assert max(voted) <= 55
    assert min(purity) > 0.95


@given(c=constraints())
def test_the_vote_leaves_no_contradiction_and_drops_nothing_without_one(c):
    flipped = c.flip(0.3, np.random.default_rng(0))
    try:
        voted = flipped.vote()
    except ContradictionError:
        hard = [np.isinf(w) for w in (flipped.ml_weights, flipped.cl_weights)]
        only = Constraints(
            flipped.must_link[hard[0]], flipped.cannot_link[hard[1]], n_points=c.n_points
        )
        assert only.contradictions().size > 0
        return
    assert voted.contradictions().size == 0
    if flipped.contradictions().size == 0:
        assert voted == flipped
    assert voted.vote() == voted
    # Hard pairs are never dropped.
    for pairs, weights, voted_pairs in (
        (flipped.must_link, flipped.ml_weights, voted.must_link),
        (flipped.cannot_link, flipped.cl_weights, voted.cannot_link),
    ):
        remaining = {tuple(p) for p in voted_pairs.tolist()}
        assert all(tuple(p) in remaining for p in pairs[np.isinf(weights)].tolist())


def test_vote_is_a_local_optimum_of_the_violated_weight():
    rng = np.random.default_rng(3)
    pairs = np.array([(i, j) for j in range(20) for i in range(j)])
    evidence = rng.normal(size=len(pairs))
    group = vote(20, pairs, evidence)

    def violated(g):
        same = g[pairs[:, 0]] == g[pairs[:, 1]]
        return -evidence[same].sum()

    best = violated(group)
    for unit in range(20):
        for other in range(group.max() + 2):
            moved = group.copy()
            moved[unit] = other
            assert violated(moved) >= best - 1e-9
    assert connected(5, np.array([[0, 1], [3, 4]])).tolist() == [0, 0, 1, 2, 2]


def test_restriction_and_fit_arguments():
    c = Constraints([[0, 3], [3, 4]], [[1, 3]], [2.0, 3.0], n_points=5)
    part = c.restrict([4, 3, 1], renumber=True)
    assert part.must_link.tolist() == [[0, 1]]
    assert part.cannot_link.tolist() == [[1, 2]]
    assert part.ml_weights.tolist() == [3.0]
    names = np.array(list("abcde"))
    given_fit = c.fit_params(sample_ids=names)
    assert given_fit["must_link"].tolist() == [["a", "d"], ["d", "e"]]
    assert set(given_fit) == {"must_link", "cannot_link", "ml_weight", "sample_ids"}
