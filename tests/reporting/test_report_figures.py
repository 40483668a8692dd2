"""Figures of reports: nothing overlaps, nothing is lost in black and white, bytes repeat."""

from __future__ import annotations

import io
import itertools
import math
import re

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib import text as mtext
from matplotlib.backends.backend_agg import FigureCanvasAgg

from inference_lab.reporting import figures
from inference_lab.reporting.statistics import performance_profile, rank_test, solved_within
from inference_lab.reporting.style import COLOURS, LINES, MARKERS, RC, line_style
from inference_lab.reporting.traces import Steps

INF = math.inf

#: Names of which some are long, some hostile.
NAMES = [
    "icm",
    "loopy-bp(damping=0.5, schedule=residual, tolerance=1e-8)",
    "simulated-annealing(sweeps=10000, t_start=10.0, t_end=0.01)",
    "simulated-annealing(sweeps=10000, t_start=10.0, t_end=0.02)",
    "costs $\\frac{1}$ and $",
    "_hidden",
    "<script>alert(1)</script>",
    "two\nlines \u202e \x00",
    "能量 ∞",
]
MANY = [*NAMES, *(f"solver-{n}(setting={n})" for n in range(25 - len(NAMES)))]


def svg(figure):
    stream = io.BytesIO()
    with rc_context(dict(RC)):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def profile_of(k):
    times = np.random.default_rng(0).lognormal(0, 2, (30, k))
    times[np.random.default_rng(1).random((30, k)) < 0.2] = INF
    return times


def runs_of(k):
    rng = np.random.default_rng(2)
    runs = []
    for n in range(k):
        seconds = np.sort(rng.lognormal(-2, 1, 9))
        energy = np.sort(rng.exponential(20, 9))[::-1] + 100 + n
        bound = np.sort(90 - rng.exponential(20, 9)) if n % 2 else np.full(9, -INF)
        runs.append(Steps(seconds, energy, bound))
    return runs


def drawn(name, labels):
    """Return a figure of each kind for so many solvers."""
    k = len(labels)
    if name == "profile":
        return figures.performance_profile(performance_profile(profile_of(k)), labels, "Title")
    if name == "cactus":
        return figures.cactus(solved_within(profile_of(k)), labels, "Title")
    if name == "gap":
        times = np.geomspace(1e-3, 10, 20)
        middle = 100 * np.exp(-np.outer(np.arange(1, k + 1), np.linspace(0, 2, 20)))
        band = {"low": middle / 2, "high": np.minimum(100, 2 * middle)}
        return figures.gap_over_time(times, middle, labels, title="Title", **band)
    if name == "convergence":
        return figures.convergence(runs_of(k), labels, "Title")
    if name == "large":
        runs = [Steps(t, 1e4 * e + 123456.7, 1e4 * b) for t, e, b in runs_of(k)]
        return figures.convergence(runs, labels, "A title that reaches over the exponent: " * 4)
    if name == "narrow":
        runs = [Steps(t, 1e-3 * e + 54321.0, 1e-3 * b + 54321.0) for t, e, b in runs_of(k)]
        return figures.convergence(runs, labels, "Title")
    if name == "ranks":
        values = np.random.default_rng(3).normal(size=(20, k)) + np.linspace(0, 2, k)
        return figures.critical_difference(rank_test(values), labels, "Title")
    if name == "gaps":
        values = np.random.default_rng(4).lognormal(-2, 2, (k, 6))
        values[0, 0] = np.nan
        columns = ["grid", "potts-dense(n=3)", "a-very-long-name-of-a-class", "b", "$x$", "d"]
        return figures.gap_map(values, labels, columns, "Title")
    names = [[labels[(i + j) % k] for j in range(4)] for i in range(3)]
    leads = np.linspace(0, 20, 12).reshape(3, 4)
    return figures.best_map(
        names,
        leads,
        list("abc"),
        list("defg"),
        bar="lead over the next solver, points of the primal gap",
        ticks=(0.01, 0.1, 1, 10),
        row_name="noise",
        column_name="$n",
        title="Title",
    )


KINDS = ["profile", "cactus", "gap", "convergence", "large", "narrow", "ranks", "gaps", "best"]


@pytest.mark.parametrize(("kind", "k"), list(itertools.product(KINDS, [2, 9, 25])))
def test_text_stays_inside_and_does_not_overlap(kind, k, monkeypatch):
    figure = drawn(kind, MANY[:k])
    width, height = figure.get_size_inches()
    assert width <= 9 and height <= 10
    # What is really drawn: ticks outside the limits are kept by the axes, but not shown.
    texts = []
    draw = mtext.Text.draw

    def noted(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip() and self not in texts:
            texts.append(self)
        return draw(self, renderer, *args, **kwargs)

    monkeypatch.setattr(mtext.Text, "draw", noted)
    FigureCanvasAgg(figure).draw()
    assert len(texts) > min(k, 15)
    boxes = [(t.get_text(), t.get_window_extent(), t.get_rotation()) for t in texts]
    page = figure.bbox
    for said, box, _ in boxes:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        assert inside, said
    # The boxes of slanted text overlap although the letters do not.
    straight = [(said, box) for said, box, angle in boxes if angle in (0, 90)]
    for (one, a), (other, b) in itertools.combinations(straight, 2):
        apart = a.x1 <= b.x0 + 2 or b.x1 <= a.x0 + 2 or a.y1 <= b.y0 + 2 or b.y1 <= a.y0 + 2
        assert apart, (one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_the_same_bytes_each_time(kind):
    first, second = (svg(drawn(kind, MANY[:5])) for _ in range(2))
    assert first == second and b"<svg" in first


@pytest.mark.parametrize("kind", ["profile", "cactus", "gap", "convergence"])
def test_the_legend_names_every_solver_beside_the_axes(kind):
    figure = drawn(kind, MANY)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 25
    assert len({t.get_text() for t in legend.get_texts()}) == 25
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1
    # Each handle is the line of its solver.
    for number, handle in enumerate(legend.legend_handles):
        style = line_style(number)
        assert (handle.get_color(), handle.get_linestyle()) == (style["color"], style["linestyle"])
        assert handle.get_marker() == style["marker"]


def test_lines_differ_in_black_and_white():
    looks = [(line_style(n)["marker"], line_style(n)["linestyle"]) for n in range(12)]
    assert len(set(looks)) == 12
    every = {tuple(sorted(line_style(n).items(), key=str)) for n in range(84)}
    assert len(every) == 84
    assert (len(COLOURS), len(MARKERS), len(LINES)) == (7, 12, 4)


def test_a_profile_is_drawn_as_it_is():
    figure = figures.performance_profile(
        performance_profile([[1.0, 2.0], [4.0, 1.0], [3.0, INF], [INF, INF]]), ["a", "b"]
    )
    first, second = figure.axes[0].get_lines()
    assert first.get_xdata()[:2].tolist() == [1.0, 4.0]
    assert first.get_ydata().tolist() == [0.5, 0.75, 0.75]
    # One of four at once, one more within twice the time, and then no more.
    assert second.get_xdata()[:2].tolist() == [1.0, 2.0]
    assert second.get_ydata().tolist() == [0.25, 0.5, 0.5]


def test_a_solver_that_never_wins_starts_at_zero():
    figure = figures.performance_profile(performance_profile([[1.0, 3.0]]), ["a", "b"])
    slow = figure.axes[0].get_lines()[1]
    assert slow.get_xdata()[0] == 1.0 and slow.get_ydata().tolist() == [0.0, 1.0, 1.0]


def test_bands_are_drawn_for_few_solvers_only():
    for k, bands in ((figures.BANDS, figures.BANDS), (figures.BANDS + 1, 0)):
        assert len(drawn("gap", MANY[:k]).axes[0].collections) == bands


def test_groups_are_bars_over_their_ranks():
    test = rank_test([[1.0, 2.0, 3.0]] * 4)
    assert test.groups == ((0, 1), (1, 2))
    axes = figures.critical_difference(test, ["a", "b", "c"]).axes[0]
    bars = [line for line in axes.get_lines() if line.get_linewidth() == 3.0]
    assert len(bars) == 2
    lengths = [float(np.ptp(bar.get_xdata())) for bar in bars]
    assert lengths[0] == pytest.approx(lengths[1])
    said = " ".join(t.get_text() for t in axes.texts)
    assert re.search(r"a  1\.00", said) and f"{test.critical_difference:.2f}" in said


def test_maps_hold_their_numbers_and_mark_the_lowest():
    values = [[0.0, 1.234], [12.3, 0.001], [math.nan, 100.0]]
    axes = figures.gap_map(values, ["a", "b", "c"], ["x", "y"]).axes[0]
    shown = {t.get_position(): (t.get_text(), t.get_fontweight()) for t in axes.texts}
    assert shown[0, 0] == ("0", "bold") and shown[1, 0] == ("1.23", "normal")
    assert shown[0, 1] == ("12", "normal") and shown[1, 1] == ("<0.01", "bold")
    assert shown[0, 2][0] == "" and shown[1, 2][0] == "100"


def test_names_are_shown_as_they_are():
    assert figures.plain("a $x$ b") == r"a \$x\$ b"
    assert "\n" not in figures.plain("two\nlines") and "\u202e" not in figures.plain("a\u202eb")
    # The font has no glyph for these.
    assert figures.plain("能") == "\ufffd"


@pytest.mark.parametrize(
    "call",
    [
        lambda: figures.performance_profile(performance_profile([[1.0, 2.0]]), ["a"]),
        lambda: figures.cactus([[1.0], [2.0]], ["a"]),
        lambda: figures.gap_over_time([1.0, 2.0], [[1.0, 0.5]], ["a", "b"]),
        lambda: figures.convergence(runs_of(2), ["a"]),
        lambda: figures.critical_difference(rank_test(np.eye(3)), ["a"]),
    ],
)
def test_labels_that_do_not_fit_are_refused(call):
    with pytest.raises(ValueError, match="labels must name"):
        call()


def test_maps_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="3 rows and 1 columns"):
        figures.gap_map([[1.0]], ["a", "b", "c"], ["x"])
    with pytest.raises(ValueError, match=r"must have the shape \(1, 2\)"):
        figures.best_map([["a"]], [[1.0]], ["r"], ["x", "y"], bar="", ticks=(1, 2))


def test_maps_are_the_darker_the_further_the_best_leads():
    """Ties are white; leads are as dark as the bar shows at their ticks, no lead darker than it."""
    for ticks in ((0.01, 0.1, 1.0, 10.0), (1.0, 25.0, 50.0, 75.0)):
        leads = [[0.0, math.nan, *ticks, 1000.0]]
        figure = figures.best_map(
            [["a"] * 7], leads, ["r"], list("abcdefg"), bar="lead", ticks=ticks
        )
        cells, bar = figure.axes
        shades = np.asarray(cells.get_images()[0].get_array())[0]
        assert shades[:2].tolist() == [0.0, 0.0]
        assert np.ptp(np.diff(shades[2:6])) < 1e-12 < shades[2]
        assert shades[6] == shades[5] == 1.0
        assert [t.get_text() for t in bar.get_xticklabels()][0::4] == ["tie", f"{ticks[3]:g}+"]
        assert bar.get_xlabel() == "lead"


def test_what_nobody_solved_is_still_a_figure():
    nothing = np.full((3, 2), INF)
    svg(figures.performance_profile(performance_profile(nothing), ["a", "b"]))
    svg(figures.cactus(solved_within(nothing), ["a", "b"]))
    empty = Steps(np.array([1.0]), np.array([INF]), np.array([-INF]))
    svg(figures.convergence([empty], ["a"]))
    svg(figures.gap_over_time([0.1, 1.0], [[0.0, 0.0]], ["a"]))


@pytest.mark.parametrize("size", [1e308, -1e308, 1.7e308, 1e100, 1e99, 1e15, 1e-320, 0.0])
def test_energies_of_any_finite_size_are_drawn_or_left_out(size):
    seconds = np.array([0.1, 1.0, 2.0])
    extreme = Steps(seconds, np.array([INF, size, size]), np.array([-INF, -abs(size), -abs(size)]))
    common = Steps(seconds, np.array([5.0, 3.0, 2.0]), np.array([0.0, 1.0, 2.0]))
    assert figures.is_extreme(extreme) == (abs(size) > 1e100)
    assert not figures.is_extreme(common)
    for runs in ([extreme], [common, extreme], [extreme, extreme]):
        figure = figures.convergence(runs, [str(n) for n in range(len(runs))])
        FigureCanvasAgg(figure).draw()
        shown = [line.get_ydata() for line in figure.axes[0].lines[::2]]
        kept = [bool(np.isfinite(y).any()) for y in shown]
        assert kept == [run is common or abs(size) <= 1e100 for run in runs]
