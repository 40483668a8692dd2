"""The weighted CSP format ``.wcsp`` of toulbar2: integer costs, and a bound that forbids.

``E(x) = sum_f cost_f(x_f)``; costs are integers >= 0 and are minimised. Numbers are separated by
any white space, variables and labels count from 0:

* a name (one word), the number of variables, the largest number of labels, the number of cost
  functions, the upper bound ``top``;
* the number of labels of each variable;
* for each cost function the number of its variables, these variables, a default cost, the number
  of listed tuples, and for each of them its labels and its cost.

Reading
    A cost of ``top`` or more forbids (``+inf``). An energy of factors cannot express that a *sum*
    of costs may not reach ``top`` either; such labellings keep their finite energy. Costs and
    ``top`` above 2**53 are rounded to doubles. If a tuple is listed twice, its last cost counts.
    Cost functions without variables are the constant.

    A negative number of labels denotes an interval domain, and is read like a positive one. Shared
    functions (a negative number of variables or of tuples) and functions given by a keyword
    (formulas and global constraints) are refused: only tables are read.

This format is read only; write UAI files instead, which toulbar2 reads, too.

References
----------
toulbar2 reference manual, "Weighted Constraint Satisfaction Problem file format (wcsp)",
https://toulbar2.github.io/toulbar2/formats/wcspformat.html
"""

from __future__ import annotations

import math

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, check_entries, forbidding, ranges
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import WORD, Tokens, whole


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a weighted CSP file."""
    if WORD.search(data) is None:
        raise FormatError(f"{path}: the file is empty; expected the name of the problem")
    tokens = Tokens(data, path, first=1, hint="; functions given by a keyword are not read")
    end = int(tokens.values.size)
    n = tokens.integer(0, "the number of variables", high=max(0, end - 4))
    tokens.integer(1, "the largest number of labels")
    n_functions = tokens.integer(2, "the number of cost functions", high=max(0, end - n - 4) // 2)
    top = float(tokens.integer(3, "the upper bound"))
    cardinalities = _cardinalities(tokens, n)
    functions = _Functions(tokens, n, n_functions)
    functions.scopes.check_free(cardinalities, lambda i, why: tokens.error(4 + i, why))
    sizes = functions.checked_sizes(cardinalities)
    energies, starts = functions.energies(cardinalities, sizes, top)
    tables = Tables(cardinalities, functions.scopes, sizes, starts, energies)
    graph = assemble(path, functions.fail, tables)
    return graph if top > 0 else forbidding(path, graph)


def _cardinalities(tokens: Tokens, n: int) -> IntArray:
    values = np.abs(tokens.values[4 : 4 + n])
    good = whole(values, 1, 2**31)
    if not good.all():
        i = int(np.argmin(good))
        raise tokens.error(
            4 + i,
            f"variable {i}: expected its number of labels, an integer other than 0, "
            f"got {tokens.shown(5 + i)}",
        )
    return values.astype(np.int64)


class _Functions:
    """The places of all parts, found in one pass, because each count determines the next place."""

    def __init__(self, tokens: Tokens, n: int, n_functions: int) -> None:
        self.tokens = tokens
        self.arities = np.zeros(n_functions, dtype=np.int64)
        self.defaults = np.zeros(n_functions)
        self.counts = np.zeros(n_functions, dtype=np.int64)
        #: Places of the number of variables, and of the first tuple.
        self.heads = np.zeros(n_functions, dtype=np.int64)
        self.tuples_at = np.zeros(n_functions, dtype=np.int64)
        at = 4 + n
        for f in range(n_functions):
            at = self._walk(f, at)
        tokens.check_end(at, "the last cost function")
        places = ranges(self.heads + 1, self.arities)
        self.scopes = Scopes.read(tokens, places, self.arities, n, "function")

    def _walk(self, f: int, at: int) -> int:
        """Record the places of the parts of function ``f``; return the place of the next one."""
        tokens = self.tokens
        end = int(tokens.values.size)
        what = f"the number of variables of function {f}"
        arity = tokens.integer(at, what, high=max(0, end - at - 3))
        self.heads[f] = at
        self.arities[f] = arity
        at += 1 + arity
        self.defaults[f] = tokens.integer(at, f"the default cost of function {f}")
        count = tokens.integer(
            at + 1,
            f"the number of tuples of function {f}",
            high=max(0, end - at - 2) // (arity + 1),
        )
        self.counts[f] = count
        self.tuples_at[f] = at + 2
        return at + 2 + count * (arity + 1)

    def fail(self, f: int, why: str) -> FormatError:
        """Make the error for a function."""
        return self.tokens.error(int(self.heads[f]), f"{self.scopes.shown(f)}: {why}")

    def checked_sizes(self, cardinalities: IntArray) -> IntArray:
        """Return the sizes of the tables, which may far exceed the listed entries."""
        sizes = self.scopes.table_sizes(cardinalities)
        check_entries(sizes, self.tokens.values.size, self.fail)
        return sizes.astype(np.int64)

    def energies(
        self, cardinalities: IntArray, sizes: IntArray, top: float
    ) -> tuple[FloatArray, IntArray]:
        """Return all tables concatenated, and the start of each function's table."""
        starts = np.cumsum(sizes) - sizes
        defaults = np.where(self.defaults >= top, math.inf, self.defaults)
        energies = np.repeat(defaults, sizes)
        for arity in np.unique(self.arities[self.counts > 0]).tolist():
            members = np.flatnonzero((self.counts > 0) & (self.arities == arity))
            self._fill(energies, members, arity, cardinalities, starts, top)
        return energies, starts

    def _fill(
        self,
        energies: FloatArray,
        members: IntArray,
        arity: int,
        cardinalities: IntArray,
        starts: IntArray,
        top: float,
    ) -> None:
        """Write the listed tuples of all functions of one arity into their tables."""
        tokens = self.tokens
        counts = self.counts[members]
        which = np.repeat(np.arange(members.size), counts)
        within = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self.tuples_at[members][which] + within * (arity + 1)
        scope_starts = self.scopes.starts[members]
        index = np.zeros(which.size, dtype=np.int64)

        def named(t: int) -> str:
            return f"{self.scopes.shown(int(members[which[t]]))}, tuple {within[t]}"

        for axis in range(arity):
            variables = self.scopes.variables[scope_starts + axis][which]
            sizes = cardinalities[variables]

            def label(t: int, variables: IntArray = variables, sizes: IntArray = sizes) -> str:
                return (
                    f"{named(t)}: expected a label of variable {variables[t]}, 0 to {sizes[t] - 1}"
                )

            labels = tokens.integers(places + axis, 0, sizes, label)
            index = index * sizes + labels.astype(np.int64)
        places += arity
        costs = tokens.integers(
            places, 0, math.inf, lambda t: f"{named(t)}: expected its cost, an integer >= 0"
        )
        costs[costs >= top] = math.inf
        energies[starts[members][which] + index] = costs
