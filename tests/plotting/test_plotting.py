"""Displays of single objects."""

from __future__ import annotations

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

import inference_lab as il
from inference_lab.plotting.plots import draw_history, plot_graph, plot_marginals, plot_trace
from inference_lab.registry.sources import as_problem


@pytest.fixture
def axes():
    return Figure().subplots()


@pytest.fixture
def graph():
    """Return an attractive pair, a repulsive one, and a factor of three."""
    parity = np.arange(8.0).reshape(2, 2, 2)
    agree, differ = 1.0 - np.eye(2), np.eye(2)
    return il.FactorGraph.from_factors(
        [2] * 4, [((0,), [0.0, 1.0]), ((0, 1), agree), ((1, 2), differ), ((1, 2, 3), parity)]
    )


def test_graph_shows_variables_factors_and_signs(graph, axes):
    assert plot_graph(graph, [0, 1, 1, 0], axes) is axes
    lines = [c for c in axes.collections if hasattr(c, "get_segments")]
    dashed = [c.get_linestyle()[0][1] is not None for c in lines]
    counts = [len(c.get_segments()) for c in lines]
    assert list(zip(counts, dashed, strict=True)) == [(1, False), (1, True), (3, False)]
    factors, variables = (c for c in axes.collections if not hasattr(c, "get_segments"))
    assert len(factors.get_offsets()) == 1
    assert variables.get_array().tolist() == [0, 1, 1, 0]
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "3"]


def test_graph_without_labels_has_the_cheapest(graph, axes):
    plot_graph(graph, axes=axes)
    assert axes.collections[-1].get_array().tolist() == [0, 0, 0, 0]


def test_large_graphs_are_refused():
    with pytest.raises(ValueError, match="at most 300 variables and higher-order factors, got 301"):
        plot_graph(il.FactorGraph.from_terms(np.zeros((301, 2)), []))


def test_trace_ends_with_the_solution(graph, axes):
    solution = il.solve(graph, "ilp")
    plot_trace(solution, axes)
    energy, bound = axes.get_lines()
    assert energy.get_ydata()[-1] == solution.energy
    assert bound.get_ydata()[-1] == solution.lower_bound
    assert np.all(np.diff(energy.get_ydata()) <= 0)
    assert energy.get_color() == bound.get_color()


def test_trace_without_a_bound_has_one_line(graph, axes):
    plot_trace(il.solve(graph, "icm"), axes)
    assert [line.get_label() for line in axes.get_lines()] == ["icm: best energy"]


def test_texts_do_not_cover_each_other():
    """Tick labels differ by a hundredth."""
    small = plt.subplots(figsize=(4, 3))[1]
    axes = draw_history([9.35e-3, 9.41e-3], [1.0, 1.0], [1.0, 1.0], "icm", small)
    axes.figure.canvas.draw()
    ticks = axes.xaxis.get_ticklabels(which="both")
    for texts in (axes.get_legend().get_texts(), [text for text in ticks if text.get_text()]):
        # The margins of formulas may touch.
        boxes = [text.get_window_extent().padded(-1.0) for text in texts]
        assert len(boxes) > 1
        assert not any(map(Bbox.overlaps, *zip(*combinations(boxes, 2), strict=True)))
    plt.close(axes.figure)


def test_marginals_are_stacked_to_one(axes):
    graph = il.FactorGraph.from_terms([np.zeros(2), np.zeros(3)], [])
    plot_marginals(il.solve(graph, "brute-force", temperature=1.0), axes)
    heights = np.array([bar.get_height() for bar in axes.patches]).reshape(3, 2)
    np.testing.assert_allclose(heights, [[1 / 2, 1 / 3], [1 / 2, 1 / 3], [0, 1 / 3]])


def test_plot_without_marginals_is_refused(graph):
    with pytest.raises(ValueError, match="ask for them with a temperature above 0"):
        plot_marginals(il.solve(graph, "icm"))


def test_labels_of_images_are_pictures(axes):
    problem = as_problem("image-denoising(image=shapes)")
    problem.plot(problem.truth, axes=axes)
    (image,) = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), problem.picture(problem.truth))
    assert image.get_clim() == (0, 255)


def test_other_labels_are_drawn_on_the_graph(graph, axes):
    problem = il.Problem("a problem", graph)
    problem.plot(np.zeros(graph.n_variables, dtype=int), axes=axes)
    assert len(axes.collections) > 0 and not axes.get_images()


def test_solution_in_three_lines(graph):
    first, second, third = repr(il.solve(graph, "ilp")).splitlines()
    assert first == "Solution(ilp: optimal, the answer is proved to be exact)"
    assert second == "  energy 1, bound 1, gap 0"
    assert third.startswith("  labels [0 0 0 0]; ") and "iteration" in third
    assert ", bound none, gap none" in repr(il.solve(graph, "icm"))


def test_a_long_labelling_is_shortened():
    solution = il.solve(il.FactorGraph.from_terms(np.zeros((1000, 2)), []), "icm")
    assert "..." in repr(solution) and len(repr(solution)) < 300


def test_raise_for_status(graph):
    solution = il.solve(graph, "icm")
    assert solution.raise_for_status() is solution
    refused = il.solve(graph, "icm", temperature=1.0)
    with pytest.raises(il.UnsolvedError, match="icm gave no answer: unsupported, icm finds label"):
        refused.raise_for_status()


def test_an_infeasible_problem_is_an_answer():
    graph = il.FactorGraph.from_factors([2], [((0,), [np.inf, np.inf])])
    assert il.solve(graph, "icm").raise_for_status().status == "infeasible"


def test_dir_shows_public_names_only():
    assert dir(il) == sorted(il.__all__)
