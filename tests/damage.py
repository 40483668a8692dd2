"""Damaged files: what readers must refuse in so many words, or read as it stands."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from inference_lab.io import FormatError

#: Tokens that take the place of others.
TOKENS = (
    *("0", "1", "2", "3", "4", "-1", "-2", "7", "1e9", "1e-400", "nan", "inf", "x", "0.5"),
    *("1e400", "99999999", "-BEGIN-", "#", '"', "[", "}", "\x00", "é"),
)


@st.composite
def damaged(draw: st.DrawFn, bases: tuple[bytes, ...]) -> bytes:
    """Draw one of the files, cut, with bits flipped, or with tokens or lines changed."""
    base = draw(st.sampled_from(bases))
    how = draw(st.sampled_from(["cut", "flip", "delete", "replace", "insert", "swap", "lines"]))
    if how == "cut":
        return base[: draw(st.integers(0, len(base)))]
    if how == "flip":
        data = bytearray(base)
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        return bytes(data)
    # Lines mean something in some formats: with their tokens they stay apart.
    lines = [line.split(" ") for line in base.decode().split("\n")]
    places = [(i, j) for i, line in enumerate(lines) for j, token in enumerate(line) if token]
    if how == "lines":
        i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        lines[i], lines[j] = lines[j], lines[i]
    else:
        for _ in range(draw(st.integers(1, 3))):
            i, j = places[draw(st.integers(0, len(places) - 1))]
            if how == "delete":
                lines[i][j] = ""
            elif how == "replace":
                lines[i][j] = draw(st.sampled_from(TOKENS))
            elif how == "insert":
                lines[i][j] += " " + draw(st.sampled_from(TOKENS))
            else:
                k, m = places[draw(st.integers(0, len(places) - 1))]
                lines[i][j], lines[k][m] = lines[k][m], lines[i][j]
    return "\n".join(" ".join(line) for line in lines).encode()


def check_refused(parse: Callable[[bytes], object], text: str, message: str, path: str) -> None:
    """Expect an error that names the file, before anything of an announced size is made."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message) as caught:
            parse(text.encode())
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(path)
