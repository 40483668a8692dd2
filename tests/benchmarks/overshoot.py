"""By how much solvers overshoot their time limit: ``python tests/benchmarks/overshoot.py``.

Every registered solver that covers the problem, on chains, grids and random E-steps of 10^4 to 10^6
variables. A solver may take a tenth more than its limit and 0.2 s; what takes more is marked.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import inference_lab as il
from inference_lab.harness.warm_up import warm_up_graph

SIZES = (10_000, 100_000, 1_000_000)
LIMITS = (0.1, 1.0, 5.0)


def graph(kind: str, n: int) -> il.FactorGraph:
    """Return a Potts energy of four labels: a chain, a grid, or a noisy E-step."""
    rng = np.random.default_rng(0)
    unary = rng.random((n, 4))
    index = np.arange(n)
    if kind == "chain":
        edges = np.stack([index[:-1], index[1:]], axis=1)
        return il.FactorGraph.potts(unary, edges, rng.random(n - 1))
    if kind == "grid":
        side = round(n**0.5)
        cells = np.arange(side * side).reshape(side, side)
        right = np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()], axis=1)
        down = np.stack([cells[:-1].ravel(), cells[1:].ravel()], axis=1)
        edges = np.concatenate([right, down])
        return il.FactorGraph.potts(unary[: side * side], edges, rng.random(len(edges)))
    edges = rng.integers(0, n, (2 * n, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    signs = np.where(rng.random(len(edges)) < 0.7, 1.0, -1.0)
    return il.FactorGraph.potts(unary, edges, 0.5 * signs)


def cpu() -> float:
    """Return the processor time of this process and of those it waited for."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, both))


def measure(sender: Connection, problem: il.FactorGraph, solver: str, limit: float) -> None:
    """Tell what one call takes, in a process of its own."""
    il.solve(warm_up_graph(problem), solver, time_limit=5.0)
    # What a graph knows of itself is worked out once, for all solvers.
    _ = problem.arrays, problem.resolution
    while True:
        before, began = cpu(), time.perf_counter()
        s = il.solve(problem, solver, time_limit=limit)
        taken, wall = cpu() - before, time.perf_counter() - began
        # What is not small is compilation that the small graph did not call for.
        if s.compile_seconds < 0.02:
            break
    sender.send((taken, wall, s.seconds, s.status.value, s.energy, s.lower_bound))


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solvers", nargs="*", default=sorted(il.available_solvers()))
    parser.add_argument("--kinds", nargs="*", default=["chain", "grid", "estep"])
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--limits", nargs="*", type=float, default=LIMITS)
    asked = parser.parse_args()
    context = get_context("fork")
    print(
        f"{'solver':22} {'graph':6} {'n':>8} {'limit':>5} {'CPU s':>7} {'wall s':>7} {'own s':>7}"
    )
    over = 0
    for kind in asked.kinds:
        for n in asked.sizes:
            problem = graph(kind, n)
            _ = problem.arrays
            for solver in asked.solvers:
                for limit in asked.limits:
                    receiver, sender = context.Pipe(duplex=False)
                    process = context.Process(target=measure, args=(sender, problem, solver, limit))
                    process.start()
                    sender.close()
                    found: Any = None
                    if receiver.poll(120 + 3 * limit):
                        try:
                            found = receiver.recv()
                        except EOFError:
                            pass
                    process.kill()
                    process.join()
                    line = f"{solver:22} {kind:6} {n:8} {limit:5}"
                    if found is None:
                        over += 1
                        print(line, "      no answer                 <-- over", flush=True)
                        continue
                    taken, wall, own, status, energy, bound = found
                    late = taken > 1.1 * limit + 0.2
                    over += late
                    print(
                        f"{line} {taken:7.2f} {wall:7.2f} {own:7.2f} {status:11} "
                        f"{energy:.7g} {bound:.7g}{'   <-- over' if late else ''}",
                        flush=True,
                    )
                    if status == "unsupported":
                        break
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
