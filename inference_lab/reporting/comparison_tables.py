"""Tables of a comparison: for the terminal, as Markdown, as CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from inference_lab.formatting import counted, shortened
from inference_lab.reporting.csv_text import csv_text as rows_as_csv
from inference_lab.reporting.document import Cell, Table, column, energies
from inference_lab.reporting.markdown import escape_markdown, markdown_rows
from inference_lab.reporting.problem_header import (
    known_facts,
    problem_columns,
    row_decimals,
    score_columns,
    sizes,
)
from inference_lab.results.analysis import Findings
from inference_lab.results.number_formats import (
    NONE,
    format_energy,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
)
from inference_lab.results.records import jsonable
from inference_lab.results.summaries import ProblemSummary, Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

__all__ = ["csv_text", "html", "markdown", "plain_text", "rich_table", "summary_table"]

#: Characters of a footnote shown; records hold the whole message and the end of the traceback.
_REASON_WIDTH = 200

#: Number of problems shown in a notebook, so that a study does not fill its page.
_SHOWN_PROBLEMS = 10

#: Number of warnings shown, and characters of each; a report has all of them in full.
_WARNINGS = 3
_WARNING_WIDTH = 160

#: Title of the column that replaces "gap %" where no bound is known.
OVER_BEST = "over best %"
#: Title of the column that is dropped first on narrow terminals.
_PAIRWISE = "pair F"


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


def _status(row: Row, notes: dict[str, int]) -> str:
    """Return the status of the runs, with the numbers of the footnotes on their reasons."""
    marks = "".join(f" [{notes[message]}]" for message in row.messages)
    return row.status.replace("error", "failed") + marks


def _problem_table(
    problem: ProblemSummary, rows: list[Row], comparison: Findings, notes: dict[str, int]
) -> Table:
    """Return the table of the solvers on a problem; all problems have the same columns."""
    everywhere = comparison.rows
    decimals = row_decimals(problem, rows)
    energy = energies(decimals)
    shared = problem_columns(problem, rows, decimals)

    def spread(row: Row) -> str | Cell:
        found = row.energy_max - row.energy_min if math.isfinite(row.energy) else None
        return "0" if found == 0 else energy(found)

    def partition(row: Row) -> str:
        if row.log_partition is None:
            return NONE
        sign = {"exact": "=", "lower": ">=", "upper": "<="}.get(row.log_partition_kind or "", "~")
        return f"{format_energy(row.log_partition, decimals)} {sign}"

    columns = [shared["solver"], shared["energy"]]
    if any(row.runs > 1 for row in everywhere):
        columns.append(column("spread", rows, spread))
    if problem.best_bound > -math.inf:
        columns.append(shared["gap %"])
    else:
        columns.append(column(OVER_BEST, [row.over_best_percent for row in rows], format_percent))
    columns += [shared["bound"], shared["proved"]]
    if any(row.log_partition is not None for row in everywhere):
        columns.append(column("log Z", rows, partition))
    columns.append(shared["seconds"])
    if any(row.accuracy is not None for row in everywhere):
        columns.append(column("accur.", [row.accuracy for row in rows], format_share))
        columns.append(column(_PAIRWISE, [row.pairwise_f for row in rows], format_share))
    columns += score_columns(rows)
    columns.append(column("status", [_status(row, notes) for row in rows]))
    known = "; ".join([", ".join(known_facts(problem, decimals)), *problem.remarks])
    return Table(problem.name, sizes(problem), tuple(columns), known)


def _problem_tables(comparison: Findings, notes: dict[str, int]) -> list[Table]:
    rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.problem, []).append(row)
    return [
        _problem_table(problem, rows[problem.name], comparison, notes)
        for problem in comparison.problems
    ]


def _summary_table(comparison: Findings) -> Table:
    """Return the table over solvers, for the problems, if any, on which all of them were run."""
    n = len(comparison.problems)
    run: dict[tuple[str, str], set[str]] = {}
    for record in comparison.records:
        run.setdefault((record.problem, record.problem_hash), set()).add(record.solver)
    common = {key for key, who in run.items() if len(who) == len(comparison.solvers)}
    solvers = comparison.solvers
    title = f"All {counted(n, 'problem')}"
    if len(common) < n:
        title = f"{len(common)} of {counted(n, 'problem')}: those that all solvers were run on"
        part = [r for r in comparison.records if (r.problem, r.problem_hash) in common]
        solvers = Findings(part, labels=comparison.solver_labels).solvers

    bounded = any(s.gaps for s in solvers)
    partial = any(0 < s.gaps < s.problems for s in solvers)
    columns = [
        column("solver", [s.solver for s in solvers]),
        column("gap %", [s.mean_gap_percent for s in solvers], format_percent)
        if bounded
        else column(OVER_BEST, [s.mean_over_best_percent for s in solvers], format_percent),
        *([column("known", [f"{s.gaps}/{s.problems}" for s in solvers], right=True)] * partial),
        column("% best", [s.percent_best for s in solvers], format_rate),
        column("% proved", [s.percent_proved for s in solvers], format_rate),
        column("median s", [s.median_seconds for s in solvers], format_seconds),
        column(
            "total s",
            [None if s.median_seconds is None else s.total_seconds for s in solvers],
            format_seconds,
        ),
        column("failed", [s.failed for s in solvers]),
        column("unsup.", [s.unsupported for s in solvers]),
        column("runs", [s.runs for s in solvers]),
    ]
    note = (
        f"{'gap' if bounded else 'over best'}: mean over problems"
        + (" where it is known" if partial else "")
        + "; % best: runs that reach the lowest energy known; % proved: by their own bound"
    )
    if n and not common:
        note = "There is no such problem, so the solvers are not compared."
    return Table(title, "", tuple(columns), note)


def summary_table(comparison: Findings, columns: Sequence[str] | None) -> Table:
    """Return the table over solvers with the given columns."""
    table = _summary_table(comparison)
    first, *others = table.columns
    if comparison.records and not first.cells:
        raise ValueError("there is no table over solvers: no problem was run by all of them")
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
#: The column that marks the best rows, with the space after it.
_MARK_WIDTH = 2


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


def _line_width(tables: list[Table], padding: int) -> int:
    """Return the number of characters of the widest table."""
    widths = _widths(tables)
    return max(
        (
            _MARK_WIDTH + sum(widths[c.title] + padding for c in table.columns) - padding
            for table in tables
        ),
        default=0,
    )


def _fit(tables: list[Table], width: int | None) -> tuple[list[Table], int]:
    """Return the tables of the problems with the columns that fit the width, and the padding."""
    for left_out, padding in (((), 2), ((), 1), ((_PAIRWISE,), 1), ((_PAIRWISE, "bound"), 1)):
        fitted = [
            replace(table, columns=tuple(c for c in table.columns if c.title not in left_out))
            for table in tables
        ]
        if width is None or _line_width(fitted, padding) <= width:
            break
    return fitted, padding


def rich_table(
    comparison: Findings, width: int | None = None, most: int | None = None
) -> RichTable:
    """Lay out the first `most` problems of a comparison as a table; see `Comparison.table`."""
    from rich.table import Table as RichTable
    from rich.text import Text

    notes = _footnotes(comparison)
    tables, padding = _fit(_problem_tables(comparison, notes), width)
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
        shown.append((_summary_table(comparison), None))
    for number, (table, aligned) in enumerate(shown):
        if number:
            page.add_row("")
        caption = f"  {table.caption}" if table.caption else ""
        page.add_row(Text.assemble((table.name, "bold cyan"), (caption, "dim")))
        page.add_row(Text(table.note, style="dim"))
        if table.columns[0].cells:
            page.add_row(_rich_rows(table, aligned, padding))
    if most is not None and len(tables) > most:
        rest = counted(len(tables) - most, "more problem")
        page.add_row(Text(f"and {rest}, which print(...) shows", style="dim"))
    if tables:
        page.add_row("")
        page.add_row(Text(_legend(comparison), style="dim"))
    for reason, number in notes.items():
        page.add_row(Text(f"[{number}] {shortened(reason, _REASON_WIDTH)}", style="yellow"))
    return page


def _rich_rows(table: Table, widths: dict[str, int] | None, padding: int) -> RichTable:
    """Return columns and rows for the terminal; rows with a best cell begin with a star."""
    from rich.table import Table as RichTable
    from rich.text import Text

    laid = RichTable(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="underline")
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
        laid.add_row("*" if best else "", *cells)
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
        tables, padding = _fit(_problem_tables(comparison, _footnotes(comparison)), None)
        width = max(120, _line_width(tables, padding) + padding)
    console = Console(file=io.StringIO(), width=width, force_terminal=False, record=True)
    console.print(rich_table(comparison, width, most))
    return console


# ---------------------------------------------------------------------- Markdown and CSV


def markdown(comparison: Findings) -> str:
    """Render a comparison as Markdown; names and reasons are escaped."""
    notes = _footnotes(comparison)
    parts = [f"> **Contradiction:** {escape_markdown(alarm)}" for alarm in comparison.alarms]
    parts += [f"> **Warning:** {escape_markdown(warning)}" for warning in _warnings(comparison)]
    tables = _problem_tables(comparison, notes)
    if len(tables) > 1:
        tables.append(_summary_table(comparison))
    for table in tables:
        said = "; ".join(part for part in (table.caption, table.note) if part)
        parts += [
            f"### {escape_markdown(table.name)}",
            escape_markdown(said),
            *([markdown_rows(table)] if table.columns[0].cells else []),
        ]
    if tables:
        parts.append(escape_markdown(_legend(comparison).replace("* best", "bold: best", 1)))
    for reason, number in notes.items():
        parts.append(f"\\[{number}\\] {escape_markdown(shortened(reason, _REASON_WIDTH))}")
    return "".join(f"{part}\n\n" for part in parts)


def csv_text(comparison: Findings) -> str:
    """Render the rows of a comparison as CSV."""
    names = [f.name for f in fields(Row)]
    lines: list[list[Any]] = [names]
    for row in comparison.rows:
        values = {name: jsonable(getattr(row, name)) for name in names}
        if row.seconds is None:
            values["total_seconds"] = None  # no run ended by itself
        values["messages"] = "; ".join(row.messages)
        lines.append(["" if values[name] is None else values[name] for name in names])
    return rows_as_csv(lines)
