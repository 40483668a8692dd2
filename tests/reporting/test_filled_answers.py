"""Texts over tables: what they may ask, and what becomes of what is not there."""

from __future__ import annotations

import re

import pytest
from sample_document import table_of

from inference_lab.reporting.answers import filled, with_answers
from inference_lab.reporting.document import Cell, Column, Document, Section


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
        ("{{ verdict('LP', gain='helps') }}", "no words for the verdict 'undecided'"),
        ("{{ verdict('LP', 'BP', gain='help') }}", "no words for the verdict 'undecided, gain'"),
        ("{{ cell('mean-seconds' }}", "no template"),
        ("{{ nothing('a') }}", "no template"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "no template"),
        ("{{ 1|plain }}", "no template"),
        ("{{ 1 / 0 }}", "no template"),
    ],
)
def test_what_is_not_there_is_said(text, missing):
    (said,) = filled(text, TABLES)[1]

    assert re.search(missing, said)


def test_a_report_warns_of_what_its_answer_asks_in_vain():
    text = (("Question", "{{ 1 }}?"), ("Answer", "{{ cell('a', 'b', 'c') }}, {{ gain('LP') }}"))
    filled_in = with_answers(Document("t", text, sections=(Section("s", tuple(TABLES)),)))
    assert filled_in.lead == (("Question", "{{ 1 }}?"), ("Answer", "?, +0.010"))
    assert filled_in.warnings == ("Answer and records differ: there is no table 'a'.",)
