"""A mixed model of gains: what changes them, with data sets and draws as random effects."""

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

    Gains are differences of two methods on one problem, so that an effect on them is the
    interaction of the method with a fact; sets and draws within them are random.
    """
    require("report", "statsmodels")
    import pandas as pd
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    columns = {"mean": np.ones(len(gains))}
    for name in effects:
        log, _, fact = name.rpartition(" ")
        column = np.array([float(f[fact]) for f in facts])
        column = np.log(column) if log == "log" else column
        spread = float(column.std())
        if not (math.isfinite(spread) and spread > 0):
            raise ValueError(f"effect {name!r} must vary, and be a finite number everywhere")
        columns[name] = (column - column.mean()) / spread
    sets = np.array([unit for unit, _, _ in gains])
    if len(set(sets)) < 2:
        raise ValueError(f"a mixed model needs two sets at least, got {len(set(sets))}")
    draws = np.array([f"{unit} {draw}" for unit, draw, _ in gains])
    # A draw that is one pair is the rest itself.
    parts: dict[str, Any] = {}
    if len(set(draws)) < len(draws):
        matrices, names = [], []
        for unit in sorted(set(sets)):
            here, which = np.unique(draws[sets == unit], return_inverse=True)
            matrices.append(np.eye(len(here))[which])
            names.append([str(name) for name in here])
        parts["exog_vc"] = VCSpec(["draw"], [names], [matrices])
    with warnings.catch_warnings():
        # A variance at its bound, zero, is an answer.
        warnings.simplefilter("ignore")
        model = MixedLM(
            np.array([gain for _, _, gain in gains]),
            pd.DataFrame(columns),
            groups=sets,
            exog_re=np.ones((len(gains), 1)),
            **parts,
        )
        found = model.fit(reml=True)
    ends = np.asarray(found.conf_int())
    return [
        Coefficient(
            name,
            float(found.fe_params.iloc[at]),
            float(ends[at, 0]),
            float(ends[at, 1]),
            float(found.pvalues.iloc[at]),
        )
        for at, name in enumerate(columns)
    ]
