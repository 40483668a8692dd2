"""The numbers of a report recomputed by a referee: plain loops over the records, and by hand."""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics as std

import numpy as np
import pytest
from sample_records import column, picture, table, traced

from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.report import report_document
from inference_lab.reporting.statistics import rank_test

INF = math.inf
LIMIT = 10.0
SHIFT = 0.001
TARGETS = (20.0, 1.0, 0.0)
TIMES = (0.1, 1.0, 4.0, 9.0)


def run(problem, solver, seed, points=(), **changes):
    """Return the record of a run with a history of (seconds, energy, bound), and its end."""
    fields = {"problem": problem, "solver": solver, "seed": seed, "time_limit": LIMIT, **changes}
    return traced(points, **fields)


def by_hand():
    """Return runs of four solvers on five problems with two seeds, with every special case."""
    no = "unsupported"
    bad = {"status": "crash", "message": "exit code 9"}
    killed = {"status": "timeout", "seconds": 12.0, "message": "killed"}
    infeasible = {"status": "infeasible", "lower_bound": INF, "seconds": 2.0}
    return [
        # Positive energies: the optimum 100 is proved by a and found by b too.
        run("cost", "a", 0, [(1.0, 125.0, 50.0), (4.0, 100.0, 100.0)], status="optimal"),
        run("cost", "a", 1, [(1.0, 125.0, 50.0), (6.0, 100.0, 100.0)], status="optimal"),
        run("cost", "b", 0, [(0.5, 100.0, -INF)]),
        run("cost", "b", 1, [(0.5, 200.0, -INF)]),
        run("cost", "c", 0, [(0.1, 125.0, -INF), (3.0, 101.0, -INF)], **killed),
        run("cost", "c", 1, seconds=0.2, time_limit=None, **bad),
        run("cost", "d", 0, status=no, message="only trees"),
        run("cost", "d", 1, status=no, message="only trees"),
        # Negative energies; the optimum is known from elsewhere, and no run finds it.
        *(
            run("gain", s, seed, [(t, e, -INF)], optimum=-50.0, optimum_source="by hand")
            for s, seed, t, e in [
                ("a", 0, 2.0, -40.0),
                ("a", 1, 2.0, -40.0),
                ("b", 0, 1.0, -40.0),
                ("b", 1, 1.0, 10.0),
                ("c", 0, 0.05, -45.0),
                ("c", 1, 0.05, -45.0),
                ("d", 0, 8.0, -45.0 * (1 + 1e-10)),
                ("d", 1, 8.0, -25.0),
            ]
        ),
        # No labelling exists: a proves it, b and c find none.
        run("hard", "a", 0, energy=INF, **infeasible),
        run("hard", "a", 1, energy=INF, **infeasible),
        run("hard", "b", 0, energy=INF, seconds=10.0, status="limit"),
        run("hard", "b", 1, energy=INF, seconds=10.0, status="limit"),
        run("hard", "c", 0, seconds=0.0, **bad),
        run("hard", "c", 1, seconds=0.0, **bad),
        run("hard", "d", 0, status=no),
        run("hard", "d", 1, energy=INF, **infeasible),
        # The best energy is 0, to which every other one has a gap of 100 %; no bound is known.
        *(
            run("zero", s, seed, [(1.0, e, -INF)])
            for (s, e), seed in itertools.product([("a", 0.0), ("b", 5.0), ("c", 0.0)], (0, 1))
        ),
        run("zero", "d", 0, [(1.0, -0.0, -INF)]),
        run("zero", "d", 1, [(1.0, 1e-3, -INF)]),
        # Only some solvers were run on this one, and b once.
        run("rare", "a", 0, [(1.0, 1.0, 1.0)]),
        run("rare", "a", 1, [(1.0, 1.0, 1.0)]),
        run("rare", "b", 0, [(0.01, 1.0, -INF)]),
    ]


def at_random(seed):
    """Return runs with ties, failures, refusals and missing ones, different for each seed."""
    rng = random.Random(seed)
    runs = []
    for problem, solver, draw in itertools.product("pqrs", "abcd", range(3)):
        kind = rng.choice(["run"] * 7 + ["crash", "timeout", "unsupported", "missing"])
        if kind == "missing":
            continue
        # Two solvers never refuse, so that ranks exist.
        if kind == "unsupported" and solver in "cd":
            runs.append(run(problem, solver, draw, status="unsupported"))
            continue
        if problem == "s" and seed % 2:
            status = rng.choice(["infeasible", "limit"])
            bound = INF if status == "infeasible" else -INF
            end = rng.choice([0.5, 3.0])
            runs.append(run("s", solver, draw, seconds=end, status=status, lower_bound=bound))
            continue
        sign = -1.0 if problem == "q" else 1.0
        moments = sorted(rng.sample([0.05, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0], rng.randint(1, 4)))
        energies = sorted((sign * rng.choice([20, 21, 25, 30, 90]) for _ in moments), reverse=True)
        lowest = 20.0 if sign > 0 else -90.0
        bound = lowest if rng.random() < 0.3 else -INF
        points = [(t, e, -INF) for t, e in zip(moments, energies, strict=True)]
        points.append((moments[-1] + 1.0, energies[-1], bound))
        changes = {}
        if kind == "crash":
            changes = {"status": "crash", "energy": INF, "lower_bound": -INF}
        elif kind == "timeout":
            changes = {"status": "timeout", "seconds": 11.0}
        runs.append(run(problem, solver, draw, points, **changes))
    return runs


# ---------------------------------------------------------------------- the referee


def close(energy, other):
    """Return whether two energies are equal up to rounding."""
    return abs(energy - other) <= 1e-8 * max(1.0, abs(other))


class Referee:
    """Statistics of runs by their definitions, one number at a time."""

    def __init__(self, runs):
        self.runs = runs
        self.problems = list(dict.fromkeys(r.problem for r in runs))
        self.solvers = list(dict.fromkeys(r.solver for r in runs))
        self.lowest = {}
        for problem in self.problems:
            mine = [r for r in runs if r.problem == problem]
            optima = [r.optimum for r in mine if r.optimum is not None]
            self.lowest[problem] = min([r.energy for r in mine] + optima)
        self.longest = max(r.seconds for r in runs)

    def of(self, solver, problem=None):
        """Return the runs of a solver."""
        return [r for r in self.runs if r.solver == solver and problem in (None, r.problem)]

    def gap_of(self, energy, problem):
        """Return the primal gap of an energy."""
        best = self.lowest[problem]
        if math.isinf(energy) or math.isinf(best):
            return 100.0
        if close(energy, best):
            return 0.0
        if energy * best <= 0:
            return 100.0
        return 100.0 * abs(energy - best) / max(abs(energy), abs(best))

    def infeasible(self, r):
        """Return whether a run proves infeasibility."""
        return r.status == "infeasible" and self.lowest[r.problem] == INF

    def gap(self, r):
        """Return the primal gap of a run."""
        return 0.0 if self.infeasible(r) else self.gap_of(r.energy, r.problem)

    def history(self, r):
        """Return the history of a run as far as its record supports it."""
        points = [(p.seconds, max(p.best_energy, r.energy), p.lower_bound) for p in r.trace]
        return [*points, (max(r.seconds, points[-1][0] if points else 0), r.energy, r.lower_bound)]

    def reached(self, r, percent):
        """Return the time at which a run was within a gap."""
        if self.infeasible(r):
            return r.seconds
        times = [
            t for t, e, _ in self.history(r) if self.gap_of(e, r.problem) <= percent and e < INF
        ]
        return min(times, default=INF)

    def proved(self, r):
        """Return the time at which a run had proved its answer."""
        if self.infeasible(r):
            return r.seconds
        if r.energy > self.lowest[r.problem] + 1e-6 * max(1.0, abs(self.lowest[r.problem])):
            return INF
        times = [t for t, e, b in self.history(r) if e < INF and close(min(b, r.lower_bound), e)]
        return min(times, default=INF)

    def gap_at(self, r, moment):
        """Return the primal gap that a run had at a time."""
        if self.infeasible(r):
            return 0.0 if r.seconds <= moment else 100.0
        energies = [e for t, e, _ in self.history(r) if t <= moment]
        return self.gap_of(min(energies, default=INF), r.problem)

    def allowance(self, r):
        """Return the seconds charged to a run for a target that it did not reach."""
        return max(r.seconds, self.longest if r.time_limit is None else r.time_limit)

    def over_problems(self, solver, number):
        """Return the mean over problems of medians over runs."""
        medians = [
            std.median(number(r) for r in self.of(solver, p))
            for p in self.problems
            if self.of(solver, p)
        ]
        return std.fmean(medians)

    def mean_seconds(self, solver, seconds):
        """Return the shifted geometric mean over the runs of a solver."""
        product = math.prod(seconds(r) + SHIFT for r in self.of(solver))
        return product ** (1 / len(self.of(solver))) - SHIFT

    def charged(self, r):
        """Return the seconds of a run, increased if it failed."""
        nothing = r.failed or r.status == "unsupported" or not r.answered
        return self.allowance(r) if nothing else r.seconds

    def rate(self, solver, holds):
        """Return the percentage of runs that satisfy a condition."""
        return 100.0 * sum(map(holds, self.of(solver))) / len(self.of(solver))

    def in_common(self, solvers):
        """Return the problems that all given solvers were run on."""
        return [p for p in self.problems if all(self.of(s, p) for s in solvers)]


# ---------------------------------------------------------------------- the report


def report(runs, **options):
    settings = {"title": "", "targets": TARGETS, "times": TIMES, **options}
    return report_document(runs, **settings)


def drawn(document, name):
    """Return the curves of the picture of this name: points of each solver."""
    rows = picture(document, name).draw().data.groupby("solver", sort=False)
    return {solver: (r["x"].to_numpy(), r["y"].to_numpy()) for solver, r in rows}


CASES = {"by hand": by_hand(), **{f"random {n}": at_random(n) for n in range(10)}}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """Return runs, their referee and their report."""
    runs = CASES[request.param]
    return runs, Referee(runs), report(runs)


def test_means_over_runs_and_problems(case):
    _, referee, document = case
    summary = table(document, "summary")
    for solver in referee.solvers:
        for title, expected in (
            ("primal gap %", referee.over_problems(solver, referee.gap)),
            ("% best", referee.rate(solver, lambda r: referee.gap(r) == 0)),
            ("% proved", referee.rate(solver, lambda r: referee.proved(r) < INF)),
            ("seconds", referee.mean_seconds(solver, referee.charged)),
            ("failed", sum(r.status in ("crash", "timeout") for r in referee.of(solver))),
            ("unsup.", sum(r.status == "unsupported" for r in referee.of(solver))),
            ("runs", len(referee.of(solver))),
        ):
            value = column(summary, title)[solver].value
            assert value == pytest.approx(expected, abs=1e-7), (solver, title)
    gaps = column(summary, "primal gap %")
    assert list(gaps) == sorted(gaps, key=lambda s: round(gaps[s].value, 6)), "closest first"


def test_gaps_to_bounds(case):
    runs, referee, document = case
    means = {s: [] for s in referee.solvers}
    for problem in referee.problems:
        mine = [r for r in runs if r.problem == problem]
        bound = max([r.lower_bound for r in mine] + [r.optimum or -INF for r in mine])
        lowest = min((r.energy for r in mine), default=INF)
        titles = [c.title for c in table(document, f"problem-{problem}").columns]
        assert ("gap %" in titles) == (bound > -INF)
        if bound == -INF:
            continue
        shown = column(table(document, f"problem-{problem}"), "gap %")
        for solver in dict.fromkeys(r.solver for r in mine):
            energies = [r.energy for r in referee.of(solver, problem) if r.energy < INF]
            energy = std.median(energies) if energies else INF
            if math.isinf(energy) or math.isinf(bound):
                assert shown[solver].value is None
                continue
            # One denominator for all solvers of the problem.
            expected = 100.0 * (energy - bound) / max(abs(lowest), abs(bound))
            expected = 0.0 if close(bound, energy) else expected
            assert shown[solver].value == pytest.approx(expected)
            means[solver].append(expected)
    if any(means.values()):
        cells = column(table(document, "summary"), "gap %")
        for solver, gaps in means.items():
            value = cells[solver].value
            assert value is None if not gaps else value == pytest.approx(std.fmean(gaps))


def test_times_to_targets(case):
    runs, referee, document = case
    targets = table(document, "targets")
    goals = [(f"{t:g} %", lambda r, t=t: referee.reached(r, t)) for t in TARGETS]
    if any(referee.proved(r) < INF for r in runs):
        goals.append(("proof", referee.proved))
    assert len(targets.columns) == 1 + 2 * len(goals)
    for solver in column(targets, "solver"):
        for name, reached in goals:
            rate = referee.rate(solver, lambda r, f=reached: f(r) < INF)
            assert column(targets, f"{name}: % of runs")[solver].value == pytest.approx(rate)

            def charged(r, f=reached):
                return f(r) if f(r) < INF else referee.allowance(r)

            mean = referee.mean_seconds(solver, charged)
            assert column(targets, f"{name}: seconds")[solver].value == pytest.approx(mean)


def test_quality_at_times(case):
    """Table and figure have one statistic: medians and means would contradict each other."""
    _, referee, document = case

    def mean(solver, moment):
        return referee.over_problems(solver, lambda r: referee.gap_at(r, moment))

    fixed = table(document, "quality-at-times")
    for moment in TIMES:
        for solver, cell in column(fixed, f"{moment:g} s").items():
            assert cell.value == pytest.approx(mean(solver, moment), abs=1e-9), (solver, moment)
    figure = picture(document, "gap-over-time")
    moments, gaps, solvers, _ = figure.draw.args
    for at in range(0, len(moments), 7):
        expected = [mean(solver, moments[at]) for solver in solvers]
        assert gaps[:, at] == pytest.approx(expected, abs=1e-9), moments[at]
    statistic = "the mean over problems of the median over seeds and repeats"
    assert statistic in figure.caption and statistic in fixed.caption


def test_profiles(case):
    _, referee, document = case
    solvers = list(column(table(document, "targets"), "solver"))

    def solved(solver, problem):
        times = [
            min(referee.reached(r, TARGETS[0]), referee.proved(r))
            for r in referee.of(solver, problem)
        ]
        return std.median(times) if times else INF

    common = referee.in_common(solvers)
    curves = drawn(document, "performance-profile")
    assert list(curves) == solvers
    for tau, solver in itertools.product((1.0, 1.5, 2.0, 20.0, 1e9), solvers):
        within = sum(
            solved(solver, p) < INF
            and solved(solver, p) <= tau * min(solved(s, p) for s in solvers) * (1 + 1e-12)
            for p in common
        )
        x, y = curves[solver]
        end = x[-1] if tau > x[-1] else tau
        assert y[x <= end][-1] == pytest.approx(within / len(common))


def test_ranks_and_their_tests(case):
    _, referee, document = case
    solvers = [
        s
        for s in column(table(document, "targets"), "solver")
        if all(r.status != "unsupported" for r in referee.of(s))
    ]
    common = referee.in_common(solvers)
    gaps = [[std.median(map(referee.gap, referee.of(s, p))) for s in solvers] for p in common]
    test = rank_test(np.round(gaps, 6))
    rank_table = table(document, "ranks")
    ranks = column(rank_table, "average rank")
    assert [ranks[s].value for s in solvers] == pytest.approx(test.ranks.tolist())
    labels, shown, half, _ = picture(document, "critical-difference").draw.args
    assert dict(zip(labels, shown, strict=True)) == pytest.approx(
        dict(zip(solvers, test.ranks, strict=True))
    )
    assert 2 * half == pytest.approx(test.critical_difference)
    if len(solvers) > 2:
        sentence = re.search(r"chi-squared ([\d.]+)", rank_table.note)
        assert float(sentence[1]) == pytest.approx(test.statistic, abs=6e-3)


def test_captions_of_ranks_name_their_problems():
    document = report(by_hand())
    run_on = column(table(document, "summary"), "run on")
    assert {s: c.value for s, c in run_on.items()} == {"a": 5, "b": 5, "c": 4, "d": 4}
    basis = "the 4 of 5 problems that all these solvers were run on (not rare)"
    captions = {b.name: b.caption for b in (*document.tables(), *document.pictures())}
    for name in ("ranks", "critical-difference", "performance-profile"):
        assert f"over {basis}" in captions[name]
    # Gaps of a, b, c: 0, 25, 50; 20, 60, 10; 0, 100, 100; 0, 100, 0. d refuses some.
    rank_table = table(document, "ranks")
    ranks = column(rank_table, "average rank")
    assert {s: c.value for s, c in ranks.items()} == {
        "a": pytest.approx((1 + 2 + 1 + 1.5) / 4),
        "b": pytest.approx((2 + 3 + 2.5 + 3) / 4),
        "c": pytest.approx((3 + 1 + 2.5 + 1.5) / 4),
    }
    assert rank_table.note.endswith("Without those that refused problems: d.")
    # Without rare, and with all problems.
    whole = report([r for r in by_hand() if r.problem != "rare"])
    assert "over all 4 problems" in table(whole, "ranks").caption
    assert "run on" not in [c.title for c in table(whole, "summary").columns]


def test_a_solver_that_refuses_all_it_was_run_on_takes_no_problem_away():
    runs = [r for r in by_hand() if r.problem != "rare"]
    picky = run("cost", "picky", 0, status="unsupported", message="not today")
    document = report([*runs, picky])
    assert "over all 4 problems" in table(document, "ranks").caption
    # All four problems are in the shares.
    shares = np.concatenate([y for _, y in drawn(document, "performance-profile").values()])
    assert (shares * 4).tolist() == pytest.approx(np.rint(shares * 4).tolist())


def test_a_proof_of_infeasibility_is_refuted_by_a_known_optimum():
    refuted = run("p", "a", 0, energy=INF, status="infeasible", lower_bound=INF, optimum=3.0)
    assert Comparison([refuted]).rows[0].proved_by == "no"
    assert Comparison([refuted]).rows[0].best == 0 and Comparison([refuted]).alarms


def test_seconds_leave_out_runs_that_failed_or_were_refused():
    runs = [run("p", "a", s, [(float(s + 1), 1.0, -INF)]) for s in range(3)]
    runs += [
        run("p", "a", 3, seconds=50.0, status="crash"),
        run("p", "b", 0, status="unsupported"),
    ]
    shown = table(report(runs), "problem-p")
    assert column(shown, "seconds")["a"].value == 2.0
    assert column(shown, "seconds")["b"].text == "-"


def test_shares_are_round_only_where_they_are_exact():
    runs = [run("p", "a", s, [(1.0, 1.0 if s else 2.0, 1.0)]) for s in range(300)]
    summary = table(report(runs), "summary")
    assert column(summary, "% best")["a"].text == "99.7"
    assert "99.7" in Comparison([*runs, run("q", "a", 0, [(1.0, 1.0, -INF)])]).to_text()
