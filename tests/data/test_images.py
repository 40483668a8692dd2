"""Images: files and their damage, areas, drawing; pictures of labellings from the command line."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inference_lab as il
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.folders import DATA_VARIABLE, DataNotFoundError, find_file
from inference_lab.data.images import (
    EMBEDDED,
    ImageProblem,
    draw_shapes,
    draw_texture,
    label_colours,
    load_image,
    read_image,
    to_grey,
    write_image,
)
from inference_lab.graph.grids import grid_edges, lattice_edges

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("name", "image"), [("a.png", GREY), ("a.pgm", GREY), ("a.png", COLOUR), ("a.PPM", COLOUR)]
)
def test_images_round_trip(tmp_path: Path, name: str, image: np.ndarray) -> None:
    write_image(tmp_path / name, image)
    again = read_image(tmp_path / name)
    assert again.dtype == np.uint8
    assert np.array_equal(again, image)


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    write_image(tmp_path / "a.pgm", GREY)
    (tmp_path / "b.pgm.gz").write_bytes(gzip.compress((tmp_path / "a.pgm").read_bytes()))
    assert np.array_equal(read_image(tmp_path / "b.pgm.gz"), GREY)


def test_a_plain_text_image_by_hand(tmp_path: Path) -> None:
    """The file was not written by this package."""
    (tmp_path / "a.pgm").write_text("P2\n3 2\n255\n0 10 20\n30 40 255\n")
    assert read_image(tmp_path / "a.pgm").tolist() == [[0, 10, 20], [30, 40, 255]]


@pytest.mark.parametrize(
    "content",
    [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40), b"P5\n9 9\n255\n12"],
    ids=["empty", "text", "broken-png", "cut-off"],
)
def test_damaged_files_are_one_kind_of_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=r"bad\.png"):
        read_image(path)
    packed = tmp_path / "bad.png.gz"
    packed.write_bytes(b"\x1f\x8b" + content)
    with pytest.raises(DataFormatError, match=r"bad\.png\.gz"):
        read_image(packed)


def test_sixteen_bits_and_huge_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.pgm").write_bytes(b"P5\n2 1\n65535\n" + bytes(4))
    with pytest.raises(DataFormatError, match="8 bits a channel"):
        read_image(tmp_path / "deep.pgm")
    (tmp_path / "huge.pgm").write_bytes(b"P5\n60000 60000\n255\n")
    with pytest.raises(DataFormatError, match=r"huge\.pgm.*pixels"):
        read_image(tmp_path / "huge.pgm")


def test_unwritable_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pictures end in \.png, \.pgm, \.ppm"):
        write_image(tmp_path / "a.jpg", GREY)
    with pytest.raises(NotADirectoryError, match="folder does not exist"):
        write_image(tmp_path / "no" / "a.png", GREY)
    with pytest.raises(ValueError, match=r"int64 of shape \(5, 7\)"):
        write_image(tmp_path / "a.png", GREY.astype(np.int64))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_files_are_found_here_or_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    (data / "image" / "set").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    write_image(data / "image" / "set" / "one.png", GREY)
    assert find_file("set/one.png", data) == data / "image" / "set" / "one.png"
    assert find_file("image/set/one.png", data) == data / "image" / "set" / "one.png"
    with pytest.raises(DataNotFoundError, match=r"\$INFERENCE_LAB_DATA"):
        find_file("set/one.png", None)
    monkeypatch.setenv(DATA_VARIABLE, str(data))
    assert np.array_equal(load_image("set/one.png"), GREY)
    with pytest.raises(DataNotFoundError, match=r"did you mean 'one\.png'.*data fetch"):
        find_file("set/on.png", None)
    (here / "set").mkdir()
    write_image(here / "set" / "one.png", COLOUR)
    assert np.array_equal(load_image("set/one.png"), COLOUR)


@pytest.mark.parametrize("name", EMBEDDED)
def test_photographs_of_scikit_learn(name: str) -> None:
    assert load_image(name).shape == (427, 640, 3)


# ---------------------------------------------------------------------- arrays


def test_grey_values_are_luma() -> None:
    assert to_grey(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)).tolist() == [
        [76, 150, 29]
    ]
    assert to_grey(GREY) is GREY


def test_drawings_depend_on_the_generator_alone() -> None:
    for count in (1, 5):
        one, two = (draw_shapes(60, 80, count, np.random.default_rng(3)) for _ in range(2))
        assert np.array_equal(one, two)
        assert np.unique(one).tolist() == list(range(count + 1))
        assert (one == 0).mean() > 0.3
        assert not np.array_equal(one, draw_shapes(60, 80, count, np.random.default_rng(4)))
    texture = draw_texture(40, 50, np.random.default_rng(3), grain=1.0)
    assert texture.shape == (40, 50)
    assert 35 < texture.std() < 55


def test_colours_of_labels_differ() -> None:
    assert len({tuple(c) for c in label_colours(30).tolist()}) >= 28
    assert label_colours(2).tolist() == [[0, 0, 0], [255, 255, 255]]


# ---------------------------------------------------------------------- lattices


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (3, 4), (1, 4), (2, 3, 4), (3, 3, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_lattice_edges_join_sites_one_step_apart(shape: tuple[int, ...], wrap: bool) -> None:
    sites = list(np.ndindex(*shape))
    expected = set()
    for i, one in enumerate(sites):
        for j, two in enumerate(sites):
            steps = np.abs(np.subtract(one, two))
            if wrap:
                steps = np.minimum(steps, np.array(shape) - steps)
            if i < j and steps.sum() == 1:
                expected.add((i, j))
    edges = np.sort(lattice_edges(shape, wrap=wrap), axis=1)
    assert {tuple(e) for e in edges.tolist()} == expected
    assert len(edges) == len(expected)


@pytest.mark.parametrize("wrap", [False, True])
def test_flat_lattices_are_grids(wrap: bool) -> None:
    for shape in ((3, 5), (2, 4), (1, 3)):
        grid = {tuple(sorted(e)) for e in grid_edges(*shape, wrap=wrap).tolist()}
        assert {tuple(sorted(e)) for e in lattice_edges(shape, wrap=wrap).tolist()} == grid


# ---------------------------------------------------------------------- pictures


def problem() -> ImageProblem:
    graph = il.FactorGraph.potts(np.arange(18.0).reshape(6, 3) % 5, grid_edges(2, 3), 0.1)
    return ImageProblem("p", graph, shape=(2, 3), palette=np.array([0, 100, 255], np.uint8))


def test_a_picture_shows_the_labels_in_place() -> None:
    shown = problem().picture([0, 1, 2, 2, 1, 0])
    assert shown is not None
    assert shown.tolist() == [[0, 100, 255], [255, 100, 0]]
    with pytest.raises(ValueError, match="variable 2 has labels 0 to 2"):
        problem().picture([0, 1, 3, 2, 1, 0])
    assert il.Problem("p", problem().graph).picture([0] * 6) is None
    # The harness sends problems to other processes in this way.
    assert pickle.loads(pickle.dumps(replace(problem(), truth=None))).shape == (2, 3)
