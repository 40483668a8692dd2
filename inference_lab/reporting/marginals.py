"""The section of a report on runs above the temperature 0: log Z."""

from __future__ import annotations

from inference_lab.reporting.cells import (
    Columns,
    count_cell,
    energy_cell,
    number_cell,
    seconds_cell,
    table_of,
    text_cell,
)
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.document import Cell, Column, Section, Table, Text
from inference_lab.reporting.statistics import median
from inference_lab.results.records import Record
from inference_lab.words import NONE, decimals_for

__all__ = ["marginals_section"]


def marginals_section(comparison: Comparison) -> Section | None:
    """Return tables of log Z, one a problem and temperature."""
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
    estimates = {
        solver: [r.log_partition for r in records if r.log_partition is not None]
        for solver, records in by_solver.items()
    }
    exact = [
        r.log_partition
        for records in by_solver.values()
        for r in records
        if r.log_partition_kind == "exact" and r.log_partition is not None
    ]
    truth = float(median(exact)) if exact else None
    typical = {s: float(median(v)) if v else None for s, v in estimates.items()}
    decimals = decimals_for(v for v in typical.values() if v is not None)
    columns: Columns = [
        (Column("solver", right=False), [text_cell(s) for s in by_solver]),
        (Column("log Z"), [energy_cell(typical[s], decimals) for s in by_solver]),
        (
            Column("kind", right=False),
            [
                Cell(
                    next(
                        (_KINDS.get(str(r.log_partition_kind), str(r.log_partition_kind))
                         for r in records if r.log_partition_kind),
                        NONE,
                    )
                )
                for records in by_solver.values()
            ],
        ),
    ]  # fmt: skip
    if truth is not None:
        errors = [None if (v := typical[s]) is None else v - truth for s in by_solver]
        columns.append(
            (Column("error"), [number_cell(e, NONE if e is None else f"{e:+.3g}") for e in errors])
        )
    columns += [
        (
            Column("seconds"),
            [
                seconds_cell(float(median(timed)) if timed else None)
                for timed in (
                    [r.seconds for r in records if not r.failed and r.status != "unsupported"]
                    for records in by_solver.values()
                )
            ],
        ),
        (Column("runs"), [count_cell(len(records)) for records in by_solver.values()]),
        (
            Column("failed"),
            [count_cell(sum(r.failed for r in rs), mark=True) for rs in by_solver.values()],
        ),
        (
            Column("unsup."),
            [count_cell(sum(r.status == "unsupported" for r in rs)) for rs in by_solver.values()],
        ),
    ]
    return table_of(
        f"log-z-{name}-{temperature:g}", f"{name} at temperature {temperature:g}.", columns
    )
