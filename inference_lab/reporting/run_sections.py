"""The sections of a report on the runs: failures, settings, and how to rerun them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence

from inference_lab.formatting import counted
from inference_lab.reporting.document import (
    Block,
    Cell,
    Code,
    Column,
    Items,
    Section,
    Table,
    Text,
    column,
    cut,
)
from inference_lab.results.analysis import Findings
from inference_lab.results.consistency_checks import environment_id, memory_limits
from inference_lab.results.number_formats import NONE, format_bytes
from inference_lab.results.records import Record

__all__ = [
    "again_section",
    "environment_section",
    "failures_section",
    "settings_section",
]

#: Characters of a message shown; longer messages are truncated, because records hold the whole.
_REASON_WIDTH = 300

#: Largest number of problems for which the command to rerun is written out.
_COMMAND_PROBLEMS = 10


def failures_section(comparison: Findings) -> Section | None:
    """Return the section on failed and refused runs, with their reasons."""
    counts: dict[tuple[str, str, str], list[Record]] = {}
    for record in comparison.records:
        if record.failed or record.refused:
            reason = " ".join(record.message.split())
            counts.setdefault((record.solver, record.status, reason), []).append(record)
    if not counts:
        return None
    failed = sum(r.failed for r in comparison.records)
    refused = sum(r.refused for r in comparison.records)
    table = Table(
        "failures",
        f"Of {counted(len(comparison.records), 'run')}, {failed:,} failed and {refused:,} "
        f"{'was' if refused == 1 else 'were'} refused.",
        (
            column("solver", [solver for solver, _, _ in counts]),
            Column(
                "status",
                [
                    Cell(status, mark="" if records[0].refused else "failed")
                    for (_, status, _), records in counts.items()
                ],
                right=False,
            ),
            column("runs", map(len, counts.values())),
            column("problems", [len({r.problem for r in rs}) for rs in counts.values()]),
            column("reason", [r or NONE for _, _, r in counts], cut(_REASON_WIDTH), right=False),
            column("first problem", [records[0].problem for records in counts.values()]),
        ),
        "Records hold the whole message and the end of the traceback.",
    )
    return Section("Failures", (table,))


def settings_section(comparison: Findings) -> Section:
    """Return the section on the solvers and their settings."""
    versions: dict[tuple[str, int], list[Record]] = {}
    for record in comparison.records:
        versions.setdefault((record.solver, record.solver_version), []).append(record)
    first = [records[0] for records in versions.values()]
    settings = [", ".join(f"{k}={_setting(v)}" for k, v in r.settings.items()) for r in first]
    table = Table(
        "solvers",
        "The solvers with all their settings.",
        (
            column("solver", [r.solver for r in first]),
            column("method", [r.solver_name for r in first]),
            column("version", [r.solver_version for r in first]),
            column("settings", [limitations or NONE for limitations in settings]),
            column("runs", map(len, versions.values())),
        ),
    )
    return Section("Solvers and settings", (table,))


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fact(name: str, value: object) -> str:
    """Return the text of a fact of an environment, with memory in readable units."""
    if name == "memory" and isinstance(value, int):
        return format_bytes(value)
    return _setting(value)


def environment_section(comparison: Findings) -> Section:
    """Return the section on the machines of the runs, and their limits."""
    environments: dict[str, Record] = {}
    for record in comparison.records:
        environments.setdefault(environment_id(record), record)
    facts = [dict(record.environment) for record in environments.values()]
    names = list(dict.fromkeys(name for fact in facts for name in fact))
    heads = [f"environment {n}" if len(facts) > 1 else "value" for n in range(1, len(facts) + 1)]
    limits = {
        "threads a run": sorted({str(r.threads) for r in comparison.records}),
        "time limit (s)": _distinct(r.time_limit for r in comparison.records),
        "memory limit": memory_limits(comparison.records),
    }
    given = Table(
        "limits",
        "Limits of all runs.",
        (
            column("limit", limits),
            column("value", [", ".join(values) or NONE for values in limits.values()]),
        ),
    )
    if not names:
        return Section("Environment", (given,))
    table = Table(
        "environment",
        "Machine and versions of the runs.",
        (
            column("item", names),
            *(
                column(head, [_fact(n, fact[n]) if n in fact else NONE for n in names])
                for head, fact in zip(heads, facts, strict=True)
            ),
        ),
    )
    return Section("Environment", (given, table))


def _distinct(values: Iterable[float | None]) -> list[str]:
    found = set(values)
    return [f"{v:.15g}" for v in sorted(v for v in found if v is not None)] + (
        ["none"] if None in found else []
    )


def again_section(comparison: Findings, command: str) -> Section:
    """Return the section on how to rerun the comparison."""
    records = comparison.records
    entries = [
        "A run is determined by the spec of its problem and the hash of its content, the spec of "
        "its solver with all settings and its version, seed, time limit, temperature and number "
        "of threads; the records hold all of them.",
    ]
    seeds = sorted({r.seed for r in records if r.seed is not None})
    if seeds:
        entries.append(f"Seeds: {_ranges(seeds)}; repeats of each: {_repeats(records)}.")
    blocks: list[Block] = [Items(tuple(entries))]
    command = command or _command(records, seeds)
    if command:
        blocks += [Text(("The command that makes the runs again:",)), Code(command)]
    return Section("To run it again", tuple(blocks))


def _source(record: Record) -> str:
    """Return the spec of the problem of a record: the one in its info, or its name."""
    return str(record.problem_info.get("spec") or record.problem)


def _repeats(records: Sequence[Record]) -> int:
    return max((r.repeat for r in records), default=0) + 1


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, with consecutive numbers joined into ranges."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)


def _command(records: Sequence[Record], seeds: Sequence[int]) -> str:
    """Return the command that repeats the runs, empty if it would be too long or inexact."""
    problems = list(dict.fromkeys(map(_source, records)))
    limits = {r.time_limit for r in records}
    temperatures = {r.temperature for r in records}
    threads = {r.threads for r in records}
    plain = (
        0 < len(problems) <= _COMMAND_PROBLEMS
        and len(limits) == len(temperatures) == len(threads) == 1
        and list(seeds) == list(range(len(seeds)))
        and len(seeds) > 0
    )
    if not plain:
        return ""
    words = ["inference-lab", "compare", *problems]
    for solver in dict.fromkeys(r.solver for r in records):
        words += ["--solver", solver]
    words += ["--seeds", str(len(seeds))]
    (limit,), (temperature,), (count,) = limits, temperatures, threads
    words += ["--time-limit", "none" if limit is None else f"{limit:.15g}"]
    if (repeats := _repeats(records)) > 1:
        words += ["--repeats", str(repeats)]
    if temperature:
        words += ["--temperature", f"{temperature:.15g}"]
    if count > 1:
        words += ["--threads", str(count)]
    return shlex.join(words)
