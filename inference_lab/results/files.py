"""Files that are written whole, and files that one process has to itself."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["alone", "open_locked", "write_whole"]

#: Seconds between two looks whether somebody else has ended.
_LOOK = 0.2


def write_whole(path: Path, content: bytes, *, synced: bool = False) -> None:
    """Write a file aside and move it to its place, so that it is whole or as it was.

    Its folder is made if it is missing; a link goes on to lead where it did.

    Parameters
    ----------
    path : path
    content : bytes
    synced : bool
        Whether it has to be on the disk before it takes the place of what is there.

    Raises
    ------
    OSError
        If it cannot be written.
    """
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


def open_locked(path: Path, lock: Callable[[int, int], None] | None) -> int:
    """Open a file, made if it is missing, and wait until nobody else has it locked.

    Parameters
    ----------
    path : path
    lock : callable, optional
        As `fcntl.flock`.

    Returns
    -------
    int
        The handle, for reading and appending.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    while True:
        handle = os.open(path, flags, 0o666)
        try:
            if lock is None:
                return handle
            lock(handle, fcntl.LOCK_EX)
            # Whoever had it may have put another file in its place, or removed it.
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one that a path leads to."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------------- one at a time

#: Bytes that a group of shares locks among, and all bytes that anybody locks: no system counts
#: further than this everywhere, and a file may be locked where it has no bytes.
_GROUP = 1 << 12
_END = (1 << 31) - 1


class _Held(NamedTuple):
    """The handle of a file, and who has which share of it in this process."""

    handle: int
    owners: list[tuple[int, tuple[str, int] | None]]


#: Of each file what this process has of it, since systems tell processes apart and no threads.
_held: dict[Path, _Held] = {}
_guard = threading.Lock()


def _forget() -> None:
    """In a forked process: what its parent has locked is not its own."""
    global _guard
    _held.clear()
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def alone(path: Path, share: tuple[str, int] | None, waiting: Callable[[], None]) -> Iterator[None]:
    """Have a file to this process as long as the block lasts; wait until nobody else has it.

    Parameters
    ----------
    path : path
        It is made, and removed when the last one leaves it.
    share : (str, int), optional
        Others with another number and the same name may have it at the same time.
    waiting : callable
        Called once if there is somebody to wait for.

    Notes
    -----
    The locks are those that a process has to itself, not those that the processes it forks share
    with it: whatever becomes of those, the lock ends with this process, also when it is killed. On
    NFS it holds across machines where the server has locks. A thread may enter again.
    """
    path = Path(os.path.realpath(path))
    me = (threading.get_ident(), share)
    if not _enter(path, me):
        waiting()
        while not _enter(path, me):
            time.sleep(_LOOK)
    try:
        yield
    finally:
        _leave(path, me)


def _enter(path: Path, me: tuple[int, tuple[str, int] | None]) -> bool:
    thread, share = me
    with _guard:
        held = _held.get(path)
        if held is not None:
            again = any(thread == owner for owner, _ in held.owners)
            agreed = all(_agree(share, other) for _, other in held.owners)
            if again or (agreed and _take(held.handle, share)):
                held.owners.append(me)
                return True
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if _take(handle, share) and _is_at(handle, path):
                _held[path] = _Held(handle, [me])
                return True
        finally:
            if path not in _held:
                os.close(handle)
        return False


def _agree(one: tuple[str, int] | None, other: tuple[str, int] | None) -> bool:
    return one is not None and other is not None and one[0] == other[0] and one[1] != other[1]


def _leave(path: Path, me: tuple[int, tuple[str, int] | None]) -> None:
    with _guard:
        held = _held.get(path)
        if held is None:  # in a process that was forked inside the block
            return
        held.owners.remove(me)
        if held.owners:
            return
        del _held[path]
        # Nobody else has it: whoever opened it meanwhile looks whether it is still there.
        with suppress(OSError):
            _unlock(held.handle, *_place(me[1]))
            if _lock(held.handle, 0, _END):
                path.unlink()
        os.close(held.handle)


def _place(share: tuple[str, int] | None) -> tuple[int, int]:
    """Return where the bytes begin that stand for a share, and how many they are."""
    if share is None:
        return 1, _END - 1
    name, number = share
    return _group(name) + number % _GROUP, 1


def _group(name: str) -> int:
    groups = (_END - 1) // _GROUP
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return 1 + _GROUP * (digest % groups)


def _take(handle: int, share: tuple[str, int] | None) -> bool:
    """Lock what stands for a share, if nobody has anything that does not go with it."""
    # The first byte is the door: one looks at a time.
    if not _lock(handle, 0, 1):
        return False
    try:
        if share is None:
            return _lock(handle, *_place(None))
        first = _group(share[0])
        for start, length in ((1, first - 1), (first + _GROUP, _END - first - _GROUP)):
            if length > 0:
                if not _lock(handle, start, length):
                    return False
                _unlock(handle, start, length)
        return _lock(handle, *_place(share))
    finally:
        _unlock(handle, 0, 1)


if sys.platform == "win32":

    def _lock(handle: int, start: int, length: int) -> bool:
        os.lseek(handle, start, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, length)
        except OSError:
            return False
        return True

    def _unlock(handle: int, start: int, length: int) -> None:
        os.lseek(handle, start, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, length)

else:

    def _lock(handle: int, start: int, length: int) -> bool:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):  # as systems please
            return False
        return True

    def _unlock(handle: int, start: int, length: int) -> None:
        fcntl.lockf(handle, fcntl.LOCK_UN, length, start)
