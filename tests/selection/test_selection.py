"""Predictors of hardness against plain definitions, and the evidence for them."""

from __future__ import annotations

import itertools
import json
import math

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rendered import recorded
from sample_records import record

import inference_lab as il
from inference_lab.cli import main
from inference_lab.registry.sources import as_problem
from inference_lab.reports.difficulty import auc, learn
from inference_lab.results.records import RecordStore
from inference_lab.selection.algorithm_selection import evidence
from inference_lab.selection.instance_features import (
    BREAKS,
    class_of,
    couplings,
    measure,
    sample,
)


def signed_graph(seed, n=9, m=14, labels=3):
    """Return a Potts graph with attractive and repulsive pairs, and the same in networkx."""
    rng = np.random.default_rng(seed)
    pairs = sorted({tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(m)})
    weights = rng.choice([-1.0, 1.0, 2.0], len(pairs))
    graph = il.FactorGraph.potts(rng.random((n, labels)), pairs, weights)
    other = nx.Graph()
    other.add_nodes_from(range(n))
    for (i, j), w in zip(pairs, weights, strict=True):
        other.add_edge(i, j, weight=float(w))
    return graph, other


@given(st.integers(0, 300))
def test_sizes_agree_with_networkx(seed):
    graph, other = signed_graph(seed)
    measures = measure(graph)
    degrees = [d for _, d in other.degree()]
    assert measures.mean_degree == pytest.approx(np.mean(degrees))
    assert measures.max_degree == max(degrees)
    assert measures.core == len(nx.k_core(other, 3)) / len(other)
    assert measures.largest_component == max(map(len, nx.connected_components(other))) / len(other)
    weights = [w for _, _, w in other.edges(data="weight")]
    assert measures.repulsive == pytest.approx(np.mean(np.array(weights) < 0))


@given(st.integers(0, 300))
def test_frustrated_pairs_close_cycles_with_one_repulsive_pair(seed):
    """Compare with all simple cycles, for three labels or more."""
    graph, other = signed_graph(seed)
    frustrated = set()
    for cycle in nx.simple_cycles(other):
        edges = [tuple(sorted(e)) for e in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
        negative = [e for e in edges if other.edges[e]["weight"] < 0]
        if len(negative) == 1:
            frustrated.add(negative[0])
    assert measure(graph).frustrated == pytest.approx(len(frustrated) / len(other))


@given(st.integers(0, 300))
def test_two_labels_have_no_frustrated_pair_iff_all_can_be_satisfied(seed):
    graph, other = signed_graph(seed, n=7, m=8, labels=2)
    ends = [(i, j, w < 0) for i, j, w in other.edges(data="weight")]
    fewest = min(
        sum((x[i] != x[j]) != apart for i, j, apart in ends)
        for x in itertools.product((0, 1), repeat=7)
    )
    n_frustrated = measure(graph).frustrated * 7
    # The labelling of a tree violates some pairs; none only if a labelling violates none.
    assert n_frustrated >= fewest - 1e-9 and (n_frustrated == 0) == (fewest == 0)


def test_couplings_of_all_kinds_of_terms():
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(3, 4, 4))
    g = il.FactorGraph.pairwise(rng.random((4, 4)), [(0, 1), (1, 2), (2, 3)], tables)
    apart = ~np.eye(4, dtype=bool)
    expected = [t[apart].mean() - np.diag(t).mean() for t in tables]
    assert couplings(g).tolist() == pytest.approx(expected)
    hard = np.where(apart, 0.0, np.inf)
    g = il.FactorGraph.pairwise(rng.random((2, 4)), [(0, 1)], hard[None])
    assert couplings(g).tolist() == [-math.inf]
    ragged = il.FactorGraph.from_factors([2, 3], [((0, 1), rng.random((2, 3)))])
    assert couplings(ragged).tolist() == [0.0]


def test_degenerate_graphs_are_measured():
    for g in (
        il.FactorGraph.potts(np.zeros((0, 2)), [], []),
        il.FactorGraph.potts(np.zeros((3, 1)), [(0, 1)], [1.0]),
        il.FactorGraph.potts([[0.0, math.inf]] * 2, [(0, 1)], [-1.0]),
        il.FactorGraph.from_factors([2] * 4, [((0, 1, 2, 3), np.ones((2, 2, 2, 2)))]),
    ):
        diagnosis = il.diagnose(g)
        assert json.dumps(diagnosis.to_dict(), allow_nan=False) and "size" in diagnosis.summary()
    assert measure(g).mean_degree == 3.0 and measure(g).core == 1.0


def test_a_sample_is_the_part_around_a_variable():
    g = as_problem("potts-grid(height=30, width=30)").graph
    part, whole = sample(g, size=40)
    assert not whole and part.n_variables == 40
    costs = {tuple(np.round(g.unary_of(i), 12)) for i in range(g.n_variables)}
    assert all(tuple(np.round(part.unary_of(i), 12)) in costs for i in range(40))
    assert int(part.components.max()) == 0 and 39 <= part.n_edges <= 80
    assert sample(part) == (part, True)


def test_auc_by_hand():
    # Of nine pairs, the hard problem scores higher in eight, and one is a tie.
    scores, hard = [3, 1, 2, 2, 5, 0], [True, False, True, False, True, False]
    assert auc(scores, hard) == pytest.approx(8.5 / 9)
    assert math.isnan(auc([1.0], [True]))


# ---------------------------------------------------------------------- what is predicted


def test_evidence_is_learnt_from_records(tmp_path):
    """Evidence of synthetic records: proved problems, and the best and fastest solvers."""
    store = RecordStore(tmp_path / "runs.jsonl")
    graphs = {}
    for noise, seed in itertools.product((0.0, 0.3), range(3)):
        spec = f"estep(data=iris, constraints=300, noise={noise}, seed={seed})"
        graph = graphs[spec] = as_problem(spec).graph
        for solver, energy, seconds in (("lp-relaxation", 2.0, 0.2), ("ilp", 1.0, 0.1)):
            tight = noise == 0.0
            energy = 1.0 if tight else energy
            changes = {"lower_bound": energy} if tight else {}
            store.append(
                record(
                    spec,
                    solver,
                    energy,
                    problem_hash=graph.content_hash,
                    seconds=seconds,
                    problem_info={"data": "iris", "noise": noise},
                    **changes,
                )
            )
    figures = learn(store.path)
    assert (figures["problems"], figures["sets"]) == (6, 1)
    assert figures["predictors"]["frustrated"] == 1.0
    counts = [0] * (len(BREAKS) + 1)
    for graph in graphs.values():
        counts[class_of(measure(graph).frustration)] += 1
    assert [c["problems"] for c in figures["classes"]] == counts
    easy = figures["classes"][0]
    hard = figures["classes"][class_of(measure(graph).frustration)]
    assert (easy["tight"], easy["best"]) == (3, ["ilp", "lp-relaxation"])
    assert (hard["tight"], hard["proved_by_any"], hard["best"]) == (0, 0, ["ilp"])
    nothing = {"best": [], "proved_by": {}, "solvers": []}
    assert easy["not_tight"] == {"problems": 0, **nothing}
    assert easy["proved_by"] == {"ilp": 3, "lp-relaxation": 3} and hard["proved_by"] == {}
    assert hard["not_tight"] == {
        "problems": 3,
        **nothing,
        "best": ["ilp"],
        "solvers": hard["solvers"],
    }
    # Wilson (1927): 3 of 3 has the lower end n / (n + z^2).
    assert easy["tight_interval"] == [round(3 / (3 + 3.8415), 3), 1.0]
    store.append(record(spec, "ilp", 1.0, seed=5, problem_hash="another"))
    with pytest.raises(ValueError, match="is another graph today"):
        learn(store.path)


# On the worker that renders them, because reading the records takes seconds.
@pytest.mark.xdist_group("test_solver_studies")
def test_the_evidence_is_that_of_the_records_beside_it():
    """The evidence that needs no data, numbers of problems and proofs, equals the records."""
    figures = evidence()
    assert figures["breaks"] == list(BREAKS)
    _, comparison = recorded(figures["study"])
    relaxed = {r.problem: r for r in comparison.records if r.solver == "lp-relaxation"}
    assert figures["problems"] == len(relaxed) == sum(c["problems"] for c in figures["classes"])
    tight = sum(r.status == "optimal" for r in relaxed.values())
    assert sum(c["tight"] for c in figures["classes"]) == tight
    assert figures["predictors"]["frustration"] > max(0.85, figures["predictors"]["frustrated"])


def test_diagnosis_reports_constraints_and_likely_solvers():
    hard = il.diagnose("estep(data=wine, constraints=800, noise=0.3)", time_limit=0)
    assert hard.lp_gap is None and hard.tight is False and hard.solvers
    assert hard.facts["constraints_per_point"] == pytest.approx(800 / 178)
    assert "30 % of them wrong" in repr(hard) and hard.study in repr(hard)
    easy = il.diagnose("estep(data=iris, constraints=20)")
    assert easy.whole and easy.tight and easy.lp_gap == 0
    assert easy.to_dict()["measures"]["frustrated"] == 0
    with pytest.raises(ValueError, match="time_limit must be seconds from 0 on, got -1"):
        il.diagnose(as_problem("ising(size=3)"), time_limit=-1)


def test_diagnosis_lists_the_rules_of_auto():
    """They apply to the largest component that persistency leaves."""
    hard = il.diagnose("ising(size=12, coupling=3.0)", time_limit=1.0)
    assert hard.rules_variables == 144
    assert [rule["solver"] for rule in hard.rules[:2]] == ["junction-tree", "mplp"]
    assert hard.rules[1]["when"] == "two labels, at most 2.5 edges a variable"
    assert hard.rules[1]["records"] == ("054",)
    lines = hard.summary()
    assert lines["rules of auto"] == "for 144 variables, in this order"
    assert lines[" 2"].startswith("mplp, 10 % of the time left: a first bound")
    provisos = [rule["proviso"] for rule in hard.rules if rule["solver"] == "subgraph-search"]
    assert len(provisos) == 2 and provisos[0].startswith("if ") and provisos[1] == "otherwise"
    # Two components; persistency labels nothing in either.
    small, large = (as_problem(f"ising(size={size}, coupling=3.0)").graph for size in (6, 9))
    unaries = np.concatenate([small.unary_values, large.unary_values]).reshape(-1, 2)
    edges = np.concatenate([small.edges, large.edges + small.n_variables])
    weights = np.concatenate([small.edge_weights, large.edge_weights])
    both = il.FactorGraph.potts(unaries, edges, weights)
    assert il.diagnose(both, time_limit=1.0).rules_variables == large.n_variables
    assert il.diagnose(both, time_limit=0).rules_variables == both.n_variables
    cycle = il.FactorGraph.potts(1.0 - np.eye(3), [(0, 1), (1, 2), (0, 2)], 0.1)
    settled = il.diagnose(cycle)
    assert settled.rules == () and settled.rules_variables == 0
    assert "persistency labels all variables" in repr(settled)


def test_command_prints_the_diagnosis():
    spec = "estep(data=iris, constraints=50)"
    done = CliRunner().invoke(main, ["diagnose", spec, "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"schema": 1, **il.diagnose(spec).to_dict()}
    assert CliRunner().invoke(main, ["diagnose", spec]).stdout == repr(il.diagnose(spec)) + "\n"
    done = CliRunner().invoke(main, ["diagnose", "nothing"])
    assert done.exit_code == 2 and "unknown problem 'nothing'" in done.output
