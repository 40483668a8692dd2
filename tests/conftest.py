"""Fixtures of all tests: the data folder, a browser, reproducible Hypothesis runs."""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import logging
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from places import DATA

# The same examples on every run and machine: few by default, many with ``make test-thorough``.
# Slow machines cause no failures.
for name, examples in (("quick", 25), ("thorough", 1000)):
    settings.register_profile(
        name,
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile("quick")

# Processes that tests start crash on purpose and report it; pytest would print their stacks.
os.register_at_fork(after_in_child=faulthandler.disable)

# Shells start background jobs with Ctrl-C ignored, which programs started by tests inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed numpy's global generator in each test, for estimators without a seed of their own."""
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(autouse=True)
def _unsilenced() -> Iterator[None]:
    """Reset the level of the package's logger, which a document shows how to change."""
    yield
    logging.getLogger("inference_lab").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data that is not part of the package."""
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}; set INFERENCE_LAB_DATA")
    return DATA


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give reports empty pictures, because drawing takes all but a tenth of the time of a page."""
    from inference_lab.reporting import charts, page, writing

    blank = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
    empty = charts.Drawing({}, blank, b"")
    monkeypatch.setattr(page, "javascript", lambda: "")
    monkeypatch.setattr(writing, "_draw", lambda picture: empty)


@pytest.fixture
def unforked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs in this process, because a process for each takes longer than most runs."""
    monkeypatch.setattr("inference_lab.harness.isolated_run.can_isolate", lambda: False)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules and tests from garbage collection, here and in forked processes.

    They live to the end. Scanning them copies their pages into each forked process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


#: Files whose tests watch clocks and processes: they take turns, so each has all cores.
CLOCKS = {"test_contract", "test_isolation", "test_harness_faults", "test_hostile_runs"}

#: Groups of tests that start many processes. They run first, because workers, and so the memory
#: that their forks take, grow over time.
FORKING = (
    "clocks",
    "test_comparison",
    "test_solver_checks",
    "test_harness",
    "test_conformance_suite",
    "test_cli",
    "README.md",
    "CONTRIBUTING.md",
    "docs/howto/own-solver.md",
)

#: The slowest other groups, by CPU seconds (80 to 20 from an empty cache): run last, one would keep
#: a single worker busy at the end. The first one compiles most kernels.
LONGEST = (
    "test_damaged_stores",
    "test_studies",
    "test_solver_studies",
    "test_packaging",
    "test_tightening",
    "test_subgraph_search",
    "test_loopy_bp",
    "test_doctests",
    "test_sklearn_conventions",
    "test_label_costs",
    "test_auto",
)


# It must run before the hook of pytest-xdist, which reads groups only once.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file on one worker for their shared data, unless they have a group."""
    first = (*FORKING, *LONGEST)
    ranks = {}
    for item in items:
        own = item.get_closest_marker("xdist_group")
        if own is not None:
            group = own.args[0]
        else:
            group = "clocks" if item.path.stem in CLOCKS else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
        ranks[item] = first.index(group) if group in first else len(first)
    items.sort(key=ranks.__getitem__)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Replace long texts in test ids, because they may differ between workers, as records do."""
    return argname if isinstance(val, str | bytes) and len(val) > 200 else None


BROWSERS = ("chromium", "chromium-browser", "google-chrome")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _missing(reason: str) -> None:
    if os.environ.get("CI") and os.environ.get("INFERENCE_LAB_BROWSER") == "required":
        pytest.fail(f"{reason}, but INFERENCE_LAB_BROWSER=required")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start the browser of this machine."""
    if importlib.util.find_spec("playwright") is None:
        _missing("playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        _missing(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()
