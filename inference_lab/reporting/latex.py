r"""Tables of a report as LaTeX, to be read by a paper with ``\input``."""

from __future__ import annotations

import re

from inference_lab.reporting.document import Cell, Mark, Table
from inference_lab.reporting.printable import printable

# Braces after a command end its name. Braces around a character separate it from its neighbours,
# because it could form a ligature, or be read as the star or bracket that `\\` takes. Signs of
# tables have commands; other characters beyond ASCII are left to the fonts of the paper.
_ESCAPES = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"{{{character}}}" for character in "[]*"},
    '"': r"{\ttfamily\char34}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ensuremath{\ge}",
    "\N{LESS-THAN OR EQUAL TO}": r"\ensuremath{\le}",
    "\N{PLUS-MINUS SIGN}": r"\ensuremath{\pm}",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
}

#: Characters that form a ligature with themselves in the fonts of LaTeX.
_LIGATURES = re.compile(r"([-',])(?=\1)")

#: A hyphen that is the sign of a number.
_MINUS = re.compile(r"(?<![^\s(=])-(?=\.?\d|inf\b)")


def escape_latex(text: str) -> str:
    r"""Return LaTeX that typesets a text literally."""
    minus = "\0"  # absent, because printable text has no control characters
    text = _MINUS.sub(minus, printable(text))
    text = _LIGATURES.sub("\\1\1", text)
    shown = {**_ESCAPES, minus: "$-$", "\1": "{}"}
    return "".join(shown.get(c, c) for c in text)


_MARKED: dict[Mark, str] = {"": "%s", "best": r"\textbf{%s}", "failed": r"\emph{%s}"}


def _cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    return _MARKED[cell.mark] % text if text else ""


_LEGEND = {"best": "Bold: best.", "failed": "Italic: failed."}


def latex_table(table: Table) -> str:
    r"""Return a table as a ``tabular`` in the style of booktabs.

    Caption, label and the meaning of columns and marks precede it as comments, so that a paper can
    put it into an environment of its own choice.
    """
    marks = {cell.mark for row in table.rows for cell in row}
    notes = [printable(table.note)] if printable(table.note) else []
    notes += table.meanings()
    notes += [legend for mark, legend in _LEGEND.items() if mark in marks]
    alignment = "".join("r" if column.right else "l" for column in table.columns)
    caption = escape_latex(table.caption)
    lines = [
        r"\usepackage{booktabs}",
        *([rf"\caption{{{caption}}}"] if caption else []),
        rf"\label{{tab:{table.stem}}}",
        *notes,
    ]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(
        [
            *(f"% {line}" for line in lines),
            rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
            r"\toprule",
            " & ".join(escape_latex(column.title) for column in table.columns) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )
