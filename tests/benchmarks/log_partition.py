"""Upper bounds on log Z of published instances: ``python tests/benchmarks/log_partition.py``.

The instances have a reference value and factors of three variables or more. Bounds of `trw-bp` are
compared with ``log(number) - min E`` at temperature 1, from the least energy and the number of
labellings that hard terms allow. Kernels are compiled before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import inference_lab as il
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.contract import Solution
from inference_lab.data.folders import data_folder
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problems.instances import available_instances
from inference_lab.registry.sources import as_problem


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
    print("| instance | variables, left | log Z | `tree_updates=0` | `trw-bp` | CPU s | counted |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in available_instances():
        problem = as_problem(f"instances(instance={name})", data_dir=str(folder))
        graph, reference = problem.graph, folder / "map" / f"{name}.uai.PR"
        if graph.n_factors == 0 or not reference.exists():
            continue
        plain, _ = timed(graph, "trw-bp(tree_updates=0)")
        better, seconds = timed(graph, "trw-bp")
        number = np.log(allowed_labels(graph).sizes).sum()
        # The file holds the base-10 logarithm.
        published = float(reference.read_text().split()[-1])
        left = better.diagnostics["variables_left"]
        print(
            f"| {name} | {graph.n_variables}, {left} | {published * math.log(10.0):.2f} "
            f"| {plain.log_partition:.2f} | {better.log_partition:.2f} | {seconds:.2f} "
            f"| {number - problem.info['best_known']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
