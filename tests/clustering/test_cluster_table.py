"""Clusters of tables in Python: what the command shows, as values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from inference_lab.cli import main
from inference_lab.clustering import cluster_cv, cluster_table
from inference_lab.constraints import Constraints
from inference_lab.data.datasets import DataFormatError

WINE, CLASSES = load_wine(return_X_y=True)
NAMES = [f"{row:03}" for row in range(178)]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a folder with wine and pairs, one of them twice; compare two candidates."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(WINE, columns=list("abcdefghijklm")).assign(bottle=NAMES)
    frame.to_csv("wine.csv", index=False)
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(CLASSES, 50, rng).flip(0.1, rng).to_frame(NAMES)
    pd.concat([pairs, pairs.head(1)]).to_csv("pairs.csv", index=False)
    few = cluster_cv.default_candidates()[1:3]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: few)


def test_a_report_has_what_the_command_shows(undrawn: None) -> None:
    notes: list[str] = []
    report = cluster_table("wine.csv", "pairs.csv", 3, id="bottle", on_note=notes.append)
    assert notes[:-1] == report.faults
    assert "repeated pairs: 1 of 51" in report.faults[-1]
    assert notes[-1].startswith("178 points, 13 columns.")
    command = ["cluster", "wine.csv", "--pairs", "pairs.csv", "--k", "3", "--id", "bottle"]
    result = CliRunner().invoke(main, [*command, "--quiet"])
    assert result.exit_code == 0, result.output
    assert result.stdout == report.labels.to_csv(index=False, lineterminator="\n")
    result = CliRunner().invoke(main, [*command, "--json", "--quiet"])
    output = json.loads(result.stdout)
    summary = report.summary()
    assert {name: output[name] for name in summary} == summary
    assert output["violated"] == report.violated.to_dict("records")
    assert summary["violated_pairs"] == len(report.violated) > 0
    assert report.sentences()[0].startswith(summary["candidate"])
    page = report.write_page("page", certify=0)
    assert "Clusters of wine.csv" in page.read_text(encoding="utf-8")
    assert report.document(certify=0, stability=0).title == "Clusters of wine.csv"


def test_a_report_describes_the_clusters_in_the_units_of_the_table() -> None:
    report = cluster_table("wine.csv", k=3, id="bottle")
    profile = report.profile_
    assert profile is report.profile_
    assert profile.clusters["rows"].tolist() == report.summary()["sizes"]
    inside = profile.contrasts.set_index(["cluster", "column"])["inside"]
    medians = report.table.groupby(report.search.labels_).median()
    assert inside.to_dict() == medians.stack().to_dict()
    assert profile.rows.index.isin(NAMES).all() and profile.rows["a"].between(11, 15).all()
    html = report._repr_html_()
    assert "Clusters of wine.csv" in html and profile.clusters["rule"][0].split()[0] in html
    stability = profile.stability(5.0)
    assert stability.jaccard.shape == (3,) and (stability.jaccard > 0.75).all()


def test_several_numbers_of_clusters_need_pairs() -> None:
    with pytest.raises(DataFormatError, match="--k 2,3 needs --pairs"):
        cluster_table("wine.csv", k=[2, 3], id="bottle")
    with pytest.raises(DataFormatError, match=r"--k 179: wine\.csv holds 178 points"):
        cluster_table("wine.csv", "pairs.csv", k=[2, 179], id="bottle")
    with pytest.raises(ValueError, match="three names"):
        cluster_table("wine.csv", "pairs.csv", 3, id="bottle", pair_columns=["i", "j"])


def test_arguments_are_checked() -> None:
    with pytest.raises(DataFormatError, match="--k auto needs --pairs"):
        cluster_table("wine.csv", id="bottle")
    with pytest.raises(DataFormatError, match=r"--k 500: wine\.csv holds 178 points"):
        cluster_table("wine.csv", k=500, id="bottle")
    for setting in ({"scale": "log"}, {"impute": "zero"}, {"encode": "ordinal"}, {"k": "many"}):
        with pytest.raises(ValueError, match="must be"):
            cluster_table("wine.csv", **{"k": 3, "id": "bottle", **setting})
    Path("page").mkdir()
    Path("page", "index.html").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        cluster_table("wine.csv", k=3, id="bottle").write_page("page", certify=0)


def test_the_features_reach_the_estimators_as_they_are() -> None:
    """No candidate scales the features of categories again."""
    frame = pd.read_csv("wine.csv", dtype={"bottle": str})
    frame["colour"] = np.array(["red", "white", "pink"])[CLASSES]
    frame.loc[4, "a"] = np.nan
    frame.to_csv("mixed.csv", index=False)
    notes: list[str] = []
    report = cluster_table("mixed.csv", "pairs.csv", 3, id="bottle", on_note=notes.append)
    assert any("1 missing value replaced by the median" in note for note in notes)
    assert report.points.shape == (178, 16)
    assert report.points[:, 13:].var(axis=0).sum() == pytest.approx(1.0)
    candidates = report.search.cv_results_["candidate"]
    assert not candidates.str.contains("standardised").any()
    assert "replaced by the median" in report.facts["Preparation"]
    assert "a column of categories as a whole" in report.facts["Columns"]
    raw = cluster_table("mixed.csv", "pairs.csv", 3, id="bottle", scale="none", encode="onehot")
    assert "as they are" in raw.facts["Columns"]
    assert raw.points[0, 0] == WINE[0, 0]


def test_sane_columns_find_the_segments_that_numbers_define() -> None:
    """Two text columns without information do not outweigh five numbers."""
    rng = np.random.default_rng(2)
    segment = rng.integers(4, size=800)
    numbers = rng.normal(size=(4, 5))[segment] * 3.0 + rng.normal(size=(800, 5))
    frame = pd.DataFrame(numbers, columns=list("abcde"))
    for name, categories in (("city", 9), ("channel", 7)):
        frame[name] = rng.choice([f"{name} {at}" for at in range(categories)], 800)
    frame["customer_id"] = rng.permutation(10**5)[:800]
    frame["since"] = pd.date_range("2020-01-01", periods=800).strftime("%d.%m.%Y")
    frame.to_csv("customers.csv", index=False)
    agreement = {
        encode: adjusted_rand_score(
            segment, cluster_table("customers.csv", k=4, encode=encode).labels["cluster"]
        )
        for encode in ("auto", "onehot")
    }
    assert agreement["auto"] > 0.95 and agreement["onehot"] < 0.7
