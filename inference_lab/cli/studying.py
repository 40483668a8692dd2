"""``inference-lab reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import print_note, quiet_stdout, resumable

if TYPE_CHECKING:
    from inference_lab.results.records import RunRecord
    from inference_lab.studies import SolverStudy, Study


@click.command()
@click.argument("study", metavar="STUDY")
@click.option("--quick", is_flag=True, help="The quick form of the study: a minute or two.")
@options.of_runs
@click.option(
    "--out",
    type=options.FOLDER,
    help="Folder for records and report (default: the study's own; runs/STUDY with --quick, and "
    "for studies that come with the library).",
)
@click.option("--render", is_flag=True, help="Run nothing; render the existing records.")
@click.option(
    "--trust",
    is_flag=True,
    help="Run the Python code of others that the study names.",
)
@options.data_dir
@options.quiet
@options.debug
def reproduce(
    study: str,
    quick: bool,
    out: Path | None,
    render: bool,
    trust: bool,
    data_dir: Path | None,
    jobs: int,
    quiet: bool,
    **settings: Any,
) -> None:
    """Run a study and render its report; recorded runs are not repeated.

    STUDY is a folder with a study.toml, the name of a folder under reports/, or of a study that
    comes with the library. Paths in it are relative to its folder. Without --trust, Python files
    and modules that it names are refused, unless it comes with the library.
    """
    missing = [name for name in ("studies", "reports") if not find_spec(f"inference_lab.{name}")]
    if missing:
        raise click.UsageError(
            f"this installation of inference-lab has no {' and no '.join(missing)}; install the "
            "whole package from a clone of its repository: pip install ."
        )
    from inference_lab.data.datasets import DataFormatError
    from inference_lab.data.folders import DataNotFoundError, data_folder
    from inference_lab.harness.executors import ExecutorError
    from inference_lab.harness.progress import reporter
    from inference_lab.registry.user_code import user_code_refused
    from inference_lab.reporting.writing import check_folder
    from inference_lab.results.json_lines import RecordError
    from inference_lab.studies import SolverStudy, StudyError, find_study, load_study

    bad_input = (StudyError, DataNotFoundError, DataFormatError, RecordError)
    with resumable(
        lambda: "recorded runs are kept",
        *bad_input,
        FileExistsError,
        stopped_by=(ExecutorError,),
    ):
        place, ours = find_study(study)
        definition = load_study(place)
        if quick:
            definition = definition.quickly()
        if out is None:
            out = Path("runs") / definition.name if quick or ours else place
        settings |= {
            "jobs": 0 if render else jobs,
            "data_dir": str(data_folder(data_dir).absolute()),
        }
        check_folder(out)
        make = _solvers if isinstance(definition, SolverStudy) else _clustering
        target = out.absolute()
        with (
            quiet_stdout(),
            reporter(not quiet) as report_progress,
            nullcontext() if trust or ours else user_code_refused(),
            # The study's folder is entered because specs name files relative to it, and records
            # keep these names.
            chdir(place),
            options.executor_of_runs(settings),
        ):
            settings["progress"] = report_progress
            page, failed, alarms = make(definition, target, settings)  # type: ignore[arg-type]
    page = out / page.name
    click.echo(page)
    for alarm in alarms:
        print_note(f"contradiction: {alarm}")
    if failed:
        print_note(f"{failed}; see {page}")
    if failed or alarms:
        click.get_current_context().exit(1)


def _solvers(
    study: SolverStudy, out: Path, settings: dict[str, Any]
) -> tuple[Path, str, tuple[str, ...]]:
    """Run a study of solvers; return the page, a message on failed runs, and contradictions."""
    from inference_lab.studies import render_comparison, run_comparison

    comparison = run_comparison(study, out, **settings)
    document = render_comparison(study, comparison, out)
    return out / "index.html", _failed(comparison.records, "runs"), document.alarms


def _clustering(
    study: Study, out: Path, settings: dict[str, Any]
) -> tuple[Path, str, tuple[str, ...]]:
    """Run a clustering study; return the page, a message on failed fits, and no contradictions."""
    from inference_lab.studies import render_study, run_study

    records = run_study(study, out, **settings)
    return render_study(study, records, out), _failed(records, "fits"), ()


def _failed(records: Sequence[RunRecord], what: str) -> str:
    """Return a message with the number of failed runs or fits, empty if none failed."""
    failed = sum(record.failed for record in records)
    return f"{failed} of {len(records)} {what} failed" if failed else ""
