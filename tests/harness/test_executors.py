"""Runs through executors: pools, and a Dask cluster whose scheduler and workers are processes."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from joblib import cpu_count, parallel_config
from joblib.externals.loky import ProcessPoolExecutor as LokyPool
from sklearn.base import clone
from sklearn.datasets import load_iris

import inference_lab as il
from inference_lab.cli import main
from inference_lab.clustering import ConstrainedClusterCV, PCKMeans
from inference_lab.harness import dask_cluster, executors
from inference_lab.harness.campaign import InputError
from inference_lab.harness.dask_cluster import DaskCluster
from inference_lab.harness.executors import ExecutorError, through_executor
from inference_lab.processes.memory import physical_memory
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import RecordStore, environment
from inference_lab.studies import Method, Study, run_study

GUESS = '''
import os
import time
from dataclasses import dataclass

from inference_lab.contract import Outcome, Solver


@dataclass(frozen=True)
class Guess(Solver):
    """A random labelling after a while; leaves its process number in a folder."""

    folder: str = ""
    seconds: float = 0.0

    def run(self, graph, run):
        run.offer(run.rng.integers(0, graph.cardinalities))
        if self.folder:
            open(os.path.join(self.folder, str(os.getpid())), "a").close()
        time.sleep(self.seconds)
        return Outcome(converged=True)


@dataclass(frozen=True)
class Dies(Solver):
    """Ends its process after an offer."""

    def run(self, graph, run):
        run.offer(run.rng.integers(0, graph.cardinalities))
        os.kill(os.getpid(), 9)


@dataclass(frozen=True)
class Hoards(Solver):
    """Takes a gigabyte after an offer."""

    def run(self, graph, run):
        run.offer(run.rng.integers(0, graph.cardinalities))
        bytearray(1 << 30)
        return Outcome(converged=True)
'''


def problem(name, seed=0, n=6):
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(n - 1)]
    return il.Problem(name, il.FactorGraph.potts(rng.random((n, 3)), edges, rng.random(n - 1)))


PROBLEMS = [problem("a"), problem("b", 1)]
#: Problems that are too large to be sent with each call.
LARGE = [problem("a", n=2000), problem("b", 1, n=2000)]


@pytest.fixture
def guess(tmp_path):
    """Return the path of a file of solvers."""
    path = tmp_path / "guess.py"
    path.write_text(GUESS)
    return path


def fingerprints(comparison):
    """Return everything that must not depend on where and how the runs were made."""
    return [(r.key, r.energy, r.labels_hash, r.status) for r in comparison.records]


def local_fingerprints(*arguments, **settings):
    """Return the same comparison in this process, which answers sooner."""
    return fingerprints(il.compare(*arguments, isolate=False, **settings))


# ---------------------------------------------------------------------- pools


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor, LokyPool])
def test_pools_make_the_runs_of_this_process(pool, guess, tmp_path):
    solvers = [f"{guess}:Guess", "icm", f"{guess}:Dies"]
    events = []
    with pool(2) as executor:
        made = il.compare(
            PROBLEMS,
            solvers,
            seeds=2,
            executor=executor,
            store=tmp_path / "runs.jsonl",
            progress=events.append,
        )
    local = local_fingerprints(PROBLEMS, solvers[:2], seeds=2)
    assert [run for run in fingerprints(made) if "Dies" not in run[0].solver] == local
    dead = [record for record in made.records if "Dies" in record.solver]
    # Salvaged: the labelling that was offered before the end of the process.
    assert len(dead) == 4 and {record.status for record in dead} == {"crash"}
    assert all(np.isfinite(record.energy) for record in dead)
    assert {record.memory_limit for record in made.records} == {physical_memory() // cpu_count()}
    assert [event.done for event in events if event.record is not None] == list(range(1, 13))
    assert len([event for event in events if event.record is None]) == 12
    assert RecordStore(tmp_path / "runs.jsonl").read() != []


def test_limits_on_memory_hold_on_workers(guess):
    limit = 1 << 28
    with ThreadPoolExecutor(1) as executor:
        made = il.compare(PROBLEMS, f"{guess}:Hoards", executor=executor, memory_limit=limit)
    assert [(r.status, r.memory_limit) for r in made.records] == [("memory", limit)] * 2
    assert all(np.isfinite(record.energy) for record in made.records)


class Recorder(ThreadPoolExecutor):
    """Pool that keeps the arguments of its calls."""

    def __init__(self, workers):
        super().__init__(workers)
        self.calls = []

    def submit(self, fn, /, *args, **kwargs):
        self.calls.append(args)
        return super().submit(fn, *args, **kwargs)


def test_a_large_problem_is_sent_to_each_process_once(monkeypatch):
    with Recorder(1) as executor:
        made = il.compare(LARGE, "icm", seeds=30, executor=executor, isolate=False)
        monkeypatch.setattr(executors, "_PROCESS", "another")
        again = il.compare(LARGE, "icm", seeds=30, executor=executor, isolate=False)
    assert fingerprints(again) == fingerprints(made) == local_fingerprints(LARGE, "icm", seeds=30)
    sent = [bool(contents) for _, _, contents, _ in executor.calls]
    # Until the first answers arrive, each call has its problem. The other caller has a new process.
    assert len(sent) == 2 * 60
    for calls in (sent[:60], sent[60:]):
        assert any(calls[:16]) and not any(calls[-30:])


def test_a_process_that_lacks_a_problem_receives_it():
    """A process that is started in the middle is asked without the problem."""
    with Recorder(1) as executor:

        def forget(event):
            if event.record is not None and event.done == 20:
                executor.submit(lambda: vars(executors._thread_state).clear())

        made = il.compare(LARGE, "icm", seeds=30, executor=executor, progress=forget, isolate=False)
    assert fingerprints(made) == local_fingerprints(LARGE, "icm", seeds=30)
    # Each problem is sent again, with the call that lacked it.
    messages = [call for call in executor.calls if call]
    assert len(messages) > 60
    assert any(contents for _, _, contents, _ in messages[20:])


class Done(Executor):
    """Executor whose calls end at once, each with a result or an error."""

    def __init__(self, end):
        self.end = end
        self.futures = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.futures.append(future)
        self.end(future, partial(fn, *args, **kwargs))
        return future


class KilledWorker(Exception):
    """Exception of the name that Dask uses for calls which ended several workers."""


def failing(problem):
    return lambda future, call: future.set_exception(problem)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (failing(BrokenProcessPool("gone")), "a worker of the pool has died.*the same call goes"),
        (lambda future, call: future.cancel(), "its scheduler has ended.*the same call goes on"),
        (failing(ModuleNotFoundError("No module named 'inference_lab'")), "needs inference-lab 0"),
    ],
)
def test_executor_that_fails_ends_the_comparison(end, message, tmp_path):
    store = RecordStore(tmp_path / "runs.jsonl")
    with pytest.raises(ExecutorError, match=message):
        il.compare(PROBLEMS, "icm", executor=Done(end), store=store)
    assert store.read() == []


def test_call_that_ends_several_workers_is_a_crash():
    made = il.compare(PROBLEMS, "icm", executor=Done(failing(KilledWorker("made 4 times"))))
    assert [r.status for r in made.records] == ["crash"] * 2
    assert all("made 4 times" in record.message for record in made.records)


def test_executor_that_was_shut_down_is_refused():
    with ThreadPoolExecutor(1) as executor:
        pass
    with pytest.raises(ExecutorError, match="accepts no runs: cannot schedule"):
        il.compare(PROBLEMS, "icm", executor=executor)


def test_executors_without_the_interface_are_refused():
    with pytest.raises(InputError, match=r"interface of concurrent\.futures.*got int"):
        il.compare(PROBLEMS, "icm", executor=3)
    with pytest.raises(InputError, match="leave jobs at 1, got 2"):
        il.compare(PROBLEMS, "icm", executor=Done(None), jobs=2)

    class Job:
        def result(self):
            return None

    executor = Done(None)
    executor.submit = lambda fn, *args: Job()
    with pytest.raises(ExecutorError, match="no add_done_callback and no exception and no cancel"):
        il.compare(PROBLEMS, "icm", executor=executor)


def test_ctrl_c_cancels_the_calls_in_flight():
    executor = Done(lambda future, call: None)

    def interrupt(event):
        if len(executor.futures) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        il.compare(PROBLEMS, "icm", seeds=30, executor=executor, progress=interrupt)
    assert len(executor.futures) == 10 and all(f.cancelled() for f in executor.futures)


def test_calls_in_flight_are_bounded(monkeypatch):
    """Sixteen at first, then four for each process that has answered: three of them here."""
    running: list[Future[Any]] = []
    in_flight = []

    class Queue(SimpleQueue):
        def get(self):
            if self.empty():
                in_flight.append(len(running))
                place = f"there, process {len(in_flight) % 3}"
                running.pop(0).set_result(executors.Reply(len(in_flight), place, environment()))
            return super().get()

    monkeypatch.setattr(executors, "SimpleQueue", Queue)
    executor = Done(lambda future, call: running.append(future))
    calls = ((number, partial(int, number)) for number in range(100))
    made = list(through_executor(executor, calls, lambda number: None, 1, lambda facts: None))
    assert sorted(number for number, _ in made) == list(range(100))
    assert in_flight[:4] == [16, 20, 24, 28] and max(in_flight) == 28


# ---------------------------------------------------------------------- other code on a worker


@contextmanager
def refused_comparison(match, tmp_path, **settings):
    store = RecordStore(tmp_path / "runs.jsonl")
    with ThreadPoolExecutor(1) as executor, pytest.raises(ExecutorError, match=match):
        yield partial(il.compare, PROBLEMS, store=store, executor=executor)
    assert store.read() == []


def test_edited_solver_on_a_worker_is_refused(guess, tmp_path):
    def edit(event):
        guess.write_text(GUESS + "# edited\n")

    with refused_comparison("solver_source '.*' .here '.*'.*not recorded", tmp_path) as compare:
        compare(f"{guess}:Guess", progress=edit)


def test_missing_file_on_a_worker_is_refused(guess, tmp_path):
    def remove(event):
        guess.unlink(missing_ok=True)

    with refused_comparison(
        r"process \d+: SpecError: .*guess.py does not exist", tmp_path
    ) as compare:
        compare(f"{guess}:Guess", progress=remove)


def test_other_code_of_the_library_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "code_digest", lambda: "other")
    with refused_comparison("other code there than in this comparison", tmp_path) as compare:
        compare("icm")


def test_other_version_of_the_library_is_refused(monkeypatch, tmp_path):
    facts = {**environment(), "inference_lab": "0.0.9"}
    monkeypatch.setattr(executors, "environment", lambda: facts)
    with refused_comparison("has inference-lab .*, and this comparison 0.0.9", tmp_path) as compare:
        compare("icm")


def test_other_versions_of_libraries_are_a_warning(monkeypatch):
    facts = {**environment(), "id": "here", "numpy": "1.0", "processor": "another"}
    monkeypatch.setattr(executors, "environment", lambda: facts)
    with ThreadPoolExecutor(1) as executor:
        with pytest.warns(RecordWarning, match=rf"numpy {np.__version__} .here 1.0.: results may"):
            made = il.compare(PROBLEMS, "icm", executor=executor)
    # Records name the machine that made the run.
    assert {record.environment["id"] for record in made.records} == {environment()["id"]}


def test_relative_specs_are_found_in_the_folder_of_the_caller(guess, monkeypatch):
    """The worker is started in another folder, as on another machine."""
    with ProcessPoolExecutor(1) as executor:
        executor.submit(os.chdir, "/").result()
        monkeypatch.chdir(guess.parent)
        made = il.compare(PROBLEMS, ["guess.py:Guess", "guess:Dies"], executor=executor)
    assert sorted({record.status for record in made.records}) == ["converged", "crash"]


# ---------------------------------------------------------------------- Dask

#: Workers have nannies, which start them again, and run outside the process of the tests.
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=int(sys.argv[2]),
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=sys.argv[1],
    ) as cluster:
        pids = [nanny.pid for nanny in cluster.workers.values()]
        print(cluster.scheduler_address, *pids, flush=True)
        sys.stdin.read()
"""


class Cluster(NamedTuple):
    """The address of a scheduler, its process and its workers' processes."""

    address: str
    scheduler: int
    workers: list[int]


@contextmanager
def cluster_process(folder, workers=2):
    """Start a scheduler and workers."""
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script), str(folder), str(workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        address, *pids = process.stdout.readline().split()
        yield Cluster(address, process.pid, [int(pid) for pid in pids])
        process.stdin.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Give the tests of this file one cluster."""
    with cluster_process(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def progress_after(count, action):
    """Return a progress report that acts once, when a number of runs are done."""
    acted = []

    def watch(event):
        if event.record is not None and event.done == count and not acted:
            acted.append(event)
            action()

    return watch


def test_killed_worker_loses_no_run_and_doubles_none(cluster, guess, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    store = RecordStore(tmp_path / "runs.jsonl")
    solver = f"{guess}:Guess(folder={marks}, seconds=0.01)"
    kill = progress_after(60, lambda: os.kill(cluster.workers[0], signal.SIGKILL))
    with DaskCluster(cluster.address) as executor:
        made = il.compare(
            PROBLEMS, solver, seeds=100, executor=executor, store=store, progress=kill
        )
    stored = store.read()
    assert len(stored) == len({r.key for r in stored}) == len({r.id for r in stored}) == 200
    assert {record.status for record in stored} == {"converged"}
    # Runs may be made twice, and leave one record.
    assert len(os.listdir(marks)) >= 200
    assert fingerprints(made) == [
        (run[0]._replace(solver=made.records[0].solver), *run[1:])
        for run in local_fingerprints(PROBLEMS, f"{guess}:Guess", seeds=100)
    ]
    # Completed runs are not made again, so no cluster is needed.
    with DaskCluster("tcp://127.0.0.1:1") as executor:
        again = il.compare(PROBLEMS, solver, seeds=100, executor=executor, store=store)
    assert again.records == made.records


def test_scheduler_that_goes_away_ends_the_comparison(cluster, guess, tmp_path):
    store = RecordStore(tmp_path / "runs.jsonl")
    compare = partial(il.compare, PROBLEMS, f"{guess}:Guess", seeds=20, store=store, isolate=False)
    with cluster_process(tmp_path, workers=1) as other, DaskCluster(other.address) as executor:
        kill = progress_after(10, lambda: os.kill(other.scheduler, signal.SIGKILL))
        with pytest.raises(ExecutorError, match=r"scheduler has ended.*the same call goes on"):
            compare(executor=executor, progress=kill)
    first = store.read()
    assert 10 <= len(first) < 40
    with DaskCluster(cluster.address) as executor:
        compare(executor=executor)
    stored = store.read()
    assert stored[: len(first)] == first
    assert len(stored) == len({record.key for record in stored}) == 40


def test_fits_of_a_study_run_on_a_cluster(cluster, tmp_path, monkeypatch):
    study = Study(
        title="A study",
        question="Does it travel?",
        data=["iris"],
        methods=[Method("PCKMeans", "pckmeans")],
        constraints=[20.0],
        runs=4,
    )
    elsewhere = {**environment(), "id": "elsewhere", "processor": "another"}
    with monkeypatch.context() as patch, DaskCluster(cluster.address) as executor:
        for module in ("harness.executors", "studies.fit_campaign", "results.clustering_records"):
            patch.setattr(f"inference_lab.{module}.environment", lambda: elsewhere)
        there = run_study(study, tmp_path / "there", executor=executor)
    made_here = run_study(study, tmp_path / "here", isolate=False)
    assert [(r.key, r.status, r.objective) for r in there] == [
        (r.key, "ok", r.objective) for r in made_here
    ]
    # The machine of the workers is described, too.
    described = json.loads((tmp_path / "there" / "environments.json").read_text())
    assert set(described) == {"elsewhere", environment()["id"]}
    assert {record.environment for record in there} == {environment()["id"]}


def test_estimators_share_their_fits_on_a_cluster(cluster):
    from distributed import Client

    X, _ = load_iris(return_X_y=True)
    pairs = {"must_link": [(0, 1), (60, 61)], "cannot_link": [(0, 60), (60, 120)]}
    candidates = [("one", PCKMeans()), ("five", PCKMeans(n_init=5))]
    settings = {"n_splits": 2, "n_repeats": 1, "random_state": 0}
    model = ConstrainedClusterCV(3, candidates=candidates, **settings)
    made_here = clone(model).fit(X, **pairs)
    with Client(cluster.address), parallel_config("dask"):
        there = clone(model).set_params(n_jobs=-1).fit(X, **pairs)
    assert there.best_params_ == made_here.best_params_
    np.testing.assert_array_equal(there.labels_, made_here.labels_)


def test_the_command_line_takes_an_address(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["compare", "potts-grid(height=4, width=4)", "--solver", "icm", "--seeds", "3"]
    there = [*command, "--dask", cluster.address, "--out", "here"]
    done = CliRunner().invoke(main, there)
    assert done.exit_code == 0, done.output
    assert len(RecordStore(Path("here/runs.jsonl")).read()) == 3
    refused = CliRunner().invoke(main, [*there, "--jobs", "2"])
    assert refused.exit_code == 2 and "the cluster has its workers" in refused.output


def test_the_command_line_starts_a_local_cluster(tmp_path):
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    command = ["compare", "potts-grid(height=4, width=4)", "--solver", "icm", "--seeds", "6"]
    done = subprocess.run(
        [sys.executable, "-m", "inference_lab", *command, *"--dask local --jobs 2".split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (store,) = tmp_path.glob("runs/*/runs.jsonl")
    assert len(RecordStore(store).read()) == 6
    assert "distributed" not in done.stderr and "Traceback" not in done.stderr


def unclosed_clients() -> list[Any]:
    from distributed import Client

    # By type: `isinstance` follows weak proxies, also those whose object is gone.
    clients = [thing for thing in gc.get_objects() if issubclass(type(thing), Client)]
    return [client for client in clients if client.status != "closed"]


def test_missing_scheduler_is_reported(monkeypatch):
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    monkeypatch.setattr(dask_cluster, "_SCHEDULER_PATIENCE", 0.2)
    for address in ("tcp://127.0.0.1:1", "nonsense://x", "tcp://127.0.0.1:99999999"):
        with DaskCluster(address) as executor:
            with pytest.raises(ExecutorError, match=re.escape(address)):
                il.compare(PROBLEMS[0], "icm", executor=executor)
        # An open client would close at garbage collection, perhaps while the next one starts.
        assert unclosed_clients() == []
    for command in ("compare potts-grid --solver icm", "reproduce estep-regimes --quick"):
        done = CliRunner().invoke(main, [*command.split(), "--dask", "tcp://127.0.0.1:1"])
        assert done.exit_code == 2 and "no Dask scheduler" in done.output
        assert "the same command goes on" in done.output
