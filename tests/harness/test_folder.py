"""A folder of results goes on when its records are packed: resumed, looked at, merged, reported."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.cli import main
from inference_lab.results.records import RecordStore

PROBLEM = "potts-grid(height=2, width=2)"


@pytest.fixture(params=[("gz", gzip.compress), ("xz", lzma.compress)], ids=["gz", "xz"])
def packed(tmp_path, request):
    """Return the records of a folder of two runs, packed as one would by hand."""
    suffix, pack = request.param
    store = tmp_path / "packed" / "runs.jsonl"
    il.compare(PROBLEM, "icm", seeds=2, store=store)
    path = Path(f"{store}.{suffix}")
    path.write_bytes(pack(store.read_bytes()))
    store.unlink()
    return path


def said(*arguments):
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_comparison_goes_on_in_a_packed_folder(packed):
    folder, before = packed.parent, packed.read_bytes()
    asked = ("--solver", "icm", "--seeds", 3, "--time-limit", "none")
    output = said("compare", PROBLEM, *asked, "--out", folder)
    assert f"{folder}: {packed.name}, runs.csv" in output and "2 of 3 runs were recorded" in output
    assert not (folder / "runs.jsonl").exists()
    assert packed.read_bytes().startswith(before)
    assert [r.seed for r in RecordStore(packed)] == [0, 1, 2]
    assert "3: 3 done" in said("status", folder)
    assert len(pd.read_json(packed, lines=True)) == 3


def test_packed_folders_are_merged_both_ways_and_reported(packed, tmp_path):
    folder, plain = packed.parent, tmp_path / "plain"
    il.compare(PROBLEM, "icm", seeds=[5, 6, 7], store=plain / "runs.jsonl")
    before = packed.stat().st_size
    assert f"3 records added to {packed}, 0" in said("merge", plain, "--out", folder)
    # One member, smaller than three.
    one = packed.stat().st_size - before
    assert one < sum(len(r.to_json()) for r in RecordStore(plain / "runs.jsonl")) / 3
    assert f"5 records added to {tmp_path / 'all' / 'runs.jsonl'}" in said(
        "merge", folder, plain, "--out", tmp_path / "all"
    )
    said("report", packed)
    assert "5 runs" in (folder / "report" / "README.md").read_text()


def test_a_folder_with_both_forms_is_refused(packed):
    folder = packed.parent
    (folder / "runs.jsonl").write_bytes(b"")
    for command in ("status", "report"):
        done = CliRunner().invoke(main, [command, str(folder)])
        assert done.exit_code == 2 and "are both there" in done.output
