"""Potentials in text: numerals of any exponent as energies ``-ln``, and energies as numerals.

What formats of potentials (UAI, libDAI) share. Doubles hold potentials down to 1e-308 only, and
energies of real models go beyond that; and near a potential of 1 doubles are too coarse to tell
small energies apart. Such numerals are read and written with all their digits, so that each energy
that is written is read back bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._tokens import NUMERAL, Tokens

#: Doubles below this have lost digits (subnormal), or all of them.
_SMALLEST_NORMAL = 2.2250738585072014e-308
#: The shortest numeral that doubles flush to zero or to a subnormal is like ``1e-308``.
_SHORTEST_TINY = 6
#: No double prints longer than this: numerals that are have more digits than doubles hold.
_LONGEST_DOUBLE = 24
#: Exponents with more digits than this are refused; sums of such energies cannot overflow.
_MAX_EXPONENT_DIGITS = 100
#: Digits of a mantissa that count: the smallest double is told from 0 beside a potential of 1.
_MAX_DIGITS = 400
_PRECISION = 40
#: Digits behind the point at which extended precision is printed.
_EXTENDED_DIGITS = 22

#: ``exp(700)`` and ``exp(-700)`` are normal doubles.
_PLAIN = 700.0
_CONSTANT_PART = 512.0
_MAX_CONSTANT_PARTS = 1000
_MAX_COST = 1e99


def _context(precision: int) -> Context:
    return Context(prec=precision, Emax=MAX_EMAX, Emin=MIN_EMIN)


class _Numeral(NamedTuple):
    """A decimal numeral: ``mantissa * 10 ** power``."""

    mantissa: bytes
    power: bytes


def _parts(text: bytes) -> _Numeral | None:
    """Return the parts of a numeral >= 0, None for zero; or raise ValueError."""
    match = NUMERAL.fullmatch(text)
    if match is None:
        raise ValueError("is not a finite number")
    sign, mantissa, power = match.groups()
    if not mantissa.strip(b"0."):
        return None
    if sign == b"-":
        raise ValueError("is negative")
    if power is not None and len(power) > _MAX_EXPONENT_DIGITS:
        raise ValueError("has an exponent that is out of range")
    return _Numeral(mantissa, power or b"0")


def _energy(numeral: _Numeral) -> float:
    """Return ``-ln`` of a numeral, rounded once."""
    power = int(numeral.power)
    digits = _context(_MAX_DIGITS).create_decimal(numeral.mantissa.decode("ascii"))
    adjusted = digits.adjusted() + power
    context = _context(_PRECISION + len(str(adjusted)))
    if abs(adjusted) < 1000:
        # In one, so that nothing cancels where a number near 1 is written like 9.9e-1.
        return 0.0 - float(context.ln(digits.scaleb(power, context=_context(_MAX_DIGITS))))
    mantissa = digits.scaleb(-digits.adjusted(), context=_context(_MAX_DIGITS))
    tens = context.multiply(Decimal(adjusted), context.ln(Decimal(10)))
    return 0.0 - float(context.add(context.ln(mantissa), tens))


def _energies(numerals: list[_Numeral]) -> FloatArray:
    """Return ``-ln`` of many numerals, each rounded once.

    In extended precision where the machine has it; what that leaves in doubt, and everything
    elsewhere, in decimal arithmetic, which takes fifty times as long.
    """
    whole, mantissas, powers = (
        np.fromstring(b" ".join(texts), dtype=np.longdouble, sep=" ")
        for texts in (
            [b"%se%s" % numeral if len(numeral.power) < 4 else b"1" for numeral in numerals],
            [numeral.mantissa for numeral in numerals],
            [numeral.power for numeral in numerals],
        )
    )
    with np.errstate(all="ignore"):
        precise = np.where(np.abs(whole - 1) < 0.5, -np.log1p(whole - 1), -np.log(whole))
        tens = powers * np.log(np.longdouble(10))
        far = np.array([len(numeral.power) >= 4 for numeral in numerals], dtype=bool)
        precise = np.where(far, -(np.log(mantissas) + tens), precise)
        size = np.where(far, np.abs(np.log(mantissas)) + np.abs(tens), np.abs(precise))
        error = 2.0**-64 + 2.0**-61 * size
        energies = precise.astype(np.float64)
        rest = np.abs(precise - energies)
        sure = np.abs(energies) > 0.0
        sure &= np.spacing(np.abs(energies)) / 2 - rest > error
        # Below a power of two, doubles are twice as dense.
        sure &= np.frexp(np.abs(energies))[0] != 0.5
        sure &= np.isfinite(precise) & (np.finfo(np.longdouble).nmant >= 63)
    for i in np.flatnonzero(~sure).tolist():
        energies[i] = _energy(numerals[i])
    return energies


def energies_of(
    tokens: Tokens, places: slice | IntArray, fail: Callable[[int, str], Exception]
) -> FloatArray:
    """Return ``-ln`` of the numbers at some places; ``+inf`` for zero.

    Numbers are read as doubles, but where doubles do not hold them: those out of their range, and
    those with more digits. Their ``-ln`` is rounded once.

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

    # At least as wide as the token: blanks behind it count, and are seen below.
    ends = np.append(tokens.starts[1:], len(tokens.data) + 1)
    width = (ends - tokens.starts)[tokens.first :][places] - 1
    tiny = (potentials < _SMALLEST_NORMAL) & (width >= _SHORTEST_TINY)
    beyond = np.flatnonzero(tiny | np.isinf(potentials) | (width > _LONGEST_DOUBLE)).tolist()
    known: dict[bytes, int] = {}
    numerals: list[_Numeral] = []
    those: list[int] = []
    which: list[int] = []
    for i in beyond:
        text = tokens.text(place_of(i) + tokens.first)
        if _SMALLEST_NORMAL <= potentials[i] < math.inf and len(text) <= _LONGEST_DOUBLE:
            continue
        if text not in known:
            try:
                numeral = _parts(text)
            except ValueError as problem:
                raise fail(place_of(i), str(problem)) from None
            if numeral is None:
                continue
            known[text] = len(numerals)
            numerals.append(numeral)
        those.append(i)
        which.append(known[text])
    if those:
        energies[those] = _energies(numerals)[which]
    return energies


# ---------------------------------------------------------------------------- writing


def potentials(graph: FactorGraph) -> tuple[list[tuple[tuple[int, ...], list[str]]], list[str]]:
    """Return the scope and the numerals of each factor, and those of the constant.

    Raises
    ------
    ValueError
        If a finite cost exceeds 1e99 in size, or a factor over variables of one label each
        forbids everything.
    """
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    shifts = [graph.constant]
    for scope, table, shift in _prepared(graph):
        scopes.append(scope)
        tables.append(table.ravel())
        shifts.append(shift)
    texts = _numerals(np.concatenate([np.empty(0), *tables]))
    ends = np.cumsum([0, *(table.size for table in tables)]).tolist()
    factors = [(scope, texts[a:b]) for scope, a, b in zip(scopes, ends[:-1], ends[1:], strict=True)]
    return factors, _constant_numerals(math.fsum(shifts))


def _constant_numerals(constant: float) -> list[str]:
    """Return potentials whose energies add up to the constant exactly; none for zero.

    One where ``|constant| <= 700``, else parts of 512, so that each is in the range of doubles.
    """
    if abs(constant) > _MAX_COST:
        raise ValueError(f"constant is {constant}; potentials can hold costs up to {_MAX_COST:g}")
    return [_numeral(part) for part in _constant_parts(constant)]


def _prepared(graph: FactorGraph) -> Iterator[tuple[tuple[int, ...], FloatArray, float]]:
    """Yield scope, energies fit to be written, and the shift taken out of them."""
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
        # Otherwise tools that compute in doubles would see zeros only, or overflow.
        least = float(table.min())
        shift = least if abs(least) > _PLAIN else 0.0
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


def _numerals(energies: FloatArray) -> list[str]:
    """Return potentials ``exp(-energies)`` that are read back as exactly these energies.

    As short as doubles are printed, or with more digits where no double has that energy.
    """
    distinct, which = np.unique(energies, return_inverse=True)
    with np.errstate(all="ignore"):
        potentials = np.exp(-distinct)
        # Nearer than half a unit by a margin, so that any machine's logarithm gives it back.
        back = -np.log(potentials.astype(np.longdouble))
        short = np.abs(back - distinct) < 0.4 * np.spacing(np.abs(distinct))
    short |= (distinct == 0.0) | np.isposinf(distinct)
    texts = [repr(p) if p else "0" for p in potentials.tolist()]
    long = np.flatnonzero(~short | ((np.abs(distinct) > _PLAIN) & np.isfinite(distinct)))
    for i, text in zip(long.tolist(), _long_numerals(distinct[long]), strict=True):
        texts[i] = text
    return [texts[i] for i in which.ravel().tolist()]


def _long_numerals(energies: FloatArray) -> list[str]:
    """Return potentials with more digits than doubles have, or out of their range."""
    with np.errstate(all="ignore"):
        potentials = np.exp(-energies.astype(np.longdouble))
    texts = [
        np.format_float_scientific(p, precision=_EXTENDED_DIGITS, unique=False)
        if abs(energy) <= _PLAIN
        else _numeral(energy)
        for p, energy in zip(potentials, energies.tolist(), strict=True)
    ]
    back = _energies([_Numeral(*text.encode().split(b"e")) for text in texts])
    for i in np.flatnonzero(back != energies).tolist():
        texts[i] = _numeral(float(energies[i]))
    return texts


def _numeral(energy: float) -> str:
    """Return ``exp(-energy)``, whatever its exponent, with digits enough to be told from others."""
    # One digit more for each zero behind the point of a small energy.
    digits = 20 + max(0, -math.floor(math.log10(abs(energy))))
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
