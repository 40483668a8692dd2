"""Image denoising: grey levels or a binary mask, from a noisy image and a prior of smoothness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.data.images import (
    Image,
    ImageProblem,
    draw_shapes,
    grey_levels,
    load_image,
    to_grey,
)
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges, truncated_distances
from inference_lab.graph.terms import SharedTable
from inference_lab.problem import ProblemFamily
from inference_lab.specs.settings import setting

#: Default strength of the noise: grey values of 255, or share of the pixels.
STRENGTH = {"gaussian": 25.0, "impulse": 0.1}


@dataclass(frozen=True)
class DenoisingProblem(ImageProblem):
    """A denoising problem; `truth` holds the levels of the image without noise."""

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare the levels with the image without noise."""
        if self.truth is None or self.palette is None:
            return {}
        levels = self.graph.check_labels(labels)
        return {
            "psnr": psnr(self.palette[levels], self.palette[self.truth]),
            "accuracy": float((levels == self.truth).mean()),
        }


def psnr(image: npt.NDArray[Any], clean: npt.NDArray[Any]) -> float:
    """Return the peak signal-to-noise ratio ``10 log10(255^2 / mse)``; ``inf`` for equal images."""
    mse = float(((image.astype(np.float64) - clean.astype(np.float64)) ** 2).mean())
    return 10.0 * math.log10(255.0**2 / mse) if mse > 0.0 else math.inf


@dataclass(frozen=True)
class ImageDenoising(ProblemFamily):
    """Energies ``sum_i min(|x_i - g_i|^p, data_cap) + weight sum_ij min(|x_i - x_j|^q, cap)``.

    Labels are `levels` equidistant grey values from black to white; ``g`` is the noisy image in
    units of levels, not rounded. The image is rounded to the levels before noise is added, so
    that it is itself a labelling, the ground truth.

    Parameters
    ----------
    image : str
        ``shapes`` (drawn by `seed`), ``china`` or ``flower`` (photographs that come with
        scikit-learn), or a file, see `inference_lab.data.folders.find_file`. Colours become grey.
    levels : int
        2 for a binary mask.
    noise : {"gaussian", "impulse"}
        Normal noise on each pixel, cut off at black and white; or a share of the pixels is
        replaced by random levels (the other level, if there are two).
    strength : float, optional
        Standard deviation in grey values of 255, or share of the pixels; 25 or 0.1.
    data : {"linear", "quadratic"}, optional
        Exponent ``p`` of 1 or 2; quadratic for normal noise, linear for replaced pixels.
    data_cap : float
    smoothness : {"potts", "linear", "quadratic"}
        Exponent ``q`` of 1 or 2; "potts" is ``weight [x_i != x_j]``.
    weight : float, optional
        For normal noise 1.4 times its variance in squared levels, else 1: about the best for
        drawn images.
    cap : float
        Largest cost of a pair before it is weighted; Potts terms have none.
    diagonals : bool
        8 neighbours instead of 4.
    height, width : int
        Size of drawn images.
    seed : int
        Seeds drawn images and the noise, independently of each other.

    References
    ----------
    S. Geman, D. Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration
    of images", PAMI 6(6), 1984. R. Szeliski et al., "A comparative study of energy minimization
    methods for Markov random fields with smoothness-based priors", PAMI 30(6), 2008, sec. 4.4.

    Examples
    --------
    >>> problem = ImageDenoising(height=20, width=30, levels=8).build()
    >>> problem.graph
    FactorGraph(600 variables x 8 labels; terms: 1150 table)
    >>> problem.score(problem.truth)
    {'psnr': inf, 'accuracy': 1.0}
    """

    image: str = setting("shapes", always=True)
    levels: int = setting(16, at_least=2, at_most=256)
    noise: Literal["gaussian", "impulse"] = "gaussian"
    strength: float | None = None
    data: Literal["linear", "quadratic"] | None = None
    data_cap: float = setting(math.inf, above=0)
    smoothness: Literal["potts", "linear", "quadratic"] = "linear"
    weight: float | None = setting(None, at_least=0, below=math.inf)
    cap: float = setting(3.0, above=0)
    diagonals: bool = False
    height: int = setting(64, at_least=1)
    width: int = setting(64, at_least=1)
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        limit = np.finfo(np.float64).max if self.noise == "gaussian" else 1.0
        if self.strength is not None and not 0.0 <= self.strength <= limit:
            allowed = "finite and not negative" if limit > 1.0 else "a share between 0 and 1"
            raise ValueError(
                f"strength of {self.noise} noise must be {allowed}, got {self.strength}"
            )

    def build(self, data_dir: Path | None = None) -> DenoisingProblem:
        """Read or draw the image, add noise, and set up the energy."""
        draw, noise = np.random.default_rng(self.seed).spawn(2)
        clean = self._image(draw, data_dir)
        k = self.levels
        palette = grey_levels(k)
        truth = np.rint(clean * ((k - 1) / 255.0)).astype(np.int64)
        strength = STRENGTH[self.noise] if self.strength is None else self.strength
        observed = self._noisy(truth, palette, strength, noise)
        height, width = truth.shape
        deviation = np.abs(np.arange(k) - observed.reshape(-1, 1) * ((k - 1) / 255.0))
        linear = self.data == "linear" or (self.data is None and self.noise == "impulse")
        unary = np.minimum(deviation if linear else deviation**2, self.data_cap)
        edges = grid_edges(height, width, diagonals=self.diagonals)
        power, cap = {"potts": (1, 1.0), "linear": (1, self.cap), "quadratic": (2, self.cap)}[
            self.smoothness
        ]
        table = truncated_distances(k, power, cap)
        weight = self.weight
        if weight is None:
            weight = 1.4 * (strength * (k - 1) / 255.0) ** 2 if self.noise == "gaussian" else 1.0
        noisy = psnr(observed, palette[truth])
        return DenoisingProblem(
            self.spec,
            FactorGraph.from_terms(unary, [SharedTable(edges, table, weight)]),
            truth=truth.ravel(),
            info={"weight": weight, **({"noisy_psnr": noisy} if math.isfinite(noisy) else {})},
            shape=(height, width),
            palette=palette,
        )

    def _image(self, rng: np.random.Generator, data_dir: Path | None) -> Image:
        if self.image != "shapes":
            return to_grey(load_image(self.image, data_dir))
        count = 6
        shapes = draw_shapes(self.height, self.width, count, rng)
        if self.levels == 2:
            return (255 * (shapes % 2)).astype(np.uint8)
        grey = 40.0 + 170.0 * rng.permutation(count + 1) / count
        light = 30.0 * (np.arange(self.width) / max(self.width - 1, 1) - 0.5)
        return np.rint(grey[shapes] + light).astype(np.uint8)

    def _noisy(
        self, truth: IntArray, palette: Image, strength: float, rng: np.random.Generator
    ) -> FloatArray:
        if self.noise == "gaussian":
            return np.clip(palette[truth] + rng.normal(0.0, strength, truth.shape), 0.0, 255.0)
        k = self.levels
        hit = rng.random(truth.shape) < strength
        other = 1 - truth if k == 2 else rng.integers(0, k, truth.shape)
        return palette[np.where(hit, other, truth)].astype(np.float64)
