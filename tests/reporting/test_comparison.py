"""The harness records every run in all cases, and its conclusions follow from the records."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest

import inference_lab as il
from inference_lab.contract import Outcome, Solver
from inference_lab.harness.campaign import InputError
from inference_lab.harness.progress import log_line
from inference_lab.harness.warm_up import hard_graph, warm_up_graph
from inference_lab.reporting.comparison import Comparison
from inference_lab.results.records import Record, RecordStore
from inference_lab.results.summaries import gap_percent

#: Runs in this process, because a process for each takes longer than the run.
compare = functools.partial(il.compare, isolate=False)


def identity(record):
    return record.id


# ---------------------------------------------------------------------- solvers made for the tests


@dataclass(frozen=True)
class Enumerate(Solver):
    """Exact solver that tries all labellings."""

    def supports(self, graph, temperature):
        """Refuse graphs too large to enumerate, such as the larger graph of a warm-up."""
        few = graph.n_variables <= 12
        return super().supports(graph, temperature) or (None if few else "too many labellings")

    def run(self, graph, run):
        states = list(itertools.product(*(range(int(k)) for k in graph.cardinalities)))
        energies = graph.energy(np.array(states, dtype=np.int64).reshape(len(states), -1))
        run.offer(np.array(states[int(energies.argmin())], dtype=np.int64))
        run.bound(float(energies.min()))
        return Outcome(converged=True, iterations=len(states), claimed_energy=float(energies.min()))


@dataclass(frozen=True)
class Guess(Solver):
    """A random labelling, at a distance that depends on the seed."""

    draws: int = 1

    def run(self, graph, run):
        for _ in range(self.draws):
            run.offer(run.rng.integers(0, graph.cardinalities))
        return Outcome(iterations=self.draws)


@dataclass(frozen=True)
class Fixed(Solver):
    """Solver that reports the given result."""

    label: int = 0
    bound: float | None = None
    claim: float | None = None
    infeasible: bool = False

    def run(self, graph, run):
        if not self.infeasible:
            run.offer(np.full(graph.n_variables, self.label, dtype=np.int64))
        if self.bound is not None:
            run.bound(self.bound)
        return Outcome(claimed_energy=self.claim, infeasible=self.infeasible)


@dataclass(frozen=True)
class Broken(Solver):
    """Solver that fails in the requested way."""

    how: str = "raise"

    def run(self, graph, run):
        if self.how == "raise":
            raise RuntimeError("no idea\nwhat to do")
        if self.how == "leave":
            sys.exit(3)
        if self.how == "labels":
            run.offer(np.full(graph.n_variables, 99))
        return None


@dataclass(frozen=True)
class Choosy(Solver):
    """Solver that supports no graph."""

    def supports(self, graph, temperature):
        return "it is not my day"

    def run(self, graph, run):
        raise AssertionError("must not be called")


@dataclass(frozen=True)
class Threads(Solver):
    """Solver that reports the number of threads that libraries may use."""

    def run(self, graph, run):
        from threadpoolctl import threadpool_info

        pools = [pool["num_threads"] for pool in threadpool_info()]
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(
            diagnostics={
                "pools": pools,
                "omp": os.environ.get("OMP_NUM_THREADS"),
                "pid": os.getpid(),
            }
        )


#: Sizes of the graphs that `Spy` was run on, in order.
SEEN: list[int] = []


@dataclass(frozen=True)
class Spy(Solver):
    """Solver that records the graphs it receives."""

    def run(self, graph, run):
        SEEN.append(graph.n_variables)
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome()


def graph(n=6, k=3, seed=0, m=8):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, n, (m, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    return il.FactorGraph.potts(rng.normal(size=(n, k)), edges, rng.normal(size=len(edges)))


def problem(name="a", seed=0, truth=True, **changes):
    g = graph(seed=seed)
    labels = np.arange(g.n_variables) % 3 if truth else None
    return replace(il.Problem(name, g, truth=labels), **changes)


#: Energy 1 for label 0, 2 for label 1.
STEP = il.FactorGraph.from_terms(np.array([[1.0, 2.0]]))


def step(**changes):
    return replace(il.Problem("step", STEP), **changes)


def by_solver(comparison):
    return {row.solver: row for row in comparison.rows}


# ---------------------------------------------------------------------- runs


def test_one_record_a_run_in_order_with_evaluated_energies():
    problems = [problem("a", 0), problem("b", 1)]
    comparison = il.compare(problems, [Guess(), "icm"], seeds=[3, 1])
    assert [(r.problem, r.seed, r.solver) for r in comparison.records] == [
        (p, s, m) for p in "ab" for s in (3, 1) for m in ("Guess", "icm")
    ]
    for record in comparison.records:
        g = problems["ab".index(record.problem)].graph
        solution = il.solve(g, Guess() if record.solver == "Guess" else "icm", seed=record.seed)
        assert record.energy == solution.energy == g.energy(solution.labels)
        assert record.problem_hash == g.content_hash
        assert record.truth_energy == g.energy(np.arange(6) % 3)
        assert (record.n_variables, record.n_edges, record.n_labels) == (6, g.n_edges, 3)
        expected = il.Problem("", g, truth=np.arange(6) % 3).score(solution.labels)
        assert {n: getattr(record, n) for n in expected} == expected
        assert record.started <= record.finished
    assert comparison.records[0].settings == {"draws": 1}
    assert len({r.id for r in comparison.records}) == 8


def test_sources_of_every_kind_are_taken_alone_or_together(tmp_path):
    path = tmp_path / "m.uai"
    il.write(STEP, path)
    assert len(compare(STEP, "icm").records) == 1
    assert len(compare(path, Guess(), seeds=2).records) == 2
    mixed = compare([str(path), STEP, problem()], ["icm", Guess(draws=2)])
    assert [r.problem for r in mixed.records[::2]] == [
        f"file(path={path})",
        f"graph-{STEP.content_hash[:8]}",
        "a",
    ]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "RuntimeError: no idea what to do"),
        ("leave", "SystemExit: 3"),
        ("labels", "ValueError: labels[0] = 99"),
        ("nothing", "TypeError: run() of Broken returned NoneType"),
    ],
)
def test_a_run_that_fails_is_a_record_and_the_rest_goes_on(how, message):
    comparison = compare([problem("a"), problem("b", 1)], [Broken(how), "icm"])
    failed = [r for r in comparison.records if r.failed]
    assert [r.problem for r in failed] == ["a", "b"]
    for record in failed:
        assert record.message.startswith(message) and "\n" not in record.message
        assert record.traceback.startswith("Traceback") and record.energy == math.inf
    assert [r.status for r in comparison.records if not r.failed] == ["converged"] * 2
    row = by_solver(comparison)[Broken(how).spec]
    assert (row.failed, row.answered, row.gap_percent, row.seconds) == (1, 0, None, None)


def test_a_run_that_is_not_covered_is_a_record_with_the_reason():
    comparison = compare(problem(), [Choosy(), "icm"], seeds=2)
    refused = [r for r in comparison.records if r.solver == "Choosy"]
    assert [(r.status, r.message) for r in refused] == [("unsupported", "it is not my day")] * 2
    assert by_solver(comparison)["Choosy"].unsupported == 2
    assert "it is not my day" in comparison.to_text()


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"problems": []}, "no problems"),
        ({"solvers": []}, "no solvers"),
        ({"problems": [STEP, STEP]}, "more than once"),
        ({"solvers": ["icm", "icm()"]}, "'icm' is given more than once"),
        ({"problems": "nosuch(x=1)"}, "unknown problem 'nosuch'"),
        ({"problems": "missing/model.uai"}, "missing"),
        ({"solvers": [Spy(), "icn"]}, "unknown solver 'icn'; did you mean 'icm'"),
        ({"solvers": [Spy(), "icm(restart=1)"]}, "unknown setting of icm 'restart'"),
        (
            {"problems": il.Problem("bad", STEP, truth=np.array([5]))},
            "problem 'bad': labels[0] = 5",
        ),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"seeds": [-1]}, "-1"),
        ({"seeds": [0.5]}, "0.5"),
        ({"seeds": True}, "seeds"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 1.5}, "jobs"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"time_limit": math.nan}, "time_limit"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(arguments, refusal, tmp_path):
    SEEN.clear()
    store = tmp_path / "runs.jsonl"
    call_arguments = {"problems": [problem()], "solvers": [Spy()], "store": store, **arguments}
    if "solvers" not in arguments and isinstance(call_arguments["problems"], str | il.Problem):
        call_arguments["problems"] = [problem("first"), call_arguments["problems"]]
    with pytest.raises((InputError, il.SpecError)) as caught:
        il.compare(**call_arguments)
    assert refusal in str(caught.value) and "\n" not in str(caught.value)
    assert SEEN == [] and not store.exists()


def test_solvers_are_warmed_up_on_small_graphs_once_before_they_are_timed():
    SEEN.clear()
    big = il.Problem("big", graph(n=400, m=800))
    il.compare([big, il.Problem("big2", graph(n=500, m=800))], Spy(), seeds=2, isolate=False)
    # A small part of the problem, a graph that is hard for its size, and then the runs.
    assert len(SEEN) == 6
    assert max(SEEN[:2]) <= 40 and sorted(SEEN[2:]) == [400, 400, 500, 500]
    # Runs in other processes leave no trace here; the warm-up of another solver does.
    SEEN.clear()
    il.compare([big], Spy(), seeds=2, temperature=0.0)
    assert SEEN == []


def test_the_hard_graph_has_the_kinds_of_pairs_of_the_graph():
    unary = np.zeros((4, 3))
    pairs = [[(0, 1)], [(1, 2)], [(2, 3)]]
    table = np.arange(9.0).reshape(1, 3, 3) ** 2
    terms = [
        il.DiagonalTerms(pairs[0], 1.0, 0.0),
        il.DiagonalTerms(pairs[1], [[1.0, 2.0, 3.0]], 0.0),
        il.OwnTables(pairs[2], table),
    ]
    hard = hard_graph(il.FactorGraph.from_terms(unary, terms))
    assert hard is not None and set(hard.edge_kinds.tolist()) == {0, 1, 2}
    assert hard.n_labels == 3
    # Between the best labelling found and the bound of the relaxation there is a gap.
    easy = il.FactorGraph.from_terms(unary, terms[:1])
    solution = il.solve(hard_graph(easy), "lp-relaxation")
    assert solution.lower_bound < solution.energy - 1.0
    assert hard_graph(il.FactorGraph.from_factors([2], [])) is None


def test_the_warm_up_graph_has_every_family_of_the_graph():
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, 3, 3))
    full = il.FactorGraph.from_terms(
        rng.normal(size=(50, 3)),
        [
            il.DiagonalTerms([(20, 21), (30, 31)], 0.0, 1.0),
            il.DiagonalTerms([(40, 41)], rng.normal(size=(1, 3)), 0.0),
            il.OwnTables([(1, 2), (2, 3)], tables),
        ],
        [((7, 8, 9), rng.normal(size=(3, 3, 3)))],
    )
    small = warm_up_graph(full)
    assert small.n_variables < 20 and small.n_factors == 1 and small.n_labels == 3
    assert sorted(small.edge_kinds) == sorted(full.edge_kinds)
    # The variables keep their order, so the terms can be compared one by one.
    variables = [0, 1, 2, 3, 7, 8, 9, 20, 21, 30, 31, 40, 41]
    x = rng.integers(0, 3, 50)
    rest = [il.FactorGraph.from_terms(full.unary[[v for v in range(50) if v not in variables]])]
    others = rest[0].energy(np.delete(x, variables))
    assert small.energy(x[variables]) + others == pytest.approx(full.energy(x), abs=1e-12)
    ragged = il.FactorGraph.from_terms(
        [np.zeros(2), np.zeros(4)], [il.OwnTables([(0, 1)], np.ones((1, 2, 4)))]
    )
    assert warm_up_graph(ragged).cardinalities.tolist() == [2, 4]
    assert warm_up_graph(il.FactorGraph.from_factors([], [])).n_variables == 0


def test_every_record_is_in_the_store_when_its_end_is_reported(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    events = []

    def progress(event):
        stored = RecordStore(path).read()
        assert len(stored) == event.done
        if event.record is not None:
            assert stored[-1] == event.record
        events.append(event)

    comparison = il.compare(
        problem(), [Guess(), Enumerate(), Broken()], seeds=2, store=path, progress=progress
    )
    assert sorted(RecordStore(path), key=identity) == sorted(comparison.records, key=identity)
    assert [(e.done, e.total, e.record is None) for e in events] == [
        (d + end, 6, not end) for d in range(6) for end in (False, True)
    ]
    assert events[-1].failed == 2


def test_a_store_that_is_something_else_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    SEEN.clear()
    with pytest.raises(InputError, match=r"cannot keep records: .*notes\.txt:1: not a line"):
        il.compare(problem(), Spy(), store=path)
    assert SEEN == [] and path.read_text() == "my notes\n"


# ---------------------------------------------------------------------- processes


def test_processes_give_the_same_answers_and_one_thread_each():
    problems = [problem("a"), il.Problem("c", graph(n=30, seed=2))]
    solvers = [Guess(draws=3), "icm(init=random)", Threads()]
    here = il.compare(problems, solvers, seeds=2)
    before = os.environ.get("OMP_NUM_THREADS")
    apart = il.compare(problems, solvers, seeds=2, jobs=2)
    assert os.environ.get("OMP_NUM_THREADS") == before

    def supervision(comparison):
        return [
            (r.problem, r.solver, r.seed, r.energy, r.status, r.iterations, r.accuracy)
            for r in comparison.records
        ]

    assert supervision(apart) == supervision(here)
    notes = [r.diagnostics for r in apart.records if r.solver == "Threads"]
    assert {note["omp"] for note in notes} == {"1"}
    assert os.getpid() not in {note["pid"] for note in notes}
    for comparison in (here, apart):
        for record in comparison.records:
            if record.solver == "Threads":
                assert set(record.diagnostics["pools"]) <= {1}


SCRIPT = """
import inference_lab as il

{guard}
    il.compare(il.FactorGraph.from_terms([[1.0, 2.0]]), "icm", jobs=2)
    print("done")
"""


@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_script_without_a_main_guard_is_refused(tmp_path, guard):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    if guard == "if True:":
        assert done.returncode == 1 and done.stdout == ""
        last = done.stderr.splitlines()[-1]
        assert last.startswith("RuntimeError: a worker process could not start")
    else:
        assert done.returncode == 0 and done.stdout == "done\n"


def test_unpicklable_arguments_are_refused():
    @dataclass(frozen=True)
    class Local(Guess):
        """Lives in a function."""

    with pytest.raises(InputError, match="'Local' cannot be sent to another process"):
        il.compare(problem(), [Local()], jobs=2)
    with pytest.raises(InputError, match="'a' cannot be sent"):
        il.compare(problem(info=MappingProxyType({"a": 1})), ["icm"], jobs=2)


# ---------------------------------------------------------------------- conclusions


@pytest.mark.parametrize(
    ("energy", "bound", "settings", "percent"),
    [
        (200.0, 150.0, {}, 25.0),
        (300.0, 150.0, {"best": 200.0}, 75.0),
        (-200.0, -250.0, {}, 20.0),
        (100.0, 125.0, {}, -20.0),
        (150.0, 125.0, {"best": 100.0}, 20.0),
        (17.0, -5.0, {"best": 10.0}, 220.0),
        (0.0, -5.0, {}, 100.0),
        (5.0, 5.0, {}, 0.0),
        (0.0, 0.0, {}, 0.0),
        (3.0, 0.0, {"best": 0.0}, 300.0),  # in percent of 1, if every known value is 0
        (3e-9, 2e-9, {"best": 2.5e-9, "small": 1e-9}, 40.0),
        (1.0, -math.inf, {}, None),
        (math.inf, 1.0, {"best": 2.0}, None),
        (math.inf, math.inf, {}, None),
        # Only the tolerance counts as no gap.
        (1.0, 1.0 - 1e-9, {"tolerance": 1e-8}, 0.0),
        (1.0, 1.0 + 1e-13, {"tolerance": 1e-8}, 0.0),
        (1.0, 1.0 - 1e-9, {"tolerance": 1e-10}, 1e-7),
        (1.0, 1.0 + 1e-9, {"tolerance": 1e-8}, -1e-7),
    ],
)
def test_gap_in_percent(energy, bound, settings, percent):
    gap = gap_percent(energy, bound, **settings)
    assert gap == percent or gap == pytest.approx(percent, rel=1e-6, abs=0.0)


def test_gaps_are_to_the_best_bound_of_all_solvers():
    comparison = compare(
        step(), [Fixed(label=1, bound=0.5), Fixed(label=1), Enumerate(), Fixed(label=0)]
    )
    rows = by_solver(comparison)
    (summary,) = comparison.problems
    assert (summary.best_bound, summary.best_bound_by) == (1.0, "Enumerate")
    assert (summary.best_energy, summary.gap_percent) == (1.0, 0.0)
    first = rows["Fixed(label=1, bound=0.5)"]
    assert (first.energy, first.gap_percent, first.lower_bound) == (2.0, 100.0, 0.5)
    assert rows["Fixed(label=1)"].gap_percent == 100.0
    assert [rows[s].proved_by for s in rows] == ["no", "no", "yes", "by Enumerate"]
    assert [rows[s].best for s in rows] == [0, 0, 1, 1]
    assert comparison.alarms == []


def test_a_known_optimum_is_a_bound_and_a_proof():
    comparison = compare(step(optimum=1.0, optimum_source="by hand"), [Fixed(), Fixed(label=1)])
    assert [row.gap_percent for row in comparison.rows] == [0.0, 100.0]
    assert [row.proved_by for row in comparison.rows] == ["by known optimum", "no"]
    assert comparison.records[0].optimum_source == "by hand"


@pytest.mark.parametrize(
    ("problem_given", "solvers", "refusal"),
    [
        (step(), [Fixed(bound=1.5), Fixed(label=1)], "Fixed(bound=1.5) gives the lower bound 1.5"),
        (step(), [Fixed(), Fixed(label=1, bound=1.001)], "gives the lower bound 2, but Fixed"),
        (step(), [Fixed(), Fixed(infeasible=True)], "no labelling is feasible"),
        (step(), [Fixed(claim=0.9)], "claims the energy 0.9, but its labelling evaluates to 1"),
        (step(), [Fixed(claim=math.nan)], "claims the energy nan"),
        (step(optimum=1.1), [Fixed()], "the known optimum 1.1 is above the energy 1"),
        (step(optimum=0.9), [Fixed(bound=0.95)], "1, above the known optimum 0.9"),
    ],
)
def test_contradictions_are_alarms_on_top(problem_given, solvers, refusal):
    comparison = compare(problem_given, solvers)
    assert len(comparison.alarms) == 1
    assert refusal in comparison.alarms[0] and comparison.alarms[0].startswith("step: ")
    text = " ".join(comparison.to_text(width=90).split())
    assert text.startswith("CONTRADICTION: step:")


@pytest.mark.parametrize(
    "solvers",
    [
        [Fixed(bound=1.0 + 1e-9)],
        [Fixed(claim=1.0 + 1e-9)],
        [Fixed(bound=-5.0), Fixed(label=1, bound=0.999)],
    ],
)
def test_rounding_and_loose_bounds_are_no_alarm(solvers):
    assert compare(step(optimum=1.0), solvers).alarms == []


def test_an_infeasible_problem_is_shown_as_such():
    hard = il.FactorGraph.potts([[0.0, np.inf], [np.inf, 0.0]], [(0, 1)], [np.inf])
    comparison = compare(il.Problem("hard", hard), ["icm", Guess()], seeds=2)
    assert comparison.alarms == []
    row = comparison.rows[0]
    assert (row.status, row.proved_by, row.best, row.energy) == ("infeasible", "yes", 2, math.inf)
    assert "infeasible (icm)" in comparison.to_text()


def test_seeds_are_summarised_by_median_and_range():
    comparison = compare(problem(), [Guess(), Enumerate()], seeds=5)
    energies = [r.energy for r in comparison.records if r.solver == "Guess"]
    row = by_solver(comparison)["Guess"]
    assert row.energy == np.median(energies)
    assert (row.energy_min, row.energy_max) == (min(energies), max(energies))
    accuracies = [r.accuracy for r in comparison.records if r.solver == "Guess"]
    assert row.accuracy == pytest.approx(np.mean(accuracies))
    optimum = comparison.problems[0].best_bound
    assert row.gap_percent == pytest.approx(100 * (row.energy - optimum) / abs(optimum))
    hits = sum(abs(e - optimum) < 1e-9 for e in energies)
    assert row.best == row.proved == hits < 5
    assert comparison.rows[1].energy_max - comparison.rows[1].energy_min == 0


def test_problems_of_one_name_from_different_stores_are_kept_apart():
    one = compare(step(), Fixed(bound=1.0)).records
    other = il.FactorGraph.from_terms(np.array([[-3.0, 2.0]]))
    two = compare(il.Problem("step", other), Fixed()).records
    comparison = Comparison([*one, *two])
    assert [p.name for p in comparison.problems] == [
        f"step [{g.content_hash[:8]}]" for g in (STEP, other)
    ]
    assert comparison.alarms == []
    assert [row.gap_percent for row in comparison.rows] == [0.0, None]


# ---------------------------------------------------------------------- what is shown


@functools.cache
def shown():
    """Return a comparison with results of every kind; displaying it does not change it."""
    problems = [
        problem("estep(data=iris, constraints=30)", 0),
        problem("estep(data=wine, constraints=200, noise=0.2)", 1),
    ]
    return compare(problems, ["icm", Enumerate(), Guess(draws=2), Choosy(), Broken()], seeds=2)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_fits_the_terminal_and_its_columns_line_up(width):
    comparison = shown()
    lines = comparison.to_text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    headers = [line for line in lines if re.match(r"\s+solver .*energy", line)]
    assert len(headers) == 2 and headers[0] == headers[1]
    end = headers[0].index("energy") + len("energy")
    cells = [
        line for line in lines if re.match(r"[* ] +(icm|Enumerate|Guess)", line) and "." in line
    ]
    rows = [line for line in cells if line[:end].rstrip()[-1].isdigit() and len(line) > end]
    assert len(rows) >= 6
    for line in rows[:6]:
        assert line[end - 1].isdigit() and line[end] == " "


def test_the_table_marks_the_best_and_explains_failures():
    text = shown().to_text()
    lines = text.splitlines()
    exact = [line for line in lines if " Enumerate " in line and "optimal" in line]
    assert len(exact) == 2 and all(line.startswith("* ") for line in exact)
    failed = [line for line in lines if line.split()[:1] == ["Broken"] and "failed [" in line]
    assert len(failed) == 2 and not any(line.startswith("*") for line in failed)
    number = re.search(r"failed \[(\d)\]", failed[0]).group(1)
    assert f"[{number}] RuntimeError: no idea what to do" in text
    assert "unsupported [" in text and "All 2 problems" in text
    assert "ground truth" in text and "(Enumerate)" in text


def test_a_single_problem_has_no_summary_and_one_seed_no_spread():
    text = compare(step(), "icm").to_text()
    assert "All" not in text and "spread" not in text and "accur." not in text
    assert str(compare(step(), "icm", seeds=2)).count("spread") == 2


def test_the_frame_has_one_row_a_run_and_numbers_in_it():
    comparison = shown()
    frame = comparison.frame
    assert len(frame) == len(comparison) == 20
    for name in ("energy", "lower_bound", "gap_percent", "best_bound", "accuracy", "optimum"):
        assert frame[name].dtype == np.float64
    assert frame["energy"].tolist() == [r.energy for r in comparison.records]
    exact = frame[frame.solver == "Enumerate"]
    assert exact.gap_percent.tolist() == [0.0] * 4 and set(exact.proved) == {"yes"}
    assert frame[frame.status == "error"].gap_percent.isna().all()
    fields = set(Record.__struct_fields__)
    added = {"best_bound", "gap_percent", "over_best_percent", "proved"}
    assert set(frame.columns) - fields == added
    assert not {"trace", "diagnostics"} & set(frame.columns)
    assert {"schema", "problem", "energy", "memory_limit"} <= set(frame.columns)


def test_save_writes_records_and_a_table_and_never_loses_records(tmp_path):
    folder = tmp_path / "deep" / "out"
    first = compare(problem(), ["icm", Broken()], seeds=2, store=folder / "runs.jsonl")
    assert [p.name for p in first.save(folder)] == ["runs.jsonl", "runs.csv"]
    names = {p.name for p in first.save(folder)}
    assert {p.name for p in folder.iterdir()} == names
    assert sorted(RecordStore(folder / "runs.jsonl"), key=identity) == sorted(
        first.records, key=identity
    )
    with (folder / "runs.csv").open(newline="") as stream:
        assert [row["solver"] for row in csv.DictReader(stream)] == [
            r.solver for r in first.records
        ]
    second = compare(problem(), "icm")
    second.save(folder)
    assert RecordStore(folder / "runs.jsonl").read()[4:] == second.records
    again = Comparison(RecordStore(folder / "runs.jsonl"))
    assert len(again.rows) == 2 and again.rows[0].runs == 3


def test_the_whole_comparison_is_strict_json():
    document = shown().as_dict()
    text = json.dumps(document, allow_nan=False)
    back = json.loads(text)
    assert len(back["records"]) == 20 and len(back["rows"]) == 10
    assert back["rows"][0]["lower_bound"] is None


def test_no_runs_at_all_still_make_a_table():
    empty = Comparison([])
    assert empty.rows == [] and empty.alarms == [] and len(empty.frame) == 0
    assert empty.to_text().strip() == ""


def test_log_lines_report_the_outcome(capsys):
    compare(step(), "icm")
    assert capsys.readouterr() == ("", "")
    compare(step(), [Enumerate(), Broken(), Choosy()], progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert [line[:6] for line in lines] == ["[1/3] ", "[2/3] ", "[3/3] "]
    # Solvers come in random order.
    choosy, broken, exact = sorted((line[6:] for line in lines), key=lambda line: line[6] != "C")
    broken, exact = sorted((broken, exact))
    assert exact.startswith("step  Enumerate  seed 0: energy 1, optimal, ")
    assert broken.startswith("step  Broken  seed 0: error: RuntimeError: no idea")
    assert choosy == "step  Choosy  seed 0: unsupported: it is not my day"


def test_log_lines_need_the_end_of_a_run():
    events = []
    compare(step(), Guess(), progress=events.append)
    with pytest.raises(ValueError, match="end of a run"):
        log_line(events[0])
