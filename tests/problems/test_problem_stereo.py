"""Stereo: the energy from its definition, visibility, and the published figures of real pairs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.folders import DataNotFoundError
from inference_lab.data.images import read_image, write_image
from inference_lab.graph.arrays import TRUNCATED_LINEAR, TRUNCATED_QUADRATIC
from inference_lab.problems.stereo import PAIRS, Stereo, StereoProblem, data_costs, visible_pixels


def dissimilarity(left: np.ndarray, right: np.ndarray, r: int, x: int, d: int, band: int) -> int:
    """Return the Birchfield-Tomasi cost of one pixel, disparity and colour."""

    def around(image: np.ndarray, c: int) -> tuple[int, int, int]:
        row = [int(v) for v in image[r, :, band]]
        values = [row[c]]
        if c > 0:
            values.append((row[c] + row[c - 1]) // 2)
        if c < len(row) - 1:
            values.append((row[c] + row[c + 1]) // 2)
        return row[c], min(values), max(values)

    one, low_one, high_one = around(left, x)
    two, low_two, high_two = around(right, x - d)
    return min(max(0, one - high_two, low_two - one), max(0, two - high_one, low_one - two))


def slow_energy(family: Stereo, left: np.ndarray, right: np.ndarray, labels: np.ndarray) -> float:
    """Return the energy of disparities (h, w), pixel by pixel."""
    e = family.energy
    height, width, bands = left.shape
    power = 1 if e.cost == "absolute" else 2
    cap = bands * e.data_cap if power == 1 else e.data_cap**2
    total = 0.0
    for r in range(height):
        for c in range(width):
            d = int(labels[r, c])
            if d > c:
                total += min(bands * 255**power, cap)
            else:
                total += min(
                    sum(dissimilarity(left, right, r, c, d, b) ** power for b in range(bands)), cap
                )
            for r2, c2 in ((r, c + 1), (r + 1, c)):
                if r2 < height and c2 < width:
                    squares = sum(
                        (int(a) - int(b)) ** 2
                        for a, b in zip(left[r, c], left[r2, c2], strict=True)
                    )
                    rms = math.sqrt(squares / bands)
                    weight = e.weight * (e.factor if rms < e.threshold - 1e-9 else 1.0)
                    jump = abs(d - int(labels[r2, c2]))
                    total += weight * min(jump ** (1 if e.smoothness == "linear" else 2), e.cap)
    return total


@given(
    seed=st.integers(0, 10**6),
    colour=st.booleans(),
    cost=st.sampled_from(["absolute", "squared"]),
    data_cap=st.sampled_from([math.inf, 16.0]),
    smoothness=st.sampled_from(["linear", "quadratic"]),
    cap=st.sampled_from([1.0, 2.0, 7.0]),
    spread=st.sampled_from([20, 256]),
)
def test_energy_is_that_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    colour: bool,
    cost: str,
    data_cap: float,
    smoothness: str,
    cap: float,
    spread: int,
) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 8)), 3 if colour else 1)
    left, right = (rng.integers(0, spread, shape, dtype=np.uint8) for _ in range(2))
    folder = tmp_path_factory.mktemp("pair")
    place = folder / "image" / "stereo"
    place.mkdir(parents=True)
    unknown = np.zeros_like(left)
    for name, image in zip(PAIRS["tsukuba"][:3], (left, right, unknown), strict=True):
        write_image(place / name, image if colour else image[:, :, 0])
    family = Stereo(
        "tsukuba",
        labels=5,
        cost=cost,  # type: ignore[arg-type]
        data_cap=data_cap,
        smoothness=smoothness,  # type: ignore[arg-type]
        cap=cap,
        weight=3.0,
        threshold=8.0,
        factor=2.5,
    )
    problem = family.build(folder)
    assert problem.score(np.zeros(shape[0] * shape[1], np.int64)) == {}
    for _ in range(3):
        labels = rng.integers(0, 5, shape[:2])
        expected = slow_energy(family, left, right, labels)
        assert problem.graph.energy(labels.ravel()) == pytest.approx(expected, rel=1e-12)


def test_messages_have_a_closed_form() -> None:
    for smoothness, form in (("linear", TRUNCATED_LINEAR), ("quadratic", TRUNCATED_QUADRATIC)):
        graph = Stereo(height=8, width=9, labels=8, smoothness=smoothness, cap=3.0).build().graph
        assert (graph.arrays.forms == form).all()
    assert Stereo(height=8, width=9, cap=1.0).build().graph.is_diagonal


def test_a_shifted_image_is_matched_without_cost() -> None:
    rng = np.random.default_rng(0)
    right = rng.integers(0, 256, (6, 20, 3), dtype=np.uint8)
    left = np.roll(right, 4, axis=1)
    costs = data_costs(left, right, 8, "absolute", math.inf).reshape(6, 20, 8)
    # Columns that came in from the other side, and their neighbours, have other values.
    assert (costs[:, 5:-1, 4] == 0).all()
    assert (costs[:, :4, 4] == 765).all()
    assert costs[:, 5:-1, 3].mean() > 50


def test_pixels_behind_others_are_not_visible() -> None:
    left = np.array([[1.0, 1, 1, 1, 3, 3, 1, 1]])
    # Columns 4 and 5 map to 1 and 2, as do columns 2 and 3, which are farther away.
    assert visible_pixels(left, None).tolist() == [[False, True, False, False, *[True] * 4]]
    right = np.array([[1.0, 3, 3, np.nan, np.nan, 1, 5, 1]])
    seen = visible_pixels(left, right)
    assert seen.tolist() == [[False, True, False, False, True, True, True, False]]
    unknown = np.where(left == 3, np.nan, left)
    assert visible_pixels(unknown, None)[0, 4:6].tolist() == [False, False]


def test_synthetic_truth_explains_the_images() -> None:
    problem = Stereo(noise=0.0).build()
    assert problem.truth is not None and problem.scored is not None
    costs = problem.graph.unary[np.arange(problem.truth.size), problem.truth]
    assert np.percentile(costs[problem.scored], 95) == 0.0
    assert 0.8 < problem.scored.size / problem.truth.size < 1.0
    solution = il.solve(problem.graph, "alpha-expansion", seed=0)
    assert solution.labels is not None
    assert problem.score(solution.labels)["bad_pixels"] < 0.05


def test_scores_count_visible_pixels_that_are_off_by_more_than_one() -> None:
    graph = il.FactorGraph.potts(np.zeros((6, 9)), np.empty((0, 2), int), [])
    problem = StereoProblem(
        "p",
        graph,
        truth=np.zeros(6, np.int64),
        scored=np.array([0, 1, 2, 3]),
        disparities=np.array([1.5, 2.0, 3.0, 4.0, 5.0, np.nan]),
    )
    scores = problem.score([2, 3, 5, 8, 8, 8])
    assert scores["bad_pixels"] == 0.5
    assert scores["bad_pixels_known"] == pytest.approx(3 / 5)
    assert scores["accuracy"] == 0.5
    assert scores["rms"] == pytest.approx(math.sqrt((0.25 + 1 + 4 + 16) / 4))


def test_truth_is_read_and_filled_in(tmp_path: Path) -> None:
    folder = tmp_path / "image" / "stereo"
    folder.mkdir(parents=True)
    left, right, truth_file = (folder / name for name in PAIRS["tsukuba"][:3])
    rng = np.random.default_rng(0)
    for place in (left, right):
        write_image(place, rng.integers(0, 256, (4, 6), dtype=np.uint8))
    truth = np.full((4, 6), 32, np.uint8)
    truth[0, 0], truth[1, 1], truth[2] = 0, 160, 24
    write_image(truth_file, truth)
    problem = Stereo("tsukuba", labels=3).build(tmp_path)
    assert problem.truth is not None and problem.disparities is not None
    # Unknown values are taken from a neighbour, excess labels are capped, halves go to even.
    assert problem.truth.reshape(4, 6)[:2, :2].tolist() == [[2, 2], [2, 2]]
    assert problem.truth[12:18].tolist() == [2] * 6
    assert np.isnan(problem.disparities[0])
    assert problem.disparities[7] == 10.0
    left.write_text("text")
    with pytest.raises(DataFormatError, match=r"imL\.png"):
        Stereo("tsukuba").build(tmp_path)


def test_missing_pair_is_reported_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFERENCE_LAB_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=r"teddy_im2\.png.*vision\.middlebury\.edu"):
        Stereo("teddy").build(tmp_path)


# ---------------------------------------------------------------------- the Middlebury pairs


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> Path:
    if not (data_dir / "image" / "stereo").is_dir():
        pytest.skip(f"no folder {data_dir / 'image' / 'stereo'}")
    return data_dir


def test_tsukuba_is_the_published_problem(folder: Path) -> None:
    """Check sizes, truth, and on random disparities the energy of the definition."""
    problem = Stereo("tsukuba").build(folder)
    assert problem.shape == (288, 384)
    assert problem.graph.n_labels == 16
    assert problem.truth is not None and problem.scored is not None
    # The truth has a border of 18 pixels without values.
    assert problem.info["known"] == (288 - 36) * (384 - 36)
    assert set(np.unique(problem.truth)) == {5, 6, 7, 8, 10, 11, 14}
    assert 0.95 < problem.scored.size / problem.info["known"] < 0.99
    images = [
        read_image(folder / "image" / "stereo" / f"tsukuba_im{side}.png") for side in ("L", "R")
    ]
    rows, columns = slice(100, 104), slice(0, 30)
    labels = np.zeros(problem.shape, np.int64)
    labels[rows, columns] = np.random.default_rng(0).integers(0, 16, (4, 30))
    small = [image[rows, columns] for image in images]
    unary = problem.graph.unary.reshape(*problem.shape, 16)[rows, columns]
    for r in range(4):
        for c in range(29):  # the last column has a neighbour outside the cut
            d = int(labels[100 + r, c])
            expected = 765
            if d <= c:
                expected = sum(dissimilarity(*small, r, c, d, band) for band in range(3))
            assert unary[r, c, d] == expected
    assert set(np.unique(problem.graph.edge_weights)) == {20.0, 40.0}


def test_tsukuba_comes_close_to_the_published_energies(folder: Path) -> None:
    """The optimum is 369,218 (Szeliski et al. 2008); expansion ends within 1% of it.

    Bad pixels: about 2% for minima of this energy.
    """
    problem = Stereo("tsukuba").build(folder)
    bound = il.solve(problem.graph, "trw-s(max_sweeps=60)", seed=0)
    moves = il.solve(problem.graph, "alpha-expansion", seed=0)
    assert moves.labels is not None
    assert 368_500 < bound.lower_bound <= 369_218
    for solution in (bound, moves):
        assert solution.labels is not None
        assert 369_218 <= solution.energy < 1.01 * 369_218
        scores = problem.score(solution.labels)
        assert 0.015 < scores["bad_pixels"] < 0.035
        assert scores["bad_pixels"] < scores["bad_pixels_known"] < 0.06
    assert problem.truth is not None
    # As published, the truth costs more than the minimum: the model is an approximation.
    assert problem.graph.energy(problem.truth) > moves.energy


def test_teddy_is_the_published_problem(folder: Path) -> None:
    problem = Stereo("teddy").build(folder)
    assert problem.shape == (375, 450)
    assert problem.graph.n_labels == 60
    assert problem.graph.is_diagonal
    assert problem.truth is not None and problem.disparities is not None
    mask = np.isfinite(problem.disparities)
    assert 0.97 < mask.mean() < 1.0
    assert float(problem.disparities[mask].max()) == pytest.approx(211 / 4)
    assert set(np.unique(problem.graph.edge_weights)) == {10.0, 30.0}
