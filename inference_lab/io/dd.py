"""The graph matching format ``.dd``: assignments, and costs of pairs of assignments.

The first letter of a line gives its kind:

* ``p N0 N1 A E``: numbers of left nodes, right nodes, assignments and edges; the first line;
* ``a ID LEFT RIGHT COST``: the left node may be assigned to the right node, at this cost; the
  assignments are numbered in order;
* ``e ID ID COST``: the cost if both assignments are made;
* ``i0``, ``i1``, ``n0`` and ``n1`` (positions and neighbours of the nodes in the images that are
  matched): not part of the energy.

Each node of either side is assigned at most once, and an unassigned node has no cost.

The factor graph has one variable for each left node. Its labels are the right nodes that it may be
assigned to, in increasing order, and a last one for "unassigned". Two left nodes that share a
right node are joined by a term that forbids (``+inf``) assigning both to it. The costs of edges
are added to these terms. Edges between assignments that exclude each other are ignored.

This format is read only.

References
----------
L. Torresani, V. Kolmogorov, C. Rother, "A Dual Decomposition Approach to Feature Correspondence",
IEEE TPAMI 35(2), 2013, whose code introduced the format.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain, combinations, repeat

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables, Unaries
from inference_lab.io._assembly import graph_of
from inference_lab.io._files import FormatError
from inference_lab.io._text import plain_text
from inference_lab.io._tokens import Tokens

#: Number of fields in each kind of line that is not ignored.
_FIELDS = {b"p": 4, b"a": 4, b"e": 3}
_IGNORED = (b"i0", b"i1", b"n0", b"n1")


def parse(data: bytes, path: str) -> FactorGraph:
    r"""Parse the content of a graph matching file."""
    # Memory is quadratic in the number of left nodes in the worst case, because each pair of left
    # nodes that share a right node has a table. Tables beyond the limits of
    # `inference_lab.io._limits` are refused before they are allocated.
    tokens, places = _numbers(data, path)
    n_left, n_right, n_assignments, _ = _head(tokens, places)
    left, right, costs = _assignments(tokens, places[b"a"], n_left, n_right)
    edges, edge_costs = _edges(tokens, places[b"e"], n_assignments)

    # The labels of a left node are its assignments in the order of their right nodes.
    order = np.lexsort((right, left))
    again = np.flatnonzero(
        (left[order][1:] == left[order][:-1]) & (right[order][1:] == right[order][:-1])
    )
    if again.size:
        a = int(order[again[0] + 1])
        raise tokens.error(
            int(places[b"a"][a, 0]), f"node {left[a]} is assigned to {right[a]} twice"
        )
    counts = np.bincount(left, minlength=n_left).astype(np.int64)
    first = np.cumsum(counts) - counts
    label = np.empty(n_assignments, dtype=np.int64)
    label[order] = np.arange(n_assignments) - first[left[order]]
    sizes = counts + 1
    pointers = starts_of(sizes)
    flat = np.zeros(int(pointers[-1]))
    flat[pointers[left] + label] = costs
    ends = left.tolist(), right.tolist(), label.tolist()
    tables = _tables(tokens, int(places[b"p"][0, 0]), ends, sizes.tolist(), edges, edge_costs)
    alike: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for pair in sorted(tables):
        alike[tables[pair].shape].append(pair)
    terms = [
        OwnTables(np.array(pairs, dtype=np.int64), np.stack([tables[pair] for pair in pairs]))
        for pairs in alike.values()
    ]
    return graph_of(path, Unaries(sizes, pointers, flat), terms)


class _LineTokens(Tokens):
    """Tokens with errors that give the line only, because other parts of the file are blanks."""

    def error(self, number: int, message: str) -> FormatError:
        """Make the error for a fault at ``values[number]``."""
        return FormatError(f"{self.path}, line {self.line(number)}: {message}")


def _numbers(data: bytes, path: str) -> tuple[Tokens, dict[bytes, IntArray]]:
    """Return the numbers of a file, and their places by kind of line, one row a line."""
    lines, kinds = [], []
    for number, line in enumerate(plain_text(data, path).split(b"\n"), 1):
        kind, *fields = line.split() or [b""]
        if kind in _FIELDS:
            if len(fields) != _FIELDS[kind]:
                raise FormatError(
                    f"{path}, line {number}: a line {kind.decode()!r} has {_FIELDS[kind]} numbers, "
                    f"got {len(fields)}"
                )
            kinds.append(kind)
            lines.append(line.replace(kind, b" ", 1))
        elif kind and kind not in _IGNORED:
            shown = kind[:40].decode("ascii", "backslashreplace")
            raise FormatError(
                f"{path}, line {number}: expected a line of kind p, a, e or c, got {shown!r}"
            )
        else:
            lines.append(b" " * len(line))
    tokens = _LineTokens(b"\n".join(lines), path)
    sizes = np.array([_FIELDS[kind] for kind in kinds], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    of = np.array(kinds, dtype="S1")
    return tokens, {kind: starts[of == kind, None] + np.arange(n) for kind, n in _FIELDS.items()}


def _integers(tokens: Tokens, places: IntArray, limit: int, what: str) -> IntArray:
    allowed = f"0 to {limit - 1}" if limit else "but there is none"
    numbers = tokens.integers(places, 0, limit, f"expected {what}, {allowed}")
    return numbers.astype(np.int64)


def _head(tokens: Tokens, places: dict[bytes, IntArray]) -> list[int]:
    """Return the numbers of left nodes, right nodes, assignments and edges."""
    rows = places[b"p"]
    if len(rows) != 1:
        where = f"line {tokens.line(int(rows[1, 0]))}" if len(rows) else "end of file"
        raise FormatError(
            f"{tokens.path}, {where}: expected one line 'p N0 N1 A E', got {len(rows)}"
        )
    # The number of nodes is limited, because nodes without assignments take memory, too.
    high = _limits.MAX_FREE_LABELS + sum(map(len, places.values()))
    parts = ("left nodes", "right nodes", "assignments", "edges")
    counts = [
        int(_integers(tokens, rows[:, field], high, f"the number of {what}")[0])
        for field, what in enumerate(parts)
    ]
    for kind, count, what in zip((b"a", b"e"), counts[2:], parts[2:], strict=True):
        if len(places[kind]) != count:
            there = f"{count} {what} are announced, {len(places[kind])} are there"
            raise tokens.error(int(rows[0, 0]), there)
    return counts


def _assignments(
    tokens: Tokens, places: IntArray, n_left: int, n_right: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the left node, right node and cost of each assignment."""
    numbers = _integers(tokens, places[:, 0], len(places), "the number of an assignment")
    wrong = np.flatnonzero(numbers != np.arange(len(places)))
    if wrong.size:
        row = int(wrong[0])
        raise tokens.error(
            int(places[row, 0]),
            f"assignment {row} has the number {numbers[row]}; they are numbered in order",
        )
    left = _integers(tokens, places[:, 1], n_left, "a left node")
    right = _integers(tokens, places[:, 2], n_right, "a right node")
    return left, right, tokens.costs(places[:, 3], "expected a cost")


def _edges(tokens: Tokens, places: IntArray, n_assignments: int) -> tuple[IntArray, FloatArray]:
    """Return the two assignments and the cost of each edge."""
    ends = _integers(tokens, places[:, :2].ravel(), n_assignments, "an assignment").reshape(-1, 2)
    loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if loops.size:
        row = int(loops[0])
        raise tokens.error(int(places[row, 0]), f"assignment {ends[row, 0]} is joined to itself")
    return ends, tokens.costs(places[:, 2], "expected a cost")


def _tables(
    tokens: Tokens,
    at: int,
    ends: tuple[list[int], list[int], list[int]],
    sizes: list[int],
    edges: IntArray,
    edge_costs: FloatArray,
) -> dict[tuple[int, int], FloatArray]:
    """Return the table of each pair of left nodes that are joined.

    `ends` are the left node, the right node and the label of each assignment.
    """
    left, right, label = ends
    sharing: dict[int, list[int]] = defaultdict(list)
    for a, node in enumerate(right):
        sharing[node].append(a)
    room = _limits.MAX_ENTRIES + tokens.values.size
    conflicts = sum(len(group) * (len(group) - 1) // 2 for group in sharing.values())
    # Each conflict needs a table of at least four entries.
    if conflicts > room // 4:
        raise tokens.error(
            at, f"{conflicts} pairs of assignments share a right node; at most {room // 4} are read"
        )
    excluded = chain.from_iterable(combinations(group, 2) for group in sharing.values())
    tables: dict[tuple[int, int], FloatArray] = {}
    for (a, b), cost in chain(
        zip(excluded, repeat(math.inf)), zip(edges.tolist(), edge_costs.tolist(), strict=True)
    ):
        # Assignments of the same left or right node exclude each other: no edge counts.
        if left[a] == left[b] or (right[a] == right[b] and cost < math.inf):
            continue
        if left[a] > left[b]:
            a, b = b, a
        pair = left[a], left[b]
        if pair not in tables:
            shape = sizes[pair[0]], sizes[pair[1]]
            room -= math.prod(shape)
            if room < 0:
                raise tokens.error(at, f"left nodes {pair} are joined: too many entries in all")
            tables[pair] = np.zeros(shape)
        tables[pair][label[a], label[b]] += cost
    return tables
