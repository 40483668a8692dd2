"""The section of a report on runs at temperatures above 0: log Z."""

from __future__ import annotations

from collections.abc import Iterable

from inference_lab.reporting.document import Section, Table, Text, column, energies, failures
from inference_lab.reporting.statistics import median
from inference_lab.results.analysis import Findings
from inference_lab.results.number_formats import NONE, decimals_for, format_seconds
from inference_lab.results.records import Record

__all__ = ["marginals_section"]


def marginals_section(comparison: Findings) -> Section | None:
    """Return the section of tables of log Z, one per problem and temperature."""
    groups: dict[tuple[str, str, float], dict[str, list[Record]]] = {}
    for record in comparison.records:
        if record.temperature > 0:
            key = (record.problem, record.problem_hash, record.temperature)
            groups.setdefault(key, {}).setdefault(record.solver, []).append(record)
    names = {(r.problem, r.problem_hash): r.problem for r in comparison.records}
    names |= {
        key: summary.name for key, summary in zip(comparison.keys, comparison.problems, strict=True)
    }
    tables = []
    for (name, digest, temperature), by_solver in groups.items():
        tables.append(_log_table(names[name, digest], temperature, by_solver))
    if not tables:
        return None
    note = (
        "Estimates of log Z, the logarithm of the sum of exp(-E / T) over all labellings; medians "
        "over seeds and repeats. The error is to an exact value, where a solver gave one."
    )
    return Section("Marginals and log Z", (Text((note,)), *tables))


_KINDS = {"exact": "exact", "lower": "lower bound", "upper": "upper bound", "estimate": "estimate"}


def _log_table(name: str, temperature: float, by_solver: dict[str, list[Record]]) -> Table:
    groups = list(by_solver.values())
    exact = [
        r.log_partition
        for records in groups
        for r in records
        if r.log_partition_kind == "exact" and r.log_partition is not None
    ]
    typical = [
        _median(r.log_partition for r in records if r.log_partition is not None)
        for records in groups
    ]
    decimals = decimals_for(v for v in typical if v is not None)
    columns = [
        column("solver", by_solver),
        column("log Z", typical, energies(decimals)),
        column("kind", map(_kind, groups)),
    ]
    if exact:
        truth = float(median(exact))
        errors = [None if value is None else value - truth for value in typical]
        columns.append(column("error", errors, lambda e: NONE if e is None else f"{e:+.3g}"))
    timed = [[r for r in records if not (r.failed or r.refused)] for records in groups]
    columns += [
        column("seconds", [_median(r.seconds for r in runs) for runs in timed], format_seconds),
        column("runs", map(len, groups)),
        column("failed", [sum(r.failed for r in records) for records in groups], failures),
        column("unsup.", [sum(r.refused for r in records) for records in groups]),
    ]
    return Table(
        f"log-z-{name}-{temperature:g}", f"{name} at temperature {temperature:g}.", tuple(columns)
    )


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(median(found)) if found else None


def _kind(records: list[Record]) -> str:
    kind = next((r.log_partition_kind for r in records if r.log_partition_kind), NONE)
    return _KINDS.get(kind, kind)
