"""The command line: ``inference-lab compare``, ``solve``, ``list`` and ``check``.

Exit codes: 0 when the question was answered; 1 when runs failed, results contradict each other or
checks failed; 2 for a wrong command line or unreadable input; 130 after Ctrl-C. With ``--json``
standard output holds one JSON document and nothing else.

Only click is imported here; what a command needs is imported when it runs.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab

if TYPE_CHECKING:
    from inference_lab.comparison import Comparison
    from inference_lab.contract import Solution
    from inference_lab.problem import Problem

__all__ = ["main"]

#: What ``inference-lab compare`` compares when nothing is named: E-steps of real data with few
#: and many constraints, clean and with a share of them flipped; some are solved to proved
#: optimality in milliseconds, on some the methods differ and no bound is tight.
DEFAULT_PROBLEMS = (
    "estep(data=iris, constraints=30)",
    "estep(data=iris, constraints=1000, noise=0.2)",
    "estep(data=wine, constraints=50)",
    "estep(data=wine, constraints=200, noise=0.2)",
    "estep(data=wine, constraints=400, noise=0.3)",
    "estep(data=breast-cancer, constraints=1000, noise=0.2)",
    "estep(data=digits-389, constraints=500, noise=0.1)",
    "estep(data=digits-389, constraints=1000, noise=0.2)",
)
#: Added where the data folder has the file.
DEFAULT_FROM_FOLDER = ("letters-ijl", "estep(data=letters-ijl, constraints=500, noise=0.1)")
DEFAULT_SOLVERS = ("icm", "loopy-bp", "mean-field", "lp-relaxation", "ilp")

#: Labels and marginals are shown for this many variables; ``--json`` and ``--out`` give all.
_SHOWN_LABELS = 40
_SHOWN_MARGINALS = 10


# ---------------------------------------------------------------------- errors and streams


class _BadInput(click.ClickException):
    """Input that cannot be used: one line on standard error, exit code 2."""

    exit_code = 2


class _Group(click.Group):
    """A command group that turns what commands raise into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say("interrupted")
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if ctx.meta.get("debug"):
                raise
            _say(f"error: {type(problem).__name__}: {_one_line(problem)}")
            _say("(add --debug to see where)")
            ctx.exit(1)


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


def _say(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True)


@contextmanager
def _input() -> Iterator[None]:
    """Treat what goes wrong inside as bad input."""
    from inference_lab.comparison import InputError
    from inference_lab.records import RecordError
    from inference_lab.spec import SpecError

    try:
        yield
    except (InputError, SpecError, RecordError, OSError) as problem:
        if click.get_current_context().meta.get("debug"):
            raise
        raise _BadInput(_one_line(problem)) from problem


@contextmanager
def _quiet_stdout() -> Iterator[Callable[[str], None]]:
    """Send what anything inside writes to standard output to standard error instead.

    Also what is written past Python: solvers may be C libraries and other processes. Yields a
    function that writes a line to standard output itself.
    """
    out = sys.stdout
    out.flush()
    try:
        saved = os.dup(1)
    except OSError:  # standard output is closed
        saved = -1

    def close() -> None:
        if saved >= 0:
            os.dup2(2, 1)

    def reopen() -> None:
        if saved >= 0:
            os.dup2(saved, 1)

    def write(text: str) -> None:
        reopen()
        try:
            click.echo(text, file=out)
        finally:
            close()

    try:
        close()
        with redirect_stdout(sys.stderr):
            yield write
    finally:
        reopen()
        if saved >= 0:
            os.close(saved)


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, allow_nan=False, indent=1))


def _print_table(comparison: Comparison) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(comparison.table(width=console.width))
    else:
        click.echo(comparison.to_text(), nl=False)


# ---------------------------------------------------------------------- options


def _number(value: str, expected: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise click.BadParameter(f"{value!r} is not {expected}")
    return number


def _as_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
    """Read a positive number of seconds, or ``none``."""
    if value.lower() in ("none", "inf"):
        return None
    expected = "a positive number of seconds, or none"
    seconds = _number(value, expected)
    if seconds == 0:
        raise click.BadParameter(f"{value!r} is not {expected}")
    return seconds


def _as_temperature(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a finite number that is not negative."""
    return _number(value, "a number of at least 0")


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["debug"] = True  # shared by the contexts of the group and the command


_debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
_data_dir = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of real data (default: $INFERENCE_LAB_DATA).",
)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(inference_lab.__version__, prog_name="inference-lab")
@_debug
def main() -> None:
    """Compare inference methods for discrete energies: one energy, one clock, a bound in every row.

    Solvers and problems are named by specs such as "loopy-bp(damping=0.5)" and
    "estep(data=iris, constraints=200, noise=0.1)"; "list" shows the names and their settings.
    A solver of your own is named by its file: "my_solver.py" or "my_solver.py:Class(setting=1)".
    """


# ---------------------------------------------------------------------- compare


@main.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option(
    "--solver", "solvers", multiple=True, metavar="SPEC", help="A solver; may be repeated."
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Number of seeds."
)
@click.option(
    "--time-limit",
    callback=_as_seconds,
    default="10",
    show_default=True,
    metavar="S",
    help="Seconds a run may take, or none.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes. Timings are cleanest with 1.",
)
@click.option(
    "--temperature",
    callback=_as_temperature,
    default="0",
    metavar="T",
    show_default=True,
    help="0: best labelling; above: marginals.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/compare"),
    show_default=True,
    help="Folder for records and tables.",
)
@_data_dir
@_json
@click.option("--quiet", is_flag=True, help="No progress report.")
@_debug
def compare(
    problems: tuple[str, ...],
    solvers: tuple[str, ...],
    seeds: int,
    time_limit: float | None,
    jobs: int,
    temperature: float,
    out: Path,
    data_dir: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run solvers on problems and print one table.

    PROBLEM is a spec or a model file. Without any, E-steps of constrained clustering on real
    data are compared; without --solver, the solvers made for them. Each record is written to
    runs.jsonl in the --out folder the moment its run ends; runs.csv, table.csv and table.md
    follow at the end.
    """
    from inference_lab.comparison import InputError
    from inference_lab.comparison import compare as compare_solvers
    from inference_lab.records import RecordStore
    from inference_lab.spec import SpecError

    store = RecordStore(out / "runs.jsonl")
    before = _count_lines(store.path)
    try:
        with _quiet_stdout(), _progress(quiet) as report:
            comparison = compare_solvers(
                problems or _default_problems(data_dir),
                solvers or DEFAULT_SOLVERS,
                seeds=seeds,
                time_limit=time_limit,
                jobs=jobs,
                store=store,
                temperature=temperature,
                data_dir=data_dir,
                progress=report,
            )
            comparison.save(out)
    except (InputError, SpecError) as problem:
        if click.get_current_context().meta.get("debug"):
            raise
        raise _BadInput(_one_line(problem)) from problem
    except KeyboardInterrupt:
        kept = _count_lines(store.path) - before
        records = "1 record is" if kept == 1 else f"{kept} records are"
        _say(f"interrupted; {records} kept in {store.path}")
        click.get_current_context().exit(130)
    if as_json:
        _print_json({"schema": 1, "folder": str(out), **comparison.as_dict()})
    else:
        _print_table(comparison)
        if not quiet:
            _say(f"\nRecords and tables are in {out}: runs.jsonl, runs.csv, table.csv, table.md.")
            if not problems:
                _say(
                    "Go on with your own: inference-lab compare FILE.uai --solver "
                    '"loopy-bp(damping=0.5)"; see "inference-lab list problems" and "list solvers".'
                )
    for alarm in comparison.alarms:
        _say(f"contradiction: {alarm}")
    failed = sum(record.failed for record in comparison.records)
    if failed:
        _say(f"{failed} of {len(comparison)} runs failed")
    refused = all(record.status == "unsupported" for record in comparison.records)
    if refused:
        _say("no solver supports any of the problems")
    if failed or refused or comparison.alarms:
        click.get_current_context().exit(1)


def _count_lines(path: Path) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as stream:
        return sum(1 for line in stream if line.endswith(b"\n"))


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Any], None]]:
    if quiet:
        yield lambda event: None
    else:
        from inference_lab.progress import display

        with display() as report:
            yield report


def _default_problems(data_dir: Path | None) -> list[str]:
    """Return the problems to compare on when none is named."""
    from inference_lab.datasets import DataNotFoundError, load

    name, spec = DEFAULT_FROM_FOLDER
    try:
        load(name, data_dir)
    except DataNotFoundError:
        return list(DEFAULT_PROBLEMS)
    return [*DEFAULT_PROBLEMS, spec]


# ---------------------------------------------------------------------- solve


@main.command()
@click.argument("file")
@click.option("--solver", default="loopy-bp", show_default=True, metavar="SPEC", help="The solver.")
@click.option(
    "--time-limit",
    callback=_as_seconds,
    default="none",
    show_default=True,
    metavar="S",
    help="Seconds.",
)
@click.option(
    "--temperature",
    callback=_as_temperature,
    default="0",
    metavar="T",
    show_default=True,
    help="0: best labelling; above: marginals.",
)
@click.option(
    "--evidence",
    type=click.Path(dir_okay=False, path_type=Path),
    help="UAI evidence file, for a model file.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the run."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File for the labels, one a line.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File for the labels as an image (.png, .pgm, .ppm), where they are an image.",
)
@_data_dir
@_json
@_debug
def solve(
    file: str,
    solver: str,
    time_limit: float | None,
    temperature: float,
    evidence: Path | None,
    seed: int,
    out: Path | None,
    picture: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run one solver on FILE, a model file or a problem's spec."""
    from inference_lab.comparison import load_problem
    from inference_lab.registry import as_solver
    from inference_lab.solving import solve as solve_graph

    with _input(), _quiet_stdout():
        method = as_solver(solver)
        if out is not None and not out.absolute().parent.is_dir():
            raise NotADirectoryError(f"cannot write {out}: its folder does not exist")
        if evidence is None:
            problem = load_problem(file, data_dir)
        else:
            problem = _observed(file, evidence, data_dir)
        if picture is not None:
            _check_picture(problem, picture)
    with _quiet_stdout():
        solution = solve_graph(
            problem.graph, method, seed=seed, time_limit=time_limit, temperature=temperature
        )
        scores = {} if solution.labels is None else problem.score(solution.labels)
    if out is not None and solution.labels is not None:
        with _input():
            out.write_text("".join(f"{label}\n" for label in solution.labels), encoding="ascii")
    if picture is not None and solution.labels is not None:
        from inference_lab.images import write_image

        shown = problem.picture(solution.labels)
        if shown is not None:
            with _input():
                write_image(picture, shown)
    if as_json:
        _print_json(_solution_document(problem, solution, scores))
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
    """Refuse before the run what could not be shown or written after it."""
    import numpy as np

    from inference_lab.images import check_picture_path

    try:
        check_picture_path(path)
    except ValueError as reason:
        raise _BadInput(str(reason)) from reason
    if problem.picture(np.zeros(problem.graph.n_variables, dtype=np.int64)) is None:
        raise _BadInput(f"{problem.name} is not about an image: --picture has nothing to show")


def _observed(file: str, evidence: Path, data_dir: Path | None) -> Problem:
    """Read a model file with evidence."""
    from inference_lab.comparison import load_problem
    from inference_lab.registry import problem_registry
    from inference_lab.spec import build

    family = problem_registry.load("file")
    return load_problem(build(family, "file", {"path": file, "evidence": str(evidence)}), data_dir)


def _solution_document(
    problem: Problem, solution: Solution, scores: dict[str, float]
) -> dict[str, Any]:
    from inference_lab.records import jsonable

    marginals = solution.marginals
    return {
        "schema": 1,
        "problem": problem.name,
        "n_variables": problem.graph.n_variables,
        "solver": solution.solver,
        "seed": solution.seed,
        "temperature": solution.temperature,
        "status": solution.status.value,
        "sentence": solution.status.sentence,
        "message": solution.message,
        **jsonable(
            {
                "energy": solution.energy,
                "claimed_energy": solution.claimed_energy,
                "lower_bound": solution.lower_bound,
                "gap": solution.gap,
                "log_partition": solution.log_partition,
                "log_partition_kind": solution.log_partition_kind,
                "iterations": solution.iterations,
                "seconds": solution.seconds,
                "compile_seconds": solution.compile_seconds,
                "scores": scores,
                "diagnostics": dict(solution.diagnostics),
            }
        ),
        "labels": None if solution.labels is None else solution.labels.tolist(),
        "marginals": (
            None if marginals is None else [jsonable([float(p) for p in row]) for row in marginals]
        ),
    }


def _solution_lines(
    problem: Problem, solution: Solution, scores: dict[str, float], out: Path | None
) -> list[str]:
    from inference_lab.comparison import gap_percent

    def line(name: str, text: str) -> None:
        lines.append(f"{name:<10} {text}")

    lines: list[str] = []
    line("problem", f"{problem.name}: {problem.graph!r}")
    line("solver", f"{solution.solver}, seed {solution.seed}, temperature {solution.temperature:g}")
    line("status", f"{solution.status.value}: {solution.status.sentence}")
    if solution.message:
        line("", solution.message)
    if solution.labels is not None:
        line("energy", f"{solution.energy:.10g}")
    if math.isfinite(solution.lower_bound):
        percent = gap_percent(solution.energy, solution.lower_bound)
        line("bound", f"{solution.lower_bound:.10g}")
        if percent is not None:
            line("gap", f"{solution.gap:.6g} ({percent:.4g} %)")
    if solution.log_partition is not None:
        kind = solution.log_partition_kind or "estimate"
        named = {"lower": "lower bound", "upper": "upper bound"}.get(kind, kind)
        line("log Z", f"{solution.log_partition:.10g} ({named})")
    if scores:
        line("scores", ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    if solution.status != "unsupported":
        line(
            "time",
            f"{solution.seconds:.4g} s, {solution.iterations} iterations "
            f"(and {solution.compile_seconds:.2g} s to compile or load kernels)",
        )
    if solution.labels is not None:
        shown = " ".join(str(label) for label in solution.labels[:_SHOWN_LABELS])
        if solution.labels.size > _SHOWN_LABELS:
            shown += f" ... ({solution.labels.size} in all; --out FILE writes them)"
        line("labels", shown)
        if out is not None:
            line("", f"written to {out}")
    if solution.marginals is not None:
        for i, row in enumerate(solution.marginals[:_SHOWN_MARGINALS]):
            line("marginals" if i == 0 else "", f"{i}: " + " ".join(f"{p:.4f}" for p in row))
        if len(solution.marginals) > _SHOWN_MARGINALS:
            line("", f"... ({len(solution.marginals)} in all; --json prints them)")
    return lines


# ---------------------------------------------------------------------- list


@main.command("list")
@click.argument("kind", type=click.Choice(["solvers", "problems"]))
@click.argument("name", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Show the settings of each.")
@_json
@_debug
def list_names(kind: str, name: str | None, verbose: bool, as_json: bool) -> None:
    """List the solvers or problems there are, or show the settings of one by NAME."""
    from inference_lab.registry import problem_registry, solver_registry

    registry: Any = solver_registry if kind == "solvers" else problem_registry
    if name is not None:
        with _input(), _quiet_stdout():
            described = {name: _described(registry, name)}
    else:
        with _quiet_stdout():
            described = {
                each: {
                    "description": line,
                    **(_described_if_loads(registry, each) if verbose else {}),
                }
                for each, line in registry.available().items()
            }
    if as_json:
        _print_json({"schema": 1, kind: described})
        return
    if name is not None:
        missing = registry.missing(name)
        click.echo(f"{name} ({missing})" if missing else name)
        click.echo(f"\n{described[name]['documentation']}\n\nSettings")
        _print_settings(described[name]["settings"])
        return
    width = max((len(each) for each in described), default=0)
    for each, about in described.items():
        click.echo(f"{each:<{width}}  {about['description']}")
        if "settings" in about:
            _print_settings(about["settings"])
        elif verbose:
            click.echo(f"    cannot be loaded: {about['reason']}")
    if not verbose:
        _say(f"\nSettings of one: inference-lab list {kind} NAME")


def _print_settings(settings: list[dict[str, Any]]) -> None:
    if not settings:
        click.echo("    (none)")
    for setting in settings:
        default = "required" if setting["required"] else f"default {setting['default']}"
        click.echo(f"    {setting['name']}: {setting['type']}, {default}")


def _described_if_loads(registry: Any, name: str) -> dict[str, Any]:
    """Do `_described`; one module that cannot be loaded must not hide the others."""
    try:
        return _described(registry, name)
    except Exception as reason:
        return {"reason": f"{type(reason).__name__}: {_one_line(reason)}"}


def _described(registry: Any, name: str) -> dict[str, Any]:
    """Return the documentation and the settings of a class that specs can name."""
    import inspect
    import typing
    from dataclasses import MISSING, fields

    from inference_lab.spec import format_value

    cls = registry.load(name)
    documentation = inspect.getdoc(cls) or ""
    hints = typing.get_type_hints(cls)
    settings = []
    for field in fields(cls):
        if not field.init:
            continue
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        required = default is MISSING
        settings.append(
            {
                "name": field.name,
                "type": _type_name(hints[field.name]),
                "required": required,
                "default": None if required else format_value(default),
            }
        )
    return {"documentation": documentation, "settings": settings}


def _type_name(hint: Any) -> str:
    """Return a type as users write its values."""
    import types
    import typing

    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return " | ".join(str(choice) for choice in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type_name(option) for option in typing.get_args(hint))
    names = {int: "integer", float: "number", bool: "true | false", str: "text"}
    return "none" if hint is type(None) else names.get(hint, getattr(hint, "__name__", str(hint)))


# ---------------------------------------------------------------------- check


@main.command()
@click.argument("solver", metavar="FILE|SPEC")
@_json
@_debug
def check(solver: str, as_json: bool) -> None:
    """Put a solver through the conformance suite.

    FILE|SPEC is a Python file with a solver in it (FILE:Class if there are several), or the spec
    of a registered one. Exit code 0 only if every check that applies passes.
    """
    from inference_lab.conformance import Verdict, run_checks
    from inference_lab.registry import as_solver

    with _input(), _quiet_stdout():
        method = as_solver(solver)

    with _quiet_stdout() as write:

        def tell(result: Any) -> None:
            detail = f"\n    {result.message}" if result.verdict == Verdict.FAILED else ""
            color = {Verdict.PASSED: "green", Verdict.FAILED: "red"}.get(result.verdict)
            mark = click.style(f"{result.verdict:<14}", fg=color)
            (_say if as_json else write)(f"{mark} {result.name}: {result.claim}{detail}")

        results = run_checks(method, report=tell)
    counts = {verdict: sum(r.verdict == verdict for r in results) for verdict in Verdict}
    if as_json:
        _print_json(
            {
                "schema": 1,
                "solver": method.spec,
                "counts": {verdict.value: n for verdict, n in counts.items()},
                "checks": [
                    {
                        "name": r.name,
                        "claim": r.claim,
                        "verdict": r.verdict.value,
                        "message": r.message,
                        "seconds": r.seconds,
                    }
                    for r in results
                ],
            }
        )
    else:
        said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
        click.echo(f"{method.spec}: {said}")
    if counts[Verdict.FAILED] or not counts[Verdict.PASSED]:
        click.get_current_context().exit(1)


# ---------------------------------------------------------------------- reproduce


@main.command()
@click.argument("study", metavar="STUDY")
@click.option("--quick", is_flag=True, help="The quick form of the study: a minute or two.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes. Timings are cleanest with 1.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for records and report (default: the study's own; with --quick, runs/STUDY).",
)
@click.option("--render", is_flag=True, help="Run nothing: render what the records hold.")
@_data_dir
@_debug
def reproduce(
    study: str, quick: bool, jobs: int, out: Path | None, render: bool, data_dir: Path | None
) -> None:
    """Run a study of clustering and render its report.

    STUDY is the name of a folder under reports/, or a path to one with a study.toml. Fits that
    the records hold already are not run again.
    """
    from inference_lab.datasets import DataFormatError, DataNotFoundError
    from inference_lab.progress import bar
    from inference_lab.studies import StudyError, load_study, render_study, run_study

    folder = Path(study)
    if not (folder / "study.toml").is_file() and not folder.is_file():
        # Those of the working directory first, then those of the repository this runs from.
        home = Path(inference_lab.__file__).parent.parent
        folders = [Path("reports") / study, home / "reports" / study]
        found = [place for place in folders if (place / "study.toml").is_file()]
        if not found:
            places = ", ".join(f"{place}/study.toml" for place in (study, *folders))
            raise _BadInput(f"{study} is no study: there is none of {places}")
        folder = found[0]
    try:
        definition = load_study(folder)
        if quick:
            definition = definition.quickly()
        if out is None:
            out = Path("runs") / definition.name if quick else folder
        with bar() as report:

            def tell(step: Any) -> None:
                record = step.record
                report(
                    step.done,
                    step.total,
                    step.failed,
                    f"{record.method}  {record.data}  {record.constraints:g} constraints",
                )

            where = None if data_dir is None else str(data_dir)
            if render:
                jobs = 0
            records = run_study(definition, out, jobs=jobs, data_dir=where, on_step=tell)
        page = render_study(definition, records, out)
    except (StudyError, DataNotFoundError, DataFormatError) as problem:
        raise _BadInput(_one_line(problem)) from problem
    failed = sum(record.status != "ok" for record in records)
    click.echo(page)
    if failed:
        _say(f"{failed} of {len(records)} fits failed; see {page}")
        click.get_current_context().exit(1)
