"""The contents of a folder of results: states of runs, and merging."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_lab.formatting import printable
from inference_lab.harness.campaign import InputError
from inference_lab.harness.manifest import plans_of
from inference_lab.results.clustering_records import FitStore, environments, note_environments
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import RecordStore, RunRecord

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["States", "find_store", "merge", "states", "store_in"]

#: Names of the files of records in a folder, and what they hold.
_FILES: Mapping[str, type[RecordStore] | type[FitStore]] = {
    "runs.jsonl": RecordStore,
    "records.jsonl": FitStore,
}

#: With more problems than these, those that are done are left out of the matrix.
_MANY = 50

#: States in the order in which they are shown, with their letters in the matrix.
LETTERS: Mapping[str, str] = {
    "done": "o",
    "failed": "x",
    "timeout": "t",
    "unsupported": "-",
    "missing": ".",
}


def find_store(place: str | os.PathLike[str]) -> RecordStore | FitStore:
    """Return the store of a folder, or of a file of records."""
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
    """Return the store of a folder, or of an archive, that holds what another one does."""
    ((name, kind),) = ((n, k) for n, k in _FILES.items() if isinstance(like, k))
    return kind(place if place.suffix == ".xz" else place / name)


# ---------------------------------------------------------------------- states


def state(record: RunRecord | None) -> str:
    """Return the state of a run: a key of `LETTERS`."""
    if record is None:
        return "missing"
    if record.refused:
        return "unsupported"
    if record.status == "timeout":
        return record.status
    return "failed" if record.failed else "done"


@dataclass(frozen=True)
class States:
    """How far the runs of a store are."""

    cells: Mapping[tuple[str, str], Mapping[str, int]]
    problems: list[str]
    solvers: list[str]
    #: What the store holds besides, each a sentence; see `LineStore`.
    remarks: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of runs in each state."""
        return {name: sum(c.get(name, 0) for c in self.cells.values()) for name in LETTERS}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return {
            "counts": self.counts,
            "warnings": self.remarks,
            "cells": [
                {"problem": problem, "solver": solver, **cell}
                for (problem, solver), cell in self.cells.items()
            ],
        }

    def lines(self, width: int = 100) -> RenderableType:
        """Return a table of the solvers and a matrix of states, one letter a run."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        summary = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        summary.add_column("")
        summary.add_column("solver", overflow="fold")
        for name in LETTERS:
            summary.add_column(name, justify="right")
        for number, solver in enumerate(self.solvers, start=1):
            mine = [cell for (_, s), cell in self.cells.items() if s == solver]
            counts = [sum(cell.get(name, 0) for cell in mine) for name in LETTERS]
            shown = [str(count) if count else "" for count in counts]
            summary.add_row(str(number), Text(printable(solver)), *shown)
        rows = {
            problem: [_letters(self.cells.get((problem, solver), {})) for solver in self.solvers]
            for problem in self.problems
        }
        said = []
        if len(rows) > _MANY:
            complete = [p for p, cells in rows.items() if set("".join(cells)) <= {"o", "-"}]
            for problem in complete:
                del rows[problem]
            said.append(f"{len(complete)} problems of which all runs are done are not shown")
        widths = [
            max((len(cells[at]) for cells in rows.values()), default=1)
            for at in range(len(self.solvers))
        ]
        # Side by side, unless a cell says more than a letter.
        gap = " " if max(widths, default=1) > 1 else ""
        taken = sum(widths) + len(gap) * len(widths)
        room = max(12, min(max(map(len, rows), default=0), width - taken - 2))
        lines = [
            f"{_shortened(printable(problem), room):<{room}}  "
            + gap.join(f"{cell:<{w}}" for cell, w in zip(cells, widths, strict=True))
            for problem, cells in rows.items()
        ]
        legend = ", ".join(f"{letter} {name}" for name, letter in LETTERS.items())
        said.append(f"{legend}; a letter a run, a column a solver")
        total = self.counts
        states = ", ".join(f"{count} {name}" for name, count in total.items() if count)
        said.append(f"{sum(total.values())}: {states}")
        return Group(summary, Text("\n".join([*lines, "", *said]), no_wrap=True))


def _shortened(text: str, width: int) -> str:
    """Return a text of at most so many characters: its beginning and its end."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _letters(cell: Mapping[str, int]) -> str:
    """Return a letter for each run, or a letter and a number where they are many."""
    if sum(cell.values()) <= 5:
        return "".join(letter * cell.get(name, 0) for name, letter in LETTERS.items())
    return "".join(f"{cell[name]}{letter}" for name, letter in LETTERS.items() if cell.get(name, 0))


def states(store: LineStore[Any]) -> States:
    """Return the state of each run that was planned for a store or has a record there."""
    places: dict[Hashable, tuple[str, str]] = {}
    remarks: list[str] = []
    plans = plans_of(store)
    if plans.exists():
        for entry in plans:
            places.update((run.key, run.place) for run in entry.plan.runs())
        remarks = plans.remarks
    last: dict[Hashable, RunRecord] = {}
    for record in store:
        last[record.key] = record
        # A plan knows the present label of a method.
        places.setdefault(record.key, record.place)
    cells: dict[tuple[str, str], dict[str, int]] = {}
    for key, place in places.items():
        cell = cells.setdefault(place, {})
        name = state(last.get(key))
        cell[name] = cell.get(name, 0) + 1
    return States(
        cells,
        list(dict.fromkeys(problem for problem, _ in cells)),
        list(dict.fromkeys(solver for _, solver in cells)),
        store.remarks + remarks,
    )


# ---------------------------------------------------------------------- merging


def merge(
    sources: Sequence[RecordStore | FitStore], target: RecordStore | FitStore
) -> tuple[int, int]:
    """Append to a store what others hold and it does not, plans included."""
    found: dict[str, Any] = {}
    noted: dict[str, Any] = {}
    total = 0
    for source in sources:
        if source.kind is not target.kind:
            raise InputError(f"{source.path} holds something else than {target.path} does")
        for record in source:
            found.setdefault(record.identity, record)
            total += 1
        plans = plans_of(source)
        if plans.exists():
            noted.update((plan.id, plan) for plan in plans)
    into: LineStore[Any] = target
    held = {record.identity for record in into.prepare()}
    new = [record for name, record in found.items() if name not in held]
    into.extend(new)
    if isinstance(target, FitStore):
        for source in sources:
            note_environments(target.path.parent, environments(source.path.parent))
    plans = plans_of(target)
    known = {plan.id for plan in plans.prepare(ours=True)}
    plans.extend(plan for plan in noted.values() if plan.id not in known)
    return len(new), total - len(new)
