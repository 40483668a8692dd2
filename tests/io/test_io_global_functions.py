"""Global cost functions: as toulbar2 writes them and evaluates them, and refusals."""

from __future__ import annotations

import itertools
import math
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.io import FormatError, cfn, wcsp

K = 3
LABELLINGS = list(itertools.product(range(K), repeat=3))


def energies(graph: il.FactorGraph, labellings: Any = LABELLINGS) -> list[float]:
    return graph.energy(list(labellings)).tolist()


def allowed(graph: il.FactorGraph, labellings: Any = LABELLINGS) -> list[tuple[int, ...]]:
    """Return the labellings of finite energy."""
    labellings = list(labellings)
    finite = np.isfinite(graph.energy(labellings))
    return [x for x, good in zip(labellings, finite, strict=True) if good]


def in_wcsp(keyword: str, k: int = K, n: int = 3) -> il.FactorGraph:
    scope = " ".join(map(str, range(n)))
    text = f"t {n} {k} 1 9 {f'{k} ' * n} {n} {scope} -1 {keyword}"
    return wcsp.parse(text.encode(), "here.wcsp")


def in_cfn(kind: str, params: str, k: int = K, n: int = 3, bound: str = "<9") -> il.FactorGraph:
    names = "abcdefgh"[:n]
    variables = " ".join(f"{v} {k}" for v in names)
    text = f"{{{{t {bound}}} {{{variables}}}\n{{f {{[{' '.join(names)}] type {kind} {params}}}}}}}"
    return cfn.parse(text.encode(), "here.cfn")


def different(x: tuple[int, ...], excepted: tuple[int, ...] = ()) -> bool:
    labels = [a for a in x if a not in excepted]
    return len(set(labels)) == len(labels)


#: Constraints over three variables of three labels: in either format, and by definition.
CONSTRAINTS: list[tuple[str, tuple[str, str], Callable[[tuple[int, ...]], bool]]] = [
    (
        "knapsackp 2 1 1 2 2 0 -1 2 3 0",
        ("knapsackv", "params {capacity 2 weightedvalues [[a 1 2] [1 0 -1] [b 2 3]]}"),
        lambda x: 2 * (x[0] == 1) - (x[1] == 0) + 3 * (x[1] == 2) >= 2,
    ),
    (
        "knapsackv -3 2 2 1 -2 0 2 -2",
        ("knapsackv", "params {capacity -3 weightedvalues [[c 1 -2] [a 2 -2]]}"),
        lambda x: -2 * (x[2] == 1) - 2 * (x[0] == 2) >= -3,
    ),
    (
        "clique 1 1 1 2 0 2 0",
        ("clique", "params {rhs 1 values [[1] [0 2] []]}"),
        lambda x: (x[0] == 1) + (x[1] in (0, 2)) <= 1,
    ),
    ("alldiff 0 0", ("alldiff", "params {exceptedvalues [] deltacosts []}"), different),
    (
        "alldiff 1 1 0",
        ("alldiff", "params {exceptedvalues [1]}"),
        lambda x: different(x, (1,)),
    ),
    ("salldiff var 9", ("salldiff", "params {metric var cost 9}"), different),
    ("salldiffdp var 10", ("salldiffdp", "params {metric var cost inf}"), different),
    ("salldiffkp hard 10", ("salldiffkp", "params [hard inf]"), different),
    (
        "gcc 2 0 0 1 2 1 3 0",
        ("gcc", "params {bounds [[0 0 1] [2 1 3]] deltaCosts []}"),
        lambda x: x.count(0) <= 1 <= x.count(2),
    ),
    (
        "sgcc var 9 1 1 2 2",
        ("sgcc", "params {metric var cost 9 bounds [[1 2 2]]}"),
        lambda x: x.count(1) == 2,
    ),
    (
        "samong var 9 1 2 2 0 2",
        ("samong", "params {metric var cost inf min 1 max 2 values [0 2]}"),
        lambda x: 1 <= sum(a in (0, 2) for a in x) <= 2,
    ),
]


@pytest.mark.parametrize(("keyword", "typed", "rule"), CONSTRAINTS)
def test_both_formats_have_the_constraint(
    keyword: str, typed: tuple[str, str], rule: Callable[[tuple[int, ...]], bool]
) -> None:
    expected = [x for x in LABELLINGS if rule(x)]
    assert allowed(in_wcsp(keyword)) == expected
    assert allowed(in_cfn(*typed)) == expected
    assert set(energies(in_cfn(*typed))) <= {0.0, math.inf}


def test_knapsacks_of_binary_variables() -> None:
    x = list(itertools.product(range(2), repeat=3))
    expected = [labels for labels in x if labels[0] + 2 * labels[1] - labels[2] >= 1]
    assert allowed(in_wcsp("knapsack 1 1 2 -1", k=2), x) == expected
    assert allowed(in_cfn("knapsack", "{capacity 1 weights [1 2 -1]}", k=2), x) == expected
    assert allowed(in_cfn("knapsack", "[capacity:1, weights:[1,2,-1]]", k=2), x) == expected


def test_an_infinite_cost_forbids_in_a_maximum_too() -> None:
    graph = in_cfn("alldiff", "params {exceptedvalues [] deltacosts []}", bound=">-9")
    assert allowed(graph) == [x for x in LABELLINGS if different(x)]
    graph = cfn.parse(b"{{t >-9} [3] [[[0] [1 inf 3]]]}", "here.cfn")
    assert energies(graph, [[0], [1], [2]]) == [-1.0, math.inf, -3.0]


@pytest.mark.parametrize("word", ["inf", '"inf"', "+inf", "Infinity"])
def test_infinite_costs_forbid(word: str) -> None:
    """In full and sparse tables, as default and in a constant; as `json.dumps` writes it, too."""
    x = [[0], [1], [2]]
    full = cfn.parse(f"{{{{t <9}} [3] [[[0] [1 {word} 3]]]}}".encode(), "here.cfn")
    assert energies(full, x) == [1.0, math.inf, 3.0]
    sparse = f"{{{{t <9}} [3] [{{[0] {word} [0 1 2 {word}]}}]}}"
    assert energies(cfn.parse(sparse.encode(), "here.cfn"), x) == [1.0, math.inf, math.inf]
    constant = f"{{{{t <9}} [3] [[[] [{word}]] [[0] [0 1 2]]]}}"
    assert energies(cfn.parse(constant.encode(), "here.cfn"), x) == [math.inf] * 3


def test_all_different_of_many_variables_is_read_as_pairs() -> None:
    """The table of all variables would have 12**12 entries."""
    scope = " ".join(map(str, range(12)))
    text = f"t 12 12 1 9 {'12 ' * 12} 12 {scope} -1 alldiff 0 0"
    graph = wcsp.parse(text.encode(), "here.wcsp")
    assert graph.n_edges == 66
    assert graph.energy([np.arange(12), np.zeros(12, int)]).tolist() == [0.0, math.inf]


def test_labels_by_name_are_positions() -> None:
    """A name at two positions is ambiguous, because toulbar2 compares positions."""
    text = "{{t <9} {a [r g] b [%s]} {f {[a b] type alldiff params {exceptedvalues [g]}}}}"
    graph = cfn.parse((text % "r g").encode(), "here.cfn")
    x = list(itertools.product(range(2), repeat=2))
    assert allowed(graph, x) == [(0, 1), (1, 0), (1, 1)]
    with pytest.raises(FormatError, match=r"label 'g' has another position in variable 1"):
        cfn.parse((text % "g r").encode(), "here.cfn")


MANY = " ".join(map(str, range(40)))


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("sregular var 10 2 1 0 2 0 1 3 0 0 0", r"function 0 over \(0, 1, 2\) of the kind 'sreg"),
        ("MST", r"of the kind 'MST' is not read; kinds that are read as tables: knapsack, "),
        (">= 0 1", r"of the kind '>=' is not read"),
        ("salldiff var 8", r"'salldiff' is soft: a violation costs 8, less than the bound 9"),
        ("sgcc wdec 9 1 0 1 1 2 2", r"the metric is 'wdec'; read are hard, var, dec, decbi"),
        ("alldiff 0 1 0 3", r"of the kind 'alldiff' has delta costs, which are not read"),
        ("alldiff 0", r"end of file .* ends where the number of delta costs is expected"),
        ("knapsack 1 1 1 1", r"variable 0 of the scope has 3 labels, not 2"),
        ("knapsackp 1.5 0 0 0", r"capacity is 1.5; expected an integer below 9.0072e\+15"),
        ("knapsackp 1 1 0 9e15 1 0 9e15 0", r"weights may add up to at most 9.0072e\+15"),
        ("knapsackp 1 1 3 1 0 0", r"expected a label, 0 to 2, got '3'"),
        ("knapsackp 1 x", r"token 16: expected the number of weights of the function, got 'x'"),
        ("knapsackp 1 -1", r"number of weights is -1; expected an integer >= 0"),
        ("knapsackv 1 1 7 0 1", r"expected a variable of the scope \(0, 1, 2\), got '7'"),
        ("clique 2 0 0 0", r"the only bound that is read is 1"),
        ("alldiff 0 0 5", r"1 surplus tokens after the last cost function, from '5'"),
    ],
)
def test_refusals_of_keywords_name_function_kind_and_reason(keyword: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        in_wcsp(keyword)
    assert str(caught.value).startswith("here.wcsp, ")


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("wregular", "params {nb_states 4}", r"line 2: function 'f' over .* 'wregular' is not rea"),
        ("salldiff", "params {metric var cost 1}", r"'f' over .* is soft: a violation costs 1"),
        ("knapsackv", "params {capacity 1 weightedvalues [[z 1 1]]}", r"the variable of the funct"),
        ("knapsackv", "params {capacity 1 weightedvalues [[a 5 1]]}", r"the label of the function"),
        ("knapsackv", "params {capacity 1 weightedvalues [[a 1]]}", r"end where the weight is exp"),
        ("knapsackv", "", r"the parameters of the function end where the number of weights"),
        ("knapsack", "{capacity 1 weights [1]}", r"variable 0 of the scope has 3 labels, not 2"),
    ],
)
def test_refusals_of_types_name_function_kind_and_reason(
    kind: str, params: str, message: str
) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        in_cfn(kind, params)
    assert str(caught.value).startswith("here.cfn, line 2: ")


def test_a_variable_outside_the_scope_is_refused() -> None:
    text = (
        "{{t <9} {a 2 b 2} {f {[a] type knapsackv params {capacity 1 weightedvalues [[b 1 1]]}}}}"
    )
    with pytest.raises(FormatError, match="variable 'b' of the parameters is not in the scope"):
        cfn.parse(text.encode(), "here.cfn")


@pytest.mark.parametrize(
    "keyword",
    [
        "knapsackp -100" + " 1 1 -1" * 40,
        "samong var 9 1 2 1 0",
        "gcc 1 0 1 2 0",
    ],
)
def test_tables_that_are_too_large_are_refused_before_they_are_made(keyword: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(
            FormatError, match=r"function 0 over \(0, .*40 variables\) .* at most \d+ are read"
        ):
            in_wcsp(keyword, k=2, n=40)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_many_passes_and_pairs_are_bounded() -> None:
    """Time and memory of small files stay small, although no single table is large."""
    bounds = " 0 0 9" * 300_000
    with pytest.raises(FormatError, match=r"needs tables of 30000000000 entries"):
        wcsp.parse(f"t 1 100000 1 9 100000 1 0 -1 gcc 300000{bounds} 0".encode(), "here.wcsp")
    n = 2000
    scope = " ".join(map(str, range(n)))
    text = f"t {n} 1 1 9 {'1 ' * n} {n} {scope} -1 alldiff 0 0"
    with pytest.raises(FormatError, match=r"needs tables of 127936000 entries"):
        wcsp.parse(text.encode(), "here.wcsp")


# ------------------------------------------------------------------ what toulbar2 writes


def network(build: Callable[[Any], None], k: int = K, resolution: int = 0) -> Any:
    """Return a model of pytoulbar2 with three variables, random costs and a constraint."""
    tb2 = pytest.importorskip("pytoulbar2")
    model = tb2.CFN(ubinit=1000, resolution=resolution, verbose=-1)
    costs = np.random.default_rng(k).integers(-5, 9, (3, k)) / 10**resolution
    for name, row in zip("xyz", costs, strict=True):
        model.AddVariable(name, range(k))
        model.AddFunction([name], row.tolist())
    build(model)
    return model, costs


def dump(model: Any, folder: Path, suffix: str) -> Path:
    path = folder / f"model{suffix}"
    here = Path.cwd()
    os.chdir(folder)
    try:
        model.Dump(str(path))
    finally:
        os.chdir(here)
    return path


def linear(x: tuple[int, ...]) -> int:
    return 2 * x[0] - 3 * x[1] + x[2]


#: Constraints as pytoulbar2 takes them, and by definition.
BUILT: dict[str, tuple[Callable[[Any], None], Callable[[tuple[int, ...]], bool]]] = {
    **{
        f"linear {op}": (
            lambda m, op=op: m.AddLinearConstraint([2, -3, 1], ["x", "y", "z"], op, 1),
            lambda x, op=op: bool(eval(f"{linear(x)} {op} 1")),
        )
        for op in ("<=", "<", ">=", ">", "==")
    },
    "sum": (lambda m: m.AddSumConstraint(["x", "y", "z"], "<=", 3), lambda x: sum(x) <= 3),
    "generalised": (
        lambda m: m.AddGeneralizedLinearConstraint(
            [("x", 1, 2), ("y", 2, 3), ("z", 0, -1)], "<=", 2
        ),
        lambda x: 2 * (x[0] == 1) + 3 * (x[1] == 2) - (x[2] == 0) <= 2,
    ),
    **{
        f"all-different {encoding}": (
            lambda m, encoding=encoding: m.AddAllDifferent(["x", "y", "z"], encoding=encoding),
            different,
        )
        for encoding in ("binary", "hungarian", "salldiffkp", "salldiff", "salldiffdp")
    },
    "all-different with exceptions": (
        lambda m: m.AddAllDifferent(["x", "y", "z"], excepted=[0], encoding="hungarian"),
        lambda x: different(x, (0,)),
    ),
    **{
        f"cardinality {encoding}": (
            lambda m, encoding=encoding: m.AddGlobalCardinalityConstraint(
                ["x", "y", "z"], [(0, 0, 2), (1, 1, 2)], encoding=encoding
            ),
            lambda x: x.count(0) <= 2 and 1 <= x.count(1) <= 2,
        )
        for encoding in ("hungarian", "sgcckp", "sgcc")
    },
    "among": (
        lambda m: m.AddGlobalFunction(["x", "y", "z"], "samong", "var", 5000, 1, 2, 2, 1, 2),
        lambda x: 1 <= sum(a in (1, 2) for a in x) <= 2,
    ),
}
#: Constraints that toulbar2 1.4 cannot write to a .cfn file.
UNWRITABLE = ("all-different salldiff", "all-different salldiffdp", "cardinality sgcc", "among")


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("suffix", [".cfn", ".wcsp"])
def test_dumps_of_toulbar2_are_read(name: str, suffix: str, tmp_path: Path) -> None:
    build, rule = BUILT[name]
    model, costs = network(build)
    path = dump(model, tmp_path, suffix)
    if suffix == ".cfn" and name in UNWRITABLE:
        with pytest.raises(FormatError, match="toulbar2 wrote 'Unknown constraint!' in place of"):
            il.read(path)
        return
    graph = il.read(path)
    assert graph.n_variables == 3
    assert allowed(graph) == [x for x in LABELLINGS if rule(x)]
    good = [x for x in LABELLINGS if rule(x)]
    expected = np.array([costs[np.arange(3), x].sum() for x in good])
    if name == "among":
        return  # before it writes, toulbar2 moves costs of variables into this function
    difference = np.array(energies(graph, good)) - expected
    # A .wcsp file has no negative costs: the energy is shifted.
    assert np.ptp(difference) == 0
    assert difference[0] == 0 or suffix == ".wcsp"


def test_decimals_are_kept_beside_a_constraint(tmp_path: Path) -> None:
    model, costs = network(BUILT["linear <="][0], resolution=2)
    graph = il.read(dump(model, tmp_path, ".cfn"))
    solution = il.solve(graph, "brute-force")
    _, rule = BUILT["linear <="]
    best = min(costs[np.arange(3), x].sum() for x in LABELLINGS if rule(x))
    assert solution.energy == pytest.approx(best, abs=1e-9)
    assert model.Solve()[1] == pytest.approx(best, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_random_linear_constraints(seed: int) -> None:
    """Weights of triplets, by definition, in both formats."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(-9, 10, (3, K)) * (rng.random((3, K)) < 0.7)
    capacity = int(rng.integers(-12, 12))
    rule = [x for x in LABELLINGS if weights[np.arange(3), x].sum() >= capacity]
    listed = [(i, a, int(weights[i, a])) for i in range(3) for a in range(K) if weights[i, a]]
    text = " ".join(f"{i} {a} {w}" for i, a, w in listed)
    assert allowed(in_wcsp(f"knapsackv {capacity} {len(listed)} {text}")) == rule
    inner = " ".join(f"[{'abc'[i]} {a} {w}]" for i, a, w in listed)
    params = f"params {{capacity {capacity} weightedvalues [{inner}]}}"
    assert allowed(in_cfn("knapsackv", params)) == rule
