"""What pairs are worth by default: ``INFERENCE_LAB_DATA=... python tests/benchmarks/defaults.py``.

Each estimator is fitted with its defaults to pairs of which some are wrong, and compared by the
adjusted Rand index with k-means of ten starts that sees no pairs. Settings of defaults are chosen
on `TUNING`; `REPORTED` shows what they are worth elsewhere. Records are appended, and runs that are
recorded are not made again: give another file after a change.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from inference_lab import clustering
from inference_lab.constraints import Constraints
from inference_lab.studies.study_points import load_points

TUNING = (
    *("iris", "breast-cancer", "ecoli", "ionosphere", "new-thyroid", "sonar", "soybean-small"),
    *("letters-ijl-tenth", "gaussians-round", "optdigits"),
)
REPORTED = (
    *("wine", "glass", "seeds", "vertebral", "zoo", "dermatology", "pendigits-389-tenth"),
    *("movement-libras", "gaussians-long", "segmentation"),
)
FORMS = ("raw", "standardised")
#: Pairs a point.
SHARES = (0.2, 1.0, 5.0)
WRONG = (0.0, 0.05, 0.1, 0.2)
#: Points of larger sets are drawn, always the same.
MOST_POINTS = 300

Estimator = Callable[..., Any]
ESTIMATORS: dict[str, Estimator] = {
    "PCKMeans": clustering.PCKMeans,
    "HMRFKMeans": clustering.HMRFKMeans,
    "MPCKMeans": clustering.MPCKMeans,
    "ConstrainedGaussianMixture": clustering.ConstrainedGaussianMixture,
    "LCVQE": clustering.LCVQE,
    "CVQE": clustering.CVQE,
    "RDPMeans": clustering.RDPMeans,
    "TVClust": clustering.TVClust,
    "KernelHMRFKMeans": clustering.KernelHMRFKMeans,
    "MetricKMeans": clustering.MetricKMeans,
    "ConstrainedSpectral": clustering.ConstrainedSpectral,
    "FlexibleSpectral": clustering.FlexibleSpectral,
    "AnnealedConstrainedKMeans": clustering.AnnealedConstrainedKMeans,
    "AnnealedConstrainedMixture": clustering.AnnealedConstrainedMixture,
}


def points_of(name: str, form: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of at most `MOST_POINTS` points."""
    found = load_points(name if form == "raw" else f"{name}, standardised")
    values, labels = np.asarray(found.values, dtype=np.float64), np.asarray(found.labels)
    chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:MOST_POINTS])
    return values[chosen], labels[chosen]


def run(
    kind: Estimator, name: str, form: str, draw: int, shares: list[float]
) -> list[dict[str, Any]]:
    """Return a record for each number of pairs and share of wrong ones."""
    points, labels = points_of(name, form)
    k = len(np.unique(labels))
    alone = KMeans(k, n_init=10, random_state=draw).fit_predict(points)
    without = float(adjusted_rand_score(labels, alone))
    records = []
    for share in shares:
        for wrong in WRONG:
            rng = np.random.default_rng([draw, int(1000 * wrong), int(1000 * share)])
            count = min(round(share * len(labels)), len(labels) * (len(labels) - 1) // 2)
            pairs = Constraints.sample(labels, count, rng).flip(wrong, rng)
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = kind(k, random_state=draw).fit(points, **pairs.fit_params())
            spent = time.process_time() - began
            found = float(adjusted_rand_score(labels, model.labels_))
            cell = {"data": name, "form": form, "draw": draw, "share": share, "wrong": wrong}
            records.append(
                {**cell, "ari": found, "gain": found - without, "cpu_s": round(spent, 3)}
            )
    return records


def table(records: pd.DataFrame, names: tuple[str, ...]) -> str:
    """Return mean and least gains by estimator, form, pairs a point and share of wrong pairs."""
    cell = ["estimator", "form", "share", "wrong"]
    of_set = records[records.data.isin(names)].groupby([*cell, "data"], sort=False).gain.mean()
    gains = of_set.groupby(cell, sort=False)
    columns = {"mean": gains.mean(), "worst": gains.min()}
    shown = pd.concat({name: column.unstack("wrong") for name, column in columns.items()}, axis=1)
    return str(shown.round(3).to_string())


def main() -> None:
    """Run the missing fits of the sets and estimators asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--sets", nargs="+", default=[*TUNING, *REPORTED])
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--records", type=Path, default=Path("build/defaults.jsonl"))
    asked = parser.parse_args()
    asked.records.parent.mkdir(parents=True, exist_ok=True)
    lines = asked.records.read_text().splitlines() if asked.records.exists() else []
    done = {
        (line["estimator"], line["data"], line["form"], line["draw"], line["share"])
        for line in map(json.loads, lines)
    }
    with asked.records.open("a") as file:
        for draw in range(asked.draws):
            for estimator in asked.estimators:
                for name in asked.sets:
                    for form in FORMS:
                        left = [
                            share
                            for share in asked.shares
                            if (estimator, name, form, draw, share) not in done
                        ]
                        for record in run(ESTIMATORS[estimator], name, form, draw, left):
                            print(json.dumps({"estimator": estimator, **record}), file=file)
                        file.flush()
    records = pd.read_json(asked.records, lines=True)
    records = records[records.estimator.isin(asked.estimators)]
    for title, names in (("tuning", TUNING), ("reported", REPORTED)):
        kept = tuple(name for name in names if name in asked.sets)
        if kept:
            print(f"\n{title}\n{table(records, kept)}")


if __name__ == "__main__":
    main()
