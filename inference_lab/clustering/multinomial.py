"""Multinomial components: Dirichlet posteriors of the probabilities.

Densities omit the multinomial coefficient, which is the same in every component.
"""

from __future__ import annotations

import numpy as np

from inference_lab.clustering.distortions import Points, product
from inference_lab.graph.arrays import FloatArray

__all__ = ["Multinomials", "checked_counts"]


def checked_counts(points: Points) -> Points:
    """Return points if they are valid counts, whole or not."""
    if points.shape[0] and points.min() < 0.0:
        raise ValueError("X has negative values; data='counts' needs counts")
    return points


class Multinomials:
    """Dirichlet posteriors (k, d) of all components, given shares and the prior's `belief`."""

    def __init__(self, points: Points, shares: FloatArray, belief: float) -> None:
        self.belief = belief
        self.posterior: FloatArray = np.asarray(belief + (points.T @ shares).T)
        self._length = float(points.sum()) / max(1, points.shape[0])

    @property
    def means(self) -> FloatArray:
        """Expected probabilities, shape (k, d)."""
        return np.asarray(self.posterior / self.posterior.sum(axis=1, keepdims=True))

    def draw(self, rng: np.random.Generator) -> None:
        """Draw the probabilities from their prior, each as concentrated as a point."""
        k, d = self.posterior.shape
        drawn = rng.dirichlet(np.full(d, self.belief), size=k)
        self.posterior = self.belief + self._length * drawn

    def expected_log_density(self, points: Points) -> FloatArray:
        """Return ``sum_w x_w E ln theta_kw``, shape (n, k)."""
        from scipy.special import digamma

        total = self.posterior.sum(axis=1, keepdims=True)
        return product(points, digamma(self.posterior) - digamma(total))

    def divergence(self) -> float:
        """Return the summed divergence of the posteriors from the prior."""
        from scipy.special import digamma, gammaln

        _, d = self.posterior.shape
        total = self.posterior.sum(axis=1)
        logs = digamma(self.posterior) - digamma(total)[:, None]
        own = gammaln(total) - gammaln(self.posterior).sum(axis=1)
        prior = gammaln(d * self.belief) - d * gammaln(self.belief)
        apart = ((self.posterior - self.belief) * logs).sum(axis=1)
        return float((own - prior + apart).sum())
