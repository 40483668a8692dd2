"""Tables of a comparison: for the terminal, as Markdown, as CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from inference_lab.contract import proves
from inference_lab.reporting.csv_text import csv_text as rows_as_csv
from inference_lab.reporting.document import Cell, Column
from inference_lab.reporting.facts import known_facts, row_decimals, sizes
from inference_lab.reporting.markdown import escape_markdown, markdown_rows
from inference_lab.results.findings import Findings
from inference_lab.results.records import jsonable
from inference_lab.results.summaries import ProblemSummary, Row, SolverSummary
from inference_lab.words import (
    NONE,
    counted,
    energy_text,
    percent_text,
    rate_text,
    seconds_text,
    share_text,
    shortened,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["csv_text", "markdown", "plain_text", "rich_table"]

#: Footnotes are cut off here; records hold the whole message and the end of the traceback.
_REASON_WIDTH = 200

#: Warnings are shown up to this number, and cut off here; a report has them all.
_WARNINGS = 3
_WARNING_WIDTH = 160


class _Column(NamedTuple):
    title: str
    cells: list[str]
    right: bool = True

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


class _Block(NamedTuple):
    """One table to be: a title, what follows it, a line under it, columns, the best rows."""

    title: str
    detail: str
    line: str
    columns: list[_Column]
    best: list[bool]


# ---------------------------------------------------------------------- blocks


def _footnotes(comparison: Findings) -> dict[str, int]:
    """Give a number to each reason for failures and refusals."""
    reasons = dict.fromkeys(message for row in comparison.rows for message in row.messages)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _warnings(comparison: Findings) -> list[str]:
    """Return the first warnings, each short, and how many more there are."""
    warnings = [shortened(w, _WARNING_WIDTH) for w in comparison.warnings]
    rest = len(warnings) - _WARNINGS
    return warnings[:_WARNINGS] + ([f"and {counted(rest, 'more warning')}"] if rest > 0 else [])


def _status(row: Row, notes: dict[str, int]) -> str:
    """Return how the runs ended, with the numbers of the footnotes that say why."""
    marks = "".join(f" [{notes[message]}]" for message in row.messages)
    return row.status.replace("error", "failed") + marks


def _problem_block(
    problem: ProblemSummary, rows: list[Row], notes: dict[str, int], shown: _Shown
) -> _Block:
    decimals = row_decimals(problem, rows)
    columns = [
        _Column("solver", [row.solver for row in rows], right=False),
        _Column("energy", [energy_text(row.energy, decimals) for row in rows]),
    ]
    if shown.spread:
        spreads = [
            row.energy_max - row.energy_min if math.isfinite(row.energy) else None for row in rows
        ]
        columns.append(
            _Column("spread", ["0" if s == 0 else energy_text(s, decimals) for s in spreads])
        )
    columns.append(_Column("gap %", [percent_text(row.gap_percent) for row in rows]))
    if shown.bounds:
        columns.append(_Column("bound", [energy_text(row.lower_bound, decimals) for row in rows]))
    columns.append(
        _Column("proved", [row.proved_by if row.answered else NONE for row in rows], right=False)
    )
    if shown.partition:
        signs = {"exact": " =", "lower": " >=", "upper": " <="}
        columns.append(
            _Column(
                "log Z",
                [
                    NONE
                    if row.log_partition is None
                    else energy_text(row.log_partition, decimals)
                    + signs.get(row.log_partition_kind or "", " ~")
                    for row in rows
                ],
            )
        )
    columns.append(_Column("seconds", [seconds_text(row.seconds) for row in rows]))
    if shown.accuracy:
        columns.append(_Column("accur.", [share_text(row.accuracy) for row in rows]))
    if shown.pairwise:
        columns.append(_Column("pair F", [share_text(row.pairwise_f) for row in rows]))
    for name in dict.fromkeys(name for row in rows for name in row.scores):
        cells = [f"{row.scores[name]:.4g}" if name in row.scores else NONE for row in rows]
        columns.append(_Column(name.replace("_", " "), cells))
    columns.append(_Column("status", [_status(row, notes) for row in rows], right=False))
    return _Block(
        problem.name,
        sizes(problem),
        ", ".join(known_facts(problem, decimals)),
        columns,
        [proves(row.energy, problem.best_energy) for row in rows],
    )


class _Shown(NamedTuple):
    """Which columns there is anything to show in, and room for."""

    spread: bool
    bounds: bool
    partition: bool
    accuracy: bool
    pairwise: bool


def _shown(comparison: Findings) -> _Shown:
    rows = comparison.rows
    scored = any(row.accuracy is not None for row in rows)
    return _Shown(
        spread=any(row.runs > 1 for row in rows),
        bounds=True,
        partition=any(row.log_partition is not None for row in rows),
        accuracy=scored,
        pairwise=scored,
    )


def _problem_blocks(comparison: Findings, notes: dict[str, int], shown: _Shown) -> list[_Block]:
    rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.problem, []).append(row)
    return [
        _problem_block(problem, rows[problem.name], notes, shown) for problem in comparison.problems
    ]


def _summary_block(solvers: list[SolverSummary]) -> _Block:
    def column(title: str, cell: Callable[[SolverSummary], str]) -> _Column:
        return _Column(title, [cell(s) for s in solvers])

    partial = any(0 < s.gaps < s.problems for s in solvers)
    columns = [
        _Column("solver", [s.solver for s in solvers], right=False),
        column("gap %", lambda s: percent_text(s.mean_gap_percent)),
        *([column("known", lambda s: f"{s.gaps}/{s.problems}")] if partial else []),
        column("% best", lambda s: rate_text(s.percent_best)),
        column("% proved", lambda s: rate_text(s.percent_proved)),
        column("median s", lambda s: seconds_text(s.median_seconds)),
        column(
            "total s", lambda s: NONE if s.median_seconds is None else seconds_text(s.total_seconds)
        ),
        column("failed", lambda s: str(s.failed)),
        column("unsup.", lambda s: str(s.unsupported)),
        column("runs", lambda s: str(s.runs)),
    ]
    n = max((s.problems for s in solvers), default=0)
    line = (
        "gap: mean over problems"
        + (" where it is known" if partial else "")
        + "; % best: runs that reach the lowest energy known; % proved: by their own bound"
    )
    return _Block(f"All {counted(n, 'problem')}", "", line, columns, [False] * len(solvers))


def _legend(comparison: Findings) -> str:
    several = any(row.runs > 1 for row in comparison.rows)
    return (
        "* best energy; gap: to the best bound known, whoever gave it; proved: by the solver's "
        "own bound (yes), or by another's"
        + ("; energy, bound, seconds: medians over seeds; spread: max - min" if several else "")
    )


# ---------------------------------------------------------------------- the terminal

#: Longer solver specs are folded, further where the terminal is narrow.
_SOLVER_WIDTH = 36
_SOLVER_MIN_WIDTH = 10
#: The column that marks the best rows, with the space after it.
_MARK_WIDTH = 2


def _widths(blocks: list[_Block]) -> dict[str, int]:
    """Return widths by title that let the columns of all problems stand under each other."""
    widths: dict[str, int] = {}
    for column in (column for block in blocks for column in block.columns):
        widths[column.title] = max(column.width, widths.get(column.title, 0))
    if widths:
        widths["solver"] = min(widths["solver"], _SOLVER_WIDTH)
    return widths


def _line_width(blocks: list[_Block], padding: int) -> int:
    """Return how many characters the widest of some blocks takes."""
    widths = _widths(blocks)
    return max(
        (
            _MARK_WIDTH + sum(widths[c.title] + padding for c in block.columns) - padding
            for block in blocks
        ),
        default=0,
    )


def _fit(
    comparison: Findings, notes: dict[str, int], width: int | None
) -> tuple[list[_Block], int]:
    """Return the blocks of the problems with the columns there is room for, and the padding."""
    everything = _shown(comparison)
    choices = [
        (everything, 2),
        (everything, 1),
        (everything._replace(pairwise=False), 1),
        (everything._replace(pairwise=False, bounds=False), 1),
    ]
    for shown, padding in choices:
        blocks = _problem_blocks(comparison, notes, shown)
        if width is None or _line_width(blocks, padding) <= width:
            break
    return blocks, padding


def rich_table(comparison: Findings, width: int | None = None) -> Table:
    """Lay out a comparison as one rich table; see `Comparison.table`."""
    from rich.table import Table
    from rich.text import Text

    notes = _footnotes(comparison)
    blocks, padding = _fit(comparison, notes, width)
    widths = _widths(blocks)
    page = Table.grid()
    page.add_column()
    for alarm in comparison.alarms:
        page.add_row(Text(f"CONTRADICTION: {alarm}", style="bold red"))
    warnings = _warnings(comparison)
    for warning in warnings:
        page.add_row(Text(f"WARNING: {warning}", style="yellow"))
    if comparison.alarms or warnings:
        page.add_row("")
    summaries = [_summary_block(comparison.solvers)] if len(blocks) > 1 else []
    for number, block in enumerate([*blocks, *summaries]):
        if number:
            page.add_row("")
        detail = f"  {block.detail}" if block.detail else ""
        page.add_row(Text.assemble((block.title, "bold cyan"), (detail, "dim")))
        page.add_row(Text(block.line, style="dim"))
        page.add_row(_rich_block(block, widths if number < len(blocks) else None, padding))
    if blocks:
        page.add_row("")
        page.add_row(Text(_legend(comparison), style="dim"))
    for reason, number in notes.items():
        page.add_row(Text(f"[{number}] {shortened(reason, _REASON_WIDTH)}", style="yellow"))
    return page


def _rich_block(block: _Block, widths: dict[str, int] | None, padding: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="underline")
    table.add_column("", width=1)
    for c, column in enumerate(block.columns):
        title = Text(column.title)
        if widths is not None:
            (title.pad_left if column.right else title.pad_right)(
                max(0, widths[column.title] - len(column.title))
            )
        table.add_column(
            title,
            justify="right" if column.right else "left",
            no_wrap=0 < c < len(block.columns) - 1,
            min_width=_SOLVER_MIN_WIDTH if c == 0 else None,
            max_width=_SOLVER_WIDTH if c == 0 else None,
            overflow="fold",
        )
    for r, best in enumerate(block.best):
        cells = [Text(column.cells[r]) for column in block.columns]
        if best:
            cells[1].stylize("bold green")
        if block.columns[-1].title == "status" and "[" in cells[-1].plain:
            cells[-1].stylize("yellow")
        table.add_row("*" if best else "", *cells)
    return table


def plain_text(comparison: Findings, width: int | None = None) -> str:
    """Render `rich_table` without colours."""
    from rich.console import Console

    if width is None:
        notes = _footnotes(comparison)
        blocks, padding = _fit(comparison, notes, None)
        width = max(120, _line_width(blocks, padding) + padding)
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False)
    console.print(rich_table(comparison, width))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


# ---------------------------------------------------------------------- Markdown and CSV


def _markdown_block(block: _Block) -> list[str]:
    detail = "; ".join(part for part in (block.detail, block.line) if part)
    rows = []
    for r, best in enumerate(block.best):
        cells = [Cell(column.cells[r]) for column in block.columns]
        if best:
            cells[1] = Cell(cells[1].text, mark="best")
        rows.append(cells)
    columns = [Column(c.title, c.right) for c in block.columns]
    return [
        f"### {escape_markdown(block.title)}",
        escape_markdown(detail),
        markdown_rows(columns, rows),
    ]


def markdown(comparison: Findings) -> str:
    """Render a comparison as Markdown; names and reasons are escaped."""
    notes = _footnotes(comparison)
    parts = [f"> **Contradiction:** {escape_markdown(alarm)}" for alarm in comparison.alarms]
    parts += [f"> **Warning:** {escape_markdown(warning)}" for warning in _warnings(comparison)]
    blocks = _problem_blocks(comparison, notes, _shown(comparison))
    if len(blocks) > 1:
        blocks.append(_summary_block(comparison.solvers))
    for block in blocks:
        parts += _markdown_block(block)
    if blocks:
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
