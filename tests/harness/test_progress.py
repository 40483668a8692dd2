"""Progress is shown interactively: below a notebook's cell by default."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import inference_lab as il
from inference_lab.harness.progress import in_notebook

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])


class Cell:
    """The output of a cell, which records everything displayed."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool) -> Cell:
        assert display_id
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


def notebook(monkeypatch: pytest.MonkeyPatch, shell: Any) -> Cell:
    cell = Cell()
    display = SimpleNamespace(HTML=str, display=cell.display)
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", display)  # type: ignore[arg-type]
    return cell


def test_a_notebook_shows_a_bar_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = notebook(monkeypatch, SimpleNamespace(kernel="a kernel"))
    problem = il.Problem("a <b>", GRAPH)
    il.compare(problem, ["icm", "brute-force"], seeds=2, isolate=False)
    first, *_, last = cell.shown
    assert '<progress value="0" max="4">' in first
    assert last.startswith('<progress value="4" max="4"></progress> 4 of 4')
    assert "<b>" not in "".join(cell.shown)
    assert capsys.readouterr() == ("", "")
    del cell.shown[:]
    il.compare(problem, "icm", isolate=False, progress=False)
    assert not cell.shown


@pytest.mark.parametrize("shell", [None, SimpleNamespace()], ids=["a script", "a terminal"])
def test_progress_outside_notebooks_is_shown_on_request_only(
    shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = notebook(monkeypatch, shell)
    assert not in_notebook()
    il.compare(GRAPH, "icm", isolate=False)
    assert not cell.shown and capsys.readouterr() == ("", "")
