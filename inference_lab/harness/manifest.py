"""What was planned for a store, noted beside it, so that what is missing is known without it.

Beside ``runs.jsonl`` stands ``runs.plan.jsonl``: each campaign that writes there notes what it is
going to run.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from inference_lab.results.clustering_records import FitKey, StudyRecord
from inference_lab.results.json_lines import JsonLine, RecordError
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import Record, RunKey, RunRecord

__all__ = ["Planned", "PlannedFits", "PlannedRun", "PlannedRuns", "note_plan", "plans_of"]

#: A plan with more runs than these is none.
_LARGEST_PLAN = 10_000_000


class PlannedRun(NamedTuple):
    """The key and the place of the record that a run is going to leave."""

    key: Hashable
    place: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Planned(JsonLine):
    """What one campaign is going to run.

    Attributes
    ----------
    id : str
        Digest of the plan.
    plan : mapping
    """

    SCHEMA: ClassVar[int] = 1

    schema: int = 1
    id: str
    #: No `Mapping`, which would be cut: a plan is kept in full, however many runs it has.
    plan: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: dict[str, Any]) -> Self:
        """Return what is noted of a plan that JSON can hold."""
        text = json.dumps(plan, sort_keys=True)
        return cls(id=hashlib.sha256(text.encode()).hexdigest()[:16], plan=plan)

    def check(self) -> None:
        """Refuse what is no plan, or too large a one."""
        try:
            total = self._count()
        except (KeyError, TypeError, ValueError, OverflowError) as reason:
            raise RecordError(f"a plan lacks something: {reason!r}") from None
        if total > _LARGEST_PLAN:
            raise RecordError(f"a plan has {total} runs; at most {_LARGEST_PLAN} can be handled")

    @abstractmethod
    def _count(self) -> int:
        """Return the number of planned runs, after a look at everything that tells of them."""

    @abstractmethod
    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned runs."""


class PlannedRuns(Planned):
    """What a comparison of solvers is going to run.

    ``plan`` has ``problems`` (name and content hash), ``solvers`` (spec, version, digest of the
    source), ``seeds``, ``repeats``, ``time_limit``, ``temperature``, ``threads``,
    and ``clock`` where it is not that on the wall.
    """

    def _count(self) -> int:
        problems, solvers, seeds, repeats, _ = self._parts()
        total: int = len(problems) * len(solvers) * len(seeds) * repeats
        return total

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned runs."""
        problems, solvers, seeds, repeats, asked = self._parts()
        for problem, digest in problems:
            for solver, version, source in solvers:
                for seed in seeds:
                    for repeat in range(repeats):
                        what = (problem, digest, solver, version, source, seed, repeat)
                        yield PlannedRun(RunKey(*what, *asked), (problem, solver))

    def _parts(self) -> tuple[Any, ...]:
        limit = self.plan["time_limit"]
        return (
            [(str(name), str(digest)) for name, digest in self.plan["problems"]],
            [(str(spec), int(v), str(source)) for spec, v, source in self.plan["solvers"]],
            [int(seed) for seed in self.plan["seeds"]],
            int(self.plan["repeats"]),
            (
                None if limit is None else float(limit),
                float(self.plan["temperature"]),
                int(self.plan["threads"]),
                str(self.plan.get("clock", "wall")),
            ),
        )


class PlannedFits(Planned):
    """What a study of clustering is going to fit.

    ``plan`` has ``stages``, each with ``data``, ``methods`` (label and key), ``constraints``,
    ``runs``, and of the protocol ``train``, ``scored``, ``noise`` and ``unit``.
    """

    def _count(self) -> int:
        counts: list[int] = [
            len(data) * len(methods) * len(constraints) * runs
            for data, methods, constraints, runs, _ in self._stages()
        ]
        return sum(counts)

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned fits; parts of a study may share some."""
        for data, methods, constraints, runs, protocol in self._stages():
            for name in data:
                for value in constraints:
                    for label, method in methods:
                        for run in range(runs):
                            key = FitKey(name, method, value, run, *protocol)
                            yield PlannedRun(key, (key.task, label))

    def _stages(self) -> list[tuple[Any, ...]]:
        return [
            (
                [str(name) for name in stage["data"]],
                [(str(label), str(key)) for label, key in stage["methods"]],
                [float(value) for value in stage["constraints"]],
                int(stage["runs"]),
                (
                    float(stage["train"]),
                    str(stage["scored"]),
                    float(stage["noise"]),
                    str(stage["unit"]),
                ),
            )
            for stage in self.plan["stages"]
        ]


#: How the plans of a store are noted, by what it holds.
_KINDS: Mapping[type[RunRecord], type[Planned]] = {
    Record: PlannedRuns,
    StudyRecord: PlannedFits,
}


def plans_of(store: LineStore[Any]) -> LineStore[Planned]:
    """Return the file beside a store that holds what was planned for it."""
    return LineStore(store.beside(".plan.jsonl"), _KINDS[store.kind])


def note_plan(store: LineStore[Any], plan: Planned) -> None:
    """Write down what is going to be run, unless it is noted already."""
    plans = plans_of(store)
    if all(old.id != plan.id for old in plans.prepare(ours=True)):
        plans.append(plan)
