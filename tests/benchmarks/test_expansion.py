"""Graph cuts at the size of an image: stereo on the Tsukuba pair, 384 x 288 pixels, 16 labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import DATA
from workloads import FloatArray

import inference_lab as il
from inference_lab.graph.grids import grid_edges

LABELS = 16
#: Cap of the differences of grey values.
_TRUNCATION = 20.0


def _views() -> tuple[FloatArray, FloatArray]:
    """Return the left and the right view as (height, width, 3) arrays."""
    image = pytest.importorskip("PIL.Image", reason="reading the images takes Pillow")
    folder = DATA / "image" / "stereo"
    if not folder.is_dir():
        pytest.skip(f"no stereo pairs at {folder}; set INFERENCE_LAB_DATA")
    left, right = (
        np.asarray(image.open(folder / f"tsukuba_im{side}.png").convert("RGB"), dtype=np.float64)
        for side in "LR"
    )
    return left, right


@pytest.fixture(scope="module")
def graphs() -> dict[str, il.FactorGraph]:
    """Build both energies: truncated absolute differences, and smoothness that edges weaken."""
    left, right = _views()
    height, width, _ = left.shape
    unary = np.full((height, width, LABELS), _TRUNCATION)
    for d in range(LABELS):
        difference = np.abs(left[:, d:] - right[:, : width - d]).mean(axis=2)
        unary[:, d:, d] = np.minimum(difference, _TRUNCATION)
    edges = grid_edges(height, width)
    grey = left.mean(axis=2).ravel()
    flat = np.abs(grey[edges[:, 0]] - grey[edges[:, 1]]) < 8.0
    weights = np.where(flat, 10.0, 5.0)
    labels = np.arange(LABELS)
    distance = np.abs(labels[:, None] - labels)
    built = {
        "Potts": il.FactorGraph.potts(unary.reshape(-1, LABELS), edges, weights),
        "truncated linear": il.FactorGraph.pairwise(
            unary.reshape(-1, LABELS), edges, np.minimum(distance, 2.0), 0.5 * weights
        ),
    }
    for graph in built.values():
        assert graph.arrays.adj_ptr[-1] == 2 * graph.n_edges
    return built


@pytest.mark.parametrize("smoothness", ["Potts", "truncated linear"])
@pytest.mark.parametrize("solver", ["alpha-expansion", "alpha-beta-swap"])
def test_moves(
    measure: Callable[..., Any], graphs: dict[str, il.FactorGraph], solver: str, smoothness: str
) -> None:
    """Expand until no move lowers the energy; a cycle covers all labels, or pairs of labels."""
    graph = graphs[smoothness]
    spec = f"{solver}(order=sequential)"
    il.solve(graph, spec, max_iterations=1)

    def describe(s: il.Solution) -> str:
        sweep = s.seconds / s.iterations
        return (
            f"energy {s.energy:.0f}, {s.iterations} cycles of {sweep:.3f} s, "
            f"{1e-6 * graph.unary_values.size / sweep:.1f} Mpixel-labels/s"
        )

    s = measure(
        f"{solver}: Tsukuba, 16 labels, {smoothness}",
        lambda: il.solve(graph, spec),
        rounds=3 if solver == "alpha-expansion" else 1,
        note=describe,
    )
    assert s.status == il.Status.CONVERGED
    # Every move is submodular, so the guarantees of both methods hold.
    assert s.diagnostics["nonsubmodular_share"] == 0
