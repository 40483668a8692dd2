"""No two variables of a wave share a term; threads do what one does, and none stays behind."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from strategies import backwards

from inference_lab.algorithms import crew as crew_module
from inference_lab.algorithms.crew import Crew, Waves
from inference_lab.contract import Run
from inference_lab.graph import factor_graph
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.graph.terms import freeze
from inference_lab.kernels.waves import tiles, waves


def neighbours(graph: FactorGraph) -> list[tuple[int, int]]:
    """Return all pairs of variables that share a term."""
    scopes = [scope for scope, _ in graph.factors() if len(scope) > 1]
    return [(i, j) for scope in scopes for i in scope for j in scope if i != j]


def numbered(ordered: IntArray, starts: IntArray, n: int) -> IntArray:
    """Return for each variable the part it is in, -1 for none."""
    found = np.full(n, -1)
    for number, (first, last) in enumerate(pairwise(starts.tolist())):
        found[ordered[first:last]] = number
    return found


def places(order: IntArray, n: int) -> IntArray:
    found = np.full(n, -1)
    found[order] = np.arange(order.size)
    return found


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sweep_along_waves_comes_to_the_same(family, window):
    """Variables that share a term are in different waves, in the order they had."""
    for seed in range(4):
        graph = random_graph(family, seed)
        n = graph.n_variables
        rng = np.random.default_rng(seed)
        for order in (np.arange(n), rng.permutation(n), rng.permutation(n)[: n // 2]):
            order = freeze(order)
            ordered, starts = waves(graph.arrays, order, window)
            others = waves(graph.arrays, order, window, backwards)
            assert [a.tolist() for a in others] == [ordered.tolist(), starts.tolist()]
            assert sorted(ordered.tolist()) == sorted(order.tolist())
            assert starts[0] == 0 and starts[-1] == order.size and (np.diff(starts) > 0).all()
            wave, old, new = numbered(ordered, starts, n), places(order, n), places(ordered, n)
            for i, j in neighbours(graph):
                if old[i] >= 0 and old[j] >= 0:
                    assert wave[i] != wave[j]
                    assert (old[i] < old[j]) == (new[i] < new[j])
            for first in range(0, order.size, window):
                part = slice(first, first + window)
                assert sorted(ordered[part].tolist()) == sorted(order[part].tolist())


def test_waves_are_as_few_as_can_be():
    """As many as the longest chain of variables that wait for each other."""
    star = FactorGraph.potts(np.zeros((9, 2)), [(0, i) for i in range(1, 9)], 1.0)
    assert Waves.of(star, np.arange(9)).starts.tolist() == [0, 1, 9]
    chain = FactorGraph.potts(np.zeros((9, 2)), [(i, i + 1) for i in range(8)], 1.0)
    assert Waves.of(chain, np.arange(9)).starts.tolist() == list(range(10))
    evens_first = np.array([0, 2, 4, 6, 8, 1, 3, 5, 7])
    assert Waves.of(chain, evens_first).starts.tolist() == [0, 5, 9]


@pytest.mark.parametrize(("bands", "across"), [(2, 2), (3, 5), (5, 2)])
@pytest.mark.parametrize("family", [*FAMILIES, "picture"])
def test_tiles_of_a_wave_share_no_term(family, bands, across):
    for seed in range(3):
        if family == "picture":
            graph = FactorGraph.potts(np.zeros((99, 2)), grid_edges(9, 11), 1.0)
        else:
            graph = random_graph(family, seed)
        n, distances = graph.n_variables, graph.breadth_first_order
        order = freeze(np.random.default_rng(seed).permutation(n))
        ordered, parts, first = tiles(graph.arrays, order, distances, bands, across)
        assert parts.size - 1 <= bands * across
        assert sorted(ordered.tolist()) == list(range(n))
        assert parts[0] == 0 and parts[-1] == n and (np.diff(parts) > 0).all()
        assert first[0] == 0 and first[-1] == parts.size - 1 and (np.diff(first) > 0).all()
        tile, wave = numbered(ordered, parts, n), numbered(ordered, parts[first], n)
        for i, j in neighbours(graph):
            assert tile[i] == tile[j] or wave[i] != wave[j]
        old = places(order, n)
        for begin, end in pairwise(parts.tolist()):
            assert (np.diff(old[ordered[begin:end]]) > 0).all(), "within a tile as before"


def test_a_sweep_along_the_tiles_of_a_picture_comes_to_the_same():
    graph = FactorGraph.potts(np.zeros((17 * 23, 2)), grid_edges(17, 23), 1.0)
    for order in (np.arange(graph.n_variables), graph.breadth_first_order):
        ordered, parts, first = tiles(graph.arrays, freeze(order), graph.breadth_first_order, 7, 6)
        old, new = (places(o, graph.n_variables)[graph.edges] for o in (order, ordered))
        assert ((old[:, 0] < old[:, 1]) == (new[:, 0] < new[:, 1])).all()
        assert parts.size > 2 * first.size, "several tiles a wave"


def test_pieces_cover_waves_and_short_ones_are_one(monkeypatch):
    """Waves of single variables and of tiles."""
    monkeypatch.setattr(crew_module, "_WINDOW", 1000)
    rng = np.random.default_rng(0)
    unary = np.zeros((5000, 3))
    pairs = FactorGraph.potts(unary, np.sort(rng.permutation(5000).reshape(-1, 2), axis=1), 1.0)
    picture = FactorGraph.potts(unary, grid_edges(50, 100), 1.0)
    chain = FactorGraph.potts(unary, [(i, i + 1) for i in range(4999)], 1.0)
    for graph, cut in ((pairs, True), (picture, True), (chain, False)):
        monkeypatch.setattr(crew_module, "_PIECE", 600)
        monkeypatch.setattr(crew_module, "_ALONE", 700)
        made = Waves.of(graph, np.arange(5000))
        assert (made.parts is not None) == (graph is picture)
        stages = made.stages(graph)
        flat = [piece for pieces in stages for piece in pieces]
        assert [a for a, _ in flat] == [0, *(b for _, b in flat[:-1])]
        assert flat[-1][1] == made.order.size
        assert any(len(pieces) > 1 for pieces in stages) == cut
        wave = places(made.order, 5000)
        for pieces in stages:
            assert all(0 < b - a <= 700 for a, b in pieces)
            if len(pieces) > 1:
                first, last = pieces[0][0], pieces[-1][1]
                ends = {b for _, b in pieces}
                inside = wave[graph.edges]
                both = ((inside >= first) & (inside < last)).all(axis=1)
                piece = np.searchsorted(sorted(ends), inside[both], side="right")
                assert (piece[:, 0] == piece[:, 1]).all(), "no term joins two pieces"


# ---------------------------------------------------------------------- threads


def alive() -> int:
    """Return the threads of this process, also those that Python does not know of."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def assert_alone(before: int) -> None:
    deadline = time.monotonic() + 5.0
    # A thread that was waited for is still on its way out of the system.
    while alive() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert alive() <= before


@pytest.mark.parametrize("size", [None, 1, 2, 4])
def test_every_piece_is_done_once_and_stages_wait(size):
    before = alive()
    stages = [[(10 * s + p, 10 * s + p + 1) for p in range(7)] for s in range(20)]
    left = [7] * 20
    seen: list[int] = []
    who: set[int] = set()
    lock = threading.Lock()

    def work(member: int, first: int, last: int) -> int:
        stage = first // 10
        assert sum(left[:stage]) == 0, "the stage before is not done"
        time.sleep(0.0002)
        with lock:
            left[stage] -= 1
            seen.append(first)
            who.add(member)
        return last

    with Crew(size) as crew:
        assert crew.sweep(stages, work) == sum(b for pieces in stages for _, b in pieces)
        assert sorted(seen) == [a for pieces in stages for a, _ in pieces]
        assert who == set(range(size or 1))
        assert crew.sweep([], work) == 0
    assert_alone(before)


def test_what_is_asked_of_each_comes_back_in_order():
    with Crew(3) as crew:
        assert crew.each(lambda number: -number, range(50)) == [-number for number in range(50)]
        assert crew.each(abs, []) == []


def test_labellings_of_its_run_are_evaluated_by_the_crew(monkeypatch):
    monkeypatch.setattr(factor_graph, "_TERMS_BLOCK", 10)
    graph = FactorGraph.potts(np.eye(50)[:, :4], [(i, i + 1) for i in range(49)], 1.0)
    run = Run(graph)
    asked: list[int] = []
    share = Crew._share
    monkeypatch.setattr(Crew, "_share", lambda self, *a: asked.append(1) or share(self, *a))
    with Crew(2, run):
        assert run.offer([0] * 50) == graph.energy([0] * 50)
    assert asked == [1]
    run.offer([1] * 50)
    assert asked == [1]


@pytest.mark.parametrize("size", [1, 3])
def test_it_stops_after_a_stage_when_it_is_time(size):
    done: list[int] = []
    stages = [[(s, s), (s, s)] for s in range(9)]
    with Crew(size) as crew:
        crew.sweep(stages, lambda member, a, b: done.append(a) or 1, lambda: len(done) >= 6)
    assert sorted(done) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_an_error_of_any_member_ends_the_sweep(fails):
    """Also one that says that the user has had enough; the others do not wait for ever."""
    before = alive()
    together = threading.Barrier(3)

    def work(member: int, first: int, last: int) -> int:
        together.wait(5.0)
        if member == fails:
            raise KeyboardInterrupt(f"member {member}")
        return 1

    with pytest.raises(KeyboardInterrupt, match=f"member {fails}"), Crew(3) as crew:
        crew.sweep([[(0, 1)] * 3, [(1, 2)] * 3], work)
    assert_alone(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_a_sweep_can_sweep():
    with Crew(2) as crew:
        crew.sweep([[(0, 1), (1, 2)]] * 3, lambda member, a, b: 1)
    child = os.fork()
    if child == 0:
        with Crew(2) as crew:
            os._exit(crew.sweep([[(0, 1), (1, 2)]] * 3, lambda member, a, b: 1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
