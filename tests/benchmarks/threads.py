"""What threads gain: ``python tests/benchmarks/threads.py``, some minutes.

Each solver without ``threads``, and with one, two and four where there are as many cores, in turn;
the best of the rounds. Ratios are to no setting. Beside wall and processor time stands that of the
thread that calls: with as many free cores as threads, wall time is little more. How many cores the
threads get, and so what a ratio of wall times can be at most, is measured before and after, since
other work may have them. Teddy is read from the data folder; without it a picture of its size is
drawn.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import threading
import time
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits
from workloads import estep

import inference_lab as il
from inference_lab.clustering import PCKMeans
from inference_lab.constraints import Constraints
from inference_lab.data.datasets import DataNotFoundError
from inference_lab.graph.arrays import TABLE
from inference_lab.graph.grids import grid_edges
from inference_lab.registry.sources import as_problem

#: Specs without their last parenthesis.
SOLVERS = (
    *("loopy-bp(damping=0.5", "loopy-bp(", "mean-field(", "icm(order=sequential", "trw-s("),
    "alpha-expansion(",
)
COLUMNS = (
    *("problem", "solver", "threads", "wall s", "ratio", "CPU s", "CPU s of the caller", "ratio"),
    *("energy", "sweeps"),
)


class Way(Protocol):
    """Solves something with so many threads; returns the energy, and the sweeps or iterations."""

    def __call__(self, threads: int | None, most: int = ...) -> tuple[float, int]: ...


def cores(threads: int) -> float:
    """Return how many times as much so many threads get done as one, here and now."""
    block = bytes(1 << 28)

    def work() -> None:
        hashlib.sha256(block)  # without the interpreter's lock

    begin = time.perf_counter()
    work()
    one = time.perf_counter() - begin
    others = [threading.Thread(target=work) for _ in range(threads - 1)]
    begin = time.perf_counter()
    for other in others:
        other.start()
    work()
    for other in others:
        other.join()
    return threads * one / (time.perf_counter() - begin)


def picture(height: int, width: int, labels: int) -> il.FactorGraph:
    """Return a picture of the size of a stereo pair: random costs, truncated linear terms."""
    rng = np.random.default_rng(0)
    edges = grid_edges(height, width)
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    weights = rng.uniform(0.0, 0.3, size=len(edges))
    unary = rng.random((height * width, labels))
    return il.FactorGraph.pairwise(unary, edges, np.minimum(apart, 3.0), weights)


def teddy() -> tuple[str, il.FactorGraph]:
    """Return the stereo pair, or a picture of its size where it is not to be found."""
    try:
        return "Teddy, 450 x 375 x 60", as_problem("stereo(pair=teddy)").graph
    except DataNotFoundError:
        return "random, 450 x 375 x 60", picture(375, 450, 60)


def solved(graph: il.FactorGraph, solver: str, sweeps: int) -> Way:
    """Return what solves a graph with so many threads, and says at what energy and in how many."""

    def run(threads: int | None, most: int = sweeps) -> tuple[float, int]:
        setting = "" if threads is None else f"threads={threads})"
        spec = solver + ("" if solver.endswith("(") or not setting else ", ") + (setting or ")")
        solution = il.solve(graph, spec, seed=0, max_iterations=most)
        return solution.energy, solution.iterations

    return run


def fitted(n_points: int) -> Way:
    """Return what clusters points in 20 blobs, of 16 dimensions, with two pairs a point."""
    rng = np.random.default_rng(0)
    classes = rng.integers(20, size=n_points)
    points = 2.0 * rng.normal(size=(20, 16))[classes] + rng.normal(size=(n_points, 16))
    pairs = Constraints.sample(classes, 2 * n_points, rng)

    def run(threads: int | None, most: int = 5) -> tuple[float, int]:
        setting = "" if threads is None else f", threads={threads}"
        solver = f"icm(order=sequential{setting})"
        model = PCKMeans(20, e_step=solver, init="random", max_iter=most, random_state=0)
        with threadpool_limits(threads or 1, user_api="blas"):
            model.fit(points, must_link=pairs.must_link, cannot_link=pairs.cannot_link)
        return model.objective_, model.n_iter_

    return run


def compare(
    name: str, method: str, run: Way, settings: list[int | None], seconds: float, rounds: int
) -> None:
    """Print a row for each setting; no further round is begun after so many seconds."""
    for n in settings:
        # Compiles, or loads what was compiled before.
        run(n, 1)
    times: dict[int | None, list[tuple[float, float, float]]] = {n: [] for n in settings}
    found = {}
    start = time.perf_counter()
    for done in range(rounds):
        if done and time.perf_counter() - start > seconds * done / (done + 1):
            break
        for n in settings:
            begin = time.perf_counter(), time.process_time(), time.thread_time()
            found[n] = run(n)
            end = time.perf_counter(), time.process_time(), time.thread_time()
            times[n].append((end[0] - begin[0], end[1] - begin[1], end[2] - begin[2]))
    best = {n: np.min(taken, axis=0) for n, taken in times.items()}
    for n, (wall, cpu, caller) in best.items():
        print(
            f"| {name} | {method} | {n or '-'} "
            f"| {wall:.2f} | {best[None][0] / wall:.2f} | {cpu:.2f} "
            f"| {caller:.2f} | {best[None][2] / caller:.2f} "
            f"| {found[n][0]:.2f} | {found[n][1]} |",
            flush=True,
        )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweeps", type=int, default=20, help="at most so many a run")
    parser.add_argument("--seconds", type=float, default=300.0, help="for the rounds of all rows")
    parser.add_argument("--problem", help="a spec, instead of the E-step and the picture")
    chosen = parser.parse_args()
    if chosen.problem:
        graphs = {chosen.problem: as_problem(chosen.problem).graph}
    else:
        graphs = {"a million points": estep(1_000_000, 3, 2_000_000).build()} | dict([teddy()])
    rows: list[tuple[str, str, Way]] = [
        (
            name,
            solver.rstrip("(") + (")" if "=" in solver else ""),
            solved(graph, solver, chosen.sweeps),
        )
        for name, graph in graphs.items()
        for solver in SOLVERS
        # A minute a run where terms are tables.
        if not (solver.startswith("mean-field") and (graph.edge_kinds == TABLE).any())
        # Minutes a run; so many terms join whatever parts that threads have nothing to share.
        and not (solver.startswith("alpha") and graph.n_variables == 1_000_000)
    ]
    if not chosen.problem:
        rows.append(("a million points", "PCKMeans, 5 iterations", fitted(1_000_000)))
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    here = len(affinity(0)) if affinity else os.cpu_count() or 1
    numbers = [n for n in (1, 2, 4) if n <= max(2, here)]
    gets = ", ".join(f"{n} threads get {cores(n):.2f} cores" for n in numbers[1:])
    print(f"{here} cores; {gets}")
    print(f"| {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * 8}")
    for row in rows:
        compare(*row, [None, *numbers], chosen.seconds / len(rows), chosen.rounds)
    print(", ".join(f"{n} threads get {cores(n):.2f} cores" for n in numbers[1:]))


if __name__ == "__main__":
    main()
