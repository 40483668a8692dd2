"""What was measured as CSV, and as a table of a page."""

from __future__ import annotations

import csv
import io
import math
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from peer_rows import ROWS, Row
from peer_runs import Measured

#: What the page has between these two lines is written by `publish`.
MARKS = ("<!-- measured -->", "<!-- end of what is measured -->")

_HEADER = ["problem", "ours", "peer", "CPU s, ours", "peer + its model", "ratio", "without"]
_HEADER += ["energy, ours", "peer", "bound, ours", "peer", "proved by", ""]


def to_csv(measured: Iterable[Measured]) -> str:
    """Return a line for each row that was measured, with a header."""
    lines = [one.flat() for one in measured]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def from_csv(text: str) -> list[Measured]:
    """Return what `to_csv` wrote."""
    return [Measured.of(line) for line in csv.DictReader(io.StringIO(text))]


def table(rows: Sequence[Row], measured: Iterable[Measured]) -> str:
    """Return the measured ones of some rows as Markdown, a table for each group."""
    by_name = {one.row: one for one in measured}
    parts = []
    for group, members in groupby(rows, key=lambda row: row.group):
        lines = [_line(row, by_name[row.name]) for row in members if row.name in by_name]
        if lines:
            head = [f"## {group}", "", _cells(_HEADER), "|---|---|---|" + "---:|" * 8 + "---|---|"]
            parts.append("\n".join([*head, *lines]))
    return "\n\n".join(parts) + "\n"


def _line(row: Row, one: Measured) -> str:
    proved = [name for name, side in (("ours", one.ours), (row.peer, one.peer)) if side.proved]
    return _cells(
        [
            short(row.problem),
            f"`{row.ours}`",
            row.peer if row.peer == row.call else f"{row.peer}, `{row.call}`",
            seconds(one.ours.cpu_s),
            seconds(one.peer.cpu_s) + _model(one),
            *("" if math.isnan(value) else f"{value:.2g}" for value in (one.ratio, one.strict)),
            *(number(side.energy) for side in (one.ours, one.peer)),
            *(number(side.bound) for side in (one.ours, one.peer)),
            "both" if len(proved) == 2 else "".join(proved),
            one.note.replace("|", "/"),
        ]
    )


def _model(one: Measured) -> str:
    """Return what the model takes besides, if that is a hundredth or more."""
    model = one.peer.model_s
    return f" + {seconds(model)}" if model >= 0.01 * one.peer.cpu_s else ""


def _cells(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def short(problem: str) -> str:
    """Return the name that a problem is known by."""
    return (
        problem.removeprefix("instances(instance=").removesuffix(")")
        if (problem.startswith("instances("))
        else f"`{problem}`"
    )


def seconds(value: float) -> str:
    """Return seconds with two digits that count."""
    if math.isnan(value):
        return ""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def number(value: float) -> str:
    """Return an energy or a bound; nothing where there is none."""
    return "" if math.isnan(value) else f"{value:.7g}"


def facts(measured: Sequence[Measured]) -> str:
    """Return versions and the machine in a sentence, and how often rows were run."""
    peers = {row.name: row.peer for row in ROWS}
    versions = {peers[one.row]: one.peer.version for one in measured if one.peer.version}
    told = [f"{name} {number}" for name, number in versions.items()]
    here = [f"{name} {version(name)}" for name in ("numpy", "numba", "scipy")]
    runs = [one.runs for one in measured if one.runs]
    return (
        f"{', '.join(told)}; here Python {platform.python_version()}, {', '.join(here)}; "
        f"{processor()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f} at the end; medians of {min(runs, default=0)} to "
        f"{max(runs, default=0)} runs."
    )


def processor() -> str:
    """Return what the processor is called."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def publish(docs: Path, told: str, records: str) -> None:
    """Put the tables into the page, and the records beside it."""
    page = docs / "peers.md"
    text = page.read_text(encoding="utf-8")
    begin, end = MARKS
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    page.write_text(f"{head}{begin}\n\n{told}\n{end}{tail}", encoding="utf-8")
    (docs / "peers.csv").write_text(records, encoding="utf-8")
