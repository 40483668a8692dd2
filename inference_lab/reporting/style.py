"""The look of all figures: readable in black and white, the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "DASHES", "LINES", "MARKERS", "RC", "dress", "line_style"]

MARKERS = "os^vD<>Pp*hX"
LINES = ("-", "--", "-.", ":")
#: The same lines as an SVG of a page has them, in pixels.
DASHES = dict(zip(LINES, ("", "6 3", "8 3 1.5 3", "1.5 2.5"), strict=True))
#: Distinct in lightness as well (Okabe and Ito).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

#: Settings of matplotlib under which a figure is drawn and saved: no identifier in an SVG is
#: random, text is kept as outlines, and is small enough for a column of a paper. The hyphen stands
#: for the minus, which would take a second copy of the font into each PDF.
RC: Mapping[Any, Any] = {
    "svg.hashsalt": "inference-lab",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.unicode_minus": False,
}


def line_style(number: int) -> dict[str, Any]:
    """Return colour, marker and line of the curve of this number; 84 of them differ.

    Examples
    --------
    >>> line_style(1)["marker"], line_style(1)["linestyle"]
    ('s', '--')
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": LINES[number % len(LINES)],
        "markersize": 4,
        "linewidth": 1.1,
    }


def dress(axes: Axes) -> None:
    """Set grid, sizes of text, and leave out the frame where there is no axis."""
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
