"""The plan of a store, ``runs.plan.jsonl`` beside ``runs.jsonl``, used to count missing runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple, Self

import msgspec

from inference_lab.results.clustering_records import FitKey, StudyRecord
from inference_lab.results.json_lines import JsonLine
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import Record, RunKey, RunRecord

__all__ = [
    "ManifestEntry",
    "PlannedFits",
    "PlannedRun",
    "PlannedRuns",
    "StagePlan",
    "note_plans",
    "plans_of",
]

#: Largest number of runs in a plan.
_LARGEST_PLAN = 10_000_000


class PlannedRun(NamedTuple):
    """The key and the place of the record of a planned run."""

    key: Hashable
    place: tuple[str, str]


class PlannedRuns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The planned runs of a comparison of solvers."""

    #: Names of problems with hashes of their content; specs of solvers with versions and digests
    #: of their files.
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

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned runs."""
        given = (self.time_limit, self.temperature, self.threads, self.clock)
        for problem, solver, seed in product(self.problems, self.solvers, self.seeds):
            for repeat in range(self.repeats):
                key = RunKey._make((*problem, *solver, seed, repeat, *given))
                yield PlannedRun(key, (problem[0], solver[0]))


class StagePlan(msgspec.Struct, frozen=True):
    """The planned fits of a stage: data, methods with their keys, constraints, the protocol."""

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

    def fits(self) -> Iterator[PlannedRun]:
        """Yield the planned fits."""
        protocol = (self.train, self.scored, self.noise, self.unit)
        for data, value, (label, method) in product(self.data, self.constraints, self.methods):
            for run in range(self.runs):
                key = FitKey(data, method, value, run, *protocol)
                yield PlannedRun(key, (key.task, label))


class PlannedFits(msgspec.Struct, frozen=True):
    """The planned fits of a study of clustering; stages may share some."""

    stages: list[StagePlan]

    def count(self) -> int:
        """Return the number of planned fits, counting shared ones once for each stage."""
        return sum(stage.count() for stage in self.stages)

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the planned fits."""
        for stage in self.stages:
            yield from stage.fits()


class ManifestEntry(JsonLine, frozen=True, kw_only=True):
    """One plan of a store, with its digest."""

    id: str
    plan: PlannedRuns | PlannedFits

    @classmethod
    def of(cls, plan: PlannedRuns | PlannedFits) -> Self:
        """Build the entry of a plan."""
        text = json.dumps(msgspec.to_builtins(plan), sort_keys=True)
        return cls(id=hashlib.sha256(text.encode()).hexdigest()[:16], plan=plan)

    def __post_init__(self) -> None:
        """Refuse a plan that is too large."""
        if (total := self.plan.count()) > _LARGEST_PLAN:
            raise ValueError(f"a plan has {total} runs; at most {_LARGEST_PLAN} can be handled")


class _RunsEntry(ManifestEntry, frozen=True, kw_only=True):
    plan: PlannedRuns


class _FitsEntry(ManifestEntry, frozen=True, kw_only=True):
    plan: PlannedFits


#: Class of the entries of a plan, by record class of the store.
_KINDS: Mapping[type[RunRecord], type[ManifestEntry]] = {
    Record: _RunsEntry,
    StudyRecord: _FitsEntry,
}


def plans_of(store: LineStore[Any]) -> LineStore[ManifestEntry]:
    """Return the plan file beside a store."""
    return LineStore(store.beside(".plan.jsonl"), _KINDS[store.kind])


def note_plans(store: LineStore[Any], entries: Iterable[ManifestEntry]) -> None:
    """Append plans to the plan file of a store, unless they are already there."""
    plans = plans_of(store)
    known = {old.id for old in plans.prepare(ours=True)}
    plans.extend(entry for entry in entries if entry.id not in known)
