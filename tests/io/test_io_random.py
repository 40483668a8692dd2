"""Random graphs written and read, and random damage to files, in bounded time and memory.

Slow readers in the tests of each format check the content of damaged files.
"""

from __future__ import annotations

import gzip
import lzma
import math
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
from damage import SMALL, damage
from hypothesis import given, settings
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.io import FormatError, _limits

seeds = st.integers(0, 2**32 - 1)


# ------------------------------------------------------------------ written and read again


#: Kinds of cost changes: digits of all sizes, and the extreme values of doubles.
_STRETCHES = (1.0, 1e-3, 1e-9, 1e-300, 5e-324, 0.1, 37.0, 1e3, 1e5, 1e12, 1e30)


def tables(graph: il.FactorGraph) -> dict[tuple[int, ...], np.ndarray]:
    """Return the unaries, and the tables by increasing scope."""
    result = {(i,): graph.unary_of(i) for i in range(graph.n_variables)}
    for scope, table in graph.factors():
        order = np.argsort(scope)
        key = tuple(int(scope[axis]) for axis in order)
        # Higher-order factors may share a scope.
        result[key] = table.transpose(order) + (
            result[key] if len(key) > 2 and key in result else 0.0
        )
    return result


def check_costs(graph: il.FactorGraph, again: il.FactorGraph) -> None:
    """Raise unless the graphs have the same costs, except for shifted factors."""
    assert again.cardinalities.tolist() == graph.cardinalities.tolist()
    before, after = tables(graph), tables(again)
    assert before.keys() == after.keys()
    shifted = [
        table
        for _, table in graph.factors()
        if np.isfinite(table).any() and abs(float(table.min())) > 700
    ]
    if not shifted:
        # Constants are split into parts, each with an error of one unit of its potential.
        np.testing.assert_allclose(again.constant, graph.constant, rtol=1e-15, atol=2e-16)
        for scope, table in before.items():
            np.testing.assert_allclose(table, after[scope], rtol=1e-15, atol=2e-16)
        return
    size = math.fsum(float(np.abs(t[np.isfinite(t)]).max(initial=0.0)) for t in before.values())
    x = np.random.default_rng(0).integers(graph.cardinalities, size=(20, graph.n_variables))
    expected, got = graph.energy(x), again.energy(x)
    assert np.array_equal(np.isinf(expected), np.isinf(got))
    finite = np.isfinite(expected)
    error = np.abs(expected[finite] - got[finite]).max(initial=0.0)
    assert error <= 1e-14 * (size + abs(graph.constant)), (error, size)


def check_potentials(graph: il.FactorGraph, folder: Path) -> None:
    """Write and read a graph."""
    path = folder / "again.uai.gz"
    try:
        il.write(graph, path)
    except ValueError as problem:
        assert "forbids every labelling" in str(problem) or "up to 1e+18" in str(problem)
        assert not path.exists()
        return
    check_costs(graph, il.read(path))
    path.unlink()


def _stretched(rng: np.random.Generator, graph: il.FactorGraph) -> il.FactorGraph:
    """Return the graph with scaled costs, some of them changed by a unit in the last place.

    Tables are scaled one by one, so that a graph has costs of several magnitudes.
    """
    factors = []
    for scope, table in graph.factors():
        by = float(rng.choice(_STRETCHES)) * float(rng.uniform(0.5, 1.5))
        table = table * by
        if rng.random() < 0.5:
            towards = rng.choice([-math.inf, math.inf], size=table.shape)
            table = np.where(np.isinf(table), table, np.nextafter(table, towards))
        if rng.random() < 0.3:
            table = np.where(np.isfinite(table), table - rng.exponential(800.0), table)
        factors.append((scope, table))
    constant = graph.constant + float(rng.choice([0.0, 1e-320, -0.1, 1e9])) * float(rng.random())
    return il.FactorGraph.from_factors(graph.cardinalities, factors, constant)


@given(seeds)
def test_costs_survive(seed: int) -> None:
    """Graphs of any family, also scaled, keep their costs to the precision of doubles."""
    rng = np.random.default_rng(seed)
    family = str(rng.choice(sorted(FAMILIES)))
    graph = random_graph(family, int(rng.integers(2**31)))
    if rng.random() < 0.7:
        graph = _stretched(rng, graph)
    with tempfile.TemporaryDirectory() as folder:
        check_potentials(graph, Path(folder))


# ------------------------------------------------------------------ damage


#: Limits of the readers in these cases: a size declared in a few bytes is small, too.
_LIMITS = {
    "MAX_BYTES": 1 << 24,
    "MAX_UNPACKED": 1 << 20,
    "MAX_ENTRIES": 1 << 14,
    "MAX_FREE_LABELS": 1 << 12,
}
#: Bytes of memory and CPU seconds for an empty file, and for each further byte of content.
_MEMORY = (12_000_000, 600)
_SECONDS = (1.0, 3e-5)

_TOKENS = (
    b"0",
    b"1",
    b"2",
    b"3",
    b"-1",
    b"-2",
    b"7",
    b"40",
    b"9999999",
    b"99999999",
    b"0.5",
    b"-0",
    b"1e9",
    b"1e-400",
    b"1e308",
    b"-1e308",
    b"9e99",
    b"1e400",
    b"5e-324",
    b"1e-99999",
    b"x",
    b"nan",
    b"inf",
    b"-inf",
    b"NaN(7)",
    b"1_0",
    b"0x10",
    b"1.",
    b".5",
    b"+.5e+1",
    b"1e",
    b"-",
    b"-BEGIN-",
    b"#",
    b'"',
    b"[",
    b"}",
    b"{",
    b"]",
    b",",
    b":",
    b"\x00",
    b"\xe9",
    b"\xff",
    "\u0661".encode(),
    "é".encode(),
    b"\xef\xbb\xbf",
    b"\r",
    b"\r\n",
    b"\v",
    b"\\u0041",
    b'"\\ud800"',
    b"18446744073709551616",
    b"9" * 400,
    b"1" * 5000,
    b"0" * 30 + b"1",
    b"0" * 5000 + b"3",
    b"1" * 100_000 + b"x",
    b"0." + b"9" * 30,
    b"0." + b"3" * 2000,
    b"1e" + b"9" * 200,
    b"x" * 9000,
    b"1.00000000000000000000001",
    b"MARKOV",
    b"scope",
    b"costs",
    b"defaultcost",
    b">=",
    b"a",
    b"p",
)


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Return the file with some of it changed, repeated or nested."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        at = int(rng.integers(len(data) + 1))
        how = rng.random()
        if how < 0.05:
            data = data.replace(b"\n", [b"\r", b"\r\n", b" ", b"\n\n", b"\0\n"][rng.integers(5)])
        elif how < 0.1:
            stop = at + int(rng.integers(1, 60))
            data = data[:at] + data[at:stop] * int(rng.choice([0, 2, 3, 2000])) + data[stop:]
        elif how < 0.15:
            depth = int(rng.choice([3, 20000]))
            data = data[:at] + bytes(rng.choice([b"[", b"{", b"]", b'"', b"#"])) * depth + data[at:]
        else:
            data = damage(rng, data, _TOKENS)
    return data


def _packed(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    """Return a suffix and the file, compressed and perhaps damaged, or twice, or a bomb."""
    suffix, pack = [
        ("", bytes),
        (".gz", lambda content: gzip.compress(content, mtime=0)),
        (".xz", lambda content: lzma.compress(content, preset=0)),
    ][int(rng.choice(3, p=[0.7, 0.15, 0.15]))]
    if not suffix:
        return suffix, data
    how = int(rng.integers(5))
    if how == 0 and suffix == ".gz":  # the header of an .xz file may declare a large window
        return suffix, damaged(rng, pack(data))
    if how == 1:
        return suffix, pack(pack(data))
    if how == 2:
        return suffix, pack(data + b" " * int(rng.choice([1000, 4_000_000])))
    if how == 3:
        return suffix, pack(data) + pack(b" ") * int(rng.choice([1, 300]))
    return suffix, pack(data)


def _measured(
    content: int, path: Path, read: Callable[[], il.FactorGraph]
) -> il.FactorGraph | None:
    """Return the content if read within the bounds of time and memory, None if refused."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        graph = read()
    except FormatError as problem:
        assert str(path.parent) in str(problem), problem
        assert len(str(problem)) < 2000, len(str(problem))
        graph = None
    finally:
        spent = time.process_time() - begin
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    content = max(content, path.stat().st_size)
    assert peak <= _MEMORY[0] + _MEMORY[1] * content, (peak, content)
    assert spent <= _SECONDS[0] + _SECONDS[1] * content, (spent, content)
    return graph


def _check_model(rng: np.random.Generator, folder: Path) -> None:
    name = str(rng.choice([*SMALL, "qubo"]))
    made = SMALL.get(name, SMALL["max-cut"])
    format = name.replace("bayes", "uai")
    data = damaged(rng, made)
    suffix, stored = _packed(rng, data)
    path = folder / f"model.{format}{suffix}"
    path.write_bytes(stored)
    costs = format == "uai" and rng.random() < 0.3
    evidence = None
    if rng.random() < 0.3:
        evidence = folder / "model.evid"
        evidence.write_bytes(damaged(rng, b"1 2 1 0 0 1"))
    content = max(len(data), 0 if evidence is None else evidence.stat().st_size)
    graph = _measured(
        min(content, _LIMITS["MAX_BYTES"]),
        path,
        lambda: il.read(path, evidence=evidence, format=format, costs=costs),
    )
    if graph is None:
        return
    x = rng.integers(graph.cardinalities, size=(10, graph.n_variables))
    energies = graph.energy(x)
    assert not (np.isnan(energies) | np.isneginf(energies)).any(), energies
    if graph.unary_values.size + graph.n_edges + graph.table_values.size < 3000:
        check_potentials(graph, folder)


@settings(max_examples=4 * settings.default.max_examples)
@given(seeds)
def test_damaged_files_are_refused_or_read_within_bounds(seed: int) -> None:
    """Files are models of all formats, compressed or not."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(_limits, **_LIMITS):
        _check_model(rng, Path(folder))
