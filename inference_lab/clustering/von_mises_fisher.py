"""Von Mises-Fisher components: posteriors of directions, and the necessary Bessel functions.

On the unit sphere of ``d`` dimensions, ``f(x | mu, kappa) = C(kappa) exp(kappa mu' x)``.

A. Banerjee, I. Dhillon, J. Ghosh, S. Sra, "Clustering on the unit hypersphere using von
Mises-Fisher distributions", JMLR 6, 2005. S. Gopal, Y. Yang, "Von Mises-Fisher clustering models",
ICML 2014. NIST Digital Library of Mathematical Functions, section 10.41 (Bessel functions of large
order).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.graph.arrays import FloatArray

__all__ = [
    "Directions",
    "concentration_of",
    "log_bessel",
    "log_normaliser",
    "mean_length",
]

#: Order from which on Bessel functions use the asymptotic expansion, accurate to 1e-9 or better.
_LARGE_ORDER = 50.0
#: Largest concentration, because the density of coinciding points would grow without bound.
_MOST = 1e6


@lean_kernel
def _expansion(order: float, x: float) -> float:
    """Return `log_bessel` of a large order."""
    root = math.sqrt(1.0 + (x / order) ** 2)
    t = 1.0 / root
    s = t * t
    terms = (
        1.0
        + t * (3 - 5 * s) / (24 * order)
        + s * (81 + s * (-462 + 385 * s)) / (1152 * order**2)
        + t * s * (30375 + s * (-369603 + s * (765765 - 425425 * s))) / (414720 * order**3)
        + (s * s)
        * (4465125 + s * (-94121676 + s * (349922430 + s * (-446185740 + 185910725 * s))))
        / (39813120 * order**4)
    )
    value = order * (root - math.log1p(root) - math.log(order)) + math.log(terms)
    return float(value - 0.5 * math.log(2.0 * math.pi * order * root))


@lean_kernel
def log_bessel(order: float, x: float) -> float:
    """Return ``log(I(x) / x^order)``, for small orders by the stable downward recurrence."""
    steps = max(0, math.ceil(_LARGE_ORDER - order))
    top = order + steps
    value = _expansion(top, x)
    if steps:
        ratio = math.exp(_expansion(top + 1.0, x) - value)
        for down in range(steps):
            ratio = 1.0 / (2.0 * (top - down) + x * x * ratio)
            value -= math.log(ratio)
    return float(value)


def _over_array(order: float, x: Any) -> FloatArray:
    """Return `log_bessel` of each entry."""
    given = np.asarray(x, dtype=np.float64)
    return np.array([log_bessel(order, each) for each in given.flat]).reshape(given.shape)


def log_normaliser(d: int, kappa: Any) -> FloatArray:
    """Return ``log C(kappa)`` on the unit sphere in ``d`` dimensions; minus its log-area at 0."""
    return -0.5 * d * math.log(2.0 * math.pi) - _over_array(0.5 * d - 1.0, kappa)


def mean_length(d: int, kappa: Any) -> FloatArray:
    """Return ``A(kappa)``, the length of the mean of a von Mises-Fisher distribution."""
    x = np.asarray(kappa, dtype=np.float64)
    return x * np.exp(_over_array(0.5 * d, x) - _over_array(0.5 * d - 1.0, x))


def concentration_of(d: int, length: float) -> float:
    """Return the concentration whose mean has this length, at most a million."""
    if length <= 0.0:
        return 0.0
    if length >= float(mean_length(d, _MOST)):
        return _MOST
    from scipy.optimize import brentq

    return float(brentq(lambda x: float(mean_length(d, x)) - length, 0.0, _MOST, rtol=1e-12))


class Directions:
    """Posteriors of mean directions given shares (n, k), with one concentration for all components.

    The prior of the directions is uniform; ``kappa`` is the maximum-likelihood value given the
    posteriors (type II), so updates of both raise the bound. Empty components have mean 0.
    """

    def __init__(self, points: FloatArray, shares: FloatArray, kappa: float | None = None) -> None:
        d = points.shape[1]
        self.kappa = float(d) if kappa is None else kappa
        sums = shares.T @ points
        lengths = np.linalg.norm(sums, axis=1)
        self.means: FloatArray = sums / np.maximum(lengths, 1e-300)[:, None]
        self.sureness: FloatArray = self.kappa * lengths
        total = float(shares.sum())
        if total > 0.0:
            held = float(mean_length(d, self.sureness) @ lengths)
            self.kappa = concentration_of(d, held / total)

    def draw(self, rng: np.random.Generator) -> None:
        """Draw the mean directions from their prior, each as concentrated as a point."""
        drawn = rng.normal(size=self.means.shape)
        self.means = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        self.sureness = np.full(len(drawn), self.kappa)

    def expected_log_density(self, points: FloatArray) -> FloatArray:
        """Return ``E ln f(x | mu_k, kappa)``, shape (n, k)."""
        d = points.shape[1]
        lengths = mean_length(d, self.sureness)
        inner = points @ (self.means * lengths[:, None]).T
        return np.asarray(log_normaliser(d, self.kappa) + self.kappa * inner)

    def divergence(self) -> float:
        """Return the summed divergence of the posteriors from the prior."""
        d = self.means.shape[1]
        own = log_normaliser(d, self.sureness) + self.sureness * mean_length(d, self.sureness)
        return float((own - log_normaliser(d, 0.0)).sum())
