"""A solver on all published instances: ``python tests/benchmarks/published.py --seconds 1``.

Each is solved once unseen, so that loading and compiling does not count, and then within so many
seconds of processor time. Prints a row for each that is neither proved nor within 0.1 % of the best
energy known, and how many were.
"""

from __future__ import annotations

import argparse
import math

import inference_lab as il
from inference_lab.problems.instances import available_instances
from inference_lab.registry.sources import as_problem

#: Share of the best energy known that may be missing.
NEAR = 1e-3
#: Processor seconds of the first, unseen run.
UNSEEN = 0.2


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time, for each")
    parser.add_argument("--data-dir", help="default: $INFERENCE_LAB_DATA")
    chosen = parser.parse_args()
    print("| instance | energy | best known | above | bound |\n|---|---:|---:|---:|---:|")
    names = list(available_instances())
    proved = above = 0
    for name in names:
        problem = as_problem(f"instances(instance={name})", data_dir=chosen.data_dir)
        for seconds in (min(UNSEEN, chosen.seconds), chosen.seconds):
            s = il.solve(problem.graph, chosen.solver, time_limit=seconds, clock="cpu")
        if s.status in ("optimal", "infeasible"):
            proved += 1
            continue
        best = float(problem.info["best_known"])
        gap = (s.energy - best) / max(1.0, abs(best)) if math.isfinite(best) else 0.0
        if gap > NEAR:
            above += 1
            numbers = f"{s.energy:.8g} | {best:.8g} | {gap:.2%} | {s.lower_bound:.8g}"
            print(f"| {name} | {numbers} |", flush=True)
    print(f"{len(names)} instances: {proved} proved, {above} more than {NEAR:.1%} above the best")


if __name__ == "__main__":
    main()
