"""The conformance suite: small named checks that every solver must pass.

The same checks serve the command line (``inference-lab check FILE``) and pytest::

    import pytest
    from inference_lab.conformance import solver_checks
    from my_package import MySolver

    @pytest.mark.parametrize("check", solver_checks(MySolver()), ids=str)
    def test_conformance(check):
        check()

A failed check raises `ConformanceFailure`, an `AssertionError`, with the family and seed of its
smallest graph, for ``random_graph(family, seed)``. A check that does not apply raises
`NotApplicable`, which pytest shows as skipped. In pytest, a solver that never returns is stopped
only at its next offer; `run_checks` and the command line use processes.
"""

from inference_lab.conformance.graphs import TOLERANCE, Exhaustive, exhaustive
from inference_lab.conformance.suite import run_checks, solver_checks
from inference_lab.conformance.verdicts import (
    Check,
    CheckResult,
    ConformanceFailure,
    NotApplicable,
    Verdict,
)

__all__ = [
    "TOLERANCE",
    "Check",
    "CheckResult",
    "ConformanceFailure",
    "Exhaustive",
    "NotApplicable",
    "Verdict",
    "exhaustive",
    "run_checks",
    "solver_checks",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
