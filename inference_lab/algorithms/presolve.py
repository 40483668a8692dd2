"""The trivial bound, and a first labelling by ICM, for methods with a bound of their own."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import Outcome, Run
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend

#: Sweeps of the descent that finds a first labelling; ICM needs about ten.
_SWEEPS = 200


def trivial_outcome(graph: FactorGraph, run: Run) -> Outcome | None:
    """Report the sum of the least costs as a bound; return the outcome of a trivial run."""
    # Trivial are graphs without variables, and those in which a term forbids everything.
    trivial = graph.sum_of_minima
    run.bound(trivial)
    if trivial == math.inf:
        return Outcome(infeasible=True)
    if graph.n_variables == 0:
        energy = run.offer(np.empty(0, dtype=np.int64))
        return Outcome(converged=True, claimed_energy=energy)
    return None


def initial_incumbent(graph: FactorGraph, run: Run) -> None:
    """Offer the cheapest labels, and the result of ICM from there."""
    labels = unary_minimum(graph)
    run.offer(labels)
    descend(graph.arrays, labels, run.rng.permutation(labels.size), _SWEEPS)
    run.offer(labels)
