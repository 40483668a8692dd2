"""A figure of a comparison in axes of matplotlib; the charts of pages are in `charts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_lab.formatting import nearest
from inference_lab.plotting.plots import draw_trade_off, own_axes
from inference_lab.reporting.charts import Curves, gap_curves, profile_curves, solved_curves
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.reporting.statistics import performance_ratios
from inference_lab.reporting.timing import (
    gaps_over_time,
    has_histories,
    solved_over_time,
    solved_seconds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference_lab.results.analysis import Findings

__all__ = ["draw_comparison"]


def draw_comparison(comparison: Findings, kind: str, axes: Axes | None) -> Axes:
    """Draw a comparison; see `Comparison.plot` in `inference_lab.reporting.comparison`."""
    if kind == "trade-off":
        bounded = any(s.gaps for s in comparison.solvers)
        reached = [
            (
                comparison.short_name(s.solver),
                s.median_seconds,
                s.mean_gap_percent if bounded else s.mean_over_best_percent,
            )
            for s in comparison.solvers
        ]
        return draw_trade_off(
            [(name, at, gap) for name, at, gap in reached if at is not None and gap is not None],
            axes,
            "mean gap, %" if bounded else "mean energy over best, %",
        )
    if kind not in _CURVES:
        kinds = ("trade-off", *_CURVES)
        raise ValueError(f"kind {kind!r} is none of {', '.join(kinds)}{nearest(kind, kinds)}")
    results = ResultArrays(comparison)
    curves = _CURVES[kind](results)
    drawn = own_axes(axes)
    for name, label in zip(curves.names, results.labels, strict=True):
        rows = curves.rows[curves.rows["solver"] == name]
        style = "steps-post" if curves.step else "default"
        # Dollar signs are escaped, because they would begin a formula.
        called = comparison.short_name(label).replace("$", r"\$")
        drawn.plot(rows["x"], rows["y"], drawstyle=style, label=called)
    for made, side in ((curves.x, "x"), (curves.y, "y")):
        more = {"linthresh": made.floor} if made.scale == "symlog" else {}
        getattr(drawn, f"set_{side}scale")(made.scale, **more)
        getattr(drawn, f"set_{side}label")(made.title)
    drawn.legend(frameon=False, fontsize=8)
    return drawn


def _profile(results: ResultArrays) -> Curves:
    if not len(results.complete):
        raise ValueError("there is no performance profile: no problem was run by all solvers")
    solved = solved_seconds(results)[results.complete][:, results.order]
    return profile_curves(performance_ratios(solved), results.labels)


def _solved(results: ResultArrays) -> Curves:
    found = solved_over_time(results, solved_seconds(results))
    if found is None:
        raise ValueError("no problem is solved by any run: there are no shares over time")
    return solved_curves(*found, results.labels)


def _gaps(results: ResultArrays) -> Curves:
    if not has_histories(results):
        raise ValueError("the records hold no history of the runs: there are no gaps over time")
    moments, (middle, _, _) = gaps_over_time(results)
    return gap_curves(moments, middle, results.labels)


_CURVES = {"profile": _profile, "solved-over-time": _solved, "gap-over-time": _gaps}
