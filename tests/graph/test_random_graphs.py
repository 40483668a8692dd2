"""Each family of random graphs matches its name and description."""

from __future__ import annotations

import math

import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.arrays import DIAGONAL, POTTS, TABLE
from inference_lab.graph.random_graphs import (
    FAMILIES,
    FINITE,
    HARD,
    MAX_STATES,
    random_graph,
)

SEEDS = range(25)


def graphs(family: str) -> list[il.FactorGraph]:
    return [random_graph(family, seed) for seed in SEEDS]


@pytest.mark.parametrize("family", FAMILIES)
def test_seeded(family):
    """The same seed draws the same graph; different seeds nearly always draw different ones."""
    hashes = [g.content_hash for g in graphs(family)]
    assert hashes == [g.content_hash for g in graphs(family)]
    # "equal" has few graphs to draw from.
    assert len(set(hashes)) > (15 if family != "equal" else 5)


@pytest.mark.parametrize("family", FAMILIES)
def test_small_and_feasible_as_named(family):
    for g in graphs(family):
        assert math.prod(g.cardinalities.tolist()) <= MAX_STATES
        optimum = exhaustive(g).optimum
        assert math.isinf(optimum) == (family == "infeasible")


@pytest.mark.parametrize("family", FINITE)
def test_finite_families_have_finite_costs_only(family):
    assert not any(g.has_infinite for g in graphs(family))


@pytest.mark.parametrize("family", HARD)
def test_hard_families_forbid_something_in_every_graph(family):
    for g in graphs(family):
        energies = exhaustive(g).energies
        assert np.isinf(energies).any() and np.isfinite(energies).any()


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        *(("potts", {POTTS}), ("estep", {POTTS}), ("diagonal", {DIAGONAL})),
        *(("truncated-linear", {TABLE}), ("own-tables", {TABLE})),
        *(("ragged", {POTTS, DIAGONAL, TABLE}), ("mixed", {POTTS, DIAGONAL, TABLE})),
    ],
)
def test_families_have_their_kinds_of_terms(family, kinds):
    drawn = graphs(family)
    assert {int(kind) for g in drawn for kind in g.edge_kinds} == kinds
    if family == "potts":
        assert all((g.edge_weights >= 0).all() and not g.pairwise_values.any() for g in drawn)
    if family in ("truncated-linear", "own-tables"):
        stored = [1 if family == "truncated-linear" else g.n_edges for g in drawn]
        assert [len(set(g.edge_offsets.tolist())) for g in drawn] == stored
    if family in ("ragged", "mixed"):
        assert all(g.n_labels is None for g in drawn)


@pytest.mark.parametrize(
    ("family", "where"),
    [
        ("must-links", "edge_weights"),
        ("cannot-links", "pairwise_values"),
        ("forbidden-labels", "unary_values"),
        ("hard-tables", "pairwise_values"),
    ],
)
def test_hard_families_forbid_in_the_terms_of_their_name(family, where):
    for g in graphs(family):
        assert np.isinf(getattr(g, where)).any()
        assert family == "forbidden-labels" or np.isfinite(g.unary_values).all()


def test_estep_mixes_must_links_and_cannot_links():
    signs = set()
    for g in graphs("estep"):
        assert (g.unary_values >= 0).all()
        signs |= set(np.sign(g.edge_weights - g.pairwise_values[g.edge_offsets]).tolist())
        # A penalty is never negative in any notation.
        assert exhaustive(g).optimum >= 0
    assert signs == {-1.0, 1.0}
    assert {g.constant > 0 for g in graphs("estep")} == {True, False}


def test_higher_order_has_factors_of_three_and_four_beside_edges():
    arities = set()
    for g in graphs("higher-order"):
        assert g.n_factors > 0 and g.n_edges > 0
        arities |= set(np.diff(g.factor_ptr).tolist())
    assert arities == {3, 4}
    scopes = [g.higher_order(0)[0] for g in graphs("higher-order")]
    assert any(scope != tuple(sorted(scope)) for scope in scopes)


def test_forests_have_no_cycle():
    assert all(g.is_forest for g in graphs("forest"))
    assert any(g.n_factors for g in graphs("forest"))
    assert any(g.components.max() > 0 for g in graphs("forest"))
    assert not any(g.is_forest for g in graphs("grid") if g.n_edges >= g.n_variables)


def test_in_inheritance_one_variable_follows_from_the_others():
    for g in graphs("inheritance"):
        assert g.n_factors >= 2 and g.n_edges == 0
        for _, table in map(g.higher_order, range(g.n_factors)):
            allowed = np.isfinite(table).sum(axis=0)
            assert table.ndim in (3, 4) and (allowed == 1).all()


def test_mixed_has_everything():
    drawn = graphs("mixed")
    assert any(g.n_factors for g in drawn)
    assert all(g.constant > 0 for g in drawn)
    assert all(np.isinf(g.unary_values).any() for g in drawn)
    assert any(np.isinf(g.table_values).any() for g in drawn)


def test_ties_family_has_several_optima():
    counts = []
    for g in graphs("ties"):
        energies = exhaustive(g).energies
        assert (energies == np.round(energies)).all()
        counts.append(int((energies == energies.min()).sum()))
    assert np.median(counts) >= 2


def test_equal_energies_are_equal():
    for g in graphs("equal"):
        assert np.ptp(exhaustive(g).energies) == 0
        assert g.n_edges > 0


def test_large_costs_are_of_the_order_of_a_million():
    for g in graphs("large"):
        assert 1e5 < np.abs(g.unary_values).mean() < 1e7


@pytest.mark.parametrize(
    ("family", "holds"),
    [
        ("one-variable", lambda g: g.n_variables == 1),
        ("one-label", lambda g: (g.cardinalities == 1).all() and g.n_edges and g.n_factors),
        ("no-edges", lambda g: g.n_variables > 1 and g.n_edges == 0 and g.n_factors == 0),
        ("disconnected", lambda g: g.components.max() >= 1),
        ("empty", lambda g: g.n_variables == 0 and g.constant > 0),
    ],
)
def test_degenerate_families(family, holds):
    assert all(holds(g) for g in graphs(family))
    if family == "disconnected":
        assert any(g.n_edges for g in graphs(family))


def test_some_contradictions_pass_the_quick_search():
    """The quick search finds some contradictions; the others are left to the solvers."""
    from inference_lab.algorithms.presolve import contradiction

    found = {contradiction(g) is None for g in graphs("infeasible")}
    assert found == {True, False}


def test_unknown_family_names_the_nearest():
    with pytest.raises(il.SpecError, match=r"did you mean 'potts'.*valid: .*truncated-linear"):
        random_graph("pots", 0)
