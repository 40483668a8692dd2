"""Formats of numbers, the same in every table and report."""

from __future__ import annotations

import math
from collections.abc import Iterable

#: Significant digits of energies (more if the integer part is longer).
_DIGITS = 7

#: Shown in place of a missing number.
NONE = "-"


def decimals_for(values: Iterable[float]) -> int:
    """Return the number of decimals that gives the largest value seven significant digits."""
    sizes = [abs(v) for v in values if math.isfinite(v) and v != 0]
    if not sizes:
        return 1
    return min(6, max(1, _DIGITS - 1 - math.floor(math.log10(max(sizes)))))


def format_energy(value: float | None, decimals: int) -> str:
    """Return an energy with a number of decimals, or `NONE` where it is not finite."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{decimals}f}" if abs(value) < 1e12 else f"{value:.6e}"


def format_percent(value: float) -> str:
    """Return a gap in percent."""
    if value == 0:
        return "0"
    if 0 < value < 0.005:
        return "<0.01"
    return f"{value:.2f}" if abs(value) < 1e4 else f"{value:.1e}"


def format_gap(value: float) -> str:
    """Return a gap in the unit of the energy."""
    return f"{value:.4g}"


def format_seconds(value: float) -> str:
    """Return a time in seconds, or `NONE` where it is not finite."""
    if not math.isfinite(value):
        return NONE
    value = float(f"{value:.12g}")  # so that 0.9999999999999999 has the decimals of 1
    if value < 0.001:
        return f"{value:.2g}"
    for limit, decimals in ((0.1, 4), (1.0, 3), (100.0, 2)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


def format_rate(value: float) -> str:
    """Return a whole percentage; 0 and 100 only for exact values."""
    if 0 < value < 0.5 or 99.5 <= value < 100:
        return "<0.1" if value < 0.05 else ">99.9" if value >= 99.95 else f"{value:.1f}"
    return f"{value:.0f}"


def format_bytes(value: float) -> str:
    """Return a size of memory."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 2**power:
            size = value / 2**power
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
    return f"{value:.15g} bytes"
