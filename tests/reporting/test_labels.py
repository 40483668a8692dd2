"""Labels of solvers are given once, and used in every display; data keep the specs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner
from sample_records import traced

from inference_lab.cli import main
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.report import report_document
from inference_lab.results.records import RecordStore

DAMPED = "loopy-bp(damping=0.5)"
NAMES = {DAMPED: "Damped BP (0.5)", "ilp": "Exact"}
RUNS = [
    traced([(0.1, 3.0, 0.0), (0.2 * at, energy, 1.0)], problem=problem, solver=solver)
    for problem in ("p", "q")
    for at, (solver, energy) in enumerate([("icm", 2.0), (DAMPED, 1.5), ("ilp", 1.0)], start=1)
]


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(RUNS).labelled(NAMES)


def test_tables_have_the_labels_and_data_the_specs(comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.solver_labels == NAMES
    for shown in (
        str(comparison),
        comparison.to_latex(),
        comparison._repr_html_(),
    ):
        assert "Damped BP (0.5)" in shown and "Exact" in shown
        assert DAMPED not in shown and "ilp" not in shown
    assert set(comparison.frame["solver"]) == {"icm", *NAMES}
    comparison.save(tmp_path)
    assert {r.solver for r in RecordStore(tmp_path / "runs.jsonl")} == {"icm", *NAMES}
    with (tmp_path / "runs.csv").open() as lines:
        assert {line["solver"] for line in csv.DictReader(lines)} == {"icm", *NAMES}


def test_a_report_has_the_labels(comparison: Comparison) -> None:
    document = report_document(comparison, title="Named")
    assert DAMPED not in str(document) and "Damped BP (0.5)" in str(document)
    rest = [s for s in document.sections if s.title != "Solvers and settings"]
    assert all("'ilp'" not in str(s) for s in rest)


def test_the_report_of_a_comparison_is_that_of_its_records(
    comparison: Comparison, tmp_path: Path, undrawn: None
) -> None:
    page = comparison.report(tmp_path / "named")
    assert page == tmp_path / "named" / "index.html"
    assert "Damped BP (0.5)" in page.read_text() and "<title>named" in page.read_text()
    assert "Exact" in (tmp_path / "named" / "tables" / "summary.tex").read_text()
    comparison.save(tmp_path)
    options = [f"--label={spec}={name}" for spec, name in NAMES.items()]
    result = CliRunner().invoke(main, ["report", str(tmp_path), "--title", "named", *options])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report" / "README.md").read_bytes() == (
        tmp_path / "named" / "README.md"
    ).read_bytes()
    result = CliRunner().invoke(main, ["report", str(tmp_path), "--label", "ipl=Exact"])
    assert result.exit_code == 2 and "did you mean 'ilp'?" in result.stderr


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"icn": "ICM"}, "there is no solver 'icn'; did you mean 'icm'?"),
        ({"icm": "ilp"}, "labels must be distinct names of solvers, got 'ilp'"),
        ({"icm": "same", "ilp": "same"}, "labels must be distinct names of solvers, got 'same'"),
        ({"icm": " "}, "labels must be distinct names of solvers, got ' '"),
    ],
)
def test_ambiguous_labels_are_refused(labels: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Comparison(RUNS).labelled(labels)
    assert str(caught.value).startswith(message)
