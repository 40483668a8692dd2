"""What a folder of results holds: records, and what was planned; states of runs, and merging.

Beside the records of ``runs.jsonl`` stands ``runs.plan.jsonl``: each comparison that writes there
notes what it is going to run, so that what is missing is known without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from inference_lab.harness.planning import InputError, Plan, solver_source
from inference_lab.results.json_lines import JsonLine
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import Record, RecordError, RecordStore, RunKey
from inference_lab.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Planned", "States", "find_store", "merge", "note_plan", "planned", "states"]

#: A plan with more runs than these is none.
_LARGEST_PLAN = 10_000_000

#: Name of the file of records in a folder.
RECORDS = "runs.jsonl"

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


@dataclass(frozen=True, kw_only=True)
class Planned(JsonLine):
    """What one comparison is going to run.

    Attributes
    ----------
    id : str
        Digest of the plan.
    plan : mapping
        ``problems`` (name and content hash), ``solvers`` (spec, version, digest of the source),
        ``seeds``, ``repeats``, ``time_limit``, ``temperature``, ``threads``.
    """

    SCHEMA: ClassVar[int] = 1

    schema: int = 1
    id: str
    plan: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        """Return what is noted of a plan."""
        noted = {
            "problems": [[c.problem.name, c.problem.graph.content_hash] for c in plan.cases],
            "solvers": [
                [solver.spec, solver.version, solver_source(solver)] for solver in plan.solvers
            ],
            "seeds": plan.seeds,
            "repeats": plan.repeats,
            "time_limit": plan.settings.time_limit,
            "temperature": plan.settings.temperature,
            "threads": plan.settings.threads,
        }
        text = json.dumps(noted, sort_keys=True)
        return cls(id=hashlib.sha256(text.encode()).hexdigest()[:16], plan=noted)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as strict JSON holds it: all of it, however many runs it has."""
        return {"schema": self.schema, "id": self.id, "plan": self.plan}

    def check(self) -> None:
        """Refuse what is no plan, or too large a one."""
        problems, solvers, seeds, repeats, _ = self._parts()
        total = len(problems) * len(solvers) * len(seeds) * repeats
        if total > _LARGEST_PLAN:
            raise RecordError(f"a plan has {total} runs; at most {_LARGEST_PLAN} can be handled")

    def keys(self) -> Iterator[RunKey]:
        """Yield the keys of the planned runs."""
        problems, solvers, seeds, repeats, asked = self._parts()
        for problem, digest in problems:
            for solver, version, source in solvers:
                for seed in seeds:
                    for repeat in range(repeats):
                        what = (problem, digest, solver, version, source, seed, repeat)
                        yield RunKey(*what, *asked)

    def _parts(self) -> tuple[Any, ...]:
        try:
            problems = [(str(name), str(digest)) for name, digest in self.plan["problems"]]
            solvers = [(str(spec), int(v), str(source)) for spec, v, source in self.plan["solvers"]]
            seeds = [int(seed) for seed in self.plan["seeds"]]
            repeats = int(self.plan["repeats"])
            limit = self.plan["time_limit"]
            asked = (
                None if limit is None else float(limit),
                float(self.plan["temperature"]),
                int(self.plan["threads"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as reason:
            raise RecordError(f"a plan lacks something: {reason!r}") from None
        return problems, solvers, seeds, repeats, asked


def _plans(store: RecordStore) -> LineStore[Planned]:
    return LineStore(store.beside(".plan.jsonl"), Planned)


def note_plan(store: RecordStore, plan: Planned) -> None:
    """Write down what is going to be run, unless it is noted already."""
    plans = _plans(store)
    if all(old.id != plan.id for old in plans.prepare(ours=True)):
        plans.append(plan)


def planned(store: RecordStore) -> tuple[dict[RunKey, None], list[str]]:
    """Return the keys of all runs that were planned for a store, in order, and remarks on them."""
    plans = _plans(store)
    if not plans.path.exists():
        return {}, []
    return dict.fromkeys(key for plan in plans for key in plan.keys()), plans.remarks


def find_store(place: str | os.PathLike[str]) -> RecordStore:
    """Return the store of a folder, or of a file of records.

    Raises
    ------
    InputError
        If there is none.
    """
    path = Path(place)
    if path.is_dir():
        store = RecordStore(path / RECORDS)
        if not store.path.is_file():
            raise InputError(f"{path} holds no records: there is no {RECORDS} in it")
        return store
    store = RecordStore(path)
    if not store.path.is_file():
        raise InputError(f"{path} does not exist")
    return store


# ---------------------------------------------------------------------- states


def state(record: Record | None) -> str:
    """Return the state of a run: a key of `LETTERS`."""
    if record is None:
        return "missing"
    if record.status in ("timeout", "unsupported"):
        return record.status
    return "failed" if record.failed else "done"


@dataclass(frozen=True)
class States:
    """How far the runs of a store are.

    Parameters
    ----------
    cells : mapping of (problem, solver) to mapping of state to number of runs
    problems, solvers : list of str
    remarks : list of str
        What the store holds besides, each a sentence; see `LineStore`.
    """

    cells: Mapping[tuple[str, str], Mapping[str, int]]
    problems: list[str]
    solvers: list[str]
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
        """Return a table of the solvers, and under it the matrix of states, a letter for each run.

        Parameters
        ----------
        width : int
            Characters there is room for. Problems of which all runs are done are left out where
            there are many.
        """
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


def states(store: RecordStore) -> States:
    """Return the state of each run that was planned for a store or has a record there.

    Raises
    ------
    OSError
        If the files cannot be read.
    """
    keys, remarks = planned(store)
    last: dict[RunKey, Record | None] = dict(keys)
    for record in store:
        last[record.key] = record
    cells: dict[tuple[str, str], dict[str, int]] = {}
    for key, found in last.items():
        cell = cells.setdefault((key.problem, key.solver), {})
        name = state(found)
        cell[name] = cell.get(name, 0) + 1
    return States(
        cells,
        list(dict.fromkeys(problem for problem, _ in cells)),
        list(dict.fromkeys(solver for _, solver in cells)),
        store.remarks + remarks,
    )


# ---------------------------------------------------------------------- merging


def merge(sources: Iterable[RecordStore], target: RecordStore) -> tuple[int, int]:
    """Append to a store what others hold and it does not, plans included.

    Records are known by their ids, so merging again changes nothing. Of runs with the same key, the
    last one counts: of the last store that has one.

    Returns
    -------
    tuple of int
        Numbers of records added, and of records that were there already.

    Raises
    ------
    OSError
        If a file cannot be read or written; nothing is written before all are read.
    RecordError
        If the file of the target is something else than a store.
    """
    found: dict[str, Record] = {}
    noted: dict[str, Planned] = {}
    total = 0
    for source in sources:
        for record in source:
            found.setdefault(record.id, record)
            total += 1
        plans = _plans(source)
        if plans.path.exists():
            noted.update((plan.id, plan) for plan in plans)
    held = {record.id for record in target.prepare()}
    new = [record for record in found.values() if record.id not in held]
    target.extend(new)
    plans = _plans(target)
    known = {plan.id for plan in plans.prepare(ours=True)}
    plans.extend(plan for plan in noted.values() if plan.id not in known)
    return len(new), total - len(new)
