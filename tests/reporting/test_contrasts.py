"""Declared contrasts and blocks in reports, against plain loops over the records."""

from __future__ import annotations

import itertools
import math
import statistics as std

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from sample_records import picture, record, rows, table

from inference_lab.reporting.charts import drawing
from inference_lab.reporting.contrasts import Contrast, gains, measure, regimes
from inference_lab.reporting.report import report_document
from inference_lab.reporting.resampling import sign_flip
from inference_lab.reporting.statistics import block_ranks, holm

SETS = "abcdefgh"


def paired_runs(better=0.1, noise=0.01, seeds=3):
    """Return runs of two methods: sets x noise x draws, the second method better."""
    rng = np.random.default_rng(5)
    observations = []
    for data, wrong, seed in itertools.product(SETS, (0.0, 0.3), range(seeds)):
        facts = {"data": data, "noise": wrong, "seed": seed}
        base = rng.normal()
        gain = better * (wrong == 0.0) + noise * rng.normal()
        for solver, value in (("icm", base), ("ilp", base + gain)):
            names = {"cell": (data, wrong, seed), "solver": solver}
            observations.append({**facts, **names, "ari": value, "primal_gap": -value})
    return pd.DataFrame(observations)


def make_contrast(**changes):
    fields = {"name": "exact", "metric": "ari", "solver": "ilp", "baseline": "icm"}
    return Contrast(**{**fields, **changes})


def test_gains_are_paired_and_averaged_within_draws():
    runs = paired_runs()
    set_gains = gains(make_contrast(), runs)
    for data, row in zip(SETS, set_gains, strict=True):
        for seed, gain in enumerate(row):
            cells = [
                sum(
                    o.ari * (1 if o.solver == "ilp" else -1)
                    for o in runs.itertuples()
                    if o.cell == (data, wrong, seed)
                )
                for wrong in (0.0, 0.3)
            ]
            assert gain == pytest.approx(std.fmean(cells))
    # For costs, less is better.
    assert gains(make_contrast(metric="primal_gap"), runs) == set_gains
    clean = gains(make_contrast(where={"noise": 0.0}), runs)
    first_set = gains(make_contrast(where={"noise": [0.0, 0.3], "data": ["a"]}), runs)
    assert np.mean(clean) > 0.08 and first_set == [pytest.approx(set_gains[0])]
    # Without known draws, each cell is one draw.
    assert [len(row) for row in gains(make_contrast(draw="nothing"), runs)] == [6] * len(SETS)


def test_missing_run_removes_its_partner():
    runs = paired_runs(seeds=2)
    holes = runs[(runs["solver"] != "ilp") | (runs["data"] != "a")]
    assert len(gains(make_contrast(), holes)) == len(SETS) - 1
    lost = runs.assign(ari=runs["ari"].mask(runs["solver"] == "icm"))
    assert gains(make_contrast(), lost) == [] == gains(make_contrast(unit="planet"), runs)
    [nothing] = measure([make_contrast()], lost)
    assert math.isnan(nothing.effect.value) and nothing.verdict == "undecided"


def test_holm_is_over_the_primary_contrasts_only():
    runs = paired_runs()
    three = [
        make_contrast(name="clean", where={"noise": 0.0}, primary=True),
        make_contrast(name="noisy", where={"noise": 0.3}, margin=0.01),
        make_contrast(name="both", primary=True, margin=0.005),
    ]
    results = measure(three, runs)
    raw = [sign_flip(np.array(gains(c, runs))) for c in three]
    assert [m.effect.p_value for m in results] == raw
    assert [results[0].corrected, results[2].corrected] == holm([raw[0], raw[2]])
    assert results[1].corrected == raw[1]
    assert [m.verdict for m in results] == ["gain", "equivalent", "gain"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver": "ilq"}, "solver 'ilq' is none of the study's: icm, ilp"),
        ({"baseline": "ilp"}, "solver and baseline are both 'ilp'"),
        ({"over": ["a", "a"]}, "over must be different facts"),
        ({"over": ["a"], "breaks": {"b": [1]}}, "breaks.b is of no fact"),
        ({"over": ["a"], "breaks": {"a": [2, 1]}}, "breaks.a must be ascending numbers"),
    ],
)
def test_contrasts_that_cannot_be_answered_are_refused(changes, message):
    assert make_contrast(**changes).problem(["icm", "ilp"]).startswith(message)
    assert make_contrast().problem(["icm", "ilp"]) == ""


# ---------------------------------------------------------------------- in a report


def runs_of_report():
    """Return runs of three solvers on two problems of each set; one of them refuses once."""
    rng = np.random.default_rng(3)
    records = []
    for data, seed in itertools.product(SETS, range(2)):
        name = f"estep(data={data}, seed={seed})"
        for solver, above in (("icm", 4.0), ("ilp", 0.0), ("picky", 1.0)):
            refused = solver == "picky" and (data, seed) == ("c", 1)
            energy = math.inf if refused else 100.0 + above * rng.random()
            changes = {
                "status": "unsupported" if refused else "converged",
                "ari": None if refused else 0.5 + 0.1 * (solver == "ilp") + 0.01 * rng.random(),
                "problem_info": {"data": data, "weight": 0.5},
            }
            records.append(record(name, solver, energy, seconds=0.01, time_limit=1.0, **changes))
    return records


def test_a_report_shows_contrasts_ranks_by_blocks_and_regret():
    runs = runs_of_report()
    questions = [
        make_contrast(name="better clusters", margin=0.005, primary=True),
        make_contrast(name="lower energy", metric="regret", primary=True),
        make_contrast(name="against itself", metric="nothing"),
    ]
    document = report_document(runs, title="", contrasts=questions, blocks="data")
    asked_of = table(document, "contrasts")
    assert "margin of 0.005" in asked_of.note and "none can be below 0.0078" in asked_of.note
    shown = rows(asked_of, "contrast")
    by = {(r.problem_info["data"], r.problem, r.solver): r for r in runs}
    gain = std.fmean(
        by[d, f"estep(data={d}, seed={s})", "ilp"].ari
        - by[d, f"estep(data={d}, seed={s})", "icm"].ari
        for d in SETS
        for s in range(2)
    )
    first = shown["better clusters"]
    assert first["gain"].value == pytest.approx(gain) and first["sets above"].text == "8/8"
    assert first["p"].value == 2 / 2**8 and first["p (Holm)"].value == 4 / 2**8
    assert first["verdict"].text == shown["lower energy"]["verdict"].text == "gain"
    assert shown["against itself"]["gain"].text == "-"
    # Energies above the best known, in weights of 0.5.
    best = {r.problem: min(x.energy for x in runs if x.problem == r.problem) for r in runs}
    summary = rows(table(document, "summary"), "solver")
    for solver in ("icm", "ilp", "picky"):
        answered = [r for r in runs if r.solver == solver and r.status != "unsupported"]
        regret = std.fmean((r.energy - best[r.problem]) / 0.5 for r in answered)
        assert summary[solver]["regret"].value == pytest.approx(regret, abs=1e-7)
    ranked = table(document, "ranks")
    assert set(rows(ranked, "solver")) == {"icm", "ilp"}
    assert "8 blocks (data) of all 16 problems" in ranked.caption
    assert "refused problems: picky" in ranked.note
    ranking = picture(document, "critical-difference")
    assert "over 8 blocks (data)" in ranking.caption
    ranking.draw()


def test_block_ranks_by_counting():
    values = np.random.default_rng(0).integers(0, 3, (9, 3)).astype(float)
    blocks = list("aabbbcabc")
    mean_ranks = block_ranks(values, blocks)
    for name, row in zip("abc", mean_ranks, strict=True):
        mine = [v for v, b in zip(values, blocks, strict=True) if b == name]
        for s in range(3):
            ranks = [0.5 + sum(v < r[s] for v in r) + sum(v == r[s] for v in r) / 2 for r in mine]
            assert row[s] == pytest.approx(std.fmean(ranks))


# ---------------------------------------------------------------------- maps


def test_lower_energies_are_compared_across_all_solvers():
    rng = np.random.default_rng(3)
    runs, wanted = [], {}
    for data, noise, seed in itertools.product(SETS, (0.0, 0.3), range(2)):
        facts = {"data": data, "noise": noise, "seed": seed}
        # Two runs found the same energy, but for rounding, with another score.
        energies = [1.0, 1.0 + 1e-13, 2.0, 3.0]
        scores = rng.normal(size=4).tolist()
        if data == "a":
            energies = [1.0] * 4
        for at in rng.permutation(4):
            names = {"cell": (data, noise, seed), "solver": f"method {at}"}
            runs.append({**facts, **names, "energy": energies[at], "ari": scores[at]})
        pairs = [(i, j) for i in range(4) for j in range(4) if energies[i] < energies[j] - 1e-6]
        if pairs:
            mean_gain = std.fmean(scores[i] - scores[j] for i, j in pairs)
            wanted.setdefault((data, seed), []).append(mean_gain)
    runs = pd.DataFrame(runs)
    contrast = make_contrast(solver="lower energy", baseline="higher energy", over=["noise"])
    assert contrast.problem(["icm", "ilp"]) == ""
    assert "lower energy, higher energy" in replace(contrast, baseline="icm").problem(["icm"])
    set_gains = gains(contrast, runs)
    assert len(set_gains) == len(SETS) - 1
    for row, data in zip(set_gains, SETS[1:], strict=True):
        assert row == pytest.approx([std.fmean(wanted[data, seed]) for seed in range(2)])
    assert list(regimes(contrast, runs)["noise"]) == ["0", "0.3"]
    # For a cost, less is better; an observation without energy is ignored.
    assert gains(replace(contrast, metric="energy"), runs)[0][0] > 0
    assert gains(contrast, paired_runs()) == []


def test_regimes_are_the_contrasts_of_their_cells():
    runs = paired_runs()
    contrast = make_contrast(over=["noise", "seed"], breaks={"seed": [1]}, margin=0.02)
    results = regimes(contrast, runs)
    places = list(zip(results["noise"], results["seed"], strict=True))
    assert places == [(n, s) for n in ("0", "0.3") for s in ("< 1", "≥ 1")]
    for noise, seeds, cell in results.itertuples(index=False):
        wanted = {"noise": float(noise), "seed": [0] if seeds == "< 1" else [1, 2]}
        [alone] = measure([make_contrast(where=wanted)], runs)
        assert cell.effect == alone.effect
        assert cell.verdict == ("gain" if noise == "0" else "equivalent")
    # Observations without the fact belong to no regime.
    assert regimes(make_contrast(over=["planet"]), runs).empty


def test_a_report_draws_the_map_and_gives_its_table(tmp_path):
    questions = [make_contrast(name="exact", over=["seed"], breaks={"seed": [1]}, margin=0.005)]
    document = report_document(runs_of_report(), title="T", contrasts=questions)
    first = document.sections[0]
    assert first.title == "Contrasts" and first.blocks[0].name == "gain-map-exact"
    shown = rows(table(document, "gains-exact"), "seed")
    assert {name: row["verdict"].text for name, row in shown.items()} == {
        "< 1": "gain",
        "≥ 1": "gain",
    }
    drawn = drawing(first.blocks[0].draw()).svg
    for row in shown.values():
        assert f">{row['gain'].value:+.3f}<" in drawn
    none = report_document(runs_of_report(), title="T", contrasts=[make_contrast(over=["planet"])])
    assert "no map of exact" in str(none.sections[0].blocks[0])


def test_labels_with_names_in_braces_are_paired_by_their_values():
    """Two methods, each with two weights, are one contrast; the weight is a fact."""
    parts = []
    for weight, better in ((1, 0.1), (10, -0.1)):
        names = {"icm": f"ICM, x {weight}", "ilp": f"exact, x {weight}"}
        parts.append(paired_runs(better=better).replace({"solver": names}))
    runs = pd.concat(parts, ignore_index=True)
    both = make_contrast(solver="exact, x {weight}", baseline="ICM, x {weight}", over=["weight"])
    labels = sorted(set(runs["solver"]))
    assert both.problem(labels) == ""
    alone = {w: make_contrast(solver=f"exact, x {w}", baseline=f"ICM, x {w}") for w in (1, 10)}
    results = regimes(both, runs).set_index("weight")["measured"]
    assert list(results.index) == ["1", "10"]
    for weight, contrast in alone.items():
        assert results[str(weight)].effect == measure([contrast], runs)[0].effect
    one = make_contrast(solver="exact, x {weight}", baseline="ICM, x 1", over=["weight"])
    assert one.problem(labels) == ""
    against = regimes(one, runs).set_index("weight")["measured"]
    for weight in alone:
        [wanted] = measure([make_contrast(solver=f"exact, x {weight}", baseline="ICM, x 1")], runs)
        assert against[str(weight)].effect == wanted.effect
    arrays = [np.array(gains(contrast, runs)) for contrast in alone.values()]
    assert np.array(gains(both, runs)) == pytest.approx((arrays[0] + arrays[1]) / 2)
    assert "must name the same facts" in make_contrast(
        solver="exact, x 1", baseline="ICM, x {weight}"
    ).problem(labels)
    assert "is none of the study's" in make_contrast(
        solver="LP, x {weight}", baseline=both.baseline
    ).problem(labels)
