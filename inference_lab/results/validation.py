"""Validation of the types and ranges of outcomes; faults are errors of the solver."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inference_lab.contract import Outcome
from inference_lab.graph.factor_graph import FactorGraph

__all__ = [
    "MARGINAL_TOLERANCE",
    "PARTITION_KINDS",
    "check_outcome",
    "marginals_fault",
    "partition_fault",
    "shape_fault",
]

#: Tolerance for the sum of a variable's marginals: a thousand times the rounding error of thousands
#: of labels, and far below any error of sampling or early stopping.
MARGINAL_TOLERANCE = 1e-8

#: Kinds of estimates of the log-partition.
PARTITION_KINDS = ("exact", "lower", "upper", "estimate")

_MOST_ITERATIONS = 1 << 63


def check_outcome(outcome: Outcome, graph: FactorGraph) -> tuple[Outcome, str]:
    """Return an outcome in plain numbers, and a message on its first fault, or an empty one."""
    faults = []

    def number(name: str, convert: Any, allowed: str) -> Any:
        value = getattr(outcome, name)
        try:
            return convert(value)
        except Exception:  # values may be of any class, whose methods may raise anything
            faults.append(f"{name} must be {allowed}, got {_shown(value)}")
            return getattr(Outcome, name)

    plain = {
        "converged": number("converged", _flag, "True or False"),
        "infeasible": number("infeasible", _flag, "True or False"),
        "unsupported": number("unsupported", lambda value: _text(value) or "", "a string"),
        "iterations": number("iterations", _count, "an integer from 0 on, below 2^63"),
        "claimed_energy": number("claimed_energy", _optional, "a number or None"),
        "log_partition": number("log_partition", _optional, "a number or None"),
        "log_partition_kind": number("log_partition_kind", _text, "a string or None"),
    }
    diagnostics: Any = outcome.diagnostics
    if not isinstance(diagnostics, Mapping):
        faults.append(f"diagnostics must be a mapping, got {_shown(diagnostics)}")
        plain["diagnostics"] = {}
    if outcome.marginals is not None:
        faults.append(marginals_fault(outcome.marginals, graph))
    if not any(fault.startswith("log_partition") for fault in faults):
        faults.append(partition_fault(plain["log_partition"], plain["log_partition_kind"]))
    return replace(outcome, **plain), next(filter(None, faults), "")


def partition_fault(value: float | None, kind: str | None) -> str:
    """Return a message on a fault of a log-partition or its kind, empty without a fault."""
    if (value is None) != (kind is None) or kind not in (None, *PARTITION_KINDS):
        return (
            f"log_partition is {_shown(value)} and its kind {_shown(kind)}; a value needs a kind, "
            f"one of {', '.join(map(repr, PARTITION_KINDS))}"
        )
    if value is not None and math.isnan(value):
        return f"log_partition is nan, of kind {kind!r}; give a number, or None for both"
    return ""


def marginals_fault(marginals: Any, graph: FactorGraph) -> str:
    """Return a message on a fault of a graph's marginals, empty without a fault."""
    try:
        return shape_fault(marginals, graph) or _values_fault(marginals, graph)
    except Exception as problem:  # values may be of any class, whose methods may raise anything
        return f"marginals cannot be read as numbers: {type(problem).__name__}"


def shape_fault(marginals: Any, graph: FactorGraph) -> str:
    """Return a message on a wrong shape of marginals, empty if the shape is right."""
    sizes = graph.cardinalities
    if graph.n_labels is not None:
        expected = (graph.n_variables, graph.n_labels)
        if not isinstance(marginals, np.ndarray) or marginals.shape != expected:
            array = isinstance(marginals, np.ndarray)
            found = marginals.shape if array else _shown(marginals)
            return f"marginals must be a {expected} array, got {found}"
    else:
        if not isinstance(marginals, list | tuple) or len(marginals) != sizes.size:
            return (
                f"marginals must be a list of {sizes.size} arrays, one a variable, got "
                f"{_shown(marginals)}"
            )
        for i, row in enumerate(marginals):
            if np.shape(row) != (sizes[i],):
                return f"marginals[{i}] must have shape ({sizes[i]},), got {np.shape(row)}"
    return ""


def _values_fault(marginals: Any, graph: FactorGraph) -> str:
    rows = [marginals.ravel()] if isinstance(marginals, np.ndarray) else marginals
    flat = np.concatenate([np.zeros(0), *rows])
    if flat.dtype.kind not in "fiu":
        return f"marginals must be numbers, got an array of {flat.dtype}"
    if not flat.size:
        return ""
    starts = graph.unary_ptr[:-1]
    wrong = ~(np.isfinite(flat) & (flat >= 0))
    if wrong.any():
        i = int(np.searchsorted(graph.unary_ptr, int(wrong.argmax()), side="right")) - 1
        return f"marginals[{i}] = {marginals[i]} must be finite and not negative"
    sums = np.add.reduceat(flat, starts)
    wrong = np.abs(sums - 1.0) > MARGINAL_TOLERANCE
    if wrong.any():
        i = int(wrong.argmax())
        return f"marginals[{i}] = {marginals[i]} must sum to 1, not {float(sums[i])!r}"
    return ""


def _flag(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError


def _count(value: Any) -> int:
    count = int(operator.index(value))
    if 0 <= count < _MOST_ITERATIONS:
        return count
    raise ValueError


def _optional(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | bool):
        raise TypeError
    return float.__float__(float(value))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "backslashreplace").decode()
    raise TypeError


def _shown(value: Any) -> str:
    """Return a value of any class as text on one line, shortened."""
    try:
        return " ".join(reprlib.repr(value).split())[:80]
    except Exception:  # an integer of too many digits, or an object that raises
        return f"a value of type {type(value).__name__}"
