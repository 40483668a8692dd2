"""The one rule for comments, byte order marks and line ends in model files.

`plain_text` is the first step of every parser. It replaces what is not content with as many
blanks, so that messages give the lines and bytes of the file.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum

from inference_lab.io._files import FormatError


class Words(Enum):
    """The words that a format has beside numbers; a comment is told from them by its place."""

    #: Numbers, and letters that begin a line: ``#`` anywhere, or a line whose first word is ``c``.
    NONE = "none"
    #: Names without quotes: ``#`` where a word could begin. A word ``c`` may be a name.
    BARE = "bare"
    #: Names with or without quotes, as BARE, and ``//``; within quotes both are text.
    QUOTED = "quoted"


_LETTERED_LINE = re.compile(rb"^[^\S\n]*c(?!\S)[^\n]*", re.MULTILINE)
_COMMENTS = {
    Words.NONE: re.compile(rb"#[^\n]*"),
    Words.BARE: re.compile(rb"(?<!\S)#[^\n]*"),
    Words.QUOTED: re.compile(
        rb"""(?P<quoted>"(?:[^"\\\n]|\\.)*")|(?<![^\s,:\[\]{}"])(?:\#|//)[^\n]*"""
    ),
}
#: The first bytes of text in encodings that are not read.
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def plain_text(data: bytes, path: str, words: Words = Words.NONE) -> bytes:
    """Return the file with blanks for its comments and mark, and with line feeds as line ends."""
    if data.startswith(_WIDE):
        raise FormatError(f"{path}, line 1: the file is UTF-16 text; save it as UTF-8")
    if data.startswith(codecs.BOM_UTF8):
        data = b" " * len(codecs.BOM_UTF8) + data[len(codecs.BOM_UTF8) :]
    if b"\r" in data:
        data = data.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
    # Files are looked through for the marks first, because this is much faster than the patterns.
    if b"#" in data or (words is Words.QUOTED and b"//" in data):
        data = _COMMENTS[words].sub(_blanks, data)
    if words is Words.NONE and b"c" in data:
        data = _LETTERED_LINE.sub(_blanks, data)
    return data


def _blanks(match: re.Match[bytes]) -> bytes:
    """Return blanks in place of a comment, and quoted text as it is."""
    return match.group() if match.lastgroup == "quoted" else b" " * len(match.group())
