"""Locations of test data that is not part of the package."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

#: The checkout.
ROOT = Path(__file__).resolve().parents[1]

#: The folder of real data.
DATA = Path(os.environ.get("INFERENCE_LAB_DATA") or ROOT.parent / "shared" / "data")


def published(collection: str, **wanted: str) -> list[tuple[Path, dict[str, str]]]:
    """Return the instances of a collection, each with the chosen columns."""
    folder = DATA / "map" / collection
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set INFERENCE_LAB_DATA")
    with (folder / "reference.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if wanted.items() <= row.items()]
    return [(folder / row["file"], row) for row in rows]
