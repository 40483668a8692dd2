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

    A negative number of labels denotes an interval domain, and is read like a positive one. Of the
    functions given by a keyword (a default cost of -1), hard linear constraints, all-different and
    cardinality constraints are read as tables (`inference_lab.io._global_functions`); others are
    refused, and so are shared functions (a negative number of variables or of tuples).

This format is read only; write UAI files instead, which toulbar2 reads, too.

References
----------
toulbar2 reference manual, "Weighted Constraint Satisfaction Problem file format (wcsp)",
https://toulbar2.github.io/toulbar2/formats/wcspformat.html
"""

from __future__ import annotations

import math

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, forbidding, shown_scope
from inference_lab.io._files import FormatError
from inference_lab.io._global_functions import constraint_tables
from inference_lab.io._text import Words, plain_text
from inference_lab.io._tokens import WORD, Tokens, whole


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a weighted CSP file."""
    data = plain_text(data, path, Words.BARE)
    if WORD.search(data) is None:
        raise FormatError(f"{path}: the file is empty; expected the name of the problem")
    tokens = Tokens(data, path, first=1, words=True)
    end = int(tokens.values.size)
    n = tokens.integer(0, "the number of variables", high=max(0, end - 4))
    tokens.integer(1, "the largest number of labels")
    n_functions = tokens.integer(2, "the number of cost functions", high=max(0, end - n - 4) // 2)
    top = float(tokens.integer(3, "the upper bound"))
    labels = np.abs(tokens.values[4 : 4 + n])
    tokens.require(
        whole(labels, 1, 2**31),
        4 + np.arange(n),
        lambda i: f"variable {i}: expected its number of labels, an integer other than 0",
    )
    cardinalities = labels.astype(np.int64)
    scopes: list[list[int]] = []
    tables: list[FloatArray] = []
    heads: list[int] = []
    at = 4 + n
    room = _limits.MAX_ENTRIES + end
    limit = _limits.MAX_ENTRIES + end
    for f in range(n_functions):
        what = f"the number of variables of function {f}"
        arity = tokens.integer(at, what, high=max(0, end - at - 3))
        scope = tokens.scope(at + 1, arity, n, f"function {f}")
        head, at = at, at + 1 + arity
        shape = cardinalities[scope].tolist()
        if at + 1 < end and tokens.values[at] == -1 and math.isnan(tokens.values[at + 1]):
            parameters = _KeywordParameters(tokens, at + 2, scope, shape)
            kind = tokens.text(at + 1 + tokens.first).decode("ascii")
            for positions, costs in constraint_tables(
                kind, parameters, f"function {f}", scope, shape, top=top, room=room
            ):
                scopes.append([scope[p] for p in positions])
                heads.append(head)
                tables.append(costs)
                room -= costs.size
            at = parameters.at
            continue
        scopes.append(scope)
        heads.append(head)
        default = tokens.integer(at, f"the default cost of function {f}")
        what = f"the number of tuples of function {f}"
        count = tokens.integer(at + 1, what, high=max(0, end - at - 2) // (arity + 1))
        shown = f"function {f} over {shown_scope(tuple(scope))}"
        room -= math.prod(shape)
        if room < 0:
            raise tokens.error(head, f"{shown}: too many entries in all; at most {limit} are read")
        tables.append(np.full(math.prod(shape), default, dtype=np.float64))
        places = at + 2 + np.arange(count * (arity + 1)).reshape(count, arity + 1)
        index = np.zeros(count, dtype=np.int64)
        for axis, k in enumerate(shape):
            expected = f"{shown}: expected a label of variable {scope[axis]}, 0 to {k - 1}"
            index = index * k + tokens.integers(places[:, axis], 0, k, expected).astype(np.int64)
        expected = f"{shown}: expected the cost of a tuple, an integer >= 0"
        tables[-1][index] = tokens.integers(places[:, arity], 0, math.inf, expected)
        at += 2 + count * (arity + 1)
    tokens.check_end(at, "the last cost function")
    layout = Scopes.of_lists(scopes, "function")
    layout.check_free(cardinalities, lambda i, why: tokens.error(4 + i, why))
    sizes = np.array([table.size for table in tables], dtype=np.int64)
    energies = np.concatenate([np.empty(0), *tables])
    energies[energies >= top] = math.inf
    graph = assemble(
        path,
        lambda f, why: tokens.error(heads[f], f"{layout.shown(f)}: {why}"),
        Tables(cardinalities, layout, sizes, np.cumsum(sizes) - sizes, energies),
    )
    return graph if top > 0 else forbidding(path, graph)


class _KeywordParameters:
    """The parameters of a function that is given by a keyword, from ``values[at]`` on."""

    def __init__(self, tokens: Tokens, at: int, scope: list[int], shape: list[int]) -> None:
        self.tokens = tokens
        self.at = at
        self._head = at - 1
        self._scope = scope
        self._shape = shape

    def number(self, what: str) -> float:
        """Return the next parameter, a number."""
        self._advance(what)
        value = float(self.tokens.values[self.at - 1])
        if math.isfinite(value):
            return value
        raise self._unexpected(f"the {what} of the function")

    def word(self, what: str) -> str:
        """Return the next parameter, a word."""
        self._advance(what)
        return self.tokens.text(self.at - 1 + self.tokens.first).decode("ascii")

    def label(self, variable: int | None, what: str) -> int:
        """Return the next parameter, a label of a variable, or of any in the scope."""
        sizes = self._shape if variable is None else [self._shape[variable]]
        value = self.number(what)
        high = max(sizes, default=0)
        if not (value.is_integer() and 0 <= value < high):
            raise self._unexpected(f"a label, 0 to {high - 1}")
        return int(value)

    def variable(self, what: str) -> int:
        """Return the position in the scope of the next parameter, a variable."""
        value = self.number(what)
        if value not in self._scope:
            raise self._unexpected(f"a variable of the scope {shown_scope(tuple(self._scope))}")
        return self._scope.index(int(value))

    def error(self, message: str) -> FormatError:
        """Make the error for a fault of the function."""
        return self.tokens.error(self._head, message)

    def _advance(self, what: str) -> None:
        if self.at >= self.tokens.values.size:
            raise self.tokens.error(self.at, f"the file ends where the {what} is expected")
        self.at += 1

    def _unexpected(self, expected: str) -> FormatError:
        shown = self.tokens.shown(self.at - 1 + self.tokens.first)
        return self.tokens.error(self.at - 1, f"expected {expected}, got {shown}")
