"""Figures of studies, readable in black and white."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from inference_lab.reporting.style import RC, line_style
from inference_lab.results.clustering_records import COSTS
from inference_lab.studies.curves import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["learning_curves"]

_NAMES: Mapping[str, str] = {
    "pairwise_f": "pairwise F",
    "nmi": "NMI",
    "nmi_geometric": "NMI (geometric mean)",
    "ari": "adjusted Rand index",
    "accuracy": "accuracy",
    "boundary_accuracy": "accuracy of the decision boundary",
    "clusters": "number of clusters",
    "violated": "weight of violated constraints",
    "e_step_seconds": "seconds of E-steps",
}


def score_name(score: str) -> str:
    """Return what a score is called in text."""
    return _NAMES.get(score, score)


def learning_curves(results: Results, score: str, axis: str) -> Figure:
    """Draw a panel for each data set: the mean score against the number of constraints.

    Bands are 95 % confidence intervals of the mean.

    Parameters
    ----------
    results : Results
    score : str
    axis : str
        What the numbers of constraints are.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # No score lies outside, so no band need.
    lowest_score = {"ari": -1.0, "objective": -np.inf}.get(score, 0.0)
    highest_score = np.inf if score in ("clusters", *COSTS) else 1.0
    n = len(results.data)
    columns = min(n, 3)
    rows = -(-n // columns)
    with rc_context(dict(RC)):
        # Room for the legend below the panels.
        legend_rows = -(-len(results.methods) // 3)
        figure = Figure(
            figsize=(3.4 * columns + 0.4, 2.7 * rows + 0.25 * legend_rows + 0.3),
            layout="constrained",
        )
        panels = figure.subplots(rows, columns, squeeze=False)
        places = np.arange(len(results.constraints))
        for at, data in enumerate(results.data):
            panel = panels[at // columns][at % columns]
            for m, method in enumerate(results.methods):
                means = [results.mean(score, data, method, c) for c in results.constraints]
                middle = np.array([mean.value for mean in means])
                half = np.nan_to_num(np.array([mean.half for mean in means]))
                style = line_style(m)
                panel.plot(places, middle, label=method, **style)
                panel.fill_between(
                    places,
                    np.maximum(middle - half, lowest_score),
                    np.minimum(middle + half, highest_score),
                    color=style["color"],
                    alpha=0.12,
                    linewidth=0,
                )
            panel.set_title(data)
            panel.set_xticks(places, [f"{c:g}" for c in results.constraints])
            panel.grid(alpha=0.3)
        for at in range(n, rows * columns):
            panels[at // columns][at % columns].set_visible(False)
        for column in range(columns):
            # Below the lowest panel of each column.
            lowest = max(row for row in range(rows) if row * columns + column < n)
            panels[lowest][column].set_xlabel(axis)
        figure.supylabel(score_name(score))
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure
