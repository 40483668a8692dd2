"""CSV files and sparse matrices of `Constraints`; nothing in files is executed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import Parts, refuse_both
from inference_lab.constraints.pairs import codes_of
from inference_lab.constraints.sample_ids import names_of
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.io._files import FormatError

__all__ = ["from_sparse", "read_csv", "to_sparse", "write_csv"]

KINDS = ("must-link", "cannot-link")
_COLUMNS = ("i", "j", "kind", "weight")
_INDEX = re.compile("[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+]?[iI]nf")


def write_csv(
    constraints: Parts, path: Path, ids: Sequence[Hashable] | npt.NDArray[Any] | None
) -> None:
    """Write one line a pair."""
    names: Sequence[Any] = range(constraints.n_points)
    if ids is not None:
        names = [str(name) for name in names_of(ids, constraints.n_points)]
        names_of(names)  # different objects may read alike
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for kind, pairs, weights in (
            (KINDS[0], constraints.must_link, constraints.ml_weights),
            (KINDS[1], constraints.cannot_link, constraints.cl_weights),
        ):
            writer.writerows(
                (names[i], names[j], kind, repr(weight))
                for (i, j), weight in zip(pairs.tolist(), weights.tolist(), strict=True)
            )


def read_csv(
    path: Path, n_points: int | None, ids: Sequence[Hashable] | npt.NDArray[Any] | None
) -> Parts:
    """Read a file of `write_csv`."""
    if (n_points is None) == (ids is None):
        raise TypeError("give either n_points or ids")
    place: dict[str, int] | None = None
    if ids is not None:
        names = [str(name) for name in names_of(ids)]
        place = {name: at for at, name in enumerate(names_of(names))}
    count = len(place) if place is not None else int(n_points or 0)
    found = _rows(path, count, place)
    parts = []
    for kind in KINDS:
        pairs, weights, lines = found[kind]
        array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        values = np.array(weights, dtype=np.float64)
        _agree(path, array, values, np.array(lines, dtype=np.int64), count)
        alike = values.size == 0 or bool((values == values[0]).all())
        parts.append((array, float(values[0] if values.size else 1.0) if alike else values))
    (ml, ml_weight), (cl, cl_weight) = parts
    return Parts(ml, cl, ml_weight, cl_weight, count)


_Rows = Mapping[str, tuple[list[tuple[int, int]], list[float], list[int]]]


def _rows(path: Path, count: int, place: Mapping[str, int] | None) -> _Rows:
    """Return pairs, weights and numbers of lines of each kind."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found: _Rows = {kind: ([], [], []) for kind in KINDS}
    try:
        columns = _header(path, next(reader, []))
        for row in reader:
            if not row:
                continue
            here = f"{path}:{reader.line_num}"
            if len(row) != len(columns):
                raise FormatError(f"{here}: {len(row)} fields; {len(columns)} are needed")
            cells = dict(zip(columns, row, strict=True))
            i = _point(here, "i", cells["i"], count, place)
            j = _point(here, "j", cells["j"], count, place)
            if i == j:
                raise FormatError(f"{here}: the point {cells['i']!r} is paired with itself")
            if cells["kind"] not in found:
                raise FormatError(
                    f"{here}: kind = {cells['kind'][:40]!r}; allowed: {', '.join(KINDS)}"
                )
            pairs, weights, lines = found[cells["kind"]]
            pairs.append((i, j) if i < j else (j, i))
            weights.append(_weight(here, cells.get("weight", "1")))
            lines.append(reader.line_num)
    except csv.Error as error:
        raise FormatError(f"{path}:{reader.line_num}: {error}") from None
    return found


def _header(path: Path, row: list[str]) -> list[str]:
    columns = [cell.strip() for cell in row]
    if sorted(columns) not in (sorted(_COLUMNS), sorted(_COLUMNS[:3])):
        raise FormatError(
            f"{path}:1: the header is {','.join(columns)[:80]!r}; the columns {','.join(_COLUMNS)} "
            "are needed, in any order, of which weight may be left out"
        )
    return columns


def _point(line: str, column: str, cell: str, count: int, place: Mapping[str, int] | None) -> int:
    if place is not None:
        if cell not in place:
            raise FormatError(f"{line}: {column} = {cell[:40]!r} is not one of the {count} ids")
        return place[cell]
    text = cell.strip()
    if not _INDEX.fullmatch(text) or int(text) >= count:
        raise FormatError(
            f"{line}: {column} = {cell[:40]!r} is not a point; indices from 0 to "
            f"n_points - 1 = {count - 1} are allowed"
        )
    return int(text)


def _weight(line: str, cell: str) -> float:
    text = cell.strip()
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not value >= 0.0:
        raise FormatError(
            f"{line}: weight = {cell[:40]!r} is not allowed; weights are numbers >= 0, and inf "
            "makes a pair hard"
        )
    return value


def _agree(path: Path, pairs: IntArray, weights: FloatArray, lines: IntArray, n: int) -> None:
    """Refuse a pair that is listed twice with different weights."""
    codes = codes_of(pairs, n)
    order = np.argsort(codes, kind="stable")
    ordered, values = codes[order], weights[order]
    differs = np.flatnonzero((ordered[1:] == ordered[:-1]) & (values[1:] != values[:-1]))
    if differs.size:
        first, second = order[differs[0]], order[differs[0] + 1]
        raise FormatError(
            f"{path}:{lines[second]}: the pair of line {lines[first]} again, with the weight "
            f"{weights[second]:g} instead of {weights[first]:g}; give each pair one weight"
        )


def to_sparse(constraints: Parts, symmetric: bool) -> Any:
    """Return a CSR array of weights, negative for cannot-links."""
    from scipy.sparse import coo_array

    refuse_both(constraints, "a matrix cannot hold it")
    for kind, pairs, weights in (
        ("must-link", constraints.must_link, constraints.ml_weights),
        ("cannot-link", constraints.cannot_link, constraints.cl_weights),
    ):
        if (weights == 0).any():
            i, j = pairs[int(np.argmin(weights))].tolist()
            raise ValueError(
                f"the {kind} ({i}, {j}) has weight 0, which in a matrix is an absent pair"
            )
    pairs = np.concatenate((constraints.must_link, constraints.cannot_link))
    signed = np.concatenate((constraints.ml_weights, -constraints.cl_weights))
    if symmetric:
        pairs, signed = np.concatenate((pairs, pairs[:, ::-1])), np.concatenate((signed, signed))
    shape = (constraints.n_points, constraints.n_points)
    return coo_array((signed, (pairs[:, 0], pairs[:, 1])), shape=shape).tocsr()


def from_sparse(matrix: Any) -> Parts:
    """Read a square sparse matrix: positive entries are must-links, negative ones cannot-links."""
    from scipy.sparse import coo_array, issparse

    if not issparse(matrix):
        raise TypeError(f"matrix is of type {type(matrix).__name__}; a SciPy sparse one is needed")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix has shape {matrix.shape}; one row and one column a point needed")
    if matrix.dtype.kind not in "iufb":
        raise TypeError(f"matrix has dtype {matrix.dtype}; real numbers are needed")
    entries = coo_array(matrix)
    entries.sum_duplicates()
    row, column = (np.asarray(axis, dtype=np.int64) for axis in entries.coords)
    values = entries.data.astype(np.float64)
    for bad, why in (
        (np.isnan(values), "is not a number"),
        ((row == column) & (values != 0), "pairs a point with itself"),
    ):
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            raise ValueError(f"matrix[{row[at]}, {column[at]}] = {values[at]:g} {why}")
    kept = values != 0
    pairs = np.sort(np.stack((row[kept], column[kept]), axis=1), axis=1)
    values = values[kept]
    n = int(matrix.shape[0])
    codes = codes_of(pairs, n)
    order = np.argsort(codes, kind="stable")
    pairs, values, codes = pairs[order], values[order], codes[order]
    twice = codes[1:] == codes[:-1]
    differs = np.flatnonzero(twice & (values[1:] != values[:-1]))
    if differs.size:
        i, j = pairs[differs[0]].tolist()
        raise ValueError(
            f"matrix[{i}, {j}] and matrix[{j}, {i}] differ; pairs are unordered: give a symmetric "
            "matrix, or one triangle of it"
        )
    first = np.ones(codes.size, dtype=np.bool_)
    first[1:] = ~twice
    pairs, values = pairs[first], values[first]
    ml = values > 0
    return Parts(pairs[ml], pairs[~ml], values[ml], -values[~ml], n)
