"""Command line: streams, exit codes, and one-line messages for every mistake."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.cli.compare_command import DEFAULT_PROBLEMS, DEFAULT_SOLVERS
from inference_lab.harness import isolated_run
from inference_lab.registry.registry import solver_registry
from inference_lab.registry.sources import problem_registry
from inference_lab.results.records import RecordStore

#: The installed command.
COMMAND = str(Path(sys.executable).with_name("inference-lab"))

#: Energy -3 for labels 1 0 1, attained by the unaries alone.
MODEL = """MARKOV
3
2 2 2
4
1 0
1 1
1 2
2 0 1
2
 1 2.718281828459045
2
 2.718281828459045 1
2
 1 2.718281828459045
4
 1 1 1 1
"""

SOLVERS = '''"""Solvers for the tests of the command line."""

import os
import sys
import time
from dataclasses import dataclass

import numpy as np

from inference_lab.contract import Outcome, Solver


@dataclass(frozen=True)
class Zero(Solver):
    """All labels zero, with much noise."""

    bound: float | None = None
    lie: bool = False
    fail: bool = False

    def run(self, graph, run):
        print("a solver prints")
        os.write(1, b"a library prints\\n")
        os.system("echo a child prints")
        if self.fail:
            raise ZeroDivisionError("some\\nreason")
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        if self.bound is not None:
            run.bound(self.bound)
        return Outcome(claimed_energy=-1e3 if self.lie else None)


@dataclass(frozen=True)
class Sleepy(Solver):
    """Sleeps, and leaves a file to say so."""

    def run(self, graph, run):
        open("asleep", "w").close()
        time.sleep(60)
        return Outcome()


@dataclass(frozen=True)
class Picky(Solver):
    """Supports nothing."""

    def supports(self, graph, temperature):
        return "not today"

    def run(self, graph, run):
        raise AssertionError
'''


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Go to a working directory with a model and some solvers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFERENCE_LAB_DATA", raising=False)
    (tmp_path / "model.uai").write_text(MODEL)
    (tmp_path / "mine.py").write_text(SOLVERS)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def call_for_real(capfd, *arguments):
    """Call the command with the streams of the system, which also catch output of children."""
    code = main(list(map(str, arguments)), standalone_mode=False) or 0
    return code, *capfd.readouterr()


def test_version_and_help():
    assert call("--version").stdout == f"inference-lab, version {il.__version__}\n"
    for arguments in ([], ["compare"], ["solve"], ["list"], ["check"]):
        result = call(*arguments, "--help")
        assert result.exit_code == 0 and result.stdout.startswith("Usage:")


# ---------------------------------------------------------------------- encodings


def commands(group=main, path=()):
    """Return the words of every command."""
    for name, one in group.commands.items():
        if isinstance(one, click.Group):
            yield from commands(one, (*path, name))
        else:
            yield (*path, name)


def call_in(encoding, monkeypatch, *arguments):
    """Call the command with streams of an encoding; return the exit code and the text of both."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    try:
        main(list(arguments), prog_name="inference-lab")
        code = None
    except SystemExit as end:
        code = end.code
    finally:
        monkeypatch.undo()
    for stream in streams:
        stream.flush()
    # click itself writes UTF-8 where a stream is ASCII.
    return code, *(stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_no_command_dies_of_a_character_that_the_console_lacks(work, encoding, monkeypatch):
    """All help and all commands that only read, with names beyond the encoding."""
    (work / "größe….uai").write_text(MODEL)
    read_only = [
        *((*words, "--help") for words in commands()),
        *(("list", kind) for kind in ("solvers", "problems", "estimators")),
        *(("list", kind, "--json") for kind in ("solvers", "problems", "estimators")),
        *(("list", "solvers", name) for name in solver_registry.names()),
        *(("list", "problems", name) for name in problem_registry.names()),
        *(("data", *words) for words in (("list",), ("list", "--json"), ("path",))),
        ("data", "path", "--data-dir", "größe…"),
        ("solve", "größe….uai", "--solver", "brute-force"),
        ("solve", "größe….uai", "--solver", "brute-force", "--json"),
        ("diagnose", "größe….uai"),
    ]
    for words in read_only:
        with monkeypatch.context() as patch:
            code, out, err = call_in(encoding, patch, *words)
        assert code == 0, (words, out, err)
        assert "UnicodeEncodeError" not in out + err, words
        assert out, words
    for words in (("solve", "…"), ("list", "solvers", "…"), ("report", "…"), ("merge", "…")):
        with monkeypatch.context() as patch:
            code, out, err = call_in(encoding, patch, *words)
        assert code == 2 and "Unicode" not in out + err, (words, err)


def test_characters_that_are_lacking_have_a_text_in_ascii(work, monkeypatch):
    """Tables end in three dots, and names in escapes."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    done = subprocess.run(
        [COMMAND, "data", "list"], capture_output=True, timeout=120, env=environment, check=True
    )
    assert "..." in done.stdout.decode("ascii") and not done.stderr
    assert "x≥1 ☃".encode("ascii", "inference_lab.replaced") == b"x>=1 \\u2603"


# ---------------------------------------------------------------------- compare


def test_compare_prints_a_table_and_writes_records(work, monkeypatch):
    # As in a new process, in which no test has warmed up a solver.
    monkeypatch.setattr(isolated_run, "_warm", {})
    result = call(
        "compare", "model.uai", "--solver", "icm", "--solver", "brute-force", "--seeds", 2
    )
    assert result.exit_code == 0
    assert "file(path=model.uai)" in result.stdout and "by brute-force" in result.stdout
    assert "[4/4]" in result.stderr and "getting icm ready (compiled once" in result.stderr
    assert "[4/4]" not in result.stdout
    # The one problem's table was printed after its runs, and is not printed again.
    assert result.stdout.count("\nbest energy") == 1 and "All " not in result.stdout
    (folder,) = (work / "runs").iterdir()
    assert f"runs/{folder.name}" in result.stderr
    records = RecordStore(folder / "runs.jsonl").read()
    assert sorted((r.seed, r.solver) for r in records) == [
        (0, "brute-force"),
        (0, "icm"),
        (1, "brute-force"),
        (1, "icm"),
    ]
    assert all(abs(r.energy + 3) < 1e-9 and r.time_limit == 10 for r in records)
    assert (folder / "runs.csv").stat().st_size > 0
    # The same comparison is resumed there; another one has its own folder.
    call("compare", "model.uai", "--solver", "icm", "--solver", "brute-force", "--seeds", 2)
    assert list((work / "runs").iterdir()) == [folder]
    call("compare", "model.uai", "--solver", "icm")
    assert len(list((work / "runs").iterdir())) == 2


def test_compare_json_is_one_document_and_nothing_else(work, capfd):
    arguments = ["model.uai", "--solver", "mine.py:Zero", "--solver", "icm", "--out", "here"]
    for extra in ([], ["--quiet"], ["--jobs", "2"]):
        asked = ("compare", *arguments, "--rerun", "all", "--json", *extra)
        code, stdout, stderr = call_for_real(capfd, *asked)
        assert code == 0, stderr
        document = json.loads(stdout)
        assert document["folder"] == "here" and len(document["records"]) == 2
        assert [row["solver"] for row in document["rows"]] == ["mine.py:Zero", "icm"]
        for noise in ("a solver prints", "a library prints", "a child prints"):
            assert noise in stderr
        assert ("[2/2]" in stderr) == (extra != ["--quiet"])
    assert len(RecordStore(work / "here/runs.jsonl").read()) == 6
    _, stdout, _ = call_for_real(capfd, "compare", "model.uai", "--solver", "mine.py:Zero")
    assert "prints" not in stdout and "Zero" in stdout


def test_compare_passes_its_options_on(work):
    (work / "data" / "sub").mkdir(parents=True)
    (work / "model.uai").rename(work / "data" / "sub" / "model.uai")
    result = call(
        "compare",
        "sub/model.uai",
        "--solver",
        "brute-force",
        "--time-limit",
        "none",
        "--temperature",
        "0.5",
        "--data-dir",
        "data",
        "--json",
        "--quiet",
    )
    (record,) = json.loads(result.stdout)["records"]
    assert record["problem"] == "file(path=sub/model.uai)"
    assert record["time_limit"] is None and record["temperature"] == 0.5
    assert record["log_partition_kind"] == "exact" and result.stderr == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py:Zero(fail=true)", "1 of 2 runs failed"),
        (
            "mine.py:Zero(bound=1)",
            "contradiction: file(path=model.uai): mine.py:Zero(bound=1) gives",
        ),
        ("mine.py:Zero(lie=true)", "contradiction: file(path=model.uai): mine.py:Zero(lie=true)"),
    ],
)
def test_compare_exits_with_1_on_failures_and_contradictions(work, spec, message):
    result = call("compare", "model.uai", "--solver", spec, "--solver", "icm", "--out", "here")
    assert result.exit_code == 1 and message in result.stderr and "icm" in result.stdout
    assert len(RecordStore(work / "here/runs.jsonl").read()) == 2
    assert "Traceback" not in result.output


def test_compare_exits_with_1_only_if_nothing_is_supported(work):
    result = call("compare", "model.uai", "--solver", "mine.py:Picky")
    assert result.exit_code == 1 and "no solver supports" in result.stderr
    assert "not today" in result.stdout
    result = call("compare", "model.uai", "--solver", "mine.py:Picky", "--solver", "icm")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compare --solver icn", "unknown solver 'icn'; did you mean 'icm'?"),
        ("compare --solver icm(restart=2)", "did you mean 'restarts'"),
        ("compare --solver icm(restarts=two)", "'two' is not an integer"),
        ("compare --solver icm --solver icm", "more than once"),
        ("compare --solver icm,ilp", "'icm,ilp' does not name one solver; several"),
        ("compare --solver none.py", "none.py does not exist"),
        ("compare --solver mine.py", "several"),
        ("compare --solver broken.py", "broken.py fails to import: SyntaxError"),
        ("compare nosuch", "unknown problem 'nosuch'"),
        ("compare icm", "'icm' is a solver, not a problem; pass it with --solver icm"),
        ("compare nosuch.uai", "nosuch.uai does not exist"),
        ("compare corrupt.uai", "corrupt.uai"),
        ("compare corrupt.uai.gz", "corrupt.uai.gz"),
        ("compare file(path=model.uai,evidence=gone.evid)", "gone.evid"),
        ("compare --memory-limit 4XB", "'4XB' is not a size such as 4GB or 4GiB, auto, or none"),
        ("compare --time-limit 0", "'0' is not a positive number"),
        ("compare --time-limit nan", "'nan' is not a positive number"),
        ("compare --time-limit soon", "'soon'"),
        ("compare --seeds 0", "0 is not in the range"),
        ("compare --seeds many", "'many'"),
        ("compare --jobs -1", "-1 is not in the range"),
        ("compare --temperature -1", "'-1' is not a number of at least 0"),
        ("compare --data-dir gone", "gone"),
        ("compare --out model.uai", "model.uai"),
        ("compare --out model.uai/x", "model.uai/x"),
        ("compare --out other", "runs.jsonl:1"),
        ("compare --nonsense", "--nonsense"),
        ("solve gone.uai", "gone.uai does not exist"),
        ("solve model.txt", "model.txt"),
        ("solve .", "problem '.'"),
        ("solve binary.uai", "binary.uai"),
        ("solve model.uai --solver=", "expected a name"),
        ("solve file(path=model.uai,evidence=bad.evid)", "bad.evid"),
        ("solve model.uai --out gone/labels.txt", "gone/labels.txt"),
        ("solve model.uai --out .", "'.' is a directory"),
        ("solve model.uai --temperature inf", "'inf'"),
        ("solve model.uai --seed -1", "-1"),
        ("solve", "FILE"),
        ("list solver", "'solver'"),
        ("list solvers icn", "unknown solver 'icn'; did you mean 'icm'"),
        ("list solvers BP", "unknown solver 'BP'"),
        ("check empty.py", "empty.py defines no solver (a class derived from inference_lab.Solver"),
        ("check potts-grid", "unknown solver 'potts-grid'; valid: "),
        ("diagnose wine", "'wine' is a data set; a problem made of it is estep(data=wine)"),
        ("reproduce estep-regime", "is not a study; did you mean 'estep-regimes'?"),
    ],
)
def test_bad_input_is_refused_with_one_line_and_code_2(work, command, message):
    (work / "model.txt").write_text(MODEL)
    (work / "corrupt.uai").write_text(MODEL[: len(MODEL) // 2])
    (work / "corrupt.uai.gz").write_bytes(b"\x1f\x8bnot gzip at all")
    (work / "binary.uai").write_bytes(bytes(range(256)))
    (work / "bad.evid").write_text("1 9 0\n")
    (work / "broken.py").write_text("def (")
    (work / "empty.py").touch()
    (work / "other").mkdir()
    (work / "other" / "runs.jsonl").write_text("my notes\n")
    name, *arguments = command.split()
    result = call(name, *["model.uai"] * (name == "compare"), *arguments)
    assert result.exit_code == 2 and result.stdout == "" and "Traceback" not in result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.stderr.splitlines()[-1] == line and message in line
    assert not (work / "runs").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_the_records_and_exits_with_130(work, jobs):
    arguments = ["compare", "model.uai", "--solver", "icm", "--solver", "mine.py:Sleepy"]
    process = subprocess.Popen(
        [COMMAND, *arguments, "--jobs", str(jobs), "--out", "here"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    store = work / "here/runs.jsonl"
    # A record is stored before it is reported.
    assert any(line.startswith("[1/2]") for line in process.stderr)
    deadline = time.monotonic() + 60
    while not (work / "asleep").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 130, stderr
    assert stdout == "" and "Traceback" not in stderr
    note = "1 new record is kept in here/runs.jsonl; the same command goes on from there"
    assert stderr.rstrip().endswith(f"interrupted\n{note}")
    assert [r.solver for r in RecordStore(store)] == ["icm"]


def test_a_closed_pipe_is_no_error_message(work):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [COMMAND, "list", "solvers"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("spec", DEFAULT_PROBLEMS)
def test_the_default_problems_are_well_posed(spec):
    """Weights are calibrated, solvers differ, and a lower energy is a higher accuracy."""
    problem = problem_registry.make(spec).build()
    assert problem.info["weight_over_calibrated"] == 1.0 and "remarks" not in problem.info
    results = []
    for solver in ("icm", "mean-field", "loopy-bp"):
        solution = il.solve(problem.graph, solver, seed=0)
        accuracy = problem.score(solution.labels)["accuracy"]
        results.append((round(solution.energy, 3), -accuracy))
    assert results[0] > results[1] >= results[2]
    assert sorted(results, key=lambda one: one[1]) == sorted(results)
    assert problem.graph.energy(problem.truth) < 1.1 * results[2][0]


def test_default_solvers_are_registered():
    for name in DEFAULT_SOLVERS:
        assert solver_registry.make(name).spec == name


@pytest.mark.parametrize(
    ("number", "jobs", "phase"),
    [(signal.SIGTERM, 2, "run"), (signal.SIGHUP, 1, "warm-up"), (signal.SIGINT, 1, "run")],
)
def test_termination_signal_leaves_no_process_running(work, number, jobs, phase):
    (work / "helped.py").write_text(
        "import subprocess, time\n"
        "from dataclasses import dataclass\n"
        "from inference_lab.contract import Outcome, Solver\n"
        "@dataclass(frozen=True)\n"
        "class Helped(Solver):\n"
        "    def run(self, graph, run):\n"
        "        phase = 'run' if run.time_limit == 30 else 'warm-up'\n"
        "        with open(phase, 'a') as stream:\n"
        "            print(subprocess.Popen(['sleep', '321']).pid, file=stream)\n"
        f"        time.sleep(60 if phase == {phase!r} else 0)\n"
        "        return Outcome()\n"
    )
    arguments = ["compare", "model.uai", "--solver", "helped.py", "--solver", "icm"]
    process = subprocess.Popen(
        [COMMAND, *arguments, "--jobs", str(jobs), "--time-limit", "30", "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Under nohup the signal is ignored, as it should be.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (work / phase).exists() and (work / phase).read_text().endswith("\n"):
            break
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130 and "goes on from there" in stderr
    assert (work / "run").exists() == (phase == "run")
    for path in filter(Path.exists, (work / "warm-up", work / "run")):
        for pid in path.read_text().split():
            with pytest.raises(ProcessLookupError):
                for _ in range(100):
                    os.kill(int(pid), 0)
                    time.sleep(0.05)


# ---------------------------------------------------------------------- solve


def test_solve_prints_the_solution(work):
    result = call("solve", "model.uai", "--solver", "brute-force")
    assert result.exit_code == 0
    model, status, energy, labels = result.stdout.splitlines()
    assert model.startswith("file(path=model.uai): FactorGraph(3 variables")
    assert status == "Solution(brute-force: optimal, the answer is proved to be exact)"
    assert energy == "  energy -3, bound -3, gap 0" and labels.startswith("  labels [1 0 1]; ")


def test_solve_json_is_one_document_and_nothing_else(work, capfd):
    asked = ("solve", "model.uai", "--solver", "mine.py:Zero", "--json")
    code, stdout, stderr = call_for_real(capfd, *asked)
    assert code == 0
    document = json.loads(stdout)
    assert document["labels"] == [0, 0, 0] and document["energy"] == pytest.approx(-1)
    assert document["lower_bound"] is None and document["status"] == "limit"
    for noise in ("a solver prints", "a library prints", "a child prints"):
        assert noise in stderr


def test_solve_gives_marginals_at_a_temperature(work):
    arguments = ("solve", "model.uai", "--solver", "brute-force", "--temperature", "1")
    document = json.loads(call(*arguments, "--json").stdout)
    one = 1 / (1 + np.e)
    expected = [[one, 1 - one], [1 - one, one], [one, 1 - one]]
    assert np.allclose(document["marginals"], expected)
    assert document["log_partition"] == pytest.approx(3 * np.log(1 + np.e))
    text = call(*arguments).stdout
    assert f"marginals of 0: {one:.4f} {1 - one:.4f}" in text and "(exact)" in text


def test_an_absolute_gap_is_accepted_and_named(work):
    """A chain of frustrated triangles: the relaxation is below the optimum by half a cost each."""
    unary = np.tile([0.0, 0.001 * np.pi], (3, 1))
    il.write(il.FactorGraph.potts(unary, [(0, 1), (1, 2), (0, 2)], -1.0), work / "odd.uai")
    arguments = ("compare", "odd.uai", "--solver", "lp-relaxation", "--out", "runs", "--json")
    plain = json.loads(call(*arguments).stdout)["rows"][0]
    assert (plain["status"], plain["proved_by"]) == ("converged", "no")
    accepted = json.loads(call(*arguments, "--absolute-gap", "2").stdout)
    row = accepted["rows"][0]
    assert accepted["new"] == 1 and row["gap"] == plain["gap"] > 0.1
    assert (row["status"], row["proved_by"]) == ("optimal", "within 2")
    text = call("solve", "odd.uai", "--solver", "lp-relaxation", "--absolute-gap", "2").stdout
    assert "optimal, within the absolute gap of 2" in text
    refused = call("solve", "odd.uai", "--absolute-gap", "-1")
    assert refused.exit_code == 2 and "'-1' is not a number of at least 0" in refused.stderr
    with pytest.raises(ValueError, match="absolute_gap must be finite and not negative"):
        il.compare("odd.uai", "icm", absolute_gap=-1.0)


def test_solve_writes_labels(work):
    result = call("solve", "model.uai", "--solver", "icm", "--out", "labels.txt")
    assert result.exit_code == 0 and "labels.txt" in result.stdout
    assert np.loadtxt(work / "labels.txt", dtype=int).tolist() == [1, 0, 1]


def test_solve_shortens_long_labellings(work):
    g = il.FactorGraph.from_terms(np.zeros((500, 2)))
    il.write(g, work / "long.uai")
    result = call("solve", "long.uai", "--solver", "icm")
    assert "... 0 0 0]" in result.stdout and max(map(len, result.stdout.splitlines())) < 200


def test_solve_answers_infeasible_with_code_0(work):
    impossible = MODEL.replace("1 1 1 1\n", "0 0 1 0\n").replace(
        "1 2.718281828459045\n2\n", "1 0\n2\n", 1
    )
    (work / "hard.uai").write_text(impossible)
    result = call("solve", "hard.uai", "--solver", "brute-force")
    assert result.exit_code == 0 and "Solution(brute-force: infeasible" in result.stdout


def test_solve_exits_with_1_where_there_is_no_answer(work):
    result = call("solve", "model.uai", "--solver", "mine.py:Picky")
    assert result.exit_code == 1 and "not today" in result.stdout
    result = call("solve", "model.uai", "--solver", "mine.py:Zero(fail=true)")
    assert result.exit_code == 1 and result.stdout == ""
    assert "error: ZeroDivisionError: some reason" in result.stderr
    assert "--debug" in result.stderr and "Traceback" not in result.output


def test_debug_shows_the_traceback(work):
    for arguments in (["--debug", "solve"], ["solve", "--debug"]):
        result = call(*arguments, "model.uai", "--solver", "mine.py:Zero(fail=true)")
        assert isinstance(result.exception, ZeroDivisionError)


# ---------------------------------------------------------------------- list


@pytest.mark.parametrize(
    ("kind", "registry"), [("solvers", solver_registry), ("problems", problem_registry)]
)
def test_list_names_everything_with_its_settings(kind, registry):
    result = call("list", kind)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == registry.names()
    document = json.loads(call("list", kind, "--json").stdout)
    assert list(document[kind]) == registry.names()
    assert all(about["description"] for about in document[kind].values())
    for name in registry.names():
        one = call("list", kind, name)
        assert one.exit_code == 0 and one.stdout.splitlines()[0].split(" (not installed")[0] == name
        settings = json.loads(call("list", kind, name, "--json").stdout)[kind][name]["settings"]
        assert set(settings) == set(inspect.signature(registry.load(name)).parameters)
        for setting in settings.values():
            assert f"    {setting}" in one.stdout


def test_list_groups_every_estimator():
    from sklearn.base import ClusterMixin

    from inference_lab import clustering

    public = {
        name
        for name in clustering.__all__
        if inspect.isclass(member := getattr(clustering, name)) and issubclass(member, ClusterMixin)
    }
    listed = json.loads(call("list", "estimators", "--json").stdout)["estimators"]
    assert set(listed) == public
    text = call("list", "estimators").stdout
    assert text.startswith("Take these") and all(f"  {name} " in text for name in public)
    for name in public:
        shown = call("list", "estimators", name)
        assert shown.exit_code == 0
        settings = json.loads(call("list", "estimators", name, "--json").stdout)
        assert set(settings["estimators"][name]["settings"]) == set(
            inspect.signature(getattr(clustering, name)).parameters
        )
    missing = call("list", "estimators", "PCKmeans")
    assert missing.exit_code == 2 and "'PCKMeans'" in missing.stderr


def test_list_shows_settings_as_they_are_written():
    (described,) = json.loads(call("list", "solvers", "icm", "--json").stdout)["solvers"].values()
    assert described["settings"]["init"] == "init: Literal[unary, random] = unary"
    assert described["settings"]["max_sweeps"] == "max_sweeps: int | None = None"
    text = call("list", "problems", "file").stdout
    assert "    path: str\n" in text and "evidence: str | None = None" in text


# ---------------------------------------------------------------------- check


def test_check_passes_a_good_solver_and_fails_a_liar(work, capfd, monkeypatch):
    from inference_lab import conformance

    few = functools.partial(conformance.run_checks, graphs_per_family=1)
    monkeypatch.setattr(conformance, "run_checks", few)
    code, stdout, _ = call_for_real(capfd, "check", "mine.py:Zero")
    assert code == 0 and stdout.splitlines()[-1].startswith("mine.py:Zero: ")
    assert " 0 failed" in stdout.splitlines()[-1]
    here = functools.partial(few, isolate=False)
    monkeypatch.setattr(conformance, "run_checks", here)
    code, stdout, stderr = call_for_real(capfd, "check", "mine.py:Zero(lie=true)", "--json")
    assert code == 1
    document = json.loads(stdout)
    verdicts = {check["name"]: check["verdict"] for check in document["checks"]}
    assert verdicts["claim-true"] == "failed" and verdicts["labels-valid"] == "passed"
    assert document["counts"]["failed"] == list(verdicts.values()).count("failed") > 0
    assert "claim-true" in stderr
