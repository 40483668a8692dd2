"""Evidence files: the observed variables and their labels."""

from __future__ import annotations

import numpy as np

from inference_lab.graph.arrays import IntArray
from inference_lab.io._text import plain_text
from inference_lab.io._tokens import Tokens


def parse_evidence(data: bytes, path: str, cardinalities: IntArray) -> dict[int, int]:
    """Parse UAI evidence in either dialect."""
    # The number of tokens distinguishes the dialects: ``count variable label ...`` has an odd
    # number, and ``1 count variable label ...`` an even one.
    tokens = Tokens(plain_text(data, path), path)
    values = tokens.values
    if values.size == 0:
        raise tokens.error(0, "expected evidence 'count variable label ...'; 0 for none")
    tokens.integers(np.arange(values.size), 0, 2**31, lambda at: "expected an integer >= 0")
    head = int(values[0])
    if values.size == 1 + 2 * head:
        start = 1
    elif head == 1 and values.size >= 2 and values.size == 2 + 2 * int(values[1]):
        start = 2
    else:
        raise tokens.error(
            0,
            f"the count {head} does not fit the {values.size} numbers of the file; expected "
            "'count variable label ...', with or without the number of samples, 1, in front",
        )
    observed: dict[int, int] = {}
    for at in range(start, values.size, 2):
        variable, label = int(values[at]), int(values[at + 1])
        if variable >= cardinalities.size:
            raise tokens.error(
                at, f"variable {variable} does not exist; there are {cardinalities.size}, from 0"
            )
        if label >= cardinalities[variable]:
            raise tokens.error(
                at + 1,
                f"variable {variable} has no label {label}; "
                f"it has 0 to {int(cardinalities[variable]) - 1}",
            )
        if observed.setdefault(variable, label) != label:
            raise tokens.error(
                at + 1, f"variable {variable} is given label {observed[variable]} and {label}"
            )
    return observed
