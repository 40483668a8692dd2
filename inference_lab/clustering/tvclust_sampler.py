r"""TVClust by sampling of partitions from a Dirichlet process mixture with noisy answers.

Weights, components and sticks are integrated out; the partition and the shares ``p`` and ``q`` of
right answers are sampled. Gibbs sweeps move single points; split and merge moves let the chain
leave partitions that single moves cannot.

D. Khashabi, J. Liu, J. Wieting, F. Liang, "Clustering with side information: from a probabilistic
model to a deterministic algorithm", 2015, section 3. R. Neal, "Markov chain sampling methods for
Dirichlet process mixture models", JCGS 9, 2000, algorithm 3. S. Jain, R. Neal, "A split-merge
Markov chain Monte Carlo procedure for the Dirichlet process mixture model", JCGS 13, 2004. S. Wade,
Z. Ghahramani, "Bayesian cluster analysis: point estimation and credible balls", Bayesian Analysis
13, 2018.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from inference_lab._numba import lean_kernel
from inference_lab.clustering.distortions import Points
from inference_lab.clustering.dp_means import Pairs
from inference_lab.clustering.em import HalfStep
from inference_lab.clustering.supervision import Side
from inference_lab.clustering.tvclust import Credibility, SourcedClusterer
from inference_lab.constraints.constraints import selected
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting

__all__ = ["TVClustSampler", "least_variation"]

#: Slots at the end of the arrays, for the clusters of a proposal.
_SCRATCH = 3
#: Restricted scans that make the start of a proposal independent of the state of the chain.
_SCANS = 3


class Clusters(NamedTuple):
    """Sufficient statistics of clusters in slots; slots without points hold the prior."""

    sizes: IntArray  # (slots,)
    sums: FloatArray  # (slots, d)
    factor: FloatArray  # (slots, d, d): Cholesky factors of the scatter
    log_gamma: FloatArray  # (n + 2,): log of the multivariate gamma function, by size
    room: FloatArray  # (d,): scratch


@lean_kernel
def clear(c: Clusters, h: int) -> None:
    """Empty a slot."""
    c.sizes[h] = 0
    c.sums[h, :] = 0.0
    c.factor[h, :, :] = 0.0
    for v in range(c.factor.shape[1]):
        c.factor[h, v, v] = 1.0


@lean_kernel
def copy(c: Clusters, source: int, target: int) -> None:
    """Copy a slot."""
    c.sizes[target] = c.sizes[source]
    for v in range(c.sums.shape[1]):
        c.sums[target, v] = c.sums[source, v]
    for i in range(c.factor.shape[1]):
        for j in range(i + 1):
            c.factor[target, i, j] = c.factor[source, i, j]


@lean_kernel
def change(c: Clusters, x: FloatArray, h: int, sign: int) -> None:
    """Add a point to a slot, or remove it."""
    d = x.size
    if sign < 0 and c.sizes[h] == 1:
        clear(c, h)
        return
    held = c.sizes[h] + 1.0 if sign > 0 else float(c.sizes[h])
    scale = math.sqrt(held / (held + 1.0))
    for v in range(d):
        rest = c.sums[h, v] if sign > 0 else c.sums[h, v] - x[v]
        c.room[v] = scale * (x[v] - rest / held)
    for j in range(d):
        old, moved = c.factor[h, j, j], c.room[j]
        # A scatter is at least I, so the difference is positive up to rounding.
        new = math.sqrt(max(old * old + sign * moved * moved, 1e-12))
        ratio, share = new / old, moved / old
        c.factor[h, j, j] = new
        for i in range(j + 1, d):
            c.factor[h, i, j] = (c.factor[h, i, j] + sign * share * c.room[i]) / ratio
            c.room[i] = ratio * c.room[i] - share * c.factor[h, i, j]
    for v in range(d):
        c.sums[h, v] += sign * x[v]
    c.sizes[h] += sign


@lean_kernel
def log_predictive(c: Clusters, x: FloatArray, h: int) -> float:
    """Return the log-probability of a point given the points of a slot."""
    d, n = x.size, c.sizes[h]
    square = log_det = 0.0
    for i in range(d):
        rest = x[i] - c.sums[h, i] / (n + 1.0)
        for j in range(i):
            rest -= c.factor[h, i, j] * c.room[j]
        c.room[i] = rest / c.factor[h, i, i]
        square += c.room[i] * c.room[i]
        log_det += 2.0 * math.log(c.factor[h, i, i])
    share = (n + 1.0) / (n + 2.0)
    value = 0.5 * d * (math.log(share) - math.log(math.pi)) - 0.5 * log_det
    value -= 0.5 * (d + n + 1.0) * math.log1p(share * square)
    return float(value + c.log_gamma[n + 1] - c.log_gamma[n])


@lean_kernel
def log_evidence(c: Clusters, h: int) -> float:
    """Return the log-probability of all points of a slot."""
    d, n = c.sums.shape[1], c.sizes[h]
    log_det = 0.0
    for i in range(d):
        log_det += 2.0 * math.log(c.factor[h, i, i])
    value = -0.5 * d * (n * math.log(math.pi) + math.log(n + 1.0)) - 0.5 * (d + n) * log_det
    return float(value + c.log_gamma[n] - c.log_gamma[0])


@lean_kernel
def gibbs_sweep(
    c: Clusters,
    points: FloatArray,
    labels: IntArray,
    ptr: IntArray,
    partner: IntArray,
    effect: FloatArray,
    log_alpha: float,
    order: IntArray,
    start: int,
    uniform: FloatArray,
    row: FloatArray,
) -> int:
    """Draw the labels of the points in turn, in place.

    Stops at the first point without a free slot and returns its place in `order`, else the length.
    """
    slots = c.sizes.size - _SCRATCH
    for place in range(start, order.size):
        i = order[place]
        change(c, points[i], labels[i], -1)
        free = -1
        for h in range(slots):
            row[h] = 0.0
            if c.sizes[h] == 0 and free < 0:
                free = h
        if free < 0:
            change(c, points[i], labels[i], 1)
            return place
        for q in range(ptr[i], ptr[i + 1]):
            row[labels[partner[q]]] += effect[q]
        top = -np.inf
        for h in range(slots):
            if c.sizes[h] == 0 and h != free:
                row[h] = -np.inf
                continue
            # An empty slot offers no partner, because the point itself does not count.
            held = math.log(c.sizes[h]) + row[h] if c.sizes[h] > 0 else log_alpha
            row[h] = held + log_predictive(c, points[i], h)
            top = max(top, row[h])
        total = 0.0
        for h in range(slots):
            row[h] = math.exp(row[h] - top)
            total += row[h]
        left = uniform[place] * total
        chosen = free
        for h in range(slots):
            if row[h] > 0.0:
                chosen = h
                left -= row[h]
                if left < 0.0:
                    break
        labels[i] = chosen
        change(c, points[i], chosen, 1)
    return order.size


@lean_kernel
def split_or_merge(
    c: Clusters,
    points: FloatArray,
    labels: IntArray,
    ptr: IntArray,
    partner: IntArray,
    effect: FloatArray,
    log_alpha: float,
    first: int,
    second: int,
    uniform: FloatArray,
    side: IntArray,
    members: IntArray,
) -> int:
    """Propose to split the cluster of two points or to merge theirs; return whether accepted."""
    slots = c.sizes.size - _SCRATCH
    a, b, both = slots, slots + 1, slots + 2
    old_a, old_b = labels[first], labels[second]
    splitting = old_a == old_b
    free = -1
    for h in range(slots):
        if c.sizes[h] == 0:
            free = h
            break
    if splitting and free < 0:
        return 0
    for h in (a, b, both):
        clear(c, h)
    used = count = 0
    for i in range(labels.size):
        if labels[i] != old_a and labels[i] != old_b:
            continue
        change(c, points[i], both, 1)
        if i == first or i == second:
            side[i] = 0 if i == first else 1
        else:
            members[count] = i
            count += 1
            side[i] = 0 if uniform[used] < 0.5 else 1
            used += 1
        change(c, points[i], a + side[i], 1)
    chance = 0.0
    for scan in range(_SCANS + 1):
        last = scan == _SCANS
        for at in range(count):
            i = members[at]
            change(c, points[i], a + side[i], -1)
            # Log-odds of the second side.
            odds = math.log(c.sizes[b]) - math.log(c.sizes[a])
            odds += log_predictive(c, points[i], b) - log_predictive(c, points[i], a)
            for q in range(ptr[i], ptr[i + 1]):
                there = side[partner[q]]
                if there >= 0:
                    odds += effect[q] if there == 1 else -effect[q]
            # log(1 + exp(odds)), for odds of any size
            grown = max(odds, 0.0) + math.log1p(math.exp(-abs(odds)))
            if last and not splitting:
                side[i] = 0 if labels[i] == old_a else 1
            else:
                side[i] = 1 if math.log(uniform[used]) < odds - grown else 0
                used += 1
            if last:
                chance += odds - grown if side[i] == 1 else -grown
            change(c, points[i], a + side[i], 1)
    # Log-ratio of the probabilities of two clusters and of one.
    gain = log_alpha + log_evidence(c, a) + log_evidence(c, b) - log_evidence(c, both)
    gain += math.lgamma(c.sizes[a]) + math.lgamma(c.sizes[b]) - math.lgamma(c.sizes[both])
    for at in range(-2, count):
        i = first if at == -2 else (second if at == -1 else members[at])
        if side[i] == 0:
            for q in range(ptr[i], ptr[i + 1]):
                if side[partner[q]] == 1:
                    gain -= effect[q]
    ratio = gain - chance if splitting else chance - gain
    accepted = math.log(uniform[used]) < ratio
    for at in range(-2, count):
        i = first if at == -2 else (second if at == -1 else members[at])
        if accepted:
            if not splitting:
                labels[i] = old_a
            elif side[i] == 1:
                labels[i] = free
        side[i] = -1
    if accepted:
        copy(c, a if splitting else both, old_a)
        if splitting:
            copy(c, b, free)
        else:
            clear(c, old_b)
    return 1 if accepted else 0


@lean_kernel
def gather(c: Clusters, points: FloatArray, labels: IntArray) -> None:
    """Recompute the statistics, so that rounding does not accumulate."""
    for h in range(c.sizes.size):
        clear(c, h)
    for i in range(labels.size):
        change(c, points[i], labels[i], 1)


@lean_kernel
def log_densities(c: Clusters, points: FloatArray, out: FloatArray) -> None:
    """Set the log-predictive of each point in each slot."""
    for i in range(points.shape[0]):
        for h in range(out.shape[1]):
            out[i, h] = log_predictive(c, points[i], h)


def clusters(points: FloatArray, slots: int) -> Clusters:
    """Return empty clusters in `slots` slots, and the extra slots of proposals."""
    from scipy.special import multigammaln

    n, d = points.shape
    slots += _SCRATCH
    found = Clusters(
        np.zeros(slots, dtype=np.int64),
        np.zeros((slots, d)),
        np.zeros((slots, d, d)),
        np.array([multigammaln(0.5 * (d + size), d) for size in range(n + 2)]),
        np.zeros(d),
    )
    gather(found, points, np.empty(0, dtype=np.int64))
    return found


def least_variation(samples: IntArray) -> tuple[int, float]:
    """Return the partition of least mean variation of information to all samples, and the mean."""
    s, n = samples.shape

    def entropy(labels: IntArray) -> float:
        share = np.unique(labels, return_counts=True)[1] / n
        return float(-(share * np.log(share)).sum())

    alone = np.array([entropy(row) for row in samples])
    width = int(samples.max()) + 1
    variation = np.zeros((s, s))
    for i in range(s):
        for j in range(i):
            joint = entropy(samples[i] * width + samples[j])
            variation[i, j] = variation[j, i] = 2.0 * joint - alone[i] - alone[j]
    mean = variation.mean(axis=1)
    best = int(mean.argmin())
    return best, float(mean[best])


@dataclass(eq=False, repr=False, kw_only=True)
class TVClustSampler(SourcedClusterer):
    r"""Dirichlet process mixture with noisy answers about pairs, by sampling.

    The model of `TVClust` without truncation: a Chinese restaurant
    process, with all parameters of the components integrated out.

    Parameters
    ----------
    alpha, p_prior, q_prior, standardise
        See `TVClust`.
    n_samples : int
        Number of kept partitions.
    thinning : int
        Sweeps per kept partition.
    burn_in : int
        Sweeps before the first kept partition.
    split_merge : int
        Proposals to split or merge clusters after each sweep.

    Attributes
    ----------
    labels_ : (n,) int array
        The sample of least mean variation of information to all samples.
    objective_ : float
        Mean variation of information of ``labels_`` to all samples.
    samples_ : (n_samples, n) int array
        The partitions of the points of positive weight.
    p_samples_, q_samples_ : (n_samples,) arrays, (n_samples, sources) if `fit` got sources
    p_, q_ : float, or (sources,) arrays
        Their means.
    n_clusters_ : int
        Clusters named in ``partial_labels`` come first, in the order of their numbers.
    cluster_centers_ : (k, d) array
        Posterior means of the clusters, in the units of the data.
    accepted_ : float
        Share of accepted proposals to split or merge.
    history_ : list of HalfStep
        Minus the log-probability of points and partition after each sweep, without answers.
    n_iter_, converged_, violations_, constraints_
        Sweeps; always true; see `HMRFKMeans`.

    Notes
    -----
    **Guarantees.** The chain leaves the posterior invariant.

    **Complexity.** A sweep costs O(n k d^2 + pairs), a proposal O(n d^2 + pairs). Memory: the
    samples, and O(k d^2). The point estimate takes O(n_samples^2 n).

    References
    ----------
    D. Khashabi, J. Liu, J. Wieting, F. Liang, "Clustering with side information: from a
    probabilistic model to a deterministic algorithm", 2015.

    Examples
    --------
    >>> X = np.repeat([[0.0], [10.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 1))
    >>> model = TVClustSampler(n_samples=50, random_state=0)
    >>> model.fit(X, must_link=[(0, 1)], cannot_link=[(0, 20)]).n_clusters_
    2
    """

    alpha: float = setting(1.0, above=0, below=math.inf)
    p_prior: tuple[float, float] = (10.0, 1.0)
    q_prior: tuple[float, float] = (10.0, 1.0)
    standardise: bool = True
    n_samples: int = setting(100, at_least=1)
    thinning: int = setting(2, at_least=1)
    burn_in: int = setting(100, at_least=0)
    split_merge: int = setting(2, at_least=0)
    random_state: Any = None

    def _label_limit(self) -> None:
        """Labels can name any number of clusters."""

    def _fit(self, points: FloatArray, side: Side) -> None:
        rows = np.repeat(np.arange(len(points)), _times(side))
        first = np.searchsorted(rows, np.arange(len(points)))
        chain = _Chain(
            self,
            points[rows],
            replace(
                side,
                constraints=selected(side.constraints, place=first, n_points=rows.size),
                known=side.known[rows],
            ),
            self._generator(),
        )
        best, self.objective_ = least_variation(chain.samples)
        self.samples_ = chain.samples[:, first]
        self.p_samples_, self.q_samples_ = chain.right if side.sources else chain.right[:, :, 0]
        self.p_, self.q_ = (
            each.mean(axis=0) if side.sources else float(each.mean())
            for each in (self.p_samples_, self.q_samples_)
        )
        self.labels_ = self.samples_[best].copy()
        self.n_clusters_ = int(chain.samples[best].max()) + 1
        self._state = clusters(points[rows], self.n_clusters_)
        gather(self._state, points[rows], chain.samples[best])
        k = self.n_clusters_
        sizes, sums = self._state.sizes[:k, None], self._state.sums[:k]
        self.cluster_centers_ = sums / (sizes + 1.0) * self._scale + self._shift
        self.history_ = chain.history
        self.n_iter_ = len(chain.history)
        self.converged_ = True
        self.accepted_ = chain.accepted / max(1, self.split_merge * self.n_iter_)
        self._judge(side.constraints)

    def co_clustering(self, rows: npt.ArrayLike | None = None) -> FloatArray:
        """Return the share of the samples in which points share a cluster.

        Parameters
        ----------
        rows : (m,) array of int, optional
            By default all points; the result is quadratic in their number.

        Returns
        -------
        (m, m) array

        Examples
        --------
        >>> noise = np.random.default_rng(0).normal(size=(40, 1))
        >>> X = np.repeat([[0.0], [10.0]], 20, axis=0) + noise
        >>> model = TVClustSampler(n_samples=10, burn_in=20, random_state=0).fit(X)
        >>> model.co_clustering([0, 1, 20]).round(1).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        check_is_fitted(self)
        chosen = self.samples_ if rows is None else self.samples_[:, np.asarray(rows)]
        m = chosen.shape[1]
        together = np.zeros((m, m))
        for labels in chosen:
            together += labels[:, None] == labels
        return together / len(chosen)

    def _check_number(self, n_points: int) -> None:
        """Accept any number of points, because clusters never outnumber them."""

    def _as_modelled(self, points: Points) -> Points:
        return np.ascontiguousarray(super()._as_modelled(points))

    def transform(self, X: Any) -> FloatArray:
        """Return minus the log-probability that a point joins each cluster of ``labels_``.

        Without answers, and up to a constant that is the same for all clusters.
        """
        return super().transform(X)

    def _costs(self, points: Points) -> FloatArray:
        points = self._as_modelled(points)
        out = np.empty((len(points), self.n_clusters_))
        # Scratch is allocated anew, because the estimator may come from a read-only file.
        state = self._state._replace(room=np.zeros(points.shape[1]))
        log_densities(state, points, out)
        return -out - np.log(self._state.sizes[: self.n_clusters_])


def _times(side: Side) -> IntArray:
    """Return the number of points that each point represents, an integer."""
    counts = side.counts
    broken = np.flatnonzero(counts != np.round(counts))
    if broken.size:
        raise ValueError(
            f"sample_weight = {counts[broken[0]]:g} is not a whole number, as it has to be here: a "
            "weight of m is m equal points, each in a cluster of the partition"
        )
    return counts.astype(np.int64)


class _Chain:
    """One run of the sampler."""

    def __init__(
        self,
        settings: TVClustSampler,
        points: FloatArray,
        side: Side,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.points, self.rng = settings, points, rng
        n = len(points)
        self.pairs = Pairs(side.constraints, n)
        self.credibility = Credibility(side)
        #: Clusters of the points whose cluster is known; these clusters come first.
        self.known = side.groups()
        self.free: IntArray = np.flatnonzero(self.known < 0)
        self.n_known = int(self.known.max()) + 1
        #: The concentration of directions, -1 for others.
        self.state = clusters(points, max(16, 2 * self.n_known))
        self.labels: IntArray = np.maximum(self.known, 0)
        gather(self.state, points, self.labels)
        self.history: list[HalfStep] = []
        self.accepted = 0
        self.samples: IntArray = np.empty((settings.n_samples, n), dtype=np.int64)
        self.right: FloatArray = np.empty((2, settings.n_samples, self.credibility.n))
        self.log_alpha = math.log(settings.alpha)
        self._answer()
        sweeps = settings.burn_in + settings.n_samples * settings.thinning
        for number in range(1, sweeps + 1):
            since = time.perf_counter()
            self._sweep()
            for _ in range(settings.split_merge if n > 1 else 0):
                self._split_or_merge()
            gather(self.state, points, self.labels)
            self._answer()
            value, spent = -self.log_joint(), time.perf_counter() - since
            self.history.append(HalfStep(number, "sweep", value, spent))
            kept, rest = divmod(number - settings.burn_in, settings.thinning)
            if rest == 0 and kept > 0:
                self.samples[kept - 1] = np.unique(self.labels, return_inverse=True)[1]
                self.right[:, kept - 1] = self.p, self.q

    def _answer(self) -> None:
        """Draw the shares of right answers, and compute the gain of sharing a cluster."""
        c, settings = self.pairs.constraints, self.settings
        must, cannot = (
            (self.labels[ends[:, 0]] == self.labels[ends[:, 1]]).astype(np.float64)
            for ends in (c.must_link, c.cannot_link)
        )
        same = self.credibility.counted(must, cannot).T
        apart = self.credibility.counted(1.0 - must, 1.0 - cannot).T
        a, b = settings.p_prior
        self.p: FloatArray = self.rng.beta(a + same[0], b + same[1])
        a, b = settings.q_prior
        self.q: FloatArray = self.rng.beta(a + apart[1], b + apart[0])
        # A draw may be 0 or 1 in floating point.
        p, q = (np.clip(share, 1e-300, 1.0 - 1e-16) for share in (self.p, self.q))
        gain, loss = np.log(p) - np.log1p(-q), np.log(q) - np.log1p(-p)
        self.effect: FloatArray = self.credibility.effect(self.pairs, gain, loss)

    def _sweep(self) -> None:
        order, uniform = self.rng.permutation(self.free), self.rng.random(self.free.size)
        at = 0
        while True:
            at = gibbs_sweep(
                self.state, self.points, self.labels, self.pairs.ptr, self.pairs.partner,
                self.effect, self.log_alpha, order, at, uniform, np.empty(self.state.sizes.size),
            )  # fmt: skip
            if at == order.size:
                return
            self._widen()

    def _widen(self) -> None:
        """Double the slots."""
        slots = 2 * (self.state.sizes.size - _SCRATCH)
        self.state = clusters(self.points, slots)
        gather(self.state, self.points, self.labels)

    def _split_or_merge(self) -> None:
        n = len(self.points)
        first, second = self.rng.choice(n, size=2, replace=False)
        if min(self.labels[first], self.labels[second]) < self.n_known:
            # Clusters whose points are known neither split nor merge; single points still move.
            return
        if (self.state.sizes[:-_SCRATCH] > 0).all():
            self._widen()
        self.accepted += split_or_merge(
            self.state, self.points, self.labels, self.pairs.ptr, self.pairs.partner, self.effect,
            self.log_alpha, int(first), int(second), self.rng.random((_SCANS + 2) * n + 1),
            np.full(n, -1, dtype=np.int64), np.empty(n, dtype=np.int64),
        )  # fmt: skip

    def log_joint(self) -> float:
        """Return the log-probability of points and partition."""
        from scipy.special import gammaln

        held = np.flatnonzero(self.state.sizes)
        n, alpha = len(self.points), self.settings.alpha
        value = float(gammaln(alpha) - gammaln(alpha + n) + len(held) * self.log_alpha)
        for h in held:
            value += float(gammaln(self.state.sizes[h])) + log_evidence(self.state, int(h))
        return value
