"""The data sets: published sizes and class counts, and errors that name file and line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from places import DATA

from inference_lab.data.datasets import DataFormatError, UnknownDatasetError, available, load
from inference_lab.data.folders import DATA_VARIABLE, DataNotFoundError

needs_data = pytest.mark.skipif(
    not (DATA / "uci").is_dir(),
    reason=f"no UCI files under {DATA}; set ${DATA_VARIABLE} to the folder that holds uci/",
)

# Sizes and class counts of the UCI documentation.
EMBEDDED = {
    "iris": (4, {"setosa": 50, "versicolor": 50, "virginica": 50}),
    "wine": (13, {"class_0": 59, "class_1": 71, "class_2": 48}),
    "breast-cancer": (30, {"malignant": 212, "benign": 357}),
    "digits-389": (64, {"3": 183, "8": 174, "9": 180}),
}
FILES = {
    "letters-ijl": (16, {"I": 755, "J": 747, "L": 761}),
    "pendigits-389": (16, {"3": 1055, "8": 1055, "9": 1055}),
    "ecoli": (
        7,
        {"cp": 143, "im": 77, "imL": 2, "imS": 2, "imU": 35, "om": 20, "omL": 5, "pp": 52},
    ),
    "glass": (9, {"1": 70, "2": 76, "3": 17, "5": 13, "6": 9, "7": 29}),
    "glass-with-id": (10, {"1": 70, "2": 76, "3": 17, "5": 13, "6": 9, "7": 29}),
    "balance": (4, {"B": 49, "L": 288, "R": 288}),
    "ionosphere": (34, {"b": 126, "g": 225}),
    "seeds": (7, {"Kama": 70, "Rosa": 70, "Canadian": 70}),
    "new-thyroid": (5, {"normal": 150, "hyper": 35, "hypo": 30}),
    "vertebral": (6, {"DH": 60, "NO": 100, "SL": 150}),
    "sonar": (60, {"M": 111, "R": 97}),
    "zoo": (16, dict(zip("1234567", (41, 20, 5, 13, 4, 8, 10), strict=True))),
    "soybean-small": (35, {"D1": 10, "D2": 10, "D3": 10, "D4": 17}),
    "dermatology": (33, dict(zip("123456", (112, 61, 72, 49, 52, 20), strict=True))),
    "segmentation": (
        18,
        dict.fromkeys(
            ("BRICKFACE", "CEMENT", "FOLIAGE", "GRASS", "PATH", "SKY", "WINDOW"),
            300,
        ),
    ),
    "vowel": (10, {str(code): 90 for code in range(11)}),
    "satellite": (
        36,
        {"1": 1533, "2": 703, "3": 1358, "4": 626, "5": 707, "7": 1508},
    ),
    "banknote": (4, {"0": 762, "1": 610}),
    "movement-libras": (90, {str(code): 24 for code in range(1, 16)}),
    "optdigits": (
        64,
        dict(zip("0123456789", (554, 571, 557, 572, 568, 558, 558, 566, 554, 562), strict=True)),
    ),
}
#: Mixtures of Gaussians, identified by their generating distribution.
DRAWN = {
    "gaussians-round": (4, dict.fromkeys("012", 1000)),
    "gaussians-long": (6, dict.fromkeys("0123", 750)),
    "gaussians-uneven": (
        8,
        dict(zip("01234567", (1041, 693, 463, 308, 206, 137, 91, 61), strict=True)),
    ),
}


def check(name: str, n_features: int, counts: dict[str, int], data_dir: Path | None) -> None:
    data = load(name, data_dir)
    assert name == data.name
    assert (sum(counts.values()), n_features) == data.features.shape
    assert (n_features, len(counts)) == (data.n_features, data.n_classes)
    assert tuple(counts) == data.class_names
    assert list(counts.values()) == np.bincount(data.labels).tolist()
    assert data.features.dtype == np.float64
    assert data.labels.dtype == np.int64
    assert np.isfinite(data.features).all()
    assert not data.features.flags.writeable
    assert not data.labels.flags.writeable
    assert data.features.flags.c_contiguous


@pytest.mark.parametrize("name", {**EMBEDDED, **DRAWN})
def test_sizes_of_embedded_and_drawn_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    check(name, *{**EMBEDDED, **DRAWN}[name], None)


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_file_sizes(name: str) -> None:
    check(name, *FILES[name], DATA)


@needs_data
def test_first_rows_equal_the_files() -> None:
    assert [1.52101, 13.64, 4.49, 1.10, 71.78, 0.06, 8.75, 0, 0] == load("glass", DATA).features[
        0
    ].tolist()
    assert [0.49, 0.29, 0.48, 0.50, 0.56, 0.24, 0.35] == load("ecoli", DATA).features[0].tolist()
    assert [5, 12, 3, 7, 2, 10, 5, 5, 4, 13, 3, 9, 2, 8, 4, 10] == load(
        "letters-ijl", DATA
    ).features[0].tolist()


@needs_data
def test_misleading_columns_are_dropped() -> None:
    """Running numbers, speakers and constants are dropped, except two constants of optdigits."""
    for name, constant in (("segmentation", 0), ("dermatology", 0), ("optdigits", 2)):
        features = load(name, DATA).features
        assert constant == np.sum(np.ptp(features, axis=0) == 0), name
    assert 2086 == len(np.unique(load("segmentation", DATA).features, axis=0))
    assert [-3.639, 0.418] == load("vowel", DATA).features[0, :2].tolist()
    assert 3.0 == load("dermatology", DATA).features.max()
    digits = load("optdigits", DATA)
    mask = np.isin(digits.labels[3823:], (3, 8, 9))
    assert np.array_equal(digits.features[3823:][mask], load("digits-389").features)


def test_mixtures_have_their_stated_elongation() -> None:
    for name, longest in (("gaussians-round", 1.0), ("gaussians-long", 3.0)):
        data = load(name)
        for h in range(data.n_classes):
            widths = np.linalg.svd(np.cov(data.features[data.labels == h].T), compute_uv=False)
            assert np.sqrt(widths[0]) == pytest.approx(longest, rel=0.1)
            assert np.sqrt(widths[-1]) == pytest.approx(1.0, rel=0.1)


@needs_data
def test_folder_from_environment_and_folder_that_is_uci_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(DATA))
    expected = load("glass")
    assert np.array_equal(expected.features, load("glass", DATA / "uci").features)
    with pytest.raises(DataNotFoundError):  # the argument wins over the environment
        load("glass", tmp_path)


@needs_data
def test_uncompressed_file_as_uci_publishes_it(tmp_path: Path) -> None:
    text = gzip.decompress((DATA / "uci" / "letter-recognition.data.gz").read_bytes())
    (tmp_path / "letter-recognition.data").write_bytes(text)
    assert 2263 == load("letters-ijl", tmp_path).n_points


def test_available_lists_everything_in_one_line() -> None:
    listing = available()
    assert [*EMBEDDED, *FILES, *DRAWN] == list(listing)
    for name, text in listing.items():
        assert "\n" not in text
        assert text.endswith("[needs the data folder]" if name in FILES else "[embedded]")
        n_features, counts = {**EMBEDDED, **FILES, **DRAWN}[name]
        assert f"{sum(counts.values())} x {n_features}, {len(counts)} classes" in text


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("digits389", "digits-389"), ("letters_ijl", "letters-ijl"), ("Iris", "iris")],
)
def test_unknown_name_gets_a_hint(wrong: str, right: str) -> None:
    with pytest.raises(UnknownDatasetError, match=f"did you mean '{right}'.*ionosphere"):
        load(wrong)


def test_unknown_name_without_a_neighbour_lists_all() -> None:
    with pytest.raises(UnknownDatasetError, match="'zzz'; valid names: iris, wine,"):
        load("zzz")


def test_missing_folder_and_missing_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(DATA_VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remedy = rf".*https://archive.ics.uci.edu.*--data-dir or \${DATA_VARIABLE}"
    with pytest.raises(DataNotFoundError, match=r"uci/glass.data is missing.*cache" + remedy):
        load("glass")
    with pytest.raises(FileNotFoundError, match=r"pendigits.tra is .*hold it.*fetch p" + remedy):
        load("pendigits-389", tmp_path)
    with pytest.raises(DataNotFoundError, match=re.escape(f"{tmp_path / 'no'} is not a folder")):
        load("glass", tmp_path / "no")


def balance_lines() -> list[str]:
    """Write a file of the real size, counting through the columns as the real one does."""
    digits = range(1, 6)
    return [f"L,{a},{b},{c},{d}" for a in digits for b in digits for c in digits for d in digits]


@pytest.mark.parametrize(
    ("at", "line", "message"),
    [
        (3, "L,1,1,1", "line 4: 4 columns; 5 are expected"),
        (0, "L,1,1,one,1", "line 1: 'one' in column 4 is not a finite number"),
        (1, "L,1,1,1,nan", "line 2: 'nan' in column 5"),
        (9, "Q,1,1,1,1", "line 10: unknown class 'Q' in column 1; the classes are B, L, R"),
        (2, "", "624 rows, the last one in line 625; 625 rows are expected"),
        (5, "L,1,1,1,é", "unreadable: 'ascii' codec can't decode byte 0xc3 in position 58"),
    ],
)
def test_corrupt_line(tmp_path: Path, at: int, line: str, message: str) -> None:
    path = tmp_path / "uci" / "balance-scale.data"
    path.parent.mkdir()
    lines = balance_lines()
    path.write_text("\n".join(lines) + "\n")
    assert (625, 4) == load("balance", tmp_path).features.shape
    lines[at] = line
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(DataFormatError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        load("balance", tmp_path)


def test_corrupt_gzip(tmp_path: Path) -> None:
    path = tmp_path / "balance-scale.data.gz"
    packed = gzip.compress("\n".join(balance_lines()).encode())
    flipped = bytearray(packed)
    flipped[40:60] = bytes(20)
    for damaged in (b"not gzip at all", packed[: len(packed) // 2], bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(DataFormatError, match=re.escape(str(path))):
            load("balance", tmp_path)


def test_import_does_not_pull_in_scikit_learn() -> None:
    import subprocess
    import sys

    code = "import sys, inference_lab.data.datasets; sys.exit('sklearn' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
