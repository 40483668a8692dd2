"""A solver on all published instances: ``python benchmarks/published.py --seconds 1``.

With ``--grid`` it uses E-steps of the study estep-regimes instead, with ``--hardest 4`` only the
four with the largest gaps; with ``--beside memetic ilp`` other solvers run in turn for the same
time. Each problem is solved once for warm-up, and then within the given seconds of processor time.
Prints a row for each that is not within 0.1 % of the best known energy, or that only another solver
proves, and the number of rows.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import inference_lab as il
from inference_lab.contract import Solution
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problems.instances import available_instances
from inference_lab.registry.sources import as_problem
from inference_lab.results.analysis import Findings
from inference_lab.results.records import RecordStore
from inference_lab.selection.instance_features import BREAKS, class_of, measure

#: Share of the best known energy that may be missing.
NEAR = 1e-3
#: Processor seconds of the first, unseen run.
UNSEEN = 0.2
#: Records of the study's problems.
RECORDS = Path(__file__).parents[1] / "reports" / "estep-regimes" / "runs.jsonl"
#: Number of problems of each class of frustration with, and without, a tight LP relaxation.
OF_A_CLASS = {True: 2, False: 9}


def instances(data_dir: str | None) -> Iterator[tuple[str, FactorGraph, float]]:
    """Yield the names, graphs and best energies of all published instances."""
    for name in available_instances():
        problem = as_problem(f"instances(instance={name})", data_dir=data_dir)
        yield name, problem.graph, float(problem.info.get("best_known", math.inf))


def grid(data_dir: str | None) -> Iterator[tuple[str, FactorGraph, float]]:
    """Yield E-steps of every class, the first by the hashes of their graphs."""
    wanted = {(at, tight): n for at in range(len(BREAKS) + 1) for tight, n in OF_A_CLASS.items()}
    findings = Findings.of_store(RecordStore(RECORDS))
    of_lp = {r.problem: r.lower_bound for r in findings.records if r.solver == "lp-relaxation"}
    for one in sorted(findings.problems, key=lambda one: one.hash):
        tight = of_lp.get(one.name, -math.inf) >= one.best_energy - 1e-6
        if not any(remaining for (_, of), remaining in wanted.items() if of == tight):
            continue
        graph = as_problem(one.name, data_dir=data_dir).graph
        kind = class_of(measure(graph).frustration), tight
        if wanted[kind]:
            wanted[kind] -= 1
            yield one.name, graph, one.best_energy


def hardest(
    problems: Iterable[tuple[str, FactorGraph, float]], count: int
) -> list[tuple[str, FactorGraph, float]]:
    """Return the problems of the study whose bound is furthest from the best energy known."""
    bounds = {p.name: p.best_bound for p in Findings.of_store(RecordStore(RECORDS)).problems}
    return sorted(problems, key=lambda one: (bounds[one[0]] - one[2]) / abs(one[2]))[:count]


def solved(graph: FactorGraph, solver: str, seconds: float) -> Solution:
    """Return the result of a solver after warm-up."""
    for limit in (min(UNSEEN, seconds), seconds):
        s = il.solve(graph, solver, time_limit=limit, clock="cpu")
    return s


def main() -> None:
    """Print a row for each instance that is not solved, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--beside", nargs="*", default=[], help="other solvers, for comparison")
    parser.add_argument("--grid", action="store_true", help="E-steps instead of instances")
    parser.add_argument("--hardest", type=int, help="of the E-steps, only so many")
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time, for each")
    parser.add_argument("--data-dir", help="default: $INFERENCE_LAB_DATA")
    options = parser.parse_args()
    print("| problem | energy | best | above | bound | proved by |\n|---|---:|---:|---:|---:|---|")
    counts: Counter[str] = Counter()
    problems: Iterable[tuple[str, FactorGraph, float]]
    problems = (grid if options.grid else instances)(options.data_dir)
    if options.grid and options.hardest:
        problems = hardest(problems, options.hardest)
    for name, graph, best in problems:
        s, *others = (
            solved(graph, solver, options.seconds) for solver in (options.solver, *options.beside)
        )
        proved = [o.solver for o in others if o.status in ("optimal", "infeasible")]
        mine = s.status in ("optimal", "infeasible")
        best = min([best, *(o.energy for o in others)])
        gap = (s.energy - best) / max(1.0, abs(best)) if math.isfinite(best) else 0.0
        above = gap > NEAR and not mine
        counts.update(all=1, proved=mine, others=bool(proved), above=above)
        if above or (proved and not mine):
            numbers = f"{s.energy:.8g} | {best:.8g} | {gap:.2%} | {s.lower_bound:.8g}"
            print(f"| {name} | {numbers} | {', '.join(proved)} |", flush=True)
    beside = f" ({counts['others']} by another)" if options.beside else ""
    text = f"{counts['all']} problems: {counts['proved']} proved{beside}, {counts['above']}"
    print(f"{text} more than {NEAR:.1%} above the best")


if __name__ == "__main__":
    main()
