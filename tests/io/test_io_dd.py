"""Graph matching files: the energy of every matching, the published optimum, and damage."""

from __future__ import annotations

import itertools
import lzma
import math
import tracemalloc
from pathlib import Path

import damage
import hypothesis.strategies as st
import numpy as np
import pytest
from damage import damaged
from hypothesis import given
from slow_words import uncommented

import inference_lab as il
from inference_lab.io import FormatError, dd

SMALL = damage.SMALL["dd"]


def parse(data: bytes) -> il.FactorGraph:
    return dd.parse(data, "here.dd")


class Matching:
    """The model as stated in the file: sets of assignments and their costs."""

    def __init__(self, text: str) -> None:
        self.assignments: list[tuple[int, int, float]] = []
        self.edges: list[tuple[int, int, float]] = []
        for line in text.split("\n"):
            kind, *fields = line.split() or [""]
            if kind == "p":
                self.n_left = int(fields[0])
            elif kind == "a":
                self.assignments.append((int(fields[1]), int(fields[2]), float(fields[3])))
            elif kind == "e":
                self.edges.append((int(fields[0]), int(fields[1]), float(fields[2])))
        self.candidates = [
            sorted(right for left, right, _ in self.assignments if left == node)
            for node in range(self.n_left)
        ]

    def cost(self, labels: list[int]) -> float:
        """Return the cost of the right nodes of a labelling; infinite if one is used twice."""
        pairs = {
            (node, self.candidates[node][label])
            for node, label in enumerate(labels)
            if label < len(self.candidates[node])
        }
        used = [right for _, right in pairs]
        if len(set(used)) < len(used):
            return math.inf
        taken = [(left, right) in pairs for left, right, _ in self.assignments]
        total = sum(cost for (*_, cost), made in zip(self.assignments, taken, strict=True) if made)
        return total + sum(cost for a, b, cost in self.edges if taken[a] and taken[b])


def test_every_labelling_has_the_cost_of_its_matching() -> None:
    """Labels are candidates in increasing order, and then "unassigned"."""
    graph = parse(SMALL)
    matching = Matching(SMALL.decode())
    assert graph.cardinalities.tolist() == [3, 2, 3]
    x = [list(row) for row in itertools.product(range(3), range(2), range(3))]
    assert graph.energy(x).tolist() == [matching.cost(row) for row in x]
    # Node 0 to 1, node 2 to 0, node 1 alone.
    assert graph.energy([1, 1, 0]) == -2.5 + 0.5 - 1.5


@given(st.integers(0, 2**32 - 1))
def test_random_matchings(seed: int) -> None:
    """Candidates are ragged, edges parallel, and some join assignments that exclude each other."""
    rng = np.random.default_rng(seed)
    n_left, n_right = rng.integers(1, 5, size=2)
    every = [(i, j) for i in range(n_left) for j in range(n_right)]
    count = int(rng.integers(0, len(every) + 1))
    pairs = [every[c] for c in rng.permutation(len(every))[:count]]
    lines = [
        f"a {a} {i} {j} {c}"
        for a, ((i, j), c) in enumerate(zip(pairs, rng.integers(-9, 9, count), strict=True))
    ]
    n_edges = int(rng.integers(0, 12)) if count > 1 else 0
    for _ in range(n_edges):
        a, b = rng.permutation(count)[:2]
        lines.append(f"e {a} {b} {rng.integers(-9, 9)}")
    text = "\n".join([f"p {n_left} {n_right} {count} {n_edges}", *lines])
    graph, matching = parse(text.encode()), Matching(text)
    x = [list(row) for row in itertools.product(*(range(int(k)) for k in graph.cardinalities))]
    assert graph.energy(x).tolist() == [matching.cost(row) for row in x]


@pytest.fixture(scope="module")
def published(data_dir: Path) -> Path:
    path = data_dir / "map" / "stereo_qap" / "qap_000.dd.xz"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    return path


def test_published_instance(published: Path) -> None:
    """One matching has the published optimal value, and others are random."""
    graph = il.read(published)
    matching = Matching(lzma.decompress(published.read_bytes()).decode())
    assert graph.cardinalities.tolist() == [47] * 46
    assert len(matching.assignments) == 2116
    assert len(matching.edges) == 29040
    # pytoulbar2 1.4.0.1 proved this value, and found this matching of each node to its like.
    best = list(range(46))
    assert matching.cost(best) == pytest.approx(-94.177180, abs=1e-9)
    assert graph.energy(best) == pytest.approx(-94.177180, abs=1e-9)
    rng = np.random.default_rng(0)
    for assigned in (5, 20, 46):
        x = np.full(46, 46)
        nodes = rng.permutation(46)[:assigned]
        x[nodes] = rng.permutation(46)[:assigned]
        assert graph.energy(x) == pytest.approx(matching.cost(x.tolist()), abs=1e-9)
        x[nodes[0]] = x[nodes[1]]
        assert graph.energy(x) == math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"end of file: expected one line 'p N0 N1 A E', got 0"),
        ("p 1 1 0 0\np 1 1 0 0", r"line 2: expected one line 'p N0 N1 A E', got 2"),
        ("p 1 1 0", r"line 1: a line 'p' has 4 numbers, got 3"),
        ("p 1 x 0 0", r"line 1: expected a number, got 'x'"),
        ("p 1 1 0 0\nq", r"line 2: expected a line of kind p, a, e or c, got 'q'"),
        ("p 1 1.5 0 0", r"line 1: expected the number of right nodes, .* got '1.5'"),
        ("p 1 99999999 0 0", r"the number of right nodes, 0 to 1000000, got '99999999'"),
        ("p 1 1 2 0\na 0 0 0 1", r"line 1: 2 assignments are announced, 1 are there"),
        ("p 1 1 0 1", r"line 1: 1 edges are announced, 0 are there"),
        ("p 1 1 1 0\na 1 0 0 1", r"line 2: expected the number of an assignment, 0 to 0, got '1'"),
        ("p 1 2 2 0\na 1 0 0 1\na 0 0 1 1", r"line 2: assignment 0 has the number 1"),
        ("p 1 1 1 0\na 0 1 0 1", r"line 2: expected a left node, 0 to 0, got '1'"),
        ("p 1 1 1 0\na 0 0 -1 1", r"line 2: expected a right node, 0 to 0, got '-1'"),
        ("p 1 1 1 0\n\na 0 0 0 inf", r"line 3: expected a cost, a finite number .* got 'inf'"),
        ("p 1 1 1 0\na 0 0 0 é", r"line 2: byte 18 is 0xc3"),
        ("p 1 1 2 0\na 0 0 0 1\na 1 0 0 1", r"line 3: node 0 is assigned to 0 twice"),
        ("p 1 1 1 1\na 0 0 0 1\ne 0 0 1", r"line 3: assignment 0 is joined to itself"),
        ("p 1 1 1 1\na 0 0 0 1\ne 0 1 1", r"line 3: expected an assignment, 0 to 0, got '1'"),
    ],
)
def test_errors_name_fault_and_position(text: str, message: str) -> None:
    """The position is the line of the fault."""
    with pytest.raises(FormatError, match=message) as caught:
        parse(text.encode())
    assert str(caught.value).startswith("here.dd")


def test_tables_beyond_the_limit_are_refused_before_they_are_made() -> None:
    """Ten thousand left nodes that share one right node are fifty million pairs."""
    n = 10_000
    text = f"p {n} 1 {n} 0\n" + "\n".join(f"a {i} {i} 0 1" for i in range(n))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="49995000 pairs of assignments share a right node"):
            parse(text.encode())
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@given(damaged(SMALL))
def test_damage_is_refused_or_read_as_it_stands(data: bytes) -> None:
    """Only FormatError is raised; a file that is read has the costs of its matchings."""
    try:
        graph = parse(data)
    except FormatError:
        return
    matching = Matching(uncommented(data).decode(errors="replace"))
    x = np.random.default_rng(0).integers(graph.cardinalities, size=(5, graph.n_variables))
    expected = [matching.cost(row) for row in x.tolist()]
    np.testing.assert_allclose(graph.energy(x), expected, atol=1e-9)
