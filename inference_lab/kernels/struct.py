"""Records of named numbers that kernels change, in place of many arrays of one entry."""

from __future__ import annotations

from typing import Any

import numpy as np


def record(**kinds: type) -> Any:
    """Return an array of one record, all zeros, whose fields kernels read and write by name."""
    fields = [(name, np.dtype(kind)) for name, kind in kinds.items()]
    return np.zeros(1, dtype=np.dtype(fields)).view(np.recarray)
