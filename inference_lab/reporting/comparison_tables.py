"""Tables of a comparison for the terminal and for notebooks."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inference_lab.formatting import counted, shortened
from inference_lab.reporting.document import Table
from inference_lab.reporting.overview import solvers_table
from inference_lab.reporting.problem_header import (
    PAIRWISE,
    known_facts,
    problem_columns,
    sizes,
)
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.analysis import Findings
from inference_lab.results.summaries import Row, grouped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

#: Characters of a footnote shown; records hold the whole message and the end of the traceback.
_REASON_WIDTH = 200

#: Number of problems shown in a notebook, so that a study does not fill its page.
_SHOWN_PROBLEMS = 10

#: Number of warnings shown, and characters of each; a report has all of them in full.
_WARNINGS = 3
_WARNING_WIDTH = 160

#: Titles of the columns of the summary that are shown, because more would not fit.
_SUMMARY = (
    *("solver", "primal gap %", "gap %", "% best", "% proved"),
    *("seconds", "failed", "runs"),
)


# ---------------------------------------------------------------------- contents of the tables

# Each `Table` is named by its title; its caption follows the title, its note stands below them.


def _footnotes(comparison: Findings) -> dict[str, int]:
    """Assign a number to each reason for failures and refusals."""
    reasons = dict.fromkeys(message for row in comparison.rows for message in row.messages)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _warnings(comparison: Findings) -> list[str]:
    """Return the first warnings, shortened, and the number of the remaining ones."""
    warnings = [shortened(w, _WARNING_WIDTH) for w in comparison.warnings]
    rest = len(warnings) - _WARNINGS
    return warnings[:_WARNINGS] + ([f"and {counted(rest, 'more warning')}"] if rest > 0 else [])


def _problem_tables(comparison: Findings, notes: dict[str, int]) -> list[Table]:
    """Return the table of the solvers on each problem; all problems have the same columns."""

    def status(row: Row) -> str:
        marks = "".join(f" [{notes[message]}]" for message in row.messages)
        return row.status.replace("error", "failed") + marks

    tables = []
    rows = grouped(comparison.rows, lambda row: row.problem)
    for problem in comparison.problems:
        mine = rows[problem.name]
        columns = problem_columns(problem, mine, comparison.rows, status)
        tables.append(Table(problem.name, sizes(problem), columns, known_facts(problem, mine)))
    return tables


def summary_table(comparison: Findings, columns: Sequence[str] | None = None) -> Table:
    """Return the table over solvers, with the columns of these titles."""
    table = solvers_table(ResultArrays(comparison))
    if not table.columns:
        raise ValueError("there is no table over solvers: no problem was run by all of them")
    first, *others = table.columns
    titled = {other.title: other for other in others}
    wanted = list(titled) if columns is None else list(columns)
    for title in wanted:
        if title not in titled:
            raise ValueError(f"there is no column {title!r}, but {', '.join(titled)}")
    return replace(table, columns=(first, *(titled[title] for title in wanted)), stem="solvers")


#: The formulas of the distance columns, with and without a bound for the problem.
_MEANINGS = {
    True: "gap: (energy - best bound) / max(|best energy|, |best bound|), of all solvers; ",
    False: "over best: (energy - best energy) / |best energy|, where no bound is known; ",
}


def _legend(comparison: Findings) -> str:
    several = any(row.runs > 1 for row in comparison.rows)
    bounds = {problem.best_bound > -math.inf for problem in comparison.problems}
    return (
        "* best energy; "
        + "".join(_MEANINGS[bounded] for bounded in sorted(bounds, reverse=True))
        + "proved: by the solver's own bound (yes), or by another's"
        + ("; energy, bound, seconds: medians over seeds; spread: max - min" if several else "")
    )


# ---------------------------------------------------------------------- the terminal

#: Width at which solver specs are folded, and the smallest width on narrow terminals.
_SOLVER_WIDTH = 36
_SOLVER_MIN_WIDTH = 10


def _widths(tables: list[Table]) -> dict[str, int]:
    """Return widths by title that align the columns of all problems."""
    widths: dict[str, int] = {}
    for table in tables:
        for shown in table.columns:
            width = max(len(shown.title), *(len(cell.text) for cell in shown.cells))
            widths[shown.title] = max(width, widths.get(shown.title, 0))
    if widths:
        widths["solver"] = min(widths["solver"], _SOLVER_WIDTH)
    return widths


def _line_width(tables: list[Table]) -> int:
    """Return the number of characters of the widest table, with the mark and the spaces."""
    widths = _widths(tables)
    return max((3 + sum(widths[c.title] + 2 for c in t.columns) for t in tables), default=0)


def rich_table(
    comparison: Findings, width: int | None = None, most: int | None = None
) -> RichTable:
    """Lay out the first `most` problems of a comparison as a table; see `Comparison.table`."""
    from rich.table import Table as RichTable
    from rich.text import Text

    notes = _footnotes(comparison)
    tables = _problem_tables(comparison, notes)
    spaces = 2
    if width is not None and _line_width(tables) > width:
        spaces = 1
        tables = [
            replace(t, columns=tuple(c for c in t.columns if c.title not in (PAIRWISE, "bound")))
            for t in tables
        ]
    widths = _widths(tables)
    page = RichTable.grid()
    page.add_column()
    alarms, warnings = comparison.alarms, _warnings(comparison)
    for alarm in alarms:
        page.add_row(Text(f"CONTRADICTION: {alarm}", style="bold red"))
    for warning in warnings:
        page.add_row(Text(f"WARNING: {warning}", style="yellow"))
    if alarms or warnings:
        page.add_row("")
    shown: list[tuple[Table, dict[str, int] | None]] = [(table, widths) for table in tables[:most]]
    if len(tables) > 1:
        summary = solvers_table(ResultArrays(comparison))
        kept = tuple(c for c in summary.columns if c.title in _SUMMARY)
        shown.append((replace(summary, columns=kept), None))
    for number, (table, aligned) in enumerate(shown):
        if number:
            page.add_row("")
        caption = f"  {table.caption}" if table.caption else ""
        page.add_row(Text.assemble((table.name, "bold cyan"), (caption, "dim")))
        page.add_row(Text(table.note, style="dim"))
        if table.columns:
            page.add_row(_rich_rows(table, aligned, spaces))
    if most is not None and len(tables) > most:
        rest = counted(len(tables) - most, "more problem")
        page.add_row(Text(f"and {rest}, which print(...) shows", style="dim"))
    if tables:
        page.add_row("")
        page.add_row(Text(_legend(comparison), style="dim"))
    for reason, number in notes.items():
        page.add_row(Text(f"[{number}] {shortened(reason, _REASON_WIDTH)}", style="yellow"))
    return page


def _rich_rows(table: Table, widths: dict[str, int] | None, spaces: int) -> RichTable:
    """Return columns and rows for the terminal; rows with a best cell begin with a star."""
    from rich.table import Table as RichTable
    from rich.text import Text

    laid = RichTable(box=None, pad_edge=False, padding=(0, spaces, 0, 0), header_style="underline")
    laid.add_column("", width=1)
    last = len(table.columns) - 1
    for c, head in enumerate(table.columns):
        title = Text(head.title)
        if widths is not None:
            (title.pad_left if head.right else title.pad_right)(
                max(0, widths[head.title] - len(head.title))
            )
        laid.add_column(
            title,
            justify="right" if head.right else "left",
            no_wrap=0 < c < last,
            min_width=_SOLVER_MIN_WIDTH if c == 0 else None,
            max_width=_SOLVER_WIDTH if c == 0 else None,
            overflow="fold",
        )
    for row in table.rows:
        cells = [Text(cell.text) for cell in row]
        best = [text for text, cell in zip(cells, row, strict=True) if cell.mark == "best"]
        for text in best:
            text.stylize("bold green")
        if table.columns[last].title == "status" and "[" in cells[last].plain:
            cells[last].stylize("yellow")
        # In the summary several columns have a best cell each.
        laid.add_row("*" if best and widths is not None else "", *cells)
    return laid


def plain_text(comparison: Findings, width: int | None = None) -> str:
    """Render `rich_table` without colours."""
    text = _printed(comparison, width).export_text()
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def html(comparison: Findings) -> str:
    """Render the first problems of `rich_table` for a notebook, where long lines scroll."""
    form = '<pre style="line-height:normal;white-space:pre;overflow-x:auto">{code}</pre>'
    console = _printed(comparison, None, _SHOWN_PROBLEMS)
    return console.export_html(inline_styles=True, code_format=form)


def _printed(comparison: Findings, width: int | None, most: int | None = None) -> Console:
    """Return a console that has recorded a table, by default as wide as the table."""
    from rich.console import Console

    if width is None:
        width = max(120, _line_width(_problem_tables(comparison, _footnotes(comparison))))
    console = Console(file=io.StringIO(), width=width, force_terminal=False, record=True)
    console.print(rich_table(comparison, width, most))
    return console
