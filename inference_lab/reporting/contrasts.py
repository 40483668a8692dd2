"""Declared contrasts: one method against another, over data sets, as a table of a report."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    import pandas as pd

#: Names of the two methods of a contrast by energy. It compares the lower with the higher energy,
#: over all pairs of runs of one cell that differ in energy.
BY_ENERGY = ("lower energy", "higher energy")

#: Relative difference below which two energies count as equal, because rounding can cause it.
_SAME = 1e-9

#: Column of the gain of the solver over the baseline; no fact has this name.
_GAIN = "gain of the solver"

#: Metrics for which lower values are better.
COSTS = (
    "primal_gap",
    "optimality_gap",
    "regret",
    "energy",
    "objective",
    "violated",
    "seconds",
    "e_step_seconds",
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
        names = BY_ENERGY if asked & set(BY_ENERGY) else solvers
        for key in ("solver", "baseline"):
            if not any(_form(getattr(self, key)).fullmatch(name) for name in names):
                there = ", ".join(names)
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

    def ranges(self, name: str, values: pd.Series[Any]) -> pd.Series[Any]:
        """Return the labels of a fact along an axis of the map, as ordered categories."""
        import pandas as pd

        ends = self.breaks.get(name)
        if ends is not None:
            inner = (f"{low:g} to {high:g}" for low, high in pairwise(ends))
            labels = [f"< {ends[0]:g}", *inner, f"≥ {ends[-1]:g}"]
            bounds = [-math.inf, *ends, math.inf]
            return pd.cut(values.astype(float), bounds, right=False, labels=labels)
        ordered = sorted(values.unique(), key=lambda v: (v, "") if isinstance(v, Real) else (0, v))
        labels = list(dict.fromkeys(map(_label, ordered)))
        return values.map(_label).astype(pd.CategoricalDtype(labels, ordered=True))


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, Real) else str(value)


def _names(label: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", label))


@cache
def _form(label: str) -> re.Pattern[str]:
    """Return the pattern of a label, in which names in braces match any text."""
    parts = re.split(r"\{(\w+)\}", label)
    return re.compile(
        "".join(f"(?P<{p}>.+?)" if at % 2 else re.escape(p) for at, p in enumerate(parts))
    )


@dataclass(frozen=True)
class Measured:
    """The estimated effect, corrected p-value and verdict of a contrast."""

    contrast: Contrast
    effect: Effect
    corrected: float
    verdict: Verdict


def _matching(label: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of methods that a label matches, with the facts in their names."""
    solvers = runs["solver"].tolist()
    match_by_name = {name: _form(label).fullmatch(name) for name in set(solvers)}
    matches = [match_by_name[name] for name in solvers]
    groups = [match.groupdict() for match in matches if match is not None]
    facts = {name: [plain_value(group[name]) for group in groups] for name in _names(label)}
    return runs[[match is not None for match in matches]].assign(**facts)


def _by_energy(metric: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean gain of lower over higher energies in each cell, over all pairs of runs."""
    import pandas as pd

    finite_runs = runs[np.isfinite(runs[["energy", metric]].astype(float)).all(axis=1)]
    rows = []
    for _, mine in finite_runs.groupby("cell", sort=False):
        energy, score = (mine[name].to_numpy(dtype=float) for name in ("energy", metric))
        slack = _SAME * max(1.0, float(np.abs(energy).max()))
        low, high = np.nonzero(energy[:, None] < energy - slack)
        if low.size:
            rows.append({**mine.iloc[0], _GAIN: score[low].mean() - score[high].mean()})
    return pd.DataFrame(rows, columns=[*runs, _GAIN])


def _pairs(contrast: Contrast, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the gain in each cell that has both methods, with its facts, by unit and draw."""
    metric, unit, draw = contrast.metric, contrast.unit, contrast.draw
    asked = ["cell", "solver", "energy", metric, unit, draw, *contrast.where, *contrast.over]
    runs = runs.reindex(columns=list(dict.fromkeys([*runs, *asked])))
    if contrast.solver in BY_ENERGY:
        pairs = _by_energy(metric, runs)
    else:
        others = _matching(contrast.baseline, runs)
        mine = _matching(contrast.solver, runs)
        mine = mine[~mine["solver"].isin(others["solver"])]
        # A baseline without names is paired with every value of the solver's facts.
        shared = ["cell", *sorted(_names(contrast.baseline))]
        others = others[[*shared, metric]].rename(columns={metric: _GAIN})
        pairs = mine.merge(others, on=shared)
        pairs[_GAIN] = pairs[metric].astype(float) - pairs[_GAIN].astype(float)
    pairs = pairs[np.isfinite(pairs[_GAIN].astype(float)) & pairs[unit].notna()]
    for name, wanted in contrast.where.items():
        pairs = pairs[pairs[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    sign = -1.0 if metric in COSTS else 1.0
    # Without a fact for the draw, each cell counts as a draw of its own.
    draws = pairs[draw].astype(object).where(pairs[draw].notna(), pairs["cell"])
    index = [pairs[unit].astype(str).rename("unit"), draws.astype(str).rename("draw")]
    return pairs.assign(**{_GAIN: sign * pairs[_GAIN]}).set_index(index)


def gains(contrast: Contrast, runs: pd.DataFrame) -> list[list[float]]:
    """Return the gains of the solver over the baseline, by set and draw.

    Cells without one of the two methods do not count; the cells of one set and draw are averaged.
    """
    return _by_set(_pairs(contrast, runs))


def _by_set(pairs: pd.DataFrame) -> list[list[float]]:
    """Return the mean gains of the draws of each set."""
    draws = pairs.groupby(level=["unit", "draw"])[_GAIN].mean()
    return [set_gains.tolist() for _, set_gains in draws.groupby(level="unit")]


def measure(contrasts: Sequence[Contrast], runs: pd.DataFrame) -> list[Measured]:
    """Return the results of contrasts, the p-values of primary ones corrected for their number.

    Rows of `runs` have a cell, a solver, and a column for each fact and each metric.
    """
    effects = [effect(as_rows(gains(contrast, runs))) for contrast in contrasts]
    primary = [at for at, contrast in enumerate(contrasts) if contrast.primary]
    corrected = [estimate.p_value for estimate in effects]
    for at, p in zip(primary, holm([corrected[at] for at in primary]), strict=True):
        corrected[at] = p
    return [
        Measured(contrast, estimate, p, verdict(estimate, p, contrast.margin))
        for contrast, estimate, p in zip(contrasts, effects, corrected, strict=True)
    ]


def regimes(contrast: Contrast, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the results of a contrast, `measured`, for each combination of the facts in `over`."""
    import pandas as pd

    over = contrast.over
    pairs = _pairs(contrast, runs).dropna(subset=over)
    pairs = pairs.assign(**{name: contrast.ranges(name, pairs[name]) for name in over})
    rows = []
    for place, mine in pairs.groupby(over, observed=True):
        here = effect(as_rows(_by_set(mine)))
        outcome = verdict(here, here.p_value, contrast.margin)
        rows.append((*place, Measured(contrast, here, math.nan, outcome)))
    results = pd.DataFrame(rows, columns=[*over, "measured"])
    return results.astype({name: pairs[name].dtype for name in over})


def _map(contrast: Contrast, runs: pd.DataFrame) -> list[Block]:
    """Return the map of a contrast, and its table."""
    cells = regimes(contrast, runs)
    if cells.empty:
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
        *(column(name, cells[name]) for name in contrast.over),
        *_effects(cells["measured"].tolist()),
        column("verdict", [result.verdict for result in cells["measured"]]),
    ]
    note = "Verdicts by intervals and tests of each cell, without correction for their number."
    return [picture, Table(f"gains-{contrast.name}", caption, tuple(columns), note)]


def _effects(measured: Sequence[Measured]) -> list[Column]:
    """Return the columns on the size of effects, and on the sets and draws behind them."""
    effects = [result.effect for result in measured]
    sets = [Cell(f"{estimate.above}/{estimate.sets}", estimate.above) for estimate in effects]
    return [
        column("gain", measured, _gain_cell, help="mean over sets of means over draws"),
        column("95 % interval", measured, _interval_cell, help="over resampled sets and draws"),
        Column("sets above", sets, help="sets with a mean above zero, of all"),
        column("draws", [estimate.draws for estimate in effects]),
    ]


def _gain_map(cells: pd.DataFrame, facts: Sequence[str]) -> Chart:
    """Return the map of gains, coloured where the verdict is a gain or a loss."""
    measured = cells["measured"].tolist()
    clear_gains = [c.effect.value for c in measured if c.verdict in ("gain", "loss")]
    largest = max(map(abs, clear_gains), default=1.0)
    places: dict[str, Any] = {"y": "", "panel": ""}
    places |= {axis: cells[name] for axis, name in zip(("x", "y", "panel"), facts, strict=False)}
    rows = cells.assign(
        **places,
        text=[_gain_text(result) for result in measured],
        value=[c.effect.value if c.verdict in ("gain", "loss") else 0.0 for c in measured],
    )[["x", "y", "panel", "text", "value"]]
    if len(facts) > 2:
        rows["panel"] = rows["panel"].cat.rename_categories(lambda label: f"{facts[2]} {label}")
    # The domain exceeds the data, because text is illegible on the darkest shades. Orange marks a
    # loss, blue a gain.
    scale = {"scheme": "redblue", "domain": [-1.6 * largest, 1.6 * largest]}
    rows = rows.sort_values(["panel", "y", "x"])
    return heatmap(rows, facts[0], facts[1] if len(facts) > 1 else "", scale=scale)


def _gain_text(result: Measured) -> str:
    sign = {"equivalent": " =", "undecided": " ?"}.get(result.verdict, "")
    low, high = result.effect.low, result.effect.high
    interval = "" if math.isnan(low) else f"{_short(low)}, {_short(high)}"
    return f"{_short(result.effect.value)}{sign}\n{interval}"


def _short(value: float) -> str:
    if abs(value) < 5e-4:
        return "0"
    return f"{value:+.3f}" if abs(value) < 1 else f"{value:+.3g}"


def contrasts_section(contrasts: Sequence[Contrast], runs: pd.DataFrame) -> Section | None:
    """Return the section on declared contrasts, if there are any."""
    if not contrasts:
        return None
    measured = measure(contrasts, runs)
    ordered = sorted(measured, key=lambda result: not result.contrast.primary)
    maps = [block for c in contrasts if c.over for block in _map(c, runs)]
    pictures = tuple(block for block in maps if not isinstance(block, Table))
    tables = tuple(block for block in maps if isinstance(block, Table))
    more = (Section("The maps as tables", tables, folded=True),) if tables else ()
    return Section("Contrasts", (*pictures, _table(ordered)), sections=more)


def _table(measured: Sequence[Measured]) -> Table:
    primary = sum(result.contrast.primary for result in measured)
    lowest_p = 2.0 ** (1 - max((result.effect.sets for result in measured), default=0))
    margins = sorted({result.contrast.margin for result in measured if result.contrast.margin > 0})
    equivalent = (
        ", equivalent where the 90 % interval lies within the margin of "
        f"{' or '.join(f'{margin:g}' for margin in margins)}"
        if margins
        else ""
    )
    contrasts = [result.contrast for result in measured]
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
        f"changes of sign of their means, of which none can be below {lowest_p:.2g}. "
        f"Gain and loss where the p-value, after correction for primary contrasts, is below "
        f"{ALPHA:g} and the interval on one side of zero{equivalent}; else undecided. Secondary "
        "contrasts are exploratory.",
    )


def _gain_cell(result: Measured) -> Cell:
    value = result.effect.value
    return Cell(NONE) if math.isnan(value) else Cell(_signed(value, result), value)


def _interval_cell(result: Measured) -> Cell:
    low, high = result.effect.low, result.effect.high
    if math.isnan(low):
        return Cell(NONE)
    return Cell(f"{_signed(low, result)} to {_signed(high, result)}", low)


def _signed(value: float, result: Measured) -> str:
    """Return a number with enough decimals to distinguish the ends of its interval."""
    width = result.effect.high - result.effect.low
    size = width if width > 0 else abs(result.effect.value)
    decimals = 3 if not size > 0 else min(12, max(3, 1 - math.floor(math.log10(size))))
    return f"{value:+.{decimals}f}"
