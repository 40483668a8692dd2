"""The harness survives kills, full disks, dead workers and jumping clocks."""

from __future__ import annotations

import ast
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.contract import Outcome, Solver
from inference_lab.harness.results_dir import find_store
from inference_lab.processes.isolation import can_isolate
from inference_lab.results.clustering_records import FitStore
from inference_lab.results.records import RecordStore

pytestmark = pytest.mark.skipif(not can_isolate(), reason="this system cannot fork")


@dataclass(frozen=True)
class Slow(Solver):
    """A random labelling after some milliseconds."""

    milliseconds: float = 2.0
    number: int = 0

    def run(self, graph, run):
        run.offer(run.rng.integers(0, graph.cardinalities))
        time.sleep(self.milliseconds / 1000)
        run.offer(run.rng.integers(0, graph.cardinalities))
        return Outcome(converged=True, iterations=2)


def problem(name, seed=0, n=6):
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(n - 1)]
    return il.Problem(name, il.FactorGraph.potts(rng.random((n, 3)), edges, rng.random(n - 1)))


PROBLEMS = [problem("a"), problem("b", 1), problem("c", 2)]
SOLVERS = [Slow(number=number) for number in range(4)]
ASKED = {"problems": PROBLEMS, "solvers": SOLVERS, "seeds": 5, "time_limit": 5.0}


def fingerprints(comparison):
    """Return everything that must not depend on where and how the runs were made."""
    return [(r.key, r.energy, r.labels_hash, r.status, r.iterations) for r in comparison.records]


def table(comparison):
    """Return the table without its times."""
    return [
        (row.problem, row.solver, row.runs, row.energy, row.energy_min, row.best, row.status)
        for row in comparison.rows
    ]


def children(pid):
    listing = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listing.stdout.split()]


def has_ended(pid, patience=5.0):
    """Return whether a process is gone, or is a zombie."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


# ---------------------------------------------------------------------- kills


@pytest.fixture(scope="module")
def undisturbed():
    """Return an undisturbed comparison."""
    return il.compare(**ASKED)


def lines_in(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def wait_for_lines(path, count, patience=180.0):
    deadline = time.monotonic() + patience
    while lines_in(path) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_kills_lose_nothing_and_double_nothing(tmp_path, undisturbed):
    path = tmp_path / "runs.jsonl"
    rng = random.Random(0)
    orphans, counts = [], [0]
    for kill in range(9):
        pid = os.fork()
        if pid == 0:
            try:
                il.compare(**ASKED, store=path)
            finally:
                os._exit(0)
        # While it reads the store and plans, during its first run, or during its second.
        wait_for_lines(path, counts[-1] + kill % 3)
        time.sleep(rng.uniform(0.0, 0.05))
        mine = children(pid)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        orphans += [child for child in mine if not has_ended(child)]
        counts.append(lines_in(path))
    assert orphans == []
    # It made progress between the kills, and was not complete before the last one.
    assert counts == sorted(counts) and 9 <= counts[-1] < len(undisturbed.records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)  # of a truncated line
        resumed = il.compare(**ASKED, store=path)
    keys = Counter(record.key for record in RecordStore(path))
    assert len(keys) == len(undisturbed.records) and set(keys.values()) == {1}
    assert fingerprints(resumed) == fingerprints(undisturbed)
    assert table(resumed) == table(undisturbed)
    assert resumed.alarms == []


def comparison_records(folder, **more):
    """Run a comparison of 60 runs."""
    return il.compare(**ASKED, store=folder / "runs.jsonl", **more).records


def fit_records(folder, **more):
    """Run a study of clustering of 12 fits."""
    # Workers import this file, and most of them fit nothing.
    from inference_lab.studies import Method, Study, run_study

    study = Study(
        title="A study",
        question="Does it survive?",
        data=["iris"],
        methods=[Method(str(n), "pckmeans", {"max_iter": n}) for n in (1, 2)],
        constraints=[5.0, 20.0],
        runs=3,
    )
    return run_study(study, folder, **more)


def lasting_fields(records):
    """Return the fields of records that do not depend on time or place."""
    passing = {"id", "exit_code", "trace", "started", "finished"}
    passing |= {"peak_memory", "memory_limit", "seconds"}
    return [
        {k: v for k, v in r.as_dict().items() if k not in passing and not k.endswith("_seconds")}
        for r in records
    ]


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_harness_faults import comparison_records

if __name__ == "__main__":
    comparison_records(Path(sys.argv[1]), jobs=2)
"""


def test_a_kill_takes_the_workers_along_and_loses_nothing(tmp_path, undisturbed):
    script, path = tmp_path / "script.py", tmp_path / "runs.jsonl"
    script.write_text(SCRIPT.format(tests=os.path.dirname(__file__)))
    # While the first worker starts, and while both workers run.
    for more in (1, 15):
        n_before = lines_in(path)
        process = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
        wait_for_lines(path, n_before + more)
        workers = children(process.pid)
        runs = [run for worker in workers for run in children(worker)]
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert len(workers) >= 2
        assert all(has_ended(pid) for pid in [*workers, *runs])
    assert 15 < len(find_store(tmp_path).read()) < 60
    assert lasting_fields(comparison_records(tmp_path)) == lasting_fields(undisturbed.records)
    assert len(find_store(tmp_path).read()) == 60


def test_killed_worker_costs_only_its_fit(tmp_path):
    """Fits and runs share this code, so both keep the guarantee."""
    killed = []

    def kill_one(event):
        if event.done == 4 and event.record is not None:
            workers = [pid for pid in children(os.getpid()) if b"spawn_main" in command(pid)]
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    records = fit_records(tmp_path, jobs=2, progress=kill_one)
    crashed = [record for record in records if record.failed]
    assert len(killed) == 1 and len(records) == 12
    # Unless it had just answered and was not yet given the next.
    assert len(crashed) <= 1
    for record in crashed:
        assert record.status == "error" and "SIGKILL" in record.message
    assert all(record.iterations > 0 for record in records if not record.failed)
    again = fit_records(tmp_path, rerun="failed")
    assert lasting_fields(again) == lasting_fields(
        fit_records(tmp_path / "undisturbed", isolate=False)
    )


def test_fits_of_one_method_are_thrown_away(tmp_path):
    first = fit_records(tmp_path, isolate=False)
    again = fit_records(tmp_path, isolate=False, rerun=["failed", "2"])
    anew = [before.identity != after.identity for before, after in zip(first, again, strict=True)]
    assert anew == [record.method == "2" for record in first] and sum(anew) == 6
    assert len(FitStore(tmp_path / "records.jsonl").read()) == 12
    with pytest.raises(ValueError, match="rerun must be one of"):
        fit_records(tmp_path, isolate=False, rerun="3")


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# ---------------------------------------------------------------------- disks


def test_file_size_limit_is_reported_on_the_command_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "inference_lab",
        "compare",
        "potts-grid(height=4, width=4)",
        "--solver",
        "icm",
        "--seeds",
        "9",
        "--out",
        str(tmp_path / "out"),
    ]

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    # Compiled code must be on the disk already, or its files would grow, too.
    il.compare("potts-grid(height=4, width=4)", "icm")
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert (
        str(tmp_path / "out" / "runs.jsonl") in done.stderr and "goes on from there" in done.stderr
    )
    records = RecordStore(tmp_path / "out" / "runs.jsonl").read()
    assert 0 < len(records) < 9
    assert f"{len(records)} new records" in done.stderr or "1 new record " in done.stderr
    assert CliRunner().invoke(main, command[3:]).exit_code == 0
    assert len(RecordStore(tmp_path / "out" / "runs.jsonl").read()) == 9


# ---------------------------------------------------------------------- clocks


def test_a_clock_that_jumps_changes_no_duration_and_no_result(tmp_path, monkeypatch):
    from inference_lab.harness import isolated_run

    rng = random.Random(0)
    real = time.time

    def jumping():
        return real() + rng.choice([-86400.0, 3600.0, 0.0, 1e6])

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(
        isolated_run, "now", lambda: f"20{rng.randint(10, 99)}-01-01T00:00:00+00:00"
    )
    asked = {"problems": PROBLEMS[0], "solvers": SOLVERS, "seeds": 2, "time_limit": 1.0}
    path = tmp_path / "runs.jsonl"
    first = il.compare(**asked, store=path)
    second = il.compare(**asked, store=path, rerun="all")
    assert {r.status for r in second.records} == {"converged"}
    for record in [*first.records, *second.records]:
        assert 0.002 <= record.seconds < 1.0
        assert record.seconds < record.wall_seconds < 30.0
        times = [point.seconds for point in record.trace]
        assert times == sorted(times) and 0 <= times[0] and times[-1] <= record.seconds
    # The last record of a run counts, regardless of its date.
    assert il.compare(**asked, store=path).records == second.records


def test_no_duration_is_taken_from_the_clock_on_the_wall():
    root = Path(il.__file__).parents[1]
    for folder in ("inference_lab", "solvers", "problems"):
        for path in (root / folder).rglob("*.py"):
            if path.name == "_numba.py":
                continue  # ages of folders of the cache
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    assert (node.value.id, node.attr) != ("time", "time"), path


@dataclass(frozen=True)
class Timeless(Solver):
    """Solver that tampers with clocks of `time`, or of its run."""

    how: str = "time"

    def run(self, graph, run):
        if self.how == "time":
            stopped = lambda: 698240.0  # noqa: E731
            time.perf_counter = time.monotonic = time.process_time = time.time = stopped
        else:
            run._start -= 698240.0
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(converged=True)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_a_solver_that_replaces_clocks_changes_no_duration(monkeypatch, isolate, clock):
    for name in ("perf_counter", "monotonic", "process_time", "time"):
        # In this process they are restored.
        monkeypatch.setattr(time, name, getattr(time, name))
    asked = {"time_limit": 60.0, "clock": clock, "isolate": isolate}
    for solver in (Timeless(), "icm"):
        (record,) = il.compare(PROBLEMS[0], solver, **asked).records
        assert record.status == "converged" and record.message == ""
        assert 0.0 < record.seconds <= record.wall_seconds < 60.0
        assert 0.0 <= record.compile_seconds <= record.wall_seconds
        assert 0.0 <= record.setup_seconds < 60.0
        assert all(point.seconds <= record.seconds for point in record.trace)
