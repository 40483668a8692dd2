"""The report of a comparison as a document, from records alone.

Everything that is said follows from the records; what they cannot support (such as tests over one
problem) is left out, or a line says why it is not there. The order of the records does not
matter.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.comparison import Comparison, ProblemSummary, Row, environment_id
from inference_lab.contract import proves
from inference_lab.records import TRACE_LIMIT, Record
from inference_lab.reporting import figures
from inference_lab.reporting.document import (
    Block,
    Cell,
    Column,
    Document,
    Items,
    Picture,
    Section,
    Table,
    Text,
)
from inference_lab.reporting.numbers import (
    NONE,
    counted,
    decimals_for,
    energy_text,
    percent_text,
    seconds_text,
    share_text,
    shortened,
)
from inference_lab.reporting.results import Classes, Results, natural
from inference_lab.reporting.statistics import (
    CLOCK,
    RankTest,
    median,
    paired_wilcoxon,
    pairwise_wins,
    performance_profile,
    primal_gap_percent,
    quantile,
    rank_test,
    shifted_geometric_mean,
    snapped,
    solved_within,
)

__all__ = ["report_document"]

FloatArray = npt.NDArray[np.float64]

#: Seconds that are added in shifted geometric means.
SHIFT = 0.1

#: Primal gaps, in percent, that count as targets; the first one is that of the profiles.
TARGETS = (1.0, 0.1, 0.0)

#: Level of the tests.
ALPHA = 0.05

#: Quantiles of the bands.
_BAND = (0.25, 0.75)

#: Primal gaps in percent that differ by less are ties in tests.
_TIE = 1e-6

#: Points of a curve over time.
_MOMENTS = 60

#: Longer messages are cut off; records hold the whole.
_REASON_WIDTH = 300

#: Up to so many problems, the command that redoes the runs is written out.
_COMMAND_PROBLEMS = 10


def report_document(
    results: Comparison | Iterable[Record],
    *,
    title: str,
    question: str = "",
    answer: str = "",
    notes: Sequence[str] = (),
    classes: Classes | None = None,
    targets: Sequence[float] = TARGETS,
    times: Sequence[float] | None = None,
    shift: float = SHIFT,
    maps: Sequence[tuple[str, str]] = (),
    drawn_problems: int = 4,
    command: str = "",
) -> Document:
    """Return the report of a comparison.

    Parameters
    ----------
    results : Comparison, or iterable of Record
        Of records with the same key the last one counts; see `Comparison.of_store`.
    title : str
    question, answer : str
        In plain words, said first; left out where empty.
    notes : sequence of str
        What else is to be known.
    classes : mapping or callable, optional
        The class of each problem: from its name, or computed from one of its records. By default
        the entry ``class`` of the problem's info, else its family.
    targets : sequence of float
        Primal gaps in percent, in [0, 100), of which the time to reach them is told. Profiles and
        the cactus plot are for the first one.
    times : sequence of float, optional
        Seconds at which the quality is told; by default, and if there are none, powers of ten
        within the times that runs took.
    shift : float
        Seconds, not negative; see `shifted_geometric_mean`.
    maps : sequence of (str, str)
        Pairs of entries of the problems' info: for each a map says which solver is best for which
        values, the first along the rows.
    drawn_problems : int
        For at most this many problems energies and bounds are drawn over time, those with the
        largest gap left.
    command : str
        The command that redoes the runs; made up from the records where it is empty and they are
        few.

    Returns
    -------
    Document

    Raises
    ------
    ValueError
        If `targets`, `times`, `shift` or `drawn_problems` is out of range.

    Examples
    --------
    >>> record = Record(problem="pair", problem_hash="", n_variables=2, n_edges=1, n_factors=0,
    ...                 n_labels=2, solver="icm", solver_name="icm", seed=0, status="converged",
    ...                 energy=0.5, seconds=0.001)
    >>> document = report_document([record], title="A pair")
    >>> document.alarms, document.sections[0].title
    ((), 'Results')
    """
    targets = tuple(float(t) for t in targets)
    if not targets or not all(0 <= t < 100 for t in targets):
        raise ValueError(f"targets must be percentages in [0, 100), at least one, got {targets}")
    if times is not None and not all(t > 0 and math.isfinite(t) for t in times):
        raise ValueError(f"times must be seconds above 0, got {list(times)}")
    if not (shift >= 0 and math.isfinite(shift)):
        raise ValueError(f"shift must be seconds from 0 on, got {shift}")
    if drawn_problems < 0:
        raise ValueError(f"drawn_problems must not be negative, got {drawn_problems}")
    everything = _ordered(results)
    labellings = [r for r in everything.records if r.temperature == 0]
    sections = []
    if labellings:
        part = everything if len(labellings) == len(everything) else Comparison(labellings)
        report = _Report(Results(part, classes), targets, times, shift, maps, drawn_problems)
        sections += report.sections()
    sections += _marginals(everything)
    sections += _failures(everything)
    if notes:
        sections.append(Section("Notes", (Items(tuple(notes)),)))
    sections.append(_solvers(everything))
    sections.append(_environments(everything))
    sections.append(_limitations(everything, shift))
    sections.append(_again(everything, command))
    lead = [("Question", question)] if question else []
    if answer:
        lead.append(("Answer", answer))
    return Document(
        title=title,
        lead=tuple(lead),
        alarms=tuple(everything.alarms),
        warnings=tuple(everything.warnings),
        sections=tuple(section for section in sections if section is not None),
    )


def _ordered(results: Comparison | Iterable[Record]) -> Comparison:
    """Return the comparison with its records in an order that is their own."""
    if isinstance(results, Comparison):
        records, superseded = results.records, results.superseded
    else:
        comparison = Comparison.of_store(results)
        records, superseded = comparison.records, comparison.superseded
    problems = {name: natural(name) for name in {r.problem for r in records}}
    solvers = {spec: natural(spec) for spec in {r.solver for r in records}}

    def key(record: Record) -> tuple[Any, ...]:
        return (
            *(problems[record.problem], record.problem_hash, solvers[record.solver]),
            *(-1 if record.seed is None else record.seed, record.repeat, record.temperature),
            *(record.started, record.id),
        )

    return Comparison(sorted(records, key=key), superseded)


# ---------------------------------------------------------------------- cells


def _text(text: str, width: int = 0) -> Cell:
    return Cell(shortened(text, width), title=text) if 0 < width < len(text) else Cell(text)


def _number(value: float | None, text: str) -> Cell:
    return Cell(text, None if value is None or math.isnan(value) else float(value))


def _percent(value: float | None) -> Cell:
    return _number(value, percent_text(value))


def _seconds(value: float | None) -> Cell:
    return _number(value, seconds_text(value))


def _count(value: int, mark: bool = False) -> Cell:
    return Cell(str(value), float(value), mark="failed" if mark and value else "")


def _share(value: float) -> Cell:
    return _number(value, NONE if math.isnan(value) else f"{value:.0f}")


def _score(value: float | None) -> Cell:
    missing = value is None or math.isnan(value)
    return _number(value, NONE if missing else share_text(value))


def _or_nan(values: Iterable[float | None]) -> FloatArray:
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def _best(cells: list[Cell], largest: bool = False) -> list[Cell]:
    """Mark the cells with the smallest value (or the largest), if not all have it."""
    values = [c.value for c in cells if c.value is not None and math.isfinite(c.value)]
    if not values or min(values) == max(values):
        return cells
    best = max(values) if largest else min(values)
    return [
        Cell(c.text, c.value, "best", c.title) if c.value == best and not c.mark else c
        for c in cells
    ]


def _table(
    name: str, caption: str, columns: Sequence[tuple[Column, list[Cell]]], note: str = ""
) -> Table:
    """Return a table of columns, each with its cells."""
    rows = tuple(zip(*(cells for _, cells in columns), strict=True))
    return Table(name, caption, tuple(column for column, _ in columns), rows, note)


# ---------------------------------------------------------------------- labellings


@dataclass(frozen=True)
class _Summary:
    """Solvers over a set of problems: one entry a solver in each array."""

    runs: npt.NDArray[np.int64]
    problems: npt.NDArray[np.int64]
    primal: FloatArray
    gap: FloatArray
    gaps: npt.NDArray[np.int64]
    best: FloatArray
    proved: FloatArray
    seconds: FloatArray
    failed: npt.NDArray[np.int64]
    unsupported: npt.NDArray[np.int64]
    accuracy: FloatArray
    pairwise: FloatArray


class _Report:
    """The sections on labellings."""

    def __init__(
        self,
        results: Results,
        targets: tuple[float, ...],
        times: Sequence[float] | None,
        shift: float,
        maps: Sequence[tuple[str, str]],
        drawn_problems: int,
    ) -> None:
        self.results = results
        self.targets = targets
        self.shift = shift
        self.maps = maps
        self.drawn_problems = drawn_problems
        self.rows: dict[tuple[str, str], Row] = {
            (row.problem, row.solver): row for row in results.comparison.rows
        }
        self.classes = sorted(set(results.class_of), key=natural)
        proved = np.isfinite(results.proof_seconds)
        self.per_record = {
            "primal": results.spread(results.primal_gap),
            "best": results.spread(results.best),
            "proved": results.spread(proved),
            "charged": results.spread(results.charged_seconds),
            "failed": results.spread(results.failed),
            "unsupported": results.spread(results.unsupported),
            "accuracy": results.spread(_or_nan(r.accuracy for r in results.records)),
            "pairwise": results.spread(_or_nan(r.pairwise_f for r in results.records)),
        }
        gaps = [
            [
                row.gap_percent if (row := self.rows.get((p.name, s))) is not None else None
                for s in results.solvers
            ]
            for p in results.problems
        ]
        self.gaps = np.array(gaps, dtype=np.float64).reshape(results.shape[:2])
        self.total = self._summary(np.arange(len(results.problems)))
        #: The solvers in the order of the tables: closest to the best first, then fastest.
        keys = [np.nan_to_num(v, nan=np.inf) for v in (self.total.seconds, self.total.primal)]
        self.everyone = np.lexsort((np.round(keys[0], 9), np.round(keys[1], 6)))
        #: Those that did not refuse every problem: there is nothing to compare of the others.
        taking_part = (self.total.unsupported < self.total.runs)[self.everyone]
        self.order = self.everyone[taking_part] if taking_part.any() else self.everyone
        self.labels = [results.solvers[s] for s in self.order]
        self.times = sorted(times) if times else self._fixed_times()

    @property
    def several(self) -> bool:
        return len(self.results.problems) > 1

    def sections(self) -> list[Section | None]:
        return [
            self._results(),
            self._by_class(),
            self._where(),
            self._speed(),
            self._over_time(),
            self._against_each_other(),
            self._problems(),
            self._problem_by_problem(),
        ]

    # ------------------------------------------------------------------ summaries

    def _summary(self, problems: npt.NDArray[np.int64]) -> _Summary:
        part = {name: array[problems] for name, array in self.per_record.items()}
        present = ~np.isnan(part["primal"])
        runs = present.sum(axis=(0, 2))
        gaps = self.gaps[problems]
        known = np.isfinite(gaps)

        def mean(total: FloatArray, count: npt.NDArray[np.int64]) -> FloatArray:
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)

        def total(name: str) -> FloatArray:
            summed: FloatArray = np.nansum(part[name], axis=(0, 2))
            return summed

        typical = median(part["primal"])
        return _Summary(
            runs=runs,
            problems=present.any(axis=2).sum(axis=0),
            primal=mean(np.nansum(typical, axis=0), (~np.isnan(typical)).sum(axis=0)),
            gap=mean(np.where(known, gaps, 0.0).sum(axis=0), known.sum(axis=0)),
            gaps=known.sum(axis=0),
            best=mean(100.0 * total("best"), runs),
            proved=mean(100.0 * total("proved"), runs),
            seconds=np.array(
                [
                    shifted_geometric_mean(part["charged"][:, s], self.shift)
                    for s in range(len(self.results.solvers))
                ]
            ),
            failed=total("failed").astype(np.int64),
            unsupported=total("unsupported").astype(np.int64),
            accuracy=mean(total("accuracy"), (~np.isnan(part["accuracy"])).sum(axis=(0, 2))),
            pairwise=mean(total("pairwise"), (~np.isnan(part["pairwise"])).sum(axis=(0, 2))),
        )

    def _summary_columns(self, summary: _Summary) -> list[tuple[Column, list[Cell]]]:
        chosen = [int(s) for s in self.everyone if summary.runs[s]]
        specs = self.results.solvers
        partial_gaps = bool((summary.gaps < summary.problems)[chosen].any())
        columns = [
            (Column("solver", right=False), [_text(specs[s]) for s in chosen]),
            (
                Column(
                    "primal gap %",
                    help="distance to the best energy known, mean over problems of medians over "
                    "runs; 100 without a labelling",
                ),
                _best([_percent(float(summary.primal[s])) for s in chosen]),
            ),
        ]
        if summary.gaps.any():
            columns.append(
                (
                    Column("gap %", help="distance to the best bound known, whoever gave it"),
                    [_percent(float(summary.gap[s])) for s in chosen],
                )
            )
            if partial_gaps:
                columns.append(
                    (
                        Column("gap known", help="problems on which the gap is known"),
                        [
                            Cell(f"{summary.gaps[s]}/{summary.problems[s]}", float(summary.gaps[s]))
                            for s in chosen
                        ],
                    )
                )
        columns += [
            (
                Column("% best", help="runs that found the best energy known"),
                _best([_share(float(summary.best[s])) for s in chosen], largest=True),
            ),
            (
                Column("% proved", help="runs that proved their answer by their own bound"),
                _best([_share(float(summary.proved[s])) for s in chosen], largest=True),
            ),
            (
                Column("seconds", help="shifted geometric mean over runs"),
                _best([_seconds(float(summary.seconds[s])) for s in chosen]),
            ),
        ]
        for title, means in (("accuracy", summary.accuracy), ("pairwise F", summary.pairwise)):
            if np.isfinite(means).any():
                cells = [_score(float(means[s])) for s in chosen]
                help_ = "agreement with the ground truth, mean over runs that gave a labelling"
                columns.append((Column(title, help=help_), _best(cells, largest=True)))
        columns += [
            (
                Column("failed", help="runs that ended in an error, or were ended"),
                [_count(int(summary.failed[s]), mark=True) for s in chosen],
            ),
            (
                Column("unsup.", help="runs that the method refused"),
                [_count(int(summary.unsupported[s])) for s in chosen],
            ),
            (Column("runs"), [_count(int(summary.runs[s])) for s in chosen]),
        ]
        return columns

    def _counting(self) -> str:
        return (
            f"Seconds are shifted geometric means (shift {self.shift:g} s) of the solver's own "
            "time; a run that failed, was refused or found no labelling is charged its time "
            "limit, or without one the longest time of all runs. Primal gaps are medians over "
            "seeds and repeats, then means over problems."
        )

    def _results(self) -> Section:
        results = self.results
        n_problems, n_solvers, draws = results.shape
        proved = sum(
            proves(p.best_energy, p.best_bound) or p.best_energy == p.best_bound == math.inf
            for p in results.problems
        )
        text = (
            f"{counted(n_solvers, 'solver')} on {counted(n_problems, 'problem')}, "
            f"{counted(len(results.records), 'run')}"
            + (f", up to {draws} a problem and solver" if draws > 1 else "")
            + f". On {proved} of {counted(n_problems, 'problem')} the best answer is proved."
        )
        left_out = [results.solvers[s] for s in self.everyone if s not in self.order]
        if left_out:
            text += (
                " Refused every problem, and so only listed in the tables of results: "
                f"{', '.join(left_out)}."
            )
        table = _table(
            "summary",
            f"All solvers over {counted(n_problems, 'problem')}, the closest to the best energies "
            "first.",
            self._summary_columns(self.total),
            self._counting(),
        )
        return Section("Results", (Text((text,)), table))

    def _by_class(self) -> Section | None:
        if len(self.classes) < 2:
            return None
        results = self.results
        of = np.array(results.class_of)
        shown = np.full((len(results.solvers), len(self.classes)), np.nan)
        heads: list[Column] = []
        rows: list[tuple[Cell, ...]] = []
        names = list(dict.fromkeys(c.title for c, _ in self._summary_columns(self.total)))
        for number, name in enumerate(self.classes):
            chosen = np.flatnonzero(of == name)
            summary = self._summary(chosen)
            shown[:, number] = summary.primal
            columns = {c.title: (c, cells) for c, cells in self._summary_columns(summary)}
            n = len(columns["solver"][1])
            kept = [columns.get(t, (Column(t), [Cell(NONE)] * n)) for t in names]
            heads = [
                Column("class", right=False),
                Column("problems"),
                *(head for head, _ in kept),
            ]
            lines = zip(*(cells for _, cells in kept), strict=True)
            rows += [(_text(name), _count(len(chosen)), *line) for line in lines]
        table = Table(
            "classes", "Solvers on each class of problems.", tuple(heads), tuple(rows),
            self._counting(),
        )  # fmt: skip
        picture = Picture(
            "class-gaps",
            "Mean primal gap in percent on each class; bold: the lowest of the class.",
            f"Map of primal gaps of {len(self.labels)} solvers on {len(self.classes)} classes.",
            partial(figures.gap_map, shown[self.order], self.labels, self.classes),
        )
        return Section("Classes of problems", (picture, table))

    def _where(self) -> Section | None:
        if not self.maps:
            return None
        blocks = [block for first, second in self.maps for block in self._map(first, second)]
        return Section("Which solver where", tuple(blocks))

    def _map(self, first: str, second: str) -> list[Block]:
        """Say which solver is best for which values of two entries of the problems' info."""
        infos = [r.problem_info for r in self.results.problem_records]
        having = [n for n, info in enumerate(infos) if first in info and second in info]
        if not having:
            text = f"No problem says both {first} and {second}, so there is no map over them."
            return [Text((text,))]
        primal, seconds = (
            self.results.typical(v) for v in (self.results.primal_gap, self.results.charged_seconds)
        )
        places: dict[tuple[str, str], list[int]] = {}
        for n in having:
            places.setdefault((_value(infos[n][first]), _value(infos[n][second])), []).append(n)
        along = sorted({a for a, _ in places}, key=natural)
        across = sorted({b for _, b in places}, key=natural)
        names = [["" for _ in across] for _ in along]
        shares = np.full((len(along), len(across)), np.nan)
        rows = []
        for i, a in enumerate(along):
            for j, b in enumerate(across):
                here = places.get((a, b), [])
                if not here:
                    continue
                winner, tied, share = self._best_solver(primal[here], seconds[here])
                names[i][j] = self.results.comparison.short_name(self.results.solvers[winner])
                shares[i, j] = share
                rows.append(
                    (
                        *(_text(a), _text(b), _count(len(here))),
                        _text(self.results.solvers[winner]),
                        _percent(float(np.nanmean(primal[here, winner]))),
                        _share(100.0 * share),
                        _text(", ".join(self.results.solvers[s] for s in tied) or NONE, 120),
                    )
                )
        table = Table(
            f"best-solver-{first}-{second}",
            f"The best solver for each {first} and {second}.",
            (
                *(Column(first), Column(second), Column("problems")),
                Column("best solver", right=False),
                Column("primal gap %"),
                Column("lead %", help="problems of the cell on which it is alone or fastest"),
                Column("as low, but slower", right=False),
            ),
            tuple(rows),
            "The best solver has the lowest mean primal gap; among those within 0.01 % of it, the "
            "fastest by the shifted geometric mean of seconds.",
        )
        picture = Picture(
            f"best-solver-map-{first}-{second}",
            f"The best solver by {first} and {second}; darker: it leads on more of the problems.",
            f"Map of the best solver for {len(along)} values of {first} and {len(across)} of "
            f"{second}.",
            partial(
                figures.best_map,
                names,
                shares,
                along,
                across,
                row_name=first,
                column_name=second,
            ),
        )
        return [picture, table]

    def _best_solver(self, primal: FloatArray, seconds: FloatArray) -> tuple[int, list[int], float]:
        """Return the best solver of some problems, those as low, and the share it leads on."""
        # A solver that was not run on a problem is not the best on it.
        gaps = np.where(np.isnan(primal), 100.0, primal)
        means = gaps.mean(axis=0)
        near = np.flatnonzero(means <= means.min() + 0.01)
        speed = [shifted_geometric_mean(seconds[:, s], self.shift) for s in near]
        by_speed = [int(near[n]) for n in np.argsort(speed, kind="stable")]
        winner = by_speed[0]
        low = gaps <= gaps.min(axis=1, keepdims=True) + 0.01
        clock = np.where(low, np.nan_to_num(seconds, nan=np.inf), np.inf)
        leads = low[:, winner] & (clock[:, winner] <= clock.min(axis=1))
        return winner, by_speed[1:], float(leads.mean())

    # ------------------------------------------------------------------ time

    def _fixed_times(self) -> list[float]:
        """Return powers of ten within the times that runs took, six at most."""
        seconds = self.results.seconds[self.results.seconds > 0]
        if not seconds.size:
            return []
        low = max(-6, math.floor(math.log10(float(np.quantile(seconds, 0.05)))))
        high = max(low, math.ceil(math.log10(float(seconds.max()))))
        return [10.0**e for e in range(max(low, high - 5), high + 1)]

    def _speed(self) -> Section | None:
        results = self.results
        percent = self.targets[0]
        blocks: list[Block] = [self._target_table()]
        if self.several:
            complete = results.complete
            solved = results.typical(results.solved_seconds(percent))[:, self.order]
            within = f"a primal gap of {percent:g} %"
            counting = (
                f"Solved: within {within} of the best energy known, or proved; the median over "
                "seeds and repeats"
            )
            if len(complete):
                left = len(results.problems) - len(complete)
                profile = performance_profile(solved[complete])
                blocks.append(
                    Picture(
                        "performance-profile",
                        "Performance profile (Dolan and More): the share of problems that each "
                        "solver solved within so many times the time of the fastest. "
                        f"{counting}."
                        + (
                            f" Without {counted(left, 'problem')} not run by all solvers."
                            if left
                            else ""
                        ),
                        f"Performance profiles of {len(self.labels)} solvers on "
                        f"{counted(len(complete), 'problem')}.",
                        partial(figures.performance_profile, profile, self.labels),
                    )
                )
            else:
                text = "No problem was run by all solvers, so there is no performance profile."
                blocks.append(Text((text,)))
            blocks.append(
                Picture(
                    "cactus",
                    "Cactus plot: the time within which so many problems are solved, each by "
                    f"itself. {counting}.",
                    f"Times of solved problems, ascending, for {len(self.labels)} solvers.",
                    partial(figures.cactus, solved_within(solved), self.labels),
                )
            )
        return Section("Time to a target", tuple(blocks))

    def _target_table(self) -> Table:
        results = self.results
        columns: list[tuple[Column, list[Cell]]] = [
            (Column("solver", right=False), [_text(label) for label in self.labels])
        ]
        longest = np.where(
            [r.time_limit is None for r in results.records],
            float(results.seconds.max(initial=0.0)),
            [r.time_limit or 0.0 for r in results.records],
        )
        proofs = [("proof", "", results.proof_seconds)]
        for name, unit, seconds in [
            *((f"{t:g}", " %", results.target_seconds(t)) for t in self.targets),
            *(proofs if np.isfinite(results.proof_seconds).any() else []),
        ]:
            reached = results.spread(np.isfinite(seconds))
            times = results.spread(np.where(np.isfinite(seconds), seconds, longest))
            shares, means = [], []
            for s in self.order:
                known = reached[:, s][~np.isnan(reached[:, s])]
                shares.append(_share(100.0 * float(known.mean())))
                means.append(_seconds(shifted_geometric_mean(times[:, s], self.shift)))
            columns += [
                (Column(f"{name}{unit}: reached by", help="percent of runs"),
                 _best(shares, largest=True)),
                (Column(f"{name}{unit}: seconds"), _best(means)),
            ]  # fmt: skip
        return _table(
            "targets",
            "Time to reach a primal gap"
            + (" and to a proof" if np.isfinite(results.proof_seconds).any() else "")
            + ": the percentage of runs that did, and the seconds it took.",
            columns,
            f"Shifted geometric means (shift {self.shift:g} s) over runs; a run that did not reach "
            "the target is charged its time limit, or without one the longest time of all runs.",
        )

    def _over_time(self) -> Section | None:
        results = self.results
        if not self.times or not any(r.trace for r in results.records):
            text = "The records hold no history of the runs, so nothing is said about times before "
            return Section("Quality over time", (Text((text + "their ends.",)),))
        end = max(self.times[-1], 1e-5)
        start = min(self.times[0], end / 10)
        moments = np.geomspace(start, end, _MOMENTS)
        curves = self._gap_curves(moments)
        middle, low, high = (curves[q][self.order] for q in range(3))
        several = len(results.records) > len(results.solvers)
        bands = several and len(self.labels) <= figures.BANDS
        over = "problems, seeds and repeats" if self.several else "seeds and repeats"
        picture = Picture(
            "gap-over-time",
            "Primal gap of the best labelling so far"
            + (f", median over {over}" if several else "")
            + (", with the band between the quartiles" if bands else "")
            + "; 100 before the first labelling.",
            f"Primal gap against time for {len(self.labels)} solvers.",
            partial(
                figures.gap_over_time,
                moments,
                middle,
                self.labels,
                low=low if bands else None,
                high=high if bands else None,
            ),
        )
        blocks: list[Block] = [picture, self._fixed_time_table()]
        blocks += [self._convergence(p) for p in self._hardest()]
        return Section("Quality over time", tuple(blocks))

    def _gaps_at(self, moments: npt.ArrayLike) -> FloatArray:
        """Return the primal gap of each record at fixed times, of shape (records, times)."""
        results = self.results
        found = results.traces.at(moments)
        gap = primal_gap_percent(found.energy, results.reference[results.problem][:, None])
        # A proof that there is no labelling counts from its end on.
        done = results.infeasible[:, None] & (results.seconds[:, None] <= found.seconds)
        return np.where(done, 0.0, gap)

    def _gap_curves(self, moments: FloatArray) -> FloatArray:
        """Return median and quartiles of primal gaps, of shape (3, solvers, times)."""
        results = self.results
        gap = self._gaps_at(moments)
        curves = np.full((3, len(results.solvers), moments.size), np.nan)
        for s in range(len(results.solvers)):
            mine = gap[results.solver == s].T
            curves[0, s] = median(mine)
            curves[1, s], curves[2, s] = (quantile(mine, q) for q in _BAND)
        return curves

    def _fixed_time_table(self) -> Table:
        results = self.results
        gap = self._gaps_at(self.times)
        columns: list[tuple[Column, list[Cell]]] = [
            (Column("solver", right=False), [_text(label) for label in self.labels])
        ]
        for number, moment in enumerate(self.times):
            medians = results.typical(gap[:, number])
            means = [float(v[~np.isnan(v)].mean()) for v in (medians[:, s] for s in self.order)]
            columns.append((Column(f"{moment:g} s"), _best([_percent(mean) for mean in means])))
        return _table(
            "quality-at-times",
            "Primal gap in percent at fixed times: the mean over problems of medians over seeds "
            "and repeats.",
            columns,
            "From the same histories as the times to targets. A run that has ended keeps what it "
            "had; without a labelling the gap is 100.",
        )

    def _hardest(self) -> list[int]:
        """Return the problems that are drawn: with the largest gap left, the largest first."""
        problems = self.results.problems
        spread = self.results.typical(self.results.primal_gap)
        disagreement = np.where(np.isnan(spread), 0.0, spread).mean(axis=1)

        def key(n: int) -> tuple[float, float, int, int]:
            gap = problems[n].gap_percent
            return (
                -math.inf if gap is None else -gap,
                -disagreement[n],
                -problems[n].n_variables,
                n,
            )

        having = [n for n in range(len(problems)) if math.isfinite(self.results.reference[n])]
        return sorted(having, key=key)[: self.drawn_problems]

    def _convergence(self, problem: int) -> Picture:
        results = self.results
        runs, labels = [], []
        for s in self.order:
            mine = np.flatnonzero((results.problem == problem) & (results.solver == s))
            if not len(mine):
                continue
            # The run in the middle by energy stands for the others.
            middle = mine[np.lexsort((results.seconds[mine], results.energy[mine]))]
            runs.append(results.traces.steps(int(middle[(len(middle) - 1) // 2])))
            labels.append(results.solvers[s])
        summary = results.problems[problem]
        return Picture(
            f"convergence-{summary.name}",
            f"{summary.name}: best energy, and bound (thin), over time"
            + ("; of each solver the run with the median energy." if results.shape[2] > 1 else "."),
            f"Energy and bound against time for {len(labels)} solvers on {summary.name}.",
            partial(figures.convergence, runs, labels, summary.name),
        )

    # ------------------------------------------------------------------ solver against solver

    def _against_each_other(self) -> Section | None:
        results = self.results
        k = len(self.labels)
        if k < 2:
            return None
        energies, seconds = (
            np.moveaxis(results.spread(v), 2, 1).reshape(-1, results.shape[1])[:, self.order]
            for v in (np.where(results.infeasible, -np.inf, results.energy), results.seconds)
        )
        wins = pairwise_wins(energies, seconds)
        numbers = [str(n) for n in range(1, k + 1)]
        rows = []
        for i, label in enumerate(self.labels):
            cells = [Cell(numbers[i], i + 1.0), _text(label)]
            for j, other in enumerate(self.labels):
                if i == j:
                    cells.append(Cell(NONE))
                    continue
                won, lost, tie = int(wins.wins[i, j]), int(wins.wins[j, i]), int(wins.ties[i, j])
                told = (
                    f"{label} against {other}: lower energy in {won}, equal in {tie}, higher in "
                    f"{lost} runs; of the equal ones faster in {wins.faster[i, j]}, slower in "
                    f"{wins.faster[j, i]}"
                )
                cells.append(Cell(f"{won}/{tie}/{lost}", float(won - lost), title=told))
            rows.append(tuple(cells))
        table = Table(
            "wins",
            "Lower / equal / higher energy of the solver of the row against that of the column, "
            "over runs on the same problem with the same seed and repeat.",
            (
                Column("no."),
                Column("solver", right=False),
                *(Column(n, help=s) for n, s in zip(numbers, self.labels, strict=True)),
            ),
            tuple(rows),
            "A run without a labelling loses to each with one.",
        )
        faster = _table(
            "wins-on-time",
            "Faster / slower by more than 10 % where both energies are equal and finite.",
            [
                (Column("no."), [Cell(n, float(n)) for n in numbers]),
                (Column("solver", right=False), [_text(label) for label in self.labels]),
                *(
                    (
                        Column(numbers[j], help=self.labels[j]),
                        [
                            Cell(NONE)
                            if i == j
                            else Cell(
                                f"{wins.faster[i, j]}/{wins.faster[j, i]}",
                                float(wins.faster[i, j] - wins.faster[j, i]),
                            )
                            for i in range(k)
                        ],
                    )
                    for j in range(k)
                ),
            ],
        )
        return Section("Solver against solver", (table, faster, *self._ranks()))

    def _ranks(self) -> list[Block]:
        """Return average ranks over problems, with the tests that their number allows."""
        results = self.results
        complete = results.complete
        if len(complete) < 2:
            what = "one problem" if len(results.problems) == 1 else "fewer than two problems"
            return [Text((f"Ranks are not tested: all solvers were run on {what} only.",))]
        gaps = results.typical(results.primal_gap)[complete][:, self.order]
        gaps = snapped(gaps, _TIE)
        test = rank_test(gaps, ALPHA)
        p_values = paired_wilcoxon(gaps)
        first = int(np.argmin(test.ranks))
        differ = bool(test.p_value < ALPHA)
        order = np.argsort(test.ranks, kind="stable")
        columns = [
            (Column("solver", right=False), [_text(self.labels[s]) for s in order]),
            (
                Column("average rank"),
                _best([_number(float(test.ranks[s]), f"{test.ranks[s]:.2f}") for s in order]),
            ),
            (
                Column("apart from the first", right=False, help="Nemenyi's test"),
                [
                    Cell(
                        "yes"
                        if differ and test.ranks[s] - test.ranks[first] > test.critical_difference
                        else "no"
                        if s != first
                        else NONE
                    )
                    for s in order
                ],
            ),
            (
                Column("p", help="Wilcoxon's signed-rank test against the first, after Holm"),
                [
                    Cell(NONE)
                    if s == first
                    else _number(float(p_values[first, s]), _p_text(float(p_values[first, s])))
                    for s in order
                ],
            ),
        ]
        k = len(self.labels)
        table = _table(
            "ranks",
            f"Average ranks by primal gap over {counted(len(complete), 'problem')} (medians over "
            "seeds and repeats; ties share the mean rank).",
            columns,
            f"Friedman's test: chi-squared {test.statistic:.2f} with {k - 1} degrees of freedom, "
            f"p {_p_relation(test.p_value)}: the solvers "
            + ("differ" if differ else "cannot be told apart")
            + f" at the level {ALPHA:g}. Critical difference of average ranks (Nemenyi): "
            f"{test.critical_difference:.2f}. p: Wilcoxon's signed-rank test of primal gaps "
            f"against the solver of the lowest rank, corrected for all {k * (k - 1) // 2} pairs "
            "(Holm).",
        )
        return [table, self._rank_picture(test, differ)]

    def _rank_picture(self, test: RankTest, differ: bool) -> Picture:
        return Picture(
            "critical-difference",
            "Average ranks; bars join solvers that do not differ by more than the critical "
            "difference." + ("" if differ else " Friedman's test does not tell the solvers apart."),
            f"Average ranks of {len(self.labels)} solvers on a line from 1 to {len(self.labels)}.",
            partial(figures.critical_difference, test, self.labels),
        )

    # ------------------------------------------------------------------ problems

    def _problems(self) -> Section:
        results = self.results
        rows = []
        for summary, record, name in zip(
            results.problems, results.problem_records, results.class_of, strict=True
        ):
            decimals = decimals_for(
                [summary.best_energy, summary.best_bound, summary.optimum or 0.0]
            )
            infeasible = summary.best_bound == math.inf and summary.best_energy == math.inf
            rows.append(
                (
                    _text(summary.name),
                    _text(name),
                    *(
                        Cell(f"{n:,}", float(n))
                        for n in (
                            *(summary.n_variables, summary.n_edges),
                            *(summary.n_factors, summary.n_labels),
                        )
                    ),
                    Cell("infeasible")
                    if infeasible
                    else _energy(summary.best_energy, decimals),
                    _text(summary.best_energy_by or NONE),
                    _energy(summary.best_bound, decimals),
                    _text(summary.best_bound_by or NONE),
                    _percent(summary.gap_percent),
                    _energy(summary.optimum, decimals),
                    _text(record.optimum_source or NONE, 60),
                    _text(summary.hash[:12] or NONE) if not summary.hash else
                    Cell(summary.hash[:12], title=summary.hash),
                )
            )  # fmt: skip
        table = Table(
            "problems",
            "The problems, and what all runs together say about them.",
            (
                *(Column("problem", right=False), Column("class", right=False)),
                *(Column(t) for t in ("variables", "edges", "larger factors", "labels")),
                *(Column("best energy"), Column("by", right=False)),
                *(Column("best bound"), Column("by", right=False)),
                *(Column("gap %"), Column("known optimum"), Column("source", right=False)),
                Column("content", right=False, help="beginning of the hash of the content"),
            ),
            tuple(rows),
            "Labels: of the variable that has most.",
        )
        return Section("Problems", (table,))

    def _problem_by_problem(self) -> Section:
        rows: dict[str, list[Row]] = {}
        for row in self.results.comparison.rows:
            rows.setdefault(row.problem, []).append(row)
        shown = {self.results.solvers[s]: number for number, s in enumerate(self.everyone)}
        numbers = {s: number for number, s in enumerate(self.results.solvers)}
        primal = self.results.typical(self.results.primal_gap)
        low, high = (quantile(self.results.spread(self.results.seconds), q) for q in _BAND)
        sections = []
        for p, summary in enumerate(self.results.problems):
            mine = sorted(rows[summary.name], key=lambda row: shown[row.solver])
            at = [numbers[row.solver] for row in mine]
            table = _problem_table(summary, mine, primal[p, at], low[p, at], high[p, at])
            sections.append(Section(summary.name, (table,), folded=True))
        note = (
            "Energies, bounds and seconds are medians over seeds and repeats; bounds are the "
            "solver's own; gaps are to the best bound known, whoever gave it."
        )
        return Section(
            "Problem by problem", (Text((note,)),), folded=True, sections=tuple(sections)
        )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _energy(value: float | None, decimals: int) -> Cell:
    finite = value if value is not None and math.isfinite(value) else None
    return _number(finite, energy_text(finite, decimals))


def _p_text(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def _p_relation(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def _optional(
    title: str, values: Sequence[float | None], cell: Callable[[float | None], Cell]
) -> list[tuple[Column, list[Cell]]]:
    """Return a column, if there is anything in it."""
    if all(v is None for v in values):
        return []
    return [(Column(title), [cell(v) for v in values])]


def _problem_table(
    problem: ProblemSummary,
    rows: list[Row],
    primal: FloatArray,
    quick: FloatArray,
    slow: FloatArray,
) -> Table:
    decimals = decimals_for(
        [e for row in rows for e in (row.energy_max, row.lower_bound)]
        + [problem.truth_energy or 0.0]
    )
    several = any(row.runs > 1 for row in rows)
    energies = [
        Cell(cell.text, cell.value, "best") if proves(row.energy, problem.best_energy) else cell
        for row in rows
        for cell in [_energy(row.energy, decimals)]
    ]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("solver", right=False), [_text(row.solver) for row in rows]),
        (Column("energy"), energies),
    ]
    if several:
        columns += [
            (Column("lowest"), [_energy(row.energy_min, decimals) for row in rows]),
            (Column("highest"), [_energy(row.energy_max, decimals) for row in rows]),
        ]
    columns += [
        (Column("primal gap %"), [_percent(float(gap)) for gap in primal]),
        (Column("gap %"), [_percent(row.gap_percent) for row in rows]),
        (Column("bound"), [_energy(row.lower_bound, decimals) for row in rows]),
        (
            Column("proved", right=False),
            [_text(row.proved_by if row.answered else NONE) for row in rows],
        ),
        (Column("seconds"), [_seconds(row.seconds) for row in rows]),
    ]
    if several:
        columns += [
            (
                Column("quartiles", help="of the seconds of all runs"),
                [
                    Cell(f"{seconds_text(float(a))} to {seconds_text(float(b))}", float(b))
                    for a, b in zip(quick, slow, strict=True)
                ],
            )
        ]

    columns += _optional("accuracy", [row.accuracy for row in rows], _score)
    columns += _optional("pairwise F", [row.pairwise_f for row in rows], _score)
    columns += _optional("NMI", [row.nmi for row in rows], _score)
    columns += _optional("ARI", [row.ari for row in rows], _score)
    for name in dict.fromkeys(name for row in rows for name in row.scores):
        columns += _optional(
            name.replace("_", " "),
            [row.scores.get(name) for row in rows],
            lambda v: _number(v, NONE if v is None else f"{v:.4g}"),
        )
    columns += [
        (Column("runs"), [_count(row.runs) for row in rows]),
        (
            Column("status", right=False),
            [
                Cell(
                    row.status,
                    mark="failed" if row.failed else "",
                    title=shortened("; ".join(row.messages), _REASON_WIDTH),
                )
                for row in rows
            ],
        ),
    ]
    known = [
        f"{counted(problem.n_variables, 'variable')}, {counted(problem.n_edges, 'edge')}, "
        f"{counted(problem.n_labels, 'label')}"
    ]
    if math.isfinite(problem.best_energy):
        known.append(f"best energy {energy_text(problem.best_energy, decimals)}")
    if math.isfinite(problem.best_bound):
        bound = energy_text(problem.best_bound, decimals)
        known.append(f"best bound {bound} ({problem.best_bound_by})")
    elif problem.best_bound == math.inf:
        known.append(f"infeasible ({problem.best_bound_by})")
    else:
        known.append("no bound known")
    if problem.truth_energy is not None:
        truth = energy_text(problem.truth_energy, decimals)
        known.append(f"ground truth {truth if truth != NONE else 'infeasible'}")
    return _table(f"problem-{problem.name}", f"{problem.name}: {'; '.join(known)}.", columns)


# ---------------------------------------------------------------------- marginals


def _marginals(comparison: Comparison) -> list[Section]:
    """Return tables of log Z, one a problem and temperature."""
    groups: dict[tuple[str, str, float], dict[str, list[Record]]] = {}
    for record in comparison.records:
        if record.temperature > 0:
            key = (record.problem, record.problem_hash, record.temperature)
            groups.setdefault(key, {}).setdefault(record.solver, []).append(record)
    names = {(r.problem, r.problem_hash): r.problem for r in comparison.records}
    names |= {
        key: summary.name for key, summary in zip(comparison.keys, comparison.problems, strict=True)
    }
    tables = []
    for (name, digest, temperature), by_solver in groups.items():
        tables.append(_log_table(names[name, digest], temperature, by_solver))
    if not tables:
        return []
    note = (
        "Estimates of log Z, the logarithm of the sum of exp(-E / T) over all labellings; medians "
        "over seeds and repeats. The error is to an exact value, where a solver gave one."
    )
    return [Section("Marginals and log Z", (Text((note,)), *tables))]


_KINDS = {"exact": "exact", "lower": "lower bound", "upper": "upper bound", "estimate": "estimate"}


def _log_table(name: str, temperature: float, by_solver: dict[str, list[Record]]) -> Table:
    estimates = {
        solver: [r.log_partition for r in records if r.log_partition is not None]
        for solver, records in by_solver.items()
    }
    exact = [
        r.log_partition
        for records in by_solver.values()
        for r in records
        if r.log_partition_kind == "exact" and r.log_partition is not None
    ]
    truth = float(median(exact)) if exact else None
    typical = {s: float(median(v)) if v else None for s, v in estimates.items()}
    decimals = decimals_for(v for v in typical.values() if v is not None)
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("solver", right=False), [_text(s) for s in by_solver]),
        (Column("log Z"), [_energy(typical[s], decimals) for s in by_solver]),
        (
            Column("kind", right=False),
            [
                Cell(
                    next(
                        (_KINDS.get(str(r.log_partition_kind), str(r.log_partition_kind))
                         for r in records if r.log_partition_kind),
                        NONE,
                    )
                )
                for records in by_solver.values()
            ],
        ),
    ]  # fmt: skip
    if truth is not None:
        errors = [None if (v := typical[s]) is None else v - truth for s in by_solver]
        columns.append(
            (Column("error"), [_number(e, NONE if e is None else f"{e:+.3g}") for e in errors])
        )
    columns += [
        (
            Column("seconds"),
            [
                _seconds(float(median(timed)) if timed else None)
                for timed in (
                    [r.seconds for r in records if not r.failed and r.status != "unsupported"]
                    for records in by_solver.values()
                )
            ],
        ),
        (Column("runs"), [_count(len(records)) for records in by_solver.values()]),
        (
            Column("failed"),
            [_count(sum(r.failed for r in rs), mark=True) for rs in by_solver.values()],
        ),
        (
            Column("unsup."),
            [_count(sum(r.status == "unsupported" for r in rs)) for rs in by_solver.values()],
        ),
    ]
    return _table(
        f"log-z-{name}-{temperature:g}", f"{name} at temperature {temperature:g}.", columns
    )


# ---------------------------------------------------------------------- what was run


def _failures(comparison: Comparison) -> list[Section]:
    """Return how many runs failed or were refused, and why."""
    counts: dict[tuple[str, str, str], list[str]] = {}
    for record in comparison.records:
        if record.failed or record.status == "unsupported":
            reason = " ".join(record.message.split())
            counts.setdefault((record.solver, record.status, reason), []).append(record.problem)
    if not counts:
        return []
    rows = tuple(
        (
            _text(solver),
            Cell(status, mark="failed" if status != "unsupported" else ""),
            _count(len(problems)),
            _count(len(set(problems))),
            _text(reason or NONE, _REASON_WIDTH),
            _text(problems[0]),
        )
        for (solver, status, reason), problems in counts.items()
    )
    failed = sum(r.failed for r in comparison.records)
    refused = sum(r.status == "unsupported" for r in comparison.records)
    table = Table(
        "failures",
        f"Of {counted(len(comparison.records), 'run')}, failed: {failed}, refused: {refused}.",
        (
            *(Column("solver", right=False), Column("status", right=False), Column("runs")),
            *(Column("problems"), Column("reason", right=False)),
            Column("first problem", right=False),
        ),
        rows,
        "Records hold the whole message and the end of the traceback.",
    )
    return [Section("Failures", (table,))]


def _solvers(comparison: Comparison) -> Section:
    versions: dict[tuple[str, int], list[Record]] = {}
    for record in comparison.records:
        versions.setdefault((record.solver, record.solver_version), []).append(record)
    rows = tuple(
        (
            _text(solver),
            _text(records[0].solver_name),
            Cell(str(version), float(version)),
            _text(", ".join(f"{k}={_setting(v)}" for k, v in records[0].settings.items()) or NONE),
            _count(len(records)),
        )
        for (solver, version), records in versions.items()
    )
    table = Table(
        "solvers",
        "The solvers with all their settings.",
        (
            *(Column("solver", right=False), Column("method", right=False), Column("version")),
            *(Column("settings", right=False), Column("runs")),
        ),
        rows,
    )
    return Section("Solvers and settings", (table,))


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _environments(comparison: Comparison) -> Section:
    environments: dict[str, Record] = {}
    for record in comparison.records:
        environments.setdefault(environment_id(record), record)
    facts = [dict(record.environment) for record in environments.values()]
    names = list(dict.fromkeys(name for fact in facts for name in fact))
    heads = [f"environment {n}" if len(facts) > 1 else "value" for n in range(1, len(facts) + 1)]
    rows = [
        (_text(name), *(_text(_setting(fact[name]) if name in fact else NONE) for fact in facts))
        for name in names
    ]
    limits = {
        "threads a run": sorted({str(r.threads) for r in comparison.records}),
        "time limit (s)": _distinct(r.time_limit for r in comparison.records),
        "memory limit (bytes)": _distinct(r.memory_limit for r in comparison.records),
    }
    given = Table(
        "limits",
        "What every run was given.",
        (Column("what", right=False), Column("value", right=False)),
        tuple((_text(name), _text(", ".join(values) or NONE)) for name, values in limits.items()),
    )
    if not rows:
        return Section("Environment", (given,))
    table = Table(
        "environment",
        "Where the runs were made.",
        (Column("what", right=False), *(Column(head, right=False) for head in heads)),
        tuple(rows),
    )
    return Section("Environment", (given, table))


def _distinct(values: Iterable[float | None]) -> list[str]:
    found = set(values)
    return [f"{v:.15g}" for v in sorted(v for v in found if v is not None)] + (
        ["none"] if None in found else []
    )


def _limitations(comparison: Comparison, shift: float) -> Section:
    """Return what the records do not show, each point computed from them."""
    records = comparison.records
    labellings = [r for r in records if r.temperature == 0]
    said = []
    environments = len({environment_id(r) for r in records})
    said.append(
        f"Timings are of {counted(environments, 'environment')}; on other machines they differ, "
        "and so may their order."
    )
    draws = {(r.seed, r.repeat) for r in records}
    if len(draws) <= 1:
        said.append("One run of each solver and problem: nothing is known about the spread.")
    stopped = sum(r.status == "limit" for r in records)
    ended = sum(r.status == "timeout" for r in records)
    if stopped or ended:
        said.append(
            f"{counted(stopped, 'run')} reached a limit on time or iterations before converging"
            + (f", and {ended} did not stop and were ended by force" if ended else "")
            + "; with more time they might do better."
        )
    open_problems = [p for p in comparison.problems if math.isfinite(p.best_energy)]
    unproved = sum(not proves(p.best_energy, p.best_bound) for p in open_problems)
    if labellings and unproved:
        said.append(
            f"On {unproved} of {counted(len(comparison.problems), 'problem')} the best energy "
            "known is not proved optimal: primal gaps are to the best found here, and true ones "
            "may be larger."
        )
    unbounded = sum(p.best_bound == -math.inf for p in comparison.problems)
    if labellings and unbounded:
        said.append(
            f"On {counted(unbounded, 'problem')} no solver gave a bound, so the gap is not known."
        )
    if labellings:
        said.append(
            "Gaps are relative to the size of the energy; a constant added to the energy of a "
            "problem would change them."
        )
        if 1 < len(comparison.problems) < 10:
            said.append(
                f"{len(comparison.problems)} problems are few for tests over problems, and no "
                "sample of all that there are."
            )
    refused = len({(r.solver, r.problem) for r in records if r.status == "unsupported"})
    if refused:
        said.append(
            f"Refused by the method: {counted(refused, 'pair')} of solver and problem; means "
            "charge such runs like failures."
        )
    thinned = sum(len(r.trace) >= TRACE_LIMIT for r in records)
    if thinned:
        what = "history was" if thinned == 1 else "histories were"
        said.append(
            f"{thinned:,} {what} thinned to {TRACE_LIMIT} points, which can make times to targets "
            "late by a step."
        )
    short = sum(0 <= r.seconds < max(1e-4, 100 * CLOCK) for r in labellings)
    if short:
        said.append(
            f"{counted(short, 'run')} took less than 0.1 ms, where ratios of times say little; in "
            f"shifted geometric means times well below {shift:g} s hardly count."
        )
    return Section("Known limitations", (Items(tuple(said)),))


def _again(comparison: Comparison, command: str) -> Section:
    """Return how the runs are made again."""
    records = comparison.records
    entries = [
        "A run is determined by the spec of its problem and the hash of its content, the spec of "
        "its solver with all settings and its version, seed, time limit, temperature and number "
        "of threads; the records hold all of them.",
    ]
    seeds = sorted({r.seed for r in records if r.seed is not None})
    if seeds:
        entries.append(f"Seeds: {_ranges(seeds)}; repeats of each: {_repeats(records)}.")
    command = command or _command(records, seeds)
    if command:
        entries.append(f"Command: {command}")
    return Section("To run it again", (Items(tuple(entries)),))


def _repeats(records: Sequence[Record]) -> int:
    return max((r.repeat for r in records), default=0) + 1


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers with runs of them joined.

    Examples
    --------
    >>> _ranges([0, 1, 2, 5])
    '0 to 2, 5'
    """
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)


def _command(records: Sequence[Record], seeds: Sequence[int]) -> str:
    """Return the command that asks for the same runs, if it is short enough to be of use."""
    problems = list(dict.fromkeys(r.problem for r in records))
    limits = {r.time_limit for r in records}
    plain = (
        0 < len(problems) <= _COMMAND_PROBLEMS
        and len(limits) == 1
        and list(seeds) == list(range(len(seeds)))
        and len(seeds) > 0
        and _repeats(records) == 1
        and {r.temperature for r in records} == {0.0}
        and {r.threads for r in records} == {1}
    )
    if not plain:
        return ""
    words = ["inference-lab", "compare", *problems]
    for solver in dict.fromkeys(r.solver for r in records):
        words += ["--solver", solver]
    words += ["--seeds", str(len(seeds))]
    (limit,) = limits
    if limit is not None:
        words += ["--time-limit", f"{limit:g}"]
    return shlex.join(words)
