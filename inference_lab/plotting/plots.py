"""Figures of a graph, the history of a run, and marginals, drawn into axes of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from inference_lab.contract import Solution
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.specs.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of nodes for which the drawing of a graph is legible.
MOST_NODES = 300


def own_axes(axes: Axes | None) -> Axes:
    """Return the given axes, or the axes of a new figure."""
    if axes is not None:
        return axes
    require("report", "matplotlib")
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def plot_graph(
    graph: FactorGraph, labels: npt.ArrayLike | None = None, axes: Axes | None = None
) -> Axes:
    """Draw variables as discs, higher-order factors as squares, repulsive pairs as dashed lines.

    Discs have the colours of labels (n,), by default the cheapest of each variable by itself.
    """
    import networkx as nx

    shown = unary_minimum(graph) if labels is None else graph.check_labels(labels)
    n = graph.n_variables
    edges = graph.edges
    if n + graph.n_factors > MOST_NODES:
        raise ValueError(
            f"a picture of a graph shows at most {MOST_NODES} variables and higher-order factors, "
            f"got {n + graph.n_factors}; draw a part of it, or labels as an image"
        )
    scopes = [graph.higher_order(f)[0] for f in range(graph.n_factors)]
    attractive = np.array([_is_attractive(graph.edge_table(e)) for e in range(len(edges))], bool)
    picture: nx.Graph[int] = nx.Graph()
    picture.add_nodes_from(range(n + len(scopes)))
    picture.add_edges_from(edges.tolist())
    arms = [(n + f, v) for f, scope in enumerate(scopes) for v in scope]
    picture.add_edges_from(arms)
    place = nx.spring_layout(picture, seed=0, iterations=100)
    drawn = own_axes(axes)
    size = float(np.clip(6000 / max(1, n), 12, 220))
    for among, style in ((edges[attractive], "-"), (edges[~attractive], "--")):
        nx.draw_networkx_edges(
            picture, place, among.tolist(), ax=drawn, style=style, edge_color="0.55"
        )
    nx.draw_networkx_edges(picture, place, arms, ax=drawn, edge_color="0.75")
    nx.draw_networkx_nodes(
        picture,
        place,
        range(n, n + len(scopes)),
        ax=drawn,
        node_shape="s",
        node_color="0.4",
        node_size=0.5 * size,
    )
    nx.draw_networkx_nodes(
        picture, place, range(n), ax=drawn, node_color=shown, cmap="viridis", node_size=size
    )
    if n <= 40:
        numbers = {i: str(i) for i in range(n)}
        written = nx.draw_networkx_labels(picture, place, numbers, 7, "white", ax=drawn)
        # Black on the last labels, because they are yellow in this colour map.
        for i in np.flatnonzero(shown > shown.min() + 0.6 * np.ptp(shown)) if n else ():
            written[int(i)].set_color("black")
    drawn.set_axis_off()
    return drawn


def _is_attractive(table: npt.NDArray[np.float64]) -> bool:
    """Whether the mean cost of equal labels is at most that of unequal ones."""
    same = np.eye(*table.shape, dtype=np.bool_)
    return bool(same.all() or table[same].mean() <= table[~same].mean())


def _show_a_decade(drawn: Axes) -> None:
    """Widen a logarithmic axis of times that differ little, so that its ticks stay apart."""
    low, high = drawn.get_xlim()
    if high < 10.0 * low:
        # Slightly more than a decade, because matplotlib then labels the powers of ten only.
        drawn.set_xlim(0.9 * 10.0 ** np.floor(np.log10(low)), 1.1 * 10.0 ** np.ceil(np.log10(high)))


def plot_trace(solution: Solution, axes: Axes | None = None) -> Axes:
    """Draw the best energy and the bound over the solver's time."""
    points = [(p.seconds, p.best_energy, p.lower_bound) for p in solution.trace]
    points.append((solution.seconds, solution.energy, solution.lower_bound))
    seconds, energies, bounds = zip(*points, strict=True)
    return draw_history(seconds, energies, bounds, solution.solver, axes)


def draw_history(
    seconds: Sequence[float],
    energies: Sequence[float],
    bounds: Sequence[float],
    name: str,
    axes: Axes | None,
) -> Axes:
    """Draw the best energy and the bound over time, as steps on a logarithmic axis."""
    drawn = own_axes(axes)
    # Zero is raised, because a logarithmic axis has none; no measured time is shorter.
    times = np.maximum(np.asarray(seconds, dtype=np.float64), 1e-6)
    colour = None
    for values, style, what in ((energies, "-", "best energy"), (bounds, "--", "bound")):
        shown = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(shown)
        if finite.any():
            (line,) = drawn.step(
                times[finite],
                shown[finite],
                where="post",
                linestyle=style,
                color=colour,
                label=f"{name}: {what}",
            )
            colour = line.get_color()
    drawn.set(xscale="log", xlabel="seconds", ylabel="energy")
    _show_a_decade(drawn)
    if drawn.get_legend_handles_labels()[0]:
        drawn.legend(frameon=False, fontsize=8)
    return drawn


def plot_marginals(solution: Solution, axes: Axes | None = None) -> Axes:
    """Draw the marginals of a solution as stacked bars, one bar per variable."""
    if solution.marginals is None:
        raise ValueError("there are no marginals; ask for them with a temperature above 0")
    marginals = list(solution.marginals)
    drawn = own_axes(axes)
    n, width = len(marginals), max((len(row) for row in marginals), default=0)
    below = np.zeros(n)
    for label in range(width):
        part = np.array([row[label] if label < len(row) else 0.0 for row in marginals])
        drawn.bar(np.arange(n), part, bottom=below, width=1.0, label=f"label {label}")
        below += part
    drawn.set(xlabel="variable", ylabel="probability", ylim=(0, 1), xlim=(-0.5, n - 0.5))
    if width <= 10:
        drawn.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return drawn


def draw_image(image: npt.NDArray[np.uint8], axes: Axes | None) -> Axes:
    """Draw an image, pixel by pixel and without ticks."""
    axes = own_axes(axes)
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    return axes
