"""Numbers, names and texts as they are shown, the same in every table and message."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = [
    "NONE",
    "alike",
    "counted",
    "decimals_for",
    "facts_table",
    "format_all_bytes",
    "format_bytes",
    "format_energy",
    "format_percent",
    "format_rate",
    "format_seconds",
    "format_share",
    "listed",
    "nearest",
    "no_attribute",
    "paragraphs",
    "printable",
    "printable_lines",
    "shortened",
]

#: Energies are shown with this many significant digits (more before the point if it takes them).
_DIGITS = 7

#: Shown in place of a missing number.
NONE = "-"


def decimals_for(values: Iterable[float]) -> int:
    """Return the decimals that give the largest of the values seven significant digits."""
    sizes = [abs(v) for v in values if math.isfinite(v) and v != 0]
    if not sizes:
        return 1
    return min(6, max(1, _DIGITS - 1 - math.floor(math.log10(max(sizes)))))


def format_energy(value: float | None, decimals: int) -> str:
    """Return an energy with a number of decimals, or `NONE` where it is not finite."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{decimals}f}" if abs(value) < 1e12 else f"{value:.6e}"


def format_percent(value: float | None) -> str:
    """Return a gap in percent, or `NONE` where there is none."""
    if value is None or math.isnan(value):
        return NONE
    if value == 0:
        return "0"
    if 0 < value < 0.005:
        return "<0.01"
    return f"{value:.2f}" if abs(value) < 1e4 else f"{value:.1e}"


def format_seconds(value: float | None) -> str:
    """Return a time in seconds, or `NONE` where there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    value = float(f"{value:.12g}")  # 1 is not to be 0.9999999999999999, with a decimal more
    if value < 0.001:
        return f"{value:.2g}"
    for limit, decimals in ((0.1, 4), (1.0, 3), (100.0, 2)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


def format_rate(value: float | None) -> str:
    """Return a whole percentage, or `NONE`; 0 and 100 only where it is just that."""
    if value is None or math.isnan(value):
        return NONE
    if 0 < value < 0.5 or 99.5 <= value < 100:
        return "<0.1" if value < 0.05 else ">99.9" if value >= 99.95 else f"{value:.1f}"
    return f"{value:.0f}"


def format_share(value: float | None) -> str:
    """Return a score between 0 and 1 with three decimals, or `NONE`."""
    return NONE if value is None or math.isnan(value) else f"{value:.3f}"


def format_bytes(value: float, digits: int = 3) -> str:
    """Return a size of memory."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 2**power:
            size = value / 2**power
            return f"{size:.{max(digits, len(str(int(size))))}g} {unit}"
    return f"{value:.15g} bytes"


def format_all_bytes(values: Iterable[float]) -> list[str]:
    """Return sizes of memory, ascending, with enough digits to distinguish them."""
    sizes = sorted(set(values))
    for digits in range(3, 10):
        texts = [format_bytes(v, digits) for v in sizes]
        if len(set(texts)) == len(sizes):
            return texts
    return [f"{v:.15g} bytes" for v in sizes]


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


def nearest(
    word: str,
    valid: Iterable[str],
    about: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
) -> str:
    """Return ``; did you mean ...?`` for the valid words that may be meant, or nothing."""
    likely = alike(word, valid, about, others)
    return f"; did you mean {' or '.join(map(repr, likely[:3]))}?" if likely else ""


def alike(
    word: str,
    valid: Iterable[str],
    about: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the valid words that may be meant by a word, the likeliest first.

    Case, spaces, hyphens and underscores are ignored. Without a close match come words with this
    part or these initials, then words whose description in `about` contains it, then the most
    similar one. `others` maps names of other libraries to valid words.
    """
    folded = {_folded(name): name for name in valid}
    wanted = _folded(word)
    elsewhere = {_folded(name): here for name, here in (others or {}).items()}.get(wanted, "")
    if elsewhere in folded.values():
        return [elsewhere]
    found = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.8)
    likely = [folded[name] for name in found]
    if not likely and len(wanted) > 1:
        parts = {name: re.split("[-_]", name.lower()) for name in folded.values()}
        likely = [n for n, p in parts.items() if wanted in (*p, "".join(q[:1] for q in p))]
    if not likely and len(wanted) > 3:
        likely = [name for name, line in (about or {}).items() if wanted in _folded(line)]
    if not likely:
        found = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.5)
        likely = [folded[name] for name in found]
    return likely


def no_attribute(thing: object, name: str, others: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute, with the attribute that may be meant.

    For ``__getattr__``, which Python also calls if a property raises AttributeError: then the
    property's own error is raised.
    """
    if hasattr(type(thing), name):
        object.__getattribute__(thing, name)
    hint = ""
    if not name.startswith("_"):
        public = [known for known in dir(thing) if not known.startswith("_")]
        hint = nearest(name, public, others=others)
    return AttributeError(f"{type(thing).__name__!r} object has no attribute {name!r}{hint}")


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
