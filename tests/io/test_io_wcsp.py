"""Weighted CSP files: real instances, the bound that forbids, and damage."""

from __future__ import annotations

import math
import re
from typing import Any

import damage
import numpy as np
import pytest
from damage import SlowModel, check_damaged, check_refused, damaged
from hypothesis import example, given
from places import published
from slow_words import Refused, Words, uncommented
from strategies import labellings

import inference_lab as il
from inference_lab.io import FormatError, wcsp
from inference_lab.io._files import read_bytes

SMALL = damage.SMALL["wcsp"]


def parse(data: bytes) -> il.FactorGraph:
    return wcsp.parse(data, "here.wcsp")


# ------------------------------------------------------------------ a second, slow reader


SlowFunction = tuple[tuple[int, ...], float, dict[tuple[int, ...], float]]


def slow_read(data: bytes) -> tuple[list[int], list[SlowFunction], bool]:
    """Return cardinalities, functions as default and tuples, and whether nothing is allowed."""
    data = uncommented(data, names=True)
    if re.search(rb"[^\t-\r -~]", data):
        raise Refused
    words = Words(data.decode())
    size = len(words)
    words.word()
    n = words.integer(0, size)
    words.integer(0)
    n_functions = words.integer(0, size)
    top = words.integer(0)
    counts = [abs(words.integer(1 - 2**31, 2**31 - 1)) for _ in range(n)]
    if 0 in counts:
        raise Refused

    def cost(value: int) -> float:
        return math.inf if value >= top else float(value)

    functions: list[SlowFunction] = []
    for _ in range(n_functions):
        arity = words.integer(0, size)
        scope = tuple(words.integer(0, n - 1) for _ in range(arity))
        labels = [counts[v] for v in scope]
        default = words.integer(0)
        if len(set(scope)) < len(scope) or math.prod(labels) > 2**24:
            raise Refused
        table: dict[tuple[int, ...], float] = {}
        for _ in range(words.integer(0, size)):
            x = tuple(words.integer(0, k - 1) for k in labels)
            table[x] = cost(words.integer(0))
        functions.append((scope, cost(default), table))
    if words:
        raise Refused
    named = {v for scope, *_ in functions for v in scope}
    if sum(k for v, k in enumerate(counts) if v not in named) > 10_000_000:
        raise Refused
    nothing = top == 0 or any(not scope and d == math.inf for scope, d, _ in functions)
    if nothing and n == 0:
        raise Refused
    return counts, functions, nothing


def slow_energy(functions: list[SlowFunction], nothing: bool, x: Any) -> float:
    total = math.inf if nothing else 0.0
    for scope, default, table in functions:
        total += table.get(tuple(int(x[v]) for v in scope), default)
    return total


# ------------------------------------------------------------------ real instances


def test_instances_have_their_sizes_and_the_energies_of_a_slow_reader() -> None:
    """Check all toulbar2 instances at random labellings, and only sizes of the large ones."""
    rng = np.random.default_rng(0)
    instances = published("toulbar2", type="wcsp")
    assert len(instances) == 12
    for path, row in instances:
        graph = il.read(path)
        assert graph.n_variables == int(row["vars"])
        assert graph.cardinalities.max() == int(row["max_card"])
        assert graph.has_infinite or path.name not in ("zebra.wcsp", "404.wcsp.xz")
        if path.name.startswith(("scen06", "CELAR", "celar6")):
            continue
        counts, functions, nothing = slow_read(read_bytes(path))
        assert len(functions) == int(row["factors"])
        assert max(len(scope) for scope, *_ in functions) == int(row["max_arity"])
        assert graph.cardinalities.tolist() == counts
        x = rng.integers(graph.cardinalities, size=(10, graph.n_variables))
        expected = [slow_energy(functions, nothing, labels) for labels in x]
        assert graph.energy(x).tolist() == expected


# ------------------------------------------------------------------ the format


def test_a_constant_that_forbids_makes_the_model_infeasible() -> None:
    """It neither crashes nor yields a number."""
    graph = parse(b"t 2 2 2 5 2 2 0 5 0 1 1 0 0")
    assert np.isposinf(graph.energy(labellings(graph))).all()
    assert il.solve(graph, "brute-force").status is il.Status.INFEASIBLE
    with pytest.raises(FormatError, match="no labelling is allowed"):
        parse(b"t 0 0 1 5 0 5 0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file is empty; expected the name"),
        ("t", r"end of file after 1 tokens: .*the number of variables"),
        ("t 1.5 2 0 9 2", r"token 2: expected the number of variables, an integer >= 0, got '1.5'"),
        ("t 9 2 0 9 2", r"variables is '9', but at most 1 fit"),
        ("t 1 2 7 9 2", r"cost functions is '7', but at most 0 fit"),
        ("t 1 2 0 x 2", r"token 5: expected the upper bound, an integer >= 0, got 'x'"),
        ("t 1 2 0 9 0", r"variable 0: expected its number of labels, .* got '0'"),
        ("t 1 2 0 9 2000000000", r"variable 0 has 2000000000 labels and no factor"),
        ("t 1 2 1 9 2 5 0 0 0", r"variables of function 0 is '5', but at most 1 fit"),
        ("t 1 2 1 9 2 1 1 0 0", r"function 0: expected a variable of its scope, 0 to 0, got '1'"),
        ("t 2 2 1 9 2 2 2 1 1 0 0", r"token 10: function 0 names variable 1 twice"),
        ("t 1 2 1 9 2 1 0 -3 0", r"default cost of function 0, an integer >= 0, got '-3'"),
        ("t 1 2 1 9 2 1 0 0 2 0 1", r"tuples of function 0 is '2', but at most 1 fit"),
        ("t 1 2 1 9 2 1 0 0 1 2 5", r"function 0 over \(0,\): expected a label of .*'2'"),
        ("t 1 2 1 9 2 1 0 0 1 1 -5", r"expected the cost of a tuple, an integer >= 0, got '-5'"),
        ("t 1 2 1 9 2 1 0 0 -1", r"tuples of function 0, an integer >= 0, got '-1'"),
        ("t 1 2 1 9 2 1 0 0 0 5", r"1 surplus tokens after the last cost function, from '5'"),
        ("t 1 2 1 9 2 -1 0 0 1 1 4", r"variables of function 0, an integer >= 0, got '-1'"),
        ("t 2 2 1 9 2 2 2 0 1 -1 0 0 0", r"default cost of function 0, an integer >= 0, got '-1'"),
        ("t 2 2 1 9 2 2 2 0 1 -1", r"variables of function 0 is '2', but at most 1 fit"),
        ("t 2 2 1 9 99999 99999 2 0 1 0 0", r"too many entries in all; at most 16777227"),
    ],
)
def test_errors_name_fault_and_position(text: str, message: str) -> None:
    """Announced sizes are checked before anything is allocated."""
    check_refused(parse, text, message, "here.wcsp")


def test_bytes_that_are_no_ascii_text() -> None:
    with pytest.raises(FormatError, match="expected plain ASCII text"):
        parse(b"t 1 2 0 9 \xff")


@given(damaged(SMALL))
@example(SMALL)
@example(SMALL.replace(b"5 20", b"5 0"))
@example(SMALL.replace(b"5 20", b"5 19"))
def test_damaged_text_is_refused_exactly_when_the_slow_reader_refuses(data: bytes) -> None:
    """Otherwise both readers have the same energy."""

    def read_slowly() -> SlowModel:
        counts, functions, nothing = slow_read(data)
        return counts, lambda x: slow_energy(functions, nothing, x)

    check_damaged(lambda: parse(data), read_slowly, tolerance=0.0)
