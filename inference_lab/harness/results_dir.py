"""The contents of a results folder: states of runs, and merging."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_lab.formatting import counted
from inference_lab.harness.campaign import InputError
from inference_lab.harness.manifest import PlannedRun, note_plan, plan_of
from inference_lab.reporting.printable import printable
from inference_lab.results.clustering_records import FitStore, environments, note_environments
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import RecordStore, RunRecord

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["States", "find_store", "merge", "states", "store_in"]

#: Store class of each record file in a folder, by file name.
_FILES: Mapping[str, type[RecordStore] | type[FitStore]] = {
    "runs.jsonl": RecordStore,
    "records.jsonl": FitStore,
}

#: States of runs in the order of display.
STATES = ("done", "failed", "timeout", "unsupported", "missing")


def find_store(place: str | os.PathLike[str]) -> RecordStore | FitStore:
    """Return the store in a folder, or of a record file."""
    path = Path(place)
    if path.is_dir():
        for name, kind in _FILES.items():
            if (store := kind(path / name)).exists():
                return store
        raise InputError(f"{path} holds no records: there is no {' or '.join(_FILES)} in it")
    found = _FILES.get(path.name.removesuffix(".xz"), RecordStore)(path)
    if not found.exists():
        raise InputError(f"{path} does not exist")
    return found


def store_in(place: Path, like: RecordStore | FitStore) -> RecordStore | FitStore:
    """Return the store in a folder, or of an archive, with the record type of another store."""
    ((name, kind),) = ((n, k) for n, k in _FILES.items() if isinstance(like, k))
    return kind(place if place.suffix == ".xz" else place / name)


# ---------------------------------------------------------------------- states


def state(record: RunRecord | None) -> str:
    """Return the state of a run, one of `STATES`."""
    if record is None:
        return "missing"
    if record.refused:
        return "unsupported"
    if record.status == "timeout":
        return record.status
    return "failed" if record.failed else "done"


@dataclass(frozen=True)
class States:
    """Number of runs of a store in each state, by problem and solver."""

    cells: Mapping[tuple[str, str], Mapping[str, int]]
    #: Remarks on other content of the store, one sentence each; see `LineStore`.
    remarks: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of runs in each state."""
        return {name: sum(c.get(name, 0) for c in self.cells.values()) for name in STATES}

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {
            "counts": self.counts,
            "warnings": self.remarks,
            "cells": [
                {"problem": problem, "solver": solver, **cell}
                for (problem, solver), cell in self.cells.items()
            ],
        }

    def lines(self) -> RenderableType:
        """Return tables of all solvers, and of the problems with unfinished runs."""
        from rich.console import Group
        from rich.text import Text

        problems = _counts(self.cells, 0)
        left = {name: row for name, row in problems.items() if set(row) - {"done", "unsupported"}}
        said = f"{sum(self.counts.values())}: " + ", ".join(
            f"{count} {name}" for name, count in self.counts.items() if count
        )
        if done := len(problems) - len(left):
            said += f"; {counted(done, 'problem')} with all runs done"
        unfinished = [_table("problem", left)] if left else []
        return Group(_table("solver", _counts(self.cells, 1)), *unfinished, Text(said))


def _counts(
    cells: Mapping[tuple[str, str], Mapping[str, int]], side: int
) -> dict[str, Counter[str]]:
    """Return the number of runs in each state, by problem (side 0) or by solver (side 1)."""
    found: dict[str, Counter[str]] = {}
    for place, cell in cells.items():
        found.setdefault(place[side], Counter()).update(cell)
    return found


def _table(title: str, rows: Mapping[str, Mapping[str, int]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(title, overflow="fold")
    for state in STATES:
        table.add_column(state, justify="right")
    for name, row in rows.items():
        table.add_row(Text(printable(name)), *(str(row[s]) if row.get(s) else "" for s in STATES))
    return table


def states(store: LineStore[Any]) -> States:
    """Return the state of each run that was planned for a store or has a record there."""
    places: dict[Hashable, tuple[str, str]] = {}
    plan = plan_of(store)
    if plan.exists():
        places.update((run.key, run.place) for run in plan)
    last: dict[Hashable, RunRecord] = {}
    for record in store:
        last[record.key] = record
        # A plan takes precedence, because it has the current label of a method.
        places.setdefault(record.key, record.place)
    cells: dict[tuple[str, str], Counter[str]] = {}
    for key, place in places.items():
        cells.setdefault(place, Counter())[state(last.get(key))] += 1
    return States(cells, store.remarks + plan.remarks)


# ---------------------------------------------------------------------- merging


def merge(
    sources: Sequence[RecordStore | FitStore], target: RecordStore | FitStore
) -> tuple[int, int]:
    """Append missing records and planned runs of other stores; count new and old records."""
    found: dict[str, Any] = {}
    planned: list[PlannedRun] = []
    total = 0
    for source in sources:
        if source.kind is not target.kind:
            raise InputError(f"{source.path} holds something else than {target.path} does")
        for record in source:
            found.setdefault(record.identity, record)
            total += 1
        plan = plan_of(source)
        if plan.exists():
            planned += plan
    into: LineStore[Any] = target
    held = {record.identity for record in into.prepare()}
    new = [record for name, record in found.items() if name not in held]
    into.extend(new)
    if isinstance(target, FitStore):
        for source in sources:
            note_environments(target.path.parent, environments(source.path.parent))
    note_plan(target, planned)
    return len(new), total - len(new)
