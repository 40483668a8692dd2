"""
How good are approximate marginals?
===================================

On a small frustrated grid the exact marginals are known. Mean field is overconfident, loopy belief
propagation is close until the couplings get strong, and Gibbs sampling is right given time.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import inference_lab as il
from inference_lab.problems.ising import Ising

COUPLINGS = [0.25, 0.5, 1.0, 2.0]
SOLVERS = ["mean-field", "loopy-bp(damping=0.5)", "trw-bp", "gibbs"]


def distance(solver: str, coupling: float) -> float:
    """Return the mean total variation distance of the marginals from the exact ones."""
    graph = Ising(size=8, coupling=coupling, seed=1).build().graph
    exact = il.solve(graph, "junction-tree", temperature=1.0).marginals
    found = il.solve(graph, solver, temperature=1.0, time_limit=2.0).marginals
    return float(0.5 * np.abs(found - exact).sum(axis=1).mean())


figure, axes = plt.subplots(figsize=(5, 3.2), constrained_layout=True)
for solver in SOLVERS:
    axes.plot(COUPLINGS, [distance(solver, c) for c in COUPLINGS], marker="o", label=solver)
axes.set(
    xscale="log", yscale="log", xlabel="strength of the couplings", ylabel="distance from exact"
)
axes.set_xticks(COUPLINGS, [f"{c:g}" for c in COUPLINGS])
axes.set_xticks([], minor=True)
axes.legend(frameon=False, fontsize=8)
plt.show()
