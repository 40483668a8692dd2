"""How time and memory of an E-step grow with its size: ``python benchmarks/scaling.py``.

With ``--growth``, it runs four methods on E-steps and grids of 10 labels, from 10,000 to 10,000,000
variables, and fits the exponents of time and memory: the table of ``docs/peers.md``. Each run makes
ten iterations, so that times of an iteration are compared; ICM may converge before. The largest
runs take 9 GB and some minutes each.

With ``--fits``, it compares fits with scikit-learn's K-means in the same process: Gaussian blobs
of 20 features that overlap slightly, 10 clusters, one pair a point of which a tenth is wrong.

Each size and solver runs in its own process, so that peak memory is measured separately; it
includes the arrays that the graph is built from. There are 20 clusters and two constraints a point,
which join any points (balanced) or points whose numbers are close (nearby).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from threadpoolctl import threadpool_limits
from workloads import estep

import inference_lab as il

SIZES = (10_000, 100_000, 1_000_000)
#: Solvers, and the points that constraints join.
RUNS = (
    ("icm", "balanced"),
    ("loopy-bp", "balanced"),
    ("mean-field", "balanced"),
    ("mean-field", "nearby"),
)
CLUSTERS = 20
#: The table of growth: solvers, variables, and limit on iterations.
GROWTH_SOLVERS = ("icm", "loopy-bp", "mean-field", "trw-s")
GROWTH_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
GROWTH_ITERATIONS = 10
GROWTH_LABELS = 10
COLUMNS = (
    "solver",
    "constraints",
    "points",
    "build, CPU s",
    "solve, CPU s",
    "µs a point",
    "sweeps",
    "ns a point and sweep",
    "peak GB",
    "status",
)


def peak_rss_bytes() -> int:
    """Return the peak memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def graph_of(family: str, variables: int) -> il.FactorGraph:
    """Return an E-step with two constraints a point, or a square grid of Potts terms."""
    import numpy as np

    from inference_lab.graph.grids import grid_edges

    if family == "estep":
        return estep(variables, GROWTH_LABELS, 2 * variables).build()
    side = round(math.sqrt(variables))
    rng = np.random.default_rng(0)
    edges = grid_edges(side, side)
    unary = rng.random((side * side, GROWTH_LABELS))
    return il.FactorGraph.potts(unary, edges, rng.uniform(0.0, 0.5, len(edges)))


def resident_bytes(field: str) -> int:
    """Return a figure of this process from ``/proc``: `VmRSS`, or `VmHWM` for the peak."""
    with open("/proc/self/status", encoding="ascii") as stream:
        for line in stream:
            if line.startswith(field):
                return 1024 * int(line.split()[1])
    raise LookupError(field)


def grown(family: str, variables: int, solver: str) -> dict[str, Any]:
    """Run a solver on a graph; return seconds, and the peak memory of graph and run (Linux)."""
    # Compiles, or loads kernels compiled before.
    il.solve(graph_of(family, 400), solver, max_iterations=GROWTH_ITERATIONS)
    start = resident_bytes("VmRSS")
    graph = graph_of(family, variables)
    gc.collect()
    # Memory of the arrays from which the graph was built is returned, and the peak is reset.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")
    begin = time.process_time()
    solution = il.solve(graph, solver, max_iterations=GROWTH_ITERATIONS)
    return {
        "seconds": (time.process_time() - begin) / solution.iterations,
        "bytes": resident_bytes("VmHWM") - start,
        "edges": graph.n_edges,
        "iterations": solution.iterations,
    }


def growth(sizes: list[int]) -> None:
    """Print a table of seconds of an iteration and bytes by size, with exponents."""
    import numpy as np

    heads = [f"{size:,}" for size in sizes]
    print(f"| graph | method | {' | '.join(heads)} | exponent | {' | '.join(heads)} | exponent |")
    print(f"|---|---|{'---:|' * (2 * len(sizes) + 2)}")
    for family, solver in itertools.product(("estep", "grid"), GROWTH_SOLVERS):
        rows = []
        for size in sizes:
            command = [sys.executable, __file__, "--points", str(size), "--solver", solver]
            command += ["--family", family]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout))
        cells = [family, f"`{solver}`"]
        for name, form in (("seconds", "{:.2g}"), ("bytes", "{:.2g}")):
            values = [row[name] / (1e6 if name == "bytes" else 1.0) for row in rows]
            shown = [form.format(v) if v < 100 else f"{v:,.0f}" for v in values]
            # Memory of small graphs is the allocator's, so it is fitted from 100,000 variables on.
            last = max(2, sum(size >= 100_000 for size in sizes)) if name == "bytes" else len(sizes)
            slope = np.polyfit(np.log(sizes[-last:]), np.log(values[-last:]), 1)[0]
            cells += [*shown, f"{slope:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def run(points: int, solver: str, partners: Any) -> dict[str, Any]:
    """Build a graph, run a solver on it, and return its time and memory."""
    il.solve(estep(20, 3, 20).build(), solver)  # compiles, or loads kernels compiled before
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


def fits(sizes: list[int], rounds: int) -> None:
    """Print processor seconds of fits as multiples of K-means with ten starts."""
    import numpy as np
    from sklearn.cluster import KMeans

    from inference_lab.clustering import (
        ConstrainedClusterCV,
        ConstrainedGaussianMixture,
        HMRFKMeans,
        MPCKMeans,
        PCKMeans,
        TVClust,
    )
    from inference_lab.constraints import Constraints

    print("| points | KMeans, CPU s | estimator | CPU s | times KMeans | iterations |")
    print("|---:|---:|---|---:|---:|---:|")
    # The first size compiles, or loads kernels compiled before.
    for n in (500, *sizes):
        rng = np.random.default_rng(0)
        labels = rng.integers(10, size=n)
        points = rng.normal(size=(10, 20))[labels] * 0.8 + rng.normal(size=(n, 20))
        pairs = Constraints.sample(labels, n, rng).flip(0.1, rng).fit_params()
        pairs = {name: pairs[name] for name in ("must_link", "cannot_link")}
        base = math.nan
        for model, arguments in (
            (KMeans(10, n_init=10, random_state=0), {}),
            (PCKMeans(10, random_state=0), pairs),
            (MPCKMeans(10, random_state=0), pairs),
            (HMRFKMeans(10, e_step="mean-field", random_state=0), pairs),
            (ConstrainedGaussianMixture(10, random_state=0), pairs),
            (TVClust(15, random_state=0), pairs),
            (ConstrainedClusterCV(10, random_state=0), pairs),
        ):
            times = []
            for _ in range(rounds):
                begin = time.process_time()
                model.fit(points, **arguments)
                times.append(time.process_time() - begin)
            spent = statistics.median(times)
            if math.isnan(base):
                base = spent
            if n in sizes:
                print(
                    f"| {n:,} | {base:.2f} | {type(model).__name__} | {spent:.2f} "
                    f"| {spent / base:.2f} | {getattr(model, 'n_iter_', '')} |",
                    flush=True,
                )


def main() -> None:
    """Print a table, or with ``--points`` one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, help="run one size, and print JSON")
    parser.add_argument("--solver", default="icm", help="a spec")
    parser.add_argument("--partners", choices=("any", "balanced", "nearby"), default="balanced")
    parser.add_argument("--family", choices=("estep", "grid"), help="with --points: for --growth")
    parser.add_argument(
        "--growth", type=int, nargs="*", metavar="VARIABLES", help="time and memory by size"
    )
    parser.add_argument("--fits", type=int, nargs="*", metavar="POINTS", help="time whole fits")
    parser.add_argument("--rounds", type=int, default=3, help="times that each fit is repeated")
    options = parser.parse_args()
    if options.fits is not None:
        with threadpool_limits(1):
            fits(options.fits or list(SIZES[1:]), options.rounds)
        return
    if options.growth is not None:
        growth(options.growth or list(GROWTH_SIZES))
        return
    if options.points is not None and options.family is not None:
        print(json.dumps(grown(options.family, options.points, options.solver)))
        return
    if options.points is not None:
        print(json.dumps(run(options.points, options.solver, options.partners)))
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
