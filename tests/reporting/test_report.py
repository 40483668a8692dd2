"""Reports: statements follow from the records, and are right."""

from __future__ import annotations

import functools
import itertools
import math
import time

import numpy as np
import pytest
from msgspec.structs import replace
from sample_records import column, picture, record, table, traced

from inference_lab.reporting.charts import drawing
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.csv_text import csv_table
from inference_lab.reporting.document import Items
from inference_lab.reporting.markdown import render_markdown
from inference_lab.reporting.report import report_document
from inference_lab.reporting.result_arrays import ResultArrays, problem_class
from inference_lab.results.analysis import latest
from inference_lab.results.consistency_checks import environment_id

INF = math.inf


def section(document, title):
    return next(s for s in document.sections if s.title == title)


def drawn(document):
    """Draw all pictures of a document."""
    assert document.pictures()
    for one in document.pictures():
        drawing(one.draw())


def study():
    """Return records of three solvers on four problems of two classes, with three seeds."""
    records = []
    rng = np.random.default_rng(7)
    for p, s, seed in itertools.product(range(4), ("exact", "fast", "slow(steps=3)"), range(3)):
        best = 100.0 * (p + 1)
        name = f"{'grid' if p % 2 else 'chain'}(n={4 * p})"
        common = {"problem": name, "solver": s, "seed": seed, "problem_info": {"n": p, "k": p % 2}}
        if s == "exact":
            points = [(0.5, best + 50, best - 20), (2.0, best, best)]
            records.append(traced(points, status="optimal", **common))
        elif s == "fast":
            points = [(0.01, best * 1.25, -INF), (0.1, best / (1 - 0.01 * seed), -INF)]
            records.append(traced(points, **common))
        else:
            end = best + float(rng.exponential(30))
            records.append(traced([(3.0, best + 90, -INF), (9.0, end, -INF)], **common))
    return records


@functools.cache
def of_study():
    """Return the report of the study, which its readers do not change."""
    return report_document(study(), title="")


# ---------------------------------------------------------------------- what counts


def test_the_last_record_of_a_key_counts():
    old = record(status="error", energy=INF)
    new = record(energy=2.0)
    other = record(solver="b", energy=3.0)
    assert latest([old, other, new]) == [new, other]
    # A repeat, another version, or another limit is another run.
    different = [record(repeat=1), record(solver_version=2), record(time_limit=1.0), record(seed=1)]
    assert latest([old, *different]) == [old, *different]
    comparison = Comparison.of_store([old, other, new])
    assert (comparison.records, comparison.superseded) == ([new, other], [old])
    assert table(report_document([old, other, new], title=""), "summary").rows[0][-1].text == "1"


def of_code(number, energy, **changes):
    """Return a record of the solver, run after an edit with this number."""
    code = {"solver_source": f"{number:016d}", "started": f"2030-01-0{number}T00:00:00+00:00"}
    return record(energy=energy, **{**code, **changes})


@pytest.mark.parametrize(
    ("runs", "newest"),
    [
        ([of_code(1, 3.0), of_code(2, 1.0)], 1.0),
        # Merged folders come in any order.
        ([of_code(2, 1.0), of_code(1, 3.0)], 1.0),
        # An edit that was taken back counts again when it runs.
        ([of_code(1, 3.0), of_code(2, 1.0), of_code(1, 3.0, started="2030-01-03", seed=1)], 3.0),
        # Versions are ordered: a machine with an old one may have run last.
        ([record(energy=1.0, solver_version=2), of_code(1, 3.0, solver_version=1)], 1.0),
        # Starts have whole seconds.
        ([of_code(1, 3.0, started=""), of_code(2, 1.0, started="")], 1.0),
    ],
)
def test_the_newest_code_of_a_solver_counts(runs, newest):
    """A solver is neither averaged with its former self nor accused for it."""
    runs = [*runs, record("p", "b"), record("p", "b", seed=1)]
    comparison = Comparison.of_store(runs)
    assert {r.energy for r in comparison.records if r.solver == "a"} == {newest}
    assert comparison.alarms == []
    (row,) = (row for row in comparison.rows if row.solver == "a")
    assert row.energy == newest
    (note, *_) = comparison.warnings
    assert note.startswith("1 run of earlier code of a (1) is left out; report --older")
    assert note in report_document(runs, title="").warnings

    shown = Comparison.of_store(runs, older=True)
    assert len(shown) == len(runs) and shown.alarms == []
    assert not any("left out" in warning or "mixed" in warning for warning in shown.warnings)
    first, second = sorted({r.solver for r in shown.records} - {"b"}, key=len)
    assert first == "a" and second.startswith("a [version 1")
    assert {row.solver: row.energy for row in shown.rows}[first] == newest


def test_the_same_code_may_still_contradict_itself():
    runs = [of_code(1, 9.0), of_code(2, 1.0), of_code(2, 1.5, repeat=1)]
    (alarm,) = Comparison.of_store(runs).alarms
    assert "not deterministic" in alarm and "1 and 1.5" in alarm
    # Records that are given as they are do not accuse the author either.
    assert Comparison([of_code(1, 9.0), of_code(2, 1.0)]).alarms == []


def test_environments_are_distinguished_by_id_or_by_content():
    assert environment_id(record(environment={"id": "x", "python": "3.11"})) == "x"
    first, second = ({"python": v, "machine": "m"} for v in ("3.11", "3.12"))
    assert environment_id(record(environment=first)) != environment_id(record(environment=second))
    assert environment_id(record(environment=first)) == environment_id(
        record(environment=dict(reversed(first.items())))
    )


# ---------------------------------------------------------------------- alarms and warnings


def test_different_energies_under_one_seed_are_an_alarm():
    runs = [record(energy=1.0), record(energy=1.5, repeat=1), record(energy=1.0, repeat=2)]
    (alarm,) = Comparison(runs).alarms
    assert alarm.startswith("p: a (seed 0) is not deterministic")
    assert "1 and 1.5" in alarm
    # A repeated run counts here, though nowhere else.
    done_anew = Comparison.of_store([record(energy=1.5), record(energy=1.0)])
    assert len(done_anew.alarms) == 1 and done_anew.rows[0].runs == 1
    assert report_document(runs, title="").alarms == (alarm,)
    # An answer and a proof of infeasibility differ, too.
    hard = [record(status="infeasible", energy=INF), record(status="infeasible", energy=INF)]
    assert Comparison(hard).alarms == []


@pytest.mark.parametrize(
    "changes",
    [
        {"energy": 1.0 + 1e-12},
        {"status": "limit"},
        {"status": "timeout"},
        {"seed": 1},
        {"seed": None},
        {"solver_version": 2},
        {"time_limit": 1.0},
        {"temperature": 1.0},
        {"threads": 2},
        {"environment": {"id": "there"}},
        {"problem_hash": "other"},
    ],
)
def test_permitted_differences_raise_no_alarm(changes):
    other = record(**{"energy": 1.5, "repeat": 1, **changes})
    first = record(seed=None) if changes == {"seed": None} else record()
    assert Comparison([first, other]).alarms == []


def test_two_different_optima_are_an_alarm_with_and_without_bounds():
    for bound in (2.0, -INF):
        runs = [
            record(energy=1.0, lower_bound=1.0, status="optimal"),
            record(energy=2.0, lower_bound=bound, status="optimal", solver="b"),
        ]
        (alarm,) = Comparison(runs).alarms
        assert alarm.startswith("p: b ") and "but a found a labelling of energy 1" in alarm
    runs = [record(energy=1.0), record(energy=INF, status="infeasible", solver="b")]
    (alarm,) = Comparison(runs).alarms
    assert "reports that no labelling is feasible" in alarm
    assert Comparison(runs).rows[1].proved_by == "no"


def test_refuted_proof_does_not_count():
    lie = record(energy=2.0, lower_bound=2.0, status="optimal", solver="b")
    comparison = Comparison([record(energy=1.0), lie])
    assert [row.proved_by for row in comparison.rows] == ["no", "no"]
    cells = column(table(report_document(comparison, title=""), "summary"), "% proved")
    assert {name: cell.text for name, cell in cells.items()} == {"a": "0", "b": "0"}


def test_contradicting_partition_functions_are_alarms():
    def estimate(solver, value, kind, temperature=1.0):
        return record(
            solver=solver, log_partition=value, log_partition_kind=kind, temperature=temperature
        )

    exact = estimate("exact", 5.0, "exact")
    fine = [exact, estimate("low", 4.9, "lower"), estimate("high", 5.0, "upper")]
    guess = estimate("guess", 99.0, "estimate")
    assert Comparison([*fine, guess, estimate("exact", 9.0, "exact", 2.0)]).alarms == []
    for wrong, sentences in (
        (estimate("low", 5.1, "lower"), "low gives 5.1 as a lower bound, but exact gives 5"),
        (estimate("high", 4.0, "upper"), "but high gives 4 as an upper bound"),
        (estimate("other", 5.5, "exact"), "other gives 5.5 as the exact value, but exact"),
    ):
        (alarm,) = Comparison([exact, wrong]).alarms
        assert sentences in alarm and "temperature 1" in alarm


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [
        ([record(), record(seed=1, environment={"id": "x"})], "2 different environments"),
        (
            [record(), record(seed=1, solver_version=3)],
            "several versions of one solver are mixed: a (1, 3)",
        ),
        (
            [record(), record(seed=1, solver_source="0" * 16)],
            "runs before and after an edit of one solver are mixed: a (2)",
        ),
        ([record(), record(seed=1, time_limit=None)], "time limits are mixed: 10 s, none"),
        ([record(), record(seed=1, memory_limit=5)], "memory limits are mixed: 5 bytes, none"),
        (
            [record(), record(seed=1, memory_limit=4 * 2**30)],
            "memory limits are mixed: 4 GiB, none",
        ),
        ([record(), record(seed=1, temperature=2.0)], "temperatures are mixed: 0, 2"),
        ([record(), record(seed=1, threads=4)], "numbers of threads are mixed: 1, 4"),
        (
            [record(), record("q"), record(solver="b")],
            "1 of 4 runs are missing: b (1)",
        ),
        (
            [record(), record(seed=1), record(solver="b", seed=1)],
            "1 of 4 runs are missing: b (1)",
        ),
        (
            [record(seed=s, status="error" if s < 2 else "converged") for s in range(10)],
            "2 of 10 runs failed",
        ),
    ],
)
def test_unfair_comparisons_are_warnings(runs, sentences):
    (warning,) = Comparison(runs).warnings
    assert sentences in warning
    assert report_document(Comparison(runs), title="").warnings == (warning,)


def test_a_problem_that_changed_between_runs_is_a_warning():
    runs = [record(problem_hash="aaaaaaaaaa"), record(solver="b", problem_hash="bbbbbbbbbb")]
    changed, missing = Comparison(runs).warnings
    assert changed.startswith("p: the problem changed between runs: it has 2 different contents")
    assert "(aaaaaaaa, bbbbbbbb)" in changed and "runs are missing" in missing
    # A record without the hash of its problem is no change.
    same = [record(), record(seed=1, optimum=1.0 + 1e-9), record(seed=2, optimum=1.0)]
    same = [replace(r, optimum=r.optimum or 1.0) for r in same]
    assert Comparison(same).warnings == []


def test_a_balanced_comparison_has_no_warnings():
    assert Comparison(study()).warnings == []
    one_in_ten = [record(seed=s, status="error" if s < 1 else "converged") for s in range(10)]
    assert Comparison(one_in_ten).warnings == []


# ---------------------------------------------------------------------- arrays


def test_medians_over_draws_by_problem_and_solver():
    runs = [
        record("p", "a", 1.0, seed=5),
        record("q", "b", 7.0, seed=9),
        record("p", "b", 2.0, seed=5),
        record("p", "a", 3.0, seed=2, repeat=1),
        record("p", "b", 4.0, seed=2, repeat=1),
        record("p", "b", INF, seed=2, repeat=0),
    ]
    results = ResultArrays(Comparison(runs))
    energy = results.typical(results.of("energy"))
    assert np.array_equal(energy, [[2.0, 4.0], [math.nan, 7.0]], equal_nan=True)
    assert results.reference.tolist() == [1.0, 7.0]
    assert results.run.tolist() == [[True, True], [False, True]]


def test_classes():
    run = record("grid(n=3)", problem_info={"class": "easy"})
    assert problem_class(run) == "easy"
    assert problem_class(replace(run, problem_info={})) == "grid"
    assert problem_class(replace(run, problem_info={"data": "iris"}), "data") == "iris"
    assert problem_class(run, "data") == "other"


# ---------------------------------------------------------------------- the document


def test_summary_follows_from_the_records():
    document = report_document(study(), title="Study", question="Which?", answer="The exact one.")
    assert document.title == "Study" and document.alarms == document.warnings == ()
    assert document.lead == (("Question", "Which?"), ("Answer", "The exact one."))
    assert [s.title for s in document.sections if not s.aside] == ["At a glance", "Results"]
    summary = table(document, "summary")
    # Medians over seeds of 0, 1 and 2 % are 1 %.
    gaps = column(summary, "primal gap %")
    assert list(gaps) == ["exact", "fast", "slow(steps=3)"]
    assert gaps["exact"].value == 0.0 and gaps["exact"].mark == "best"
    assert column(summary, "seconds")["fast"].mark == "best"
    assert column(summary, "runs")["fast"].text == "12"
    assert "shift 0.001 s" in summary.note and "time limit" in summary.note
    assert "On 4 of 4 problems the best answer is proved." in render_markdown(document)


def test_classes_have_rows_of_their_own():
    document = of_study()
    classes = table(document, "classes")
    assert [(r[0].text, r[1].text, r[2].text) for r in classes.rows] == [
        (c, "2", s) for c in ("chain", "grid") for s in ("exact", "fast", "slow(steps=3)")
    ]
    merged = report_document(study(), title="", classes="none of the entries")
    assert "Classes of problems" not in [s.title for s in merged.sections]
    sizes = report_document(study(), title="", classes="k")
    assert {r[0].text for r in table(sizes, "classes").rows} == {"0", "1"}


def titles_of_times(*runs):
    fixed = table(report_document(runs, title=""), "quality-at-times")
    return [c.title for c in fixed.columns[1:]]


def test_times_do_not_go_beyond_the_limit():
    def ended(seconds, **changes):
        return traced([(0.01, 2.0, -INF), (seconds, 1.0, -INF)], **changes)

    assert titles_of_times(ended(1.02, time_limit=1.0)) == ["1 s"]
    assert titles_of_times(ended(0.02, time_limit=10.0)) == ["0.01 s", "0.1 s"]
    quick = ended(0.02, seed=1, time_limit=1.0)
    assert titles_of_times(ended(1.5, time_limit=1.0), quick)[-1] == "1 s"
    # Without a limit, it is not beyond the longest time.
    unlimited = [ended(s, seed=n, time_limit=None) for n, s in enumerate((0.02, 30.0))]
    assert titles_of_times(*unlimited) == ["1 s", "10 s"]
    assert titles_of_times(ended(1000.0, time_limit=1000.0), quick)[-1] == "1000 s"
    # The curves still continue to the end.
    curves = picture(report_document(unlimited, title=""), "gap-over-time")
    assert curves.draw.args[0].max() == pytest.approx(30.0)


def test_bands_are_drawn_for_two_solvers_on_one_problem():
    """More bands hide each other; over several problems quartiles need not hold the mean."""

    def figure(solvers, problems):
        runs = [
            traced([(0.1, 2.0 + n, -INF), (1.0, 1.0, -INF)], solver=s, problem=p, seed=n)
            for s in solvers
            for p in problems
            for n in range(3)
        ]
        return picture(report_document(runs, title=""), "gap-over-time")

    for solvers, problems, banded in (("ab", "p", True), ("abc", "p", False), ("ab", "pq", False)):
        curves = figure(solvers, problems)
        assert (curves.draw.args[3] is not None) is banded
        assert ("quartiles" in curves.caption) is banded
        drawing(curves.draw())
    _, middle, _, (low, high) = figure("ab", "p").draw.args
    assert (low <= middle).all() and (middle <= high).all()


def test_files_have_no_digits_of_rounding():
    # 11 of 20, whose mean times 100 is 55.00000000000001.
    runs = [record("p", "a", 1.0 if n < 11 else 2.0, seed=n) for n in range(20)]
    document = report_document(runs, title="")
    for name in ("summary", "targets"):
        assert ",55.0," in csv_table(table(document, name))
    assert csv_table(table(document, "summary")).splitlines()[1].endswith(",0,0,20")


def test_extreme_energies_make_no_report_fail():
    runs = [
        *(
            traced([(0.1, 1.7e308, -INF), (1.0, e, -1.7e308)], solver=s, problem=p)
            for s, e in (("a", 1e308), ("b", -1e308), ("c", 1.0))
            for p in "pq"
        ),
    ]
    assert {row.gap_percent for row in Comparison(runs).rows} == {None}
    drawn(report_document(runs, title=""))


def test_one_problem_has_no_tests_and_no_profiles():
    document = report_document([r for r in study() if r.problem == "chain(n=0)"], title="")
    names = {p.name for p in document.pictures()}
    assert names == {"gap-over-time"}
    shown = render_markdown(document)
    assert "Ranks are not tested: one problem only was run by all solvers." in shown
    assert [t.name for t in document.tables()].count("problem-chain(n=0)") == 1


def test_one_solver_is_not_compared_with_itself():
    document = report_document([r for r in study() if r.solver == "fast"], title="")
    assert "Solver against solver" not in [s.title for s in document.sections]
    assert column(table(document, "summary"), "primal gap %")["fast"].value == pytest.approx(1.0)


def test_solvers_that_share_no_problem_are_not_profiled():
    runs = [record("p", "a"), record("q", "b")]
    document = report_document(runs, title="")
    shown = render_markdown(document)
    for sentence in (
        "No problem was run by all solvers, so there is no performance profile.",
        "Ranks are not tested: no problem was run by all solvers.",
        "The records hold no history of the runs",
    ):
        assert sentence in shown


def test_failures_are_shown_and_counted():
    runs = [
        *study(),
        *(
            record(f"grid(n={n})", "bad", INF, status="crash", message="exit\ncode 7", seed=s)
            for n in (4, 12)
            for s in range(3)
        ),
        record("grid(n=4)", "picky", INF, status="unsupported", message="not my day"),
    ]
    document = report_document(runs, title="")
    failures = table(document, "failures")
    lines = [[c.text for c in row] for row in failures.rows]
    assert lines == [
        ["bad", "crash", "6", "2", "exit code 7", "grid(n=4)"],
        ["picky", "unsupported", "1", "1", "not my day", "grid(n=4)"],
    ]
    assert failures.rows[0][1].mark == "failed" and failures.rows[1][1].mark == ""
    assert failures.caption == "Of 43 runs, 6 failed and 1 was refused."
    summary = table(document, "summary")
    assert (column(summary, "failed")["bad"].text, column(summary, "failed")["bad"].mark) == (
        "6",
        "failed",
    )
    assert column(summary, "primal gap %")["bad"].value == 100.0
    assert column(summary, "seconds")["bad"].value == pytest.approx(10.0)
    assert "Failures" not in [s.title for s in of_study().sections]


def test_solvers_that_refuse_everything_are_listed_and_not_compared():
    refusals = [
        replace(r, id=f"refusal {n}", solver="picky", status="unsupported", energy=INF, trace=())
        for n, r in enumerate(r for r in study() if r.solver == "fast")
    ]
    document = report_document([*study(), *refusals], title="")
    assert column(table(document, "summary"), "unsup.")["picky"].text == "12"
    assert "picky" in column(table(document, "problem-chain(n=0)"), "status")
    for name in ("ranks", "targets", "quality-at-times"):
        assert not any("picky" in c.text for row in table(document, name).rows for c in row)
    assert table(document, "ranks").rows == table(of_study(), "ranks").rows
    assert "for having refused every problem: picky.\n" in render_markdown(document)
    alone = report_document(refusals, title="")
    assert column(table(alone, "summary"), "primal gap %")["picky"].value == 100.0


def test_problems_settings_and_environment_are_listed():
    runs = [replace(r, optimum=100.0, optimum_source="by hand") for r in study()[:9]]
    document = report_document([*runs, *study()[9:]], title="", notes=("A note.",))
    problems = table(document, "problems")
    assert list(column(problems, "class")) == [
        f"{c}(n={n})" for c, n in (("chain", 0), ("chain", 8), ("grid", 4), ("grid", 12))
    ]
    assert column(problems, "source")["chain(n=0)"].text == "by hand"
    assert column(problems, "best energy")["grid(n=12)"].value == 400.0
    solvers = table(document, "solvers")
    assert column(solvers, "settings")["fast"].text == "order=random, sweeps=null"
    assert column(table(document, "environment"), "value")["python"].text == "3.11"
    assert column(table(document, "limits"), "value")["time limit (s)"].text == "10"
    assert section(document, "Notes").blocks == (Items(("A note.",)),)


def test_problems_are_shown_one_by_one_and_folded():
    document = of_study()
    one_by_one = section(document, "Problem by problem")
    assert one_by_one.folded and all(s.folded for s in one_by_one.sections)
    shown = table(document, "problem-chain(n=0)")
    assert column(shown, "energy")["exact"].mark == "best"
    assert column(shown, "energy")["fast"].value == pytest.approx(100 / 0.99)
    assert column(shown, "proved")["exact"].text == "yes"
    assert "best bound 100.0000 (exact)" in shown.caption


def test_runs_at_a_temperature_are_shown_by_problem():
    runs = [
        record(solver=s, log_partition=v, log_partition_kind=k, temperature=2.0)
        for s, v, k in (("exact", 5.0, "exact"), ("mean-field", 4.5, "lower"))
    ]
    document = report_document(runs, title="")
    assert "Results" not in [s.title for s in document.sections]
    log_z = column(table(document, "problem-p"), "log Z")
    assert {solver: cell.text[-2:] for solver, cell in log_z.items()} == {
        "exact": " =",
        "mean-field": ">=",
    }


def test_the_order_of_the_records_does_not_matter():
    runs = [*study(), record("grid(n=4)", "bad", INF, status="error", message="no")]
    shuffled = [runs[i] for i in np.random.default_rng(0).permutation(len(runs))]
    first, second = (report_document(r, title="") for r in (runs, shuffled))
    assert render_markdown(first) == render_markdown(second)
    assert first.tables() == second.tables()


def test_nothing_but_failures():
    runs = [record(f"p{n}", s, INF, status="error", message="no") for n in (1, 2) for s in "ab"]
    document = report_document(runs, title="")
    assert column(table(document, "summary"), "primal gap %")["a"].value == 100.0
    drawn(document)


def test_names_may_be_anything():
    names = ["<script>alert(1)</script>", "$x^{", "", "two\nlines", "_", "{}%s", "x" * 300]
    runs = [
        traced([(0.1, 3.0 + s, -INF), (1.0, 1.0 + s, 0.5)], problem=p, solver=f"{name}{s}")
        for p, (s, name) in itertools.product(names, enumerate(names))
    ]
    document = report_document(runs, title=names[0])
    assert {row[0].text for row in table(document, "summary").rows} == {r.solver for r in runs}
    assert {row[0].text for row in table(document, "problems").rows} == set(names)
    drawn(document)


def test_the_work_grows_with_the_records_and_not_with_their_square():
    def seconds(problems):
        runs = [
            traced(
                [(0.1, 100.0 + p + s, -INF), (1.0, 90.0 + s, -INF)],
                problem=f"p(n={p})",
                solver=f"s{s}",
            )
            for p in range(problems)
            for s in range(10)
        ]
        begin = time.process_time()
        report_document(runs, title="")
        return time.process_time() - begin

    seconds(10)
    # Sixteen times as many records; quadratic time would be 256 times as long.
    assert seconds(320) < 60 * max(seconds(20), 0.005)


# ---------------------------------------------------------------------- in short


def short(document):
    return dict(document.lead).get("In short", "")


def plain(solver, energies, seconds=1.0, **changes):
    """Return a run of a solver on each of some problems."""
    return [record(f"p{n}", solver, e, seconds=seconds, **changes) for n, e in enumerate(energies)]


def test_short_summary_names_closest_fastest_and_most_proofs():
    assert short(of_study()) == (
        "Closest to the best energies known: exact (mean primal gap 0 %), before fast (1.00 %). "
        "Fastest of the 2 within 1 % of them on average: fast (0.100 s on average). Most answers "
        "are proved by exact, in 100 % of runs; the best answer is proved on 4 of 4 problems."
    )
    assert short(report_document([record()], title="", answer="No.")) == ""
    empty = report_document([], title="Empty")
    assert empty.alarms == () and empty.pictures() == [] and short(empty) == ""


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [
        (
            [
                *plain("a", [100.0, 100.0], 1.0),
                *plain("b", [100.0, 100.0], 1.05),
                *plain("c", [100.0, 100.01], 2.0),
                *plain("d", [150.0, 100.0]),
            ],
            "known: a, b, c (mean primal gap 0 %), before d (16.67 %). Fastest of the 3 within "
            "1 % of them on average: a, b (1.00 s on average). No run proves",
        ),
        # Gaps of 0, 33.3 and 50 % average to 27.8 %, gaps of 33.3, 0 and 0 % to 11.1 %.
        (
            [*plain("a", [100.0, 150.0, 200.0]), *plain("b", [150.0, 100.0, 100.0])],
            "b (mean primal gap 11.11 %), before a (27.78 %); none is within 1 % of them",
        ),
        (
            [*plain("a", [1.0, 1.0]), *plain("b", [1.0], lower_bound=1.0), record("p1", "b", 1.0)],
            "proved by b, in 50 % of runs; the best answer is proved on 1 of 2 problems.",
        ),
        (plain("a", [5.0, 7.0]), "known: a (mean primal gap 0 %). Fastest of the 1"),
        (
            [record(), *(record("p", "c", INF, status="crash", seed=s) for s in range(2))],
            "2 of 3 runs failed: c (2).",
        ),
        ([record("p", s, INF, status="error") for s in "ab"], "No run found a labelling."),
        ([record("p", "a"), record("q", "b")], "No problem was run by all solvers, so they are"),
        (
            [*plain("a", [100.0, 100.0]), *plain("b", [200.0])],
            "over the 1 of 2 problems that all these solvers were run on (not p1): a",
        ),
    ],
)
def test_in_short_of_ties_proofs_failures_and_problems_in_common(runs, sentences):
    assert sentences in short(report_document(runs, title=""))
