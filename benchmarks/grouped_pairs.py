"""Pairs in groups of different reliability: ``python benchmarks/grouped_pairs.py [--write]``.

Draws short texts of nested topics, and pairs as a language model makes them: must-links between
near texts in nine groups of which 98 to 31 % are right, 65 % in all, each with a confidence that is
too high, and cannot-links of random texts. Wrong must-links are as near as right ones: both are
drawn among the nearest texts of a text. Compares estimators with and without groups or confidences
by the adjusted Rand index, on seeds that chose no constant of the library (those were 0 to 31, and
texts of the collection mini_newsgroups).

``--write`` writes ``grouped_pairs.csv``. Prints means, differences with 95 % intervals over seeds,
and processor seconds.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import t as student
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

from inference_lab.clustering import ConstrainedGaussianMixture, PCKMeans, TVClust

RESULTS = Path(__file__).with_suffix(".csv")
#: Shares of right must-links of the groups, and their relative sizes.
SHARES = (0.98, 0.95, 0.9, 0.8, 0.68, 0.6, 0.5, 0.4, 0.31)
SIZES = (200, 200, 200, 220, 220, 220, 220, 220, 214)
#: Nearest texts among which the partner of a must-link is drawn.
NEAREST = 25


#: Seeds of estimators that take longer than `PCKMeans`, fewer with 77 topics.
SLOW = {
    "mixture": range(100, 105),
    "TVClust": range(100, 105),
    "TVClust, 77": range(100, 102),
    "mixture, 77": range(100, 104),
}


class Collection(NamedTuple):
    """Size of a drawn collection, and the share of words that are of the topic alone."""

    n_texts: int
    n_topics: int
    n_themes: int
    of_topic: float
    must_per_size: float
    n_cannot: int
    cannot_right: float
    seeds: range


COLLECTIONS = {
    "10 topics": Collection(1000, 10, 5, 0.15, 0.5, 4000, 0.96, range(100, 160)),
    "77 topics": Collection(3080, 77, 15, 0.215, 1.0, 38481, 0.995, range(100, 110)),
}


def texts(size: Collection, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return TF-IDF vectors of drawn texts, reduced to 100 columns, and their topics."""
    n_words = 1500
    zipf = 1.0 / np.arange(1, n_words + 1)
    common = zipf / zipf.sum()
    themes = [rng.dirichlet(np.full(n_words, 0.01)) for _ in range(size.n_themes)]
    topics = [rng.dirichlet(np.full(n_words, 0.006)) for _ in range(size.n_topics)]
    theme_of = rng.integers(size.n_themes, size=size.n_topics)
    labels = np.repeat(np.arange(size.n_topics), size.n_texts // size.n_topics)
    words = [
        (0.73 - size.of_topic) * common + 0.27 * themes[theme_of[t]] + size.of_topic * topics[t]
        for t in range(size.n_topics)
    ]
    counts = np.array([rng.multinomial(3 + rng.poisson(9), words[t]) for t in labels])
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(csr_array(counts))
    return normalize(TruncatedSVD(100, random_state=0).fit_transform(weighted)), labels


def pairs(
    points: np.ndarray, labels: np.ndarray, size: Collection, rng: np.random.Generator
) -> pd.DataFrame:
    """Return pairs with their groups, and with confidences that are too high."""
    near = np.argsort(-(points @ points.T), axis=1)[:, 1 : NEAREST + 1]
    rows: list[tuple[int, int, str, str, float]] = []
    seen: set[tuple[int, int]] = set()
    for group, (share, relative) in enumerate(zip(SHARES, SIZES, strict=True)):
        count = round(relative * size.must_per_size)
        odds = 1.5 + np.log(share / (1.0 - share))
        for number in range(count):
            right = number < round(share * count)
            while True:
                i = int(rng.integers(len(points)))
                partners = near[i][(labels[near[i]] == labels[i]) == right]
                if partners.size:
                    j = int(rng.choice(partners))
                    if (min(i, j), max(i, j)) not in seen:
                        break
            seen.add((min(i, j), max(i, j)))
            confidence = 1.0 / (1.0 + np.exp(-odds - rng.normal()))
            rows.append((i, j, "must-link", f"prompt {group}", confidence))
    n_wrong = round((1.0 - size.cannot_right) * size.n_cannot)
    apart: set[tuple[int, int]] = set()
    while len(apart) < size.n_cannot:
        i, j = sorted(rng.integers(len(points), size=2).tolist())
        if i == j or (i, j) in apart or (labels[i] == labels[j] and not n_wrong):
            continue
        n_wrong -= labels[i] == labels[j]
        apart.add((i, j))
        rows.append((i, j, "cannot-link", "apart", size.cannot_right))
    return pd.DataFrame(rows, columns=["i", "j", "kind", "group", "confidence"])


def methods(k: int, frame: pd.DataFrame, seed: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the estimators that are compared, with the arguments of their fit."""
    plain = {"pairs": frame[["i", "j", "kind"]]}
    groups = {"pairs": frame[["i", "j", "kind", "group"]]}
    confidences = {"pairs": frame[["i", "j", "kind", "confidence"]]}
    shared = {"n_clusters": k, "random_state": seed}
    mixture = ConstrainedGaussianMixture(**shared, covariance_type="diag")
    return {
        "k-means": (KMeans(k, n_init=10, random_state=seed), {}),
        "PCKMeans": (PCKMeans(**shared), plain),
        "PCKMeans, groups": (PCKMeans(**shared), groups),
        "PCKMeans, confidences": (PCKMeans(**shared), confidences),
        "PCKMeans, both": (PCKMeans(**shared), {"pairs": frame}),
        "mixture": (mixture, plain),
        "mixture, groups": (mixture, groups),
        "TVClust": (TVClust(**shared), plain),
        "TVClust, groups": (TVClust(**shared), groups),
    }


def results(name: str, size: Collection) -> list[dict[str, Any]]:
    """Return a row for each seed and method of a collection."""
    rows = []
    for seed in size.seeds:
        rng = np.random.default_rng(seed)
        points, labels = texts(size, rng)
        frame = pairs(points, labels, size, rng)
        for method, (estimator, arguments) in methods(size.n_topics, frame, seed).items():
            base = method.partition(",")[0]
            limit = SLOW.get(f"{base}, {size.n_topics}", SLOW.get(base, size.seeds))
            if seed not in limit:
                continue
            start = process_time()
            with warnings.catch_warnings():
                # Wrong pairs contradict each other, as intended here.
                warnings.simplefilter("ignore")
                estimator.fit(points, **arguments)
            rows.append(
                {
                    "collection": name,
                    "seed": seed,
                    "method": method,
                    "ari": round(float(adjusted_rand_score(labels, estimator.labels_)), 4),
                    "cpu_s": round(process_time() - start, 2),
                }
            )
            print(*rows[-1].values(), flush=True)
    return rows


def with_interval(values: np.ndarray) -> str:
    """Return a mean with its 95 % interval over seeds."""
    error = values.std(ddof=1) / np.sqrt(values.size) * student.ppf(0.975, values.size - 1)
    return f"{values.mean():+.3f} ({values.mean() - error:+.3f} to {values.mean() + error:+.3f})"


def summary(rows: list[dict[str, Any]]) -> str:
    """Return a table of means, and of differences to k-means and to the same method without."""
    lines = ["collection | method | ARI | over k-means | over the same without | CPU s"]
    for name in COLLECTIONS:
        scores: dict[str, dict[int, float]] = defaultdict(dict)
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row["collection"] == name:
                scores[row["method"]][int(row["seed"])] = float(row["ari"])
                seconds[row["method"]].append(float(row["cpu_s"]))
        for method, of_seed in scores.items():
            base, comma, _ = method.partition(",")
            cells = [name, method, f"{np.mean(list(of_seed.values())):.3f}"]
            for other in ("k-means", base if comma else "k-means"):
                gains = np.array([of_seed[seed] - scores[other][seed] for seed in of_seed])
                cells.append("" if method == other else with_interval(gains))
            lines.append(" | ".join([*cells, f"{np.mean(seconds[method]):.1f}"]))
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    rows = [row for name, size in COLLECTIONS.items() for row in results(name, size)]
    if parser.parse_args().write:
        with RESULTS.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(summary(rows))


if __name__ == "__main__":
    main()
