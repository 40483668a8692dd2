"""``inference-lab reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import inference_lab
from inference_lab.cli.common import (
    BadInput,
    data_dir_option,
    debug,
    one_line,
    say,
)


@click.command()
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
@data_dir_option
@debug
def reproduce(
    study: str, quick: bool, jobs: int, out: Path | None, render: bool, data_dir: Path | None
) -> None:
    """Run a study of clustering and render its report.

    STUDY is the name of a folder under reports/, or a path to one with a study.toml. Fits that
    the records hold already are not run again.
    """
    from inference_lab.datasets import DataFormatError, DataNotFoundError
    from inference_lab.harness.progress import bar
    from inference_lab.studies import StudyError, load_study, render_study, run_study

    folder = Path(study)
    if not (folder / "study.toml").is_file() and not folder.is_file():
        # Those of the working directory first, then those of the repository this runs from.
        home = Path(inference_lab.__file__).parent.parent
        folders = [Path("reports") / study, home / "reports" / study]
        found = [place for place in folders if (place / "study.toml").is_file()]
        if not found:
            places = ", ".join(f"{place}/study.toml" for place in (study, *folders))
            raise BadInput(f"{study} is no study: there is none of {places}")
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
        raise BadInput(one_line(problem)) from problem
    failed = sum(record.status != "ok" for record in records)
    click.echo(page)
    if failed:
        say(f"{failed} of {len(records)} fits failed; see {page}")
        click.get_current_context().exit(1)
