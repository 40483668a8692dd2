"""Upper bounds on log Z of published instances: ``python benchmarks/log_partition.py``.

The instances have a reference value and factors of three variables or more, at temperature 1.
Kernels are compiled before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import time

import inference_lab as il
from inference_lab.contract import Solution
from inference_lab.data.folders import data_folder
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problems.instances import available_instances
from inference_lab.registry.sources import as_problem

SOLVERS = ("weighted-mini-buckets(max_entries=131072)", "weighted-mini-buckets")


def timed(graph: FactorGraph, solver: str) -> tuple[Solution, float]:
    """Return the result of a solver after warm-up, and its processor time."""
    il.solve(graph, solver, temperature=1.0, seed=0, max_iterations=1)
    began = time.process_time()
    s = il.solve(graph, solver, temperature=1.0, seed=0)
    return s, time.process_time() - began


def main() -> None:
    """Print the table of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="default: $INFERENCE_LAB_DATA")
    folder = data_folder(parser.parse_args().data_dir)
    print("| instance | variables | log Z | 2^17 | CPU s | default | CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in available_instances():
        graph = as_problem(f"instances(instance={name})", data_dir=str(folder)).graph
        reference = folder / "map" / f"{name}.uai.PR"
        if graph.n_factors == 0 or not reference.exists():
            continue
        # The file holds the base-10 logarithm.
        published = float(reference.read_text().split()[-1]) * math.log(10.0)
        row = [name, str(graph.n_variables), f"{published:.2f}"]
        for solver in SOLVERS:
            s, seconds = timed(graph, solver)
            exact = " (exact)" if s.log_partition_kind == "exact" else ""
            row += [f"{s.log_partition:.2f}{exact}", f"{seconds:.2f}"]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
