"""Comments, byte order marks, line ends and blank lines, by one rule for all formats."""

from __future__ import annotations

import codecs
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from damage import SMALL
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.io import FormatError, supported_formats
from inference_lab.io._text import Words, plain_text

#: A file of each format, in each of its layouts.
FILES = {
    ("uai", "markov"): SMALL["uai"],
    ("uai", "bayes"): SMALL["bayes"],
    **{(name, "small"): SMALL[name] for name in supported_formats() if name in SMALL},
    ("max-cut", "unweighted"): b"3 2\n1 2\n2 3\n",
    ("qubo", "biq mac"): SMALL["max-cut"],
    ("qubo", "qbsolv"): b"p qubo 0 3 2 1\n0 0 -1.5\n2 2 4\n0 1 -3\n",
    ("wcsp", "keywords"): b"t 2 2 1 9\n2 2\n2 0 1 -1 knapsackp 1\n1 1 1\n1 1 1\n",
    ("cfn", "params"): b"""{{t <9} {a 2 b 2}
{f {[a b] type knapsackv params
{capacity 1 weightedvalues [[a 1 1]
[b 1 1]]}}}}
""",
}
#: Formats with names, in which a word "c" is one.
NAMED = ("wcsp", "cfn")


def test_every_format_has_a_file() -> None:
    assert {name for name, _ in FILES} == set(supported_formats())


def decorated(rng: np.random.Generator, data: bytes, format: str) -> bytes:
    """Return the file with comments, blank lines, other line ends and perhaps a mark."""
    comments = [b"# 1 2 3", b"#", b'\t# \xc3\x9cbung [ " { c', b"## p 1 a 2 // e", b"# it's"]
    if format not in NAMED:
        comments += [b"c", b"c 1 2 3", b"  c MARKOV # x", b"c\tp 0"]
    if format == "cfn":
        comments += [b"// one ] more", b"//"]

    def draw(lines: list[bytes]) -> bytes:
        return lines[int(rng.integers(len(lines)))]

    lines: list[bytes] = []
    for line in data.split(b"\n"):
        for _ in range(int(rng.integers(3))):
            lines.append(draw([*comments, b"", b" \t "]))
        trailing = [c for c in comments if c.strip().startswith((b"#", b"/"))]
        lines.append(line + b" " + draw(trailing) if rng.random() < 0.4 else line)
    mark = codecs.BOM_UTF8 if rng.random() < 0.5 else b""
    return mark + draw([b"\n", b"\r\n", b"\r"]).join(lines)


def read(data: bytes, format: str, evidence: bytes | None = None) -> il.FactorGraph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(data)
        observed = None
        if evidence is not None:
            observed = Path(folder) / "evidence"
            observed.write_bytes(evidence)
        return il.read(path, format=format, evidence=observed)


@pytest.mark.parametrize(("format", "layout"), FILES)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_graph_does_not_depend_on_comments_and_line_ends(
    format: str, layout: str, seed: int
) -> None:
    data = FILES[format, layout]
    plain = read(data, format)
    again = read(decorated(np.random.default_rng(seed), data, format), format)
    assert again.content_hash == plain.content_hash


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 2**31 - 1))
def test_written_files_with_comments_are_read_to_the_same_graph(family: str, seed: int) -> None:
    graph = random_graph(family, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.uai"
        try:
            il.write(graph, path)
        except ValueError:
            return  # a factor that forbids everything
        data = path.read_bytes()
    again = read(decorated(np.random.default_rng(seed), data, "uai"), "uai")
    assert again.content_hash == read(data, "uai").content_hash


@given(st.integers(0, 2**32 - 1))
def test_evidence_follows_the_same_rule(seed: int) -> None:
    data = decorated(np.random.default_rng(seed), b"1\n2\n0 1\n2 1\n", "uai")
    plain = read(SMALL["uai"], "uai", b"2 0 1 2 1")
    assert read(SMALL["uai"], "uai", data).content_hash == plain.content_hash


@pytest.mark.parametrize(("format", "layout"), FILES)
def test_lines_keep_their_numbers(format: str, layout: str) -> None:
    """A fault below comments is reported at its line in the file."""
    lines = FILES[format, layout].rstrip(b"\n").split(b"\n")
    head = [b"# one", b"", b"# two"]
    last = len(head) + len(lines)
    for end in (b"\n", b"\r\n", b"\r"):
        data = codecs.BOM_UTF8 + end.join([*head, *lines, b"x"])
        with pytest.raises(FormatError) as caught:
            read(data, format)
        match = re.search(r"line (\d+)", str(caught.value))
        # Surplus content of cfn is reported at the file's end.
        assert "end of file" in str(caught.value) or (match and int(match[1]) == last + 1), (
            caught.value
        )


@pytest.mark.parametrize("format", supported_formats())
def test_utf_16_is_refused_with_the_remedy(format: str) -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        data = "\ufeff1 2 3".encode(encoding)
        with pytest.raises(FormatError, match="line 1: the file is UTF-16 text; save it as UTF-8"):
            read(data, format)


def test_names_and_quotes_hold_hashes() -> None:
    """Within them a hash is text, and so is a name "c" at the beginning of a line."""
    graph = read(b"c#1 1 2 1 9\n# note\n2\n1 0 0 1 1 4 # last", "wcsp")
    assert graph.energy([[0], [1]]).tolist() == [0.0, 4.0]
    text = b'{{"a # b" <9} {\nc 2 "x#1" ["p//q" "#"] y#2 2}\n'
    text += b'[{["x#1"] 0 ["#" 3]} {[y#2] [0 5]} {[c] [0 1]}]} # end'
    assert read(text, "cfn").energy([1, 1, 1]) == 9.0


def test_plain_text_keeps_the_places_of_bytes() -> None:
    """Nothing moves, so that messages name the place in the file."""
    data = codecs.BOM_UTF8 + b"1 # one\r\n2\rc 3\n4#\xff\n"
    assert plain_text(data, "here") == b"   1" + b" " * 7 + b"\n2\n   \n4  \n"
    assert plain_text(b"a#1 #\n#x\nc", "here", Words.BARE) == b"a#1  \n  \nc"
