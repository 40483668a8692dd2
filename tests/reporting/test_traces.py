"""Times to targets and quality at fixed times against a walk along each trace."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import traced

from inference_lab.contract import proves
from inference_lab.reporting.statistics import primal_gap_percent
from inference_lab.reporting.traces import Traces, target_energy
from inference_lab.results.summaries import tolerance_of

INF = math.inf


def time_to_target(run, energy):
    """Return the time at which one run had a labelling of at most this energy."""
    return float(Traces([run]).time_to_target([energy])[0])


def quality_at(run, times):
    """Return the best energy that one run had at fixed times."""
    return Traces([run]).energies_at(times)[0].tolist()


@st.composite
def histories(draw):
    n = draw(st.integers(0, 6))
    seconds = sorted(draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)))
    energies = sorted(
        draw(st.lists(st.sampled_from([1.0, 2.0, 5.0, 9.0, INF]), min_size=n, max_size=n)),
        reverse=True,
    )
    bounds = sorted(draw(st.lists(st.sampled_from([-INF, -3.0, 0.0, 1.0]), min_size=n, max_size=n)))
    points = [(float(t), e, b) for t, e, b in zip(seconds, energies, bounds, strict=True)]
    end = (points[-1][0] if points else 0.0) + draw(st.integers(0, 3))
    return traced(points, seconds=float(end))


def energy_by_walk(run, moment):
    """Return the energy of a run at a time, by a walk along its trace."""
    return min((p.best_energy for p in run.trace if p.seconds <= moment), default=INF)


@given(st.lists(histories(), min_size=1, max_size=5))
def test_many_traces_against_a_walk_along_each(runs):
    traces = Traces(runs)
    moments = [0.0, 0.5, 3.0, 7.5, 20.0, 99.0]
    energies = traces.energies_at(moments)
    for n, run in enumerate(runs):
        for m, moment in enumerate(moments):
            assert energies[n, m] == energy_by_walk(run, moment)
        assert quality_at(run, moments) == [energy_by_walk(run, moment) for moment in moments]
    for target in (0.5, 1.0, 2.0, 8.0):
        times = traces.time_to_target(np.full(len(runs), target))
        for n, run in enumerate(runs):
            reached = [p.seconds for p in run.trace if p.best_energy <= target]
            assert times[n] == min(reached, default=INF) == time_to_target(run, target)
    for n, run in enumerate(runs):
        proofs = [
            p.seconds for p in run.trace if proves(p.best_energy, p.lower_bound, tolerance_of(run))
        ]
        assert traces.time_to_proof()[n] == min(proofs, default=INF)


def test_targets_are_reached_within_rounding():
    run = traced([(1.0, 1000.0 + 1e-6, -INF)])
    assert time_to_target(run, 1000.0) == 1.0
    assert time_to_target(run, 1000.0 - 1e-4) == INF


def test_interrupted_run_keeps_its_trace():
    killed = traced([(1.0, 7.0, 0.0), (2.0, 5.0, 0.0)], status="timeout", seconds=9.0)
    assert time_to_target(killed, 5.0) == 2.0 and quality_at(killed, [30.0]) == [5.0]
    # The kept labelling is not the last one: only the kept one is confirmed.
    worse = traced([(1.0, 7.0, 0.0), (2.0, 5.0, 3.0)], energy=7.0, lower_bound=0.0, status="crash")
    assert time_to_target(worse, 5.0) == INF and quality_at(worse, [30.0]) == [7.0]
    lost = traced([(1.0, 7.0, 0.0)], energy=INF, lower_bound=-INF, status="crash")
    assert time_to_target(lost, 7.0) == INF and quality_at(lost, [30.0]) == [INF]


def test_without_a_trace_the_end_is_all_that_is_known():
    run = traced([], energy=3.0, lower_bound=3.0, seconds=2.0)
    assert quality_at(run, [1.9, 2.0]) == [INF, 3.0]
    assert Traces([run]).time_to_proof().tolist() == [2.0]


def test_nan_values_are_ignored():
    run = traced([(1.0, math.nan, math.nan)], energy=math.inf, lower_bound=-math.inf)
    assert quality_at(run, [9.0]) == [INF] and time_to_target(run, 1.0) == INF
    finite = traced([(2.0, 7.0, -2.0)])
    assert time_to_target(finite, INF) == time_to_target(finite, math.nan) == INF


def test_no_runs_at_all():
    none = Traces([])
    assert none.n == 0 and none.time_to_target([]).shape == none.time_to_proof().shape == (0,)
    assert none.energies_at([1.0, 2.0]).shape == (0, 2)


@given(st.floats(-1e3, 1e3), st.floats(0, 99))
def test_a_target_is_the_energy_of_its_primal_gap(best, percent):
    target = float(target_energy(best, percent))
    assert target >= best - 1e-9
    slack = 1e-6 * max(1.0, abs(target))
    assert primal_gap_percent(target, best) <= percent + 1e-6
    if abs(best) > 1e-2:
        assert primal_gap_percent(target + slack, best) > percent - 1e-6


def test_targets_outside_the_range_are_refused():
    for percent in (-1.0, 100.0, math.nan):
        with pytest.raises(ValueError, match=r"percent must be in \[0, 100\)"):
            target_energy(1.0, percent)
