"""Charts of reports: their content with any names, and reproducible files."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest

from inference_lab.reporting import charts
from inference_lab.reporting.charts import drawing, heatmap, intervals_chart, panels
from inference_lab.reporting.statistics import performance_ratios

INF = math.inf

#: Names, some of them long or hostile.
NAMES = [
    "icm",
    "loopy-bp(damping=0.5, schedule=synchronous, tolerance=1e-8)",
    "costs $\\frac{1}$ and $",
    "_hidden",
    "<script>alert(1)</script>",
    "two\nlines \u202e \x00",
    "datum['x'] + \"y\"",
    "能量 ∞",
]
TIMES = np.geomspace(1e-3, 10, 20)
GAPS = 100 * np.exp(-np.outer(np.arange(1, 9), np.linspace(0, 2, 20)))


def solved(k):
    rng = np.random.default_rng(0)
    times = rng.lognormal(0, 2, (30, k))
    times[rng.random((30, k)) < 0.2] = INF
    return times


def cells(names):
    return pd.DataFrame(
        [
            {"x": f"[{c}]", "y": name, "panel": "", "text": f"{n}\nx", "value": n}
            for n, name in enumerate(names)
            for c in "ab"
        ]
    )


def made(kind, names):
    k = len(names)
    if kind == "ranks":
        return intervals_chart(names, np.arange(1.0, k + 1), 0.75, "average rank")
    if kind == "map":
        return heatmap(cells(names), "x", "y", scale={"scheme": "redblue"})
    if kind == "panels":
        rows = [
            {"solver": n, "panel": p, "x": c, "y": 0.5, "low": 0.4, "high": 0.6}
            for n in names
            for p in ("iris", "wine")
            for c in ("25", "50")
        ]
        return panels(pd.DataFrame(rows), names, "constraints", "NMI", "linear")
    seconds = np.outer(np.arange(1, k + 1), [0.1, 1.0, 10.0])
    bands = (GAPS[:k] / 2, GAPS[:k])
    made_curves = {
        "profile": lambda: charts.profile_chart(performance_ratios(solved(k)), names),
        "gap": lambda: charts.gap_chart(TIMES, GAPS[:k], names, bands),
        "sizes": lambda: charts.size_chart(
            np.array([10.0, 100.0, 1000.0]), seconds, seconds > 5, names, "points"
        ),
    }
    return made_curves[kind]()


KINDS = ["profile", "gap", "sizes", "ranks", "map", "panels"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_is_drawn_with_all_names_and_the_same_each_time(kind):
    first, second = (drawing(made(kind, NAMES)) for _ in range(2))
    assert (first.spec, first.svg) == (second.spec, second.svg)
    # Fonts are TrueType outlines: many journals refuse Type 3.
    assert first.pdf.startswith(b"%PDF") and b"/Type3" not in first.pdf
    assert b"/CIDFontType2" in first.pdf and b"/FontFile2" in first.pdf
    text = re.sub("<[^>]*>", "\n", first.svg)
    for name in ("icm", "_hidden", "costs $\\frac{1}$ and $", "datum['x'] + ", "&lt;script&gt;"):
        assert name in text
    assert "<script" not in first.svg and "NaN" not in first.svg


@pytest.mark.parametrize(("kind", "k"), [("profile", 30), ("gap", 2), ("ranks", 30), ("map", 30)])
def test_few_and_many_solvers_fit(kind, k):
    names = [f"solver-{n}" for n in range(k)]
    shown = drawing(made(kind, names)).svg
    assert all(f">{name}<" in shown for name in names)


def test_lines_differ_in_black_and_white():
    names = [f"s{n}" for n in range(28)]
    looks = charts._looks(names)
    scales = [look.to_dict()["scale"]["range"] for look in looks]
    assert len(set(zip(scales[0], map(str, scales[1]), strict=True))) == 28


def test_a_profile_is_the_shares_of_its_ratios():
    profile = performance_ratios([[1.0, 2.0], [4.0, 1.0], [3.0, INF]])
    rows = charts.profile_chart(profile, ["a", "b"]).data
    parts = rows.groupby("solver")
    shown = {name: part[["x", "y"]].to_numpy().T for name, part in parts}
    end = 1.15 * 4
    assert shown["a"] == pytest.approx(np.array([(1.0, 4.0, end), (2 / 3, 1.0, 1.0)]))
    assert shown["b"] == pytest.approx(np.array([(1.0, 2.0, end), (1 / 3, 2 / 3, 2 / 3)]))
    # A solver that never wins, or solves nothing, starts at zero.
    late = charts.profile_chart(performance_ratios([[1.0, 2.0, INF]]), ["a", "b", "c"]).data
    assert late[late["solver"] != "a"].groupby("solver").first()["y"].tolist() == [0.0, 0.0]


def test_steps_leave_out_invisible_points():
    gaps = np.array([[5.0] * 10 + [1.0] * 10])
    spec = charts.gap_chart(TIMES, gaps, ["a"]).to_dict()
    (rows,) = spec["datasets"].values()
    assert [row["y"] for row in rows] == [5.0, 5.0, 1.0, 1.0]


def test_profile_without_a_solved_problem_is_drawn():
    none = performance_ratios([[INF, INF]])
    assert drawing(charts.profile_chart(none, ["a", "b"])).svg.startswith("<svg")


def test_pairs_are_lines_between_points_of_clusters():
    n = len(NAMES)
    points = pd.DataFrame({"name": NAMES, "cluster": np.arange(n), "x": np.arange(n), "y": 0.5})
    ends = {"x": [0.0, 1.0, 2.0], "y": 0.5, "x2": [3.0, 4.0, 5.0], "y2": 0.5}
    pairs = pd.DataFrame(
        {"kind": ["must-link", "cannot-link", "cannot-link"], "violated": [False, True, False]}
    ).assign(name=NAMES[-3:], **ends)
    drawn = drawing(charts.pairs_chart(points, pairs, ("first", "second")))
    lines = [
        (attributes["stroke-dasharray"], attributes["stroke-width"])
        for text in re.findall("<line [^>]*rule mark[^>]*>", drawn.svg)
        if (attributes := dict(re.findall(r'([\w-]+)="([^"]*)"', text)))
    ]
    assert lines == [("1,0", "0.8"), ("4,3", "2"), ("4,3", "0.8")]
    looks = re.findall('<path [^>]*"point"[^>]* d="([^"]*)" fill="([^"]*)"', drawn.svg)
    # Clusters beyond the number of colours differ in shape.
    assert len(looks) == len(set(looks)) == n
    assert "<script" not in drawn.svg and "NaN" not in drawn.svg
