"""What a second thread gains: ``python tests/benchmarks/threads.py``.

Each solver without ``threads``, with one and with two, in turn; the best of the rounds. Beside wall
and processor time stands that of the thread that calls: with as many free cores as threads, wall
time is little more. How many cores two threads get, and so what a ratio of wall times can be at
most, is measured before and after, since other work may have them.
"""

from __future__ import annotations

import argparse
import hashlib
import threading
import time

import numpy as np
from workloads import estep

import inference_lab as il
from inference_lab.graph.arrays import TABLE
from inference_lab.graph.grids import grid_edges
from inference_lab.registry.sources import as_problem

#: Specs without their last parenthesis.
SOLVERS = ("loopy-bp(damping=0.5", "loopy-bp(", "mean-field(", "icm(order=sequential")
COLUMNS = (
    *("problem", "solver", "threads", "wall s", "ratio", "CPU s", "CPU s of the caller", "ratio"),
    *("energy", "sweeps"),
)


def cores() -> float:
    """Return how many times as much two threads get done as one, here and now."""
    block = bytes(1 << 28)

    def work() -> None:
        hashlib.sha256(block)  # without the interpreter's lock

    begin = time.perf_counter()
    work()
    one = time.perf_counter() - begin
    other = threading.Thread(target=work)
    begin = time.perf_counter()
    other.start()
    work()
    other.join()
    return 2.0 * one / (time.perf_counter() - begin)


def picture(height: int, width: int, labels: int) -> il.FactorGraph:
    """Return a picture of the size of a stereo pair: random costs, truncated linear terms."""
    rng = np.random.default_rng(0)
    edges = grid_edges(height, width)
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    weights = rng.uniform(0.0, 0.3, size=len(edges))
    unary = rng.random((height * width, labels))
    return il.FactorGraph.pairwise(unary, edges, np.minimum(apart, 3.0), weights)


def compare(name: str, graph: il.FactorGraph, solver: str, rounds: int, sweeps: int) -> None:
    """Print a row each for no setting, one thread and two."""
    specs = {n: f"{solver}{'' if solver.endswith('(') else ', '}threads={n})" for n in (None, 1, 2)}
    times: dict[int | None, list[tuple[float, float, float]]] = {n: [] for n in specs}
    found = {}
    for _ in range(rounds + 1):
        for n, spec in specs.items():
            begin = time.perf_counter(), time.process_time(), time.thread_time()
            found[n] = il.solve(graph, spec, seed=0, max_iterations=sweeps)
            end = time.perf_counter(), time.process_time(), time.thread_time()
            times[n].append((end[0] - begin[0], end[1] - begin[1], end[2] - begin[2]))
    # The first round compiles, or loads what was compiled before.
    best = {n: np.min(taken[1:], axis=0) for n, taken in times.items()}
    for n, (wall, cpu, caller) in best.items():
        print(
            f"| {name} | {solver.rstrip('(')}{')' if '=' in solver else ''} | {n or '-'} "
            f"| {wall:.2f} | {best[None][0] / wall:.2f} | {cpu:.2f} "
            f"| {caller:.2f} | {best[None][2] / caller:.2f} "
            f"| {found[n].energy:.2f} | {found[n].iterations} |",
            flush=True,
        )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sweeps", type=int, default=100, help="at most so many a run")
    parser.add_argument("--problem", help="a spec, instead of the E-step and the picture")
    chosen = parser.parse_args()
    if chosen.problem:
        graphs = {chosen.problem: as_problem(chosen.problem).graph}
    else:
        graphs = {
            "a million points": estep(1_000_000, 3, 2_000_000).build(),
            "450 x 375 x 60": picture(375, 450, 60),
        }
    print(f"two threads get {cores():.2f} cores")
    print(f"| {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * 8}")
    for name, graph in graphs.items():
        for solver in SOLVERS:
            if solver.startswith("mean-field") and (graph.edge_kinds == TABLE).any():
                continue  # a minute a run
            compare(name, graph, solver, chosen.rounds, chosen.sweeps)
    print(f"two threads get {cores():.2f} cores")


if __name__ == "__main__":
    main()
