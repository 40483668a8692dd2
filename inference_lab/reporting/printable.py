"""Texts in which every character shows, for tables and pages."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["paragraphs", "printable", "printable_lines"]

#: Format characters that scripts and emoji need, and that reorder nothing.
_JOINERS = "\u200c\u200d"


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    code = ord(character)
    nothing = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF  # is no character at all
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in _JOINERS
    return repr(character)[1:-1] if nothing or hidden else character


def paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text, which empty lines part."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def printable(text: str) -> str:
    r"""Return a text on one line in which every character shows.

    Control characters, unpaired surrogates, noncharacters and those that change the direction of
    writing become escapes, because they break files or falsify a page; runs of white space become
    one space.
    """
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return " ".join(text.split())


def printable_lines(text: str) -> str:
    r"""Return a text in which every character but line breaks and tabs shows.

    As `printable`, for text in which white space counts; empty lines at its ends are left out.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    return "\n".join("".join(c if c == "\t" else _shown(c) for c in line) for line in lines)
