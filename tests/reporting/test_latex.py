"""Tables as LaTeX: a small reader of TeX checks the typeset text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sample_document import AWKWARD, table_of

from inference_lab.reporting.document import Cell, Column
from inference_lab.reporting.latex import escape_latex, latex_table
from inference_lab.reporting.printable import printable

#: Text that the permitted commands typeset.
COMMANDS = {
    r"\textbackslash": "\\",
    r"\textasciitilde": "~",
    r"\textasciicircum": "^",
    r"\textasciigrave": "`",
    r"\textless": "<",
    r"\textgreater": ">",
    r"\textbar": "|",
    r"\{": "{",
    r"\}": "}",
    r"\$": "$",
    r"\&": "&",
    r"\#": "#",
    r"\%": "%",
    r"\_": "_",
}

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)


def typeset(source: str) -> str:
    """Return the text that TeX prints for ASCII, in its default fonts.

    Fails if a character has a meaning to TeX, or forms a ligature with the next.
    """
    assert "\n" not in source
    source = source.replace("$-$", "-").replace(r"{\ttfamily\char34}", "\x01")
    out: list[str] = []
    depth = 0
    before = ""
    tokens = TOKEN.findall(source)
    for at, token in enumerate(tokens):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            assert depth >= 0
        elif token in COMMANDS:
            # A command of letters absorbs the following space, unless text is between.
            if token[1].isalpha():
                assert tokens[at + 1 : at + 3] == ["{", "}"]
            out.append(COMMANDS[token])
        else:
            assert token not in '\\$&#%~^`"<>|_', (token, source)
            assert len(token) == 1, (token, source)
            if token in "[]*":
                assert tokens[at - 1] == "{"
                assert tokens[at + 1] == "}"
            assert token + before not in ("--", "''", ",,"), source
            out.append(token)
        before = token
    assert depth == 0
    return "".join(out).replace("\x01", '"')


#: Signs that have commands.
SIGNS = "≤≥±\N{MULTIPLICATION SIGN}"

ASCII = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=40)


@given(ASCII)
@example(r"$\input{/etc/passwd}$ 50 % a_b & c # d ~ e ^ f")
@example("--- ,,, ''' `` << >> ?` !` [x] * {} \\\\ \"")
@example("-1 - -2 (-3) =-4 a-5 --6")
def test_ascii_is_typeset_as_it_is(text: str) -> None:
    """Under the rules of TeX, the source of a text prints this text."""
    assert typeset(escape_latex(text)) == printable(text)


@given(st.text(st.characters(min_codepoint=128, exclude_characters=SIGNS), max_size=20))
def test_characters_beyond_ascii_are_kept(text: str) -> None:
    """Invisible characters are escapes, as on pages."""
    assert typeset(escape_latex(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("-3.5", "$-$3.5"),
        ("trw-s", "trw-s"),
        ("1e-3", "1e-3"),
        ("λ ≤ é表", r"λ \ensuremath{\le} é表"),
        ("0.5 ± 0.1", r"0.5 \ensuremath{\pm} 0.1"),
        ("[1] *", "{[}1{]} {*}"),
    ],
)
def test_by_hand(text: str, source: str) -> None:
    """Signs of numbers become minus signs, hyphens stay."""
    assert escape_latex(text) == source


def test_every_row_has_its_cells() -> None:
    """Special characters in names change neither the number of rows nor of cells."""
    names = [*AWKWARD, "[first]", "*first"]
    rows = tuple((Cell(name), Cell("1"), Cell(name)) for name in names)
    columns = (Column("a & b", right=False), Column("c \\\\"), Column("d"))
    lines = latex_table(
        replace(table_of("t", "50 % of\nall", columns, rows), stem="t")
    ).splitlines()
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert len(body) == len(names)
    for line in body:
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        assert len(cells) == 3
        assert line.endswith(r" \\")
        assert line[0] not in "[*"
    assert r"\begin{tabular}{@{}lrr@{}}" in lines
    assert r"% \caption{50 \% of all}" in lines
    assert all(line.startswith("%") for line in lines[: lines.index(r"\toprule") - 1])


def test_marks() -> None:
    """The best is bold; failures are marked; the legend names the present marks."""
    row = (Cell("1", 1.0, "best"), Cell("x_y", None, "failed"), Cell("3", 3.0), Cell(""))
    columns = tuple(Column(title) for title in "abcd")
    text = latex_table(table_of("t", "", columns, (row,), note="a note\n\\end{document}"))
    assert r"\textbf{1} & \emph{x\_y} & 3 &  \\" in text
    assert "% Bold: best.\n% Italic: failed.\n" in text
    assert "% a note \\end{document}\n" in text
    plain = latex_table(table_of("t", "", columns[:1], ((Cell("1"),),)))
    assert "Bold" not in plain
