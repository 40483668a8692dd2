"""What problems of a study came to, sorted by how frustrated they are: read from a small file.

`inference_lab.diagnosis.learning` makes the file from records.
"""

from __future__ import annotations

import importlib.resources
import json
from functools import cache
from typing import Any

__all__ = ["BREAKS", "class_of", "evidence"]

#: Where classes by `Measures.frustration` begin, but for the first.
BREAKS = (0.0, 0.04, 0.5)


def class_of(frustration: float) -> int:
    """Return the number of the class of a graph with so much frustration."""
    return sum(frustration > least for least in BREAKS)


@cache
def evidence() -> dict[str, Any]:
    """Return the evidence that comes with the library."""
    text = (importlib.resources.files(__package__) / "evidence.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
