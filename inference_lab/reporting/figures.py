"""Figures of comparisons, readable in black and white.

Each function returns a new `matplotlib.figure.Figure` of a size that fits a paper, with the legend
beside the axes; saved under `inference_lab.reporting.style.RC` and without a date, the same data
make the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference_lab.reporting.statistics import Profile, RankTest
from inference_lab.reporting.style import dress, line_style
from inference_lab.reporting.traces import Steps
from inference_lab.words import counted, printable, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "BANDS",
    "MAP_NAME",
    "best_map",
    "cactus",
    "convergence",
    "critical_difference",
    "draw_gaps",
    "draw_profile",
    "gap_map",
    "gap_over_time",
    "is_extreme",
    "performance_profile",
    "solved_over_time",
]

FloatArray = npt.NDArray[np.float64]

#: Characters that a cell of a map has room for.
MAP_NAME = 24

#: With more solvers than this, bands hide each other and are left out.
BANDS = 6

#: Inches: width of the axes with their labels, of the legend, and height of one of its lines.
_AXES_WIDTH = 4.5
_LEGEND_WIDTH = 2.5
_LEGEND_LINE = 0.165
_HEIGHT = 3.0

#: Characters of a title; longer ones would not fit above the axes.
_TITLE_LENGTH = 60

#: Energies and bounds of a larger size are not drawn: differences of them overflow.
_LARGEST = 1e100

#: A curve has about this many markers, however many points it has.
_MARKS = 8


def _panel(labels: Sequence[str], above: float = 0.28) -> tuple[Figure, Axes]:
    """Return a figure with axes on the left, room for the legend on the right, and inches above."""
    from matplotlib.figure import Figure

    height = max(_HEIGHT, _LEGEND_LINE * len(labels) + 0.5)
    width = _AXES_WIDTH + _LEGEND_WIDTH
    figure = Figure(figsize=(width, height))
    left, bottom = 0.68 / width, 0.48 / height
    axes = figure.add_axes(
        (left, bottom, (_AXES_WIDTH - 0.05) / width - left, 1.0 - above / height - bottom)
    )
    dress(axes)
    return figure, axes


def _legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    # A page has room for the whole name, see `chart_of`.
    for handle, label in zip(handles, labels, strict=True):
        handle.set_label(printable(label))
    figure.legend(
        handles,
        _names(labels),
        loc="upper left",
        bbox_to_anchor=((_AXES_WIDTH + 0.02) / width, 1.0 - 0.2 / height),
        borderaxespad=0.0,
        frameon=False,
        fontsize=7,
        handlelength=2.6,
        labelspacing=0.35,
    )


def _marks(points: int, number: int) -> tuple[int, int]:
    """Return where the markers of a curve are, shifted so that curves on top of others show."""
    every = max(1, math.ceil(points / _MARKS))
    return (number % every, every)


def _stairs(axes: Axes, x: FloatArray, y: FloatArray, number: int) -> Line2D:
    marks = _marks(len(x), number)
    (line,) = axes.plot(x, y, drawstyle="steps-post", markevery=marks, **line_style(number))
    return line


@cache
def _glyphs() -> frozenset[int]:
    """Return the characters that the font of the figures has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def plain(text: str) -> str:
    r"""Return a text that a figure shows as it is: no formulas, one line, glyphs that there are.

    Examples
    --------
    >>> plain("costs $x$")
    'costs \\$x\\$'
    """
    shown = "".join(c if ord(c) in _glyphs() else "\ufffd" for c in printable(text))
    return shown.replace("$", r"\$")


def _title(text: str) -> str:
    (short,) = _names([text], _TITLE_LENGTH)
    return short


def _names(labels: Sequence[str], width: int = 34) -> list[str]:
    return [plain(label) for label in short_labels(labels, width)]


def _check_labels(labels: Sequence[str], n: int) -> None:
    if len(labels) != n:
        raise ValueError(f"labels must name {n} solvers, got {len(labels)}")


def performance_profile(profile: Profile, labels: Sequence[str], title: str = "") -> Figure:
    """Draw a performance profile: the share of instances solved within a multiple of the fastest.

    Parameters
    ----------
    profile : Profile
    labels : sequence of str
        Names of the solvers.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    _check_labels(labels, len(profile.ratios))
    figure, axes = _panel(labels)
    handles = draw_profile(axes, profile)
    axes.set_title(_title(title), fontsize=9)
    _legend(figure, handles, labels)
    return figure


def draw_profile(axes: Axes, profile: Profile) -> list[Line2D]:
    """Draw the curves of `performance_profile` into axes; return one line a solver."""
    end = 1.15 * max(profile.largest, 2.0)
    handles = []
    for number, ratios in enumerate(profile.ratios):
        shares = np.arange(1, len(ratios) + 1) / profile.n
        # Ratios that several instances share make one step.
        last = np.append(ratios[1:] != ratios[:-1], True)[: len(ratios)]
        x, y = ratios[last], shares[last]
        if not len(x) or x[0] > 1.0:
            x, y = np.concatenate([[1.0], x]), np.concatenate([[0.0], y])
        handles.append(_stairs(axes, np.append(x, end), np.append(y, y[-1]), number))
    axes.set_xscale("log")
    axes.set_xlim(0.97, end)
    axes.set_ylim(-0.02, 1.03)
    axes.set_xlabel("time as a multiple of the fastest solver's")
    axes.set_ylabel("share of problems solved")
    return handles


def cactus(times: Sequence[npt.ArrayLike], labels: Sequence[str], title: str = "") -> Figure:
    """Draw a cactus plot: the time within which so many instances are solved, each by itself.

    Parameters
    ----------
    times : sequence of array_like
        For each solver the ascending times of the instances it solved; see
        `inference_lab.reporting.statistics.solved_within`.
    labels : sequence of str
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    _check_labels(labels, len(times))
    figure, axes = _panel(labels)
    handles = draw_cactus(axes, times)
    axes.set_title(_title(title), fontsize=9)
    _legend(figure, handles, labels)
    return figure


def draw_cactus(axes: Axes, times: Sequence[npt.ArrayLike]) -> list[Line2D]:
    """Draw the curves of `cactus` into axes; return one line a solver."""
    from matplotlib.ticker import MaxNLocator

    handles: list[Line2D] = []
    for number, solved in enumerate(times):
        seconds = np.asarray(solved, dtype=np.float64)
        handles += axes.plot(
            np.arange(1, len(seconds) + 1),
            np.maximum(seconds, 1e-6),
            markevery=_marks(len(seconds), number),
            **line_style(number),
        )
    most = max((np.size(solved) for solved in times), default=0)
    axes.set_yscale("log")
    axes.set_xlim(0, max(1, most) * 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("problems solved")
    axes.set_ylabel("seconds")
    return handles


def solved_over_time(
    times: npt.ArrayLike,
    shares: npt.ArrayLike,
    labels: Sequence[str],
    *,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    title: str = "",
) -> Figure:
    """Draw which share of the instances was solved by when, with bands for a few solvers.

    Parameters
    ----------
    times : (t,) array_like
        Seconds, above 0.
    shares, low, high : (k, t) array_like
        In [0, 1]; bands are drawn for up to `BANDS` solvers, where they are known.
    labels : sequence of str
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    x, curves, lower, upper = (
        np.asarray(values, dtype=np.float64) for values in (times, shares, low, high)
    )
    _check_labels(labels, len(curves))
    figure, axes = _panel(labels)
    handles = []
    for number, curve in enumerate(curves):
        handles.append(_stairs(axes, x, curve, number))
        if len(curves) <= BANDS and not np.isnan(lower[number]).any():
            colour = line_style(number)["color"]
            band: dict[str, Any] = {"color": colour, "alpha": 0.14, "linewidth": 0}
            axes.fill_between(x, lower[number], upper[number], step="post", **band)
    axes.set_xscale("log")
    axes.set_xlim(float(x.min()), float(x.max()))
    axes.set_ylim(-0.02, 1.03)
    axes.set_xlabel("seconds")
    axes.set_ylabel("share of problems solved")
    axes.set_title(_title(title), fontsize=9)
    _legend(figure, handles, labels)
    return figure


def gap_over_time(
    times: npt.ArrayLike,
    middle: npt.ArrayLike,
    labels: Sequence[str],
    *,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    ylabel: str = "primal gap (%)",
    title: str = "",
) -> Figure:
    """Draw how the gap falls with time, with bands where there are few enough solvers.

    Parameters
    ----------
    times : (t,) array_like
        Seconds, above 0.
    middle : (k, t) array_like
        Medians; what is not finite is not drawn.
    labels : sequence of str
    low, high : (k, t) array_like, optional
        Quantiles; drawn for up to `BANDS` solvers.
    ylabel, title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    curves = np.asarray(middle, dtype=np.float64)
    _check_labels(labels, len(curves))
    figure, axes = _panel(labels)
    handles = draw_gaps(axes, times, curves, low, high, ylabel)
    axes.set_title(_title(title), fontsize=9)
    _legend(figure, handles, labels)
    return figure


def seconds_by_size(
    sizes: npt.ArrayLike,
    seconds: npt.ArrayLike,
    labels: Sequence[str],
    *,
    cut: npt.ArrayLike,
    growing: str,
) -> Figure:
    """Draw seconds over sizes, both on logarithmic axes, with a line of linear growth.

    Parameters
    ----------
    sizes : (t,) array_like
        Ascending, above 0.
    seconds : (k, t) array_like
        NaN where there was no run.
    labels : sequence of str
    cut : (k, t) array_like of bool
        Where a limit ended runs, which is drawn hollow.
    growing : str
        What the sizes are of.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    x, curves = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    ended_by_limit = np.asarray(cut, dtype=np.bool_)
    _check_labels(labels, len(curves))
    figure, axes = _panel(labels)
    handles = []
    for number, curve in enumerate(curves):
        style = line_style(number)
        (line,) = axes.plot(x, curve, **style)
        there = ended_by_limit[number]
        axes.plot(
            x[there],
            curve[there],
            **{**style, "linestyle": "none", "markerfacecolor": "white", "zorder": 3},
        )
        handles.append(line)
    known = curves[:, 0][curves[:, 0] > 0]
    if known.size:
        linear = float(np.exp(np.log(known).mean())) * x / x[0]
        axes.plot(x, linear, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(growing)
    axes.set_ylabel("seconds")
    _legend(figure, handles, labels)
    return figure


def draw_gaps(
    axes: Axes,
    times: npt.ArrayLike,
    curves: FloatArray,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    ylabel: str = "primal gap (%)",
) -> list[Line2D]:
    """Draw the curves of `gap_over_time` into axes; return one line a solver."""
    x = np.asarray(times, dtype=np.float64)
    # Gaps span decades; zero has a place all the same.
    positive = curves[np.isfinite(curves) & (curves > 0)]
    floor = 10.0 ** math.floor(math.log10(max(1e-3, float(positive.min(initial=1.0)))))
    handles = []
    for number, curve in enumerate(curves):
        y = np.where(np.isfinite(curve), curve, np.nan)
        handles.append(_stairs(axes, x, y, number))
        if low is not None and high is not None and len(curves) <= BANDS:
            axes.fill_between(
                x,
                np.asarray(low, dtype=np.float64)[number],
                np.asarray(high, dtype=np.float64)[number],
                step="post",
                color=line_style(number)["color"],
                alpha=0.14,
                linewidth=0,
            )
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=floor, linscale=0.4)
    axes.set_xlim(float(x.min()), float(x.max()))
    axes.set_ylim(bottom=-0.08 * floor)
    axes.set_xlabel("seconds")
    axes.set_ylabel(ylabel)
    return handles


def is_extreme(run: Steps) -> bool:
    """Return whether a run has finite energies or bounds that are too large to be drawn."""
    values = np.concatenate([run.energy, run.bound])
    return bool((np.isfinite(values) & (np.abs(values) > _LARGEST)).any())


def _drawable(values: FloatArray) -> FloatArray:
    """Return the values with NaN where they are not finite, or extreme."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= _LARGEST, values, np.nan)


def convergence(runs: Sequence[Steps], labels: Sequence[str], title: str = "") -> Figure:
    """Draw the best energy and the bound of runs on one problem over time.

    Energies are drawn with markers, bounds as thin lines in the same colour and dashes; what is
    extreme (see `is_extreme`) is left out.

    Parameters
    ----------
    runs : sequence of Steps
        One a solver.
    labels : sequence of str
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a run.
    """
    _check_labels(labels, len(runs))
    # The exponent of long numbers stands between the axes and the title.
    figure, axes = _panel(labels, above=0.45)
    energies = [_drawable(run.energy) for run in runs]
    bounds = [_drawable(run.bound) for run in runs]
    ends = [float(run.seconds[-1]) for run in runs if np.isfinite(run.seconds[-1])]
    end = 1.3 * max([*ends, 1e-5])
    handles = []
    for number, (run, energy, bound) in enumerate(zip(runs, energies, bounds, strict=True)):
        style = line_style(number)
        # What was reached in the end is held to the end of the picture.
        x = np.append(np.maximum(run.seconds, 1e-6), end)
        handles.append(_stairs(axes, x, np.append(energy, energy[-1]), number))
        axes.plot(
            x,
            np.append(bound, bound[-1]),
            drawstyle="steps-post",
            linewidth=0.7,
            linestyle=style["linestyle"],
            color=style["color"],
        )
    axes.set_xscale("log")
    starts = [float(run.seconds[np.isfinite(run.energy)].min(initial=end)) for run in runs]
    axes.set_xlim(max(1e-6, 0.7 * min([*starts, end])), end)
    finals = [float(e[-1]) for e in energies if not np.isnan(e[-1])]
    if finals:
        # First labellings may be far above all that matters, first bounds far below.
        firsts = [e[~np.isnan(e)][0] for e in energies if not np.isnan(e[-1])]
        floor = min([*finals, *(float(b[-1]) for b in bounds if not np.isnan(b[-1]))])
        best, worst = min(finals), max(finals)
        # No less than what tells numbers of this size apart.
        least = 1e-9 * max(1.0, abs(best))
        ceiling = worst + max(worst - floor, 0.25 * (float(np.median(firsts)) - best), least)
        lowest = max(floor, best - 2.0 * (ceiling - best))
        room = 0.06 * (ceiling - lowest)
        axes.set_ylim(lowest - room, ceiling + room)
    axes.set_xlabel("seconds")
    axes.set_ylabel("energy; bounds below")
    # Long numbers would push the label of the axis off the page.
    axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    axes.set_title(_title(title), fontsize=9)
    _legend(figure, handles, labels)
    return figure


def critical_difference(
    test: RankTest, labels: Sequence[str], title: str = "", *, of: str = "problem"
) -> Figure:
    """Draw average ranks on a line, with bars over solvers that do not differ.

    The diagram of Demsar, "Statistical comparisons of classifiers over multiple data sets",
    JMLR 7, 2006, figure 1.

    Parameters
    ----------
    test : RankTest
    labels : sequence of str
    title : str
    of : str
        What was ranked over, in the singular.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is not one label a solver.
    """
    from matplotlib.figure import Figure

    k = len(test.ranks)
    _check_labels(labels, k)
    short = _names(labels, 31)
    order = np.argsort(test.ranks, kind="stable")
    half = (k + 1) // 2
    # In lines of text: the bars are between the axis and the first label.
    bars = 0.55 * len(test.groups) + 0.5
    lines = bars + max(half, k - half) + 2.6
    height = 0.2 * lines + 0.3
    figure = Figure(figsize=(_AXES_WIDTH + _LEGEND_WIDTH, height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0 - 0.3 / height))
    axes.set_axis_off()
    # Ranks 1 to k lie in the middle, labels at both sides.
    left, right = 0.36, 0.64
    axes.set_xlim(0, 1)
    axes.set_ylim(-(lines - 2.4), 2.4)

    def place(rank: float) -> float:
        return left + (right - left) * (rank - 1.0) / (k - 1.0)

    ink: dict[str, Any] = {"color": "black", "solid_capstyle": "butt"}
    axes.plot([left, right], [0, 0], linewidth=1.0, **ink)
    step = max(1, math.ceil(k / 12))
    for rank in range(1, k + 1):
        axes.plot([place(rank)] * 2, [0, 0.25], linewidth=0.8, **ink)
        if (rank - 1) % step == 0:
            axes.text(place(rank), 0.35, str(rank), ha="center", va="bottom", fontsize=7)
    width = (right - left) * test.critical_difference / (k - 1.0)
    shown = min(width, 0.96)
    start = left if left + shown <= 0.98 else 0.98 - shown
    axes.plot([start, start + shown], [1.5, 1.5], linewidth=1.2, **ink)
    for x in (start, start + shown):
        axes.plot([x, x], [1.3, 1.7], linewidth=1.2, **ink)
    axes.text(
        start + shown / 2,
        1.75,
        f"critical difference {test.critical_difference:.2f} ({counted(test.n, of)})",
        ha="center",
        va="bottom",
        fontsize=7,
    )
    for number, solver in enumerate(order):
        first = number < half
        line = -(bars + (number if first else k - 1 - number))
        x = place(float(test.ranks[solver]))
        edge = left - 0.02 if first else right + 0.02
        axes.plot([x, x, edge], [0, line, line], linewidth=0.7, **ink)
        text = f"{short[solver]}  {test.ranks[solver]:.2f}"
        if not first:
            text = f"{test.ranks[solver]:.2f}  {short[solver]}"
        axes.text(
            edge - 0.008 if first else edge + 0.008,
            line,
            text,
            ha="right" if first else "left",
            va="center",
            fontsize=7,
        )
    for number, group in enumerate(test.groups):
        ranks = test.ranks[list(group)]
        height = -(0.45 + 0.55 * number)
        ends = [place(float(ranks.min())) - 0.006, place(float(ranks.max())) + 0.006]
        axes.plot(ends, [height, height], linewidth=3.0, **ink)
    axes.set_title(_title(title), fontsize=9, pad=2)
    return figure


#: The shade, of a scale from 0 to 1, that would be black: text in the darkest cells stays legible.
_LIGHT = 1.6


def _cells(
    shades: FloatArray,
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    below: float = 0.0,
) -> tuple[Figure, Axes]:
    """Return a map of grey cells with text, darker for larger shades, and inches left below it."""
    from matplotlib.figure import Figure

    n, m = shades.shape
    row_names, column_names = _names(rows), _names(columns, 24)
    widest = max((len(text) for line in texts for text in line), default=4)
    cell = max(0.5, 0.075 * widest + 0.12)
    # The last quarter of an inch is for the name of the axis.
    beside = 0.062 * max(map(len, row_names), default=0) + 0.4
    upright = any(len(name) * 0.065 > cell for name in column_names)
    above = (0.05 * max(map(len, column_names), default=0) if upright else 0.15) + 0.45
    # Names at the angle of 40 degrees lean over the last column.
    lean = 0.06 * max(map(len, column_names), default=0) if upright else 0.0
    width = beside + cell * m + max(0.15, lean)
    width = max(width, 3.2)
    below += 0.12
    height = above + 0.27 * n + below
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((beside / width, below / height, cell * m / width, 0.27 * n / height))
    axes.imshow(shades, cmap="Greys", vmin=0.0, vmax=_LIGHT, aspect="auto", interpolation="nearest")
    for i in range(n):
        for j in range(m):
            axes.text(
                j,
                i,
                texts[i][j],
                ha="center",
                va="center",
                fontsize=7,
                color="white" if shades[i, j] > 0.9 else "black",
            )
    axes.xaxis.tick_top()
    axes.set_xticks(range(m), column_names, fontsize=7)
    if upright:
        for name in axes.get_xticklabels():
            name.set(rotation=40, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(n), row_names, fontsize=7)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xticks(np.arange(m + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    return figure, axes


def gap_map(
    values: npt.ArrayLike, rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> Figure:
    """Draw a map of gaps in percent: numbers in cells that are the darker the larger they are.

    Parameters
    ----------
    values : (n, m) array_like
        Percent; NaN where nothing is known. The lowest of each column is set in bold.
    rows, columns : sequence of str
        Names, such as of solvers and of classes of problems.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the names do not fit the shape.
    """
    gaps = np.asarray(values, dtype=np.float64)
    if gaps.shape != (len(rows), len(columns)):
        raise ValueError(
            f"values have the shape {gaps.shape}, but there are {len(rows)} rows and "
            f"{len(columns)} columns"
        )
    # Gaps span decades; from 0.01 % to 100 %.
    shades = np.clip((np.log10(np.maximum(np.nan_to_num(gaps), 1e-3)) + 2.0) / 4.0, 0.0, 1.0)
    texts = [[_gap_text(v) for v in line] for line in gaps]
    figure, axes = _cells(shades, texts, rows, columns)
    known = np.where(np.isnan(gaps), np.inf, gaps)
    lowest = known.min(axis=0, initial=np.inf)
    for text in axes.texts:
        j, i = (round(c) for c in text.get_position())
        if np.isfinite(known[i, j]) and text.get_text() == _gap_text(lowest[j]):
            text.set_fontweight("bold")
    axes.set_title(_title(title), fontsize=9, pad=7)
    return figure


def _gap_text(value: float) -> str:
    if math.isnan(value):
        return ""
    if value == 0:
        return "0"
    if value < 0.005:
        return "<0.01"
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def best_map(
    names: Sequence[Sequence[str]],
    leads: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    bar: str,
    ticks: Sequence[float],
    row_name: str = "",
    column_name: str = "",
    title: str = "",
) -> Figure:
    """Draw which solver is best where: its name in each cell, the darker the further it leads.

    Parameters
    ----------
    names : (n, m) nested sequence of str
        What each cell says, such as the best solver; empty where there is none.
    leads : (n, m) array_like
        By how much it leads, not negative; 0 is a tie, which stays white, as does NaN.
    rows, columns : sequence of str
        The values along both axes.
    bar : str
        What the leads are: said below the bar of shades.
    ticks : sequence of float
        Leads above 0, ascending, at equal distances along the bar. Between them shades follow the
        logarithm of the lead where each is as many times the one before, else the lead itself.
        Larger leads are as dark as the last.
    row_name, column_name, title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    ahead = np.nan_to_num(np.asarray(leads, dtype=np.float64))
    if ahead.shape != (len(rows), len(columns)) or [len(line) for line in names] != [
        len(columns)
    ] * len(rows):
        raise ValueError(
            f"names and leads must have the shape ({len(rows)}, {len(columns)}) of the rows and "
            f"columns, got leads of shape {ahead.shape}"
        )
    texts = [
        [plain(name if len(name) <= MAP_NAME else name[: MAP_NAME - 1] + "…") for name in line]
        for line in names
    ]
    places = np.linspace(_FAINTEST, _DARKEST, len(ticks))
    along = np.interp(np.log(np.maximum(ahead, 1e-300)), np.log(ticks), places)
    if len(ticks) > 2 and not math.isclose(ticks[1] / ticks[0], ticks[2] / ticks[1]):
        along = np.interp(ahead, ticks, places)
    shades = np.where(ahead > 0, along, 0.0)
    figure, axes = _cells(shades, texts, rows, columns, below=0.55)
    axes.set_ylabel(plain(row_name), fontsize=8)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(plain(column_name), fontsize=8)
    axes.set_title(_title(title), fontsize=9, pad=7)
    _bar(figure, bar, ticks)
    return figure


#: Shades of the smallest and the largest lead; a tie is white.
_FAINTEST, _DARKEST = 0.18, 1.0


def _bar(figure: Figure, label: str, ticks: Sequence[float]) -> None:
    """Draw what the shades of a map mean, below it."""
    width, height = figure.get_size_inches()
    bar = figure.add_axes((0.4 / width, 0.38 / height, 2.6 / width, 0.1 / height))
    shades = np.concatenate([np.zeros(16), np.linspace(_FAINTEST, _DARKEST, 64)])[None]
    # The first piece is for ties; ticks are over what follows.
    bar.imshow(shades, cmap="Greys", vmin=0.0, vmax=_LIGHT, aspect="auto", extent=(-0.25, 1, 0, 1))
    places = np.linspace(0.0, 1.0, len(ticks))
    texts = [f"{tick:g}" for tick in ticks[:-1]] + [f"{ticks[-1]:g}+"]
    bar.set_xticks([-0.125, *places], ["tie", *texts], fontsize=6)
    bar.tick_params(length=2, pad=1)
    bar.set_yticks([])
    bar.set_xlabel(label, fontsize=7, labelpad=1, loc="left")
