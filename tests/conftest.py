"""What all tests share: the folder of real data, and reproducible Hypothesis runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run and every machine, and no failures for a slow machine.
settings.register_profile(
    "reproducible",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("reproducible")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data that does not travel with the package."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("INFERENCE_LAB_DATA") or default)
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder}; set INFERENCE_LAB_DATA")
    return folder
