"""The section of a report on solver against solver: ranks with their tests."""

from __future__ import annotations

from functools import partial

import numpy as np

from inference_lab.formatting import listed
from inference_lab.reporting.charts import intervals_chart
from inference_lab.reporting.document import (
    Block,
    Picture,
    Section,
    Table,
    Text,
    column,
)
from inference_lab.reporting.resampling import ALPHA
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.reporting.statistics import block_ranks, rank_test

#: Decimals of primal gaps in percent that tests distinguish.
_DECIMALS = 6


def solvers_section(results: ResultArrays) -> Section | None:
    """Return the section on solver against solver, if there are two."""
    if len(results.labels) < 2:
        return None
    return Section("Solver against solver", tuple(_ranks(results)))


def _ranks(results: ResultArrays) -> list[Block]:
    """Return average ranks over blocks of problems, with the tests that their number allows."""
    ranked = results.ranked
    labels = [results.solvers[s] for s in ranked]
    complete = results.run_by(ranked)
    if len(ranked) < 2:
        return [Text(("Ranks are not tested: fewer than two solvers refused no problem.",))]
    gaps = np.round(results.typical(results.of("primal_gap"))[complete][:, ranked], _DECIMALS)
    blocks = [results.block_of[at] for at in complete]
    values = block_ranks(gaps, blocks) if len(set(blocks)) < len(blocks) else gaps
    n = len(values)
    if n < 2:
        what = ("no problem", "one problem only")[n] if results.blocks is None else "one block"
        return [Text((f"Ranks are not tested: {what} was run by all solvers.",))]
    test = rank_test(values, ALPHA)
    differ = bool(test.p_value < ALPHA)
    order = np.argsort(test.ranks, kind="stable")
    ordered = [labels[s] for s in order]
    k = len(labels)
    half = test.critical_difference / 2
    columns = (
        column("solver", ordered),
        column("average rank", test.ranks[order].tolist(), "{:.2f}".format, best=min),
    )
    basis = results.resting_on(complete)
    if values is not gaps:
        basis = f"{n} blocks ({results.blocks}) of {basis}"
    out = [results.solvers[s] for s in results.order if s not in ranked]
    table = Table(
        "ranks",
        f"Average ranks by primal gap over {basis} (medians over seeds and repeats; ties "
        "share the mean rank; without a labelling the gap is 100"
        + ("; mean ranks of a block are ranked again)." if values is not gaps else ")."),
        columns,
        (
            f"Friedman's test: chi-squared {test.statistic:.2f} with {k - 1} degrees of freedom"
            if k > 2
            else "Wilcoxon's signed-rank test"
        )
        + f", p {_p_relation(test.p_value)}, so the solvers "
        + ("differ" if differ else "cannot be distinguished")
        + f" at the level {ALPHA:g}. Critical difference of average ranks (Nemenyi): "
        f"{test.critical_difference:.2f}."
        + (f" Without those that refused problems: {listed(out)}." if out else ""),
    )
    picture = Picture(
        "critical-difference",
        f"Average ranks over {basis}, with half the critical difference on each side: solvers "
        "whose lines do not overlap differ, also among all pairs (Nemenyi)."
        + ("" if differ else " Tests do not distinguish the solvers."),
        f"Average ranks of {k} solvers, the best on top.",
        partial(intervals_chart, ordered, test.ranks[order], half, "average rank"),
    )
    return [table, picture]


def _p_relation(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"
