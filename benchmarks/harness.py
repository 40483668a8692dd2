"""Overhead of the harness, and time to render a report: ``python benchmarks/harness.py``.

A thousand runs of a fraction of a millisecond each are made in this process, in two workers, and on
a Dask cluster of two workers. Then ten thousand records are appended, read and reported.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import inference_lab as il
from inference_lab.contract import TracePoint
from inference_lab.harness.dask_cluster import DaskCluster
from inference_lab.results.records import Record, RecordStore

PROBLEMS = [f"potts-grid(height=6, width=6, seed={seed})" for seed in range(10)]
SOLVERS = ["icm", "loopy-bp", "mean-field", "trw-s"]


def runs(folder: Path) -> None:
    """Print the overhead of a run beyond the solver's own time."""
    il.compare(PROBLEMS, SOLVERS)  # compiles, or loads kernels compiled before
    print(
        "jobs   runs   wall s   CPU ms of a run   overhead, ms: median and 95 %   resuming all, s"
    )
    for name, jobs in (("1", 1), ("2", 2), ("dask", 2)):
        store = folder / f"{name}.jsonl"
        ends: list[float] = []

        def note(event: object, ends: list[float] = ends) -> None:
            if getattr(event, "record", None) is not None:
                ends.append(time.perf_counter())

        begin, used = time.perf_counter(), os.times()[:4]
        with DaskCluster("local", jobs) if name == "dask" else nullcontext() as executor:
            compare = partial(
                il.compare,
                PROBLEMS,
                SOLVERS,
                seeds=25,
                time_limit=5.0,
                jobs=1 if executor else jobs,
                executor=executor,
                store=store,
            )
            done = compare(progress=note)
        wall = time.perf_counter() - begin
        cpu = 1000 * (sum(os.times()[:4]) - sum(used)) / len(done)
        solver_seconds = {r.finished: r.seconds for r in done.records}
        typical = statistics.median(solver_seconds.values())
        steps = [1000 * (jobs * (b - a) - typical) for a, b in itertools.pairwise(ends)]
        begin = time.perf_counter()
        compare()
        again = time.perf_counter() - begin
        middle, high = np.quantile(steps, [0.5, 0.95])
        print(
            f"{name:4}  {len(done):5}  {wall:7.1f}  {cpu:16.1f}  {middle:20.1f} {high:10.1f}  "
            f"{again:16.2f}"
        )


def synthetic_records() -> list[Record]:
    """Return 10,000 records: 100 problems, 20 solvers, 5 seeds, traces of 20 points."""
    rng = np.random.default_rng(0)
    made = []
    for problem in range(100):
        optimum = float(rng.normal() * 100)
        for solver in range(20):
            for seed in range(5):
                times = np.cumsum(rng.exponential(0.02 * (solver + 1), 20))
                excess = 50 * abs(rng.normal()) * np.exp(-np.arange(20) / (3 + solver))
                excess += 0 if rng.random() < 0.3 else abs(rng.normal()) * solver / 20
                best = optimum + np.minimum.accumulate(excess)
                bounds = np.full(20, -math.inf)
                if solver % 3 == 0:
                    bounds = optimum - 10 * np.exp(-np.arange(20) / 5.0)
                trace = [
                    TracePoint(float(t), float(e), float(e), float(b))
                    for t, e, b in zip(times, best, bounds, strict=True)
                ]
                made.append(
                    Record(
                        problem=f"family{problem % 5}(n={problem})",
                        problem_hash=f"{problem}",
                        n_variables=100,
                        n_edges=200,
                        n_factors=0,
                        n_labels=3,
                        solver=f"solver{solver}(a={solver})",
                        solver_name=f"solver{solver}",
                        settings={"a": solver, "b": None},
                        seed=seed,
                        time_limit=10.0,
                        status="converged",
                        energy=float(best[-1]),
                        lower_bound=float(bounds[-1]),
                        seconds=float(times[-1]),
                        trace=tuple(trace),
                    )
                )
    return [replace(record, labels_hash=record.id[:8]) for record in made]


def reports(folder: Path) -> None:
    """Print the time to read and to report 10,000 records."""
    store = RecordStore(folder / "many" / "runs.jsonl")
    records = synthetic_records()
    begin = time.process_time()
    for record in records:
        store.append(record)
    written = time.process_time()
    store.read()
    append, read = written - begin, time.process_time() - written
    print("bytes of a record, with 20 points   CPU us to append it   to read it")
    record_bytes = store.path.stat().st_size / len(records)
    append_us, read_us = 1e6 * append / len(records), 1e6 * read / len(records)
    print(f"{record_bytes:33.0f} {append_us:21.0f} {read_us:12.0f}")
    command = [sys.executable, "-m", "inference_lab", "report"]
    print("records     MB   wall s of the command, median of three   MB of the page")
    for size in (100, 10_000):
        part = RecordStore(folder / f"{size}" / "runs.jsonl")
        part.extend(records[:size])
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run([*command, str(part.path.parent)], check=True, capture_output=True)
            times.append(time.perf_counter() - begin)
        megabytes = part.path.stat().st_size / 1e6
        page = (part.path.parent / "report" / "index.html").stat().st_size / 1e6
        print(f"{size:7} {megabytes:6.1f} {statistics.median(times):8.2f} {page:31.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        runs(Path(place))
        reports(Path(place))
