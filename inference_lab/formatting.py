"""Names and texts as they are shown, the same in every table and message."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = [
    "alike",
    "counted",
    "facts_table",
    "listed",
    "nearest",
    "paragraphs",
    "printable",
    "printable_lines",
    "shortened",
]


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, which takes an s in the plural."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names with commas, those beyond the first `most` only counted."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def shortened(text: str, width: int = 80) -> str:
    """Return a text of at most `width` characters, cut off with three dots."""
    return text if len(text) <= width else text[: width - 3] + "..."


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` for the valid word that may be meant, or nothing."""
    likely = alike(word, valid)
    return "" if likely is None else f"; did you mean {likely!r}?"


def alike(word: str, valid: Iterable[str]) -> str | None:
    """Return the most similar valid word, apart from case, spaces and hyphens; None without any."""
    folded = {_folded(name): name for name in valid}
    found = difflib.get_close_matches(_folded(word), folded, n=1, cutoff=0.5)
    return folded[found[0]] if found else None


def _folded(text: str) -> str:
    return re.sub(r"[-_\s]", "", text.lower())


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


def facts_table(caption: str, facts: Mapping[str, str]) -> str:
    """Return a table in HTML with one row for each fact; every text is escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{_escaped(name)}</th>'
        f'<td style="text-align:left">{_escaped(value)}</td></tr>'
        for name, value in facts.items()
    )
    style = "text-align:left;font-weight:bold;white-space:nowrap"
    return f'<table><caption style="{style}">{_escaped(caption)}</caption>{rows}</table>'


def _escaped(text: str) -> str:
    return escape(printable(text))
