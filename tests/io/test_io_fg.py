"""libDAI files: the instances of its own tests, and every kind of damage."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
from damage import SlowModel, check_damaged, check_refused, damaged
from hypothesis import example, given
from places import published
from slow_words import Refused, Words, is_numeral, uncommented

import inference_lab as il
from inference_lab.io import FormatError, fg

SMALL = damage.SMALL["fg"]


def parse(data: bytes) -> il.FactorGraph:
    return fg.parse(data, "here.fg")


# ------------------------------------------------------------------ a second, slow reader


SlowFactor = tuple[tuple[int, ...], dict[tuple[int, ...], float]]


def slow_read(data: bytes) -> tuple[list[int], list[SlowFactor]]:
    """Read token by token, each table as a dictionary over labels in the order of the scope."""
    text = uncommented(data)
    if re.search(rb"[^\t-\r -~]", text):
        raise Refused
    words = Words(text.decode())
    size = len(words)
    n_factors = words.integer(0, size)
    labels: dict[int, int] = {}
    factors: list[SlowFactor] = []
    for _ in range(n_factors):
        arity = words.integer(0, size)
        scope = tuple(words.integer(0, 1_000_000) for _ in range(arity))
        counts = [words.integer(1, 2**31 - 1) for _ in range(arity)]
        if len(set(scope)) < arity:
            raise Refused
        for v, k in zip(scope, counts, strict=True):
            if labels.setdefault(v, k) != k:
                raise Refused
        entries = math.prod(counts)
        table: dict[tuple[int, ...], float] = {}
        for _ in range(words.integer(0, min(entries, size))):
            index = words.integer(0, entries - 1)
            x = []
            for k in counts:  # the first one varies fastest
                x.append(index % k)
                index //= k
            token = words.word()
            if not is_numeral(token) or float(token) < 0:
                raise Refused
            mantissa, _, power = token.lower().partition("e")
            value = float(mantissa)
            table[tuple(x)] = (
                math.inf if value == 0 else -math.log(value) - int(power or 0) * math.log(10)
            )
        if all(e == math.inf for e in table.values()):
            raise Refused
        factors.append((scope, table))
    if words:
        raise Refused
    return [labels.get(v, 1) for v in range(max(labels, default=-1) + 1)], factors


def slow_energy(factors: list[SlowFactor], x: Any) -> float:
    return sum(table.get(tuple(int(x[v]) for v in scope), math.inf) for scope, table in factors)


# ------------------------------------------------------------------ real instances


def test_instances_have_their_sizes_and_the_energies_of_a_slow_reader() -> None:
    """Check all libDAI instances at random labellings."""
    rng = np.random.default_rng(0)
    instances = published("libdai")
    assert len(instances) == 9
    for path, row in instances:
        graph = il.read(path)
        counts, factors = slow_read(path.read_bytes())
        named = {v for scope, _ in factors for v in scope}
        assert graph.cardinalities.tolist() == counts
        assert len(named) == int(row["vars"])
        assert max(counts) == int(row["max_card"])
        assert len(factors) == int(row["factors"])
        assert max(len(scope) for scope, _ in factors) == int(row["max_arity"])
        x = rng.integers(graph.cardinalities, size=(20, graph.n_variables))
        expected = [slow_energy(factors, labels) for labels in x]
        np.testing.assert_allclose(graph.energy(x), expected, rtol=1e-12, atol=1e-12)


def test_partition_functions() -> None:
    """They agree with exact elimination by other programs."""
    for path, row in published("libdai"):
        graph = il.read(path)
        soft = il.solve(graph, "junction-tree", temperature=1.0)
        assert soft.log_partition == pytest.approx(float(row["lnZ"]), abs=2e-9)


def test_marginals_that_libdai_prints(data_dir: Path) -> None:
    """They agree with the block EXACT of libDAI's regression output, to its four digits."""
    folder = data_dir / "map" / "libdai"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}")
    block = (folder / "testfast.out").read_text().split("EXACT", 1)[1].split("JTREE", 1)[0]
    printed = re.findall(r"\(\{x(\d+)\}, \(([^,]+), ([^)]+)\)\)", block)
    assert [int(v) for v, *_ in printed] == list(range(16))
    solution = il.solve(il.read(folder / "testfast.fg"), "brute-force", temperature=1.0)
    expected = [[float(a), float(b)] for _, a, b in printed]
    np.testing.assert_allclose(np.array(solution.marginals), expected, atol=6e-5)


# ------------------------------------------------------------------ the format


def test_variables_keep_their_numbers() -> None:
    """Numbers that no factor names are variables of one label."""
    graph = parse(b"1 2 5 2 2 2 1 1 0.5")
    assert graph.cardinalities.tolist() == [1, 1, 2, 1, 1, 2]
    assert graph.energy([0, 0, 0, 0, 0, 1]) == math.log(2)
    assert graph.energy([0, 0, 1, 0, 0, 0]) == math.inf


def test_comments_may_hold_anything() -> None:
    """They may be non-ASCII; lines keep their numbers."""
    graph = parse("# Übung\n1#\n\n1 0 # é 7\n2 1 1 0.5#x".encode())
    assert graph.unary_of(0).tolist() == [math.inf, math.log(2)]
    with pytest.raises(FormatError, match=r"line 3, token 2: .*'1.5'"):
        parse(b"# one\n1 # two\n 1.5 0 2 1 0 1")


def test_no_factors_and_last_value_of_an_entry() -> None:
    """Check the smallest file, and an entry that is listed twice."""
    assert parse(b"0").n_variables == 0
    assert parse(b"1 1 0 2 2 1 0.5 1 0.25").unary_of(0)[1] == pytest.approx(math.log(4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"end of file after 0 tokens: the file ends where the number of factors"),
        ("# nothing", r"the file ends where the number of factors"),
        ("x", r"line 1, token 1: expected a number, got 'x'"),
        ("2 0", r"the number of factors is '2', but at most 0 fit"),
        ("1 7 0 2 1 0", r"variables of factor 0 is '7', but at most 1 fit"),
        ("1 1 0 2 2 0 1", r"entries of factor 0 is '2', but at most 1 fit"),
        ("1 1 0 2 1 0 1 5", r"token 8: 1 surplus tokens after the last factor, from '5'"),
        ("1 1 0.5 2 1 0 1", r"factor 0: expected a variable of its scope, .*got '0.5'"),
        ("1 1 10000000 2 1 0 1", r"0 to 1000006, got '10000000'"),
        ("1 2 1 1 2 2 1 0 1", r"token 4: factor 0 names variable 1 twice"),
        ("1 1 0 0 1 0 1", r"factor 0: expected the numbers of labels of its variables, .*got '0'"),
        ("2 1 0 2 1 0 1 1 0 3 1 0 1", r"factor 1 gives variable 0 3 labels, another factor 2"),
        ("1 1 0 1 2 0 1 0 1", r"factor 0 over \(0,\) has 1 entries, but 2 are listed"),
        ("1 1 0 2 1 2 1", r"expected the index of an entry, 0 to 1, got '2'"),
        ("1 1 0 2 1 1 -1", r"factor 0 over \(0,\), entry '1': the potential '-1' is negative"),
        ("1 1 0 2 1 1 nan", r"the potential 'nan' is not a number"),
        ("1 1 0 2 1 1 inf", r"the potential 'inf' is not a finite number"),
        ("1 1 0 2 0", r"factor 0 over \(0,\) has no table but zeros"),
        ("1 0 0", r"factor 0 over \(\) is a constant of zero"),
        ("1 2 0 1 99999999 9999 1 0 1", r"too many entries in all; at most 16777225 are read"),
        ("1 1 0 2147483647 1 0 1", r"too many entries in all; at most"),
        (
            "1 40 " + " ".join(map(str, range(40))) + " 2147483647" * 40 + " 1 0 1",
            r"\(0, 1, .* 40 variables\).*at most 16777",
        ),
        ("1 1 0 2 1 0 1\x00", r"byte 13 is 0x00; expected plain ASCII"),
    ],
)
def test_errors_name_fault_and_position(text: str, message: str) -> None:
    """Announced sizes are checked before anything is allocated."""
    check_refused(parse, text, message, "here.fg")


@given(damaged(SMALL))
@example(SMALL)
def test_damaged_text_is_refused_exactly_when_the_slow_reader_refuses(data: bytes) -> None:
    """Otherwise both readers have the same energy."""

    def read_slowly() -> SlowModel:
        counts, factors = slow_read(data)
        return counts, lambda x: slow_energy(factors, x)

    check_damaged(lambda: parse(data), read_slowly)
