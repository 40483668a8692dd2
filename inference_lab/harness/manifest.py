"""The plan of a store, ``runs.plan.jsonl`` beside ``runs.jsonl``, from which gaps are counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

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
    """The plan of one campaign."""

    SCHEMA: ClassVar[int] = 1
    #: The type of `parts`.
    PARTS: ClassVar[Any]

    schema: int = 1
    #: Digest of the plan.
    id: str
    #: No `Mapping`, which would be cut: a plan is kept in full, however many runs it has.
    plan: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: dict[str, Any]) -> Self:
        """Build the entry of a plan that JSON can hold."""
        text = json.dumps(plan, sort_keys=True)
        return cls(id=hashlib.sha256(text.encode()).hexdigest()[:16], plan=plan)

    def check(self) -> None:
        """Raise if this is not a plan, or too large."""
        try:
            total = sum(part.count() for part in self.parts())
        except msgspec.ValidationError as reason:
            raise RecordError(f"a plan cannot be read: {reason}") from None
        if total > _LARGEST_PLAN:
            raise RecordError(f"a plan has {total} runs; at most {_LARGEST_PLAN} can be handled")

    def parts(self) -> Sequence[_Runs | _Stage]:
        """Return the parts of the plan, its ``stages`` or the whole, with their types checked."""
        parts: list[_Runs | _Stage] = msgspec.convert(
            self.plan.get("stages", [self.plan]), self.PARTS
        )
        return parts

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned runs; parts of a study may share some."""
        for part in self.parts():
            yield from part.planned()


class _Runs(msgspec.Struct):
    """The plan of a comparison: names with hashes, specs with versions and sources, and so on."""

    problems: list[tuple[str, str]]
    solvers: list[tuple[str, int, str]]
    seeds: list[int]
    repeats: int
    time_limit: float | None
    temperature: float
    threads: int
    clock: str = "wall"

    def count(self) -> int:
        """Return the number of planned runs."""
        return len(self.problems) * len(self.solvers) * len(self.seeds) * self.repeats

    def planned(self) -> Iterator[PlannedRun]:
        """Yield the planned runs."""
        for (problem, digest), solver, seed in product(self.problems, self.solvers, self.seeds):
            spec, version, source = solver
            for repeat in range(self.repeats):
                key = RunKey(
                    problem,
                    digest,
                    spec,
                    version,
                    source,
                    seed,
                    repeat,
                    self.time_limit,
                    self.temperature,
                    self.threads,
                    self.clock,
                )
                yield PlannedRun(key, (problem, spec))


class _Stage(msgspec.Struct):
    """A stage of a study: data, methods with their keys, constraints, and the protocol."""

    data: list[str]
    methods: list[tuple[str, str]]
    constraints: list[float]
    runs: int
    train: float
    scored: str
    noise: float
    unit: str

    def count(self) -> int:
        """Return the number of planned fits."""
        return len(self.data) * len(self.methods) * len(self.constraints) * self.runs

    def planned(self) -> Iterator[PlannedRun]:
        """Yield the planned fits."""
        for data, value, (label, method) in product(self.data, self.constraints, self.methods):
            for run in range(self.runs):
                protocol = (self.train, self.scored, self.noise, self.unit)
                key = FitKey(data, method, value, run, *protocol)
                yield PlannedRun(key, (key.task, label))


class PlannedRuns(Planned):
    """The planned runs of a comparison of solvers; ``plan`` has the fields of `_Runs`."""

    PARTS = list[_Runs]


class PlannedFits(Planned):
    """The planned fits of a study of clustering; ``plan`` has ``stages``, each a `_Stage`."""

    PARTS = list[_Stage]


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
