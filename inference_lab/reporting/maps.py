"""The map of a contrast: sign and size of a gain, cell by cell, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from inference_lab.reporting.figures import plain
from inference_lab.reporting.resampling import Effect
from inference_lab.reporting.style import COLOURS, RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["gain_map"]

#: What is said where an interval tells no sign; a gain and a loss have their numbers.
_SIGNS = {"equivalent": "=", "undecided": "?"}

#: Inches of a cell.
_WIDTH, _HEIGHT = 0.74, 0.4


class _Cell(Protocol):
    """What is known of a cell: `inference_lab.reporting.contrasts.Measured`."""

    @property
    def effect(self) -> Effect: ...
    @property
    def verdict(self) -> str: ...


def gain_map(cells: Mapping[tuple[str, ...], _Cell], facts: Sequence[str]) -> Figure:
    """Draw gains cell by cell, coloured where they are told from zero.

    Parameters
    ----------
    cells : mapping
        By the names of columns, rows and panels, as many of them as there are facts, in order.
    facts : sequence of str
        What these are of, one to three.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    # Missing facts have one value without a name.
    named = {(*key, "", "")[:3]: cell for key, cell in cells.items()}
    across, along, panels = (list(dict.fromkeys(_names_along(named, at))) for at in range(3))
    sizes = [abs(c.effect.value) for c in named.values() if c.verdict in ("gain", "loss")]
    most = max(sizes, default=1.0)
    per_row = max(1, min(len(panels), int(10.6 // (_WIDTH * len(across) + 0.8))))
    lines = -(-len(panels) // per_row)
    with rc_context(dict(RC)):
        figure = Figure(
            figsize=(
                max(3.2, per_row * (_WIDTH * len(across) + 0.8) + 0.3),
                lines * (_HEIGHT * len(along) + 0.85) + 0.1,
            ),
            layout="constrained",
        )
        axes = figure.subplots(lines, per_row, squeeze=False)
        for number in range(lines * per_row):
            panel = axes[number // per_row][number % per_row]
            if number >= len(panels):
                panel.set_visible(False)
                continue
            for i, row in enumerate(along):
                for j, column in enumerate(across):
                    cell = named.get((column, row, panels[number]))
                    if cell is None:
                        continue
                    shade = 0.0
                    if cell.verdict in ("gain", "loss"):
                        shade = 0.2 + 0.6 * math.sqrt(abs(cell.effect.value) / most)
                    panel.add_patch(
                        Rectangle(
                            (j, i),
                            1,
                            1,
                            facecolor=COLOURS[1 if cell.effect.value > 0 else 2],
                            alpha=shade,
                            linewidth=0,
                        )
                    )
                    panel.text(j + 0.5, i + 0.36, _gain(cell), ha="center", va="center", fontsize=8)
                    interval = f"{_short(cell.effect.low)}, {_short(cell.effect.high)}"
                    said = "" if math.isnan(cell.effect.low) else interval
                    panel.text(j + 0.5, i + 0.74, said, ha="center", va="center", fontsize=5.5)
            panel.set_xlim(0, len(across))
            panel.set_ylim(len(along), 0)
            panel.set_xticks([j + 0.5 for j in range(len(across))], [plain(c) for c in across])
            panel.set_yticks([i + 0.5 for i in range(len(along))], [plain(r) for r in along])
            panel.tick_params(length=0, labelsize=7)
            for edge in range(len(across) + 1):
                panel.axvline(edge, color="#999999", linewidth=0.5)
            for edge in range(len(along) + 1):
                panel.axhline(edge, color="#999999", linewidth=0.5)
            for side in panel.spines.values():
                side.set_visible(False)
            panel.set_xlabel(plain(facts[0]), fontsize=8)
            if len(facts) > 1:
                panel.set_ylabel(plain(facts[1]), fontsize=8)
            if len(facts) > 2:
                panel.set_title(plain(f"{facts[2]} {panels[number]}"), fontsize=8)
    return figure


def _names_along(cells: Mapping[tuple[str, ...], _Cell], at: int) -> list[str]:
    """Return the names along one axis: cells are in order of their first fact, then the next."""
    names = list(dict.fromkeys(key[at] for key in cells))
    if at == 0:
        return names
    # Of the other axes no single column need have all values; each has its own in order.
    before: dict[str, set[str]] = {name: set() for name in names}
    groups: dict[tuple[str, ...], list[str]] = {}
    for key in cells:
        groups.setdefault(key[:at], []).append(key[at])
    for group in groups.values():
        for place, name in enumerate(group):
            before[name] |= set(group[:place]) - {name}
    return sorted(names, key=lambda name: (len(before[name]), names.index(name)))


def _gain(cell: _Cell) -> str:
    sign = _SIGNS.get(cell.verdict, "")
    return f"{_short(cell.effect.value)}{' ' if sign else ''}{sign}"


def _short(value: float) -> str:
    if abs(value) < 5e-4:
        return "0"
    return f"{value:+.3f}" if abs(value) < 1 else f"{value:+.3g}"
