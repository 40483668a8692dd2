"""``inference-lab warm-up``."""

from __future__ import annotations

import os
from pathlib import Path

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, quiet_stdout, sayer
from inference_lab.cli.compare_command import DEFAULT_PROBLEMS, DEFAULT_SOLVERS


@click.command("warm-up")
@click.argument("solvers", nargs=-1, metavar="[SOLVER]...")
@click.option(
    "--problem",
    "problems",
    multiple=True,
    default=[DEFAULT_PROBLEMS[0]],
    metavar="SPEC",
    help="Compile the kernels for problems like this one; may be repeated.",
)
@options.temperature
@click.option(
    "--jobs",
    type=options.COUNT,
    help="Number of processes (default: the processors that there are).",
)
@options.data_dir
@options.quiet
@options.debug
def warm_up(
    solvers: tuple[str, ...],
    problems: tuple[str, ...],
    temperature: float,
    jobs: int | None,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Compile the kernels of solvers, so that later runs start at once.

    The default solvers are those of "compare". Machine code is cached on disk until the library,
    numba or the processor changes; cached kernels are only loaded.
    """
    from inference_lab.harness.inputs import RunSettings
    from inference_lab.harness.running import warm_up_all

    # The default solvers are reversed to start with the longest compilation.
    chosen = solvers or DEFAULT_SOLVERS[::-1]
    processes = jobs or min(len(chosen), len(os.sched_getaffinity(0)))
    tell = sayer(quiet)
    with as_input(), quiet_stdout():
        tell(f"Compiling for {', '.join(chosen)}, {processes} at a time:")
        warm_up_all(
            chosen, problems, data_dir, RunSettings(temperature=temperature), processes, tell
        )
