"""The document model of reports: what is said, apart from how a page shows it.

A report is built once as a `Document` and then written by `write_document` as Markdown, as a
self-contained page of HTML, and its tables and pictures as files of their own. All strings in a
document are plain text: renderers escape them, so a problem may have any name at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from inference_lab.formatting import printable

if TYPE_CHECKING:
    from inference_lab.reporting.charts import Chart

__all__ = [
    "Block",
    "Cell",
    "Code",
    "Column",
    "Document",
    "Items",
    "Mark",
    "Picture",
    "Section",
    "Table",
    "Text",
    "file_stems",
]

Mark = Literal["", "best", "failed", "alarm"]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Parameters
    ----------
    text : str
        What is shown.
    value : float, optional
        The number behind the text: cells are sorted by it, and CSV holds it (but see `Column`).
        None and NaN are missing, and sort behind all numbers in both directions.
    mark : {"", "best", "failed", "alarm"}
        What the cell says about itself, beside its text.
    title : str
        A longer explanation, shown on demand where the form allows.
    """

    text: str
    value: float | None = None
    mark: Mark = ""
    title: str = ""

    def __post_init__(self) -> None:
        """Refuse marks that no renderer knows."""
        if self.mark not in get_args(Mark):
            raise ValueError(
                f"mark must be one of {', '.join(map(repr, get_args(Mark)))}, got {self.mark!r}"
            )


@dataclass(frozen=True)
class Column:
    """The head of a column.

    Parameters
    ----------
    title : str
    right : bool
        Whether the column is set flush right.
    help : str
        What the column means.
    name : str
        What it is called in CSV; empty: as its title.
    as_text : bool
        Whether CSV holds the texts of the cells, where their values are only what they are sorted
        by.
    """

    title: str
    right: bool = True
    help: str = ""
    name: str = ""
    as_text: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a caption."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse tables that are not rectangular."""
        if not self.columns:
            raise ValueError(f"columns of table {self.name!r} must not be empty")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows[{number}] of table {self.name!r} has {len(row)} cells, but there are "
                    f"{len(self.columns)} columns"
                )

    def meanings(self) -> list[str]:
        """Return what the columns mean, each with its title, on one line."""
        return [f"{printable(c.title)}: {printable(c.help)}" for c in self.columns if c.help]


@dataclass(frozen=True)
class Picture:
    """A figure."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Chart]


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text."""

    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Items:
    """A bullet list of plain text."""

    entries: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """What is typed or read by a machine, such as a command; white space in it counts."""

    text: str


Block = Table | Picture | Text | Items | Code


@dataclass(frozen=True)
class Section:
    """A titled part of a document: its own blocks, then the sections inside it."""

    title: str
    blocks: tuple[Block, ...] = ()
    folded: bool = False
    sections: tuple[Section, ...] = ()
    aside: bool = False


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    lead: tuple[tuple[str, str], ...] = ()
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Iterate over the blocks of all sections, in the order of the page."""

        def walk(sections: tuple[Section, ...]) -> Iterator[Block]:
            for section in sections:
                yield from section.blocks
                yield from walk(section.sections)

        return walk(self.sections)

    def tables(self) -> list[Table]:
        """Return all tables, in the order of the page."""
        return [block for block in self.blocks() if isinstance(block, Table)]

    def pictures(self) -> list[Picture]:
        """Return all pictures, in the order of the page."""
        return [block for block in self.blocks() if isinstance(block, Picture)]


#: Longer names are cut: file systems allow 255 bytes, archives and tools often fewer.
_STEM_LENGTH = 80

#: Names that Windows keeps for devices, whatever their suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")


def _stem(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    stem = re.sub(r"[^a-z0-9]+", "-", plain.lower())[:_STEM_LENGTH].strip("-")
    return f"{stem}-" if _DEVICES.fullmatch(stem) else stem


def file_stems(names: Iterable[str], default: str) -> list[str]:
    """Turn names into file names without a suffix.

    Guarantees: no two are equal, not even where upper and lower case are one; names that are
    safe and differ stay as they are.
    """
    stems = [_stem(name) or default for name in names]
    taken = set(stems)
    used: set[str] = set()
    result = []
    for stem in stems:
        unique, number = stem, 1
        while unique in used or (number > 1 and unique in taken):
            number += 1
            unique = f"{stem}-{number}"
        used.add(unique)
        result.append(unique)
    return result
