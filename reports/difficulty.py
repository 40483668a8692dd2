"""Predictions of `il.diagnose` from graph features, learnt from the records of a study.

Problems are grouped by frustrated pairs times their weight, with solved shares and good solvers.
``python -m inference_lab.reports.difficulty STORE`` prints the library's ``evidence.json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from inference_lab.registry.sources import as_problem
from inference_lab.reporting.overview import NEAR
from inference_lab.reporting.result_arrays import ResultArrays, facts_of
from inference_lab.results.analysis import Findings
from inference_lab.results.records import RecordStore
from inference_lab.selection.instance_features import (
    BREAKS,
    class_of,
    known_facts,
    measure,
)

#: The solver whose proofs decide whether the LP relaxation is tight.
_LP = "lp-relaxation"

#: Number of solvers listed for each class.
_SHOWN = 6

#: Features that are evaluated as predictors of whether the relaxation is tight.
PREDICTORS = (
    "frustration",
    "frustrated",
    "core",
    "mean_degree",
    "largest_component",
    "repulsive",
    "weight_ratio",
    "constraints_noise",
    "weight_over_calibrated",
)


def auc(scores: npt.ArrayLike, hard: npt.ArrayLike) -> float:
    """Return the share of pairs in which the hard problem scores higher; ties count half."""
    from sklearn.metrics import roc_auc_score

    if len(np.unique(np.asarray(hard, dtype=bool))) < 2:
        return math.nan
    return float(roc_auc_score(hard, scores))


def learn(store: Path | str, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure the problems in a store of records, and return the learnt predictions."""
    records = [r for r in Findings.of_store(RecordStore(store)).records if r.temperature == 0]
    results = ResultArrays(Findings(records))
    solvers = results.solvers
    if _LP not in solvers:
        raise ValueError(f"{store} has no run of {_LP}, whose proofs are to be predicted")
    names = [record.problem for record in results.problem_records]
    rows = []
    for record in results.problem_records:
        graph = as_problem(record.problem, data_dir).graph
        if graph.content_hash != record.problem_hash:
            raise ValueError(f"{record.problem} is another graph today than when {store} was made")
        measures = measure(graph)
        facts = known_facts({**facts_of(record), **record.problem_info}, measures)
        rows.append({**asdict(measures), "frustration": measures.frustration, **facts})
    proved = np.isfinite(results.typical(results.of("proof_seconds")))
    run = results.run[:, solvers.index(_LP)]
    tight = proved[:, solvers.index(_LP)]
    figures = {
        "gap": results.typical(results.of("primal_gap")),
        "seconds": results.typical(results.of("charged_seconds")),
        "proved": proved,
        "refused": np.nan_to_num(results.typical(results.of("unsupported"))) > 0,
        "run": results.run,
    }
    predictors = {}
    for name in PREDICTORS:
        values = np.array([row.get(name, math.nan) for row in rows])
        valid = run & np.isfinite(values)
        predictors[name] = auc(values[valid], ~tight[valid])
    classes = [class_of(row["frustration"]) for row in rows]
    units = [
        str(facts_of(record).get("data", name))
        for record, name in zip(results.problem_records, names, strict=True)
    ]
    return {
        "breaks": list(BREAKS),
        "study": Path(store).resolve().parent.name,
        "problems": len(names),
        "sets": len(set(units)),
        "predictors": {k: round(v, 3) for k, v in predictors.items() if math.isfinite(v)},
        "classes": [
            _class(np.flatnonzero(np.array(classes) == c), figures, solvers, tight, units)
            for c in range(len(BREAKS) + 1)
        ],
    }


def _class(
    here: np.ndarray[Any, Any],
    figures: dict[str, Any],
    solvers: Sequence[str],
    tight: np.ndarray[Any, Any],
    units: Sequence[str],
) -> dict[str, Any]:
    """Return the facts of the problems of one class."""
    if not len(here):
        return {"problems": 0}
    share = binomtest(int(tight[here].sum()), len(here)).proportion_ci(method="wilson")
    loose = here[~tight[here]]
    return {
        "problems": len(here),
        "sets": len({units[at] for at in here}),
        "tight": int(tight[here].sum()),
        "tight_interval": [round(float(share.low), 3), round(float(share.high), 3)],
        "proved_by_any": int(figures["proved"][here].any(axis=1).sum()),
        **_best(here, figures, solvers),
        # Listed separately because the later stages of a study run on these problems only.
        "not_tight": {"problems": len(loose), **_best(loose, figures, solvers)},
    }


def _best(
    here: np.ndarray[Any, Any], figures: dict[str, Any], solvers: Sequence[str]
) -> dict[str, Any]:
    """Return the best solvers of some problems, their proofs, and figures of each solver."""
    measured: list[dict[str, Any]] = []
    for s, solver in enumerate(solvers):
        # Solvers with missing runs are skipped, because means over other problems do not compare.
        if not len(here) or not figures["run"][here, s].all() or figures["refused"][here, s].any():
            continue
        measured.append(
            {
                "solver": solver,
                "gap": round(float(figures["gap"][here, s].mean()), 4),
                "seconds": float(f"{np.median(figures['seconds'][here, s]):.2g}"),
                "proved": int(figures["proved"][here, s].sum()),
            }
        )
    lowest = min((t["gap"] for t in measured), default=0.0)
    good = sorted((t for t in measured if t["gap"] <= lowest + NEAR), key=lambda t: t["seconds"])
    rest = sorted((t for t in measured if t not in good), key=lambda t: t["gap"])
    return {
        "best": [t["solver"] for t in good],
        "proved_by": {t["solver"]: t["proved"] for t in measured if t["proved"]},
        "solvers": [*good, *rest][:_SHOWN],
    }


if __name__ == "__main__":
    print(json.dumps(learn(sys.argv[1]), indent=1))
