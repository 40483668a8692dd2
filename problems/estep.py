"""E-step of constrained clustering on a real data set: distances plus pair penalties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.constraints import Constraints
from inference_lab.constraints.calibration import calibrated_weight, log_odds_of
from inference_lab.constraints.centroids import (
    constraint_centroids,
    kmeans_centroids,
    numbered_like,
    squared_distances,
)
from inference_lab.data.datasets import available, load
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.descent import descend
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.results.scoring import adjusted_rand
from inference_lab.specs.settings import setting

#: Default number of constraints.
_CONSTRAINTS = 100
#: Limits of remarks: the share of the points in one must-link component, and the ratio of the
#: weight to the calibrated weight, in either direction.
_GIANT = 0.5
_FAR = 10.0
#: Most rounds of descent and means, and sweeps of a descent; both converge long before.
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class EStep(ProblemFamily):
    """The energy that one E-step of HMRF-KMeans minimises (Basu et al. 2004, eq. 9).

    ``E(x) = sum_i ||f_i - mu_{x_i}||^2 + w sum_ML [x_i != x_j] + w sum_CL [x_i = x_j]``

    with fixed centroids ``mu``, each unordered pair counted once. Constraints are random pairs of
    points, typed by the classes, which are the ground truth.

    Parameters
    ----------
    data : str
        A data set of `inference_lab.data.datasets`, such as iris, wine, digits-389 (scikit-learn),
        gaussians-round (drawn), or ecoli (data folder).
    points : int or None
        Points drawn at random, or the size of a generated data set; classes without a drawn
        point do not count. None takes all.
    constraints : int or None
        Number of distinct pairs drawn; None if `constraints_per_point` is given.
    constraints_per_point : float or None
        Number of pairs for each point; `constraints` is None then.
    noise : float in [0, 1]
        Share of the constraints whose type is flipped.
    weight : float, "auto" or "calibrated"
        Penalty of a violated constraint, ``inf`` for hard ones; "auto" is the mean squared distance
        of the points from their mean. "calibrated" follows from the model, Gaussians of equal
        variance ``v`` and a share ``p`` of wrong answers: ``2 v log((1 - p) / p)``, with ``v`` the
        variance of a feature within the clusters of k-means, and ``p = (noise m + 1/2) / (m + 1)``
        for m constraints; 0 from p = 1/2 on.
    weight_factor : float
        Multiplies `weight`.
    centroids : {"kmeans", "em", "constraints"}
        From k-means without constraints, k-means that pays for violated constraints, or the
        neighbourhoods of the constraints (Basu et al. 2004, sec. 3.3).
        Wrong must-links merge neighbourhoods, so that most centroids then are perturbations of the
        mean; "kmeans" avoids this. Names always include the centroids.
    standardise : bool
        Scale each feature to unit variance first.
    seed : int
        Seeds, independently of each other, the constraints, the flips and the centroids.

    Notes
    -----
    The info holds ``largest_component``, the share of points in the largest must-link component,
    and ``weight_over_calibrated``, the ratio of the weight to the calibrated one; ``remarks`` are
    about uncommon values.

    References
    ----------
    S. Basu, M. Bilenko, R. Mooney, "A probabilistic framework for semi-supervised clustering",
    KDD 2004. M. Bilenko, S. Basu, "A comparison of inference techniques for semi-supervised
    clustering with hidden Markov random fields", SRL workshop 2004.

    Examples
    --------
    >>> problem = EStep(data="iris", constraints=50).build()
    >>> problem.graph
    FactorGraph(150 variables x 3 labels; terms: 50 Potts)
    >>> problem.name
    'estep(data=iris, constraints=50, centroids=kmeans)'
    """

    data: str = setting("iris", always=True)
    points: int | None = setting(None, at_least=2)
    constraints: int | None = setting(_CONSTRAINTS, at_least=0, always=True)
    constraints_per_point: float | None = setting(None, above=0, below=math.inf)
    noise: float = setting(0.0, at_least=0, at_most=1)
    weight: float | Literal["auto", "calibrated"] = setting("auto", at_least=0)
    weight_factor: float = setting(1.0, above=0, below=math.inf)
    centroids: Literal["kmeans", "em", "constraints"] = setting("kmeans", always=True)
    standardise: bool = False
    seed: int = setting(0, at_least=0)

    @staticmethod
    def data_sets() -> list[str]:
        """Return the names of data sets that `data` may be."""
        return list(available())

    def __post_init__(self) -> None:
        """Check the settings that do not depend on the data."""
        super().__post_init__()
        if self.constraints_per_point is not None:
            if self.constraints not in (None, _CONSTRAINTS):
                raise ValueError(
                    f"constraints={self.constraints} and constraints_per_point="
                    f"{self.constraints_per_point} both give the number of constraints; pass one"
                )
            object.__setattr__(self, "constraints", None)
        elif self.constraints is None:
            raise ValueError("constraints=none needs constraints_per_point")

    def build(self, data_dir: Path | None = None) -> Problem:
        """Load the data, draw the constraints, and set up the energy."""
        dataset = load(self.data, data_dir, least=self.points or 0)
        features, truth = dataset.features, dataset.labels
        # One stream each, so that changing one setting leaves the other draws alone.
        _, draw, flip, start, few = np.random.default_rng(self.seed).spawn(5)
        if self.points is not None and self.points < dataset.n_points:
            rows = np.sort(few.permutation(dataset.n_points)[: self.points])
            features, truth = features[rows], truth[rows]
            truth = np.unique(truth, return_inverse=True)[1].astype(np.int64)
        if self.standardise:
            spread = features.std(axis=0)
            features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        n, k = len(truth), int(truth.max()) + 1
        count = self.constraints
        if count is None:
            assert self.constraints_per_point is not None  # checked above
            count = round(self.constraints_per_point * n)
        odds = log_odds_of(self.noise, count)
        weight = self._weight(features, odds, k)
        used = Constraints.sample(truth, count, draw, ml_weight=weight, cl_weight=weight)
        used = used.flip(self.noise, flip)
        centroids = self._centroids(features, used, k, start)
        if self.centroids == "em":
            centroids = _constrained_means(features, used, centroids)
        unary = squared_distances(features, centroids)
        calibrated = float(2.0 * unary.min(axis=1).mean() / features.shape[1] * odds)
        order = numbered_like(unary.argmin(axis=1), truth, k)
        unary = np.ascontiguousarray(unary[:, order])
        info: dict[str, Any] = {
            "points": n,
            "features": dataset.n_features,
            "clusters": k,
            "must_links": len(used.must_link),
            "cannot_links": len(used.cannot_link),
            "largest_component": float(np.bincount(used.components()).max() / n),
            "weight": weight,
            "contradictions": len(used.contradictions()),
            "source": dataset.source,
        }
        if calibrated > 0:
            is_calibrated = self.weight == "calibrated"
            info["weight_over_calibrated"] = (
                self.weight_factor if is_calibrated else weight / calibrated
            )
        if remarks := self._remarks(info):
            info["remarks"] = remarks
        return EStepProblem(
            self.spec,
            FactorGraph.from_terms(unary, used.terms()),
            truth=truth,
            info=info,
            constraints=used,
        )

    def _remarks(self, info: Mapping[str, Any]) -> list[str]:
        """Return remarks on unusual settings."""
        sentences = []
        share = info["largest_component"]
        if share > _GIANT and self.centroids == "constraints":
            sentences.append(
                f"must-links connect {share:.3f} of the points, so that neighbourhoods "
                "hold little information about centroids (see centroids=kmeans)"
            )
        ratio = info.get("weight_over_calibrated", 1.0)
        if not 1 / _FAR <= ratio <= _FAR:
            sentences.append(
                f"the weight of a constraint is {ratio:.3g} times the calibrated one "
                "(see weight=calibrated)"
            )
        return sentences

    def _weight(self, features: FloatArray, odds: float, k: int) -> float:
        weight = self.weight
        if weight == "auto":
            weight = features.var(axis=0).sum()
        elif weight == "calibrated":
            weight = calibrated_weight(features, k, odds)
        return float(self.weight_factor * weight)

    def _centroids(
        self,
        features: FloatArray,
        constraints: Constraints,
        k: int,
        rng: np.random.Generator,
    ) -> FloatArray:
        if self.centroids in ("kmeans", "em"):
            return kmeans_centroids(features, k, rng)
        # The multiplicative perturbation leaves a global mean of zero unchanged.
        perturbation: Literal["additive", "multiplicative"] = (
            "additive" if self.standardise else "multiplicative"
        )
        return constraint_centroids(features, constraints, k, rng, perturbation=perturbation)


@dataclass(frozen=True)
class EStepProblem(Problem):
    """A problem of `EStep` with its constraints."""

    #: The constraints as drawn.
    constraints: Constraints | None = None

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Score a labelling as `Problem.score` does, and on the constraints."""
        assert self.constraints is not None and self.truth is not None  # as `EStep` makes it
        x = self.graph.check_labels(labels)
        pairs = (self.constraints.must_link, self.constraints.cannot_link)
        scores = super().score(x)
        if len(self.constraints):
            touched = np.unique(np.concatenate([rows.ravel() for rows in pairs]))
            scores["ari_constrained"] = adjusted_rand(self.truth[touched], x[touched])
            apart, together = (x[rows[:, 0]] != x[rows[:, 1]] for rows in pairs)
            scores["violated"] = float(apart.sum() + (~together).sum()) / len(self.constraints)
        return scores


def _constrained_means(
    features: FloatArray, constraints: Constraints, centroids: FloatArray
) -> FloatArray:
    """Alternate descent on the labels and means until convergence; return the centroids."""
    n, k = len(features), len(centroids)
    labels: IntArray | None = None
    for _ in range(_MOST_ROUNDS):
        unary = squared_distances(features, centroids)
        x = unary.argmin(axis=1) if labels is None else labels.copy()
        descend(FactorGraph.from_terms(unary, constraints.terms()), x, np.arange(n), _MOST_ROUNDS)
        if labels is not None and np.array_equal(x, labels):
            break
        labels = x
        sums = np.zeros_like(centroids)
        np.add.at(sums, x, features)
        sizes = np.bincount(x, minlength=k)[:, np.newaxis]
        centroids = np.where(sizes > 0, sums / np.maximum(sizes, 1), centroids)
    return centroids
