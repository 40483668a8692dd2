"""Fits of all estimators with seeds, to show that a change of code changes no result.

Before the change, ``python benchmarks/same_fits.py before.jsonl`` writes a line for each fit.
After it, ``python benchmarks/same_fits.py after.jsonl --against before.jsonl`` names each
difference: labels, centroids, objectives, histories, warnings and errors are compared bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import inference_lab.clustering as clustering
from inference_lab.constraints import Constraints

#: Columns of a history that a fit with the same seed repeats; its seconds are no such column.
_STEP = ("iteration", "step", "objective", "status", "energy", "lower_bound")

PAIRED: dict[str, list[dict[str, Any]]] = {
    "HMRFKMeans": [
        {},
        {"metric": "diagonal"},
        {"metric": "full", "penalty": "potts"},
        {"metric": "gradient", "e_step": "loopy-bp"},
        {"distortion": "cosine", "metric": "gradient"},
        {"e_step": "ilp", "e_step_start": "cold", "init": "neighbourhoods"},
        {"closure": "vote", "empty_clusters": "keep"},
    ],
    "PCKMeans": [
        {},
        {"closure": "drop", "n_init": 2},
        {"e_step": "trw-s", "init": "neighbourhoods+singletons"},
        {"e_step": "mean-field", "init": "random"},
        {"closure": "keep", "init": "neighbourhoods+perturbed"},
    ],
    "MPCKMeans": [{}, {"metric": "full", "init": "perturbed"}],
    "COPKMeans": [
        {},
        {"order": "given", "whole_components": False, "n_init": 2},
        {"init": "k-means++"},
    ],
    "LCVQE": [{}, {"paired_twice": True, "init": "k-means++", "n_init": 3}],
    "CVQE": [{}],
    "KernelHMRFKMeans": [
        {},
        {"kernel": "polynomial", "degree": 2, "n_init": 2},
        {"kernel": "linear", "init": "random", "local_search": False},
    ],
    "ConstrainedGaussianMixture": [
        {},
        {"covariance_type": "diag", "prior": "chunklets", "init": "k-means++", "n_init": 2},
        {"covariance_type": "tied", "prior": "points", "alpha": 0.3, "alpha_mode": "mean"},
        {"covariance_type": "spherical", "alpha": "fewest-violations", "e_step": "loopy-bp"},
        {"reg_covar": 1e-2, "e_step": "gibbs", "max_iter": 5},
    ],
    "AnnealedConstrainedKMeans": [
        {"cooling": 0.4},
        {"cooling": 0.4, "alpha": 0.3, "n_init": 2, "max_iter": 3},
    ],
    "AnnealedConstrainedMixture": [
        {"cooling": 0.4, "reg_covar": 1e-3},
        {"cooling": 0.4, "covariance_type": "diag", "reg_covar": 1e-2},
    ],
    "TVClust": [{}, {"init": "prior", "both_ways": False, "standardise": False}],
    "RDPMeans": [
        {},
        {"xi": 0.1, "xi_rate": 2.0, "patience": 3, "warm_up": 1, "start": "box", "ties": "last"},
        {"squared": False, "cluster_cost": "kth-distance", "order": "sequential"},
        {"e_step": "icm", "candidates": 3, "start": "mean", "max_iter": 10},
    ],
    "MetricKMeans": [{}, {"ridge": 1e-2, "init": "k-means++", "n_init": 2}],
    "ConstrainedSpectral": [{}],
    "FlexibleSpectral": [{}],
    "ConstrainedLinkage": [{}],
    "SizeConstrainedKMeans": [{"min_size": 12, "max_size": 90}, {"n_init": 2}],
}

ALONE: dict[str, list[dict[str, Any]]] = {
    "BregmanKMeans": [{}, {"distortion": "cosine", "n_init": 3}, {"init": "random"}],
    "SphericalKMeans": [{"init": "perturbed"}],
    "DPMeans": [{}, {"squared": False, "max_clusters": 5}],
    "SeededKMeans": [{}],
    "ConstrainedKMeans": [{}],
}

#: Number of differences that are printed.
_SHOWN = 10
#: Fits of these take seconds: they get few data sets.
_SLOW = ("FlexibleSpectral", "AnnealedConstrainedMixture")


class Data(NamedTuple):
    """Points to fit, other points, and true classes."""

    points: Any
    others: Any
    classes: Any


class Case(NamedTuple):
    """One fit: an estimator with settings, data by name, and arguments of ``fit``."""

    kind: str
    settings: dict[str, Any]
    data: str
    supervision: str
    seed: int

    @property
    def name(self) -> str:
        """The case as text."""
        return json.dumps([*self], default=str)


def data_sets() -> dict[str, Data]:
    """Return the data by name."""
    rng = np.random.default_rng(5)
    iris, species = load_iris(return_X_y=True)
    wine, cultivars = load_wine(return_X_y=True)
    wine = StandardScaler().fit_transform(wine)
    classes = rng.integers(4, size=60)
    blobs = (6.0 * np.eye(4)[classes][:, :2] + rng.normal(size=(60, 2))).astype(np.float32)
    rates = np.where(np.eye(3)[rng.integers(3, size=80)].repeat(6, axis=1) > 0, 4.0, 0.3)
    counts = rng.poisson(rates) + np.eye(18, dtype=int)[rng.integers(18, size=80)]
    topics = rates[:, ::6].argmax(axis=1)
    many = rng.normal(size=(24_000, 2)) + 7.0 * np.eye(3)[rng.integers(3, size=24_000)][:, :2]
    near = np.exp(-((wine[::2, np.newaxis] - wine[::2]) ** 2).sum(axis=2) / 20.0)
    few = np.array([[0.0, 1.0]] * 4 + [[5.0, 1.0]] * 4 + [[5.5, 1.0], [9.0, 1.0]])
    return {
        "iris": Data(iris, iris[::7] + 0.1, species),
        "wine": Data(wine[::2], wine[1::9], cultivars[::2]),
        "blobs": Data(blobs, blobs[::5] + np.float32(0.2), classes),
        "counts": Data(
            csr_array(counts.astype(float)), csr_array(counts[:9].astype(float)), topics
        ),
        "many": Data(many, many[:9], many.argmax(axis=1)),
        "similar": Data(near, near[:9], cultivars[::2]),
        "few": Data(few, few[:3], np.repeat([0, 1, 2], [4, 4, 2])),
    }


def supervision(name: str, data: Data, seed: int) -> dict[str, Any]:
    """Return arguments of ``fit`` by name."""
    rng = np.random.default_rng([seed, 9])
    classes, n = data.classes, len(data.classes)
    pairs = Constraints.sample(classes, max(4, n // 4), rng)
    arguments: dict[str, Any] = pairs.fit_params()
    match name:
        case "none":
            return {}
        case "pairs":
            return arguments
        case "noisy":
            wrong = np.where(rng.random(n) < 0.2, rng.integers(3, size=n), classes)
            arguments = Constraints.sample(wrong, n // 2 + 2, rng).fit_params()
            return arguments | {"ml_weight": 0.7, "cl_weight": 1.3}
        case "hard":
            return arguments | {"ml_weight": np.inf, "cl_weight": np.inf}
        case "impossible":
            apart = [(i, j) for i in range(6) for j in range(i)]
            return {"cannot_link": apart, "cl_weight": np.inf}
        case "labels":
            labels = np.where((rng.random(n) < 0.15) & (classes < 3), classes, -1)
            return arguments | {"partial_labels": labels}
        case "y":
            return {"y": np.where((rng.random(n) < 0.15) & (classes < 3), classes, -1)}
        case "weights":
            return arguments | {"sample_weight": rng.integers(0, 3, size=n).astype(float)}
        case "names":
            names = np.array([f"point {i}" for i in range(n)])
            ends = {kind: names[arguments[kind]] for kind in ("must_link", "cannot_link")}
            return arguments | ends | {"sample_ids": names}
        case "frame":
            return {"pairs": pairs.with_weights(2.0, 1.0).to_frame()}
        case "repeated":
            return {"must_link": [(0, 1), (1, 0), (1, 2)], "cannot_link": [(0, 2), (3, 4)]}
    raise ValueError(name)


def cases() -> Iterator[Case]:
    """Yield all fits."""
    every = ["pairs", "noisy", "hard", "impossible", "labels", "weights", "names", "repeated"]
    for kind, several in PAIRED.items():
        for settings in several:
            sets = ["iris", "wine", "blobs"] if kind not in _SLOW else ["iris"]
            for data in sets:
                for name in ["none", *every]:
                    yield Case(kind, settings, data, name, 0)
            for seed in (1, 2):
                yield Case(kind, settings, "iris", "pairs", seed)
                yield Case(kind, settings, "counts", "noisy", seed)
                yield Case(kind, settings, "few", "pairs", seed)
    for name in every:
        yield Case("KernelHMRFKMeans", {"kernel": "precomputed"}, "similar", name, 0)
    starts = [[5.0, 3.0, 1.5, 0.2], [6.0, 3.0, 4.0, 1.3], [6.5, 3.0, 5.5, 2.0]]
    for kind in ("PCKMeans", "MPCKMeans", "ConstrainedGaussianMixture", "LCVQE", "MetricKMeans"):
        yield Case(kind, {"init": starts}, "iris", "pairs", 0)
        yield Case(kind, {"init": starts[:2]}, "iris", "frame", 0)
        yield Case(kind, {}, "many", "labels", 0)
        yield Case(kind, {}, "iris", "frame", 0)
        yield Case(kind, {"n_clusters": 200}, "iris", "frame", 0)
    for distortion in ("cosine", "kl", "i-divergence", "itakura-saito", "unknown"):
        for kind in ("HMRFKMeans", "BregmanKMeans", "RDPMeans", "COPKMeans"):
            for data in ("counts", "iris"):
                name = "none" if kind == "BregmanKMeans" else "pairs"
                yield Case(kind, {"distortion": distortion}, data, name, 0)
    for kind, several in ALONE.items():
        for settings in several:
            for data in ("iris", "wine", "blobs", "few"):
                for name in ("none", "labels", "weights"):
                    yield Case(kind, settings, data, name, 0)
    for kind, several in (PAIRED | ALONE).items():
        for settings in several:
            yield Case(kind, settings, "iris", "y", 0)


def digest(value: Any) -> Any:
    """Return a fitted attribute as text that differs if any bit does."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, np.ndarray):
        kind = [str(value.dtype), list(value.shape)]
        if value.dtype == object:
            return [*kind, [digest(item) for item in value.ravel().tolist()]]
        return [*kind, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]]
    if isinstance(value, Constraints):
        parts = (value.must_link, value.cannot_link, value.ml_weights, value.cl_weights)
        return [value.n_points, *(digest(np.array(part)) for part in parts)]
    if isinstance(value, clustering.Distortion):
        return [type(value).__name__, digest(value.weights)]
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, np.generic):
        return digest(value.item())
    if isinstance(value, list | tuple):
        return [digest(item) for item in value]
    return repr(value)


def summary(model: Any) -> dict[str, Any]:
    """Return all fitted attributes."""
    attributes = {
        name: digest(value)
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_") and name != "history_"
    }
    history = getattr(model, "history_", [])
    attributes["history_"] = [
        [digest(getattr(line, column)) for column in _STEP] for line in history
    ]
    return attributes


def fitted(case: Case, data: Data) -> dict[str, Any]:
    """Fit, and return the result, its warnings, or the error."""
    line: dict[str, Any] = {"case": case.name}
    kind = getattr(clustering, case.kind)
    arguments = supervision(case.supervision, data, case.seed)
    if case.kind in ALONE:
        arguments = {
            name: value
            for name, value in arguments.items()
            if name in ("sample_weight", "y")
            or (name == "partial_labels" and case.kind in ("SeededKMeans", "ConstrainedKMeans"))
        }
    if case.kind == "SizeConstrainedKMeans":
        arguments.pop("partial_labels", None)
    seeded = case.kind != "ConstrainedLinkage"
    settings = {"n_clusters": 3} | case.settings
    model = kind(**settings, **({"random_state": case.seed} if seeded else {}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(data.points, **arguments)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
        else:
            line |= summary(model)
            for name in ("predict", "transform", "score"):
                if hasattr(model, name):
                    line[name] = digest(getattr(model, name)(data.others))
    line["warnings"] = [f"{w.category.__name__}: {w.message}" for w in caught]
    # A warning points at the caller of ``fit``, outside the package.
    inside = [f"{Path(clustering.__file__).parents[1]}" in w.filename for w in caught]
    line["warned_inside"] = inside
    return line


def main() -> int:
    """Write the fits, and compare them with others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", help="part of the names of the fits to make")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sets = data_sets()
    wanted = [case for case in cases() if options.only is None or options.only in case.name]
    run = Parallel(options.jobs)
    lines = run(delayed(fitted)(case, sets[case.data]) for case in wanted)
    options.out.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    errors = sum("error" in line for line in lines)
    print(f"{len(lines)} fits, {errors} of them with an error")
    if options.against is None:
        return 0
    text = options.against.read_text(encoding="utf-8").splitlines()
    before = {line["case"]: line for line in map(json.loads, text)}
    different = 0
    for line in lines:
        old = before.get(line["case"], {})
        wrong = [
            name for name in sorted({*old, *line}) if old.get(name, None) != line.get(name, None)
        ]
        if wrong:
            different += 1
        if wrong and different <= _SHOWN:
            shown = {name: (old.get(name), line.get(name)) for name in wrong[:2]}
            print(f"{line['case']}: {', '.join(wrong)}\n    {str(shown)[:400]}")
    print(f"{different} of {len(lines)} fits differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
