"""The suite: a list of checks for pytest, and a function that runs and reports them all."""

from __future__ import annotations

import time
from collections.abc import Callable

from inference_lab.conformance.checks import Examination
from inference_lab.conformance.verdicts import Check, CheckResult, Verdict, run_check
from inference_lab.contract import Solver
from inference_lab.registry.registry import as_solver
from inference_lab.specs.grammar import build


def _examination(solver: str | Solver | type[Solver], graphs_per_family: int) -> Examination:
    if graphs_per_family < 1:
        raise ValueError(f"graphs_per_family must be at least 1, got {graphs_per_family}")
    if isinstance(solver, type) and issubclass(solver, Solver):
        solver = build(solver, solver.__name__, {})
    return Examination(as_solver(solver), graphs_per_family)


def solver_checks(
    solver: str | Solver | type[Solver], *, graphs_per_family: int = 10
) -> list[Check]:
    """List the checks of one solver.

    Parameters
    ----------
    solver : Solver, class or str
        A solver object, a class whose settings all have defaults, or a spec string.
    graphs_per_family : int
        Number of random graphs drawn from each of the families of
        `inference_lab.graph.random_graphs`; the checks share the runs on them.

    Returns
    -------
    list of Check

    Raises
    ------
    ValueError
        If `graphs_per_family` is not positive.
    SpecError
        If a spec string cannot be used, or a class needs settings.
    TypeError
        If `solver` is none of these.

    Examples
    --------
    >>> from inference_lab.conformance import solver_checks
    >>> checks = {check.name: check for check in solver_checks("brute-force")}
    >>> checks["frozen"].claim
    'Settings cannot be assigned.'
    >>> checks["frozen"]()
    """
    return _examination(solver, graphs_per_family).checks()


def run_checks(
    solver: str | Solver | type[Solver],
    report: Callable[[CheckResult], None] | None = None,
    *,
    graphs_per_family: int = 10,
    isolate: bool = True,
) -> list[CheckResult]:
    """Run all checks on one solver.

    Parameters
    ----------
    solver : Solver, class or str
        As in `solver_checks`.
    report : callable, optional
        Called with each result as soon as it is known.
    graphs_per_family : int
        As in `solver_checks`.
    isolate : bool
        Run checks in other processes, if the system can fork, so that crashes, hangs and lack of
        memory only fail the check. Without isolation, a debugger can step into checks.

    Returns
    -------
    list of CheckResult

    Raises
    ------
    ValueError, SpecError, TypeError
        As in `solver_checks`.

    Examples
    --------
    >>> from inference_lab.conformance import run_checks
    >>> results = run_checks("brute-force", graphs_per_family=1)
    >>> sum(result.verdict == "failed" for result in results)
    0
    """
    examination = _examination(solver, graphs_per_family)
    results: list[CheckResult] = []
    begin = time.perf_counter()
    run_one = _isolated(examination) if isolate else run_check
    for check in examination.checks():
        verdict, message = run_one(check)
        now = time.perf_counter()
        # The first check is charged for the shared runs, because it makes them, and the first in a
        # process for the others there.
        result = CheckResult(check.name, check.claim, verdict, message, now - begin)
        begin = now
        results.append(result)
        if report is not None:
            report(result)
    return results


def _isolated(examination: Examination) -> Callable[[Check], tuple[Verdict, str]]:
    """Return a function that runs checks in isolated processes, or here if they are unsupported."""
    from inference_lab.processes.isolation import can_isolate

    if not can_isolate():
        return run_check
    from inference_lab.conformance.separate import Separate

    separate = Separate(examination)
    separate.prepare()
    return separate.run_check
