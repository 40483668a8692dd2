"""A Potts-like part with one bit for each label of a node except the last.

With ``z_ia = [x_i = a]`` for the labels ``a`` but the last, of which at most one is set,

``[x_i = x_j] = 1 - sum_a (z_ia + z_ja) + sum_a 2 z_ia z_ja + sum_{a != b} z_ia z_jb``

so that the part becomes one over two labels. Its matrix shows which label two nodes share; the
matrix of the simplex shows only whether they share one. Any matrix of the former gives one of the
latter, so without inequalities its bound is at least as high, at ``k - 1`` times the order.

References
----------
F. Rendl, "Semidefinite relaxations for partitioning, assignment and ordering problems", 4OR 10,
2012, section 3 (assignment matrices compared with matrices of equal labels).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from inference_lab.algorithms.semidefinite.potts_energy import PottsPart
from inference_lab.algorithms.semidefinite.relaxation import SDPRelaxation
from inference_lab.graph.arrays import FloatArray, IntArray

_EPSILON = float(np.finfo(np.float64).eps)
#: Inner products of the corners of the simplex.
_CORNERS = 1.5 * np.eye(3) - 0.5
#: The simplex vector of a node in terms of the corners, for its two bits and the terminal: with
#: ``z = (1 - x) / 2`` it is ``z_0 c_0 + z_1 c_1 + (1 - z_0 - z_1) c_2``.
_NODE = np.array([[-0.5, 0.0, 0.5], [0.0, -0.5, 0.5], [0.5, 0.5, 0.0]])
#: Initial penalty, and the ratio of the primal to the dual residual at which it rises. The initial
#: multipliers are good and the matrix is not: on E-steps of 300 points the bound rose as far in
#: 22 s at 0.03 as in 52 s with balanced residuals.
_PENALTY = 0.03
_IMBALANCE = 100.0


def has_bits(part: PottsPart) -> bool:
    """Whether bits tighten the bound: three distinct labels, no nodes that must differ."""
    return part.n_labels == 3 and part.has_terminals and part.apart.size == 0


def as_bits(part: PottsPart) -> tuple[PottsPart, float]:
    """Return the part over bits, and a bound on the rounding error of its energies."""
    # Node ``i`` becomes the nodes ``2 i`` and ``2 i + 1``, whose label 1 means that ``i`` has label
    # 0 or 1. ``variables``, ``node`` and ``labels`` are copied from `part` and do not describe the
    # bits.
    n, c = part.n_nodes, part.coupling
    # Label 1 of a bit costs the difference between its label and the last one ...
    single = (part.unary[:, :2] - part.unary[:, 2:]).ravel()
    # ... and z z' = ([z = z'] + z + z' - 1) / 2.
    pairs, coupling = [], []
    for a, b in itertools.product(range(2), repeat=2):
        half = c if a == b else 0.5 * c
        ends = 2 * part.pairs + [a, b]
        pairs.append(ends)
        coupling.append(half)
        for end in ends.T:
            np.add.at(single, end, half)
    for bit, end in itertools.product(range(2), part.pairs.T):
        np.add.at(single, 2 * end + bit, -c)
    unary = np.zeros((2 * n, 2))
    unary[:, 1] = single
    first = 2 * np.arange(n)
    forbidden = np.zeros((2 * n, 2), dtype=np.bool_)
    forbidden[:, 1] = part.forbidden[:, :2].ravel()
    excluded = [np.stack([first, np.ones_like(first), first + 1, np.ones_like(first)], axis=1)]
    last = first[part.forbidden[:, 2]]
    excluded.append(np.stack([last, np.zeros_like(last), last + 1, np.zeros_like(last)], axis=1))
    # All bits 0 is the last label everywhere. The halves of the products sum up to -3 c.
    constant = part.constant + float(part.unary[:, 2].sum()) + float((c - 3.0 * c).sum())
    total = abs(part.constant) + 4.0 * float(np.abs(part.unary).sum() + 4.0 * np.abs(c).sum())
    made = PottsPart(
        part.variables, part.node, part.labels, unary, forbidden, np.concatenate(pairs),
        np.concatenate(coupling), part.apart, np.concatenate(excluded), constant, part.quantum,
    )  # fmt: skip
    return made, 4.0 * (n + c.size + 16) * _EPSILON * total


def bits_of(labels: IntArray) -> IntArray:
    """Return the labels (2 n,) of the bits for labels (n,) of the nodes."""
    return np.asarray(np.equal.outer(labels, [0, 1]).ravel(), dtype=np.int64)


def labels_of(bits: IntArray) -> IntArray:
    """Return the labels (n,) of the nodes for bits (2 n,); the first wins if two are set."""
    pairs = bits.reshape(-1, 2)
    return np.asarray(np.where(pairs.any(axis=1), pairs.argmax(axis=1), 2), dtype=np.int64)


def with_bits(simplex: SDPRelaxation) -> SDPRelaxation:
    """Return the relaxation of a part over bits, warm-started from that over the simplex."""
    # The vectors of the simplex are linear in the vectors of the bits. So every inequality there is
    # one here, and a semidefinite dual matrix there gives one here: the bound starts at the same
    # value, up to residuals.
    n = simplex.part.n_nodes
    bits, slack = as_bits(simplex.part)
    made = SDPRelaxation(bits, simplex.cuts, simplex.rng, slack)
    made.penalty, made.imbalance = _PENALTY, _IMBALANCE
    ratio = simplex.scale / made.scale
    whole = ratio * (np.tril(simplex.z) + np.tril(simplex.z, -1).T)
    z = np.zeros_like(made.z)
    for turn in _turns(n):
        z += turn.T @ whole @ turn
    made.z = np.tril(z)
    # Equations of single bits come first, then one per node: at most one of its bits is set.
    first = int(bits.forbidden.sum())
    made.rows.multiplier[first : first + n] = -z[1 : 2 * n : 2, : 2 * n : 2].diagonal()
    _carry_rows(simplex, made, ratio)
    made.y = _joint(simplex.y, n)
    made.x = made.y.copy()
    made.bound, made.raw_bound = simplex.bound, simplex.raw_bound
    return made


def _turns(n: int) -> list[FloatArray]:
    """Return, for each coordinate of the corners, the map from vectors of bits to the simplex."""
    turns = []
    for corner in np.linalg.eigh(_CORNERS)[1].T[1:] * math.sqrt(1.5):
        turn = np.zeros((n + 3, 2 * n + 1))
        by = _NODE @ corner
        turn[np.arange(n), 2 * np.arange(n)] = by[0]
        turn[np.arange(n), 2 * np.arange(n) + 1] = by[1]
        turn[:n, -1] = by[2]
        turn[n:, -1] = corner
        turns.append(turn)
    return turns


def _carry_rows(simplex: SDPRelaxation, made: SDPRelaxation, ratio: float) -> None:
    """Add the rows and lower limits with a nonzero multiplier, and the multiplier."""
    rows, n, top = simplex.rows, simplex.part.n_nodes, made.order - 1
    fi, fj = np.nonzero(np.tril(simplex.floor, -1))
    owner = np.concatenate([
        np.repeat(np.arange(len(rows)), np.diff(rows.ptr)), len(rows) + np.arange(fi.size)
    ])  # fmt: skip
    value = np.concatenate([rows.value, np.full(fi.size, -1.0)])
    rhs = np.concatenate([rows.rhs, np.full(fi.size, -simplex.low)])
    multiplier = ratio * np.concatenate([rows.multiplier, simplex.floor[fi, fj]])
    free = np.concatenate([rows.free, np.zeros(fi.size, dtype=np.bool_)])
    at = np.full((n + 3, 3), top)
    at[:n, :2] = 2 * np.arange(n)[:, None] + [0, 1]
    by = np.zeros((n + 3, 3, 3))
    by[:n] = _NODE
    by[n:, 2] = np.eye(3)
    i, j = np.concatenate([rows.i, fi]), np.concatenate([rows.j, fj])
    terms = value[:, None, None] * (by[i] @ _CORNERS @ by[j].transpose(0, 2, 1))
    high = np.maximum(at[i][:, :, None], at[j][:, None, :])
    low = np.minimum(at[i][:, :, None], at[j][:, None, :])
    # The diagonal entry of the terminal is 1.
    known = high == low
    rhs -= np.bincount(owner, weights=(terms * known).sum(axis=(1, 2)), minlength=rhs.size)
    used = (terms != 0.0) & ~known
    span = made.order
    entry = (np.broadcast_to(owner[:, None, None], used.shape) * span + high) * span + low
    entries, place = np.unique(entry[used], return_inverse=True)
    summed = np.bincount(place, weights=terms[used], minlength=entries.size)
    entries, summed = entries[summed != 0.0], summed[summed != 0.0]
    row, cell = entries // span**2, entries % span**2
    kept = np.bincount(row, minlength=rhs.size) > 0
    kept &= free | (multiplier > 0.0)
    of_kept = kept[row]
    made.rows.extend(
        np.bincount(row[of_kept], minlength=rhs.size)[kept],
        cell[of_kept] // span, cell[of_kept] % span, summed[of_kept], rhs[kept],
        multiplier[kept], free[kept],
    )  # fmt: skip


def _joint(y: FloatArray, n: int) -> FloatArray:
    """Return the lower triangle of a matrix of bits that approximates a simplex matrix."""
    u = np.clip((2.0 * y[n:, :n].T + 1.0) / 3.0, 1e-9, 1.0)
    u /= u.sum(axis=1, keepdims=True)
    least = np.minimum(u[:, None, :], u[None, :, :])
    whole = np.tril(y[:n, :n], -1)
    equal = np.minimum(np.clip((2.0 * (whole + whole.T) + 1.0) / 3.0, 0.0, 1.0), least.sum(axis=2))
    both = least * (equal / least.sum(axis=2))[:, :, None]
    rest = u[:, None, :] - both
    left = np.maximum(1.0 - equal, 1e-9)
    joint = rest[:, :, :, None] * rest.transpose(1, 0, 2)[:, :, None, :] / left[:, :, None, None]
    for a in range(3):
        joint[:, :, a, a] += both[:, :, a]
    same = np.arange(n)
    joint[same, same] = u[:, :, None] * np.eye(3)
    joint = joint[:, :, :2, :2].transpose(0, 2, 1, 3).reshape(2 * n, 2 * n)
    single = u[:, :2].ravel()
    x = np.ones((2 * n + 1, 2 * n + 1))
    x[:-1, :-1] = 1.0 - 2.0 * single[:, None] - 2.0 * single + 4.0 * joint
    x[-1, :-1] = 1.0 - 2.0 * single
    np.fill_diagonal(x, 1.0)
    return np.tril(x)
