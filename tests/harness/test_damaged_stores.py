"""Hostile solvers fill a store, which is then damaged: it is read, reported and resumed.

The referees are the lines of the file as `json` reads them, the keys of the requested runs, and the
cells of the tables as `csv` reads them.
"""

from __future__ import annotations

import csv
import json
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hostile_values import LOOP, NESTED, WIDE, Evil, Silent
from hypothesis import given, settings
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.campaign import InputError
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.report import report_document
from inference_lab.results.records import FAILURES, RecordStore


class Text(str):
    """A string whose representation differs from its value."""

    def __str__(self) -> str:
        return "=other"


def odd(rng: np.random.Generator, depth: int = 0) -> Any:
    """Draw a value of an unexpected kind."""
    plain = [
        None,
        True,
        0,
        -1,
        5,
        2**63,
        2**64,
        2**20000,
        10**5000,
        -(2**70),
        1.5,
        np.nan,
        np.inf,
        -np.inf,
        1e308,
        1j,
        np.float32(2.5),
        np.int64(-3),
        np.bool_(True),
        np.complex128(1j),
        np.longdouble(1.5),
        np.datetime64("2020-01-01"),
        np.str_("x"),
        b"\xff",
        bytearray(3),
        "",
        "exact",
        "=1+1",
        "@x",
        "-x",
        "\t=1",
        "\ud800",
        "caf\udce9",
        "\ud83d\ude00",
        "\0\x1b",
        "\r\n\u2028\u202e",
        "x" * 200_000,
        Text("a"),
        Evil(),
        Evil,
        object(),
        LOOP,
        NESTED,
        WIDE,
        lambda: 0,
        (n for n in [1]),
        range(10**9),
        np.zeros((2, 3)),
        np.zeros(10**4),
        {1, "a"},
        np.array([Evil(), None], dtype=object),
        np.ma.masked_array([1.0], [True]),
        {Ellipsis: 1},
        {1: 1, "1": 2, None: LOOP},
        {"a" * 10**6: 1},
        {"\ud800": {(1, 2): Evil()}},
        Path("\udcff"),
        np.full((2, 2), np.nan),
        np.array("text"),
        [np.ones(2), np.ones(2)],
        np.eye(2) * 2,
    ]
    if depth < 2 and rng.random() < 0.2:
        inner = [odd(rng, depth + 1) for _ in range(rng.integers(4))]
        return inner if rng.random() < 0.5 else dict(zip("=abc", inner, strict=False))
    return plain[rng.integers(len(plain))]


@dataclass(frozen=True)
class Hostile(Solver):
    """Solver that offers a labelling or none, and returns arbitrary values."""

    number: int = 0
    fuzz: int = 0

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        rng = np.random.default_rng([self.fuzz, self.number])
        if rng.random() < 0.7:
            run.offer(rng.integers(0, graph.cardinalities))
        how = rng.random()
        if how < 0.2:
            expected = odd(rng)
            raise [
                Silent(),
                ValueError(expected),
                SystemExit(expected),
                GeneratorExit(expected),
                KeyError(expected),
            ][rng.integers(5)]
        if how < 0.35:
            name = ["trace", "lower_bound", "best_energy", "best_labels"][rng.integers(4)]
            setattr(run, name, odd(rng))
        if how > 0.95:
            return odd(rng)  # type: ignore[no-any-return]
        outcome = Outcome(converged=True)
        for name in vars(Outcome()):
            if rng.random() < 0.25:
                setattr(outcome, name, odd(rng))
        return outcome


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Damage the bytes of a store."""
    lines = data.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    how = rng.integers(7)
    if how == 0:
        return data[: rng.integers(len(data))]
    if how == 1:
        changed = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        return bytes(changed)
    if how == 2:
        lines[at] = lines[at].rstrip(b"\n")
    elif how == 3:
        foreign = [b"my notes", b"", b"\xff\0\xfe", b"[" * 10**5, b"{}", b"null", b'{"schema": 99}']
        end = b"" if rng.random() < 0.2 else b"\n"
        lines.insert(at, foreign[rng.integers(len(foreign))] + end)
    elif how == 4:
        read = json.loads(lines[at])
        name = list(read)[rng.integers(len(read))]
        values = [None, -1, 2**64, "\ud800", 5, [], {}, "nan", 10**400, {"a": "\ud83d"}, [[1, 2]]]
        read[name] = values[rng.integers(len(values))]
        lines[at] = json.dumps(read).encode() + b"\n"
    elif how == 5:
        lines[at] = lines[at][: rng.integers(1, len(lines[at]))] + b"\n"
    else:
        lines.append(b"\0" * int(rng.integers(1, 5000)))
    return b"".join(lines)


def check(rng: np.random.Generator, folder: Path) -> None:
    """Fill a store, damage it, and resume it."""
    path = folder / "runs.jsonl"
    edges = [(0, 1), (1, 2)]
    problems = [
        il.Problem(
            name, il.FactorGraph.potts(rng.random((3, 2)), edges, rng.random(2)), truth=truth
        )
        for name, truth in (("=a", None), ("b", np.array([0, 1, 1])))
    ]
    solvers = [Hostile(number, int(rng.integers(2**31))) for number in range(3)]
    asked: dict[str, Any] = {
        "temperature": float(rng.integers(2)),
        "isolate": bool(rng.random() < 0.05),
        "time_limit": 20.0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = il.compare(problems, solvers, store=path, **asked)
        assert len(first) == 6
        store = RecordStore(path)
        records = store.read()
        assert (
            store.remarks == [] and [r.to_json() for r in records] == path.read_text().splitlines()
        )
        assert sorted(map(repr, records)) == sorted(map(repr, first.records))
        assert all(r.status in FAILURES or not r.message.startswith("the run") for r in records)
        whole = {
            line.encode(): r.id
            for line, r in zip(path.read_text().split("\n"), records, strict=False)
        }

        for _ in range(2):
            # Some kinds of damage need valid lines, which may be missing after the first.
            with suppress(ValueError, AttributeError, TypeError, RecursionError):
                path.write_bytes(damaged(rng, path.read_bytes()))
        lines = path.read_bytes().split(b"\n")
        survivors = {whole[line] for line in lines if line in whole}
        readable = RecordStore(path).read()
        assert survivors <= {r.id for r in readable}
        look(Comparison.of_store(readable), folder)

        before = path.read_bytes()
        try:
            again = il.compare(problems, solvers, store=path, **asked)
        except InputError:
            # No part of it is a record any more, or resembles one.
            assert not survivors and path.read_bytes() == before
            return
        assert [r.key for r in again.records] == [r.key for r in first.records]
        there = RecordStore(path).read()
        asked_keys = {r.key for r in first.records}
        had = {r.key for r in readable} & asked_keys
        assert len(there) == len(readable) + 6 - len(had)
        assert survivors <= {r.id for r in there}
        # No line is lost, damaged or not.
        now = set(path.read_bytes().split(b"\n"))
        assert {line for line in before.split(b"\n")[:-1] if line.strip(b"\0")} <= now
        assert len(il.compare(problems, solvers, store=path, **asked)) == 6
        assert len(RecordStore(path).read()) == len(there)
        if rng.random() < 0.1:
            report_document(Comparison.of_store(RecordStore(path)), title="store")


def look(comparison: Comparison, folder: Path) -> None:
    """Write all tables and read their cells."""
    comparison.save(folder / "saved")
    json.dumps(comparison.as_dict(), allow_nan=False)
    csv.field_size_limit(10**9)
    with (folder / "saved" / "runs.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.reader(stream):
            for cell in row:
                assert "\0" not in cell


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, 2**32 - 1))
def test_a_damaged_store_is_read_and_gone_on_with(seed: int) -> None:
    """Check arbitrary records and arbitrary damage."""
    with tempfile.TemporaryDirectory() as folder:
        check(np.random.default_rng(seed), Path(folder))
