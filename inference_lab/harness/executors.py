"""Calls through an executor of `concurrent.futures`: a pool, a Dask cluster, or any other.

An executor needs ``submit``, and futures with ``result``, ``exception``, ``cancel`` and
``add_done_callback``. Its workers may be threads, may have threads, and may run on other machines.
A run forks and changes limits of its process, which is not safe there. Each thread of a worker
therefore has a spawned process (`processes.workers.Worker`), in which it makes its calls, one at a
time, as ``jobs`` does on this machine.

Calls are pickled here. Large problems are sent to each such process once
(`processes.shared_objects`). Nothing but the caller writes records, so a call that is made twice,
because a worker was lost, leaves one record.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from inference_lab.formatting import warn
from inference_lab.harness.isolated_run import one_line
from inference_lab.processes.shared_objects import Lack, Parcel, Sender, load
from inference_lab.processes.workers import Crash, Worker, format_exception
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import environment
from inference_lab.specs.grammar import SpecError

#: Calls in flight at first. The number of workers is not known, and may grow.
_FIRST = 16
#: Calls in flight for each process that has answered: each needs its next call before the answer to
#: the last one has arrived.
_AHEAD = 4

#: Libraries whose versions change results; records name them.
_LIBRARIES = ("python", "numpy", "numba", "scipy")

#: Packages whose files make up the code of the library.
_PACKAGES = ("inference_lab", *(f"inference_lab.{n}" for n in ("solvers", "problems", "reports")))

_FUTURE = ("add_done_callback", "exception", "result", "cancel")

_GOES_ON = "the same call goes on from the runs that are recorded"


class ExecutorError(RuntimeError):
    """Error for an executor that cannot make the calls; runs with a record are kept."""


class Caller(NamedTuple):
    """The process that asks for calls, and what its workers must have in common with it."""

    #: Unique name of the process: its workers load the code of users anew for another one, because
    #: that may have been edited.
    process: str
    #: Threads of numerical libraries.
    threads: int
    #: Digest of the code of the library.
    code: str
    #: The working folder, to which the specs of users' files are relative.
    folder: str
    environment: Mapping[str, Any]


class Refusal(NamedTuple):
    """The reason why a worker cannot make a call that this machine could make."""

    message: str


class Reply(NamedTuple):
    """The answer to a call, and the process that made it."""

    #: The result, or a `Crash`, `Lack` or `Refusal`.
    answer: Any
    #: Machine and process, such as ``node7, process 4711``.
    place: str
    environment: Mapping[str, Any]


# ---------------------------------------------------------------------- the caller

#: Number and result of each call, in the order of completion.
_Results = Generator[tuple[int, Any | Crash], None, None]

#: Unique name of this process, and numbers of its messages.
_PROCESS = uuid.uuid4().hex
_message = count()


class _Sent(NamedTuple):
    """A call that a worker is to make."""

    number: int
    parcel: Parcel


def through_executor(
    executor: Executor,
    waiting: Iterator[tuple[int, Callable[[], Any]]],
    start: Callable[[int], None],
    threads: int,
    note_environment: Callable[[Mapping[str, Any]], None],
) -> _Results:
    """Make calls through an executor; yield a `Crash` where a call ended its worker.

    Raises
    ------
    ExecutorError
        If the executor fails, or a worker has other code than this process.
    """
    caller = Caller(_PROCESS, threads, code_digest(), os.getcwd(), environment())
    sender = Sender()
    ended: SimpleQueue[Future[Reply]] = SimpleQueue()
    running: dict[Future[Reply], _Sent] = {}
    places: set[str] = set()
    environments: set[str] = set()
    #: Names of the objects that a process has received.
    received: set[str] = set()

    def submit(call: _Sent, large: bool) -> None:
        contents = sender.contents(call.parcel.names, large=large)
        future = _submitted(executor, caller, call.parcel, contents)
        running[future] = call
        future.add_done_callback(ended.put)

    try:
        while True:
            if len(running) < _FIRST + _AHEAD * len(places):
                following = next(waiting, None)
                if following is not None:
                    start(following[0])
                    call = _Sent(following[0], sender.parcel(following[1]))
                    # A process that lacks a large object returns its name, as the first one would.
                    submit(call, not received.issuperset(call.parcel.names))
                    if ended.empty():
                        continue
            if not running:
                return
            future = ended.get()
            call = running.pop(future)
            reply = _reply(future)
            if isinstance(reply, Crash):
                yield call.number, reply
                continue
            if isinstance(reply.answer, Refusal):
                raise ExecutorError(f"on {reply.place}: {reply.answer.message}; {_GOES_ON}")
            if reply.environment["id"] not in environments:
                environments.add(reply.environment["id"])
                _warn_of_versions(reply, caller)
                note_environment(reply.environment)
            places.add(reply.place)
            if isinstance(reply.answer, Lack):
                submit(call, True)
                continue
            received.update(call.parcel.names)
            yield call.number, reply.answer
    finally:
        for future in running:
            future.cancel()


def _submitted(
    executor: Executor, caller: Caller, parcel: Parcel, contents: Mapping[str, bytes]
) -> Future[Reply]:
    """Submit a call; raise `ExecutorError` if the executor does not accept it."""
    try:
        with warnings.catch_warnings():
            # Dask advises against large arguments; here each process receives one once.
            warnings.filterwarnings("ignore", "Sending large graph")
            future = executor.submit(make_call, caller, parcel, contents, next(_message))
    except RuntimeError as problem:  # shut down, or broken
        raise ExecutorError(f"the executor accepts no runs: {one_line(problem)}") from problem
    lacking = [name for name in _FUTURE if not hasattr(future, name)]
    if lacking:
        raise ExecutorError(
            f"futures of {type(executor).__name__} have no {' and no '.join(lacking)}: an executor "
            "needs the interface of concurrent.futures"
        )
    return future


def _reply(future: Future[Reply]) -> Reply | Crash:
    """Return the reply of a worker, or a `Crash` where the call has ended several workers."""
    try:
        problem = future.exception()
    except CancelledError:
        raise ExecutorError(
            "the executor cancelled its runs: its scheduler has ended or cannot be reached, or it "
            f"was shut down; {_GOES_ON}"
        ) from None
    if problem is None:
        return future.result()
    reason = one_line(format_exception(problem))
    if isinstance(problem, BrokenExecutor):
        raise ExecutorError(f"a worker of the pool has died ({reason}); {_GOES_ON}") from problem
    # Dask has made the call on several workers, and each of them has died. The class is compared by
    # name, because Dask is not imported here.
    if type(problem).__name__ == "KilledWorker":
        return Crash(reason, "", "crash")
    raise ExecutorError(
        f"a worker cannot make runs ({reason}); it needs inference-lab "
        f"{environment()['inference_lab']} and the packages of this machine; {_GOES_ON}"
    ) from problem


def _warn_of_versions(reply: Reply, caller: Caller) -> None:
    """Warn if a worker has other versions of libraries, or of Python, than this machine."""
    there, here = reply.environment, caller.environment
    other = [f"{n} {there.get(n)} (here {here[n]})" for n in _LIBRARIES if there.get(n) != here[n]]
    if other:
        warn(f"{reply.place} has {', '.join(other)}: results may differ", RecordWarning)


# ---------------------------------------------------------------------- the workers

#: The process in which each thread of a worker makes its calls.
_thread_state = threading.local()


class _Station:
    """A spawned process for the calls of one thread, and the description of its machine."""

    def __init__(self, caller: Caller) -> None:
        #: The process that started it: a fork of a worker has no right to it.
        self.parent = os.getpid()
        self.caller = (caller.process, caller.threads)
        self.worker = Worker(caller.threads)
        # Stopped when the thread ends or this process exits, which would wait for its children.
        self.stop = Finalize(self, self.worker.stop, exitpriority=100)
        self.worker.submit(_description)
        description = self.worker.result()
        if isinstance(description, Crash):
            raise RuntimeError(f"no process can be started for runs: {description.message}")
        self.environment, self.code, self.place = description


def _description() -> tuple[Mapping[str, Any], str, str]:
    """Return the environment, the code and the name of this process."""
    return environment(), code_digest(), f"{platform.node()}, process {os.getpid()}"


def make_call(caller: Caller, parcel: Parcel, contents: Mapping[str, bytes], message: int) -> Reply:
    """Make a call on a worker, in the process of this thread.

    Parameters
    ----------
    caller : Caller
    parcel : Parcel
        The call.
    contents : mapping of str to bytes
        Pickles of shared objects, by their names.
    message : int
        Number of the message, because some executors make equal calls only once.

    Returns
    -------
    Reply
    """
    station: _Station | None = getattr(_thread_state, "station", None)
    if station is not None and station.parent != os.getpid():
        station = None
    if station is None or station.caller != (caller.process, caller.threads):
        if station is not None:
            station.stop()
        _thread_state.station = station = _Station(caller)
    answer: Any = _other_code(caller, station)
    if answer is None:
        station.worker.submit(partial(_answer, caller.folder, parcel, contents))
        answer = station.worker.result()
    return Reply(answer, station.place, station.environment)


def _other_code(caller: Caller, station: _Station) -> Refusal | None:
    """Return a refusal if the library of a worker is not its caller's."""
    here, there = station.environment["inference_lab"], caller.environment["inference_lab"]
    if here != there:
        return Refusal(f"the worker has inference-lab {here}, and this comparison {there}")
    if station.code != caller.code:
        return Refusal(
            f"inference-lab {here} has other code there than in this comparison: install the same, "
            "and begin again after an edit"
        )
    return None


def _answer(folder: str, parcel: Parcel, contents: Mapping[str, bytes]) -> Any:
    """Make a call in the process of a thread, in the folder of its caller if there is one here."""
    with suppress(OSError):
        os.chdir(folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        call = load(parcel, contents)
    except Exception as problem:
        return Refusal(f"the call cannot be read: {one_line(format_exception(problem))}")
    if isinstance(call, Lack):
        return call
    try:
        return call()
    except (SpecError, ImportError, FileNotFoundError) as problem:
        where = "" if os.path.isdir(folder) else f" (there is no folder {folder})"
        return Refusal(one_line(format_exception(problem)) + where)


@cache
def code_digest() -> str:
    """Return a digest of the library's files, because clones of one version may differ."""
    digest = hashlib.sha256()
    # An installation may have no studies.
    for package in filter(find_spec, _PACKAGES):
        for folder in import_module(package).__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
