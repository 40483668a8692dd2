"""How time and memory of an E-step grow with its size: ``python tests/benchmarks/scaling.py``.

Each size and solver runs in a process of its own, so that its peak of memory is its own; it
includes the arrays that the graph is built from. 20 clusters, and two constraints a point.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

from workloads import estep

import inference_lab as il

SIZES = (10_000, 100_000, 1_000_000)
SOLVERS = ("icm", "loopy-bp", "mean-field")
CLUSTERS = 20


def run(points: int, solver: str) -> dict[str, Any]:
    """Build a graph, run a solver on it, and return what it took."""
    il.solve(estep(20, 3, 20).build(), solver)  # compiles, or loads what was compiled before
    arrays = estep(points, CLUSTERS, 2 * points, must_link=0.5)
    begin = time.process_time()
    graph = arrays.build()
    built = time.process_time()
    solution = il.solve(graph, solver)
    solved = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "build_s": built - begin,
        "solve_s": solved - built,
        "sweeps": solution.iterations,
        "status": str(solution.status),
        # Linux counts in KiB, macOS in bytes.
        "peak_rss_bytes": peak if sys.platform == "darwin" else peak * 1024,
    }


def main() -> None:
    """Print a table, or with ``--points`` one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, help="run one size, and print JSON")
    parser.add_argument("--solver", choices=SOLVERS, default=SOLVERS[0])
    chosen = parser.parse_args()
    if chosen.points is not None:
        print(json.dumps(run(chosen.points, chosen.solver)))
        return
    print(
        "| solver | points | build, CPU s | solve, CPU s | µs a point | sweeps | peak GB | status |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for solver in SOLVERS:
        for points in SIZES:
            command = [sys.executable, __file__, "--points", str(points), "--solver", solver]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            r = json.loads(done.stdout)
            print(
                f"| {solver} | {points:,} | {r['build_s']:.2f} | {r['solve_s']:.2f} "
                f"| {1e6 * r['solve_s'] / points:.2f} | {r['sweeps']} "
                f"| {1e9 * r['solve_s'] / points / r['sweeps']:.0f} "
                f"| {r['peak_rss_bytes'] / 1e9:.2f} | {r['status']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
