"""One run of any task in an isolated process under limits, with a record for every outcome."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from functools import cache
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from inference_lab.formatting import shortened
from inference_lab.processes.isolation import (
    ExitReason,
    ProcessResult,
    can_isolate,
    isolated,
)
from inference_lab.processes.memory import physical_memory
from inference_lab.processes.workers import Crash, format_exception, traceback_tail
from inference_lab.results.json_lines import RecordError, clean_text
from inference_lab.results.records import RunRecord

_R = TypeVar("_R", bound=RunRecord)


class Limits(NamedTuple):
    """The limits of the process of a run."""

    #: Whether the run has a process. If not, or if the system cannot fork, no limit applies.
    isolated: bool = True
    #: Bytes of address space that the process may take beyond the loaded libraries; "auto" is the
    #: memory of the machine that makes the run, divided by the number of its processors.
    memory: int | Literal["auto"] | None = None
    #: Seconds after which the process is killed.
    wall: float | None = None

    @property
    def hold(self) -> bool:
        """Whether a run has a process of its own."""
        return self.isolated and can_isolate()

    @property
    def memory_bytes(self) -> int | None:
        """The limit on memory in bytes on this machine, None without limit."""
        return _memory_of_a_processor() if self.memory == "auto" else self.memory


@cache
def _memory_of_a_processor() -> int:
    """Return the bytes of memory of this machine for each processor that this process may use."""
    from joblib import cpu_count

    return physical_memory() // max(1, int(cpu_count()))


def now() -> str:
    """Return the time in UTC for display; durations use other clocks."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def one_line(problem: BaseException | str) -> str:
    """Return the message of an exception on one line, shortened."""
    try:
        text = " ".join(str(problem).split())
    except Exception:  # because a user's exception may raise in ``__str__``
        text = ""
    return shortened(clean_text(text) or type(problem).__name__, 400)


#: The keys warmed up so far, and whether their warm-up succeeded in an isolated process.
_warm: dict[Hashable, bool] = {}


def is_warm(key: Hashable) -> bool:
    """Whether `warm_up_apart` has been called with this key in this process."""
    return key in _warm


def warm_up_apart(
    key: Hashable,
    warm_up: Callable[..., None],
    *arguments: Any,
    limits: Limits,
    here: bool,
) -> bool:
    """Call a warm-up in an isolated process, once per key; return whether it succeeded there."""
    if key not in _warm:
        if limits.hold:
            _warm[key] = _patiently(warm_up, arguments, limits).end == ExitReason.RETURNED
            if _warm[key] and here:
                warm_up(*arguments)
        else:
            _warm[key] = True
            warm_up(*arguments)
    return _warm[key]


def _patiently(
    work: Callable[..., Any], arguments: tuple[Any, ...], limits: Limits
) -> ProcessResult:
    """Call `isolated`, and repeat the call once if it was killed while compiling."""

    def call() -> ProcessResult:
        return isolated(work, *arguments, wall_limit=limits.wall, memory_limit=limits.memory_bytes)

    ended = call()
    return call() if ended.loading else ended


def attempt(
    asked: _R,
    work: Callable[..., Any],
    *arguments: Any,
    limits: Limits,
    answered: Callable[[_R, Any], _R],
    salvage: Callable[[_R, ProcessResult], _R] | None = None,
) -> _R:
    """Make a run; return its record, from `answered` if there is a value, else from `salvage`."""
    if limits.hold:
        ended = _patiently(work, arguments, limits)
        facts: dict[str, Any] = {
            "memory_limit": limits.memory_bytes,
            "cpu_seconds": ended.cpu_seconds,
            "peak_memory": ended.peak_memory,
            "exit_code": ended.exit_code,
        }
    else:
        ended = _here(work, arguments)
        facts = {}
        salvage = None
    if ended.output:
        # Output of runs goes to standard error, because standard output is for results.
        print(ended.output, end="", file=sys.stderr, flush=True)
    if ended.end == ExitReason.RETURNED:
        record = answered(asked, ended.value)
    else:
        record = (salvage or unanswered)(asked, ended)
    facts |= {"wall_seconds": ended.wall_seconds, "finished": now()}
    try:
        return replace(record, **facts).checked()
    except RecordError as problem:
        reason = f"the run returned a value that a record cannot store: {problem}"
        return replace(crashed(asked, Crash(reason, "")), **facts).checked()


def _here(work: Callable[..., Any], arguments: tuple[Any, ...]) -> ProcessResult:
    """Call a function in this process, and catch every exception except Ctrl-C."""
    begin = perf_counter()
    try:
        ended = ProcessResult(ExitReason.RETURNED, work(*arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        texts = format_exception(problem), traceback_tail(problem)
        ended = ProcessResult(ExitReason.RAISED, None, *texts)
    return dataclasses.replace(ended, wall_seconds=perf_counter() - begin)


def unanswered(asked: _R, ended: ProcessResult) -> _R:
    """Return the record of a run that ended without an answer, with its reason."""
    status = "error" if ended.end == ExitReason.RAISED else str(ended.end)
    return _failed(asked, status, ended.message, ended.traceback)


def crashed(asked: _R, crash: Crash) -> _R:
    """Return the record of a run that crashed, by default with status ``error``."""
    record = _failed(asked, crash.status, crash.message, crash.traceback)
    return replace(record, finished=now())


def _failed(asked: _R, status: str, message: str, traceback: str) -> _R:
    return replace(asked, status=status, message=one_line(message), traceback=clean_text(traceback))
