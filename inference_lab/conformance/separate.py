"""Runs and checks in processes of their own: a solver that crashes fails a check, and no more."""

from __future__ import annotations

import mmap
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import psutil

import inference_lab.conformance.runs as runs
from inference_lab.conformance.checks import Examination
from inference_lab.conformance.runs import GROUPS, Case, Planned
from inference_lab.conformance.verdicts import Check, Verdict, run_check, with_graph
from inference_lab.processes.isolation import ExitReason, ProcessResult, isolated

__all__ = ["Separate"]

#: Seconds after `runs.PATIENCE` until a run is ended that makes no offers.
_GRACE = 5.0
#: Seconds until a whole process is ended, whatever it does; no solver has come near.
_WALL_LIMIT = 3600.0
#: Bytes of address space that a process may always take on top of what is loaded.
_LEAST_MEMORY = 4 << 30
#: Room for the call that is being made, in bytes.
_NOTE = 4096


class Separate:
    """The checks of an examination, each in a forked process, with shared runs made beforehand."""

    def __init__(self, examination: Examination) -> None:
        self.examination = examination
        self._note = mmap.mmap(-1, _NOTE)
        self._memory = max(_LEAST_MEMORY, psutil.virtual_memory().total // 2)
        self._hopeless = ""

    def prepare(self) -> None:
        """Make the shared runs."""
        for group in GROUPS:
            if not self._hopeless:
                self._gather(group)

    def run_check(self, check: Check) -> tuple[Verdict, str]:
        """Return the verdict of a check and what is said about it."""
        if self._hopeless:
            return Verdict.FAILED, self._hopeless
        ended = self._call(self._run_check_here, check)
        if ended.end is ExitReason.RETURNED:
            verdict, message, self.examination.endless = ended.value
            return verdict, message
        message = self._say(ended, self._read_note())
        if _hung(ended):
            self.examination.endless = message
        return Verdict.FAILED, with_graph(message)

    # -------------------------------------------------------------- in the new process

    def _run_check_here(self, check: Check) -> tuple[Verdict, str, str]:
        self.examination.watch = self._watched
        return *run_check(check), self.examination.endless

    def _run_here(self, group: str, plan: list[Planned] | None, out: IO[bytes]) -> tuple[str, bool]:
        """Write the plan, unless it is given, and then case after case."""
        self.examination.watch = self._watched
        if plan is None:
            plan = self.examination.plan(group)
            out.write(pickle.dumps(plan))
            out.flush()
        for planned in plan:
            try:
                out.write(pickle.dumps(self.examination.run(planned)))
            except Exception:  # what a solver returns may be anything
                return self.examination.endless, False
            out.flush()
        return self.examination.endless, True

    @contextmanager
    def _watched(self, where: str) -> Iterator[None]:
        """Leave a note of what is being done, and have the process end if it takes too long."""
        text = where.encode()[: _NOTE - 1]
        self._note[: len(text) + 1] = text + b"\0"
        # The default action ends the process also where it is in native code.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, runs.PATIENCE + _GRACE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    # -------------------------------------------------------------- on this side

    def _gather(self, group: str) -> None:
        """Make the runs of a group; a new process goes on where one has ended early."""
        cases: list[Case] = []
        plan: list[Planned] | None = None
        while True:
            with tempfile.TemporaryFile() as stream:
                ended = self._call(self._run_here, group, plan, stream)
                received = _read(stream)
            if received is None or (ended.end is ExitReason.RETURNED and not ended.value[1]):
                return
            if plan is None:
                if not received:  # it ended while the solver was asked what it supports
                    if _hung(ended):
                        self._hopeless = self._say(ended, self._read_note())
                    return
                plan = received.pop(0)
            cases += received
            if ended.end is ExitReason.RETURNED:
                self.examination.endless = ended.value[0]
                break
            if len(received) >= len(plan):
                break
            planned = plan[len(received)]
            message = self._say(ended, planned.where)
            cases.append(Case(planned.family, planned.seed, planned.how, None, message))
            if _hung(ended):
                self.examination.endless = message
                break
            # One crash a family is enough to know.
            plan = [p for p in plan[len(received) + 1 :] if p.family != planned.family]
        for case in cases:
            _ = case.reference  # enumerated once here, and not in the process of every check
        self.examination.groups[group] = cases

    def _call(self, function: Callable[..., Any], *arguments: Any) -> ProcessResult:
        self._note[:1] = b"\0"
        return isolated(function, *arguments, wall_limit=_WALL_LIMIT, memory_limit=self._memory)

    def _read_note(self) -> str:
        return self._note[:].partition(b"\0")[0].decode(errors="replace")

    def _say(self, ended: ProcessResult, where: str) -> str:
        if _hung(ended):
            what = (
                "a run must end by itself where there is nothing left to do; this one offered "
                f"nothing either, and was ended after {runs.PATIENCE + _GRACE:g} s"
            )
        else:
            what = ended.message
        return f"{where}: {what}" if where else what


def _hung(ended: ProcessResult) -> bool:
    return ended.end is ExitReason.TIMEOUT or ended.exit_code == -signal.SIGALRM


def _read(stream: IO[bytes]) -> list[Any] | None:
    """Return the objects that a process has written; None if one cannot be read."""
    stream.seek(0)
    found: list[Any] = []
    try:
        while stream.peek(1):  # type: ignore[attr-defined]
            found.append(pickle.load(stream))
    except (EOFError, pickle.UnpicklingError):
        return found  # the last one was cut off
    except Exception:  # classes decide what happens when they are read
        return None
    return found
