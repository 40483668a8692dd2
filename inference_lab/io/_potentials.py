"""Potentials in text: numerals of any exponent as energies ``-ln``, and energies as numerals.

What formats of potentials (UAI, libDAI) share. Doubles hold potentials down to 1e-308 only, and
energies of real models go beyond that; such numerals are read and written with decimal arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal

import numpy as np

from inference_lab.factor_graph import FactorGraph, FloatArray, IntArray
from inference_lab.io._tokens import NUMERAL, Tokens

#: Doubles below this have lost digits (subnormal), or all of them.
_SMALLEST_NORMAL = 2.2250738585072014e-308
#: The shortest numeral that doubles flush to zero or to a subnormal is like ``1e-308``.
_SHORTEST_TINY = 6
#: Exponents with more digits than this are refused; sums of such energies cannot overflow.
_MAX_EXPONENT_DIGITS = 100
#: Numerals of up to 17 digits are read as well by a logarithm in doubles.
_DOUBLE_DIGITS = 17

#: ``exp(700)`` and ``exp(-700)`` are normal doubles.
_PLAIN = 700.0
_CONSTANT_PART = 512.0
_MAX_CONSTANT_PARTS = 1000
_MAX_COST = 1e99


def _context(precision: int) -> Context:
    return Context(prec=precision, Emax=MAX_EMAX, Emin=MIN_EMIN)


def energy_of(text: bytes, precision: int = 40) -> float:
    """Return ``-ln`` of a decimal numeral of any exponent; ``+inf`` for zero.

    Raises
    ------
    ValueError
        If it is not a finite non-negative number, or absurdly small or large.
    """
    match = NUMERAL.fullmatch(text)
    if match is None:
        raise ValueError("is not a finite number")
    sign, mantissa, power = match.groups()
    if not mantissa.strip(b"0."):
        return math.inf
    if sign == b"-":
        raise ValueError("is negative")
    power = power or b"0"
    if len(power) > _MAX_EXPONENT_DIGITS:
        raise ValueError("has an exponent that is out of range")
    context = _context(precision + len(power))
    digits = context.create_decimal(mantissa.decode("ascii"))
    tens = context.multiply(Decimal(int(power)), context.ln(Decimal(10)))
    # Adding 0.0 turns the -0.0 of a potential of 1 into 0.0.
    return 0.0 - float(context.add(context.ln(digits), tens))


def energies_of(
    tokens: Tokens, places: slice | IntArray, fail: Callable[[int, str], Exception]
) -> FloatArray:
    """Return ``-ln`` of the numbers at some places; ``+inf`` for zero.

    Parameters
    ----------
    tokens : Tokens
    places : slice with a start, or (t,) array of int
        Of the potentials, in ``tokens.values``.
    fail : callable
        Makes the error, of a place and what is wrong with the potential there.

    Raises
    ------
    FormatError
        Made by `fail`, if a number is negative, not finite, or absurdly small or large.
    """
    potentials = tokens.values[places]

    def place_of(i: int) -> int:
        return int(places.start) + i if isinstance(places, slice) else int(places[i])

    good = potentials >= 0
    if not good.all():
        i = int(np.argmin(good))
        raise fail(place_of(i), "is not a number" if np.isnan(potentials[i]) else "is negative")
    with np.errstate(divide="ignore"):
        energies: FloatArray = np.log(potentials)
    np.subtract(0.0, energies, out=energies)

    # Doubles lose numbers like 1e-400. The few tokens that could be such are read once more.
    ends = np.append(tokens.starts[1:], len(tokens.data) + 1)
    width = (ends - tokens.starts)[tokens.first :][places] - 1
    tiny = (potentials < _SMALLEST_NORMAL) & (width >= _SHORTEST_TINY)
    known: dict[bytes, float] = {}
    for i in np.flatnonzero(tiny | np.isinf(potentials)).tolist():
        text = tokens.text(place_of(i) + tokens.first)
        if text not in known:
            try:
                known[text] = energy_of(text)
            except ValueError as problem:
                raise fail(place_of(i), str(problem)) from None
        energies[i] = known[text]
    return energies


def exact_energy(tokens: Tokens, place: int, energy: float) -> float:
    """Return ``-ln`` of a number with all its digits; `energy` where they fit into a double."""
    text = tokens.text(place + tokens.first)
    if len(text) <= _DOUBLE_DIGITS:
        return energy
    return energy_of(text, min(len(text), 400) + 10)


# ---------------------------------------------------------------------------- writing


def constant_numerals(constant: float) -> list[str]:
    """Return potentials whose energies add up to the constant exactly; none for zero.

    One where ``|constant| <= 700``, else parts of 512, so that each is in the range of doubles.

    Raises
    ------
    ValueError
        If the constant exceeds 1e99 in size.
    """
    if abs(constant) > _MAX_COST:
        raise ValueError(f"constant is {constant}; potentials can hold costs up to {_MAX_COST:g}")
    texts = []
    for part in _constant_parts(constant):
        # One digit more for each zero behind the point of a small constant.
        zeros = max(0, -math.floor(math.log10(abs(part))))
        texts.append(_numeral(part, 20 + zeros))
    return texts


def prepared(graph: FactorGraph) -> Iterator[tuple[tuple[int, ...], FloatArray, float]]:
    """Yield scope, energies fit to be written, and the shift taken out of them.

    Raises
    ------
    ValueError
        If a finite cost exceeds 1e99 in size, or a factor over variables of one label each
        forbids everything.
    """
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
        shift = float(table.min()) if size > _PLAIN else 0.0
        yield scope, table - shift if shift else table, shift


def _halves(scope: tuple[int, ...], table: FloatArray) -> tuple[FloatArray, FloatArray]:
    if table.size == 1:
        raise ValueError(
            f"the factor over {scope} forbids its only entry; potentials cannot say this without a "
            "table of zeros, which readers refuse"
        )
    first = np.full(table.shape, np.inf)
    first.flat[0] = 0.0
    rest = np.zeros(table.shape)
    rest.flat[0] = np.inf
    return first, rest


def numerals(energies: FloatArray) -> list[str]:
    """Return the potentials ``exp(-energies)``, as short as doubles are read back exactly."""
    plain = np.abs(energies) <= _PLAIN
    with np.errstate(over="ignore", under="ignore"):
        potentials = np.exp(-energies).tolist()
    texts = [repr(p) for p in potentials]
    for i in np.flatnonzero(~plain):
        texts[i] = "0" if np.isposinf(energies[i]) else _numeral(float(energies[i]), 17)
    return texts


def _numeral(energy: float, digits: int) -> str:
    """Return ``exp(-energy)`` with so many digits behind the point, whatever its exponent."""
    context = _context(digits + len(str(int(abs(energy)))) + 5)
    power = context.divide(-Decimal(energy), context.ln(Decimal(10)))
    tens = power.to_integral_value(ROUND_FLOOR, context)
    mantissa = context.power(Decimal(10), context.subtract(power, tens))
    return f"{mantissa:.{digits}f}e{int(tens)}"


def _constant_parts(constant: float) -> list[float]:
    if constant == 0:
        return []
    whole = int(abs(constant) // _CONSTANT_PART)
    if abs(constant) <= _PLAIN or whole > _MAX_CONSTANT_PARTS:
        return [constant]
    # The remainder is exact, so the parts add up to the constant without rounding.
    rest = math.fmod(constant, _CONSTANT_PART)
    return [math.copysign(_CONSTANT_PART, constant)] * whole + ([rest] if rest else [])
