"""Image segmentation: regions by colour, with a prior that favours edges as borders."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.centroids import (
    kmeans_centroids,
    numbered_like,
    squared_distances,
)
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.folders import find_file
from inference_lab.data.images import (
    EMBEDDED,
    Image,
    ImageProblem,
    draw_shapes,
    draw_texture,
    label_colours,
    load_image,
    read_image,
)
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.problem import ProblemFamily
from inference_lab.specs.settings import setting

#: Colour models are fitted to at most this many pixels of a region, drawn at random.
_FITTED = 10_000
#: Added to variances, in units of the squared range of colours: the rounding of 8 bits.
_FLOOR = 1.0 / 255.0**2


@dataclass(frozen=True)
class SegmentationProblem(ImageProblem):
    """A segmentation problem."""

    #: Whether labels are given regions, and not clusters in any order.
    named: bool = True

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare regions with the true ones."""
        scores = super().score(labels)
        if self.truth is None or not self.named:
            return scores
        pixels = slice(None) if self.scored is None else self.scored
        truth, regions = self.truth[pixels], self.graph.check_labels(labels)[pixels]
        k = int(self.graph.n_labels or 1)
        both = np.bincount(truth[truth == regions], minlength=k)
        either = np.bincount(truth, minlength=k) + np.bincount(regions, minlength=k) - both
        there = either > 0
        return {
            **scores,
            "misclassified": float((truth != regions).mean()),
            "iou": float((both[there] / either[there]).mean()),
        }


@dataclass(frozen=True)
class Segmentation(ProblemFamily):
    """Energies ``sum_i -log p(f_i | x_i) + sum_ij w_ij [x_i != x_j]``.

    ``w_ij = weight exp(-|I_i - I_j|^2 / (2 <|I_i - I_j|^2>)) / dist(i, j)`` for pixels that touch,
    diagonally too, with the mean over all such pairs: a border is cheap where the colour changes.
    ``f`` are the colours.

    Parameters
    ----------
    image : str
        ``shapes`` (coloured by `seed`), ``china`` or ``flower`` (photographs that come with
        scikit-learn), or a file, see `inference_lab.data.folders.find_file`.
    truth : str, optional
        Ground truth: an image in which each region has a value, or a ``.mat`` file of the
        Berkeley data set. Default: the file of that kind beside the image, or ``gt.png`` there.
    annotator : int
        Number of the segmentation in a ``.mat`` file.
    regions : int
        Number of labels. The ground truth is made of as many of its largest regions, the largest
        first; the pixels of others do not count in scores.
    models : {"scribbles", "kmeans"}
        Where ``p`` comes from. "scribbles": a mixture of normal distributions fitted to a random
        share of the pixels of each true region, which are thereby given.
        "kmeans" uses no truth: one normal distribution a region, round and of equal size, around
        the centroids.
    share : float in (0, 1]
        Share of the pixels that are scribbled on.
    hard : bool
        Forbid other labels where a scribble gives one.
    components : int
        Normal distributions a region, for scribbles; fewer where few pixels are given.
    weight : float
    diagonals : bool
        8 neighbours, or 4.
    height, width : int
        Size of drawn images.
    seed : int
        Seeds the drawn image, the scribbles, and the fitting.

    References
    ----------
    Y. Boykov, M.-P. Jolly, "Interactive graph cuts for optimal boundary and region segmentation of
    objects in N-D images", ICCV 2001, eq. 1-3. P. Arbelaez et al., "Contour detection and
    hierarchical image segmentation", PAMI 33(5), 2011 (the Berkeley data set).

    Examples
    --------
    >>> problem = Segmentation(height=24, width=32).build()
    >>> problem.graph
    FactorGraph(768 variables x 2 labels; terms: 2906 Potts)
    >>> problem.score(problem.truth)["misclassified"]
    0.0
    """

    image: str = setting("shapes", always=True)
    truth: str | None = None
    annotator: int = setting(0, at_least=0)
    regions: int = setting(2, at_least=2)
    models: Literal["scribbles", "kmeans"] = "scribbles"
    share: float = setting(0.02, above=0, at_most=1)
    hard: bool = True
    components: int = setting(3, at_least=1)
    weight: float = setting(20.0, at_least=0, below=math.inf)
    diagonals: bool = True
    height: int = setting(96, at_least=1)
    width: int = setting(128, at_least=1)
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.truth is not None and self.image == "shapes":
            raise ValueError("truth is a setting of files; image=shapes has its own")

    def build(self, data_dir: Path | None = None) -> SegmentationProblem:
        """Read or draw the image, fit the models, and set up the energy."""
        draw, fit = np.random.default_rng(self.seed).spawn(2)
        image, segments = self._input(draw, data_dir)
        height, width = image.shape[:2]
        truth, scored = None, None
        if segments is not None:
            truth, scored = self._main_regions(segments)
        elif self.models == "scribbles":
            raise ValueError(f"models=scribbles needs a ground truth, and {self.image} has none")
        colours = image.reshape(height * width, -1) / 255.0
        if self.models == "kmeans" or truth is None:
            unary = _clustered(colours, self.regions, fit)
            if truth is not None:
                pixels = slice(None) if scored is None else scored
                order = numbered_like(unary[pixels].argmin(axis=1), truth[pixels], self.regions)
                unary = np.ascontiguousarray(unary[:, order])
        else:
            unary = self._supervised(colours, truth, scored, fit)
        edges = grid_edges(height, width, diagonals=self.diagonals)
        weights = self.weight * contrast(colours, edges, width)
        return SegmentationProblem(
            self.spec,
            FactorGraph.from_terms(unary, [DiagonalTerms(edges, 0.0, weights)]),
            truth=truth,
            scored=scored,
            info={"given": int(np.isinf(unary).any(axis=1).sum())},
            shape=(height, width),
            palette=label_colours(self.regions),
            named=self.models == "scribbles",
        )

    # ------------------------------------------------------------------ image and truth

    def _input(
        self, rng: np.random.Generator, data_dir: Path | None
    ) -> tuple[Image, IntArray | None]:
        """Return the image and the segments of the ground truth."""
        if self.image == "shapes":
            return self._draw(rng)
        image = load_image(self.image, data_dir)
        place = self._truth_path(data_dir)
        if place is None:
            return image, None
        segments = _read_segments(place, self.annotator)
        if segments.shape != image.shape[:2]:
            raise ValueError(
                f"{place} has {segments.shape[0]} x {segments.shape[1]} pixels, but {self.image} "
                f"has {image.shape[0]} x {image.shape[1]}"
            )
        return image, segments

    def _truth_path(self, data_dir: Path | None) -> Path | None:
        if self.truth is not None:
            return find_file(self.truth, data_dir)
        if self.image in EMBEDDED:
            return None
        image = find_file(self.image, data_dir)
        beside = (image.with_suffix(".mat"), image.with_name("gt.png"))
        return next((place for place in beside if place.is_file()), None)

    def _draw(self, rng: np.random.Generator) -> tuple[Image, IntArray]:
        """Draw textured shapes whose colours differ, but not by much more than the texture."""
        height, width = self.height, self.width
        shapes = draw_shapes(height, width, self.regions - 1, rng)
        # Corners of a grid of colours, so that no two regions have the same colour.
        side = math.ceil(self.regions ** (1 / 3)) if self.regions > 8 else 2
        cell = rng.permutation(side**3)[: self.regions]
        steps = np.stack(np.unravel_index(cell, (side,) * 3), axis=1) / (side - 1)
        colour = 128.0 + 40.0 * (2.0 * steps - 1.0)
        channels = [
            0.8 * (draw_texture(height, width, rng, grain=0.7).astype(np.float64) - 128.0)
            for _ in range(3)
        ]
        image = colour[shapes] + np.stack(channels, axis=2)
        return np.clip(np.rint(image), 0, 255).astype(np.uint8), shapes

    def _main_regions(self, segments: IntArray) -> tuple[IntArray, IntArray | None]:
        """Return the truth, made of the largest segments by size, and the pixels that count."""
        values, number = np.unique(segments.ravel(), return_inverse=True)
        sizes = np.bincount(number)
        if len(values) < self.regions:
            raise ValueError(
                f"the ground truth has {len(values)} regions, fewer than regions={self.regions}"
            )
        order = np.argsort(-sizes, kind="stable")
        rank = np.empty(len(values), dtype=np.int64)
        rank[order] = np.arange(len(values))
        truth = rank[number]
        if len(values) == self.regions:
            return truth, None
        counted = np.flatnonzero(truth < self.regions)
        # The other pixels need some label to have an energy.
        truth[truth >= self.regions] = 0
        return truth, counted

    # ------------------------------------------------------------------ models

    def _supervised(
        self,
        features: FloatArray,
        truth: IntArray,
        scored: IntArray | None,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Fit a mixture to the given pixels of each region."""
        inside = np.arange(truth.size) if scored is None else scored
        seeds = np.full(truth.size, -1, dtype=np.int64)
        fitted: list[IntArray] = []
        for region in range(self.regions):
            members = inside[truth[inside] == region]
            count = min(members.size, max(self.components, round(self.share * members.size)))
            fitted.append(rng.choice(members, count, replace=False))
            seeds[fitted[-1]] = region
        unary = np.stack([self._mixture(features, f, rng) for f in fitted], axis=1)
        if self.hard:
            rows = np.flatnonzero(seeds >= 0)
            costs = unary[rows, seeds[rows]]
            unary[rows] = np.inf
            unary[rows, seeds[rows]] = costs
        return unary

    def _mixture(
        self, features: FloatArray, members: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return ``-log p`` of all pixels under a mixture fitted to some."""
        if members.size > _FITTED:
            members = rng.choice(members, _FITTED, replace=False)
        # A covariance of fewer than four points for each dimension would overfit.
        limit = members.size // (4 * (features.shape[1] + 1))
        model = _fit_mixture(features[members], max(1, min(self.components, limit)), rng)
        return -np.asarray(model.score_samples(features), dtype=np.float64)


def contrast(colours: FloatArray, edges: IntArray, width: int) -> FloatArray:
    """Return ``exp(-|I_i - I_j|^2 / (2 mean)) / dist(i, j)`` of each edge."""
    squares = ((colours[edges[:, 0]] - colours[edges[:, 1]]) ** 2).sum(axis=1)
    mean = float(squares.mean()) if len(edges) else 0.0
    row, column = np.divmod(edges, width)
    distance = np.hypot(row[:, 0] - row[:, 1], column[:, 0] - column[:, 1])
    return np.asarray(np.exp(-squares / (2.0 * mean if mean > 0.0 else 1.0)) / distance)


def _fit_mixture(features: FloatArray, components: int, rng: np.random.Generator) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(
        components,
        covariance_type="full",
        reg_covar=_FLOOR,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # A fit that could still improve, or with fewer colours than components, is good enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if len(features) < 2:  # one pixel has no covariance to be fitted
            features = np.repeat(features, 2, axis=0)
        return model.fit(features)


def _clustered(features: FloatArray, regions: int, rng: np.random.Generator) -> FloatArray:
    """Return ``-log p`` of all pixels under clusters found without a ground truth."""
    members = np.arange(len(features))
    if members.size > _FITTED * 2:
        members = rng.choice(members, _FITTED * 2, replace=False)
    if members.size < regions:
        raise ValueError(f"{len(features)} pixels do not make {regions} regions")
    distances = squared_distances(features, kmeans_centroids(features[members], regions, rng))
    variance = float(distances.min(axis=1).mean()) / features.shape[1]
    return np.asarray(distances / (2.0 * max(variance, _FLOOR)))


def _read_segments(path: Path, annotator: int) -> IntArray:
    """Read the numbers of the regions from a Berkeley file, or from the values of an image."""
    if path.suffix.lower() != ".mat":
        image = read_image(path).astype(np.int64)
        return image if image.ndim == 2 else np.asarray(image @ np.array([65536, 256, 1]))
    from scipy.io import loadmat

    try:
        cells = loadmat(path, spmatrix=False)["groundTruth"].ravel()
        maps = [np.asarray(cell["Segmentation"][0, 0]) for cell in cells]
    # Damaged files raise various errors; an OSError is kept, because the file cannot be opened.
    except (KeyError, ValueError, TypeError, IndexError, NotImplementedError) as problem:
        raise DataFormatError(f"{path}: no segmentations of the Berkeley data set") from problem
    if annotator >= len(maps):
        raise ValueError(f"{path} has {len(maps)} segmentations, so none of number {annotator}")
    return np.asarray(maps[annotator], dtype=np.int64)
