"""What specs may name: code and files, anywhere for trusted ones, else only in the data folder.

A spec string from elsewhere, say out of somebody's records or of a form on a web page, must neither
run code nor read files of one's own. `untrusted` draws a line for all that happens inside of it,
and everything that follows a name in a spec asks here: the registry before it imports a file or a
module, and the problem families before they look at a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from inference_lab.specs.grammar import SpecError
from inference_lab.words import shortened

__all__ = [
    "DATA_VARIABLE",
    "check_inside",
    "data_folder",
    "is_inside",
    "is_trusted",
    "places",
    "refuse_code",
    "untrusted",
]

#: Environment variable that names the folder with real data.
DATA_VARIABLE = "INFERENCE_LAB_DATA"

_PathLike: TypeAlias = "str | os.PathLike[str]"

#: Longest path, and longest name in it, that is looked at: what no usual system has any of.
_LONGEST_PATH, _LONGEST_NAME = 4000, 250

#: Folders besides the data folder in which files may be named; None where specs are trusted.
_allowed: ContextVar[tuple[Path, ...] | None] = ContextVar("allowed", default=None)


@contextmanager
def untrusted(base: _PathLike | None = None, *, trusted: bool = False) -> Iterator[None]:
    """Trust no spec inside of this block: no code from outside, no file outside the data folder.

    Parameters
    ----------
    base : path, optional
        A folder in which files may be named, too, relative to it.
    trusted : bool
        Leave everything as it is: a function that is told whether to trust passes it on. There is
        no way back to trust from inside a block.

    Examples
    --------
    >>> from inference_lab.registry.registry import as_solver
    >>> with untrusted():
    ...     as_solver("persistency(then=mine.py)")
    Traceback (most recent call last):
    ...
    inference_lab.specs.grammar.SpecError: solver 'mine.py' is code from outside the package, \
and this spec is not trusted; only with trusted=True is it run
    """
    if trusted:
        yield
        return
    folders = _allowed.get() or ()
    if base is not None:
        folders = (*folders, Path(base).resolve())
    token = _allowed.set(folders)
    try:
        yield
    finally:
        _allowed.reset(token)


def is_trusted() -> bool:
    """Whether specs may name code and files anywhere."""
    return _allowed.get() is None


def refuse_code(kind: str, name: str) -> None:
    """Refuse to run code from outside the package where specs are not trusted.

    Raises
    ------
    SpecError
    """
    if not is_trusted():
        raise SpecError(
            f"{kind} {shortened(name)!r} is code from outside the package, and this spec is not "
            "trusted; only with trusted=True is it run"
        )


def data_folder(data_dir: _PathLike | None = None) -> Path | None:
    """Return the folder of real data: the one given, or that of ``INFERENCE_LAB_DATA``, or None."""
    chosen = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    return None if chosen is None else Path(chosen).expanduser()


def places(name: str, data_dir: _PathLike | None, *folders: str) -> list[Path]:
    """Return where a file that a spec names is looked for.

    Parameters
    ----------
    name : str
        A path, absolute or relative.
    data_dir : path, optional
        Default: the environment variable ``INFERENCE_LAB_DATA``.
    folders : str
        Folders below the data folder that are looked at after it.

    Returns
    -------
    list of Path
        For a relative path the working directory, the data folder, and the folders in it. Where
        the spec is not trusted, only those that lie in the data folder or the base folder with all
        links followed, and the paths are those that the links lead to.

    Raises
    ------
    SpecError
        If the spec is not trusted and the path may not be looked at, nothing of which is said
        whether it exists.
    """
    root = data_folder(data_dir)
    if _allowed.get() is None:
        given = Path(name).expanduser()
        if root is None or given.is_absolute():
            return [given]
        return [given, root / given, *(root / folder / given for folder in folders)]
    return _places_inside(name, root, folders)


def _places_inside(name: str, root: Path | None, folders: tuple[str, ...]) -> list[Path]:
    """Do `places` for a spec that is not trusted."""
    _check_form(name)
    given = Path(name)
    # One that leads outside is refused even where another one would not: it was meant to.
    meant = [given]
    if not given.is_absolute():
        meant = [folder / given for folder in _allowed.get() or ()]
        if root is not None:
            meant += [root / given, *(root / folder / given for folder in folders)]
    targets = [_target(place, root) for place in meant]
    if not targets or None in targets:
        raise _outside(name, root)
    # The working directory comes first as always, but only if it is inside itself.
    found = [_target(given, root), *targets]
    return list(dict.fromkeys(target for target in found if target is not None))


def is_inside(path: Path, data_dir: _PathLike | None) -> bool:
    """Whether a file may be read: always where specs are trusted, else as in `places`."""
    return is_trusted() or _target(path, data_folder(data_dir)) is not None


def check_inside(path: Path, data_dir: _PathLike | None) -> Path:
    """Return a path of which `is_inside` is true.

    Raises
    ------
    SpecError
        If it is not.
    """
    if not is_inside(path, data_dir):
        raise _outside(str(path), data_folder(data_dir))
    return path


def _check_form(name: str) -> None:
    """Refuse what means different things to different systems."""
    for pattern, what in (
        ("\0", "a NUL character"),
        (r"\\", "a backslash"),
        (r"^~", "a home directory"),
        (r"^[A-Za-z]:", "a drive letter"),
    ):
        if re.search(pattern, name):
            raise SpecError(
                f"path {shortened(name)!r} has {what}, and this spec is not trusted; a path with "
                "slashes is needed that leads to a file in the data folder"
            )
    if len(name) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in name.split("/")):
        raise SpecError(f"path {shortened(name)!r} is too long: {len(name)} characters")


def _target(path: Path, root: Path | None) -> Path | None:
    """Return where a path leads to with all links followed, None if that may not be looked at."""
    try:
        target = path.resolve()
        folders = [*(_allowed.get() or ()), *([] if root is None else [root.resolve()])]
    # Links in a circle, and names that are too long.
    except (OSError, RuntimeError, ValueError):
        return None
    return target if any(target.is_relative_to(folder) for folder in folders) else None


def _outside(name: str, root: Path | None) -> SpecError:
    where = "the data folder" if root is None else f"the data folder {root}"
    none_given = " (none is given)" if root is None and not _allowed.get() else ""
    return SpecError(
        f"path {shortened(name, 200)!r} is not inside {where}{none_given}, and this spec is not "
        "trusted; only with trusted=True may it be read"
    )
