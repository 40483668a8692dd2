"""Conversion of potentials in text to energies, for UAI and libDAI files.

Doubles hold potentials down to 1e-308 only, which energies of real models exceed. Numerals out of
this range are read in decimal arithmetic of any exponent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, InvalidOperation, Overflow, Underflow

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.io._assembly import Scopes
from inference_lab.io._tokens import NUMERAL, Tokens

#: Doubles below this are subnormal or zero, and have lost digits.
_SMALLEST_NORMAL = 2.2250738585072014e-308
#: Length of the shortest numerals that doubles flush to zero or a subnormal, such as ``1e-308``.
_SHORTEST_TINY = 6
#: Decimal arithmetic with exponents of any size.
DECIMALS = Context(
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
    tokens: Tokens, scopes: Scopes, minima: FloatArray, places: IntArray, hint: str = ""
) -> None:
    """Refuse tables of zeros only, given the minimal energy and the place of each table."""
    empty = np.flatnonzero(np.isposinf(minima))
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
        value = DECIMALS.create_decimal(numeral.decode("ascii"))
    except (InvalidOperation, Overflow, Underflow):
        raise ValueError("has an exponent that is out of range") from None
    if value < 0:
        raise ValueError("is negative")
    return -float(DECIMALS.ln(value)) if value else math.inf
