"""Small tables in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from inference_lab.words import printable

__all__ = ["facts_table"]


def facts_table(caption: str, facts: Mapping[str, str]) -> str:
    """Return a table with a line a fact; every text is escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{_text(name)}</th>'
        f'<td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in facts.items()
    )
    style = "text-align:left;font-weight:bold;white-space:nowrap"
    return f'<table><caption style="{style}">{_text(caption)}</caption>{rows}</table>'


def _text(text: str) -> str:
    return escape(printable(text))
