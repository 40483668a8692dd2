"""``inference-lab solve``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout

if TYPE_CHECKING:
    from inference_lab.contract import Solution
    from inference_lab.problem import Problem


#: Number of variables whose marginals are shown; ``--json`` prints all.
_SHOWN_MARGINALS = 10


@click.command()
@click.argument("file")
@click.option(
    "--solver",
    default="auto",
    metavar="SPEC",
    help="The solver.",
)
@click.option(
    "--time-limit",
    callback=options.as_seconds,
    default="none",
    metavar="S",
    help="Seconds.",
)
@options.temperature
@options.absolute_gap
@options.seed
@click.option(
    "--out",
    type=options.FILE,
    help="File for the labels, one a line.",
)
@options.data_dir
@options.as_json
@options.debug
def solve(
    file: str,
    solver: str,
    time_limit: float | None,
    temperature: float,
    absolute_gap: float,
    seed: int,
    out: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run one solver on FILE, a model file or the spec of a problem."""
    from inference_lab.harness.inputs import load_problem
    from inference_lab.registry.registry import as_solver
    from inference_lab.solving import solve as solve_graph

    with as_input(), quiet_stdout():
        method = as_solver(solver)
        if out is not None and not out.absolute().parent.is_dir():
            raise NotADirectoryError(f"cannot write {out}: its folder does not exist")
        problem = load_problem(file, data_dir)
    with quiet_stdout():
        solution = solve_graph(
            problem.graph,
            method,
            seed=seed,
            time_limit=time_limit,
            absolute_gap=absolute_gap,
            temperature=temperature,
        )
        scores = {} if solution.labels is None else problem.score(solution.labels)
    if out is not None and solution.labels is not None:
        with as_input():
            out.write_text("".join(f"{label}\n" for label in solution.labels), encoding="ascii")
    if as_json:
        print_json(_solution_document(problem, solution, scores))
    else:
        click.echo("\n".join(_solution_lines(problem, solution, scores, out)))
    answered = (
        math.isfinite(solution.energy)
        or solution.status == "infeasible"
        or solution.marginals is not None
    )
    if not answered:
        click.get_current_context().exit(1)


def _solution_document(
    problem: Problem, solution: Solution, scores: dict[str, float]
) -> dict[str, Any]:
    from inference_lab.results.json_lines import jsonable
    from inference_lab.results.summaries import remarks_of

    marginals = solution.marginals
    numbers = (
        "energy",
        "claimed_energy",
        "lower_bound",
        "gap",
        "log_partition",
        "log_partition_kind",
        "iterations",
        "seconds",
        "compile_seconds",
    )
    return {
        "problem": problem.name,
        "n_variables": problem.graph.n_variables,
        "remarks": list(remarks_of(problem.info)),
        "solver": solution.solver,
        "seed": solution.seed,
        "temperature": solution.temperature,
        "status": solution.status.value,
        "sentence": solution.status.sentence,
        "message": solution.message,
        **{name: jsonable(getattr(solution, name)) for name in numbers},
        "scores": jsonable(scores),
        "diagnostics": jsonable(dict(solution.diagnostics)),
        "labels": None if solution.labels is None else solution.labels.tolist(),
        "marginals": (
            None if marginals is None else [jsonable([float(p) for p in row]) for row in marginals]
        ),
    }


def _solution_lines(
    problem: Problem, solution: Solution, scores: dict[str, float], out: Path | None
) -> list[str]:
    from inference_lab.results.summaries import remarks_of

    lines = [f"{problem.name}: {problem.graph!r}", *remarks_of(problem.info), repr(solution)]
    if solution.log_partition is not None:
        lines.append(f"  log Z {solution.log_partition:.10g} ({solution.log_partition_kind})")
    if scores:
        lines.append(f"  scores {', '.join(f'{name} {v:.4f}' for name, v in scores.items())}")
    if solution.marginals is not None:
        rows = [" ".join(f"{p:.4f}" for p in row) for row in solution.marginals]
        lines += [f"  marginals of {i}: {row}" for i, row in enumerate(rows[:_SHOWN_MARGINALS])]
        if len(rows) > _SHOWN_MARGINALS:
            lines.append(f"  ... ({len(rows)} in all; --json prints them)")
    if out is not None and solution.labels is not None:
        lines.append(f"  labels written to {out}")
    return lines
