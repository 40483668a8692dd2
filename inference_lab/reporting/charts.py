"""Charts of reports in Vega-Lite: one definition for the page and for papers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.reporting.printable import printable

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

#: Type of the Altair charts that all functions here return.
Chart = Any
FloatArray = npt.NDArray[np.float64]

#: Largest number of solvers drawn with bands: the colours of three and more mix to one.
BANDS = 2

#: Distinct in lightness as well (Okabe and Ito); the first one is the colour of the text.
COLOURS = ("currentColor", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_DASHES = ([1, 0], [6, 3], [8, 3, 1.5, 3], [1.5, 2.5])

#: Width and height of the plots in pixels.
_WIDTH, _HEIGHT = 420, 260

#: Text and lines inherit the text colour of the page, because pages may be dark.
_TEXT = {"labelColor": "currentColor", "titleColor": "currentColor"}
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "view": {"stroke": None},
    "title": {"color": "currentColor", "fontSize": 11},
    "axis": {
        **_TEXT,
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
        "titleFontWeight": "normal",
    },
    "header": _TEXT,
    "legend": {**_TEXT, "labelLimit": 300, "symbolSize": 400, "symbolOpacity": 1},
}


class Axis(NamedTuple):
    """One axis: title, scale, limits, and the value below which symlog is linear."""

    title: str
    scale: Literal["linear", "log", "symlog"] = "linear"
    limits: tuple[float, float] | None = None
    floor: float = 1.0


def _frame(names: Sequence[str], x: Any, y: Any, **more: Any) -> pd.DataFrame:
    """Return a row for each point of each curve; curves may share their x values."""
    import pandas as pd

    parts = []
    for number, name in enumerate(names):
        across = x if isinstance(x, np.ndarray) else x[number]
        columns = {key: values[number] for key, values in {"y": y, **more}.items()}
        parts.append(pd.DataFrame({"solver": printable(name), "x": across, **columns}))
    return pd.concat(parts, ignore_index=True)


def profile_chart(ratios: FloatArray, names: Sequence[str]) -> Chart:
    """Return a performance profile: the share of problems within a multiple of the fastest."""
    end = 1.15 * float(ratios[np.isfinite(ratios)].max(initial=2.0))
    across, shares = [], []
    for solver_ratios in ratios.T:
        # One step for all problems with the same ratio.
        steps, counts = np.unique(solver_ratios[np.isfinite(solver_ratios)], return_counts=True)
        share = np.cumsum(counts) / len(ratios)
        if not steps.size or steps[0] > 1.0:
            steps, share = np.append(1.0, steps), np.append(0.0, share)
        across.append(np.append(steps, end))
        shares.append(np.append(share, share[-1]))
    x = Axis("time as a multiple of the fastest solver's", "log", (1.0, end))
    y = Axis("share of problems solved", limits=(0, 1))
    return curves_chart(names, _frame(names, across, shares), x, y)


def gap_chart(
    times: FloatArray,
    gaps: FloatArray,
    names: Sequence[str],
    bands: tuple[FloatArray, FloatArray] | None = None,
) -> Chart:
    """Return the gap over time, with the quartiles if they are given."""
    # The scale is symlog, because gaps span decades and zero must have a place too.
    positive = gaps[np.isfinite(gaps) & (gaps > 0)]
    floor = 10.0 ** math.floor(math.log10(max(1e-3, float(positive.min(initial=1.0)))))
    more = {} if bands is None else {"low": bands[0], "high": bands[1]}
    x = Axis("seconds", "log", (float(times.min()), float(times.max())))
    y = Axis("primal gap, %", "symlog", floor=floor)
    return curves_chart(names, _frame(names, times, gaps, **more), x, y)


def size_chart(
    sizes: FloatArray,
    seconds: FloatArray,
    cut: npt.NDArray[np.bool_],
    names: Sequence[str],
    growing: str,
) -> Chart:
    """Return seconds over sizes, with a line of linear growth; hollow where a limit ended runs."""
    first_seconds = seconds[:, 0][seconds[:, 0] > 0]
    linear = (
        (float(np.exp(np.log(first_seconds).mean())) if first_seconds.size else np.nan)
        * sizes
        / sizes[0]
    )
    names = [*names, "linear growth"]
    never = np.zeros(len(sizes), dtype=np.bool_)
    rows = _frame(names, sizes, [*seconds, linear], cut=[*cut, never])
    return curves_chart(names, rows, Axis(growing, "log"), Axis("seconds", "log"), step=False)


# ---------------------------------------------------------------------- charts


def _looks(names: Sequence[str]) -> tuple[alt.Color, alt.StrokeDash]:
    """Return the colours and dashes of the solvers by index; 28 combinations are distinct."""
    import altair as alt

    shown = [printable(name) for name in names]
    legend = alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=2)
    colours, dashes = (
        alt.Scale(domain=shown, range=[look[n % len(look)] for n in range(len(names))])
        for look in (COLOURS, _DASHES)
    )
    return (
        alt.Color("solver:N", scale=colours, legend=legend),
        alt.StrokeDash("solver:N", scale=dashes, legend=legend),
    )


def _decades(low: float, high: float) -> list[float]:
    """Return the powers of ten within limits, empty if there are too few to label an axis."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [float(f"1e{power}") for power in powers] if len(powers) > 1 else []


def _axis(made: Axis, values: pd.Series[float]) -> dict[str, Any]:
    """Return title, scale and ticks of an encoded axis."""
    import altair as alt

    scale: dict[str, Any] = {"type": made.scale, "nice": False}
    positive = values[values > 0]
    ticks: list[float] = []
    if made.scale != "linear" and len(positive):
        low, high = made.limits or (positive.min(), positive.max())
        ticks = _decades(made.floor if made.scale == "symlog" else low, high)
    if made.scale == "symlog":
        highest = float(positive.max()) if len(positive) else made.floor
        scale |= {"constant": made.floor, "domain": [0, highest]}
        ticks = [0, *ticks]
    elif made.limits is not None:
        scale["domain"] = list(made.limits)
    elif made.scale == "linear":
        scale["zero"] = False
    axis = alt.Axis(labelExpr="format(datum.value, '~g')", values=ticks or alt.Undefined)
    return {"title": printable(made.title), "scale": alt.Scale(**scale), "axis": axis}


def curves_chart(
    names: Sequence[str], rows: pd.DataFrame, across: Axis, up: Axis, *, step: bool = True
) -> Chart:
    """Return the chart of curves, with a legend to select solvers and a tooltip for each point.

    Rows have solver, x and y, and optionally low and high, or cut.
    """
    import altair as alt

    rows = rows.replace([np.inf, -np.inf], np.nan).dropna(subset=["x", "y"])
    numbers = rows.select_dtypes("float").columns
    # Six digits suffice, because no axis resolves more.
    rows[numbers] = rows[numbers].map(lambda v: float(f"{v:.6g}"))
    if step:
        # Points inside a step are dropped, because they change nothing in the picture.
        others = [name for name in rows.columns if name != "x"]
        same = [(rows[others] == rows[others].shift(by)).all(axis=1) for by in (1, -1)]
        rows = rows[~(same[0] & same[1])]
    selection = alt.selection_point(fields=["solver"], bind="legend")
    near = alt.selection_point(
        fields=["solver", "x"], nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    on = alt.condition(selection, alt.value(1.0), alt.value(0.12))
    x = alt.X("x:Q", **_axis(across, rows["x"]))
    y = alt.Y("y:Q", **_axis(up, rows["y"]))
    colour, dash = _looks(names)
    bare = alt.Chart(rows, width=_WIDTH, height=_HEIGHT).encode(x=x, y=y, color=colour)
    drawn = bare.encode(strokeDash=dash)
    interpolate: Any = "step-after" if step else "linear"
    lines = drawn.mark_line(clip=True, interpolate=interpolate).encode(opacity=on)
    layers = [lines.add_params(selection)]
    if "low" in rows:
        faint = alt.condition(selection, alt.value(0.14), alt.value(0.02))
        band = bare.mark_area(clip=True, interpolate=interpolate)
        layers.insert(0, band.encode(y=alt.Y("low:Q"), y2="high:Q", opacity=faint))
    # Unwrapped here, because Vega-Lite does not unwrap the nearest point's datum in text fields.
    row = "(datum.datum || datum)"
    fields = {"solver": f"{row}.solver"} | {
        axis.title: f"format({row}.{key}, '~g')" for key, axis in (("x", across), ("y", up))
    }
    pairs = (f"{json.dumps(printable(name))}: {value}" for name, value in fields.items())
    tip = alt.TooltipValue({"expr": f"{{{', '.join(pairs)}}}"})
    points = (
        bare.mark_point(clip=True, filled=True, size=60)
        .properties(name=_HOVER)
        .encode(opacity=alt.condition(near, alt.value(1.0), alt.value(0.0)), tooltip=tip)
    )
    layers.append(points.add_params(near))
    if "cut" in rows:
        hollow, full = (bare.mark_point(filled=filled, size=35) for filled in (False, True))
        layers[1:1] = [
            hollow.encode(opacity=on).transform_filter(alt.datum.cut),
            full.encode(opacity=on).transform_filter(~alt.datum.cut),
        ]
    return alt.layer(*layers).configure(**_CONFIG)


def panels(
    rows: pd.DataFrame, names: Sequence[str], x: str, y: str, scale: Literal["linear", "log"]
) -> Chart:
    """Return means with intervals against categories, with one panel for each data set.

    Rows have solver, panel, x, y, low and high.
    """
    import altair as alt

    names = [printable(name) for name in names]
    rows = rows.assign(**{key: rows[key].map(printable) for key in ("solver", "panel", "x")})
    order = list(dict.fromkeys(rows["x"]))
    titles = list(dict.fromkeys(rows["panel"]))
    selection = alt.selection_point(fields=["solver"], bind="legend")
    on = alt.condition(selection, alt.value(1.0), alt.value(0.12))
    several = len(titles) > 1
    axis = alt.Axis(labelAngle=0 if max(map(len, order)) < 8 else -30)
    colour, dash = _looks(names)
    zero: dict[str, Any] = {"zero": False} if scale == "linear" else {}
    drawn = alt.Chart(width=220 if several else _WIDTH, height=180 if several else _HEIGHT).encode(
        x=alt.X("x:O", sort=order, title=printable(x), axis=axis),
        y=alt.Y("y:Q", title=printable(y), scale=alt.Scale(type=scale, **zero)),
        opacity=on,
        color=colour,
    )
    tips = [
        alt.Tooltip("solver:N", title="method"),
        alt.Tooltip("x:O", title=x),
        *(alt.Tooltip(f"{c}:Q", title=t, format=".4~g") for c, t in _INTERVAL.items()),
    ]
    faint = alt.condition(selection, alt.value(0.12), alt.value(0.02))
    layered = alt.layer(
        drawn.mark_area().encode(y=alt.Y("low:Q"), y2="high:Q", opacity=faint),
        drawn.mark_line().encode(strokeDash=dash).add_params(selection),
        drawn.mark_point(filled=True, size=30).encode(tooltip=tips),
        data=rows,
    )
    if several:
        layered = layered.facet(
            facet=alt.Facet("panel:N", sort=titles, title=None), columns=3
        ).resolve_scale(y="independent", x="independent")
        layered = layered.properties(usermeta={"panel": 300})
    return layered.configure(**_CONFIG)


#: Name of the layer of points that appear under the pointer.
_HOVER = "hover"

#: Titles of the columns of intervals.
_INTERVAL = {"y": "mean", "low": "from", "high": "to"}


def intervals_chart(
    names: Sequence[str], values: FloatArray, half: FloatArray | float, title: str
) -> Chart:
    """Return values with their intervals, given by half-widths, in the order given."""
    import altair as alt
    import pandas as pd

    rows = pd.DataFrame({"solver": [printable(name) for name in names], "y": values})
    rows = rows.assign(low=values - half, high=values + half).round(4)
    tips: list[Any] = ["solver:N", alt.Tooltip("y:Q", title=title, format=".2f")]
    drawn = alt.Chart(rows, width=_WIDTH, height=alt.Step(20)).encode(
        y=alt.Y("solver:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)), tooltip=tips
    )
    x = alt.X("low:Q", title=title, scale=alt.Scale(zero=False))
    return alt.layer(
        drawn.mark_rule(color="currentColor").encode(x=x, x2="high:Q"),
        drawn.mark_point(filled=True, color="currentColor", size=45).encode(x="y:Q"),
    ).configure(**_CONFIG)


def pairs_chart(points: pd.DataFrame, pairs: pd.DataFrame, axes: tuple[str, str]) -> Chart:
    """Return points by cluster, with lines for pairs: cannot-links dashed, violated pairs bold.

    Points have name, cluster, x and y; pairs have name, kind, violated, x, y, x2 and y2.
    """
    import altair as alt

    pairs = pairs.assign(name=pairs["name"].map(printable)).round(4)
    kinds = ["must-link", "cannot-link"]
    dots = _points(points, axes)
    lines = (
        alt.Chart(pairs)
        .mark_rule(color="currentColor")
        .encode(
            x=dots.encoding.x,
            y=dots.encoding.y,
            x2="x2:Q",
            y2="y2:Q",
            strokeDash=alt.StrokeDash(
                "kind:N", scale=alt.Scale(domain=kinds, range=[[1, 0], [4, 3]]), title="pairs"
            ),
            opacity=alt.condition("datum.violated", alt.value(1.0), alt.value(0.3)),
            strokeWidth=alt.condition("datum.violated", alt.value(2.0), alt.value(0.8)),
            tooltip=[alt.Tooltip("name:N", title="pair"), "kind:N", "violated:N"],
        )
    )
    layered = alt.layer(lines, dots).properties(width=_WIDTH, height=340)
    return layered.configure(**_CONFIG)


def points_chart(points: pd.DataFrame, axes: tuple[str, str]) -> Chart:
    """Return points by cluster; they have name, cluster, x and y."""
    return _points(points, axes).properties(width=_WIDTH, height=340).configure(**_CONFIG)


def _points(points: pd.DataFrame, axes: tuple[str, str]) -> Chart:
    """Return the layer of points by cluster."""
    import altair as alt

    points = points.assign(name=points["name"].map(printable)).round(4)
    clusters = sorted(points["cluster"].unique())
    colours, marks = _cluster_looks(len(clusters))
    return (
        alt.Chart(points)
        .mark_point(filled=True, size=35, opacity=0.85)
        .encode(
            x=alt.X("x:Q", title=printable(axes[0]), scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=printable(axes[1]), scale=alt.Scale(zero=False)),
            color=alt.Color("cluster:N", legend=alt.Legend(symbolSize=60)).scale(
                domain=clusters, range=colours
            ),
            shape=alt.Shape("cluster:N").scale(domain=clusters, range=marks),
            tooltip=["name:N", "cluster:N"],
        )
    )


def _cluster_looks(k: int) -> tuple[list[str], list[str]]:
    """Return the colours and shapes of clusters; 24 combinations are distinct."""
    looks, shapes = COLOURS[1:], ["circle", "square", "triangle-up", "diamond"]
    numbers = range(k)
    colours = [looks[at % len(looks)] for at in numbers]
    return colours, [shapes[at // len(looks) % len(shapes)] for at in numbers]


def quantiles_chart(rows: pd.DataFrame) -> Chart:
    """Return the spread of columns by cluster, with one panel for each column.

    Rows have panel, cluster, and the quantiles low, lower, median, upper and high.
    """
    import altair as alt

    rows = rows.assign(panel=rows["panel"].map(printable))
    titles = list(dict.fromkeys(rows["panel"]))
    clusters = sorted(rows["cluster"].unique())
    colour = alt.Color("cluster:N", legend=None).scale(
        domain=clusters, range=_cluster_looks(len(clusters))[0]
    )
    quantiles = ("low", "lower", "median", "upper", "high")
    tips: list[Any] = [
        "cluster:N",
        *(alt.Tooltip(f"{name}:Q", format=",.4~g") for name in quantiles),
    ]
    drawn = alt.Chart(width=220, height=alt.Step(22)).encode(
        y=alt.Y("cluster:N", sort=clusters, title="cluster"), color=colour, tooltip=tips
    )
    x = alt.X(
        "low:Q",
        title=None,
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=5, labelOverlap=True),
    )
    layered = alt.layer(
        drawn.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q"),
        drawn.mark_rule(strokeWidth=9, opacity=0.45).encode(x="lower:Q", x2="upper:Q"),
        drawn.mark_point(filled=True, size=60, opacity=1).encode(x="median:Q"),
        data=rows,
    )
    faceted = layered.facet(facet=alt.Facet("panel:N", sort=titles, title=None), columns=3)
    faceted = faceted.resolve_scale(x="independent").properties(usermeta={"panel": 300})
    return faceted.configure(**_CONFIG)


def shares_chart(rows: pd.DataFrame, title: str) -> Chart:
    """Return the shares of categories by cluster as bars that add up to one.

    Rows have cluster, category and share; categories are in their order.
    """
    import altair as alt

    rows = rows.assign(category=rows["category"].map(printable))
    categories = list(dict.fromkeys(rows["category"]))
    colours = [*COLOURS[1:], "#999999", "#F0E442"]
    colour = alt.Color("category:N", sort=categories, title=printable(title)).scale(
        domain=categories, range=[colours[at % len(colours)] for at in range(len(categories))]
    )
    return (
        alt.Chart(rows, width=_WIDTH, height=alt.Step(22))
        .mark_bar()
        .encode(
            y=alt.Y("cluster:N", title="cluster"),
            x=alt.X("share:Q", title="share of the rows", axis=alt.Axis(format="%")),
            color=colour,
            order=alt.Order("order:Q"),
            tooltip=["cluster:N", "category:N", alt.Tooltip("share:Q", format=".0%")],
        )
        .transform_calculate(order=f"indexof({json.dumps(categories)}, datum.category)")
        .configure(**_CONFIG)
    )


def heatmap(cells: pd.DataFrame, x: str, y: str, *, scale: Mapping[str, Any]) -> Chart:
    """Return a map of cells with text, on shades on which the text is legible.

    Cells have x, y, panel (in their order), text of one or two lines, and value (the shade).
    """
    import altair as alt

    places = ["x", "y", "panel"]
    cells = cells.assign(**{key: cells[key].map(printable) for key in places})
    across, along, titles = (list(dict.fromkeys(cells[key].sort_values())) for key in places)
    lines = [line for text in cells["text"] for line in text.split("\n")]
    breaks = max(text.count("\n") for text in cells["text"])
    wide, high = max(44, 12 + 6 * max(map(len, lines), default=0)), 24 + 12 * breaks
    angle = 0 if 6 * max(map(len, across)) < wide else -40
    axis: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelLimit": 300}
    drawn = alt.Chart(width=alt.Step(wide), height=alt.Step(high)).encode(
        x=alt.X(
            "x:O",
            sort=across,
            title=printable(x) or None,
            axis=alt.Axis(orient="bottom" if len(titles) > 1 else "top", labelAngle=angle, **axis),
        ),
        y=alt.Y("y:O", sort=along, title=printable(y) or None, axis=alt.Axis(**axis)),
    )
    layered = alt.layer(
        drawn.mark_rect(stroke="white", strokeWidth=1.5, invalid=None).encode(
            color=alt.Color("value:Q", scale=alt.Scale(**scale), legend=None),
            tooltip=[alt.Tooltip("text:N", title="cell"), "x:O", "y:O"],
        ),
        drawn.mark_text(color="black", lineBreak="\n", dy=-6 * breaks, fontSize=10).encode(
            text="text:N"
        ),
        data=cells,
    )
    if titles != [""]:
        layered = layered.facet(facet=alt.Facet("panel:N", sort=titles, title=None), columns=3)
        # The page chooses the number of columns by this width.
        layered = layered.properties(usermeta={"panel": 90 + wide * len(across)})
    return layered.configure(**_CONFIG)


class Drawing(NamedTuple):
    """A chart for a page, as a specification, and for papers, as SVG and PDF."""

    spec: dict[str, Any]
    svg: str
    pdf: bytes


def drawing(chart: Chart) -> Drawing:
    """Return a chart in all its formats; equal charts have equal specifications and SVG."""
    import vl_convert

    whole = chart.to_dict()
    # The hover layer is removed, because paper has no pointer.
    spec = dict(whole)
    spec["layer"] = [part for part in spec.get("layer", []) if part.get("name") != _HOVER]
    spec["params"] = [param for param in spec.get("params", []) if param.get("views") != [_HOVER]]
    svg = vl_convert.vegalite_to_svg({key: part for key, part in spec.items() if part != []})
    # Hidden paths and attributes at their defaults are a tenth of the file.
    svg = re.sub(
        r' (opacity="1"|pointer-events="none")|<path class="foreground"[^>]*"none"/>', "", svg
    )
    # Characters that are invalid in XML are replaced, because they would abort the process.
    svg = re.sub("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", svg)
    # Renumbered, because Vega numbers these over all charts of a process.
    numbers: dict[str, str] = {}
    svg = re.sub(
        r"\b(clip|gradient_)\d+", lambda m: numbers.setdefault(m[0], f"{m[1]}{len(numbers)}"), svg
    )
    return Drawing(whole, svg, vl_convert.svg_to_pdf(svg))


@cache
def javascript() -> str:
    """Return the Vega bundle that draws charts on a page, without a network."""
    import vl_convert

    # The type requires a program; without one, the bundle puts the whole of Vega on the window.
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    # A function scope keeps the names of the bundle from those of the page.
    return f"(() => {{\n{bundle}\n}})();"
