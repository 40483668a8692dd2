"""Files of pairs from spreadsheets: words for the kinds, names of columns, names of points."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.constraints import Constraints

NAMES = ["000", "001", "002", "020"]
RIGHT = Constraints([[0, 1], [1, 2]], [[0, 3]], n_points=4)
WORDS = [
    ("must-link", "cannot-link"),
    ("Must Link", "CANNOT_LINK"),
    ("ML", "CL"),
    ("yes", "No"),
    ("TRUE", "FALSE"),
    ("1", "0"),
    ("1", "-1"),
    ("1", "\u22121"),
    ("1.0", "0.0"),
    ("+1", "-1,0"),
    ("same", "different"),
    ("y", "n"),
]


def read(
    tmp_path: Path, text: str | bytes, columns: tuple[str, ...] = (), names: list[str] = NAMES
) -> tuple[Constraints, list[str]]:
    """Return the pairs in a text, and the notes."""
    path = tmp_path / "p.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    notes: list[str] = []
    pairs = Constraints.read_csv(path, sample_ids=names, columns=columns, on_note=notes.append)
    return pairs, notes


@given(
    words=st.sampled_from(WORDS),
    separator=st.sampled_from([",", ";", "\t", ", "]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    columns=st.sampled_from([(), ("first", "zwei", "gleich")]),
)
def test_pairs_read_alike_in_every_dialect(
    words: tuple[str, str],
    separator: str,
    encoding: str,
    line_end: str,
    columns: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    must, cannot = (f'"{word}"' if "," in word else word for word in words)
    rows = [
        list(columns or ("i", "j", "kind")),
        ["000", "001", must],
        ["000", "020", cannot],
        [],
        ["002", "001", must],
    ]
    text = line_end.join(separator.join(row) for row in rows)
    data = text.encode(encoding, errors="ignore" if encoding == "cp1252" else "strict")
    if "\u2212" in text and encoding == "cp1252":
        return
    pairs, notes = read(tmp_path_factory.mktemp("files"), data, columns)
    assert pairs == RIGHT
    said = f"'{words[0]}' is must-link (2 pairs), '{words[1]}' is cannot-link (1 pair)"
    assert notes == ([] if words == WORDS[0] else [f"in the pairs, {said}"])


def test_own_columns_may_have_weights_and_others(tmp_path: Path) -> None:
    text = "who;a;b;same;weight\nann;000;001;yes;0,5\nbob;000;020;no;2\n"
    pairs, notes = read(tmp_path, text, ("a", "b", "same"))
    assert (pairs.ml_weight, pairs.cl_weight) == (0.5, 2.0)
    assert "pairs have columns that are not used: 'who'" in notes
    renamed = text.replace("weight", "sure")
    assert read(tmp_path, renamed, ("a", "b", "same", "sure"))[0] == pairs
    assert read(tmp_path, renamed, ("a", "b", "same"))[0].ml_weight == 1.0


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("i,j,kind\n000,001,may\n", (), "kind='may') has an unknown kind; allowed: must-link, can"),
        ("i,j,kind\n000,001,0.7\n", (), "kind='0.7') has an unknown kind"),
        ("i,j,kind\n000,001,1\n000,002,0\n001,002,-1\n", (), "0 and -1, of which 0 may mean"),
        ("a,b,same\n000,001,1\n", (), "got a, b, same; --pair-columns"),
        ("000,001,must-link\n", (), "the first line must name the columns, as in i,j,kind"),
        ("a,b,same\n000,001,1\n", ("a", "b", "sam"), "no column 'sam'; did you mean 'same'?"),
        ("a,b,same\n000,001,1\n", ("a", "b"), "three names"),
        ("a,b,same\n000,001,1\n", ("a", "a", "same"), "three names"),
        ("a,b,different\n000,001,yes\n", ("a", "b", "different"), "may mean the opposite of must"),
        (
            "i,j,kind\n0,1,ML\n",
            (),
            "line 2 (i='0', j='1', kind='ML') names no point; '000' differs",
        ),
        ("i,j,kind\n000,1.0,ML\n", (), "'001' differs from it by zeros, which a spreadsheet drops"),
        ("i,j,kind\n000,00x,ML\n", (), "names no point; did you mean '0"),
        ("i,j,kind\n000,001\n", (), "line 2 has not one field for each column (2 of 3"),
        ("i,j,kind,weight\n000,001,ML,x\n", (), "has no weight that is a number"),
    ],
)
def test_other_pairs_are_refused_with_the_remedy(
    tmp_path: Path, text: str, columns: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=r"p\.csv") as caught:
        read(tmp_path, text, columns)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_columns_named_for_difference_may_hold_literal_words(tmp_path: Path) -> None:
    text = "a,b,different\n000,001,same\n001,002,same\n000,020,different\n"
    assert read(tmp_path, text, ("a", "b", "different"))[0] == RIGHT


def test_zeros_may_be_lost_from_the_data_as_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="drops from the data: make its column one of text"):
        read(tmp_path, "i,j,kind\n007,010,ML\n", names=["7", "10"])


def test_row_numbers_from_one_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("i,j,kind\n1,2,ML\n1,3,CL\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbered from 0 to 2, .*count from 1, subtract 1"):
        Constraints.read_csv(path, 3)
    path.write_text("i,j,kind\n1,2,ML\n1,9,CL\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbered from 0 to 2, without the header"):
        Constraints.read_csv(path, 3)


def test_pairs_in_workbooks(tmp_path: Path) -> None:
    path = tmp_path / "p.xlsx"
    cells = {"i": [0, 1, 0.0], "j": [1, 2, 3], "kind": ["ML", "ML", "CL"]}
    pd.DataFrame(cells).to_excel(path, index=False)
    assert Constraints.read_csv(path, 4) == RIGHT
    with pytest.raises(ValueError, match=r"row 4 of the sheet \(i='0', j='3', kind='CL'\)"):
        Constraints.read_csv(path, 3)
