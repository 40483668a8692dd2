"""Branch and bound of our own beside toulbar2: processor time on published instances.

    INFERENCE_LAB_DATA=... .venv/bin/python tests/benchmarks/exact_search.py [SECONDS]

The instances lie in `map` below the data folder; `pip install "inference-lab[toulbar2]"` brings the
peer. The time is that of `inference_lab.solve` as a whole, the model handed to toulbar2 included.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import inference_lab as il
from inference_lab.contract import Solution

INSTANCES = (
    "toulbar2/celar6sub0.wcsp.gz",
    "uai2014_map/wcsp_13.uai.gz",
    "uai2014_map/Promedas_40.uai.gz",
    "toulbar2/cap131.wcsp",
    "toulbar2/1aho.cfn.gz",
    "uai2014_mar/linkage_14.uai",
)
SOLVERS = ("branch-and-bound", "toulbar2")
ROUNDS = 3


def load(path: Path) -> il.FactorGraph:
    """Read an instance, with the evidence that lies beside it."""
    evidence = path.with_name(path.name.removesuffix(".gz") + ".evid")
    return il.read(path, evidence=evidence) if evidence.exists() else il.read(path)


def timed(graph: il.FactorGraph, solver: str, limit: float) -> tuple[float, Solution]:
    """Return the median processor time of some runs, and the last of their solutions."""
    seconds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        solution = il.solve(graph, solver, seed=0, time_limit=limit)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds), solution


def main() -> None:
    """Print a row for each instance."""
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    data = os.environ.get("INFERENCE_LAB_DATA")
    if data is None:
        raise SystemExit("set INFERENCE_LAB_DATA to the folder that holds map/")
    folder = Path(data) / "map"
    graphs = {Path(name).name.split(".")[0]: load(folder / name) for name in INSTANCES}
    for graph in graphs.values():
        # Kernels are compiled, or loaded from the disk, before anything is timed.
        for solver in SOLVERS:
            il.solve(graph, solver, seed=0, time_limit=limit)
        break
    print(
        "| instance | " + " | ".join(f"{s}: CPU s | nodes | energy" for s in SOLVERS) + " | ratio |"
    )
    print("|---|" + "---:|" * (3 * len(SOLVERS) + 1))
    for name, graph in graphs.items():
        cells, seconds = [], []
        for solver in SOLVERS:
            spent, solution = timed(graph, solver, limit)
            nodes = solution.diagnostics.get("nodes", "")
            seconds.append(spent)
            cells.append(f"{spent:.2f} | {nodes} | {solution.energy:.8g}, {solution.status}")
        print(
            f"| {name} | " + " | ".join(cells) + f" | {seconds[0] / seconds[1]:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
