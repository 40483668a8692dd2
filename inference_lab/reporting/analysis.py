"""What the sections of a report share: the order of the solvers, and means over problems."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted, listed
from inference_lab.reporting.results import Results, facts_of, natural
from inference_lab.reporting.statistics import median, shifted_geometric_mean
from inference_lab.results.summaries import Row

__all__ = ["BAND", "Analysis", "Summary"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Quantiles of the bands.
BAND = (0.25, 0.75)

#: At most so many problems that are left out of a mean are named.
_NAMED = 5


@dataclass(frozen=True)
class Summary:
    """Solvers over a set of problems: one entry a solver in each array.

    Attributes
    ----------
    runs, problems : (k,) int64 arrays
        Runs, and problems that the solver was run on.
    primal : (k,) float64 array
        Primal gap in percent, mean over problems of medians over draws.
    gap : (k,) float64 array
        Gap to the best bound in percent, mean over the problems on which it is known.
    gaps : (k,) int64 array
        Number of the latter.
    best, proved : (k,) float64 arrays
        Percent of runs that found the best energy known, that proved their answer.
    regret : (k,) float64 array
        Energy above the best known, in weights of a violated constraint: mean over the runs on
        problems that tell their weight.
    seconds : (k,) float64 array
        Shifted geometric mean over runs of the seconds that they are charged.
    failed, unsupported : (k,) int64 arrays
    accuracy, pairwise : (k,) float64 arrays
        Means over the runs that have them; NaN where none has.
    """

    runs: IntArray
    problems: IntArray
    primal: FloatArray
    gap: FloatArray
    gaps: IntArray
    best: FloatArray
    proved: FloatArray
    regret: FloatArray
    seconds: FloatArray
    failed: IntArray
    unsupported: IntArray
    accuracy: FloatArray
    pairwise: FloatArray


@dataclass(frozen=True)
class Analysis:
    """Results, with what several sections need of them."""

    results: Results
    targets: tuple[float, ...]
    given_times: tuple[float, ...]
    shift: float
    blocks: str | None = None

    @cached_property
    def classes(self) -> list[str]:
        """The classes of the problems."""
        return sorted(set(self.results.class_of), key=natural)

    @property
    def several(self) -> bool:
        """Whether there is more than one problem."""
        return len(self.results.problems) > 1

    @cached_property
    def proved_problems(self) -> int:
        """Number of problems of which the best energy is proved, by whomever."""
        return sum(
            p.proves(p.best_energy, p.best_bound) or p.best_energy == p.best_bound == math.inf
            for p in self.results.problems
        )

    # ------------------------------------------------------------------ means

    @cached_property
    def _spread(self) -> dict[str, FloatArray]:
        """Numbers of shape (problems, solvers, draws), NaN where there is no run."""
        results = self.results
        return {
            "primal": results.spread(results.primal_gap),
            "best": results.spread(results.best),
            "proved": results.spread(np.isfinite(results.proof_seconds)),
            "charged": results.spread(results.charged_seconds),
            "regret": results.spread(results.regret),
            "failed": results.spread(results.failed),
            "unsupported": results.spread(results.unsupported),
            "accuracy": results.spread(_or_nan(r.accuracy for r in results.records)),
            "pairwise": results.spread(_or_nan(r.pairwise_f for r in results.records)),
        }

    @cached_property
    def _gaps(self) -> FloatArray:
        """Gaps to the best bounds in percent, of shape (problems, solvers)."""
        results = self.results
        rows: dict[tuple[str, str], Row] = {
            (row.problem, row.solver): row for row in results.comparison.rows
        }
        gaps = [
            [
                row.gap_percent if (row := rows.get((p.name, s))) is not None else None
                for s in results.solvers
            ]
            for p in results.problems
        ]
        return np.array(gaps, dtype=np.float64).reshape(results.shape[:2])

    def summary(self, problems: IntArray) -> Summary:
        """Return the means over some problems, given by their numbers."""
        part = {name: array[problems] for name, array in self._spread.items()}
        present = ~np.isnan(part["primal"])
        runs = present.sum(axis=(0, 2))
        gaps = self._gaps[problems]
        known = np.isfinite(gaps)

        def mean(total: FloatArray, count: IntArray) -> FloatArray:
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)

        def total(name: str) -> FloatArray:
            summed: FloatArray = np.nansum(part[name], axis=(0, 2))
            return summed

        typical = median(part["primal"])
        return Summary(
            runs=runs,
            problems=present.any(axis=2).sum(axis=0),
            primal=mean(np.nansum(typical, axis=0), (~np.isnan(typical)).sum(axis=0)),
            gap=mean(np.where(known, gaps, 0.0).sum(axis=0), known.sum(axis=0)),
            gaps=known.sum(axis=0),
            best=np.round(mean(100.0 * total("best"), runs), 10),
            proved=np.round(mean(100.0 * total("proved"), runs), 10),
            regret=mean(total("regret"), (~np.isnan(part["regret"])).sum(axis=(0, 2))),
            seconds=np.array(
                [
                    shifted_geometric_mean(part["charged"][:, s], self.shift)
                    for s in range(len(self.results.solvers))
                ]
            ),
            failed=total("failed").astype(np.int64),
            unsupported=total("unsupported").astype(np.int64),
            accuracy=mean(total("accuracy"), (~np.isnan(part["accuracy"])).sum(axis=(0, 2))),
            pairwise=mean(total("pairwise"), (~np.isnan(part["pairwise"])).sum(axis=(0, 2))),
        )

    @cached_property
    def total(self) -> Summary:
        """The means over all problems."""
        return self.summary(np.arange(len(self.results.problems)))

    # ------------------------------------------------------------------ the solvers

    @cached_property
    def everyone(self) -> IntArray:
        """The solvers in the order of the tables: closest to the best first, then fastest."""
        keys = [np.nan_to_num(v, nan=np.inf) for v in (self.total.seconds, self.total.primal)]
        return np.lexsort((np.round(keys[0], 9), np.round(keys[1], 6)))

    @cached_property
    def order(self) -> IntArray:
        """Those that did not refuse every problem: there is nothing to compare of the others."""
        taking_part = (self.total.unsupported < self.total.runs)[self.everyone]
        return self.everyone[taking_part] if taking_part.any() else self.everyone

    @cached_property
    def labels(self) -> list[str]:
        """The specs of the solvers in `order`."""
        return [self.results.solvers[s] for s in self.order]

    @cached_property
    def ranked(self) -> IntArray:
        """Those of `order` that refused nothing: a refusal is no rank."""
        taking_part: IntArray = self.order[self.total.unsupported[self.order] == 0]
        return taking_part

    # ------------------------------------------------------------------ problems in common

    @cached_property
    def block_of(self) -> list[str]:
        """The block of each problem; a problem that does not tell its block is one by itself."""
        return [
            record.problem if self.blocks is None else str(facts_of(record).get(self.blocks, at))
            for at, record in enumerate(self.results.problem_records)
        ]

    def run_by(self, solvers: IntArray) -> IntArray:
        """Return the numbers of the problems that some solvers were all run on."""
        common: IntArray = np.flatnonzero(self.results.run[:, solvers].all(axis=1))
        return common

    @cached_property
    def complete(self) -> IntArray:
        """The numbers of the problems that each solver of `order` was run on."""
        return self.run_by(self.order)

    @property
    def incomplete(self) -> bool:
        """Whether one of these solvers was not run on one of the problems."""
        return len(self.complete) < len(self.results.problems)

    @property
    def basis(self) -> str:
        """On which problems statistics over the `complete` ones rest, in words."""
        return self.resting_on(self.complete)

    def resting_on(self, complete: IntArray) -> str:
        """Return in words which problems these are, which solvers were all run on."""
        results = self.results
        n = len(results.problems)
        if len(complete) == n:
            return "the one problem" if n == 1 else f"all {n:,} problems"
        there = set(complete.tolist())
        names = [p.name for number, p in enumerate(results.problems) if number not in there]
        told = f"the {len(there):,} of {counted(n, 'problem')} that all these solvers were run on"
        return told if len(names) > _NAMED else f"{told} (not {listed(names)})"

    # ------------------------------------------------------------------ time

    @cached_property
    def times(self) -> list[float]:
        """The seconds at which the quality is told, ascending."""
        if self.given_times:
            return sorted(self.given_times)
        seconds = self.results.seconds[self.results.seconds > 0]
        if not seconds.size:
            return []
        # Powers of ten within the times that runs took, six at most; none beyond the time limit,
        # without one none beyond the longest time.
        longest = float(seconds.max())
        limits = [r.time_limit for r in self.results.records]
        end = max((longest if limit is None else limit for limit in limits), default=longest)
        # The logarithm of a power of ten may be a little less than whole.
        last = math.floor(math.log10(end) + 1e-9)
        high = max(-6, min(math.ceil(math.log10(longest)), last))
        low = min(high, max(-6, math.floor(math.log10(float(np.quantile(seconds, 0.05))))))
        return [10.0**e for e in range(max(low, high - 5), high + 1)]


def _or_nan(values: Iterable[float | None]) -> FloatArray:
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)
