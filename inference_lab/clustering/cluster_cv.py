"""Choice of a constrained clustering by held-out pairs, with no pairs as the first candidate."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, process_time
from typing import Any, ClassVar, Literal, NamedTuple, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from inference_lab.clustering.candidate_choice import CandidateChoice
from inference_lab.clustering.fit_inputs import check_word, refuse_sparse, takes, with_reliability
from inference_lab.clustering.fit_limit import OutOfTime, limited_to
from inference_lab.clustering.held_out_pairs import pair_folds, pair_groups
from inference_lab.clustering.hmrf_kmeans import MPCKMeans, PCKMeans
from inference_lab.clustering.large_data import batches
from inference_lab.clustering.mixture import ConstrainedGaussianMixture
from inference_lab.clustering.pair_warnings import ContradictoryPairsWarning, watch_faults
from inference_lab.clustering.prediction import LabellingMixin
from inference_lab.clustering.race import Clock, FoldFit, Race, Runner, this_process
from inference_lab.clustering.shared_starts import all_starts, shared_starts
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
from inference_lab.formatting import counted, warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import check_settings, setting
from inference_lab.specs.whole_numbers import as_whole

#: Numbers of clusters that "auto" tries.
_NUMBERS = range(2, 11)


#: Points per cluster and feature below which points are few: covariances are uncertain then, and
#: most candidates lose against k-means on most data sets.
_FEW = 6.0


class Candidate(NamedTuple):
    """An estimator with a name, and its expected gain in score before pairs are seen.

    The prior gain is over the first candidate, as a mean over data sets. ``gain_of_few`` replaces
    it where points are few; None is the same gain.
    """

    name: str
    estimator: Any
    prior_gain: float = 0.0
    gain_of_few: float | None = None

    def gain_at(self, shape: tuple[int, int], n_clusters: int) -> float:
        """Return the expected gain for points of this shape, in this number of clusters."""
        n_points, n_features = shape
        if self.gain_of_few is None or n_points >= _FEW * n_clusters * n_features:
            return self.prior_gain
        return self.gain_of_few


#: End of the names of candidates that standardise the points first.
_STANDARDISED = ", standardised"


def default_candidates() -> list[Candidate]:
    """Return the candidates from simple to complex; the first two use no pairs.

    Prior gains are measured (docs/decisions/059-data-that-chose-nothing.md).
    """

    def standardised(estimator: Any) -> Any:
        return make_pipeline(StandardScaler(), estimator)

    mixture = ConstrainedGaussianMixture
    full = standardised(mixture(reg_covar=1e-3))
    metric = standardised(MPCKMeans())
    kmeans = KMeans(n_init=10)
    return [
        Candidate("k-means without pairs", kmeans),
        Candidate("k-means without pairs, standardised", standardised(kmeans), 0.05, -0.1),
        Candidate("PCKMeans", PCKMeans(), 0.05, 0.05),
        Candidate("PCKMeans, standardised", standardised(PCKMeans()), 0.1, -0.05),
        Candidate("MPCKMeans, diagonal metric, standardised", metric, 0.13, -0.05),
        Candidate("Gaussian mixture, diagonal", mixture(covariance_type="diag"), 0.16, -0.1),
        Candidate("Gaussian mixture, full", full, 0.22, -0.1),
        Candidate("TVClust", TVClust(), 0.25, -0.1),
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


def fit_without(
    estimator: Any,
    points: Any,
    constraints: Constraints,
    held_out: npt.NDArray[np.bool_],
    limit: float = math.inf,
) -> FoldFit:
    """Return the outcome of a fit to the other pairs within a limit of processor seconds."""
    n_must = len(constraints.must_link)
    rest = selected(constraints, ~held_out[:n_must], ~held_out[n_must:])
    labels, failure, late = None, "", False
    start, cpu_start = perf_counter(), process_time()
    try:
        with warnings.catch_warnings(), shared_starts(), limited_to(limit):
            # The final fit to all pairs repeats the warnings that matter.
            warnings.simplefilter("ignore")
            labels = np.asarray(final_step(fitted(clone(estimator), points, rest)).labels_)
    except OutOfTime:
        late = True
    except (ValueError, ArithmeticError) as problem:
        failure = f"{type(problem).__name__}: {problem}"
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    return FoldFit(labels, failure, seconds, cpu_seconds, this_process(), late)


# ---------------------------------------------------------------------- the estimator


class SearchStoppedWarning(UserWarning):
    """A time limit or Ctrl-C has ended a search before all candidates were compared."""


class SearchArguments(PairArguments, total=False):
    """Arguments of ``fit``, beside the points: pairs, and an executor of the fits."""

    executor: Executor | None


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
    time_limit : float or None
        Seconds of processor time for the comparison, of this process and of the workers that make
        its fits; see Notes. None for no limit, so that results do not depend on the machine.
    n_jobs : int or None
        Processes that share the fits; None is 1, -1 one per processor.
    verbose : int
        Whether to print the time of the first fit of each candidate, and after some folds the time
        so far, the time to come at most, and the candidates that are still compared.
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
    reason_ : str
        Why the candidate or the number of clusters with the best score was not chosen; empty if
        it was.
    stopped_ : {"", "time limit", "interrupted"}
        What ended the comparison early.
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
    with a standard deviation of 0.1, as over data sets. With fewer than six points per cluster and
    feature, default candidates have other prior gains. The gain on held-out pairs has its standard
    error. The largest posterior mean is chosen: few or noisy pairs leave it near the prior. If even
    the best score is within two standard errors of chance, the first candidate is chosen. Among
    several numbers of clusters, the smallest within a standard error of the best is chosen.

    **Race.** All candidates are fitted without the first fold, then without the second, and so on.
    Candidates that are behind the leader in expected gain are cut: by 1.25 standard errors after
    half of the first repetition, by 0.25 after each repetition. They cannot be chosen, and are
    compared with others on the pairs that have judged both.

    **Starts.** Where `PCKMeans`, `MPCKMeans` and `HMRFKMeans` would have ten starts by default, the
    fits of a search have two: the neighbourhoods of their pairs, and k-means without pairs, which
    is computed once for all fits. The final fit has ten again, unless it learns a full
    metric: among more starts, the least objective may belong to a degenerate metric, which no
    pair has judged.

    **Time limit.** A fit is only begun if it is expected to end in time, with time left for the
    final fit; a candidate without a fit is expected to take as long as the slowest so far. No fit
    takes more than a quarter of the limit: estimators of this package stop there, and after two
    such fits no further candidate is begun. Estimators of other packages run to their end. The
    first candidate is always judged. The final fit is not limited. Ctrl-C also ends the comparison
    with the best so far, if a candidate has been judged; a second one ends the final fit. Both give
    a `SearchStoppedWarning`.

    **Columns** of `cv_results_`: ``candidate``, ``n_clusters``, ``params``, ``mean_test_score``,
    ``standard_error``, ``expected_gain`` (for the number of clusters chosen), ``behind_best`` and
    ``behind_best_error`` (among the rows compared with it), ``must_link_kept``,
    ``cannot_link_kept``, ``mean_fit_time``, ``n_fits``, ``rank_test_score``, ``cut``, the reason
    why further fits were not made, and ``failure``, the reason why a fit was impossible.

    **Large data.** With more than 20,000 points (400 per cluster), candidates are compared on a
    quarter of that: points in pairs, their partners, and others if these are few. The chosen one is
    fitted to all points.

    **Complexity.** At most ``n_splits * n_repeats`` fits for each candidate with pairs, one for
    others.

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
    {'candidate': 'k-means without pairs, standardised', 'n_clusters': 3}
    """

    n_clusters: Any = field(default=3, kw_only=False)
    candidates: Any = None
    n_splits: int | Literal["auto"] = setting("auto", at_least=2)
    n_repeats: int | Literal["auto"] = setting("auto", at_least=1)
    prior_gains: Mapping[str, float] | None = None
    time_limit: float | None = setting(None, above=0)
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
            It receives the points with each fit, and is not closed. All fits up to the next
            comparison of candidates are in flight.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data, pairs or settings cannot be used, or no candidate could be fitted.
        KeyboardInterrupt
            If Ctrl-C is pressed before a candidate has been judged, or in the final fit.

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
        refuse_sparse(X, self)
        points = validate_data(self, X, dtype=[np.float64, np.float32])
        candidates = self._candidates(points)
        supervision = supervision_of(X, arguments, allow_auto=True)
        supervision = with_reliability(self, points, supervision, numbers[len(numbers) // 2])
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
        with shared_starts():
            self._take(self._compared(candidates, numbers, judged, executor), points)
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
            candidate._replace(prior_gain=gains.get(candidate.name, 0.0), gain_of_few=None)
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
        gains = {candidate.name: candidate[2:] for candidate in default_candidates()}
        return [Candidate(name, estimator, *gains.get(name, ())) for name, estimator in pairs]

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
    ) -> CandidateChoice:
        """Score candidates; the simplest one with pairs chooses the number of clusters."""
        n_pairs = len(self._judged_pairs)
        numbers = [k for k in numbers if k <= points.shape[0]] or [numbers[0]]
        if n_pairs < 2:
            return self._first_only(self._runner(candidates[0], numbers[0], points.shape), numbers)
        sampled = self._judged_pairs is not self.constraints_
        folds_of_auto, repeats_of_auto = (3, 1) if sampled else (5, 2)
        splits = folds_of_auto if self.n_splits == "auto" else int(self.n_splits)
        splits = min(splits, n_pairs)
        group = pair_groups(self._judged_pairs, splits)
        repeats = repeats_of_auto if self.n_repeats == "auto" else int(self.n_repeats)
        n_must = len(self._judged_pairs.must_link)
        folds = [
            pair_folds(group, n_must, splits, np.random.default_rng([self._seed, repeat]))
            for repeat in range(repeats)
        ]
        race = Race(
            points,
            self._judged_pairs,
            folds,
            fit_without,
            Clock(self.time_limit),
            self.n_jobs,
            executor,
            final_scale=len(self.constraints_.components()) / points.shape[0],
            report=partial(print, flush=True) if self.verbose else None,
        )
        choice = CandidateChoice([], race, group)
        number, screened = numbers[0], []
        if len(numbers) > 1:
            screen = next((c for c in candidates if takes_pairs(c.estimator)), candidates[0])
            screened = [self._runner(screen, k, points.shape) for k in numbers]
            number = choice.number(screened)
        done = {r.name: r for r in screened if r.n_clusters == number}
        runners = [done.get(c.name) or self._runner(c, number, points.shape) for c in candidates]
        choice.candidate(runners)
        return choice

    def _first_only(self, first: Runner, numbers: Sequence[int]) -> CandidateChoice:
        """Return the first candidate as the choice, because there are no pairs to hold out."""
        n_pairs = len(self._judged_pairs)
        if len(numbers) > 1:
            raise ValueError(
                f"n_clusters={self.n_clusters!r} needs pairs that choose among the numbers; "
                f"{n_pairs} were given. Give one number"
            )
        if n_pairs:
            warn("one pair cannot be held out from others: the first candidate is fitted")
        return CandidateChoice([first], None, np.zeros(n_pairs, dtype=np.int64))

    def _runner(self, candidate: Candidate, n_clusters: int, shape: tuple[int, int]) -> Runner:
        """Return a candidate with a number of clusters, ready for the race on points of a shape."""
        made = prepared(candidate.estimator, n_clusters, self._seed)
        prior_gain = candidate.gain_at(shape, n_clusters)
        return Runner(candidate.name, n_clusters, made, takes_pairs(made), prior_gain)

    def _take(self, choice: CandidateChoice, points: Any) -> None:
        """Set all attributes."""
        best, shares = choice.best, choice.shares(choice.best)
        self.best_index_ = choice.best_row
        self.best_params_ = {"candidate": best.name, "n_clusters": best.n_clusters}
        self.best_score_ = np.nan if shares is None else shares.score
        self.gain_ = choice.gain_over_no_pairs()
        self.reason_ = choice.reason()
        self.cv_results_ = choice.table()
        self.stopped_ = choice.stopped
        if self.stopped_:
            warn(f"{self.stop_in_words()}; see the column cut of cv_results_", SearchStoppedWarning)
        with all_starts(), warnings.catch_warnings():
            # Reported by `fit` of this class, also where the chosen candidate uses no pairs.
            warnings.simplefilter("ignore", ContradictoryPairsWarning)
            self.best_estimator_ = fitted(clone(best.estimator), points, self.constraints_)
        self.labels_ = np.asarray(final_step(self.best_estimator_).labels_, dtype=np.int64)
        self.violations_ = violations(self.constraints_, self.labels_)

    def stop_in_words(self) -> str:
        """Return why the comparison ended early, and how far it had come, or an empty text.

        Returns
        -------
        str

        Examples
        --------
        >>> model = ConstrainedClusterCV(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> model.stop_in_words()
        ''
        """
        check_is_fitted(self)
        if not self.stopped_:
            return ""
        limit = self.time_limit or math.inf
        why = {
            "time limit": f"the limit of {limit:g} s of processor time was spent",
            "interrupted": "the search was interrupted",
        }[self.stopped_]
        table = self.cv_results_
        unseen = int(((table["n_fits"] == 0) & (table["cut"] != "")).sum())
        return (
            f"{why}: the best candidate so far is fitted; {counted(unseen, 'candidate')} of "
            f"{len(table)} could not be compared"
        )

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
