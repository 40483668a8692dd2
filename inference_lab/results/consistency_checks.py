"""Contradictions between records, and reasons why a comparison of them is unfair."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from inference_lab.contract import proves
from inference_lab.formatting import listed
from inference_lab.results.number_formats import format_bytes
from inference_lab.results.records import Record
from inference_lab.results.summaries import ProblemSummary, grouped, slack, tolerance_of

#: A share of failed runs above this gives a warning.
FAILURE_SHARE = 0.1

#: Statuses of runs that ended by themselves, so that the same seed must give the same result.
_ENDED = ("converged", "optimal", "infeasible")

_KINDS = {"exact": "the exact value", "lower": "a lower bound", "upper": "an upper bound"}


def environment_id(record: Record) -> str:
    """Return the identity of the environment of a run: its ``id``, or all its fields as JSON."""
    identity = record.environment.get("id")
    if identity is not None:
        return str(identity)
    return json.dumps(record.environment, sort_keys=True)


def contradictions(problem: ProblemSummary, records: Sequence[Record]) -> list[str]:
    """Return the contradictions between the runs on one problem."""
    alarms = []
    best = problem.best_energy
    limit = best + problem.bound_slack if math.isfinite(best) else math.inf
    for solver, group in grouped(records, lambda r: r.solver).items():
        bound = max(r.lower_bound for r in group)
        claims = [r for r in group if r.status == "optimal" and r.temperature == 0]
        proved = max((r.energy for r in claims), default=-math.inf)
        statement = ""
        if math.isfinite(best) and bound > limit:
            statement = (
                "reports that no labelling is feasible"
                if bound == math.inf
                else f"gives the lower bound {bound:.9g}"
            )
        elif math.isfinite(best) and any(r.status == "infeasible" for r in group):
            statement = "reports that no labelling is feasible"
        elif math.isfinite(best) and proved > limit:
            statement = f"reports that the energy {proved:.9g} is optimal"
        if statement:
            alarms.append(
                f"{problem.name}: {solver} {statement}, but {problem.best_energy_by} found "
                f"a labelling of energy {best:.9g}"
            )
        for record in group:
            claim = record.claimed_energy
            if claim is None or claim == record.energy:
                continue
            if not abs(claim - record.energy) <= problem.slack(record.energy):
                alarms.append(
                    f"{problem.name}: {solver} (seed {record.seed}) claims the energy "
                    f"{claim:.9g}, but its labelling evaluates to {record.energy:.9g}"
                )
                break
    alarms += _optimum_contradictions(problem, records)
    return alarms + _log_partition_contradictions(problem, records)


def _optimum_contradictions(problem: ProblemSummary, records: Sequence[Record]) -> list[str]:
    """Return energies below the known optimum, and bounds above it."""
    optimum, best = problem.optimum, problem.best_energy
    if optimum is None:
        return []
    alarms = []
    limit = best + problem.slack(best) if math.isfinite(best) else math.inf
    if math.isfinite(best) and optimum > limit:
        source = f" ({records[0].optimum_source})" if records[0].optimum_source else ""
        alarms.append(
            f"{problem.name}: the known optimum {optimum:.9g}{source} is above the energy "
            f"{best:.9g} that {problem.best_energy_by} found"
        )
    if math.isfinite(optimum):
        for record in records:
            # A bound above the best energy has been reported already.
            if optimum + problem.slack(optimum) < record.lower_bound <= limit:
                alarms.append(
                    f"{problem.name}: {record.solver} gives the lower bound "
                    f"{record.lower_bound:.9g}, above the known optimum {optimum:.9g}"
                )
                break
    return alarms


def _log_partition_contradictions(problem: ProblemSummary, records: Sequence[Record]) -> list[str]:
    """Return lower bounds of log Z that exceed upper bounds; exact values are both."""
    alarms = []
    estimates = [
        r for r in records if r.log_partition is not None and not math.isnan(r.log_partition)
    ]
    for temperature, group in grouped(estimates, lambda r: r.temperature).items():
        values = [(float(r.log_partition or 0.0), r.solver, r.log_partition_kind) for r in group]
        low = [value for value in values if value[2] in ("exact", "lower")]
        high = [value for value in values if value[2] in ("exact", "upper")]
        if not low or not high:
            continue
        below, above = max(low, key=lambda v: v[0]), min(high, key=lambda v: v[0])
        if below[0] > above[0] + slack(above[0]):
            statements = [
                f"{solver} gives {value:.9g} as {_KINDS[str(kind)]}"
                for value, solver, kind in (below, above)
            ]
            alarms.append(
                f"{problem.name}: of log Z at temperature {temperature:g}, "
                + ", but ".join(statements)
            )
    return alarms


def repetitions(records: Iterable[Record], names: Mapping[tuple[str, str], str]) -> list[str]:
    """Return alarms about completed runs with equal inputs and unequal energies."""
    ended = [r for r in records if r.status in _ENDED and r.seed is not None]
    asked = grouped(
        ended,
        lambda r: (
            r.problem,
            r.problem_hash,
            r.solver,
            r.solver_version,
            r.solver_source,
            r.seed,
            r.time_limit,
            r.temperature,
            r.threads,
        ),
    )
    alarms: list[str] = []
    for several in asked.values():
        if len(several) == 1:
            continue
        for group in grouped(several, environment_id).values():
            first = group[0]
            low, high = min(r.energy for r in group), max(r.energy for r in group)
            if low != high and not proves(high, low, tolerance_of(first)):
                name = names.get((first.problem, first.problem_hash), first.problem)
                alarms.append(
                    f"{name}: {first.solver} (seed {first.seed}) is not deterministic: runs "
                    f"of the same seed ended at the energies {low:.9g} and {high:.9g}"
                )
    return alarms


def unfairness(records: Sequence[Record], stages: Sequence[Collection[str]] = ()) -> list[str]:
    """Return the reasons why a comparison of runs is unfair or incomplete."""
    warnings = []
    parts = [[r for r in records if r.solver in stage] for stage in stages]
    parts.append([r for r in records if not any(r.solver in stage for stage in stages)])
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
        f"{solver} ({', '.join(map(str, sorted(numbers)))})"
        for solver, numbers in versions.items()
        if len(numbers) > 1
    ]
    if mixed:
        warnings.append(f"several versions of one solver are mixed: {listed(mixed)}")
    edited = grouped(records, lambda r: (r.solver, r.solver_version))
    mixed = [
        f"{solver} ({len(sources)})"
        for (solver, _), group in edited.items()
        if len(sources := {r.solver_source for r in group}) > 1
    ]
    if mixed:
        warnings.append(f"runs before and after an edit of one solver are mixed: {listed(mixed)}")
    for part in parts:
        limits = {_limit(r.time_limit, "s") for r in part}
        warnings += _mixed("time limits", limits)
    for what, values in (
        ("memory limits", memory_limits(records)),
        ("temperatures", {f"{r.temperature:g}" for r in records}),
        ("numbers of threads", {str(r.threads) for r in records}),
    ):
        warnings += _mixed(what, values)
    warnings += _changed(records)
    for part in parts:
        warnings += _missing(part)
    failed = sum(r.failed for r in records)
    if failed > FAILURE_SHARE * len(records):
        warnings.append(f"{failed} of {len(records)} runs failed")
    return warnings


def _changed(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each problem whose content differs between runs."""
    statements = []
    for name, group in grouped(records, lambda r: r.problem).items():
        contents = list(dict.fromkeys(r.problem_hash for r in group if r.problem_hash))
        if len(contents) > 1:
            hashes = listed([digest[:8] for digest in contents])
            statements.append(
                f"{name}: the problem changed between runs: it has {len(contents)} different "
                f"contents ({hashes}), which are compared each by itself"
            )
    return statements


def _mixed(what: str, values: Collection[str]) -> list[str]:
    """Return a sentence if the runs differ in a condition such as the time limit."""
    if len(values) < 2:
        return []
    return [f"runs under different {what} are mixed: {listed(sorted(values))}"]


def memory_limits(records: Sequence[Record]) -> list[str]:
    """Return the distinct memory limits of runs; ``none`` for runs without a limit."""
    limits = {r.memory_limit for r in records}
    return ["none" if v is None else format_bytes(v) for v in sorted(limits, key=lambda v: v or 0)]


def _missing(records: Sequence[Record]) -> list[str]:
    """Return a sentence on missing runs, if a solver lacks a problem, seed or repeat."""
    draws = {(r.seed, r.repeat) for r in records}
    expected = len(draws) * len({(r.problem, r.problem_hash) for r in records})
    done: dict[str, set[tuple[Any, ...]]] = {}
    for record in records:
        one = (record.problem, record.problem_hash, record.seed, record.repeat)
        done.setdefault(record.solver, set()).add(one)
    lacking = {s: expected - len(runs) for s, runs in done.items() if len(runs) < expected}
    if not lacking:
        return []
    named = [f"{solver} ({count})" for solver, count in lacking.items()]
    total = expected * len(done)
    return [f"{sum(lacking.values())} of {total} runs are missing: {listed(named)}"]


def _limit(value: float | None, unit: str) -> str:
    return "none" if value is None else f"{value:g} {unit}"
