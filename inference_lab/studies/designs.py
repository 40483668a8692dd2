"""Which problems a study has: all combinations of values, or a sample of them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from inference_lab.formatting import nearest
from inference_lab.studies.definition import Natural, StudyError, Values, check_names

__all__ = ["Design", "Grid", "ValueRange"]

#: Significant digits of values drawn from a range: more say nothing, and names should be short.
_DIGITS = 3


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Problems that differ in some of their settings.

    Parameters
    ----------
    problem : str
        A spec with names in braces, such as ``"estep(data={data}, noise={noise})"``.
    values : mapping of str to list
        What each name stands for, in turn; all combinations are problems.
    """

    problem: str
    values: dict[str, Values] = {}

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems; the last name changes fastest."""
        for chosen in itertools.product(*self.values.values()):
            yield _filled(self.problem, dict(zip(self.values, chosen, strict=True)))

    def check(self, where: str) -> None:
        """Refuse names without values, and values without names."""
        check_names(self.problem, set(self.values), f"{where}.values", f"{where}.problem")


class ValueRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of numbers, equal in their logarithm if `log`: ``{ from = 0.1, to = 10.0 }``."""

    low: float = msgspec.field(name="from")
    to: float
    log: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        finite = math.isfinite(self.low) and math.isfinite(self.to)
        if not (finite and self.low < self.to and (self.low > 0 or not self.log)):
            raise StudyError(
                "a range is such as {from = 0.1, to = 10.0, log = true}, got "
                f"from = {self.low:g}, to = {self.to:g}"
            )

    def at(self, share: float) -> float:
        """Return the number that is so far into the range, with few digits."""
        if self.log:
            found = self.low * (self.to / self.low) ** share
        else:
            found = self.low + (self.to - self.low) * share
        return float(f"{found:.{_DIGITS}g}")


class Design(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    values: dict[str, Values | ValueRange] = {}
    cells: Natural
    draws: Natural = 1
    block: str | None = None
    seed: int = 0

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems: a draw of each cell, then another of each.

        The cells of the blocks take turns, so that what is stopped early has some of each. More
        draws add problems to those of fewer.
        """
        blocks = self._blocks()
        shares = [len(range(at, self.cells, len(blocks))) for at in range(len(blocks))]
        drawn = [self._hypercube(*each) for each in zip(blocks, shares, strict=True)]
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
            # The draws of Python's own generator are the same in all of its versions.
            draw = random.Random(f"{self.seed}, {block}, {name}")
            if name == self.block:
                column = [block] * cells
            elif isinstance(values, list):
                # Where they do not go in, which ones come once more is drawn as well.
                among = draw.sample(values, len(values))
                column = [among[at % len(among)] for at in range(cells)]
            else:
                column = [values.at((at + draw.random()) / cells) for at in range(cells)]
            draw.shuffle(column)
            columns.append(column)
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def check(self, where: str) -> None:
        """Refuse what `Grid.check` refuses, and cells that cannot be shared out."""
        check_names(self.problem, {*self.values, "draw"}, f"{where}.values", f"{where}.problem")
        blocks = len(self._blocks())
        if self.cells < blocks:
            raise StudyError(
                f"{where}.cells must be at least 1 a block, {blocks}, got {self.cells}"
            )


def _filled(problem: str, chosen: Mapping[str, Any]) -> str:
    """Return a spec with its names replaced by values."""
    named = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in chosen.items()
    }
    return problem.format(**named)
