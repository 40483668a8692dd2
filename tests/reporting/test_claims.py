"""What was published, beside the tables that say whether it holds."""

from __future__ import annotations

import pytest
from places import ROOT

from inference_lab.reporting.claims import Claim, with_claims
from inference_lab.reporting.document import Cell, Column, Document, Section, Table
from inference_lab.reporting.quoting import bare_numbers
from inference_lab.studies import StudyError, find_study, load_study
from inference_lab.studies.finding import available_studies

TABLE = Table("gaps", "", (Column("solver"), Column("gap")), ((Cell("icm"), Cell("5.00", 5.0)),))
DOCUMENT = Document("T", (), sections=(Section("S", (TABLE,)), Section("U", (TABLE,))))


def claim(evidence, verdict="holds"):
    return Claim(paper="A (2004)", claim="ICM is poor.", verdict=verdict, evidence=evidence)


def test_claims_stand_after_the_first_section_with_their_numbers():
    shown = with_claims(DOCUMENT, [claim("Its gap is {5 = gaps | icm | gap} %.")])
    assert [section.title for section in shown.sections] == ["S", "Published claims", "U"]
    (table,) = shown.sections[1].blocks
    assert [cell.text for cell in table.rows[0]] == [
        *("A (2004)", "ICM is poor.", "holds", "Its gap is 5 %.")
    ]
    assert shown.warnings == () and with_claims(DOCUMENT, []) is DOCUMENT


def test_evidence_that_the_tables_do_not_give_is_a_warning():
    shown = with_claims(DOCUMENT, [claim("Its gap is {7 = gaps | icm | gap} %.")])
    (said,) = shown.warnings
    assert said.startswith("Evidence of 'ICM is poor.' and records differ: the text says 7")


def test_a_study_refuses_a_verdict_that_says_nothing(tmp_path):
    study = (ROOT / "reports" / "em-regimes" / "study.toml").read_text(encoding="utf-8")
    wrong = '\n[[claims]]\npaper = "A"\nclaim = "B"\nverdict = "perhaps"\nevidence = "C"\n'
    (tmp_path / "study.toml").write_text(study + wrong, encoding="utf-8")
    with pytest.raises(StudyError, match=r"claims\[\d+\].verdict = 'perhaps'; allowed: 'holds'"):
        load_study(tmp_path)


@pytest.mark.parametrize("name", available_studies())
def test_every_number_of_the_evidence_is_quoted(name):
    study = load_study(find_study(name).folder)
    assert [bare_numbers(each.evidence) for each in study.claims] == [[]] * len(study.claims)
    assert study.quickly().claims == []
