"""What the definitions of all studies have, and how they are read from tables of TOML files."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from inference_lab.reporting.answers import Claim
from inference_lab.reporting.contrasts import Contrast
from inference_lab.results.records import Limit

__all__ = ["Limit", "Natural", "StudyDefinition", "StudyError", "Values", "check_names", "read_as"]

_T = TypeVar("_T")

#: A number of things, and the values of a name.
Natural = Annotated[int, Meta(ge=1)]
Values = Annotated[list[str | int | float | bool], Meta(min_length=1)]


class StudyError(ValueError):
    """A definition that cannot be used; the message says where and what is allowed."""


class StudyDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file of every study may have.

    Parameters
    ----------
    title, question : str
    answer : str
        What the results say, written by whoever looked at them: a Jinja text over the tables of
        the report, see `inference_lab.reporting.answers`.
    notes : list of str
        Such as deviations from a published protocol, and why.
    contrasts : list of Contrast
        What is asked of the runs before they are made.
    claims : list of Claim
        What was published, and what the records say to it.
    name : str
        That of the folder.
    """

    title: str
    question: str
    answer: str = ""
    notes: list[str] = []
    contrasts: list[Contrast] = []
    claims: list[Claim] = []
    name: str = ""

    def without_findings(self, methods: Sequence[str]) -> Self:
        """Return the study without what all records say, with the contrasts of some methods."""
        asked = [c for c in self.contrasts if not c.problem(methods)]
        return replace(self, answer="", claims=[], contrasts=asked)

    def check_contrasts(self, methods: Sequence[str]) -> None:
        """Refuse contrasts of methods that the study has not."""
        for number, contrast in enumerate(self.contrasts):
            if wrong := contrast.problem(methods):
                raise StudyError(f"contrasts[{number}]: {wrong}")


def read_as(kind: type[_T], table: Any) -> _T:
    """Build an object of a table, checking names, types and ranges."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as problem:
        raise StudyError(str(problem)) from None


def check_names(text: str, values: set[str], where_values: str, where: str) -> None:
    """Refuse names in braces without values, and values that are named nowhere."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as reason:
        raise StudyError(f"{where} = {text!r}: {reason}") from None
    names = {name for _, name, _, _ in parts if name is not None}
    # A format string can do more than name values, and nothing of that is meant here.
    for _, name, form, conversion in parts:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise StudyError(f"{where}: {{{name}}} is not a name in braces")
    if names != values:
        odd = sorted(names ^ values)[0]
        text_is = where if where.startswith("its ") else f"the {where.rpartition('.')[2]}"
        has = "has no values" if odd in names else f"is not in {text_is}"
        raise StudyError(f"{where_values}: {odd!r} {has}")
