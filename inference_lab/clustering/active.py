"""Active choice of constraints: which pairs of points to ask about."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from inference_lab.clustering.distortions import Distortion, Points, as_distortion
from inference_lab.clustering.initialisation import alone
from inference_lab.constraints import Constraints, check_generator, point_indices
from inference_lab.graph.arrays import IntArray

__all__ = [
    "Answers",
    "ExploreConsolidate",
    "MinMax",
    "StopAskingError",
    "ask_at_terminal",
]

#: Answers whether two points belong together; None is "don't know".
Oracle: TypeAlias = "Callable[[int, int], bool | None]"


class StopAskingError(Exception):
    """Raised by an oracle to end the questions for now."""


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
    ``complete`` is false if the budget or the oracle ended the run while questions were left.
    """

    constraints: Constraints
    neighbourhoods: list[IntArray]
    questions: list[Question]
    phase: Literal["explore", "consolidate"]
    complete: bool


def ask_at_terminal(describe: Callable[[int], str] = str) -> Oracle:
    """Return an oracle that asks a person.

    Parameters
    ----------
    describe : callable
        Returns the text to show for a point, given its row.

    Returns
    -------
    callable
        Asks on standard output, and reads "y", "n", "?" (don't know) or "q" (stop for now) from
        standard input.

    Raises
    ------
    StopAskingError
        By the oracle, on "q" or at the end of the input.

    Examples
    --------
    >>> import io, sys
    >>> names = ["cat", "lion", "dog"]
    >>> keyboard, sys.stdin = sys.stdin, io.StringIO("y")
    >>> ask_at_terminal(names.__getitem__)(0, 1)
    cat
    lion
    Do they belong together? [y]es, [n]o, [?] don't know, [q]uit: True
    >>> sys.stdin = keyboard
    """

    def ask(first: int, second: int) -> bool | None:
        print(f"{describe(first)}\n{describe(second)}")
        while True:
            try:
                typed = input("Do they belong together? [y]es, [n]o, [?] don't know, [q]uit: ")
            except EOFError:
                raise StopAskingError from None
            word = typed.strip().lower()[:1]
            if word == "q":
                raise StopAskingError
            if word in ("y", "n", "?"):
                return None if word == "?" else word == "y"
            print("Please answer y, n, ? or q.")

    return ask


@dataclass
class _Answers:
    """Neighbourhoods found so far, and the answers that follow from them."""

    founders: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    inferred: list[tuple[int, int]] = field(default_factory=list)
    phase: Literal["explore", "consolidate"] = "explore"


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
    >>> found = ExploreConsolidate(2, budget=3, random_state=0).run(X, [0, 0, 1, 1])
    >>> len(found.questions), len(found.neighbourhoods)
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
        """Ask until the budget is spent, no question is left, or the oracle stops.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
        oracle : callable or (n,) array
            Called with two rows, returns True, False or None ("don't know"); or true classes,
            with negative numbers and NaN for unknown ones.
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
        >>> found = ExploreConsolidate(2, budget=10).run(X, lambda i, j: (i < 2) == (j < 2))
        >>> found.complete, len(found.questions), len(found.constraints)
        (True, 3, 3)
        """
        distortion = as_distortion(self.distortion)
        points = check_array(
            X, accept_sparse="csr" if distortion.accepts_sparse else False, dtype=np.float64
        )
        distortion.check(points)
        points = distortion.prepare(points)
        n = points.shape[0]
        chosen = (
            np.arange(n) if candidates is None else point_indices(candidates, n, name="candidates")
        )
        ask = oracle if callable(oracle) else _from_classes(oracle, n)
        rng = self.random_state
        if not isinstance(rng, np.random.Generator):
            rng = np.random.default_rng(rng)
        check_generator(rng)
        questions: list[Question] = []
        state = _Answers()
        complete = False
        dialogue = self._dialogue(points, np.sort(chosen), distortion, state, rng)
        answer: bool | None = None
        while True:
            try:
                # The first question follows no answer.
                first, second = dialogue.send(answer) if questions else next(dialogue)
            except StopIteration:
                complete = True
                break
            if len(questions) == self.budget:
                break
            try:
                answer = ask(first, second)
            except StopAskingError:
                break
            if answer is not None:
                answer = bool(answer)
            questions.append(Question(first, second, answer))
        dialogue.close()
        return Answers(
            _as_constraints(questions, state.inferred, n),
            [np.array(sorted(m), dtype=np.int64) for m in state.members],
            questions,
            state.phase,
            complete,
        )

    def _dialogue(
        self,
        points: Points,
        candidates: IntArray,
        distortion: Distortion,
        state: _Answers,
        rng: np.random.Generator,
    ) -> Generator[tuple[int, int], bool | None, None]:
        """Yield pairs to ask about, and receive the answers."""
        if candidates.size == 0:
            return
        asking = _Asking(points, candidates, distortion, state, rng)
        k = self.n_clusters
        while (k is None or len(state.founders) < k) and asking.free.any():
            yield from asking.place(asking.farthest(), k)
        if k is None:
            return
        state.phase = "consolidate"
        for at in self._consolidated(asking, rng):
            yield from asking.place(at, k)

    def _consolidated(self, asking: _Asking, rng: np.random.Generator) -> Iterator[int]:
        """Yield the places of the candidates to ask about, once all clusters are found."""
        yield from rng.permutation(np.flatnonzero(asking.free)).tolist()


class MinMax(ExploreConsolidate):
    """Explore as `ExploreConsolidate` does, then ask about the least certain point.

    The least certain point is the one whose largest similarity to a known point is smallest. For
    similarities that fall with the distance, as in the paper, it is again the farthest point.

    Parameters
    ----------
    n_clusters, budget, distortion, random_state
        See `ExploreConsolidate`.

    References
    ----------
    P. Mallapragada, R. Jin, A. Jain, "Active query selection for semi-supervised clustering",
    ICPR 2008.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [4.0], [9.8], [9.9], [10.0]]
    >>> asked = MinMax(2, budget=2, random_state=0).run(X, [0, 0, 0, 0, 1, 1, 1])
    >>> asked.questions[1].first
    3
    """

    def _consolidated(self, asking: _Asking, rng: np.random.Generator) -> Iterator[int]:
        while asking.free.any():
            yield asking.farthest()


class _Asking:
    """The remaining candidates, and the questions that place one of them."""

    def __init__(
        self,
        points: Points,
        candidates: IntArray,
        distortion: Distortion,
        state: _Answers,
        rng: np.random.Generator,
    ) -> None:
        self.points = points
        self.candidates = candidates
        self.distortion = distortion
        self.state = state
        self._rows = points[candidates]
        #: Distance of each candidate from the nearest known point.
        self._nearest = np.full(candidates.size, np.inf)
        self.free = np.ones(candidates.size, dtype=np.bool_)
        self._settle(int(rng.integers(candidates.size)), None)

    def farthest(self) -> int:
        """Return the place of the candidate farthest from all known points."""
        return int(np.where(self.free, self._nearest, -np.inf).argmax())

    def _settle(self, at: int, group: int | None) -> None:
        """Add a candidate to a neighbourhood, a new one for None."""
        point = int(self.candidates[at])
        if group is None:
            self.state.founders.append(point)
            self.state.members.append([point])
        else:
            self.state.members[group].append(point)
        self.free[at] = False
        centroid = alone(self.points[[point]], self.distortion)
        found = self.distortion.distances(self._rows, centroid)[:, 0]
        np.minimum(self._nearest, found, out=self._nearest)

    def place(
        self, at: int, n_clusters: int | None
    ) -> Generator[tuple[int, int], bool | None, None]:
        """Ask for the neighbourhood of a candidate, the nearest first, and add it."""
        point, state = int(self.candidates[at]), self.state
        self.free[at] = False
        unsure = False
        order = _by_distance(point, self.points, state.members, self.distortion)
        complete = n_clusters is not None and len(order) == n_clusters
        for rank, group in enumerate(order):
            if complete and rank == len(order) - 1 and not unsure:
                # Only the last neighbourhood remains.
                state.inferred.append((point, state.founders[group]))
                self._settle(at, group)
                return
            answer = yield point, state.founders[group]
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
    labels = np.repeat(np.arange(len(members)), [len(m) for m in members])
    start = np.zeros((len(members), points.shape[1]))
    centroids = distortion.centroids(
        points[np.concatenate([np.array(m) for m in members])], labels, len(members), start
    )
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
    unknown = np.zeros(n, dtype=np.bool_)
    if truth.dtype.kind == "f":
        unknown = np.isnan(truth)
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
