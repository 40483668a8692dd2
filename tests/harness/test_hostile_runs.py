"""Any report of a run becomes a record, and any content of a store is read."""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from hostile_values import Evil, Silent

import inference_lab as il
from inference_lab.cli import main
from inference_lab.contract import Outcome, Solver
from inference_lab.harness.campaign import InputError
from inference_lab.processes.isolation import can_isolate
from inference_lab.results.json_lines import RecordError
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import SCHEMA, RecordStore

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
PROBLEM = il.Problem("pair", GRAPH)
RAGGED = il.FactorGraph.from_terms([np.zeros(2), np.zeros(3)])


@dataclass(frozen=True)
class Says(Solver):
    """Solver that offers a labelling and returns an Outcome with one field changed."""

    name_of_field: str = ""
    case: int = 0

    def supports(self, graph, temperature):
        return None

    def run(self, graph, run):
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        value = REPORTS[self.name_of_field][self.case]
        if self.name_of_field == "raises":
            raise value
        if self.name_of_field in ("trace", "lower_bound", "best_energy"):
            setattr(run, self.name_of_field, value)
            return Outcome()
        return Outcome(**{self.name_of_field: value})


#: Reports that no record can hold, or that no solver should make.
REPORTS = {
    "iterations": [-1, 2**64, 2**20000, 1.5, "3", None, Evil()],
    "claimed_energy": ["low", 1j, Evil(), [1.0], True],
    "converged": [Evil(), np.ones(2), "yes"],
    "stopped_by": [Evil(), None, 5],
    "log_partition": ["x", Evil(), 1.0],
    "log_partition_kind": [5, Evil(), "exact", "rough"],
    "marginals": [np.full((2, 2), np.nan), np.full((2, 2), 0.7), np.ones((1, 2)), "x", Evil()],
    "diagnostics": [None, 5, [1]],
    "trace": [["a"], [(1, 2)], None, [Evil()]],
    "lower_bound": ["x", float("nan")],
    "raises": [
        ValueError(os.fsdecode(b"caf\xe9.txt")),
        Silent(),
        SystemExit(3),
        GeneratorExit(),
        ValueError("x" * 10**6),
    ],
}
SOLVERS = [Says(name, case) for name, values in REPORTS.items() for case in range(len(values))]


@pytest.mark.parametrize("isolate", [False, True])
def test_invalid_outcomes_are_recorded_as_errors_that_name_the_field(tmp_path, isolate):
    if isolate and not can_isolate():
        pytest.skip("this system cannot fork")
    path = tmp_path / "runs.jsonl"
    solvers = SOLVERS[::4] if isolate else SOLVERS
    comparison = il.compare(PROBLEM, [*solvers, "icm"], store=path, isolate=isolate)
    assert {record.solver_name: record.status for record in comparison.records} == {
        "Says": "error",
        "icm": "optimal" if comparison.records[-1].status == "optimal" else "converged",
    }
    for record in comparison.records[:-1]:
        field = record.settings["name_of_field"]
        if field not in ("raises", "trace", "lower_bound"):
            assert record.message.startswith("Says returned an invalid Outcome: ")
            assert field.partition("_kind")[0] in record.message
            # Its offers count nevertheless.
            assert record.energy == 0.6
    by_solver = {record.solver: record for record in comparison.records}
    if not isolate:
        assert "caf\\udce9.txt" in by_solver[Says("raises", 0).spec].message
        assert "Silent" in by_solver[Says("raises", 1).spec].message
    store = RecordStore(path)
    assert {r.id: r for r in store} == {r.id: r for r in comparison.records}
    assert store.remarks == []


@pytest.mark.parametrize("name", ["pair\ud800", "x" * 200_000])
def test_a_name_that_no_record_can_hold_is_refused_before_anything_runs(tmp_path, name):
    with pytest.raises(InputError, match="no record can be made of 'icm'"):
        il.compare(il.Problem(name, GRAPH), "icm", store=tmp_path / "runs.jsonl")


# ---------------------------------------------------------------------- lines that are no records


def run_command(*arguments):
    """Run a command with its warnings as notes, as outside of tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


def store_of_damaged_lines(path):
    """Make a store with lines of earlier versions; return its records and the lines."""
    made = il.compare(PROBLEM, "icm", seeds=5, store=path).records
    lines = path.read_bytes().splitlines(keepends=True)
    for at, (name, value) in enumerate(
        (("message", os.fsdecode(b"caf\xe9")), ("iterations", -1), ("log_partition_kind", 5))
    ):
        lines[at] = (json.dumps({**json.loads(lines[at]), name: value}) + "\n").encode()
    path.write_bytes(b"".join(lines))
    return made, lines


def test_invalid_lines_are_reported_and_kept(tmp_path):
    path = tmp_path / "runs.jsonl"
    made, lines = store_of_damaged_lines(path)
    before = path.read_bytes()
    pattern = (
        rf"note: .*3 lines .* left out: {path}:1: not a line of JSON.*:2: .*iterations.*:3: .*_kind"
    )
    report = run_command("report", tmp_path)
    assert report.exit_code == 0 and len(re.findall(pattern, report.stderr)) == 1
    assert "3 lines that are not records" in (tmp_path / "report" / "README.md").read_text()
    assert path.read_bytes() == before

    with pytest.warns(RecordWarning, match=r"3 lines .* left out"):
        again = il.compare(PROBLEM, "icm", seeds=5, store=path)
    assert {r.seed: r.energy for r in again.records} == {r.seed: r.energy for r in made}
    assert path.read_bytes().startswith(b"".join(lines))
    with pytest.warns(RecordWarning, match="3 lines .* left out"):
        assert len(RecordStore(path).read()) == 5


def test_a_later_version_keeps_its_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    il.compare(PROBLEM, "icm", seeds=2, store=path)
    first, second = path.read_text().splitlines(keepends=True)
    schema = SCHEMA + 1
    later = first.replace(f'"schema": {SCHEMA}', f'"schema": {schema}')
    path.write_text(later + second)
    with pytest.warns(RecordWarning, match=f"schema {schema} cannot be read"):
        assert len(RecordStore(path).prepare()) == 1
    assert path.read_text() == later + second
    path.write_text(later)
    with pytest.raises(RecordError, match=f"schema {schema} cannot be read"):
        RecordStore(path).prepare()


# ---------------------------------------------------------------------- marginals


@pytest.mark.parametrize(
    ("marginals", "message"),
    [
        (np.array([[0.5, 0.5], [np.nan, 1.0]]), r"marginals\[1\] = \[nan  1\.\] must be finite"),
        (np.array([[0.5, 0.5], [1.5, -0.5]]), r"marginals\[1\].* not negative"),
        (np.array([[0.5, 0.5], [0.5, 0.500001]]), r"marginals\[1\].* must sum to 1, not 1.000001"),
        (np.full((2, 3), 1 / 3), r"must be a \(2, 2\) array, got \(2, 3\)"),
        (np.full((2, 2), 0.5 + 0j), "must be numbers, got an array of complex128"),
        ([np.full(2, 0.5)] * 2, r"must be a \(2, 2\) array"),
    ],
)
def test_marginals_that_are_none_are_an_error_of_the_solver(marginals, message, monkeypatch):
    monkeypatch.setitem(REPORTS, "marginals", [marginals])
    solution = il.solve(GRAPH, Says("marginals"), temperature=1.0)
    assert solution.status == "error" and solution.energy == 0.6
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(solution.message)
    (record,) = il.compare(PROBLEM, Says("marginals"), temperature=1.0, isolate=False).records
    assert record.status == "error" and record.message == " ".join(solution.message.split())


def test_marginals_of_ragged_variables_are_judged_row_by_row(monkeypatch):
    rows = [np.array([0.5, 0.5]), np.array([0.2, 0.2, 0.6])]
    monkeypatch.setitem(REPORTS, "marginals", [rows, [rows[0], rows[0]], [rows[0], rows[1] * 1.1]])
    solutions = [il.solve(RAGGED, Says("marginals", case), temperature=1.0) for case in range(3)]
    assert [s.status for s in solutions] == ["limit", "error", "error"]
    assert "marginals[1] must have shape (3,), got (2,)" in solutions[1].message
    assert "marginals[1] = [0.22 0.22 0.66] must sum to 1" in solutions[2].message


# ---------------------------------------------------------------------- what the system refuses


def error_of(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert "Traceback" not in result.output and result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_write_errors_name_the_file_and_a_remedy(tmp_path, monkeypatch):
    command = ("compare", "ising(size=2)", "--solver", "icm", "--quiet", "--out")
    file = tmp_path / "file"
    file.write_text("")
    assert f"{file}" in error_of(*command, file / "out")
    il.compare(PROBLEM, "icm", store=tmp_path / "good" / "runs.jsonl")

    real = os.open

    def read_only(path, flags, *more, **named):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        output = error_of(*command, tmp_path / "good")
        assert "Read-only" in output and "good/runs.jsonl" in output
        # Readers are not blocked.
        assert len(RecordStore(tmp_path / "good" / "runs.jsonl").read()) == 1
    (tmp_path / "good" / "report").write_text("")
    assert str(tmp_path / "good" / "report") in error_of("report", tmp_path / "good")
