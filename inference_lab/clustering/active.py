"""Active choice of constraints: which pairs of points to ask about."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from inference_lab.clustering.distortions import Distortion, Points, as_distortion
from inference_lab.clustering.seeding import alone
from inference_lab.constraints import Constraints, check_generator, point_indices
from inference_lab.graph.arrays import IntArray

__all__ = ["Answers", "ExploreConsolidate", "StopAskingError", "ask_at_terminal"]

#: Answers whether two points belong together; None is "don't know".
Oracle: TypeAlias = "Callable[[int, int], bool | None]"


class StopAskingError(Exception):
    """Raised by an oracle that wants to answer no more questions for now."""


class Question(NamedTuple):
    """One question with its answer: do the two points belong together? None is "don't know"."""

    first: int
    second: int
    answer: bool | None


@dataclass(frozen=True)
class Answers:
    """What questions brought.

    Parameters
    ----------
    constraints : Constraints
        All answers, and the must-links that were inferred without a question.
    neighbourhoods : list of int64 arrays
        Points known to belong together, in different clusters each.
    questions : list of Question
        In the order asked; its length is the budget used.
    phase : {"explore", "consolidate"}
        Where asking ended.
    complete : bool
        Whether nothing was left to ask, as against the budget or the oracle's patience.
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
        Says what to show for a point, given its row.

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
    Here the answer comes from a text in place of the keyboard:

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
                said = input("Do they belong together? [y]es, [n]o, [?] don't know, [q]uit: ")
            except EOFError:
                raise StopAskingError from None
            word = said.strip().lower()[:1]
            if word == "q":
                raise StopAskingError
            if word in ("y", "n", "?"):
                return None if word == "?" else word == "y"
            print("Please answer y, n, ? or q.")

    return ask


@dataclass
class _State:
    """Neighbourhoods found so far, and how far each candidate is from the points in them."""

    founders: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    inferred: list[tuple[int, int]] = field(default_factory=list)
    aside: set[int] = field(default_factory=set)
    phase: Literal["explore", "consolidate"] = "explore"


class ExploreConsolidate:
    """Two-phase choice of questions: find all clusters, then make them grow (Basu 2005, ch. 5).

    *Explore* takes the point farthest from all that are known and asks about it and one point of
    each neighbourhood, the nearest first, until one matches; if none does, it founds a new one.
    Once there are as many as clusters, *consolidate* takes random points and asks about the
    neighbourhoods by the distance of their centroids; after K - 1 times "no", the last needs no
    question.

    Parameters
    ----------
    n_clusters : int or None
        None if it is not known: then all questions explore.
    budget : int
        Number of questions, whatever their answers.
    distortion : str or Distortion
        What distances are.
    random_state : int or numpy.random.Generator
        A fixed seed asks the same questions as long as the answers are the same.

    Raises
    ------
    ValueError
        If `n_clusters` is below 1, or `budget` is negative.

    Notes
    -----
    A point whose question was answered "don't know" is asked about no more, and founds nothing;
    what was learnt about it stays. No pair is asked about twice. When the budget ends in the middle
    of a point, its answers are kept as constraints.

    Exploring finds all K clusters with at most ``K C(K, 2)`` questions if each point it takes
    comes from a random cluster.

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
        transcript: Path | str | None = None,
    ) -> Answers:
        """Ask until the budget is used up, nothing is left to ask, or the oracle stops.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
        oracle : callable or (n,) array
            Called with two rows, returns True, False or None ("don't know"); or true classes,
            with negative numbers and NaN for unknown ones.
        candidates : (m,) array of int or (n,) array of bool, optional
            The only points that questions touch, those of a training half, say.
        transcript : path, optional
            A file of JSON lines to which each answer is written at once. Answers that it holds
            already are taken from there, and count: after an interruption, run again with the same
            file and settings.

        Returns
        -------
        Answers

        Raises
        ------
        ValueError
            If the data, the candidates or the transcript cannot be used.

        Examples
        --------
        The answers are constraints to be fitted with:

        >>> from inference_lab.clustering import PCKMeans
        >>> X = [[0.0], [1.0], [5.0], [6.0]]
        >>> found = ExploreConsolidate(2, budget=10).run(X, lambda i, j: (i < 2) == (j < 2))
        >>> found.complete, len(found.questions), len(found.constraints)
        (True, 3, 3)
        >>> model = PCKMeans(2, random_state=0).fit(X, **found.constraints.fit_params())
        >>> model.violations_.weight
        0.0
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
        known = {} if transcript is None else _read_transcript(Path(transcript), n)
        questions: list[Question] = []
        state = _State()
        complete = False
        dialogue = self._dialogue(points, np.sort(chosen), distortion, state, rng)
        answer: bool | None = None
        while True:
            try:
                # The first question comes without an answer to one before.
                first, second = dialogue.send(answer) if questions else next(dialogue)
            except StopIteration:
                complete = True
                break
            if len(questions) == self.budget:
                break
            key = (min(first, second), max(first, second))
            if key in known:
                answer = known[key]
            else:
                try:
                    answer = ask(first, second)
                except StopAskingError:
                    break
                if answer is not None:
                    answer = bool(answer)
                if transcript is not None:
                    _append(Path(transcript), first, second, answer)
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
        state: _State,
        rng: np.random.Generator,
    ) -> Generator[tuple[int, int], bool | None, None]:
        """Yield pairs to ask about; gets the answers."""
        if candidates.size == 0:
            return
        rows = points[candidates]
        nearest = np.full(candidates.size, np.inf)
        place = {int(point): at for at, point in enumerate(candidates)}
        free = np.ones(candidates.size, dtype=np.bool_)

        def settle(point: int, group: int | None) -> None:
            """Put a point into a neighbourhood, a new one for None."""
            if group is None:
                state.founders.append(point)
                state.members.append([point])
            else:
                state.members[group].append(point)
            free[place[point]] = False
            centroid = alone(points[[point]], distortion)
            np.minimum(nearest, distortion.distances(rows, centroid)[:, 0], out=nearest)

        settle(int(candidates[rng.integers(candidates.size)]), None)
        # Explore.
        k = self.n_clusters
        while (k is None or len(state.founders) < k) and free.any():
            at = int(np.where(free, nearest, -np.inf).argmax())
            yield from self._place(int(candidates[at]), points, distortion, state, settle, free, at)
        if k is None:
            return
        # Consolidate.
        state.phase = "consolidate"
        for at in rng.permutation(np.flatnonzero(free)):
            yield from self._place(
                int(candidates[at]), points, distortion, state, settle, free, int(at)
            )

    def _place(
        self,
        point: int,
        points: Points,
        distortion: Distortion,
        state: _State,
        settle: Callable[[int, int | None], None],
        free: npt.NDArray[np.bool_],
        at: int,
    ) -> Generator[tuple[int, int], bool | None, None]:
        """Ask where a point belongs, and put it there."""
        free[at] = False
        unsure = False
        order = _by_distance(point, points, state.members, distortion)
        complete = self.n_clusters is not None and len(order) == self.n_clusters
        for rank, group in enumerate(order):
            if complete and rank == len(order) - 1 and not unsure:
                # It must be the last one.
                state.inferred.append((point, state.founders[group]))
                settle(point, group)
                return
            answer = yield point, state.founders[group]
            if answer:
                settle(point, group)
                return
            unsure = unsure or answer is None
        if not unsure and not complete:
            settle(point, None)


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


def _append(path: Path, first: int, second: int, answer: bool | None) -> None:
    line = json.dumps({"first": first, "second": second, "answer": answer})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _read_transcript(path: Path, n: int) -> dict[tuple[int, int], bool | None]:
    """Read answers given before; a last line that was cut off is left out."""
    known: dict[tuple[int, int], bool | None] = {}
    if not path.exists():
        return known
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if lines[-1]:
        # Cut off while it was written: what is there would be glued to the next answer.
        with path.open("r+b") as file:
            file.truncate(len(text.encode()) - len(lines[-1].encode()))
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entry = json.loads(line)
            first, second, answer = entry["first"], entry["second"], entry["answer"]
            whole = all(type(v) is int and 0 <= v < n for v in (first, second))
            if not whole or first == second or type(answer) not in (bool, type(None)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path}, line {number}: {line[:80]!r} is no answer about two of {n} points"
            ) from None
        known[min(first, second), max(first, second)] = answer
    return known
