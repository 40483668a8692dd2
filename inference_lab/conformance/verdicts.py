"""Checks of the guarantees of the contract, and their verdicts."""

from __future__ import annotations

import re
import traceback
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from inference_lab.conformance.graphs import pristine


class ConformanceFailure(AssertionError):
    """Error for a violated guarantee; its message gives the place and the expectation."""


class NotApplicable(unittest.SkipTest):
    """A check does not apply to this solver; pytest shows it as skipped."""


class Verdict(StrEnum):
    """The verdict of a check.

    Examples
    --------
    >>> Verdict.NOT_APPLICABLE.value
    'not applicable'
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, eq=False)
class Check:
    """A test of one guarantee, run by calling the object.

    Attributes
    ----------
    name : str
    claim : str
        The guarantee, in one sentence.
    body : callable
        Raises `ConformanceFailure` or `NotApplicable`.

    Examples
    --------
    >>> from inference_lab.conformance import solver_checks
    >>> check = solver_checks("icm")[0]
    >>> check()  # nothing is raised: the promise is kept
    """

    name: str
    claim: str
    body: Callable[[], None]

    def __call__(self) -> None:
        """Run the check."""
        try:
            self.body()
        except NotApplicable:
            raise
        except ConformanceFailure as failure:
            raise ConformanceFailure(with_graph(str(failure))) from failure.__cause__
        except Exception as problem:
            # The result is so malformed that checking it raises, such as labels without a shape.
            raise ConformanceFailure(f"the result cannot be judged: {last_line(problem)}") from (
                problem
            )

    def __str__(self) -> str:
        """Return the name, for the ids of parametrised tests."""
        return self.name


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes
    ----------
    name, claim : str
    verdict : Verdict
    message : str
        The reason of a failure or of non-applicability; empty if it passed.
    seconds : float

    Examples
    --------
    >>> result = CheckResult("frozen", "the solver cannot be changed", Verdict.PASSED, "", 0.01)
    >>> result.verdict.value
    'passed'
    """

    name: str
    claim: str
    verdict: Verdict
    message: str
    seconds: float


def run_check(check: Check) -> tuple[Verdict, str]:
    """Call a check; return the verdict and its message."""
    try:
        check()
    except ConformanceFailure as failure:
        return Verdict.FAILED, str(failure)
    except NotApplicable as reason:
        return Verdict.NOT_APPLICABLE, str(reason)
    return Verdict.PASSED, ""


def with_graph(message: str) -> str:
    """Append a description of the graph and its origin to the message of a failure."""
    match = re.search(r"random_graph\('([\w-]+)', (\d+)\)", message)
    if match is None:
        return message
    graph = pristine(match[1], int(match[2]))
    labels = ", ".join(map(str, graph.cardinalities.tolist())) or "none"
    return (
        f"{message}\n    (of the graphs drawn the smallest that shows it; variables: "
        f"{graph.n_variables}, their labels: {labels}, edges: {graph.n_edges}, higher-order terms: "
        f"{graph.n_factors}; `solve` is in inference_lab, `random_graph` in "
        "inference_lab.graph.random_graphs)"
    )


def last_line(problem: BaseException) -> str:
    """Return the last line of a traceback, with the file and line of its origin."""
    line = traceback.format_exception_only(problem)[-1].strip()
    frames = traceback.extract_tb(problem.__traceback__)
    return f"{line} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else line
