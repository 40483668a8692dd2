"""``inference-lab check``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, print_note, quiet_stdout


@click.command()
@click.argument("solver", metavar="FILE|SPEC")
@options.as_json
@options.debug
def check(solver: str, as_json: bool) -> None:
    """Run the conformance suite on a solver.

    FILE|SPEC is a Python file with a solver (FILE:Class if it has several), or the spec of a
    registered solver. The exit code is 0 only if every check that applies passes.
    """
    from inference_lab.conformance import Verdict, run_checks
    from inference_lab.registry.registry import as_solver

    with as_input(), quiet_stdout():
        method = as_solver(solver)

    with quiet_stdout() as write:

        def report_progress(result: Any) -> None:
            detail = f"\n    {result.message}" if result.verdict == Verdict.FAILED else ""
            color = {Verdict.PASSED: "green", Verdict.FAILED: "red"}.get(result.verdict)
            mark = click.style(f"{result.verdict:<14}", fg=color)
            (print_note if as_json else write)(f"{mark} {result.name}: {result.claim}{detail}")

        results = run_checks(method, report=report_progress)
    counts = {verdict: sum(r.verdict == verdict for r in results) for verdict in Verdict}
    if as_json:
        print_json(
            {
                "solver": method.spec,
                "counts": {verdict.value: n for verdict, n in counts.items()},
                "checks": [asdict(result) for result in results],
            }
        )
    else:
        counted = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
        click.echo(f"{method.spec}: {counted}")
    if counts[Verdict.FAILED] or not counts[Verdict.PASSED]:
        click.get_current_context().exit(1)
