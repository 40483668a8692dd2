"""Formatting of names and texts, the same in every table and message; warnings."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from types import FrameType

_PACKAGE = __name__.rpartition(".")[0]


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, which takes an s in the plural."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names with commas, and the number of names beyond the first `most`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def shortened(text: str, width: int = 80) -> str:
    """Return a text of at most `width` characters, cut off with three dots."""
    return text if len(text) <= width else text[: width - 3] + "..."


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` for the most similar valid word, or an empty string."""
    likely = alike(word, valid)
    return "" if likely is None else f"; did you mean {likely!r}?"


def alike(word: str, valid: Iterable[str]) -> str | None:
    """Return the most similar valid word, apart from case, spaces and hyphens, or None."""
    folded = {_folded(name): name for name in valid}
    matches = difflib.get_close_matches(_folded(word), folded, n=1, cutoff=0.5)
    return folded[matches[0]] if matches else None


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the innermost line of code outside this package.

    As after `warnings.warn`, the default filter shows it once for each such line.
    """
    # The first level is this function, the second its caller.
    level, frame = 2, sys._getframe(1)
    while in_package(frame) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def in_package(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    # By the name of the module, because the folders of solvers and problems differ by installation.
    module = str(frame.f_globals.get("__name__", ""))
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _folded(text: str) -> str:
    return re.sub(r"[-_\s]", "", text.lower())
