"""Weights of supervised and other points in soft clustering, and their choice by violations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.em import Fit
from inference_lab.clustering.supervision import Supervision
from inference_lab.clustering.violations import violations
from inference_lab.graph.arrays import FloatArray

AlphaMode = Literal["sum", "mean"]
_ALPHAS = tuple(round(0.1 * step, 1) for step in range(9, 0, -1))


def alpha_weights(
    supervised: npt.NDArray[np.bool_],
    alpha: float,
    mode: AlphaMode,
    sample_weight: FloatArray | None = None,
) -> FloatArray | None:
    """Return point weights of mean one, shape (n,), or None for equal ones.

    ``1 - alpha`` weights supervised points, ``alpha`` the others: each point ("sum") or each kind
    ("mean"). Lange et al. 2005 describe "mean" and print "sum".
    """
    if supervised.all() or not supervised.any() or (mode == "sum" and alpha == 0.5):
        return None
    sample_weight = np.ones(supervised.size) if sample_weight is None else sample_weight
    weights = np.where(supervised, 1.0 - alpha, alpha)
    if mode == "mean":
        weights = weights / np.where(
            supervised, sample_weight[supervised].sum(), sample_weight[~supervised].sum()
        )
    return np.asarray(weights * (sample_weight.sum() / (sample_weight @ weights)), dtype=np.float64)


def best_by_alpha(
    alpha: float | str,
    mode: AlphaMode,
    supervision: Supervision,
    fit: Callable[[FloatArray | None], Fit[Any]],
) -> Fit[Any]:
    """Fit with the weights of a given alpha, or of the alpha of fewest violated constraints.

    Violations are counted for labels from the parameters alone, because the labels of a fit
    obey large weights under any alpha (Lange et al. 2005, sec. 2).
    """
    constraints = supervision.constraints
    supervised = supervision.partial_labels >= 0
    supervised[constraints.must_link] = True
    supervised[constraints.cannot_link] = True

    def fitted(value: float) -> Fit[Any]:
        return fit(alpha_weights(supervised, value, mode, supervision.sample_weight))

    if not isinstance(alpha, str):
        return fitted(alpha)
    best, fewest = None, np.inf
    for value in _ALPHAS:
        candidate = fitted(value)
        weight = violations(constraints, candidate.model.nearest(None)).weight
        if best is None or weight < fewest:
            best, fewest = candidate, weight
        if fewest == 0:
            break
    assert best is not None  # because there are values to try
    return best
