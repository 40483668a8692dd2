"""Warnings about pairs: their faults, weights far from the scale of costs, hard pairs not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inference_lab.clustering.violations import violated
from inference_lab.constraints import Constraints
from inference_lab.constraints.constraints import selected
from inference_lab.constraints.pair_answers import USUAL_ODDS
from inference_lab.constraints.pairs import pairs_outside
from inference_lab.formatting import listed, warn
from inference_lab.graph.arrays import FloatArray, IntArray

#: Largest ratio of a weight to the calibrated weight without a warning. Between 1/30 and 30 times
#: that weight, fits to noisy pairs differ, but none ignores the pairs or follows only the pairs.
_FAR = 100.0


class PairWeightWarning(UserWarning):
    """Violated pairs cost nothing, or far less or more than the calibrated weight."""


class ConstraintsNotMetWarning(UserWarning):
    """The labels that a fit returns violate constraints that should hold."""


class ContradictoryPairsWarning(UserWarning):
    """Cannot-links join points that must-links connect."""


class RepeatedPairsWarning(UserWarning):
    """Pairs are listed more than once; they count once."""


class MergedClassesWarning(UserWarning):
    """Must-links, some of which others contradict, connect most of the points into one cluster."""


def pair_faults(
    constraints: Constraints, n_repeated: int, names: Sequence[Any] | None = None
) -> dict[type[UserWarning], str]:
    """Return a sentence for each kind of fault of a list of pairs; points may have names.

    Pairs of weight zero do not count. Hard pairs that contradict each other are no fault here,
    because estimators refuse them.
    """
    faults: dict[type[UserWarning], str] = {}
    ml, cl = constraints.ml_weights, constraints.cl_weights
    voting = selected(constraints, ml > 0, cl > 0)
    inside = voting.contradictions()
    if len(inside) and np.isinf(ml).any():
        hard = selected(constraints, np.isinf(ml), np.isinf(cl))
        inside = pairs_outside(inside, hard.contradictions(), constraints.n_points)
    if len(inside):
        shown = [
            str(tuple(point if names is None else names[point] for point in pair))
            for pair in inside.tolist()
        ]
        faults[ContradictoryPairsWarning] = (
            f"contradictory pairs: must-links connect the points of {len(inside)} of "
            f"{len(voting.cannot_link)} cannot-links, {listed(shown, most=3)}; no clustering keeps "
            "all of these pairs"
        )
    if n_repeated:
        faults[RepeatedPairsWarning] = (
            f"repeated pairs: {n_repeated} of {len(constraints) + n_repeated} are listed before, "
            "as the same kind; each pair counts once"
        )
    return faults


def watch_faults(constraints: Constraints, n_repeated: int) -> None:
    """Warn if pairs contradict each other or are listed more than once."""
    for category, sentence in pair_faults(constraints, n_repeated).items():
        warn(sentence, category)


def watch_repeats(constraints: Constraints, n_repeated: int) -> None:
    """Warn if pairs are listed more than once."""
    if n_repeated:
        sentence = pair_faults(constraints, n_repeated)[RepeatedPairsWarning]
        warn(sentence, RepeatedPairsWarning)


def watch_weight(constraints: Constraints, costs: FloatArray, unit: float) -> None:
    """Warn if the cost of violated pairs is far from the calibrated weight."""
    costs = costs[(costs > 0) & np.isfinite(costs)]
    # The usual odds suffice, because the share of wrong pairs changes this by far less than `_FAR`.
    usual = unit * USUAL_ODDS
    if not costs.size or usual == 0:
        return
    share = float(np.median(costs)) / usual
    # Large weights are harmless if all pairs are right; otherwise wrong pairs would be enforced.
    if share < 1 / _FAR or (share > _FAR and len(constraints.contradictions())):
        warn(
            f"a violated pair costs {share:.2g} times the calibrated weight of these data "
            f"({usual:.2g}), so that {'hardly any' if share < 1 else 'even a wrong'} pair "
            "counts; scale the data, or give ml_weight='auto' and cl_weight='auto'",
            PairWeightWarning,
        )


def watch_hard(
    constraints: Constraints,
    labels: IntArray,
    remedy: str = "more clusters, finite weights, or another e_step, such as 'ilp'",
) -> None:
    """Warn if labels violate pairs of infinite weight."""
    unmet = total = 0
    for rows, weights in zip(
        violated(constraints, labels),
        (constraints.ml_weights, constraints.cl_weights),
        strict=True,
    ):
        hard = np.isposinf(weights)
        total += int(hard.sum())
        unmet += int(hard[rows].sum())
    if unmet:
        warn(
            f"the labels violate {unmet} of {total} pairs of infinite weight: no labelling that "
            f"keeps them all was found, and nothing proves that there is none; give {remedy}",
            ConstraintsNotMetWarning,
        )


def watch_components(constraints: Constraints, n_clusters: int) -> None:
    """Warn if contradicted must-links connect most points that occur in pairs."""
    inside = constraints.contradictions()
    if not len(inside) or n_clusters == 1:
        return
    component = constraints.components()
    sizes = np.bincount(component)
    largest = int(sizes.argmax())
    touched = constraints.touches(np.arange(constraints.n_points)).size
    against = int((component[inside[:, 0]] == largest).sum())
    if against and 2 * sizes[largest] > touched:
        warn(
            f"must-links connect {sizes[largest]} of the {touched} points that pairs touch, and "
            f"{against} cannot-links between these contradict them: closed, they make one cluster "
            "of several classes; use closure='vote', or None",
            MergedClassesWarning,
        )
