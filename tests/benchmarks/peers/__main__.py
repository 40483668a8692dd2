"""All rows that can be measured here: ``python tests/benchmarks/peers`` or ``make peers``.

The packages of other projects go into an environment of their own, ``build/peers``, which sees what
is installed here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from peer_installs import interpreters, lacking, prepare
from peer_rows import PEERS, ROWS
from peer_runs import Measured, measure
from peer_table import facts, from_csv, publish, table, to_csv

ROOT = Path(__file__).resolve().parents[3]
#: What the page shows; where only some rows are measured again, the others stay.
RECORDS = ROOT / "docs" / "peers.csv"


def main() -> None:
    """Install what is missing, measure, and write the tables."""
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="use what is there")
    parser.add_argument("--quick", action="store_true", help="a few short rows, one run each")
    parser.add_argument("--only", default="", help="rows whose names hold this text")
    parser.add_argument("--runs", type=int, default=3, help="of each side")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="where the tables go")
    parser.add_argument("--docs", action="store_true", help="write them into docs/ as well")
    options = parser.parse_args()
    folder = ROOT / "build" / "peers"
    rows = [row for row in ROWS if options.only in row.name and (row.quick or not options.quick)]
    needed = {row.peer for row in rows}
    if not options.no_install:
        prepare(folder)
    pythons = interpreters(folder)
    missing = {
        name: why
        for name, peer in PEERS.items()
        if name in needed and (why := lacking(pythons["peer"], peer, not options.no_install))
    }
    if not rows:
        parser.error(f"no row's name holds {options.only!r}")
    measured = {}
    if options.docs and len(rows) < len(ROWS):
        measured = {one.row: one for one in from_csv(RECORDS.read_text(encoding="utf-8"))}
    options.out.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if row.peer in missing:
            one = Measured(row.name, note=f"not measured: {missing[row.peer]}")
        else:
            one = measure(row, pythons, 1 if options.quick else options.runs)
        measured[row.name] = one
        print(f"{row.name}: {one.ratio:.2g} {one.note}", flush=True)
        ordered = [measured[row.name] for row in ROWS if row.name in measured]
        told = f"{facts(ordered)}\n\n{table(ROWS, ordered)}"
        (options.out / "peers.csv").write_text(to_csv(ordered), encoding="utf-8")
        (options.out / "peers.md").write_text(told, encoding="utf-8")
        if options.docs:
            publish(RECORDS.parent, told, to_csv(ordered))
    print(f"\n{told}")


if __name__ == "__main__":
    main()
