"""Constrained k-means beside PCCC: ``python benchmarks/pccc.py RECORDS [--pccc FOLDER]``.

Sets and pairs of P. Baumann, D. S. Hochbaum, "An algorithm for clustering with confidence-based
must-link and cannot-link constraints", INFORMS Journal on Computing, 2024, made as the files of
https://github.com/phil85/PCCC-Data describe, with their seed. ``pccc.csv`` has the figures in the
tables of https://github.com/phil85/PCCC-Appendix. ``inference-lab data fetch pccc letters-ijl
pendigits-389 optdigits satellite zoo`` fetches the files; missing ones are left out. RECORDS is a
file of JSON lines; a later call makes the missing ones. FOLDER is a clone of
https://github.com/phil85/PCCC-Algorithm, which then runs too, on HiGHS (needs grbcompat, networkx
and pandas). Prints the tables of ``docs/peers.md``.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from math import ceil
from pathlib import Path
from statistics import fmean, geometric_mean
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import ConstrainedGaussianMixture, PCKMeans
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.data.datasets import load
from inference_lab.data.folders import DataNotFoundError
from inference_lab.data.published import find_published
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.io._files import read_bytes

#: Seed of the published pairs and sets, and of every fit.
SEED = 24
#: Shares of points in sets of pairs: p points have p (p - 1) / 2 pairs. Those of COL2 are sums of
#: .05 in floating point, as published, because numbers of points are rounded up.
SHARES = {
    "noisy": (0.05, 0.1, 0.15, 0.2),
    "COL2": tuple(np.arange(0.05, 0.55, 0.05).tolist()),
    "COL3": (0.05, 0.1, 0.15, 0.2),
    "COL4": (0.005, 0.01, 0.05),
}
#: Sets of each collection, in the order of runs.
SETS = {
    "noisy": ("appendicitis", "moons", "zoo"),
    "COL2": tuple(f"n300-k{k}-s{s}" for k in (10, 20, 50) for s in (10, 20, 30, 40, 50)),
    "COL4": ("banana", "pendigits", "optdigits", "satellite", "letter", "shuttle"),
    "COL3": tuple(f"n{n}-k{k}" for n in (500, 1000, 2000, 5000) for k in (2, 5, 10, 20, 50, 100)),
}
#: Measures shown, of records and of ``pccc.csv``.
SHOWN = ("ari", "violations", "seconds")
#: Our methods: `PCKMeans` or the mixture, and the weights of pairs if they are not the default.
OURS = (
    "PCKMeans, hard must-links",
    "PCKMeans",
    "PCKMeans, confidences",
    "mixture, confidences",
    "mixture",
)
#: Limit of each run of PCCC on HiGHS in seconds.
LIMIT = 60.0
#: Files with the class in the first column, or else in the last.
FILES = {
    "banana": (["uci/keel/banana.dat"], ",", -1),
    "shuttle": (["uci/keel/shuttle.dat"], ",", -1),
    "letter": (["uci/letter-recognition.data"], ",", 0),
    "pendigits": (["uci/pendigits.tra", "uci/pendigits.tes"], ",", -1),
    "appendicitis": (["uci/keel/appendicitis.dat"], ",", -1),
    "moons": (["uci/keel/moons_toydataset.txt"], ",", -1),
}


class Pairs(NamedTuple):
    """Must-links (p, 2) and cannot-links (q, 2), and the confidence of each."""

    must: np.ndarray
    cannot: np.ndarray
    must_confidence: np.ndarray
    cannot_confidence: np.ndarray


def drawn(n: int, share: float, rng: np.random.RandomState, distinct: bool) -> np.ndarray:
    """Return the pairs (m, 2) that PCCC-Data draws: as many as among a share of n points.

    Draws with repetition are merged and sorted until there are enough, and the first m are kept. So
    only points of the first rows are the first of a pair. Unless `distinct`, some pairs are a point
    with itself.
    """
    points = ceil(n * share)
    m = points * (points - 1) // 2
    pairs = np.empty((0, 2), dtype=np.int64)
    while len(pairs) < m:
        ends = np.stack([rng.randint(0, n, size=m), rng.randint(0, n, size=m)], axis=1)
        ends.sort(axis=1)
        if distinct:
            ends = ends[ends[:, 0] != ends[:, 1]]
        pairs = np.unique(np.concatenate([pairs, ends]), axis=0)
    return pairs[:m]


def right_pairs(classes: np.ndarray, share: float) -> Pairs:
    """Return pairs that agree with the classes."""
    pairs = drawn(classes.size, share, np.random.RandomState(SEED), distinct=True)
    same = classes[pairs[:, 0]] == classes[pairs[:, 1]]
    return Pairs(pairs[same], pairs[~same], np.ones(same.sum()), np.ones((~same).sum()))


def noisy_pairs(classes: np.ndarray, share: float, min_confidence: float) -> Pairs:
    """Return pairs of which each is right with its confidence.

    Confidences are uniform between `min_confidence` and 1. Pairs of a point with itself, which the
    published sets have, are dropped.
    """
    rng = np.random.RandomState(SEED)
    pairs = drawn(classes.size, share, rng, distinct=False)
    confidence = min_confidence + (1.0 - min_confidence) * rng.rand(len(pairs))
    right = confidence >= rng.rand(len(pairs))
    same = (classes[pairs[:, 0]] == classes[pairs[:, 1]]) == right
    proper = pairs[:, 0] != pairs[:, 1]
    ml, cl = same & proper, ~same & proper
    return Pairs(pairs[ml], pairs[cl], confidence[ml], confidence[cl])


def read_table(text: str, separator: str, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features (n, d) and classes (n,) of a table, without the header of a KEEL file."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(separator)]
        named = cells.pop(label)
        try:
            rows.append((named, [float(cell) for cell in cells]))
        except ValueError:
            continue
    data_rows = [row for row in rows if row[1]]
    classes = np.unique([named for named, _ in data_rows], return_inverse=True)[1]
    return np.array([values for _, values in data_rows]), classes.reshape(-1)


def points_of(name: str, data_dir: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised features and classes of a set."""
    if name in FILES:
        paths, separator, label = FILES[name]
        text = "\n".join(read_bytes(find_published(p, data_dir)).decode() for p in paths)
        points, classes = read_table(text, separator, label)
    elif name.startswith("n"):
        n, k, *spread = (int(word[1:]) for word in name.split("-"))
        box = {"cluster_std": spread[0] / 10, "center_box": (-20, 20)} if spread else {}
        points, classes = make_blobs(n, 2, centers=k, random_state=SEED, **box)
    else:
        data = load(name, data_dir=data_dir)
        points, classes = data.features, data.labels
    return StandardScaler().fit_transform(points), classes


def measures(
    points: np.ndarray, classes: np.ndarray, labels: np.ndarray, pairs: Pairs
) -> dict[str, float]:
    """Return ARI, sum of squared distances to the means of clusters, and violated pairs."""
    number = np.unique(labels, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(number)
    means = np.stack([np.bincount(number, x) / sizes for x in points.T], axis=1)
    return {
        "ari": adjusted_rand_score(classes, labels),
        "inertia": float(((points - means[number]) ** 2).sum()),
        "must_violations": int((labels[pairs.must[:, 0]] != labels[pairs.must[:, 1]]).sum()),
        "violations": int((labels[pairs.cannot[:, 0]] == labels[pairs.cannot[:, 1]]).sum()),
    }


def log_odds(confidence: np.ndarray) -> np.ndarray:
    """Return the log-odds that pairs are right."""
    with np.errstate(divide="ignore"):
        return np.log(confidence) - np.log1p(-confidence)


def fitted(method: str, points: np.ndarray, k: int, pairs: Pairs) -> np.ndarray:
    """Return the labels of one of `OURS` with its defaults.

    ``PCKMeans`` has PCCC's objective, and its must-links are hard, as in PCCC. "confidences" are
    log-odds as weights, on the scale of the default weights. The mixture is the estimator that the
    documentation names for one fit with a given number of clusters.
    """
    name, _, weights = method.partition(", ")
    arguments: dict[str, Any] = {"must_link": pairs.must, "cannot_link": pairs.cannot}
    if weights == "hard must-links":
        arguments["ml_weight"] = np.inf
    elif weights == "confidences":
        unit = 1.0
        if name == "PCKMeans":
            unit = weight_of_odds(points, k, SquaredEuclidean(), None)
        arguments["ml_weight"] = unit * log_odds(pairs.must_confidence)
        arguments["cl_weight"] = unit * log_odds(pairs.cannot_confidence)
    estimator = {"PCKMeans": PCKMeans, "mixture": ConstrainedGaussianMixture}[name]
    return np.asarray(estimator(k, random_state=SEED).fit(points, **arguments).labels_)


def pccc_on_highs(folder: Path) -> Any:
    """Return the function ``pccc`` of a clone, with HiGHS in place of Gurobi.

    Left out: Gurobi's setting of its focus, and the callback, which acts only on a limit of each
    assignment.
    """
    import grbcompat

    grbcompat.install()
    import gurobipy

    class Model(gurobipy.Model):  # type: ignore[misc]  # no types
        def setParam(self, name: str, value: Any) -> None:
            if name != "MipFocus":
                super().setParam(name, value)

        def optimize(self, callback: Any = None) -> None:
            super().optimize()

        @property
        def SolCount(self) -> int:
            return int(self._h.getInfo().primal_solution_status == 2)

    gurobipy.Model = Model
    sys.path.insert(0, str(folder))
    # This file has the same name.
    sys.modules.pop("pccc", None)
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("pccc_release", folder / "pccc.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pccc


def wanted() -> Iterator[tuple[str, str, float, str]]:
    """Yield collection, set, share of points, and lowest confidence or an empty word."""
    bounds = ("0.5", "0.6", "0.7", "0.8", "0.9", "1")
    for collection, names in SETS.items():
        for name, share in product(names, SHARES[collection]):
            for bound in bounds if collection == "noisy" else ("",):
                yield collection, name, share, bound


def methods(collection: str, name: str, percent: float, peer: bool) -> list[str]:
    """Return the methods of an instance; PCCC on HiGHS gets some of the smallest."""
    if collection == "noisy":
        return list(OURS[1:4])
    names = [OURS[0]] + [OURS[4]] * (collection == "COL2")
    if peer and percent in (10, 20) and (name.startswith("n500") or name.endswith("s20")):
        names.append("PCCC-N2-S on HiGHS")
    return names


def table(heads: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table; columns but the first are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n")


def short(value: float) -> str:
    """Format a number with two or three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def best_variant(rows: list[dict[str, dict[str, str]]]) -> str:
    """Return the variant of PCCC with the highest mean ARI over the published rows of a group."""
    return max(rows[0], key=lambda v: fmean(float(row[v]["ari"] or 0.0) for row in rows))


def beside(ours: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[str]:
    """Return the cells of ARI, inertia, violated cannot-links and seconds, ours before others'."""
    means = [[fmean(float(r[key]) for r in runs) for runs in (ours, other)] for key in SHOWN]
    ratio = geometric_mean(
        a["inertia"] / float(b["inertia"]) for a, b in zip(ours, other, strict=True)
    )
    cells = [f"{short(a)} / {short(b)}" for a, b in means[1:]]
    return [f"{means[0][0]:.3f}", f"{means[0][1]:.3f}", f"{ratio:.3f}", *cells]


def report(runs: list[dict[str, Any]], published: dict[Any, Any]) -> None:
    """Print the tables, in the order of `SETS`."""
    place = {name: at for at, name in enumerate(name for sets in SETS.values() for name in sets)}
    runs = sorted(runs, key=lambda run: (place[run["key"][1]], run["key"][2]))
    groups: dict[Any, Any] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        collection, name, percent, min_confidence, method = run["key"]
        group = {"COL2": name[:-4], "COL3": name.partition("-")[0], "noisy": min_confidence}
        key = collection, group.get(collection, name), f"{percent:g}"
        groups[key][method].append(run)
    rows, others, noisy = [], [], []
    for (collection, group, percent), by_method in groups.items():
        if collection == "noisy":
            means = [fmean(run["ari"] for run in by_method[method]) for method in OURS[1:4]]
            theirs = published[collection, group, percent]
            cells = [theirs[v]["ari"] or "none" for v in ("PCCC", "PCCC-S", "PCCC-W")]
            noisy.append([percent, group, *(f"{ari:.2f}" for ari in means), *cells])
            continue
        ours = by_method.pop(OURS[0])
        theirs_of_sets = [published[collection, run["key"][1], percent] for run in ours]
        if all(theirs_of_sets):
            variant = best_variant(theirs_of_sets)
            cells = beside(ours, [variants[variant] for variants in theirs_of_sets])
            rows.append([group, percent, variant, *cells])
        else:
            line = [f"{fmean(run[key] for run in ours):.3g}" for key in SHOWN]
            rows.append([group, percent, "", line[0], "", "", *line[1:]])
        for method, method_runs in by_method.items():
            names = {run["key"][1] for run in method_runs}
            same = [run for run in ours if run["key"][1] in names]
            others.append([group, percent, method, *beside(same, method_runs)])
    heads = ["sets", "% of points", "other", "ARI", "its ARI", "inertia ratio", "violated", "s"]
    table(heads, rows)
    table(heads, others)
    table(["% of points", "confidence", *OURS[1:4], "PCCC", "PCCC-S", "PCCC-W"], noisy)


def main() -> None:
    """Make the missing records, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("records", type=Path)
    parser.add_argument("--pccc", type=Path, help="clone of PCCC-Algorithm")
    parser.add_argument("--data-dir", help="default: $INFERENCE_LAB_DATA")
    options = parser.parse_args()
    published: dict[Any, Any] = defaultdict(dict)
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key = row["collection"], row["set"], row["percent"]
            published[key][row["variant"]] = row
    lines = options.records.read_text().splitlines() if options.records.exists() else []
    records = {tuple(run["key"]): run for run in map(json.loads, lines)}
    peer = pccc_on_highs(options.pccc) if options.pccc else None
    fitted(OURS[0], *warm_up())
    fitted(OURS[4], *warm_up())
    for collection, name, share, min_confidence in wanted():
        percent = round(100.0 * share, 6)
        try:
            points, classes = points_of(name, options.data_dir)
        except DataNotFoundError as problem:
            print(problem, file=sys.stderr)
            continue
        pairs = None
        for method in methods(collection, name, percent, bool(peer)):
            key = (collection, name, percent, min_confidence, method)
            if key in records:
                continue
            if pairs is None:
                pairs = (
                    noisy_pairs(classes, share, float(min_confidence))
                    if min_confidence
                    else right_pairs(classes, share)
                )
            k = int(classes.max()) + 1
            since = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if method.startswith("PCCC"):
                    labels = peer(
                        points,
                        k,
                        ml=pairs.must,
                        scl=pairs.cannot,
                        n_neighbors=2,
                        random_state=SEED,
                        time_limit=LIMIT,
                    )["labels"]
                else:
                    labels = fitted(method, points, k, pairs)
            run = {"key": key, "seconds": process_time() - since}
            run |= measures(points, classes, labels, pairs)
            run["pairs"] = [len(pairs.must), len(pairs.cannot)]
            records[key] = run
            with options.records.open("a", encoding="utf-8") as out:
                out.write(json.dumps(run) + "\n")
    report(list(records.values()), published)


def warm_up() -> tuple[np.ndarray, int, Pairs]:
    """Return a small problem, which loads and compiles all code."""
    points, classes = points_of("n500-k5", None)
    return points, 5, right_pairs(classes, 0.05)


if __name__ == "__main__":
    main()
