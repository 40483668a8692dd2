"""Designs of the problems of a study: all combinations of values, or a sample of them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from inference_lab.formatting import nearest
from inference_lab.studies.definition import Natural, StudyError, Values, check_names

#: Significant digits of values drawn from a range; few, because the values occur in names.
_DIGITS = 3


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Problems that differ in some of their settings.

    Parameters
    ----------
    problem : str
        A spec with names in braces, such as ``"estep(data={data}, noise={noise})"``.
    values : mapping of str to list
        Values of each name; all combinations are problems.
    """

    problem: str
    values: dict[str, Values] = {}

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems; the last name changes fastest."""
        for values in itertools.product(*self.values.values()):
            yield _filled(self.problem, dict(zip(self.values, values, strict=True)))

    def check(self, where: str) -> None:
        """Raise `StudyError` for names without values, and for values without names."""
        check_names(self.problem, set(self.values), f"{where}.values", f"{where}.problem")


class ValueRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of numbers, uniform in the logarithm if `log`: ``{ from = 0.1, to = 10.0 }``."""

    low: float = msgspec.field(name="from")
    to: float
    log: bool = False

    def __post_init__(self) -> None:
        """Raise `StudyError` for bounds that are not finite, not ascending, or not positive."""
        finite = math.isfinite(self.low) and math.isfinite(self.to)
        if not (finite and self.low < self.to and (self.low > 0 or not self.log)):
            raise StudyError(
                "a range is such as {from = 0.1, to = 10.0, log = true}, got "
                f"from = {self.low:g}, to = {self.to:g}"
            )

    def at(self, share: float) -> float:
        """Return the number at this share of the range, rounded to `_DIGITS` digits."""
        if self.log:
            number = self.low * (self.to / self.low) ** share
        else:
            number = self.low + (self.to - self.low) * share
        return float(f"{number:.{_DIGITS}g}")


class Design(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Problems at points of a Latin hypercube: each value of each setting is taken equally often.

    Parameters
    ----------
    problem : str
        A spec with names in braces: the names of `values`, and ``{draw}`` for the number of the
        draw.
    values : mapping of str to list or table
        Values of each name: a list, or a range ``{from = 0.1, to = 10.0, log = true}``. A range is
        split into as many equal parts as there are cells, in the logarithm with ``log``; each part
        gives one number with three digits.
    cells : int
        Points of the hypercube, over all blocks.
    draws : int
        Problems at each point, each with a draw of its own: no two problems share a number.
    block : str or None
        A name with a list of values; each value gets a separate hypercube and an equal share of the
        cells.
    seed : int
        Seed of the hypercube.
    """

    problem: str
    values: dict[str, Values | ValueRange] = {}
    cells: Natural
    draws: Natural = 1
    block: str | None = None
    seed: int = 0

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems: a draw of each cell, then another of each.

        The cells of the blocks alternate, so that a study that is stopped early has cells of every
        block. A larger number of draws adds problems and keeps the others.
        """
        blocks = self._blocks()
        shares = [len(range(at, self.cells, len(blocks))) for at in range(len(blocks))]
        drawn = [
            self._hypercube(*block_and_share)
            for block_and_share in zip(blocks, shares, strict=True)
        ]
        turns = itertools.zip_longest(*drawn)
        cells = [cell for turn in turns for cell in turn if cell is not None]
        for draw in range(self.draws):
            for number, cell in enumerate(cells):
                yield _filled(self.problem, {**cell, "draw": number + draw * len(cells)})

    def _blocks(self) -> list[Any]:
        values = [None] if self.block is None else self.values.get(self.block)
        if not isinstance(values, list):
            raise StudyError(
                f"block = {self.block!r}; allowed: a name of the values that has a list"
                + nearest(str(self.block), list(self.values))
            )
        return values

    def _hypercube(self, block: Any, cells: int) -> list[dict[str, Any]]:
        """Return the points of one block."""
        columns = []
        for name, values in self.values.items():
            # Python's own generator is used because its draws are the same in all versions.
            draw = random.Random(f"{self.seed}, {block}, {name}")
            if name == self.block:
                column = [block] * cells
            elif isinstance(values, list):
                # The order is drawn because the first values occur once more if `cells` is not a
                # multiple of their number.
                among = draw.sample(values, len(values))
                column = [among[at % len(among)] for at in range(cells)]
            else:
                column = [values.at((at + draw.random()) / cells) for at in range(cells)]
            draw.shuffle(column)
            columns.append(column)
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def check(self, where: str) -> None:
        """Raise `StudyError` as `Grid.check` does, and for fewer cells than blocks."""
        check_names(self.problem, {*self.values, "draw"}, f"{where}.values", f"{where}.problem")
        blocks = len(self._blocks())
        if self.cells < blocks:
            raise StudyError(
                f"{where}.cells must be at least 1 a block, {blocks}, got {self.cells}"
            )


def _filled(problem: str, values: Mapping[str, Any]) -> str:
    """Return a spec with its names replaced by values."""
    named = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
    }
    return problem.format(**named)
