"""A folder of results with compressed records is resumed, merged and reported."""

from __future__ import annotations

import lzma

import pandas as pd
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.results.records import RecordStore

PROBLEM = "potts-grid(height=2, width=2)"


@pytest.fixture
def archive(tmp_path):
    """Return the archive of a folder of two runs, compressed by hand."""
    store = tmp_path / "packed" / "runs.jsonl"
    il.compare(PROBLEM, "icm", seeds=2, store=store)
    path = store.with_name("runs.jsonl.xz")
    path.write_bytes(lzma.compress(store.read_bytes()))
    store.unlink()
    return path


def output_of(*arguments):
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_comparison_goes_on_after_its_archive(archive):
    folder, before = archive.parent, archive.read_bytes()
    asked = ("--solver", "icm", "--seeds", 3, "--time-limit", "none")
    assert "2 of 3 runs were recorded" in output_of("compare", PROBLEM, *asked, "--out", folder)
    assert archive.read_bytes() == before
    assert len((folder / "runs.jsonl").read_bytes().splitlines()) == 1
    assert [r.seed for r in RecordStore(archive)] == [0, 1, 2]


def test_folders_are_merged_into_folders_and_archives(archive, tmp_path):
    plain = tmp_path / "plain"
    il.compare(PROBLEM, "icm", seeds=[5, 6, 7], store=plain / "runs.jsonl")
    everything = tmp_path / "all" / "runs.jsonl"
    assert f"5 records added to {everything}, 0" in output_of(
        "merge", archive.parent, plain, "--out", everything.parent
    )
    assert f"3 records added to {archive}, 2" in output_of(
        "merge", everything.parent, "--out", archive
    )
    assert [path.name for path in archive.parent.glob("runs.jsonl*")] == [archive.name]
    assert list(pd.read_json(archive, lines=True)["seed"]) == [0, 1, 5, 6, 7]
    output_of("report", archive)
    assert "5 runs" in (archive.parent / "report" / "README.md").read_text()
