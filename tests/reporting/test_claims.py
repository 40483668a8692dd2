"""What was published, beside the tables that say whether it holds."""

from __future__ import annotations

import pytest
from places import ROOT

from inference_lab.reporting.document import Cell, Column, Document, Section, Table
from inference_lab.reporting.published_claims import Claim, with_claims
from inference_lab.studies import StudyError, load_study

COLUMNS = (Column("solver", [Cell("icm")]), Column("gap", [Cell("5.00", 5.0)]))
TABLE = Table("gaps", "", COLUMNS)
DOCUMENT = Document("T", (), sections=(Section("S", (TABLE,)), Section("U", (TABLE,))))


def claim(evidence, verdict="holds"):
    return Claim(paper="A (2004)", claim="ICM is poor.", verdict=verdict, evidence=evidence)


def test_claims_stand_after_the_first_section_with_their_numbers():
    shown = with_claims(
        DOCUMENT, [claim("Its gap is {{ value('gaps', 'icm', 'gap')|fixed(0) }} %.")]
    )
    assert [section.title for section in shown.sections] == ["S", "Published claims", "U"]
    (table,) = shown.sections[1].blocks
    assert [cell.text for cell in table.rows[0]] == [
        *("A (2004)", "ICM is poor.", "holds", "Its gap is 5 %.")
    ]
    assert shown.warnings == () and with_claims(DOCUMENT, []) is DOCUMENT


def test_evidence_that_the_tables_do_not_give_is_a_warning():
    shown = with_claims(DOCUMENT, [claim("Its gap is {{ cell('gaps', 'ilp', 'gap') }} %.")])
    (said,) = shown.warnings
    assert said.startswith("Evidence of 'ICM is poor.' and records differ: table 'gaps' has no row")


def test_a_study_refuses_a_verdict_that_says_nothing(tmp_path):
    study = (ROOT / "reports" / "em-regimes" / "study.toml").read_text(encoding="utf-8")
    wrong = '\n[[claims]]\npaper = "A"\nclaim = "B"\nverdict = "perhaps"\nevidence = "C"\n'
    (tmp_path / "study.toml").write_text(study + wrong, encoding="utf-8")
    with pytest.raises(StudyError, match=r"claims\[\d+\].verdict = 'perhaps'; allowed: 'holds'"):
        load_study(tmp_path)
