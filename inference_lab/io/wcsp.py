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
    of costs may not reach ``top`` either; such labellings keep their finite energy. Costs above
    2**53 are rounded to doubles, after the comparison with ``top``. If a tuple is listed twice,
    its last cost counts. Cost functions without variables are the constant.

    A negative number of variables starts a shared function; a negative number of tuples refers to
    the tuples of an earlier shared function. A negative number of labels denotes an interval
    domain, and is read like a positive one. Functions given by a keyword (formulas and global
    constraints) are refused: only tables are read.

Writing
    Costs are multiplied by `scale` and rounded to integers, so `read` returns them within
    ``0.5 / scale``. By default the scale is 1 if all costs are integers (then they are exact),
    else the largest power of ten up to 10**6 for which all sums stay below 2**53. ``top`` exceeds
    the sum of the largest finite costs, so that it forbids no other labelling. Functions with
    negative costs are shifted to a minimum of 0. The integral, positive part of the shifts and of
    the constant becomes a function without variables. The remainder is stored with the scale in
    the name, ``inference-lab/scale=SCALE/offset=OFFSET``: the energy is
    ``cost / scale + offset``. `parse` reads this name and restores the energies; other tools
    report the cost.

References
----------
toulbar2 reference manual, "Weighted Constraint Satisfaction Problem file format (wcsp)",
https://toulbar2.github.io/toulbar2/formats/wcspformat.html
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import cached_property

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import (
    Scopes,
    Tables,
    assemble,
    check_entries,
    forbidding,
    ranges,
)
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import WORD, Tokens, whole

#: Largest integer up to which all integers are exact doubles.
_EXACT = 2.0**53
_MAX_SCALE = 10**6

#: The problem name that stores the scale and the offset of costs that are not natural numbers.
_NAME = re.compile(rb"inference-lab/scale=([0-9.e+-]+)/offset=([0-9.e+-]+)")


# ---------------------------------------------------------------------------- reading


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a weighted CSP file."""
    name = WORD.search(data)
    if name is None:
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

    scale, offset = _written_scale(name.group())
    if scale != 1.0:
        with np.errstate(over="ignore"):
            scaled = energies / scale
        lost = np.isinf(scaled) & np.isfinite(energies)
        if lost.any():
            raise FormatError(
                f"{path}, token 1: the scale is {scale!r}, and a cost {energies[lost][0]:g} over "
                "that is not a finite number"
            )
        energies = scaled
    tables = Tables(cardinalities, functions.scopes, sizes, starts, energies)
    graph = assemble(path, functions.fail, tables, offset)
    return graph if top > 0 else forbidding(path, graph)


def _written_scale(name: bytes) -> tuple[float, float]:
    """Return the scale and the offset that `serialise` has stored in the name."""
    found = _NAME.fullmatch(name)
    if found:
        try:
            scale, offset = float(found[1]), float(found[2])
        except ValueError:
            return 1.0, 0.0
        if 0.0 < scale < math.inf and math.isfinite(offset):
            return scale, offset
    return 1.0, 0.0


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
        #: Places of the number of variables, and of the first tuple, which may be shared.
        self.heads = np.zeros(n_functions, dtype=np.int64)
        self.tuples_at = np.zeros(n_functions, dtype=np.int64)
        #: For each function, the shared function whose tuples it uses, or -1.
        self.uses = np.full(n_functions, -1, dtype=np.int64)
        shared: list[int] = []
        at = 4 + n
        for f in range(n_functions):
            at = self._walk(f, at, shared)
        tokens.check_end(at, "the last cost function")
        places = ranges(self.heads + 1, self.arities)
        self.scopes = Scopes.read(tokens, places, self.arities, n, "function")

    def _walk(self, f: int, at: int, shared: list[int]) -> int:
        """Record the places of the parts of function ``f``; return the place of the next one."""
        tokens = self.tokens
        end = int(tokens.values.size)
        signed = tokens.integer(at, f"the number of variables of function {f}", low=-(2**31))
        arity = abs(signed)
        room = max(0, end - at - 3)
        if arity > room:
            raise tokens.error(
                at,
                f"function {f} has {arity} variables, but at most {room} fit into the rest of the "
                "file",
            )
        self.heads[f] = at
        self.arities[f] = arity
        at += 1 + arity
        default = tokens.integer(at, f"the default cost of function {f}")
        self.defaults[f] = default
        count = tokens.integer(
            at + 1,
            f"the number of tuples of function {f}",
            high=max(0, end - at - 2) // (arity + 1),
            low=-len(shared) if signed > 0 else 0,
        )
        if signed < 0:
            shared.append(f)
        if count < 0:
            owner = shared[-count - 1]
            self.uses[f] = owner
            if self.arities[owner] != arity or self.defaults[owner] != default:
                raise tokens.error(
                    at + 1,
                    f"function {f} has {arity} variables and the default cost {default}, but the "
                    f"shared function {owner} has {self.arities[owner]} and "
                    f"{self.defaults[owner]:.0f}",
                )
            self.counts[f] = self.counts[owner]
            self.tuples_at[f] = self.tuples_at[owner]
            return at + 2
        self.counts[f] = count
        self.tuples_at[f] = at + 2
        return at + 2 + count * (arity + 1)

    def fail(self, f: int, why: str) -> FormatError:
        """Make the error for a function."""
        return self.tokens.error(int(self.heads[f]), f"{self.scopes.shown(f)}: {why}")

    def checked_sizes(self, cardinalities: IntArray) -> IntArray:
        """Return the sizes of the tables, which may far exceed the listed entries."""
        sizes = self.scopes.table_sizes(cardinalities)
        # Tables shared between pairwise terms are not copied; all other shared tables are.
        taken = np.where((self.uses >= 0) & (self.arities == 2), 0.0, sizes)
        check_entries(taken, self.tokens.values.size, self.fail)
        starts = self.scopes.starts
        labels = cardinalities[self.scopes.variables]
        for f in np.flatnonzero(self.uses >= 0).tolist():
            owner = int(self.uses[f])
            own, other = (labels[starts[g] : starts[g] + self.arities[g]] for g in (f, owner))
            if (own != other).any():
                raise self.tokens.error(
                    int(self.heads[f]),
                    f"the variables of {self.scopes.shown(f)} have other numbers of labels than "
                    f"those of the shared {self.scopes.shown(owner)}",
                )
        return sizes.astype(np.int64)

    def energies(
        self, cardinalities: IntArray, sizes: IntArray, top: float
    ) -> tuple[FloatArray, IntArray]:
        """Return all tables concatenated, and the start of each function's table."""
        own = self.uses < 0
        stored = np.where(own, sizes, 0)
        starts = np.cumsum(stored) - stored
        starts[~own] = starts[self.uses[~own]]
        energies = np.repeat(self.defaults, stored)
        forbidding = self.defaults >= top
        for f in np.flatnonzero(forbidding & (self.defaults == top)).tolist():
            place = int(self.heads[f]) + 1 + int(self.arities[f])
            forbidding[f] = self._reaches_top(place)
        energies[np.repeat(forbidding, stored)] = math.inf

        listing = own & (self.counts > 0)
        for arity in np.unique(self.arities[listing]).tolist():
            members = np.flatnonzero(listing & (self.arities == arity))
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
        forbidding = costs >= top
        if top >= _EXACT:
            same: dict[bytes, bool] = {}
            for t in np.flatnonzero(costs == top).tolist():
                text = tokens.text(int(places[t]) + 1)
                if text not in same:
                    same[text] = self._reaches_top(int(places[t]))
                forbidding[t] = same[text]
        energies[starts[members][which] + index] = np.where(forbidding, math.inf, costs)

    def _reaches_top(self, place: int) -> bool:
        """Whether a cost reaches the upper bound exactly, given that both are the same double."""
        return Decimal(self.tokens.text(place + 1).decode()) >= self._top

    @cached_property
    def _top(self) -> Decimal:
        return Decimal(self.tokens.text(4).decode())


# ---------------------------------------------------------------------------- writing


def serialise(graph: FactorGraph, scale: float | None = None) -> list[str]:
    """Return the text of a weighted CSP file in pieces, scaled as the module describes."""
    if scale is not None and not 0.0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    shifts = [graph.constant]
    for scope, table in graph.factors():
        least = float(table.min(initial=0.0))
        scopes.append(scope)
        tables.append(table - least if least else table)
        shifts.append(least)
    offset = math.fsum(shifts)
    if scale is None:
        scale = _default_scale(tables, offset)
    constant = max(0, math.floor(offset * scale))
    largest = [float(np.rint(_finite_maximum(table) * scale)) for table in tables]
    top = math.fsum(largest) + constant + 1
    if not top <= _EXACT:
        raise ValueError(
            f"scale = {scale!r} gives costs up to {top:g} in all; at most 2**53 can be written "
            "without loss"
        )
    rest = math.fsum([offset, -constant / scale])
    name = "inference-lab"
    if scale != 1.0 or rest != 0.0:
        name += f"/scale={float(scale)!r}/offset={rest!r}"
    pieces = [
        _function(scope, np.where(np.isinf(table), top, np.rint(table * scale)))
        for scope, table in zip(scopes, tables, strict=True)
    ]
    if constant:
        pieces.append(f"0 {constant} 0\n")
    counts = graph.cardinalities
    head = f"{name} {graph.n_variables} {int(counts.max(initial=0))} {len(pieces)} {int(top)}\n"
    return [head, " ".join(map(str, counts.tolist())) + "\n", *pieces]


def _finite_maximum(table: FloatArray) -> float:
    return float(table.max(where=np.isfinite(table), initial=0.0))


def _default_scale(tables: list[FloatArray], offset: float) -> float:
    largest = math.fsum([max(0.0, offset), *map(_finite_maximum, tables)])
    natural = all((t == np.floor(t))[np.isfinite(t)].all() for t in tables)
    if natural and offset == math.floor(offset) and largest < _EXACT:
        return 1.0
    # Rounding adds up to half a unit per table, and the upper bound adds one.
    room = _EXACT - len(tables) - 2
    scale = float(_MAX_SCALE)
    while largest * scale > room:
        scale /= 10.0
    return scale


def _function(scope: tuple[int, ...], costs: FloatArray) -> str:
    values, counts = np.unique(costs, return_counts=True)
    # The most frequent cost is the default, because it need not be listed.
    default = int(values[np.argmax(counts)])
    listed = np.argwhere(costs != default)
    lines = [f"{len(scope)} {' '.join(map(str, scope))} {default} {len(listed)}\n"]
    lines += [
        f"{' '.join(map(str, labels))} {int(cost)}\n"
        for labels, cost in zip(
            listed.tolist(), costs[costs != default].astype(np.int64).tolist(), strict=True
        )
    ]
    return "".join(lines)
