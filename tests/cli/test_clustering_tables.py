"""``inference-lab cluster``: from files to labels and a page."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from inference_lab.cli import main
from inference_lab.clustering import PCKMeans, cluster_cv
from inference_lab.constraints import Constraints

WINE, CLASSES = load_wine(return_X_y=True)
#: Numbers with leading zeros are names, not numbers.
NAMES = [f"{row:03}" for row in range(178)]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with wine as CSV and Parquet, and pairs of which five are wrong."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(WINE, columns=list("abcdefghijklm")).assign(bottle=NAMES)
    frame.to_csv("wine.csv", index=False)
    frame.to_parquet("wine.parquet", index=False)
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(CLASSES, 50, rng).flip(0.1, rng)
    pairs.write_csv("pairs.csv", sample_ids=NAMES)
    pairs.write_csv("numbers.csv")
    return tmp_path


@pytest.fixture
def first_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the first two candidates; the test of the page compares all."""
    first = cluster_cv.default_candidates()[1:3]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: first)


def call(text: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *text.split()])


def refused(result: Result, *message: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and "Traceback" not in result.output
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    for text in message:
        assert text in result.stderr


def test_csv_and_parquet_are_clustered_alike(first_candidates: None) -> None:
    result = call("wine.csv --pairs pairs.csv --k 3 --id bottle --out labels.csv --jobs 2")
    assert result.exit_code == 0, result.output
    labels = pd.read_csv("labels.csv", dtype={"bottle": str})
    assert list(labels.columns) == ["bottle", "cluster"]
    assert labels["bottle"].tolist() == NAMES
    assert adjusted_rand_score(CLASSES, labels["cluster"]) > 0.8
    assert "held-out score 0." in result.stdout and "labels.csv" in result.stdout
    assert "standardised to mean 0" in result.stderr and ": first fit " in result.stderr
    # Rows without names are numbered, and labels are printed if no file is given.
    other = call("wine.parquet --pairs numbers.csv --k 3 --drop bottle --quiet")
    assert other.exit_code == 0 and other.stderr == ""
    lines = other.stdout.splitlines()
    assert lines[0] == "row,cluster" and len(lines) == 179
    assert [int(line.split(",")[1]) for line in lines[1:]] == labels["cluster"].tolist()


def test_page_shows_the_gap_of_the_objective(work: Path, undrawn: None) -> None:
    result = call("wine.csv --k 3 --id bottle --report page --certify 60")
    assert result.exit_code == 0, result.output
    text = (work / "page" / "README.md").read_text(encoding="utf-8")
    # The least objective of 1,000 starts of k-means.
    assert "1277.93, the lowest possible" in text
    call("wine.csv --k 3 --id bottle --report other --certify 0 --stability 0")
    other = (work / "other" / "README.md").read_text(encoding="utf-8")
    assert "lowest possible" not in other
    assert "come back" in text and "come back" not in other
    assert "were not made again" in other


def test_the_page_shows_choice_clusters_and_violated_pairs(work: Path) -> None:
    asked = "wine.csv --pairs pairs.csv --k 3 --id bottle --json --quiet"
    result = call(f"{asked} --report page --certify 0")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["schema"] == 1 and report["files"] == {"report": "page"}
    assert sum(report["sizes"]) == 178 and report["n_clusters"] == 3
    assert len(report["violated"]) == report["violated_pairs"] >= 1
    page = (work / "page" / "index.html").read_text(encoding="utf-8")
    text = (work / "page" / "README.md").read_text(encoding="utf-8")
    assert len(page) < 2_000_000
    for message in ("Clusters of wine.csv", report["candidate"], "expected gain", "178 points"):
        assert message in page and message in text
    # The clusters come first, in the units of the table; the method comes last.
    clusters, method = text.split("## How sure is this")
    assert clusters.count("Rule of thumb: ") == 6
    assert report["candidate"] in method and "held-out" in method
    for word in (report["candidate"], "held-out", "bound", "certificate", "energ", "objective"):
        assert word not in clusters
    assert re.search(r"m is (lower|higher) \(median \d,?\d{3}, elsewhere \d{3}\)", clusters)
    assert "was fitted again" in method
    rows = pd.read_csv(work / "page/tables/rows-1.csv", dtype={"row": str})
    assert rows["example"].tolist() == ["typical"] * 3 + ["border"] * 3
    assert rows["row"].isin(NAMES).all()
    violated = pd.read_csv(work / "page/tables/violated-pairs.csv", dtype=str)
    violated_pairs = {(pair["i"], pair["j"], pair["kind"]) for pair in report["violated"]}
    listed = violated[["row", "other row", "kind"]].itertuples(index=False, name=None)
    assert {tuple(map(str, row)) for row in listed} == violated_pairs
    row = violated.iloc[0]
    values = pd.read_csv("wine.csv", dtype={"bottle": str}).set_index("bottle")["m"]
    shown = f"{row['different']}; {row['alike']}"
    assert f"m {values[row['row']]:,.0f} / {values[row['other row']]:,.0f}" in shown
    candidates = pd.read_csv(work / "page/tables/candidates.csv")
    assert candidates["candidate"][0].startswith("k-means without pairs")
    assert candidates["score"].max() < 1.0
    for name in (
        "scores.svg",
        "points-and-pairs.svg",
        "separating-columns.svg",
        "separating-plane.svg",
    ):
        assert (work / "page" / "figures" / name).stat().st_size > 1000
    # A folder with other content is not written into.
    (work / "other").mkdir()
    (work / "other" / "index.html").write_text("mine")
    refused(call("wine.csv --k 3 --id bottle --report other"), "was not written by a report")


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in the second fit with pairs."""

    class Once(PCKMeans):
        fits: ClassVar[int] = 0

        def fit(self, X: Any, y: Any = None, **arguments: Any) -> Any:
            type(self).fits += 1
            if type(self).fits == 2:
                raise KeyboardInterrupt
            return super().fit(X, y, **arguments)

    first = [*cluster_cv.default_candidates()[:1], cluster_cv.Candidate("paired", Once())]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: first)


def test_interrupted_commands_end_with_the_best_so_far(work: Path, interrupted: None) -> None:
    result = call("wine.csv --pairs pairs.csv --k 3 --id bottle --out labels.csv --report page")
    assert result.exit_code == 130, result.output
    assert len(pd.read_csv("labels.csv")) == 178
    assert "the search was interrupted: the best candidate so far is fitted" in result.stdout
    text = (work / "page" / "README.md").read_text(encoding="utf-8")
    assert "The search was interrupted" in text and "| interrupted |" in text


def test_a_time_limit_is_named_on_the_page(work: Path, first_candidates: None) -> None:
    asked = "wine.csv --pairs pairs.csv --k 3 --id bottle --report page --certify 0"
    result = call(f"{asked} --time-limit 1e-9 --json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["stopped"] == "time limit" and report["candidate"].startswith("k-means")
    text = (work / "page" / "README.md").read_text(encoding="utf-8")
    assert "The limit of 1e-09 s of processor time was spent" in text
    assert "time limit of 1e-09 s" in text.split("candidates", 1)[1]


def test_the_number_of_clusters_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = cluster_cv.default_candidates()[1:2]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: alone)
    result = call("wine.csv --pairs pairs.csv --id bottle --json --quiet --seed 1")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_clusters"] in (2, 3, 4)


@pytest.mark.parametrize("text", ["2-4", "2,3,4", "4, 2-3"])
def test_several_numbers_of_clusters_are_compared(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = cluster_cv.default_candidates()[1:2]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: alone)
    asked = ["cluster", "wine.csv", "--pairs", "pairs.csv", "--id", "bottle", "--k", text]
    result = CliRunner().invoke(main, [*asked, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_clusters"] in (2, 3, 4)
    assert all(f"{k} clusters" in result.stderr for k in (2, 3, 4))
    assert "5 clusters" not in result.stderr
    refused(call("wine.csv --k 2-4 --id bottle"), "--k 2,3,4 needs --pairs with two pairs or more")
    refused(call("wine.csv --k 2-400 --id bottle"), "a range such as 2-6")


def test_files_of_a_spreadsheet_give_the_same_clusters(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = cluster_cv.default_candidates()[1:2]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: alone)
    asked = "--k 3 --id bottle --json --quiet"
    plain = call(f"wine.csv --pairs pairs.csv {asked}")
    table = pd.read_csv("wine.csv", dtype={"bottle": str})
    pairs = pd.read_csv("pairs.csv", dtype={"i": str, "j": str})
    pairs["kind"] = (pairs["kind"] == "must-link").map({True: "yes", False: "no"})
    pairs.columns = ["a", "b", "same", "weight"]
    table.to_csv("w.tsv", sep="\t", decimal=",", index=False, encoding="utf-16")
    pairs.to_csv("p.csv", sep=";", index=False, encoding="utf-8-sig")
    same = call(f"w.tsv --pairs p.csv --pair-columns a,b,same {asked}")
    table.to_excel("w.xlsx", index=False)
    pairs.to_excel("p.xlsx", index=False)
    book = call(f"w.xlsx --pairs p.xlsx --pair-columns a,b,same {asked}")
    for result in (plain, same, book):
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document == json.loads(plain.stdout)
    notes = call("w.tsv --pairs p.csv --pair-columns a,b,same --k 3 --id bottle").stderr
    assert "w.tsv was read with tabs between columns, text in UTF-16, decimal commas" in notes
    assert "in the pairs, 'no' is cannot-link (" in notes
    refused(call("w.tsv --pairs p.csv --pair-columns a,b --k 3"), "give three names with commas")
    refused(
        call("w.tsv --pairs p.csv --pair-columns a,b,same --k 3"),
        "names no point; rows are numbered from 0 to 177",
        "the column 'bottle' holds it: name rows by --id bottle",
    )


def test_without_pairs() -> None:
    refused(call("wine.csv --id bottle"), "--k auto needs --pairs", "give a number")
    result = call("wine.csv --id bottle --k 3 --json --quiet")
    document = json.loads(result.stdout)
    assert document["score"] is None and document["candidate"] == "k-means without pairs"


def test_missing_values_and_categories_are_refused_or_treated(work: Path) -> None:
    frame = pd.read_csv("wine.csv", dtype={"bottle": str})
    frame.loc[[3, 7], "b"] = np.nan
    frame["colour"] = np.where(CLASSES == 0, "red", None)
    frame["good"] = CLASSES == 1
    frame.to_csv("messy.csv", index=False)
    base = "messy.csv --k 3 --json --quiet"
    refused(
        call(f"{base} --id bottle --encode none"),
        "'colour' holds values that are not numbers, such as 'red' in row 000",
        "--encode auto, or leave it out with --drop colour",
    )
    refused(
        call(f"{base} --id bottle --drop colour --impute none"),
        "2 values missing in 'b' (in rows 003, 007): replace them with --impute median",
    )
    treated = call("messy.csv --k 3 --id bottle --report page --certify 0")
    assert treated.exit_code == 0, treated.output
    assert (
        "note: 2 missing values replaced by the median of the column: 'b' (2); --impute none"
        in treated.stderr
    )
    assert "note: missing values are a category of their own: 'colour' (119)" in treated.stderr
    page = (work / "page" / "README.md").read_text(encoding="utf-8")
    assert "178 points, 15 columns" in page and "2 missing values replaced" in page


def test_identifiers_are_left_out_unless_kept() -> None:
    message = "note: left out: 'bottle' (counts the rows); --keep COLUMN uses one all the same"
    without = call("wine.csv --k 3")
    assert message in without.stderr and "178 points, 13 columns" in without.stderr
    kept = call("wine.csv --k 3 --keep bottle")
    assert "left out" not in kept.stderr and "178 points, 14 columns" in kept.stderr
    assert "left out" not in call("wine.csv --k 3 --id bottle").stderr


def test_later_rows_are_assigned(work: Path, first_candidates: None) -> None:
    result = call(
        "wine.csv --pairs pairs.csv --k 3 --id bottle --out l.csv --save model.json --json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["files"] == {"labels": "l.csv", "clusters": "model.json"}
    frame = pd.read_csv("wine.csv", dtype={"bottle": str})
    frame.iloc[::-1].assign(more="x").to_csv("later.csv", index=False)
    run = CliRunner().invoke
    printed = run(main, ["assign", "model.json", "later.csv"])
    assert printed.exit_code == 0, printed.output
    labels = pd.read_csv("l.csv", dtype={"bottle": str}).set_index("bottle")["cluster"]
    later = pd.read_csv(io.StringIO(printed.stdout), dtype={"bottle": str})
    assert later["bottle"].tolist() == NAMES[::-1]
    # Pairs have no effect on later rows.
    assert (later["cluster"].to_numpy() == labels[later["bottle"]].to_numpy()).mean() > 0.95
    written = run(main, ["assign", "model.json", "later.csv", "--out", "new.csv"])
    assert written.stdout.splitlines() == ["178 rows assigned", "new.csv"]
    assert Path("new.csv").read_text() == printed.stdout
    document = json.loads(run(main, ["assign", "model.json", "later.csv", "--json"]).stdout)
    assert document["rows"] == 178 and sum(document["sizes"].values()) == 178
    frame.drop(columns=["a", "c"]).to_csv("fewer.csv", index=False)
    refused(run(main, ["assign", "model.json", "fewer.csv"]), "lacks columns of the fit: 'a', 'c'")
    refused(run(main, ["assign", "model.json", "l.csv"]), "lacks columns of the fit")
    refused(run(main, ["assign", "l.csv", "later.csv"]), "l.csv holds no clusters")
    refused(run(main, ["assign", "pairs.txt", "later.csv"]), "does not exist")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wine.csv --k 0", "give auto, a number of at least 1, a range"),
        ("wine.csv --k many", "give auto, a number of at least 1, a range"),
        ("wine.csv --k 200 --id bottle", "--k 200: wine.csv holds 178 points"),
        ("wine.csv --k 3 --id botle", "no column 'botle'; did you mean 'bottle'?"),
        ("wine.csv --k 3 --id bottle --drop z", "no column 'z'"),
        ("wine.csv --k 3 --id bottle --keep z", "no column 'z'"),
        ("wine.csv --k 3 --impute zero", "is not one of 'median', 'mean', 'most_frequent', 'none'"),
        ("numbered.csv --k 2", "no column can be used: 'n' (counts the rows); --keep COLUMN"),
        ("pairs.txt --k 3", "does not exist"),
        ("notes.md --k 3", "allowed are .csv, .tsv"),
        ("empty.csv --k 3", "cannot read empty.csv"),
        ("broken.parquet --k 3", "cannot read broken.parquet"),
        ("twice.csv --k 1 --id n", "column 'n' names '1' twice"),
        ("only.csv --k 1 --id n", "holds no points"),
        ("inf.csv --k 1", "'x' holds an infinite value"),
        ("wine.csv --k 3 --id bottle --pairs numbers.csv", "numbers.csv: line 2 (i="),
        ("wine.csv --k 3 --id bottle --pairs notes.txt", "notes.txt: pairs must have the columns"),
    ],
)
def test_unusable_arguments_are_refused(work: Path, text: str, message: str) -> None:
    for name, content in (
        ("notes.txt", "hello"),
        ("notes.md", "hello"),
        ("empty.csv", ""),
        ("broken.parquet", "hello"),
        ("twice.csv", "n,x\n1,2\n1,3\n"),
        ("only.csv", "n\n1\n"),
        ("inf.csv", "x\n1\ninf\n"),
        ("numbered.csv", "n\n" + "\n".join(map(str, range(30))) + "\n"),
    ):
        (work / name).write_text(content)
    refused(call(text), message)


def test_contradictory_and_repeated_pairs_are_notes(work: Path, first_candidates: None) -> None:
    lines = ["i,j,kind", "000,001,must-link", "001,002,must-link", "002,000,cannot-link"]
    lines += ["001,000,must-link", "003,090,cannot-link"]
    (work / "faulty.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = call("wine.csv --pairs faulty.csv --k 3 --id bottle")
    assert result.exit_code == 0, result.output
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert notes[:-1] == [
        "note: contradictory pairs: must-links connect the points of 1 of 2 cannot-links, "
        "('000', '002'); no clustering keeps all of these pairs",
        "note: repeated pairs: 1 of 5 are listed before, as the same kind; each pair counts once",
    ]
    assert "Warning" not in result.stderr
    quiet = call("wine.csv --pairs faulty.csv --k 3 --id bottle --quiet")
    assert quiet.exit_code == 0 and quiet.stderr == ""
