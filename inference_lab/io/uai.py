"""The UAI format: a preamble (``MARKOV`` or ``BAYES``), scopes, and tables of potentials.

``E(x) = - sum_f ln phi_f(x_f)``; the last variable of a scope varies fastest. Numbers are
separated by any white space:

* the network's type, the number of variables, the number of labels of each;
* the number of factors, and for each the number of its variables and these variables;
* for each factor the number of entries of its table, and the entries.

Both types are products of tables, and are read alike. A potential of zero forbids (``+inf``). A
table of zeros only is an error, because such a model has no feasible labelling; intended
infeasibility arises from evidence or from several factors.

Reading
    Numbers out of the range of doubles (``1e-400``) keep their energy: read as zero, they would
    silently become hard constraints. Factors of arity 0 are the constant of the energy.
    Nothing may follow the tables, except the annotations of the merlin distribution, which are
    ignored: a line ``0`` (no evidence in this file) and lists of integers with their lengths.
    Some files hold costs in place of potentials without marking them: `parse` reads the numbers
    as energies with ``costs=True``.

Writing
    `read` returns the energies within 1e-15, absolutely or relatively.

    * Entries with ``|theta| <= 700`` are ``repr(exp(-theta))``. Larger entries are written with an
      extended exponent (``1.2345e-2171``), which tools that compute in doubles read as zero.
    * A factor whose smallest cost exceeds 700 in size would underflow to zeros or overflow in such
      tools. It is first shifted so that its minimum is 0; the shifts are added to the constant.
    * The constant becomes factors of arity 0, after all others, each in the range of doubles.
      toulbar2 1.4 accepts factors of arity 0; pgmpy 1.1 does not (nor any number with an
      exponent), so subtract the constant first for such tools.
    * A factor that forbids everything is refused, because readers (this one too) refuse a table of
      zeros only.

References
----------
UAI 2022 inference competition, "Model Format" and "Evidence Format",
https://uaicompetition.github.io/uci-2022/file-formats/
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble
from inference_lab.io._files import FormatError
from inference_lab.io._potentials import DECIMALS, check_possible, energies_of
from inference_lab.io._text import plain_text
from inference_lab.io._tokens import NUMERAL, Tokens, first_word, whole

#: Appended to the message about a table of zeros only.
_PERHAPS_COSTS = (
    " (a file of costs instead of potentials is not a UAI model, but is read with costs=True)"
)

#: Largest size of energies written as doubles: ``exp(700)`` and ``exp(-700)`` are normal.
_PLAIN = 700.0
#: Most factors into which a constant is split; above, it is one numeral.
_MAX_PARTS = 1000
#: Largest energy whose exponent decimal arithmetic supports.
_MAX_COST = 1e18

# ---------------------------------------------------------------------------- reading


def parse(data: bytes, path: str, *, costs: bool = False) -> FactorGraph:
    """Parse the content of a UAI file."""
    # Time and memory are linear in the length of the content, because each declared count is
    # compared with the rest of the file before an array of that size is allocated.
    data = plain_text(data, path)
    first_word(data, path, "MARKOV", "BAYES")
    tokens = Tokens(data, path, first=1)
    values = tokens.values
    end = int(values.size)

    n = tokens.integer(0, "the number of variables", high=end - 1)
    cardinalities = _cardinalities(tokens, n)
    n_factors = tokens.integer(1 + n, "the number of factors", high=end - n - 2)
    scopes, at = _scopes(tokens, n, n_factors)
    scopes.check_free(cardinalities, lambda i, why: tokens.error(1 + i, why))
    sizes, starts = _table_places(tokens, cardinalities, scopes, at)
    energies = (_costs if costs else _energies)(tokens, scopes, starts)

    def fail(f: int, why: str) -> FormatError:
        return tokens.error(int(starts[f]), f"{scopes.shown(f)}: {why}")

    return assemble(path, fail, Tables(cardinalities, scopes, sizes, starts, energies))


def _cardinalities(tokens: Tokens, n: int) -> IntArray:
    return tokens.integers(
        1 + np.arange(n),
        1,
        2**31,
        lambda i: f"variable {i}: expected its number of labels, an integer >= 1",
    ).astype(np.int64)


def _scopes(tokens: Tokens, n: int, n_factors: int) -> tuple[Scopes, int]:
    """Return all scopes, and the place at which the tables begin."""
    end = int(tokens.values.size)
    at = 2 + n
    scopes = []
    for f in range(n_factors):
        arity = tokens.integer(at, f"the number of variables of factor {f}", high=end - at - 1)
        scopes.append(tokens.scope(at + 1, arity, n, f"factor {f}"))
        at += 1 + arity
    return Scopes.of_lists(scopes), at


def _table_places(
    tokens: Tokens, cardinalities: IntArray, scopes: Scopes, at: int
) -> tuple[IntArray, IntArray]:
    """Return the size of each table and the place of its first entry, checked against the file."""
    end = int(tokens.values.size)
    counts = cardinalities.tolist()
    sizes, starts = [], []
    for f in range(scopes.arities.size):
        if at >= end:
            raise tokens.error(end, f"the file ends where the table of factor {f} is expected")
        shape = [counts[v] for v in scopes.of(f)]
        # Capped, because no file has more entries, and the product may have thousands of digits.
        size = min(math.prod(shape), 2**62)
        if tokens.values.item(at) != size:
            product = f"{shortened(' x '.join(map(str, shape)), 60)} = " if len(shape) > 1 else ""
            raise tokens.error(
                at,
                f"{scopes.shown(f)} needs a table of {product}{size} entries, "
                f"got the size {tokens.shown(at + 1)}",
            )
        if at + size >= end:
            raise tokens.error(
                end,
                f"the file ends inside the table of factor {f}: {size} entries expected, "
                f"{end - at - 1} found",
            )
        sizes.append(size)
        starts.append(at + 1)
        at += 1 + size
    if at < end and not _is_annotation(tokens, at):
        tokens.check_end(at, "the last table")
    return np.array(sizes, dtype=np.int64), np.array(starts, dtype=np.int64)


def _is_annotation(tokens: Tokens, at: int) -> bool:
    """Whether the rest is a line of no evidence (0), and lists of integers with their lengths."""
    values = tokens.values
    starts_line = tokens.line(at) > tokens.line(at - 1)
    if not starts_line or values[at] != 0 or not whole(values[at:], 0, 2**31).all():
        return False
    while at < values.size:
        at += 1 + int(values[at])
    return at == values.size


def _energies(tokens: Tokens, scopes: Scopes, entry_starts: IntArray) -> FloatArray:
    """Return ``-ln`` of the values; entries outside the tables are meaningless."""
    values = tokens.values
    if entry_starts.size == 0:
        return np.zeros(values.size)
    begin = int(entry_starts[0])

    def fail(place: int, why: str) -> FormatError:
        where = _entry(place, scopes, entry_starts)
        return tokens.error(
            place,
            f"{where}: the potential {tokens.shown(place + 1)} {why}; potentials are finite "
            "numbers >= 0",
        )

    energies = np.empty(values.size)
    energies[:begin] = 0.0
    energies[begin:] = energies_of(tokens, slice(begin, values.size), fail)

    # A table is followed by the count of the next one. It is masked, because its value would hide
    # a table of zeros in the minimum.
    energies[entry_starts[1:] - 1] = math.inf
    minima = np.minimum.reduceat(energies, entry_starts)
    check_possible(tokens, scopes, minima, entry_starts, _PERHAPS_COSTS)
    return energies


def _costs(tokens: Tokens, scopes: Scopes, entry_starts: IntArray) -> FloatArray:
    """Return the values unchanged; refuse NaN, ``-inf`` and infinite constants."""
    values = tokens.values
    begin = int(entry_starts[0]) if entry_starts.size else values.size
    good = np.isfinite(values)
    good[:begin] = True
    constants = entry_starts[scopes.arities == 0]
    for place in np.flatnonzero(~good).tolist():
        # Numerals beyond the range of doubles are refused, although they parse to infinity, too.
        meant = values[place] > 0 and not NUMERAL.fullmatch(tokens.text(place + 1))
        if not meant or place in constants:
            where = _entry(place, scopes, entry_starts)
            allowed = "finite numbers" + ("" if place in constants else ", or inf to forbid")
            raise tokens.error(
                place, f"{where}: the cost is {tokens.shown(place + 1)}; costs are {allowed}"
            )
    return values


def _entry(place: int, scopes: Scopes, entry_starts: IntArray) -> str:
    f = int(np.searchsorted(entry_starts, place, side="right")) - 1
    return f"{scopes.shown(f)}, entry {place - int(entry_starts[f])}"


# ---------------------------------------------------------------------------- writing


def serialise(graph: FactorGraph) -> list[str]:
    """Return the text of a UAI file in pieces, as the module describes."""
    # The text of the tables is kept in memory, because the file lists all scopes first.
    scopes: list[str] = []
    tables: list[str] = []
    shifts = [graph.constant]
    for scope, table in graph.factors():
        finite = table[np.isfinite(table)]
        if not finite.size:
            raise ValueError(
                f"the factor over {scope} forbids every labelling; potentials need a table of "
                "zeros for this, which readers refuse"
            )
        size = float(np.abs(finite).max())
        if size > _MAX_COST:
            raise ValueError(
                f"the factor over {scope} has a cost of size {size:g}; potentials can hold costs "
                f"up to {_MAX_COST:g}"
            )
        # Shifted, because tools that compute in doubles would underflow to zeros or overflow.
        minimum = float(finite.min())
        shift = minimum if abs(minimum) > _PLAIN else 0.0
        shifts.append(shift)
        scopes.append(f"{len(scope)} {' '.join(map(str, scope))}\n")
        numerals = map(_numeral, (table - shift).ravel().tolist())
        tables.append(f"\n{table.size}\n{' '.join(numerals)}\n")
    constant = math.fsum(shifts)
    if abs(constant) > _MAX_COST:
        raise ValueError(f"constant is {constant}; potentials can hold costs up to {_MAX_COST:g}")
    # Other tools read doubles, so a constant is split into factors, unless these would be many.
    parts = math.ceil(abs(constant) / _PLAIN)
    if parts > _MAX_PARTS:
        parts = 1
    scopes += ["0\n"] * parts
    tables += [f"\n1\n{_numeral(constant / max(1, parts))}\n"] * parts
    labels = " ".join(map(str, graph.cardinalities.tolist()))
    head = f"MARKOV\n{graph.n_variables}\n{labels}\n{len(scopes)}\n"
    return [head, *scopes, *tables]


def _numeral(energy: float) -> str:
    """Format ``exp(-energy)`` as a numeral, with any exponent."""
    if abs(energy) <= _PLAIN:
        return repr(math.exp(-energy))
    return "0" if energy == math.inf else f"{DECIMALS.exp(Decimal(-energy)):.20e}"
