"""Global cost functions of toulbar2, as tables: linear constraints, all-different, cardinalities.

`.cfn` and `.wcsp` files give such a function by its kind and parameters. Both readers offer the
parameters one by one (`Parameters`), in the order of the ``.wcsp`` format, to `constraint_tables`.
Only hard constraints are read. A function of another kind, a soft one, and one whose table is too
large are refused, because a graph has tables only.

=========================================== ==================================== =================
kinds                                       a labelling is allowed if            tables
=========================================== ==================================== =================
``knapsack``, ``knapsackp``, ``knapsackv``  the weights of its labels add up to  one
                                            at least the capacity
``clique``                                  at most one label is in its set      one
``alldiff``, ``salldiff``, ``salldiffdp``,  the labels differ, except for        one for each pair
``salldiffkp``                              excepted ones                        of variables
``gcc``, ``sgcc``, ``sgccdp``, ``sgcckp``   the number of variables with a       one
                                            label is between two bounds
``samong``, ``samongdp``                    the number of variables with a       one
                                            label in a set is between two bounds
=========================================== ==================================== =================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray
from inference_lab.io._assembly import shown_scope
from inference_lab.io._files import FormatError

#: Measures of a violation, which are alike if none is allowed.
_METRICS = ("hard", "var", "dec", "decbi")
#: Overhead of the table of a pair of variables, in entries.
_PAIR = 64
#: Weights of a linear constraint add up exactly below this.
_EXACT = 2.0**53


class Parameters(Protocol):
    """The parameters of a function, read one by one."""

    def number(self, what: str) -> float:
        """Return the next parameter, a number; ``+inf`` if it is an infinite cost."""

    def word(self, what: str) -> str:
        """Return the next parameter, a word."""

    def label(self, variable: int | None, what: str) -> int:
        """Return the next parameter, a label of a variable, or of all in the scope."""

    def variable(self, what: str) -> int:
        """Return the position in the scope of the next parameter, a variable of the problem."""

    def error(self, message: str) -> FormatError:
        """Make the error for a fault of the function."""


class ConstraintTable(NamedTuple):
    """A table of 0 and ``+inf`` over some positions of the scope."""

    positions: list[int]
    costs: FloatArray


class _Scope(NamedTuple):
    """The scope of a function of some kind, and the largest number of entries of its tables."""

    shown: str
    shape: list[int]
    room: int

    def check_room(self, parameters: Parameters, entries: int) -> None:
        if entries > self.room:
            sizes = shortened(" x ".join(map(str, self.shape)), 40)
            raise parameters.error(
                f"{self.shown} needs tables of {shortened(str(entries), 20)} entries for variables "
                f"of {sizes} labels; at most {self.room} are read"
            )


def constraint_tables(
    kind: str,
    parameters: Parameters,
    function: str,
    variables: list[int],
    shape: list[int],
    *,
    top: float,
    room: int,
) -> list[ConstraintTable]:
    """Return the tables of a constraint.

    Parameters
    ----------
    kind : str
        The name of the global cost function in toulbar2.
    parameters : Parameters
    function : str
        The name of the function in messages.
    variables, shape : list of int
        The scope, and the numbers of labels of its variables.
    top : float
        Costs of at least this forbid.
    room : int
        The largest number of entries of all tables.

    Raises
    ------
    FormatError
        If the kind is not read, the constraint is soft or too large, or a parameter is wrong.
    """
    shown = f"{function} over {shown_scope(tuple(variables))} of the kind {shortened(kind, 40)!r}"
    rule = _RULES.get(kind)
    if rule is None:
        raise parameters.error(
            f"{shown} is not read; kinds that are read as tables: {', '.join(_RULES)}"
        )
    return list(rule(parameters, _Scope(shown, shape, room), top))


def _count(parameters: Parameters, scope: _Scope, what: str) -> int:
    """Return a parameter that is a number of further parameters, or of variables."""
    return int(_integer(parameters, scope, what, low=0))


def _integer(parameters: Parameters, scope: _Scope, what: str, low: float = -_EXACT) -> float:
    value = parameters.number(what)
    if not (value.is_integer() and low <= value < _EXACT):
        at_least = " >= 0" if low == 0 else f" below {_EXACT:g} in size"
        raise parameters.error(f"{scope.shown}: {what} is {value:g}; expected an integer{at_least}")
    return value


def _check_hard(parameters: Parameters, scope: _Scope, top: float) -> None:
    """Read the metric and the cost of a violation; refuse a soft constraint."""
    metric = parameters.word("metric")
    if metric not in _METRICS:
        raise parameters.error(
            f"{scope.shown}: the metric is {shortened(metric, 40)!r}; "
            f"read are {', '.join(_METRICS)}"
        )
    cost = parameters.number("cost")
    if cost < top:
        raise parameters.error(
            f"{scope.shown} is soft: a violation costs {cost:g}, less than the bound {top:g}; "
            "only hard constraints are read"
        )


def _check_unpropagated(parameters: Parameters, scope: _Scope) -> None:
    """Read the number of delta costs; refuse any."""
    if _count(parameters, scope, "number of delta costs"):
        raise parameters.error(f"{scope.shown} has delta costs, which are not read")


# ---------------------------------------------------------------------------- linear constraints


def _sums(parameters: Parameters, scope: _Scope, weights: list[FloatArray]) -> FloatArray:
    """Return the sum of the weights of the labels, for each labelling of the scope."""
    scope.check_room(parameters, math.prod(scope.shape))
    if math.fsum(float(np.abs(w).max()) for w in weights) >= _EXACT:
        raise parameters.error(f"{scope.shown}: weights may add up to at most {_EXACT:g}")
    return np.asarray(reduce(np.add.outer, weights, np.zeros(()))).ravel()


def _table(scope: _Scope, allowed: np.ndarray) -> ConstraintTable:
    return ConstraintTable(list(range(len(scope.shape))), np.where(allowed, 0.0, math.inf))


def _knapsack(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    """Read the capacity, and the weight of label 1 of each variable."""
    capacity = _integer(parameters, scope, "capacity")
    weights = [np.zeros(k) for k in scope.shape]
    for position, array in enumerate(weights):
        if array.size != 2:
            raise parameters.error(
                f"{scope.shown}: variable {position} of the scope has {array.size} labels, not 2"
            )
        array[1] = _integer(parameters, scope, "weight")
    yield _table(scope, _sums(parameters, scope, weights) >= capacity)


def _knapsackp(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    """Read the capacity, and for each variable its labels that have a weight, with the weights."""
    capacity = _integer(parameters, scope, "capacity")
    weights = [np.zeros(k) for k in scope.shape]
    for position, array in enumerate(weights):
        for _label in range(_count(parameters, scope, "number of weights")):
            label = parameters.label(position, "label")
            array[label] += _integer(parameters, scope, "weight")
    yield _table(scope, _sums(parameters, scope, weights) >= capacity)


def _knapsackv(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    """Read the capacity, and triplets of a variable, a label and its weight."""
    capacity = _integer(parameters, scope, "capacity")
    weights = [np.zeros(k) for k in scope.shape]
    for _triplet in range(_count(parameters, scope, "number of weights")):
        position = parameters.variable("variable")
        label = parameters.label(position, "label")
        weights[position][label] += _integer(parameters, scope, "weight")
    yield _table(scope, _sums(parameters, scope, weights) >= capacity)


def _clique(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    """Read the bound, which is 1, and the set of labels of each variable."""
    if parameters.number("bound") != 1:
        raise parameters.error(f"{scope.shown}: the only bound that is read is 1")
    members = [np.zeros(k) for k in scope.shape]
    for position, array in enumerate(members):
        for _label in range(_count(parameters, scope, "number of labels")):
            array[parameters.label(position, "label")] = 1.0
    yield _table(scope, _sums(parameters, scope, members) <= 1)


# ---------------------------------------------------------------------------- counts of labels


def _labels(parameters: Parameters, scope: _Scope) -> set[int]:
    """Return a set of labels that all variables share, given by its size and members."""
    size = _count(parameters, scope, "number of labels")
    return {parameters.label(None, "label") for _ in range(size)}


def _counts(parameters: Parameters, scope: _Scope, labels: set[int]) -> FloatArray:
    """Return the number of variables with a label in the set, for each labelling."""
    members = [np.isin(np.arange(k), list(labels)).astype(float) for k in scope.shape]
    return _sums(parameters, scope, members)


def _among(parameters: Parameters, scope: _Scope, top: float) -> Iterator[ConstraintTable]:
    """Read two bounds on the number of variables, and the set of labels."""
    _check_hard(parameters, scope, top)
    low, high = (float(_count(parameters, scope, f"{name} bound")) for name in ("lower", "upper"))
    counts = _counts(parameters, scope, _labels(parameters, scope))
    yield _table(scope, (counts >= low) & (counts <= high))


def _cardinalities(parameters: Parameters, scope: _Scope) -> ConstraintTable:
    """Read triplets of a label and two bounds on the number of variables with it."""
    size = math.prod(scope.shape)
    n_labels = _count(parameters, scope, "number of labels")
    # Time is bounded with memory, because each label takes a pass over the table.
    scope.check_room(parameters, size * max(1, n_labels))
    allowed = np.ones(size, dtype=bool)
    for _triplet in range(n_labels):
        label = parameters.label(None, "label")
        low, high = (_count(parameters, scope, f"{name} bound") for name in ("lower", "upper"))
        counts = _counts(parameters, scope, {label})
        allowed &= (counts >= low) & (counts <= high)
    return _table(scope, allowed)


def _gcc(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    yield _cardinalities(parameters, scope)
    _check_unpropagated(parameters, scope)


def _sgcc(parameters: Parameters, scope: _Scope, top: float) -> Iterator[ConstraintTable]:
    _check_hard(parameters, scope, top)
    yield _cardinalities(parameters, scope)


# ---------------------------------------------------------------------------- all-different


def _all_different(
    parameters: Parameters, scope: _Scope, excepted: set[int]
) -> Iterator[ConstraintTable]:
    """Yield a table for each pair of variables."""
    n, total = len(scope.shape), sum(scope.shape)
    entries = (total**2 - sum(k**2 for k in scope.shape)) // 2
    scope.check_room(parameters, max(entries, _PAIR * n * (n - 1) // 2))
    for i, j in combinations(range(n), 2):
        table = np.zeros((scope.shape[i], scope.shape[j]))
        shared = [a for a in range(min(table.shape)) if a not in excepted]
        table[shared, shared] = math.inf
        yield ConstraintTable([i, j], table.ravel())


def _alldiff(parameters: Parameters, scope: _Scope, _: float) -> Iterator[ConstraintTable]:
    """Read the excepted labels."""
    excepted = _labels(parameters, scope)
    _check_unpropagated(parameters, scope)
    yield from _all_different(parameters, scope, excepted)


def _salldiff(parameters: Parameters, scope: _Scope, top: float) -> Iterator[ConstraintTable]:
    _check_hard(parameters, scope, top)
    yield from _all_different(parameters, scope, set())


_Rule = Callable[[Parameters, _Scope, float], Iterator[ConstraintTable]]

#: The reader of the parameters of each kind.
_RULES: dict[str, _Rule] = {
    "knapsack": _knapsack,
    "knapsackp": _knapsackp,
    "knapsackv": _knapsackv,
    "clique": _clique,
    "alldiff": _alldiff,
    "salldiff": _salldiff,
    "salldiffdp": _salldiff,
    "salldiffkp": _salldiff,
    "gcc": _gcc,
    "sgcc": _sgcc,
    "sgccdp": _sgcc,
    "sgcckp": _sgcc,
    "samong": _among,
    "samongdp": _among,
}
