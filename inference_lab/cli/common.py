"""Error handling and streams of all commands."""

from __future__ import annotations

import codecs
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

import click

from inference_lab.specs.extras import MissingExtra

if TYPE_CHECKING:
    from inference_lab.reporting.comparison import Comparison


class BadInput(click.ClickException):
    """Invalid input: one line on standard error, exit code 2."""

    exit_code = 2


#: ASCII text for characters that consoles of older encodings lack; others become escapes.
_ASCII = {"…": "...", "≥": ">=", "≤": "<=", "±": "+-"}


def _replaced(problem: UnicodeError) -> tuple[str | bytes, int]:
    """Return ASCII text for the characters that an encoding lacks, and the place after them."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    lacking = problem.object[problem.start : problem.end]
    shown = (_ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in lacking)
    return "".join(shown), problem.end


codecs.register_error("inference_lab.replaced", _replaced)


def _accept_all_characters() -> None:
    """Make the streams replace what their encoding lacks, so that no command dies of a name."""
    for stream in (sys.stdout, sys.stderr):
        # Streams that replace sys.stdout, in notebooks and tests, may lack the method.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="inference_lab.replaced")


class Group(click.Group):
    """A command group that converts exceptions of commands to one line and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the command line and run the command."""
        _accept_all_characters()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with _ended_like_ctrl_c(), _said_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            print_note("interrupted")
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except MissingExtra as problem:
            raise BadInput(str(problem)) from problem
        except Exception as problem:
            if ctx.meta.get("debug"):
                raise
            print_note(f"error: {type(problem).__name__}: {one_line(problem)}")
            print_note("(add --debug to see where)")
            ctx.exit(1)


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM and SIGHUP, from batch queues or closed terminals."""
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Only the main thread may set handlers, and handlers that were set before are kept.
        if number is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _said_warnings() -> Iterator[None]:
    """Print warnings about records as notes, without the source line that raised them."""
    shown = warnings.showwarning

    def show(message: Any, category: Any, *more: Any, **named: Any) -> None:
        # Compared by name, because its import takes longer than many commands.
        if category.__name__ == "RecordWarning":
            print_note(f"note: {message}")
        else:
            shown(message, category, *more, **named)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


def one_line(problem: BaseException) -> str:
    """Return the message of an exception on one line.

    The message of a spec's syntax error keeps its lines, with a caret below the place.
    """
    from inference_lab.specs.grammar import SpecSyntaxError

    for error in (problem, problem.__cause__):
        if isinstance(error, SpecSyntaxError):
            return str(error)
    return " ".join(str(problem).split()) or type(problem).__name__


def print_note(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True)


def reporter(quiet: bool) -> Callable[[str], None]:
    """Return `print_note`, or with `quiet` a function without effect."""
    return (lambda text: None) if quiet else print_note


def _refuse(problem: Exception) -> NoReturn:
    """Raise an exception as `BadInput`, or unchanged with ``--debug``."""
    if click.get_current_context().meta.get("debug"):
        raise problem
    raise BadInput(one_line(problem)) from problem


@contextmanager
def as_input(*more: type[Exception]) -> Iterator[None]:
    """Raise errors of input in the block as `BadInput`."""
    from inference_lab.harness.campaign import InputError
    from inference_lab.results.json_lines import RecordError
    from inference_lab.specs.grammar import SpecError

    refused: tuple[type[Exception], ...] = (InputError, SpecError, RecordError, OSError, *more)
    try:
        yield
    except refused as problem:
        _refuse(problem)


@contextmanager
def resumable(
    summary: Callable[[], str],
    *bad_input: type[Exception],
    stopped_by: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raise some errors as `BadInput`; after others and Ctrl-C, print the kept results.

    The others are system errors and the ones in `stopped_by`.
    """
    others: tuple[type[BaseException], ...] = (KeyboardInterrupt, OSError, *stopped_by)
    try:
        yield
    except bad_input as problem:
        _refuse(problem)
    except others as problem:
        stopped = isinstance(problem, KeyboardInterrupt)
        print_note("interrupted" if stopped else f"error: {one_line(problem)}")
        print_note(f"{summary()}; the same command goes on from there")
        click.get_current_context().exit(130 if stopped else 2)


@contextmanager
def quiet_stdout() -> Iterator[Callable[[str], None]]:
    """Redirect standard output of the block to standard error.

    The file descriptor is redirected too, because solvers may be C libraries or other processes.
    Yields a function that writes a line to standard output itself.
    """
    out = sys.stdout
    out.flush()
    saved = os.dup(1)

    def write(text: str) -> None:
        os.dup2(saved, 1)
        try:
            click.echo(text, file=out)
        finally:
            os.dup2(2, 1)

    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield write
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def print_json(document: dict[str, Any]) -> None:
    """Write a document to standard output, with the number of its schema."""
    click.echo(json.dumps({"schema": 1, **document}, allow_nan=False, indent=1))


def print_table(comparison: Comparison) -> None:
    """Write a comparison to standard output, with colours and fitted width on a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(comparison.table(console.width))
    else:
        click.echo(comparison.to_text(), nl=False)
