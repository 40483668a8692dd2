"""What the sections of a report share: the order of the solvers, and means over problems."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted, listed
from inference_lab.reporting.results import Results, facts_of, natural
from inference_lab.reporting.statistics import shifted_geometric_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BAND", "Analysis"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Quantiles of the bands.
BAND = (0.25, 0.75)

#: At most so many problems that are left out of a mean are named.
_NAMED = 5


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
    def _runs(self) -> pd.DataFrame:
        """A line for each run: the numbers of its problem and solver, and its results."""
        import pandas as pd

        results = self.results
        return pd.DataFrame(
            {
                "problem": results.problem,
                "solver": results.solver,
                "primal": results.primal_gap,
                "best": 100.0 * results.best,
                "proved": 100.0 * np.isfinite(results.proof_seconds),
                "charged": results.charged_seconds,
                "regret": results.regret,
                "failed": results.failed,
                "unsupported": results.unsupported,
                "accuracy": _or_nan(r.accuracy for r in results.records),
                "pairwise": _or_nan(r.pairwise_f for r in results.records),
            }
        )

    @cached_property
    def _gaps(self) -> pd.Series[float]:
        """Gaps to the best bounds in percent, by problem and solver, where they are known."""
        import pandas as pd

        rows = {(row.problem, row.solver): row.gap_percent for row in self.results.comparison.rows}
        found = {
            (p, s): rows.get((problem.name, solver))
            for p, problem in enumerate(self.results.problems)
            for s, solver in enumerate(self.results.solvers)
        }
        return pd.Series(found, dtype=np.float64).rename_axis(["problem", "solver"]).dropna()

    def summary(self, problems: IntArray) -> pd.DataFrame:
        """Return the means over some problems, given by their numbers: a line for each solver.

        Columns
        -------
        runs, problems
            Runs, and problems that the solver was run on.
        primal
            Primal gap in percent, mean over problems of medians over draws.
        gap, gaps
            Gap to the best bound in percent, mean over the problems on which it is known, and
            their number.
        best, proved
            Percent of runs that found the best energy known, that proved their answer.
        regret
            Energy above the best known, in weights of a violated constraint: mean over the runs on
            problems that tell their weight.
        seconds
            Shifted geometric mean over runs of the seconds that they are charged.
        failed, unsupported
            Numbers of runs.
        accuracy, pairwise
            Means over the runs that have them; NaN where none has.
        """
        import pandas as pd

        runs = self._runs[self._runs["problem"].isin(problems)]
        by = runs.groupby("solver")
        typical = runs.groupby(["solver", "problem"])["primal"].median()
        gaps = self._gaps[self._gaps.index.isin(problems, level="problem")].groupby("solver")
        mean = partial(shifted_geometric_mean, shift=self.shift)
        solvers = range(len(self.results.solvers))

        def mean_of(name: str) -> FloatArray:
            known = runs[runs[name].notna()]
            total = np.bincount(known["solver"], known[name], len(solvers))
            with np.errstate(invalid="ignore"):
                return np.asarray(total / np.bincount(known["solver"], minlength=len(solvers)))

        counts = pd.DataFrame(
            {
                "runs": by.size(),
                "problems": by["problem"].nunique(),
                "gaps": gaps.size(),
                "failed": by["failed"].sum(),
                "unsupported": by["unsupported"].sum(),
            }
        )
        found = {
            "primal": typical.groupby("solver").mean(),
            "gap": gaps.mean(),
            "seconds": by["charged"].agg(mean),
            # 55 is not to be 55.00000000000001.
            **{name: pd.Series(mean_of(name).round(10)) for name in ("best", "proved")},
            **{name: pd.Series(mean_of(name)) for name in ("regret", "accuracy", "pairwise")},
        }
        numbers = pd.DataFrame(found).reindex(solvers)
        return counts.reindex(solvers).fillna(0).astype(int).join(numbers)

    @cached_property
    def total(self) -> pd.DataFrame:
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
        taking_part = (self.total.unsupported < self.total.runs).to_numpy()[self.everyone]
        return self.everyone[taking_part] if taking_part.any() else self.everyone

    @cached_property
    def labels(self) -> list[str]:
        """The specs of the solvers in `order`."""
        return [self.results.solvers[s] for s in self.order]

    @cached_property
    def ranked(self) -> IntArray:
        """Those of `order` that refused nothing: a refusal is no rank."""
        taking_part: IntArray = self.order[self.total.unsupported.to_numpy()[self.order] == 0]
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
