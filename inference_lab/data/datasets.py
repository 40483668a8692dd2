"""Labelled data sets for the clustering experiments, such as ``load("iris")``.

Small sets come with scikit-learn, and mixtures of Gaussians are drawn; the others are the UCI
files, read as UCI publishes them (plain or gzipped) from ``<data folder>/uci`` or from the folder
itself.  No preprocessing.
"""

from __future__ import annotations

import importlib.resources
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from inference_lab.data.gaussians import MIXTURES, Mixture
from inference_lab.data.published import find_published, source_of
from inference_lab.formatting import nearest
from inference_lab.io._files import FormatError, read_bytes

_PathLike: TypeAlias = "str | os.PathLike[str]"


class DataFormatError(ValueError):
    """A data file is damaged or is not the file it should be; names the file and the line."""


class UnknownDatasetError(ValueError):
    """No data set has this name; the message lists the valid ones."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labelled data set.

    ``features`` (n, d) are unscaled and finite; ``labels`` (n,) are classes ``0..K-1``, each of
    which occurs. Both are read-only. ``class_names[labels[i]]`` is the class of point ``i`` as the
    source spells it; ``name`` is canonical, as in `available`.
    """

    name: str
    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Protect the arrays, because data sets are shared between runs."""
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
        """Return the name and the sizes."""
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
    """A data set in UCI text files, as ``uci.toml`` describes it.

    ``label`` and ``ignored`` are column numbers of the file; ``classes`` are all codes that the
    file may hold, ``keep`` the codes of the data set (all if empty), and ``names`` the names of
    these (the codes if empty).
    """

    description: str
    files: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    label: int
    classes: tuple[str, ...]
    keep: tuple[str, ...] = ()
    ignored: tuple[int, ...] = ()
    separator: str = ","
    header: int = 0
    names: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        return self.keep or self.classes


@dataclass(frozen=True)
class _Drawn:
    """A data set that is drawn, always the same."""

    description: str
    mixture: Mixture


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
    **msgspec.toml.decode(
        (importlib.resources.files(__package__) / "uci.toml").read_text("utf-8"),
        type=dict[str, _Files],
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
    """Return the names that `load` accepts, each with a one-line description."""
    return {
        name: entry.description
        + (" [embedded]" if not isinstance(entry, _Files) else " [needs the data folder]")
        for name, entry in _REGISTRY.items()
    }


def load(name: str, data_dir: _PathLike | None = None, *, least: int = 0) -> Dataset:
    """Load a data set by name, from https://archive.ics.uci.edu (CC BY 4.0) or drawn."""
    entry = _REGISTRY.get(name)
    if entry is None:
        raise UnknownDatasetError(
            f"unknown data set {name!r}{nearest(str(name), _REGISTRY)}; "
            f"valid names: {', '.join(_REGISTRY)}"
        )
    if isinstance(entry, _Embedded):
        return _load_embedded(name, entry)
    if isinstance(entry, _Drawn):
        features, labels = entry.mixture.draw(least=least)
        names = tuple(str(h) for h in range(entry.mixture.classes))
        return Dataset(name, features, labels, names, "drawn from a mixture of Gaussians")
    return _load_files(name, entry, data_dir)


def _load_embedded(name: str, entry: _Embedded) -> Dataset:
    """Load a data set of scikit-learn, which is imported here because it is slow to import."""
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
    features: list[list[float]] = []
    labels: list[int] = []
    wanted = {code: k for k, code in enumerate(entry.kept)}
    for file, expected in zip(entry.files, entry.rows, strict=True):
        path = find_published(f"uci/{file}", data_dir)
        n_rows = line = 0
        for line, text in enumerate(read_lines(path, "ascii"), start=1):
            if line <= entry.header or not text.strip():
                continue
            n_rows += 1
            code, values = _point(text, entry, f"{path}, line {line}")
            if code in wanted:
                features.append(values)
                labels.append(wanted[code])
        if n_rows != expected:
            raise DataFormatError(
                f"{path}: {n_rows} rows, the last one in line {line}; {expected} rows are expected"
            )
    return Dataset(
        name,
        np.array(features, dtype=np.float64),
        np.array(labels, dtype=np.int64),
        entry.names or entry.kept,
        f"UCI Machine Learning Repository, {source_of(f'uci/{entry.files[0]}')}",
    )


def read_lines(path: Path, encoding: str) -> list[str]:
    """Return the lines of a text file, plain or compressed."""
    try:
        return read_bytes(path).decode(encoding).splitlines()
    except (FormatError, UnicodeDecodeError) as error:
        raise DataFormatError(f"{path}: unreadable: {error}") from error


def _point(text: str, entry: _Files, where: str) -> tuple[str, list[float]]:
    """Return the class and the attributes in a line."""
    fields = [field.strip() for field in text.split(entry.separator or None)]
    if len(fields) != entry.columns:
        raise DataFormatError(f"{where}: {len(fields)} columns; {entry.columns} are expected")
    code = fields[entry.label]
    if code not in entry.classes:
        raise DataFormatError(
            f"{where}: unknown class {code!r} in column {entry.label + 1}; "
            f"the classes are {', '.join(entry.classes)}"
        )
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
                f"{where}: {field!r} in column {column + 1} is not a finite number"
            )
        values.append(value)
    return code, values
