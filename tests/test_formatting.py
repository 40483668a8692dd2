"""Warnings name the line of the user's code, however deep inside the package they begin."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_records import record

import inference_lab as il
from inference_lab.constraints import SampleIds
from inference_lab.formatting import warn
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import RecordStore

_DEEP = "def deep(depth):\n    return deep(depth - 1) if depth else warn('deep')"
_USER = "def use(function, *arguments):\n    return function(*arguments)"


def executed(text: str, name: str, path: str, **names: Any) -> dict[str, Any]:
    """Return the names of a module that is executed as if it came from a file."""
    variables = {"__name__": name, **names}
    exec(compile(text, path, "exec"), variables)
    return variables


def place(call: Callable[[], object], category: type[Warning] = UserWarning) -> tuple[str, int]:
    """Return file and line of the only warning of a category."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = [message for message in caught if message.category is category]
    return warning.filename, warning.lineno


def line_of(function: Callable[[], object]) -> tuple[str, int]:
    """Return file and line of a function of one line."""
    return __file__, function.__code__.co_firstlineno


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("inside", ["inference_lab", "inference_lab.solvers.other"])
def test_depth_inside_the_package_does_not_count(inside: str, depth: int) -> None:
    deep = executed(_DEEP, inside, "deep.py", warn=warn)["deep"]
    call = lambda: deep(depth)  # noqa: E731
    assert place(call) == line_of(call)
    # The innermost frame outside counts: neither one that calls it, nor code of the package there.
    use = executed(_USER, "user", "user/script.py")["use"]
    around = executed(_USER, "inference_lab.around", "around.py")["use"]
    assert place(lambda: around(use, deep, depth)) == ("user/script.py", 2)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("inference_lab_tools", "user/inference_lab_tools.py"),
        ("inference_lab_user_1", "user/inference_lab/solver.py"),
        ("tools.inference_lab.mine", "user/tools/inference_lab/mine.py"),
        ("__main__", "user/inference_lab/study.py"),
    ],
)
def test_names_and_folders_like_the_package_are_outside(name: str, path: str) -> None:
    deep = executed(_DEEP, "inference_lab.deep", "deep.py", warn=warn)["deep"]
    use = executed(_USER, name, path)["use"]
    assert place(lambda: use(deep, 3)) == (path, 2)


def test_a_program_without_frames_outside_gets_its_warning() -> None:
    with pytest.warns(UserWarning, match="deep"):
        executed(f"{_DEEP}\ndeep(3)", "inference_lab.deep", "deep.py", warn=warn)


def test_a_line_is_warned_of_once() -> None:
    """The default filter counts by the lines of the caller, as for `warnings.warn`."""
    deep = executed(_DEEP, "inference_lab.deep", "deep.py", warn=warn)["deep"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for depth in (0, 1, 2):
            deep(depth)
        deep(0)
    assert len({message.lineno for message in caught}) == len(caught) == 2


def test_warnings_of_the_core_and_of_stores_name_the_line(tmp_path: Path) -> None:
    graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    store = RecordStore(tmp_path / "runs.jsonl")
    store.append(record())
    whole = store.path.read_bytes()
    store.path.write_bytes(whole + whole[:-9])
    cases: list[tuple[Callable[[], object], type[Warning]]] = [
        (lambda: il.solve(graph, "icm", temperature=1.0), il.UnsolvedWarning),
        (lambda: store.read(), RecordWarning),
        (lambda: store.prepare(), RecordWarning),
        (lambda: store.append(record()), RecordWarning),
        (lambda: SampleIds(ids=["a", "b"]), FutureWarning),  # type: ignore[call-arg]
    ]
    for call, category in cases:
        assert place(call, category) == line_of(call)
