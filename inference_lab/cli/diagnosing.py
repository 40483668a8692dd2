"""``inference-lab diagnose``."""

from __future__ import annotations

from pathlib import Path

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout


@click.command()
@click.argument("problem")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0),
    default=2.0,
    help="Seconds for the LP relaxation of the graph, or of a part of it; 0 leaves it out.",
)
@options.seed
@options.data_dir
@options.as_json
@options.debug
def diagnose(
    problem: str,
    time_limit: float,
    seed: int,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Predict how hard an energy is to minimise and which solvers suit it, with evidence.

    PROBLEM is a spec such as "estep(data=iris, constraints=200, noise=0.1)" or a model file.
    """
    from inference_lab.selection import diagnose as diagnose_problem

    with as_input(), quiet_stdout():
        diagnosis = diagnose_problem(problem, data_dir=data_dir, time_limit=time_limit, seed=seed)
    if as_json:
        print_json(diagnosis.to_dict())
    else:
        click.echo(repr(diagnosis))
