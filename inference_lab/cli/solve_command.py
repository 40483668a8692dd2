"""``inference-lab solve``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import BadInput, as_input, print_json, quiet_stdout

if TYPE_CHECKING:
    from inference_lab.contract import Solution
    from inference_lab.problem import Problem


#: Number of variables whose labels and marginals are shown; ``--json`` and ``--out`` give all.
_SHOWN_LABELS = 40
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
@options.seed
@click.option(
    "--out",
    type=options.FILE,
    help="File for the labels, one a line.",
)
@click.option(
    "--picture",
    type=options.FILE,
    help="File for the labels as an image (.png, .pgm, .ppm), where they are an image.",
)
@options.data_dir
@options.as_json
@options.debug
def solve(
    file: str,
    solver: str,
    time_limit: float | None,
    temperature: float,
    seed: int,
    out: Path | None,
    picture: Path | None,
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
        if picture is not None:
            _check_picture(problem, picture)
    with quiet_stdout():
        solution = solve_graph(
            problem.graph, method, seed=seed, time_limit=time_limit, temperature=temperature
        )
        scores = {} if solution.labels is None else problem.score(solution.labels)
    if out is not None and solution.labels is not None:
        with as_input():
            out.write_text("".join(f"{label}\n" for label in solution.labels), encoding="ascii")
    if picture is not None and solution.labels is not None:
        from inference_lab.data.images import write_image

        shown = problem.picture(solution.labels)
        if shown is not None:
            with as_input():
                write_image(picture, shown)
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


def _check_picture(problem: Problem, path: Path) -> None:
    """Raise `BadInput` before the run if the picture could not be drawn or written after it."""
    import numpy as np

    from inference_lab.data.images import check_picture_path

    try:
        check_picture_path(path)
    except ValueError as reason:
        raise BadInput(str(reason)) from reason
    if problem.picture(np.zeros(problem.graph.n_variables, dtype=np.int64)) is None:
        raise BadInput(f"{problem.name} is not about an image: --picture has nothing to show")


def _solution_document(
    problem: Problem, solution: Solution, scores: dict[str, float]
) -> dict[str, Any]:
    from inference_lab.results.records import jsonable
    from inference_lab.results.summaries import remarks_of

    marginals = solution.marginals
    numbers = (
        *("energy", "claimed_energy", "lower_bound", "gap", "log_partition", "log_partition_kind"),
        *("iterations", "seconds", "compile_seconds"),
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
    from inference_lab.contract import energy_scale
    from inference_lab.results.summaries import gap_percent, remarks_of

    asked = f"{solution.solver}, seed {solution.seed}, temperature {solution.temperature:g}"
    said = [
        ("problem", f"{problem.name}: {problem.graph!r}"),
        *(("remark", remark) for remark in remarks_of(problem.info)),
        ("solver", asked),
        ("status", f"{solution.status.value}: {solution.status.sentence}"),
    ]
    if solution.message:
        said.append(("", solution.message))
    if solution.labels is not None:
        said.append(("energy", f"{solution.energy:.10g}"))
    if math.isfinite(solution.lower_bound):
        small = energy_scale(problem.graph)
        percent = gap_percent(solution.energy, solution.lower_bound, small=small)
        said.append(("bound", f"{solution.lower_bound:.10g}"))
        if percent is not None:
            said.append(("gap", f"{solution.gap:.6g} ({percent:.4g} %)"))
    if solution.log_partition is not None:
        kind = solution.log_partition_kind or "estimate"
        named = {"lower": "lower bound", "upper": "upper bound"}.get(kind, kind)
        said.append(("log Z", f"{solution.log_partition:.10g} ({named})"))
    if scores:
        said.append(("scores", ", ".join(f"{name} {v:.4f}" for name, v in scores.items())))
    if solution.status not in ("unsupported", "not-installed"):
        took = f"{solution.seconds:.4g} s, {solution.iterations} iterations"
        more = f"{solution.compile_seconds:.2g} s to compile or load kernels"
        said.append(("time", f"{took} (and {more})"))
    if solution.labels is not None:
        shown = " ".join(map(str, solution.labels[:_SHOWN_LABELS]))
        if solution.labels.size > _SHOWN_LABELS:
            shown += f" ... ({solution.labels.size} in all; --out FILE writes them)"
        said += [("labels", shown), *([] if out is None else [("", f"written to {out}")])]
    if solution.marginals is not None:
        rows = [
            f"{i}: " + " ".join(f"{p:.4f}" for p in r) for i, r in enumerate(solution.marginals)
        ]
        more = f"... ({len(rows)} in all; --json prints them)"
        shown_rows = rows[:_SHOWN_MARGINALS] + [more] * (len(rows) > _SHOWN_MARGINALS)
        said += [("" if i else "marginals", row) for i, row in enumerate(shown_rows)]
    return [f"{name:<10} {text}" for name, text in said]
