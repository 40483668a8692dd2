"""Methods of studies: the draw of their constraints or seeds, and one fit of an estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import numpy as np

from inference_lab import clustering
from inference_lab.clustering.active import ExploreConsolidate
from inference_lab.compile_timer import timer
from inference_lab.constraints import Constraints
from inference_lab.constraints.calibration import calibrated_weight, log_odds_of
from inference_lab.constraints.centroids import kmeans_centroids
from inference_lab.graph.arrays import IntArray
from inference_lab.results.scoring import adjusted_rand
from inference_lab.studies.clustering_study import Method, Protocol
from inference_lab.studies.estimators import ESTIMATORS, PARTIAL, PREDICTED, SCORES, SEEDED
from inference_lab.studies.study_points import StudyPoints

#: Up to this number of pairs, the sequence of all pairs is shuffled; beyond, it is drawn in chunks.
_SHUFFLED = 5_000_000
_CHUNK = 4096


@dataclass(frozen=True)
class Draw:
    """Training points, scored points and seed, shared by all methods of one run."""

    training: IntArray
    scored: IntArray
    seed: np.random.SeedSequence


@dataclass(frozen=True)
class FitResult:
    """Result of one fit; its fields are named as those of the record."""

    scores: dict[str, float]
    objective: float
    seconds: float
    e_step_seconds: float
    iterations: int
    violated: float
    weight: float
    e_steps: dict[str, Any] = field(default_factory=dict)


def draw_run(points: StudyPoints, protocol: Protocol, run: int) -> Draw:
    """Draw the training points of a run, equal for all methods and numbers of constraints."""
    seed = np.random.SeedSequence([run, points.key])
    split = np.random.default_rng(seed.spawn(1)[0])
    n = len(points.labels)
    training = np.sort(split.permutation(n)[: max(2, round(protocol.train * n))])
    held_out = np.setdiff1d(np.arange(n), training)
    return Draw(training, held_out if protocol.scored == "held-out" else np.arange(n), seed)


def draw_constraints(
    points: StudyPoints, protocol: Protocol, draw: Draw, value: float, selection: str
) -> Constraints:
    """Draw the constraints of a run; larger random draws contain smaller ones."""
    n = len(points.labels)
    count = protocol.count(value, n, len(draw.training))
    _, pairs_seed, noise_seed = np.random.SeedSequence(draw.seed.entropy).spawn(3)
    rng = np.random.default_rng(pairs_seed)
    if protocol.unit == "share-of-ordered-pairs":
        pairs = draw.training[nested_answers(len(draw.training), count, rng)]
        together = points.labels[pairs[:, 0]] == points.labels[pairs[:, 1]]
        wrong = np.random.default_rng(noise_seed).random(count) < protocol.noise
        pairs, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
        together = (together ^ wrong)[first]
        return Constraints(pairs[together], pairs[~together], n_points=n)
    if selection in ("active", "explore"):
        n_clusters = points.n_classes if selection == "active" else None
        drawn = ExploreConsolidate(
            n_clusters, count, distortion=points.distortion, random_state=rng
        ).run(points.values, points.labels, candidates=draw.training)
        constraints = drawn.constraints
    else:
        pairs = draw.training[nested_pairs(len(draw.training), count, rng)]
        together = points.labels[pairs[:, 0]] == points.labels[pairs[:, 1]]
        constraints = Constraints(pairs[together], pairs[~together], n_points=n)
    if protocol.noise:
        constraints = constraints.flip(protocol.noise, np.random.default_rng(noise_seed))
    return constraints


def draw_seeds(
    points: StudyPoints, protocol: Protocol, draw: Draw, value: float, classes: float
) -> IntArray:
    """Draw the partial labels of a run, -1 for points that are not seeds, shape (n,).

    A larger share of points, or of classes, includes the seeds of a smaller one, with the same
    labels, right or wrong.
    """
    n, k = len(points.labels), points.n_classes
    count = min(protocol.count(value, n, len(draw.training)), len(draw.training))
    _, seeds_seed, noise_seed = np.random.SeedSequence(draw.seed.entropy).spawn(3)
    rng, noise = np.random.default_rng(seeds_seed), np.random.default_rng(noise_seed)
    seeds = rng.permutation(draw.training)[:count]
    seeded_classes = rng.permutation(k)[: max(1, round(classes * k))]
    seeds = seeds[np.isin(points.labels[seeds], seeded_classes)]
    wrong = noise.random(n) < protocol.noise
    other = (points.labels + noise.integers(1, max(2, k), n)) % k
    supervision = np.full(n, -1, dtype=np.int64)
    supervision[seeds] = np.where(wrong, other, points.labels)[seeds]
    return supervision


def nested_pairs(n: int, count: int, rng: np.random.Generator) -> IntArray:
    """Return `count` random pairs out of n, shape (count, 2), the first ones of a longer result."""
    numbers = _nested(n * (n - 1) // 2, count, rng)
    # Pair number t is (t - j (j - 1) / 2, j) with the largest j for which that is not negative.
    second = ((1.0 + np.sqrt(1.0 + 8.0 * numbers)) / 2.0).astype(np.int64)
    second -= second * (second - 1) // 2 > numbers
    second += second * (second + 1) // 2 <= numbers
    return np.stack([numbers - second * (second - 1) // 2, second], axis=1)


def nested_answers(n: int, count: int, rng: np.random.Generator) -> IntArray:
    """Return the first `count` of a random sequence of all ordered pairs, shape (count, 2)."""
    first, second = np.divmod(_nested(n * (n - 1), count, rng), n - 1)
    return np.stack([first, second + (second >= first)], axis=1)


def _nested(total: int, count: int, rng: np.random.Generator) -> IntArray:
    """Return the first `count` of a random sequence of all integers below `total`."""
    if total <= _SHUFFLED:
        return rng.permutation(total)[:count]
    sequence = np.empty(0, dtype=np.int64)
    while sequence.size < count:
        longer = np.concatenate([sequence, rng.integers(total, size=_CHUNK)])
        first = np.sort(np.unique(longer, return_index=True)[1])
        sequence = longer[first]
    return sequence[:count]


def fit_method(
    method: Method, points: StudyPoints, protocol: Protocol, value: float, run: int
) -> FitResult:
    """Fit a method once, or once for each listed weight, and return the result of best score."""
    points = points.drawn(np.random.default_rng([run, points.key, 1]))
    draw = draw_run(points, protocol, run)
    if method.selection == "seeds":
        seeds = draw_seeds(points, protocol, draw, value, method.seeded_classes)
        return _fit_to_seeds(method, points, seeds, draw)
    constraints = draw_constraints(points, protocol, draw, value, method.selection)
    if method.closure != "none":
        constraints = constraints.close(method.closure)
    best: FitResult | None = None
    for weight in _weights(method, points, protocol.noise, len(constraints)):
        fit = _fit_to_pairs(method, points, constraints, draw, weight)
        first = next(iter(fit.scores.values()))
        if best is None or first > next(iter(best.scores.values())):
            best = fit
    assert best is not None
    return best


def _weights(
    method: Method, points: StudyPoints, noise: float, count: int
) -> Sequence[float | Literal["auto", "default"]]:
    """Return the weights for the fits of a method."""
    weight = method.weight
    if weight in ("auto", "default"):
        return [weight]
    if weight == "variance":
        weight = float(np.var(points.values, axis=0).sum())
    elif weight in ("calibrated", "log-odds"):
        odds = log_odds_of(noise, count)
        calibrated = weight == "calibrated"
        unit = calibrated_weight(points.values, points.n_classes, 1.0) if calibrated else 1.0
        weight = unit * odds
    listed = weight if isinstance(weight, list) else [weight]
    return [method.weight_factor * float(value) for value in listed]


def _arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator; a table for ``metric`` becomes a `GradientStep`."""
    arguments = dict(settings)
    if isinstance(arguments.get("metric"), Mapping):
        arguments["metric"] = clustering.GradientStep(**arguments["metric"])
    return arguments


def _fit_to_seeds(method: Method, points: StudyPoints, seeds: IntArray, draw: Draw) -> FitResult:
    """Fit a method to partial labels, or to the pairs that follow from them."""
    if method.estimator in SEEDED:
        supervision: dict[str, Any] = {"partial_labels": seeds}
    else:
        supervision = Constraints.from_labels(seeds, scheme="chains").fit_params()
    return _fit(method, points, supervision, np.flatnonzero(seeds >= 0), draw, 1.0)


def _fit_to_pairs(
    method: Method,
    points: StudyPoints,
    constraints: Constraints,
    draw: Draw,
    weight: float | Literal["auto", "default"],
) -> FitResult:
    must, cannot = constraints.must_link, constraints.cannot_link
    supervision: dict[str, Any] = {"must_link": must, "cannot_link": cannot}
    if weight != "default":
        supervision |= {"ml_weight": weight, "cl_weight": weight}
    pairs = np.concatenate([must.ravel(), cannot.ravel()])
    return _fit(method, points, supervision, pairs, draw, weight)


def _fit(
    method: Method,
    points: StudyPoints,
    supervision: Mapping[str, Any],
    named: IntArray,
    draw: Draw,
    weight: float | Literal["auto", "default"],
) -> FitResult:
    """Fit a method with its `supervision`, and score it; `named` are the constrained points."""
    seed = int(np.random.SeedSequence(draw.seed.entropy).spawn(4)[3].generate_state(1)[0])
    arguments = {"n_clusters": points.n_classes, **_arguments(method.settings)}
    if arguments.get("init") == "kmeans":
        start = np.random.default_rng(seed)
        arguments["init"] = kmeans_centroids(points.values, arguments["n_clusters"], start)
    estimator = ESTIMATORS[method.estimator](random_state=seed, **arguments)
    with warnings.catch_warnings():
        # Warnings are ignored because a study may vary the weights over a wide range.
        warnings.simplefilter("ignore", clustering.PairWeightWarning)
        warnings.simplefilter("ignore", clustering.MergedClassesWarning)
        warnings.simplefilter("ignore", clustering.ContradictoryPairsWarning)
        loaded = timer.seconds
        since = perf_counter()
        estimator.fit(points.values, **supervision)
        seconds = max(0.0, perf_counter() - since - (timer.seconds - loaded))
    truth, labels = points.labels[draw.scored], estimator.labels_[draw.scored]
    e_steps = [line for line in getattr(estimator, "history_", ()) if line.step == "E"]
    solved = [line for line in e_steps if line.status is not None]
    gaps = [line.energy - line.lower_bound for line in solved]
    scores = {name: score(truth, labels) for name, score in SCORES.items()}
    touched = np.isin(draw.scored, named)
    for name, subset in zip(PARTIAL, (touched, ~touched), strict=True):
        if subset.any():
            scores[name] = adjusted_rand(truth[subset], labels[subset])
    if hasattr(estimator, "predict"):
        predicted = estimator.predict(points.values)[draw.scored]
        scores |= {name: score(truth, predicted) for name, score in PREDICTED.items()}
    if hasattr(estimator, "lower_bound_"):
        scores["lower_bound"] = estimator.lower_bound_
    if isinstance(weight, str):
        used = estimator.constraints_
        weights = np.concatenate([used.ml_weights, used.cl_weights])
        weight = float(weights.mean()) if weights.size else math.nan
    return FitResult(
        scores,
        float(getattr(estimator, "objective_", math.nan)),
        seconds,
        sum(line.seconds for line in e_steps),
        int(getattr(estimator, "n_iter_", 0)),
        0.0 if method.estimator in SEEDED else float(estimator.violations_.weight),
        weight,
        {
            "solved": len(solved),
            "optimal": sum(line.status == "optimal" for line in solved),
            "mean_gap": float(f"{np.mean(gaps):.6g}") if gaps else math.nan,
        },
    )
