"""Content of gzip and xz files that grow: each batch that is appended is a member of its own.

All members before it stay byte for byte as they were, so that a version control system that keeps
differences keeps the new one only; every program that reads gzip, or xz, reads them as one text.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["SUFFIXES", "Unpacked", "pack", "unpack"]

#: Bytes that are unpacked at a time.
_CHUNK = 1 << 16


#: Bytes of content from which on it is packed as ``xz -9e`` does.
_TIGHTLY_FROM = 1 << 20


class _Form(NamedTuple):
    """A format: its name, how a member begins, what makes one, what reads one, what that raises."""

    name: str
    magic: bytes
    pack: Callable[[bytes], bytes]
    reader: Callable[[], Any]
    damage: type[Exception]


_FORMS = {
    ".gz": _Form(
        "gzip",
        b"\x1f\x8b\x08",
        lambda content: gzip.compress(content, 9, mtime=0),
        lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
        zlib.error,
    ),
    ".xz": _Form(
        "xz",
        b"\xfd7zXZ\0",
        # Tightly, which takes much memory and time, where there is something to gain by it.
        lambda content: lzma.compress(
            content, preset=9 | lzma.PRESET_EXTREME if len(content) > _TIGHTLY_FROM else None
        ),
        # The head of a file says how much its reader has to set aside: 65 MiB after ``xz -9``.
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 27),
        lzma.LZMAError,
    ),
}

#: Suffixes of the names of packed files.
SUFFIXES = tuple(_FORMS)


class Unpacked(NamedTuple):
    """What a packed file holds.

    Attributes
    ----------
    content : bytes
        Of all members that are whole.
    size, of : int
        Bytes that these take, of so many that the file has.
    rest : bytes
        What can be read of a last member that was cut off while it was written.
    """

    content: bytes
    size: int
    of: int
    rest: bytes


def pack(content: bytes, suffix: str = ".gz") -> bytes:
    """Return some content as one member; the same content gives the same bytes.

    Parameters
    ----------
    content : bytes
    suffix : str
        Of the file, one of `SUFFIXES`.

    Examples
    --------
    >>> unpack(pack(b"one") + pack(b" two") + pack(b" three")[:-1])
    Unpacked(content=b'one two', size=47, of=72, rest=b' three')
    """
    return _FORMS[suffix].pack(content)


def unpack(data: bytes, suffix: str = ".gz") -> Unpacked:
    """Return what the members of a file hold.

    Parameters
    ----------
    data : bytes
        All of the file.
    suffix : str
        Of the file, one of `SUFFIXES`.

    Raises
    ------
    ValueError
        If it is of another format, is damaged otherwise than by being cut off, or holds more than a
        model file of its size may (see `inference_lab.io`): few bytes can unpack into terabytes.
    """
    from inference_lab.io import _limits

    form = _FORMS[suffix]
    most = min(_limits.MAX_BYTES, max(_limits.MAX_UNPACKED, _limits.MAX_RATIO * len(data)))
    parts: list[bytes] = []
    at = total = 0
    rest = b""
    while at < len(data):
        try:
            content, size = _member(form, memoryview(data)[at:], most - total)
        except form.damage as problem:
            # A crash may leave zeros where the end of what was written should be.
            left = data[at:].rstrip(b"\0")
            if not (left.startswith(form.magic) or form.magic.startswith(left)):
                raise ValueError(f"no {form.name} data after {total:,} bytes of content") from None
            try:
                content, size = _member(form, memoryview(left), most - total)
            except form.damage:
                raise ValueError(
                    f"damaged {form.name} data after {total:,} bytes of content: {problem}"
                ) from None
        total += len(content)
        if total > most:
            raise ValueError(
                f"more than {most:,} bytes of content, the most that is read of {len(data):,} "
                f"bytes of {form.name} data"
            )
        if not size:
            rest = content
            break
        parts.append(content)
        at += size
    return Unpacked(b"".join(parts), at, len(data), rest)


def _member(form: _Form, data: memoryview, room: int) -> tuple[bytes, int]:
    """Return what the first member holds, and its size, 0 if it is cut off.

    No more is unpacked than one byte beyond what there is room for.
    """
    reader = form.reader()
    parts = []
    taken = 0
    while not reader.eof and room >= 0 and taken < len(data):
        chunk = data[taken : taken + _CHUNK]
        parts.append(reader.decompress(chunk, room + 1))
        room -= len(parts[-1])
        taken += len(chunk)
    return b"".join(parts), taken - len(reader.unused_data) if reader.eof else 0
