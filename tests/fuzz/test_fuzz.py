"""The short form of the fuzz targets: their first cases, the same on every run."""

from __future__ import annotations

import itertools
import subprocess
import sys
from types import SimpleNamespace

import campaign
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


def test_time_of_children_counts(monkeypatch):
    """Else a target whose cases are processes of their own would not end."""
    cases = itertools.count()

    def case(*_: object) -> None:
        assert next(cases) < 100
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)

    module = SimpleNamespace(case=case, CASE_SECONDS=10.0)
    monkeypatch.setattr(campaign, "target", lambda name: module)
    done, failed = campaign.campaign("children", 0, 0, seconds=0.2)
    assert 1 <= done < 100 and failed == 0
