"""How time and memory of an E-step grow with its size: ``python tests/benchmarks/scaling.py``.

Each size and solver runs in a process of its own, so that its peak of memory is its own; it
includes the arrays that the graph is built from. 20 clusters, and two constraints a point, which
join points anywhere (balanced) or points whose numbers are close (nearby).
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from typing import Any

from workloads import estep

import inference_lab as il

SIZES = (10_000, 100_000, 1_000_000)
#: Solvers, and which points the constraints join.
RUNS = (
    *(("icm", "balanced"), ("loopy-bp", "balanced")),
    *(("mean-field", "balanced"), ("mean-field", "nearby")),
)
CLUSTERS = 20
COLUMNS = (
    *("solver", "constraints", "points", "build, CPU s", "solve, CPU s", "µs a point"),
    *("sweeps", "ns a point and sweep", "peak GB", "status"),
)


def peak_rss_bytes() -> int:
    """Return the largest memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def run(points: int, solver: str, partners: Any) -> dict[str, Any]:
    """Build a graph, run a solver on it, and return what it took."""
    il.solve(estep(20, 3, 20).build(), solver)  # compiles, or loads what was compiled before
    arrays = estep(points, CLUSTERS, 2 * points, partners=partners)
    begin = time.process_time()
    graph = arrays.build()
    built = time.process_time()
    solution = il.solve(graph, solver)
    solved = time.process_time()
    return {
        "build_s": built - begin,
        "solve_s": solved - built,
        "sweeps": solution.iterations,
        "status": str(solution.status),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def main() -> None:
    """Print a table, or with ``--points`` one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, help="run one size, and print JSON")
    parser.add_argument("--solver", default="icm", help="a spec")
    parser.add_argument("--partners", choices=("any", "balanced", "nearby"), default="balanced")
    chosen = parser.parse_args()
    if chosen.points is not None:
        print(json.dumps(run(chosen.points, chosen.solver, chosen.partners)))
        return
    print(f"| {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * 7}---|")
    for (solver, partners), points in itertools.product(RUNS, SIZES):
        command = [sys.executable, __file__, "--points", str(points), "--solver", solver]
        command += ["--partners", partners]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        r = json.loads(done.stdout)
        print(
            f"| {solver} | {partners} | {points:,} | {r['build_s']:.2f} | {r['solve_s']:.2f} "
            f"| {1e6 * r['solve_s'] / points:.2f} | {r['sweeps']} "
            f"| {1e9 * r['solve_s'] / points / r['sweeps']:.0f} "
            f"| {r['peak_rss_bytes'] / 1e9:.2f} | {r['status']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
