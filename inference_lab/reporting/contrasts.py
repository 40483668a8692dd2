"""Declared contrasts: one method against another, over data sets, as a table of a report."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from inference_lab.formatting import counted
from inference_lab.reporting.charts import Chart, heatmap
from inference_lab.reporting.document import (
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    Text,
    column,
    p_value,
)
from inference_lab.reporting.resampling import ALPHA, Effect, Verdict, as_rows, effect, verdict
from inference_lab.reporting.statistics import holm
from inference_lab.results.number_formats import NONE
from inference_lab.specs.grammar import plain_value

#: Names of the two methods of a contrast by energy. It compares the lower with the higher energy,
#: over all pairs of runs of one cell that differ in energy.
BY_ENERGY = ("lower energy", "higher energy")

#: Relative difference below which two energies count as equal, because rounding can cause it.
_SAME = 1e-9

#: Metrics for which lower values are better.
COSTS = (
    *("primal_gap", "optimality_gap", "regret", "energy"),
    *("objective", "violated", "seconds", "e_step_seconds"),
)

#: Metrics in words, by key; a missing one is its own name.
_NAMES: Mapping[str, str] = {
    "pairwise_f": "pairwise F",
    "nmi": "NMI",
    "nmi_geometric": "NMI (geometric mean)",
    "ari": "adjusted Rand index",
    "ari_constrained": "adjusted Rand index on constrained points",
    "ari_untouched": "adjusted Rand index on other points",
    "boundary_accuracy": "accuracy of the decision boundary",
    "clusters": "number of clusters",
    "violated": "weight of violated constraints",
    "e_step_seconds": "seconds of E-steps",
    "primal_gap": "primal gap (%)",
    "optimality_gap": "optimality gap (%)",
}


def score_name(score: str) -> str:
    """Return the name of a score or cost in texts."""
    return _NAMES.get(score, score)


class Contrast(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declared comparison, best stated before the runs: is one method better than another."""

    #: Name of the contrast in the table.
    name: str
    #: The score or cost compared; lower is better for `COSTS`, higher for all others.
    metric: str
    #: Specs of solvers, or labels of clustering methods. A name in braces is a fact and matches any
    #: text: ``"ICM, x {weight_factor}"`` matches all labels of that form. Each is paired with the
    #: label of the other method that has the same facts, or with a baseline without names.
    #: `BY_ENERGY` compares the final labellings of each pair of runs of one cell whose energies
    #: differ: does a lower energy go with a better score.
    solver: str
    baseline: str
    #: The fact that names the data set of an observation. Data sets are the units of the tests.
    unit: str = "data"
    #: The fact that names the draw. Observations of one set and draw share their randomness, so
    #: only their mean counts.
    draw: str = "seed"
    #: Facts that observations must have: a value, or a list of accepted values.
    where: dict[str, Any] = {}
    #: Whether the contrast is one of the few that the study is about. The p-values of primary
    #: contrasts are corrected for their number; all others are uncorrected.
    primary: bool = False
    #: Differences of at most this size do not matter; 0 for no verdict of equivalence.
    margin: Annotated[float, Meta(ge=0.0, le=sys.float_info.max)] = 0.0
    #: One to three facts over which the gain is mapped: columns, rows, and panels.
    over: Annotated[list[str], Meta(max_length=3)] = []
    #: Ascending boundaries that divide a numeric fact into ranges; other facts go by their values.
    breaks: dict[str, Annotated[list[float], Meta(min_length=1)]] = {}

    def problem(self, solvers: Sequence[str]) -> str:
        """Return the error of the contrast in a study of these methods; empty if it is valid."""
        asked = {self.solver, self.baseline}
        known = BY_ENERGY if asked & set(BY_ENERGY) else solvers
        for key in ("solver", "baseline"):
            if not any(_form(getattr(self, key)).fullmatch(name) for name in known):
                there = ", ".join(known)
                return f"{key} {getattr(self, key)!r} is none of the study's: {there}"
        if _names(self.baseline) not in (set(), _names(self.solver)):
            return f"solver {self.solver!r} and baseline {self.baseline!r} must name the same facts"
        if self.solver == self.baseline:
            return f"solver and baseline are both {self.solver!r}"
        if len(set(self.over)) < len(self.over):
            return f"over must be different facts, got {self.over}"
        for name, ends in self.breaks.items():
            if name not in self.over:
                return f"breaks.{name} is of no fact that the map is over: {self.over}"
            if sorted(set(ends)) != ends:
                return f"breaks.{name} must be ascending numbers, got {ends!r}"
        return ""

    def range_of(self, name: str, value: Any) -> tuple[float, str]:
        """Return the position of a value of a fact along an axis of the map, and its label."""
        ends = self.breaks.get(name)
        if ends is None:
            number = isinstance(value, int | float)
            return (float(value), f"{value:g}") if number else (0.0, str(value))
        at = sum(value >= end for end in ends)
        if at == 0:
            return 0.0, f"< {ends[0]:g}"
        if at == len(ends):
            return float(at), f"≥ {ends[-1]:g}"
        return float(at), f"{ends[at - 1]:g} to {ends[at]:g}"


def _names(label: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", label))


@cache
def _form(label: str) -> re.Pattern[str]:
    """Return the pattern of a label, in which names in braces match any text."""
    parts = re.split(r"\{(\w+)\}", label)
    return re.compile(
        "".join(f"(?P<{p}>.+?)" if at % 2 else re.escape(p) for at, p in enumerate(parts))
    )


class Observation(NamedTuple):
    """The facts and metrics of one run, or of one fit."""

    cell: Hashable
    solver: str
    facts: Mapping[str, Any]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """The estimated effect, corrected p-value and verdict of a contrast."""

    contrast: Contrast
    effect: Effect
    corrected: float
    verdict: Verdict


def _of(contrast: Contrast, observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield the observations of both methods of a contrast, with the facts in their labels."""
    if contrast.solver in BY_ENERGY:
        yield from _by_energy(contrast, observations)
        return
    matched: dict[str, tuple[str, dict[str, Any]] | None] = {}
    # A baseline without names is paired with every value of the solver's facts.
    single = not _names(contrast.baseline) and bool(_names(contrast.solver))
    held = list(observations)
    alone = {o.cell: o for o in held if single and o.solver == contrast.baseline}
    for seen in held:
        if seen.solver not in matched:
            matched[seen.solver] = None
            for name in (contrast.solver, contrast.baseline):
                found = _form(name).fullmatch(seen.solver)
                if found is not None:
                    facts = {key: plain_value(value) for key, value in found.groupdict().items()}
                    matched[seen.solver] = name, facts
        if (as_what := matched[seen.solver]) is not None:
            name, facts = as_what
            cell = (seen.cell, *(facts[key] for key in sorted(facts)))
            yield Observation(cell, name, {**seen.facts, **facts}, seen.values)
            if seen.cell in alone:
                base = alone[seen.cell]
                yield Observation(cell, base.solver, {**base.facts, **facts}, base.values)


def _by_energy(contrast: Contrast, observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield the mean scores of the lower-energy and the higher-energy labellings of each cell.

    All pairs of runs whose energies differ count; cells without such a pair are left out.
    """
    cells: dict[Hashable, list[Observation]] = {}
    for seen in observations:
        values = seen.values
        if all(math.isfinite(values.get(key, math.nan)) for key in ("energy", contrast.metric)):
            cells.setdefault(seen.cell, []).append(seen)
    for cell, runs in cells.items():
        energy = np.array([run.values["energy"] for run in runs])
        score = np.array([run.values[contrast.metric] for run in runs])
        slack = _SAME * max(1.0, float(np.abs(energy).max()))
        low, high = np.nonzero(energy[:, None] < energy - slack)
        if low.size:
            for name, side in zip(BY_ENERGY, (low, high), strict=True):
                values = {contrast.metric: float(score[side].mean())}
                yield Observation(cell, name, runs[0].facts, values)


class _Pair(NamedTuple):
    """The gain of the solver over the baseline in one cell."""

    unit: str
    draw: str
    gain: float
    facts: Mapping[str, Any]


def _pairs(contrast: Contrast, observations: Iterable[Observation]) -> list[_Pair]:
    """Return the gains of all cells that have both methods."""
    pairs: dict[Hashable, dict[str, float]] = {}
    places: dict[Hashable, tuple[str, str, Mapping[str, Any]]] = {}
    for cell, solver, facts, values in _of(contrast, observations):
        value = values.get(contrast.metric, math.nan)
        if contrast.unit not in facts or not math.isfinite(value) or not _among(contrast, facts):
            continue
        pairs.setdefault(cell, {})[solver] = value
        # Without a fact for the draw, each cell counts as a draw of its own.
        draw = facts.get(contrast.draw, cell)
        places[cell] = (str(facts[contrast.unit]), str(draw), facts)
    sign = -1.0 if contrast.metric in COSTS else 1.0
    found = []
    for cell, both in pairs.items():
        if len(both) == 2:
            unit, draw, facts = places[cell]
            gain = sign * (both[contrast.solver] - both[contrast.baseline])
            found.append(_Pair(unit, draw, gain, facts))
    return found


def gains(contrast: Contrast, observations: Iterable[Observation]) -> list[list[float]]:
    """Return the gains of the solver over the baseline, by set and draw.

    Cells without one of the two methods do not count; the cells of one set and draw are averaged.
    """
    return _by_set(_pairs(contrast, observations))


def _by_set(pairs: Iterable[_Pair]) -> list[list[float]]:
    """Return the mean gains of the draws of each set."""
    found: dict[str, dict[str, list[float]]] = {}
    for unit, draw, gain, _ in pairs:
        found.setdefault(unit, {}).setdefault(draw, []).append(gain)
    return [
        [math.fsum(cells) / len(cells) for _, cells in sorted(draws.items())]
        for _, draws in sorted(found.items())
    ]


def _among(contrast: Contrast, facts: Mapping[str, Any]) -> bool:
    """Whether the facts meet the conditions of a contrast."""
    return all(
        facts.get(name) in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in contrast.where.items()
    )


def measure(contrasts: Sequence[Contrast], observations: Iterable[Observation]) -> list[Measured]:
    """Return the results of contrasts, the p-values of primary ones corrected for their number."""
    held = list(observations)
    effects = [effect(as_rows(gains(contrast, held))) for contrast in contrasts]
    primary = [at for at, contrast in enumerate(contrasts) if contrast.primary]
    corrected = [found.p_value for found in effects]
    for at, p in zip(primary, holm([corrected[at] for at in primary]), strict=True):
        corrected[at] = p
    return [
        Measured(contrast, found, p, verdict(found, p, contrast.margin))
        for contrast, found, p in zip(contrasts, effects, corrected, strict=True)
    ]


def regimes(
    contrast: Contrast, observations: Iterable[Observation]
) -> dict[tuple[str, ...], Measured]:
    """Return the results of a contrast for each combination of the facts in `over`."""
    cells: dict[tuple[tuple[float, str], ...], list[_Pair]] = {}
    for pair in _pairs(contrast, observations):
        if all(name in pair.facts for name in contrast.over):
            place = tuple(contrast.range_of(name, pair.facts[name]) for name in contrast.over)
            cells.setdefault(place, []).append(pair)
    found = {}
    for place in sorted(cells):
        here = effect(as_rows(_by_set(cells[place])))
        outcome = verdict(here, here.p_value, contrast.margin)
        found[tuple(name for _, name in place)] = Measured(contrast, here, math.nan, outcome)
    return found


def _map(contrast: Contrast, observations: Iterable[Observation]) -> list[Block]:
    """Return the map of a contrast, and its table."""
    cells = regimes(contrast, observations)
    if not cells:
        names = ", ".join(contrast.over)
        return [Text((f"No pair of runs has {names}, so there is no map of {contrast.name}.",))]
    facts = ", ".join(contrast.over)
    tie = (
        f"; = where the 90 % interval lies within {contrast.margin:g} of zero"
        if contrast.margin > 0
        else ""
    )
    # Facts in braces and with underscores are names of the definition, not words.
    methods = f"{contrast.solver} over {contrast.baseline} by {facts}"
    caption = (
        f"{contrast.name}: gain in {score_name(contrast.metric)} of "
        f"{re.sub('[{}]', '', methods).replace('_', ' ')}."
    )
    picture = Picture(
        f"gain-map-{contrast.name}",
        f"{caption} Coloured cells: the 95 % interval (second line) excludes zero and the "
        f"sign-flip test over sets agrees{tie}; ? where nothing is certain.",
        f"Map of gains over {counted(len(cells), 'cell')}.",
        partial(_gain_map, cells, contrast.over),
    )
    columns = [
        *(column(name, [key[at] for key in cells]) for at, name in enumerate(contrast.over)),
        *_effects(list(cells.values())),
        column("verdict", [found.verdict for found in cells.values()]),
    ]
    note = "Verdicts by intervals and tests of each cell, without correction for their number."
    return [picture, Table(f"gains-{contrast.name}", caption, tuple(columns), note)]


def _effects(held: Sequence[Measured]) -> list[Column]:
    """Return the columns on the size of effects, and on the sets and draws behind them."""
    return [
        column("gain", held, _gain_cell, help="mean over sets of means over draws"),
        column("95 % interval", held, _interval_cell, help="over resampled sets and draws"),
        column("sets above", held, _sets_cell, help="sets with a mean above zero, of all"),
        column("draws", [found.effect.draws for found in held]),
    ]


def _gain_map(cells: Mapping[tuple[str, ...], Measured], facts: Sequence[str]) -> Chart:
    """Return the map of gains, coloured where the verdict is a gain or a loss."""
    import pandas as pd

    known = [c.effect.value for c in cells.values() if c.verdict in ("gain", "loss")]
    most = max(map(abs, known), default=1.0)
    signs = {"equivalent": " =", "undecided": " ?"}
    across, along, panels = (_names_along(cells, at) for at in range(3))
    rows = []
    for panel, row, name in itertools.product(panels, along, across):
        found = cells.get(tuple(part for part in (name, row, panel) if part is not None))
        if found is None:
            continue
        effect = found.effect
        interval = "" if math.isnan(effect.low) else f"{_short(effect.low)}, {_short(effect.high)}"
        place = {"x": name, "y": row or "", "panel": f"{facts[2]} {panel}" if panel else ""}
        value = effect.value if found.verdict not in signs else 0.0
        text = f"{_short(effect.value)}{signs.get(found.verdict, '')}\n{interval}"
        rows.append({**place, "text": text, "value": value})
    # The domain exceeds the data, because text is illegible on the darkest shades. Orange marks a
    # loss, blue a gain.
    scale = {"scheme": "redblue", "domain": [-1.6 * most, 1.6 * most]}
    second = facts[1] if len(facts) > 1 else ""
    return heatmap(pd.DataFrame(rows), facts[0], second, scale=scale)


def _names_along(cells: Mapping[tuple[str, ...], Measured], at: int) -> list[str | None]:
    """Return the names along one axis in their order; None where there is no such fact.

    No column needs all values of the other axes: the orders of all columns are merged.
    """
    names = list(dict.fromkeys(key[at] if at < len(key) else None for key in cells))
    before: dict[str | None, set[str]] = {name: set() for name in names}
    groups: dict[tuple[str, ...], list[str]] = {}
    for key in cells:
        groups.setdefault(key[:at], []).extend(key[at : at + 1])
    for group in groups.values():
        for place, name in enumerate(group):
            before[name] |= set(group[:place]) - {name}
    return sorted(names, key=lambda name: (len(before[name]), names.index(name)))


def _short(value: float) -> str:
    if abs(value) < 5e-4:
        return "0"
    return f"{value:+.3f}" if abs(value) < 1 else f"{value:+.3g}"


def contrasts_section(
    contrasts: Sequence[Contrast], observations: Iterable[Observation]
) -> Section | None:
    """Return the section on declared contrasts, if there are any."""
    if not contrasts:
        return None
    held = list(observations)
    measured = measure(contrasts, held)
    ordered = sorted(measured, key=lambda found: not found.contrast.primary)
    maps = [block for c in contrasts if c.over for block in _map(c, held)]
    pictures = tuple(block for block in maps if not isinstance(block, Table))
    tables = tuple(block for block in maps if isinstance(block, Table))
    more = (Section("The maps as tables", tables, folded=True),) if tables else ()
    return Section("Contrasts", (*pictures, _table(ordered)), sections=more)


def _table(measured: Sequence[Measured]) -> Table:
    primary = sum(found.contrast.primary for found in measured)
    least = 2.0 ** (1 - max((found.effect.sets for found in measured), default=0))
    margins = sorted({found.contrast.margin for found in measured if found.contrast.margin > 0})
    equivalent = (
        ", equivalent where the 90 % interval lies within the margin of "
        f"{' or '.join(f'{margin:g}' for margin in margins)}"
        if margins
        else ""
    )
    contrasts = [found.contrast for found in measured]
    columns = (
        Column(
            "contrast",
            [Cell(c.name, title=f"{c.solver} against {c.baseline}") for c in contrasts],
            right=False,
        ),
        column("metric", [score_name(c.metric) for c in contrasts]),
        *_effects(measured),
        column("p", [m.effect.p_value for m in measured], p_value, help="sign flips of sets"),
        column(
            "p (Holm)",
            [m.corrected if m.contrast.primary else None for m in measured],
            p_value,
            help=f"corrected for {counted(primary, 'primary contrast')}",
        ),
        column("verdict", [m.verdict for m in measured]),
    )
    return Table(
        "contrasts",
        "The contrasts that the study declares: gains of one method over another, positive where "
        "the first is better.",
        columns,
        "Sets are the units: intervals resample sets, and draws within them; p-values are of "
        f"changes of sign of their means, of which none can be below {least:.2g}. "
        f"Gain and loss where the p-value, after correction for primary contrasts, is below "
        f"{ALPHA:g} and the interval on one side of zero{equivalent}; else undecided. Secondary "
        "contrasts are exploratory.",
    )


def _gain_cell(found: Measured) -> Cell:
    value = found.effect.value
    return Cell(NONE) if math.isnan(value) else Cell(_signed(value, found), value)


def _sets_cell(found: Measured) -> Cell:
    return Cell(f"{found.effect.above}/{found.effect.sets}", found.effect.above)


def _interval_cell(found: Measured) -> Cell:
    low, high = found.effect.low, found.effect.high
    if math.isnan(low):
        return Cell(NONE)
    return Cell(f"{_signed(low, found)} to {_signed(high, found)}", low)


def _signed(value: float, found: Measured) -> str:
    """Return a number with enough decimals to distinguish the ends of its interval."""
    width = found.effect.high - found.effect.low
    size = width if width > 0 else abs(found.effect.value)
    decimals = 3 if not size > 0 else min(12, max(3, 1 - math.floor(math.log10(size))))
    return f"{value:+.{decimals}f}"
