"""Tables of a comparison for the terminal, notebooks and papers, from records."""

from __future__ import annotations

import math
import re

import pytest
from sample_records import record

import inference_lab as il
from inference_lab.reporting.comparison import Comparison


def mixed():
    """Return runs on problems of which each has scores of its own, or none."""
    return Comparison(
        [
            record("plain"),
            record("colouring", scores={"conflicts": 3.0}),
            record("stereo", scores={"bad_pixels": 0.25, "mean_error": 1.5}),
        ]
    )


@pytest.mark.parametrize("width", [None, 80, 100])
def test_problems_may_have_different_scores(width):
    lines = mixed().to_text(width).splitlines()
    heads = [line.split() for line in lines if line.split()[:1] == ["solver"]]
    # Three problems, and a table over all of them.
    assert len(heads) == 4
    assert "conflicts" not in heads[0] and "conflicts" in heads[1]
    assert heads[2][-5:] == ["bad", "pixels", "mean", "error", "status"]
    headers = [line for line in lines if line.split()[:1] == ["solver"]]
    assert len({line.index("energy") for line in headers if "energy" in line}) == 1
    assert max(map(len, lines)) <= (width or 120)
    assert any(re.search(r"0\.25 +1\.5 +converged", line) for line in lines)


def test_sizes_and_best_known_values_are_above_each_table():
    lines = Comparison([record(energy=2.0, lower_bound=1.5, n_factors=2)]).to_text().splitlines()
    assert lines[0] == "p  4 variables, 3 edges, 2 larger factors, 2 labels"
    assert lines[1] == "best energy 2.000000, best bound 1.500000 (a)"


def test_warnings_follow_the_alarms_and_are_short():
    runs = [
        record(energy=1.0, lower_bound=2.0),
        record("q", seed=1, time_limit=3.0),
        record("q", "b" * 300, seed=2, threads=4, status="error", energy=math.inf),
    ]
    comparison = Comparison(runs)
    assert len(comparison.alarms) == 1 and len(comparison.warnings) == 4
    lines = comparison.to_text(200).splitlines()
    starts = [line.split(":")[0] for line in lines[:6]]
    assert starts == ["CONTRADICTION", *["WARNING"] * 4, ""]
    assert lines[2].startswith("WARNING: runs under different numbers of threads are mixed: 1, 4")
    assert lines[3].endswith("...") and lines[4] == "WARNING: and 1 more warning"
    assert all(len(line) <= 170 for line in lines[:5])
    assert lines[6].startswith("p  ")
    fair = Comparison([record(), record("q")])
    assert "WARNING" not in fair.to_text()


def test_an_estimate_keeps_its_kind_beside_runs_without_one():
    runs = [
        record(temperature=1.0, status="error", seed=1),
        record(temperature=1.0, log_partition=3.0, log_partition_kind="lower"),
    ]
    assert Comparison(runs).rows[0].log_partition_kind == "lower"
    assert "3.000000 >=" in Comparison(runs).to_text()


def test_numbers_of_one_have_no_plural():
    assert repr(Comparison([record()])) == "Comparison(1 problem x 1 solver, 1 run)"


def test_a_comparison_shows_itself_in_notebooks_and_papers():
    graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    comparison = il.compare(il.Problem("pair<b>", graph, optimum=0.5), ["icm", "brute-force"])
    html = comparison._repr_html_()
    assert "pair&lt;b&gt;" in html and "<b>" not in html and "brute-force" in html
    assert "gap %" in html and re.search("font-weight: bold.{,2}>0.5", html)
    first = ["problem", "solver", "seed", "energy", "gap", "lower_bound", "status", "seconds"]
    assert list(comparison.frame.columns)[:8] == first
    latex = comparison.labelled({"icm": "ICM_1"}).to_latex(
        ["% proved", "gap %"], caption="50 % of all"
    )
    assert r"solver & \% proved & gap \%" in latex and r"ICM\_1 & 0 & 0" in latex
    assert latex.startswith("\\begin{table}") and latex.count(r"\caption{") == 1
    assert "\n\\caption{50 \\% of all}\n\\label{tab:solvers}\n" in latex
    named = comparison.to_latex(caption="Two solvers.", label="tab:two")
    assert "\n\\label{tab:two}\n" in named
    with pytest.raises(ValueError, match=r"no column .gab., but primal gap %, gap %, % best"):
        comparison.to_latex(["gab"])


def test_notebook_shows_the_terminal_tables_of_at_most_ten_problems():
    runs = [record(f"p{i}", name, 2.0) for i in range(12) for name in ("a", "b")]
    refused = record("p0", "a", math.inf, status="unsupported", message="no <theory>")
    html = Comparison([refused, *runs[1:]])._repr_html_()
    assert html.count("  solver ") == 11 and "and 2 more problems" in html
    assert ">p9</span>" in html and ">p10</span>" not in html and "All 12 problems" in html
    assert "unsupported [1]" in html and "[1] no &lt;theory&gt;" in html


def test_solvers_are_compared_on_problems_that_all_were_run_on():
    """Means over other problems do not order solvers."""
    runs = [
        *(record(problem, "quick", 2.0, lower_bound=1.0) for problem in "pqr"),
        *(record(problem, "slow", 1.0, lower_bound=1.0) for problem in "pq"),
    ]
    runs[2] = record("r", "quick", 200.0, lower_bound=1.0)
    comparison = Comparison(runs).labelled({"quick": "Quick (one)"})
    shown = str(comparison)
    assert "All 3 problems" not in shown
    summary = shown.partition("2 of 3 problems: those that all solvers were run on")[2]
    (quick,) = re.findall(r"Quick \(one\) +[\d.]+ +([\d.]+)", summary)
    assert float(quick) == 100.0  # and not the mean of 100, 100 and 19900
    assert "Quick (one) & 100" in comparison.to_latex(["gap %"])
    apart = Comparison([*runs[2:3], *runs[3:]])
    assert "There is no such problem, so the solvers are not compared." in str(apart)
    assert "% best" not in str(apart)
    with pytest.raises(ValueError, match="no problem was run by all of them"):
        apart.to_latex()
