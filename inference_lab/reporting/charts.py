"""Curves of a figure as a chart of a page: a reader asks a line for its name and value.

A chart is read off a figure that is drawn anyway, so that page and paper show the same. It is
written as a small SVG, which is all there is without JavaScript, with its data beside it, which
``page.js`` draws for the width of the window, on linear or logarithmic axes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from inference_lab.reporting.style import DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["Chart", "chart_html", "chart_of"]

FloatArray = npt.NDArray[np.float64]

#: Of the SVG that is shown without JavaScript, in pixels: its size, and where the axes are.
_WIDTH, _HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 630, 8, 296

#: Of the height or width of the axes; less is not seen.
_RESOLUTION = 1e-4

#: The names that matplotlib gives to lines without one.
_NAMELESS = re.compile(r"_child\d+")


@dataclass(frozen=True)
class _Scale:
    """One axis: its name, limits, whether it is logarithmic, ticks, and where it turns linear."""

    label: str
    limits: tuple[float, float]
    log: bool
    ticks: tuple[float, ...]
    floor: float


@dataclass(frozen=True)
class _Part:
    """A line, or the outline of a band, of a curve; with its place in the axes, in [0, 1]."""

    curve: int
    x: FloatArray
    y: FloatArray
    places: FloatArray
    step: bool = False
    band: bool = False
    thin: bool = False


@dataclass(frozen=True)
class Chart:
    """The curves of a figure with one pair of axes; see `chart_of`."""

    names: tuple[str, ...]
    looks: tuple[tuple[str, str], ...]
    x: _Scale
    y: _Scale
    parts: tuple[_Part, ...]


def chart_of(figure: Figure) -> Chart | None:
    """Return the curves of a figure, if it shows nothing else.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn, so that its limits are final. Lines without a label, and bands, belong to the
        labelled line before them.

    Returns
    -------
    Chart or None
        None where there is more than one pair of axes, a line before the first label, points
        without a line, or anything but lines and bands.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> lines = figure.subplots().plot([1, 2], [3, 4], label="icm")
    >>> chart_of(figure).names
    ('icm',)
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.lines import Line2D

    if len(figure.axes) != 1:
        return None
    (axes,) = figure.axes
    if axes.patches or axes.images or axes.texts or axes.containers or not axes.axison:
        return None
    names: list[str] = []
    looks: list[tuple[str, str]] = []
    parts: list[_Part] = []
    for artist in axes.get_children():
        if isinstance(artist, Line2D):
            dashes = DASHES.get(str(artist.get_linestyle()))
            if not _NAMELESS.fullmatch(label := str(artist.get_label())):
                names.append(label)
                looks.append((_colour(artist), dashes or ""))
            if not names or dashes is None:
                return None
            parts.append(_line(axes, artist, len(names) - 1))
        elif isinstance(artist, PolyCollection):
            if not names:
                return None
            parts += _bands(axes, artist, len(names) - 1)
    if not names:
        return None
    x, y = _scale(axes.xaxis, axes.get_xlim()), _scale(axes.yaxis, axes.get_ylim())
    return Chart(tuple(names), tuple(looks), x, y, tuple(parts))


def _colour(line: Line2D) -> str:
    from matplotlib.colors import to_hex

    colour = to_hex(line.get_color())
    # Black is whatever text is, on paper of any colour.
    return "currentColor" if colour == "#000000" else colour


def _line(axes: Axes, line: Line2D, curve: int) -> _Part:
    x, y = (np.asarray(v, dtype=np.float64) for v in line.get_data())
    shown = np.isfinite(x) & np.isfinite(y)
    x, y = x[shown], y[shown]
    step = line.get_drawstyle() == "steps-post"
    thin = line.get_linewidth() < 1.0
    return _Part(curve, x, y, _places(axes, x, y), step=step, thin=thin)


def _bands(axes: Axes, collection: PolyCollection, curve: int) -> list[_Part]:
    corners = [np.asarray(path.vertices, dtype=np.float64) for path in collection.get_paths()]
    return [
        _Part(curve, x, y, _places(axes, x, y), band=True)
        for x, y in (outline[np.isfinite(outline).all(axis=1)].T for outline in corners)
    ]


def _places(axes: Axes, x: FloatArray, y: FloatArray) -> FloatArray:
    if not x.size:
        return np.zeros((0, 2))
    pixels = axes.transData.transform(np.column_stack([x, y]))
    places: FloatArray = axes.transAxes.inverted().transform(pixels)
    # What leaves the axes is cut off at their edge, far enough for its slope to remain.
    return np.clip(np.nan_to_num(places, nan=0.0), -9.0, 9.0)


def _scale(axis: Axis, limits: tuple[float, float]) -> _Scale:
    low, high = sorted(float(v) for v in limits)
    name = axis.get_scale()
    transform: Any = axis.get_transform()
    floor = float(transform.linthresh) if name == "symlog" else 0.0
    ticks = tuple(float(v) for v in axis.get_majorticklocs() if low <= v <= high)
    return _Scale(axis.get_label_text(), (low, high), name != "linear", ticks, floor)


def _rounded(values: FloatArray, scale: _Scale) -> list[float]:
    """Return values to as many digits as can be seen on either kind of axis."""
    step = _RESOLUTION * (scale.limits[1] - scale.limits[0])
    decimals = max(0, -math.floor(math.log10(step))) if step > 0 else 0
    return [
        # Small numbers have room on a logarithmic axis.
        float(f"{v:.4g}") if scale.log or abs(v) < 1e3 * step else round(v, min(decimals, 15))
        for v in values.tolist()
    ]


def _data(chart: Chart) -> str:
    """Return the chart as JSON; abscissae that several parts share are there once."""
    shared: dict[str, int] = {}
    abscissae: list[list[float]] = []
    parts = []
    for part in chart.parts:
        x = _rounded(part.x, chart.x)
        at = shared.setdefault(str(x), len(abscissae))
        if at == len(abscissae):
            abscissae.append(x)
        kind = "band" if part.band else "step" if part.step else "line"
        parts.append([part.curve, kind, at, _rounded(part.y, chart.y)])
    scales = [[s.label, *s.limits, int(s.log), s.floor] for s in (chart.x, chart.y)]
    return json.dumps([scales, abscissae, parts], separators=(",", ":"))


def _path(part: _Part) -> str:
    """Return the path of a part in the SVG that is shown without JavaScript."""
    x = _LEFT + part.places[:, 0] * (_RIGHT - _LEFT)
    y = _BOTTOM - part.places[:, 1] * (_BOTTOM - _TOP)
    points = [(f"{a:.0f}", f"{b:.1f}") for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    if not points:
        return ""
    drawn = [f"M{points[0][0]} {points[0][1]}"]
    for (_, before), (across, up) in pairwise(points):
        if not part.step:
            drawn.append(f"L{across} {up}")
        elif up != before:
            drawn.append(f"H{across}V{up}")
    if part.step:
        drawn.append(f"H{points[-1][0]}")
    return "".join(drawn) + "Z" * part.band


def _ticks(scale: _Scale, across: bool) -> list[str]:
    """Return the texts of an axis; where they are is found as for the curves."""
    low, high = scale.limits

    def raw(value: float) -> float:
        if not scale.log:
            return value
        if scale.floor and value < scale.floor:
            return math.log10(scale.floor) + 0.4 * (value / scale.floor - 1)
        return math.log10(value)

    texts = []
    for value in scale.ticks:
        share = (raw(value) - raw(low)) / ((raw(high) - raw(low)) or 1.0)
        place = (
            f'x="{_LEFT + share * (_RIGHT - _LEFT):.0f}" y="{_BOTTOM + 16}" text-anchor="middle"'
            if across
            else f'x="{_LEFT - 6}" y="{_BOTTOM - share * (_BOTTOM - _TOP) + 4:.0f}" '
            'text-anchor="end"'
        )
        texts.append(f"<text {place}>{value:.7g}</text>")
    middle = (_LEFT + _RIGHT) // 2, (_TOP + _BOTTOM) // 2
    place = (
        f'x="{middle[0]}" y="{_HEIGHT - 8}"'
        if across
        else f'x="14" y="{middle[1]}" transform="rotate(-90 14 {middle[1]})"'
    )
    return [*texts, f'<text class="axis" {place} text-anchor="middle">{escape(scale.label)}</text>']


def chart_html(chart: Chart, prefix: str, alt: str) -> Markup:
    """Return a chart for a page, with its legend and its data.

    Parameters
    ----------
    chart : Chart
    prefix : str
        Put before the identifiers in it, as for other pictures.
    alt : str
        What it shows, for those who do not see it.

    Returns
    -------
    Markup
        All texts are escaped; nothing in it runs by itself.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> lines = figure.subplots().plot([1, 2], [3, 4], label="<icm>")
    >>> chart = chart_html(chart_of(figure), "one_", "A line")
    >>> "&lt;icm&gt;" in chart, "<icm>" in chart
    (True, False)
    """
    paths = [
        f'<path class="{"band" if part.band else "thin" if part.thin else "line"}" '
        f'data-curve="{part.curve}" {_ink(chart.looks[part.curve], part.band)} d="{_path(part)}"/>'
        for part in chart.parts
    ]
    size = f'x="{_LEFT}" y="{_TOP}" width="{_RIGHT - _LEFT}" height="{_BOTTOM - _TOP}"'
    legend = [
        f'<li data-curve="{number}"><svg viewBox="0 0 30 8" aria-hidden="true">'
        f'<path class="line" {_ink(look)} d="M0 4H30"/></svg><span class="word">'
        f"{escape(label)}</span></li>"
        for number, (label, look) in enumerate(zip(chart.names, chart.looks, strict=True))
    ]
    return Markup(
        '<div class="chart"><div class="plot">'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(alt)}" '
        f'data-chart="{escape(_data(chart))}">'
        f'<clipPath id="{prefix}axes"><rect {size}/></clipPath><rect class="frame" {size}/>'
        f'<g class="ticks">{"".join(_ticks(chart.x, True) + _ticks(chart.y, False))}</g>'
        f'<g clip-path="url(#{prefix}axes)">{"".join(paths)}</g></svg></div>'
        f'<ul class="legend">{"".join(legend)}</ul></div>'
    )


def _ink(look: Sequence[str], band: bool = False) -> str:
    colour, dashes = look
    if band:
        return f'fill="{colour}"'
    return f'stroke="{colour}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
