"""Sections of reports on growth with the size of problems."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sample_records import record, rows

from inference_lab.reporting.document import Picture, Table
from inference_lab.reporting.report import report_document

POWERS = {"a": 1.0, "b": 2.0}


def record_of_size(n, data, solver, energy=1.0, **changes):
    """Return a record of a run whose seconds are a power of n."""
    seconds = 1e-6 * n ** POWERS[solver] * (2.0 if data == "wine" else 1.0)
    fields = {"n_variables": n, "seconds": seconds, "problem_info": {"data": data}, **changes}
    return record(f"made(data={data}, points={n})", solver, energy, **fields)


def section(runs, growing="points", apart=None):
    document = report_document(runs, title="", growing=growing, apart=apart, blocks="data")
    (size_section,) = [s for s in document.sections if s.title == "Size"]
    return size_section


def cells(runs, name, apart=None):
    """Return the cells of a table of the section by solver and title."""
    (sizes,) = (
        b for b in section(runs, apart=apart).blocks if isinstance(b, Table) and b.name == name
    )
    return rows(sizes, "solver")


RUNS = [
    record_of_size(n, data, solver)
    for n, data, solver in itertools.product((100, 1000, 10_000), ("iris", "wine"), POWERS)
]


def test_exponents_are_slopes_within_series():
    """The data sets differ in time, not in its growth."""
    shown = cells(RUNS, "seconds-by-size")
    for solver, power in POWERS.items():
        assert shown[solver]["exponent"].value == pytest.approx(power)
        assert shown[solver]["exponent"].text == f"{power:.2f} [{power:.2f}, {power:.2f}]"
    shift, seconds = 0.001, np.array([1e-4, 2e-4])
    expected = math.exp(np.log(seconds + shift).mean()) - shift
    assert shown["a"]["100"].value == pytest.approx(expected)


def test_runs_ended_by_a_limit_do_not_enter_the_exponent():
    """They are counted as truncated, and charged their time."""
    cut = record_of_size(10_000, "wine", "b", status="limit", seconds=10.0, time_limit=10.0)
    runs = [r for r in RUNS if (r.problem, r.solver) != (cut.problem, "b")] + [cut]
    shown = cells(runs, "seconds-by-size")
    assert shown["b"]["exponent"].value == pytest.approx(2.0)
    assert shown["b"]["10,000"].text.endswith("(50 % cut)")
    assert "cut" not in shown["b"]["1,000"].text + shown["a"]["10,000"].text
    (picture,) = [b for b in section(runs).blocks if isinstance(b, Picture)]
    points = picture.draw().data
    hollow = points[points["cut"]]
    assert hollow["x"].tolist() == [10_000.0]


def test_gaps_are_reported_by_size():
    worse = [record_of_size(1000, "iris", "b", 1.5), record_of_size(1000, "wine", "b")]
    runs = [r for r in RUNS if not (r.n_variables == 1000 and r.solver == "b")] + worse
    gaps = cells(runs, "gaps-by-size")
    assert gaps["a"]["1,000"].value == gaps["b"]["100"].value == 0.0
    assert gaps["b"]["1,000"].value == pytest.approx((50.0 + 0.0) / 2)
    gaps = cells(runs, "gaps-by-size", apart="data")
    assert gaps["b"]["1,000, data iris"].value == pytest.approx(50.0)
    assert gaps["b"]["1,000, data wine"].value == gaps["a"]["1,000, data iris"].value == 0.0


def test_problems_of_one_size_are_reported():
    runs = [r for r in RUNS if r.n_variables == 100]
    assert "do not differ in points" in section(runs).blocks[0].paragraphs[0]
    assert "do not differ in weight" in section(RUNS, "weight").blocks[0].paragraphs[0]
