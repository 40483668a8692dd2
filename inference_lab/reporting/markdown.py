"""A report as Markdown, in the dialect of GitHub."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from inference_lab.reporting.document import (
    Block,
    Cell,
    Code,
    Document,
    Items,
    Mark,
    Picture,
    Section,
    Table,
)
from inference_lab.reporting.printable import paragraphs, printable, printable_lines

#: Characters written as entities, because renderers differ in how they read a backslash before a
#: pipe in a table, and inside HTML.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}

#: Characters that are escaped, except for an underscore between letters, which marks nothing.
#: Number signs after a space at the end of a heading would be taken for its end.
_ESCAPED = re.compile(r"[\\`*\[\]~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<= )#(?=#*$)")

#: Characters that begin a heading, a list or a rule at the start of a block.
_START = re.compile(r"^(\d*)([-+#.)])(?=[-# ]|$)")


def _inline(text: str) -> str:
    """Escape a text within a line, not at the start of a block."""
    text = _ESCAPED.sub(lambda match: "\\" + match[0], printable(text))
    return "".join(_ENTITIES.get(c, c) for c in text)


def escape_markdown(text: str) -> str:
    r"""Return Markdown that shows a text literally."""
    return _START.sub(r"\1\\\2", _inline(text))


_MARKED: dict[Mark, str] = {"": "{}", "best": "**{}**", "failed": "*{}*"}


def _cell(cell: Cell) -> str:
    text = _inline(cell.text)
    return _MARKED[cell.mark].format(text) if text else ""


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown_rows(table: Table) -> str:
    """Return the lines of a table, including its header."""
    return "\n".join(
        [
            _row(_inline(column.title) for column in table.columns),
            _row("---:" if column.right else ":---" for column in table.columns),
            *(_row(map(_cell, row)) for row in table.rows),
        ]
    )


def _section(section: Section, level: int) -> Iterator[str]:
    if section.folded:
        title = html.escape(printable(section.title)).replace("|", "&#124;")
        yield f"<details>\n<summary><strong>{title}</strong></summary>"
    else:
        yield f"{'#' * min(level, 6)} {escape_markdown(section.title)}"
    for block in section.blocks:
        yield from _block(block)
    for inner in section.sections:
        yield from _section(inner, level + 1)
    if section.folded:
        yield "</details>"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        anchor = f'<a id="table-{block.stem}"></a>'
        yield f"{anchor}{_inline(block.caption)} ([CSV](tables/{block.stem}.csv))"
        yield markdown_rows(block)
        yield escape_markdown(block.note)
        yield escape_markdown("; ".join(block.meanings()))
    elif isinstance(block, Picture):
        yield f"![{_inline(block.alt)}](figures/{block.stem}.svg)"
        yield escape_markdown(block.caption)
    elif isinstance(block, Items):
        yield _items(block.entries)
    elif isinstance(block, Code):
        yield _fenced(block.text)
    else:
        yield from map(escape_markdown, block.paragraphs)


def _fenced(text: str) -> str:
    """Return a block of code, in a fence longer than any run of backticks in it."""
    shown = printable_lines(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}" if shown else ""


def _items(entries: Sequence[str]) -> str:
    # Entries without text are dropped, because they would make a heading of the line above.
    return "\n".join(f"- {text}" for text in map(escape_markdown, entries) if text)


def _box(kind: str, entries: Sequence[str]) -> str:
    """Return an alert, which GitHub colours by its kind, and others show as a quotation."""
    return f"> [!{kind}]\n" + "\n".join(f"> {line}" for line in _items(entries).split("\n"))


def render_markdown(document: Document) -> str:
    """Return a document as a page of Markdown, with links to the files of its tables."""
    parts = [f"# {escape_markdown(document.title)}"]
    if document.alarms:
        parts.append(_box("CAUTION", document.alarms))
    if document.warnings:
        parts.append(_box("WARNING", document.warnings))
    for name, sentences in document.lead:
        first, *others = paragraphs(sentences) or [""]
        parts += [f"**{_inline(name)}.** {_inline(first)}", *map(escape_markdown, others)]
    for section in document.numbered().sections:
        parts += _section(section, 2)
    return "\n\n".join(part for part in parts if part) + "\n"
