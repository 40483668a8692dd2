"""A report in a folder: Markdown, CSV, figures, and replaced or kept files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markup import Markup
from sample_document import ANY_TEXT, AWKWARD, sample_document, table_of

from inference_lab.reporting import writing
from inference_lab.reporting.charts import Chart, intervals_chart
from inference_lab.reporting.csv_text import csv_table
from inference_lab.reporting.document import (
    Cell,
    Code,
    Column,
    Document,
    Items,
    Mark,
    Picture,
    Section,
    Table,
    Text,
)
from inference_lab.reporting.markdown import render_markdown
from inference_lab.reporting.printable import printable, printable_lines
from inference_lab.reporting.writing import write_document

#: Files of every report.
PAGES = {"README.md", "index.html", ".report-files.json"}
SPECIAL = st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|&~$:\"'=1 \naé"), max_size=12)


def _figure() -> Chart:
    return intervals_chart(["a_b", "c"], np.array([1.0, 2.0]), 0.25, "average rank")


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in _files(folder)}


def _picture(name: str = "curve") -> Picture:
    return Picture(name, "caption", "alt", _figure)


def _table(*texts: str, name: str = "t", mark: Mark = "") -> Table:
    columns = (Column("name", right=False), Column("value"))
    rows = tuple((Cell(text, mark=mark), Cell("1.0", 1.0)) for text in texts)
    return table_of(name, "The caption.", columns, rows)


# ---------------------------------------------------------------------- Markdown


def _outline(document: Document) -> Markup:
    """Return the elements that a reader of Markdown sees."""
    text = render_markdown(document)
    return Markup(MarkdownIt("commonmark").enable("table").render(text))


@given(st.one_of(ANY_TEXT, SPECIAL))
@example("```\n# x\n```")
@example("````\n</details>\n``` x `")
@example("~~~\n  indented\n\n\ttab")
@example("a\r\nb\rc")
def test_code_stays_in_its_block(text: str) -> None:
    """Parsed again, code in a folded section is unchanged, line by line, with no text beside it."""
    shown = printable_lines(text)
    section = Section("s", (Code(text), Text(("after",))))
    tokens = MarkdownIt("commonmark").parse(render_markdown(Document("t", sections=(section,))))
    assert [t.content for t in tokens if t.type == "fence"] == ([shown + "\n"] if shown else [])
    assert [t.content for t in tokens if t.type == "inline"] == ["t", "s", "after"]


@given(st.one_of(ANY_TEXT, SPECIAL))
@example("| pipes | and \n newlines")
@example("a\\|b")
@example("1. x")
@example("---")
@example("- - -")
@example("[x]: javascript:alert(1)")
@example("![x](y)")
@example("<script>alert(1)</script>")
@example("&lt; &#60; &amp;")
@example("```\nx")
@example("# x")
@example("x #")
@example("x ## ###")
@example("#")
@example("</details>")
def test_markdown_shows_text_and_nothing_else(text: str) -> None:
    """Parsed as Markdown, a text is unchanged in every place, and creates no element."""
    shown = printable(text)
    for mark in ("", "best", "failed"):
        table = _table(text, text, mark=mark)  # type: ignore[arg-type]
        section = Section("x" + text, (Text((text,)), Items((text,)), table))
        document = Document("x" + text, (("x" + text, text),), (text,), (text,), (section,))
        outline = _outline(document)
        # Two boxes and a list without empty entries; a table of two rows.
        assert outline.tags.count("li") == (3 if shown else 0)
        assert outline.tags.count("tr") == 3
        assert outline.tags.count("td") == 4
        assert set(outline.tags) <= set(
            "h1 h2 p ul li blockquote table thead tbody tr th td strong em a".split()
        )
        assert outline.of("id").count("table-t") == 1
        assert outline.of("href") == ["tables/t.csv"]
        assert {name for _, name, _ in outline.attributes} <= {"id", "style", "href"}
        assert outline.inside["td"][0] == shown
        assert outline.inside.get("li", [""])[-1].strip() == shown
        assert outline.inside["h2"] == [printable("x" + text)]


def test_markdown_sample() -> None:
    """Headings, pictures and folded sections of a whole report match the document."""
    document = sample_document()
    tables = [table.stem for table in document.numbered().tables()]
    pictures = [picture.stem for picture in document.numbered().pictures()]
    text = render_markdown(document)
    outline = _outline(document)
    assert outline.tags.count("table") == len(tables)
    assert outline.tags.count("img") == 4
    assert (
        outline.tags.count("details") == outline.tags.count("summary") == text.count("</details>")
    )
    assert outline.tags.count("details") == len(document.sections[2].sections) - 2 + 1
    assert "script" not in outline.tags
    assert text.index("[!CAUTION]") < text.index("[!WARNING]") < text.index("**Question.**")
    assert sorted(outline.of("href", "src")) == sorted(
        [f"tables/{t}.csv" for t in tables] + [f"figures/{p}.svg" for p in pictures]
    )
    assert all(printable(name) in outline.inside["li"] for name in AWKWARD if name)


def test_markdown_numbers_stay_readable() -> None:
    """Numbers and plain names are not escaped, so the source is readable."""
    text = render_markdown(
        Document("t", sections=(Section("s", (_table("9.50", "-1.5", "loopy_bp(x=0.5)", "-"),)),))
    )
    for cell in ("| 9.50 |", "| -1.5 |", "| loopy_bp(x=0.5) |", "| - |"):
        assert cell in text
    assert "| :--- | ---: |" in text


# ---------------------------------------------------------------------- CSV


def test_csv_holds_values() -> None:
    """Values have twelve digits, whole numbers no decimals; texts stay, missing ones are empty."""
    columns = tuple(map(Column, ("no.", "b", "%", "d", "e")))
    rows = (
        (
            Cell("33", 100 / 3),
            Cell("7", 7),
            Cell("-inf", -math.inf),
            Cell("-", math.nan),
            Cell("x"),
        ),
        (Cell("0.1", np.float64(0.1)), *map(Cell, ("", "-", "\N{EN DASH}", "-2"))),
        map(Cell, ("8/4/0", "a", "b", "c", "d")),
    )
    assert csv_table(table_of("t", "", columns, map(tuple, rows))).splitlines() == [
        "no.,b,%,d,e",
        "33.3333333333,7,-inf,,x",
        "0.1,,,,-2",
        "8/4/0,a,b,c,d",
    ]


@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
@example(AWKWARD)
def test_csv_is_read_back(texts: list[str]) -> None:
    """A CSV reader finds the number of rows and fields, and the text, for any content."""
    read = list(csv.reader(io.StringIO(csv_table(_table(*texts)))))
    assert read[0] == ["name", "value"]
    assert len(read) == len(texts) + 1
    for (name, value), text in zip(read[1:], texts, strict=True):
        assert value == "1.0"
        shown = printable(text)
        assert name == shown or shown in "-\N{EN DASH}\N{EM DASH}"


# ---------------------------------------------------------------------- files


def test_all_files_of_the_sample(sample_files: tuple[Path, list[Path]]) -> None:
    """Every table and picture has its files in its folder, and no file is elsewhere."""
    folder, written = sample_files
    document = sample_document()
    there = _files(folder.parents[1])
    assert there == {*written, folder / ".report-files.json"}
    assert len(written) == 2 * len(document.tables()) + 2 * 4 + 2
    assert {path.parent for path in there} == {folder, folder / "tables", folder / "figures"}
    assert (folder / "figures" / "profile-2.svg").is_file()
    summary = pd.read_csv(folder / "tables" / "summary.csv")
    assert len(summary) == 25
    assert summary["mean gap %"].tolist()[:2] == [9.5, 10.25]
    assert math.isnan(summary["mean gap %"].iloc[2])


def test_same_bytes(tmp_path: Path) -> None:
    """Two renderings of a document are identical files, with and without dates."""
    document = Document("t", sections=(Section("s", (_picture(), _table("a"))),))
    for folder in ("a", "b"):
        write_document(document, tmp_path / folder)
    files = [path.relative_to(tmp_path / "a") for path in _files(tmp_path / "a")]
    assert len(files) == 7
    for name in files:
        one, other = ((tmp_path / folder / name).read_bytes() for folder in "ab")
        # Fonts of a PDF have no fixed order.
        assert sorted(one) == sorted(other) if name.suffix == ".pdf" else one == other
        assert b"CreationDate" not in one


def test_only_own_stale_files_are_removed(tmp_path: Path) -> None:
    """Stale files of an earlier rendering are removed; files of others stay."""
    old = (Section("s", (_table("a", name="old"), _picture("old"))),)
    new = (Section("s", (_table("a", name="new"), _picture("new"))),)
    write_document(Document("t", sections=old), tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("1")
    (tmp_path / "runs.jsonl").write_text("{}")
    write_document(Document("t", sections=new), tmp_path)
    others = {"runs.jsonl", "mine.csv"}
    assert {p.name for p in _files(tmp_path)} == PAGES | others | {
        f"new.{suffix}" for suffix in ("csv", "tex", "svg", "pdf")
    }


def test_a_manifest_removes_nothing_else(tmp_path: Path) -> None:
    """Names that no rendering writes are not removed, even if they are in the manifest."""
    folder = tmp_path / "report"
    folder.mkdir()
    other_files = [tmp_path / "x.csv", folder / "runs.jsonl", folder / "tables" / "a.parquet"]
    for path in other_files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
    names = [
        "../x.csv",
        str(other_files[0]),
        "runs.jsonl",
        "tables/a.parquet",
        "tables/../../x.csv",
        3,
    ]
    (folder / ".report-files.json").write_text(json.dumps({"files": names}))
    write_document(Document("t"), folder)
    assert all(path.exists() for path in other_files)


@pytest.mark.parametrize("content", ["", "[", "[]", "3", '{"files": 3}', "\udcff"])
def test_broken_manifest_is_ignored(content: str, tmp_path: Path) -> None:
    """A manifest that cannot be read removes nothing and stops nothing."""
    (tmp_path / ".report-files.json").write_bytes(content.encode(errors="surrogateescape"))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text("1")
    write_document(Document("t"), tmp_path)
    assert (tmp_path / "tables" / "a.csv").exists()
    assert json.loads((tmp_path / ".report-files.json").read_text()) == {
        "files": ["README.md", "index.html"]
    }


@pytest.mark.parametrize("name", ["README.md", "index.html"])
@pytest.mark.parametrize("manifest", [None, "", '{"files": ["tables/a.csv"]}'])
def test_pages_of_others_are_not_replaced(name: str, manifest: str | None, tmp_path: Path) -> None:
    """A page that no report wrote stays; the message names it, and a remedy."""
    (tmp_path / name).write_text("mine")
    if manifest is not None:
        (tmp_path / ".report-files.json").write_text(manifest)
    before = _contents(tmp_path)
    with pytest.raises(FileExistsError, match="another folder, or remove it") as caught:
        write_document(sample_document(), tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert _contents(tmp_path) == before
    (tmp_path / name).unlink()
    write_document(Document("t"), tmp_path)
    write_document(Document("u"), tmp_path)
    assert "u" in (tmp_path / name).read_text()


def test_a_figure_that_fails_leaves_the_old_report(tmp_path: Path) -> None:
    """All is rendered before the first file is written."""
    write_document(Document("old", sections=(Section("s", (_picture(),)),)), tmp_path)
    before = _contents(tmp_path)

    def draw() -> Chart:
        raise RuntimeError("no data")

    broken = Section("s", (_picture("other"), Picture("p", "", "", draw)))
    with pytest.raises(RuntimeError, match="no data"):
        write_document(Document("new", sections=(broken,)), tmp_path)
    assert _contents(tmp_path) == before


def test_interrupted_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing stops at any point, no file is partial, and the next rendering clears up."""
    old = Document("old", sections=(Section("s", (_table("a" * 50, name="old"),)),))
    new = Document("new", sections=(Section("s", (_table("b" * 50, name="new"),)),))
    whole = {}
    for document in (old, new):
        write_document(document, tmp_path / document.title)
        for path in (tmp_path / document.title).rglob("*.*"):
            whole.setdefault(path.name, set()).add(path.read_bytes())
    replace = os.replace
    for stop in range(6):
        folder = tmp_path / f"stopped-{stop}"
        write_document(old, folder)
        moves = []

        def counted(source: Path, target: Path, stop: int = stop, moves: list[int] = moves) -> None:
            moves.append(1)
            if len(moves) > stop:
                raise KeyboardInterrupt
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(writing.os, "replace", counted)
            with pytest.raises(KeyboardInterrupt):
                write_document(new, folder)
        for path in folder.rglob("*.*"):
            assert not path.name.endswith(".part")
            if path.name != ".report-files.json":
                assert path.read_bytes() in whole[path.name]
        write_document(new, folder)
        assert {p.name for p in folder.rglob("*.*")} == PAGES | {"new.csv", "new.tex"}


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    """Others may read a report if the umask permits."""
    plain = tmp_path / "plain"
    plain.write_text("x")
    for path in write_document(Document("t"), tmp_path / "report"):
        assert path.stat().st_mode == plain.stat().st_mode
