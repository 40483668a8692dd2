"""Progress is shown on request."""

from __future__ import annotations

import pytest

import inference_lab as il

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])


def test_progress_is_a_line_a_run_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    il.compare(GRAPH, "icm", isolate=False)
    assert capsys.readouterr() == ("", "")
    il.compare(il.Problem("pair", GRAPH), "icm", seeds=2, isolate=False, progress=True)
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if "getting" not in line]
    assert out == "" and [line[:11] for line in lines] == ["[1/2] pair ", "[2/2] pair "]
