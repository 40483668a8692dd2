"""A summary of a comparison in a few sentences, from its numbers alone."""

from __future__ import annotations

from collections import Counter

from inference_lab.formatting import counted, listed
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.number_formats import format_percent, format_rate, format_seconds

#: Percent of the primal gap within which solvers count as equally close to the best energies.
NEAR = 0.01

#: Percent of the primal gap within which a solver can be called the fastest.
_GOOD = 1.0

#: Largest ratio of two times that count as equal.
_TIME_RATIO = 1.1


def in_short(results: ResultArrays) -> str:
    """Return a summary of a comparison, in a few sentences.

    It names the solvers closest to the best energies, the fastest of the good ones and those with
    the most proofs. It also counts the problems with a proved answer, and failures. Means are over
    the problems in common, where not every solver was run on every problem.
    """
    records = results.records
    sentences = [*_quality(results), _proofs(results)]
    failed = Counter(r.solver for r in records if r.failed)
    if failed:
        each = listed([f"{solver} ({count:,})" for solver, count in failed.most_common()])
        sentences.append(f"{failed.total():,} of {counted(len(records), 'run')} failed: {each}.")
    return " ".join(sentences)


def _quality(results: ResultArrays) -> list[str]:
    """Return sentences on the solvers closest to the best energies, and the fastest of them."""
    names, order = results.solvers, [int(s) for s in results.order]
    if (results.of("primal_gap") >= 100.0).all():
        return ["No run found a labelling."]
    if not len(results.complete):
        return ["No problem was run by all solvers, so they are not compared here."]
    summary = results.summary(results.complete)
    gap, seconds = summary.primal, summary.seconds
    lowest = min(float(gap[s]) for s in order)
    near = [s for s in order if gap[s] <= lowest + NEAR]
    over = f", over {results.basis}" if results.incomplete else ""
    sentences = [
        f"Closest to the best energies known{over}: {listed([names[s] for s in near])} (mean "
        f"primal gap {format_percent(lowest)} %)"
    ]
    following = min((s for s in order if s not in near), key=lambda s: float(gap[s]), default=None)
    if following is not None:
        sentences.append(f", before {names[following]} ({format_percent(float(gap[following]))} %)")
    good = [s for s in order if gap[s] <= _GOOD + 1e-6]  # up to rounding
    if not good:
        return ["".join(sentences) + f"; none is within {_GOOD:g} % of them on average."]
    quickest = min(float(seconds[s]) for s in good)
    fast = listed([names[s] for s in good if seconds[s] <= _TIME_RATIO * quickest])
    return [
        "".join(sentences) + ".",
        f"Fastest of the {len(good)} within {_GOOD:g} % of them on average: {fast} "
        f"({format_seconds(quickest)} s on average).",
    ]


def _proofs(results: ResultArrays) -> str:
    """Return a sentence on the solvers with the most proofs, and on the proved problems."""
    proved, names = results.total.proved, results.solvers
    n = len(results.problems)
    most = max(float(proved[s]) for s in results.order)
    best = listed([names[s] for s in results.order if proved[s] >= most - 1e-9])
    by = (
        f"Most answers are proved by {best}, in {format_rate(most)} % of runs"
        if most
        else "No run proves its answer by its own bound"
    )
    return (
        f"{by}; the best answer is proved on {results.proved_problems} of {counted(n, 'problem')}."
    )
