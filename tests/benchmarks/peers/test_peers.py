"""The harness judges what peers do as it should, and the page says what was measured."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import peer_runs
import peer_sides
import pytest
from peer_installs import lacking
from peer_rows import PEERS, ROWS, Peer, Row
from peer_runs import Measured, Side, clustering, judge, measure
from peer_table import MARKS, from_csv, publish, table, to_csv
from places import ROOT

import inference_lab as il
from inference_lab.constraints import Constraints

PROBLEM = "potts-grid(height=3, width=3, frustration=0.5)"
PAGE = ROOT / "docs" / "peers.md"


def fake(does: str, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Measure ICM beside a package that does as it is told."""
    monkeypatch.setitem(PEERS, "fake", Peer(("fake",), "fake", "numpy"))
    monkeypatch.setattr(peer_runs, "ENOUGH", 0.0)
    row = Row("Fakes", PROBLEM, "brute-force", "fake", "fake", settings={"does": does})
    here = Path(sys.executable)
    return measure(row, {"ours": here, "peer": here}, 2)


def test_processor_time_tells_the_fast_from_the_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = (fake(does, monkeypatch) for does in ("works", "slow"))
    assert 0.03 <= fast.peer.cpu_s < 0.2
    assert 0.3 <= slow.peer.cpu_s < 1.0
    assert fast.strict == fast.ours.cpu_s / fast.peer.cpu_s
    assert slow.strict == slow.ours.cpu_s / slow.peer.cpu_s
    assert fast.runs == 2 and fast.peer.version == np.__version__ and not fast.note


def test_energies_are_those_of_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that a package claims; that is remarked, as is a proof that ours refutes."""
    graph = peer_sides.load(PROBLEM)
    true = float(graph.energy(graph.cardinalities - 1))
    one = fake("lies", monkeypatch)
    assert one.peer.energy == true and one.peer.proved
    assert one.ours.energy == il.solve(graph, "brute-force").energy < true - 1
    assert one.note == (
        f"fake claims {true - 1:.10g} for labels that cost {true:.10g}; "
        "the proof of fake is refuted"
    )


def test_a_failure_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, and what the other side did."""
    one = fake("dies", monkeypatch)
    assert one.note == "fake: exit code 3"
    assert one.ours.cpu_s > 0 and math.isfinite(one.ours.energy)
    assert math.isnan(one.ratio) and math.isnan(one.peer.energy)


@pytest.mark.parametrize(
    ("does", "patience", "reason"),
    [
        ("raises", 100.0, "exit code 1: MemoryError: too large"),
        ("hangs", 1.0, "no answer within 1 s"),
    ],
)
def test_who_does_not_answer_is_not_waited_for(does: str, patience: float, reason: str) -> None:
    row = Row("Fakes", PROBLEM, "icm", "pgmpy", "fake", settings={"does": does})
    process = peer_runs.Process(Path(sys.executable), peer_runs.task(row, "peer"), patience)
    with pytest.raises(peer_runs.Failure, match=reason):
        process.answer()
    process.close()


def test_a_problem_whose_data_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFERENCE_LAB_DATA", raising=False)
    row = next(row for row in ROWS if row.problem.startswith("instances("))
    one = measure(row, {})
    assert one.runs == 0 and one.note.startswith("not measured: instance 'toulbar2/celar6sub0' ")


def answer(labels: list[int] | None, cpu_s: float, **more: object) -> dict[str, object]:
    """Return what a process tells."""
    return {**peer_sides.asdict(peer_sides.Answer(labels, **more)), "cpu_s": cpu_s, "model_s": 1.0}


def test_medians_and_ratios() -> None:
    """The middle one of times and energies; ratios with and without the peer's model."""
    graph = il.FactorGraph.potts([[0.0, 1.0, 5.0]], np.empty((0, 2), dtype=int), [])
    row, one = ROWS[0], Measured("")
    given = {
        "ours": [answer([a], t) for a, t in ((0, 9.0), (2, 4.0), (1, 6.0))],
        "peer": [answer([1], 2.0, bound=0.5)],
    }
    assert judge(row, graph, one, given) == []
    assert (one.ours.cpu_s, one.ours.low_s, one.ours.high_s) == (6.0, 4.0, 9.0)
    assert (one.ours.energy, one.peer.energy, one.peer.bound) == (1.0, 1.0, 0.5)
    assert (one.ratio, one.strict) == (2.0, 3.0)
    given["peer"] = [answer([1], 2.0, bound=1.5)]
    assert judge(row, graph, one, given) == [f"the bound of {row.peer} is refuted"]


def test_marginals_are_compared() -> None:
    graph = il.FactorGraph.potts([[0.0, 1.0]], np.empty((0, 2), dtype=int), [])
    given = {
        "ours": [answer(None, 1.0, marginals=[0.25, 0.75])],
        "peer": [answer(None, 1.0, marginals=[0.5, 0.5])],
    }
    notes = judge(ROWS[0], graph, Measured(""), given)
    assert notes == ["marginals differ by at most 2e-01"]


def test_clusterings_are_judged_on_points_that_no_pair_touches() -> None:
    truth = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    draw = Constraints([[0, 1]], [[0, 2]], n_points=8)
    pairs = peer_sides.Pairs(np.zeros((8, 1)), truth, [draw, draw], [np.arange(4)] * 2)
    wrong_where_known = [0, 1, 0, 1, 0, 0, 1, 1]
    assert clustering(pairs, [wrong_where_known, None]) == (2.0, 1.0)


def test_a_package_that_is_not_there() -> None:
    here = Path(sys.executable)
    assert lacking(here, Peer(("numpy",), "numpy", "numpy"), install=False) == ""
    why = lacking(here, Peer(("nobody",), "nobody_has_this", "nobody"), install=False)
    assert why == "nobody is not installed"


def test_rows_have_names_of_their_own_and_calls() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.call for row in ROWS} <= set(peer_sides.CALLS)
    assert {row.peer for row in ROWS} == set(PEERS)


def test_records_are_read_as_they_were_written() -> None:
    one = Measured("a | b", 3, Side(1.5, proved=True), Side(2.0, energy=-1.0, version="1"), "x,y")
    (again,) = from_csv(to_csv([one]))
    assert to_csv([again]) == to_csv([one]) and again.ours.proved and not again.peer.proved


def test_the_page_says_what_was_measured(tmp_path: Path) -> None:
    """Its tables are those of the records beside it: one line for each row, and no other."""
    text = PAGE.read_text(encoding="utf-8")
    block = text.partition(MARKS[0])[2].partition(MARKS[1])[0]
    records = PAGE.with_suffix(".csv").read_text(encoding="utf-8")
    measured = from_csv(records)
    assert [one.row for one in measured] == [row.name for row in ROWS]
    facts, _, tables = block.strip().partition("\n\n")
    assert tables == table(ROWS, measured).strip()
    assert not [row.group for row in ROWS if f"## {row.group}\n" in text.replace(block, "")]
    (tmp_path / "peers.md").write_text(text.replace(block, "\n"), encoding="utf-8")
    publish(tmp_path, f"{facts}\n\n{table(ROWS, measured)}", records)
    assert (tmp_path / "peers.md").read_text(encoding="utf-8") == text
