"""Segmentation: contrast weights and models from their definitions, ground truths, real images."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import inference_lab as il
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.images import write_image
from inference_lab.graph.grids import grid_edges
from inference_lab.problems.segmentation import Segmentation, SegmentationProblem, contrast


def solved(problem: SegmentationProblem) -> dict[str, float]:
    solution = il.solve(problem.graph, "alpha-expansion", seed=0)
    assert solution.labels is not None
    return problem.score(solution.labels)


@pytest.mark.parametrize("diagonals", [False, True])
def test_contrast_is_that_of_the_definition(diagonals: bool) -> None:
    rng = np.random.default_rng(0)
    height, width = 4, 5
    colours = rng.random((height, width, 3))
    pairs: dict[tuple[int, int], tuple[float, float]] = {}
    for r in range(height):
        for c in range(width):
            for down, right in [(0, 1), (1, 0), (1, 1), (1, -1)][: 4 if diagonals else 2]:
                r2, c2 = r + down, c + right
                if r2 < height and 0 <= c2 < width:
                    square = sum((colours[r, c, b] - colours[r2, c2, b]) ** 2 for b in range(3))
                    distance = math.sqrt(down**2 + right**2)
                    pairs[r * width + c, r2 * width + c2] = (float(square), distance)
    mean = sum(square for square, _ in pairs.values()) / len(pairs)
    edges = grid_edges(height, width, diagonals=diagonals)
    weights = contrast(colours.reshape(-1, 3), edges, width)
    assert len(edges) == len(pairs)
    for (i, j), weight in zip(edges.tolist(), weights, strict=True):
        square, distance = pairs[i, j]
        assert weight == pytest.approx(math.exp(-square / (2 * mean)) / distance)


def test_a_flat_image_has_no_contrast(tmp_path: Path) -> None:
    edges = grid_edges(3, 3)
    assert contrast(np.ones((9, 3)), edges, 3).tolist() == [1.0] * len(edges)
    image = np.full((8, 9), 77, np.uint8)
    image[0, 0] += 1  # for two clusters
    write_image(tmp_path / "flat.png", image)
    problem = Segmentation(str(tmp_path / "flat.png"), models="kmeans").build()
    assert problem.truth is None
    assert problem.score(np.zeros(72, np.int64)) == {}
    assert np.isfinite(problem.graph.unary).all()


def test_energy_is_unaries_and_weighted_borders() -> None:
    problem = Segmentation(height=6, width=7, regions=2, models="kmeans", weight=5.0).build()
    graph = problem.graph
    labels = np.random.default_rng(0).integers(0, 2, 42)
    border = sum(
        5.0 * w
        for (i, j), w in zip(graph.edges.tolist(), graph.edge_weights / 5.0, strict=True)
        if labels[i] != labels[j]
    )
    assert graph.energy(labels) == pytest.approx(
        sum(graph.unary[i, labels[i]] for i in range(42)) + border
    )
    assert (graph.edge_weights > 0).all()
    doubled = Segmentation(height=6, width=7, regions=2, models="kmeans", weight=10.0).build()
    assert np.allclose(doubled.graph.edge_weights, 2 * graph.edge_weights)


def test_scribbles_give_the_true_labels() -> None:
    problem = Segmentation(regions=4, share=0.05).build()
    assert problem.truth is not None
    forbidden = np.isinf(problem.graph.unary)
    seeds = np.flatnonzero(forbidden.any(axis=1))
    assert seeds.size == problem.info["given"] == pytest.approx(0.05 * 96 * 128, rel=0.02)
    assert (forbidden[seeds].sum(axis=1) == 3).all()
    assert not forbidden[seeds, problem.truth[seeds]].any()
    assert set(problem.truth[seeds]) == {0, 1, 2, 3}
    soft = Segmentation(regions=4, share=0.05, hard=False).build()
    assert soft.info["given"] == 0
    assert np.allclose(soft.graph.unary[~forbidden], problem.graph.unary[~forbidden])


@pytest.mark.parametrize(
    ("settings_of", "limit"),
    [
        ({}, 0.02),
        ({"regions": 4, "weight": 10.0}, 0.05),
        ({"regions": 3, "models": "kmeans", "weight": 5.0}, 0.15),
    ],
)
def test_minima_find_drawn_regions(settings_of: dict[str, object], limit: float) -> None:
    problem = Segmentation(**settings_of).build()  # type: ignore[arg-type]
    scores = solved(problem)
    assert 1.0 - scores["accuracy"] < limit
    alone = problem.score(problem.graph.unary.argmin(axis=1))
    assert scores["accuracy"] > alone["accuracy"]  # the borders help
    assert ("misclassified" in scores) == problem.named


def test_scores_by_hand() -> None:
    graph = il.FactorGraph.potts(np.zeros((6, 2)), [(0, 1)], 1.0)
    problem = SegmentationProblem(
        "p", graph, truth=np.array([0, 0, 0, 1, 1, 0]), scored=np.arange(5), shape=(2, 3)
    )
    scores = problem.score([0, 0, 1, 1, 1, 1])
    assert scores["misclassified"] == pytest.approx(1 / 5)
    assert scores["iou"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    # Renamed regions are equally right, unless names matter.
    renamed = problem.score([1, 1, 0, 0, 0, 1])
    assert renamed["accuracy"] == scores["accuracy"]
    assert renamed["misclassified"] == pytest.approx(4 / 5)


def test_small_regions_do_not_count(tmp_path: Path) -> None:
    image = np.zeros((6, 8, 3), np.uint8)
    truth = np.zeros((6, 8), np.uint8)
    truth[:, 5:], truth[0, 0] = 9, 3
    image[truth == 9] = 200
    write_image(tmp_path / "a.png", image)
    write_image(tmp_path / "gt.png", truth)
    problem = Segmentation(str(tmp_path / "a.png"), share=0.5).build()
    assert problem.truth is not None and problem.scored is not None
    assert problem.scored.tolist() == list(range(1, 48))
    assert problem.truth.reshape(6, 8)[0].tolist() == [0] * 5 + [1] * 3  # numbered by size
    three = Segmentation(str(tmp_path / "a.png"), regions=3, share=0.5).build()
    assert three.scored is None
    assert three.truth is not None and three.truth[0] == 2
    with pytest.raises(ValueError, match="has 3 regions, fewer than regions=4"):
        Segmentation(str(tmp_path / "a.png"), regions=4).build()
    write_image(tmp_path / "other.png", truth[:5])
    with pytest.raises(ValueError, match=r"has 5 x 8 pixels, but .* has 6 x 8"):
        Segmentation(str(tmp_path / "a.png"), truth=str(tmp_path / "other.png")).build()
    (tmp_path / "a.mat").write_bytes(b"no matrix" * 40)
    with pytest.raises(DataFormatError, match=r"a\.mat: no segmentations"):
        Segmentation(str(tmp_path / "a.png")).build()
    with pytest.raises(ValueError, match="needs a ground truth, and flower has none"):
        Segmentation("flower").build()


# ---------------------------------------------------------------------- real images


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> Path:
    if not (data_dir / "image" / "bsds").is_dir():
        pytest.skip(f"no folder {data_dir / 'image' / 'bsds'}")
    return data_dir


def test_aeroplane_of_the_berkeley_set(folder: Path) -> None:
    problem = Segmentation("bsds/3096.jpg").build(folder)
    assert problem.shape == (321, 481)
    assert problem.truth is not None and problem.scored is not None
    # The first person drew 144,940 + 9,460 pixels and one stray.
    assert np.bincount(problem.truth[problem.scored]).tolist() == [144_940, 9_460]
    scores = solved(problem)
    assert scores["misclassified"] < 0.01
    assert scores["iou"] > 0.9
    second = Segmentation("bsds/3096.jpg", annotator=1, regions=11).build(folder)
    assert second.scored is None
    with pytest.raises(ValueError, match="has 5 segmentations, so none of number 5"):
        Segmentation("bsds/3096.jpg", annotator=5).build(folder)
