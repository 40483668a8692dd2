"""Detection of random generators of NumPy and Python that a run makes, and of global ones."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

#: Entry that marks the use of global generators.
GLOBAL = "the global random functions"

_CLASSES = (
    random.Random,
    np.random.RandomState,
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
)
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
#: Modules of the library whose generators are ignored, because they depend on the graph only.
_OF_THE_GRAPH = ("inference_lab.solving", "inference_lab.algorithms.elimination.order")


@contextmanager
def generators_made() -> Iterator[set[str]]:
    """Collect seeded calls that make generators, as text, and `GLOBAL` if global ones are used."""
    made: set[str] = set()

    def note(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = [value for value in (*args, *kwargs.values()) if value is not None]
        by_library = sys._getframe(2).f_globals.get("__name__") in _OF_THE_GRAPH
        if arguments and not by_library and not isinstance(arguments[0], _GENERATORS):
            made.add(f"{name}({', '.join(map(repr, arguments))})")

    stand_ins = {id(kind): _noting_class(kind, note) for kind in _CLASSES}
    stand_ins[id(np.random.default_rng)] = _noting_default_rng(np.random.default_rng, note)
    replaced = _constructors(tuple(map(id, sys.modules.values())))
    for namespace, key, value in replaced:
        namespace[key] = stand_ins[id(value)]
    before = _global_state()
    try:
        yield made
    finally:
        for namespace, key, value in replaced:
            namespace[key] = value
        if _global_state() != before:
            made.add(GLOBAL)


@lru_cache(maxsize=1)  # the search takes longer than most runs
def _constructors(loaded: tuple[int, ...]) -> list[tuple[dict[str, Any], str, Any]]:
    """Return namespace, name and value of each constructor in the modules of these identities."""
    kinds = {id(kind) for kind in (*_CLASSES, np.random.default_rng)}
    # All modules are patched, because each may have imported a constructor by name.
    return [
        (namespace, key, value)
        for name, module in list(sys.modules.items())
        if not name.startswith("numpy.random.")
        for namespace in [getattr(module, "__dict__", {})]
        for key, value in namespace.items()
        if id(value) in kinds
    ]


def _global_state() -> str:
    state = np.random.get_state(legacy=False)  # noqa: NPY002  # the guarded state
    return repr((random.getstate(), state["state"]["key"].tobytes(), state["state"]["pos"]))


def _noting_default_rng(original: Callable[..., Any], note: Callable[..., None]) -> Any:
    def default_rng(*args: Any, **kwargs: Any) -> Any:
        note("default_rng", args, kwargs)
        return original(*args, **kwargs)

    return default_rng


def _noting_class(original: type, note: Callable[..., None]) -> Any:
    """Return a stand-in for a class that records the arguments of each object made."""

    class Noting(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            note(original.__name__, args, kwargs)
            return original(*args, **kwargs)

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, original)

    return Noting(original.__name__, (original,), {})
