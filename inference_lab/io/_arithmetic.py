"""The binary cost functions that the weighted CSP format gives by a formula and not by a table."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.graph.arrays import FloatArray

#: Number of parameters of each function.
PARAMETERS = {">=": 2, ">": 2, "<=": 2, "<": 2, "=": 2, "disj": 3, "sdisj": 6}


def table(keyword: str, parameters: list[float], k_x: int, k_y: int) -> FloatArray:
    """Return the costs ``(k_x, k_y)`` of a formula over the labels ``x`` and ``y``.

    With ``c, d`` for the parameters of the inequalities, the cost is the amount by which one is
    violated, and infinite where that exceeds ``d``:

    * ``>=``: ``max(0, y + c - x)``; ``>``: the same for ``x > y + c``, ``max(0, y + c + 1 - x)``;
    * ``<=``: ``max(0, x - c - y)``; ``<``: ``max(0, x - c + 1 - y)``;
    * ``=``: ``|y + c - x|``;
    * ``disj`` with ``(c_x, c_y, w)``: ``w`` unless ``x >= y + c_y`` or ``y >= x + c_x``;
    * ``sdisj`` with ``(c_x, c_y, X, Y, w_x, w_y)``: ``x <= X``, ``y <= Y``, and where both are
      less, ``x >= y + c_y`` or ``y >= x + c_x``; all of them hard; and the cost
      ``w_x [x = X] + w_y [y = Y]``.

    Examples
    --------
    >>> table(">=", [0, 1], 2, 3).tolist()
    [[0.0, 1.0, inf], [0.0, 0.0, 1.0]]
    """
    x = np.arange(k_x, dtype=np.float64)[:, None]
    y = np.arange(k_y, dtype=np.float64)[None, :]
    if keyword in ("disj", "sdisj"):
        apart = (x >= y + parameters[1]) | (y >= x + parameters[0])
        if keyword == "disj":
            return np.where(apart, 0.0, parameters[2])
        last_x, last_y = parameters[2:4]
        allowed = (x <= last_x) & (y <= last_y) & ((x == last_x) | (y == last_y) | apart)
        cost = np.where(x == last_x, parameters[4], 0.0) + np.where(y == last_y, parameters[5], 0.0)
        return np.where(allowed, cost, math.inf)
    shift, most = parameters
    violated = {
        ">=": y + shift - x,
        ">": y + shift + 1 - x,
        "<=": x - shift - y,
        "<": x - shift + 1 - y,
        "=": np.abs(y + shift - x),
    }[keyword]
    return np.where(violated <= most, np.maximum(violated, 0.0), math.inf)
