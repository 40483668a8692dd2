"""Base of the soft clusterers, and their weights of supervised points."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.clustering._base import PairwiseClusterer
from inference_lab.clustering.distortions import Points
from inference_lab.clustering.em import Fit
from inference_lab.clustering.hmrf import violations
from inference_lab.clustering.pair_weights import watch_hard
from inference_lab.clustering.supervision import Supervision
from inference_lab.graph.arrays import FloatArray

AlphaMode = Literal["sum", "mean"]
_ALPHAS = tuple(round(0.1 * step, 1) for step in range(9, 0, -1))


def point_weights(
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


class SoftClusterer(PairwiseClusterer):
    """Base of the estimators whose points have shares in the clusters."""

    alpha: float | str
    alpha_mode: AlphaMode
    _default_weight: ClassVar[float | Literal["auto"]] = "auto"

    @abstractmethod
    def _fit_once(
        self,
        points: Points,
        supervision: Supervision,
        importance: FloatArray | None,
        rng: np.random.Generator,
    ) -> Fit[Any]:
        """Fit from one start, with given weights of points."""

    def _fit(self, points: Points, supervision: Supervision) -> None:
        best = self._best_alpha(points, supervision)
        self._take_model(best.model)
        shares, found = best.shares, best.result.assignment
        if shares is None:
            shares = np.asarray(found if found.ndim == 2 else np.eye(self.n_clusters)[found])
        self.responsibilities_ = shares
        self.labels_ = best.labels
        if best.temperatures is not None:
            self.temperatures_ = np.array(best.temperatures)
        self._note(best.result)
        self._judge(supervision.constraints)
        watch_hard(supervision.constraints, self.labels_)

    @abstractmethod
    def _take_model(self, model: Any) -> None:
        """Set the attributes that hold the fitted parameters."""

    def _best_alpha(self, points: Points, supervision: Supervision) -> Fit[Any]:
        """Fit with the given alpha, or with the alpha of fewest violated constraints.

        Violations are counted for labels from the parameters alone, because the labels of a fit
        obey large weights under any alpha (Lange et al. 2005, sec. 2).
        """
        constraints, alpha = supervision.constraints, self.alpha
        supervised = supervision.known >= 0
        supervised[constraints.must_link] = True
        supervised[constraints.cannot_link] = True

        def fit(value: float) -> Fit[Any]:
            importance = point_weights(
                supervised, value, self.alpha_mode, supervision.sample_weight
            )
            best: Fit[Any] = self._best_of(
                lambda rng: self._fit_once(points, supervision, importance, rng)
            )
            return best

        if not isinstance(alpha, str):
            return fit(alpha)
        best, fewest = None, np.inf
        for value in _ALPHAS:
            found = fit(value)
            weight = violations(constraints, found.model.nearest(None)).weight
            if best is None or weight < fewest:
                best, fewest = found, weight
            if fewest == 0:
                break
        assert best is not None  # because there are values to try
        return best
