"""Values that no solver should report, and that no record can hold unchanged."""

from __future__ import annotations

from typing import Any


class Evil:
    """Value that raises on every attribute access."""

    def _raise(self, *arguments: Any) -> Any:
        raise RuntimeError("half \ud800")

    __repr__ = __str__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __hash__ = _raise
    __eq__ = __iter__ = _raise


class Silent(Exception):
    """Value with an empty representation."""

    def __str__(self) -> str:
        raise ValueError("no")


#: A list that contains itself, one of 900^6 entries, and one in many others.
LOOP: list[Any] = []
LOOP.append(LOOP)
WIDE: Any = 1
for _ in range(6):
    WIDE = [WIDE] * 900
NESTED: Any = 0.5
for _ in range(2000):
    NESTED = [NESTED]
