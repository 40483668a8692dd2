"""Best known energies: their finders and provers, kept and merged."""

from __future__ import annotations

import gzip
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import record

from inference_lab.reporting.report import report_document
from inference_lab.results.best_known import known_best, merged, read_known, write_known
from inference_lab.results.json_lines import RecordError

INF = math.inf


def drawn(seed):
    """Return runs on three problems; bounds are the true optima or below."""
    rng = random.Random(seed)
    runs = []
    for problem, solver in itertools.product("pqr", "abcd"):
        optimum = {"p": 1.0, "q": -5.0, "r": INF}[problem]
        energy = rng.choice([optimum, optimum + 1.0, INF])
        bound = rng.choice([-INF, optimum - 1.0, optimum]) if optimum < INF else -INF
        if problem == "r" and rng.random() < 0.3:
            bound = INF
        runs.append(record(problem, solver, energy, lower_bound=bound))
    return runs


@given(st.integers(0, 500))
def test_finders_and_provers_equal_a_search_of_each_run(seed):
    runs = drawn(seed)
    for (problem, _), known in known_best(runs).items():
        mine = [r for r in runs if r.problem == problem]
        lowest = min(r.energy for r in mine)
        assert known.energy == lowest and known.bound == max(r.lower_bound for r in mine)
        found = [r.solver for r in mine if r.energy == lowest and lowest < INF]
        assert list(known.found_by) == found
        highest = known.bound
        given = [r.solver for r in mine if r.lower_bound == highest > -INF]
        assert list(known.bound_by) == given
        assert known.open == (highest < lowest)


@given(st.integers(0, 500), st.integers(0, 47))
def test_parts_make_the_same_whole_in_any_order(seed, cut):
    """Any two parts of the runs, in either order and repeated, give the result of all runs."""
    runs = drawn(seed)
    random.Random(cut).shuffle(runs)
    parts = [known_best(runs[: cut % 12]), known_best(runs[cut % 12 :])]
    whole = known_best(runs)
    for order in (parts, parts[::-1], [*parts, *parts]):
        assert merged(*order) == whole


def test_a_lower_energy_takes_the_proof_away_and_rounding_does_not():
    old = known_best([record("p", "a", 3.0, lower_bound=3.0)])
    lower = known_best([record("p", "b", 2.0, lower_bound=-INF)])
    [known] = merged(old, lower).values()
    assert known.found_by == ("b",) and known.open
    near = known_best([record("p", "b", 3.0 - 1e-12, lower_bound=-INF)])
    [known] = merged(old, near).values()
    assert known.found_by == ("a", "b") and not known.open


def test_a_known_optimum_is_found_and_proved_by_its_source():
    [known] = known_best([record("p", "a", 3.0, optimum=2.0, optimum_source="a book")]).values()
    assert (known.energy, known.found_by, known.bound_by) == (2.0, ("a book",), ("a book",))


def test_files_round_trip_and_are_deterministic(tmp_path):
    runs = drawn(3)
    path = tmp_path / "best-known.jsonl.gz"
    assert read_known(path) == {}
    write_known(path, known_best(runs))
    first = path.read_bytes()
    assert read_known(path) == known_best(runs)
    write_known(path, known_best(runs[::-1]))
    assert path.read_bytes() == first
    path.write_bytes(gzip.compress(b'{"problem": "p"}\n'))
    with pytest.raises(RecordError, match=r"best-known.jsonl.gz:1: no entry of best energies"):
        read_known(path)


def test_report_counts_energies_found_elsewhere_and_names_open_problems():
    runs = [
        record("p", "a", 10.0, lower_bound=10.0),
        record("p", "b", 12.0),
        record("q", "a", 8.0, lower_bound=7.0),
        record("q", "b", 8.0),
    ]
    plain = report_document(runs, title="")
    (left,) = (t for t in plain.tables() if t.name == "open-problems")
    assert left.caption == "The best energy known of 1 of 2 problems is proved; these are open."
    assert [cell.text for cell in left.rows[0]] == [
        "q",
        "8.000000",
        "a, b",
        "7.000000",
        "a",
        "12.50",
    ]
    elsewhere = known_best([record("q", "long", 7.0, lower_bound=7.0)])
    document = report_document(runs, title="", known=elsewhere)
    assert "none is open" in str(document.sections)
    (summary,) = (t for t in document.tables() if t.name == "summary")
    gaps = {row[0].text: row[1].value for row in summary.rows}
    # On q both are 1 above 7, which is an eighth of 8.
    assert gaps == {"a": pytest.approx(12.5 / 2), "b": pytest.approx((100 / 6 + 12.5) / 2)}
    # A problem that was not run here is not in the report.
    other = known_best([record("z", "long", 7.0)])
    assert len(report_document(runs, title="", known=other).tables()) == len(plain.tables())
