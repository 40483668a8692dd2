"""Fuzzing: cases without end from numbered seeds, bounded in CPU time, each told how to make again.

A target is a file ``fuzz_NAME.py`` beside this one, with

* ``case(rng, folder)``: draws one case from the generator and raises where the library breaks a
  promise; the folder is empty and its own;
* ``SHORT``: the number of cases that the tests run;
* ``CASE_SECONDS``: CPU seconds after which a case counts as one that does not end.

``python tests/fuzz/campaign.py`` runs all targets for a minute each; ``make fuzz`` is the same.
Case ``i`` of seed ``s`` is always the same, whatever ran before it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

import numpy as np

HERE = Path(__file__).resolve().parent

#: Names of all targets.
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


class Endless(Exception):
    """A case took more CPU time than one may."""


def target(name: str) -> ModuleType:
    """Return the module of a target."""
    for folder in (HERE, HERE.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"fuzz_{name}")


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Endless` in the block when it has taken so many CPU seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Endless(f"more than {seconds:g} CPU seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_case(module: ModuleType, seed: int, number: int) -> None:
    """Run one case; what it raises is a finding."""
    rng = np.random.default_rng([seed, number])
    with tempfile.TemporaryDirectory() as folder, limited(module.CASE_SECONDS):
        module.case(rng, Path(folder))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def campaign(name: str, seed: int, first: int, seconds: float) -> tuple[int, int]:
    """Run cases of a target until the CPU time is spent; return how many, and how many failed."""
    module = target(name)
    begin = cpu_seconds()
    number, failed = first, 0
    while cpu_seconds() - begin < seconds:
        try:
            run_case(module, seed, number)
        except KeyboardInterrupt:
            raise
        except BaseException:
            failed += 1
            again = f"python tests/fuzz/campaign.py {name} --seed {seed} --case {number}"
            print(f"FINDING: {again}\n{traceback.format_exc()}", flush=True)
        number += 1
    return number - first, failed


def main() -> int:
    """Run what the command line asks for; return 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone")
    asked = parser.parse_args()
    found = 0
    for name in asked.targets or TARGETS:
        if asked.case is not None:
            run_case(target(name), asked.seed, asked.case)
            continue
        cases, failed = campaign(name, asked.seed, asked.first, asked.seconds)
        found += failed
        print(
            f"{name}: seed {asked.seed}, cases {asked.first} to {asked.first + cases - 1} in "
            f"{asked.seconds:g} CPU s: {failed} findings",
            flush=True,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
