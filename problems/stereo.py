"""Stereo matching: the disparity of each pixel of the left image of a rectified pair."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.data.images import (
    Image,
    ImageProblem,
    draw_shapes,
    draw_texture,
    grey_levels,
    read_image,
)
from inference_lab.data.published import find_published
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges, truncated_distances
from inference_lab.graph.terms import SharedTable
from inference_lab.problem import ProblemFamily
from inference_lab.specs.settings import setting


class Energy(NamedTuple):
    """The settings of the energy, as published for a pair."""

    labels: int
    cost: Literal["absolute", "squared"]
    data_cap: float
    smoothness: Literal["linear", "quadratic"]
    cap: float
    weight: float
    threshold: float
    factor: float


class Files(NamedTuple):
    """The files of a known pair in the data folder, and the scale of its disparities."""

    left: str
    right: str
    truth: str
    truth_right: str
    truth_scale: float


#: The energies of the Middlebury MRF benchmark (Szeliski et al. 2008), as its program was called.
BENCHMARK = {
    "tsukuba": Energy(16, "absolute", math.inf, "linear", 2.0, 20.0, 8.0, 2.0),
    "teddy": Energy(60, "absolute", 16.0, "linear", 1.0, 10.0, 10.0, 3.0),
}

PAIRS = {
    "tsukuba": Files("tsukuba_imL.png", "tsukuba_imR.png", "tsukuba_truedispL.png", "", 16.0),
    "teddy": Files("teddy_im2.png", "teddy_im6.png", "teddy_disp2.pgm", "teddy_disp6.pgm", 4.0),
}


@dataclass(frozen=True)
class StereoProblem(ImageProblem):
    """A stereo problem, scored like the Middlebury benchmark."""

    #: True disparities in pixels; NaN where they are not known.
    disparities: FloatArray | None = None

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare disparities with the true ones."""
        assert self.disparities is not None and self.scored is not None  # as `Stereo` makes it
        error = np.abs(self.graph.check_labels(labels) - self.disparities)
        mask = np.isfinite(error)
        scored = error[self.scored]
        if not scored.size:
            return {}
        bad = float((scored > 1.0).mean())
        return {
            "bad_pixels": bad,
            "bad_pixels_known": float((error[mask] > 1.0).mean()),
            "rms": float(np.sqrt((scored**2).mean())),
            "accuracy": 1.0 - bad,
        }


@dataclass(frozen=True)
class Stereo(ProblemFamily):
    """Energies ``sum_p D_p(d_p) + sum_pq w_pq min(|d_p - d_q|^e, cap)`` over the 4-neighbourhood.

    A label is a disparity in pixels: pixel ``(r, c)`` of the left image is seen at ``(r, c - d)``
    in the right one. ``D`` is the cost of Birchfield and Tomasi, which allows for sampling, added
    up over the colours; a match outside the right image costs the most that is possible.
    ``w_pq`` is `weight`, times `factor` where the left image has no edge: where the root mean
    square of the differences of the colours of ``p`` and ``q`` is below `threshold`.

    Settings default to their values in the Middlebury MRF benchmark: for the pair, or else for
    Tsukuba. Energies can thus be compared with published ones. They are
    whole numbers; for Tsukuba the bound of ``trw-s`` leaves none below 369,218.

    Parameters
    ----------
    pair : str
        ``synthetic``: random textures at the depths of random shapes. ``tsukuba`` or ``teddy``,
        from ``image/stereo`` of the data folder.
    labels : int, optional
        Disparities are 0 to ``labels - 1``.
    cost : {"absolute", "squared"}, optional
        Whether the differences of a colour are squared.
    data_cap : float, optional
        Largest difference of a colour: absolute differences are cut off at the number of colours
        times this, squared ones at its square.
    smoothness : {"linear", "quadratic"}, optional
        Exponent ``e`` of 1 or 2.
    cap, weight, threshold, factor : float, optional
    height, width : int
        Size of synthetic images.
    noise : float
        Standard deviation of the noise of synthetic images, in grey values.
    seed : int
        Seeds synthetic images.

    Notes
    -----
    Unknown ground truth of a pixel is filled in from the nearest known one, and does not count in
    scores. Pixels that the right image does not show are found from both disparity maps where
    there are two (they must agree to a pixel), else from the left one: pixels that lie behind
    another one or outside the image.

    The settings of the benchmark are, for Tsukuba, ``labels=16, cost=absolute, data_cap=inf,
    smoothness=linear, cap=2, weight=20, threshold=8, factor=2``; for Teddy ``labels=60,
    cost=absolute, data_cap=16, smoothness=linear, cap=1, weight=10, threshold=10, factor=3`` (a
    Potts model).

    References
    ----------
    R. Szeliski et al., "A comparative study of energy minimization methods for Markov random
    fields with smoothness-based priors", PAMI 30(6), 2008, sec. 4.1. S. Birchfield, C. Tomasi, "A
    pixel dissimilarity measure that is insensitive to image sampling", PAMI 20(4), 1998, eq. 3-5.
    D. Scharstein, R. Szeliski, "A taxonomy and evaluation of dense two-frame stereo
    correspondence algorithms", IJCV 47, 2002, sec. 5.1 (bad pixels).

    Examples
    --------
    >>> problem = Stereo(height=30, width=40, labels=6).build()
    >>> problem.graph
    FactorGraph(1200 variables x 6 labels; terms: 2330 table)
    >>> problem.score(problem.truth)["bad_pixels"]
    0.0
    """

    pair: str = setting("synthetic", always=True)
    labels: int | None = setting(None, at_least=1)
    cost: Literal["absolute", "squared"] | None = None
    data_cap: float | None = setting(None, above=0)
    smoothness: Literal["linear", "quadratic"] | None = None
    cap: float | None = setting(None, above=0)
    weight: float | None = setting(None, at_least=0, below=math.inf)
    threshold: float | None = setting(None, at_least=0, below=math.inf)
    factor: float | None = setting(None, at_least=0, below=math.inf)
    height: int = setting(96, at_least=1)
    width: int = setting(128, at_least=1)
    noise: float = setting(4.0, at_least=0, below=math.inf)
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        pairs = ("synthetic", *PAIRS)
        if self.pair not in pairs:
            raise ValueError(f"pair must be one of {', '.join(pairs)}, got {self.pair!r}")

    @property
    def energy(self) -> Energy:
        """The settings of the energy, with the benchmark's where none are given."""
        base = BENCHMARK.get(self.pair, BENCHMARK["tsukuba"])
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name in Energy._fields}
        return base._replace(**{name: v for name, v in settings.items() if v is not None})

    def build(self, data_dir: Path | None = None) -> StereoProblem:
        """Read or draw the images, and set up the energy."""
        energy = self.energy
        if self.pair == "synthetic":
            left, right, truth, visible = self._draw(energy.labels)
        else:
            left, right, truth, visible = self._read(data_dir)
        height, width = left.shape[:2]
        k = energy.labels
        edges = grid_edges(height, width)
        table = truncated_distances(k, 1 if energy.smoothness == "linear" else 2, energy.cap)
        flat = differences(left, edges) < _channels(left) * energy.threshold**2
        weights = np.where(flat, energy.factor, 1.0) * energy.weight
        unary = data_costs(left, right, k, energy.cost, energy.data_cap)
        graph = FactorGraph.from_terms(unary, [SharedTable(edges, table, weights)])
        grey = grey_levels(k)
        filled = np.clip(np.rint(_filled(truth)), 0, k - 1).astype(np.int64)
        has_truth = np.isfinite(truth)
        return StereoProblem(
            self.spec,
            graph,
            truth=filled.ravel(),
            scored=np.flatnonzero(has_truth & visible),
            info={"known": int(has_truth.sum()), "visible": int((has_truth & visible).sum())},
            shape=(height, width),
            palette=grey,
            disparities=truth.ravel(),
        )

    def _read(
        self, data_dir: Path | None
    ) -> tuple[Image, Image, FloatArray, npt.NDArray[np.bool_]]:
        """Return both images, the left disparities, and which pixels both images show."""
        files = PAIRS[self.pair]

        def read(name: str) -> Image:
            return read_image(find_published(f"image/stereo/{name}", data_dir))

        def disparities(name: str) -> FloatArray:
            image = read(name)
            levels = image if image.ndim == 2 else image[:, :, 0]
            return np.where(levels == 0, np.nan, levels / files.truth_scale)

        left, right, truth = read(files.left), read(files.right), disparities(files.truth)
        other = disparities(files.truth_right) if files.truth_right else None
        return left, right, truth, visible_pixels(truth, other)

    def _draw(self, k: int) -> tuple[Image, Image, FloatArray, npt.NDArray[np.bool_]]:
        """Draw a textured scene as seen by the left and the right camera."""
        rng = np.random.default_rng(self.seed)
        height, width = self.height, self.width
        shapes = draw_shapes(height, width, 5, rng)
        # The background is farthest away; shapes drawn later are nearer.
        depth = np.sort(rng.integers(min(1, k - 1), k, 6))
        disparity = depth[shapes]
        left = draw_texture(height, width, rng, grain=1.0)
        right = draw_texture(height, width, rng, grain=1.0)  # where no left pixel is seen
        for d in np.unique(disparity):
            r, c = np.nonzero(disparity == d)
            inside = c >= d
            right[r[inside], c[inside] - d] = left[r[inside], c[inside]]
        noisy = [
            np.clip(np.rint(image + rng.normal(0.0, self.noise, image.shape)), 0, 255)
            for image in (left, right)
        ]
        truth = disparity.astype(np.float64)
        return (
            noisy[0].astype(np.uint8),
            noisy[1].astype(np.uint8),
            truth,
            visible_pixels(truth, None),
        )


def _channels(image: Image) -> int:
    return 1 if image.ndim == 2 else int(image.shape[2])


def differences(image: Image, edges: IntArray) -> IntArray:
    """Return the squared differences of the ends of edges, added up over the colours, (m,)."""
    colours = image.reshape(image.shape[0] * image.shape[1], -1).astype(np.int64)
    return np.asarray(((colours[edges[:, 0]] - colours[edges[:, 1]]) ** 2).sum(axis=1))


def data_costs(
    left: Image, right: Image, k: int, cost: Literal["absolute", "squared"], cap: float
) -> FloatArray:
    """Return the costs of Birchfield and Tomasi, shape (height * width, k)."""
    # A pixel is compared with the range of the values half way to its neighbours, rounded down as
    # in the benchmark, in both directions; the smaller distance counts.
    height, width = left.shape[:2]
    one = left.reshape(height, width, -1).astype(np.int32)
    two = right.reshape(height, width, -1).astype(np.int32)
    low_one, high_one = _half_way(one)
    low_two, high_two = _half_way(two)
    colours = one.shape[2]
    power = 2 if cost == "squared" else 1
    largest = cap**2 if cost == "squared" else colours * cap
    worst = min(float(colours * 255**power), largest)
    out = np.full((height, width, k), worst)
    for d in range(min(k, width)):
        near, far = slice(d, width), slice(0, width - d)
        there = np.maximum(one[:, near] - high_two[:, far], low_two[:, far] - one[:, near])
        back = np.maximum(two[:, far] - high_one[:, near], low_one[:, near] - two[:, far])
        difference = np.minimum(np.maximum(there, 0), np.maximum(back, 0))
        out[:, near, d] = np.minimum((difference**power).sum(axis=2), largest)
    return out.reshape(height * width, k)


def _half_way(
    values: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the least and the largest value around each pixel in its row."""
    half = (values[:, :-1] + values[:, 1:]) // 2
    low, high = values.copy(), values.copy()
    np.minimum(low[:, 1:], half, out=low[:, 1:])
    np.minimum(low[:, :-1], half, out=low[:, :-1])
    np.maximum(high[:, 1:], half, out=high[:, 1:])
    np.maximum(high[:, :-1], half, out=high[:, :-1])
    return low, high


def visible_pixels(left: FloatArray, right: FloatArray | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the left pixels that the right image shows, as far as is known."""
    height, width = left.shape
    has_truth = np.isfinite(left)
    rows, columns = np.nonzero(has_truth)
    there = columns - np.rint(left[has_truth]).astype(np.int64)
    inside = there >= 0
    rows, columns, there = rows[inside], columns[inside], there[inside]
    shift = left[rows, columns]
    if right is None:
        nearest = np.full((height, width), -np.inf)
        np.maximum.at(nearest, (rows, there), shift)
    else:
        nearest = right
    with np.errstate(invalid="ignore"):
        agrees = np.abs(nearest[rows, there] - shift) <= 1.0
    out = np.zeros((height, width), dtype=bool)
    out[rows[agrees], columns[agrees]] = True
    return out


def _filled(values: FloatArray) -> FloatArray:
    """Return a map with each unknown entry taken from the nearest known one; 0 if none is."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    if unknown.all():
        return np.zeros_like(values)
    from scipy.ndimage import distance_transform_edt

    where = distance_transform_edt(unknown, return_distances=False, return_indices=True)
    return np.asarray(values[tuple(where)], dtype=np.float64)
