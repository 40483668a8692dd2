"""What messages in single precision gain and cost: ``python tests/benchmarks/precision.py``.

``loopy-bp`` with either precision in turn, each run in a process of its own, so that its peak of
memory is its own; the arrays that the graph was built from are part of it. The processor time is
the median of the rounds, of all of `inference_lab.solve`. Stereo pairs are read from the data
folder; what is not to be found there is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from scaling import peak_rss_bytes
from threads import picture
from workloads import estep

import inference_lab as il
from inference_lab.data.datasets import DataNotFoundError
from inference_lab.registry.sources import as_problem

GRAPHS = {
    "Teddy, 450 x 375, 60 labels": lambda: as_problem("stereo(pair=teddy)").graph,
    "Tsukuba, 384 x 288, 16 labels": lambda: as_problem("stereo(pair=tsukuba)").graph,
    "random costs, 384 x 288, 16 labels": lambda: picture(288, 384, 16),
    "E-step, 1,000,000 points, 3 clusters": lambda: estep(1_000_000, 3, 2_000_000).build(),
    "E-step, 100,000 points, 20 clusters": lambda: estep(100_000, 20, 200_000).build(),
}
PRECISIONS = ("double", "single")


def run(name: str, precision: str, sweeps: int) -> dict[str, Any]:
    """Solve one graph, and return what it took."""
    spec = f"loopy-bp(precision={precision})"
    for small in (picture(5, 5, 4), estep(20, 3, 20).build()):
        il.solve(small, spec)  # compiles, or loads what was compiled before
    graph = GRAPHS[name]()
    begin = time.process_time()
    solution = il.solve(graph, spec, max_iterations=sweeps)
    return {
        "seconds": time.process_time() - begin,
        "sweeps": solution.iterations,
        "energy": solution.energy,
        "bytes": peak_rss_bytes(),
    }


def main() -> None:
    """Print a table, or with ``--run`` one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweeps", type=int, nargs="+", default=[20, 60], help="at most so many")
    parser.add_argument("--run", nargs=3, metavar=("GRAPH", "PRECISION", "SWEEPS"))
    chosen = parser.parse_args()
    if chosen.run:
        name, precision, most = chosen.run
        try:
            print(json.dumps(run(name, precision, int(most))))
        except DataNotFoundError:
            print("null")
        return
    print("| | sweeps | CPU s, double | single | ratio | energy, double | single | GB | GB |")
    print("|---|" + "---:|" * 8)
    for name in GRAPHS:
        for most in chosen.sweeps:
            found: dict[str, list[Any]] = {precision: [] for precision in PRECISIONS}
            for precision in PRECISIONS * chosen.rounds:
                command = [sys.executable, __file__, "--run", name, precision, str(most)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[precision].append(json.loads(done.stdout))
            if found["double"][0] is None:
                continue
            taken = [statistics.median(r["seconds"] for r in runs) for runs in found.values()]
            last = [runs[-1] for runs in found.values()]
            cells = [name, " / ".join(dict.fromkeys(str(r["sweeps"]) for r in last))]
            cells += [f"{seconds:.2f}" for seconds in taken] + [f"{taken[1] / taken[0]:.2f}"]
            cells += [f"{r['energy']:,.0f}" for r in last]
            cells += [f"{r['bytes'] / 1e9:.2f}" for r in last]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
