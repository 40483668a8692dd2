"""Comparisons with their output; the findings are in `inference_lab.results.analysis`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inference_lab.reporting.comparison_tables import (
    html,
    plain_text,
    rich_table,
    summary_table,
)
from inference_lab.reporting.latex import escape_latex, latex_table
from inference_lab.results.analysis import Findings
from inference_lab.results.atomic_files import write_whole
from inference_lab.results.records import RecordStore

if TYPE_CHECKING:
    from rich.table import Table


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

    def table(self, width: int | None = None) -> Table:
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
        return rich_table(self.shown, width)

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
        return plain_text(self.shown, width)

    def __str__(self) -> str:
        """Return `to_text`."""
        return self.to_text()

    def _repr_html_(self) -> str:
        """Return the tables of `to_text` for the first problems as HTML for notebooks."""
        return html(self.shown)

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
        laid = latex_table(summary_table(self.shown, columns))
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
        held = {record.id for record in store.prepare()}
        store.extend(record for record in self.records if record.id not in held)
        table = root / "runs.csv"
        write_whole(table, self.frame.to_csv(index=False).encode())
        return [store.path, table]
