"""Small files of all formats, and their damage: refused with an error, or read literally."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from slow_words import Refused

from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io import FormatError

#: A file of each format with every feature of the format.
SMALL = {
    "uai": b"""MARKOV
3
2 3 2
5
1 0
2 0 1
2 2 1
3 0 1 2
0

2
 0.25 0.75
6
 1 2 3
 4 5 6
6
 1 0.5 0.5 1 0.5 0.5
12
 1 2 3 4 5 6 7 8 9 10 11 0
1
 0.5
""",
    "fg": b"""# three variables and a constant
5

1
0
2
2
0 0.25
1 0.75

2
0 1
2 3
5
0 1
1 2.5 # (1, 0)
2 3
4 5
5 6

2
2 1
2 3
6
0 1
1 0.5
2 0.5
3 1
4 0.5
5 0.5

3
0 1 2
2 3 2
3
0 1
7 2
11 3

0


1
0 0.5
""",
    "wcsp": b"""small 3 3 5 20
2 3 -2
0 4 0
1 0 1 1
1 5
2 0 1 2 3
0 2 20
1 0 0
1 2 7
2 2 1 25 2
0 0 3
0 2 1
2 1 2 0 3
1 0 1
2 0 1
2 1 2
""",
    "cfn": b"""# a small one
{
 "problem": { "name": "small", "mustbe": "<20.00" },
 "variables": { "a": [ "x", "y" ], "b": 3, "c": -2 },
 "functions": {
  "f0": { "scope": [ "a", "b" ], "defaultcost": 1.5, "costs": [ "x", 2, 20.0, "y", 0, -0.25 ] },
  "f1": { "scope": [ "b" ], "costs": [ 0, 0.5, "1.5" ] },
  "f3": { "scope": [ "a", "b" ], "costs": [ 1, 2, 3, 4, 5, 6 ] },
  "f4": { "scope": [], "costs": [ 2 ] }
 }
}
""",
    "dd": b"""c three left nodes, two right nodes
p 3 2 5 4
i0 0 {1 2}
a 0 0 1 -2.5
a 1 0 0 -1
a 2 1 1 -4
a 3 2 0 0.5
a 4 2 1 -3
e 0 3 -1.5
e 3 2 7
e 1 0 9
e 2 4 -8
n0 0 1
""",
    "max-cut": b"""4 6
1 2 5
2 3 -1.5
3 1 2
4 4 -3
2 1 1
3 4 7
""",
    "clique-partitioning": b"""4
5 -2 1.5
-1 0
-4
""",
    "bayes": b"BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n0.3 0.7\n\n4\n0.1 0.9 1.0 0.0\n",
}

#: Replacements of tokens.
TOKENS = (
    b"0",
    b"1",
    b"2",
    b"3",
    b"4",
    b"-1",
    b"-2",
    b"7",
    b"1e9",
    b"1e-400",
    b"nan",
    b"inf",
    b"x",
    b"0.5",
    b"1e400",
    b"99999999",
    b"-BEGIN-",
    b"#",
    b'"',
    b"[",
    b"}",
    b"\x00",
    "é".encode(),
)
#: A token is text between blanks, brackets or quotes.
_WORD = re.compile(rb"[^\s\[\]{},:\"]+")


def damage(rng: np.random.Generator, data: bytes, tokens: Sequence[bytes] = TOKENS) -> bytes:
    """Return a file cut, with bits flipped, or with tokens or lines changed."""
    if not data:
        return rng.bytes(int(rng.integers(0, 40)))
    at = int(rng.integers(len(data)))
    how = str(rng.choice(["cut", "flip", "lines", "delete", "replace", "insert", "copy", "end"]))
    if how == "cut":
        return data[:at]
    if how == "flip":
        return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
    if how == "lines":
        lines = data.split(b"\n")
        i, j = rng.integers(len(lines), size=2)
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)
    for _ in range(int(rng.integers(1, 4))):
        words = [found.span() for found in _WORD.finditer(data)]
        if not words:
            break
        start, stop = words[int(rng.integers(len(words)))]
        other = data[slice(*words[int(rng.integers(len(words)))])]
        token, rest = tokens[int(rng.integers(len(tokens)))], data[stop:]
        if how == "end":
            # The file ends with the token, or a little later.
            return data[:start] + token + rest[: int(rng.choice([0, 1, 2, 4]))]
        inserted = data[start:stop] + b" " + token
        new = {"delete": b"", "replace": token, "insert": inserted, "copy": other}[how]
        data = data[:start] + new + rest
    return data


def damaged(*bases: bytes) -> st.SearchStrategy[bytes]:
    """Draw one of the files, damaged."""

    def build(seed: int, base: bytes) -> bytes:
        return damage(np.random.default_rng(seed), base)

    return st.builds(build, st.integers(0, 2**32 - 1), st.sampled_from(bases))


def check_refused(parse: Callable[[bytes], object], text: str, message: str, path: str) -> None:
    """Expect an error that names the file, before anything of an announced size is allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message) as caught:
            parse(text.encode())
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(path)


#: Numbers of labels found by a slow reader, and its energy of a labelling.
SlowModel = tuple[list[int], Callable[[Any], float]]


def check_damaged(
    read: Callable[[], FactorGraph], read_slowly: Callable[[], SlowModel], tolerance: float = 1e-12
) -> None:
    """Expect a refusal if and only if a slow reader refuses, and equal energies otherwise."""
    try:
        cardinalities, energy = read_slowly()
    except Refused:
        with pytest.raises(FormatError):
            read()
        return
    graph = read()
    assert graph.cardinalities.tolist() == cardinalities
    x = np.random.default_rng(0).integers(graph.cardinalities, size=(5, graph.n_variables))
    expected = [energy(row) for row in x]
    np.testing.assert_allclose(graph.energy(x), expected, rtol=tolerance, atol=tolerance)
