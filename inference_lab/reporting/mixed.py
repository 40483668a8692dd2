"""A mixed model of gains: effects of facts on them, with data sets and draws as random effects."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_lab.specs.extras import require

__all__ = ["Coefficient", "mixed_model"]


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of a mixed model."""

    name: str
    value: float
    low: float
    high: float
    p_value: float


def mixed_model(
    gains: Sequence[tuple[str, str, float]],
    facts: Sequence[Mapping[str, Any]],
    effects: Sequence[str],
) -> list[Coefficient]:
    """Fit ``gain = mean + effects + set + draw + rest`` by restricted maximum likelihood.

    Gains are differences of two methods on one problem, so an effect on them is the interaction of
    the method with a fact. Sets, and draws within them, are random.
    """
    require("report", "statsmodels")
    import pandas as pd
    from statsmodels.regression.mixed_linear_model import MixedLM

    frame = pd.DataFrame(list(gains), columns=["set", "draw", "gain"])
    if (sets := frame["set"].nunique()) < 2:
        raise ValueError(f"a mixed model needs two sets at least, got {sets}")
    names = [f"effect_{number}" for number in range(len(effects))]
    for name, effect in zip(names, effects, strict=True):
        log, _, fact = effect.rpartition(" ")
        column = np.array([float(f[fact]) for f in facts])
        column = np.log(column) if log == "log" else column
        spread = float(column.std())
        if not (math.isfinite(spread) and spread > 0):
            raise ValueError(f"effect {effect!r} must vary, and be a finite number everywhere")
        frame[name] = (column - column.mean()) / spread
    # Without repeated draws, the effect of a draw coincides with the residual.
    nested = frame[["set", "draw"]].duplicated().any()
    with warnings.catch_warnings():
        # Warnings are suppressed, because a variance at its bound, zero, is a valid estimate.
        warnings.simplefilter("ignore")
        found = MixedLM.from_formula(
            " + ".join(["gain ~ 1", *names]),
            frame,
            groups="set",
            re_formula="1",
            vc_formula={"draw": "0 + C(draw)"} if nested else None,
        ).fit(reml=True)
    ends = np.asarray(found.conf_int())
    return [
        Coefficient(
            name,
            float(found.fe_params.iloc[at]),
            float(ends[at, 0]),
            float(ends[at, 1]),
            float(found.pvalues.iloc[at]),
        )
        for at, name in enumerate(["mean", *effects])
    ]
