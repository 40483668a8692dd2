r"""Tables of a report as LaTeX, to be read by a paper with ``\input``."""

from __future__ import annotations

import re

from inference_lab.reporting.document import Cell, Mark, Table
from inference_lab.reporting.printable import printable

__all__ = ["escape_latex", "latex_table"]

# Braces after a command end its name. Braces around a character separate it from its neighbours,
# because it could form a ligature, or be read as the star or bracket that `\\` takes.
_ESCAPES = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"{{{character}}}" for character in "[]*"},
    '"': r"{\ttfamily\char34}",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{LEFT SINGLE QUOTATION MARK}": "{`}",
    "\N{RIGHT SINGLE QUOTATION MARK}": "{'}",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
}
_TEXT = (
    "\\~^`<>|…•§",
    r"textbackslash textasciitilde textasciicircum textasciigrave textless textgreater textbar "
    "ldots textbullet S",
)
_MATH = (
    "±\N{MULTIPLICATION SIGN}·≤≥≠≈∞∈→←√∑µαβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ",
    "pm times cdot le ge ne approx infty in to leftarrow surd sum mu alpha beta gamma delta "
    "varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon varphi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega",
)
_RAISED = ("\N{MINUS SIGN}¹²³°", r"- ^1 ^2 ^3 ^\circ")
for (_characters, _names), _form in (
    (_TEXT, r"\{}{{}}"),
    (_MATH, r"\ensuremath{{\{}}}"),
    (_RAISED, r"\ensuremath{{{}}}"),
):
    _ESCAPES |= {
        character: _form.format(name)
        for character, name in zip(_characters, _names.split(), strict=True)
    }

#: Characters that form a ligature with themselves in the fonts of LaTeX.
_LIGATURES = re.compile(r"([-',])(?=\1)")

#: A hyphen that is the sign of a number.
_MINUS = re.compile(r"(?<![^\s(=])-(?=\.?\d|inf\b)")

#: Letters beyond ASCII that every LaTeX typesets: Latin-1 letters in the default font encoding.
_LETTERS = re.compile(
    "[\u00c0-\u00cf\u00d1-\u00d6\u00d8-\u00dd\u00df-\u00ef\u00f1-\u00f6\u00f8-\u00fd\u00ff]"
)


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() or _LETTERS.match(character):
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"


def escape_latex(text: str) -> str:
    r"""Return LaTeX that typesets a text literally."""
    minus = "\0"  # absent, because printable text has no control characters
    text = _MINUS.sub(minus, printable(text))
    text = _LIGATURES.sub("\\1\1", text)
    return "".join("$-$" if c == minus else "{}" if c == "\1" else _escape(c) for c in text)


_MARKED: dict[Mark, str] = {
    "": "%s",
    "best": r"\textbf{%s}",
    "failed": r"\emph{%s}",
    "alarm": r"%s\textsuperscript{!}",
}


def _cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    return _MARKED[cell.mark] % text if text else ""


_LEGEND = {
    "best": "Bold: best.",
    "failed": "Italic: failed.",
    "alarm": "!: contradicts another result.",
}


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
