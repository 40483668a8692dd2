"""What the commands share: errors, streams, options."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inference_lab.specs.extras import MissingExtra

if TYPE_CHECKING:
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.tables import Part
    from inference_lab.results.records import Record


class BadInput(click.ClickException):
    """Input that cannot be used: one line on standard error, exit code 2."""

    exit_code = 2


class Group(click.Group):
    """A command group that turns what commands raise into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with _ended_like_ctrl_c(), _said_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except MissingExtra as problem:
            raise BadInput(str(problem)) from problem
        except Exception as problem:
            if ctx.meta.get("debug"):
                raise
            say(f"error: {type(problem).__name__}: {one_line(problem)}")
            say("(add --debug to see where)")
            ctx.exit(1)


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Let a request to end (of a batch queue, of a terminal that closes) do what Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Only the main thread may, and only where nobody has asked for something else.
        if number is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _said_warnings() -> Iterator[None]:
    """Show warnings of ours as lines of their own, without the code that they come from."""
    shown = warnings.showwarning

    def show(message: Any, category: Any, *more: Any, **named: Any) -> None:
        # By its name, since loading it takes longer than many a command.
        if category.__name__ == "RecordWarning":
            say(f"note: {message}")
        else:
            shown(message, category, *more, **named)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


#: What can be done where the system refuses a file.
_ADVICE = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "choose a folder that may be written to, or change what is allowed there",
    ),
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "make room there, or choose another folder",
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST, errno.EISDIR),
        "there is a file where a folder is wanted, or the other way round: choose another name",
    ),
}


def one_line(problem: BaseException) -> str:
    """Return what an exception says on one line, and what can be done where that is known.

    Below a spec that cannot be read, a caret points at the place.
    """
    from inference_lab.specs.grammar import SpecSyntaxError

    for each in (problem, problem.__cause__):
        if isinstance(each, SpecSyntaxError):
            return str(each)
    text = " ".join(str(problem).split()) or type(problem).__name__
    system = problem if isinstance(problem, OSError) else problem.__cause__
    if isinstance(system, OSError) and system.errno in _ADVICE and system.filename is not None:
        return f"{text}: {_ADVICE[system.errno]}"
    return text


def say(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True)


@contextmanager
def as_input() -> Iterator[None]:
    """Treat what goes wrong inside as bad input."""
    from inference_lab.harness.campaign import InputError
    from inference_lab.results.records import RecordError
    from inference_lab.specs.grammar import SpecError

    try:
        yield
    except (InputError, SpecError, RecordError, OSError) as problem:
        if click.get_current_context().meta.get("debug"):
            raise
        raise BadInput(one_line(problem)) from problem


@contextmanager
def quiet_stdout() -> Iterator[Callable[[str], None]]:
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


def print_json(document: dict[str, Any]) -> None:
    """Write a document to standard output."""
    click.echo(json.dumps(document, allow_nan=False, indent=1))


def print_table(comparison: Comparison, part: Part = "all") -> None:
    """Write a comparison to standard output, in colours and fitted if it is a terminal."""
    from inference_lab.reporting.tables import plain_text, rich_table

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(rich_table(comparison, console.width, part))
    else:
        click.echo(plain_text(comparison, part=part), nl=False)


def problem_text(records: Sequence[Record]) -> str:
    """Return the table of a problem as it goes to a terminal, or to a file."""
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.tables import plain_text

    # Standard output is that of the process here, whatever stands in its place meanwhile.
    out = sys.__stdout__
    width = shutil.get_terminal_size().columns if out is not None and out.isatty() else None
    return plain_text(Comparison(records), width, "problems")


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Show how far the runs are, unless `quiet`; yield what is told of them."""
    if quiet:
        yield lambda event: None
    else:
        from inference_lab.harness.progress import display

        with display() as tell:
            yield tell


# ---------------------------------------------------------------------- options


def _number(value: str, expected: str, given: str | None = None) -> float:
    """Read a number that is not negative, which may be part of what was `given`."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise click.BadParameter(f"{(given or value)!r} is not {expected}")
    return number


def as_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
    """Read a positive number of seconds, or ``none``."""
    if value.lower() in ("none", "inf"):
        return None
    expected = "a positive number of seconds, or none"
    seconds = _number(value, expected)
    if seconds == 0:
        raise click.BadParameter(f"{value!r} is not {expected}")
    return seconds


_UNITS = {
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
    size = int(_number(number, expected, value) * _UNITS[text[len(number) :]])
    if size == 0:
        raise click.BadParameter(f"{value!r} is not {expected}")
    return size


def as_temperature(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a finite number that is not negative."""
    return _number(value, "a number of at least 0")


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["debug"] = True  # shared by the contexts of the group and the command


debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of real data (default: $INFERENCE_LAB_DATA).",
)
cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Scheduler of a Dask cluster that makes the runs, such as tcp://head:8786.",
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes. Timings are cleanest with 1.",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress report.")
rerun_option = click.option(
    "--rerun",
    type=click.Choice(["failed", "timeout", "all"]),
    help="Make these again although there are records of them.",
)
shard_option = click.option(
    "--shard", metavar="I/N", help="Make only the I-th of N equal shares of the runs."
)
temperature_option = click.option(
    "--temperature",
    callback=as_temperature,
    default="0",
    metavar="T",
    show_default=True,
    help="0: best labelling; above: marginals.",
)
