"""A report of the size of a real comparison, with names that must not break a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.charts import Axis, Chart, curves_chart, heatmap, panels
from inference_lab.reporting.document import (
    Cell,
    Column,
    Document,
    Items,
    Picture,
    Section,
    Table,
    Text,
)

#: Texts of any characters.
ANY_TEXT = st.text(st.characters(), max_size=40)

SCRIPT = "<script>document.title='owned'</script>"

AWKWARD = [
    SCRIPT,
    '"><img src=x onerror="document.title=\'owned\'">',
    "| pipes | and \n newlines",
    r"$\input{/etc/passwd}$",
    "100 % of a_b & c # d ~ e ^ f",
    "`code` *star* _under_ **bold**",
    "[link](javascript:document.title='owned')",
    "abc\u202egnp.exe",
    "nul\x00 bell\x07 \ud800",
    "=HYPERLINK(1)",
    "../../../x",
    "CON",
    "",
    "</table></details><h1>x</h1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "'; DROP TABLE runs; --",
    "<!-- comment --> ]]> &lt; &amp;",
    "\u05e9\u05dc\u05d5\u05dd",
    "x" * 300,
]

SOLVERS = [
    "alpha-expansion",
    "loopy-bp",
    "loopy-bp(damping=0.5, schedule='synchronous', max_iterations=2000)",
    "trw-s",
    "mplp",
    "icm",
    "lp-relaxation",
    "ilp",
    "toulbar2",
    "ortools-cpsat",
    *(f"simulated-annealing(cooling={c})" for c in (0.9, 0.95, 0.99)),
    *(f"subgraph-search(rounds={d})" for d in range(1, 6)),
    "mean-field",
    "gibbs",
    "kernighan-lin",
    "block-icm",
    "roof-duality",
    "junction-tree",
    SCRIPT,
]

PROBLEMS = [f"grid-{20 + 5 * at}x{20 + 5 * at}-potts-{at:02d}" for at in range(40)] + AWKWARD


def table_of(
    name: str,
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    note: str = "",
) -> Table:
    """Return a table of rows."""
    all_rows = list(rows)
    filled = (replace(head, cells=[row[at] for row in all_rows]) for at, head in enumerate(columns))
    return Table(name, caption, tuple(filled), note)


def first_curve() -> FloatArray:
    """Return the values across of the first curve of the profile."""
    return _curves_across()[0]


def _curves_across() -> FloatArray:
    return 1 + np.sort(np.random.default_rng(0).exponential(1.0, (6, 40)), axis=1)


def _profile() -> Chart:
    shares = np.linspace(0, 1, 40)
    names = [solver[:20] for solver in SOLVERS[:6]]
    rows = [
        pd.DataFrame({"solver": name, "x": across, "y": shares})
        for name, across in zip(names, _curves_across(), strict=True)
    ]
    across = Axis("time / best time", "log", (1.0, 8.0))
    return curves_chart(names, pd.concat(rows), across, Axis("share of problems"))


def _curves() -> Chart:
    rng = np.random.default_rng(1)
    rows = [
        {"solver": solver[:20], "panel": f"<energy> & bound {panel}", "x": str(at)}
        | {"y": value, "low": value - 0.1, "high": value + 0.1}
        for panel in range(3)
        for solver in SOLVERS[:5]
        for at, value in enumerate(rng.random(4))
    ]
    return panels(pd.DataFrame(rows), [s[:20] for s in SOLVERS[:5]], "constraints", "NMI", "linear")


def _map() -> Chart:
    rows = [
        {"x": solver[:20], "y": name, "panel": "", "text": f"{n}", "value": n, "best": n == 3}
        for n, solver in enumerate(SOLVERS[:4])
        for name in AWKWARD[:3]
    ]
    return heatmap(pd.DataFrame(rows), "solver", "problem", scale={"range": ["white", "grey"]})


def _summary() -> Table:
    rng = np.random.default_rng(3)
    columns = (
        Column("solver", right=False, help="The specification, as the command line takes it."),
        Column("mean gap %", help="To the best bound known, over all problems with one."),
        Column("% best"),
        Column("% proved", help="By the solver's own bound."),
        Column("median s"),
        Column("total s"),
        Column("failed"),
        Column("status", right=False),
    )
    rows = []
    gaps = [9.5, 10.25, None, 0.0, -0.5, 100.0, *rng.exponential(5.0, 19)]
    for at, solver in enumerate(SOLVERS):
        gap = gaps[at]
        seconds = float(rng.exponential(3.0))
        shown = Cell("-") if gap is None else Cell(f"{gap:.2f}", gap, "best" if gap == 0 else "")
        failed = Cell("failed [1]", None, "failed", "MemoryError: 4 GiB were not enough")
        rows.append(
            (
                Cell(solver),
                shown,
                Cell(f"{at * 4}", at * 4),
                Cell(f"{100 - at * 3}", 100 - at * 3),
                Cell(f"{seconds:.3f}", seconds),
                Cell(f"{60 * seconds:.1f}", 60 * seconds),
                Cell(str(at % 3), at % 3),
                failed if at % 7 == 3 else Cell("optimal" if at % 2 else "time limit"),
            )
        )
    return table_of("summary", "All 60 problems: the mean of each solver.", columns, rows)


def _problem_table(number: int) -> Table:
    rng = np.random.default_rng(100 + number)
    columns = (
        Column("solver", right=False),
        *(Column(t) for t in ("energy", "gap %", "bound", "log Z", "seconds", "accuracy")),
    )
    rows = []
    for at, solver in enumerate(SOLVERS[: 3 + number % 5]):
        energy = float(rng.normal(-1000, 20))
        numbers = [Cell(f"{v:.3f}", v) for v in (1.0, energy - 10, 0.5, 2.0, 0.9)]
        mark = "best" if at == 0 else ""
        rows.append((Cell(solver), Cell(f"{energy:.4f}", energy, mark), *numbers))
    name = PROBLEMS[number]
    return table_of(name, f"Problem {name}.", columns, rows, note="Energies are costs.")


def sample_document() -> Document:
    """Return a document with 25 solvers, 60 problems, four pictures, alarms and warnings."""
    return Document(
        "Potts grids under one clock",
        (
            ("Question", "Which solver comes closest to the optimum within ten seconds?"),
            (
                "Answer",
                "Alpha-expansion is within 0.1 % on every grid; of the methods that also give a "
                "bound, TRW-S has the smallest gap. <b>Not bold.</b>",
            ),
        ),
        (
            f"On {SCRIPT}, the bound of mplp (-997.2) lies above the energy of icm (-1003.5): "
            "one of the two is wrong.",
            *(f"On {PROBLEMS[at]}, toulbar2 and ilp prove different optima." for at in range(12)),
        ),
        ("12 of 1,500 runs are missing.", "Two machines took part; times are not comparable."),
        (
            Section(
                "Summary",
                (
                    Text(("Energies are minimised. Gaps are to the best bound known.",)),
                    _summary(),
                    Picture("profile", "Performance profile.", "Curves of six solvers", _profile),
                ),
            ),
            Section(
                "Over time",
                (
                    Picture("curves", "Energy over time.", 'Three panels "of" curves', _curves),
                    Picture("profile", "The same once more.", SCRIPT, _profile),
                    Picture("map", "A map.", "Grey cells", _map),
                ),
            ),
            Section(
                "Problems",
                (Items(tuple(AWKWARD)),),
                sections=tuple(
                    Section(PROBLEMS[at], (_problem_table(at),), folded=at >= 2)
                    for at in range(len(PROBLEMS))
                ),
            ),
            Section("How it was run", (Text(("One run at a time.", SCRIPT)),), folded=True),
        ),
    )
