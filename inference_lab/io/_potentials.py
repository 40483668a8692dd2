"""Conversion between potentials in text and energies, for UAI and libDAI files.

Doubles hold potentials down to 1e-308 only, which energies of real models exceed. Numerals out of
this range are read and written in decimal arithmetic of any exponent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, Overflow, Underflow

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes
from inference_lab.io._tokens import NUMERAL, Tokens

#: Doubles below this are subnormal or zero, and have lost digits.
_SMALLEST_NORMAL = 2.2250738585072014e-308
#: Length of the shortest numerals that doubles flush to zero or a subnormal, such as ``1e-308``.
_SHORTEST_TINY = 6
#: Largest size of energies written as doubles: ``exp(700)`` and ``exp(-700)`` are normal.
_PLAIN = 700.0
#: Most factors into which a constant is split, each readable in doubles; above, it is one numeral.
_MAX_PARTS = 1000
#: Largest energy whose exponent decimal arithmetic supports.
_MAX_COST = 1e18
_DECIMALS = Context(
    prec=25, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Overflow, Underflow]
)


def energies_of(
    tokens: Tokens, places: slice | IntArray, fail: Callable[[int, str], Exception]
) -> FloatArray:
    """Return ``-ln`` of the numbers at `places` in ``tokens.values``; ``+inf`` for zero."""
    potentials = tokens.values[places]

    def place_of(i: int) -> int:
        return int(places.start) + i if isinstance(places, slice) else int(places[i])

    good = potentials >= 0
    if not good.all():
        i = int(np.argmin(good))
        raise fail(place_of(i), "is not a number" if np.isnan(potentials[i]) else "is negative")
    with np.errstate(divide="ignore"):
        energies: FloatArray = 0.0 - np.log(potentials)

    # An upper bound on the width of the token, because trailing blanks count. Short tokens are
    # skipped, because they are plain zeros.
    ends = np.append(tokens.starts[1:], len(tokens.data) + 1)
    width = (ends - tokens.starts)[tokens.first :][places] - 1
    beyond = (potentials < _SMALLEST_NORMAL) & (width >= _SHORTEST_TINY) | np.isinf(potentials)
    read = functools.cache(_energy)
    for i in np.flatnonzero(beyond).tolist():
        try:
            energies[i] = read(tokens.text(place_of(i) + tokens.first))
        except ValueError as problem:
            raise fail(place_of(i), str(problem)) from None
    return energies


def check_possible(
    tokens: Tokens, scopes: Scopes, least: FloatArray, places: IntArray, hint: str = ""
) -> None:
    """Refuse tables of zeros only, given the minimal energy and the place of each table."""
    empty = np.flatnonzero(np.isposinf(least))
    if empty.size:
        f = int(empty[0])
        what = "has no table but zeros" if scopes.arities[f] else "is a constant of zero"
        raise tokens.error(
            int(places[f]), f"{scopes.shown(f)} {what}: it would forbid every labelling{hint}"
        )


def _energy(numeral: bytes) -> float:
    """Return ``-ln`` of a numeral with any exponent."""
    if not NUMERAL.fullmatch(numeral):
        raise ValueError("is not a finite number")
    try:
        value = _DECIMALS.create_decimal(numeral.decode("ascii"))
    except (InvalidOperation, Overflow, Underflow):
        raise ValueError("has an exponent that is out of range") from None
    if value < 0:
        raise ValueError("is negative")
    return -float(_DECIMALS.ln(value)) if value else math.inf


# ---------------------------------------------------------------------------- writing


def potentials(graph: FactorGraph) -> tuple[list[tuple[tuple[int, ...], list[str]]], list[str]]:
    """Return the scope and the numerals of each factor, and the numerals of the constant."""
    factors = []
    shifts = [graph.constant]
    for scope, table, shift in _prepared(graph):
        factors.append((scope, [_numeral(energy) for energy in table.ravel().tolist()]))
        shifts.append(shift)
    constant = math.fsum(shifts)
    if abs(constant) > _MAX_COST:
        raise ValueError(f"constant is {constant}; potentials can hold costs up to {_MAX_COST:g}")
    parts = math.ceil(abs(constant) / _PLAIN)
    if parts > _MAX_PARTS:
        parts = 1
    return factors, [_numeral(constant / max(1, parts))] * parts


def _numeral(energy: float) -> str:
    """Format ``exp(-energy)`` as a numeral, with any exponent."""
    if abs(energy) <= _PLAIN:
        return repr(math.exp(-energy))
    return "0" if energy == math.inf else f"{_DECIMALS.exp(Decimal(-energy)):.20e}"


def _prepared(graph: FactorGraph) -> Iterator[tuple[tuple[int, ...], FloatArray, float]]:
    """Yield the scope, the shifted energies, and the shift of each factor."""
    for scope, table in graph.factors():
        finite = np.isfinite(table)
        if not finite.any():
            yield from ((scope, half, 0.0) for half in _halves(scope, table))
            continue
        size = float(np.abs(table[finite]).max())
        if size > _MAX_COST:
            raise ValueError(
                f"the factor over {scope} has a cost of size {size:g}; potentials can hold costs "
                f"up to {_MAX_COST:g}"
            )
        # Shifted, because tools that compute in doubles would underflow to zeros or overflow.
        least = float(table.min())
        shift = least if abs(least) > _PLAIN else 0.0
        yield scope, table - shift if shift else table, shift


def _halves(scope: tuple[int, ...], table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two tables whose sum forbids everything, because readers refuse tables of zeros."""
    if table.size == 1:
        raise ValueError(
            f"the factor over {scope} forbids its only entry; potentials need a table of zeros "
            "for this, which readers refuse"
        )
    first = np.full(table.shape, np.inf)
    first.flat[0] = 0.0
    rest = np.zeros(table.shape)
    rest.flat[0] = np.inf
    return first, rest
