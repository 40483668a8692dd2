"""Fixtures of tests of reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_document import sample_document

from inference_lab.reporting.writing import write_document


@pytest.fixture(scope="session")
def sample_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """Write the sample report, which takes seconds; return its folder and its files."""
    folder = tmp_path_factory.mktemp("sample") / "in" / "report"
    return folder, write_document(sample_document(), folder)
