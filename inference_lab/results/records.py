"""Records: one run of one solver on one problem, and the file they are kept in."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import uuid
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta, field

from inference_lab.contract import Status, TracePoint
from inference_lab.results.json_lines import JsonLine, RecordError, jsonable
from inference_lab.results.line_store import LineStore, RecordWarning

__all__ = [
    "SCHEMA",
    "TRACE_LIMIT",
    "Record",
    "RecordError",
    "RecordStore",
    "RecordWarning",
    "RunKey",
    "RunRecord",
    "environment",
    "jsonable",
    "physical_memory",
    "thin_trace",
]

#: Version of the record's fields.
SCHEMA = 7

#: Statuses of runs that did not end as their method would have it.
FAILURES = ("error", "crash", "memory", "timeout")

#: Types of fields with their ranges; `Seconds` and `Limit` are finite.
_LARGEST = sys.float_info.max
Name = Annotated[str, Meta(max_length=100_000)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0.0, le=_LARGEST)]
Limit = Annotated[float, Meta(gt=0.0, le=_LARGEST)]


def any_of(words: Iterable[str]) -> Meta:
    """Return the range of a text that is one of some words."""
    return Meta(pattern=f"^({'|'.join(words)})$")


#: A record keeps at most this many points of its run's history.
TRACE_LIMIT = 200


def thin_trace(trace: Iterable[TracePoint], limit: int = TRACE_LIMIT) -> tuple[TracePoint, ...]:
    """Return at most `limit` points of a history: the first, the last, and improvements."""
    points = list(trace)
    if len(points) <= limit:
        return tuple(points)
    kept = [points[0]]
    for before, point in pairwise(points[:-1]):
        if point.best_energy != before.best_energy or point.lower_bound != before.lower_bound:
            kept.append(point)
    kept.append(points[-1])
    if len(kept) > limit:
        steps = np.linspace(0, len(kept) - 1, limit).round().astype(int)
        kept = [kept[int(s)] for s in steps]
    return tuple(kept)


@cache
def environment() -> dict[str, Any]:
    """Return versions, platform and processors; ``id`` is a digest of the rest."""
    import inference_lab

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    facts = {
        "inference_lab": inference_lab.__version__,
        "python": platform.python_version(),
        **{name: installed(name) for name in ("numpy", "numba", "scipy")},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "memory": physical_memory(),
    }
    text = json.dumps(facts, sort_keys=True)
    return {"id": hashlib.sha256(text.encode()).hexdigest()[:8], **facts}


def _processor() -> str:
    """Return the name of the processor, if the system reports it."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def physical_memory() -> int | None:
    """Return the bytes of memory that this process can have: the machine's, or its cgroup's."""
    sizes = []
    with suppress(OSError, ValueError, AttributeError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{place}") as stream:
            sizes.append(int(stream.read()))
    return min(sizes, default=None)


class RunKey(NamedTuple):
    """The question of a run: of runs with the same key, one is enough."""

    # Limits of memory are no part of it, since they only decide whether a run fails.

    problem: str
    problem_hash: str
    solver: str
    solver_version: int
    solver_source: str
    seed: int | None
    repeat: int
    time_limit: float | None
    temperature: float
    threads: int
    clock: str = "wall"


class RunRecord(JsonLine, frozen=True, kw_only=True):
    """Base of records of runs, of a solver or of a fit."""

    #: `status`, `message`, `traceback`: How it ended; one of `FAILURES` where it did not end as its
    #: method would have it.
    status: str
    message: str = ""
    traceback: str = ""
    #: `time_limit`: Seconds that the run was given.
    time_limit: Limit | None = None
    #: `cpu_seconds`, `peak_memory`, `memory_limit`, `exit_code`: Of the run's own process, where it
    #: had one: user and system time, with loading and evaluation; bytes resident at most; bytes it
    #: might take; how it ended.
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    memory_limit: int | None = None
    exit_code: int | None = None
    #: `wall_seconds`: From the start of the process to its end, everything included.
    wall_seconds: float | None = None
    #: `started`, `finished`: Times in UTC, ISO 8601.
    started: str = ""
    finished: str = ""

    @property
    def refused(self) -> bool:
        """Whether no run was made: the method does not cover the problem, or is not installed."""
        return self.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED)

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """The inputs of the run; runs with the same key are interchangeable."""

    @property
    @abstractmethod
    def place(self) -> tuple[str, str]:
        """Where the run is shown among others: the problem, and the method."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The identity of this record, equal in all of its copies."""

    @property
    @abstractmethod
    def outcome(self) -> str:
        """The outcome of the run, in a few words."""

    @property
    def failed(self) -> bool:
        """Whether the run ended in an error, or was ended."""
        return self.status in FAILURES


class Record(RunRecord, frozen=True, kw_only=True):
    """One run of one solver on one problem: the question, the answer, and the machine.

    `key`, `place`, `identity` and `outcome` are as in `RunRecord`.
    """

    SCHEMA: ClassVar[int] = SCHEMA

    schema: int = SCHEMA
    #: Unique name of the run, 48 random bits.
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    #: Name (a spec string where there is one) and `FactorGraph.content_hash`.
    problem: Name
    problem_hash: str
    #: Its sizes; `n_labels` is the largest cardinality.
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    #: The minimum energy where it is proved elsewhere, and where.
    optimum: float | None = None
    optimum_source: str = ""
    #: Energy of the ground truth.
    truth_energy: float | None = None
    #: What an energy of the problem is small against, see `inference_lab.contract.proves`.
    small_energy: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    #: Further facts about the problem.
    problem_info: Mapping[str, Any] = {}
    #: Spec string and registered name, and all settings, default or not.
    solver: Name
    solver_name: str
    settings: Mapping[str, Any] = {}
    solver_version: int = 1
    #: Digest of the file of a class from outside the library: runs are made again after an edit.
    solver_source: str = ""
    #: The seed and temperature of the run, and its number among those that were asked the same.
    seed: Count | None = None
    temperature: float = 0.0
    repeat: int = 0
    #: Threads that numerical libraries may use.
    threads: int = 1
    #: The unit of all seconds: wall time, or the time that processors worked.
    clock: Literal["wall", "cpu"] = "wall"
    #: A value of `inference_lab.Status`.
    status: Annotated[str, any_of(Status)]
    #: As in `inference_lab.Solution`, evaluated independently; the claim is the solver's own.
    energy: Annotated[float, Meta(ge=-_LARGEST)] = math.inf
    claimed_energy: float | None = None
    lower_bound: float = -math.inf
    gap: float = math.inf
    #: Digest of the best labelling: whether two runs found the same.
    labels_hash: str = ""
    #: The labelling, see `inference_lab.results.label_codec`; empty from 100,000 variables on.
    labels: str = ""
    #: Agreement with the ground truth (`inference_lab.results.scoring`), where there is one.
    pairwise_f: float | None = None
    nmi: float | None = None
    ari: float | None = None
    accuracy: float | None = None
    #: Further scores of the problem's own, such as ``bad_pixels``.
    scores: Mapping[str, Any] = {}
    #: The solver's own time; compilation within the run; building the problem.
    seconds: Seconds = 0.0
    compile_seconds: Seconds = 0.0
    setup_seconds: Seconds = 0.0
    iterations: Count = 0
    log_partition: float | None = None
    log_partition_kind: str | None = None
    #: History of the run, thinned to `TRACE_LIMIT` points.
    trace: tuple[TracePoint, ...] = ()
    #: The solver's own figures.
    diagnostics: Mapping[str, Any] = {}
    environment: Mapping[str, Any] = field(default_factory=environment)

    def __post_init__(self) -> None:
        """Refuse a bound that bounds nothing."""
        if math.isnan(self.lower_bound):
            raise ValueError("Expected `lower_bound` to be no NaN")

    @property
    def key(self) -> RunKey:
        """The inputs of the run; see `RunKey`."""
        return RunKey._make(getattr(self, name) for name in RunKey._fields)

    @property
    def place(self) -> tuple[str, str]:
        """The problem and the solver."""
        return self.problem, self.solver

    @property
    def identity(self) -> str:
        """Unique name of the run."""
        return self.id

    @property
    def outcome(self) -> str:
        """The energy, the status and the solver's own time, or why there is no answer."""
        if self.failed or self.refused:
            return f"{self.status}: {self.message}"
        found = math.isfinite(self.energy)
        energy = f"energy {self.energy:.7g}" if found else "no labelling of finite energy"
        return f"{energy}, {self.status}, {self.seconds:.3g} s"

    @property
    def answered(self) -> bool:
        """Whether the run gave a labelling of finite energy, or the proof that there is none."""
        return math.isfinite(self.energy) or self.status == "infeasible"


class RecordStore(LineStore[Record]):
    """A file of records of runs, see `LineStore`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, Record)
