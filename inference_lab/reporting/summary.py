"""What a comparison says in a few sentences, from its numbers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inference_lab.formatting import counted, format_percent, format_rate, format_seconds, listed
from inference_lab.reporting.analysis import Analysis, Summary

__all__ = ["NEAR", "in_short"]

#: Percent of the primal gap within which solvers count as equally close to the best energies.
NEAR = 0.01

#: Percent of the primal gap within which the fastest solver is looked for.
_GOOD = 1.0

#: Times count as equal if the larger one is at most so many times the smaller one.
_TIME_RATIO = 1.1

#: Solvers named in a sentence; others are counted.
_NAMED = 4


def in_short(analysis: Analysis) -> str:
    """Return what a comparison says, in a few sentences.

    Which solvers are closest to the best energies, the fastest of the good ones, which prove most,
    on how many problems nothing is proved, and failures. Where not every solver was run on every
    problem, means are over the problems in common.
    """
    return " ".join([*_solvers(analysis), *_proofs(analysis), *_failures(analysis)])


def _solvers(analysis: Analysis) -> list[str]:
    """Say who is closest to the best energies, and who is fast."""
    results = analysis.results
    order = [int(s) for s in analysis.order]
    if (results.primal_gap >= 100.0).all():
        return ["No run found a labelling."]
    if len(order) == 1:
        return [_alone(analysis, order[0])]
    if not len(analysis.complete):
        return ["No problem was run by all solvers, so they are not compared here."]
    summary = analysis.summary(analysis.complete)
    over = f", over {analysis.basis}" if analysis.incomplete else ""
    return [_closest(analysis, summary, order) + over + ".", _fastest(analysis, summary, order)]


def _alone(analysis: Analysis, solver: int) -> str:
    total, name = analysis.total, analysis.results.solvers[solver]
    seconds = format_seconds(float(total.seconds[solver]))
    return (
        f"{name} has nothing to be compared with: the best energies known are its own, or known "
        f"optima; its mean primal gap to them is {format_percent(float(total.primal[solver]))} %, "
        f"and it takes {seconds} s on average."
    )


def _closest(analysis: Analysis, summary: Summary, order: Sequence[int]) -> str:
    """Say which solvers have the lowest energies, without the full stop."""
    names, gaps = analysis.results.solvers, summary.primal
    lowest = min(float(gaps[s]) for s in order)
    near = [s for s in order if gaps[s] <= lowest + NEAR]
    equal = [s for s in near if gaps[s] <= lowest + 1e-6]
    others = [s for s in near if s not in equal]
    at = f"mean primal gap {format_percent(float(gaps[equal[0]]))} %"
    if len(equal) == len(order):
        all_of = "Both" if len(order) == 2 else f"All {len(order)}"
        return f"{all_of} solvers come equally close to the best energies known ({at})"
    said = (
        f"{names[equal[0]]} comes closest to the best energies known ({at})"
        if len(equal) == 1
        else f"{_named(analysis, equal)} come equally close to the best energies known ({at})"
    )
    if others:
        return said + f", with {_named(analysis, others)} within {NEAR:g} % of that"
    following = min((s for s in order if s not in near), key=lambda s: float(gaps[s]))
    return said + f", before {names[following]} ({format_percent(float(gaps[following]))} %)"


def _fastest(analysis: Analysis, summary: Summary, order: Sequence[int]) -> str:
    """Say which solver is the fastest of those with low energies."""
    names = analysis.results.solvers
    good = [s for s in order if summary.primal[s] <= _GOOD + 1e-6]  # up to rounding
    if not good:
        return f"None is within {_GOOD:g} % of them on average."
    quickest = min(float(summary.seconds[s]) for s in good)
    equal = [s for s in good if summary.seconds[s] <= _TIME_RATIO * quickest]
    time = f"{format_seconds(quickest)} s on average"
    if len(good) == 1:
        return f"No other is within {_GOOD:g} % of them on average; it takes {time}."
    if len(equal) == 1:
        said = f"{names[equal[0]]} is the fastest ({time})"
    else:
        said = f"{_named(analysis, equal)} are the fastest, within 10 % of each other ({time})"
    return f"Of the {len(good)} within {_GOOD:g} % of them on average, {said}."


def _proofs(analysis: Analysis) -> list[str]:
    """Say which solvers prove most of their answers, and how many problems nobody proved."""
    proved, names = analysis.total.proved, analysis.results.solvers
    order = [int(s) for s in analysis.order]
    most = max(float(proved[s]) for s in order)
    equal = [s for s in order if proved[s] >= most - 1e-9]
    n = len(analysis.results.problems)
    left = n - analysis.proved_problems
    unproved = (
        "every best answer is proved"
        if left == 0
        else f"on {left} of {counted(n, 'problem')} nobody proved the best answer"
        if left < n
        else "nobody proved the best answer of any problem"
        if n > 1
        else "nobody proved the best answer"
    )
    if most == 0:
        if left == n:
            return ["No run proves its answer by its own bound."]
        return [f"No run proves its answer by its own bound; {unproved}."]
    share = f"{format_rate(most)} % of {'its' if len(equal) == 1 else 'their'} runs"
    if len(order) == 1:
        said = f"It proves its answer in {share}"
    elif len(equal) == 1:
        said = f"{names[equal[0]]} proves most answers by its own bound, in {share}"
    elif len(equal) == len(order):
        said = f"All prove equally many answers by their own bounds, in {share}"
    else:
        said = f"{_named(analysis, equal)} prove most answers by their own bounds, in {share}"
    return [f"{said}; {unproved}."]


def _failures(analysis: Analysis) -> list[str]:
    records = analysis.results.records
    failed = Counter(r.solver for r in records if r.failed)
    if not failed:
        return []
    each = [f"{solver} ({count:,})" for solver, count in failed.most_common()]
    runs = counted(len(records), "run")
    return [f"{failed.total():,} of {runs} failed: {listed(each, _NAMED)}."]


def _named(analysis: Analysis, solvers: Sequence[int]) -> str:
    """Return the names of solvers with an "and" before the last."""
    names = [analysis.results.solvers[s] for s in solvers]
    if len(names) > _NAMED:
        return listed(names, _NAMED)
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
