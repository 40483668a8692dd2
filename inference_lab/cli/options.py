"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

#: Types of arguments: a count, a file or a folder for output.
COUNT = click.IntRange(min=1)
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def _number(value: str, expected: str, text: str, *, zero: bool = False) -> float:
    """Read a finite number above 0, or with `zero` from 0 on; errors quote `text`."""
    with suppress(ValueError):
        number = float(value)
        if 0 < number < math.inf or (zero and number == 0):
            return number
    raise click.BadParameter(f"{text!r} is not {expected}")


def as_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
    """Read a positive number of seconds, or ``none``."""
    if value.lower() in ("none", "inf"):
        return None
    return _number(value, "a positive number of seconds, or none", value)


_UNITS: dict[str, int] = {
    "": 1,
    **{"bkmgt"[n] + "b" * (n > 0): 1000**n for n in range(5)},
    **{"kmgt"[n] + "ib": 1024 ** (n + 1) for n in range(4)},
}


def as_bytes(ctx: click.Context, param: click.Parameter, value: str) -> int | str | None:
    """Read a positive size such as ``4GB``, ``auto``, or ``none``."""
    text = value.lower().replace(" ", "")
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    number = text.rstrip("bikmgt")
    expected = "a size such as 4GB or 4GiB, auto, or none"
    if text[len(number) :] not in _UNITS:
        raise click.BadParameter(f"{value!r} is not {expected}")
    return max(1, int(_number(number, expected, value) * _UNITS[text[len(number) :]]))


def as_non_negative(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a finite number that is not negative."""
    return _number(value, "a number of at least 0", value, zero=True)


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["debug"] = True  # shared by the contexts of the group and the command


seed = click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the run.")
debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help='Folder of real data (default: $INFERENCE_LAB_DATA, or else where "data fetch" puts it).',
)
quiet = click.option("--quiet", is_flag=True, help="No progress report.")
temperature = click.option(
    "--temperature",
    callback=as_non_negative,
    default="0",
    metavar="T",
    help="0: best labelling; above: marginals.",
)


absolute_gap = click.option(
    "--absolute-gap",
    callback=as_non_negative,
    default="0",
    metavar="G",
    help="Gap between energy and bound that counts as a proof, in the unit of the costs.",
)


def of_runs(command: Any) -> Any:
    """Add the options of commands with many runs."""
    for option in (
        click.option(
            "--rerun",
            multiple=True,
            metavar="failed|timeout|all|SOLVER",
            help="Make these again although there are records of them; those of a solver, which a "
            "study calls by the label of its method, are thrown away before. May be repeated.",
        ),
        click.option(
            "--shard", metavar="I/N", help="Make only the I-th of N equal shares of the runs."
        ),
        click.option(
            "--jobs",
            type=COUNT,
            default=1,
            help="Number of processes. Timings are cleanest with 1.",
        ),
        click.option(
            "--dask",
            metavar="ADDRESS|local",
            help="Scheduler of a Dask cluster that makes the runs, such as tcp://head:8786; local "
            "starts one here, with --jobs workers.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def executor_of_runs(settings: dict[str, Any]) -> Iterator[None]:
    """Replace the setting ``dask`` by an executor, which is closed after the block."""
    address = settings.pop("dask")
    if address is None:
        yield
        return
    from inference_lab.harness.dask_cluster import DaskCluster

    jobs = settings["jobs"]
    if address != "local" and jobs > 1:
        raise click.UsageError(
            "--jobs is the number of workers of --dask local; at an address, the cluster has its "
            "workers already"
        )
    with DaskCluster(address, jobs) as settings["executor"]:
        settings["jobs"] = min(jobs, 1)
        yield
