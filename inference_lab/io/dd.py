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
from inference_lab.io._tokens import Tokens, whole

#: Number of fields in each kind of line that is not ignored.
_FIELDS = {b"p": 4, b"a": 4, b"e": 3}
_IGNORED = (b"c", b"i0", b"i1", b"n0", b"n1")


def parse(data: bytes, path: str) -> FactorGraph:
    r"""Parse the content of a graph matching file."""
    # Memory is quadratic in the number of left nodes in the worst case, because each pair of left
    # nodes that share a right node has a table. Tables beyond the limits of
    # `inference_lab.io._limits` are refused before they are allocated.
    lines = _Lines(data, path)
    n_left, n_right, n_assignments, n_edges = lines.head()
    left, right, costs = lines.assignments(n_left, n_right, n_assignments)
    edges, edge_costs = lines.edges(n_assignments, n_edges)

    # The labels of a left node are its assignments in the order of their right nodes.
    order = np.lexsort((right, left))
    again = np.flatnonzero(
        (left[order][1:] == left[order][:-1]) & (right[order][1:] == right[order][:-1])
    )
    if again.size:
        a = int(order[again[0] + 1])
        raise lines.error(lines.rows[b"a"][a], f"node {left[a]} is assigned to {right[a]} twice")
    counts = np.bincount(left, minlength=n_left).astype(np.int64)
    first = np.cumsum(counts) - counts
    label = np.empty(n_assignments, dtype=np.int64)
    label[order] = np.arange(n_assignments) - first[left[order]]
    sizes = counts + 1
    flat = np.zeros(int(sizes.sum()))
    flat[(np.cumsum(sizes) - sizes)[left] + label] = costs
    pairs, tables = _pairs(lines, left, right, label, sizes, edges, edge_costs)

    def fail(f: int, why: str) -> FormatError:
        return lines.error(lines.rows[b"p"][0], f"of factor {f}, {why}")

    arities = np.repeat([1, 2], [n_left, len(pairs)])
    scopes = Scopes(arities, np.concatenate([np.arange(n_left), pairs.ravel()]))
    all_sizes = np.concatenate([sizes, sizes[pairs].prod(axis=1)])
    starts = np.cumsum(all_sizes) - all_sizes
    energies = np.concatenate([flat, tables])
    return assemble(path, fail, Tables(sizes, scopes, all_sizes, starts, energies))


class _Lines:
    """The lines of a file by kind, parsed to arrays of numbers."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        kept: dict[bytes, list[bytes]] = {kind: [] for kind in _FIELDS}
        #: Line numbers of each kind, for messages.
        self.rows: dict[bytes, list[int]] = {kind: [] for kind in _FIELDS}
        for number, line in enumerate(data.split(b"\n"), 1):
            kind, *tail = line.split(None, 1) or [b""]
            rest = tail[0] if tail else b""
            if kind in kept:
                fields = rest.split()
                if len(fields) != _FIELDS[kind]:
                    raise self.error(
                        number,
                        f"a line {kind.decode()!r} has {_FIELDS[kind]} numbers, got {len(fields)}",
                    )
                kept[kind].append(rest)
                self.rows[kind].append(number)
            elif kind and kind not in _IGNORED:
                shown = kind[:40].decode("ascii", "backslashreplace")
                raise self.error(number, f"expected a line of kind p, a, e or c, got {shown!r}")
        self.values: dict[bytes, FloatArray] = {}
        for kind, texts in kept.items():
            values = self._numbers(kind, texts)
            self.values[kind] = values.reshape(len(texts), _FIELDS[kind])

    def error(self, line: int, message: str) -> FormatError:
        """Make the error for a fault on a line."""
        return FormatError(f"{self.path}, line {line}: {message}")

    def _numbers(self, kind: bytes, texts: list[bytes]) -> FloatArray:
        try:
            return Tokens(b"\n".join(texts), self.path).values
        except FormatError:
            for row, text in zip(self.rows[kind], texts, strict=True):
                try:
                    Tokens(text, self.path)
                except FormatError as problem:
                    said = str(problem).partition(": ")[2]
                    raise self.error(row, said) from None
            raise

    def _integers(self, kind: bytes, field: int, limit: int, what: str) -> IntArray:
        values = self.values[kind][:, field]
        good = whole(values, 0, limit)
        if not good.all():
            row = int(np.argmin(good))
            allowed = f"0 to {limit - 1}" if limit else "but there is none"
            raise self.error(
                self.rows[kind][row], f"expected {what}, {allowed}, got {values[row]:g}"
            )
        return values.astype(np.int64)

    def _costs(self, kind: bytes, field: int) -> FloatArray:
        values = self.values[kind][:, field]
        good = np.abs(values) <= _limits.MAX_COST
        if not good.all():
            row = int(np.argmin(good))
            raise self.error(
                self.rows[kind][row],
                f"the cost is {values[row]}; costs are finite numbers of at most "
                f"{_limits.MAX_COST:g}",
            )
        return values

    def head(self) -> tuple[int, int, int, int]:
        """Return the numbers of left nodes, right nodes, assignments and edges."""
        rows = self.rows[b"p"]
        if len(rows) != 1:
            where = f"line {rows[1]}" if rows else "end of file"
            raise FormatError(
                f"{self.path}, {where}: expected one line 'p N0 N1 A E', got {len(rows)}"
            )
        # The number of nodes is limited, because nodes without assignments take memory, too.
        high = _limits.MAX_FREE_LABELS + sum(map(len, self.rows.values()))
        n_left, n_right, n_assignments, n_edges = (
            int(self._integers(b"p", field, high, what)[0])
            for field, what in enumerate(
                (
                    "the number of left nodes",
                    "the number of right nodes",
                    "the number of assignments",
                    "the number of edges",
                )
            )
        )
        for kind, count, what in ((b"a", n_assignments, "assignments"), (b"e", n_edges, "edges")):
            if len(self.rows[kind]) != count:
                raise self.error(
                    rows[0], f"{count} {what} are announced, {len(self.rows[kind])} are there"
                )
        return n_left, n_right, n_assignments, n_edges

    def assignments(
        self, n_left: int, n_right: int, n_assignments: int
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the left node, right node and cost of each assignment."""
        numbers = self._integers(b"a", 0, n_assignments, "the number of an assignment")
        wrong = np.flatnonzero(numbers != np.arange(n_assignments))
        if wrong.size:
            row = int(wrong[0])
            raise self.error(
                self.rows[b"a"][row],
                f"assignment {row} has the number {numbers[row]}; they are numbered in order",
            )
        left = self._integers(b"a", 1, n_left, "a left node")
        right = self._integers(b"a", 2, n_right, "a right node")
        return left, right, self._costs(b"a", 3)

    def edges(self, n_assignments: int, n_edges: int) -> tuple[IntArray, FloatArray]:
        """Return the two assignments and the cost of each edge."""
        ends = np.empty((n_edges, 2), dtype=np.int64)
        for side in range(2):
            ends[:, side] = self._integers(b"e", side, n_assignments, "an assignment")
        loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
        if loops.size:
            row = int(loops[0])
            raise self.error(self.rows[b"e"][row], f"assignment {ends[row, 0]} is joined to itself")
        return ends, self._costs(b"e", 2)


def _pairs(
    lines: _Lines,
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
    numbers = sum(values.size for values in lines.values.values())
    conflicts = int((counts * (counts - 1) // 2).sum())
    # Each conflict needs a table of at least four entries.
    most = (_limits.MAX_ENTRIES + numbers) // 4
    if conflicts > most:
        raise lines.error(
            lines.rows[b"p"][0],
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
        lambda pair, why: lines.error(
            lines.rows[b"p"][0], f"left nodes {tuple(pairs[pair].tolist())} are joined: {why}"
        ),
    )
    starts = np.cumsum(table_sizes) - table_sizes
    flat = np.zeros(int(table_sizes.sum()))
    place = starts[which] + label[ends[:, 0]] * sizes[pairs[which, 1]] + label[ends[:, 1]]
    np.add.at(flat, place, costs)
    return pairs, flat
