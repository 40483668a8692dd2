"""Compilation of kernels, with a cache on disk and the time measured.

Importing this module imports numba. Only modules with kernels do so, when a method is first used,
so that ``import inference_lab`` stays light.

Compiled kernels are kept in ``NUMBA_CACHE_DIR``, else in the user's cache folder, else in a
temporary folder of the user, else nowhere. They are never kept beside the code: an installer does
not know these files, and what stays of the package shadows its next installation.

Numba's cache notices a change of the file that holds a kernel, but not of the kernels that it
calls. Shared kernels therefore live in ``kernels/`` and ``graph/traversal.py`` only, and the folder
of the cache is named by a hash of these files: an edit there recompiles everything. A kernel may
call kernels of its own file and of these, no others.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import platformdirs
from numba import njit
from numba.core import config, event

from inference_lab.compile_timer import notice, timer

#: Numba compiles a function once for each literal and each width of its integer arguments;
#: integers of this type need one version only. mypy treats it as any type.
int64: Any = np.int64

_F = TypeVar("_F", bound=Callable[..., Any])

#: Files whose content decides the machine code of kernels in other files.
_SHARED = ("_numba.py", "graph/arrays.py", "graph/traversal.py", "kernels/*.py")

#: Seconds after which an unused folder of the cache is removed: thirty days.
_UNUSED = 30 * 86400.0
#: Seconds between two notes that a folder is in use: a day.
_NOTED = 86400.0


# ------------------------------------------------------------------ the folder of the cache


def _release() -> str:
    """Return the name of this release's folder: its version and a hash of the shared kernels."""
    import inference_lab

    here = Path(__file__).parent
    digest = hashlib.sha256()
    for pattern in _SHARED:
        for path in sorted(here.glob(pattern)):
            digest.update(path.read_bytes())
    return f"{inference_lab.__version__}-{digest.hexdigest()[:12]}"


def is_private(folder: Path) -> bool:
    """Whether a folder is the user's own, no link, and nobody else can write or replace it.

    Numba's index is a pickle: whoever writes to the folder runs code in the user's name.
    """
    try:
        facts = folder.lstat()
        above = [parent.stat().st_mode for parent in folder.absolute().parents]
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode):
        return False
    if not hasattr(os, "geteuid"):  # folders of Windows have no such modes
        return True
    shared = any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in above)
    mine = facts.st_uid == os.geteuid()
    return mine and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private_folder(folder: Path) -> Path | None:
    """Return a folder, made if it is missing; None if it cannot be used, or others can write it."""
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder if is_private(folder) and _is_writable(folder) else None


def _user_folder() -> Path | None:
    """Return the folder for kernels in the user's cache, None without such a place."""
    try:
        cache = platformdirs.user_cache_path("inference-lab", appauthor=False)
    except RuntimeError:  # no home
        return None
    return _private_folder(cache / "kernels") if cache.is_absolute() else None


def _temporary_folder() -> Path | None:
    """Return a temporary folder for kernels, the same one in all processes of the user."""
    try:
        parent = Path(tempfile.gettempdir())
    except OSError:
        return None
    user = os.geteuid() if hasattr(os, "geteuid") else "user"
    return _private_folder(parent / f"inference-lab-kernels-{user}")


def _cache_root() -> Path | None:
    """Return the folder for compiled kernels, None if there is no place for one."""
    if config.CACHE_DIR:
        # Named by the user, who may share it and knows with whom; numba does not check it either.
        root = Path(config.CACHE_DIR).absolute()
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
        if _is_writable(root):
            return root
        reason = f"NUMBA_CACHE_DIR={root} cannot be written"
    else:
        folder = _user_folder()
        if folder is not None:
            return folder
        reason = "the cache folder of the user cannot be used"
    folder = _temporary_folder()
    place = f"compiled kernels are kept in {folder}" if folder else "compiled kernels are not kept"
    notice.say(f"{reason}, so {place}; NUMBA_CACHE_DIR names another folder")
    return folder


def _prune(root: Path) -> None:
    """Remove the folders of modules that no process has used for thirty days.

    A process that still needs one compiles again.
    """
    for folder in [*root.glob("*/*"), *root.glob("*")]:
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _UNUSED:
                # A release goes when it is empty.
                (os.rmdir if folder.parent == root else shutil.rmtree)(folder)


def _cache_folder() -> str | None:
    """Return the folder for the machine code of this release, None if there is no place."""
    root = _cache_root()
    if root is None:
        return None
    folder = root / _release()
    if not folder.exists() and not config.CACHE_DIR:
        _prune(root)
    return str(folder)


_FOLDER = _cache_folder()
notice.once = "once per machine" if _FOLDER else "in each process"


def _module_digest(function: Callable[..., Any]) -> str:
    """Return a hash of the file of a function."""
    file = Path(function.__code__.co_filename)
    return hashlib.sha256(file.read_bytes() if file.exists() else b"").hexdigest()[:8]


def _module_folder(function: Callable[..., Any], release: str) -> Path:
    """Return the folder for the kernels of a module, and note that it is in use."""
    # One folder a module, because a user's file may be imported under several names. Named by the
    # content, too: numba fails to load a kernel if the class of an argument is gone.
    folder = Path(release, f"{function.__module__}-{_module_digest(function)}")
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > _NOTED:
            os.utime(folder)
    return folder


# ------------------------------------------------------------------ kernels


def _compile(function: _F, **options: Any) -> _F:
    # The wrapper for calls from C is never used and takes as long to compile as a small kernel.
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    if _FOLDER is None:
        return cast("_F", njit(**options)(function))
    # Numba reads the folder from a global setting when a kernel is made; it is restored for other
    # packages.
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_module_folder(function, _FOLDER))
    try:
        made = njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before
    return cast("_F", made)


#: Reference counting off: an access to a field of the graph's arrays otherwise costs two atomic
#: operations, which more than doubles the time of a message. Such code must not allocate.
#: Division by zero gives inf or NaN as in numpy, instead of an exception branch in every loop.
_LEAN = {"_nrt": False, "error_model": "numpy"}


def kernel(function: _F) -> _F:
    """Compile a function over flat arrays on first use; it may allocate arrays.

    No ``fastmath``: kernels rely on IEEE arithmetic with ``inf``.
    """
    return _compile(function)


def lean_kernel(function: _F) -> _F:
    """Compile a kernel that allocates nothing: faster, its scratch arrays come from the caller."""
    return _compile(function, **_LEAN)


def inlined(function: _F) -> _F:
    """Compile a step that is merged into the kernels that call it; it must not allocate.

    A call between kernels copies every field of the graph's arrays, which costs more than a
    message; merging is therefore forced.
    """
    return _compile(function, forceinline=True, **_LEAN)


def merged(function: _F) -> _F:
    """Compile a large step with one caller as a part of it, by `lean_kernel`; others call it, too.

    Its statements are copied before types are inferred. A step by `inlined` has machine code of its
    own besides, which is optimised again in each of its callers.
    """
    return _compile(function, inline="always", **_LEAN)


def lean_minimum(function: _F) -> _F:
    """Compile as `lean_kernel` does, assuming that no NaN occurs; ``inf`` keeps its meaning.

    Without the assumption a minimum cannot be vectorised. Graphs refuse NaN at construction, and
    kernels never form ``inf - inf``.
    """
    return _compile(function, fastmath={"nnan", "nsz"}, **_LEAN)


def inlined_minimum(function: _F) -> _F:
    """Compile a step that is merged as by `inlined`, under the assumption of `lean_minimum`."""
    return _compile(function, forceinline=True, fastmath={"nnan", "nsz"}, **_LEAN)


class _Compilation(event.Listener):  # type: ignore[misc]  # numba ships no types
    """A listener that measures the time of compiling kernels, or loading them from the disk."""

    def on_start(self, event: Any) -> None:
        """Start the timer when numba enters its compiler."""
        timer.begin()

    def on_end(self, event: Any) -> None:
        """Stop the timer when numba leaves its compiler."""
        timer.end()


class _Wait(event.Listener):  # type: ignore[misc]  # numba ships no types
    """A listener for the person who waits while kernels are compiled; loading is not reported."""

    def __init__(self) -> None:
        """Start outside of any compilation."""
        self._depth = 0
        self._collects = False

    def on_start(self, event: Any) -> None:
        """Begin to wait, with garbage collection paused, which takes a tenth of the time."""
        if self._depth == 0:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        notice.begin(event.data["dispatcher"].py_func.__module__)

    def on_end(self, event: Any) -> None:
        """End the wait."""
        notice.end()
        self._depth -= 1
        if self._depth == 0 and self._collects:
            gc.enable()


event.register("numba:compiler_lock", _Compilation())
event.register("numba:compile", _Wait())
