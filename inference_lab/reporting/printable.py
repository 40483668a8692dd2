"""Conversion of texts for tables and pages so that every character is visible."""

from __future__ import annotations

import re
import unicodedata

#: Format characters that scripts and emoji need, and that do not reorder text.
_JOINERS = "\u200c\u200d"


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    code = ord(character)
    nothing = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF  # a noncharacter
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in _JOINERS
    return repr(character)[1:-1] if nothing or hidden else character


def paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text, which are separated by empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def printable(text: str) -> str:
    r"""Return a text on one line in which every character is visible.

    Control characters, unpaired surrogates, noncharacters and characters that change the direction
    of writing become escapes, because they break files or falsify a page. Runs of white space
    become one space.
    """
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return " ".join(text.split())


def printable_lines(text: str) -> str:
    r"""Return a text in which every character but line breaks and tabs is visible.

    This is `printable` for text with significant white space; empty lines at its ends are dropped.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    return "\n".join("".join(c if c == "\t" else _shown(c) for c in line) for line in lines)
