"""The document model of reports: their content, independent of its presentation.

A report is built once as a `Document` and then written by `write_document` as Markdown, as a
self-contained page of HTML, and its tables and pictures as files of their own. All strings in a
document are plain text: renderers escape them, so a problem may have any name at all.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from inference_lab.formatting import shortened
from inference_lab.reporting.printable import printable
from inference_lab.results.number_formats import NONE, format_energy

if TYPE_CHECKING:
    from inference_lab.reporting.charts import Chart

Mark = Literal["", "best", "failed"]


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    #: Sort key of the cell, with missing ones (None, NaN) last; CSV holds it.
    value: float | None = None
    #: Mark of the cell, and a longer explanation, shown on demand.
    mark: Mark = ""
    title: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table; see `column`."""

    title: str
    cells: Sequence[Cell] = ()
    #: Whether the column is set flush right, and the meaning of the column.
    right: bool = True
    help: str = ""


#: Function from a value to its text, or to its whole cell.
Form: TypeAlias = Callable[[Any], str | Cell]


def column(
    title: str,
    values: Iterable[Any],
    form: Form = str,
    *,
    right: bool | None = None,
    best: Callable[[list[float]], float] | None = None,
    help: str = "",
) -> Column:
    """Return a column; `form` maps each value to its text, or to its whole cell.

    Missing values, None and NaN, are shown as `NONE`. Only plain texts are flush left by default.
    `best` selects the value whose cells are marked, unless all values are equal.
    """
    cells = []
    for value in values:
        shown = NONE if value is None or value != value else form(value)
        cells.append(shown if isinstance(shown, Cell) else Cell(shown, _number(value)))
    # Rounded, because values that differ by rounding alone are equal.
    digits = {
        at: float(f"{cell.value:.12g}")
        for at, cell in enumerate(cells)
        if cell.value is not None and math.isfinite(cell.value)
    }
    if best is not None and len(set(digits.values())) > 1:
        best_value = best(list(digits.values()))
        for at, value in digits.items():
            if value == best_value and not cells[at].mark:
                cells[at] = replace(cells[at], mark="best")
    if right is None:
        right = form is not str or any(cell.value is not None for cell in cells)
    return Column(title, cells, right, help)


def _number(value: object) -> float | None:
    """Return the number behind a cell, if there is one; counts stay integers."""
    if isinstance(value, int):
        return value
    return float(value) if isinstance(value, float) and not math.isnan(value) else None


def cut(width: int) -> Form:
    """Return the form of texts truncated after `width` characters."""
    return lambda text: Cell(shortened(text, width), title=text if len(text) > width else "")


def energies(decimals: int) -> Callable[[float | None], Cell]:
    """Return the form of energies and bounds; values that are not finite are missing."""

    def shown(value: float | None) -> Cell:
        finite = value if value is not None and math.isfinite(value) else None
        return Cell(format_energy(finite, decimals), finite)

    return shown


def failures(count: int) -> Cell:
    """Return the cell of a number of failures, marked unless it is zero."""
    return Cell(str(count), count, mark="failed" if count else "")


def p_value(value: float) -> str:
    """Return the text of a p-value."""
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


@dataclass(frozen=True)
class Table:
    """A table with a caption; `stem` names its files, see `Document.numbered`."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    note: str = ""
    stem: str = ""
    kind: ClassVar[str] = "table"

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells of each row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    def meanings(self) -> list[str]:
        """Return a line for each column with a meaning: its title and its meaning."""
        return [f"{printable(c.title)}: {printable(c.help)}" for c in self.columns if c.help]


@dataclass(frozen=True)
class Picture:
    """A figure; `stem` names its files, see `Document.numbered`."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Chart]
    stem: str = ""
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text."""

    paragraphs: tuple[str, ...]
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Items:
    """A bullet list of plain text."""

    entries: tuple[str, ...]
    kind: ClassVar[str] = "items"


@dataclass(frozen=True)
class Code:
    """Text for a machine, such as a command; its white space is significant."""

    text: str
    kind: ClassVar[str] = "code"


Block = Table | Picture | Text | Items | Code


@dataclass(frozen=True)
class Section:
    """A titled part of a document: its own blocks, then the sections inside it.

    A section with `aside` is folded on the page; one with `folded` in Markdown, too.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    folded: bool = False
    sections: tuple[Section, ...] = ()
    aside: bool = False

    def walk(self) -> Iterator[Section]:
        """Yield the section and all sections inside it, in the order of the page."""
        yield self
        for inner in self.sections:
            yield from inner.walk()

    def changed(self, change: Callable[[Block], Block | None]) -> Section:
        """Return the section with changed blocks; a block changed to None is dropped."""
        blocks = [changed for block in self.blocks if (changed := change(block)) is not None]
        return replace(self, blocks=tuple(blocks), sections=_changed(self.sections, change))


def _changed(
    sections: Iterable[Section], change: Callable[[Block], Block | None]
) -> tuple[Section, ...]:
    """Return sections with changed blocks, without sections that became empty."""
    pairs = [(section, section.changed(change)) for section in sections]
    return tuple(
        new for old, new in pairs if new.blocks or new.sections or not (old.blocks or old.sections)
    )


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    lead: tuple[tuple[str, str], ...] = ()
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of all sections, in the order of the page."""
        for outer in self.sections:
            for section in outer.walk():
                yield from section.blocks

    def tables(self) -> list[Table]:
        """Return all tables, in the order of the page."""
        return [block for block in self.blocks() if isinstance(block, Table)]

    def pictures(self) -> list[Picture]:
        """Return all pictures, in the order of the page."""
        return [block for block in self.blocks() if isinstance(block, Picture)]

    def changed(self, change: Callable[[Block], Block | None]) -> Document:
        """Return the document with changed blocks, see `Section.changed`."""
        return replace(self, sections=_changed(self.sections, change))

    def numbered(self) -> Document:
        """Return the document with distinct file names for its tables and pictures."""
        stems = {
            Table: iter(file_stems([table.name for table in self.tables()], "table")),
            Picture: iter(file_stems([picture.name for picture in self.pictures()], "figure")),
        }
        return self.changed(
            lambda block: (
                replace(block, stem=next(stems[type(block)]))
                if isinstance(block, Table | Picture)
                else block
            )
        )


#: Longest file name: file systems allow 255 bytes, archives and tools often fewer.
_STEM_LENGTH = 80

#: Names that Windows reserves for devices, whatever their suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")


def _stem(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    stem = re.sub(r"[^a-z0-9]+", "-", plain.lower())[:_STEM_LENGTH].strip("-")
    return f"{stem}-" if _DEVICES.fullmatch(stem) else stem


def file_stems(names: Iterable[str], default: str) -> list[str]:
    """Turn names into file names without a suffix.

    Guarantees: no two are equal, even if case is ignored; names that are safe and differ stay as
    they are.
    """
    stems = [_stem(name) or default for name in names]
    taken = set(stems)
    used: set[str] = set()
    result = []
    for stem in stems:
        unique = stem
        number = 1
        while unique in used or (number > 1 and unique in taken):
            number += 1
            unique = f"{stem}-{number}"
        used.add(unique)
        result.append(unique)
    return result
