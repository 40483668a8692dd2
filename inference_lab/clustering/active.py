"""Active choice of constraints: which pairs of points to ask about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from inference_lab.clustering.initialisation import alone, group_centroids
from inference_lab.constraints import Constraints, check_generator, point_indices
from inference_lab.constraints.pair_arrays import missing
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import IntArray

#: Answers whether two points belong together; None is "don't know".
Oracle: TypeAlias = "Callable[[int, int], bool | None]"


class Question(NamedTuple):
    """One question with its answer: do the two points belong together? None is "don't know"."""

    first: int
    second: int
    answer: bool | None


@dataclass(frozen=True)
class Answers:
    """Result of the questions.

    ``constraints`` are all answers, and the must-links inferred without a question; each array of
    ``neighbourhoods`` has points known to belong together, in different clusters. ``questions`` are
    in the order asked; their number is the budget used. ``phase`` is the phase at the end;
    ``complete`` is false if the budget ended the run while questions were left.
    """

    constraints: Constraints
    neighbourhoods: list[IntArray]
    questions: list[Question]
    phase: Literal["explore", "consolidate"]
    complete: bool


class _BudgetSpentError(Exception):
    """A question was left when the budget was spent."""


class ExploreConsolidate:
    """Two-phase choice of questions: find all clusters, then make them grow (Basu 2005, ch. 5).

    *Explore* asks about the point farthest from all known ones and one point of each neighbourhood,
    the nearest first; without a match, the point founds a new neighbourhood. Once there is one for
    each cluster, *consolidate* asks about random points in the same order; after K - 1 times "no",
    the last neighbourhood needs no question.

    Parameters
    ----------
    n_clusters : int or None
        None if unknown; then all questions explore.
    budget : int
        Number of questions, whatever their answers.
    distortion : str or Distortion
        See `BregmanKMeans`.
    random_state : int or numpy.random.Generator
        A fixed seed asks the same questions as long as the answers are the same.

    Raises
    ------
    ValueError
        If `n_clusters` is below 1, or `budget` is negative.

    Notes
    -----
    A point with the answer "don't know" is dropped and founds no neighbourhood; its other answers
    stay. No pair is asked twice. If each explored point comes from a random cluster, at most
    ``K C(K, 2)`` questions find all K clusters.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Active semi-supervision for pairwise constrained clustering",
    SDM 2004. S. Basu, PhD thesis, 2005, ch. 5 and app. B.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> answers = ExploreConsolidate(2, budget=3, random_state=0).run(X, [0, 0, 1, 1])
    >>> len(answers.questions), len(answers.neighbourhoods)
    (3, 2)
    """

    def __init__(
        self,
        n_clusters: int | None,
        budget: int,
        *,
        distortion: str | Distortion = "euclidean",
        random_state: int | np.random.Generator = 0,
    ) -> None:
        if n_clusters is not None and n_clusters < 1:
            raise ValueError(f"n_clusters must be at least 1 or None, got {n_clusters}")
        if budget < 0:
            raise ValueError(f"budget must not be negative, got {budget}")
        self.n_clusters = n_clusters
        self.budget = budget
        self.distortion = distortion
        self.random_state = random_state

    def run(
        self,
        X: Any,
        oracle: Oracle | npt.ArrayLike,
        *,
        candidates: npt.ArrayLike | None = None,
    ) -> Answers:
        """Ask until the budget is spent, or no question is left.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
        oracle : callable or (n,) array
            Called with two rows, returns True, False or None ("don't know"); or true classes,
            with negative numbers, NaN, None and NA for unknown ones.
        candidates : (m,) array of int or (n,) array of bool, optional
            The only points to ask about, such as a training half.

        Returns
        -------
        Answers

        Raises
        ------
        ValueError
            If the data or the candidates cannot be used.

        Examples
        --------
        >>> from inference_lab.clustering import PCKMeans
        >>> X = [[0.0], [1.0], [5.0], [6.0]]
        >>> answers = ExploreConsolidate(2, budget=10).run(X, lambda i, j: (i < 2) == (j < 2))
        >>> answers.complete, len(answers.questions), len(answers.constraints)
        (True, 3, 3)
        """
        distortion = as_distortion(self.distortion)
        points = check_array(
            X, accept_sparse="csr" if distortion.accepts_sparse else False, dtype=np.float64
        )
        distortion.check(points)
        points = distortion.prepare(points)
        n = points.shape[0]
        rows = (
            np.arange(n) if candidates is None else point_indices(candidates, n, name="candidates")
        )
        ask = oracle if callable(oracle) else _from_classes(oracle, n)
        rng = self.random_state
        if not isinstance(rng, np.random.Generator):
            rng = np.random.default_rng(rng)
        check_generator(rng)
        asking = _Asking(points, np.sort(rows), distortion, ask, self.budget)
        complete = True
        try:
            asking.run(self.n_clusters, rng)
        except _BudgetSpentError:
            complete = False
        return Answers(
            _as_constraints(asking.questions, asking.inferred, n),
            [np.array(sorted(m), dtype=np.int64) for m in asking.members],
            asking.questions,
            asking.phase,
            complete,
        )


class _Asking:
    """The remaining candidates, the answers so far, and the neighbourhoods found by them."""

    def __init__(
        self,
        points: Points,
        candidates: IntArray,
        distortion: Distortion,
        oracle: Oracle,
        budget: int,
    ) -> None:
        self.points, self.candidates, self.distortion = points, candidates, distortion
        self.oracle, self.budget = oracle, budget
        self.questions: list[Question] = []
        #: The points of each neighbourhood, its founder first.
        self.members: list[list[int]] = []
        self.inferred: list[tuple[int, int]] = []
        self.phase: Literal["explore", "consolidate"] = "explore"
        self._rows = points[candidates]
        #: Distance of each candidate from the nearest known point.
        self._nearest = np.full(candidates.size, np.inf)
        self._free = np.ones(candidates.size, dtype=np.bool_)

    def run(self, k: int | None, rng: np.random.Generator) -> None:
        """Explore until there are k neighbourhoods, then consolidate."""
        if self.candidates.size == 0:
            return
        self._settle(int(rng.integers(self.candidates.size)), None)
        while (k is None or len(self.members) < k) and self._free.any():
            self._place(int(np.where(self._free, self._nearest, -np.inf).argmax()), k)
        if k is None:
            return
        self.phase = "consolidate"
        for at in rng.permutation(np.flatnonzero(self._free)).tolist():
            self._place(at, k)

    def _settle(self, at: int, group: int | None) -> None:
        """Add a candidate to a neighbourhood, a new one for None."""
        point = int(self.candidates[at])
        if group is None:
            self.members.append([point])
        else:
            self.members[group].append(point)
        self._free[at] = False
        centroid = alone(self.points[[point]], self.distortion)
        distances = self.distortion.distances(self._rows, centroid)[:, 0]
        np.minimum(self._nearest, distances, out=self._nearest)

    def _ask(self, first: int, second: int) -> bool | None:
        if len(self.questions) == self.budget:
            raise _BudgetSpentError
        answer = self.oracle(first, second)
        self.questions.append(Question(first, second, None if answer is None else bool(answer)))
        return answer

    def _place(self, at: int, n_clusters: int | None) -> None:
        """Ask for the neighbourhood of a candidate, the nearest first, and add it."""
        point = int(self.candidates[at])
        self._free[at] = False
        unsure = False
        order = _by_distance(point, self.points, self.members, self.distortion)
        complete = n_clusters is not None and len(order) == n_clusters
        for rank, group in enumerate(order):
            founder = self.members[group][0]
            if complete and rank == len(order) - 1 and not unsure:
                # Only the last neighbourhood remains.
                self.inferred.append((point, founder))
                self._settle(at, group)
                return
            answer = self._ask(point, founder)
            if answer:
                self._settle(at, group)
                return
            unsure = unsure or answer is None
        if not unsure and not complete:
            self._settle(at, None)


def _by_distance(
    point: int, points: Points, members: list[list[int]], distortion: Distortion
) -> list[int]:
    """Return the neighbourhoods by the distance of their centroids from a point."""
    centroids = group_centroids(points, [np.array(m) for m in members], distortion, None)
    costs = distortion.distances(points[[point]], centroids)[0]
    return [int(g) for g in np.argsort(costs, kind="stable")]


def _from_classes(classes: npt.ArrayLike, n: int) -> Oracle:
    """Answer from true classes."""
    truth = np.asarray(classes)
    if truth.shape != (n,):
        raise ValueError(
            f"oracle must be callable, or one class for each of the {n} points; got shape "
            f"{truth.shape}"
        )
    unknown = missing(truth)
    if truth.dtype.kind in "fi":
        unknown = unknown | (truth < 0)

    def answer(first: int, second: int) -> bool | None:
        if unknown[first] or unknown[second]:
            return None
        return bool(truth[first] == truth[second])

    return answer


def _as_constraints(
    questions: list[Question], inferred: list[tuple[int, int]], n: int
) -> Constraints:
    together = [(q.first, q.second) for q in questions if q.answer] + inferred
    apart = [(q.first, q.second) for q in questions if q.answer is False]
    return Constraints(together or None, apart or None, n_points=n)
