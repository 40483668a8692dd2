"""The graph matching format ``.dd``: assignments, and costs of pairs of assignments.

The first letter of a line gives its kind:

* ``p N0 N1 A E``: numbers of left nodes, right nodes, assignments and edges; the first line;
* ``a ID LEFT RIGHT COST``: the left node may be assigned to the right node, at this cost; the
  assignments are numbered in order;
* ``e ID ID COST``: the cost if both assignments are made;
* ``c`` (comment), ``i0``, ``i1``, ``n0`` and ``n1`` (positions and neighbours of the nodes in the
  images that are matched): not part of the energy.

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

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, check_entries
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import Tokens

#: Number of fields in each kind of line that is not ignored.
_FIELDS = {b"p": 4, b"a": 4, b"e": 3}
_IGNORED = (b"c", b"i0", b"i1", b"n0", b"n1")


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
    flat = np.zeros(int(sizes.sum()))
    flat[(np.cumsum(sizes) - sizes)[left] + label] = costs
    at = int(places[b"p"][0, 0])
    pairs, tables = _pairs(tokens, at, left, right, label, sizes, edges, edge_costs)

    def fail(f: int, why: str) -> FormatError:
        return tokens.error(at, f"of factor {f}, {why}")

    arities = np.repeat([1, 2], [n_left, len(pairs)])
    scopes = Scopes(arities, np.concatenate([np.arange(n_left), pairs.ravel()]))
    all_sizes = np.concatenate([sizes, sizes[pairs].prod(axis=1)])
    starts = np.cumsum(all_sizes) - all_sizes
    energies = np.concatenate([flat, tables])
    return assemble(path, fail, Tables(sizes, scopes, all_sizes, starts, energies))


class _LineTokens(Tokens):
    """Tokens with errors that give the line only, because other parts of the file are blanks."""

    def error(self, number: int, message: str) -> FormatError:
        """Make the error for a fault at ``values[number]``."""
        return FormatError(f"{self.path}, line {self.line(number)}: {message}")


def _numbers(data: bytes, path: str) -> tuple[Tokens, dict[bytes, IntArray]]:
    """Return the numbers of a file, and their places by kind of line, one row a line."""
    kept, kinds = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        kind, *fields = line.split() or [b""]
        if kind in _FIELDS:
            if len(fields) != _FIELDS[kind]:
                raise FormatError(
                    f"{path}, line {number}: a line {kind.decode()!r} has {_FIELDS[kind]} numbers, "
                    f"got {len(fields)}"
                )
            kinds.append(kind)
            kept.append(line.replace(kind, b" ", 1))
        elif kind and kind not in _IGNORED:
            shown = kind[:40].decode("ascii", "backslashreplace")
            raise FormatError(
                f"{path}, line {number}: expected a line of kind p, a, e or c, got {shown!r}"
            )
        else:
            kept.append(b" " * len(line))
    tokens = _LineTokens(b"\n".join(kept), path)
    sizes = np.array([_FIELDS[kind] for kind in kinds], dtype=np.int64)
    starts, of = np.cumsum(sizes) - sizes, np.array(kinds, dtype="S1")
    return tokens, {kind: starts[of == kind, None] + np.arange(n) for kind, n in _FIELDS.items()}


def _integers(tokens: Tokens, places: IntArray, limit: int, what: str) -> IntArray:
    allowed = f"0 to {limit - 1}" if limit else "but there is none"
    found = tokens.integers(places, 0, limit, lambda _: f"expected {what}, {allowed}")
    return found.astype(np.int64)


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
    return left, right, tokens.costs(places[:, 3], lambda _: "expected a cost")


def _edges(tokens: Tokens, places: IntArray, n_assignments: int) -> tuple[IntArray, FloatArray]:
    """Return the two assignments and the cost of each edge."""
    ends = _integers(tokens, places[:, :2].ravel(), n_assignments, "an assignment").reshape(-1, 2)
    loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if loops.size:
        row = int(loops[0])
        raise tokens.error(int(places[row, 0]), f"assignment {ends[row, 0]} is joined to itself")
    return ends, tokens.costs(places[:, 2], lambda _: "expected a cost")


def _pairs(
    tokens: Tokens,
    at: int,
    left: IntArray,
    right: IntArray,
    label: IntArray,
    sizes: IntArray,
    edges: IntArray,
    edge_costs: FloatArray,
) -> tuple[IntArray, FloatArray]:
    """Return the pairs of left nodes that are joined, and their tables concatenated."""
    n_left = sizes.size
    # Assignments of the same left or right node exclude each other, so edges between them are
    # dropped.
    meant = (left[edges[:, 0]] != left[edges[:, 1]]) & (right[edges[:, 0]] != right[edges[:, 1]])
    edges, edge_costs = edges[meant], edge_costs[meant]
    swapped = left[edges[:, 0]] > left[edges[:, 1]]
    edges[swapped] = edges[swapped][:, ::-1]

    by_right = np.argsort(right, kind="stable")
    counts = np.bincount(right)
    numbers = tokens.values.size
    conflicts = int((counts * (counts - 1) // 2).sum())
    # Each conflict needs a table of at least four entries.
    most = (_limits.MAX_ENTRIES + numbers) // 4
    if conflicts > most:
        raise tokens.error(
            at,
            f"{conflicts} pairs of assignments share a right node; at most {most} are read",
        )
    parts = [edges]
    starts = np.cumsum(counts) - counts
    for node in np.flatnonzero(counts > 1).tolist():
        count = int(counts[node])
        members = by_right[starts[node] : starts[node] + count]
        i, j = np.triu_indices(count, 1)
        ends = np.stack([members[i], members[j]], axis=1)
        turned = left[ends[:, 0]] > left[ends[:, 1]]
        ends[turned] = ends[turned][:, ::-1]
        parts.append(ends)
    ends = np.concatenate(parts)
    costs = np.concatenate([edge_costs, np.full(len(ends) - len(edges), math.inf)])

    key = left[ends[:, 0]] * n_left + left[ends[:, 1]]
    pair_keys, which = np.unique(key, return_inverse=True)
    pairs = np.stack([pair_keys // max(n_left, 1), pair_keys % max(n_left, 1)], axis=1)
    table_sizes = sizes[pairs[:, 0]] * sizes[pairs[:, 1]]
    check_entries(
        table_sizes.astype(float),
        numbers,
        lambda pair, why: tokens.error(
            at, f"left nodes {tuple(pairs[pair].tolist())} are joined: {why}"
        ),
    )
    starts = np.cumsum(table_sizes) - table_sizes
    flat = np.zeros(int(table_sizes.sum()))
    place = starts[which] + label[ends[:, 0]] * sizes[pairs[which, 1]] + label[ends[:, 1]]
    np.add.at(flat, place, costs)
    return pairs, flat
