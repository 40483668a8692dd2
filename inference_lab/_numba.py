"""The one way kernels are compiled; the time that takes counts as loading.

Importing this module imports numba; only modules that hold kernels do so, and those are
imported when a method is used, so that ``import inference_lab`` stays light.

Machine code is kept on disk. Numba notices a change of the file a kernel stands in, but not of
the kernels it calls; those live in the folder ``kernels`` and in ``graph/traversal.py``, so the
folder of the cache is named after their content, and an edit there recompiles everything that may
contain it. A kernel may therefore call kernels of its own file and of these, no others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config, event

from inference_lab.loading import meter

_F = TypeVar("_F", bound=Callable[..., Any])

#: Files whose kernels are compiled into the kernels of other files, and those that say how they are
#: compiled and what they are given.
_SHARED = ("_numba.py", "graph/arrays.py", "graph/traversal.py", "kernels/*.py")


def _cache_folder() -> str:
    """Return where machine code goes, or nothing to leave the choice to numba."""
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
    # Numba picks the folder when the dispatcher is made, from a global setting, which must not
    # change for anybody else's functions.
    before = config.CACHE_DIR
    # Machine code names the module it came from, and a user's file may be imported under several.
    config.CACHE_DIR = os.path.join(_FOLDER, function.__module__)
    try:
        # Nobody calls a kernel as a C function; a wrapper for that takes as long as a small kernel.
        compiled = numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)
        return cast("_F", compiled(function))
    finally:
        config.CACHE_DIR = before


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


def inlined_minimum(function: _F) -> _F:
    """Compile a step as `inlined` does, assuming that no NaN occurs; ``inf`` keeps its meaning.

    Without the assumption a minimum cannot be vectorised. Graphs refuse NaN at construction, and
    kernels never form ``inf - inf``.
    """
    return _compile(function, forceinline=True, fastmath={"nnan", "nsz"}, **_LEAN)


class _Compilation(event.Listener):  # type: ignore[misc]  # numba ships no types
    """Count the time in which kernels are compiled, or loaded from the disk."""

    def on_start(self, event: Any) -> None:
        """Numba entered its compiler."""
        meter.begin()

    def on_end(self, event: Any) -> None:
        """Numba left its compiler."""
        meter.end()


event.register("numba:compiler_lock", _Compilation())
