"""Labelled data sets for the clustering experiments: ``load("iris")`` and its siblings.

Small sets come with scikit-learn, and mixtures of Gaussians are drawn; the others are the UCI
files, read as UCI publishes them (plain or gzipped) from ``<data folder>/uci`` or from the folder
itself.  No preprocessing.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.data.folders import DATA_VARIABLE, data_folder
from inference_lab.data.gaussians import MIXTURES, Mixture

__all__ = [
    "DATA_VARIABLE",
    "DataFormatError",
    "DataNotFoundError",
    "Dataset",
    "UnknownDatasetError",
    "available",
    "load",
]

_PathLike: TypeAlias = "str | os.PathLike[str]"


class DataNotFoundError(FileNotFoundError):
    """A data set needs a file that is not there; the message says which, and where to get it."""


class DataFormatError(ValueError):
    """A data file is damaged or is not the file it should be; names the file and the line."""


class UnknownDatasetError(ValueError):
    """No data set has this name; the message lists the valid ones."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labelled data set.

    Attributes
    ----------
    name : str
        Canonical name, as in `available`.
    features : ndarray of float64, shape (n, d)
        Unscaled attributes, read-only, finite.
    labels : ndarray of int64, shape (n,)
        Classes ``0..K-1``, each of which occurs; read-only.
    class_names : tuple of str, length K
        ``class_names[labels[i]]`` is the class of point ``i`` as the source spells it.
    source : str
        Where the data come from.
    """

    name: str
    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Protect the arrays: data sets are shared between runs."""
        self.features.setflags(write=False)
        self.labels.setflags(write=False)

    @property
    def n_points(self) -> int:
        """Number of points n."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Number of attributes d."""
        return int(self.features.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.class_names)

    def __repr__(self) -> str:
        """Name and sizes only."""
        return (
            f"Dataset({self.name!r}, n_points={self.n_points}, n_features={self.n_features}, "
            f"n_classes={self.n_classes})"
        )


@dataclass(frozen=True)
class _Embedded:
    """A data set inside scikit-learn: the loader's name, and the classes to keep (all if empty)."""

    description: str
    loader: str
    keep: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Files:
    """A data set in UCI text files, one point a line.

    ``label`` and ``ignored`` are column numbers of the file; ``classes`` are all codes that the
    file may hold, ``keep`` those that the data set consists of (all if empty), and ``names`` what
    these are called (as their codes if empty).
    """

    description: str
    files: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    label: int
    classes: tuple[str, ...]
    url: str
    keep: tuple[str, ...] = ()
    ignored: tuple[int, ...] = ()
    separator: str | None = ","  # None: blanks
    header: int = 0  # lines before the points
    names: tuple[str, ...] = ()  # what the classes are called, where codes do not say it

    @property
    def kept(self) -> tuple[str, ...]:
        return self.keep or self.classes


@dataclass(frozen=True)
class _Drawn:
    """A data set that is drawn, always the same."""

    description: str
    mixture: Mixture


_UCI = "https://archive.ics.uci.edu/dataset"

_REGISTRY: dict[str, _Embedded | _Files | _Drawn] = {
    "iris": _Embedded("iris flowers, 150 x 4, 3 classes (UCI, corrected version)", "load_iris"),
    "wine": _Embedded("Italian wines, 178 x 13, 3 classes (UCI)", "load_wine"),
    "breast-cancer": _Embedded(
        "Wisconsin diagnostic breast cancer, 569 x 30, 2 classes (UCI)", "load_breast_cancer"
    ),
    "digits-389": _Embedded(
        "8 x 8 images of the digits 3, 8 and 9, 537 x 64, 3 classes (UCI optdigits, test part)",
        "load_digits",
        keep=(3, 8, 9),
    ),
    "letters-ijl": _Files(
        "letters I, J and L of letter-recognition, 2263 x 16, 3 classes (UCI)",
        files=("letter-recognition.data",),
        rows=(20_000,),
        columns=17,
        label=0,
        classes=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        keep=("I", "J", "L"),
        url=f"{_UCI}/59/letter+recognition",
    ),
    "pendigits-389": _Files(
        "pen-written digits 3, 8 and 9, 3165 x 16, 3 classes (UCI, both parts)",
        files=("pendigits.tra", "pendigits.tes"),
        rows=(7494, 3498),
        columns=17,
        label=16,
        classes=tuple("0123456789"),
        keep=("3", "8", "9"),
        url=f"{_UCI}/81/pen+based+recognition+of+handwritten+digits",
    ),
    "ecoli": _Files(
        "protein localisation sites, 336 x 7, 8 classes (UCI)",
        files=("ecoli.data",),
        rows=(336,),
        columns=9,
        label=8,
        classes=("cp", "im", "imL", "imS", "imU", "om", "omL", "pp"),
        ignored=(0,),  # the name of the sequence
        separator=None,
        url=f"{_UCI}/39/ecoli",
    ),
    "glass": _Files(
        "glass identification, 214 x 9, 6 classes (UCI, without the Id column)",
        files=("glass.data",),
        rows=(214,),
        columns=11,
        label=10,
        classes=("1", "2", "3", "5", "6", "7"),  # class 4 does not occur
        ignored=(0,),  # a running number; rows are sorted by class, so it leaks the labels
        url=f"{_UCI}/42/glass+identification",
    ),
    "glass-with-id": _Files(
        "glass as above with the Id column, 214 x 10, 6 classes (UCI; as some papers have used it)",
        files=("glass.data",),
        rows=(214,),
        columns=11,
        label=10,
        classes=("1", "2", "3", "5", "6", "7"),
        url=f"{_UCI}/42/glass+identification",
    ),
    "balance": _Files(
        "balance scale, 625 x 4, 3 classes (UCI)",
        files=("balance-scale.data",),
        rows=(625,),
        columns=5,
        label=0,
        classes=("B", "L", "R"),
        url=f"{_UCI}/12/balance+scale",
    ),
    "ionosphere": _Files(
        "radar returns from the ionosphere, 351 x 34, 2 classes (UCI; the second column is all 0)",
        files=("ionosphere.data",),
        rows=(351,),
        columns=35,
        label=34,
        classes=("b", "g"),
        url=f"{_UCI}/52/ionosphere",
    ),
    "seeds": _Files(
        "wheat kernels, 210 x 7, 3 classes (UCI)",
        files=("seeds_dataset.txt",),
        rows=(210,),
        columns=8,
        label=7,
        classes=("1", "2", "3"),
        names=("Kama", "Rosa", "Canadian"),
        separator=None,
        url=f"{_UCI}/236/seeds",
    ),
    "new-thyroid": _Files(
        "thyroid function, 215 x 5, 3 classes (UCI)",
        files=("new-thyroid.data",),
        rows=(215,),
        columns=6,
        label=0,
        classes=("1", "2", "3"),
        names=("normal", "hyper", "hypo"),
        url=f"{_UCI}/102/thyroid+disease",
    ),
    "vertebral": _Files(
        "vertebral column, 310 x 6, 3 classes (UCI)",
        files=("column_3C.dat",),
        rows=(310,),
        columns=7,
        label=6,
        classes=("DH", "NO", "SL"),
        separator=None,
        url=f"{_UCI}/212/vertebral+column",
    ),
    "sonar": _Files(
        "sonar returns of mines and rocks, 208 x 60, 2 classes (UCI)",
        files=("sonar.all-data",),
        rows=(208,),
        columns=61,
        label=60,
        classes=("M", "R"),
        url=f"{_UCI}/151/connectionist+bench+sonar+mines+vs+rocks",
    ),
    "zoo": _Files(
        "animals, 101 x 16, 7 classes (UCI, without their names)",
        files=("zoo.data",),
        rows=(101,),
        columns=18,
        label=17,
        classes=tuple("1234567"),
        ignored=(0,),
        url=f"{_UCI}/111/zoo",
    ),
    "soybean-small": _Files(
        "soybean diseases, 47 x 35, 4 classes (UCI)",
        files=("soybean-small.data",),
        rows=(47,),
        columns=36,
        label=35,
        classes=("0", "1", "10", "11"),  # D1 to D4 in the file of UCI
        names=("D1", "D2", "D3", "D4"),
        url=f"{_UCI}/91/soybean+small",
    ),
    "dermatology": _Files(
        "erythemato-squamous diseases, 366 x 33, 6 classes (UCI, without the age)",
        files=("dermatology.data",),
        rows=(366,),
        columns=35,
        label=34,
        classes=tuple("123456"),
        ignored=(33,),  # unknown in 8 rows, which some copies have filled in with other numbers
        url=f"{_UCI}/33/dermatology",
    ),
    "segmentation": _Files(
        "3 x 3 regions of outdoor images, 2100 x 18, 7 classes (UCI, test part: the 210 points of "
        "the other part are all in it; without the constant feature)",
        files=("segmentation.test",),
        rows=(2100,),
        columns=20,
        label=0,
        classes=("BRICKFACE", "CEMENT", "FOLIAGE", "GRASS", "PATH", "SKY", "WINDOW"),
        ignored=(3,),  # the number of pixels, always 9
        header=5,
        url=f"{_UCI}/50/image+segmentation",
    ),
    "vowel": _Files(
        "steady vowels of fifteen speakers, 990 x 10, 11 classes (UCI)",
        files=("vowel-context.data",),
        rows=(990,),
        columns=14,
        label=13,
        classes=tuple(str(code) for code in range(11)),
        ignored=(0, 1, 2),  # which part, which speaker, which sex
        url=f"{_UCI}/152/connectionist+bench+vowel+recognition+deterding+data",
    ),
    "satellite": _Files(
        "3 x 3 pixels of Landsat images, 6435 x 36, 6 classes (UCI, both parts)",
        files=("sat.trn", "sat.tst"),
        rows=(4435, 2000),
        columns=37,
        label=36,
        classes=("1", "2", "3", "4", "5", "7"),  # class 6 does not occur
        separator=None,
        url=f"{_UCI}/146/statlog+landsat+satellite",
    ),
    "banknote": _Files(
        "wavelets of images of banknotes, 1372 x 4, 2 classes (UCI)",
        files=("data_banknote_authentication.txt",),
        rows=(1372,),
        columns=5,
        label=4,
        classes=("0", "1"),
        url=f"{_UCI}/267/banknote+authentication",
    ),
    "movement-libras": _Files(
        "hand movements, 360 x 90, 15 classes (UCI)",
        files=("movement_libras.data",),
        rows=(360,),
        columns=91,
        label=90,
        classes=tuple(str(code) for code in range(1, 16)),
        url=f"{_UCI}/181/libras+movement",
    ),
    "optdigits": _Files(
        "8 x 8 images of digits, 5620 x 64, 10 classes (UCI, both parts; the digits of "
        "scikit-learn are the second)",
        files=("optdigits.tra", "optdigits.tes"),
        rows=(3823, 1797),
        columns=65,
        label=64,
        classes=tuple("0123456789"),
        url=f"{_UCI}/80/optical+recognition+of+handwritten+digits",
    ),
    **{
        name: _Drawn(
            f"{mixture.description}, {mixture.points} x {mixture.features}, "
            f"{mixture.classes} classes (drawn)",
            mixture,
        )
        for name, mixture in MIXTURES.items()
    },
}


def available() -> dict[str, str]:
    """Return the names that `load` knows, each with a one-line description."""
    return {
        name: entry.description
        + (" [embedded]" if not isinstance(entry, _Files) else " [needs the data folder]")
        for name, entry in _REGISTRY.items()
    }


def load(name: str, data_dir: _PathLike | None = None, *, least: int = 0) -> Dataset:
    """Load a data set by name.

    References
    ----------
    UCI Machine Learning Repository, https://archive.ics.uci.edu (CC BY 4.0).
    """
    entry = _REGISTRY.get(name)
    if entry is None:
        close = get_close_matches(str(name).lower(), _REGISTRY, n=1, cutoff=0.5)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UnknownDatasetError(
            f"unknown data set {name!r}{hint}; valid names: {', '.join(_REGISTRY)}"
        )
    if isinstance(entry, _Embedded):
        return _load_embedded(name, entry)
    if isinstance(entry, _Drawn):
        features, labels = entry.mixture.draw(least=least)
        names = tuple(str(h) for h in range(entry.mixture.classes))
        return Dataset(name, features, labels, names, "drawn from a mixture of Gaussians")
    return _load_files(name, entry, data_dir)


def _load_embedded(name: str, entry: _Embedded) -> Dataset:
    """Take a data set out of scikit-learn, which is slow to import and therefore imported here."""
    from sklearn import datasets as sklearn_datasets

    bunch = getattr(sklearn_datasets, entry.loader)()
    features = np.array(bunch.data, dtype=np.float64)
    target = np.array(bunch.target, dtype=np.int64)
    class_names = tuple(str(c) for c in bunch.target_names)
    if entry.keep:
        rows = np.isin(target, entry.keep)
        features = features[rows]
        target = np.searchsorted(entry.keep, target[rows]).astype(np.int64)
        class_names = tuple(class_names[c] for c in entry.keep)
    return Dataset(
        name, features, target, class_names, f"scikit-learn, sklearn.datasets.{entry.loader}"
    )


def _load_files(name: str, entry: _Files, data_dir: _PathLike | None) -> Dataset:
    """Read the files of a data set one after the other and keep the wanted classes."""
    paths = _locate(name, entry, data_dir)
    features: list[list[float]] = []
    labels: list[int] = []
    wanted = {code: k for k, code in enumerate(entry.kept)}
    for path, expected in zip(paths, entry.rows, strict=True):
        found = 0
        line = 0
        for line, fields in _rows(path, entry):
            found += 1
            code = fields[entry.label]
            if code not in entry.classes:
                raise DataFormatError(
                    f"{path}, line {line}: unknown class {code!r} in column {entry.label + 1}; "
                    f"the classes are {', '.join(entry.classes)}"
                )
            values = _numbers(path, line, fields, entry)
            if code in wanted:
                features.append(values)
                labels.append(wanted[code])
        if found != expected:
            raise DataFormatError(
                f"{path}: {found} rows, the last one in line {line}; {expected} rows are expected"
            )
    return Dataset(
        name,
        np.array(features, dtype=np.float64),
        np.array(labels, dtype=np.int64),
        entry.names or entry.kept,
        f"UCI Machine Learning Repository, {entry.url}",
    )


def _locate(name: str, entry: _Files, data_dir: _PathLike | None) -> list[Path]:
    """Find the files of a data set, gzipped or plain."""
    root = data_folder(data_dir)
    remedy = (
        f"Give the folder that holds uci/ with --data-dir or ${DATA_VARIABLE}. "
        f"The file comes from the UCI Machine Learning Repository: {entry.url}"
    )
    if root is None:
        needed = " and ".join(f"uci/{file}[.gz]" for file in entry.files)
        raise DataNotFoundError(
            f"data set {name!r} needs {needed}, and no data folder is given. {remedy}"
        )
    paths = []
    for file in entry.files:
        candidates = [
            folder / (file + suffix) for folder in (root / "uci", root) for suffix in (".gz", "")
        ]
        path = next((p for p in candidates if p.is_file()), None)
        if path is None:
            where = f"{root} is no folder"
            if root.is_dir():
                where = f"{root / 'uci'} and {root} do not hold it"
            raise DataNotFoundError(
                f"data set {name!r} needs the file {file} or {file}.gz; {where}. {remedy}"
            )
        paths.append(path)
    return paths


def _rows(path: Path, entry: _Files) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the stripped fields of each line that is not blank."""
    line = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="ascii") as stream:
            for line, text in enumerate(stream, start=1):
                if line <= entry.header or not text.strip():
                    continue
                fields = [field.strip() for field in text.split(entry.separator)]
                if len(fields) != entry.columns:
                    raise DataFormatError(
                        f"{path}, line {line}: {len(fields)} columns; {entry.columns} are expected"
                    )
                yield line, fields
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataFormatError(f"{path}: unreadable after line {line}: {error}") from error


def _numbers(path: Path, line: int, fields: list[str], entry: _Files) -> list[float]:
    """Convert the attribute columns of a row."""
    values = []
    for column, field in enumerate(fields):
        if column == entry.label or column in entry.ignored:
            continue
        try:
            value = float(field)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise DataFormatError(
                f"{path}, line {line}: {field!r} in column {column + 1} is not a finite number"
            )
        values.append(value)
    return values
