"""Runs are resumed, sharded, repeated and merged, and no run is lost or made twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

import inference_lab as il
from inference_lab.cli import main
from inference_lab.contract import Outcome, Solver
from inference_lab.harness.campaign import InputError, execute, share_of
from inference_lab.harness.comparing import ComparisonCampaign
from inference_lab.harness.inputs import RunSettings, prepare_problems
from inference_lab.harness.results_dir import find_store, merge
from inference_lab.harness.running import limits_of
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import RecordStore
from inference_lab.solving import CLOCKS


@dataclass(frozen=True)
class Guess(Solver):
    """One random labelling."""

    draws: int = 1

    def run(self, graph, run):
        for _ in range(self.draws):
            run.offer(run.rng.integers(0, graph.cardinalities))
        return Outcome(converged=True, iterations=self.draws)


@dataclass(frozen=True)
class Moody(Solver):
    """Solver that fails as long as a file exists."""

    file: str
    how: str = "raise"

    def run(self, graph, run):
        if os.path.exists(self.file):
            if self.how == "raise":
                raise RuntimeError("not today")
            time.sleep(60)
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(converged=True)


def problem(name, seed=0):
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(5)]
    return il.Problem(name, il.FactorGraph.potts(rng.random((6, 3)), edges, rng.random(5)))


PROBLEMS = [problem("a"), problem("b", 1), problem("c", 2)]
SOLVERS = [Guess(), Guess(draws=5), Guess(draws=9)]


def keys(records):
    return [record.key for record in records]


def fingerprints(comparison):
    """Return everything that must not depend on where and how the runs were made."""
    return [(r.key, r.energy, r.labels_hash, r.status) for r in comparison.records]


# ---------------------------------------------------------------------- order


def plan(seeds=3, repeats=2):
    cases = [case for p in PROBLEMS for case in prepare_problems(p, None)]
    return ComparisonCampaign(cases, list(SOLVERS), list(range(seeds)), repeats, RunSettings())


def test_the_order_is_seeded_interleaved_and_complete():
    made = plan()
    order = made.in_order()
    assert order == plan().in_order()
    assert sorted(order) == list(range(len(made.tasks))) and len(order) == 3 * 3 * 3 * 2
    tasks = [made.tasks[number] for number in order]
    # Whole seeds come first, then whole repeats.
    assert [(t.seed, t.repeat) for t in tasks] == sorted((t.seed, t.repeat) for t in tasks)
    # Solvers alternate on each problem, in varying order.
    blocks = [tasks[i : i + 3] for i in range(0, len(tasks), 3)]
    assert all(len({(t.instance, t.seed, t.repeat) for t in block}) == 1 for block in blocks)
    assert len({tuple(t.solver for t in block) for block in blocks}) > 2
    assert len({tuple(b[0].instance for b in blocks[i : i + 3]) for i in range(0, 18, 3)}) > 1


def test_shards_are_equal_and_cover_everything_once():
    made = plan()
    shares = [share_of((i, 4), made.in_order()) for i in range(1, 5)]
    assert sorted(n for share in shares for n in share) == list(range(54))
    assert {len(share) for share in shares} == {13, 14}


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "/3", "a/b", "-1/3", "1/3/4", "1.5/3"])
def test_invalid_shard_is_refused(text):
    with pytest.raises(InputError, match="i/n"):
        il.compare(PROBLEMS, "icm", shard=text)


def test_repeats_are_kept_one_by_one():
    comparison = il.compare(PROBLEMS[0], Guess(), seeds=2, repeats=3)
    assert [(r.seed, r.repeat) for r in comparison.records] == [
        (seed, repeat) for seed in (0, 1) for repeat in (0, 1, 2)
    ]
    assert len({r.labels_hash for r in comparison.records if r.seed == 0}) == 1
    assert len({r.labels_hash for r in comparison.records}) == 2
    assert comparison.rows[0].runs == 6


def test_times_and_limits_of_a_run_are_recorded():
    (record,) = il.compare(PROBLEMS[0], "icm", threads=2).records
    assert record.threads == 2
    assert record.wall_seconds > record.seconds > 0 and record.cpu_seconds > 0
    assert record.memory_limit == record.environment["memory"]
    (record,) = il.compare(PROBLEMS[0], "icm", memory_limit=None, isolate=False).records
    assert record.memory_limit is None and record.wall_seconds > 0


# ---------------------------------------------------------------------- resuming


def test_the_process_of_a_run_loads_nothing():
    """Modules that every run needs are imported before its process is forked, once."""
    script = """
import sys
from msgspec.structs import replace
import numpy as np
import inference_lab as il
from inference_lab.harness import running

finish = running._finish

def watched(*arguments):
    before = set(sys.modules)
    record = finish(*arguments)
    return replace(record, diagnostics={"loaded": sorted(set(sys.modules) - before)})

running._finish = watched
graph = il.FactorGraph.potts(np.eye(3), [(0, 1)], [0.5])
records = il.compare(il.Problem("p", graph, truth=np.array([1, 0, 0])), "icm").records
assert [(r.accuracy, r.diagnostics) for r in records] == [(1.0, {"loaded": []})], records
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_repeated_call_does_only_the_missing_runs(tmp_path, unforked):
    store = tmp_path / "runs.jsonl"
    started = []

    def watch(event):
        if event.record is None:
            started.append((event.problem, event.solver, event.seed))

    first = il.compare(PROBLEMS[:2], SOLVERS[:2], seeds=2, store=store, progress=watch)
    assert len(started) == 8
    started.clear()
    second = il.compare(PROBLEMS, SOLVERS, seeds=3, store=store, progress=watch)
    assert len(started) == 27 - 8
    old = {r.id for r in first.records}
    assert old < {r.id for r in second.records}
    assert fingerprints(second) == fingerprints(il.compare(PROBLEMS, SOLVERS, seeds=3))
    started.clear()
    third = il.compare(PROBLEMS, SOLVERS, seeds=3, store=store, progress=watch, jobs=2)
    assert started == [] and third.records == second.records
    assert len(RecordStore(store).read()) == 27


def test_another_question_is_another_run(tmp_path, unforked):
    store = tmp_path / "runs.jsonl"
    il.compare(PROBLEMS[0], "icm", store=store)
    for number, other in enumerate(
        [
            {"time_limit": 5.0},
            {"threads": 2},
            {"seeds": [1]},
            {"problems": replace(problem("a", 7), name="a")},
            {"solvers": "icm(restarts=2)"},
        ],
        start=2,
    ):
        il.compare(**{"problems": PROBLEMS[0], "solvers": "icm", "store": store, **other})
        assert len(RecordStore(store).read()) == number


@pytest.fixture(scope="module")
def failed_before(tmp_path_factory):
    """Return the request and the records of two failed runs whose cause is gone."""
    from inference_lab.harness import running

    folder = tmp_path_factory.mktemp("failed")
    flag = folder / "flag"
    flag.touch()
    solvers = [Moody(str(flag)), Moody(str(flag), "sleep"), Guess()]
    asked = {"problems": PROBLEMS[0], "solvers": solvers, "time_limit": 0.1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_WALL_CONSTANT", 1.0)
        patch.setattr(running, "_FOREIGN_WARM_UP_LIMIT", 1.0)
        first = il.compare(**asked, store=folder / "runs.jsonl")
    assert [r.status for r in first.records] == ["error", "timeout", "converged"]
    flag.unlink()
    return asked, folder / "runs.jsonl"


@pytest.mark.parametrize(("rerun", "again"), [(None, 0), ("timeout", 1), ("failed", 2), ("all", 3)])
def test_failures_are_made_again_only_when_asked(tmp_path, failed_before, rerun, again):
    asked, before = failed_before
    asked = asked | {"store": Path(shutil.copy(before, tmp_path))}
    second = il.compare(**asked, rerun=rerun)
    assert len(RecordStore(asked["store"]).read()) == 3 + again
    fixed = {"failed": 2, "all": 2, "timeout": 1, None: 0}[rerun]
    assert sum(not r.failed for r in second.records) == 1 + fixed
    # Repeated runs count from now on.
    assert il.compare(**asked).records == second.records


def test_an_edited_solver_is_run_again(tmp_path):
    module, script = tmp_path / "mine.py", tmp_path / "script.py"
    text = (
        "from dataclasses import dataclass\n"
        "from inference_lab.contract import Outcome, Solver\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Solver):\n"
        "    def run(self, graph, run):\n"
        "        run.offer([LABEL] * graph.n_variables)\n"
        "        return Outcome(converged=True)\n"
    )
    script.write_text(
        "import inference_lab as il\n"
        "c = il.compare('potts-grid(height=3, width=3)', ['mine.py', 'icm'], store='runs.jsonl')\n"
        "print(*(r.energy for r in c.records))\n"
    )
    energies = []
    for label in (0, 0, 1):
        module.write_text(text.replace("LABEL", str(label)))
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        energies.append(done.stdout.split())
    store = tmp_path / "runs.jsonl"
    records = RecordStore(store).read()
    assert len(records) == 3  # two of mine, one of icm
    assert energies[0] == energies[1] and energies[1][0] != energies[2][0]
    assert {len(r.solver_source) for r in records} == {0, 16}

    # The report has the numbers of the last comparison, and no alarm.
    merged = CliRunner().invoke(main, ["merge", str(tmp_path), "--out", str(tmp_path / "merged")])
    assert merged.exit_code == 0, merged.output
    for folder in (tmp_path, tmp_path / "merged"):
        comparison = il.Comparison.of_store(RecordStore(folder / "runs.jsonl"))
        assert {str(r.energy) for r in comparison.records} == set(energies[2])
        report = CliRunner().invoke(main, ["report", str(folder)])
        assert report.exit_code == 0, report.output
        assert "note: 1 run of earlier code of mine.py:Mine (1) is left out" in report.stderr
    report = CliRunner().invoke(main, ["report", str(tmp_path), "--older", "--json"])
    assert report.exit_code == 0 and "left out" not in report.stdout


@pytest.mark.parametrize("archived", [False, True])
def test_records_of_one_solver_are_thrown_away(tmp_path, unforked, archived):
    """A module that a solver imports leaves no trace in its records."""
    store = RecordStore(tmp_path / "runs.jsonl")
    asked = {"problems": PROBLEMS[:2], "solvers": ["icm", "icm(restarts=2)", "trw-s"], "seeds": 2}
    first = il.compare(**asked, store=store).records
    # Runs before an edit, with another limit, and a damaged line.
    (old,) = (r for r in first[:1])
    store.append(structs.replace(old, id="0" * 12, solver_version=0, energy=99.0))
    store.append(structs.replace(old, id="1" * 12, time_limit=7.0))
    with store.path.open("ab") as stream:
        stream.write(b'{"schema": "?"}\n')
    if archived:
        store.compress()

    with pytest.warns(RecordWarning, match="1 line"):
        again = il.compare(**asked, store=store, rerun="icm(restarts=2)").records
    fresh = {r.id for r in again} - {r.id for r in first}
    assert {r.solver for r in again if r.id in fresh} == {"icm(restarts=2)"} and len(fresh) == 4
    with pytest.warns(RecordWarning, match="1 line"):
        records = store.read()
    assert len(records) == len(first) + 2

    with pytest.warns(RecordWarning, match="1 line"):
        again = il.compare(**asked, store=store, rerun=["failed", "icm"]).records
    with pytest.warns(RecordWarning, match="1 line"):
        records = store.read()
    # The registered name stands for all settings of the solver; other limits are another request.
    assert {r.id for r in records} == {r.id for r in again} | {"1" * 12}
    assert {r.id for r in again} & {r.id for r in first} == {
        r.id for r in first if r.solver == "trw-s"
    }


def test_an_empty_share_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["compare", "potts-grid(height=3, width=3)", "--solver", "icm", "--shard", "3/3"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("rerun", ["some", ["failed", "trw-s"], [3]])
def test_rerun_is_checked(rerun):
    with pytest.raises(InputError, match="failed, timeout, all, or name a solver"):
        il.compare(PROBLEMS[0], "icm", rerun=rerun)


# ---------------------------------------------------------------------- folders


def test_merged_shards_equal_one_call(tmp_path, unforked):
    whole = il.compare(PROBLEMS, SOLVERS, seeds=2)
    stores = [RecordStore(tmp_path / f"shard{i}" / "runs.jsonl") for i in (1, 2, 3)]
    for i, store in enumerate(stores, start=1):
        part = il.compare(PROBLEMS, SOLVERS, seeds=2, store=store, shard=f"{i}/3")
        assert len(part.records) == 6
    target = RecordStore(tmp_path / "all" / "runs.jsonl")
    assert merge(stores, target) == (18, 0)
    assert merge([*stores, target], target) == (0, 36)
    again = il.compare(PROBLEMS, SOLVERS, seeds=2, store=target, rerun="failed")
    assert fingerprints(again) == fingerprints(whole)
    assert len(target.read()) == 18


def test_a_folder_without_records_is_bad_input(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        for command in (["report"], ["merge", "--out", str(tmp_path / "new")]):
            result = CliRunner().invoke(main, [*command, str(place)])
            assert result.exit_code == 2, (command, result.output)
            assert str(place) in result.output
    with pytest.raises(InputError):
        find_store(tmp_path)


def test_the_command_line_resumes_shards_and_merges(tmp_path, monkeypatch, unforked):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(main, [str(a) for a in arguments])

    asked = ["potts-grid(height=4, width=4)", "--solver", "icm", "--solver", "trw-s", "--seeds", 3]
    for shard in (1, 2):
        done = call("compare", *asked, "--shard", f"{shard}/2", "--out", f"part{shard}")
        assert done.exit_code == 0, done.output
        assert len(find_store(f"part{shard}").read()) == 3
    done = call("merge", "part1", "part2", "--out", "whole")
    assert done.exit_code == 0 and done.stdout.startswith("6 records added")
    done = call("compare", *asked, "--out", "whole")
    assert done.exit_code == 0 and "all runs were recorded already" in done.stderr
    assert len(find_store("whole").read()) == 6
    done = call("compare", *asked, "--out", "whole", "--rerun", "all", "--quiet")
    assert done.exit_code == 0 and done.stderr == ""
    assert len(find_store("whole").read()) == 12
    assert call("compare", *asked, "--shard", "3/2").exit_code == 2
    for bad in ("0", "-1GB", "4XB", "many"):
        assert call("compare", *asked, "--memory-limit", bad).exit_code == 2, bad


def test_memory_limits_are_read_and_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, size in (("2GB", 2_000_000_000), ("1.5 gb", 1_500_000_000), ("none", None)):
        done = CliRunner().invoke(
            main,
            [
                "compare",
                "potts-grid(height=3, width=3)",
                "--solver",
                "icm",
                "--json",
                "--quiet",
                "--memory-limit",
                text,
                "--rerun",
                "all",
            ],
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["records"][0]["memory_limit"] == size


# ---------------------------------------------------------------------- executors


def repeated(letter, x):
    if x == 3:
        os._exit(9)
    return letter * x


@pytest.mark.parametrize("jobs", [2, 3])
def test_workers_answer_every_call(jobs):
    calls = [(n, partial(repeated, "xyz"[n // 4], n)) for n in range(12)]
    started = []
    answers = dict(execute(calls, started.append, jobs))
    assert sorted(answers) == sorted(started) == list(range(12))
    assert "exit code 9" in answers.pop(3).message
    assert answers == {n: "xyz"[n // 4] * n for n in range(12) if n != 3}


@pytest.mark.skipif(sys.platform != "linux", reason="the files of a process are counted on Linux")
def test_runs_leave_nothing_open_and_no_memory_taken(tmp_path):
    """Open files and memory do not grow with the number of runs, except by the records."""
    usage = []

    def note(event):
        if getattr(event, "record", None) is not None:
            resident = int(Path("/proc/self/statm").read_text().split()[1])
            usage.append((len(os.listdir("/proc/self/fd")), resident * os.sysconf("SC_PAGE_SIZE")))

    il.compare(problem("p"), "icm", seeds=100, store=tmp_path / "runs.jsonl", progress=note)
    files, resident = zip(*usage[20:], strict=True)
    assert len(set(files)) == 1
    assert resident[-1] - resident[0] < 20_000 * len(resident)


def test_a_limit_on_processors_gives_a_busy_machine_time():
    """A run that keeps its limit is not stopped while other processes use the processors."""
    wall, busy = (limits_of(RunSettings(time_limit=60.0, clock=clock)).wall for clock in CLOCKS)
    assert wall == 120.0 and busy >= 10 * 60.0
    assert limits_of(RunSettings(clock="cpu")).wall is None
