"""Dense factors: all input forms give the same graph, and invalid input is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from inference_lab.graph.arrays import starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors, parse_factors

CARDINALITIES = np.array([2, 3, 2, 3, 1])
SCOPES = np.array([[0, 1, 2], [2, 3, 0], [0, 3, 2]])
TABLES = np.random.default_rng(0).normal(size=(3, 2, 3, 2))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("arity", [0, 1, 2, 3])
def test_a_stack_is_the_same_as_its_factors_one_by_one(arity, dtype):
    """The stack is among other factors, with constants that are rounded in the order given."""
    scopes = SCOPES[:, :arity].astype(dtype)
    tables = TABLES.reshape(3, *TABLES.shape[1 : 1 + arity], -1)[..., 0]
    before, after = ((3, 1), np.ones((3, 3))), ((4, 0, 1), np.eye(2, 3)[None])
    single = [(tuple(scope), table) for scope, table in zip(scopes.tolist(), tables, strict=True)]
    one_by_one = FactorGraph.from_factors(CARDINALITIES, [before, *single, after], 0.1)
    stacked = FactorGraph.from_factors(CARDINALITIES, [before, (scopes, tables), after], 0.1)
    assert stacked.content_hash == one_by_one.content_hash
    nothing = (scopes[:0], tables[:0])
    assert FactorGraph.from_factors(CARDINALITIES, [nothing]).n_factors == 0


@pytest.mark.parametrize(
    ("scopes", "tables", "message"),
    [
        (SCOPES * 1.0, TABLES, "factors[1] has scopes of dtype float64; scopes are integers"),
        (SCOPES + 2, TABLES, "factors[1], row 1, has scope (4, 5, 2), which names a missing"),
        (SCOPES - 1, TABLES, "factors[1], row 0, has scope (-1, 0, 1), which names a missing"),
        (SCOPES[:, [0, 1, 0]], TABLES, "factors[1], row 0, has scope (0, 1, 0), which names a var"),
        (SCOPES[:2], TABLES, "factors[1] has 2 scopes of 3 variables and tables of shape (3, 2, 3"),
        (SCOPES, TABLES[..., 0], "of shape (3, 2, 3); expected (f, k_1, k_2, k_3), one table a"),
        (SCOPES[:, [0, 2, 1]], TABLES, "row 0, over (0, 2, 1) has a table of shape (2, 3, 2), but"),
        (SCOPES, np.zeros((3, 2, 3, 3)), "but its variables have (2, 3, 2) labels"),
        (SCOPES, np.zeros((3, 2, 2, 2)), "but its variables have (2, 3, 2) labels"),
        (SCOPES, TABLES * [1.0, np.nan], "factors[1][0, 0, 0, 1] is nan"),
    ],
)
def test_errors_in_a_stack_are_located(scopes, tables, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        FactorGraph.from_factors(CARDINALITIES, [((0,), [0.0, 1.0]), (scopes, tables)])


@pytest.mark.parametrize("scope", [(np.int32(1), np.int64(0)), np.array([1, 0]), [1, 0]])
def test_any_integers_name_variables(scope):
    (pair,) = FactorGraph.from_factors([2, 2], [(scope, np.ones((2, 2)))]).edges.tolist()
    assert pair == [1, 0]


def test_pairs_lie_by_shape_in_the_order_of_first_appearance():
    shapes = [(3, 2), (2, 2), (3, 2)]
    tables = [
        np.arange(np.prod(shape)).reshape(shape) ** 2 + 10.0 * e for e, shape in enumerate(shapes)
    ]
    pairs = zip([(1, 0), (0, 2), (3, 2)], tables, strict=True)
    graph = FactorGraph.from_factors(CARDINALITIES, pairs)
    assert graph.edge_offsets.tolist() == [0, 12, 6]
    assert [graph.edge_table(e).tolist() for e in range(3)] == [t.tolist() for t in tables]


def test_errors_in_one_of_many_tables_are_located():
    tables = [np.zeros((2, 2)), np.array([[0.0, 0.0], [1e101, 0.0]]), np.full((2, 2), np.nan)]
    with pytest.raises(ValueError, match=re.escape("factor 1[1, 0] is 1e+101")):
        FactorGraph.from_factors([2, 2], [((0, 1), table) for table in tables])


def test_storage_form():
    """Check factors of all arities, one after another, and a selection of them."""
    terms = [((), 1.0), ((0, 1, 2), TABLES[0]), ((4,), [2.0]), ((2, 3, 0), TABLES[1])]
    factors = parse_factors(terms, CARDINALITIES)
    assert factors.ptr.tolist() == [0, 0, 3, 4, 7]
    assert factors.scopes.tolist() == [0, 1, 2, 4, 2, 3, 0]
    assert factors.table_ptr.tolist() == [0, 1, 13, 14, 26]
    selection = factors.chosen(np.array([False, False, True, True]))
    expected = parse_factors(terms[2:], CARDINALITIES)
    assert [part.tolist() for part in selection] == [part.tolist() for part in expected]
    whole = FactorGraph.from_factors(CARDINALITIES, factors)
    assert whole.content_hash == FactorGraph.from_factors(CARDINALITIES, terms).content_hash
    bad = factors._replace(values=np.where(factors.values == 2.0, -np.inf, factors.values))
    with pytest.raises(ValueError, match=re.escape("factors, flat,[13] is -inf")):
        FactorGraph.from_factors(CARDINALITIES, bad)
    assert isinstance(factors, Factors) and starts_of([2, 3]).tolist() == [0, 2, 5]
