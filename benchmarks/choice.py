"""Accuracy of choosing by held-out pairs: the chosen estimator, each candidate, and no pairs.

    python benchmarks/choice.py records.jsonl             # run the missing cells, report
    python benchmarks/choice.py records.jsonl --quick     # three small cells
    python benchmarks/choice.py records.jsonl --report    # run nothing

A cell is a data set, raw or standardised, a number of pairs a point, and a share of wrong answers.
Prior gains come from the sets in `TUNED`; the report lists the other sets separately.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import ConstrainedClusterCV
from inference_lab.clustering.cluster_cv import candidates_for, final_step, fitted, prepared
from inference_lab.constraints import Constraints
from inference_lab.studies.study_points import load_points

TUNED = ("iris", "breast-cancer", "ecoli", "ionosphere", "new-thyroid", "sonar")
OTHERS = ("wine", "glass", "seeds", "vertebral", "zoo", "gaussians-long")
#: Larger data sets are subsampled to this size with a fixed seed.
MOST_POINTS = 300
PER_POINT, WRONG = (0.2, 1.0, 5.0), (0.0, 0.1, 0.2)
WITHOUT = "k-means without pairs"


def cells(sets: list[str], draws: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the cells in increasing order of the number of pairs."""
    if quick:
        for wrong in WRONG:
            yield {"data": "iris", "per_point": 0.5, "wrong": wrong, "draw": 0}
        return
    forms = [name + form for name in sets for form in ("", ", standardised")]
    for draw, per_point, wrong, data in itertools.product(range(draws), PER_POINT, WRONG, forms):
        yield {"data": data, "per_point": per_point, "wrong": wrong, "draw": draw}


def measured(cell: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Choose by held-out pairs, and fit each candidate with all pairs."""
    points = load_points(cell["data"])
    rows = np.sort(np.random.default_rng(0).permutation(len(points.labels))[:MOST_POINTS])
    X, truth = np.asarray(points.values, dtype=np.float64)[rows], points.labels[rows]
    rng = np.random.default_rng([cell["draw"], points.key])
    pairs = Constraints.sample(truth, round(cell["per_point"] * len(X)), rng)
    pairs = pairs.flip(cell["wrong"], rng)
    start = process_time()
    search = ConstrainedClusterCV(points.n_classes, n_repeats=repeats, random_state=cell["draw"])
    search.fit(X, **pairs.fit_params())
    seconds = process_time() - start
    scores = {}
    table = search.cv_results_.set_index("candidate")
    for name, estimator, *_ in candidates_for(X):
        row = table.loc[name]
        if row["failure"]:
            continue
        made = prepared(estimator, points.n_classes, cell["draw"])
        labels = final_step(fitted(made, X, pairs)).labels_
        scores[name] = {
            "ari": adjusted_rand_score(truth, labels),
            "score": row["mean_test_score"],
        }
    return {
        **cell,
        "repeats": repeats,
        "chosen": search.best_params_["candidate"],
        "ari": adjusted_rand_score(truth, search.labels_),
        "seconds": seconds,
        "candidates": scores,
    }


def report(records: list[dict[str, Any]]) -> str:
    """Return the table of cells: means over sets of the adjusted Rand index."""
    lines = []
    for title, sets in (("sets that chose the settings", TUNED), ("other sets", OTHERS)):
        rows = []
        for record in records:
            if record["data"].removesuffix(", standardised") not in sets:
                continue
            candidates = record["candidates"]
            form = "std" if "standardised" in record["data"] else "raw"
            rows.append(
                {key: record[key] for key in ("per_point", "wrong", "seconds")}
                | {"form": form, "chosen": record["ari"]}
                | {f"= {name}": candidate["ari"] for name, candidate in candidates.items()}
            )
        if not rows:
            continue
        table = pd.DataFrame(rows).groupby(["form", "per_point", "wrong"]).mean()
        single = table.filter(like="= ")
        table["best single"] = single.max(axis=1)
        table["without"] = single[f"= {WITHOUT}"]
        table["over best"] = table["chosen"] - table["best single"]
        table["over without"] = table["chosen"] - table["without"]
        table["which"] = single.idxmax(axis=1).str.removeprefix("= ")
        table = table.drop(columns=single.columns)
        lines += [f"{title}, {len(rows)} cells", table.round(3).to_string(), ""]
        means = table.select_dtypes("number").mean().round(3).to_dict()
        lines += [
            f"mean {means}",
            f"least over best {table['over best'].min():.3f}, over without "
            f"{table['over without'].min():.3f}",
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    """Run the missing cells, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--sets", default=",".join(OTHERS + TUNED))
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    lines = options.records.read_text().splitlines() if options.records.exists() else []
    records = [json.loads(line) for line in lines]
    done = {tuple(r[key] for key in ("data", "per_point", "wrong", "draw")) for r in records}
    for cell in cells(options.sets.split(","), options.draws, options.quick):
        if options.report or tuple(cell.values()) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = measured(cell, options.repeats)
        records.append(record)
        with options.records.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        print(cell, record["chosen"], round(record["ari"], 3), flush=True)
    with pd.option_context("display.width", 200, "display.max_columns", 30):
        print(report(records))


if __name__ == "__main__":
    main()
