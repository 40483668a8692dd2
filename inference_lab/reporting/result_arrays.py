"""The records of a comparison as arrays over problems, solvers, and seeds and repeats.

The module also holds the order of the solvers and the means over problems that sections share.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted, listed
from inference_lab.reporting.statistics import primal_gap_percent, shifted_geometric_mean
from inference_lab.reporting.traces import Traces, target_energy
from inference_lab.results.analysis import Findings
from inference_lab.results.records import STANDARD_SCORES, Record
from inference_lab.results.summaries import CONTRADICTION_TOLERANCE, ProblemSummary
from inference_lab.specs.grammar import SpecError, parse_spec, plain_value

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Seconds added in shifted geometric means: small, because E-steps take milliseconds.
SHIFT = 0.001

#: Target primal gaps, in percent; the first is the target of the profiles.
TARGETS = (1.0, 0.1, 0.0)

#: Quantiles of the bands.
BAND = (0.25, 0.75)

#: Largest number of problems listed by name as left out of a mean.
_NAMED = 5


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return a sort key under which numbers in a text count as numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((1, float(p), p) if at % 2 else (0, 0.0, p) for at, p in enumerate(parts))


def problem_class(record: Record, entry: str | None = None) -> str:
    """Return the class of the problem of a run.

    By default this is the entry ``class`` of the problem's info, or else the family of the problem:
    its name up to the first parenthesis. With `entry`, it is this entry, by default ``"other"``.
    """
    if entry is not None:
        return str(record.problem_info.get(entry, "other"))
    label = record.problem_info.get("class")
    return str(label) if label is not None else record.problem.partition("(")[0]


def facts_of(record: Record) -> dict[str, Any]:
    """Return the facts of the problem of a run: the settings of its spec, then its info."""
    try:
        settings = parse_spec(record.problem).settings
    except SpecError:
        settings = {}
    facts = {name: plain_value(raw) for name, raw in settings.items() if raw is not None}
    return {"problem": record.problem, **facts, **record.problem_info}


@dataclass(frozen=True)
class ResultArrays:
    """The records of a comparison as a frame, and as arrays of shape (problems, solvers)."""

    comparison: Findings
    #: See `problem_class`.
    class_entry: str | None = None
    #: Primal gaps in percent, and times in seconds, at which time and quality are reported.
    targets: tuple[float, ...] = TARGETS
    given_times: tuple[float, ...] = ()
    #: Fact of a problem that names its block.
    blocks: str | None = None

    @property
    def records(self) -> list[Record]:
        """All runs, in the order of the comparison."""
        return self.comparison.records

    @property
    def problems(self) -> list[ProblemSummary]:
        """The problems, in the order of the comparison."""
        return self.comparison.problems

    @cached_property
    def solvers(self) -> list[str]:
        """Spec strings of the solvers, in the order of the comparison."""
        return list(dict.fromkeys(r.solver for r in self.records))

    @cached_property
    def problem_records(self) -> list[Record]:
        """The first record of each problem, which holds its description."""
        return [runs[0] for runs in self.comparison.by_problem.values()]

    @cached_property
    def class_of(self) -> list[str]:
        """The class of each problem."""
        return [problem_class(record, self.class_entry) for record in self.problem_records]

    @cached_property
    def _places(self) -> tuple[IntArray, IntArray]:
        """The indices of each record's problem and solver."""
        problems = {key: number for number, key in enumerate(self.comparison.by_problem)}
        solvers = {spec: number for number, spec in enumerate(self.solvers)}
        places = [(problems[r.problem, r.problem_hash], solvers[r.solver]) for r in self.records]
        problem, solver = np.array(places, dtype=np.int64).reshape(-1, 2).T
        return problem, solver

    # ------------------------------------------------------------------ one number per record

    @cached_property
    def traces(self) -> Traces:
        """The step functions of the runs."""
        return Traces(self.records)

    @cached_property
    def reference(self) -> FloatArray:
        """The best known energy of each problem: found by a run, or a known optimum."""
        return np.array([problem.known_energy for problem in self.problems], dtype=np.float64)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each record, with the indices of its problem and solver.

        Seconds are the solver's own. Regret is NaN where the problem has no constraint weight.
        Proofs refuted by another run's labelling do not count: they take ``inf`` seconds.
        """
        import pandas as pd

        problem, solver = self._places
        reference = self.reference[problem]
        names = ("energy", "seconds", "time_limit", "accuracy", "pairwise_f", "failed", "answered")
        runs = pd.DataFrame(
            {
                "problem": problem,
                "solver": solver,
                **{name: [getattr(r, name) for r in self.records] for name in names},
                "unsupported": [r.refused for r in self.records],
                # Whether the run proves, without contradiction, that no labelling is feasible.
                "infeasible": [r.status == "infeasible" for r in self.records],
                "weight": [r.problem_info.get("weight") for r in self.records],
            }
        ).astype(dict.fromkeys(("accuracy", "pairwise_f", "time_limit"), np.float64))
        runs["infeasible"] &= ~np.isfinite(reference)
        runs["energy"] = runs["energy"].fillna(np.inf)
        runs["seconds"] = runs["seconds"].clip(lower=0.0)
        gap = primal_gap_percent(runs["energy"], reference)
        runs["primal_gap"] = np.where(runs["infeasible"], 0.0, gap)
        # The run found the best known energy, or proved infeasibility.
        runs["best"] = runs["primal_gap"] == 0.0
        weight = np.array(
            [w if isinstance(w, float) and 0 < w < np.inf else np.nan for w in runs.pop("weight")],
            dtype=np.float64,
        )
        with np.errstate(invalid="ignore", over="ignore"):
            above = (runs["energy"].to_numpy() - reference) / weight
            slack = CONTRADICTION_TOLERANCE * np.maximum(1.0, np.abs(reference))
            refuted = runs["energy"] > reference + slack
        above = np.where(np.isfinite(above), above, np.nan)
        runs["regret"] = np.where(runs["best"], 0.0 * weight, above)
        proof = np.where(refuted, np.inf, self.traces.time_to_proof())
        runs["proof_seconds"] = np.where(runs["infeasible"], runs["seconds"], proof)
        # Charged where no answer or target is reached: the time limit, or the run's own time if
        # that is longer. Without a limit, it is the longest time of any run of the comparison.
        longest = float(runs["seconds"].max()) if len(runs) else 0.0
        runs["full_seconds"] = np.maximum(runs["time_limit"].fillna(longest), runs["seconds"])
        nothing = runs["failed"] | runs["unsupported"] | ~runs["answered"]
        runs["charged_seconds"] = runs["seconds"].mask(nothing, runs["full_seconds"])
        return runs

    def of(self, name: str) -> npt.NDArray[Any]:
        """Return a column of `runs`."""
        return self.runs[name].to_numpy()

    def target_seconds(self, percent: float) -> FloatArray:
        """Return the time at which each record first reached a primal gap, ``inf`` if it never did.

        For an infeasible problem, the target is the proof of infeasibility.
        """
        targets = target_energy(self.reference, percent)
        times = self.traces.time_to_target(targets[self.of("problem")])
        return np.where(self.of("infeasible"), self.of("seconds"), times)

    def solved_seconds(self, percent: float) -> FloatArray:
        """Return the time at which each record reached a primal gap or proved its answer."""
        solved: FloatArray = np.minimum(self.target_seconds(percent), self.of("proof_seconds"))
        return solved

    def observations(self) -> pd.DataFrame:
        """Return the facts and metrics of each run, for contrasts."""
        import pandas as pd

        facts = [facts_of(record) for record in self.problem_records]
        outcomes = self.runs.assign(seconds=self.runs["charged_seconds"])
        outcomes = outcomes[["energy", "primal_gap", "regret", "seconds"]]
        rows = []
        for problem, r, values in zip(
            self.of("problem"), self.records, outcomes.to_dict("records"), strict=True
        ):
            scores = {**{name: getattr(r, name) for name in STANDARD_SCORES}, **r.scores}
            numbers = {k: float(v) for k, v in scores.items() if isinstance(v, int | float)}
            names = {"cell": (r.problem, r.problem_hash, r.seed, r.repeat), "solver": r.solver}
            rows.append({**facts[problem], **numbers, **values, **names})
        return pd.DataFrame(rows)

    # ------------------------------------------------------------------ one number per cell

    def typical(self, values: npt.ArrayLike) -> FloatArray:
        """Return medians of one number per record, of shape (problems, solvers), NaN without."""
        import pandas as pd

        numbers = pd.Series(np.asarray(values, dtype=np.float64))
        medians = numbers.groupby([*self._places]).median().unstack()
        rows, columns = range(len(self.problems)), range(len(self.solvers))
        return medians.reindex(index=rows, columns=columns).to_numpy()

    @cached_property
    def run(self) -> BoolArray:
        """Which solver was run on which problem, of shape (problems, solvers)."""
        done: BoolArray = np.isfinite(self.typical(np.ones(len(self.records))))
        return done

    @cached_property
    def classes(self) -> list[str]:
        """The classes of the problems."""
        return sorted(set(self.class_of), key=natural)

    @property
    def several(self) -> bool:
        """Whether there is more than one problem."""
        return len(self.problems) > 1

    @cached_property
    def proved_problems(self) -> int:
        """Number of problems whose best energy is proved, by any run or a known optimum."""
        return sum(p.is_proved for p in self.problems)

    # ------------------------------------------------------------------ means

    @cached_property
    def _gaps(self) -> pd.Series[float]:
        """Gaps to the best bounds in percent, by problem and solver, where they are known."""
        import pandas as pd

        problems = {problem.name: number for number, problem in enumerate(self.problems)}
        solvers = {spec: number for number, spec in enumerate(self.solvers)}
        rows = self.comparison.rows
        gaps = {(problems[row.problem], solvers[row.solver]): row.gap_percent for row in rows}
        return pd.Series(gaps, dtype=np.float64).rename_axis(["problem", "solver"]).dropna()

    def summary(self, problems: IntArray) -> pd.DataFrame:
        """Return the means over the problems with these indices, one row for each solver.

        Gaps are means over problems, and seconds are shifted geometric means over runs. All other
        numbers are means over the runs that have them.
        """
        import pandas as pd

        runs = self.runs[self.runs["problem"].isin(problems)]
        runs = runs.assign(proved=np.isfinite(runs["proof_seconds"]))
        by = runs.groupby("solver")
        typical = runs.groupby(["solver", "problem"])["primal_gap"].median()
        gaps = self._gaps[self._gaps.index.isin(problems, level="problem")].groupby("solver")
        mean = partial(shifted_geometric_mean, shift=SHIFT)
        solvers = range(len(self.solvers))

        def mean_of(name: str) -> FloatArray:
            rows = runs[runs[name].notna()]
            total = np.bincount(rows["solver"], rows[name], len(solvers))
            with np.errstate(invalid="ignore"):
                return np.asarray(total / np.bincount(rows["solver"], minlength=len(solvers)))

        counts = pd.DataFrame(
            {
                "runs": by.size(),
                "problems": by["problem"].nunique(),
                "gaps": gaps.size(),
                "failed": by["failed"].sum(),
                "unsupported": by["unsupported"].sum(),
            }
        )
        means = {
            "primal": typical.groupby("solver").mean(),
            "gap": gaps.mean(),
            "seconds": by["charged_seconds"].agg(mean),
            # Rounded, because 55 must not appear as 55.00000000000001.
            "best": pd.Series((100.0 * mean_of("best")).round(10)),
            "proved": pd.Series((100.0 * mean_of("proved")).round(10)),
            **{name: pd.Series(mean_of(name)) for name in ("regret", "accuracy", "pairwise_f")},
        }
        numbers = pd.DataFrame(means).reindex(solvers)
        return counts.reindex(solvers).fillna(0).astype(int).join(numbers)

    @cached_property
    def total(self) -> pd.DataFrame:
        """The means over all problems."""
        return self.summary(np.arange(len(self.problems)))

    # ------------------------------------------------------------------ the solvers

    @cached_property
    def everyone(self) -> IntArray:
        """All solvers in the order of the tables: by mean primal gap, then by mean time."""
        keys = [np.nan_to_num(v, nan=np.inf) for v in (self.total.seconds, self.total.primal)]
        return np.lexsort((np.round(keys[0], 9), np.round(keys[1], 6)))

    @cached_property
    def order(self) -> IntArray:
        """The solvers, in order, without those that refused every problem (unless all did)."""
        taking_part = (self.total.unsupported < self.total.runs).to_numpy()[self.everyone]
        return self.everyone[taking_part] if taking_part.any() else self.everyone

    @cached_property
    def labels(self) -> list[str]:
        """The specs of the solvers in `order`."""
        return [self.solvers[s] for s in self.order]

    @cached_property
    def ranked(self) -> IntArray:
        """The solvers of `order` that refused no run, because a refused run has no rank."""
        taking_part: IntArray = self.order[self.total.unsupported.to_numpy()[self.order] == 0]
        return taking_part

    # ------------------------------------------------------------------ problems in common

    @cached_property
    def block_of(self) -> list[str]:
        """The block of each problem; a problem without this fact is a block of its own."""
        return [
            record.problem if self.blocks is None else str(facts_of(record).get(self.blocks, at))
            for at, record in enumerate(self.problem_records)
        ]

    def run_by(self, solvers: IntArray) -> IntArray:
        """Return the indices of the problems that all of these solvers were run on."""
        common: IntArray = np.flatnonzero(self.run[:, solvers].all(axis=1))
        return common

    @cached_property
    def complete(self) -> IntArray:
        """The indices of the problems that each solver of `order` was run on."""
        return self.run_by(self.order)

    @property
    def incomplete(self) -> bool:
        """Whether one of these solvers was not run on one of the problems."""
        return len(self.complete) < len(self.problems)

    @property
    def basis(self) -> str:
        """The problems behind the statistics over the `complete` ones, in words."""
        return self.resting_on(self.complete)

    def resting_on(self, complete: IntArray) -> str:
        """Return a description of these problems, on which all of the solvers were run."""
        n = len(self.problems)
        if len(complete) == n:
            return "the one problem" if n == 1 else f"all {n:,} problems"
        there = set(complete.tolist())
        names = [p.name for number, p in enumerate(self.problems) if number not in there]
        scope = f"the {len(there):,} of {counted(n, 'problem')} that all these solvers were run on"
        return scope if len(names) > _NAMED else f"{scope} (not {listed(names)})"

    # ------------------------------------------------------------------ time

    @cached_property
    def times(self) -> list[float]:
        """The times in seconds at which quality is reported, ascending."""
        if self.given_times:
            return sorted(self.given_times)
        seconds = self.of("seconds")[self.of("seconds") > 0]
        if not seconds.size:
            return []
        # At most six powers of ten within the times of the runs. None exceeds the time limit, or
        # without a limit the longest time.
        longest = float(seconds.max())
        limits = [r.time_limit for r in self.records]
        end = max((longest if limit is None else limit for limit in limits), default=longest)
        # The small term is added because the logarithm of a power of ten may be just below an
        # integer.
        last = math.floor(math.log10(end) + 1e-9)
        high = max(-6, min(math.ceil(math.log10(longest)), last))
        low = min(high, max(-6, math.floor(math.log10(float(np.quantile(seconds, 0.05))))))
        return [10.0**e for e in range(max(low, high - 5), high + 1)]
