"""Stopping rule of dual ascent: a bound that hardly rises any more."""

from __future__ import annotations

import math


class Standstill:
    """Test whether a bound has hardly risen in several successive iterations."""

    def __init__(self, tolerance: float, patience: int, scale: float) -> None:
        # Gains up to `tolerance` times the total gain plus `scale` (the mean cost) count as none.
        self.tolerance, self.patience, self.scale = tolerance, patience, scale
        self.first: float | None = None
        self.bound = -math.inf
        self.gain = math.inf
        self._calm = 0

    def reached(self, bound: float) -> bool:
        """Add the bound of an iteration; return whether the bound has converged."""
        if self.first is None:
            self.first = bound
        self.gain = bound - self.bound
        self.bound = bound
        small = self.gain <= self.tolerance * (bound - self.first + self.scale)
        self._calm = self._calm + 1 if small else 0
        return self._calm >= self.patience
