"""Labellings as compact strings, for records."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from inference_lab.graph.arrays import IntArray

__all__ = ["KEPT_BELOW", "LONGEST", "decode_labels", "encode_labels"]

#: Records keep labellings of fewer variables than this, and of at most so many characters, which is
#: where texts of records are cut: labels drawn at random from many hardly compress.
KEPT_BELOW, LONGEST = 100_000, 100_000


def encode_labels(labels: IntArray | None) -> str:
    """Return a labelling as a string: base64 of zlib of a code for its width, and its bytes."""
    if labels is None or len(labels) >= KEPT_BELOW:
        return ""
    narrow = np.min_scalar_type(int(labels.max(initial=0)))
    content = labels.astype(narrow.newbyteorder("<")).tobytes()
    packed = zlib.compress(bytes([narrow.itemsize]) + content, 9)
    text = base64.b64encode(packed).decode("ascii")
    return text if len(text) <= LONGEST else ""


def decode_labels(text: str) -> IntArray:
    """Return the labelling that `encode_labels` made a string of."""
    try:
        content = zlib.decompress(base64.b64decode(text, validate=True))
        return np.frombuffer(content[1:], dtype=f"<u{content[0]}").astype(np.int64)
    except (ValueError, TypeError, IndexError, zlib.error) as problem:
        raise ValueError(f"damaged labelling {text[:20]!r}: {problem}") from problem
