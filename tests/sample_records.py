"""Synthetic records of runs, and extracts of their reports, for tests."""

from __future__ import annotations

from inference_lab.contract import TracePoint
from inference_lab.results.records import Record

HERE = {"id": "here", "python": "3.11"}


def record(problem="p", solver="a", energy=1.0, **changes):
    """Return a record of a run that converged."""
    fields = {
        "problem_hash": f"hash of {problem}",
        "n_variables": 4,
        "n_edges": 3,
        "n_factors": 0,
        "n_labels": 2,
        "solver_name": solver.partition("(")[0],
        "settings": {"order": "random", "sweeps": None},
        "seed": 0,
        "time_limit": 10.0,
        "status": "converged",
        "seconds": 1.0,
        "environment": HERE,
        **changes,
    }
    return Record(problem=problem, solver=solver, energy=energy, **fields)


def traced(points, **changes):
    """Return a record with a trace of (seconds, energy, bound), with the end of the trace."""
    seconds, energy, bound = points[-1] if points else (0.0, float("inf"), -float("inf"))
    trace = tuple(TracePoint(t, e, e, b) for t, e, b in points)
    fields = {"seconds": seconds, "energy": energy, "lower_bound": bound, **changes}
    return record(trace=trace, **fields)


def table(document, name):
    """Return a table of a report."""
    return next(t for t in document.tables() if t.name == name)


def column(table, title, key=None):
    """Return the cells of a column by the text of the first column (or another one)."""
    titles = [c.title for c in table.columns]
    by = 0 if key is None else titles.index(key)
    return {row[by].text: row[titles.index(title)] for row in table.rows}


def rows(table, title):
    """Return the cells of each row by their titles, by the text of the row in a column."""
    titles = [c.title for c in table.columns]
    return {
        row[titles.index(title)].text: dict(zip(titles, row, strict=True)) for row in table.rows
    }


def picture(document, name):
    """Return a picture of a report."""
    return next(p for p in document.pictures() if p.name == name)
