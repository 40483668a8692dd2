"""Tables as spreadsheets write them: every dialect reads to the same cells."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.data.datasets import DataFormatError
from inference_lab.data.tables import read_table
from inference_lab.io._files import FormatError
from inference_lab.io.decimals import as_numbers, decimal_marks, readings
from inference_lab.io.spreadsheets import decoded, read_sheet

#: Letters of Western languages, which all encodings have, and marks of dialects.
WORDS = st.text("abcXYZéüß 0123,;|'.-", min_size=1, max_size=8).map(str.strip)
NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a table of names, numbers with a fraction, whole numbers, and words."""
    n = draw(st.integers(1, 8))

    def column(of: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(of, min_size=n, max_size=n))

    floats = [*column(NUMBERS)[1:], 0.25]
    return pd.DataFrame(
        {
            "name": [f"{at:03}" for at in range(n)],
            "größe": floats,
            "count": column(st.integers(-(10**9), 10**9)),
            "missing": [*column(st.one_of(NUMBERS, st.none()))[1:], 1.5],
            "word": [f"w {word}".strip() for word in column(WORDS)],
        }
    ).astype({"missing": float})


def written(table: pd.DataFrame, separator: str, mark: str, line_end: str, quoting: int) -> str:
    """Return a table as a spreadsheet of a country writes it."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator, lineterminator=line_end, quoting=quoting)
    writer.writerow(table.columns)
    for row in table.itertuples(index=False):
        cells = [
            ("" if cell != cell else repr(cell).replace(".", mark))
            if isinstance(cell, float)
            else str(cell)
            for cell in row
        ]
        writer.writerow(cells)
    return stream.getvalue()


@given(
    table=tables(),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    mark=st.sampled_from([".", ","]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]),
    packed=st.booleans(),
)
def test_a_table_reads_alike_in_every_dialect(
    table: pd.DataFrame,
    separator: str,
    mark: str,
    line_end: str,
    quoting: int,
    encoding: str,
    packed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("files") / f"table.csv{'.gz' if packed else ''}"
    data = written(table, separator, mark, line_end, quoting).encode(encoding)
    path.write_bytes(gzip.compress(data) if packed else data)
    notes: list[str] = []
    read = read_table(path, "name", on_note=notes.append)
    assert read.index.tolist() == table["name"].tolist()
    for name in ("größe", "missing"):
        np.testing.assert_array_equal(read[name].to_numpy(dtype=float), table[name].to_numpy())
    assert read["count"].tolist() == table["count"].tolist()
    assert read["count"].dtype.kind == "i"
    assert read["word"].tolist() == table["word"].tolist()
    (note,) = notes or [""]
    words = {
        "semicolons": separator == ";",
        "tabs": separator == "\t",
        "decimal commas": mark == ",",
        "UTF-16": "utf-16" in encoding,
        "Windows-1252": encoding == "cp1252" and not data.isascii(),
    }
    assert {word: word in note for word in words} == words


def of_text(tmp_path: Path, text: str | bytes, name: str | None = None) -> pd.DataFrame:
    """Return the table in a text, with its notes as an attribute."""
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    notes: list[str] = []
    table = read_table(path, name, on_note=notes.append)
    table.attrs["notes"] = notes
    return table


@pytest.mark.parametrize(
    ("text", "columns", "note"),
    [
        ("x\n1,5\n2,5\n", {"x": [1.5, 2.5]}, "decimal commas"),
        ("a;b\n1.234;1,5\n2.500;2,5\n", {"a": [1234, 2500], "b": [1.5, 2.5]}, "is read as 1234"),
        ("a;b\n1,234;x\n2,500;y\n", {"a": [1.234, 2.5], "b": ["x", "y"]}, "decimal commas"),
        ('a,b\n"1,234",1.5\n"2,500",2\n', {"a": [1234, 2500], "b": [1.5, 2.0]}, "is read as 1234"),
        ('a,b\n"1,234,567",1\n"2,500",2\n', {"a": [1234567, 2500], "b": [1, 2]}, ""),
        ("a\n1.234\n2.500\n", {"a": [1.234, 2.5]}, ""),
        ("a,b\n1\u00a0234,1\n2\u202f000,2\n", {"a": [1234, 2000], "b": [1, 2]}, ""),
        ("a,b\n\u22121,1\n+2,2\n", {"a": [-1, 2], "b": [1, 2]}, ""),
        ("a,b,\n1,2,\n,,\n3,4,\n", {"a": [1, 3], "b": [2, 4]}, ""),
        ("a,b\n1,2,\n3,4,\n", {"a": [1, 3], "b": [2, 4]}, ""),
        ("a,b\n1,2\n4\n", {"a": [1, 4], "b": [2.0, np.nan]}, "filled with missing values: line 3"),
        ("Net, in;Age\n1,5;2,0\n", {"Net, in": [1.5], "Age": [2.0]}, "semicolons"),
        ('"a";"b"\n"1,5";"x, y"\n', {"a": [1.5], "b": ["x, y"]}, "semicolons"),
        ("sep=;\na;b\n1;x\n", {"a": [1], "b": ["x"]}, "semicolons"),
        ('a, b\n1.5, "x, y"\n 2.5 , z \n', {"a": [1.5, 2.5], "b": ["x, y", "z"]}, ""),
        ("a,b\ntrue,FALSE\n", {"a": [True], "b": [False]}, ""),
        ("a,b\n1.5,#NV\nn/a,2\n", {"a": [1.5, np.nan], "b": [np.nan, 2.0]}, ""),
        ('a,b\n1,"1,5"\n1,2.5\n', {"a": [1, 1], "b": ["1,5", "2.5"]}, "'b' mixes decimal points"),
        (",x\n7,1\n8,2\n", {"Unnamed: 0": [7, 8], "x": [1, 2]}, ""),
        ("2019,2020\n1,2\n", {"2019": [1], "2020": [2]}, ""),
    ],
)
def test_spreadsheets_are_read_and_notes_name_the_form(
    tmp_path: Path, text: str, columns: dict[str, list[object]], note: str
) -> None:
    table = of_text(tmp_path, text)
    assert list(table.columns) == list(columns)
    for name, values in columns.items():
        np.testing.assert_array_equal(table[name].to_numpy(), np.array(values), strict=False)
    assert note in " ".join(table.attrs["notes"])
    assert bool(note) == bool(table.attrs["notes"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n"1,234",1\n"2,500",2\n', "'a' holds '1,234', which may be 1234 or 1.234: write one"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2 has not one field for each column (3 of 2, separated by"),
        ("a,b\n1,2,3\n4,5,6\n", "give the first column a name"),
        ("a,b\n1,2\n4,5,6\n", "line 3 has not one field for each column"),
        ("a,b\n1,2\n4,5,6\n", "put cells that hold the separator into quotes"),
        ("a,b;c,d\np,q;r,s\n", "may be separated by commas or by semicolons; put cells"),
        ("5.1,3.5\n4.9,3.0\n", "the first line holds numbers, 5.1, 3.5; columns need names"),
        ("a,a\n1,2\n", "two columns 'a'; give each a name of its own"),
        ('a,b\n1,"2\n', "unexpected end of data"),
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        (b"a\x00\x01\x02\x00\x00", "it holds zero bytes"),
        (
            b"a,b\n1,2\n3,\x81\n",
            "line 3 is neither UTF-8 nor Windows-1252 (byte 0x81 in position 10",
        ),
        (b"PK\x03\x04", "name it .xlsx"),
        (b"\xd0\xcf\x11\xe0", "an old XLS workbook: save it as .xlsx or CSV"),
        (b"PAR1", "name it .parquet"),
        (b"\xff\xfea", "cannot read"),
        ("n,x\n1,2\n\n1,3\n", "column 'n' names '1' twice, at line 2 and line 4"),
        ('n,x\n"a\nb",2\n,3\n', "line 4 has no name in column 'n'"),
    ],
)
def test_other_files_are_refused_with_the_remedy(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    name = "n" if isinstance(text, str) and text.startswith("n,") else None
    with pytest.raises(ValueError, match=r"t\.csv") as caught:
        of_text(tmp_path, text, name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_workbooks_read_as_text_files(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "name": ["007", "008"],
            "x": [1.5, np.nan],
            "n": [1, 2],
            "comma": ["1,5", "2,25"],
            "word": ["a", None],
            "day": pd.to_datetime(["2024-01-02", "2024-02-03"]),
            "yes": [True, False],
        }
    )
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        table.to_excel(book, sheet_name="Customers", index=False, startrow=2)
        table.to_excel(book, sheet_name="Other", index=False)
    notes: list[str] = []
    read = read_table(path, "name", on_note=notes.append)
    assert read.index.tolist() == ["007", "008"]
    assert read["x"].iloc[0] == 1.5 and np.isnan(read["x"].iloc[1])
    assert read["n"].tolist() == [1, 2] and read["n"].dtype.kind == "i"
    assert read["comma"].tolist() == [1.5, 2.25]
    assert read["word"].iloc[0] == "a" and pd.isna(read["word"].iloc[1])
    assert read["day"].dtype.kind == "M" and read["yes"].dtype == bool
    assert any("read the sheet 'Customers', the first of 2" in note for note in notes)
    # Whole numbers are names without a fraction, and rows of the sheet count.
    table.assign(name=[7.0, 7.0]).to_excel(path, index=False)
    with pytest.raises(DataFormatError, match="'7' twice, at row 2 of the sheet and row 3 of"):
        read_table(path, "name")
    path.write_bytes(b"hello")
    with pytest.raises(FormatError, match=r"t\.xlsx: no workbook in XLSX"):
        read_table(path)
    with pytest.raises(DataFormatError, match=r"allowed are .*save it as \.xlsx or \.csv"):
        read_table(tmp_path / "t.xls")
    pd.DataFrame().to_excel(path)
    with pytest.raises(FormatError, match="its first sheet, 'Sheet1', is empty"):
        read_table(path)


def test_sheets_have_the_line_of_each_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n\n1,"x\ny"\n\n2,z\n', encoding="utf-8")
    sheet = read_sheet(path)
    assert sheet.lines == [3, 6] and sheet.columns() == {"a": ["1", "2"], "b": ["x\ny", "z"]}
    path.write_text("sep=;\na;b\n1;2\n", encoding="utf-8")
    assert read_sheet(path).lines == [3]
    assert decoded("é".encode("utf-16-be"), "t")[0] == "é"


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_all_digits(number: float) -> None:
    for mark in (".", ","):
        text = repr(number).replace(".", mark)
        assert mark in readings([text])
        assert as_numbers([text, "0"], mark)[0] == number


def test_decimal_marks_of_columns_decide_for_others() -> None:
    assert decimal_marks({"a": ["1,5"], "b": ["1.234"]}, None).marks == {"a": ",", "b": ","}
    assert decimal_marks({"a": ["1.5"], "b": ["1,234"]}, None).marks == {"a": ".", "b": "."}
    with pytest.raises(FormatError, match=r"may be 1234 or 1\.234"):
        decimal_marks({"a": ["1.5"], "b": ["1,234"], "c": ["2,5"]}, None)
    assert decimal_marks({"a": ["x"], "b": ["", "NA"], "c": ["12"]}, None).marks == {"c": "."}
