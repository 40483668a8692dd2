"""Sweeps over an image: 384 x 288 pixels, 4 neighbours, 16 labels, Potts and truncated linear.

The figure is millions of pixel-labels a second, ``passes * pixels * labels / (1e6 * CPU s)``, of
the fastest sweep, so that implementations elsewhere can be set beside it; and how many times as
long as the same sweep in plain C (``reference.c``) it takes. A pass visits every pixel once: a
sweep of ``trw-s`` and of ``loopy-bp`` is two passes, there and back, in which every pixel sends to
the neighbours that come after it (two messages an edge); one of ``icm`` is one (no messages).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference import Image, Reference, compile_reference

import inference_lab as il
from inference_lab.contract import Run
from inference_lab.graph.grids import grid_edges

HEIGHT, WIDTH, LABELS = 288, 384, 16
#: Cap of the truncated linear terms, in labels.
CAP = 3.0

Sweep = Callable[[], object]
#: Our sweep, the same in C, the number of passes, and whether both start with equal results.
Pair = tuple[Sweep, Sweep, int, bool]


def draw(terms: str) -> Image:
    """Draw random costs and positive weights; slope 1 up to `CAP` where the terms are linear."""
    rng = np.random.default_rng(0)
    edges = grid_edges(HEIGHT, WIDTH)
    unary = rng.random((HEIGHT * WIDTH, LABELS))
    weights = rng.uniform(0.0, 0.3, size=len(edges))
    if terms == "Potts":
        return Image(il.FactorGraph.potts(unary, edges, weights), HEIGHT, WIDTH, 0.0)
    apart = np.abs(np.subtract.outer(np.arange(LABELS), np.arange(LABELS)))
    graph = il.FactorGraph.pairwise(unary, edges, np.minimum(apart, CAP), weights)
    return Image(graph, HEIGHT, WIDTH, CAP)


def trw_s(graph: il.FactorGraph, reference: Reference) -> Pair:
    """Make a forward and a backward pass with all messages, and compute the bound."""
    from inference_lab.solvers.trw_s import TRWSPasses

    passes, run = TRWSPasses(graph, np.arange(graph.n_variables)), Run(graph)

    def sweep() -> float | None:
        passes.directed_pass(1, run)
        return passes.directed_pass(0, run)

    ours, theirs = sweep(), reference.trw_s()
    assert ours is not None
    return sweep, reference.trw_s, 2, abs(ours - theirs) <= 1e-9 * abs(theirs)


def _messages(graph: il.FactorGraph, reference: Reference, temperature: float) -> Pair:
    from inference_lab.solvers.loopy_bp import LoopyBP, Passes

    passes = Passes(LoopyBP(schedule="sequential"), graph, temperature)

    def sweep() -> None:
        for number in (0, 1):
            # Otherwise pixels without new messages are skipped. Up the order is 1, down is 0.
            passes.schedule.priority[1 - number :: 2] = np.inf
            passes.sweep(number)

    theirs = reference.loopy_bp if temperature == 0.0 else reference.soft_bp
    sweep()
    theirs()
    # Ties may be broken by rounding.
    return sweep, theirs, 2, float(np.mean(passes.labels() == reference.labels)) > 0.999


def loopy_bp(graph: il.FactorGraph, reference: Reference) -> Pair:
    """Visit pixels there and back; each receives its messages, stores its best label and sends."""
    return _messages(graph, reference, 0.0)


def soft_bp(graph: il.FactorGraph, reference: Reference) -> Pair:
    """Pass sum-product messages at temperature 1."""
    return _messages(graph, reference, 1.0)


def icm(graph: il.FactorGraph, reference: Reference) -> Pair:
    """Visit pixels in turn and take the best label given the neighbours; start from the unaries."""
    from inference_lab.kernels.descent import KEEP, CoordinateDescent

    order, start = np.arange(graph.n_variables), graph.unary.argmin(axis=1)
    x = start.copy()
    descent = CoordinateDescent(graph, x)

    def sweep() -> int:
        x[:] = start
        dirty = np.ones(graph.n_variables, dtype=np.bool_)
        return descent.sweep(x, order, dirty, KEEP)

    def theirs() -> int:
        reference.labels[:] = start
        return reference.icm()

    same = sweep() == theirs() and bool((x == reference.labels).all())
    return sweep, theirs, 1, same


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compile the sweeps in C."""
    return compile_reference(tmp_path_factory.mktemp("reference"))


CASES = [
    *((method, terms) for method in (trw_s, loopy_bp, icm) for terms in ("Potts", "linear")),
    (soft_bp, "Potts"),
]


@pytest.mark.parametrize(
    ("method", "terms"), CASES, ids=[f"{method.__name__}-{terms}" for method, terms in CASES]
)
def test_sweep(
    measure: Callable[..., Any],
    library: ctypes.CDLL,
    method: Callable[[il.FactorGraph, Reference], Pair],
    terms: str,
) -> None:
    """Time one sweep of a method in turn with the same sweep in C."""
    image = draw(terms)
    sweep, theirs, passes, same = method(image.graph, Reference(library, image))
    assert same
    cpu: list[tuple[float, float]] = []

    def timed() -> None:
        begin = time.process_time()
        sweep()
        middle = time.process_time()
        theirs()
        cpu.append((middle - begin, time.process_time() - middle))

    def rate(_: None) -> str:
        amount = 1e-6 * passes * image.graph.n_variables * LABELS
        ours, reference = np.min(cpu, axis=0)
        return (
            f"a sweep of {passes} pass(es) in {1e3 * ours:.1f} ms, {amount / ours:.0f} "
            f"Mpixel-labels/s; in C {1e3 * reference:.1f} ms, ratio {ours / reference:.2f}"
        )

    name = method.__name__.replace("_", "-")
    measure(f"{name}: {WIDTH}x{HEIGHT}x{LABELS} {terms}, with C", timed, rounds=30, note=rate)
