"""Specs within `user_code_refused` import no code, and records run none.

An audit hook of Python records imports, opened or listed files, and started programs meanwhile;
canaries would leave a mark.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sample_records import record

from inference_lab.data.folders import DATA_VARIABLE
from inference_lab.data.images import write_image
from inference_lab.registry.descriptions import missing
from inference_lab.registry.registry import as_solver, solver_registry
from inference_lab.registry.sources import as_problem, as_problems, problem_registry
from inference_lab.registry.user_code import user_code_refused
from inference_lab.results.json_lines import RecordError
from inference_lab.results.records import Record, RecordStore
from inference_lab.specs.grammar import MAX_LENGTH, SpecError, format_value

MODEL = "MARKOV 1 2 1 1 0 2 0.25 0.75\n"
CANARY = """
import os, pathlib
pathlib.Path(os.environ["CANARY_MARK"]).write_text("run")
from dataclasses import dataclass
from inference_lab.contract import Outcome, Solver

@dataclass(frozen=True)
class Mine(Solver):
    def run(self, graph, run):
        return Outcome()

def make(x=0):
    return Mine()
"""

# ---------------------------------------------------------------------- what is watched

_seen: list[tuple[str, str]] | None = None
_WATCHED = ("open", "import", "exec", "compile", "os.listdir", "os.scandir", "os.system")


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is not None and (event in _WATCHED or event.startswith(("subprocess", "socket"))):
        _seen.append((event, str(arguments[0])))


sys.addaudithook(_hook)  # an audit hook cannot be removed; it is idle outside of `watched`


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """Record the audit events inside."""
    global _seen
    events: list[tuple[str, str]] = []
    _seen = events
    try:
        yield events
    finally:
        _seen = None


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Make a working directory and, beside the data folder, secrets and canaries."""
    outside, data = tmp_path / "outside", tmp_path / "data"
    for folder in (outside, data / "map", data / "uci", data / "image"):
        folder.mkdir(parents=True)
    (outside / "secret.uai").write_text(MODEL)
    write_image(outside / "secret.png", np.zeros((4, 4), dtype=np.uint8))
    (outside / "secret.col").write_text("p edge 2 1\ne 1 2\n")
    (outside / "canary_of_tests.py").write_text(CANARY)
    (data / "map" / "good.uai").write_text(MODEL)
    (data / "inner.uai").symlink_to(data / "map" / "good.uai")
    for name in ("secret.uai", "secret.png", "secret.col"):
        (data / f"link_{name}").symlink_to(outside / name)
    (data / "linked").symlink_to(outside)
    (data / "loop.uai").symlink_to(data / "loop.uai")
    monkeypatch.chdir(outside)
    monkeypatch.setenv("CANARY_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("HOME", str(outside))
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield outside, data
    sys.modules.pop("canary_of_tests", None)


def refuse(make, message: str, outside: Path) -> None:
    """Expect a `SpecError`, without running, reading or listing anything outside."""
    with watched() as events, pytest.raises(SpecError, match=message) as caught:
        make()
    assert len(str(caught.value)) < 4000
    assert "canary_of_tests" not in sys.modules
    assert not (outside.parent / "mark").exists()
    touched = [
        (event, what)
        for event, what in events
        if "canary" in what
        or str(outside) in what
        or event.startswith(("os.system", "subp", "sock"))
        if event != "import" or "canary" in what
    ]
    assert touched == []


# ---------------------------------------------------------------------- code

CODE = [
    "canary_of_tests.py",
    "./canary_of_tests.py:Mine",
    "canary_of_tests.py:make(x=1)",
    "OUTSIDE/canary_of_tests.py",
    "../outside/canary_of_tests.py:Mine",
    "canary_of_tests:Mine",
    "canary_of_tests:make(x=1)",
    "canary_of_tests:Mine[0]",
    "os:system(command=id)",
    "not_there.py",
    "not.there:at_all",
]


@pytest.mark.parametrize("text", CODE)
def test_code_from_outside_is_refused(text, folders):
    outside, data = folders
    text = text.replace("OUTSIDE", str(outside))
    message = "is code from outside the package, and such code is refused here"
    for make in (
        lambda: as_solver(text),
        lambda: solver_registry.make(text),
        lambda: problem_registry.make(text),
        lambda: as_problem(text, data),
        lambda: as_problems(["ising(size=2)", text], data),
        lambda: as_solver(f"persistency(then={format_value(text)})"),
    ):
        with user_code_refused():
            refuse(make, message, outside)


def test_canary_leaves_its_mark_outside_the_block(folders):
    """A refusal is not cached: outside of the block the code runs."""
    outside, _ = folders
    for text in ("canary_of_tests.py", "canary_of_tests:make(x=1)"):
        with user_code_refused(), pytest.raises(SpecError, match="is refused here"):
            as_solver(text)
        assert not (outside.parent / "mark").exists()
        assert type(as_solver(text)).__name__ == "Mine"
        assert (outside.parent / "mark").read_text() == "run"
        (outside.parent / "mark").unlink()


def test_code_is_refused_however_deep_it_is_nested(folders):
    outside, _ = folders
    text = "canary_of_tests:Mine"
    depth = 0
    while len(longer := f"persistency(then={format_value(text)})") <= MAX_LENGTH:
        text, depth = longer, depth + 1
        with user_code_refused():
            refuse(functools.partial(as_solver, text), "is refused here", outside)
    assert depth > 5
    refuse(lambda: as_solver(longer), f"at most {MAX_LENGTH} are read", outside)


def test_names_of_the_package_are_not_refused():
    names = [n for n in solver_registry.names() if missing(solver_registry, n) is None]
    expected = [as_solver(name) for name in names]
    with user_code_refused():
        assert [as_solver(name) for name in names] == expected
        assert as_problem("ising(size=2)").graph.n_variables == 4
        assert as_solver("persistency(then=icm)").spec == "persistency(then=icm)"


# ---------------------------------------------------------------------- size

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "a" * MEGABYTE,
        "(" * MEGABYTE,
        '"' * MEGABYTE,
        "file(path=" + "a" * MEGABYTE + ")",
        "icm(" + "x=1," * (MEGABYTE // 4) + ")",
        "persistency(then=" * (MEGABYTE // 17),
        "a/" * (MEGABYTE // 2),
        "\0" * MEGABYTE,
        "mine.py:" + "a." * (MEGABYTE // 2),
    ],
    ids=lambda text: text[:10],
)
def test_long_specs_are_refused_briefly(text, folders):
    outside, data = folders
    message = f"has {len(text)} characters; at most {MAX_LENGTH} are read"
    refuse(lambda: as_solver(text), message, outside)
    refuse(lambda: as_problem(text, data), message, outside)


def test_a_spec_longer_than_names_of_files_is_a_spec():
    """It is not tried as a path, which the system would reject as too long."""
    text = "ising(size=2" + " " * 5000 + ")"
    assert as_problem(text).graph.n_variables == 4


# ---------------------------------------------------------------------- records

HOSTILE = [
    "canary_of_tests:Mine",
    "canary_of_tests.py",
    "__import__('canary_of_tests')",
    "../outside/secret.uai",
    "!!python/object/apply:os.system [id]",
    {"py/object": "canary_of_tests.Mine", "py/reduce": [{"py/function": "os.system"}, ["id"]]},
    {"__class__": "canary_of_tests.Mine", "$ref": "file:///etc/passwd"},
    "cposix\nsystem\n(S'id'\ntR.",
    "<script>alert(1)</script>",
    "{0.__class__}",
    "\ud800",
]


@pytest.mark.parametrize(
    "hostile", HOSTILE, ids=lambda value: str(value)[:20].encode("ascii", "replace").decode()
)
def test_records_are_data(hostile, folders):
    """Reading them opens their file only, and they round-trip."""
    outside, data = folders
    text = hostile if isinstance(hostile, str) else json.dumps(hostile)
    texts = ("problem", "problem_hash", "solver", "solver_name", "status", "message", "traceback")
    fields = {
        **dict.fromkeys(texts, text),
        **dict.fromkeys(("n_variables", "n_edges", "n_factors", "n_labels"), 1),
        "settings": {text: hostile},
        "problem_info": {"x": [hostile]},
        "environment": {"id": text},
    }
    line = json.dumps({"schema": 3, **fields})
    path = data / "runs.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    Record.from_json(record("p", "icm", 1.0).to_json())  # annotations are evaluated at once
    with watched() as events:
        try:
            read = Record.from_json(line)
            (stored,) = RecordStore(path)
        except RecordError:
            read = stored = None
    opened = {what for event, what in events if event == "open"}
    assert opened <= {str(path)}
    assert not [e for e in events if e[0] not in ("open",) and "canary" in e[1]]
    assert not [e for e in events if e[0].startswith(("os.system", "subp", "sock", "exec", "comp"))]
    assert not (outside.parent / "mark").exists() and "canary_of_tests" not in sys.modules
    if read is not None:
        assert (read.problem, read.solver) == (text, text)
        assert stored.settings == read.settings == {text: hostile}
