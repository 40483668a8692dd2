"""Records of named numbers that kernels change, in place of many arrays of one entry."""

from __future__ import annotations

from typing import Protocol, TypeVar, get_type_hints

import numpy as np

_Fields = TypeVar("_Fields", covariant=True)


class One(Protocol[_Fields]):
    """The type of an array of one record: ``numbers[0].field`` is read and written."""

    def __getitem__(self, index: int, /) -> _Fields:
        """Return the record."""


def record(fields: type[_Fields]) -> One[_Fields]:
    """Return an array of one record, all zeros, whose fields kernels read and write by name.

    The fields are the annotations of a class, each ``int``, ``float`` or ``bool``.
    """
    kinds = [(name, np.dtype(kind)) for name, kind in get_type_hints(fields).items()]
    numbers: One[_Fields] = np.zeros(1, dtype=np.dtype(kinds)).view(np.recarray)
    return numbers
