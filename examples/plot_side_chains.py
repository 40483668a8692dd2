"""
Protein side chains: many labels, dense tables, and a proof
===========================================================

Each residue of a protein takes one of up to 81 rotamers; side chains that are close must not clash.
Such energies have large tables and still are often solved to proved optimality.
"""

# %%
import matplotlib.pyplot as plt

import inference_lab as il
from inference_lab.plotting.plots import plot_trace
from inference_lab.problems.protein_side_chains import ProteinSideChains

problem = ProteinSideChains(residues=40, max_rotamers=9, seed=4).build()
print(problem.graph)

# %%
# The history of a run has the best energy and the best bound at each moment; where they meet, the
# answer is proved.

figure, axes = plt.subplots(figsize=(6, 3.4), constrained_layout=True)
for solver in ("icm", "loopy-bp", "trw-s(tighten=cycles)"):
    solution = il.solve(problem.graph, solver, time_limit=10.0)
    print(f"{solver:22} {solution.energy:9.3f}  {solution.status}")
    plot_trace(solution, axes)
plt.show()
