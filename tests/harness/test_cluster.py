"""The same plan on a Dask cluster: a scheduler and two separate workers, one of them killed."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.harness.executors import ClusterError
from inference_lab.results.records import RecordStore
from inference_lab.studies import Method, Study, run_study

pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

SLOW = '''
import time
from dataclasses import dataclass

from inference_lab.contract import Outcome, Solver


@dataclass(frozen=True)
class Slow(Solver):
    """A random labelling after a while; leaves a mark when it starts."""

    folder: str
    seconds: float = 0.1

    def run(self, graph, run):
        run.offer(run.rng.integers(0, graph.cardinalities))
        time.sleep(self.seconds)
        return Outcome(converged=True)


@dataclass(frozen=True)
class Dies(Solver):
    """Ends its process."""

    def run(self, graph, run):
        import os

        run.offer(run.rng.integers(0, graph.cardinalities))
        os.kill(os.getpid(), 9)
'''


def problem(name, seed=0):
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(5)]
    return il.Problem(name, il.FactorGraph.potts(rng.random((6, 3)), edges, rng.random(5)))


PROBLEMS = [problem("a"), problem("b", 1)]


#: Two workers, each with a nanny that restarts it. They run outside the test process, because runs
#: are forked off it and it would have threads.
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(host="127.0.0.1", **options, local_directory=sys.argv[1]) as cluster:
        pids = [nanny.pid for nanny in cluster.workers.values()]
        print(cluster.scheduler_address, *pids, flush=True)
        sys.stdin.read()
"""


class Cluster(NamedTuple):
    """The address of a scheduler, and the processes of its workers."""

    address: str
    workers: list[int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Give the tests of this file one cluster, of which the last test kills a worker."""
    folder = tmp_path_factory.mktemp("cluster")
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False"},
        text=True,
    ) as process:
        address, *workers = process.stdout.readline().split()
        yield Cluster(address, [int(worker) for worker in workers])
        process.stdin.close()


def what(comparison):
    return [(r.key, r.energy, r.labels_hash, r.status) for r in comparison.records]


def test_the_command_line_takes_a_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main,
        [
            *("compare", "potts-grid(height=4, width=4)", "--solver", "icm", "--seeds", "3"),
            *("--cluster", cluster.address, "--out", "here"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert len(RecordStore(Path("here/runs.jsonl")).read()) == 3


def test_fits_of_a_study_run_on_a_cluster(cluster, tmp_path):
    study = Study(
        title="A study",
        question="Does it travel?",
        data=["iris"],
        methods=[Method("PCKMeans", "pckmeans")],
        constraints=[20.0],
        runs=4,
    )
    there = run_study(study, tmp_path / "there", cluster=cluster.address)
    here = run_study(study, tmp_path / "here")
    assert [(r.key, r.status, r.objective) for r in there] == [
        (r.key, "ok", r.objective) for r in here
    ]


def unclosed_clients() -> list[Any]:
    from distributed import Client

    # By type: `isinstance` follows weak proxies, also those whose object is gone.
    held = [thing for thing in gc.get_objects() if issubclass(type(thing), Client)]
    return [client for client in held if client.status != "closed"]


def test_missing_cluster_is_reported(monkeypatch):
    from inference_lab.harness import executors

    monkeypatch.setattr(executors, "_CONNECT_TIMEOUT", 0.2)
    for address in ("tcp://127.0.0.1:1", "nonsense://x", "tcp://127.0.0.1:99999999"):
        with pytest.raises(ClusterError, match=re.escape(address)):
            il.compare(PROBLEMS[0], "icm", cluster=address)
        # An open client would close at garbage collection, perhaps while the next one starts.
        assert unclosed_clients() == []
    done = CliRunner().invoke(
        main, ["compare", "potts-grid", "--solver", "icm", "--cluster", "tcp://127.0.0.1:1"]
    )
    assert done.exit_code == 2 and "no Dask scheduler" in done.output


def test_cluster_with_a_killed_worker_gives_the_local_results(cluster, tmp_path):
    module = tmp_path / "slow.py"
    module.write_text(SLOW)
    solvers = [f"{module}:Slow(folder=x)", f"{module}:Dies", "icm", "trw-s"]
    store = tmp_path / "runs.jsonl"
    killed = threading.Event()

    def watch(event):
        # In the middle, while both workers are busy.
        if event.done == 5 and not killed.is_set():
            killed.set()
            threading.Timer(0.2, os.kill, [cluster.workers[1], signal.SIGKILL]).start()

    there = il.compare(
        PROBLEMS, solvers, seeds=4, cluster=cluster.address, store=store, progress=watch
    )
    assert killed.is_set()
    here = il.compare(PROBLEMS, solvers, seeds=4)
    assert what(there) == what(here)
    assert {r.status for r in there.records if r.solver_name.endswith("Dies")} == {"crash"}
    stored = RecordStore(store).read()
    assert len(stored) == len({r.key for r in stored}) == 32
    # Completed runs are not requested again, so no cluster is needed.
    again = il.compare(PROBLEMS, solvers, seeds=4, cluster="tcp://127.0.0.1:1", store=store)
    assert again.records == there.records
