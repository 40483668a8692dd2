"""Graphs written to every format and read again: the same costs to the precision of doubles."""

from __future__ import annotations

import lzma
import math
import re
from pathlib import Path

import numpy as np

import inference_lab as il
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.io import wcsp

SHORT = 60
CASE_SECONDS = 20.0

#: What costs become: digits of all sizes, and what doubles have at their ends.
_STRETCHES = (1.0, 1e-3, 1e-9, 1e-300, 5e-324, 0.1, 37.0, 1e3, 1e5, 1e12, 1e30)


def tables(graph: il.FactorGraph) -> dict[tuple[int, ...], np.ndarray]:
    """Return the unaries, and the tables by scope, which is made increasing."""
    found = {(i,): graph.unary_of(i) for i in range(graph.n_variables)}
    for scope, table in graph.factors():
        order = np.argsort(scope)
        key = tuple(int(scope[axis]) for axis in order)
        # Of higher-order factors there may be several on one scope.
        found[key] = table.transpose(order) + (found[key] if len(key) > 2 and key in found else 0.0)
    return found


def check_costs(graph: il.FactorGraph, again: il.FactorGraph) -> None:
    """Raise unless the graphs have the same costs, but for factors that are shifted."""
    assert again.cardinalities.tolist() == graph.cardinalities.tolist()
    before, after = tables(graph), tables(again)
    assert before.keys() == after.keys()
    shifted = [
        table
        for _, table in graph.factors()
        if np.isfinite(table).any() and abs(float(table.min())) > 700
    ]
    if not shifted:
        # Constants are split into parts, each of which may be off by a unit of its potential.
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
    """Write and read a graph in the formats of potentials."""
    for suffix in (".uai", ".fg.gz"):
        path = folder / f"again{suffix}"
        try:
            il.write(graph, path)
        except ValueError as problem:
            assert "forbids its only entry" in str(problem) or "up to 1e+18" in str(problem)
            assert not path.exists()
            continue
        check_costs(graph, il.read(path))
        path.unlink()


def check_integers(graph: il.FactorGraph, folder: Path, asked: float | None = None) -> None:
    """Write and read a graph in the format of integer costs, with the scale asked for."""
    path = folder / "again.wcsp.xz"
    il.write(graph, path, **({} if asked is None else {"scale": asked}))
    again = il.read(path)
    head, rest = lzma.decompress(path.read_bytes()).decode().split(maxsplit=1)
    noted = re.fullmatch(r"inference-lab(?:/scale=([^/]+)/offset=[^/]+)?", head)
    assert noted is not None, head
    scale = float(noted[1] or 1.0)
    assert asked in (None, scale)
    terms = sum(1 for _ in graph.factors())
    size = math.fsum(
        float(np.abs(t[np.isfinite(t)]).max(initial=0.0)) for t in tables(graph).values()
    )
    x = np.random.default_rng(0).integers(graph.cardinalities, size=(20, graph.n_variables))
    expected, got = graph.energy(x), again.energy(x)
    assert np.array_equal(np.isinf(expected), np.isinf(got))
    finite = np.isfinite(expected)
    # Every feasible labelling costs less than the bound, as the format demands.
    plain = wcsp.parse(f"plain {rest}".encode(), "plain").energy(x)
    assert (plain[finite] < int(rest.split()[3])).all()
    error = np.abs(expected[finite] - got[finite]).max(initial=0.0)
    # Whole numbers alone need no scale, unless it is asked to be one.
    allowed = 0.0 if noted[1] is asked is None else 0.5 * terms / scale
    assert error <= allowed + 1e-14 * (size + abs(graph.constant)), (error, allowed, size)


def _stretched(rng: np.random.Generator, graph: il.FactorGraph) -> il.FactorGraph:
    """Return the graph with costs of another size, some of them moved by a unit in the last place.

    The tables are stretched one by one, so that a graph has costs of several sizes.
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


def case(rng: np.random.Generator, folder: Path) -> None:
    """Draw a graph of any family, as it is or stretched."""
    family = str(rng.choice(sorted(FAMILIES)))
    graph = random_graph(family, int(rng.integers(2**31)))
    stretched = rng.random() < 0.7
    if stretched:
        graph = _stretched(rng, graph)
    check_potentials(graph, folder)
    check_integers(graph, folder, None if stretched else (None, 1.0, 10.0, 1.2345)[rng.integers(4)])
