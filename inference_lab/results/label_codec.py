"""Labellings as compact strings, for records."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from inference_lab.graph.arrays import IntArray

#: Records keep labellings of fewer variables than this.
KEPT_BELOW = 100_000
#: Most characters of a labelling in a record, the limit of its texts, because random labels hardly
#: compress.
LONGEST = 100_000


def encode_labels(labels: IntArray | None) -> str:
    """Encode a labelling as a string: base64 of zlib of a byte for the item size, and its bytes."""
    if labels is None or len(labels) >= KEPT_BELOW:
        return ""
    narrow = np.min_scalar_type(int(labels.max(initial=0)))
    content = labels.astype(narrow.newbyteorder("<")).tobytes()
    packed = zlib.compress(bytes([narrow.itemsize]) + content, 9)
    text = base64.b64encode(packed).decode("ascii")
    return text if len(text) <= LONGEST else ""


def decode_labels(text: str) -> IntArray:
    """Decode a string of `encode_labels` to the labelling."""
    try:
        content = zlib.decompress(base64.b64decode(text, validate=True))
        return np.frombuffer(content[1:], dtype=f"<u{content[0]}").astype(np.int64)
    except (ValueError, TypeError, IndexError, zlib.error) as problem:
        raise ValueError(f"damaged labelling {text[:20]!r}: {problem}") from problem
