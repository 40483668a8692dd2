"""A comparison as a picture of its own, in axes of matplotlib; reports have theirs in `figures`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from inference_lab.pictures.plots import draw_trade_off, own_axes
from inference_lab.reporting import figures
from inference_lab.reporting.analysis import Analysis
from inference_lab.reporting.report import SHIFT, TARGETS
from inference_lab.reporting.results import Results
from inference_lab.reporting.statistics import performance_profile, solved_within
from inference_lab.reporting.timing import gap_curves, has_histories, solved_seconds
from inference_lab.words import nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from inference_lab.results.analysis import Findings

__all__ = ["draw_comparison"]


def draw_comparison(comparison: Findings, kind: str, axes: Axes | None) -> Axes:
    """Draw a comparison; see `Comparison.plot` in `inference_lab.reporting.comparison`.

    Raises
    ------
    ValueError
        If there is no such kind of picture, or the records do not hold what it takes.
    """
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
    draw = _CURVES[kind](analysis)
    drawn = own_axes(axes)
    names = [figures.plain(comparison.short_name(label)) for label in analysis.labels]
    drawn.legend(draw(drawn), names, frameon=False, fontsize=8)
    return drawn


def _profile(analysis: Analysis) -> Callable[[Axes], list[Line2D]]:
    if not len(analysis.complete):
        raise ValueError("there is no performance profile: no problem was run by all solvers")
    profile = performance_profile(solved_seconds(analysis)[analysis.complete][:, analysis.order])
    return lambda axes: figures.draw_profile(axes, profile)


def _cactus(analysis: Analysis) -> Callable[[Axes], list[Line2D]]:
    times = solved_within(solved_seconds(analysis)[:, analysis.order])
    return lambda axes: figures.draw_cactus(axes, times)


def _gaps(analysis: Analysis) -> Callable[[Axes], list[Line2D]]:
    if not has_histories(analysis):
        raise ValueError("the records hold no history of the runs: there are no gaps over time")
    moments, (middle, _, _) = gap_curves(analysis)
    return lambda axes: figures.draw_gaps(axes, moments, middle)


#: What is checked and computed before there are axes to draw it into.
_CURVES = {"profile": _profile, "cactus": _cactus, "gap-over-time": _gaps}
