"""Atomic writes of files, and locks that one process holds at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock


def write_whole(path: Path, content: bytes, *, synced: bool = False) -> None:
    """Write a file beside `path` and move it there, so that the file is either old or complete."""
    # The folder is made if it is missing; a symbolic link is followed and kept. With `synced`, the
    # content is on the disk before it replaces the old one.
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        with suppress(OSError):
            aside.chmod(path.stat().st_mode)
        os.replace(aside, path)
    except OSError as problem:
        problem.filename, problem.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):
            aside.unlink()


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for the duration of the block; the file `path` is removed then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path):
        try:
            yield
        finally:
            # Before the release, so that a waiting process notices and makes a new file.
            path.unlink(missing_ok=True)
