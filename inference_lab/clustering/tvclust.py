r"""TVClust: a Dirichlet process mixture with noisy answers about pairs.

Points come from a mixture, ``x_i | z_i = k ~ N(mu_k, Lambda_k^{-1})``, with stick-breaking weights.
An answer on whether two points share a component is right with probability ``p`` if they do and
``q`` if not. Fitted by variational inference with ``q(z) = prod_i r_i``, truncated sticks, and
conjugate priors.

Khashabi et al. 2015, section 3, see `TVClust`. D. Blei, M. Jordan, "Variational inference for
Dirichlet process mixtures", Bayesian Analysis 1, 2006. C. Bishop, "Pattern recognition and machine
learning", 2006, section 10.2.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel
from inference_lab.clustering.cluster_numbers import supported_number
from inference_lab.clustering.dp_means import Pairs
from inference_lab.clustering.em import HalfStep, Result
from inference_lab.clustering.fit_inputs import read_fit, takes
from inference_lab.clustering.fit_limit import check_limit
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.pair_odds import log_odds
from inference_lab.clustering.paired_start import paired_kmeans
from inference_lab.clustering.prediction import CostPredictor, PairScore
from inference_lab.clustering.quadratic_costs import QuadraticCosts
from inference_lab.clustering.starts import (
    AT_LEAST_ONE,
    SharedSettings,
    best_of,
    generator_of,
)
from inference_lab.clustering.supervision import FitArguments, Supervision
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import Points, whitened
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting

#: Passes over the points in pairs in one E-step.
_PASSES = 5
#: Components are joined if there are more points than this. There, superfluous components lose
#: their points over a hundred iterations; with few points the prior favours unions of clusters
#: that are far apart, which the slow descent does not reach.
_MANY = 20_000
#: Components are joined once an iteration raises the bound by less than this, in nats a point:
#: shares that still are near the start would join clusters that overlap.
_SETTLED = 1e-3
#: Size above which a component has points.
_HELD = 0.5
#: Rows of a block of points, which stays in the cache.
_BLOCK = 1024


@kernel
def set_shares(
    logits: FloatArray,
    scale: FloatArray,
    ptr: IntArray,
    partner: IntArray,
    effect: FloatArray,
    rows: IntArray,
    shares: FloatArray,
) -> None:
    """Set the shares of each row in turn to its softmax, which maximises the bound over them.

    Logits of row i count ``scale[i]`` times.
    """
    k = shares.shape[1]
    row = np.empty(k)
    for i in rows:
        for h in range(k):
            row[h] = scale[i] * logits[i, h]
        for at in range(ptr[i], ptr[i + 1]):
            for h in range(k):
                row[h] += effect[at] * shares[partner[at], h]
        top = row.max()
        total = 0.0
        for h in range(k):
            row[h] = math.exp(row[h] - top)
            total += row[h]
        for h in range(k):
            shares[i, h] = row[h] / total


@kernel
def expected_logits_and_entropy(
    logits: FloatArray, shares: FloatArray, scale: FloatArray, copies: FloatArray
) -> tuple[float, float]:
    """Return the expected logits and the entropy of shares, summed over points."""
    n, k = shares.shape
    expected, entropy = 0.0, 0.0
    for i in range(n):
        logit, point_entropy = 0.0, 0.0
        for h in range(k):
            share = shares[i, h]
            if share > 0.0:
                logit += share * logits[i, h]
                point_entropy -= share * math.log(share)
        expected += copies[i] * scale[i] * logit
        entropy += copies[i] * point_entropy
    return expected, entropy


@kernel
def entropy_of_choice(shares: FloatArray, a: int, b: int, copies: FloatArray) -> float:
    """Return by how much the entropy of shares falls if components a and b are one."""
    lost = 0.0
    for i in range(len(shares)):
        one, other = shares[i, a], shares[i, b]
        if one > 0.0 and other > 0.0:
            both = one + other
            lost -= copies[i] * (one * math.log(one / both) + other * math.log(other / both))
    return lost


class Gaussians:
    """Normal-Wishart posteriors of all components, given shares (Bishop 2006, eqs. 10.60-10.63).

    The prior has mean 0, ``beta0 = 1``, ``W0 = I`` and ``nu0 = d``; ``factor`` (k, d, d) holds
    lower Cholesky factors of the inverses of ``W``.
    """

    def __init__(self, points: FloatArray, shares: FloatArray) -> None:
        d = points.shape[1]
        sizes: FloatArray = shares.sum(axis=0)
        means: FloatArray = (shares.T @ points) / (1.0 + sizes[:, None])
        scatter: FloatArray = np.zeros((sizes.size, d, d))
        for begin in range(0, len(points), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            columns, weights = points[rows].T.copy(), shares[rows].T.copy()
            for h, weight in enumerate(weights):
                around = columns - means[h, :, None]
                scatter[h] += (around * weight) @ around.T
        self._set(sizes, means, scatter)

    def _set(self, sizes: FloatArray, means: FloatArray, scatter: FloatArray) -> None:
        """Set the posteriors: sizes (k,), means (k, d), scatter around these (k, d, d)."""
        d = means.shape[1]
        self.sizes, self.means, self.scatter = sizes, means, scatter
        self.beta: FloatArray = 1.0 + sizes
        self.nu: FloatArray = d + sizes
        # I + sum r x x' - beta m m'.
        inverse = np.eye(d) + scatter + means[:, :, None] * means[:, None, :]
        self.factor: FloatArray = np.asarray(np.linalg.cholesky(inverse), dtype=np.float64)
        diagonal = np.diagonal(self.factor, axis1=1, axis2=2)
        #: ``ln |W|``.
        self.log_det: FloatArray = -2.0 * np.log(diagonal).sum(axis=1)

    def joined(self, first: IntArray, second: IntArray) -> Gaussians:
        """Return the posteriors of the points of two components each, without the points."""
        a, b = first, second
        sizes = self.sizes[a] + self.sizes[b]
        means = (self.beta[a, None] * self.means[a] + self.beta[b, None] * self.means[b]) / (
            1.0 + sizes[:, None]
        )
        scatter = np.zeros((sizes.size, *self.scatter.shape[1:]))
        for h in (a, b):
            # Around the new mean m: S + N (c - m)(c - m)' + ..., with sums N c = beta m_h.
            shift = self.means[h] - means
            lever = self.means[h][:, :, None] * shift[:, None, :]
            scatter += self.scatter[h] + self.sizes[h, None, None] * (
                shift[:, :, None] * shift[:, None, :]
            )
            scatter += lever + lever.transpose(0, 2, 1)
        result = object.__new__(Gaussians)
        result._set(sizes, means, scatter)
        return result

    def log_evidence(self) -> FloatArray:
        """Return the log-marginal of the points of each component, shape (k,).

        It is what `total_log_density` less the divergence comes to after an update.
        """
        k, d = self.means.shape
        value = _log_wishart(np.zeros(k), np.full(k, float(d)), d)
        value -= _log_wishart(self.log_det, self.nu, d)
        value -= 0.5 * d * (self.sizes * math.log(2.0 * math.pi) + np.log(self.beta))
        return np.asarray(value)

    def draw(self, rng: np.random.Generator) -> None:
        """Draw the means from their prior."""
        self.means = rng.normal(size=self.means.shape)

    def expected_log_det(self) -> FloatArray:
        """Return ``E ln |Lambda|`` of each component."""
        from scipy.special import digamma

        d = self.means.shape[1]
        terms = digamma(0.5 * (self.nu[:, None] - np.arange(d)))
        return np.asarray(terms.sum(axis=1) + d * math.log(2.0) + self.log_det)

    def whitening(self) -> FloatArray:
        """Return the inverses of the factors, shape (k, d, d)."""
        identity = np.eye(self.means.shape[1])
        return np.stack([whitened(factor, identity).T for factor in self.factor])

    def expected_log_density(self, points: FloatArray) -> FloatArray:
        """Return ``E ln N(x | mu_k, Lambda_k^{-1})``, shape (n, k)."""
        n, d = points.shape
        out = np.empty((n, self.beta.size))
        whitening = self.whitening()
        for begin in range(0, n, _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            for h, inverse in enumerate(whitening):
                white = (points[rows] - self.means[h]) @ inverse.T
                out[rows, h] = np.einsum("ij,ij->i", white, white)
        out *= -0.5 * self.nu
        out += 0.5 * (self.expected_log_det() - d * math.log(2.0 * math.pi) - d / self.beta)
        return out

    def total_log_density(self) -> FloatArray:
        """Return the expected log-density of the points with their shares, summed, shape (k,)."""
        d = self.means.shape[1]
        whitening = self.whitening()
        squares = np.einsum("hij,hij->h", whitening @ self.scatter, whitening)
        constant = self.expected_log_det() - d * math.log(2.0 * math.pi) - d / self.beta
        return np.asarray(0.5 * (self.sizes * constant - self.nu * squares))

    def divergence(self) -> float:
        """Return the summed divergence of the posteriors from the prior."""
        k, d = self.means.shape
        log_det = self.expected_log_det()
        whitening = self.whitening()
        trace = (whitening**2).sum(axis=(1, 2))
        square = (np.einsum("hij,hj->hi", whitening, self.means) ** 2).sum(axis=1)
        prior = 0.5 * (d * math.log(1.0 / (2.0 * math.pi)) + log_det - d / self.beta)
        prior -= 0.5 * self.nu * square
        prior += _log_wishart(np.zeros(k), np.full(k, float(d)), d)
        prior += -0.5 * log_det - 0.5 * self.nu * trace
        posterior = 0.5 * log_det + 0.5 * d * np.log(self.beta / (2.0 * math.pi)) - 0.5 * d
        posterior += _log_wishart(self.log_det, self.nu, d)
        posterior += 0.5 * (self.nu - d - 1.0) * log_det - 0.5 * self.nu * d
        return float((posterior - prior).sum())


def _log_wishart(log_det: FloatArray, nu: FloatArray, d: int) -> FloatArray:
    """Return the log of the normaliser of Wishart distributions (Bishop 2006, eq. B.79)."""
    from scipy.special import gammaln

    gammas = gammaln(0.5 * (nu[:, None] - np.arange(d))).sum(axis=1)
    rest = 0.5 * nu * d * math.log(2.0) + 0.25 * d * (d - 1) * math.log(math.pi)
    return np.asarray(-0.5 * nu * log_det - rest - gammas)


def _beta_divergence(a: Any, b: Any, a0: float, b0: float) -> float:
    """Return the summed divergence of Beta distributions from one."""
    from scipy.special import betaln, digamma

    value = betaln(a0, b0) - betaln(a, b) + (a - a0) * digamma(a) + (b - b0) * digamma(b)
    return float(np.sum(value + (a0 + b0 - a - b) * digamma(a + b)))


def _log_means(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Any, Any]:
    """Return ``E ln v`` and ``E ln (1 - v)`` of Beta distributions."""
    from scipy.special import digamma

    both = digamma(np.add(a, b))
    return digamma(a) - both, digamma(b) - both


@dataclass(eq=False, repr=False, kw_only=True)
class TVClust(SharedSettings, PairScore, CostPredictor):
    r"""Dirichlet process mixture with noisy answers about pairs, by variational inference.

    Maximises a lower bound on ``log p(X, answers)`` under

    ``v_k ~ Beta(1, alpha)``, ``p(z_i = k) = v_k prod_{h < k} (1 - v_h)``, Normal-Wishart
    components, and for each pair ``p(must | same) = p``,
    ``p(cannot | different) = q`` with Beta priors. The weight of a pair, which must be finite, is
    the number of equal answers that it stands for.

    Parameters
    ----------
    n_clusters : int or "auto"
        Truncation of the sticks, the largest number of components. The number of components with
        points is `n_clusters_`. "auto" takes the number from 2 to 15 of which k-means on the scaled
        points has the largest silhouette and agrees best with the pairs. With a large truncation,
        components split clusters that the points do not resemble: binary features, or many without
        information.
    alpha : float
        Concentration of the process.
    p_prior, q_prior : (float, float)
        Beta priors of the shares of right answers on pairs within a cluster and between clusters.
        By default they favour right answers; `release` has the priors of the published code.
    standardise : bool
        Scale features to mean 0 and variance 1, as the prior of normal components expects.
    init : {"pckmeans", "prior"}
        Components from `PCKMeans` on the same pairs, the largest first; or, as in the published
        code, means drawn from their prior and equal sticks. Such means often lie on one side of
        the data, and one component then takes all points.
    both_ways : bool
        Both points of a pair use its answer; if false, only the first, as in the published code.
    n_init, tol
        Number of starts, of which the one of greatest bound is kept; stop when the bound rises by
        no more than this share.
    n_jobs, max_iter, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    labels_, n_clusters_
    responsibilities_ : (n, k) array
    weights_ : (k,) array
        Expected mixing weights.
    cluster_centers_ : (k, d) array
        Means of the components, in the units of the data.
    p_, q_ : float
        Expected shares of right answers.
    objective_ : float
        Minus the bound.
    n_iter_, history_, converged_, violations_, constraints_
        See `HMRFKMeans`.

    Notes
    -----
    **Guarantees.** With ``both_ways=True`` the bound never falls.

    **Large data.** With more than 20,000 points and ``init="pckmeans"``, two components are joined
    when that raises the bound (Hughes and Sudderth 2013). Superfluous ones would otherwise lose
    their points over a hundred iterations.

    **Complexity.** An iteration costs O(n k d^2 + pairs k). Memory: three (n, k) arrays.

    References
    ----------
    D. Khashabi, J. Liu, J. Wieting, F. Liang, "Clustering with side information: from a
    probabilistic model to a deterministic algorithm", 2015.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat([[0.0], [10.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 1))
    >>> TVClust(5, random_state=0).fit(X, must_link=[(0, 1)], cannot_link=[(0, 20)]).n_clusters_
    2
    """

    n_clusters: int | Literal["auto"] = field(  # type: ignore[assignment]  # wider than the base
        default="auto", kw_only=False, metadata=AT_LEAST_ONE
    )
    alpha: float = setting(1.0, above=0, below=math.inf)
    p_prior: tuple[float, float] = (10.0, 1.0)
    q_prior: tuple[float, float] = (10.0, 1.0)
    standardise: bool = True
    init: Literal["pckmeans", "prior"] = "pckmeans"
    both_ways: bool = True
    max_iter: int = setting(300, at_least=1)
    tol: float = setting(1e-7, at_least=0, below=math.inf)

    @classmethod
    def release(cls, random_state: Any = None) -> TVClust:
        """Return the settings of the code published with the paper.

        15 components with means drawn from the prior, at most 30 iterations, a tolerance of 5e-5,
        one point of each pair updated, and a prior by which ten of eleven must-links are wrong.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None

        Returns
        -------
        TVClust

        Examples
        --------
        >>> model = TVClust.release(random_state=0)
        >>> model.n_clusters, model.max_iter, model.both_ways, model.p_prior
        (15, 30, False, (1.0, 10.0))
        """
        return cls(
            15,
            p_prior=(1.0, 10.0),
            init="prior",
            both_ways=False,
            max_iter=30,
            tol=5e-5,
            random_state=random_state,
        )

    _dense: ClassVar[bool] = True

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        self._check_settings()
        # With fewer points than components, some components have no points.
        settings = {"any_label": self.n_clusters == "auto", "few_points": True, "centred": False}
        inputs = read_fit(self, X, y, arguments, SquaredEuclidean(), **settings)
        supervision = inputs.weighed()
        d = inputs.points.shape[1]
        self._shift, self._scale = np.zeros(d), np.ones(d)
        if self.standardise:
            weight = supervision.sample_weight_or_ones
            self._shift, self._scale = shift_and_scale(inputs.points, weight)
        points = self._as_modelled(inputs.points)

        rng = generator_of(self.random_state)
        truncation = self._truncation(points, supervision, rng)
        self._best = best = best_of(
            [None] * self.n_init,
            lambda child, _: _VariationalFit(self, points, supervision, truncation, child),
            rng,
            self.n_jobs,
        )

        labels = np.asarray(best.shares.argmax(axis=1), dtype=np.int64)
        log_v, log_rest = _log_means(best.sticks_a, best.sticks_b)
        weights = np.exp(_log_weights(log_v, log_rest))
        self.weights_ = weights / weights.sum()
        self.cluster_centers_ = inputs.centres(best.components.means * self._scale + self._shift)
        self.p_, self.q_ = (float(beta[0] / beta.sum()) for beta in (best.p, best.q))
        self.responsibilities_ = inputs.shares_of_all(best.shares, self._costs)
        self.n_clusters_ = np.unique(labels).size
        self._set_progress(best.result)
        self._set_labels(inputs, labels, supervision.constraints)
        return self

    def _truncation(
        self, points: FloatArray, supervision: Supervision, rng: np.random.Generator
    ) -> int:
        """Return the largest number of components."""
        if self.n_clusters == "auto":
            return supported_number(points, supervision, rng)
        return self.n_clusters

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _as_modelled(self, points: Points) -> Points:
        """Return points scaled as for the components."""
        return (points - self._shift) / self._scale

    def _check_settings(self) -> None:
        for name in ("p_prior", "q_prior"):
            if not all(0.0 < value < math.inf for value in getattr(self, name)):
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")

    def transform(self, X: Any) -> FloatArray:
        """Return minus the expected log-joint of points and components, without pairs."""
        return super().transform(X)

    def _costs(self, points: Points) -> FloatArray:
        return -self._best.logits(self._as_modelled(points))

    def _quadratic_costs(self) -> QuadraticCosts:
        """Return the parameters of `predict`."""
        components = self._best.components
        d = components.means.shape[1]
        factors = (
            components.whitening().transpose(0, 2, 1)
            * np.sqrt(0.5 * components.nu)[:, np.newaxis, np.newaxis]
        )
        offsets = -self._best.log_weights() - 0.5 * (
            components.expected_log_det() - d * math.log(2.0 * math.pi) - d / components.beta
        )
        return QuadraticCosts(components.means, factors, offsets).before(self._shift, self._scale)


def shift_and_scale(points: FloatArray, sample_weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means and standard deviations of features, 1 in place of 0."""
    mean = sample_weight @ points / sample_weight.sum()
    spread = np.sqrt(sample_weight @ (points - mean) ** 2 / sample_weight.sum())
    return mean, np.where(spread > 0, spread, 1.0)


def _log_weights(log_v: FloatArray, log_rest: FloatArray) -> FloatArray:
    """Return ``E ln pi``; the last stick takes the rest."""
    before = np.concatenate([[0.0], np.cumsum(log_rest)])
    return np.asarray(before + np.concatenate([log_v, [0.0]]))


def largest_first(sizes: FloatArray, partial_labels: IntArray) -> IntArray:
    """Return components by size, except the ones with known labels, which keep their numbers.

    Early sticks are long: the bound is greatest with the largest components first.
    """
    order = np.arange(sizes.size)
    free = np.setdiff1d(order, partial_labels)
    order[free] = free[np.argsort(-sizes[free], kind="stable")]
    return order


class _VariationalFit:
    """A single start of the fit."""

    #: Pairs of infinite weight are refused.
    unmet = 0
    shares: FloatArray
    sticks_a: FloatArray
    sticks_b: FloatArray
    components: Gaussians
    p: FloatArray
    q: FloatArray
    #: Expected log-joint of points and components, and entropy of the shares.
    expected: float
    entropy: float
    #: Expected weights of must-links and cannot-links within components, and between them.
    same: FloatArray
    apart: FloatArray

    def __init__(
        self,
        settings: TVClust,
        points: FloatArray,
        supervision: Supervision,
        truncation: int,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.points, self.supervision, self.rng = settings, points, supervision, rng
        self.truncation = truncation
        self.partial_labels, self.sample_weight = (
            supervision.partial_labels,
            supervision.sample_weight,
        )
        self.pairs = pairs = Pairs(
            supervision.constraints, len(points), both_ways=settings.both_ways
        )
        coupled = np.diff(pairs.ptr) > 0
        self.coupled: IntArray = np.flatnonzero(coupled)
        self.alone: IntArray = np.flatnonzero(~coupled)
        weight = supervision.sample_weight_or_ones
        #: Equal points without pairs are counted; those in pairs appear once in the graph, with
        #: logits that are scaled by their number.
        self.scale = np.where(coupled, weight, 1.0)
        self.copies = np.where(coupled, 1.0, weight)
        self.joins = settings.init != "prior" and len(points) > _MANY
        self.history: list[HalfStep] = []
        self.converged = False
        self.n_iter = 0
        self._start()
        before, settled = -math.inf, False
        while self.n_iter < settings.max_iter and not self.converged:
            check_limit()
            self.n_iter += 1
            since = time.perf_counter()
            self.expect()
            self._note("E", since)
            since = time.perf_counter()
            self.maximise()
            while settled and self._join() > 0.0:
                self.maximise()
            self._note("M", since)
            bound = -self.history[-1].objective
            settled = self.joins and bool(bound - before < _SETTLED * weight.sum())
            self.converged = abs(bound - before) <= settings.tol * max(1.0, abs(bound))
            before = bound
        self.objective = self.history[-1].objective

    @property
    def result(self) -> Result:
        """The result of the start."""
        return Result(self.shares, self.objective, self.history, self.n_iter, self.converged)

    def _start(self) -> None:
        """Set shares and posteriors for the first E-step."""
        settings = self.settings
        n, k = len(self.points), self.truncation
        self.shares = np.zeros((n, k))
        if settings.init == "prior":
            self._set_agreement()
            self.maximise()
            self.components.draw(self.rng)
            self.sticks_b = np.ones(k - 1)
            self.p, self.q = np.array(settings.p_prior), np.array(settings.q_prior)
            self.shares += 1.0 / k
            return
        count = max(min(k, n), int(self.partial_labels.max()) + 1)
        model = paired_kmeans(
            self.points,
            self.supervision,
            count,
            self.rng,
            log_odds(self.supervision.constraints),
        )
        counted = self.supervision.sample_weight_or_ones
        sizes: FloatArray = np.bincount(model.labels_, weights=counted, minlength=k).astype(float)
        place = np.argsort(largest_first(sizes, self.partial_labels))
        self.shares[np.arange(n), place[model.labels_]] = 1.0
        self._set_agreement()
        self.maximise()

    def _note(self, step: str, since: float) -> None:
        spent = time.perf_counter() - since
        self.history.append(HalfStep(self.n_iter, step, -self.bound(), spent))

    def maximise(self) -> None:
        """Update sticks, components, and the shares of right answers."""
        settings, weight = self.settings, self.sample_weight
        counted = self.shares if weight is None else self.shares * weight[:, None]
        self.components = Gaussians(self.points, counted)
        sizes = self.components.sizes
        self.sticks_a = 1.0 + sizes[:-1]
        self.sticks_b = settings.alpha + np.cumsum(sizes[::-1])[::-1][1:]
        self.p = np.asarray(settings.p_prior) + self.same
        self.q = np.asarray(settings.q_prior) + self.apart[::-1]
        self.expected = float(
            sizes @ self.log_weights() + self.components.total_log_density().sum()
        )

    def _join(self) -> float:
        """Join the two components whose union raises the bound most; return the rise, or 0.

        After an update of all posteriors the bound is the entropy of the shares and a function of
        the statistics of components, so that unions are evaluated without the points.
        """
        c, shares = self.components, self.shares
        first, second = self._joinable()
        if not first.size:
            return 0.0
        # The entropy falls, so that the bound rises by no more than this.
        evidence = c.log_evidence()
        rise = c.joined(first, second).log_evidence() - evidence[first] - evidence[second]
        rise += self._rise_of_answers(first, second)
        orders = [self._order_of_joined(a, b) for a, b in zip(first, second, strict=True)]
        sticks = self._stick_evidence(c.sizes)
        rise += [self._stick_evidence(sizes[order]) - sticks for sizes, order in orders]
        best, best_rise, lost = -1, 0.0, 0.0
        for at in np.argsort(-rise):
            if rise[at] <= best_rise:
                break
            entropy = entropy_of_choice(shares, first[at], second[at], self.copies)
            if rise[at] - entropy > best_rise:
                best, best_rise, lost = int(at), float(rise[at] - entropy), entropy
        if best < 0:
            return 0.0
        shares[:, first[best]] += shares[:, second[best]]
        shares[:, second[best]] = 0.0
        self.shares = np.ascontiguousarray(shares[:, orders[best][1]])
        self.entropy -= lost
        self._set_agreement()
        return best_rise

    def _joinable(self) -> tuple[IntArray, IntArray]:
        """Return pairs of components with points, the first of which keeps the number."""
        k = self.components.sizes.size
        first, second = np.triu_indices(k, 1)
        named = np.isin(np.arange(k), self.partial_labels)
        first, second = np.where(named[second], (second, first), (first, second))
        occupied = self.components.sizes > _HELD
        joinable = occupied[first] & occupied[second] & ~named[second]
        return first[joinable], second[joinable]

    def _order_of_joined(self, a: int, b: int) -> tuple[FloatArray, IntArray]:
        """Return the sizes with b joined to a, and the order with the largest components first."""
        sizes = self.components.sizes.copy()
        sizes[a], sizes[b] = sizes[a] + sizes[b], 0.0
        return sizes, largest_first(sizes, self.partial_labels)

    def _stick_evidence(self, sizes: FloatArray) -> float:
        """Return the log-marginal of the choice of components, given their sizes."""
        from scipy.special import betaln

        alpha, later = self.settings.alpha, np.cumsum(sizes[::-1])[::-1][1:]
        return float((betaln(1.0 + sizes[:-1], alpha + later) - betaln(1.0, alpha)).sum())

    def _rise_of_answers(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return the rise of the log-marginal of the answers if components are joined."""
        from scipy.special import betaln

        c, r = self.pairs.constraints, self.shares
        kinds = (c.must_link, c.ml_weights), (c.cannot_link, c.cl_weights)
        between = [(r[e[:, 0]] * w[:, None]).T @ r[e[:, 1]] for e, w in kinds]
        moved = np.stack([b[first, second] + b[second, first] for b in between], axis=1)
        p, q = self.p + moved, self.q - moved[:, ::-1]
        return np.asarray(betaln(*p.T) + betaln(*q.T) - betaln(*self.p) - betaln(*self.q))

    def log_weights(self) -> FloatArray:
        """Return ``E ln pi``, shape (k,)."""
        return _log_weights(*_log_means(self.sticks_a, self.sticks_b))

    def logits(self, points: FloatArray) -> FloatArray:
        """Return the expected log-joint of points and components, without pairs."""
        logits = self.components.expected_log_density(points)
        logits += self.log_weights()
        return logits

    def expect(self) -> None:
        """Update the shares."""
        pairs, shares = self.pairs, self.shares
        logits = -clamped(-self.logits(self.points), self.partial_labels)
        (log_p, log_not_p), (log_q, log_not_q) = _log_means(*self.p), _log_means(*self.q)
        # Gains in log-probability by sharing a component; cannot-links have negative weights.
        must = pairs.pair < len(pairs.constraints.must_link)
        effect = np.where(must, log_p - log_not_q, log_q - log_not_p) * pairs.weight
        graph = self.scale, pairs.ptr, pairs.partner, effect
        set_shares(logits, *graph, self.alone, shares)
        for _ in range(_PASSES):
            set_shares(logits, *graph, self.coupled, shares)
        self.expected, self.entropy = expected_logits_and_entropy(
            logits, shares, self.scale, self.copies
        )
        self._set_agreement()

    def _set_agreement(self) -> None:
        c, r = self.pairs.constraints, self.shares
        kinds = (c.must_link, c.ml_weights), (c.cannot_link, c.cl_weights)
        same = [np.einsum("ij,ij->i", r[e[:, 0]], r[e[:, 1]]) @ w for e, w in kinds]
        self.same, self.apart = np.array(same), np.array([w.sum() for _, w in kinds]) - same

    def bound(self) -> float:
        """Return the lower bound on the log-evidence."""
        settings = self.settings
        value = self.expected + self.entropy
        value += float(self.same @ _log_means(*self.p) + self.apart[::-1] @ _log_means(*self.q))
        value -= _beta_divergence(self.sticks_a, self.sticks_b, 1.0, settings.alpha)
        for posterior, prior in ((self.p, settings.p_prior), (self.q, settings.q_prior)):
            value -= _beta_divergence(posterior[0], posterior[1], *prior)
        return value - self.components.divergence()
