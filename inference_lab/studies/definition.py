"""Fields that the definitions of all studies share, and their conversion from TOML tables."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from inference_lab.reporting.answers import Claim
from inference_lab.reporting.contrasts import Contrast

_T = TypeVar("_T")

#: A number of things, and the values of a name.
Natural = Annotated[int, Meta(ge=1)]
Values = Annotated[list[str | int | float | bool], Meta(min_length=1)]


class StudyError(ValueError):
    """Error in a definition; the message names the place and the allowed values."""


class StudyDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that the file of every study may have.

    Parameters
    ----------
    title, question : str
    answer : str
        Conclusions from the results, written by the authors of the study: a Jinja text over the
        tables of the report, see `inference_lab.reporting.answers`.
    notes : list of str
        Notes such as deviations from a published protocol, with reasons.
    contrasts : list of Contrast
        Contrasts that are specified before the runs.
    claims : list of Claim
        Published claims, and their comparison with the records.
    name : str
        Name of the study's folder.
    """

    title: str
    question: str
    answer: str = ""
    notes: list[str] = []
    contrasts: list[Contrast] = []
    claims: list[Claim] = []
    name: str = ""

    def without_findings(self, methods: Sequence[str]) -> Self:
        """Return the study without answer and claims, with the contrasts of some methods."""
        asked = [c for c in self.contrasts if not c.problem(methods)]
        return replace(self, answer="", claims=[], contrasts=asked)

    def check_contrasts(self, methods: Sequence[str]) -> None:
        """Raise `StudyError` for contrasts of methods that are not in the study."""
        for number, contrast in enumerate(self.contrasts):
            if wrong := contrast.problem(methods):
                raise StudyError(f"contrasts[{number}]: {wrong}")


def read_as(kind: type[_T], table: Any) -> _T:
    """Build an object from a table, with names, types and ranges checked."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as problem:
        raise StudyError(str(problem)) from None


def check_names(text: str, values: set[str], where_values: str, where: str) -> None:
    """Raise `StudyError` for names in braces without values, and for values without a name."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as reason:
        raise StudyError(f"{where} = {text!r}: {reason}") from None
    names = {name for _, name, _, _ in parts if name is not None}
    # Format specs and conversions are refused because only plain names have a meaning here.
    for _, name, form, conversion in parts:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise StudyError(f"{where}: {{{name}}} is not a name in braces")
    if names != values:
        odd = sorted(names ^ values)[0]
        text_is = where if where.startswith("its ") else f"the {where.rpartition('.')[2]}"
        has = "has no values" if odd in names else f"is not in {text_is}"
        raise StudyError(f"{where_values}: {odd!r} {has}")
