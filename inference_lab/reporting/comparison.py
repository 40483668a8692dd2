"""Comparisons with their output; the findings are in `inference_lab.results.analysis`."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from inference_lab.formatting import counted, shortened
from inference_lab.reporting.document import Table
from inference_lab.reporting.latex import escape_latex, latex_table
from inference_lab.reporting.overview import solvers_table
from inference_lab.reporting.problem_tables import PAIRWISE, known_facts, problem_columns, sizes
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.analysis import Findings
from inference_lab.results.atomic_files import write_whole
from inference_lab.results.records import RecordStore
from inference_lab.results.summaries import Row, grouped

#: Characters of a footnote shown; records hold the whole message and the end of the traceback.
_REASON_WIDTH = 200

#: Number of problems shown in a notebook, so that a study does not fill its page.
_SHOWN_PROBLEMS = 10

#: Number of warnings shown, and characters of each; a report has all of them in full.
_WARNINGS = 3
_WARNING_WIDTH = 160

#: Titles of the columns of the summary that are shown, because more would not fit.
_SUMMARY = (
    "solver",
    "primal gap %",
    "gap %",
    "% best",
    "% proved",
    "seconds",
    "failed",
    "runs",
)


class Comparison(Findings):
    """Findings from records, as tables and reports.

    `compare` returns one; ``Comparison.of_store(RecordStore(path))`` makes one of stored records.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.compare(il.Problem("pair", g), ["icm", "ilp"])
    Comparison(1 problem x 2 solvers, 2 runs)
    """

    def table(self, width: int | None = None) -> RichTable:
        """Return the comparison as a rich table: one block per problem, then one over solvers.

        Parameters
        ----------
        width : int, optional
            Available characters per line. The pairwise F and the solvers' own bounds are left out
            if they do not fit.

        Returns
        -------
        rich.table.Table

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), ["icm", "ilp"])
        >>> from rich.console import Console
        >>> Console(width=100).print(c.table(100))  # doctest: +ELLIPSIS
        pair  2 variables, 1 edge, 2 labels...
        """
        return _rich_table(self.shown, width)[0]

    def to_text(self, width: int | None = None) -> str:
        """Return `table` as plain text, in full width or fitted into `width` characters.

        Parameters
        ----------
        width : int, optional

        Returns
        -------
        str

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), ["icm", "ilp"])
        >>> print(c.to_text().splitlines()[0])
        pair  2 variables, 1 edge, 2 labels
        """
        text = _printed(self.shown, width).export_text()
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    def __str__(self) -> str:
        """Return `to_text`."""
        return self.to_text()

    def _repr_html_(self) -> str:
        """Return the first problems of `to_text` as HTML, in which long lines scroll."""
        form = '<pre style="line-height:normal;white-space:pre;overflow-x:auto">{code}</pre>'
        console = _printed(self.shown, None, _SHOWN_PROBLEMS)
        return console.export_html(inline_styles=True, code_format=form)

    def to_latex(
        self,
        columns: Sequence[str] | None = None,
        caption: str = "",
        label: str = "tab:solvers",
    ) -> str:
        r"""Return the table over solvers as LaTeX in the style of booktabs.

        Parameters
        ----------
        columns : sequence of str, optional
            Titles of the columns after the solver, in this order, such as
            ``["gap %", "% proved"]``; all by default.
        caption : str
            If given, the table is put in an environment ``table``. Text, not LaTeX.
        label : str
            Argument of ``\\label`` in that environment, for ``\\ref``.

        Returns
        -------
        str

        Raises
        ------
        ValueError
            If a column of this name does not exist; the message lists the known names.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), "icm")
        >>> print(c.to_latex(["gap %"]).splitlines()[-3])
        icm & 0 \\
        """
        laid = latex_table(_summary_table(self.shown, columns))
        if not caption:
            return laid
        return (
            "\\begin{table}\n\\centering\n"
            f"\\caption{{{escape_latex(caption)}}}\n\\label{{{label}}}\n{laid}\\end{{table}}\n"
        )

    def report(self, folder: str | os.PathLike[str], *, title: str = "") -> Path:
        """Write the report of ``inference-lab report``: a page, tables and figures.

        Parameters
        ----------
        folder : path
            The folder, created if it is missing. Files of an earlier report there are replaced.
        title : str
            The title of the report; by default the name of the folder.

        Returns
        -------
        Path
            Path of ``index.html``, one self-contained file to view or to share.

        Raises
        ------
        FileExistsError
            If a file that no report wrote would be overwritten.
        OSError
            If a file cannot be written.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> page = il.compare(il.Problem("pair", g), ["icm", "ilp"]).report("pair")
        >>> page.name, (page.parent / "tables" / "summary.tex").exists()
        ('index.html', True)
        """
        from inference_lab.reporting.report import report_document
        from inference_lab.reporting.writing import write_document

        root = Path(folder)
        write_document(report_document(self, title=title or root.resolve().name), root)
        return root / "index.html"

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the comparison to a folder, which is created if it is missing.

        ``runs.jsonl``
            All records. New records are appended to an existing file, and records in it are not
            written again, so no earlier record is lost.
        ``runs.csv``
            `frame`: one line per run of this comparison.

        Parameters
        ----------
        folder : path

        Returns
        -------
        list of Path
            The two files.

        Raises
        ------
        OSError
            If a file cannot be written.
        RecordError
            If ``runs.jsonl`` exists and is not a file of records.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), ["icm", "ilp"])
        >>> [path.name for path in c.save("pair")]
        ['runs.jsonl', 'runs.csv']
        """
        root = Path(folder)
        store = RecordStore(root / "runs.jsonl")
        stored_ids = {record.id for record in store.prepare()}
        store.extend(record for record in self.records if record.id not in stored_ids)
        table = root / "runs.csv"
        write_whole(table, self.frame.to_csv(index=False).encode())
        return [store.path, table]


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


def _summary_table(comparison: Findings, columns: Sequence[str] | None = None) -> Table:
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


def _rich_table(
    comparison: Findings, width: int | None = None, limit: int | None = None
) -> tuple[RichTable, int]:
    """Lay out the first `limit` problems of a comparison; return also the width of all columns."""
    notes = _footnotes(comparison)
    tables = _problem_tables(comparison, notes)
    spaces = 2
    natural = _line_width(tables)
    if width is not None and natural > width:
        spaces = 1
        tables = [
            replace(t, columns=tuple(c for c in t.columns if c.title not in (PAIRWISE, "bound")))
            for t in tables
        ]
    widths = _widths(tables)
    page = RichTable.grid()
    page.add_column()
    alarms = comparison.alarms
    warnings = _warnings(comparison)
    for alarm in alarms:
        page.add_row(Text(f"CONTRADICTION: {alarm}", style="bold red"))
    for warning in warnings:
        page.add_row(Text(f"WARNING: {warning}", style="yellow"))
    if alarms or warnings:
        page.add_row("")
    shown: list[tuple[Table, dict[str, int] | None]] = [(table, widths) for table in tables[:limit]]
    if len(tables) > 1:
        summary = solvers_table(ResultArrays(comparison))
        columns = tuple(c for c in summary.columns if c.title in _SUMMARY)
        shown.append((replace(summary, columns=columns), None))
    for number, (table, aligned) in enumerate(shown):
        if number:
            page.add_row("")
        caption = f"  {table.caption}" if table.caption else ""
        page.add_row(Text.assemble((table.name, "bold cyan"), (caption, "dim")))
        page.add_row(Text(table.note, style="dim"))
        if table.columns:
            page.add_row(_rich_rows(table, aligned, spaces))
    if limit is not None and len(tables) > limit:
        rest = counted(len(tables) - limit, "more problem")
        page.add_row(Text(f"and {rest}, which print(...) shows", style="dim"))
    if tables:
        page.add_row("")
        page.add_row(Text(_legend(comparison), style="dim"))
    for reason, number in notes.items():
        page.add_row(Text(f"[{number}] {shortened(reason, _REASON_WIDTH)}", style="yellow"))
    return page, natural


def _rich_rows(table: Table, widths: dict[str, int] | None, spaces: int) -> RichTable:
    """Return columns and rows for the terminal; rows with a best cell begin with a star."""
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


def _printed(comparison: Findings, width: int | None, limit: int | None = None) -> Console:
    """Return a console that has recorded a table, by default as wide as the table."""
    page, natural = _rich_table(comparison, width, limit)
    width = width or max(120, natural)
    console = Console(file=io.StringIO(), width=width, force_terminal=False, record=True)
    console.print(page)
    return console
