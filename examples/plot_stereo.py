"""
Stereo: depth from two pictures
===============================

A label is a disparity: how far a pixel moves between the left and the right picture. Neighbours
should have similar ones, but a depth jump must not cost more and more with its height, so the cost
of a pair is truncated. It is the energy of the Middlebury benchmark, on a drawn scene whose depths
are known.
"""

# %%
import matplotlib.pyplot as plt

import inference_lab as il
from inference_lab.problems.stereo import Stereo

problem = Stereo(pair="synthetic", height=70, width=90, labels=10).build()
print(problem.graph)

# %%
# Four methods on one energy. ``gap`` is the distance to the best lower bound that any of them has
# proved, so it is known how much there is left to gain.

SOLVERS = ["icm", "loopy-bp", "alpha-expansion", "trw-s"]
solutions = {name: il.solve(problem.graph, name, time_limit=5.0) for name in SOLVERS}
bound = max(solution.lower_bound for solution in solutions.values())
best = min(solution.energy for solution in solutions.values())

figure, axes = plt.subplots(1, 5, figsize=(10, 2.2), constrained_layout=True)
pictures = {"true depths": problem.picture(problem.truth)}
for name, solution in solutions.items():
    gap = 100 * (solution.energy - bound) / max(abs(best), abs(bound))
    wrong = 100 * problem.score(solution.labels)["bad_pixels"]
    print(f"{name:16} energy {solution.energy:10.0f}  gap {gap:6.2f} %  bad pixels {wrong:4.1f} %")
    pictures[f"{name}, gap {gap:.1f} %"] = problem.picture(solution.labels)
for panel, (title, picture) in zip(axes, pictures.items(), strict=True):
    panel.imshow(picture, cmap="gray")
    panel.set_title(title, fontsize=8)
    panel.set_axis_off()
plt.show()
