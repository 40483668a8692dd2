"""Claims of peers are checked by our graph, and the page shows the measured records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import peers
import pytest
from peers import MARKS, PAGE, ROWS, Row, judge, measure, publish, read, table, unmeasured

import inference_lab as il
from inference_lab.constraints import Constraints

PROBLEM = "potts-grid(height=3, width=3, frustration=0.5)"
ONE = il.FactorGraph.potts([[0.0, 1.0, 5.0]], np.empty((0, 2), dtype=int), [])


def fake(does: str, monkeypatch: pytest.MonkeyPatch, patience: float = 100.0) -> peers.Measured:
    """Measure brute force beside a fake package of the given behaviour."""
    monkeypatch.setitem(peers.PEERS, "fake", ("numpy", "numpy"))
    monkeypatch.setattr(peers, "ENOUGH", 0.0)
    return measure(Row("Fakes", PROBLEM, "brute-force", "fake", f"fake {does}"), 2, patience)


def test_processor_time_distinguishes_fast_from_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = (fake(does, monkeypatch) for does in ("works", "slow"))
    assert 0.03 <= fast["peer_cpu_s"] < 0.2
    assert 0.3 <= slow["peer_cpu_s"] < 1.0
    assert fast["runs"] == 2 and fast["peer_version"] == np.__version__ and not fast["note"]


def test_energies_are_evaluated_from_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claimed energies are not used; false claims and refuted proofs are remarked."""
    graph = peers.load(PROBLEM)
    true = float(graph.energy(graph.cardinalities - 1))
    one = fake("lies", monkeypatch)
    assert one["peer_energy"] == true and one["peer_proved"]
    assert one["ours_energy"] == il.solve(graph, "brute-force").energy < true - 1
    assert one["note"] == (
        f"fake claims {true - 1:.10g} for labels that cost {true:.10g}; "
        "the proof of fake is refuted"
    )


@pytest.mark.parametrize(
    ("does", "patience", "reason"),
    [
        ("dies", 100.0, "the worker process ended with exit code 3"),
        ("raises", 100.0, "MemoryError: too large"),
        ("hangs", 3.0, "no answer within 3 s"),
    ],
)
def test_a_failure_is_a_row(
    does: str, patience: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row holds the reason and the results of the other side."""
    one = fake(does, monkeypatch, patience)
    assert one["note"] == f"fake: {reason}"
    assert one["ours_cpu_s"] > 0 and np.isfinite(one["ours_energy"])
    assert np.isnan(one["peer_energy"]) and np.isnan(peers.ratios(one)).all()


def test_missing_package_or_instance_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "fake", ("nobody", "nobody_has_this"))
    row = ROWS[0]._replace(peer="fake")
    assert measure(row)["note"] == "not measured: nobody is not installed"
    monkeypatch.setenv("INFERENCE_LAB_DATA", "nowhere")
    monkeypatch.setitem(peers.PEERS, "fake", ("numpy", "numpy"))
    assert measure(row)["note"].startswith("not measured: map/toulbar2/celar6sub0.wcsp is missing")


def answer(labels: list[int] | None, cpu_s: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return the report of a process."""
    return {**asdict(peers.Answer(labels, model_s=1.0, **more)), "cpu_s": cpu_s}


def test_medians_and_ratios() -> None:
    """Report the median of times and energies; ratios with and without the peer's model."""
    row, one = ROWS[0], unmeasured(ROWS[0])
    answers = {
        "ours": [answer([a], t) for a, t in ((0, 9.0), (2, 4.0), (1, 6.0))],
        "peer": [answer([1], 2.0, bound=0.5)],
    }
    assert judge(row, ONE, one, answers) == []
    assert [one[f"ours_{name}"] for name in ("cpu_s", "low_s", "high_s")] == [6.0, 4.0, 9.0]
    assert (one["ours_energy"], one["peer_energy"], one["peer_bound"]) == (1.0, 1.0, 0.5)
    assert peers.ratios(one) == (2.0, 3.0)
    answers["peer"] = [answer([1], 2.0, bound=1.5)]
    assert judge(row, ONE, one, answers) == [f"the bound of {row.peer} is refuted"]


def test_marginals_are_compared() -> None:
    rows = {"ours": [0.25, 0.75], "peer": [0.5, 0.5]}
    answers = {name: [answer(None, marginals=row)] for name, row in rows.items()}
    notes = judge(ROWS[0], ONE, unmeasured(ROWS[0]), answers)
    assert notes == ["marginals differ by at most 2e-01"]


def test_clusterings_are_judged_on_points_that_no_pair_touches() -> None:
    truth = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    draw = Constraints([[0, 1]], [[0, 2]], n_points=8)
    pairs = peers.Pairs(np.zeros((8, 1)), truth, [draw, draw], [np.arange(4)] * 2)
    labels = [0, 1, 0, 1, 0, 0, 1, 1]
    assert peers.clustering(pairs, [labels, None]) == (2.0, 1.0)


def test_page_shows_the_measured_records(tmp_path: Path) -> None:
    """The tables equal the records beside the page: one line for each row, and no other."""
    text = PAGE.read_text(encoding="utf-8")
    block = text.partition(MARKS[0])[2].partition(MARKS[1])[0]
    measured = read(PAGE.with_suffix(".csv"))
    assert list(measured) == [row.name for row in ROWS]
    facts, _, tables = block.strip().partition("\n\n")
    assert tables == table(measured).strip()
    assert {row.peer for row in ROWS} == set(peers.PEERS)
    copy = tmp_path / "peers.md"
    copy.write_text(text.replace(block, "\n"), encoding="utf-8")
    publish(copy, f"{facts}\n\n{table(measured)}")
    assert copy.read_text(encoding="utf-8") == text


def test_sizes_out_of_bounds_are_worse_than_any_sum() -> None:
    """Sums of squares are taken around the means of the labels."""
    sized = peers.Sized(np.array([[0.0], [1.0], [5.0], [7.0]]), 2)
    assert sized.bounds == (1, 3)
    assert sized.energy([0, 0, 1, 1]) == 0.5 + 2.0
    assert sized.energy([0, 0, 0, 0]) == np.inf
