"""A comparison as a picture of its own, in axes of matplotlib; pages have theirs in `charts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_lab.formatting import nearest
from inference_lab.plotting.plots import draw_trade_off, own_axes
from inference_lab.reporting.analysis import Analysis
from inference_lab.reporting.charts import Curves, gap_curves, profile_curves, solved_curves
from inference_lab.reporting.report import SHIFT, TARGETS
from inference_lab.reporting.results import Results
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
    analysis = Analysis(Results(comparison), TARGETS, (), SHIFT)
    curves = _CURVES[kind](analysis)
    drawn = own_axes(axes)
    for name, label in zip(curves.names, analysis.labels, strict=True):
        rows = curves.rows[curves.rows["solver"] == name]
        style = "steps-post" if curves.step else "default"
        # A dollar sign would begin a formula.
        called = comparison.short_name(label).replace("$", r"\$")
        drawn.plot(rows["x"], rows["y"], drawstyle=style, label=called)
    for made, side in ((curves.x, "x"), (curves.y, "y")):
        more = {"linthresh": made.floor} if made.scale == "symlog" else {}
        getattr(drawn, f"set_{side}scale")(made.scale, **more)
        getattr(drawn, f"set_{side}label")(made.title)
    drawn.legend(frameon=False, fontsize=8)
    return drawn


def _profile(analysis: Analysis) -> Curves:
    if not len(analysis.complete):
        raise ValueError("there is no performance profile: no problem was run by all solvers")
    solved = solved_seconds(analysis)[analysis.complete][:, analysis.order]
    return profile_curves(performance_ratios(solved), analysis.labels)


def _solved(analysis: Analysis) -> Curves:
    found = solved_over_time(analysis, solved_seconds(analysis))
    if found is None:
        raise ValueError("no problem is solved by any run: there are no shares over time")
    return solved_curves(*found, analysis.labels)


def _gaps(analysis: Analysis) -> Curves:
    if not has_histories(analysis):
        raise ValueError("the records hold no history of the runs: there are no gaps over time")
    moments, (middle, _, _) = gaps_over_time(analysis)
    return gap_curves(moments, middle, analysis.labels)


_CURVES = {"profile": _profile, "solved-over-time": _solved, "gap-over-time": _gaps}
