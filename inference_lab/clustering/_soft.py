"""Weights of supervised points for the soft clusterers, and their choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.clustering._side import Side
from inference_lab.clustering.em import Result
from inference_lab.clustering.hmrf import violations
from inference_lab.graph.arrays import FloatArray, IntArray

__all__ = ["AlphaMode", "SoftFit", "best_alpha", "point_weights"]

AlphaMode = Literal["sum", "mean"]
_M = TypeVar("_M")

_ALPHAS = tuple(round(0.1 * step, 1) for step in range(9, 0, -1))


@dataclass
class SoftFit(Generic[_M]):
    """One start of a soft fit."""

    model: _M
    result: Result
    #: Shares of the clusters at the last temperature above zero, if not those of the result.
    shares: FloatArray | None = None
    temperatures: list[float] = field(default_factory=list)

    @property
    def objective(self) -> float:
        """Return the objective, ``inf`` where it is not known, so that known ones are preferred."""
        return self.result.objective if not np.isnan(self.result.objective) else np.inf

    @property
    def labels(self) -> IntArray:
        """Return the most probable cluster of each point."""
        shares = self.result.assignment
        return np.asarray(shares if shares.ndim == 1 else shares.argmax(axis=1), dtype=np.int64)


def point_weights(
    supervised: npt.NDArray[np.bool_],
    alpha: float,
    mode: AlphaMode,
    counts: FloatArray | None = None,
) -> FloatArray | None:
    """Return point weights of mean one, shape (n,), or None for equal ones.

    ``1 - alpha`` weighs supervised points, ``alpha`` the others: each point ("sum") or each kind
    ("mean"). Lange et al. 2005 describe "mean" and print "sum".
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
    if mode not in get_args(AlphaMode):
        raise ValueError(f"alpha_mode = {mode!r} is unknown; allowed: 'sum', 'mean'")
    if supervised.all() or not supervised.any() or (mode == "sum" and alpha == 0.5):
        return None
    times = np.ones(supervised.size) if counts is None else counts
    weights = np.where(supervised, 1.0 - alpha, alpha)
    if mode == "mean":
        weights = weights / np.where(supervised, times[supervised].sum(), times[~supervised].sum())
    return np.asarray(weights * (times.sum() / (times @ weights)), dtype=np.float64)


def best_alpha(
    alpha: float | str,
    mode: AlphaMode,
    side: Side,
    fit: Callable[[FloatArray | None], Any],
) -> Any:
    """Fit with the weights of alpha, or with the alpha of fewest violated constraints.

    Violations are counted for labels from the parameters alone, because the labels of a fit obey
    large weights under any alpha (Lange et al. 2005, sec. 2).
    """
    constraints = side.constraints
    supervised = side.known >= 0
    supervised[constraints.must_link] = True
    supervised[constraints.cannot_link] = True
    if isinstance(alpha, str):
        if alpha != "fewest-violations":
            raise ValueError(
                f"alpha = {alpha!r} is unknown; allowed: a number between 0 and 1, or "
                "'fewest-violations'"
            )
        best, fewest = None, np.inf
        for value in _ALPHAS:
            found = fit(point_weights(supervised, value, mode, side.weights))
            weight = violations(constraints, found.model.nearest(None)).weight
            if best is None or weight < fewest:
                best, fewest = found, weight
            if fewest == 0:
                break
        return best
    return fit(point_weights(supervised, alpha, mode, side.weights))
