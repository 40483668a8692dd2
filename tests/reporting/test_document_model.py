"""Document model: refused content, file names, and visible text."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath, PureWindowsPath

from hypothesis import example, given
from hypothesis import strategies as st
from sample_document import ANY_TEXT, AWKWARD

from inference_lab.reporting.document import (
    Column,
    Document,
    Section,
    Table,
    Text,
    file_stems,
)
from inference_lab.reporting.printable import printable

#: Kinds of characters that change the direction of text.
EMBEDDINGS = "LRE RLE LRO RLO PDF LRI RLI FSI PDI".split()
#: Names that Windows reserves for devices.
DEVICES = {"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(10)}


def _table(name: str) -> Table:
    return Table(name, "", (Column("a"),))


def test_blocks_come_in_the_order_of_the_page() -> None:
    """Blocks of a section precede blocks of its subsections, and these the next section."""
    a, b, c, d = map(_table, "abcd")
    inner = (Section("1.1", (b,), sections=(Section("1.1.1", (c,)),)),)
    document = Document("t", sections=(Section("1", (a, Text(()))), Section("2", (d,))))
    assert [t.name for t in document.tables()] == ["a", "d"]
    document = Document("t", sections=(Section("1", (a,), sections=inner), Section("2", (d,))))
    assert [t.name for t in document.tables()] == ["a", "b", "c", "d"]
    assert document.pictures() == []


@given(st.lists(ANY_TEXT, max_size=8))
@example(["../../x", "..\\..\\x", "/etc/passwd", "C:\\x", "", ".", "..", "~", "\0"])
@example(["CON", "con.txt", "com1", "COM\u00b9", "con-"])
@example(["a", "A", "a-2", "a", "\u212b", "\u00c5", "a\u030a"])
@example(["x" * 300, "x" * 301, "x" * 300])
def test_stems_are_safe_and_differ(names: list[str]) -> None:
    """For any names, stems are plain file names of one folder, all different."""
    stems = file_stems(names, "table")
    assert len(stems) == len(names)
    assert len({stem.lower() for stem in stems}) == len(stems)
    for stem in stems:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", stem)
        assert stem not in DEVICES
        assert len(stem) < 100
        assert PurePosixPath(stem).name == stem == PureWindowsPath(stem).name


def test_safe_names_stay() -> None:
    """A name that is already a stem is kept, even if another one would become it."""
    assert file_stems(["gaps", "gaps", "gaps-2"], "table") == ["gaps", "gaps-3", "gaps-2"]
    assert file_stems(["Gaps & bounds", "\u00dcbersicht", "\u8868"], "table") == [
        "gaps-bounds",
        "ubersicht",
        "table",
    ]


@given(ANY_TEXT)
@example("a\u202eb")
@example("\ufdd0\ufffe\U0001ffff\ud800\x00\x1b[31m")
@example("\ufeff\u200b\u2066\u061c")
def test_printable(text: str) -> None:
    """The result is one left-to-right line that can be written and parsed as XML."""
    shown = printable(text)
    shown.encode()
    assert printable(shown) == shown
    assert shown == " ".join(shown.split())
    for character in shown:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in EMBEDDINGS
        assert ord(character) & 0xFFFE != 0xFFFE


def test_printable_leaves_text_alone() -> None:
    """Letters of all scripts, and signs, are unchanged."""
    for text in ("loopy-bp(damping=0.5)", "Übersicht ± 3 ≤ ∞", "表", "שלום", "👩\u200d🔬"):
        assert printable(text) == text
    assert printable(" a\t b\r\n\u00a0c ") == "a b c"


def test_different_names_stay_different() -> None:
    """Invisible differences between two names appear in their printable forms."""
    names = ["icm", "icm\u200b", "\u202eicm", "icm\x00", "i\u00adcm", "\ufeff" + "icm"]
    assert len(set(map(printable, names))) == len(names)
    assert len(set(map(printable, AWKWARD))) == len(AWKWARD)
