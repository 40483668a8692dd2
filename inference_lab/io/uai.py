"""The UAI format: a preamble (``MARKOV`` or ``BAYES``), scopes, and tables of potentials.

``E(x) = - sum_f ln phi_f(x_f)``; the last variable of a scope varies fastest. Numbers are
separated by any white space:

* the network's type, the number of variables, the number of labels of each;
* the number of factors, and for each the number of its variables and these variables;
* for each factor the number of entries of its table, and the entries.

Both types are products of tables, and are read alike. A potential of zero forbids (``+inf``); a
table of zeros only is an error, because nothing could be done with such a model: infeasibility
that is meant comes from evidence or from several factors.

What is read
    Numbers out of the range of doubles (``1e-400``) keep their energy: taken as zero, they would
    silently become hard constraints. Factors of arity 0 are the constant of the energy.
    Nothing may follow the tables, except what some files of the merlin distribution have there:
    a line ``0`` (no evidence in this file) and lists of integers with their lengths, for example
    of query variables; it is ignored.

What is written
    * Entries with ``|theta| <= 700`` are ``repr(exp(-theta))``: every tool reads them, and the
      energy comes back within 1e-15 or so, absolutely.
    * A factor with a finite entry beyond 700 is first shifted so that its minimum is 0; the
      shifts join the constant. What is then still above 700 is written with an extended exponent
      (``1.2345e-2171``): we read it back; tools that compute in doubles take it as zero.
    * The constant becomes factors of arity 0, after all others, with so many digits that it is
      read back exactly: one of them where ``|constant| <= 700``, else parts of 512, so that each
      is in the range of doubles up to a constant of half a million.
      toulbar2 1.4 accepts factors of arity 0; pgmpy 1.1 does not (nor any number with an
      exponent), so subtract the constant first for such tools.
    * A factor that forbids everything becomes two whose product is zero everywhere, because
      readers (this one too) refuse a table of zeros only.

References
----------
UAI 2022 inference competition, "Model Format" and "Evidence Format",
https://uaicompetition.github.io/uci-2022/file-formats/
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal

import numpy as np
import numpy.typing as npt

from inference_lab.factor_graph import FactorGraph, FloatArray, IntArray, OwnTables
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import NUMERAL, WORD, Tokens

#: Labels that variables of no factor may have in all. The others are paid for by their tables.
_MAX_FREE_LABELS = 10_000_000
#: Numpy allows 64 axes, in older versions 32; 2**31 entries do not fit into a file that we read.
_MAX_AXES = 31
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


def _energy_of(text: bytes, precision: int = 40) -> float:
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


# ---------------------------------------------------------------------------- reading


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a UAI file.

    Parameters
    ----------
    data : bytes
    path : str
        For messages.

    Raises
    ------
    FormatError
        If the content is not a UAI model; see the module for what that means.

    Notes
    -----
    Time and memory are linear in the length of the content, whatever it announces: each count is
    compared with what is left of the file before anything of that size is made.

    Examples
    --------
    >>> g = parse(b"MARKOV 2 2 2  2 1 0 2 0 1  2 0.5 0.5  4 1 0 0.25 1", "example")
    >>> g.energy([[0, 0], [0, 1]]).round(6).tolist()
    [0.693147, inf]
    """
    match = WORD.search(data)
    if match is None:
        raise FormatError(f"{path}: the file is empty; expected MARKOV or BAYES")
    if match.group().upper() not in (b"MARKOV", b"BAYES"):
        shown = match.group()[:40].decode("ascii", "backslashreplace")
        line = data.count(b"\n", 0, match.start()) + 1
        raise FormatError(f"{path}, line {line}, token 1: expected MARKOV or BAYES, got {shown!r}")
    tokens = Tokens(data, path, first=1)
    values = tokens.values
    end = int(values.size)

    n = tokens.integer(0, "the number of variables", high=end - 1)
    cardinalities = _cardinalities(tokens, n)
    n_factors = tokens.integer(1 + n, "the number of factors", high=end - n - 2)
    arities, scopes, at = _scopes(tokens, n, n_factors)
    _check_free(tokens, cardinalities, scopes)
    sizes, entry_starts = _table_places(tokens, cardinalities, arities, scopes, at)

    energies = _energies(tokens, arities, scopes, sizes, entry_starts)
    return _assemble(tokens, cardinalities, arities, scopes, sizes, entry_starts, energies)


def _whole(values: FloatArray, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Which values are integers in ``low .. high - 1`` (not NaN)."""
    good: npt.NDArray[np.bool_] = (values >= low) & (values < high) & (values == np.floor(values))
    return good


def _cardinalities(tokens: Tokens, n: int) -> IntArray:
    values = tokens.values[1 : 1 + n]
    good = _whole(values, 1, 2**31)
    if not good.all():
        i = int(np.argmin(good))
        raise tokens.error(
            1 + i,
            f"variable {i}: expected its number of labels, an integer >= 1, "
            f"got {tokens.shown(2 + i)}",
        )
    return values.astype(np.int64)


def _scopes(tokens: Tokens, n: int, n_factors: int) -> tuple[IntArray, IntArray, int]:
    """Return arities, all scopes one after the other, and where the tables begin."""
    values = tokens.values
    end = int(values.size)
    at = 2 + n
    arities = np.empty(n_factors, dtype=np.int64)
    keep = np.zeros(end, dtype=bool)
    for f in range(n_factors):
        # A Python loop, because each scope says where the next one is; the rest is vectorised.
        arity = values.item(at) if at < end else -1.0
        if not 0 <= arity < end - at or arity != int(arity):
            tokens.integer(at, f"the number of variables of factor {f}", high=end - at - 1)
        arities[f] = arity
        keep[at + 1 : at + 1 + int(arity)] = True
        at += 1 + int(arity)
    places = np.flatnonzero(keep)
    listed = values[places]
    good = _whole(listed, 0, n)
    if not good.all():
        s = int(np.argmin(good))
        place = int(places[s])
        f = int(np.searchsorted(np.cumsum(arities), s, side="right"))
        raise tokens.error(
            place,
            f"factor {f}: expected a variable of its scope, "
            + (f"0 to {n - 1}" if n else "but there are none")
            + f", got {tokens.shown(place + 1)}",
        )
    scopes = listed.astype(np.int64)
    owner = np.repeat(np.arange(n_factors, dtype=np.int64), arities)
    order = np.argsort(owner * max(n, 1) + scopes, kind="stable")
    twice = (owner[order][1:] == owner[order][:-1]) & (scopes[order][1:] == scopes[order][:-1])
    if twice.any():
        s = int(order[1:][twice].min())
        raise tokens.error(
            int(places[s]), f"factor {owner[s]} names variable {scopes[s]} twice in its scope"
        )
    return arities, scopes, at


def _check_free(tokens: Tokens, cardinalities: IntArray, scopes: IntArray) -> None:
    free = np.ones(cardinalities.size, dtype=bool)
    free[scopes] = False
    total = int(cardinalities[free].sum())
    if total > _MAX_FREE_LABELS:
        i = int(np.argmax(np.where(free, cardinalities, 0)))
        raise tokens.error(
            1 + i,
            f"variable {i} has {cardinalities[i]} labels and no factor; variables of no factor "
            f"may have {_MAX_FREE_LABELS:,} labels in all",
        )


def _table_places(
    tokens: Tokens, cardinalities: IntArray, arities: IntArray, scopes: IntArray, at: int
) -> tuple[IntArray, IntArray]:
    """Return the size of each table and the place of its first entry, checked against the file."""
    values = tokens.values
    end = int(values.size)
    n_factors = arities.size
    # In doubles, so that absurd sizes become large numbers and do not wrap around.
    expected = np.ones(n_factors)
    some = np.flatnonzero(arities)
    if some.size:
        starts = (np.cumsum(arities) - arities)[some]
        with np.errstate(over="ignore"):
            expected[some] = np.multiply.reduceat(cardinalities[scopes].astype(float), starts)
    # Not a difference of sums: a count is exact as long as all sizes before it are.
    with np.errstate(over="ignore"):
        counts_at = at + np.concatenate([np.zeros(1), np.cumsum(expected + 1)])[:n_factors]
    fits = counts_at + expected < end
    # Every factor before the first that does not fit lies inside the file, so its count is there.
    inside = n_factors if fits.all() else int(np.argmin(fits))
    places = counts_at[:inside].astype(np.int64)
    wrong = np.flatnonzero(values[places] != expected[:inside])
    if wrong.size:
        f = int(wrong[0])
        raise _wrong_size(tokens, f, int(places[f]), expected[f], cardinalities, arities, scopes)
    if inside < n_factors:
        place = int(counts_at[inside])
        if place >= end:
            raise tokens.error(end, f"the file ends where the table of factor {inside} is expected")
        if values[place] != expected[inside]:
            raise _wrong_size(
                tokens, inside, place, expected[inside], cardinalities, arities, scopes
            )
        raise tokens.error(
            end,
            f"the file ends inside the table of factor {inside}: {expected[inside]:.0f} entries "
            f"expected, {end - place - 1} found",
        )
    sizes = expected.astype(np.int64)
    last = int(places[-1] + sizes[-1]) + 1 if n_factors else at
    if last < end and not _is_annotation(tokens, last):
        raise tokens.error(
            last, f"{end - last} surplus tokens after the last table, from {tokens.shown(last + 1)}"
        )
    return sizes, places + 1


def _is_annotation(tokens: Tokens, at: int) -> bool:
    """Whether the rest is a line of no evidence (0), and lists of integers with their lengths."""
    values = tokens.values
    starts_line = tokens.line(at) > tokens.line(at - 1)
    if not starts_line or values[at] != 0 or not _whole(values[at:], 0, 2**31).all():
        return False
    while at < values.size:
        at += 1 + int(values[at])
    return at == values.size


def _scope_of(f: int, arities: IntArray, scopes: IntArray) -> tuple[int, ...]:
    start = int(arities[:f].sum())
    return tuple(int(v) for v in scopes[start : start + int(arities[f])])


def _wrong_size(
    tokens: Tokens,
    f: int,
    place: int,
    expected: float,
    cardinalities: IntArray,
    arities: IntArray,
    scopes: IntArray,
) -> Exception:
    scope = _scope_of(f, arities, scopes)
    labels = " x ".join(str(int(cardinalities[v])) for v in scope[:8])
    labels += " x ..." if len(scope) > 8 else ""
    size = f"{labels} = {expected:.0f}" if len(scope) > 1 else f"{expected:.0f}"
    return tokens.error(
        place,
        f"factor {f} over {_shown_scope(scope)} needs a table of {size} entries, "
        f"got the size {tokens.shown(place + 1)}",
    )


def _shown_scope(scope: tuple[int, ...]) -> str:
    if len(scope) <= 12:
        return str(scope)
    return f"({', '.join(map(str, scope[:12]))}, ... {len(scope)} variables)"


def _energies(
    tokens: Tokens, arities: IntArray, scopes: IntArray, sizes: IntArray, entry_starts: IntArray
) -> FloatArray:
    """Return ``-ln`` of the values; what stands outside the tables is left without meaning."""
    values = tokens.values
    if sizes.size == 0:
        return np.empty(values.size)
    begin = int(entry_starts[0])

    def fail(place: int, why: str) -> Exception:
        f = int(np.searchsorted(entry_starts, place, side="right")) - 1
        scope = _shown_scope(_scope_of(f, arities, scopes))
        return tokens.error(
            place,
            f"factor {f} over {scope}, entry {place - int(entry_starts[f])}: the potential "
            f"{tokens.shown(place + 1)} {why}; potentials are finite numbers >= 0",
        )

    potentials = values[begin:]
    good = potentials >= 0
    if not good.all():
        place = begin + int(np.argmin(good))
        raise fail(place, "is not a number" if np.isnan(values[place]) else "is negative")
    energies = np.empty(values.size)
    energies[:begin] = 0.0
    with np.errstate(divide="ignore"):
        np.log(potentials, out=energies[begin:])
    np.subtract(0.0, energies[begin:], out=energies[begin:])

    # Doubles lose numbers like 1e-400. The few tokens that could be such are read once more.
    width = np.diff(tokens.starts[1 + begin :], append=len(tokens.data) + 1) - 1
    tiny = (potentials < _SMALLEST_NORMAL) & (width >= _SHORTEST_TINY)
    lost = tiny | np.isinf(potentials)
    known: dict[bytes, float] = {}
    for place in (begin + np.flatnonzero(lost)).tolist():
        text = tokens.text(place + 1)
        if text not in known:
            try:
                known[text] = _energy_of(text)
            except ValueError as problem:
                raise fail(place, str(problem)) from None
        energies[place] = known[text]

    # A table is followed by the count of the next one, which must not hide a table of zeros.
    energies[entry_starts[1:] - 1] = math.inf
    empty = np.flatnonzero(np.isposinf(np.minimum.reduceat(energies, entry_starts)))
    if empty.size:
        f = int(empty[0])
        what = "has no table but zeros" if arities[f] else "is a constant of zero"
        raise tokens.error(
            int(entry_starts[f]),
            f"factor {f} over {_shown_scope(_scope_of(f, arities, scopes))} {what}: it would "
            "forbid every labelling (a file of costs instead of potentials is no UAI model)",
        )
    return energies


def _assemble(
    tokens: Tokens,
    cardinalities: IntArray,
    arities: IntArray,
    scopes: IntArray,
    sizes: IntArray,
    entry_starts: IntArray,
    energies: FloatArray,
) -> FactorGraph:
    scope_starts = np.cumsum(arities) - arities

    constants: list[float] = []
    for f in np.flatnonzero(arities == 0):
        place = int(entry_starts[f])
        text = tokens.text(place + 1)
        exact = len(text) > _DOUBLE_DIGITS
        constants.append(
            _energy_of(text, min(len(text), 400) + 10) if exact else float(energies[place])
        )

    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(cardinalities)])
    flat = np.zeros(int(pointers[-1]))
    single = np.flatnonzero(arities == 1)
    if single.size:
        lengths = sizes[single]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        into = np.repeat(pointers[scopes[scope_starts[single]]], lengths) + within
        np.add.at(flat, into, energies[np.repeat(entry_starts[single], lengths) + within])
    uniform = cardinalities.size > 0 and bool((cardinalities == cardinalities[0]).all())
    unary: FloatArray | list[FloatArray]
    if uniform:
        unary = flat.reshape(cardinalities.size, -1)
    else:
        unary = [
            flat[a:b] for a, b in zip(pointers[:-1].tolist(), pointers[1:].tolist(), strict=True)
        ]

    pairs = np.flatnonzero(arities == 2)
    ends = scopes[scope_starts[pairs][:, None] + np.arange(2)]
    terms = list(_pair_terms(ends, cardinalities, entry_starts[pairs], energies))
    factors = [
        _table(
            scopes[scope_starts[f] : scope_starts[f] + arities[f]],
            cardinalities,
            energies[entry_starts[f] : entry_starts[f] + sizes[f]],
        )
        for f in np.flatnonzero(arities > 2)
    ]
    return FactorGraph.from_terms(unary, terms, factors, constant=math.fsum(constants))


def _table(
    scope: IntArray, cardinalities: IntArray, entries: FloatArray
) -> tuple[list[int], FloatArray]:
    if scope.size > _MAX_AXES:
        # Most of so many variables have one label only, and make no difference to the table.
        scope = scope[cardinalities[scope] > 1]
    return scope.tolist(), entries.reshape(cardinalities[scope].tolist())


def _pair_terms(
    ends: IntArray, cardinalities: IntArray, starts: IntArray, energies: FloatArray
) -> Iterator[OwnTables]:
    """Group tables of the same shape and the same structure, so that each group is one array."""
    if ends.shape[0] == 0:
        return
    shapes = cardinalities[ends]
    order = np.lexsort((shapes[:, 1], shapes[:, 0]))
    changes = np.flatnonzero((np.diff(shapes[order], axis=0) != 0).any(axis=1)) + 1
    groups = np.split(order, changes)
    for rows in sorted(groups, key=lambda rows: int(rows[0])):
        k_i, k_j = (int(k) for k in shapes[rows[0]])
        stack = energies[starts[rows][:, None] + np.arange(k_i * k_j)].reshape(-1, k_i, k_j)
        structure = _structure(stack)
        for one in range(3):
            chosen = np.flatnonzero(structure == one)
            if chosen.size:
                yield OwnTables(ends[rows[chosen]], stack[chosen])


def _structure(stack: FloatArray) -> npt.NDArray[np.int8]:
    """Return 0 for Potts tables, 1 for diagonal ones (see `DiagonalTerms`), 2 for all others."""
    kinds = np.zeros(stack.shape[0], dtype=np.int8)
    diagonal = np.diagonal(stack, axis1=1, axis2=2)
    kinds[(diagonal != diagonal[:, :1]).any(axis=1)] = 1
    off = stack[:, ~np.eye(stack.shape[1], stack.shape[2], dtype=np.bool_)]
    kinds[(off != off[:, :1]).any(axis=1)] = 2
    return kinds


# ---------------------------------------------------------------------------- writing


def serialise(graph: FactorGraph) -> list[str]:
    """Return the text of a UAI file, in pieces; the module says how numbers are written.

    Raises
    ------
    ValueError
        If a finite cost exceeds 1e99 in size, or a factor over variables of one label each
        forbids everything, so that no product of tables with non-zero entries can say so.

    Examples
    --------
    >>> g = FactorGraph.potts([[0.0, float("inf")]], [], [], constant=0.5)
    >>> print("".join(serialise(g)))
    MARKOV
    1
    2
    2
    1 0
    0
    <BLANKLINE>
    2
    1.0 0
    <BLANKLINE>
    1
    6.065306597126334236038e-1
    <BLANKLINE>
    """
    # Scopes come before all tables in the file, so the text of the tables waits in memory.
    scopes: list[str] = []
    tables: list[str] = []
    shifts = [graph.constant]
    for scope, table, shift in _prepared(graph):
        scopes.append(f"{len(scope)} {' '.join(map(str, scope))}\n")
        tables.append(f"\n{table.size}\n{' '.join(_numerals(table.ravel()))}\n")
        shifts.append(shift)
    constant = math.fsum(shifts)
    if abs(constant) > _MAX_COST:
        raise ValueError(f"constant is {constant}; potentials can hold costs up to {_MAX_COST:g}")
    for part in _constant_parts(constant):
        # One digit more for each zero behind the point of a small constant.
        zeros = max(0, -math.floor(math.log10(abs(part))))
        scopes.append("0\n")
        tables.append(f"\n1\n{_numeral(part, 20 + zeros)}\n")
    labels = " ".join(map(str, graph.cardinalities.tolist()))
    head = f"MARKOV\n{graph.n_variables}\n{labels}\n{len(scopes)}\n"
    return [head, *scopes, *tables]


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


def _numerals(energies: FloatArray) -> list[str]:
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
