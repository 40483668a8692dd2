"""Records of named numbers that kernels change, in place of many arrays of one entry."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, get_type_hints

import numpy as np

_Fields = TypeVar("_Fields", covariant=True)


class One(Protocol[_Fields]):
    """The type of an array of one record: ``numbers[0].field`` is read and written."""

    def __getitem__(self, index: int, /) -> _Fields:
        """Return the record."""


def record(**kinds: type) -> Any:
    """Return an array of one record, all zeros, whose fields kernels read and write by name."""
    fields = [(name, np.dtype(kind)) for name, kind in kinds.items()]
    return np.zeros(1, dtype=np.dtype(fields)).view(np.recarray)


def record_of(fields: type[_Fields]) -> One[_Fields]:
    """Return a record with the annotated fields of a class, each ``int``, ``float`` or ``bool``."""
    numbers: One[_Fields] = record(**get_type_hints(fields))
    return numbers
