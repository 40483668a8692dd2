"""The libDAI format ``.fg``: sparse tables of potentials, the first variable varying fastest.

``E(x) = - sum_f ln phi_f(x_f)``. Numbers are separated by any white space; the rest of a line after
``#`` is a comment:

* the number of factors;
* for each factor the number of its variables, these variables, the number of labels of each, the
  number of listed entries, and ``index value`` for each of them. The first variable of the scope
  varies fastest in the index, unlike in UAI files; entries that are not listed are zero.

Reading
    A listed or omitted zero forbids (``+inf``); a table of zeros only is an error, as in UAI
    files. If an entry is listed twice, its last value counts. Variables keep their numbers;
    numbers below the largest that no factor names are variables with one label. Numbers out of the
    range of doubles (``1e-400``) keep their energy. Factors without variables are the constant.

This format is read only.

References
----------
J. M. Mooij, "libDAI: A Free and Open Source C++ Library for Discrete Approximate Inference in
Graphical Models", JMLR 11 (2010); "libDAI file formats" of its manual.
"""

from __future__ import annotations

import math
import re

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, check_entries, ranges
from inference_lab.io._files import FormatError
from inference_lab.io._potentials import check_possible, energies_of
from inference_lab.io._tokens import Tokens

_COMMENT = re.compile(rb"#[^\r\n]*")


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a libDAI file."""
    # Comments are replaced by blanks, so that messages give the right line numbers.
    tokens = Tokens(_COMMENT.sub(lambda found: b" " * len(found.group()), data), path)
    end = int(tokens.values.size)
    n_factors = tokens.integer(0, "the number of factors", high=max(0, end - 1) // 2)
    layout = _Layout(tokens, n_factors)
    cardinalities = layout.cardinalities()
    # Scopes are reversed, because tables here are in C order: the last variable varies fastest.
    arities = layout.scopes.arities
    scopes = Scopes(arities, layout.scopes.variables[_reversal(arities)])
    sizes = layout.checked_sizes(cardinalities)
    starts = np.cumsum(sizes) - sizes
    energies = layout.energies(sizes, starts)
    return assemble(path, layout.fail, Tables(cardinalities, scopes, sizes, starts, energies))


def _reversal(arities: IntArray) -> IntArray:
    """Return the permutation that reverses each scope in its place."""
    ends = np.cumsum(arities)
    places = np.arange(int(arities.sum()), dtype=np.int64)
    return np.repeat(ends - arities + ends - 1, arities) - places


class _Layout:
    """The places of all parts, found in one pass, because each count determines the next place."""

    def __init__(self, tokens: Tokens, n_factors: int) -> None:
        self.tokens = tokens
        values = tokens.values
        end = int(values.size)
        arities = np.empty(n_factors, dtype=np.int64)
        self.counts = np.empty(n_factors, dtype=np.int64)
        #: Place of the first listed index of each factor.
        self.entries_at = np.empty(n_factors, dtype=np.int64)
        at = 1
        for f in range(n_factors):
            room = max(0, end - at - 2) // 2
            arity = tokens.integer(at, f"the number of variables of factor {f}", high=room)
            arities[f] = arity
            at += 1 + 2 * arity
            room = max(0, end - at - 1) // 2
            count = tokens.integer(at, f"the number of entries of factor {f}", high=room)
            self.counts[f] = count
            self.entries_at[f] = at + 1
            at += 1 + 2 * count
        tokens.check_end(at, "the last factor")
        #: Places of the variables of all scopes.
        self.scopes_at = ranges(self.entries_at - 1 - 2 * arities, arities)
        # Variable numbers are limited, because each unnamed variable has a label and takes memory.
        high = _limits.MAX_FREE_LABELS + self.scopes_at.size
        self.scopes = Scopes.read(tokens, self.scopes_at, arities, high)

    def cardinalities(self) -> IntArray:
        """Return the number of labels of each variable; refuse factors that disagree on it."""
        scopes, variables = self.scopes, self.scopes.variables
        places = self.scopes_at + np.repeat(scopes.arities, scopes.arities)
        listed = self.tokens.integers(
            places,
            1,
            2**31,
            lambda s: (
                f"factor {scopes.owner(s)}: expected the number of labels of variable "
                f"{variables[s]}, an integer >= 1"
            ),
        ).astype(np.int64)
        found = np.ones(int(variables.max(initial=-1)) + 1, dtype=np.int64)
        found[variables] = listed
        differs = np.flatnonzero(found[variables] != listed)
        if differs.size:
            s = int(differs[0])
            raise self.tokens.error(
                int(places[s]),
                f"factor {scopes.owner(s)} gives variable {variables[s]} "
                f"{listed[s]} labels, another factor {found[variables[s]]}",
            )
        return found

    def checked_sizes(self, cardinalities: IntArray) -> IntArray:
        """Return the sizes of the tables, which may far exceed the listed entries."""
        expected = self.scopes.table_sizes(cardinalities)
        many = np.flatnonzero(self.counts > expected)
        if many.size:
            f = int(many[0])
            raise self.tokens.error(
                int(self.entries_at[f]) - 1,
                f"{self.scopes.shown(f)} has {expected[f]:.0f} entries, but {self.counts[f]} are "
                "listed",
            )
        check_entries(expected, self.tokens.values.size, self.fail)
        return expected.astype(np.int64)

    def energies(self, sizes: IntArray, starts: IntArray) -> FloatArray:
        """Return all tables concatenated."""
        tokens = self.tokens
        owner = np.repeat(np.arange(self.counts.size, dtype=np.int64), self.counts)
        within = np.arange(owner.size) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        places = self.entries_at[owner] + 2 * within
        listed = tokens.integers(
            places,
            0,
            sizes[owner],
            lambda e: (
                f"{self.scopes.shown(int(owner[e]))}: expected the index of an entry, 0 to "
                f"{sizes[owner[e]] - 1}"
            ),
        ).astype(np.int64)

        def fail(place: int, why: str) -> FormatError:
            f = int(np.searchsorted(self.entries_at, place, side="right")) - 1
            return tokens.error(
                place,
                f"{self.scopes.shown(f)}, entry {tokens.shown(place - 1)}: the potential "
                f"{tokens.shown(place)} {why}; potentials are finite numbers >= 0",
            )

        energies = np.full(int(sizes.sum()), math.inf)
        energies[starts[owner] + listed] = energies_of(tokens, places + 1, fail)
        least = np.minimum.reduceat(energies, starts) if starts.size else energies
        check_possible(tokens, self.scopes, least, self.entries_at - 1)
        return energies

    def fail(self, f: int, why: str) -> FormatError:
        """Make the error for a factor."""
        return self.tokens.error(int(self.entries_at[f]) - 1, f"{self.scopes.shown(f)}: {why}")
