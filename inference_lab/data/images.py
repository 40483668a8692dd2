"""Images for the problem families: read, written, shrunk, drawn from seeds; and `ImageProblem`.

Images are uint8 arrays, ``(height, width)`` grey or ``(height, width, 3)`` red, green and blue.
Files of any common kind are read by Pillow, which is imported on use.
"""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.data.datasets import DataFormatError
from inference_lab.data.folders import find_file
from inference_lab.graph.arrays import IntArray
from inference_lab.io import FormatError
from inference_lab.io._files import read_bytes
from inference_lab.problem import Problem
from inference_lab.specs.extras import require

Image: TypeAlias = npt.NDArray[np.uint8]

#: Photographs that come with scikit-learn, 427 x 640 pixels, in colours.
EMBEDDED = ("china", "flower")

#: Suffixes of the files that `write_image` writes, all lossless.
WRITTEN = (".png", ".pgm", ".ppm")

#: Largest number of pixels that is read.
MAX_PIXELS = 50_000_000

#: Colours of labels in pictures: far apart from each other, the first two as in binary masks.
_COLOURS = np.array(
    [
        (0, 0, 0),
        (255, 255, 255),
        (214, 39, 40),
        (31, 119, 180),
        (44, 160, 44),
        (255, 187, 51),
        (148, 103, 189),
        (23, 190, 207),
        (140, 86, 75),
        (227, 119, 194),
    ],
    dtype=np.uint8,
)


# ---------------------------------------------------------------------- files


def read_image(path: str | os.PathLike[str]) -> Image:
    """Read an image file of 8 bits a channel; ``.gz`` and ``.xz`` are unpacked.

    Palettes, transparency and other colour spaces are converted to red, green and blue.
    """
    require("images", "PIL")
    from PIL import Image as Pillow

    path = Path(path)
    try:
        data = read_bytes(path)
        with warnings.catch_warnings(), Pillow.open(io.BytesIO(data)) as opened:
            # Pillow checks its own limit first, but only warns.
            warnings.simplefilter("ignore")
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise DataFormatError(
                    f"{path}: {width} x {height} pixels; at most {MAX_PIXELS:,} are read"
                )
            if opened.mode.startswith(("I", "F")):
                raise DataFormatError(
                    f"{path}: an image of mode {opened.mode!r}; 8 bits a channel are needed"
                )
            grey = opened.mode in ("1", "L", "LA", "La")
            return np.array(opened.convert("L" if grey else "RGB"), dtype=np.uint8)
    except (DataFormatError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    # Pillow raises different errors for damaged files of different formats.
    except (FormatError, OSError, ValueError, SyntaxError, EOFError, RuntimeError) as problem:
        raise DataFormatError(f"{path}: cannot be read as an image: {problem}") from problem
    except Exception as problem:
        if type(problem).__name__ == "DecompressionBombError":
            raise DataFormatError(f"{path}: {problem}") from problem
        raise


def load_image(name: str, data_dir: Path | None = None) -> Image:
    """Return an image of scikit-learn (`EMBEDDED`), or read a file found by `find_file`."""
    if name not in EMBEDDED:
        return read_image(find_file(name, data_dir))
    require("images", "PIL")
    from sklearn.datasets import load_sample_image

    return np.array(load_sample_image(f"{name}.jpg"), dtype=np.uint8)


def write_image(path: str | os.PathLike[str], image: npt.NDArray[np.uint8]) -> None:
    """Write an image to a ``.png``, ``.pgm`` (grey) or ``.ppm`` file, without loss."""
    path = Path(path)
    require("images", "PIL")
    from PIL import Image as Pillow

    if path.suffix.lower() not in WRITTEN:
        raise ValueError(f"cannot write {path}: pictures end in {', '.join(WRITTEN)}")
    if not path.absolute().parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: its folder does not exist")

    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)):
        raise ValueError(
            f"image must be uint8 of shape (height, width) or (height, width, 3), got "
            f"{image.dtype} of shape {image.shape}"
        )
    picture = Pillow.fromarray(np.ascontiguousarray(image))
    if path.suffix.lower() == ".pgm":
        picture = picture.convert("L")
    picture.save(path)


# ---------------------------------------------------------------------- arrays


def to_grey(image: Image) -> Image:
    """Return the luma ``0.299 R + 0.587 G + 0.114 B`` (ITU-R BT.601), or a grey image itself."""
    if image.ndim == 2:
        return image
    luma: Image = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    return luma


# ---------------------------------------------------------------------- drawing


def draw_shapes(height: int, width: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw ellipses and rectangles over a background, later ones on top."""
    canvas = np.zeros((height, width), dtype=np.int64)
    rows = (np.arange(height)[:, None] + 0.5) / height - 0.5
    columns = (np.arange(width)[None] + 0.5) / width - 0.5
    start = rng.uniform(0.0, 2.0 * np.pi)
    for s in range(1, count + 1):
        # The golden angle spreads any number of places around the middle.
        place = start + 2.399963 * s
        radius = rng.uniform(0.2, 0.35) if count > 1 else rng.uniform(0.0, 0.1)
        turn = rng.uniform(0.0, np.pi)
        semiaxes = rng.uniform(0.1, 0.2, 2) * (1.0 if count > 1 else 1.6)
        y, x = rows - radius * np.sin(place), columns - radius * np.cos(place)
        u = (np.cos(turn) * x + np.sin(turn) * y) / semiaxes[0]
        v = (np.cos(turn) * y - np.sin(turn) * x) / semiaxes[1]
        inside = u**2 + v**2 <= 1.0 if rng.random() < 0.5 else np.maximum(abs(u), abs(v)) <= 0.85
        canvas[inside] = s
    return canvas


def draw_texture(height: int, width: int, rng: np.random.Generator, *, grain: float) -> Image:
    """Draw a grey texture of full contrast whose spots are about `grain` pixels wide."""
    from scipy.ndimage import gaussian_filter

    noise = gaussian_filter(rng.normal(size=(height, width)), grain)
    noise = (noise - noise.mean()) / max(float(noise.std()), 1e-12)
    grey: Image = np.clip(np.rint(128.0 + 50.0 * noise), 0, 255).astype(np.uint8)
    return grey


def grey_levels(k: int) -> Image:
    """Return k grey values at equal distances from black to white."""
    return np.asarray(np.rint(np.arange(k) * (255.0 / max(k - 1, 1))), dtype=np.uint8)


def label_colours(k: int) -> Image:
    """Return (k, 3) colours for labels without order, black and white first; after ten, darker."""
    shade = 0.7 ** (np.arange(k) // len(_COLOURS))
    shaded: Image = np.rint(_COLOURS[np.arange(k) % len(_COLOURS)] * shade[:, None]).astype(
        np.uint8
    )
    return shaded


# ---------------------------------------------------------------------- problems


@dataclass(frozen=True)
class ImageProblem(Problem):
    """A problem whose variable ``r * width + c`` is pixel ``(r, c)``.

    A label is shown in its grey value, ``palette`` (k,), or its colour, (k, 3).
    """

    shape: tuple[int, int] = (0, 0)
    palette: npt.NDArray[np.uint8] | None = None

    def picture(self, labels: npt.ArrayLike) -> npt.NDArray[np.uint8] | None:
        """Show a labelling in the colours of its labels."""
        if self.palette is None:
            return None
        return self.palette[self.graph.check_labels(labels).reshape(self.shape)]
