"""Model files, whole and damaged: read as they were meant, or refused in so many words.

The files are made here from lists of factors, so that what is read is judged by these lists.
"""

from __future__ import annotations

import gzip
import lzma
import math
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from fuzz_round_trips import check_potentials

import inference_lab as il
from inference_lab.io import FormatError, _limits, results

SHORT = 120
CASE_SECONDS = 30.0

#: Limits of the readers in these cases: what is declared in a few bytes is small, too.
_LIMITS = {
    "MAX_BYTES": 1 << 24,
    "MAX_ENTRIES": 1 << 14,
    "MAX_FREE_LABELS": 1 << 12,
}
#: Bytes of memory, and CPU seconds, for a file of no bytes, and for each further byte of content.
_MEMORY = (12_000_000, 600)
_SECONDS = (1.0, 3e-5)

_TOKENS = (
    *(b"0", b"1", b"2", b"3", b"-1", b"-2", b"7", b"40", b"9999999", b"99999999", b"0.5", b"-0"),
    *(b"1e9", b"1e-400", b"1e308", b"-1e308", b"9e99", b"1e400", b"5e-324", b"1e-99999", b"x"),
    *(b"nan", b"inf", b"-inf", b"NaN(7)", b"1_0", b"0x10", b"1.", b".5", b"+.5e+1", b"1e", b"-"),
    *(b"-BEGIN-", b"#", b'"', b"[", b"}", b"{", b"]", b",", b":", b"\x00", b"\xe9", b"\xff"),
    *(
        "\u0661".encode(),
        "é".encode(),
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\n",
        b"\v",
        b"\\u0041",
        b'"\\ud800"',
    ),
    *(b"18446744073709551616", b"9" * 400, b"1" * 5000, b"0" * 30 + b"1", b"0" * 5000 + b"3"),
    *(
        b"1" * 100_000 + b"x",
        b"0." + b"9" * 30,
        b"0." + b"3" * 2000,
        b"1e" + b"9" * 200,
        b"x" * 9000,
    ),
    *(
        b"1.00000000000000000000001",
        b"MARKOV",
        b"scope",
        b"costs",
        b"defaultcost",
        b">=",
        b"a",
        b"p",
    ),
)
_WORDS = re.compile(rb"[^\s\[\]{},:\"]+")


class Made(NamedTuple):
    """A file, and what it means."""

    text: bytes
    format: str
    cardinalities: list[int]
    #: The energy of a labelling; None where only the errors of the file count.
    energy: Callable[[np.ndarray], float] | None


def _model(rng: np.random.Generator) -> tuple[list[int], list[tuple[int, ...]]]:
    """Draw numbers of labels and scopes."""
    n = int(rng.integers(1, 5))
    cards = rng.integers(1, 4, size=n).tolist()
    scopes = [
        tuple(rng.permutation(n)[: int(rng.integers(0, min(n, 3) + 1))].tolist())
        for _ in range(int(rng.integers(0, 6)))
    ]
    return cards, scopes


def _rows(cards: list[int], scope: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(map(int, x)) for x in np.ndindex(*(cards[v] for v in scope))]


def _adder(
    factors: list[tuple[tuple[int, ...], dict[tuple[int, ...], float]]], offset: float = 0.0
) -> Callable[[np.ndarray], float]:
    def energy(x: np.ndarray) -> float:
        parts = [table[tuple(int(x[v]) for v in scope)] for scope, table in factors]
        return math.inf if math.inf in parts else math.fsum([offset, *parts])

    return energy


def _potential(rng: np.random.Generator) -> str:
    if rng.random() < 0.1:
        return str(rng.choice(["0", "0.0", "1e-400", "2.5e-5000", "1"]))
    digits = int(rng.choice([1, 3, 17, 30]))
    return f"{rng.random():.{digits}f}" if rng.random() < 0.7 else f"{rng.exponential():.{digits}e}"


def _cost_of(text: str) -> float:
    mantissa, _, power = text.partition("e")
    value = float(mantissa)
    return math.inf if value == 0 else -math.log(value) - int(power or 0) * math.log(10)


def _potentials(
    rng: np.random.Generator, cards: list[int], scope: tuple[int, ...]
) -> dict[tuple[int, ...], str]:
    table = {row: _potential(rng) for row in _rows(cards, scope)}
    if all(_cost_of(text) == math.inf for text in table.values()):
        table[next(iter(table))] = "0.25"
    return table


def _uai(rng: np.random.Generator) -> Made:
    cards, scopes = _model(rng)
    tables = [_potentials(rng, cards, scope) for scope in scopes]
    lines = [str(rng.choice(["MARKOV", "BAYES"])), str(len(cards)), " ".join(map(str, cards))]
    lines += [str(len(scopes)), *(" ".join(map(str, [len(s), *s])) for s in scopes)]
    for table in tables:
        lines += ["", str(len(table)), " ".join(table.values())]
    costs = [{row: _cost_of(t) for row, t in table.items()} for table in tables]
    energy = _adder(list(zip(scopes, costs, strict=True)))
    return Made("\n".join(lines).encode() + b"\n", "uai", cards, energy)


def _fg(rng: np.random.Generator) -> Made:
    cards, scopes = _model(rng)
    scopes += [(v,) for v in range(len(cards))]
    tables = [_potentials(rng, cards, scope) for scope in scopes]
    lines = [f"{len(scopes)} # factors"]
    for scope, table in zip(scopes, tables, strict=True):
        entries = []
        for row, text in table.items():
            index = sum(a * math.prod(cards[v] for v in scope[:i]) for i, (a) in enumerate(row))
            if _cost_of(text) < math.inf or rng.random() < 0.5:
                entries.append(f"{index} {text}")
        lines += ["", str(len(scope)), " ".join(map(str, scope))]
        lines += [" ".join(str(cards[v]) for v in scope), str(len(entries)), *entries]
    costs = [{row: _cost_of(t) for row, t in table.items()} for table in tables]
    energy = _adder(list(zip(scopes, costs, strict=True)))
    return Made("\n".join(lines).encode() + b"\n", "fg", cards, energy)


def _wcsp(rng: np.random.Generator) -> Made:
    cards, scopes = _model(rng)
    top = int(rng.choice([5, 40, 10**6]))
    functions: list[str] = []
    factors = []
    shared: list[tuple[list[int], int, dict[tuple[int, ...], float]]] = []

    def forbid(cost: float) -> float:
        return math.inf if cost >= top else cost

    for scope in scopes:
        sizes = [cards[v] for v in scope]
        variables = " ".join(map(str, scope))
        same = [i for i, s in enumerate(shared) if s[0] == sizes]
        if same and scope and rng.random() < 0.5:
            _, default, table = shared[same[0]]
            functions.append(f"{len(scope)} {variables} {default} {-1 - same[0]}")
        else:
            default = int(rng.integers(0, 8))
            listed = [row for row in _rows(cards, scope) if rng.random() < 0.6]
            table = {row: forbid(default) for row in _rows(cards, scope)}
            rows = []
            for row in listed:
                cost = int(rng.choice([0, 1, 3, top, top - 1, 10**30]))
                table[row] = forbid(cost)
                rows.append(" ".join(map(str, [*row, cost])))
            sign = -1 if scope and rng.random() < 0.5 else 1
            if sign < 0:
                shared.append((sizes, default, table))
            head = f"{sign * len(scope)} {variables} {default} {len(listed)}"
            functions.append("\n".join([head, *rows]))
        factors.append((scope, table))
    head = f"made {len(cards)} {max(cards)} {len(scopes)} {top}\n{' '.join(map(str, cards))}\n"
    return Made((head + "\n".join(functions) + "\n").encode(), "wcsp", cards, _adder(factors))


def _cfn(rng: np.random.Generator) -> Made:
    cards, scopes = _model(rng)
    variables = []
    for v, k in enumerate(cards):
        labels = "[" + ", ".join(f'"l{a}"' for a in range(k)) + "]"
        variables.append(f'"v{v}": {labels if rng.random() < 0.5 else k}')
    functions = []
    factors = []
    for f, scope in enumerate(scopes):
        shown = ", ".join(f'"v{v}"' if rng.random() < 0.5 else f"{v:03d}" for v in scope)
        twin = [
            g
            for g in range(f)
            if [cards[v] for v in scopes[g]] == [cards[v] for v in scope]
            and "costs" in functions[g]
            and '"f' not in functions[g].partition("costs")[2]
        ]
        if twin and rng.random() < 0.5:
            functions.append(f'"f{f}": {{"scope": [{shown}], "costs": "f{twin[0]}"}}')
            factors.append((scope, factors[twin[0]][1]))
            continue
        rows = _rows(cards, scope)
        table = {row: float(f"{rng.random():.3f}") for row in rows}
        if rng.random() < 0.5:
            listed = [f"{cost:.3f}" for cost in table.values()]
            extra = ""
        else:
            kept = [row for row in rows if rng.random() < 0.5]
            listed = [f"{a}" for row in kept for a in (*row, f"{table[row]:.3f}")]
            table = {row: table[row] if row in kept else 7.5 for row in rows}
            extra = '"defaultcost": 7.5, '
        functions.append(f'"f{f}": {{"scope": [{shown}], {extra}"costs": [{", ".join(listed)}]}}')
        factors.append((scope, table))
    text = (
        '{"problem": {"name": "made", "mustbe": "<100.0"},\n "variables": {'
        + ", ".join(variables)
        + '},\n "functions": {\n'
        + ",\n".join(functions)
        + "}}\n"
    )
    return Made(text.encode(), "cfn", cards, _adder(factors))


def _dd(rng: np.random.Generator) -> Made:
    n_left, n_right = (int(v) for v in rng.integers(1, 4, size=2))
    pairs = [(a, b) for a in range(n_left) for b in range(n_right) if rng.random() < 0.7]
    costs = rng.integers(-5, 5, size=len(pairs)).tolist()
    edges = [
        (i, j, int(rng.integers(-3, 4)))
        for i in range(len(pairs))
        for j in range(i)
        if pairs[i][0] != pairs[j][0] and pairs[i][1] != pairs[j][1] and rng.random() < 0.5
    ]
    lines = ["c made", f"p {n_left} {n_right} {len(pairs)} {len(edges)}"]
    lines += [f"a {i} {a} {b} {c}" for i, ((a, b), c) in enumerate(zip(pairs, costs, strict=True))]
    lines += [f"e {i} {j} {c}" for i, j, c in edges]
    of_left = [[i for i, (a, _) in enumerate(pairs) if a == left] for left in range(n_left)]

    def energy(x: np.ndarray) -> float:
        made = {of_left[a][int(k)] for a, k in enumerate(x) if k < len(of_left[a])}
        rights = [pairs[i][1] for i in made]
        if len(set(rights)) < len(rights):
            return math.inf
        return float(
            sum(costs[i] for i in made) + sum(c for i, j, c in edges if i in made and j in made)
        )

    return Made("\n".join(lines).encode(), "dd", [len(own) + 1 for own in of_left], energy)


def _entries(rng: np.random.Generator) -> tuple[int, list[tuple[int, int, int]], bytes]:
    n = int(rng.integers(1, 6))
    entries = [
        (int(rng.integers(n)), int(rng.integers(n)), int(rng.integers(-9, 10)))
        for _ in range(int(rng.integers(0, 8)))
    ]
    lines = [f"{n} {len(entries)}", *(f"{i + 1} {j + 1} {w}" for i, j, w in entries)]
    return n, entries, "\n".join(lines).encode() + b"\n"


def _max_cut(rng: np.random.Generator) -> Made:
    n, entries, text = _entries(rng)

    def energy(x: np.ndarray) -> float:
        return -float(sum(w for i, j, w in entries if x[i] != x[j]))

    return Made(text, "max-cut", [2] * n, energy)


def _qubo(rng: np.random.Generator) -> Made:
    n, entries, text = _entries(rng)

    def energy(x: np.ndarray) -> float:
        return float(sum(w * (1 if i == j else 2) for i, j, w in entries if x[i] and x[j]))

    return Made(text, "qubo", [2] * n, energy)


_MAKERS = (_uai, _uai, _fg, _wcsp, _wcsp, _cfn, _cfn, _dd, _max_cut, _qubo)


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Return the file with some of it cut, flipped, replaced, repeated or nested."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        how = int(rng.choice(10, p=[0.05, 0.1, 0.05, 0.05, 0.05, 0.3, 0.05, 0.1, 0.1, 0.15]))
        if not data:
            return bytes(rng.integers(0, 256, size=int(rng.integers(0, 40))).astype(np.uint8))
        at = int(rng.integers(len(data)))
        if how == 0:
            data = data[:at]
        elif how == 1:
            data = data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
        elif how == 2:
            data = data.replace(b"\n", [b"\r", b"\r\n", b" ", b"\n\n", b"\0\n"][rng.integers(5)])
        elif how == 3:
            stop = at + int(rng.integers(1, 60))
            data = data[:at] + data[at:stop] * int(rng.choice([0, 2, 3, 2000])) + data[stop:]
        elif how == 4:
            depth = int(rng.choice([3, 20000]))
            data = data[:at] + bytes(rng.choice([b"[", b"{", b"]", b'"', b"#"])) * depth + data[at:]
        else:
            # A token is what stands between blanks, or brackets and quotes.
            spans = [(m.start(), m.end()) for m in _WORDS.finditer(data)]
            if not spans:
                continue
            start, stop = spans[int(rng.integers(len(spans)))]
            token = _TOKENS[int(rng.integers(len(_TOKENS)))]
            other = spans[int(rng.integers(len(spans)))]
            if how == 9:
                # The file ends with it, or a little later.
                data = data[:start] + token + data[stop:][: int(rng.choice([0, 1, 2, 4]))]
                continue
            new = [token, b"", data[slice(*other)], data[start:stop] + b" " + token][how - 5]
            data = data[:start] + new + data[stop:]
    return data


def _packed(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    """Return a suffix and the file, packed and perhaps damaged, or packed twice, or a bomb."""
    suffix, pack = [
        ("", bytes),
        (".gz", lambda content: gzip.compress(content, mtime=0)),
        (".xz", lambda content: lzma.compress(content, preset=0)),
    ][int(rng.choice(3, p=[0.7, 0.15, 0.15]))]
    if not suffix:
        return suffix, data
    how = int(rng.integers(5))
    if how == 0:
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
    """Return what is read within the bounds of time and memory, None for what is refused."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        found = read()
    except FormatError as problem:
        assert str(path.parent) in str(problem), problem
        assert len(str(problem)) < 2000, len(str(problem))
        found = None
    finally:
        spent = time.process_time() - begin
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    content = max(content, path.stat().st_size)
    assert peak <= _MEMORY[0] + _MEMORY[1] * content, (peak, content)
    assert spent <= _SECONDS[0] + _SECONDS[1] * content, (spent, content)
    return found


def _check_model(rng: np.random.Generator, folder: Path) -> None:
    made = _MAKERS[int(rng.integers(len(_MAKERS)))](rng)
    whole = rng.random() < 0.2
    data = made.text if whole else damaged(rng, made.text)
    suffix, stored = ("", data) if whole else _packed(rng, data)
    path = folder / f"model.{made.format}{suffix}"
    path.write_bytes(stored)
    costs = made.format == "uai" and not whole and rng.random() < 0.3
    evidence = None
    seen: dict[int, int] = {}
    if rng.random() < 0.3:
        evidence = folder / "model.evid"
        n = len(made.cardinalities)
        for v in rng.permutation(n)[: int(rng.integers(0, n + 1))].tolist():
            seen[v] = int(rng.integers(made.cardinalities[v]))
        numbers = [len(seen), *(number for pair in seen.items() for number in pair)]
        text = " ".join(map(str, [1, *numbers] if rng.random() < 0.5 else numbers)).encode()
        evidence.write_bytes(text if whole else damaged(rng, text))
    content = max(len(data), 0 if evidence is None else evidence.stat().st_size)
    graph = _measured(
        min(content, _LIMITS["MAX_BYTES"]),
        path,
        lambda: il.read(path, evidence=evidence, format=made.format, costs=costs),
    )
    if whole:
        assert graph is not None, "refused a file that is whole"
        assert made.energy is not None
        assert graph.cardinalities.tolist() == made.cardinalities
        x = rng.integers(graph.cardinalities, size=(10, graph.n_variables))
        for row, got in zip(x, graph.energy(x).tolist(), strict=True):
            against = any(row[v] != label for v, label in seen.items())
            expected = math.inf if against else made.energy(row)
            assert got == expected or abs(got - expected) <= 1e-12 * max(1.0, abs(expected)), (
                row,
                got,
                expected,
            )
    if graph is None:
        return
    x = rng.integers(graph.cardinalities, size=(10, graph.n_variables))
    energies = graph.energy(x)
    assert not (np.isnan(energies) | np.isneginf(energies)).any(), energies
    if graph.unary_values.size + graph.n_edges + graph.table_values.size < 3000:
        check_potentials(graph, folder)


def _check_result(rng: np.random.Generator, folder: Path) -> None:
    """Labellings, marginals and partition functions."""
    path = folder / "result.txt"
    n = int(rng.integers(0, 5))
    kind = int(rng.integers(3))
    if kind == 0:
        labels = rng.integers(0, 5, size=n)
        results.write_labels(path, labels)
    elif kind == 1:
        marginals = [rng.dirichlet(np.ones(int(rng.integers(1, 4)))) for _ in range(n)]
        results.write_marginals(path, marginals)
    else:
        results.write_log_partition(path, float(rng.normal()))
    reader = [results.read_labels, results.read_marginals, results.read_log_partition][kind]
    if kind == 0:
        assert reader(path).tolist() == labels.tolist()
    if kind == 1:
        assert [row.tolist() for row in reader(path)] == [row.tolist() for row in marginals]
    data = path.read_bytes()
    path.write_bytes(damaged(rng, data))
    _measured(path.stat().st_size, path, lambda: reader(path))


def case(rng: np.random.Generator, folder: Path) -> None:
    """One file of any format."""
    with mock.patch.multiple(_limits, **_LIMITS):
        (_check_result if rng.random() < 0.1 else _check_model)(rng, folder)
