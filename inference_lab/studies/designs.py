"""Which problems a study has: all combinations of values, or a sample of them."""

from __future__ import annotations

import itertools
import math
import random
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inference_lab.formatting import nearest
from inference_lab.studies.toml_config import StudyError

__all__ = ["Design", "Grid", "check_names", "check_values"]

#: Significant digits of values drawn from a range: more say nothing, and names should be short.
_DIGITS = 3


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Problems that differ in some of their settings.

    Parameters
    ----------
    problem : str
        A spec with names in braces, such as ``"estep(data={data}, noise={noise})"``.
    values : mapping of str to list
        What each name stands for, in turn; all combinations are problems.
    """

    problem: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems; the last name changes fastest."""
        for chosen in itertools.product(*self.values.values()):
            yield _filled(self.problem, dict(zip(self.values, chosen, strict=True)))

    def check(self, where: str) -> None:
        """Refuse names without values, values without names, and what is no list of values."""
        check_names(self.problem, set(self.values), f"{where}.values", f"{where}.problem")
        for name, values in self.values.items():
            check_values(values, f"{where}.values.{name}")


@dataclass(frozen=True, kw_only=True)
class Design:
    """Problems at points of a Latin hypercube: each value of each setting is taken equally often.

    Parameters
    ----------
    problem : str
        A spec with names in braces, those of `values` and ``{draw}``, the number of the draw.
    values : mapping of str to list or table
        What each name stands for: one of a list, or a number of a range, ``{from = 0.1, to = 10.0,
        log = true}``, with three digits, one of each of as many equal parts as there are cells (in
        the logarithm where asked).
    cells : int
        Points of the hypercube, over all blocks.
    draws : int
        Problems at each point, with draws of their own: no two problems have the same number.
    block : str or None
        A name with a list of values, each of which gets a hypercube of its own with an equal share
        of the cells.
    seed : int
        Which hypercube it is.
    """

    problem: str
    values: Mapping[str, Any] = field(default_factory=dict)
    cells: int
    draws: int = 1
    block: str | None = None
    seed: int = 0

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems: a draw of each cell, then another of each.

        The cells of the blocks take turns, so that what is stopped early has some of each. More
        draws add problems to those of fewer.
        """
        blocks = [None] if self.block is None else list(self.values[self.block])
        shares = [len(range(at, self.cells, len(blocks))) for at in range(len(blocks))]
        drawn = [self._hypercube(*each) for each in zip(blocks, shares, strict=True)]
        turns = itertools.zip_longest(*drawn)
        cells = [cell for turn in turns for cell in turn if cell is not None]
        for draw in range(self.draws):
            for number, cell in enumerate(cells):
                yield _filled(self.problem, {**cell, "draw": number + draw * len(cells)})

    def _hypercube(self, block: Any, cells: int) -> list[dict[str, Any]]:
        """Return the points of one block."""
        columns = []
        for name, values in self.values.items():
            # The draws of Python's own generator are the same in all of its versions.
            draw = random.Random(f"{self.seed}, {block}, {name}")
            if name == self.block:
                column = [block] * cells
            elif isinstance(values, list):
                # Where they do not go in, which ones come once more is drawn as well.
                among = draw.sample(values, len(values))
                column = [among[at % len(among)] for at in range(cells)]
            else:
                column = [_at(values, (at + draw.random()) / cells) for at in range(cells)]
            draw.shuffle(column)
            columns.append(column)
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def check(self, where: str) -> None:
        """Refuse what `Grid.check` refuses, and cells that cannot be shared out."""
        check_names(self.problem, {*self.values, "draw"}, f"{where}.values", f"{where}.problem")
        for name, values in self.values.items():
            if isinstance(values, dict):
                _check_range(values, f"{where}.values.{name}")
            else:
                check_values(values, f"{where}.values.{name}")
        if self.block is not None and not isinstance(self.values.get(self.block), list):
            raise StudyError(
                f"{where}.block = {self.block!r}; allowed: a name of the values that has a list"
                + nearest(self.block, list(self.values))
            )
        blocks = 1 if self.block is None else len(self.values[self.block])
        if self.cells < blocks:
            raise StudyError(
                f"{where}.cells must be at least 1 a block, {blocks}, got {self.cells}"
            )
        if self.draws < 1:
            raise StudyError(f"{where}.draws must be at least 1, got {self.draws}")


def _at(values: Mapping[str, Any], share: float) -> float:
    """Return the number that is so far into a range, with few digits."""
    low, high = float(values["from"]), float(values["to"])
    if values.get("log", False):
        found = low * (high / low) ** share
    else:
        found = low + (high - low) * share
    return float(f"{found:.{_DIGITS}g}")


def _filled(problem: str, chosen: Mapping[str, Any]) -> str:
    """Return a spec with its names replaced by values."""
    named = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in chosen.items()
    }
    return problem.format(**named)


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


def check_values(values: Any, where: str) -> None:
    """Refuse what is no list of values."""
    if not isinstance(values, list) or not values:
        raise StudyError(f"{where} must be a list of values, got {values!r}")
    for value in values:
        if not isinstance(value, str | int | float):
            raise StudyError(f"{where} has {value!r}, which is no value")


def _check_range(values: Mapping[str, Any], where: str) -> None:
    """Refuse what is no range of numbers."""
    low, high, log = (values.get(name, False) for name in ("from", "to", "log"))
    numbers = all(type(n) in (int, float) and math.isfinite(n) for n in (low, high))
    known = not set(values) - {"from", "to", "log"} and isinstance(log, bool)
    if not (numbers and known and low < high and (low > 0 or not log)):
        raise StudyError(
            f"{where} must be a list, or a range such as {{from = 0.1, to = 10.0, log = true}}, "
            f"got {values!r}"
        )
