"""``inference-lab compare``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import (
    print_json,
    print_note,
    print_table,
    quiet_stdout,
    resumable,
)

if TYPE_CHECKING:
    from inference_lab.harness.progress import RunProgress
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.results.records import Record, RecordStore

#: The default problems of ``inference-lab compare``: E-steps of real and synthetic data with
#: calibrated weights. Solvers differ on them, and a lower energy means a higher accuracy, because
#: the truth is near the optimum. Each ends with a proof within the second that a run may take, also
#: on slow processors: the linear programs of the largest need 0.2 s.
DEFAULT_PROBLEMS = (
    "estep(data=iris, constraints=150, weight=calibrated)",
    "estep(data=iris, constraints=150, weight=calibrated, standardise=true)",
    "estep(data=iris, constraints=600, noise=0.2, weight=calibrated, standardise=true)",
    "estep(data=wine, constraints=250, weight=calibrated, standardise=true)",
    "estep(data=breast-cancer, constraints=800, weight=calibrated, standardise=true)",
    "estep(data=digits-389, constraints=500, weight=calibrated)",
    "estep(data=gaussians-round, constraints=4500, noise=0.05, weight=calibrated)",
    "estep(data=gaussians-long, points=1000, constraints=3000, weight=calibrated)",
)
DEFAULT_SOLVERS = ("icm", "loopy-bp", "mean-field", "lp-relaxation", "ilp")


@click.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option(
    "--solver",
    "solvers",
    multiple=True,
    metavar="SPEC",
    help="A solver; may be repeated.",
)
@click.option("--seeds", type=options.COUNT, default=1, help="Number of seeds.")
@click.option(
    "--repeats",
    type=options.COUNT,
    default=1,
    help="Number of runs with the same seed.",
)
@click.option(
    "--time-limit",
    callback=lambda ctx, param, value: (
        None if value is None else (options.as_seconds(ctx, param, value),)
    ),
    metavar="S",
    help="Seconds a run may take, or none (default: 10, and 1 where no problem is named).",
)
@click.option(
    "--memory-limit",
    callback=options.as_bytes,
    default="auto",
    metavar="SIZE",
    help="Memory a run may take, such as 4GB, or none; auto shares the machine's among the jobs.",
)
@options.temperature
@options.absolute_gap
@click.option(
    "--threads",
    type=options.COUNT,
    default=1,
    help="Threads of numerical libraries in a run.",
)
@options.of_runs
@click.option(
    "--out",
    type=options.FOLDER,
    help="Folder for records and tables (default: one in runs/ for each comparison).",
)
@options.data_dir
@options.as_json
@options.quiet
@options.debug
def compare(
    problems: tuple[str, ...],
    solvers: tuple[str, ...],
    time_limit: tuple[float | None] | None,
    out: Path | None,
    data_dir: Path | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Run solvers on problems and print a table for each problem, and a summary.

    PROBLEM is a spec or a model file. The default problems are E-steps of constrained clustering
    on real and synthetic data; without --solver, a default set of solvers runs. Kernels are
    compiled before the first run, and cached. When a run ends, its record is written to runs.jsonl
    in the --out folder; runs.csv follows at the end. Recorded runs are not repeated, so the same
    command resumes after an interruption. "report" renders pages.
    """
    from inference_lab.harness.campaign import InputError
    from inference_lab.harness.comparing import compare as compare_solvers
    from inference_lab.harness.executors import ExecutorError
    from inference_lab.harness.progress import reporter
    from inference_lab.results.records import RecordStore
    from inference_lab.specs.grammar import SpecError

    settings["time_limit"] = (10.0 if problems else 1.0) if time_limit is None else time_limit[0]
    named = problems or DEFAULT_PROBLEMS
    solver_specs = solvers or DEFAULT_SOLVERS
    folder = out or _own_folder(named, solver_specs, settings)
    store = RecordStore(folder / "runs.jsonl")
    new = 0

    def summary() -> str:
        return f"{'1 new record is' if new == 1 else f'{new} new records are'} kept in {store.path}"

    with (
        resumable(summary, InputError, SpecError, stopped_by=(ExecutorError,)),
        quiet_stdout(),
        reporter(not quiet) as report_progress,
        options.executor_of_runs(settings),
    ):

        def count(event: RunProgress[Record]) -> None:
            nonlocal new
            new += event.record is not None
            report_progress(event)

        comparison = compare_solvers(
            named, solver_specs, store=store, data_dir=data_dir, progress=count, **settings
        )
        comparison.save(folder)
    if as_json:
        print_json({"folder": str(folder), "new": new, **comparison.as_dict()})
    else:
        print_table(comparison)
        if not quiet:
            _say_more(comparison, store, new, bool(problems))
    for alarm in comparison.alarms:
        print_note(f"contradiction: {alarm}")
    failed = sum(record.failed for record in comparison.records)
    if failed:
        print_note(f"{failed} of {len(comparison)} runs failed; --rerun failed makes them again")
    refused = bool(comparison.records) and all(record.refused for record in comparison.records)
    if refused:
        print_note("no solver supports any of the problems")
    if failed or refused or comparison.alarms:
        click.get_current_context().exit(1)


def _own_folder(problems: Sequence[str], solvers: Sequence[str], settings: dict[str, Any]) -> Path:
    """Return the default folder of a comparison, determined by problems, solvers and settings."""
    asked = ("seeds", "repeats", "time_limit", "temperature", "absolute_gap", "threads")
    text = json.dumps([problems, solvers, [settings[name] for name in asked]])
    return Path("runs") / f"compare-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _say_more(comparison: Comparison, store: RecordStore, new: int, named: bool) -> None:
    """Print the location of the results, and suggested next commands."""
    n_recorded = len(comparison) - new
    print_note("")
    if n_recorded > 0:
        there = "all" if not new else f"{n_recorded} of {len(comparison)}"
        print_note(
            f"{there} runs were recorded already and not made again; --rerun all makes them anew."
        )
    out = store.path.parent
    print_note(f"Records are in {out}: {store.path.name}, runs.csv.")
    print_note(f"Tables, figures and a page to look at: inference-lab report {out}")
    if not named:
        print_note(
            "Go on with your own: inference-lab compare FILE.uai --solver "
            '"loopy-bp(damping=0.5)"; see "inference-lab list problems" and "list solvers".'
        )
