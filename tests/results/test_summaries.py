"""Proofs agree in a solution and in the summaries of its record, in any unit."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from msgspec.structs import replace

import inference_lab as il
from inference_lab.contract import Outcome, Solver
from inference_lab.graph.random_graphs import scaled
from inference_lab.results.consistency_checks import contradictions
from inference_lab.results.records import Record
from inference_lab.results.summaries import proof, summarise_problem

TRIANGLE = il.FactorGraph.potts(
    [[0.0, 1.0], [1.0, 0.0], [0.3, 0.0]], [(0, 1), (1, 2)], [0.5, 0.25 * np.pi]
)


@dataclass(frozen=True)
class HalfProved(Solver):
    """Solver that offers the best labelling of `TRIANGLE`, and part of its energy as the bound."""

    share: float = 0.5

    def run(self, graph, run):
        run.bound(self.share * run.offer([0, 1, 1]))
        return Outcome(converged=True)


@pytest.mark.parametrize("exponent", [0, -20, -40, -200])
@pytest.mark.parametrize(("share", "proved"), [(0.5, "no"), (1.0 - 1e-7, "no"), (1.0, "yes")])
def test_proofs_of_small_costs(exponent, share, proved):
    problem = il.Problem("small", scaled(TRIANGLE, exponent))
    comparison = il.compare([problem], HalfProved(share), isolate=False)
    (record,) = comparison.records
    solution = il.solve(problem.graph, HalfProved(share))
    assert (solution.status == "optimal") == (record.status == "optimal") == (proved == "yes")
    assert comparison.frame.proved.tolist() == [proved]
    assert (comparison.problems[0].gap_percent == 0.0) == (proved == "yes")
    assert comparison.rows[0].gap_percent == pytest.approx(100 * (1 - share), rel=1e-6)
    assert not comparison.alarms


def test_contradictions_of_small_costs():
    """A bound of twice the energy is a contradiction in any unit."""
    problem = il.Problem("small", scaled(TRIANGLE, -40))
    (record,) = il.compare([problem], HalfProved(), isolate=False).records
    wrong = replace(record, id="wrong", solver="liar", lower_bound=2 * record.energy)
    summary = summarise_problem("small", [record, wrong], {record.solver: "a", "liar": "b"})
    assert proof(wrong, summary) == "no"
    (alarm,) = contradictions(summary, [record, wrong])
    assert "liar gives the lower bound" in alarm


def test_earlier_records_are_judged_with_scale_one():
    """They have no energy scale, and use 1."""
    record = Record(
        problem="p",
        problem_hash="",
        n_variables=1,
        n_edges=0,
        n_factors=0,
        n_labels=2,
        solver="icm",
        solver_name="icm",
        status="converged",
        energy=2e-9,
        lower_bound=1e-9,
    )
    data = {**record.as_dict(), "schema": 4}
    del data["energy_scale"]
    old = Record.from_json(json.dumps(data))
    assert old == record
    for read, verdict in ((old, "yes"), (replace(old, energy_scale=1e-8), "no")):
        assert proof(read, summarise_problem("p", [read], {"icm": "icm"})) == verdict
