"""Answers and published claims: their queries of tables, and missing values."""

from __future__ import annotations

import re

import pytest
from places import ROOT
from sample_document import table_of

from inference_lab.reporting.answers import Claim, filled, with_answers
from inference_lab.reporting.document import Cell, Column, Document, Section, Table
from inference_lab.studies import StudyError, load_study


def table(name, head, *rows):
    return table_of(name, "", list(map(Column, head)), rows)


TABLES = [
    table(
        "Mean seconds",
        ("solver", "data", "seconds", "gap"),
        (Cell("icm"), Cell("iris"), Cell("0.0123", 0.0123), Cell("+0.4 ± 0.1 *", 0.4)),
        (Cell("icm"), Cell("wine"), Cell("2", 2.0), Cell("-")),
        (Cell("trw-s"), Cell("iris"), Cell("-1.5", -1.5), Cell("3", 3.0)),
    ),
    table(
        "contrasts",
        ("contrast", "gain", "95 % interval", "sets above", "p (Holm)", "verdict"),
        *(
            (*map(Cell, (n, "+0.010", "+0.0 to +0.1", "3/4", "0.25")), Cell(verdict))
            for n, verdict in (("exact", "gain"), ("BP", "gain"), ("LP", "undecided"))
        ),
    ),
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{ cell('mean-seconds', 'icm & iris', 'seconds') }} s", "0.0123 s"),
        ("{{ (1000 * value('mean-seconds', 'icm & iris', 'seconds'))|fixed(0) }} ms", "12 ms"),
        ("{{ (-value('mean-seconds', 'trw-s', 'seconds'))|fixed(2) }}", "1.50"),
        ("{{ cell('mean-seconds', 'icm & iris', 'gap')|plain }}", "0.4 ± 0.1"),
        ("{{ lowest('mean-seconds', '*', 'seconds')|fixed(1) }}", "-1.5"),
        ("{{ highest('mean-seconds', 'trw-s', '*')|fixed(1) }}", "3.0"),
        ("{{ highest('mean-seconds', 'icm; trw-s', 'seconds; gap')|fixed(1) }}", "3.0"),
        (
            "{{ gain('exact') }} ({{ interval('exact') }}), {{ above('exact') }}, {{ p('exact') }}",
            "+0.010 (+0.0 to +0.1), 3/4, 0.25",
        ),
        ("{{ verdict('LP') }}", "undecided"),
        ("{{ verdict('exact', 'BP', gain='helps', undecided='may help') }}", "helps"),
        ("{{ verdict('LP', gain='helps', undecided='may help') }}", "may help"),
        ("No table at all, 3 | 4", "No table at all, 3 | 4"),
    ],
)
def test_texts_are_filled(text, shown):
    assert filled(text, TABLES) == (shown, [])


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{{ cell('mean-second', 'icm', 'gap') }}", "no table 'mean-second'.*mean-seconds"),
        ("{{ cell('mean-seconds', 'ilp', 'gap') }}", "no row 'ilp'"),
        ("{{ cell('mean-seconds', 'trw-s', 'gaps') }}", "no column 'gaps'.*gap"),
        ("{{ cell('mean-seconds', 'icm', 'gap') }}", "2 cells, not one"),
        ("{{ value('mean-seconds', 'icm & wine', 'gap')|fixed(2) }}", "no number"),
        ("{{ verdict('LP', gain='helps') }}", "no text is given for the verdict 'undecided'"),
        ("{{ verdict('LP', 'BP', gain='help') }}", "for the verdict 'undecided, gain'"),
        ("{{ cell('mean-seconds' }}", "a template: "),
        ("{{ nothing('a') }}", "a template: "),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "a template: "),
        ("{{ 1|plain }}", "a template: "),
        ("{{ 1 / 0 }}", "a template: "),
    ],
)
def test_missing_names_are_reported(text, missing):
    (warning,) = filled(text, TABLES)[1]

    assert re.search(missing, warning)


def test_report_warns_of_missing_values_in_its_answer():
    text = (("Question", "{{ 1 }}?"), ("Answer", "{{ cell('a', 'b', 'c') }}, {{ gain('LP') }}"))
    filled_in = with_answers(Document("t", text, sections=(Section("s", tuple(TABLES)),)))
    assert filled_in.lead == (("Question", "{{ 1 }}?"), ("Answer", "?, +0.010"))
    assert filled_in.warnings == ("Answer and records differ: there is no table 'a'.",)


# ---------------------------------------------------------------------- claims

COLUMNS = (Column("solver", [Cell("icm")]), Column("gap", [Cell("5.00", 5.0)]))
GAPS = Table("gaps", "", COLUMNS)
DOCUMENT = Document("T", (), sections=(Section("S", (GAPS,)), Section("U", (GAPS,))))


def claim(evidence, verdict="holds"):
    return Claim(paper="A (2004)", claim="ICM is poor.", verdict=verdict, evidence=evidence)


def test_claims_follow_the_first_section_with_their_numbers():
    shown = with_answers(
        DOCUMENT, [claim("Its gap is {{ value('gaps', 'icm', 'gap')|fixed(0) }} %.")]
    )
    assert [section.title for section in shown.sections] == ["S", "Published claims", "U"]
    (table,) = shown.sections[1].blocks
    assert [cell.text for cell in table.rows[0]] == [
        "A (2004)",
        "ICM is poor.",
        "holds",
        "Its gap is 5 %.",
    ]
    assert shown.warnings == () and with_answers(DOCUMENT) == DOCUMENT


def test_evidence_that_the_tables_do_not_give_is_a_warning():
    shown = with_answers(DOCUMENT, [claim("Its gap is {{ cell('gaps', 'ilp', 'gap') }} %.")])
    (warning,) = shown.warnings
    assert warning.startswith(
        "Evidence of 'ICM is poor.' and records differ: table 'gaps' has no row"
    )


def test_study_refuses_an_unknown_verdict(tmp_path):
    study = (ROOT / "reports" / "em-regimes" / "study.toml").read_text(encoding="utf-8")
    wrong = '\n[[claims]]\npaper = "A"\nclaim = "B"\nverdict = "perhaps"\nevidence = "C"\n'
    (tmp_path / "study.toml").write_text(study + wrong, encoding="utf-8")
    with pytest.raises(StudyError, match=r"'perhaps' - at `\$.claims\[\d+\].verdict`"):
        load_study(tmp_path)
