"""Records as one table for other programs: CSV or Parquet."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from inference_lab.reporting.csv_text import csv_frame
from inference_lab.results.analysis import Findings
from inference_lab.results.atomic_files import write_whole
from inference_lab.results.records import Record
from inference_lab.specs.extras import how_to_install

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ExportError", "as_frame", "write_table"]

#: Fields whose content is a free-form mapping; in a table they are JSON.
_MAPPINGS = ("problem_info", "settings", "scores", "diagnostics", "environment")


class ExportError(ValueError):
    """An error in writing a table; the message names the alternatives."""


def as_frame(records: Iterable[Record]) -> pd.DataFrame:
    """Return a table of records with one row per run.

    The columns are those of `Findings.frame`, and the free-form mappings and the history of the
    run as JSON text.
    """
    listed = list(records)
    frame = Findings(listed).frame
    by_id = {record.id: record for record in listed}
    chosen = [by_id[name] for name in frame["id"]]
    for name in _MAPPINGS:
        frame[name] = [json.dumps(getattr(record, name), sort_keys=True) for record in chosen]
    frame["trace"] = [json.dumps(record.as_dict()["trace"]) for record in chosen]
    return frame


def write_table(records: Iterable[Record], path: str | os.PathLike[str]) -> None:
    """Write records to a file, by its suffix: ``.csv`` or ``.parquet``.

    Parquet keeps types and infinities. CSV holds ``inf`` for infinities, and an apostrophe before
    text that a spreadsheet would run as a formula.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ExportError(f"cannot write {path}: allowed are .csv and .parquet")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ExportError(f"pyarrow is {how_to_install('pyarrow', 'parquet')}")
    frame = as_frame(records)
    if path.suffix == ".csv":
        content = csv_frame(frame).encode()
    else:
        content = frame.to_parquet(engine="pyarrow", index=False)
    write_whole(path, content)
