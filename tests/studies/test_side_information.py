"""The study of side information: what its answer quotes follows from its records."""

from __future__ import annotations

import re
from functools import partial

import pytest
from places import ROOT

from inference_lab.results.fits import FitStore
from inference_lab.studies import load_study
from inference_lab.studies.report import _own
from inference_lab.studies.summaries import Summed

FOLDER = ROOT / "reports" / "khashabi2015"
LEVELS = ("p = 1", "p = 0.95", "p = 0.9", "p = 0.8")

#: Summary, score, method, columns, and the method that is subtracted, if any.
QUOTED: list[tuple[str, str, str, tuple[str, ...], str | None]] = [
    ("All methods", "ari", "PCKMeans", LEVELS, None),
    ("All methods", "ari", "RDP-means, released code", LEVELS, None),
    ("All methods", "ari", "TVClust", LEVELS, None),
    ("All methods", "ari", "LCVQE", LEVELS, None),
    ("All methods", "ari", "RDP-means, released code", LEVELS, "PCKMeans"),
    ("All methods", "ari", "PCKMeans, 15 clusters", LEVELS, None),
    ("All methods", "clusters", "PCKMeans, 15 clusters", LEVELS, None),
    ("All methods", "clusters", "RDP-means, released code", LEVELS, None),
    ("All methods, r = 0.01", "ari", "TVClust", ("p = 1", "p = 0.8"), None),
    ("All methods, r = 0.01", "ari", "PCKMeans", ("p = 1", "p = 0.8"), None),
    ("All methods, r = 0.01", "ari", "TVClust", ("p = 0.8",), "PCKMeans"),
    ("All methods by data", "ari", "TVClust", ("iris", "wine", "ecoli", "glass", "balance"), None),
    ("A wrong number of clusters", "ari", "RDP-means, released code", ("k - 2", "k + 3"), None),
    ("A wrong number of clusters", "ari", "PCKMeans", ("k - 2", "k - 1", "k + 3"), None),
    *(
        ("E-steps", score, f"RDP-means, {e_step}", ("E-steps, p = 1", "E-steps, p = 0.9"), less)
        for e_step in ("icm", "loopy BP", "alpha-expansion")
        for score, less in (("ari", "RDP-means, xi fixed"), ("clusters", None))
    ),
    ("E-steps", "clusters", "RDP-means, xi fixed", ("E-steps, p = 1", "E-steps, p = 0.9"), None),
    ("Six patterns", "pairwise_f", "TVClust", ("mean",), None),
    ("Six patterns", "pairwise_f", "PCKMeans", ("mean",), None),
    ("Six patterns", "pairwise_f", "RDP-means, released code", ("mean",), None),
    ("Table 1", "pairwise_f", "K-means", ("mean",), None),
    ("Table 1", "pairwise_f", "DP-means, released code", ("mean",), None),
    ("Table 1", "pairwise_f", "TVClust, released code", ("mean",), None),
    ("Table 1", "pairwise_f", "RDP-means, released code", ("mean",), None),
    ("Table 1", "pairwise_f", "LCVQE, pairs twice", ("mean",), None),
    ("Table 1", "ari", "RDP-means, released code", ("glass-with-id",), None),
    ("All methods by data", "ari", "RDP-means, released code", ("glass",), None),
]


def quotations() -> dict[tuple[str, str, str, str, str | None], str]:
    """Return what each figure of the list reads like."""
    study = load_study(FOLDER)
    records = FitStore(FOLDER / "records.jsonl").read()
    summaries = {summary.title: summary for summary in study.summaries}
    found = {}
    for title in dict.fromkeys(entry[0] for entry in QUOTED):
        summed = Summed.gather(study, summaries[title], partial(_own, records=records))
        for _, score, method, columns, less in (entry for entry in QUOTED if entry[0] == title):
            for column in columns:
                mean = summed.mean(score, method, column, less=less)
                shown = f"{mean.value:.2f}" if less is None else f"{mean.value:+.2f}"
                if less is not None:
                    shown += f" ± {mean.half:.2f}"
                found[title, score, method, column, less] = shown
    return found


@pytest.mark.skipif(not (FOLDER / "records.jsonl.gz").exists(), reason="not run yet")
def test_figures_of_the_answer_follow_from_the_records():
    answer = load_study(FOLDER).answer
    # What p and r are, and what was published, is no result.
    answer = re.sub(r"\([^()]*published[^()]*\)|[pr] = [\d.]+|from [\d.]+ to [\d.]+ of", "", answer)
    said = re.findall(r"[+-]?\d\.\d\d(?: ± \d\.\d\d)?|\d+\.\d\d", answer)
    assert len(said) > 20
    assert set(said) <= set(quotations().values())
