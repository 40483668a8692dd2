"""
Denoising: the energy is not the picture
========================================

Grey levels under normal noise, restored by minimising a truncated linear prior. One method has the
lower energy, another may have the better picture; a table with both shows which is which.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import inference_lab as il
from inference_lab.problems.image_denoising import ImageDenoising

family = ImageDenoising(height=48, width=64, levels=12, strength=35.0)
problem = family.build()
comparison = il.compare(family, ["icm", "mean-field", "loopy-bp", "trw-s"], time_limit=5.0)
print(comparison)

# %%
# The noisy picture gives each pixel its cheapest level.

noisy = problem.graph.unary.argmin(axis=1)
best = il.solve(problem.graph, "trw-s", time_limit=5.0)
local = il.solve(problem.graph, "icm")

figure, axes = plt.subplots(1, 4, figsize=(9, 2.2), constrained_layout=True)
for panel, (title, labels) in zip(
    axes,
    {"noisy": noisy, "icm": local.labels, "trw-s": best.labels, "clean": problem.truth}.items(),
    strict=True,
):
    psnr = problem.score(labels)["psnr"]  # infinite for the clean picture
    quality = f"{psnr:.1f} dB, " if np.isfinite(psnr) else ""
    panel.imshow(problem.picture(labels), cmap="gray")
    panel.set_title(f"{title}, {quality}energy {problem.graph.energy(labels):.0f}", fontsize=7)
    panel.set_axis_off()
plt.show()
