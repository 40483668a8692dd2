"""A report as one page of HTML that holds all it needs: style, script, pictures and data."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup, escape

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
from inference_lab.words import paragraphs, printable, printable_lines

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["inline_svg", "render_page"]

#: Alarms and warnings beyond this number are folded away.
_BOX_ENTRIES = 5

#: Sections inside one are in the contents if there are no more than so many.
_CONTENTS_ENTRIES = 12

#: Elements of SVG that draw. A picture may carry others (scripts, styles for the whole page,
#: links, metadata with dates), which a page must not take over.
_DRAWING = frozenset(
    "circle clipPath defs ellipse g image line linearGradient mask path pattern polygon polyline "
    "radialGradient rect stop svg symbol text textPath tspan use".split()
)

#: Addresses that a picture may name: parts of itself, and pixels.
_HARMLESS = re.compile(r"#|data:image/(?:png|jpeg|gif);base64,")

_POINTS_PER_PIXEL = 0.75

#: What the files of tables are called in words.
_FORMS = {"csv": "CSV", "tex": "LaTeX"}


def _local(name: str) -> str:
    """Return an XML name without its namespace."""
    return name.rpartition("}")[2]


def _drop_all_but_drawing(element: ElementTree.Element) -> None:
    for child in list(element):
        if _local(child.tag) == "a":
            child.tag = "g"  # what a link holds is drawn, but leads nowhere
        if _local(child.tag) in _DRAWING:
            _drop_all_but_drawing(child)
        else:
            element.remove(child)


def inline_svg(svg: str, prefix: str, alt: str) -> str:
    """Return an SVG file as an element for a page that holds other pictures too.

    Parameters
    ----------
    svg : str
        The file, as matplotlib writes it.
    prefix : str
        Put before all identifiers in the picture, so that those of two pictures differ.
    alt : str
        What the picture shows, for those who do not see it.

    Returns
    -------
    str
        Elements that draw, and nothing that runs, leads elsewhere or changes the rest of a page.

    Raises
    ------
    ValueError
        If the text is not SVG.

    Examples
    --------
    >>> svg = (
    ...     '<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt" '
    ...     'viewBox="0 0 72 36"><script>alert(1)</script><g id="a"/></svg>'
    ... )
    >>> print(inline_svg(svg, "one_", "Nothing"))
    <svg viewBox="0 0 72 36" style="--width: 96px" stroke-linejoin="round" \
stroke-linecap="butt" role="img" aria-label="Nothing"><g id="one_a" /></svg>
    """
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"svg must be well-formed XML: {error}") from error
    if _local(root.tag) != "svg":
        raise ValueError(f"svg must be an svg element, got {_local(root.tag)!r}")
    _drop_all_but_drawing(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {}
        for full, value in element.attrib.items():
            name = _local(full)
            if name.startswith("on") or name == "class":
                continue
            if name == "href":
                if not _HARMLESS.match(value):
                    continue
                value = re.sub("^#", f"#{prefix}", value)
            elif name == "id":
                value = prefix + value
            else:
                value = re.sub(r"url\((['\"]?)#", rf"url(\1#{prefix}", value)
                if re.search(r"url\((?!['\"]?#)", value):
                    continue
            attributes[name] = value
        element.attrib.clear()
        element.attrib.update(attributes)
    length = re.fullmatch(r"([0-9.]+)(pt|px|)", root.attrib.pop("width", ""))
    root.attrib.pop("height", None)
    if length:
        pixels = float(length[1]) / (_POINTS_PER_PIXEL if length[2] == "pt" else 1.0)
        root.set("style", f"--width: {pixels:g}px")
    # As matplotlib's style sheet says, which would reach all other pictures of the page.
    root.set("stroke-linejoin", "round")
    root.set("stroke-linecap", "butt")
    root.set("role", "img")
    root.set("aria-label", printable(alt))
    root.tail = None
    return ElementTree.tostring(root, encoding="unicode")


def _number(cell: Cell) -> str | None:
    """Return the value of a cell as JavaScript reads it, None where it is missing."""
    if cell.value is None or math.isnan(cell.value):
        return None
    value = float(cell.value)
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _data_address(text: str, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode('ascii')}"


def _rows(table: Table) -> Markup:
    """Return the rows of a table as HTML.

    Not in the template, which takes ten times as long for each of many thousand cells.
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
    text = str(escape(printable(cell.text)))
    if cell.mark == "best":
        text = f"<strong>{text}</strong>"
    elif cell.mark == "failed":
        text = f"<em>{text}</em>"
    classes = " ".join(filter(None, ("num" * right, cell.mark, "hint" * bool(cell.title))))
    number = _number(cell)
    attributes = (
        (f' class="{classes}"' if classes else "")
        + (f' data-value="{number}"' if number is not None else "")
        + (f' title="{escape(printable(cell.title))}"' if cell.title else "")
    )
    return f'<th scope="row"{attributes}>{text}</th>' if head else f"<td{attributes}>{text}</td>"


class _Layout:
    """Turns the document into what the template reads, with an anchor for every part."""

    def __init__(
        self,
        document: Document,
        tables: Sequence[str],
        pictures: Sequence[str],
        svgs: Sequence[str],
        downloads: Sequence[dict[str, str]],
    ) -> None:
        self._tables = zip(tables, downloads, strict=True)
        self._pictures = zip(pictures, svgs, strict=True)
        titles = [section.title for section in _sections(document.sections)]
        self._anchors = iter(file_stems(titles, "part"))

    def section(self, section: Section) -> dict[str, Any]:
        return {
            "id": f"section-{next(self._anchors)}",
            "title": section.title,
            "folded": section.folded,
            "blocks": [self._block(block) for block in section.blocks],
            "sections": [self.section(inner) for inner in section.sections],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        if isinstance(block, Table):
            return self._table(block)
        if isinstance(block, Picture):
            stem, svg = next(self._pictures)
            name = f"figure-{stem}"
            inline = inline_svg(svg, f"{name}_", block.alt)
            return {"kind": "picture", "id": name, "caption": block.caption, "svg": inline}
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
            "downloads": [
                (_FORMS.get(suffix, suffix), f"{stem}.{suffix}", _data_address(text, "text/plain"))
                for suffix, text in files.items()
            ],
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
    folder = resources.files("inference_lab.reporting") / "templates"
    style, script = (
        (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")
        for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template(
        "page.html",
        globals={
            "shown": _BOX_ENTRIES,
            "entries_shown": _CONTENTS_ENTRIES,
            "style": Markup(style),
            "script": Markup(script),
            "script_hash": f"sha256-{digest}",
        },
    )


def render_page(
    document: Document,
    tables: Sequence[str],
    pictures: Sequence[str],
    svgs: Sequence[str],
    downloads: Sequence[dict[str, str]],
) -> str:
    """Return a document as one page of HTML.

    Parameters
    ----------
    document : Document
    tables, pictures : sequence of str
        The stem of the files of each table and picture, in the order of the page, see
        `file_stems`; anchors are made of them.
    svgs : sequence of str
        Each picture as SVG.
    downloads : sequence of dict
        For each table, the files that a reader may save from the page: suffix to text.

    Returns
    -------
    str
        Refers to nothing outside itself, and forbids the browser to fetch anything. Without
        JavaScript, all is shown; tables cannot be sorted or filtered.

    Examples
    --------
    >>> page = render_page(Document("<b>"), [], [], [], [])
    >>> "<h1>&lt;b&gt;</h1>" in page
    True
    """
    layout = _Layout(document, tables, pictures, svgs, downloads)
    return _template().render(
        document=document,
        lead=[(name, paragraphs(said)) for name, said in document.lead],
        sections=[layout.section(section) for section in document.sections],
    )
