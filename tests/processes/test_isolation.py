"""Calls in separate processes: each fault is really triggered, and costs its call only."""

import ctypes
import math
import mmap
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select

import numpy as np
import pytest
from numba.core import event

import inference_lab as il
from inference_lab.contract import Outcome, Solver
from inference_lab.harness import running
from inference_lab.processes import isolation
from inference_lab.processes.isolation import ExitReason, SharedIncumbent, can_isolate, isolated
from inference_lab.processes.workers import traceback_tail
from inference_lab.results.records import RecordStore

pytestmark = pytest.mark.skipif(not can_isolate(), reason="this system cannot fork")

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0], [0.2, 0.5]], [(0, 1), (1, 2)], [0.5, 0.25])


def double(x):
    return 2 * x


def crash():
    ctypes.string_at(0)


def deaf_loop():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        pass


def allocate(size):
    return len(np.ones(size // 8))


def talk():
    print("to the screen")
    os.write(2, b"past Python")
    assert sys.stdin.read() == ""
    os.chdir("/")
    return os.getcwd()


def big_answer(n):
    return np.arange(n)


def test_values_of_any_size_are_returned():
    assert isolated(double, 21).value == 42
    ended = isolated(big_answer, 3_000_000)
    np.testing.assert_array_equal(ended.value, np.arange(3_000_000))
    assert ended.end == ExitReason.RETURNED
    assert ended.exit_code == 0
    assert ended.peak_memory > 24_000_000


def test_a_hundred_gigabytes():
    ended = isolated(allocate, 100 << 30, memory_limit=1 << 30)
    assert ended.end == ExitReason.MEMORY
    assert "allocate" in ended.message
    # A smaller allocation succeeds.
    assert isolated(allocate, 100 << 20, memory_limit=1 << 30).value == (100 << 20) // 8


def test_exit_codes_and_exceptions_are_returned():
    ended = isolated(os._exit, 3)
    assert (ended.end, ended.exit_code) == (ExitReason.CRASHED, 3)
    ended = isolated(int, "x")
    assert ended.end == ExitReason.RAISED
    assert ended.message.startswith("ValueError")
    assert "invalid literal" in ended.traceback
    ended = isolated(sys.exit, 5)
    assert ended.end == ExitReason.RAISED


def test_unpicklable_answer_is_reported():
    ended = isolated(lambda: lambda: None)
    assert ended.end == ExitReason.RAISED
    assert ended.message.startswith("TypeError: the answer cannot be pickled: ")
    assert "lambda" in ended.message


class Heavy:
    """Value for which there is no memory when it is pickled."""

    def __reduce__(self):
        raise MemoryError


def test_want_of_memory_for_the_answer_is_no_fault_of_its_type():
    assert isolated(Heavy).end == ExitReason.MEMORY


def test_threads_of_others_cause_no_warning():
    """A notebook has threads, and `pytest.warns` emits all other warnings again."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert isolated(double, 4).value == 8
            warnings.warn("another", DeprecationWarning, stacklevel=1)
    finally:
        done.set()
        thread.join()
    assert [str(warning.message) for warning in seen] == ["another"]


#: Prints the number of threads of its process at each fork, without those that a library has
#: named, such as those of allocators.
FORKS = """
import os, sys
import inference_lab as il

def name(thread):
    with open(f"/proc/self/task/{thread}/comm") as stream:
        return stream.read()

def note():
    if os.getpid() == parent:
        counts.append(sum(name(thread) == name(parent) for thread in os.listdir("/proc/self/task")))

parent, counts = os.getpid(), []
os.register_at_fork(after_in_parent=note)
sys.stderr.isatty = lambda: True
il.compare("estep(data=iris, constraints=20)", "icm", progress=True)
print(*counts)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread_of_the_package_runs_at_a_fork():
    """K-means builds this problem, whose library keeps its threads, and progress is drawn."""
    several = {**os.environ, "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, env=several
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"1"}
    assert "icm" in done.stderr


def test_output_directory_and_input_of_the_child_are_its_own(capfd):
    before = os.getcwd()
    ended = isolated(talk)
    assert ended.value == "/"
    assert os.getcwd() == before
    assert "to the screen" in ended.output
    assert "past Python" in ended.output
    shown = capfd.readouterr()
    assert shown.out == shown.err == ""


def test_incumbent_survives_killed_writer():
    board = SharedIncumbent(4)
    assert board.read() is None
    assert board.bound == -math.inf

    def write_and_die():
        board.write(np.array([1, 0, 2, 3]), 2.5, 0.1)
        board.write(np.array([0, 0, 2, 3]), 1.5, 0.2)
        board.bound = 1.0
        os.kill(os.getpid(), signal.SIGKILL)

    assert isolated(write_and_die).exit_code == -signal.SIGKILL
    labels, energy, seconds = board.read()
    assert labels.tolist() == [0, 0, 2, 3]
    assert (energy, seconds, board.bound) == (1.5, 0.2, 1.0)


def test_time_in_line_for_a_processor_does_not_count():
    """A run that competes for a processor gets its full processor time."""

    def work():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for _ in range(4):
            if os.fork() == 0:
                deaf_loop()
        return isolated(spend, 0.8, wall_limit=1.0).end

    assert isolated(work).value == ExitReason.RETURNED


def spend(seconds):
    while time.process_time() < seconds:
        pass


@dataclass(frozen=True)
class Faulty(Solver):
    """Solver that offers a labelling and a bound, then fails in the requested way."""

    how: str = "segfault"

    def run(self, graph, run):
        run.bound(-1.0)
        run.offer(np.array([0, 1, 1]))
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "loop":
            deaf_loop()
        if self.how == "memory":
            allocate(1 << 40)
        if self.how == "exit":
            os._exit(0)
        if self.how == "raise":
            raise RuntimeError("no")
        if self.how == "print":
            print("noise " * 1000)
            os.write(1, b"more noise")
        if self.how == "fork" and os.fork() == 0:
            # The copy of the solver continues, and answers as well.
            return Outcome(converged=True)
        if self.how == "chdir":
            os.chdir("/")
        if self.how == "scribble":
            address = graph.unary_values.ctypes.data
            ctypes.memset(address, 0, graph.unary_values.nbytes)
            run.offer(np.array([1, 0, 0]))
        return Outcome(converged=True)


EXPECTED = {
    "segfault": "crash",
    "loop": "timeout",
    "memory": "memory",
    "exit": "crash",
    "raise": "error",
    "print": "converged",
    "fork": "converged",
    "chdir": "converged",
    "scribble": "error",
}


def test_fault_costs_only_its_run_and_keeps_its_offers(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(running, "_FOREIGN_WARM_UP_LIMIT", 1.0)
    monkeypatch.setattr(running, "_WALL_CONSTANT", 1.5)
    before = os.getcwd()
    store = tmp_path / "runs.jsonl"
    solvers = [Faulty(how) for how in EXPECTED]
    comparison = il.compare(
        il.Problem("p", GRAPH), [*solvers, "icm"], time_limit=0.2, memory_limit=4 << 30, store=store
    )
    records = {r.settings.get("how", "icm"): r for r in comparison.records}
    assert {how: records[how].status for how in EXPECTED} == EXPECTED
    for how, status in EXPECTED.items():
        record = records[how]
        assert record.failed == (status != "converged")
        assert record.memory_limit == 4 << 30
        if how != "scribble":
            assert record.energy == GRAPH.energy([0, 1, 1])
            assert record.lower_bound == -1.0
    assert records["icm"].status == "converged"
    assert "changed the graph" in records["scribble"].message
    assert records["segfault"].exit_code == -signal.SIGSEGV
    assert "SIGSEGV" in records["segfault"].message
    assert records["icm"].exit_code == 0
    assert records["icm"].cpu_seconds > 0
    assert records["icm"].peak_memory > 1 << 20
    assert sorted(RecordStore(store), key=lambda r: r.id) == sorted(
        comparison.records, key=lambda r: r.id
    )
    assert comparison.alarms == []
    assert os.getcwd() == before
    assert capfd.readouterr().out == ""
    # Failures are shown and counted.
    assert sum(row.failed for row in comparison.rows) == 6
    assert "timeout" in comparison.to_text()


#: Seconds of a program left running by a solver: longer than all runs together.
_LONG = 200.0


@dataclass(frozen=True)
class Meddler(Solver):
    """Solver that changes its process in a way that outlives the run."""

    how: str

    def run(self, graph, run):
        run.offer(np.array([0, 1, 1]))
        getattr(self, f"_{self.how}")()
        return Outcome(converged=True)

    def _seterr(self):
        np.seterr(all="raise")

    def _clock(self):
        time.perf_counter = time.monotonic = lambda: 0.0

    def _sigchld(self):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def _umask(self):
        os.umask(0o777)

    def _alarm(self):
        signal.alarm(1)

    def _recursion(self):
        sys.setrecursionlimit(90)

    def _thread(self):
        threading.Thread(target=time.sleep, args=(_LONG,)).start()

    def _environment(self):
        os.environ.clear()

    def _limits(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for name in ("RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_NPROC", "RLIMIT_STACK"):
            resource.setrlimit(getattr(resource, name), (16, 16))

    def _closed(self):
        sys.stdout.close()

    def _none(self):
        sys.stdout = sys.stderr = None

    def _helper(self):
        if os.fork() == 0:
            time.sleep(_LONG)
            os._exit(0)
        ctypes.string_at(0)

    def _daemon(self):
        if os.fork() == 0:
            os.setsid()
            time.sleep(_LONG)
            os._exit(0)
        os._exit(3)


MEDDLERS = {
    **dict.fromkeys(
        ["seterr", "clock", "sigchld", "umask", "alarm", "recursion", "thread", "environment"],
        "converged",
    ),
    **dict.fromkeys(["limits", "closed", "none"], "converged"),
    "helper": "crash",
    "daemon": "crash",
}


@pytest.mark.parametrize("jobs", [1, 2])
def test_changes_of_a_solver_to_its_process_stay_there(tmp_path, jobs):
    """Its own run ends at once, and other runs are unaffected."""
    handlers = list(map(signal.getsignal, signal.Signals))
    state = (np.geterr(), os.umask(0), sys.getrecursionlimit())
    os.umask(state[1])
    names = set(os.environ)
    threads = threading.active_count()
    begin = time.monotonic()
    solvers = [*(Meddler(how) for how in MEDDLERS), "icm", "trw-s"]
    store = tmp_path / "runs.jsonl"
    comparison = il.compare(
        il.Problem("p", GRAPH), solvers, jobs=jobs, store=store, memory_limit=4 << 30
    )
    for record in comparison.records:
        how = record.settings.get("how")
        if how is None:
            assert record.status in ("converged", "optimal") and record.seconds > 0, record
        else:
            assert record.status == MEDDLERS[how], (how, record.message)
            assert record.energy == GRAPH.energy([0, 1, 1])
    assert len(comparison) == len(MEDDLERS) + 2
    # Leftover programs are not waited for: no time limit would have ended them.
    assert time.monotonic() - begin < _LONG
    assert threading.active_count() == threads
    assert (np.geterr(), os.umask(state[1]), sys.getrecursionlimit()) == state
    assert list(map(signal.getsignal, signal.Signals)) == handlers
    # Libraries that are loaded here may have added to them.
    assert names <= set(os.environ)
    assert store.stat().st_mode & 0o400


def test_a_warm_up_may_not_take_more_memory_than_a_run(tmp_path):
    began = time.monotonic()
    (record,) = il.compare(
        il.Problem("p", GRAPH), Faulty("memory"), memory_limit=1 << 30, time_limit=1.0
    ).records
    assert record.status == "memory" and time.monotonic() - began < 20


# ---------------------------------------------------------------------- nothing is left, and limits


def alive(mark):
    """Return the processes with a word in their command line."""
    pids = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
    return [process for process in pids if process != os.getpid()]


def helper(word):
    """Become a program that ignores termination signals, with a word in its command line."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    os.execv(sys.executable, [sys.executable, "-c", code, word])


def leave(how, word):
    """Start a program in one of the ways in which it would outlive its parent."""
    if how == "daemon":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                helper(word)
            os._exit(0)
        os.wait()
    elif os.fork() == 0:
        if how == "group":
            with suppress(OSError):
                os.setpgid(0, os.getpgid(os.getppid()))
            os.setpgid(0, 0)
        helper(word)
    # Wait until it is the program.
    while not alive(word):
        time.sleep(0.01)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


@on_linux
@pytest.mark.parametrize("end", ["return", "crash", "loop"])
@pytest.mark.parametrize("how", ["child", "group", "daemon"])
def test_no_descendant_survives_the_run(how, end):
    word = f"left-{os.getpid()}-{how}-{end}"

    def start():
        leave(how, word)
        if end == "crash":
            crash()
        if end == "loop":
            deaf_loop()

    ended = isolated(start, wall_limit=0.5 if end == "loop" else None)
    assert ended.end == {"return": "returned", "crash": "crash", "loop": "timeout"}[end]
    assert alive(word) == []


def in_vain():
    """Start short programs without waiting for them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        subprocess.run(["true"], check=False)


def chain(leave):
    """Hand over from process to process, each short-lived, while the first one idles."""
    end = time.monotonic() + 60.0
    if os.fork() == 0:
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            leave()
        os._exit(0)
    time.sleep(60.0)


@on_linux
@pytest.mark.parametrize(
    ("work", "arguments"),
    [(in_vain, ()), (chain, (os.getpid,)), (chain, (os.setsid,)), (chain, (os.setpgrp,))],
    ids=["in-vain", "chain", "chain-of-sessions", "chain-of-groups"],
)
def test_the_limit_counts_processes_that_end_at_once(work, arguments):
    """Their processor time is in no account; unlimited, they take a minute."""
    reading, writing = os.pipe()
    assert isolated(work, *arguments, wall_limit=0.5).end == ExitReason.TIMEOUT
    os.close(writing)
    # The end of the file: no process has the other end open any more.
    assert select([reading], [], [], 20.0)[0] == [reading] and os.read(reading, 1) == b""
    os.close(reading)


@on_linux
def test_descendants_end_with_a_harness_that_is_killed():
    reading, writing = os.pipe()
    script = (
        f"import sys, os; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from test_isolation import *\n"
        "def start():\n"
        f"    leave('daemon', 'orphan-{os.getpid()}')\n"
        f"    os.write({writing}, b'x')\n"
        "    deaf_loop()\n"
        "isolated(start)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], pass_fds=[writing]) as harness:
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        harness.kill()
    assert select([reading], [], [], 20.0)[0] == [reading] and os.read(reading, 1) == b""
    assert alive(f"orphan-{os.getpid()}") == []
    os.close(reading)


def recurse(depth):
    return 0 if depth == 0 else 1 + recurse(depth - 1)


def test_a_stack_overflow_is_formatted_faster_than_it_is_made():
    """Formatting all frames would take thirty times as long."""
    before = sys.getrecursionlimit()
    begin = time.process_time()
    try:
        sys.setrecursionlimit(200_000)
        with pytest.raises(RecursionError) as caught:
            recurse(300_000)
    finally:
        sys.setrecursionlimit(before)
    made = time.process_time() - begin
    begin = time.process_time()
    text = traceback_tail(caught.value)
    assert time.process_time() - begin < made
    assert text.endswith("RecursionError: maximum recursion depth exceeded")
    assert "recurse(depth - 1)" in text


def test_run_cannot_join_the_process_group_of_its_parent():
    """It cannot end that group either, which is the harness's own."""

    def hide():
        parent = os.getpgid(os.getppid())
        with suppress(OSError):
            os.setpgid(0, parent)
        if os.getpgid(0) == parent:
            os.killpg(0, signal.SIGTERM)
        deaf_loop()

    before = signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("it got a signal"))
    try:
        assert isolated(hide, wall_limit=0.3).end == ExitReason.TIMEOUT
    finally:
        signal.signal(signal.SIGTERM, before)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def hold_the_answer_open():
    """Close the answer pipe, and leave it open in a helper."""
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os.closerange(3, 1000)


def pipes():
    """Return the open pipes of this process."""
    numbers = set()
    for number in range(3, 64):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                numbers.add(number)
    return numbers


def flood():
    """Write without end to the answer pipe: the only one that the test did not have."""
    (answer,) = pipes() - HELD
    while True:
        os.write(answer, b"garbage" * 1000)


#: Pipes of the test, such as that of multiprocessing's tracker.
HELD: set[int] = set()


@pytest.mark.parametrize(
    ("what", "end"), [(stop, "timeout"), (hold_the_answer_open, "crash"), (flood, "timeout")]
)
def test_hostile_calls_end_with_the_expected_reason(what, end):
    HELD.clear()
    HELD.update(pipes())
    assert isolated(what, wall_limit=0.5).end == end


def lists():
    chunks = []
    while True:
        chunks.append([0] * 1000)


def arrays():
    chunks = []
    while True:
        chunks.append(np.ones(100_000))


def maps():
    chunks = []
    while True:
        chunks.append(mmap.mmap(-1, 1 << 24))


def helpers():
    """Each takes less than the limit; together they take more."""
    for _ in range(8):
        if os.fork() == 0:
            chunk = np.ones((80 << 20) // 8)
            time.sleep(60)
            os._exit(int(chunk[0]))
    time.sleep(60)


@pytest.mark.parametrize("what", [lists, arrays, maps, helpers])
def test_an_endless_allocation_ends_as_memory(what):
    if what is helpers and sys.platform != "linux":
        pytest.skip("only Linux tells the memory of other processes")
    ended = isolated(what, wall_limit=60.0, memory_limit=150 << 20)
    assert ended.end == ExitReason.MEMORY, ended


def test_call_that_catches_memory_errors_ends_in_time():
    def swallow():
        chunks = []
        while True:
            with suppress(MemoryError):
                chunks.append(np.ones(1 << 20))

    assert isolated(swallow, wall_limit=0.5, memory_limit=300 << 20).end == ExitReason.TIMEOUT


# ---------------------------------------------------------------------- what time counts


def compile_for(seconds):
    """Sleep as numba does during a compilation."""
    with event.trigger_event("numba:compiler_lock"):
        time.sleep(seconds)
    return "compiled"


def test_compilation_does_not_count_against_the_limit(monkeypatch):
    assert isolated(compile_for, 1.0, wall_limit=0.4).value == "compiled"
    # But there is an upper limit.
    monkeypatch.setattr(isolation, "_LOADING_LIMIT", 0.3)
    ended = isolated(compile_for, 60.0, wall_limit=10.0)
    assert (ended.end, ended.loading) == (ExitReason.TIMEOUT, True)
    assert not isolated(time.sleep, 60.0, wall_limit=0.3).loading


@dataclass(frozen=True)
class Compiling(Solver):
    """Solver that compiles for long the first time, and counts its runs."""

    path: str

    def run(self, graph, run):
        with open(self.path, "a") as notes:
            notes.write("x")
        run.offer(np.array([0, 1, 1]))
        compile_for(60.0 if os.path.getsize(self.path) == 1 else 0.0)
        return Outcome(converged=True)


def test_run_stopped_during_compilation_is_repeated_once(tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "_LOADING_LIMIT", 0.3)
    # Without warm-up, which would compile as well.
    monkeypatch.setattr(running, "warm_up_apart", lambda *arguments, **settings: False)
    solver = Compiling(str(tmp_path / "notes"))
    (record,) = il.compare(il.Problem("p", GRAPH), solver, time_limit=5.0).records
    assert record.status == "converged"
    assert (tmp_path / "notes").read_text() == "xx"
