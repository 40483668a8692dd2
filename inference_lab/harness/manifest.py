"""The planned runs of a store, ``runs.plan.jsonl`` beside ``runs.jsonl``, to count missing runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from inference_lab.results.json_lines import JsonLine
from inference_lab.results.line_store import LineStore

__all__ = ["PlannedRun", "note_plan", "plan_of"]


class PlannedRun(JsonLine, frozen=True, kw_only=True):
    """The key and the place of the record of a planned run, see `RunRecord`."""

    SCHEMA: ClassVar[int] = 2

    schema: int = 2
    key: tuple[str | float | int | None, ...]
    place: tuple[str, str]


def plan_of(store: LineStore[Any]) -> LineStore[PlannedRun]:
    """Return the plan beside a store; of several entries of one key, the last one counts."""
    return LineStore(store.beside(".plan.jsonl"), PlannedRun)


def note_plan(store: LineStore[Any], planned: Iterable[PlannedRun]) -> None:
    """Append runs to the plan of a store, unless they are already there."""
    plan = plan_of(store)
    known = set(plan.prepare(ours=True))
    plan.extend(run for run in dict.fromkeys(planned) if run not in known)
