"""Folds of pairs, and scores of labels by the pairs that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_lab.constraints import Constraints
from inference_lab.constraints.pairs import codes_of
from inference_lab.graph.arrays import FloatArray, IntArray

#: Standard deviation of the gain of a candidate between data sets.
_PRIOR_DEVIATION = 0.1
#: Standard errors within which the best score counts as chance.
_CHANCE = 2.0
#: Lower limit on standard errors, because few groups of pairs may show no difference by chance.
_LEAST_ERROR = 0.02


# ---------------------------------------------------------------------- folds of pairs


def pair_groups(constraints: Constraints, n_splits: int) -> IntArray:
    """Return the group of each pair, must-links first; pairs of a group are held out together.

    A group holds the must-links of a component and the cannot-links inside it, or all cannot-links
    between two components. So no pair of a group follows from the remaining pairs. The pairs of a
    group with more than a fold's share of their kind become groups of their own.
    """
    component = constraints.components()
    n, ml, cl = constraints.n_points, constraints.must_link, constraints.cannot_link
    ends = np.sort(component[np.concatenate([ml, cl])], axis=1)
    group = np.unique(codes_of(ends, n), return_inverse=True)[1].reshape(-1)
    single = np.zeros(group.size, dtype=np.bool_)
    for kind in (slice(0, len(ml)), slice(len(ml), None)):
        limit = max(1.0, group[kind].size / n_splits)
        single |= (np.bincount(group[kind], minlength=group.size) > limit)[group]
    group = np.where(single, group.size + np.arange(group.size), group)
    return np.unique(group, return_inverse=True)[1].astype(np.int64).reshape(-1)


def pair_folds(group: IntArray, n_must: int, n_splits: int, rng: np.random.Generator) -> IntArray:
    """Return the fold of each pair; folds have similar numbers of each kind."""
    n_groups = int(group.max(initial=-1)) + 1
    must = np.bincount(group[:n_must], minlength=n_groups)
    cannot = np.bincount(group[n_must:], minlength=n_groups)
    filled = np.zeros((2, n_splits), dtype=np.int64)
    where = np.empty(n_groups, dtype=np.int64)
    order = rng.permutation(n_groups)
    for at in order[np.argsort(-(must + cannot)[order], kind="stable")].tolist():
        kind = 0 if must[at] else 1
        # The fold with the fewest pairs of this kind, then of the other kind.
        fold = int(np.lexsort((filled[1 - kind], filled[kind]))[0])
        where[at] = fold
        filled[:, fold] += must[at], cannot[at]
    return where[group]


# ---------------------------------------------------------------------- scores


@dataclass(frozen=True)
class PairShares:
    """Share of fits that keep a pair held out of them, and of all point pairs in one cluster.

    Arrays have an entry for each must-link and each cannot-link. `pairs` are the numbers of these
    pairs among all, must-links first; None for all.
    """

    must: FloatArray
    cannot: FloatArray
    together: float
    pairs: IntArray | None = None

    def contributions(self) -> FloatArray:
        """Return the contribution of each pair to the score, which is 0 at chance and at most 1."""
        kinds = [(self.must, self.together), (self.cannot, 1.0 - self.together)]
        kinds = [(shares, chance) for shares, chance in kinds if shares.size]
        room = sum(1.0 - chance for _, chance in kinds)
        if room <= 0.0:
            return np.zeros(self.must.size + self.cannot.size)
        return np.concatenate(
            [(shares - chance) / (room * shares.size) for shares, chance in kinds]
        )

    @property
    def score(self) -> float:
        """Chance-corrected agreement with held-out pairs, both kinds weighted alike."""
        return float(self.contributions().sum())

    @property
    def n_pairs(self) -> int:
        """Number of pairs that were held out."""
        return self.must.size + self.cannot.size

    def groups(self, group: IntArray) -> IntArray:
        """Return the groups of these pairs, numbered from 0, given the group of each pair."""
        if self.pairs is None:
            return group
        return np.unique(group[self.pairs], return_inverse=True)[1].astype(np.int64).reshape(-1)

    def error(self, group: IntArray) -> float:
        """Return the standard error of the score."""
        return standard_error(self.contributions(), self.must.size, self.groups(group))


def standard_error(contributions: FloatArray, n_must: int, group: IntArray) -> float:
    """Return the standard error of a sum of contributions; pairs of a group are dependent."""
    centred = contributions.copy()
    for kind in (slice(0, n_must), slice(n_must, None)):
        if centred[kind].size:
            centred[kind] -= centred[kind].mean()
    sums = np.bincount(group, weights=centred)
    if sums.size < 2:
        return float("inf")
    return float(np.sqrt(sums.size / (sums.size - 1) * (sums**2).sum()))


def gain(of: PairShares, over: PairShares, group: IntArray) -> tuple[float, float]:
    """Return the difference of two scores over the same pairs, and its standard error."""
    added = of.contributions() - over.contributions()
    return float(added.sum()), standard_error(added, of.must.size, of.groups(group))


def choose(candidates: Sequence[PairShares | None], group: IntArray) -> int:
    """Return the first candidate within a standard error of the best score; None marks failures.

    The standard error refers to the difference of the two scores over the same pairs.
    """
    judged = {at: shares for at, shares in enumerate(candidates) if shares is not None}
    best = max(judged, key=lambda at: judged[at].score)
    for at, shares in judged.items():
        ahead, error = gain(judged[best], shares, group)
        if at == best or ahead <= error:
            return at
    return best


def expected_gains(
    candidates: Sequence[PairShares | None],
    group: IntArray,
    prior: Sequence[float],
    references: Sequence[PairShares | None] | None = None,
) -> FloatArray:
    """Return the posterior mean of the gain of each candidate over the first that has not failed.

    Gains of a candidate are normal around its `prior` gain over data sets, and the gain on held-out
    pairs is normal around the gain on this set. NaN marks failed candidates. All gains are zero if
    even the best score is within two standard errors of chance, because such pairs are noise.
    `references` are the shares of the first candidate over the pairs of each candidate, for
    candidates that were judged by some of the pairs.
    """
    judged = {at: shares for at, shares in enumerate(candidates) if shares is not None}
    gains = np.full(len(candidates), np.nan)
    gains[list(judged)] = 0.0
    if is_chance(list(judged.values()), group):
        return gains
    return posterior_gains(candidates, group, prior, references)


def posterior_gains(
    candidates: Sequence[PairShares | None],
    group: IntArray,
    prior: Sequence[float],
    references: Sequence[PairShares | None] | None = None,
) -> FloatArray:
    """Return `expected_gains`, also where no score is clearly above chance."""
    judged = {at: shares for at, shares in enumerate(candidates) if shares is not None}
    gains = np.full(len(candidates), np.nan)
    (first, reference), *others = judged.items()
    gains[first] = 0.0
    for at, shares in others:
        over = reference if references is None else references[at]
        assert over is not None  # the first candidate is judged by all of these pairs
        observed, error = gain(shares, over, group)
        share = weight_of_evidence(error)
        gains[at] = (1.0 - share) * (prior[at] - prior[first]) + share * observed
    return gains


def is_chance(candidates: Sequence[PairShares], group: IntArray) -> bool:
    """Whether even the best score is within two standard errors of chance."""
    best = max(candidates, key=lambda shares: shares.score)
    return best.score <= _CHANCE * best.error(group)


def weight_of_evidence(error: float) -> float:
    """Return the weight of an observed gain with this standard error, against the prior gain."""
    return 1.0 / (1.0 + (at_least_usual(error) / _PRIOR_DEVIATION) ** 2)


def at_least_usual(error: float) -> float:
    """Return a standard error, or the least that counts as one."""
    return max(error, _LEAST_ERROR)


def share_together(labels: IntArray) -> float:
    """Return the share of all pairs of points that are in one cluster, 0 for a single point."""
    sizes = np.unique(labels, return_counts=True)[1].astype(np.float64)
    return float((sizes * (sizes - 1.0)).sum()) / max(1.0, labels.size * (labels.size - 1.0))


def pair_shares(
    labels_of_fits: Sequence[IntArray], fold: Sequence[IntArray], constraints: Constraints
) -> PairShares:
    """Return for each pair the share of fits without its fold that keep it.

    `fold` has the fold of each pair in each repetition, `labels_of_fits` the labels of the fit
    without each fold. With fewer fits than folds, pairs that no fit has held out are left out.
    """
    n_must = len(constraints.must_link)
    pairs = np.concatenate([constraints.must_link, constraints.cannot_link])
    right, times = np.zeros(len(pairs)), np.zeros(len(pairs))
    together = []
    masks = (folds == number for folds in fold for number in range(int(folds.max()) + 1))
    for labels, out in zip(labels_of_fits, masks, strict=False):
        same = labels[pairs[out, 0]] == labels[pairs[out, 1]]
        right[out] += same == (np.flatnonzero(out) < n_must)
        times += out
        together.append(share_together(labels))
    judged = np.flatnonzero(times)
    shares, n_judged_must = right[judged] / times[judged], int(np.searchsorted(judged, n_must))
    return PairShares(
        shares[:n_judged_must],
        shares[n_judged_must:],
        float(np.mean(together)),
        None if judged.size == len(pairs) else judged,
    )
