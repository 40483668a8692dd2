"""Input and output of plain, gzip and xz files, with one error class for all damage."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import inference_lab.io._limits as _limits

#: Functions that open and make compressed files by suffix; without time stamps, so that the same
#: content gives the same bytes.
_OPEN: dict[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
}
COMPRESSIONS = tuple(_OPEN)

_CHUNK = 1 << 20


class FormatError(ValueError):
    """Error for a model file that cannot be used; its message names the file and position."""


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed by its suffix."""
    chunks: list[bytes] = []
    total = 0
    limit = _limits.MAX_BYTES
    if path.suffix.lower() in COMPRESSIONS:
        size = path.stat().st_size
        limit = min(limit, max(_limits.MAX_UNPACKED, _limits.MAX_RATIO * size))
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rb") as stream:
            while chunk := stream.read(_CHUNK):
                total += len(chunk)
                if total > limit:
                    raise FormatError(
                        f"{path}: more than {limit:,} bytes of content, the most that is read"
                        + (f" of a file of {size:,} bytes" if limit < _limits.MAX_BYTES else "")
                    )
                chunks.append(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as problem:
        raise FormatError(
            f"{path}: damaged {path.suffix[1:]} data after {total:,} bytes of content: {problem}"
        ) from problem
    except MemoryError:
        # The header of an xz file declares how much memory its reader allocates.
        raise FormatError(f"{path}: unpacking it takes more memory than there is") from None
    return b"".join(chunks)


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write pieces of ASCII text to a file, compressed by its suffix."""
    content = "".join(pieces).encode("ascii")
    path.write_bytes(_PACK.get(path.suffix.lower(), bytes)(content))
