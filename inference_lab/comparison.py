"""What records of runs say: gaps to the best bound known, proofs, contradictions, aggregates.

A `Comparison` is made of records alone, those that `inference_lab.compare` returns or those that
files hold; everything it says follows from them.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from inference_lab.contract import proves
from inference_lab.records import Record, RecordStore, jsonable

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

__all__ = [
    "Comparison",
    "ProblemSummary",
    "Row",
    "SolverSummary",
    "environment_id",
    "gap_percent",
    "latest",
]

#: A bound above an energy by more than this relative distance is a contradiction, not rounding.
CONTRADICTION_TOLERANCE = 1e-6

#: A share of failed runs above this is a warning.
FAILURE_SHARE = 0.1

#: Statuses of runs that ended by themselves, so that the same seed must give the same again.
_ENDED = ("converged", "optimal", "infeasible")

#: A warning names at most this many of what it is about.
_NAMED = 5

_S = TypeVar("_S")


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each `Record.key`, in the order in which the keys first appear.

    A store is only ever appended to, so a run that was done anew has several records in it, of
    which the last one counts.

    Examples
    --------
    >>> asked = dict(problem="p", problem_hash="", n_variables=1, n_edges=0, n_factors=0,
    ...              n_labels=2, solver="icm", solver_name="icm", seed=0)
    >>> [r.status for r in latest([Record(**asked, status="error"),
    ...                            Record(**asked, status="converged")])]
    ['converged']
    """
    return list({record.key: record for record in records}.values())


def environment_id(record: Record) -> str:
    """Return what tells the environment of a run from others: its ``id``, or all of it."""
    given = record.environment.get("id")
    if given is not None:
        return str(given)
    return json.dumps(record.environment, sort_keys=True)


def gap_percent(energy: float, bound: float) -> float | None:
    """Return ``100 (energy - bound) / max(|energy|, 1e-12)``; None where either is infinite.

    Zero where the two agree as closely as `inference_lab.contract.proves` asks.
    """
    if not (math.isfinite(energy) and math.isfinite(bound)):
        return None
    if proves(energy, bound) and bound - energy <= _slack(energy):
        return 0.0
    return 100.0 * (energy - bound) / max(abs(energy), 1e-12)


def _slack(energy: float) -> float:
    return CONTRADICTION_TOLERANCE * max(1.0, abs(energy))


@dataclass(frozen=True)
class ProblemSummary:
    """What all runs together say about one problem.

    Attributes
    ----------
    name, hash
    n_variables, n_edges, n_factors, n_labels
    best_energy, best_energy_by
        The lowest energy found, and the solver that found it first in the order of the runs.
    best_bound, best_bound_by
        The largest lower bound, the known optimum included, and where it is from.
    optimum, truth_energy
        As in `Record`.
    gap_percent
        Of the best energy to the best bound; None where either is infinite.
    """

    name: str
    hash: str
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    best_energy: float
    best_energy_by: str
    best_bound: float
    best_bound_by: str
    optimum: float | None
    truth_energy: float | None
    gap_percent: float | None


@dataclass(frozen=True)
class Row:
    """One solver on one problem, over all seeds.

    Attributes
    ----------
    problem, solver : str
    runs, failed, unsupported, answered : int
        Number of runs, of those that ended in an error, that the method does not cover, and that
        gave a labelling of finite energy (or a proof of infeasibility).
    energy, energy_min, energy_max : float
        Median and range over the runs that found a labelling; ``inf`` if none did.
    gap_percent : float or None
        Of the median energy to the best bound known for the problem, by whomever.
    lower_bound : float
        The solver's own, median over the runs.
    proved : int
        Runs whose energy is proved optimal, by their own bound or the best known.
    proved_by : str
        ``"yes"`` if each run's own bound proves its energy, ``"by NAME"`` if another's does,
        ``"k/n"`` if only some are proved, ``"no"``.
    best : int
        Runs that found the best energy known.
    seconds, total_seconds : float
        Median and sum of the solver's time over the runs that neither failed nor were refused.
    accuracy, pairwise_f, nmi, ari : float or None
        Means.
    scores : mapping
        Means of the problem's own scores, over the runs that have them.
    log_partition : float or None
        Median estimate, and in `log_partition_kind` what it is.
    status : str
        Of all runs; ``"3 limit, 1 error"`` where they differ.
    messages : tuple of str
        Why runs failed or were refused, each reason once.
    """

    problem: str
    solver: str
    runs: int
    failed: int
    unsupported: int
    answered: int
    energy: float
    energy_min: float
    energy_max: float
    gap_percent: float | None
    lower_bound: float
    proved: int
    proved_by: str
    best: int
    seconds: float | None
    total_seconds: float
    accuracy: float | None
    pairwise_f: float | None
    nmi: float | None
    ari: float | None
    scores: Mapping[str, float]
    log_partition: float | None
    log_partition_kind: str | None
    status: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class SolverSummary:
    """One solver over all problems and seeds.

    Attributes
    ----------
    solver : str
    problems, runs : int
    mean_gap_percent : float or None
        Mean over the `gaps` problems on which the gap is known.
    gaps : int
    percent_best : float
        Share of all runs that found the best energy known.
    percent_proved : float
        Share of all runs whose energy is proved optimal by their own bound.
    median_seconds : float or None
        Over all runs that neither failed nor were refused.
    total_seconds : float
    failed, unsupported : int
    """

    solver: str
    problems: int
    runs: int
    mean_gap_percent: float | None
    gaps: int
    percent_best: float
    percent_proved: float
    median_seconds: float | None
    total_seconds: float
    failed: int
    unsupported: int


def _mean(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None and not math.isnan(v)]
    return statistics.fmean(present) if present else None


def _mean_scores(records: list[Record]) -> dict[str, float]:
    names = dict.fromkeys(name for record in records for name in record.scores)
    means = {}
    for name in names:
        given = [r.scores[name] for r in records if isinstance(r.scores.get(name), int | float)]
        mean = _mean(given)
        if mean is not None:
            means[name] = mean
    return means


def _median(values: Iterable[float]) -> float | None:
    present = list(values)
    return float(statistics.median(present)) if present else None


def _grouped(records: Iterable[Record], key: Callable[[Record], _S]) -> dict[_S, list[Record]]:
    groups: dict[_S, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


class Comparison:
    """Records of runs, and what follows from them.

    Parameters
    ----------
    records : iterable of Record
        Of `compare`; all of them count. For the records of a store, in which runs may have been
        done anew, see `of_store`.
    superseded : iterable of Record
        Runs that were done anew. They only take part in the check that one seed gives one answer.

    Attributes
    ----------
    records, superseded : list of Record
    alarms : list of str
        Contradictions: a bound above an energy, a claim that differs from the evaluation, runs
        of one seed that end at different energies. A comparison with alarms must not be believed
        before they are explained.
    warnings : list of str
        What makes the comparison less than fair or complete, such as runs that are missing.
    problems : list of ProblemSummary
    rows : list of Row
        One a problem and solver.
    solvers : list of SolverSummary

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare([il.Problem("pair", g, optimum=0.5)], ["icm"])
    >>> (row,) = c.rows
    >>> row.energy, row.gap_percent, row.proved_by
    (0.5, 0.0, 'by known optimum')
    """

    def __init__(self, records: Iterable[Record], superseded: Iterable[Record] = ()) -> None:
        self.records = list(records)
        self.superseded = list(superseded)

    @classmethod
    def of_store(cls, records: Iterable[Record]) -> Self:
        """Return the comparison of the last record of each key; the others are superseded."""
        records = list(records)
        kept = latest(records)
        counted = {id(record) for record in kept}
        return cls(kept, [record for record in records if id(record) not in counted])

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.records)

    def __repr__(self) -> str:
        """Return one line with the sizes."""
        return (
            f"Comparison({len(self._by_problem)} problems x {len(self._solver_specs)} solvers, "
            f"{len(self.records)} runs)"
        )

    @cached_property
    def _by_problem(self) -> dict[tuple[str, str], list[Record]]:
        return _grouped(self.records, lambda r: (r.problem, r.problem_hash))

    @cached_property
    def _solver_specs(self) -> list[str]:
        return list(dict.fromkeys(r.solver for r in self.records))

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each solver, or its whole spec where the name is not enough."""
        names = [spec.partition("(")[0] for spec in self._solver_specs]
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return {
            spec: name if counts[name] == 1 else spec
            for spec, name in zip(self._solver_specs, names, strict=True)
        }

    def short_name(self, solver: str) -> str:
        """Return the name of a solver, or its whole spec where the name is not enough."""
        return self._names[solver]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Name and content hash of each of the `problems`."""
        return list(self._by_problem)

    @cached_property
    def problems(self) -> list[ProblemSummary]:
        """What all runs together say about each problem, in the order of the runs."""
        names: dict[str, int] = {}
        for name, _ in self._by_problem:
            names[name] = names.get(name, 0) + 1
        summaries = []
        for (name, digest), records in self._by_problem.items():
            first = records[0]
            energies = [(r.energy, r.solver) for r in records if math.isfinite(r.energy)]
            energy, energy_by = min(energies, key=lambda e: e[0], default=(math.inf, ""))
            bounds = [(r.lower_bound, self._names[r.solver]) for r in records]
            if first.optimum is not None:
                bounds.insert(0, (first.optimum, "known optimum"))
            bound, bound_by = max(bounds, key=lambda b: b[0])
            summaries.append(
                ProblemSummary(
                    name=name if names[name] == 1 else f"{name} [{digest[:8]}]",
                    hash=digest,
                    n_variables=first.n_variables,
                    n_edges=first.n_edges,
                    n_factors=first.n_factors,
                    n_labels=first.n_labels,
                    best_energy=energy,
                    best_energy_by=self._names.get(energy_by, ""),
                    best_bound=bound,
                    best_bound_by=bound_by if bound > -math.inf else "",
                    optimum=first.optimum,
                    truth_energy=first.truth_energy,
                    gap_percent=gap_percent(energy, bound),
                )
            )
        return summaries

    @cached_property
    def rows(self) -> list[Row]:
        """One row a problem and solver, aggregated over seeds."""
        return [
            self._row(summary, group)
            for summary, records in zip(self.problems, self._by_problem.values(), strict=True)
            for group in _grouped(records, lambda r: r.solver).values()
        ]

    def _row(self, problem: ProblemSummary, records: list[Record]) -> Row:
        found = [r.energy for r in records if math.isfinite(r.energy)]
        energy = _median(found)
        unsupported = sum(r.status == "unsupported" for r in records)
        timed = [r.seconds for r in records if r.status != "unsupported" and not r.failed]
        proofs = [self._proof(r, problem) for r in records]
        statuses = _grouped(records, lambda r: r.status)
        estimates = [r.log_partition for r in records if r.log_partition is not None]
        return Row(
            problem=problem.name,
            solver=records[0].solver,
            runs=len(records),
            failed=sum(r.failed for r in records),
            unsupported=unsupported,
            answered=sum(r.answered for r in records),
            energy=math.inf if energy is None else energy,
            energy_min=min(found, default=math.inf),
            energy_max=max(found, default=math.inf),
            gap_percent=None if energy is None else gap_percent(energy, problem.best_bound),
            # The lower of the two middle ones: the mean of -inf and inf would be no bound.
            lower_bound=float(statistics.median_low(r.lower_bound for r in records)),
            proved=len(proofs) - proofs.count("no"),
            proved_by=(
                proofs[0]
                if len(set(proofs)) == 1
                else f"{len(proofs) - proofs.count('no')}/{len(proofs)}"
                if "no" in proofs
                else next(p for p in proofs if p != "yes")
            ),
            best=sum(self._is_best(r, problem) for r in records),
            seconds=_median(timed),
            total_seconds=math.fsum(timed),
            accuracy=_mean(r.accuracy for r in records),
            pairwise_f=_mean(r.pairwise_f for r in records),
            nmi=_mean(r.nmi for r in records),
            ari=_mean(r.ari for r in records),
            scores=_mean_scores(records),
            log_partition=_median(estimates),
            log_partition_kind=next((r.log_partition_kind for r in records if estimates), None),
            status=(
                records[0].status
                if len(statuses) == 1
                else ", ".join(f"{len(group)} {status}" for status, group in statuses.items())
            ),
            messages=tuple(
                dict.fromkeys(r.message for r in records if r.message and not _solved(r))
            ),
        )

    def _proof(self, record: Record, problem: ProblemSummary) -> str:
        """Return ``"yes"``, ``"by NAME"`` or ``"no"``: whose bound proves the run's answer."""
        if record.status == "infeasible":
            return "yes" if problem.best_energy == math.inf else "no"
        # No energy lies below the best one, so a bound above that is refuted.
        if record.lower_bound > problem.best_energy + _slack(problem.best_energy):
            return "no"
        if proves(record.energy, record.lower_bound):
            return "yes"
        beaten = problem.best_bound > record.energy + _slack(record.energy)
        if proves(record.energy, problem.best_bound) and not beaten:
            return f"by {problem.best_bound_by}"
        return "no"

    def _is_best(self, record: Record, problem: ProblemSummary) -> bool:
        if problem.best_energy == math.inf:
            return record.status == "infeasible"
        return proves(record.energy, problem.best_energy)

    @cached_property
    def solvers(self) -> list[SolverSummary]:
        """One summary a solver over all problems and seeds."""
        summaries = []
        by_key = dict(zip(self._by_problem, self.problems, strict=True))
        rows_of: dict[str, list[Row]] = {}
        for row in self.rows:
            rows_of.setdefault(row.solver, []).append(row)
        for solver, records in _grouped(self.records, lambda r: r.solver).items():
            rows = rows_of[solver]
            gaps = [row.gap_percent for row in rows if row.gap_percent is not None]
            timed = [r.seconds for r in records if r.status != "unsupported" and not r.failed]
            own = [self._proof(r, by_key[r.problem, r.problem_hash]) == "yes" for r in records]
            summaries.append(
                SolverSummary(
                    solver=solver,
                    problems=len(rows),
                    runs=len(records),
                    mean_gap_percent=_mean(gaps),
                    gaps=len(gaps),
                    percent_best=100.0 * sum(row.best for row in rows) / len(records),
                    percent_proved=100.0 * sum(own) / len(records),
                    median_seconds=_median(timed),
                    total_seconds=math.fsum(timed),
                    failed=sum(r.failed for r in records),
                    unsupported=sum(row.unsupported for row in rows),
                )
            )
        return summaries

    @cached_property
    def alarms(self) -> list[str]:
        """Contradictions between the runs, each a sentence; empty if all is well."""
        alarms = []
        for problem, records in zip(self.problems, self._by_problem.values(), strict=True):
            alarms += self._contradictions(problem, records)
            alarms += _log_partition_contradictions(problem, records)
        return alarms + self._repetitions[0]

    def _contradictions(self, problem: ProblemSummary, records: list[Record]) -> list[str]:
        """Return bounds above energies, proofs of what is not optimal, and claims that differ."""
        alarms = []
        best = problem.best_energy
        limit = best + _slack(best) if math.isfinite(best) else math.inf
        for solver, group in _grouped(records, lambda r: r.solver).items():
            bound = max(r.lower_bound for r in group)
            claims = [r for r in group if r.status == "optimal" and r.temperature == 0]
            proved = max((r.energy for r in claims), default=-math.inf)
            said = ""
            if math.isfinite(best) and bound > limit:
                said = (
                    "says that no labelling is possible"
                    if bound == math.inf
                    else f"gives the lower bound {bound:.9g}"
                )
            elif math.isfinite(best) and any(r.status == "infeasible" for r in group):
                said = "says that no labelling is possible"
            elif math.isfinite(best) and proved > limit:
                said = f"says that the energy {proved:.9g} is optimal"
            if said:
                alarms.append(
                    f"{problem.name}: {solver} {said}, but {problem.best_energy_by} found "
                    f"a labelling of energy {best:.9g}"
                )
            for record in group:
                claim = record.claimed_energy
                if claim is None or claim == record.energy:
                    continue
                if not abs(claim - record.energy) <= _slack(record.energy):
                    alarms.append(
                        f"{problem.name}: {solver} (seed {record.seed}) claims the energy "
                        f"{claim:.9g}, but its labelling evaluates to {record.energy:.9g}"
                    )
                    break
        optimum = problem.optimum
        if optimum is None:
            return alarms
        if math.isfinite(best) and optimum > limit:
            source = f" ({records[0].optimum_source})" if records[0].optimum_source else ""
            alarms.append(
                f"{problem.name}: the known optimum {optimum:.9g}{source} is above the energy "
                f"{best:.9g} that {problem.best_energy_by} found"
            )
        if math.isfinite(optimum):
            for record in records:
                # A bound above the best energy has been named already.
                if optimum + _slack(optimum) < record.lower_bound <= limit:
                    alarms.append(
                        f"{problem.name}: {record.solver} gives the lower bound "
                        f"{record.lower_bound:.9g}, above the known optimum {optimum:.9g}"
                    )
                    break
        return alarms

    @cached_property
    def _repetitions(self) -> tuple[list[str], list[str]]:
        """Runs asked the same that ended by themselves and differ: alarms, and warnings."""
        asked: dict[tuple[Any, ...], list[Record]] = {}
        for record in (*self.superseded, *self.records):
            if record.status in _ENDED and record.seed is not None:
                key = (
                    *(record.problem, record.problem_hash, record.solver, record.solver_version),
                    *(record.seed, record.time_limit, record.temperature, record.threads),
                )
                asked.setdefault(key, []).append(record)
        names = dict(zip(self._by_problem, (p.name for p in self.problems), strict=True))
        alarms: list[str] = []
        same: dict[str, int] = {}
        for several in asked.values():
            if len(several) == 1:
                continue
            for group in _grouped(several, environment_id).values():
                first = group[0]
                low, high = min(r.energy for r in group), max(r.energy for r in group)
                if low != high and not proves(high, low):
                    name = names.get((first.problem, first.problem_hash), first.problem)
                    alarms.append(
                        f"{name}: {first.solver} (seed {first.seed}) is not deterministic: runs "
                        f"of the same seed ended at the energies {low:.9g} and {high:.9g}"
                    )
                elif len({r.labels_hash for r in group if r.labels_hash}) > 1:
                    same[first.solver] = same.get(first.solver, 0) + 1
        warnings = [
            f"{solver}: runs of the same seed ended at the same energy with different labellings "
            f"({_times(count)})"
            for solver, count in same.items()
        ]
        return alarms, warnings

    @cached_property
    def warnings(self) -> list[str]:
        """What makes the comparison less than fair or complete, each a sentence."""
        records = self.records
        warnings = list(self._repetitions[1])
        environments = {environment_id(r) for r in records}
        if len(environments) > 1:
            warnings.append(
                f"runs of {len(environments)} different environments stand in one table; "
                "their times cannot be compared"
            )
        versions: dict[str, set[int]] = {}
        for record in records:
            versions.setdefault(record.solver, set()).add(record.solver_version)
        mixed = [
            f"{solver} ({', '.join(map(str, sorted(found)))})"
            for solver, found in versions.items()
            if len(found) > 1
        ]
        if mixed:
            warnings.append(f"several versions of one solver are mixed: {_listed(mixed)}")
        for what, found in (
            ("time limits", {_limit(r.time_limit, "s") for r in records}),
            ("memory limits", {_limit(r.memory_limit, "bytes") for r in records}),
            ("temperatures", {f"{r.temperature:g}" for r in records}),
            ("numbers of threads", {str(r.threads) for r in records}),
        ):
            if len(found) > 1:
                warnings.append(f"runs under different {what} are mixed: {_listed(sorted(found))}")
        warnings += self._missing
        failed = sum(r.failed for r in records)
        if failed > FAILURE_SHARE * len(records):
            warnings.append(f"{failed} of {len(records)} runs failed")
        return warnings

    @cached_property
    def _missing(self) -> list[str]:
        """One sentence if not every solver was run on every problem with every seed."""
        draws = {(r.seed, r.repeat) for r in self.records}
        expected = len(draws) * len(self._by_problem)
        done: dict[str, set[tuple[Any, ...]]] = {}
        for record in self.records:
            one = (record.problem, record.problem_hash, record.seed, record.repeat)
            done.setdefault(record.solver, set()).add(one)
        lacking = {s: expected - len(runs) for s, runs in done.items() if len(runs) < expected}
        if not lacking:
            return []
        named = [f"{solver} ({count})" for solver, count in lacking.items()]
        total = expected * len(done)
        return [f"{sum(lacking.values())} of {total} runs are missing: {_listed(named)}"]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All runs as a pandas DataFrame, one row a run.

        The scalar fields of `Record`, and from the comparison ``best_bound`` of the problem,
        ``gap_percent`` to it, and ``proved`` (``"yes"``, ``"by NAME"``, ``"no"``).
        """
        import pandas as pd

        summary = dict(zip(self._by_problem, self.problems, strict=True))
        left_out = {"settings", "scores", "problem_info", "diagnostics", "environment", "trace"}
        lines = []
        for record in self.records:
            problem = summary[record.problem, record.problem_hash]
            line = {k: v for k, v in vars(record).items() if k not in left_out}
            line["best_bound"] = problem.best_bound
            line["gap_percent"] = gap_percent(record.energy, problem.best_bound)
            line["proved"] = self._proof(record, problem)
            lines.append(line)
        names = [name for name in Record.__dataclass_fields__ if name not in left_out]
        frame = pd.DataFrame(lines, columns=[*names, "best_bound", "gap_percent", "proved"])
        numbers = [
            name
            for name, f in Record.__dataclass_fields__.items()
            if name in frame and str(f.type) in ("float", "float | None")
        ]
        kinds = dict.fromkeys([*numbers, "best_bound", "gap_percent"], "float64")
        return frame.astype(kinds)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as strict JSON holds it: alarms, summaries, rows and records."""
        return {
            "alarms": list(self.alarms),
            "warnings": list(self.warnings),
            "problems": [jsonable(vars(p)) for p in self.problems],
            "rows": [jsonable(vars(row)) for row in self.rows],
            "solvers": [jsonable(vars(s)) for s in self.solvers],
            "records": [record.as_dict() for record in self.records],
        }

    def table(self, width: int | None = None) -> Table:
        """Return the comparison as a rich table: one block a problem, then one over solvers.

        Parameters
        ----------
        width : int, optional
            Characters there is room for; where they do not suffice for all columns, the pairwise
            F and the solvers' own bounds are left out.
        """
        from inference_lab.reporting.tables import rich_table

        return rich_table(self, width)

    def to_text(self, width: int | None = None) -> str:
        """Return `table` as plain text; as wide as it takes, or fitted into `width`."""
        from inference_lab.reporting.tables import plain_text

        return plain_text(self, width)

    def __str__(self) -> str:
        """Return `to_text`."""
        return self.to_text()

    def to_markdown(self) -> str:
        """Return the comparison as Markdown: one table a problem, then one over solvers."""
        from inference_lab.reporting.tables import markdown

        return markdown(self)

    def to_csv(self) -> str:
        """Return `rows` as CSV, one line a problem and solver."""
        from inference_lab.reporting.tables import csv_text

        return csv_text(self)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the comparison to a folder, which is made if it is missing.

        ``runs.jsonl``
            All records. A file that is there is appended to, and records it already holds are
            not written again, so nothing that was recorded earlier is lost.
        ``runs.csv``
            `frame`: one line a run of this comparison.
        ``table.csv``, ``table.md``
            `to_csv` and `to_markdown`.

        Returns
        -------
        list of Path
            The four files.

        Raises
        ------
        OSError
            If a file cannot be written.
        RecordError
            If ``runs.jsonl`` is there and is something else.
        """
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        store = RecordStore(root / "runs.jsonl")
        store.prepare()
        held = {record.id for record in store}
        for record in self.records:
            if record.id not in held:
                store.append(record)
        paths = [store.path, root / "runs.csv", root / "table.csv", root / "table.md"]
        texts = [self.frame.to_csv(index=False), self.to_csv(), self.to_markdown()]
        for path, text in zip(paths[1:], texts, strict=True):
            # Written aside and moved, so that an interrupted save leaves no half a file.
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            aside.write_text(text, encoding="utf-8", newline="")
            aside.replace(path)
        return paths


def _solved(record: Record) -> bool:
    refused = record.status in ("unsupported", "infeasible")
    return not (refused or record.failed) and math.isfinite(record.energy)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _limit(value: float | None, unit: str) -> str:
    return "none" if value is None else f"{value:g} {unit}"


def _log_partition_contradictions(problem: ProblemSummary, records: list[Record]) -> list[str]:
    """Return lower bounds of log Z above upper ones, exact values counting as both."""
    alarms = []
    given = [r for r in records if r.log_partition is not None and not math.isnan(r.log_partition)]
    for temperature, group in _grouped(given, lambda r: r.temperature).items():
        low = [r for r in group if r.log_partition_kind in ("exact", "lower")]
        high = [r for r in group if r.log_partition_kind in ("exact", "upper")]
        if not low or not high:
            continue
        below = max(low, key=_log_partition)
        above = min(high, key=_log_partition)
        if _log_partition(below) > _log_partition(above) + _slack(_log_partition(above)):
            said = [
                f"{r.solver} gives {_log_partition(r):.9g} as {_KINDS[str(r.log_partition_kind)]}"
                for r in (below, above)
            ]
            alarms.append(
                f"{problem.name}: of log Z at temperature {temperature:g}, {said[0]}, but {said[1]}"
            )
    return alarms


def _log_partition(record: Record) -> float:
    return math.nan if record.log_partition is None else record.log_partition


_KINDS = {"exact": "the exact value", "lower": "a lower bound", "upper": "an upper bound"}
