"""How methods with a bound of their own begin: what is settled at once, and a first labelling."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import Outcome, Run
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend

#: Sweeps of the descent that finds a first labelling; ICM needs about ten.
_SWEEPS = 200


def trivial_outcome(graph: FactorGraph, run: Run) -> Outcome | None:
    """Report the sum of the least costs as a bound; return the outcome where that is all."""
    # That is all where a variable or a term allows nothing, and where there are no variables.
    trivial = graph.sum_of_minima
    run.bound(trivial)
    if trivial == math.inf:
        return Outcome(infeasible=True)
    if graph.n_variables == 0:
        energy = run.offer(np.empty(0, dtype=np.int64))
        return Outcome(converged=True, claimed_energy=energy)
    return None


def initial_incumbent(graph: FactorGraph, run: Run) -> None:
    """Offer the cheapest labels, and what ICM in a random order makes of them."""
    labels = unary_minimum(graph)
    run.offer(labels)
    descend(graph.arrays, labels, run.rng.permutation(labels.size), _SWEEPS)
    run.offer(labels)
