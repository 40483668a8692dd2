"""Comparisons as they are shown and saved; what they say is in `inference_lab.results.findings`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from inference_lab.reporting.csv_text import csv_frame
from inference_lab.reporting.tables import csv_text, markdown, plain_text, rich_table
from inference_lab.results.files import write_whole
from inference_lab.results.findings import Findings
from inference_lab.results.records import RecordStore

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Comparison"]


class Comparison(Findings):
    """Findings from records, as tables in several forms."""

    def table(self, width: int | None = None) -> Table:
        """Return the comparison as a rich table: one block a problem, then one over solvers.

        Parameters
        ----------
        width : int, optional
            Characters there is room for; where they do not suffice for all columns, the pairwise
            F and the solvers' own bounds are left out.
        """
        return rich_table(self, width)

    def to_text(self, width: int | None = None) -> str:
        """Return `table` as plain text; as wide as it takes, or fitted into `width`."""
        return plain_text(self, width)

    def __str__(self) -> str:
        """Return `to_text`."""
        return self.to_text()

    def to_markdown(self) -> str:
        """Return the comparison as Markdown: one table a problem, then one over solvers."""
        return markdown(self)

    def to_csv(self) -> str:
        """Return `rows` as CSV, one line a problem and solver."""
        return csv_text(self)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the comparison to a folder, which is made if it is missing.

        ``runs.jsonl``
            All records. A file that is there is appended to, and records it already holds are
            not written again, so nothing that was recorded earlier is lost.
        ``runs.csv``
            `frame`: one line a run of this comparison.
        ``table.csv``, ``table.md``
            `to_csv` and `to_markdown`.

        Returns
        -------
        list of Path
            The four files.

        Raises
        ------
        OSError
            If a file cannot be written.
        RecordError
            If ``runs.jsonl`` is there and is something else.
        """
        root = Path(folder)
        store = RecordStore(root / "runs.jsonl")
        held = {record.id for record in store.prepare()}
        store.extend(record for record in self.records if record.id not in held)
        paths = [store.path, root / "runs.csv", root / "table.csv", root / "table.md"]
        texts = [csv_frame(self.frame), self.to_csv(), self.to_markdown()]
        for path, text in zip(paths[1:], texts, strict=True):
            write_whole(path, text.encode())
        return paths
