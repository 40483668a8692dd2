"""Records: one run of one solver on one problem, and the store of the records."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta, field

from inference_lab.contract import Status, TracePoint
from inference_lab.processes.memory import physical_memory
from inference_lab.results.json_lines import JsonLine
from inference_lab.results.line_store import LineStore

#: Version of the record's fields.
SCHEMA = 8

#: Statuses of runs that failed or were stopped from outside.
FAILURES = ("error", "crash", "memory", "timeout")

#: Scores that have their own fields in a record.
STANDARD_SCORES = ("pairwise_f", "nmi", "ari", "accuracy")

#: Types of fields with their ranges; `Seconds` and `Limit` are finite.
_LARGEST = sys.float_info.max
Name = Annotated[str, Meta(max_length=100_000)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0.0, le=_LARGEST)]
Limit = Annotated[float, Meta(gt=0.0, le=_LARGEST)]


def any_of(words: Iterable[str]) -> Meta:
    """Return the constraint on a text field that allows only some words."""
    return Meta(pattern=f"^({'|'.join(words)})$")


#: Largest number of trace points in a record.
TRACE_LIMIT = 200


def thin_trace(trace: Iterable[TracePoint], limit: int = TRACE_LIMIT) -> tuple[TracePoint, ...]:
    """Return at most `limit` points of a trace: the first, the last, and improvements."""
    points = list(trace)
    if len(points) <= limit:
        return tuple(points)
    selection = [points[0]]
    for before, point in pairwise(points[:-1]):
        if point.best_energy != before.best_energy or point.lower_bound != before.lower_bound:
            selection.append(point)
    selection.append(points[-1])
    if len(selection) > limit:
        steps = np.linspace(0, len(selection) - 1, limit).round().astype(int)
        selection = [selection[int(s)] for s in steps]
    return tuple(selection)


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


class RunKey(NamedTuple):
    """The inputs of a run; runs with the same key are interchangeable."""

    # Memory limits are excluded because they only decide whether a run fails.

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
    absolute_gap: float = 0.0

    @property
    def request(self) -> RunKey:
        """The same inputs with any code of the solver."""
        return self._replace(solver_version=0, solver_source="")


class RunRecord(JsonLine, frozen=True, kw_only=True):
    """Base of records of runs, of a solver or of a fit."""

    #: `status`, `message`, `traceback`: The end of the run; one of `FAILURES` if it failed or was
    #: stopped from outside.
    status: str
    message: str = ""
    traceback: str = ""
    #: `time_limit`: Time limit of the run, in seconds.
    time_limit: Limit | None = None
    #: `cpu_seconds`, `peak_memory`, `memory_limit`, `exit_code`: Values of the run's own process,
    #: if it had one: user and system time, with loading and evaluation; peak resident bytes; limit
    #: in bytes; exit code.
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    memory_limit: int | None = None
    exit_code: int | None = None
    #: `wall_seconds`: Wall time from the start of the process to its end.
    wall_seconds: float | None = None
    #: `started`, `finished`: Times in UTC, ISO 8601.
    started: str = ""
    finished: str = ""

    @property
    def refused(self) -> bool:
        """Whether the method does not support the problem, or is not installed: there is no run."""
        return self.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED)

    @property
    @abstractmethod
    def key(self) -> Any:
        """The inputs of the run, hashable; runs with the same key are interchangeable."""

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
        """Whether the run ended in an error, or was stopped from outside."""
        return self.status in FAILURES


class Record(RunRecord, frozen=True, kw_only=True):
    """One run of one solver on one problem: its inputs, its results, and the machine.

    `key`, `identity` and `outcome` are as in `RunRecord`.
    """

    SCHEMA: ClassVar[int] = SCHEMA
    SETTINGS: ClassVar[tuple[str, ...]] = ("settings", "problem_info")
    NUMBERS: ClassVar[tuple[str, ...]] = ("scores",)
    NULLS: ClassVar[Mapping[str, float]] = {
        "energy": math.inf,
        "best_energy": math.inf,
        "lower_bound": -math.inf,
    }

    schema: int = SCHEMA
    #: Unique name of the run, 48 random bits.
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    #: Name (a spec string where there is one) and `FactorGraph.content_hash`.
    problem: Name
    problem_hash: str
    #: Sizes of the graph; `n_labels` is the largest cardinality.
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    #: The minimum energy, if it is proved elsewhere, and the source of the proof.
    optimum: float | None = None
    optimum_source: str = ""
    #: Energy of the ground truth.
    truth_energy: float | None = None
    #: Scale of the problem's energies, see `inference_lab.contract.energy_scale`.
    energy_scale: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    #: Further facts about the problem.
    problem_info: Mapping[str, Any] = {}
    #: Spec string and registered name, and all settings, including defaults.
    solver: Name
    solver_name: str
    settings: Mapping[str, Any] = {}
    solver_version: int = 1
    #: Digest of the file of a class from outside the library: runs are repeated after an edit.
    solver_source: str = ""
    #: The seed and temperature of the run, and its number among repeats with the same inputs.
    seed: Count | None = None
    temperature: float = 0.0
    repeat: int = 0
    #: The gap that the run accepted as a proof.
    absolute_gap: float = 0.0
    #: Threads that numerical libraries may use.
    threads: int = 1
    #: The clock of all seconds: wall time, or CPU time.
    clock: Literal["wall", "cpu"] = "wall"
    #: A value of `inference_lab.Status`.
    status: Annotated[str, any_of(Status)]
    #: See `Solution`; `energy` is evaluated independently, `claimed_energy` is the solver's. In a
    #: line null means no labelling of finite energy (+inf), no gap (+inf) and no bound (-inf); the
    #: `status` gives the reason. ``not_finite`` names other cases: the bound of the infeasible.
    energy: Annotated[float, Meta(ge=-_LARGEST)] = math.inf
    claimed_energy: float | None = None
    lower_bound: float = -math.inf
    gap: float = math.inf
    #: Rounding error of energies of this size, `FactorGraph.resolution_at`, and the gap at which a
    #: bound proves the energy, see `Solution`; None in records from before there were any.
    resolution: float | None = None
    tolerance: float | None = None
    #: Digest of the best labelling, equal if two runs found the same.
    labels_hash: str = ""
    #: The labelling, see `inference_lab.results.label_codec`; empty above the limits there.
    labels: str = ""
    #: Agreement with the ground truth (`inference_lab.results.scoring`), if there is one.
    pairwise_f: float | None = None
    nmi: float | None = None
    ari: float | None = None
    accuracy: float | None = None
    #: Further scores that the problem defines, such as ``bad_pixels``.
    scores: Mapping[str, Any] = {}
    #: Time of the solver; of compilation within the run; of building the problem.
    seconds: Seconds = 0.0
    compile_seconds: Seconds = 0.0
    setup_seconds: Seconds = 0.0
    iterations: Count = 0
    log_partition: float | None = None
    log_partition_kind: str | None = None
    #: Trace of the run, thinned to `TRACE_LIMIT` points.
    trace: tuple[TracePoint, ...] = ()
    #: Diagnostics that the solver reports.
    diagnostics: Mapping[str, Any] = {}
    environment: Mapping[str, Any] = field(default_factory=environment)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a lower bound that is NaN."""
        if math.isnan(self.lower_bound):
            raise ValueError("Expected `lower_bound` to be no NaN")

    @property
    def key(self) -> RunKey:
        """The inputs of the run; see `RunKey`."""
        return RunKey._make(getattr(self, name) for name in RunKey._fields)

    @property
    def identity(self) -> str:
        """Unique name of the run."""
        return self.id

    @property
    def outcome(self) -> str:
        """The energy, the status and the time of the solver, or the reason for a missing answer."""
        if self.failed or self.refused:
            return f"{self.status}: {self.message}"
        finite = math.isfinite(self.energy)
        energy = f"energy {self.energy:.7g}" if finite else "no labelling of finite energy"
        return f"{energy}, {self.status}, {self.seconds:.3g} s"

    @property
    def answered(self) -> bool:
        """Whether the run found a labelling of finite energy, or proved that none exists."""
        return math.isfinite(self.energy) or self.status == "infeasible"


class RecordStore(LineStore[Record]):
    """A file of records of runs, see `LineStore`."""

    kind = Record
