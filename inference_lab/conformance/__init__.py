"""The conformance suite: small named checks that every solver must pass.

The same checks serve the command line (``inference-lab check FILE``) and pytest::

    import pytest
    from inference_lab.conformance import solver_checks
    from my_package import MySolver

    @pytest.mark.parametrize("check", solver_checks(MySolver()), ids=str)
    def test_conformance(check):
        check()

A failed check raises `ConformanceFailure`, an `AssertionError`, with the family and the seed of the
smallest of the graphs that show it, so that ``random_graph(family, seed)`` brings the case back. A
check that says nothing about a solver, say the one for marginals where a solver finds labellings
only, raises `NotApplicable`, which pytest shows as skipped.

From a solver to verdicts, the modules are `graphs` (what is drawn, and the referee `exhaustive`
that knows all energies), `runs`, `checks`, `verdicts`, `separate` (processes of their own) and
`suite`. In pytest the checks run in its process, where a solver that never returns is only stopped
if it offers labellings or bounds on the way; `run_checks` and the command line isolate them.
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
