"""
Decoding a low-density parity-check code
========================================

Every check forbids half of the labellings of its bits: hard factors of order six. Belief
propagation was made for this. How much noise can a code of 96 bits take, with BP and with an
integer program, when each has a second for a word?
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import inference_lab as il
from inference_lab.problems.decoding import Decoding

NOISE = [0.02, 0.04, 0.06, 0.08]
WORDS = 4


def errors(solver: str, noise: float, seed: int) -> float:
    """Return the share of the bits that come out wrong."""
    problem = Decoding(length=96, noise=noise, seed=seed).build()
    solution = il.solve(problem.graph, solver, time_limit=1.0)
    if not solution.feasible:
        # No word of the code was found: what was received is the best guess.
        received = problem.graph.unary.argmin(axis=1)
        return problem.score(received)["bit_errors"]
    return problem.score(solution.labels)["bit_errors"]


figure, axes = plt.subplots(figsize=(5, 3.2), constrained_layout=True)
for solver in ("loopy-bp", "ilp"):
    rates = [np.mean([errors(solver, p, seed) for seed in range(WORDS)]) for p in NOISE]
    axes.plot(NOISE, rates, marker="o", label=solver)
    print(solver, np.round(rates, 4))
axes.plot(NOISE, NOISE, color="0.7", label="no decoding")
axes.set(xlabel="share of bits that the channel flips", ylabel="share of bits wrong after decoding")
axes.legend(frameon=False)
plt.show()
