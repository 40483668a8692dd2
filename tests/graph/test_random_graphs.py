"""Each family of random graphs matches its name and description."""

from __future__ import annotations

import math

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.presolve import contradiction
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
def test_every_family(family):
    """The same seed draws the same graph; different seeds nearly always draw different ones."""
    drawn = graphs(family)
    hashes = [g.content_hash for g in drawn]
    assert hashes == [g.content_hash for g in graphs(family)]
    # "equal" has few graphs to draw from.
    assert len(set(hashes)) > (15 if family != "equal" else 5)
    for g in drawn:
        assert math.prod(g.cardinalities.tolist()) <= MAX_STATES
        energies = exhaustive(g).energies
        assert math.isinf(energies.min()) == (family == "infeasible")
        if family in HARD:
            assert np.isinf(energies).any() and np.isfinite(energies).any()
        if family in FINITE:
            assert not g.has_infinite


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("potts", {POTTS}),
        ("estep", {POTTS}),
        ("diagonal", {DIAGONAL}),
        ("truncated-linear", {TABLE}),
        ("own-tables", {TABLE}),
        ("ragged", {POTTS, DIAGONAL, TABLE}),
        ("mixed", {POTTS, DIAGONAL, TABLE}),
    ],
)
def test_families_have_their_kinds_of_terms(family, kinds):
    assert {int(kind) for g in graphs(family) for kind in g.edge_kinds} == kinds


def n_tables(g: il.FactorGraph) -> int:
    """Return the number of different pairwise tables that are stored."""
    return len(set(g.edge_offsets.tolist()))


def is_inherited(g: il.FactorGraph) -> bool:
    """Return whether each factor allows one state of its first variable given the others."""
    tables = [g.higher_order(i)[1] for i in range(g.n_factors)]
    return all(t.ndim in (3, 4) and (np.isfinite(t).sum(axis=0) == 1).all() for t in tables)


def forbidding(g: il.FactorGraph) -> list[str]:
    """Return the arrays of costs that hold an infinite one."""
    arrays = ("edge_weights", "pairwise_values", "table_values", "unary_values")
    return [name for name in arrays if np.isinf(getattr(g, name)).any()]


@pytest.mark.parametrize(
    ("family", "holds"),
    [
        ("potts", lambda g: (g.edge_weights >= 0).all() and not g.pairwise_values.any()),
        # A penalty is never negative in any notation.
        ("estep", lambda g: (g.unary_values >= 0).all() and exhaustive(g).optimum >= 0),
        ("truncated-linear", lambda g: n_tables(g) == 1),
        ("own-tables", lambda g: n_tables(g) == g.n_edges),
        ("ragged", lambda g: g.n_labels is None),
        ("must-links", lambda g: "edge_weights" in forbidding(g)),
        ("cannot-links", lambda g: "pairwise_values" in forbidding(g)),
        ("forbidden-labels", lambda g: "unary_values" in forbidding(g)),
        ("hard-tables", lambda g: "pairwise_values" in forbidding(g)),
        *(
            (family, lambda g: "unary_values" not in forbidding(g))
            for family in ("must-links", "cannot-links", "hard-tables")
        ),
        ("higher-order", lambda g: g.n_factors > 0 and g.n_edges > 0),
        ("forest", lambda g: g.is_forest),
        ("grid", lambda g: g.n_edges < g.n_variables or not g.is_forest),
        ("inheritance", lambda g: g.n_factors >= 2 and g.n_edges == 0 and is_inherited(g)),
        ("mixed", lambda g: g.n_labels is None and g.constant > 0 and g.n_factors > 0),
        ("mixed", lambda g: {"unary_values", "table_values"} <= {*forbidding(g)}),
        ("equal", lambda g: np.ptp(exhaustive(g).energies) == 0 and g.n_edges > 0),
        ("large", lambda g: 1e5 < np.abs(g.unary_values).mean() < 1e7),
        ("one-variable", lambda g: g.n_variables == 1),
        ("one-label", lambda g: (g.cardinalities == 1).all() and g.n_edges and g.n_factors),
        ("no-edges", lambda g: g.n_variables > 1 and g.n_edges == 0 and g.n_factors == 0),
        ("disconnected", lambda g: g.components.max() >= 1),
        ("empty", lambda g: g.n_variables == 0 and g.constant > 0),
    ],
)
def test_all_graphs_of_a_family(family, holds):
    assert all(holds(g) for g in graphs(family))


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        (
            "estep",
            lambda g: {*np.sign(g.edge_weights - g.pairwise_values[g.edge_offsets])},
            {-1, 1},
        ),
        ("estep", lambda g: {g.constant > 0}, {True, False}),
        ("higher-order", lambda g: set(np.diff(g.factor_ptr).tolist()), {3, 4}),
        ("higher-order", lambda g: {[*(s := g.higher_order(0)[0])] == sorted(s)}, {True, False}),
        ("forest", lambda g: {g.n_factors > 0}, {True, False}),
        ("forest", lambda g: {g.components.max() > 0}, {True, False}),
        ("disconnected", lambda g: {g.n_edges > 0}, {True, False}),
        # The quick search finds some contradictions; the others are left to the solvers.
        ("infeasible", lambda g: {contradiction(g) is None}, {True, False}),
    ],
)
def test_graphs_of_a_family_differ(family, values, expected):
    assert set().union(*map(values, graphs(family))) == expected


def test_ties_family_has_several_optima():
    counts = []
    for g in graphs("ties"):
        energies = exhaustive(g).energies
        assert (energies == np.round(energies)).all()
        counts.append(int((energies == energies.min()).sum()))
    assert np.median(counts) >= 2


def test_unknown_family_names_the_nearest():
    with pytest.raises(il.SpecError, match=r"did you mean 'potts'.*valid: .*truncated-linear"):
        random_graph("pots", 0)
