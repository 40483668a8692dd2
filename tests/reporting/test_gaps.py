"""Gaps of a problem order its solvers by energy, in every display."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import column, record, table

from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.report import report_document

#: The best solver has the loosest bound, and no bound has the sign of the energies.
RUNS = [
    record(solver="good", energy=9.0, lower_bound=-6.0),
    record(solver="poor", energy=17.0, lower_bound=-7.0),
    record(solver="fair", energy=12.0),
]
UNBOUNDED = [record(solver=name, energy=e) for name, e in (("good", 4.0), ("poor", 5.0))]

energies = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1e-12, -1e-12, 1e-3, math.inf])
bounds = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -math.inf])


@given(st.lists(st.tuples(energies, bounds), min_size=1, max_size=6))
def test_gaps_order_as_energies_do(runs):
    comparison = Comparison(
        [record(solver=f"s{i}", energy=e, lower_bound=b) for i, (e, b) in enumerate(runs)]
    )
    (problem,) = comparison.problems
    ordered = sorted(comparison.rows, key=lambda row: row.energy)
    for name in ("gap_percent", "over_best_percent"):
        gaps = [getattr(row, name) for row in ordered if math.isfinite(row.energy)]
        bounded = math.isfinite(problem.best_bound) or name == "over_best_percent"
        assert [gap is not None for gap in gaps] == [bounded] * len(gaps)
        if bounded:
            assert gaps == sorted(gaps)
    frame = comparison.frame.sort_values("energy", kind="stable")
    assert frame.gap_percent.equals(frame.gap_percent.sort_values(ignore_index=False))
    # Energies that differ by more than rounding have different gaps.
    for a, b in pairwise(ordered):
        apart = b.energy - a.energy > 1e-5 * max(1.0, abs(b.energy), abs(problem.best_bound))
        if apart and b.gap_percent is not None and a.gap_percent is not None:
            assert a.gap_percent < b.gap_percent


def test_one_denominator_a_problem_in_every_form():
    comparison = Comparison(RUNS)
    expected = {"good": 166.67, "poor": 255.56, "fair": 200.0}
    of_frame = comparison.frame.set_index("solver").gap_percent
    assert of_frame.round(2).to_dict() == expected
    of_json = {row["solver"]: row["gap_percent"] for row in comparison.as_dict()["rows"]}
    assert {solver: round(gap, 2) for solver, gap in of_json.items()} == expected
    summary = {line.split(" & ")[0]: line for line in comparison.to_latex(["gap %"]).splitlines()}
    lines = [line.lstrip("* ") for line in comparison.to_text().splitlines()]
    for solver, gap in expected.items():
        assert f"& {gap:.2f} " in summary[solver]
        assert any(line.startswith(f"{solver} ") and f" {gap:.2f} " in line for line in lines)
        assert f" {gap:.2f} " in comparison._repr_html_()
    cells = column(table(report_document(comparison, title="t"), "problem-p"), "gap %")
    assert {solver: cell.text for solver, cell in cells.items()} == {
        solver: f"{gap:.2f}" for solver, gap in expected.items()
    }


def test_without_a_bound_the_distance_to_the_best_energy_is_shown_and_named_so():
    comparison = Comparison(UNBOUNDED)
    assert np.isnan(comparison.frame.gap_percent).all()
    assert comparison.frame.over_best_percent.tolist() == [0.0, 25.0]
    for shown in (comparison.to_text(), comparison._repr_html_()):
        assert "over best %" in shown and "gap" not in shown and "25.00" in shown
    with pytest.raises(ValueError, match="there is no column 'gap %', but primal gap %"):
        comparison.to_latex(["gap %"])
    columns = table(report_document(comparison, title="t"), "problem-p").columns
    assert "gap %" not in [head.title for head in columns]


def test_problems_with_and_without_a_bound_share_a_table():
    comparison = Comparison([*RUNS, *(record("q", r.solver, r.energy) for r in RUNS)])
    text = comparison.to_text(200)
    assert "gap: (energy - best bound)" in text and "over best: (energy - best energy)" in text
    summary = comparison.to_latex(["gap %", "gap known"])
    for row_text in ("good & 166.67 & 1/2", "poor & 255.56 & 1/2", "fair & 200.00 & 1/2"):
        assert row_text in summary
