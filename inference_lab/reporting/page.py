"""A report as one page of HTML that holds all it needs: style, script, pictures and data."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from inference_lab.formatting import paragraphs, printable, printable_lines
from inference_lab.reporting.charts import Drawing, javascript
from inference_lab.reporting.document import (
    Block,
    Cell,
    Code,
    Document,
    Items,
    Picture,
    Section,
    Table,
    file_stems,
)

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["render_page"]

#: Alarms and warnings beyond this number are folded away.
_BOX_ENTRIES = 5

#: Characters of HTML inside a folded section beyond which it is packed, to a tenth of its size.
_PACKED_FROM = 100_000

#: Sections inside one are in the contents if there are no more than so many.
_CONTENTS_ENTRIES = 12

#: Characters of a name in a table that stand on one line; no word of a name is longer, or it is
#: parted.
_NAME_LENGTH = 34

#: Longer words of running text may be broken: there are windows of this width.
_WORD_LENGTH = 36

#: What the files of tables are called in words.
_FORMS = {"csv": "CSV", "tex": "LaTeX"}


def _sort_key(cell: Cell) -> str | None:
    """Return what a cell is sorted by as JavaScript reads it, None where its text says it."""
    try:
        said = float(cell.text.replace(",", ""))
    except ValueError:
        said = math.nan
    if cell.value is None or math.isnan(cell.value):
        return None if math.isnan(said) else ""
    value = float(f"{cell.value:.7g}")
    if said == value:
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.7g}"


def _rows(table: Table) -> Markup:
    """Return the rows of a table as HTML.

    Not in the template, which takes ten times as long for each of many thousand cells; numbers are
    plain cells, since most are.
    """
    heads = bool(table.columns) and not table.columns[0].right
    lines = []
    for row in table.rows:
        cells = [
            _cell(cell, column.right, head=heads and number == 0)
            for number, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Markup("\n".join(lines))


def _cell(cell: Cell, right: bool, *, head: bool) -> str:
    """Return a cell as HTML; whatever it says is escaped."""
    text = _name(cell.text) if head else str(escape(printable(cell.text)))
    if cell.mark == "best":
        text = f"<strong>{text}</strong>"
    elif cell.mark == "failed":
        text = f"<em>{text}</em>"
    said = "said" * (not right and not head)
    classes = " ".join(filter(None, (said, cell.mark, "hint" * bool(cell.title))))
    number = _sort_key(cell) if right else None
    attributes = (
        (f' class="{classes}"' if classes else "")
        + (f' data-value="{number}"' if number is not None else "")
        + (f' title="{escape(printable(cell.title))}"' if cell.title else "")
    )
    return f'<th scope="row"{attributes}>{text}</th>' if head else f"<td{attributes}>{text}</td>"


def _name(text: str) -> str:
    """Return a name as HTML that is parted between its settings only, where it is long."""
    shown = printable(text)
    if len(shown) <= _NAME_LENGTH:
        return str(escape(shown))
    parts = re.findall(rf".{{1,{_NAME_LENGTH}}}(?:(?<=[(,/ ])|$)|.{{1,{_NAME_LENGTH}}}", shown)
    return "<wbr>".join(str(escape(part)) for part in parts)


def _words(text: str) -> Markup:
    """Return running text as HTML in which the names of solvers are not broken at hyphens."""
    tokens = re.split(r"(\S*\w[-(=]\S*)", printable(text))
    return Markup("").join(
        Markup('<span class="word">{}</span>').format(token)
        if number % 2 and len(token) <= _WORD_LENGTH
        else escape(token)
        for number, token in enumerate(tokens)
    )


def _packed(text: str) -> str:
    """Return a text as small as a page can hold it and a browser can read it."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


class _Layout:
    """Turns the document into what the template reads, with an anchor for every part."""

    def __init__(
        self,
        document: Document,
        tables: Sequence[str],
        pictures: Sequence[str],
        drawings: Sequence[Drawing],
        downloads: Sequence[dict[str, str]],
    ) -> None:
        self._tables = zip(tables, downloads, strict=True)
        self._pictures = zip(pictures, drawings, strict=True)
        titles = [section.title for section in _sections(document.sections)]
        self._anchors = iter(file_stems(titles, "part"))

    def section(self, section: Section) -> dict[str, Any]:
        return {
            "id": f"section-{next(self._anchors)}",
            "title": section.title,
            "folded": section.folded or section.aside,
            "blocks": [self._block(block) for block in section.blocks],
            "sections": [self.section(inner) for inner in section.sections],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        if isinstance(block, Table):
            return self._table(block)
        if isinstance(block, Picture):
            stem, drawing = next(self._pictures)
            return {
                "kind": "picture",
                "id": f"figure-{stem}",
                "caption": block.caption,
                "alt": block.alt,
                "spec": json.dumps(drawing.spec | {"description": printable(block.alt)}),
                "file": f"figures/{stem}.svg",
            }
        if isinstance(block, Items):
            return {"kind": "items", "entries": block.entries}
        if isinstance(block, Code):
            # What is marked as safe keeps its white space.
            return {"kind": "code", "text": escape(printable_lines(block.text))}
        return {"kind": "text", "paragraphs": block.paragraphs}

    def _table(self, table: Table) -> dict[str, Any]:
        stem, files = next(self._tables)
        return {
            "kind": "table",
            "id": f"table-{stem}",
            "caption": table.caption,
            "note": table.note,
            "columns": table.columns,
            "rows": _rows(table),
            "downloads": [(_FORMS.get(suffix, suffix), f"{stem}.{suffix}") for suffix in files],
        }


def _sections(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _sections(section.sections)


@cache
def _template() -> Template:
    """Return the template of the page with all that is the same for every document."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def one_line(value: object) -> object:
        if isinstance(value, str) and not isinstance(value, Markup):
            return printable(value)
        return value

    environment = Environment(
        loader=PackageLoader("inference_lab.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=one_line,
    )
    environment.filters |= {"packed": _packed, "words": _words}
    return environment.get_template(
        "page.html",
        globals={
            "shown": _BOX_ENTRIES,
            "packed_from": _PACKED_FROM,
            "entries_shown": _CONTENTS_ENTRIES,
            "style": Markup(_part("page.css")),
        },
    )


def _part(name: str) -> str:
    """Return a file of the folder of templates."""
    file = resources.files("inference_lab.reporting") / "templates" / name
    return file.read_text(encoding="utf-8").replace("\r\n", "\n")


def _scripts(charts: bool) -> list[tuple[str, Markup]]:
    """Return the scripts of a page with the hashes that allow them; Vega only where it draws."""
    texts = [*([javascript()] if charts else []), _part("page.js")]
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    hashes = (f"sha256-{base64.b64encode(digest).decode('ascii')}" for digest in digests)
    return [(digest, Markup(text)) for digest, text in zip(hashes, texts, strict=True)]


def render_page(
    document: Document,
    tables: Sequence[str],
    pictures: Sequence[str],
    drawings: Sequence[Drawing],
    downloads: Sequence[dict[str, str]],
) -> str:
    """Return a document as one page of HTML that fetches nothing.

    Anchors are made of the stems of the files of tables and pictures, see `file_stems`. Downloads
    are for each table the files that a reader may save from the page, suffix to text.

    Without JavaScript all is shown but for large folded sections, which stay packed; charts are
    links to pictures, and the files of tables are those in the folder ``tables`` beside the page.
    """
    layout = _Layout(document, tables, pictures, drawings, downloads)
    files = {
        f"{stem}.{suffix}": text
        for stem, forms in zip(tables, downloads, strict=True)
        for suffix, text in forms.items()
    }
    return _template().render(
        document=document,
        lead=[(name, paragraphs(said)) for name, said in document.lead],
        files=json.dumps(files) if files else "",
        sections=[layout.section(section) for section in document.sections],
        scripts=_scripts(bool(drawings)),
    )
