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
from inference_lab.reporting.mixed import mixed_model
from inference_lab.reporting.resampling import ALPHA, Effect, Verdict, as_rows, effect, verdict
from inference_lab.reporting.statistics import holm
from inference_lab.results.number_formats import NONE
from inference_lab.specs.extras import MissingExtra
from inference_lab.specs.grammar import plain_value

__all__ = [
    "BY_ENERGY",
    "COSTS",
    "Contrast",
    "Measured",
    "Observation",
    "contrasts_section",
    "measure",
    "regimes",
]

#: Stand for the two runs of each pair of one cell that differ in energy, whoever made them.
BY_ENERGY = ("lower energy", "higher energy")

#: Share of an energy that rounding alone may tell two apart by.
_SAME = 1e-9

#: Of these, more is worse.
COSTS = (
    *("primal_gap", "optimality_gap", "regret", "energy"),
    *("objective", "violated", "seconds", "e_step_seconds"),
)


class Contrast(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to put to runs, best before they are made: is one method better than another."""

    #: What is said of it in the table.
    name: str
    #: The score or cost that is compared. Of `COSTS` less is better, of all others more.
    metric: str
    #: Specs of solvers, or labels of methods of clustering. Names in braces stand for anything, and
    #: are facts: ``"ICM, x {weight_factor}"`` are all labels of that form, each paired with the
    #: label of the other method that has the same in their place, or with a baseline without names.
    #: `BY_ENERGY` are the two labellings of each pair with different energies that runs of one cell
    #: ended with: does a lower energy go with a better score.
    solver: str
    baseline: str
    #: The fact that says of which set an observation is. Sets are what is counted.
    unit: str = "data"
    #: The fact that says of which draw it is: observations of one set and draw share what is
    #: random, so only their mean counts.
    draw: str = "seed"
    #: Facts that observations must have: a value, or a list of those that will do.
    where: dict[str, Any] = {}
    #: Whether it is one of the few that the study is about: the p-values of these are corrected for
    #: their number. Of others they are as they are.
    primary: bool = False
    #: Differences of at most this size do not matter; 0 if nothing is to be called equivalent.
    margin: Annotated[float, Meta(ge=0.0, le=sys.float_info.max)] = 0.0
    #: One to three facts over which there is a map of the gain: columns, rows, and panels.
    over: Annotated[list[str], Meta(max_length=3)] = []
    #: Where numbers of a fact are parted into ranges, ascending; other facts go by their values.
    breaks: dict[str, Annotated[list[float], Meta(min_length=1)]] = {}
    #: Facts that a mixed model of the gains has as effects, ``"log weight"`` for a logarithm; see
    #: `inference_lab.reporting.mixed`. It needs statsmodels, and is secondary.
    effects: list[str] = []

    def problem(self, solvers: Sequence[str]) -> str:
        """Return what is wrong with it in a study of some methods; empty if nothing is."""
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
        """Return the place of a value of a fact along a map, and what it is called there."""
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
    """Return what labels match in which names in braces stand for anything."""
    parts = re.split(r"\{(\w+)\}", label)
    return re.compile(
        "".join(f"(?P<{p}>.+?)" if at % 2 else re.escape(p) for at, p in enumerate(parts))
    )


class Observation(NamedTuple):
    """What one run, or one fit, came to."""

    cell: Hashable
    solver: str
    facts: Mapping[str, Any]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """What a contrast came to."""

    contrast: Contrast
    effect: Effect
    corrected: float
    verdict: Verdict


def _of(contrast: Contrast, observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield what the two methods of a contrast came to, with the facts that their labels tell."""
    if contrast.solver in BY_ENERGY:
        yield from _by_energy(contrast, observations)
        return
    told: dict[str, tuple[str, dict[str, Any]] | None] = {}
    # A baseline that names no facts is that of each value of the solver's.
    single = not _names(contrast.baseline) and bool(_names(contrast.solver))
    held = list(observations)
    alone = {o.cell: o for o in held if single and o.solver == contrast.baseline}
    for seen in held:
        if seen.solver not in told:
            told[seen.solver] = None
            for name in (contrast.solver, contrast.baseline):
                found = _form(name).fullmatch(seen.solver)
                if found is not None:
                    facts = {key: plain_value(value) for key, value in found.groupdict().items()}
                    told[seen.solver] = name, facts
        if (as_what := told[seen.solver]) is not None:
            name, facts = as_what
            cell = (seen.cell, *(facts[key] for key in sorted(facts)))
            yield Observation(cell, name, {**seen.facts, **facts}, seen.values)
            if seen.cell in alone:
                base = alone[seen.cell]
                yield Observation(cell, base.solver, {**base.facts, **facts}, base.values)


def _by_energy(contrast: Contrast, observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield for each cell what labellings of lower and of higher energy came to, on average.

    All pairs of runs count whose energies differ; cells without any have nothing to say.
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
    """By how much the solver was better in one cell."""

    unit: str
    draw: str
    gain: float
    facts: Mapping[str, Any]


def _pairs(contrast: Contrast, observations: Iterable[Observation]) -> list[_Pair]:
    """Return the gains of all cells in which neither method is missing."""
    pairs: dict[Hashable, dict[str, float]] = {}
    places: dict[Hashable, tuple[str, str, Mapping[str, Any]]] = {}
    for cell, solver, facts, values in _of(contrast, observations):
        value = values.get(contrast.metric, math.nan)
        if contrast.unit not in facts or not math.isfinite(value) or not _among(contrast, facts):
            continue
        pairs.setdefault(cell, {})[solver] = value
        # Where nothing is known of draws, each cell is one.
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
    """Return by how much the solver is better than the baseline, for each set and draw.

    Cells in which one of them is missing do not count; the cells of one set and draw are averaged.
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
    """Whether facts are as a contrast wants them."""
    return all(
        facts.get(name) in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in contrast.where.items()
    )


def measure(contrasts: Sequence[Contrast], observations: Iterable[Observation]) -> list[Measured]:
    """Return what contrasts come to, the primary ones corrected for their number."""
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
    """Return what a contrast comes to for each combination of the facts that it is over."""
    cells: dict[tuple[tuple[float, str], ...], list[_Pair]] = {}
    for pair in _pairs(contrast, observations):
        if all(name in pair.facts for name in contrast.over):
            place = tuple(contrast.range_of(name, pair.facts[name]) for name in contrast.over)
            cells.setdefault(place, []).append(pair)
    found = {}
    for place in sorted(cells):
        here = effect(as_rows(_by_set(cells[place])))
        said = verdict(here, here.p_value, contrast.margin)
        found[tuple(name for _, name in place)] = Measured(contrast, here, math.nan, said)
    return found


def _map(contrast: Contrast, observations: Iterable[Observation]) -> list[Block]:
    """Return the map of a contrast, and its table."""
    cells = regimes(contrast, observations)
    if not cells:
        told = ", ".join(contrast.over)
        return [Text((f"No pair of runs tells {told}, so there is no map of {contrast.name}.",))]
    facts = ", ".join(contrast.over)
    tie = (
        f"; = where the 90 % interval lies within {contrast.margin:g} of zero"
        if contrast.margin > 0
        else ""
    )
    caption = (
        f"{contrast.name}: gain in {contrast.metric} of {contrast.solver} over "
        f"{contrast.baseline} by {facts}."
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
    """Return the map of gains, coloured where they are told from zero."""
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
        told = "" if math.isnan(effect.low) else f"{_short(effect.low)}, {_short(effect.high)}"
        place = {"x": name, "y": row or "", "panel": f"{facts[2]} {panel}" if panel else ""}
        value = effect.value if found.verdict not in signs else 0.0
        text = f"{_short(effect.value)}{signs.get(found.verdict, '')}\n{told}"
        rows.append({**place, "text": text, "value": value, "best": False})
    # The darkest shades are left out, so that text is legible. Orange is a loss, blue a gain.
    scale = {"scheme": "redblue", "domain": [-1.6 * most, 1.6 * most]}
    second = facts[1] if len(facts) > 1 else ""
    return heatmap(pd.DataFrame(rows), facts[0], second, scale=scale)


def _names_along(cells: Mapping[tuple[str, ...], Measured], at: int) -> list[str | None]:
    """Return the names along one axis in their order; None where there is no such fact.

    No single column need have all values of the other axes; each has its own in order.
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
    models = tuple(_model(c, held) for c in contrasts if c.effects)
    more = [
        Section(title, blocks, folded=True)
        for title, blocks in (("Mixed models", models), ("The maps as tables", tables))
        if blocks
    ]
    return Section("Contrasts", (*pictures, _table(ordered)), sections=tuple(more))


def _model(contrast: Contrast, observations: Iterable[Observation]) -> Block:
    """Return the table of the mixed model of the gains, or why there is none."""
    pairs = [
        pair
        for pair in _pairs(contrast, observations)
        if all(name.rpartition(" ")[2] in pair.facts for name in contrast.effects)
    ]
    try:
        found = mixed_model(
            [(p.unit, p.draw, p.gain) for p in pairs], [p.facts for p in pairs], contrast.effects
        )
    except (ValueError, TypeError, MissingExtra) as problem:
        return Text((f"There is no mixed model of {contrast.name}: {problem}.",))
    columns = (
        column("effect", [c.name for c in found]),
        column("gain", [c.value for c in found], "{:+.4f}".format),
        Column("95 % interval", [Cell(f"{c.low:+.4f} to {c.high:+.4f}", c.low) for c in found]),
        column("p", [c.p_value for c in found], p_value),
    )
    return Table(
        f"mixed-{contrast.name}",
        f"{contrast.name}: a mixed model of the gain in {contrast.metric}, with sets and draws as "
        "random effects.",
        columns,
        f"Over {counted(len(pairs), 'pair')}, by restricted maximum likelihood. An effect is the "
        "change of the gain with a standard deviation of the fact; the mean is where all are at "
        "theirs. Secondary: it takes effects to be linear, and Wald's intervals to hold.",
    )


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
        column("metric", [c.metric for c in contrasts]),
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
    """Return a number with as many decimals as tell the ends of its interval apart."""
    width = found.effect.high - found.effect.low
    size = width if width > 0 else abs(found.effect.value)
    decimals = 3 if not size > 0 else min(12, max(3, 1 - math.floor(math.log10(size))))
    return f"{value:+.{decimals}f}"
