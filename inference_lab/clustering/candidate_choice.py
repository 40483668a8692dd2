"""Choice of a candidate after a race: number of clusters, expected gains, and the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from inference_lab.clustering.held_out_pairs import (
    PairShares,
    at_least_usual,
    choose,
    expected_gains,
    gain,
    is_chance,
    posterior_gains,
    weight_of_evidence,
)
from inference_lab.clustering.race import Race, Runner
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray

#: Standard errors by which a candidate must be behind to be cut, within the first repetition of the
#: folds and once all pairs have judged it (docs/decisions/057-a-race-of-candidates.md).
_MARGIN_WITHIN, _MARGIN_AFTER = 1.25, 0.25
#: Share of the time limit for the choice of the number of clusters.
_NUMBERS_SHARE = 0.5
#: Values of `ConstrainedClusterCV.stopped_`.
Stopped = Literal["", "time limit", "interrupted"]
#: Columns of `ConstrainedClusterCV.cv_results_`.
_COLUMNS = (
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
    "n_fits",
    "rank_test_score",
    "cut",
    "failure",
)


class CandidateChoice:
    """The candidates that were compared, and the one that was chosen.

    `runners` are the rows of the table; `race` is None where there are too few pairs to compare.
    """

    def __init__(self, runners: Sequence[Runner], race: Race | None, group: IntArray) -> None:
        self.runners = list(runners)
        self.race = race
        self.group = group
        #: Expected gain of the rows that have the chosen number of clusters.
        self.expected: dict[int, float] = {}
        self.best_row = 0
        #: The reason why the number of clusters with the best score was not chosen.
        self._of_number = ""

    @property
    def best(self) -> Runner:
        """The chosen candidate."""
        return self.runners[self.best_row]

    def shares(self, runner: Runner, other: Runner | None = None) -> PairShares | None:
        """Return the pairs that a candidate keeps, of those that judge both it and the other."""
        if self.race is None or not runner.judged or (other is not None and not other.judged):
            return None
        n_fits = min(self.race.n_judged(one) for one in (runner, other or runner))
        return self.race.shares(runner, n_fits)

    def gain_over(self, runner: Runner, other: Runner) -> tuple[float, float]:
        """Return the difference of two scores over the same pairs, and its standard error."""
        shares, reference = self.shares(runner, other), self.shares(other, runner)
        if shares is None or reference is None:
            return math.nan, math.nan
        return gain(shares, reference, self.group)

    # -------------------------------------------------------------- comparisons

    def number(self, runners: Sequence[Runner]) -> int:
        """Race one candidate with several numbers of clusters; return the chosen number.

        The smallest number within a standard error of the best score is chosen.
        """
        assert self.race is not None
        self.race.run(runners, self._cut_numbers, _NUMBERS_SHARE)
        _watch_failures(runners)
        self.runners += runners
        complete = max(self.race.n_judged(runner) for runner in runners if runner.judged)
        level = [r for r in runners if r.judged and self.race.n_judged(r) == complete]
        at = choose([self.shares(runner) for runner in level], self.group)
        best = max(level, key=self._score)
        if best is not level[at]:
            behind, error = self.gain_over(best, level[at])
            self._of_number = (
                f"{best.name} scores {behind:.2f} higher with {best.n_clusters} clusters than with "
                f"{level[at].n_clusters}. That is within a standard error of {error:.2f}, so the "
                "smaller number was chosen."
            )
        return level[at].n_clusters

    def candidate(self, runners: Sequence[Runner]) -> None:
        """Race the candidates with one number of clusters, and choose by expected gains."""
        assert self.race is not None
        self.race.run(runners, self._cut_candidates)
        _watch_failures(runners)
        self.runners += [runner for runner in runners if runner not in self.runners]
        expected = self._gains(runners, expected_gains)
        rows = [self.runners.index(runner) for runner in runners]
        self.expected = dict(zip(rows, expected, strict=True))
        # Fits that are not made for lack of time say nothing against a candidate; a lag does.
        eligible = [at for at, runner in zip(rows, runners, strict=True) if not runner.behind]
        self.best_row = max(
            (at for at in eligible if not math.isnan(self.expected[at])),
            key=lambda at: (self.expected[at], -rows.index(at)),
        )

    def _score(self, runner: Runner) -> float:
        shares = self.shares(runner)
        return -math.inf if shares is None else shares.score

    def _gains(self, runners: Sequence[Runner], rule: Callable[..., FloatArray]) -> list[float]:
        """Return the gain of each candidate over the first one that is judged, by a rule."""
        first = next(runner for runner in runners if runner.judged)
        shares = [self.shares(runner, first) for runner in runners]
        references = [self.shares(first, runner) for runner in runners]
        prior = [runner.prior_gain for runner in runners]
        gains: list[float] = rule(shares, self.group, prior, references).tolist()
        return gains

    # -------------------------------------------------------------- candidates that are cut

    def _cut_candidates(self, runners: Sequence[Runner], done: int, total: int) -> None:
        """Cut candidates that are too far behind the leader in expected gain."""
        judged = [runner for runner in runners if runner.judged and not runner.behind]
        if not judged:
            return
        # Also where no score is above chance yet: then the first candidate may win, or a leader.
        gains = self._gains(judged, posterior_gains)
        expected = dict(zip(map(id, judged), gains, strict=True))
        leader = max(judged, key=lambda runner: expected[id(runner)])
        for runner in judged:
            if runner is leader or not runner.runs or not runner.uses_pairs:
                continue
            error = at_least_usual(self.gain_over(leader, runner)[1])
            lead = expected[id(leader)] - expected[id(runner)]
            if lead > self._margin(done) * weight_of_evidence(error) * error:
                runner.fall_behind(done, total)

    def _cut_numbers(self, runners: Sequence[Runner], done: int, total: int) -> None:
        """Cut numbers of clusters whose score is too far behind the best."""
        judged = [runner for runner in runners if runner.judged and not runner.behind]
        if not judged:
            return
        leader = max(judged, key=self._score)
        for runner in judged:
            ahead, error = self.gain_over(leader, runner)
            if runner.runs and ahead > (1.0 + self._margin(done)) * at_least_usual(error):
                runner.fall_behind(done, total)

    def _margin(self, done: int) -> float:
        """Return the standard errors by which a candidate must be behind after some folds."""
        assert self.race is not None
        splits = len(self.race.masks) // len(self.race.folds)
        return _MARGIN_WITHIN if done < splits else _MARGIN_AFTER

    # -------------------------------------------------------------- results

    def gain_over_no_pairs(self) -> tuple[float, float]:
        """Return the gain of the choice over the best candidate without pairs, and its error."""
        without = [
            runner
            for runner in self.runners
            if runner.judged and runner.n_clusters == self.best.n_clusters and not runner.uses_pairs
        ]
        if not self.best.judged or not without:
            return math.nan, math.nan
        return self.gain_over(self.best, max(without, key=self._score))

    @property
    def stopped(self) -> Stopped:
        """The reason why some fits were not made, beside a lag; empty if there is none."""
        if self.race is not None and self.race.interrupted:
            return "interrupted"
        return "time limit" if any(runner.out_of_time for runner in self.runners) else ""

    def reason(self) -> str:
        """Return why the candidate of the best score is not chosen; empty if it is."""
        rows = [row for row in self.expected if self.runners[row].judged]
        if not rows or self.race is None:
            return ""
        sentences = [self._of_number] if self._of_number else []
        top = self.runners[max(rows, key=lambda row: (self._score(self.runners[row]), -row))]
        if self._score(top) > self._score(self.best):
            sentences.append(self._reason_against(top, rows))
        return " ".join(sentences)

    def _reason_against(self, top: Runner, rows: Sequence[int]) -> str:
        """Return why the best score does not decide."""
        every = [self.shares(self.runners[row]) for row in rows]
        ahead, error = self.gain_over(top, self.best)
        if is_chance([shares for shares in every if shares is not None], self.group):
            return (
                f"{top.name} has the best score, {self._score(top):.2f}, but no score is clearly "
                "above chance, so the simplest candidate was chosen."
            )
        if top.behind:
            return (
                f"{top.name} has the best score, {self._score(top):.2f}, but on some of the pairs "
                f"only: in expected gain it was {top.cut}."
            )
        lead = f"{top.name} has the best score, by {ahead:.2f} with a standard error of {error:.2f}"
        return (
            f"{lead}. Before pairs are seen, {self.best.name} is expected to gain "
            f"{self.best.prior_gain:.2f} and {top.name} {top.prior_gain:.2f}, as on other data; "
            "taken together, the choice is expected to be better."
        )

    def table(self) -> Any:
        """Return the data frame of `cv_results_`."""
        import pandas as pd

        entries = []
        for at, runner in enumerate(self.runners):
            params = {"candidate": runner.name, "n_clusters": runner.n_clusters}
            entry: dict[str, Any] = {**params, "params": params}
            shares = self.shares(runner)
            if shares is not None:
                alike = [r for r in self.runners if r.n_clusters == runner.n_clusters and r.judged]
                best = max(alike, key=lambda other: self._score_beside(other, runner))
                behind, error = self.gain_over(best, runner)
                entry |= {
                    "mean_test_score": shares.score,
                    "standard_error": shares.error(self.group),
                    "expected_gain": self.expected.get(at, math.nan),
                    "behind_best": behind,
                    "behind_best_error": error,
                    "must_link_kept": _mean(shares.must),
                    "cannot_link_kept": _mean(shares.cannot),
                }
            seconds = _mean(np.array(runner.seconds))
            entry |= {"mean_fit_time": seconds, "n_fits": len(runner.fits)}
            entries.append(entry | {"cut": runner.cut, "failure": runner.failure})
        table = pd.DataFrame(entries).reindex(columns=list(_COLUMNS))
        table["rank_test_score"] = (
            table["mean_test_score"].rank(method="min", ascending=False).astype("Int64")
        )
        return table

    def _score_beside(self, runner: Runner, other: Runner) -> float:
        """Return the score of a candidate on the pairs that judge the other, too."""
        shares = self.shares(runner, other)
        return -math.inf if shares is None else shares.score


def _mean(values: Any) -> float:
    """Return the mean, NaN without values."""
    return float(values.mean()) if values.size else math.nan


def _watch_failures(runners: Sequence[Runner]) -> None:
    """Warn of failed candidates; raise an error if all failed."""
    failed = [runner for runner in runners if runner.failure]
    if not any(runner.judged for runner in runners):
        first = (failed or list(runners))[0]
        raise ValueError(
            f"no candidate could be fitted; {first.name}: {first.failure or first.cut}"
        )
    if failed:
        warn(
            "left out: " + "; ".join(f"{runner.name} ({runner.failure})" for runner in failed),
        )
