"""Compilation of kernels, with a cache on disk and the time measured.

Importing this module imports numba. Only modules with kernels do so, when a method is first used,
so that ``import inference_lab`` stays light.

Numba's cache notices a change of the file that holds a kernel, but not of the kernels that it
calls. Shared kernels therefore live in ``kernels/`` and ``graph/traversal.py`` only, and the folder
of the cache is named by a hash of these files: an edit there recompiles everything. A kernel may
call kernels of its own file and of these, no others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import config, event

from inference_lab.compile_timer import timer

#: Numba compiles a function once for each literal and each width of its integer arguments;
#: integers of this type need one version only. mypy treats it as any type.
int64: Any = np.int64

_F = TypeVar("_F", bound=Callable[..., Any])

#: Files whose content decides the machine code of kernels in other files.
_SHARED = ("_numba.py", "graph/arrays.py", "graph/traversal.py", "kernels/*.py")


def _cache_folder() -> str:
    """Return the folder for machine code."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for pattern in _SHARED:
        for path in sorted(here.glob(pattern)):
            digest.update(path.read_bytes())
    parent = here / "__pycache__"
    if not os.access(parent if parent.is_dir() else here, os.W_OK):
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inference-lab"
    return str(parent / f"kernels-{digest.hexdigest()[:12]}")


_FOLDER = config.CACHE_DIR or _cache_folder()


def _compile(function: _F, **options: Any) -> _F:
    # Numba reads the folder from a global setting when a kernel is made; it is restored for other
    # packages. One folder a module, because a user's file may be imported under several names.
    # Named by the content, too: numba fails to load a kernel if the class of an argument is gone.
    before, file = config.CACHE_DIR, Path(function.__code__.co_filename)
    digest = hashlib.sha256(file.read_bytes() if file.exists() else b"").hexdigest()
    config.CACHE_DIR = os.path.join(_FOLDER, f"{function.__module__}-{digest[:8]}")
    try:
        # The wrapper for calls from C is never used and takes as long to compile as a small kernel.
        made = njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
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


event.register("numba:compiler_lock", _Compilation())
