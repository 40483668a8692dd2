"""Trivial lower bound and trivial runs."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import Outcome, Run
from inference_lab.graph.factor_graph import FactorGraph


def trivial_outcome(graph: FactorGraph, run: Run) -> Outcome | None:
    """Report the sum of the least costs as a bound; return the outcome of a trivial run."""
    # A graph is trivial if it has no variables, or if one term forbids every labelling.
    trivial = graph.sum_of_minima
    run.bound(trivial)
    if trivial == math.inf:
        return Outcome(infeasible=True)
    if graph.n_variables == 0:
        energy = run.offer(np.empty(0, dtype=np.int64))
        return Outcome(converged=True, claimed_energy=energy)
    return None
