"""
EM with three E-steps, step by step
===================================

The same points, the same constraints, the same start; only the inference in the E-step differs. Two
clusters lie close together and the constraints ask for a split that distances alone do not show.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation

from inference_lab.clustering import PCKMeans
from inference_lab.constraints import Constraints

rng = np.random.default_rng(3)
centres = np.array([[-1.2, 0.0], [1.2, 0.0], [0.0, 2.0]])
classes = np.repeat(np.arange(3), 40)
points = centres[classes] + rng.normal(0, 0.9, (120, 2))
pairs = Constraints.sample(classes, 180, rng).with_weights(ml_weight=1.0, cl_weight=1.0)
pairs = pairs.flip(0.1, rng)
start = points[rng.choice(120, 3, replace=False)]

E_STEPS = ["icm", "loopy-bp(damping=0.5)", "ilp"]
STEPS = 8


def after(e_step: str, steps: int) -> PCKMeans:
    """Return the model after so many iterations from the common start."""
    model = PCKMeans(3, e_step=e_step, e_step_time_limit=2.0, init=start, max_iter=steps, tol=0.0)
    return model.fit(points, **pairs.fit_params())


# %%
# A fit is deterministic, so the frame of an iteration is a fit that ends there.

import warnings

from sklearn.exceptions import ConvergenceWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    models = {e_step: [after(e_step, step + 1) for step in range(STEPS)] for e_step in E_STEPS}

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), constrained_layout=True)


def draw(step: int) -> None:
    """Draw one iteration of each."""
    for panel, (e_step, fits) in zip(axes, models.items(), strict=True):
        model = fits[step]
        panel.clear()
        panel.scatter(*points.T, c=model.labels_, cmap="viridis", s=12)
        panel.scatter(*model.cluster_centers_.T, c="red", marker="x")
        panel.set_title(f"{e_step}\nobjective {model.history_[-1].objective:.1f}", fontsize=8)
        panel.set_axis_off()


animation = FuncAnimation(figure, draw, frames=STEPS, interval=600)
plt.show()
