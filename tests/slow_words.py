"""Words and numbers of a file one by one, for independent slow readers of model files."""

from __future__ import annotations

import math
import re

_NUMERAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Refused(Exception):
    """Refusal of a file by the slow reader."""


def is_numeral(word: str) -> bool:
    """Return whether a word is a decimal numeral."""
    return _NUMERAL.fullmatch(word) is not None


def uncommented(data: bytes, *, names: bool = False) -> bytes:
    """Return a file without byte order mark and comments, line by line; `names`: it has words."""
    kept = []
    for line in data.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n").split(b"\n"):
        start = next(
            (
                at
                for at, byte in enumerate(line)
                if byte == ord("#") and (not names or line[:at][-1:].strip() == b"")
            ),
            len(line),
        )
        content = line[:start]
        kept.append(b"" if not names and content.split()[:1] == [b"c"] else content)
    return b"\n".join(kept)


class Words:
    """The words of a text between blanks."""

    def __init__(self, text: str) -> None:
        self.left = text.split()[::-1]

    def __len__(self) -> int:
        return len(self.left)

    def word(self) -> str:
        """Take the next word."""
        if not self.left:
            raise Refused
        return self.left.pop()

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Take a number in a range."""
        word = self.word()
        if not is_numeral(word) or not low <= float(word) <= high:
            raise Refused
        return float(word)

    def integer(self, low: float = -math.inf, high: float = math.inf) -> int:
        """Take an integer in a range."""
        value = self.number(low, high)
        if not value.is_integer():
            raise Refused
        return int(value)
