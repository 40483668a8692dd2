"""Records keep the labellings of their runs."""

import json

import numpy as np
import pytest
from sample_records import record

import inference_lab as il
from inference_lab.harness.results_dir import merge
from inference_lab.results.json_lines import clean_text
from inference_lab.results.label_codec import KEPT_BELOW, decode_labels, encode_labels
from inference_lab.results.records import Record, RecordStore

GRAPHS = {
    f"grid-{seed}": il.FactorGraph.potts(
        np.random.default_rng(seed).random((12, 3)), [(i, i + 1) for i in range(11)], [0.3] * 11
    )
    for seed in range(2)
}
PROBLEMS = [il.Problem(name, graph) for name, graph in GRAPHS.items()]


def check_energies(comparison):
    assert len(comparison.records) > 0
    for run in comparison.records:
        labels = comparison.labels(run.id)
        assert labels.dtype == np.int64
        assert GRAPHS[run.problem].energy(labels) == run.energy


@pytest.mark.parametrize("top", [0, 1, 255, 256, 65_535, 65_536, 2**40])
def test_labels_survive_encoding(top):
    labels = np.random.default_rng(top).integers(0, top + 1, 50)
    labels[0] = top
    decoded = decode_labels(encode_labels(labels))
    np.testing.assert_array_equal(decoded, labels)
    assert decoded.dtype == np.int64


def test_encoding_is_compact_and_ends_at_the_limit():
    assert len(encode_labels(np.zeros(KEPT_BELOW - 1, dtype=np.int64))) < 300
    assert encode_labels(np.zeros(KEPT_BELOW, dtype=np.int64)) == ""
    assert encode_labels(None) == ""
    assert decode_labels(encode_labels(np.zeros(0, dtype=np.int64))).size == 0
    with pytest.raises(ValueError, match="damaged labelling 'AAAA'"):
        decode_labels("AAAA")


def test_energies_of_kept_labels_after_resuming_and_merging(tmp_path):
    solvers = ["icm", "ilp"]
    stores = [RecordStore(tmp_path / f"{name}.jsonl") for name in ("a", "b", "all")]
    il.compare(PROBLEMS[0], "icm", store=stores[0], isolate=False)
    resumed = il.compare(PROBLEMS[0], solvers, store=stores[0], isolate=False)
    check_energies(resumed)
    check_energies(il.compare(PROBLEMS[1], solvers, seeds=2, store=stores[1]))
    merge(stores[:2], stores[2])
    merged = il.Comparison.of_store(stores[2])
    assert len(merged.records) == 6
    check_energies(merged)


def test_tables_and_pages_hold_no_kept_labels(tmp_path):
    comparison = il.compare(PROBLEMS, ["icm", "ilp"], isolate=False)
    comparison.save(tmp_path)
    page = comparison.report(tmp_path / "report")
    assert "labels" not in comparison.frame
    texts = [path.read_text() for path in tmp_path.glob("*.csv")] + [page.read_text()]
    for run in comparison.records:
        assert run.labels
        assert not any(run.labels in text for text in texts)


def test_records_of_earlier_versions_have_no_labels():
    old = {**record().as_dict(), "schema": 6}
    del old["labels"]
    read = Record.from_json(json.dumps(old))
    with pytest.raises(ValueError, match="holds no labelling"):
        il.Comparison([read]).labels(read.id)


def test_an_id_may_be_cut_short_but_not_wrong():
    comparison = il.compare(PROBLEMS[0], ["icm", "ilp"], isolate=False)
    run_id = comparison.records[0].id
    np.testing.assert_array_equal(comparison.labels(run_id[:6]), comparison.labels(run_id))
    for unknown in ("zz", ""):
        with pytest.raises(ValueError, match="an id that begins with"):
            comparison.labels(unknown)


def test_labels_of_many_variables_are_not_kept():
    graph = il.FactorGraph.from_terms(np.zeros((KEPT_BELOW, 2)))
    comparison = il.compare(il.Problem("many", graph), "icm", isolate=False)
    with pytest.raises(ValueError, match="fewer than"):
        comparison.labels(comparison.records[0].id)


def test_kept_labels_fit_into_a_record() -> None:
    """Labels drawn from many hardly compress; labels that a record would truncate are omitted."""
    rng = np.random.default_rng(0)
    for n_labels in (2, 20, 60_000):
        labels = rng.integers(0, n_labels, KEPT_BELOW - 1)
        text = encode_labels(labels)
        assert (text == "") == (n_labels == 60_000)
        if text:
            np.testing.assert_array_equal(decode_labels(clean_text(text)), labels)
