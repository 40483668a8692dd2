"""What pairs are worth by themselves: how often they are wrong, as far as they tell."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.constraints import Constraints

__all__ = ["log_odds", "wrong_share"]

#: Pairs that are thought to have been checked before any is, and how many of them were wrong.
_CHECKED, _WRONG = 10, 1


def wrong_share(constraints: Constraints) -> float:
    """Return the share of wrong pairs, from those that others check.

    A must-link between points that others connect already, a cannot-link within such a component,
    and all cannot-links but one between two of them are checked; wrong are those that the others
    outvote (`Constraints.vote`). Before any is checked, one in ten is taken to be wrong.

    Examples
    --------
    >>> wrong_share(Constraints([[0, 1], [1, 2]], None, n_points=3))
    0.1
    """
    component = constraints.components()
    connecting = component.size - int(component.max(initial=-1)) - 1
    ends = np.sort(component[constraints.cannot_link], axis=1)
    across = ends[ends[:, 0] != ends[:, 1]]
    checked = len(constraints.must_link) - connecting
    checked += len(constraints.cannot_link) - len(np.unique(across, axis=0))
    wrong = 0
    if len(constraints.contradictions()):
        # All alike: what is asked is how many are wrong, not how much they weigh.
        wrong = len(constraints) - len(constraints.with_weights(1.0, 1.0).vote())
    return min(0.5, (_WRONG + wrong) / (_CHECKED + checked))


def log_odds(constraints: Constraints) -> float:
    """Return by how much likelier a pair is right than wrong, as a logarithm, not negative."""
    share = wrong_share(constraints)
    return math.log((1.0 - share) / share)
