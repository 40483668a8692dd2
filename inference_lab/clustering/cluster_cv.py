"""Choice of a constrained clustering by held-out pairs, with no pairs as the first candidate."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple, Self, Unpack

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from inference_lab.clustering.fit_inputs import check_word, takes
from inference_lab.clustering.hmrf_kmeans import MPCKMeans, PCKMeans
from inference_lab.clustering.large_data import batches
from inference_lab.clustering.mixture import ConstrainedGaussianMixture
from inference_lab.clustering.pair_warnings import ContradictoryPairsWarning, watch_faults
from inference_lab.clustering.prediction import LabellingMixin
from inference_lab.clustering.starts import SAMPLED, sample_size
from inference_lab.clustering.supervision import (
    PAIR_ARGUMENTS,
    PairArguments,
    refuse_pairs,
    supervision_of,
)
from inference_lab.clustering.tvclust import TVClust
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.constraints import of_positive_weight, selected
from inference_lab.constraints.pairs import codes_of
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import check_settings, setting
from inference_lab.specs.whole_numbers import as_whole

#: Numbers of clusters that "auto" tries.
_NUMBERS = range(2, 11)
#: Standard deviation of the gain of a candidate between data sets.
_PRIOR_DEVIATION = 0.1
#: Standard errors within which the best score counts as chance.
_CHANCE = 2.0
#: Lower limit on standard errors, because few groups of pairs may show no difference by chance.
_LEAST_ERROR = 0.02


class Candidate(NamedTuple):
    """An estimator with a name, and its expected gain in score before pairs are seen.

    The prior gain is over the first candidate, as a mean over data sets.
    """

    name: str
    estimator: Any
    prior_gain: float = 0.0


#: End of the names of candidates that standardise the points first.
_STANDARDISED = ", standardised"


def default_candidates() -> list[Candidate]:
    """Return the candidates from simple to complex; the first two use no pairs.

    Prior gains are measured (docs/decisions/034-expected-gains-choose.md).
    """

    def standardised(estimator: Any) -> Any:
        return make_pipeline(StandardScaler(), estimator)

    mixture = ConstrainedGaussianMixture
    return [
        Candidate("k-means without pairs", KMeans(n_init=10)),
        Candidate("k-means without pairs, standardised", standardised(KMeans(n_init=10)), 0.03),
        Candidate("PCKMeans", PCKMeans(), 0.04),
        Candidate("PCKMeans, standardised", standardised(PCKMeans()), 0.04),
        Candidate("MPCKMeans, diagonal metric", MPCKMeans(), 0.1),
        Candidate("MPCKMeans, diagonal metric, standardised", standardised(MPCKMeans()), 0.1),
        Candidate("MPCKMeans, full metric", MPCKMeans(metric="full"), 0.08),
        Candidate("Gaussian mixture, diagonal", mixture(covariance_type="diag"), 0.09),
        Candidate("Gaussian mixture, full", standardised(mixture(reg_covar=1e-3)), 0.18),
        Candidate("TVClust", TVClust(), 0.18),
    ]


def candidates_for(points: FloatArray) -> list[Candidate]:
    """Return the default candidates, without the scaling step if points are standardised."""
    candidates = default_candidates()
    spread = points.std(axis=0)
    unit = np.where(spread > 0.0, 1.0, 0.0)
    if not (np.allclose(points.mean(axis=0), 0.0, atol=1e-3) and np.allclose(spread, unit, 1e-3)):
        return candidates
    return without_scaling(candidates)


def without_scaling(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without steps that scale, for features that have their scales."""
    unscaled: dict[str, Candidate] = {}
    for candidate in candidates:
        name = candidate.name.removesuffix(_STANDARDISED)
        same = candidate._replace(name=name, estimator=final_step(candidate.estimator))
        unscaled.setdefault(name, same)
    return list(unscaled.values())


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

    Arrays have an entry for each must-link and each cannot-link.
    """

    must: FloatArray
    cannot: FloatArray
    together: float

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
    return float(added.sum()), standard_error(added, of.must.size, group)


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
    candidates: Sequence[PairShares | None], group: IntArray, prior: Sequence[float]
) -> FloatArray:
    """Return the posterior mean of the gain of each candidate over the first that has not failed.

    Gains of a candidate are normal around its `prior` gain over data sets, and the gain on held-out
    pairs is normal around the gain on this set. NaN marks failed candidates. All gains are zero if
    even the best score is within two standard errors of chance, because such pairs are noise.
    """
    judged = {at: shares for at, shares in enumerate(candidates) if shares is not None}
    gains = np.full(len(candidates), np.nan)
    gains[list(judged)] = 0.0
    best = max(judged.values(), key=lambda shares: shares.score)
    if best.score <= _CHANCE * standard_error(best.contributions(), best.must.size, group):
        return gains
    (first, reference), *others = judged.items()
    for at, shares in others:
        observed, error = gain(shares, reference, group)
        share = 1.0 / (1.0 + (max(error, _LEAST_ERROR) / _PRIOR_DEVIATION) ** 2)
        gains[at] = (1.0 - share) * (prior[at] - prior[first]) + share * observed
    return gains


# ---------------------------------------------------------------------- fits


def takes_pairs(estimator: Any) -> bool:
    """Whether ``fit`` has a parameter for must-links, or accepts any keyword argument."""
    arguments = inspect.signature(final_step(estimator).fit).parameters
    return "must_link" in arguments or any(
        argument.kind is inspect.Parameter.VAR_KEYWORD for argument in arguments.values()
    )


def final_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator."""
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _prefix(estimator: Any) -> str:
    """Return the prefix of the arguments of the last step."""
    return f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""


def prepared(estimator: Any, n_clusters: int, seed: int) -> Any:
    """Return a clone with a given number of clusters and, if it has none, a seed."""
    made = clone(estimator)
    prefix, parameters = _prefix(made), final_step(made).get_params(deep=False)
    for name in ("n_clusters", "n_components"):
        if name in parameters:
            made.set_params(**{prefix + name: n_clusters})
            break
    unseeded = [
        name
        for name, value in made.get_params().items()
        if name.rpartition("__")[2] == "random_state" and value is None
    ]
    return made.set_params(**dict.fromkeys(unseeded, seed))


def fitted(estimator: Any, points: Any, constraints: Constraints) -> Any:
    """Fit an estimator, with pairs if it accepts them."""
    pairs = constraints.fit_params() if takes_pairs(estimator) else {}
    # With metadata routing, pipelines look for the step that asks for an argument.
    prefix = "" if get_config()["enable_metadata_routing"] else _prefix(estimator)
    return estimator.fit(points, **{prefix + name: value for name, value in pairs.items()})


def labels_without(
    estimator: Any, points: Any, constraints: Constraints, held_out: npt.NDArray[np.bool_]
) -> tuple[IntArray | None, str, float]:
    """Return the labels of a fit to the other pairs (or None), the failure, and the seconds."""
    n_must = len(constraints.must_link)
    rest = selected(constraints, ~held_out[:n_must], ~held_out[n_must:])
    start = perf_counter()
    try:
        with warnings.catch_warnings():
            # The final fit to all pairs repeats the warnings that matter.
            warnings.simplefilter("ignore")
            labels = np.asarray(final_step(fitted(clone(estimator), points, rest)).labels_)
    except (ValueError, ArithmeticError) as problem:
        return None, f"{type(problem).__name__}: {problem}", perf_counter() - start
    return labels, "", perf_counter() - start


def pair_shares(
    labels_of_fits: Sequence[IntArray], fold: Sequence[IntArray], constraints: Constraints
) -> PairShares:
    """Return for each pair the share of fits without its fold that keep it.

    `fold` has the fold of each pair in each repetition, `labels_of_fits` the labels of the fit
    without each fold.
    """
    n_must = len(constraints.must_link)
    pairs = np.concatenate([constraints.must_link, constraints.cannot_link])
    right = np.zeros(len(pairs))
    together = []
    fits = iter(labels_of_fits)
    for folds in fold:
        for number in range(int(folds.max()) + 1):
            labels, out = next(fits), folds == number
            same = labels[pairs[out, 0]] == labels[pairs[out, 1]]
            right[out] += same == (np.flatnonzero(out) < n_must)
            sizes = np.unique(labels, return_counts=True)[1].astype(np.float64)
            n = labels.size
            together.append(float((sizes * (sizes - 1.0)).sum()) / (n * (n - 1.0)))
    right /= len(fold)
    return PairShares(right[:n_must], right[n_must:], float(np.mean(together)))


# ---------------------------------------------------------------------- the estimator


class SearchArguments(PairArguments, total=False):
    """Arguments of ``fit``, beside the points: pairs, and an executor of the fits."""

    executor: Executor | None


class _Row(NamedTuple):
    """A candidate with a number of clusters, and its score on held-out pairs."""

    name: str
    n_clusters: int
    estimator: Any
    shares: PairShares | None
    failure: str
    seconds: float


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedClusterCV(LabellingMixin, BaseEstimator):  # type: ignore[misc]  # no types
    r"""Choose estimator, metric and number of clusters by held-out pairs, and fit with all pairs.

    Candidates are ordered from simple to complex, the first ones without pairs. Each is fitted
    without some of the pairs, which then score its labels. The candidate with the largest expected
    gain is chosen, given its score and its gain on other data sets. If pairs do not help, it is an
    estimator that uses none.

    Parameters
    ----------
    n_clusters : int, sequence of int, or "auto"
        If there are several numbers, the simplest candidate that uses pairs compares them first;
        "auto" tries 2 to 10.
    candidates : list of (name, estimator) or None
        From simple to complex: estimators of this package, others with scikit-learn's interface,
        or pipelines that end in one. Estimators without ``must_link`` in ``fit`` use no pairs. By
        default k-means, PCKMeans, MPCKMeans, Gaussian mixtures and TVClust, some of them
        standardised.
    n_splits : int or "auto"
        Folds of pairs; "auto" is five, or three on a sample of large data.
    n_repeats : int or "auto"
        Repetitions with newly drawn folds; "auto" is two, or one on a sample of large data.
    prior_gains : mapping of str to float, optional
        Expected gain in score of each candidate over the first one before pairs are seen; 0 if
        missing. By default the mean over data sets for the default candidates.
    n_jobs : int or None
        Processes that share the fits; None is 1, -1 one per processor.
    verbose : int
        Whether to print the score of each candidate as soon as it is known.
    random_state : int, RandomState or None
        Seeds folds, and candidates that have no seed of their own.

    Attributes
    ----------
    labels_ : (n,) int64 array
        Labels of the fit with all pairs.
    best_estimator_ : estimator
        The chosen candidate, fitted with all pairs.
    best_params_ : dict
        Name of the candidate and number of clusters.
    best_index_ : int
        Row of `cv_results_`.
    best_score_ : float
        Score of the chosen candidate; NaN if fewer than two pairs were given.
    gain_ : tuple of float
        Difference between `best_score_` and the best score without pairs, and its standard error.
    cv_results_ : pandas.DataFrame
        A row for each candidate that was scored, see Notes.
    constraints_ : Constraints
    violations_ : Violations
        Pairs that the labels violate.

    Notes
    -----
    **Score.** A clustering keeps a share ``m`` of the held-out must-links and ``c`` of the
    cannot-links. If a share ``s`` of all pairs of points is in one cluster, uninformed labels keep
    ``s`` and ``1 - s``. The score ``(m - s + c - (1 - s)) / (1 - s + s) = m + c - 1`` is 0 for
    these and 1 if all pairs are kept (Youden's J); both kinds count alike. With one kind alone it
    is ``(m - s) / (1 - s)``, or ``(c - (1 - s)) / s``. If a share ``q`` of the answers is wrong,
    the expected score is at most ``1 - 2 q``.

    **Folds.** The must-links of a component are held out together, and so are all cannot-links
    between two components: no held-out pair follows from the others. A component with more than a
    fold's share of the pairs is divided pair by pair, because it would otherwise fill a fold. Such
    pairs may follow from others.

    **Errors.** Standard errors are over groups of pairs that are held out together. Two candidates
    are compared on the same pairs, so their difference is more precise than either score.

    **Choice.** The gain of a candidate over the first one is assumed normal around its prior gain
    with a standard deviation of .1, as over data sets. The gain on held-out pairs has its standard
    error. The largest posterior mean is chosen: few or noisy pairs leave it near the prior. If even
    the best score is within two standard errors of chance, the first candidate is chosen. Among
    several numbers of clusters, the smallest within a standard error of the best is chosen.

    **Columns** of `cv_results_`: ``candidate``, ``n_clusters``, ``params``, ``mean_test_score``,
    ``standard_error``, ``expected_gain`` (for the number of clusters chosen), ``behind_best`` and
    ``behind_best_error`` (among the rows compared with it), ``must_link_kept``,
    ``cannot_link_kept``, ``mean_fit_time``, ``rank_test_score``, and ``failure``, the reason why a
    fit was impossible.

    **Large data.** With more than 20,000 points (400 per cluster), candidates are compared on a
    quarter of that: points in pairs, their partners, and others if these are few. The chosen one is
    fitted to all points.

    **Complexity.** ``n_splits * n_repeats`` fits for each candidate with pairs, one for others.

    References
    ----------
    M. Pourrajabi, D. Moulavi, R. Campello, A. Zimek, J. Sander, R. Goebel, "Model selection for
    semi-supervised clustering", EDBT 2014. L. Breiman, J. Friedman, R. Olshen, C. Stone,
    "Classification and regression trees", 1984 (the rule of one standard error).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, truth = load_wine(return_X_y=True)
    >>> pairs = Constraints.sample(truth, 100, np.random.default_rng(0))
    >>> search = ConstrainedClusterCV(3, n_repeats=1, random_state=0).fit(X, **pairs.fit_params())
    >>> search.best_params_
    {'candidate': 'Gaussian mixture, full', 'n_clusters': 3}
    """

    n_clusters: Any = field(default=3, kw_only=False)
    candidates: Any = None
    n_splits: int | Literal["auto"] = setting("auto", at_least=2)
    n_repeats: int | Literal["auto"] = setting("auto", at_least=1)
    prior_gains: Mapping[str, float] | None = None
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any = None

    __metadata_request__fit: ClassVar = dict.fromkeys(PAIR_ARGUMENTS, True)

    @takes(SearchArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[SearchArguments]) -> Self:
        """Choose a candidate, and cluster the points.

        Parameters
        ----------
        X : (n, d) array-like
        y : ignored
        must_link, cannot_link, pairs, sample_ids
            See `HMRFKMeans.fit`. Without pairs, the first candidate is fitted.
        ml_weight, cl_weight : float or arrays, or "auto", optional
            See `HMRFKMeans.fit`. By default each candidate uses its own default. Pairs of weight 0
            are left out.
        executor : optional
            Makes the fits that are compared, in place of `n_jobs` processes: anything with the
            interface of `concurrent.futures.Executor`, such as ``client.get_executor()`` of Dask.
            It receives the points with each fit, and is not closed.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data, pairs or settings cannot be used, or no candidate could be fitted.

        Examples
        --------
        >>> X = [[0.0], [1.0], [8.0], [9.0]]
        >>> ConstrainedClusterCV(2, random_state=0).fit(X).best_params_
        {'candidate': 'k-means without pairs', 'n_clusters': 2}
        """
        refuse_pairs(y, X, self)
        check_settings(self)
        executor = arguments.pop("executor", None)
        numbers = self._numbers()
        points = validate_data(self, X, dtype=[np.float64, np.float32])
        candidates = self._candidates(points)
        supervision = supervision_of(X, arguments, allow_auto=True)
        watch_faults(supervision.constraints, supervision.n_repeated)
        self.constraints_ = of_positive_weight(supervision.constraints)
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        judged, self._judged_pairs = points, self.constraints_
        size = sample_size(max(numbers))
        if points.shape[0] > SAMPLED * size:
            sample = supervision.sample(size, np.random.default_rng(self._seed), pairs_first=True)
            judged, self._judged_pairs = (
                points[sample],
                self.constraints_.restrict(sample, renumber=True),
            )
        rows = self._compared(candidates, numbers, judged, executor)
        self._take(rows, points)
        return self

    def _candidates(self, points: FloatArray) -> list[Candidate]:
        """Return the candidates with their prior gains; refuse invalid lists."""
        if self.candidates is None:
            candidates = candidates_for(points)
        else:
            candidates = self._named_candidates()
        gains = self.prior_gains
        if gains is None:
            return candidates
        return [
            candidate._replace(prior_gain=gains.get(candidate.name, 0.0))
            for candidate in candidates
        ]

    def _named_candidates(self) -> list[Candidate]:
        """Return the candidates of the setting; named as a default one, they have its gain."""
        pairs = self.candidates
        if not isinstance(pairs, Sequence) or not pairs:
            raise TypeError(f"candidates must be a list of (name, estimator), got {pairs!r}")
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and hasattr(pair[1], "fit")):
                raise TypeError(f"candidates must be pairs (name, estimator), got {pair!r}")
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ValueError(f"candidates have names that occur twice: {names}")
        gains = {candidate.name: candidate.prior_gain for candidate in default_candidates()}
        return [Candidate(name, estimator, gains.get(name, 0.0)) for name, estimator in pairs]

    def _numbers(self) -> list[int]:
        """Return the numbers of clusters that are compared."""
        counts = self.n_clusters
        if isinstance(counts, str):
            check_word("n_clusters", counts, ("auto",))
            return list(_NUMBERS)
        several = [as_whole(k) for k in ([counts] if np.ndim(counts) == 0 else counts)]
        numbers = [k for k in several if k is not None and k >= 1]
        if not numbers or len(numbers) < len(several):
            raise ValueError(
                f"n_clusters must be an integer of at least 1, several, or 'auto', got {counts!r}"
            )
        return sorted(set(numbers))

    def _compared(
        self,
        candidates: Sequence[Candidate],
        numbers: Sequence[int],
        points: Any,
        executor: Executor | None,
    ) -> list[_Row]:
        """Score candidates; the simplest one with pairs chooses the number of clusters."""
        n_pairs = len(self._judged_pairs)
        n_points = points.shape[0]
        numbers = [k for k in numbers if k <= n_points] or [numbers[0]]
        if n_pairs < 2:
            if len(numbers) > 1:
                raise ValueError(
                    f"n_clusters={self.n_clusters!r} needs pairs that choose among the numbers; "
                    f"{n_pairs} were given. Give one number"
                )
            if n_pairs:
                warn(
                    "one pair cannot be held out from others: the first candidate is fitted",
                )
            first = candidates[0]
            made = prepared(first.estimator, numbers[0], self._seed)
            self._group = np.zeros(n_pairs, dtype=np.int64)
            self._best_row, self._expected = 0, {}
            return [_Row(first.name, numbers[0], made, None, "", np.nan)]
        sampled = self._judged_pairs is not self.constraints_
        folds_of_auto, repeats_of_auto = (3, 1) if sampled else (5, 2)
        splits = folds_of_auto if self.n_splits == "auto" else int(self.n_splits)
        splits = min(splits, n_pairs)
        n_must = len(self._judged_pairs.must_link)
        self._group = pair_groups(self._judged_pairs, splits)
        repeats = repeats_of_auto if self.n_repeats == "auto" else int(self.n_repeats)
        folds = [
            pair_folds(self._group, n_must, splits, np.random.default_rng([self._seed, repeat]))
            for repeat in range(repeats)
        ]
        rows: list[_Row] = []
        if len(numbers) > 1:
            screen = next((c for c in candidates if takes_pairs(c.estimator)), candidates[0])
            rows = self._judged([(screen, k) for k in numbers], points, folds, executor)
            self._warn_of_failures(rows)
            numbers = [rows[choose([row.shares for row in rows], self._group)].n_clusters]
        seen = {(row.name, row.n_clusters) for row in rows}
        remaining = [
            (candidate, numbers[0])
            for candidate in candidates
            if (candidate.name, numbers[0]) not in seen
        ]
        rows += self._judged(remaining, points, folds, executor)
        # Rows are in the order of the candidates, from simple to complex.
        place = {candidate.name: at for at, candidate in enumerate(candidates)}
        at_number = [at for at, row in enumerate(rows) if row.n_clusters == numbers[0]]
        at_number.sort(key=lambda at: place[rows[at].name])
        compared = [rows[at] for at in at_number]
        self._warn_of_failures(compared)
        prior = [candidates[place[row.name]].prior_gain for row in compared]
        expected = expected_gains([row.shares for row in compared], self._group, prior)
        self._expected = dict(zip(at_number, expected, strict=True))
        self._best_row = at_number[int(np.nanargmax(expected))]
        return rows

    def _judged(
        self,
        tasks: Sequence[tuple[Candidate, int]],
        points: Any,
        folds: Sequence[IntArray],
        executor: Executor | None,
    ) -> list[_Row]:
        """Fit without each fold, and score the held-out pairs."""
        masks = [fold == number for fold in folds for number in range(int(fold.max()) + 1)]
        nothing = np.zeros(len(self._judged_pairs), dtype=np.bool_)
        made = [
            (candidate.name, k, prepared(candidate.estimator, k, self._seed))
            for candidate, k in tasks
        ]
        jobs = [
            (estimator, mask)
            for _, _, estimator in made
            # Without pairs, one fit serves all folds.
            for mask in (masks if takes_pairs(estimator) else [nothing])
        ]
        calls = [(estimator, points, self._judged_pairs, mask) for estimator, mask in jobs]
        if executor is None:
            run = Parallel(n_jobs=self.n_jobs, return_as="generator")(
                delayed(labels_without)(*call) for call in calls
            )
        else:
            run = executor.map(labels_without, *zip(*calls, strict=True))
        rows = []
        for at, (name, k, estimator) in enumerate(made):
            fits = [next(run) for _ in (masks if takes_pairs(estimator) else [nothing])]
            failure = next((problem for _, problem, _ in fits if problem), "")
            labels = [fit_labels for fit_labels, _, _ in fits if fit_labels is not None]
            shares = None
            if not failure:
                repeated = labels if len(labels) == len(masks) else labels * len(masks)
                shares = pair_shares(repeated, folds, self._judged_pairs)
            rows.append(_Row(name, k, estimator, shares, failure, np.mean([s for _, _, s in fits])))
            if self.verbose:
                result = f"failed: {failure}" if shares is None else f"score {shares.score:.3f}"
                print(f"[{at + 1}/{len(made)}] {name}, {k} clusters: {result}", flush=True)
        return rows

    def _warn_of_failures(self, rows: Sequence[_Row]) -> None:
        """Warn of failed candidates; raise an error if all failed."""
        failed = [row for row in rows if row.shares is None]
        if len(failed) == len(rows):
            raise ValueError(f"no candidate could be fitted; {failed[0].name}: {failed[0].failure}")
        if failed:
            warn(
                "left out: " + "; ".join(f"{row.name} ({row.failure})" for row in failed),
            )

    def _take(self, rows: Sequence[_Row], points: Any) -> None:
        """Set all attributes."""
        best = rows[self._best_row]
        self.best_index_ = self._best_row
        self.best_params_ = {"candidate": best.name, "n_clusters": best.n_clusters}
        self.best_score_ = np.nan if best.shares is None else best.shares.score
        self.gain_ = (np.nan, np.nan)
        without = [
            row.shares
            for row in rows
            if row.shares is not None
            and row.n_clusters == best.n_clusters
            and not takes_pairs(row.estimator)
        ]
        if best.shares is not None and without:
            self.gain_ = gain(
                best.shares, max(without, key=lambda shares: shares.score), self._group
            )
        self.cv_results_ = _table(rows, self._group, self._expected)
        with warnings.catch_warnings():
            # Reported by `fit` of this class, also where the chosen candidate uses no pairs.
            warnings.simplefilter("ignore", ContradictoryPairsWarning)
            self.best_estimator_ = fitted(clone(best.estimator), points, self.constraints_)
        self.labels_ = np.asarray(final_step(self.best_estimator_).labels_, dtype=np.int64)
        self.violations_ = violations(self.constraints_, self.labels_)

    def predict(self, X: Any) -> IntArray:
        """Return the cluster of each point under the chosen estimator.

        Parameters
        ----------
        X : (n, d) array-like

        Returns
        -------
        (n,) int64 array

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If the data cannot be used, or have other features than the data of the fit.

        Examples
        --------
        >>> model = ConstrainedClusterCV(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> near, far = model.predict([[0.4], [8.4]])
        >>> bool(near == model.labels_[0]), bool(far == model.labels_[3])
        (True, True)
        """
        check_is_fitted(self)
        labels = []
        for batch in batches(X):
            points = validate_data(self, batch, reset=False, dtype=[np.float64, np.float32])
            labels.append(self.best_estimator_.predict(points))
        return np.concatenate(labels).astype(np.int64, copy=False)


def _table(rows: Sequence[_Row], group: IntArray, expected: Mapping[int, float]) -> Any:
    """Return the data frame of `cv_results_`."""
    import pandas as pd

    judged = [row for row in rows if row.shares is not None]
    entries = []
    for at, row in enumerate(rows):
        params = {"candidate": row.name, "n_clusters": row.n_clusters}
        entry: dict[str, Any] = {**params, "params": params}
        shares = row.shares
        if shares is not None:
            alike = [r.shares for r in judged if r.n_clusters == row.n_clusters and r.shares]
            best = max(alike, key=lambda other: other.score)
            behind, error = gain(best, shares, group)
            entry |= {
                "mean_test_score": shares.score,
                "standard_error": standard_error(shares.contributions(), shares.must.size, group),
                "expected_gain": expected.get(at, np.nan),
                "behind_best": behind,
                "behind_best_error": error,
                "must_link_kept": float(shares.must.mean()) if shares.must.size else np.nan,
                "cannot_link_kept": float(shares.cannot.mean()) if shares.cannot.size else np.nan,
            }
        entries.append(entry | {"mean_fit_time": row.seconds, "failure": row.failure})
    columns = [
        "candidate",
        "n_clusters",
        "params",
        "mean_test_score",
        "standard_error",
        "expected_gain",
        "behind_best",
        "behind_best_error",
        "must_link_kept",
        "cannot_link_kept",
        "mean_fit_time",
        "rank_test_score",
        "failure",
    ]
    table = pd.DataFrame(entries).reindex(columns=columns)
    table["rank_test_score"] = (
        table["mean_test_score"].rank(method="min", ascending=False).astype("Int64")
    )
    return table
