"""
A new solver, found wrong by the suite
======================================

A method of one's own is a dataclass with one method. The conformance suite runs it on small random
graphs of every family against brute force; a failure names the smallest graph that shows it.
"""

# %%
# This solver takes each variable's cheapest label and claims that the sum of these costs is a lower
# bound. That is true while no pair has a negative cost.

from dataclasses import dataclass

import matplotlib.pyplot as plt

import inference_lab as il
from inference_lab.conformance import NotApplicable, solver_checks
from inference_lab.contract import Outcome, Run, Solver


@dataclass(frozen=True)
class Hopeful(Solver):
    """Cheapest labels, and a bound that forgets the pairs."""

    def run(self, graph: il.FactorGraph, run: Run) -> Outcome:
        """Offer the cheapest labels; claim their cost as a bound."""
        labels = [int(graph.unary_of(i).argmin()) for i in range(graph.n_variables)]
        run.offer(labels)
        run.bound(sum(float(graph.unary_of(i).min()) for i in range(graph.n_variables)))
        return Outcome(converged=True)


# %%
# The same checks are tests of pytest, one each, or run with ``inference-lab check FILE``.

passed, failed = [], {}
for check in solver_checks(Hopeful()):
    try:
        check()
        passed.append(str(check))
    except AssertionError as error:
        failed[str(check)] = str(error)
    except NotApplicable:
        pass
print(f"{len(passed)} checks passed, {len(failed)} failed:")
for name, message in failed.items():
    print(f"\n{name}\n{message}")

# %%
# One graph suffices: two variables that prefer to differ.

graph = il.FactorGraph.potts([[0.0, 0.2], [0.0, 0.2]], [(0, 1)], [-1.0])
wrong, right = il.solve(graph, Hopeful()), il.solve(graph, "brute-force")
figure, axes = plt.subplots(figsize=(4, 2.6), constrained_layout=True)
axes.bar(["claimed bound", "optimum"], [wrong.lower_bound, right.energy], color=["C3", "C0"])
axes.axhline(0.0, color="0.5", linewidth=0.8)
axes.set_ylabel("energy")
plt.show()
