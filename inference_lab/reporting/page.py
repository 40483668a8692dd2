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
from itertools import count
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup, escape

from inference_lab.reporting.charts import Chart, chart_html
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

#: Characters of HTML inside a folded section beyond which it is packed, to a tenth of its size.
_PACKED_FROM = 100_000

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

#: Characters of a name in a table that stand on one line; no word of a name is longer, or it is
#: parted.
_NAME_LENGTH = 34

#: Longer words of running text may be broken: there are windows of this width.
_WORD_LENGTH = 36

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
                # A hundredth of a point is not seen; of a scale it is.
                value = re.sub(r"[1-9]\d*\.\d{3,}", lambda found: f"{float(found[0]):.2f}", value)
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
        drawings: Sequence[str | Chart],
        downloads: Sequence[dict[str, str]],
    ) -> None:
        self._tables = zip(tables, downloads, strict=True)
        self._pictures = zip(pictures, drawings, strict=True)
        self._numbers = count(1)
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
            # Short, for it stands before each glyph.
            prefix = f"p{next(self._numbers)}_"
            return {
                "kind": "picture",
                "id": f"figure-{stem}",
                "caption": block.caption,
                "chart": isinstance(drawing, Chart),
                "inline": chart_html(drawing, prefix, block.alt)
                if isinstance(drawing, Chart)
                else Markup(inline_svg(drawing, prefix, block.alt)),
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
    folder = resources.files("inference_lab.reporting") / "templates"
    style, page_script, chart_script = (
        (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")
        for name in ("page.css", "page.js", "chart.js")
    )
    script = page_script + chart_script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template(
        "page.html",
        globals={
            "shown": _BOX_ENTRIES,
            "packed_from": _PACKED_FROM,
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
    drawings: Sequence[str | Chart],
    downloads: Sequence[dict[str, str]],
) -> str:
    """Return a document as one page of HTML.

    Parameters
    ----------
    document : Document
    tables, pictures : sequence of str
        The stem of the files of each table and picture, in the order of the page, see
        `file_stems`; anchors are made of them.
    drawings : sequence of str or Chart
        Each picture, as SVG or as its curves.
    downloads : sequence of dict
        For each table, the files that a reader may save from the page: suffix to text.

    Returns
    -------
    str
        Forbids the browser to fetch anything. Without JavaScript, all is shown; tables cannot be
        sorted or filtered, charts are as wide as they are, large folded sections stay packed, and
        the files of tables are those in the folder ``tables`` beside the page, of which it holds
        a copy.

    Examples
    --------
    >>> page = render_page(Document("<b>"), [], [], [], [])
    >>> "<h1>&lt;b&gt;</h1>" in page
    True
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
    )
