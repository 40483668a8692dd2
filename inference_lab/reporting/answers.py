"""Answers and claims of studies: Jinja texts over the tables of a report, so no number can drift.

``{{ cell('summary', 'icm', 'gap %') }}`` is the text of a cell of a table, and ``{{
value('summary', 'icm', 'seconds')|fixed(2) }}`` the number behind it, with two decimals. A table is
selected by the name of its file. A row is selected by the text of one of its cells, or of several
joined by ``&``; a column by its title. ``;`` separates several rows or columns, and ``*`` selects
all of them, for ``lowest`` and ``highest``. For contrasts there are ``gain``, ``interval``,
``above``, ``p`` and ``verdict``, by name; ``{{ verdict('exact', gain='helps', undecided='may') }}``
maps each verdict to words, and the page warns of a verdict without words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from inference_lab.formatting import nearest
from inference_lab.reporting.document import Cell, Document, Section, Table, column, file_stems

#: Columns of the table of contrasts by the names of their functions in answers.
_CONTRASTS = {
    "gain": "gain",
    "interval": "95 % interval",
    "above": "sets above",
    "p": "p (Holm)",
}


class _Lookups:
    """The functions of a template; a missing value is recorded, and rendered as a question mark."""

    def __init__(self, tables: Iterable[Table]) -> None:
        all_tables = list(tables)
        self.tables = dict(
            zip(file_stems([t.name for t in all_tables], "table"), all_tables, strict=True)
        )
        self.missing: list[str] = []

    def cells(self, name: str, row: str, column: str) -> list[Cell]:
        table = self.tables.get(name)
        if table is None:
            self.missing.append(f"there is no table {name!r}{nearest(name, self.tables)}")
            return []
        titles = [head.title for head in table.columns]
        wanted = titles[1:] if column == "*" else [title.strip() for title in column.split(";")]
        for title in wanted:
            if title not in titles:
                hint = nearest(title, titles)
                self.missing.append(f"table {name!r} has no column {title!r}{hint}")
        cells = []
        for one in row.split(";"):
            keys = {key.strip() for key in one.split("&")}
            rows = [r for r in table.rows if keys == {"*"} or keys <= {cell.text for cell in r}]
            if not rows:
                self.missing.append(f"table {name!r} has no row {one.strip()!r}")
            cells += [r[titles.index(t)] for r in rows for t in wanted if t in titles]
        return cells

    def cell(self, name: str, row: str, column: str) -> str:
        cells = self.cells(name, row, column)
        if len(cells) > 1:
            self.missing.append(f"{name} | {row} | {column} are {len(cells)} cells, not one")
        return cells[0].text if len(cells) == 1 else "?"

    def number(self, choose: Callable[[list[float]], float]) -> Callable[[str, str, str], Any]:
        def value(name: str, row: str, column: str) -> Any:
            numbers = [c.value for c in self.cells(name, row, column) if c.value is not None]
            if not numbers:
                self.missing.append(f"{name} | {row} | {column} holds no number")
            return choose(numbers) if numbers else float("nan")

        return value

    def verdict(self, *names: str, **words: str) -> str:
        """Return the common verdict of these contrasts, or the words given for it."""
        verdict = ", ".join(dict.fromkeys(self.cell("contrasts", n, "verdict") for n in names))
        if words and verdict not in words:
            self.missing.append(f"no text is given for the verdict {verdict!r} of {names}")
        return words.get(verdict, verdict)

    def offered(self) -> dict[str, Any]:
        by_name = {
            call: lambda name, column=column: self.cell("contrasts", name, column)
            for call, column in _CONTRASTS.items()
        }
        numbers: dict[str, Callable[[list[float]], float]] = {
            "value": lambda values: values[0],
            "lowest": min,
            "highest": max,
        }
        return {
            "cell": self.cell,
            "verdict": self.verdict,
            **by_name,
            **{call: self.number(choose) for call, choose in numbers.items()},
        }


def filled(text: str, tables: Iterable[Table]) -> tuple[str, list[str]]:
    """Return the rendered text, and the lookups that the tables could not resolve."""
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    # Sandboxed, because definitions of studies may come from untrusted authors.
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    environment.filters["fixed"] = lambda value, decimals: f"{value:.{decimals}f}"
    # The filter removes the sign of a gain, or the star of a test.
    environment.filters["plain"] = lambda text: text.removesuffix(" *").replace("+", "")
    lookups = _Lookups(tables)
    try:
        shown = environment.from_string(text).render(lookups.offered())
    except (TemplateError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        return text, [f"it is not a template: {problem}"]
    return shown, lookups.missing


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of a publication in our words, and the verdict of the records of a study on it."""

    paper: str
    claim: str
    verdict: Literal["holds", "holds under conditions", "does not hold", "undecided"]
    #: Reason of the verdict, a Jinja text over the tables of the report.
    evidence: str


def with_answers(document: Document, claims: Sequence[Claim] = ()) -> Document:
    """Return a report with its answer rendered, and with claims after its first section.

    Each lookup of the answer or evidence that the tables cannot resolve becomes a warning.
    """
    tables = document.tables()
    lead = []
    warnings = list(document.warnings)
    for name, text in document.lead:
        shown, missing = filled(text, tables) if name == "Answer" else (text, [])
        lead.append((name, shown))
        warnings += [f"{name} and records differ: {reason}." for reason in missing]
    evidence = []
    for claim in claims:
        shown, missing = filled(claim.evidence, tables)
        evidence.append(shown)
        warnings += [f"Evidence of {claim.claim!r} and records differ: {s}." for s in missing]
    sections = document.sections
    if claims:
        columns = (
            column("paper", [claim.paper for claim in claims]),
            column("claim", [claim.claim for claim in claims]),
            column("verdict", [claim.verdict for claim in claims]),
            column("evidence", evidence),
        )
        table = Table("claims", "Published claims, and the verdict of the records.", columns)
        sections = (sections[0], Section("Published claims", (table,)), *sections[1:])
    return replace(document, lead=tuple(lead), warnings=tuple(warnings), sections=sections)
