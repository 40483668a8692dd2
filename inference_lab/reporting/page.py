"""A report as one self-contained page of HTML: style, script, pictures and data."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from inference_lab.reporting.charts import Drawing, javascript
from inference_lab.reporting.document import Cell, Document, Table, file_stems
from inference_lab.reporting.printable import paragraphs, printable, printable_lines

if TYPE_CHECKING:
    from jinja2 import Template

#: Number of alarms and warnings shown; the others are folded away.
_BOX_ENTRIES = 5

#: Characters of HTML beyond which a folded section is compressed, to a tenth of its size.
_PACKED_FROM = 100_000

#: Largest number of subsections for which they are listed in the contents.
_CONTENTS_ENTRIES = 12

#: Characters of a name on one line of a table; longer names are broken between their settings,
#: and longer words anywhere.
_NAME_LENGTH = 34

#: Longest word of running text that is never broken, because some windows are this narrow.
_WORD_LENGTH = 36

#: Names of the file formats of tables.
_FORMS = {"csv": "CSV", "tex": "LaTeX"}


def _sort_key(cell: Cell) -> str | None:
    """Return the sort key of a cell as JavaScript reads it, None where its text is the key."""
    try:
        as_number = float(cell.text.replace(",", ""))
    except ValueError:
        as_number = math.nan
    if cell.value is None or math.isnan(cell.value):
        return None if math.isnan(as_number) else ""
    value = float(f"{cell.value:.7g}")
    if as_number == value:
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.7g}"


def _rows(table: Table) -> Markup:
    """Return the rows of a table as HTML.

    They are not in the template, because it takes ten times as long for each of thousands of cells;
    numbers are plain cells, since most cells are numbers.
    """
    heads = not table.columns[0].right
    lines = []
    for row in table.rows:
        cells = [
            _cell(cell, column.right, head=heads and number == 0)
            for number, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Markup("\n".join(lines))


def _cell(cell: Cell, right: bool, *, head: bool) -> str:
    """Return a cell as HTML, with all of its text escaped."""
    text = _name(cell.text) if head else str(escape(printable(cell.text)))
    if cell.mark == "best":
        text = f"<strong>{text}</strong>"
    elif cell.mark == "failed":
        text = f"<em>{text}</em>"
    prose = "text" * (not right and not head)
    classes = " ".join(filter(None, (prose, cell.mark, "hint" * bool(cell.title))))
    number = _sort_key(cell) if right else None
    attributes = (
        (f' class="{classes}"' if classes else "")
        + (f' data-value="{number}"' if number is not None else "")
        + (f' title="{escape(printable(cell.title))}"' if cell.title else "")
    )
    return f'<th scope="row"{attributes}>{text}</th>' if head else f"<td{attributes}>{text}</td>"


def _name(text: str) -> str:
    """Return a name as HTML; a long name may be broken between its settings."""
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
    """Return a text compressed for embedding in a page, in a format that browsers can read."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


@cache
def _template() -> Template:
    """Return the template of the page with the values that all documents share."""
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
    environment.filters |= {
        "packed": _packed,
        "words": _words,
        "rows": _rows,
        # White space is kept, because the text is marked as safe.
        "lines": lambda text: escape(printable_lines(text)),
        "id": id,
        "json": json.dumps,
        "printable": printable,
    }
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
    """Return the scripts of a page with the hashes that allow them; Vega only with charts."""
    texts = [*([javascript()] if charts else []), _part("page.js")]
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    hashes = (f"sha256-{base64.b64encode(digest).decode('ascii')}" for digest in digests)
    return [(digest, Markup(text)) for digest, text in zip(hashes, texts, strict=True)]


def render_page(
    document: Document, drawings: Mapping[str, Drawing], files: Mapping[str, str]
) -> str:
    """Return a numbered document as one page of HTML that fetches nothing.

    `drawings` are the drawings of the pictures by stem, `files` the texts to download, by name.
    Without JavaScript, all content is shown except large folded sections, which stay compressed.
    Charts are then links to pictures, and files of tables lie in the folder ``tables`` beside it.
    """
    sections = [inner for outer in document.sections for inner in outer.walk()]
    anchors = file_stems([section.title for section in sections], "part")
    return _template().render(
        document=document,
        lead=[(name, paragraphs(as_number)) for name, as_number in document.lead],
        drawings=drawings,
        files=files,
        forms=_FORMS,
        # Anchors go by identity, because two sections may be equal.
        anchors=dict(zip(map(id, sections), anchors, strict=True)),
        scripts=_scripts(bool(drawings)),
    )
