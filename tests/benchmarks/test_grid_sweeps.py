"""Sweeps over an image: 384 x 288 pixels, 4 neighbours, 16 labels, Potts and truncated linear.

The figure is millions of pixel-labels a second, ``passes * pixels * labels / (1e6 * CPU s)``, of
the fastest sweep, so that implementations elsewhere can be set beside it. A pass visits every
pixel once: a sweep of ``trw-s`` is two passes (forward and backward, two messages an edge), one of
``loopy-bp`` is one (every pixel sends to all its neighbours, two messages an edge, too), and one
of ``icm`` is one (no messages).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import inference_lab as il
from inference_lab.contract import Run
from inference_lab.grids import grid_edges

HEIGHT, WIDTH, LABELS = 288, 384, 16

Sweep = Callable[[], object]


def image(terms: str) -> il.FactorGraph:
    """Draw random costs and positive weights; slope 1 up to 3 where the terms are linear."""
    rng = np.random.default_rng(0)
    edges = grid_edges(HEIGHT, WIDTH)
    unary = rng.random((HEIGHT * WIDTH, LABELS))
    weights = rng.uniform(0.0, 0.3, size=len(edges))
    if terms == "Potts":
        return il.FactorGraph.potts(unary, edges, weights)
    apart = np.abs(np.subtract.outer(np.arange(LABELS), np.arange(LABELS)))
    return il.FactorGraph.pairwise(unary, edges, np.minimum(apart, 3.0), weights)


def trw_s(graph: il.FactorGraph) -> tuple[Sweep, int]:
    """Forward and backward pass with all messages, and the bound."""
    from inference_lab.solvers.trw_s import Passes

    passes, run = Passes(graph, np.arange(graph.n_variables)), Run(graph)
    return lambda: (passes.half_sweep(1, run), passes.half_sweep(0, run)), 2


def loopy_bp(graph: il.FactorGraph) -> tuple[Sweep, int]:
    """Every pixel in turn takes in its messages, notes its best label and sends to all."""
    from inference_lab.kernels import cost_scale
    from inference_lab.solvers.loopy_bp import Step, sequential_sweep, start_messages, workspace

    order = np.arange(graph.n_variables)
    step = Step(0.0, 0.0, cost_scale(graph), 0.0, False)
    messages, work = start_messages(graph), workspace(graph)
    priority, x = np.empty(graph.n_variables), np.zeros(graph.n_variables, dtype=np.int64)

    def sweep() -> None:
        # Else pixels at which nothing new arrived are skipped.
        priority[:] = np.inf
        sequential_sweep(graph.arrays, order, step, messages, priority, work, x)

    return sweep, 1


def icm(graph: il.FactorGraph) -> tuple[Sweep, int]:
    """Every pixel in turn looks at its neighbours' labels and takes its best; from the unaries."""
    from inference_lab.solvers.icm import sweep as icm_sweep

    order, start = np.arange(graph.n_variables), graph.unary.argmin(axis=1)
    cost, infinite = np.empty(LABELS), np.empty(LABELS, dtype=np.int64)

    def sweep() -> None:
        dirty = np.ones(graph.n_variables, dtype=np.bool_)
        icm_sweep(graph.arrays, start.copy(), order, dirty, cost, infinite)

    return sweep, 1


@pytest.mark.parametrize("terms", ["Potts", "truncated linear"])
@pytest.mark.parametrize("method", [trw_s, loopy_bp, icm], ids=["trw-s", "loopy-bp", "icm"])
def test_sweep(
    measure: Callable[..., Any],
    method: Callable[[il.FactorGraph], tuple[Sweep, int]],
    terms: str,
) -> None:
    """One sweep of a method."""
    graph = image(terms)
    sweep, passes = method(graph)
    sweep()  # compiles
    cpu: list[float] = []

    def timed() -> None:
        begin = time.process_time()
        sweep()
        cpu.append(time.process_time() - begin)

    def rate(_: None) -> str:
        amount = 1e-6 * passes * graph.n_variables * LABELS
        return f"{amount / min(cpu):.0f} Mpixel-labels/s, a sweep being {passes} pass(es)"

    name = method.__name__.replace("_", "-")
    measure(f"{name}: a sweep, {WIDTH}x{HEIGHT}x{LABELS} {terms}", timed, rounds=30, note=rate)
