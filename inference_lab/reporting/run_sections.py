"""The sections of a report on the runs: failures, settings, and environments."""

from __future__ import annotations

import json
from collections.abc import Iterable

from inference_lab.formatting import counted
from inference_lab.reporting.document import (
    Cell,
    Column,
    Section,
    Table,
    column,
    cut,
)
from inference_lab.results.analysis import Findings
from inference_lab.results.consistency_checks import environment_id, memory_limits
from inference_lab.results.number_formats import NONE, format_bytes
from inference_lab.results.records import Record

#: Characters of a message shown; longer messages are truncated, because records hold the whole.
_REASON_WIDTH = 300


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
    limit_table = Table(
        "limits",
        "Limits of all runs.",
        (
            column("limit", limits),
            column("value", [", ".join(values) or NONE for values in limits.values()]),
        ),
    )
    if not names:
        return Section("Environment", (limit_table,))
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
    return Section("Environment", (limit_table, table))


def _distinct(values: Iterable[float | None]) -> list[str]:
    distinct = set(values)
    return [f"{v:.15g}" for v in sorted(v for v in distinct if v is not None)] + (
        ["none"] if None in distinct else []
    )
