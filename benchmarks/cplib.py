"""`multicut` on CP-Lib: ``python benchmarks/cplib.py FOLDER RECORDS [--seconds 10]``.

FOLDER is a clone of https://github.com/MMSorensen/CP-Lib. ``cplib.csv`` lists its instances with
the best value known (M. M. Sorensen, A. N. Letchford, Mathematical Programming Computation 16,
2024, and the files of the library), and whether that is proved; missing files are left out. RECORDS
is a file of JSON lines; a later call makes the missing ones. Prints a table by family and size, and
the instances whose value is not the best known.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from time import process_time

import inference_lab as il


def main() -> None:
    """Run the missing instances and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--solver", default="multicut(anneals=1000000)")
    options = parser.parse_args()
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as stream:
        published = {row["file"]: row for row in csv.DictReader(stream)}
    done = {}
    if options.records.exists():
        done = {r["file"]: r for r in map(json.loads, options.records.open(encoding="utf-8"))}
    for name in published:
        path = options.folder / name
        if name in done or not path.exists():
            continue
        graph = il.read(path, format="clique-partitioning")
        begin = process_time()
        s = il.solve(graph, options.solver, time_limit=options.seconds, seed=0, clock="cpu")
        done[name] = {
            "file": name,
            "value": -s.energy,
            "bound": -s.lower_bound,
            "status": str(s.status),
            "cpu_seconds": process_time() - begin,
        }
        with options.records.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(done[name]) + "\n")
    groups = defaultdict(list)
    for name, record in done.items():
        row = published[name]
        size = "to 300" if int(row["vertices"]) <= 300 else "above"
        value = float(row["value"])
        gap = 100.0 * (value - record["value"]) / abs(value)
        groups[name.partition("/")[0], size].append((gap, record, name))
    print("| family | vertices | instances | best known | mean gap, % | largest, % | proved |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for (family, size), rows in sorted(groups.items()):
        gaps = [gap for gap, _, _ in rows]
        proved = sum(record["status"] == "optimal" for _, record, _ in rows)
        met = sum(gap <= 1e-9 for gap in gaps)
        print(
            f"| {family} | {size} | {len(rows)} | {met} | {fmean(gaps):.3f} | {max(gaps):.3f} | "
            f"{proved} |"
        )
    for rows in groups.values():
        for gap, record, name in rows:
            if abs(gap) > 1e-9:
                print(f"{name}: {record['value']:.0f} for {published[name]['value']}, {gap:.3f} %")


if __name__ == "__main__":
    main()
