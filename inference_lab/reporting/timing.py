"""The sections of a report on time: times to targets, and quality over time."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted
from inference_lab.reporting.charts import BANDS, gap_chart, profile_chart
from inference_lab.reporting.document import Block, Picture, Section, Table, Text, column
from inference_lab.reporting.result_arrays import BAND, SHIFT, ResultArrays
from inference_lab.reporting.statistics import (
    performance_ratios,
    primal_gap_percent,
    shifted_geometric_mean,
)
from inference_lab.results.number_formats import format_percent, format_rate, format_seconds

FloatArray = npt.NDArray[np.float64]

#: Number of points of a curve over time.
_MOMENTS = 60


def targets_section(results: ResultArrays) -> Section:
    """Return the section on times to targets, profiles included."""
    blocks: list[Block] = [_target_table(results)]
    if results.several:
        blocks.append(_profile(results))
    return Section("Time to a target", tuple(blocks))


def _profile(results: ResultArrays) -> Block:
    """Return the performance profile of the times to solve problems, or a text in its place."""
    if not len(results.complete):
        text = "No problem was run by all solvers, so there is no performance profile."
        return Text((text,))
    solved = results.typical(results.solved_seconds(results.targets[0]))
    ratios = performance_ratios(solved[results.complete][:, results.order])
    return Picture(
        "performance-profile",
        f"Performance profile (Dolan and More) over {results.basis}: the share of problems that "
        "each solver solved within so many times the time of the fastest. Solved: within a primal "
        f"gap of {results.targets[0]:g} % of the best energy known, or proved; the median over "
        "seeds and repeats.",
        f"Performance profiles of {counted(len(results.labels), 'solver')} on "
        f"{counted(len(results.complete), 'problem')}.",
        partial(profile_chart, ratios, results.labels),
    )


def _target_table(results: ResultArrays) -> Table:
    columns = [column("solver", results.labels)]
    goals = [(f"{t:g} %", results.target_seconds(t)) for t in results.targets]
    proved = bool(np.isfinite(results.of("proof_seconds")).any())
    if proved:
        goals.append(("proof", results.of("proof_seconds")))
    for name, seconds in goals:
        reached = np.isfinite(seconds)
        times = np.where(reached, seconds, results.of("full_seconds"))
        by = results.runs.assign(reached=100.0 * reached, times=times).groupby("solver")
        shares = by["reached"].mean()[results.order].round(10).tolist()
        means = by["times"].agg(shifted_geometric_mean, SHIFT)[results.order].tolist()
        columns += [
            column(f"{name}: % of runs", shares, format_rate, best=max),
            column(f"{name}: seconds", means, format_seconds, best=min),
        ]
    return Table(
        "targets",
        "Time to reach a primal gap"
        + (" and to a proof" if proved else "")
        + ": the percentage of runs that did, and the seconds it took.",
        tuple(columns),
        f"Shifted geometric means (shift {SHIFT:g} s) over runs; a run that did not reach "
        "the target is charged its time limit (its own time where that is longer), or without a "
        "limit the longest time of all runs.",
    )


def glance_section(results: ResultArrays) -> Section | None:
    """Return the section with the figure of gaps over time, if the records hold histories."""
    if not has_histories(results):
        return None
    moments, (middle, low, high) = gaps_over_time(results)
    runs_repeat = results.runs.duplicated(["solver", "problem"]).any()
    # A band over runs of several problems need not contain the mean of their medians.
    bands = bool(runs_repeat) and not results.several and len(results.labels) <= BANDS
    picture = Picture(
        "gap-over-time",
        f"Primal gap in percent of the best labelling so far: {_statistic(results)}"
        + (", with the band between the quartiles" if bands else "")
        + "; 100 before the first labelling. The table of gaps at fixed times has the same numbers."
        + (" Each solver over its own runs." if results.incomplete else ""),
        f"Primal gap against time for {counted(len(results.labels), 'solver')}.",
        partial(gap_chart, moments, middle, results.labels, (low, high) if bands else None),
    )
    return Section("At a glance", (picture,))


def history_section(results: ResultArrays) -> Section:
    """Return the section on the quality over time."""
    if not has_histories(results):
        text = "The records hold no history of the runs, so there are no results at times before "
        return Section("Quality over time", (Text((text + "their ends.",)),))
    return Section("Quality over time", (_fixed_time_table(results),))


def _gaps_at(results: ResultArrays, moments: npt.ArrayLike) -> FloatArray:
    """Return the primal gap of each record at fixed times, of shape (records, times)."""
    energies = results.traces.energies_at(moments)
    gap = primal_gap_percent(energies, results.reference[results.of("problem")][:, None])
    # A proof of infeasibility counts from the end of the run.
    done = results.of("infeasible")[:, None] & (
        results.of("seconds")[:, None] <= np.asarray(moments)
    )
    return np.where(done, 0.0, gap)


def has_histories(results: ResultArrays) -> bool:
    """Whether the records hold histories before the ends of runs."""
    return bool(results.times) and any(r.trace for r in results.records)


def gaps_over_time(results: ResultArrays) -> tuple[FloatArray, FloatArray]:
    """Return times, and gaps by `_typical_gaps` and their quartiles, shape (3, solvers, times).

    The quartiles are over all runs of a solver.
    """
    end = max(results.times[-1], 1e-5)
    if not results.given_times:
        end = max(end, float(results.of("seconds").max()))
    start = min(results.times[0], end / 10)
    moments = np.geomspace(start, end, _MOMENTS)
    gap = _gaps_at(results, moments)
    bands = np.full((2, len(results.solvers), moments.size), np.nan)
    for s in range(len(results.solvers)):
        mine = gap[results.of("solver") == s]
        bands[:, s] = np.quantile(mine, BAND, axis=0, method="inverted_cdf")
    typical = _typical_gaps(results, gap)
    return moments, np.concatenate([typical[None], bands[:, results.order]])


def _statistic(results: ResultArrays) -> str:
    """Return the name of the statistic of `_typical_gaps`."""
    medians = "median over seeds and repeats"
    return f"the mean over problems of the {medians}" if results.several else f"the {medians}"


def _typical_gaps(results: ResultArrays, gap: FloatArray) -> FloatArray:
    """Return the statistic of gaps in figures and tables, of shape (solvers, times).

    `gap` has the primal gaps of each record, of shape (records, times).
    """
    at_times = [np.nanmean(results.typical(numbers), axis=0)[results.order] for numbers in gap.T]
    return np.stack(at_times, axis=1)


def _fixed_time_table(results: ResultArrays) -> Table:
    gaps = _typical_gaps(results, _gaps_at(results, results.times))
    columns = [column("solver", results.labels)]
    for means, moment in zip(gaps.T, results.times, strict=True):
        columns.append(column(f"{moment:g} s", means.tolist(), format_percent, best=min))
    return Table(
        "quality-at-times",
        f"Primal gap in percent at fixed times: {_statistic(results)}.",
        tuple(columns),
        "From the same histories as the times to targets. A run that has ended keeps its last "
        "gap; without a labelling the gap is 100."
        + (" Each solver over the problems that it was run on." if results.incomplete else ""),
    )
