"""HiGHS in one thread: on machines with many processors, after others used it, after a fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

# On a machine with eight processors HiGHS is first called with all its threads, and then by a
# solver in a forked process, whose integer program takes more than one node.
_SCRIPT = """
import os, threading, warnings
import numpy as np
import highspy
import inference_lab as il
from inference_lab.processes.isolation import isolated

def threads():
    # Those of OpenBLAS are there from the start.
    return len(os.listdir("/proc/self/task"))

def solve():
    rng = np.random.default_rng(2)
    pairs = np.transpose(np.triu_indices(17, 1))
    terms = il.DiagonalTerms(pairs, same=rng.normal(size=len(pairs)))
    solution = il.solve(il.FactorGraph.from_terms(rng.normal(size=(17, 3)), [terms]), "ilp")
    return solution.status.value, solution.iterations

warnings.simplefilter("ignore")
before = threads()
if {others}:
    theirs = highspy.Highs()
    theirs.setOptionValue("threads", 4)
    theirs.run()
    assert threads() > before
else:
    solve()
    assert threads() == before, (before, threads())
ended = isolated(solve, wall_limit=20)
print(ended.end, *(ended.value or [ended.message]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux tells them")
@pytest.mark.parametrize("others", [True, False])
def test_forked_process_does_not_wait_for_missing_threads(others):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(others=others)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    end, status, *_ = done.stdout.splitlines()[-1].split()
    assert (end, status) == ("returned", "optimal")
