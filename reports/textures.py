"""Texture features of an image on a grid of sites, as Lange et al. (2005) describe them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.data.images import read_image
from inference_lab.data.published import find_published
from inference_lab.graph.arrays import FloatArray, IntArray

#: Wavelengths in pixels, an octave apart; the filters are an octave wide.
WAVELENGTHS = (4.0, 8.0, 16.0)
ORIENTATIONS = 4
BINS = 12
#: Standard deviation of the envelope over the wavelength, for a bandwidth of one octave.
_WIDTH = 3.0 / math.pi * math.sqrt(math.log(2.0) / 2.0)


def gabor_magnitudes(image: npt.ArrayLike) -> FloatArray:
    """Return the size of each filter's response at each pixel, shape (12, height, width).

    Complex Gabor filters of three scales and four orientations, without response to constants;
    the image is continued by reflection.
    """
    from scipy.signal import oaconvolve

    grey = np.asarray(image, dtype=np.float64)
    magnitudes = []
    for wavelength in WAVELENGTHS:
        sigma = _WIDTH * wavelength
        radius = math.ceil(3.0 * sigma)
        padded = np.pad(grey, radius, mode="symmetric")
        y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        envelope = np.exp(-(x**2 + y**2) / (2.0 * sigma**2))
        envelope /= envelope.sum()
        for turn in range(ORIENTATIONS):
            angle = math.pi * turn / ORIENTATIONS
            wave = np.exp(2j * math.pi / wavelength * (x * math.cos(angle) + y * math.sin(angle)))
            # Without the mean of the wave, a flat region would respond to its own grey value.
            filtered = envelope * (wave - (envelope * wave).sum())
            magnitudes.append(np.abs(oaconvolve(padded, filtered, mode="valid")))
    return np.array(magnitudes)


def site_centres(length: int, sites: int) -> npt.NDArray[np.int64]:
    """Return the middle pixels of a number of equal parts of a line."""
    return ((np.arange(sites) + 0.5) * length / sites).astype(np.int64)


def site_features(image: npt.ArrayLike, sites: int = 101, window: int = 31) -> FloatArray:
    """Return 24 features of each site: the histogram of grey values, and mean Gabor responses."""
    from scipy.ndimage import uniform_filter

    grey = np.asarray(image)
    if grey.ndim != 2 or min(grey.shape) < sites:
        raise ValueError(
            f"a grey image of at least {sites} x {sites} pixels is needed, got shape {grey.shape}"
        )
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd, got {window}")
    at = np.ix_(site_centres(grey.shape[0], sites), site_centres(grey.shape[1], sites))

    def mean_of(values: Any) -> FloatArray:
        smoothed = uniform_filter(np.asarray(values, dtype=np.float64), window, mode="reflect")
        return np.asarray(smoothed[at].ravel())

    bins = np.minimum(grey.astype(np.int64) * BINS // 256, BINS - 1)
    columns = [mean_of(bins == b) for b in range(BINS)]
    columns += [mean_of(magnitude) for magnitude in gabor_magnitudes(grey)]
    features = np.stack(columns, axis=1)
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    return np.asarray(scaled, dtype=np.float64)


def mosaic(number: str, data_dir: str | None) -> tuple[FloatArray, IntArray]:
    """Return the features and the regions of 101 x 101 sites of a mosaic of textures."""
    image, truth = (
        read_image(find_published(f"image/outex/{name}.png", data_dir)) for name in (number, "gt")
    )
    sites = 101
    at = np.ix_(site_centres(truth.shape[0], sites), site_centres(truth.shape[1], sites))
    labels = np.unique(truth[at].ravel(), return_inverse=True)[1]
    return site_features(image, sites), labels.astype(np.int64)
