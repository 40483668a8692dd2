"""The short form of the fuzz targets: their first cases, the same on every run."""

from __future__ import annotations

import pytest
from campaign import TARGETS, run_case, target


@pytest.mark.parametrize("name", TARGETS)
def test_no_finding(name: str) -> None:
    """The first cases of a target break no promise."""
    module = target(name)
    for number in range(module.SHORT):
        try:
            run_case(module, 0, number)
        except BaseException as problem:
            problem.add_note(f"python tests/fuzz/campaign.py {name} --case {number}")
            raise
