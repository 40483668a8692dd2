"""Numbers in answers, tied to the tables that they are from."""

from __future__ import annotations

import pytest

from inference_lab.reporting.document import Cell, Column, Document, Section, Table
from inference_lab.reporting.quoting import bare_numbers, quoted, with_quotations

TABLE = Table(
    "by solver",
    "",
    tuple(map(Column, ("class", "solver", "gap", "seconds", "interval", "verdict"))),
    (
        (
            Cell("iris"),
            Cell("icm"),
            Cell("5.00", 5.0),
            Cell("0.0123", 0.01234),
            Cell("-0.1 to +0.3", -0.1),
            Cell("undecided"),
        ),
        (
            Cell("iris"),
            Cell("bp(damping=0.5)"),
            Cell("22.0", 21.96),
            Cell("-"),
            Cell("-"),
            Cell("gain"),
        ),
        (
            Cell("wine"),
            Cell("icm"),
            Cell("7.00", 7.0),
            Cell("2.00", 2.0),
            Cell("-"),
            Cell("gain"),
        ),
    ),
)


@pytest.mark.parametrize(
    ("quotation", "shown"),
    [
        ("{by solver | iris & icm | gap}", "5.00"),
        ("{by-solver | wine | seconds}", "2.00"),
        ("{5 = by solver | iris & icm | gap}", "5"),
        ("{22.0 % = by solver | bp(damping=0.5) | gap}", "22.0 %"),
        ("{12 ms = by solver | iris & icm | seconds}", "12 ms"),
        ("{0.012 s = by solver | iris&icm | seconds}", "0.012 s"),
        ("{5 to 22 = by solver | * | gap}", "5 to 22"),
        ("{5 and 7 = by solver | icm | gap}", "5 and 7"),
        ("{2 to 7 = by solver | wine | gap; seconds}", "2 to 7"),
        ("{-7 = -by solver | wine | gap}", "-7"),
        ("{-0.1 to 0.3 = by solver | iris & icm | interval}", "-0.1 to 0.3"),
        ("{gain = by solver | wine | verdict}", "gain"),
        ("{5\n = by\nsolver | iris & icm |\ngap}", "5"),
    ],
)
def test_what_holds_is_shown(quotation, shown):
    assert quoted(f"so {quotation}.", [TABLE]) == (f"so {shown}.", [])


@pytest.mark.parametrize(
    ("quotation", "said"),
    [
        ("{6 = by solver | iris & icm | gap}", "the text says 6, but by solver | iris & icm"),
        ("{21.9 = by solver | bp(damping=0.5) | gap}", "has '21.96'"),
        ("{13 ms = by solver | iris & icm | seconds}", "has '12.34'"),
        ("{5 to 21 = by solver | * | gap}", "has '5' to '21.96'"),
        ("{5 = by solver | icm | gap}", "has '5' to '7'"),
        ("{7 = -by solver | wine | gap}", "has '-7'"),
        ("{0.1 to 0.3 = by solver | iris & icm | interval}", "has '-0.1 to +0.3'"),
        ("{loss = by solver | wine | verdict}", "has 'gain'"),
        ("{4 = by solver | bp(damping=0.5) | seconds}", "has no number"),
        ("{by solver | icm | gap}", "names 2 cells, not one"),
        ("{by solver | ilp | gap}", "there is no row 'ilp'"),
        ("{by solver | wine | gasp}", "there is no column 'gasp'; did you mean 'gap'?"),
        ("{by solvers | wine | gap}", "there is no table 'by solvers'; did you mean 'by solver'?"),
        ("{by solver | gap}", "must name a table, a row and a column"),
    ],
)
def test_what_does_not_hold_is_said(quotation, said):
    (wrong,) = quoted(quotation, [TABLE]).wrong
    assert said in wrong


def test_a_report_warns_of_an_answer_that_its_records_do_not_give():
    document = Document(
        "T",
        (("Answer", "{5 = by solver | wine | gap} and {7 = by solver | wine | gap}"),),
        sections=(Section("S", (TABLE,)),),
    )
    shown = with_quotations(document)
    assert shown.lead == (("Answer", "5 and 7"),)
    assert shown.warnings == (
        "Answer and records differ: the text says 5, but by solver | wine | gap has '7'.",
    )


def test_braces_that_quote_nothing_stay():
    assert quoted("a set {1, 2}", [TABLE]) == ("a set {1, 2}", [])
    assert bare_numbers("a set {1, 2} of wine-13, 0.5") == ["1", "2", "0.5"]
