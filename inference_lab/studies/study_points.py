"""Points that studies cluster: data sets by name, each with a distortion measure."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from inference_lab.data.corpus import latent_semantics
from inference_lab.data.datasets import available, load
from inference_lab.data.gaussians import labels_by_share
from inference_lab.data.texts import corpora, load_corpus
from inference_lab.graph.arrays import IntArray
from inference_lab.reports.patterns import PATTERNS, four_clouds
from inference_lab.reports.textures import mosaic
from inference_lab.studies.definition import StudyError

#: Texture mosaics that share one ground truth.
_MOSAICS = ("outex-000", "outex-001", "outex-017", "outex-042")
_LSI = 20
#: Suffix of texts with all terms that occur in two documents or more, instead of five.
_WIDE = "-wide"
#: Suffixes for the ratio of the toy's height to its width; 2 without a number.
_RATIOS = ("", "-1.1", "-1.2", "-1.4", "-1.6", "-1.8")
#: Points for which methods receive a wrong number of classes, such as ``, k+1``.
_CLASS_ERROR = re.compile(r"(.+), k([+-]\d+)")
#: A random subset of points, a larger sample from estimated densities, and features of unit
#: variance.
_DRAWN = re.compile(r"(.+), n=(\d+)")
_ENLARGED = re.compile(r"(.+), enlarged to (\d+)")
_STANDARDISED = ", standardised"


@dataclass(frozen=True)
class StudyPoints:
    """Points with their classes."""

    name: str
    values: Any
    labels: IntArray
    distortion: str = "euclidean"
    declared: int | None = None
    few: int | None = None

    def drawn(self, rng: np.random.Generator) -> StudyPoints:
        """Return the points of a run; classes without drawn points are removed."""
        n = len(self.labels)
        if self.few is None or self.few >= n:
            return self
        rows = np.sort(rng.permutation(n)[: self.few])
        labels = np.unique(self.labels[rows], return_inverse=True)[1].astype(np.int64)
        return replace(self, values=self.values[rows], labels=labels, few=None)

    @property
    def n_classes(self) -> int:
        """Number of classes that methods receive."""
        return int(self.labels.max()) + 1 if self.declared is None else self.declared

    @property
    def key(self) -> int:
        """Return a number for seeds that depends on the points only."""
        name, _ = split_name(self.name)
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def split_name(name: str) -> tuple[str, int]:
    """Return the name of the unmodified points, and the error of the number of classes.

    The error is added to the number of classes that methods receive.
    """
    for size in (_DRAWN, _ENLARGED):
        if match := size.fullmatch(name):
            name = match[1]
    name = name.removesuffix(_STANDARDISED)
    match = _CLASS_ERROR.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def _toy(name: str, data_dir: str | None) -> StudyPoints:
    ratio = name.removeprefix("lange-toy").removeprefix("-")
    return StudyPoints(name, *four_clouds(ratio=float(ratio or 2.0)))


def _table(name: str, data_dir: str | None) -> StudyPoints:
    dataset = load(name, data_dir)
    return StudyPoints(name, dataset.features, dataset.labels)


def _glass_with_id(name: str, data_dir: str | None) -> StudyPoints:
    # Methods receive 7 classes because the file describes seven, one of them without points.
    return replace(_table(name, data_dir), declared=7)


def _pattern(name: str, data_dir: str | None) -> StudyPoints:
    return StudyPoints(name, *PATTERNS[name]())


def _tenth(name: str, data_dir: str | None) -> StudyPoints:
    """Return a random tenth of a data set, drawn with a fixed seed."""
    dataset = load(name.removesuffix("-tenth"), data_dir)
    n = dataset.n_points
    rows = np.sort(np.random.default_rng(0).permutation(n)[: round(n / 10)])
    return StudyPoints(name, dataset.features[rows], dataset.labels[rows])


def _text(name: str, data_dir: str | None, form: str = "weights") -> StudyPoints:
    plain = name.removesuffix(_WIDE).removesuffix("-counts").removesuffix(f"-lsi{_LSI}")
    corpus = load_corpus(plain, data_dir)
    if form == "counts":
        pruned = corpus.pruned()
        return StudyPoints(name, pruned.values, pruned.labels, "kl")
    weighted = corpus.weighted(fewest=2) if name.endswith(_WIDE) else corpus.weighted()
    if form == "lsi":
        return StudyPoints(name, latent_semantics(weighted.values, _LSI), weighted.labels)
    return StudyPoints(name, weighted.values, weighted.labels, "cosine")


def _mosaic(name: str, data_dir: str | None) -> StudyPoints:
    return StudyPoints(name, *mosaic(name.removeprefix("outex-"), data_dir))


def known_points() -> Mapping[str, Callable[[str, str | None], StudyPoints]]:
    """Return the loaders of all points that `load_points` knows, by name.

    * the names of `inference_lab.data.datasets`;
    * ``letters-ijl-tenth`` and ``pendigits-389-tenth``, a tenth of these, as in the papers;
    * the names of `inference_lab.data.texts` for TF-IDF weights with the cosine distance;
      ``-counts`` for counts with the Kullback-Leibler divergence; ``-lsi20`` for the 20 largest
      singular directions of the weights; ``-wide`` for terms of two documents or more;
    * ``outex-000`` and similar names, texture features of 101 x 101 sites of a mosaic;
    * ``lange-toy``, with ``-1.1`` to ``-1.8`` for other ratios of its sides, and ``two-spirals``
      and similar patterns, see `inference_lab.reports.patterns`.
    """
    loaders: dict[str, Callable[[str, str | None], StudyPoints]] = {}
    loaders.update(dict.fromkeys(available(), _table))
    loaders.update(dict.fromkeys(("letters-ijl-tenth", "pendigits-389-tenth"), _tenth))
    for name in corpora():
        loaders[name] = _text
        loaders[f"{name}-counts"] = partial(_text, form="counts")
        loaders[f"{name}-lsi{_LSI}"] = partial(_text, form="lsi")
        loaders[f"{name}{_WIDE}"] = _text
    loaders.update(dict.fromkeys(_MOSAICS, _mosaic))
    loaders.update(dict.fromkeys((f"lange-toy{ratio}" for ratio in _RATIOS), _toy))
    loaders["glass-with-id"] = _glass_with_id
    loaders.update(dict.fromkeys(PATTERNS, _pattern))
    return loaders


def _measured(
    name: str, data_dir: str | os.PathLike[str] | None, asked: str, verb: str
) -> StudyPoints:
    """Load points that are a table of numbers; raise `StudyError` for others."""
    points = load_points(name, data_dir)
    if not isinstance(points.values, np.ndarray) or points.distortion != "euclidean":
        raise StudyError(f"data {asked!r}: only tables of numbers can be {verb}")
    return points


def _enlarged(points: StudyPoints, n: int) -> StudyPoints:
    """Return n points from an estimate of each class's density, with its share of the points.

    The smoothed bootstrap (Silverman 1986, sec. 6.4.1) draws a point of the class and adds noise
    with the covariance of the class times h^2. The sum is rescaled to keep the mean and covariance.
    The rule for Gaussian kernels (4.14) gives a wide h: classes keep their shape, not single
    points.
    """
    rng = np.random.default_rng(0)
    labels = labels_by_share(rng, np.bincount(points.labels), n)
    dimensions = points.values.shape[1]
    values = np.empty((n, dimensions))
    for label in np.unique(points.labels).tolist():
        of_class = points.values[points.labels == label]
        here = np.flatnonzero(labels == label)
        mean = of_class.mean(axis=0)
        h = (4.0 / ((dimensions + 2) * len(of_class))) ** (1.0 / (dimensions + 4))
        covariance = np.atleast_2d(np.cov(of_class, rowvar=False, bias=True))
        # Not checked because the covariance of a class of few points is singular up to rounding.
        noise = rng.multivariate_normal(
            np.zeros(dimensions), covariance, size=here.size, check_valid="ignore"
        )
        centres = of_class[rng.integers(len(of_class), size=here.size)]
        values[here] = mean + (centres - mean + h * noise) / np.sqrt(1.0 + h * h)
    return replace(points, values=values, labels=labels)


def load_points(name: str, data_dir: str | os.PathLike[str] | None = None) -> StudyPoints:
    """Load the points of a study."""
    if match := _DRAWN.fullmatch(name):
        if int(match[2]) < 2:
            raise StudyError(f"data {name!r}: at least 2 points are to be drawn")
        return replace(load_points(match[1], data_dir), name=name, few=int(match[2]))
    if match := _ENLARGED.fullmatch(name):
        points = _measured(match[1], data_dir, name, "enlarged")
        if int(match[2]) < len(points.labels):
            raise StudyError(f"data {name!r}: there are {len(points.labels)} points already")
        return replace(_enlarged(points, int(match[2])), name=name)
    if name.endswith(_STANDARDISED):
        points = _measured(name.removesuffix(_STANDARDISED), data_dir, name, "standardised")
        spread = points.values.std(axis=0)
        values = (points.values - points.values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return replace(points, name=name, values=values)
    loaders = known_points()
    plain, more = split_name(name)
    if plain not in loaders:
        raise StudyError(f"data {plain!r} are unknown; allowed: {', '.join(loaders)}")
    points = loaders[plain](plain, None if data_dir is None else os.fspath(data_dir))
    if not more:
        return points
    if points.n_classes + more < 1:
        raise StudyError(f"data {name!r} have {points.n_classes} classes: none would be left")
    return replace(points, name=name, declared=points.n_classes + more)
