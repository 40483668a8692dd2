"""Runs and checks in isolated processes, so that a crashing solver only fails a check."""

from __future__ import annotations

import mmap
import pickle
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import psutil

import inference_lab.conformance.runs as runs
from inference_lab.conformance.checks import Examination
from inference_lab.conformance.runs import GROUPS, Case, Planned
from inference_lab.conformance.verdicts import Check, Verdict, run_check, with_graph
from inference_lab.processes.isolation import ExitReason, ProcessResult, isolated

#: Seconds after `runs.PATIENCE` until a run without offers is killed.
_GRACE = 5.0
#: Seconds until a process is killed in any case; no solver has come close.
_WALL_LIMIT = 3600.0
#: Minimal limit in bytes on the address space of a process beyond the loaded libraries.
_MIN_MEMORY = 4 << 30
#: Seconds after which a process begins no further check, so that results are reported soon.
_SHARE = 1.0
#: Size in bytes of the shared note that names the current call.
_NOTE = 4096


class Separate:
    """Executor of checks in forked processes, with the shared runs made beforehand."""

    def __init__(self, examination: Examination) -> None:
        self.examination = examination
        self._note = mmap.mmap(-1, _NOTE)
        self._memory = max(_MIN_MEMORY, psutil.virtual_memory().total // 2)
        self._hopeless = ""
        self._results: dict[str, tuple[Verdict, str]] = {}

    def prepare(self) -> None:
        """Make the shared runs."""
        for group in GROUPS:
            if not self._hopeless:
                self._gather(group)

    def run_check(self, check: Check) -> tuple[Verdict, str]:
        """Return the verdict of a check and its message."""
        if self._hopeless:
            return Verdict.FAILED, self._hopeless
        if check.name not in self._results:
            self._run_from(check)
        return self._results[check.name]

    # -------------------------------------------------------------- in the new process

    def _run_checks_here(self, checks: Sequence[Check], out: IO[bytes]) -> None:
        """Write the result of each check to a stream, until the share of time is over."""
        self.examination.watch = self._watched
        begin = time.monotonic()
        for check in checks:
            self._note[:1] = b"\0"
            out.write(pickle.dumps((run_check(check), self.examination.endless)))
            out.flush()
            if time.monotonic() - begin > _SHARE:
                return

    def _run_here(self, group: str, plan: list[Planned] | None, out: IO[bytes]) -> tuple[str, bool]:
        """Write the plan, unless it is given, and then each case to a stream."""
        self.examination.watch = self._watched
        if plan is None:
            plan = self.examination.plan(group)
            out.write(pickle.dumps(plan))
            out.flush()
        for planned in plan:
            try:
                out.write(pickle.dumps(self.examination.run(planned)))
            except Exception:  # because a solver's result may not be picklable
                return self.examination.endless, False
            out.flush()
        return self.examination.endless, True

    @contextmanager
    def _watched(self, where: str) -> Iterator[None]:
        """Write the current call to the shared note, and set an alarm that kills the process."""
        text = where.encode()[: _NOTE - 1]
        self._note[: len(text) + 1] = text + b"\0"
        # The default action is used, because it also ends a process that is in native code.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, runs.PATIENCE + _GRACE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    # -------------------------------------------------------------- in this process

    def _run_from(self, first: Check) -> None:
        """Run a check, and the following ones while the process has time."""
        checks = self.examination.checks()
        names = [check.name for check in checks]
        checks = checks[names.index(first.name) :]
        with tempfile.TemporaryFile() as stream:
            ended = self._call(self._run_checks_here, checks, stream)
            received = _read(stream) or []
        for check, (result, endless) in zip(checks, received, strict=False):
            self._results[check.name], self.examination.endless = result, endless
        remaining_checks = checks[len(received) :]
        if remaining_checks and ended.end is not ExitReason.RETURNED:
            message = self._say(ended, self._read_note())
            if _hung(ended):
                self.examination.endless = message
            self._results[remaining_checks[0].name] = Verdict.FAILED, with_graph(message)

    def _gather(self, group: str) -> None:
        """Make the runs of a group; if a process ends early, a new one continues."""
        cases: list[Case] = []
        plan: list[Planned] | None = None
        while True:
            with tempfile.TemporaryFile() as stream:
                ended = self._call(self._run_here, group, plan, stream)
                received = _read(stream)
            if received is None or (ended.end is ExitReason.RETURNED and not ended.value[1]):
                return
            if plan is None:
                if not received:  # the process ended in `supports`, before the plan was written
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
            # The rest of the family is skipped, because one crash for each family suffices.
            plan = [p for p in plan[len(received) + 1 :] if p.family != planned.family]
        for case in cases:
            _ = case.reference  # cached here, so that no check's process enumerates it again
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
    """Unpickle the objects that a process has written; return None if one cannot be read."""
    stream.seek(0)
    objects: list[Any] = []
    try:
        while stream.peek(1):  # type: ignore[attr-defined]
            objects.append(pickle.load(stream))
    except (EOFError, pickle.UnpicklingError):
        return objects  # the last one is incomplete
    except Exception:  # because unpickling runs the code of user classes
        return None
    return objects
