"""A folder of results goes on when its records are packed: resumed, looked at, merged, reported."""

from __future__ import annotations

import subprocess

import pandas as pd
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.results.records import RecordStore

PROBLEM = "potts-grid(height=2, width=2)"
PACKED = "runs.jsonl.gz"


@pytest.fixture
def packed(tmp_path):
    """Return a folder of two runs, packed as one would by hand."""
    folder = tmp_path / "packed"
    il.compare(PROBLEM, "icm", seeds=2, store=folder / "runs.jsonl")
    subprocess.run(["gzip", "-9n", str(folder / "runs.jsonl")], check=True)
    return folder


def said(*arguments):
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_comparison_goes_on_in_a_packed_folder(packed):
    before = (packed / PACKED).read_bytes()
    asked = ("--solver", "icm", "--seeds", 3, "--time-limit", "none")
    output = said("compare", PROBLEM, *asked, "--out", packed)
    assert f"{packed}: {PACKED}, runs.csv" in output and "2 of 3 runs were recorded" in output
    assert not (packed / "runs.jsonl").exists()
    assert (packed / PACKED).read_bytes().startswith(before)
    assert [r.seed for r in RecordStore(packed / PACKED)] == [0, 1, 2]
    assert "3: 3 done" in said("status", packed)
    assert len(pd.read_json(packed / PACKED, lines=True)) == 3


def test_packed_folders_are_merged_both_ways_and_reported(packed, tmp_path):
    plain = tmp_path / "plain"
    il.compare(PROBLEM, "icm", seeds=[5, 6, 7], store=plain / "runs.jsonl")
    before = (packed / PACKED).stat().st_size
    assert f"3 records added to {packed / PACKED}, 0" in said("merge", plain, "--out", packed)
    # One member, smaller than three.
    one = (packed / PACKED).stat().st_size - before
    assert one < sum(len(r.to_json()) for r in RecordStore(plain / "runs.jsonl")) / 3
    assert f"5 records added to {tmp_path / 'all' / 'runs.jsonl'}" in said(
        "merge", packed, plain, "--out", tmp_path / "all"
    )
    said("report", packed / PACKED)
    assert "5 runs" in (packed / "report" / "README.md").read_text()


def test_a_folder_with_both_forms_is_refused(packed):
    (packed / "runs.jsonl").write_bytes(b"")
    for command in ("status", "report"):
        done = CliRunner().invoke(main, [command, str(packed)])
        assert done.exit_code == 2 and "are both there" in done.output
