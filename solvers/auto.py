"""Portfolio: choose solvers by the structure of the graph and run them in stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.partial_optimality import SHRINKING, reduce
from inference_lab.algorithms.cuts.reduction import Reduction
from inference_lab.algorithms.elimination.forest import solve_forest
from inference_lab.algorithms.multicut.signed_graph import edge_gains, why_no_partition
from inference_lab.algorithms.parts import solve_rest
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.search.first_labelling import n_table_entries
from inference_lab.algorithms.symmetry import break_symmetry
from inference_lab.contract import Outcome, Run, Solution, Solver, Status
from inference_lab.graph.arrays import NO_FORM, POTTS, TABLE, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.registry.registry import as_solver
from inference_lab.solvers.junction_tree import JunctionTree
from inference_lab.solving import memory_shortage, solve
from inference_lab.specs.settings import setting

#: Product of the open part (see `GraphFacts`) and table entries up to which an ILP is likely to
#: prove in a second; the limit grows with the square root of the time (record 011). Of 563 E-steps
#: that the LP relaxation left open it proved half below this limit. With two labels it proved the
#: ten grids of `instances` with a product up to 85, and not the three from 427 on.
_CLOSED_IN_A_SECOND = {"signed-potts": 2500.0, "binary": 150.0}
#: Seconds an entry of a table that branch and bound takes to build its cost functions (record 054).
_SECONDS_AN_ENTRY = 2.5e-7
#: Slow annealing to a low temperature (record 014).
_ANNEALS = "simulated-annealing(restarts={restarts}, reheats=0, sweeps=1000000, end_ratio=0.03)"
#: Seconds of the budget for each such run (record 014).
_SECONDS_AN_ANNEAL = 5.0
#: Least number of such runs (record 014).
_FEWEST_ANNEALS = 4
#: On tables of many labels, larger regions and more patience end lower in a second (record 013).
_PATIENT_MEMETIC = "memetic(region=100, patience=0.3)"
#: Stages whose code takes ten processor seconds to compile (record 047).
_SLOW_TO_COMPILE = frozenset({"trw-s(tighten=cycles)", "semidefinite"})
#: Least share of the whole budget for such a stage; it would hardly begin (record 047).
_LEAST_SHARE = 0.03
#: Share of the budget for the first descent (record 054).
_DESCENT_SHARE = 0.05
#: Evaluations of the energy, the time of some sweeps, for which the descent may exceed its share
#: (record 054).
_DESCENT_EVALUATIONS = 60.0
#: Largest share of the budget for the descent in that case (record 054).
_MOST_DESCENT_SHARE = 0.5
#: Share of the budget for the reduction (record 054).
_REDUCTION_SHARE = 0.1


# ---------------------------------------------------------------------- facts


def structure(graph: FactorGraph) -> str:
    """Return the kind of energy of a graph."""
    # "attractive": all terms favour equal or near labels (Potts, truncated linear or quadratic);
    # "signed-potts": one cost for equal and one for unequal labels, of either sign.
    if graph.n_factors:
        return "higher-order"
    if graph.is_forest:
        return "forest"
    if int(graph.cardinalities.max(initial=1)) <= 2:
        return "binary"
    arrays = graph.arrays
    potts = arrays.kinds == POTTS
    same = np.zeros(graph.n_edges)
    same[potts] = arrays.pairwise[arrays.offsets[potts]]
    with np.errstate(invalid="ignore"):
        attractive = potts & (arrays.weights >= same)
    near = (arrays.kinds == TABLE) & (arrays.forms != NO_FORM)
    if (attractive | near).all():
        return "attractive"
    return "signed-potts" if potts.all() else "pairwise"


class GraphFacts:
    """The facts that rules read: a graph, the seconds of the run, and the open part.

    The *open part* is the gap between best energy and bound, relative to the gap between best
    energy and the sum of the least costs. It changes from stage to stage; other facts are computed
    once, when a rule first reads them.
    """

    def __init__(self, graph: FactorGraph, open_part: Callable[[], float], seconds: float) -> None:
        self.graph = graph
        self.open_part = open_part
        self.seconds = seconds
        self.variables = graph.n_variables
        self.edges = graph.n_edges
        self.terms = graph.n_edges + graph.n_factors

    @cached_property
    def structure(self) -> str:
        """The kind of energy."""
        return structure(self.graph)

    @cached_property
    def entries(self) -> int:
        """The number of entries of all tables."""
        return n_table_entries(self.graph)

    @cached_property
    def elimination_s(self) -> float:
        """The seconds of elimination; ``inf`` where its tables are too large or not foreseen."""
        return JunctionTree().foreseen(self.graph) if ELIMINABLE.holds(self) else math.inf

    def density(self, count: int) -> float:
        """Return the number of edges or terms a variable."""
        return count / max(1, self.variables)

    @property
    def search_start_s(self) -> float:
        """The seconds that branch and bound takes before its search begins."""
        return _SECONDS_AN_ENTRY * self.entries

    @property
    def distance(self) -> float:
        """The open table entries, as a multiple of those that an ILP closes in the time."""
        closed = _CLOSED_IN_A_SECOND[self.structure] * math.sqrt(self.seconds)
        return self.open_part() * self.entries / closed

    @property
    def restarts(self) -> int:
        """The number of slow anneals after the first."""
        return max(_FEWEST_ANNEALS, round(self.seconds / _SECONDS_AN_ANNEAL)) - 1

    @cached_property
    def interchangeable(self) -> bool:
        """Whether a search among copies of one labelling is saved by a fixed order of labels."""
        few = bool(self.graph.cardinalities[0] < self.variables)
        return few and break_symmetry(self.graph) is not None

    @cached_property
    def partition(self) -> bool:
        """Whether labels are only names of clusters, and some edge favours equal ones."""
        named = why_no_partition(self.graph) is None
        return named and bool((edge_gains(self.graph) > 0.0).any())


# ---------------------------------------------------------------------- conditions


@dataclass(frozen=True)
class Condition:
    """A test of facts, in words, with the record in `docs/decisions` that set its threshold.

    ``a & b`` holds where both do, ``~a`` where `a` does not. Conditions on the open part are
    `late`: they are known only during a run.
    """

    text: str
    otherwise: str
    holds: Callable[[GraphFacts], bool]
    record: str = ""
    late: bool = False
    #: The parts of a conjunction.
    parts: tuple[Condition, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        """Return the conjunction, whose tests are made from left to right."""
        return Condition(
            f"{self.text}, {other.text}",
            "",
            lambda facts: self.holds(facts) and other.holds(facts),
            late=self.late or other.late,
            parts=(*(self.parts or (self,)), *(other.parts or (other,))),
        )

    def __invert__(self) -> Condition:
        """Return the opposite of a single condition."""
        assert not self.parts
        return replace(
            self,
            text=self.otherwise,
            otherwise=self.text,
            holds=lambda facts: not self.holds(facts),
        )


def _is(kind: str, text: str) -> Condition:
    """Return the test of the kind of energy."""
    return Condition(text, f"no {text}", lambda facts: facts.structure == kind)


def _at_most(
    limit: float, quantity: str, value: Callable[[GraphFacts], float], record: str
) -> Condition:
    """Return the test of an upper limit, which may be reached."""
    return Condition(
        f"at most {limit:,g} {quantity}",
        f"more than {limit:,g} {quantity}",
        lambda facts: value(facts) <= limit,
        record,
    )


def _open(share: float, record: str) -> Condition:
    """Return the test whether at least a share is open."""
    return Condition(
        f"at least {100 * share:g} % open",
        f"less than {100 * share:g} % open",
        lambda facts: facts.open_part() >= share,
        record,
        late=True,
    )


def _closable(share: float) -> Condition:
    """Return the test whether an ILP is likely to close a share of the open table entries."""
    return Condition(
        f"an ILP is likely to close {100 * share:g} % of the open table entries",
        f"an ILP is unlikely to close {100 * share:g} % of the open table entries",
        lambda facts: share * facts.distance <= 1.0,
        "011",
        late=True,
    )


FOREST = Condition("a forest", "cycles", lambda facts: facts.structure == "forest")
ATTRACTIVE = _is("attractive", "attractive terms")
BINARY = _is("binary", "two labels")
SIGNED = _is("signed-potts", "Potts terms of either sign")
PAIRWISE = _is("pairwise", "tables of pairs")
HIGHER_ORDER = _is("higher-order", "terms of more than two variables")
POTTS_TERMS = Condition(
    "Potts terms of either sign, or two labels",
    "tables, or attractive terms",
    lambda facts: facts.structure in ("binary", "signed-potts"),
)
TABLES = Condition(
    "tables",
    "Potts terms, or attractive ones",
    lambda facts: facts.structure in ("pairwise", "higher-order"),
)

#: The search for an elimination order takes a second for some ten thousand variables.
ELIMINABLE = _at_most(
    10_000,
    "variables, edges and factors",
    lambda facts: facts.variables + facts.terms,
    "054",
)
#: An elimination this short comes first, a longer one later.
SHORT_ELIMINATION = _at_most(0.5, "s of elimination", lambda facts: facts.elimination_s, "054")
TREEWIDTH_FITS = Condition(
    "an order of elimination that fits",
    "no order of elimination after a short search",
    lambda facts: facts.elimination_s < math.inf,
)
ORDER_MAY_FIT = Condition(
    "an order of elimination that is not ruled out",
    "no order of elimination that fits",
    lambda facts: JunctionTree().supports(facts.graph, 0.0) is None,
)
LATER_ELIMINATION = TREEWIDTH_FITS & ~SHORT_ELIMINATION
#: Sparse graphs, such as grids.
SPARSE = _at_most(2.5, "edges a variable", lambda facts: facts.density(facts.edges), "054")
SPARSE_TERMS = _at_most(2.5, "terms a variable", lambda facts: facts.density(facts.terms), "054")
#: With two labels, a short run of the ILP often proves.
LOOSE = _at_most(5, "edges a variable", lambda facts: facts.density(facts.edges), "054")
LOOSE_TERMS = _at_most(5, "terms a variable", lambda facts: facts.density(facts.terms), "054")
#: With more variables, annealing finds lower energies than a population in the same time.
SMALL = _at_most(200, "variables", lambda facts: facts.variables, "054")
SMALL_FOR_SDP = _at_most(2000, "variables", lambda facts: facts.variables, "054")
#: Potts terms need fewer columns than tables.
POTTS_FIT_ILP = _at_most(200_000, "table entries", lambda facts: facts.entries, "011")
TABLES_FIT_ILP = _at_most(60_000, "table entries", lambda facts: facts.entries, "054")
#: In larger graphs with something to pass on, message passing comes first.
MESSAGES_FIRST = Condition(
    "more than 100,000 variables and edges, with unary costs that differ",
    "at most 100,000 variables and edges, or unary costs all equal",
    lambda facts: (
        facts.variables + facts.edges > 100_000 and bool(np.ptp(facts.graph.unary_values) > 0)
    ),
    "054",
)
#: In still larger ones it needs most of the time.
VAST = ~_at_most(
    1_000_000, "variables and edges", lambda facts: facts.variables + facts.edges, "054"
)
INTERCHANGEABLE = Condition(
    "interchangeable labels", "labels that differ", lambda facts: facts.interchangeable, "037"
)
PARTITION = Condition(
    "labels that only name clusters", "labels that differ", lambda facts: facts.partition, "037"
)
#: Graphs where a first bound and a first population decide how to go on.
GAP_DECIDES = Condition(
    "small or sparse enough for the gap to decide",
    "too large or dense for the gap to decide",
    lambda facts: (
        SPARSE.holds(facts)
        if facts.structure == "binary"
        else (SIGNED & ~MESSAGES_FIRST).holds(facts)
    ),
    "011",
)

#: Nothing but the least costs is known.
NOTHING_CLOSED = _open(1.0, "011")
#: A proof is unlikely, and time goes to better labellings.
WIDE_OPEN = _open(0.5, "011")
#: An exact search over tables closes the rest within a few times the time.
NEARLY_CLOSED = Condition(
    "at most 5 % open", "more than 5 % open", lambda facts: facts.open_part() <= 0.05, "011", True
)
PROOF_LIKELY = _closable(1.0)
#: Beyond, an ILP proved one E-step in twenty.
PROOF_POSSIBLE = _closable(0.25)


# ---------------------------------------------------------------------- rules


class Stage(NamedTuple):
    """One stage of a plan: a solver with its share of the remaining time and the reason."""

    solver: str
    share: float
    why: str
    #: Seconds before its search begins; the stage is skipped if its share is not twice as long.
    begin: float = 0.0
    #: Whether it starts without the best labelling so far.
    afresh: bool = False


@dataclass(frozen=True)
class Rule:
    """Where `when` holds, run `solver` for `share` of the remaining time, because of `why`."""

    when: Condition
    solver: str
    share: float
    why: str
    #: Seconds before the search begins.
    begin: Callable[[GraphFacts], float] = lambda facts: 0.0
    #: Whether the solver starts without the best labelling so far.
    afresh: bool = False
    #: A rule that follows wherever this one is applied.
    then: Rule | None = None

    def stage(self, facts: GraphFacts) -> Stage:
        """Return the stage of a facts."""
        solver = self.solver.format(restarts=facts.restarts)
        return Stage(solver, self.share, self.why, self.begin(facts), self.afresh)


class FirstOf(NamedTuple):
    """Rules of which the first that applies is used."""

    rules: tuple[Rule, ...]


class ForeseenRule(NamedTuple):
    """A rule that applies to a graph, in words."""

    #: The conditions that hold, and the one on the open part, which is known during a run only.
    when: str
    proviso: str
    solver: str
    share: float
    why: str
    #: The records that set the thresholds.
    records: tuple[str, ...]


def _first_of(*rules: Rule) -> FirstOf:
    return FirstOf(rules)


_SMALL_TREEWIDTH = "small treewidth: elimination is exact"
_CLUSTERS = "clusters raise the bound over cycles"
_BRANCHING = "small enough for branch and bound"
_POPULATION = "terms of either sign: a population of local optima"
_COPIES = "labels are interchangeable: a short exact search among one of all copies"
_LARGE_MESSAGES = "large: closest from a hundred thousand variables on (estep-scaling)"
_LITTLE_OPEN = "an ILP proves most graphs of its size of which so little is left open"
_FEW_NEIGHBOURS = "few neighbours: exact moves on large subgraphs"
_FOR_THE_REST = "a population of local optima, for whatever follows"


def _eliminate(when: Condition) -> Rule:
    return Rule(when, "junction-tree", 0.6, _SMALL_TREEWIDTH, lambda facts: facts.elimination_s)


def _branch(when: Condition, share: float, why: str) -> Rule:
    return Rule(when, "branch-and-bound", share, why, lambda facts: facts.search_start_s)


#: The rules, read from top to bottom; shares and the order of stages were set by record 011 unless
#: their conditions name another.
RULES: tuple[Rule | FirstOf, ...] = (
    Rule(FOREST, "junction-tree", 1.0, "a forest: elimination is exact"),
    _eliminate(~FOREST & SHORT_ELIMINATION),
    # ---- attractive terms
    Rule(ATTRACTIVE, "trw-s", 0.7, "bounds, often tight on attractive terms"),
    Rule(
        ATTRACTIVE,
        "alpha-expansion",
        0.7,
        "attractive terms: expansion moves go on from there",
    ),
    Rule(ATTRACTIVE, "trw-s(tighten=cycles)", 0.7, _CLUSTERS),
    _eliminate(ATTRACTIVE & LATER_ELIMINATION),
    Rule(ATTRACTIVE & TABLES_FIT_ILP, "ilp", 0.6, _BRANCHING),
    # ---- Potts terms of either sign whose labels are only names
    _branch(SIGNED & INTERCHANGEABLE, 0.1, _COPIES),
    Rule(
        SIGNED & PARTITION,
        "multicut(anneals=1000000)",
        0.6,
        "labels are only names of clusters: a search over partitions",
    ),
    # ---- Potts terms of either sign, large
    _first_of(
        # With a million points the sweeps of ten seconds are still too few.
        Rule(SIGNED & MESSAGES_FIRST & VAST, "loopy-bp(damping=0.5)", 0.85, _LARGE_MESSAGES),
        Rule(SIGNED & MESSAGES_FIRST, "loopy-bp(damping=0.5)", 0.6, _LARGE_MESSAGES),
    ),
    Rule(SIGNED & MESSAGES_FIRST, "icm", 1.0, "single changes from where the messages led"),
    Rule(SIGNED & MESSAGES_FIRST, "trw-s(tighten=cycles)", 0.6, _CLUSTERS),
    Rule(SIGNED & MESSAGES_FIRST, "memetic", 0.3, _POPULATION),
    # ---- two labels, dense
    Rule(
        BINARY & ~LOOSE & ~SMALL,
        _ANNEALS,
        0.5,
        "two labels, large and dense: many short anneals",
    ),
    _first_of(
        Rule(BINARY & ~SPARSE & ~SMALL, "memetic", 0.5, _POPULATION),
        Rule(BINARY & ~SPARSE, "memetic", 0.3, _POPULATION),
    ),
    Rule(
        BINARY & ~SPARSE & LOOSE & POTTS_FIT_ILP,
        "ilp",
        0.3,
        "loosely tied: cutting planes and branching often prove soon",
    ),
    _eliminate(BINARY & ~SPARSE & LATER_ELIMINATION),
    # ---- two labels, sparse, and other Potts terms of either sign
    # Persistency has already used single variables.
    Rule(BINARY & SPARSE, "mplp", 0.1, "a first bound, from clusters over cycles"),
    Rule(
        SIGNED & ~MESSAGES_FIRST,
        "trw-s",
        0.1,
        "a first bound: tight on most E-steps (estep-regimes)",
    ),
    # Afresh, because a population that starts from one labelling stays close to it.
    Rule(POTTS_TERMS & GAP_DECIDES, "memetic", 0.2, _POPULATION, afresh=True),
    Rule(POTTS_TERMS & GAP_DECIDES & POTTS_FIT_ILP & PROOF_LIKELY, "ilp", 0.75, _LITTLE_OPEN),
    _eliminate(POTTS_TERMS & GAP_DECIDES & LATER_ELIMINATION),
    # If a proof is unlikely, more of the time goes to better labellings.
    _first_of(
        Rule(SIGNED & ~MESSAGES_FIRST & PROOF_POSSIBLE, "memetic", 0.4, _POPULATION),
        Rule(SIGNED & ~MESSAGES_FIRST, "memetic", 0.6, _POPULATION),
        Rule(BINARY & SPARSE & PROOF_POSSIBLE, "subgraph-search", 0.4, _FEW_NEIGHBOURS),
        Rule(BINARY & SPARSE, "subgraph-search", 0.6, _FEW_NEIGHBOURS),
    ),
    Rule(SIGNED & ~MESSAGES_FIRST & SPARSE, "subgraph-search", 0.2, _FEW_NEIGHBOURS),
    # ---- all Potts terms of either sign: bounds
    Rule(
        POTTS_TERMS & ~SPARSE & SMALL_FOR_SDP,
        "semidefinite",
        0.7,
        "frustrated and dense: the LP bound is weak",
    ),
    Rule(BINARY, "mplp", 0.6, "two labels: clusters over frustrated cycles often prove"),
    Rule(SIGNED, "trw-s(tighten=cycles)", 0.6, _CLUSTERS),
    Rule(POTTS_TERMS & POTTS_FIT_ILP, "ilp", 0.6, _BRANCHING),
    # ---- general tables and terms of higher order
    # Branch and bound solves many of these graphs quickly, and detects early if it cannot.
    _branch(TABLES, 0.25, "a short exact search over cost functions"),
    _eliminate(TABLES & LATER_ELIMINATION),
    Rule(
        TABLES & NEARLY_CLOSED,
        "branch-and-bound",
        0.7,
        "the exact search goes on: little is left open",
    ),
    Rule(
        HIGHER_ORDER,
        "trw-s",
        0.25,
        "messages along chains, where the factors are of a form it knows",
    ),
    Rule(PAIRWISE & NOTHING_CLOSED, "trw-s", 0.1, "a first bound"),
    Rule(TABLES & ~LOOSE_TERMS, "simulated-annealing", 0.3, "dense: short anneals"),
    Rule(TABLES & SPARSE_TERMS, "subgraph-search", 0.3, _FEW_NEIGHBOURS),
    _first_of(
        Rule(
            TABLES & LOOSE_TERMS & WIDE_OPEN,
            _PATIENT_MEMETIC,
            0.75,
            _FOR_THE_REST,
            afresh=True,
            then=Rule(TABLES, _PATIENT_MEMETIC, 0.4, "another one: a proof is far", afresh=True),
        ),
        Rule(TABLES, _PATIENT_MEMETIC, 0.4, _FOR_THE_REST, afresh=True),
    ),
    Rule(PAIRWISE, "trw-s(tighten=cycles)", 0.5, "general tables: messages, then clusters"),
    Rule(PAIRWISE, "mplp", 0.4, "another way to the same bound"),
    Rule(
        HIGHER_ORDER & ~WIDE_OPEN,
        "branch-and-bound",
        0.6,
        "the exact search again, from a better labelling",
    ),
    _first_of(
        Rule(HIGHER_ORDER & TABLES_FIT_ILP & SPARSE, "ilp", 0.6, "often proves soon"),
        Rule(HIGHER_ORDER & TABLES_FIT_ILP, "ilp", 0.3, "often proves soon"),
    ),
    Rule(HIGHER_ORDER, "trw-s", 0.3, "more sweeps"),
    Rule(HIGHER_ORDER, "mplp", 0.5, "higher-order terms: max-product LP with clusters"),
    Rule(TABLES & TABLES_FIT_ILP, "ilp", 0.6, _BRANCHING),
    # ---- whatever the terms: exact methods that take longer
    Rule(
        ~FOREST & ELIMINABLE & ~TREEWIDTH_FITS & ORDER_MAY_FIT,
        "junction-tree",
        0.8,
        "an order of elimination may yet be found",
    ),
    Rule(TABLES, "memetic", 0.4, "another population, before more is tried to prove"),
    Rule(TABLES, "branch-and-bound", 0.5, "the exact search again, with more time"),
    Rule(~FOREST, "toulbar2", 0.9, "search over cost functions, where it is installed"),
)

_TIME_IS_LEFT = "time is left: on to better labellings"
PRICED = Condition("label costs", "no label costs", lambda facts: facts.graph.n_label_costs > 0)
GRID_LIKE = SPARSE & Condition(
    "pairs only", "factors of more than two variables", lambda facts: not facts.graph.n_factors
)
#: Searches for better labellings, for the time after a plan.
SEARCHES: tuple[Rule | FirstOf, ...] = (
    _first_of(
        Rule(PRICED, "simulated-annealing", 1.0, _TIME_IS_LEFT),
        Rule(
            GRID_LIKE,
            "subgraph-search",
            1.0,
            _TIME_IS_LEFT,
            then=Rule(GRID_LIKE, "memetic", 1.0, _TIME_IS_LEFT),
        ),
        Rule(
            ~PRICED,
            "memetic",
            1.0,
            _TIME_IS_LEFT,
            then=Rule(~PRICED, "simulated-annealing", 1.0, _TIME_IS_LEFT),
        ),
    ),
)


_EXACT_SUM = "elimination: exact where its tables fit"
ANY = Condition("any graph", "no graph", lambda facts: True)
#: The stages at T > 0, where the first estimate is kept (records 015 and 038).
MARGINALS: tuple[Rule | FirstOf, ...] = (
    _first_of(
        Rule(ELIMINABLE, "junction-tree(estimate=True)", 1.0, _EXACT_SUM),
        Rule(ANY, "junction-tree", 1.0, _EXACT_SUM),
    ),
    Rule(ANY, "loopy-bp", 0.5, "marginals and the Bethe estimate"),
    Rule(ANY, "mean-field", 0.4, "a lower bound on the log-partition"),
    Rule(ANY, "trw-bp", 0.5, "an upper bound on the log-partition"),
    Rule(ANY, "weighted-mini-buckets", 1.0, "a closer one, except on large graphs of pairs"),
)


def fired(rules: tuple[Rule | FirstOf, ...], facts: GraphFacts) -> Iterator[Rule]:
    """Yield the rules that apply, each tested when the stages before it have run."""
    for entry in rules:
        for rule in entry.rules if isinstance(entry, FirstOf) else (entry,):
            if rule.when.holds(facts):
                yield rule
                if rule.then is not None:
                    yield rule.then
                break


def plan(
    graph: FactorGraph,
    open_part: Callable[[], float] = lambda: 1.0,
    seconds: float = 10.0,
) -> Iterator[Stage]:
    """Yield the stages for a reduced graph, each if no stage before it proved optimality."""
    facts = GraphFacts(graph, open_part, seconds)
    return (rule.stage(facts) for rule in fired(RULES, facts))


def foreseen(graph: FactorGraph, seconds: float = 10.0) -> list[ForeseenRule]:
    """Return the rules that apply to a reduced graph, as far as they are known before a run."""
    facts = GraphFacts(graph, lambda: 1.0, seconds)
    rules: list[ForeseenRule] = []
    for entry in RULES:
        proviso = ""
        for rule in entry.rules if isinstance(entry, FirstOf) else (entry,):
            parts = rule.when.parts or (rule.when,)
            if not all(part.late or part.holds(facts) for part in parts):
                continue
            late = ", ".join(part.text for part in parts if part.late)
            proviso = f"if {late}" if late else "otherwise" if proviso else ""
            for one in (rule, rule.then):
                if one is None or as_solver(one.stage(facts).solver).supports(graph, 0.0):
                    continue
                rules.append(
                    ForeseenRule(
                        when=", ".join(part.text for part in parts if not part.late),
                        proviso=proviso,
                        solver=one.stage(facts).solver,
                        share=one.share,
                        why=one.why,
                        records=tuple(sorted({part.record for part in parts if part.record})),
                    )
                )
            if not late:
                break
    return rules


def searches(graph: FactorGraph) -> list[Stage]:
    """Return searches for better labellings, for the time after a plan."""
    facts = GraphFacts(graph, lambda: 1.0, 1.0)
    return [rule.stage(facts) for rule in fired(SEARCHES, facts)]


#: The last stage if the time limit ended the first descent.
_UNFINISHED = [Stage("icm", 1.0, "the descent goes on")]


@dataclass(frozen=True)
class Auto(Solver):
    """Choose solvers by the structure of the graph and run them within one budget.

    Forests are solved exactly. Otherwise persistency rules out labels first, and elimination solves
    the rest if its treewidth is small. Further stages depend on the terms: TRW-S and expansion
    moves for attractive terms; memetic search, subgraph search or a semidefinite relaxation for
    Potts terms of either sign; message passing tightened by clusters for others. Branch and bound,
    elimination with larger tables, toulbar2 (if installed) and further local searches follow as
    size and time allow. Each stage starts from the best labelling so far; the run ends when bound
    and energy meet.

    At T > 0: elimination where it fits, else estimates by elimination with copies of variables, on
    large graphs by loopy belief propagation; then bounds on the log-partition, from below by
    mean field, from above by tree-reweighted propagation and weighted mini-buckets.

    Parameters
    ----------
    seconds : float
        Budget of a run without a time limit.
    parts : bool
        After the reduction, solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    The best labelling and the largest bound of all stages; `optimal` where they meet. At T > 0 the
    log-partition is ``"exact"`` where elimination was possible, else an estimate, with bounds in
    the diagnostics; an exact one beside estimated marginals is a ``"lower"`` bound, with
    ``log_partition_exact`` in the diagnostics.

    Diagnostics
    -----------
    ``structure``; ``share_fixed`` of the variables by persistency; ``plan``: solver, reason,
    seconds, energy, bound and status of each stage, and its ``runs`` if there were several.

    Complexity
    ----------
    The complexity of the stages, each with a share of the remaining time.

    References
    ----------
    B. Hurley et al., "Multi-language evaluation of exact solvers in graphical model discrete
    optimization", Constraints 21, 2016: no solver dominates.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "auto")
    >>> s.energy, s.status.value, s.diagnostics["structure"]
    (0.5, 'optimal', 'forest')
    """

    version: ClassVar[int] = 4
    startup_cost: ClassVar[float] = 20.0

    seconds: float = setting(10.0, above=0, below=math.inf)
    parts: bool = True

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support every graph at every temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Reduce the graph, then run the stages of the plan."""
        end = self.seconds if run.time_limit is None else run.time_limit
        outcome = self._outcome(payable(graph, run), run, end)
        if run.time_limit is None and not outcome.converged:
            spent = run.seconds >= end
            outcome.stopped_by = f"seconds={self.seconds:g}" if spent else "those of its stages"
        return outcome

    def _outcome(self, graph: FactorGraph, run: Run, end: float) -> Outcome:
        """Reduce the graph and run the stages, for this many seconds."""
        if run.temperature > 0:
            return _marginals(graph, run, end)
        if graph.is_forest:
            # Exact without a reduction. A forest of edges needs little of the code of elimination.
            pairs = not graph.n_factors and not graph.n_label_costs
            outcome = solve_forest(graph, run) if pairs else JunctionTree().run(graph, run)
            outcome.diagnostics |= {"structure": "forest", "share_fixed": 0.0, "plan": []}
            return outcome
        # With two labels a single cut may settle the whole graph; else a descent comes first.
        binary = int(graph.cardinalities.max(initial=1)) <= 2
        reduction = _reduced(graph, run, end) if binary else None
        if reduction is not None and reduction.settled:
            return _settled(reduction, run)
        run.bound(graph.sum_of_minima)
        labels, finished = _descent(graph, run, end)
        if reduction is None:
            reduction = _reduced(graph, run, end)
        if reduction.settled:
            return _settled(reduction, run)
        if self.parts:
            apart = solve_rest(self._on_part, reduction, run, end - run.seconds)
            if apart is not None:
                apart.diagnostics["share_fixed"] = reduction.share_fixed
                return apart
        portfolio = _Portfolio(run, reduction, reduction.restrict(labels))
        return portfolio.outcome(graph.sum_of_minima, end, finished)

    def _on_part(self, part: FactorGraph, run: Run, seconds: float) -> Outcome:
        """Run the portfolio on a component."""
        return replace(self, seconds=max(1e-3, seconds)).run(part, run)


def _descent(graph: FactorGraph, run: Run, end: float) -> tuple[IntArray, bool]:
    """Offer the cheapest labels and the result of ICM; return it, and whether ICM finished."""
    first = unary_minimum(graph)
    run.offer(first)
    sweeps = min(run.estimated_seconds(_DESCENT_EVALUATIONS), _MOST_DESCENT_SHARE * end)
    descent = solve(
        graph,
        "icm",
        time_limit=max(_DESCENT_SHARE * end, sweeps),
        initial=run.initial,
        seed=int(run.rng.integers(2**32)),
    )
    if descent.labels is not None:
        first = descent.labels
        run.offer(first)
    return first, descent.status is not Status.LIMIT


class _Portfolio:
    """The stages on the reduced graph, and its best labelling."""

    def __init__(self, run: Run, reduction: Reduction, best: IntArray) -> None:
        self.run, self.reduction = run, reduction
        self.best = best
        self.best_energy = float(reduction.graph.energy(best))
        self.iterations = 0
        self.plans: list[dict[str, Any]] = []
        #: Stages that have begun, whose code is loaded.
        self._begun: set[str] = set()

    def outcome(self, least: float, end: float, finished: bool) -> Outcome:
        """Run the stages of the plan until one proves optimality or the budget is spent."""
        run = self.run
        rest = self.reduction.graph

        def open_part() -> float:
            way = run.best_energy - least
            return (run.best_energy - run.lower_bound) / way if 0.0 < way < math.inf else 1.0

        diagnostics = {
            "share_fixed": self.reduction.share_fixed,
            "plan": self.plans,
            "structure": structure(rest),
        }
        more = searches(rest)
        stages = itertools.chain(
            plan(rest, open_part, end),
            () if finished else _UNFINISHED,
            # A time limit is used until it is spent; without one, every search ends by itself.
            more[:1] if run.time_limit is None else itertools.cycle(more),
        )
        converged = False
        for stage in stages:
            left = end - run.seconds
            if run.proved or left <= 0 or run.should_stop(self.iterations):
                break
            slow = stage.solver in _SLOW_TO_COMPILE and stage.solver not in self._begun
            if slow and stage.share * left < _LEAST_SHARE * end:
                continue
            status = self._make(stage, left)
            if status is Status.INFEASIBLE:
                return Outcome(infeasible=True, iterations=self.iterations, diagnostics=diagnostics)
            if status is Status.OPTIMAL:
                converged = True
                break
        else:
            converged = all(done["status"] == "converged" for done in self.plans)
        return Outcome(
            converged=converged or run.proved,
            iterations=self.iterations,
            diagnostics=diagnostics,
        )

    def _make(self, stage: Stage, left: float) -> Status | None:
        """Run one stage on the reduced graph; return its status, or None if it is left out."""
        run = self.run
        rest = self.reduction.graph
        if stage.share * left < 2.0 * stage.begin:
            return None
        method = as_solver(stage.solver)
        if method.supports(rest, 0.0) is not None or memory_shortage(method, rest, 0.0) is not None:
            return None
        self._begun.add(stage.solver)
        solution = solve(
            rest,
            stage.solver,
            seed=int(run.rng.integers(2**32)),
            time_limit=stage.share * left,
            max_iterations=_iterations_left(run, self.iterations),
            initial=None if stage.afresh else self.best,
            absolute_gap=run.absolute_gap,
            on_offer=lambda point: run.bound(point.lower_bound),
            on_improve=self._forward,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            return None
        self.iterations += solution.iterations
        self._note(stage, solution)
        if solution.labels is not None:
            run.offer(self.reduction.expand(solution.labels))
            if solution.energy < self.best_energy:
                self.best, self.best_energy = solution.labels, solution.energy
        return solution.status

    def _forward(self, labels: IntArray, energy: float, seconds: float) -> None:
        """Offer an improvement of a stage immediately, so that it survives a killed run."""
        if energy < self.run.best_energy:
            self.run.offer(self.reduction.expand(labels))

    def _note(self, stage: Stage, solution: Solution) -> None:
        """Add a stage to the diagnostics; runs of one solver are summed up."""
        facts = _facts(stage, solution)
        before = next((done for done in self.plans if done["solver"] == stage.solver), None)
        if before is None:
            self.plans.append(facts)
            return
        before |= facts | {
            "seconds": before["seconds"] + facts["seconds"],
            "energy": min(before["energy"], facts["energy"]),
            "lower_bound": max(before["lower_bound"], facts["lower_bound"]),
            "runs": before.get("runs", 1) + 1,
        }


def _reduced(graph: FactorGraph, run: Run, end: float) -> Reduction:
    """Rule out labels within the share of the budget for the reduction."""

    def over() -> bool:
        building = run.estimated_seconds(SHRINKING)
        return run.seconds >= _REDUCTION_SHARE * end - building or run.should_stop()

    return reduce(graph, over, keep_forms=True)


def _settled(reduction: Reduction, run: Run) -> Outcome:
    """Return the outcome of a graph that the reduction solves."""
    diagnostics = {"share_fixed": reduction.share_fixed, "plan": []}
    if reduction.infeasible:
        return Outcome(infeasible=True, diagnostics=diagnostics)
    # The constant of the reduced graph is a sum of the same costs in another order.
    run.bound(run.offer(reduction.fixed))
    return Outcome(converged=True, diagnostics=diagnostics)


def _iterations_left(run: Run, done: int) -> int | None:
    return None if run.max_iterations is None else max(1, run.max_iterations - done)


def _facts(stage: Stage, solution: Solution) -> dict[str, Any]:
    return {
        "solver": stage.solver,
        "why": stage.why,
        "seconds": round(solution.seconds, 4),
        "energy": solution.energy,
        "lower_bound": solution.lower_bound,
        "status": solution.status.value,
    }


def _marginals(graph: FactorGraph, run: Run, end: float) -> Outcome:
    """Return the outcome at T > 0: exact if elimination fits, else by propagation, with bounds."""
    facts = GraphFacts(graph, lambda: 1.0, end)
    stages = [rule.stage(facts) for rule in fired(MARGINALS, facts)]
    diagnostics: dict[str, Any] = {"plan": []}
    bounds: dict[str, list[float]] = {"lower": [], "upper": []}
    answer: Solution | None = None
    exact: float | None = None
    iterations = 0
    for stage in stages:
        left = end - run.seconds
        found = answer is not None or exact is not None
        if found and (left <= 0 or run.should_stop(iterations)):
            break
        if answer is not None and stage.solver == "loopy-bp":
            continue
        method = as_solver(stage.solver)
        reason = method.supports(graph, run.temperature)
        if reason is not None or memory_shortage(method, graph, run.temperature) is not None:
            continue
        solution = solve(
            graph,
            stage.solver,
            seed=int(run.rng.integers(2**32)),
            time_limit=max(1e-3, stage.share * left),
            max_iterations=_iterations_left(run, iterations),
            temperature=run.temperature,
            initial=run.initial,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            continue
        iterations += solution.iterations
        diagnostics["plan"].append(_facts(stage, solution))
        if solution.labels is not None:
            run.offer(solution.labels)
        run.bound(solution.lower_bound)
        if solution.status == Status.INFEASIBLE:
            return Outcome(infeasible=True, iterations=iterations, diagnostics=diagnostics)
        if solution.log_partition is not None and solution.log_partition_kind in bounds:
            bounds[solution.log_partition_kind].append(solution.log_partition)
        if solution.log_partition_kind == "exact" or "log_partition_exact" in solution.diagnostics:
            exact = solution.log_partition
        if answer is None and solution.marginals is not None:
            answer = solution
        if exact is not None and answer is not None:
            break
    if bounds["lower"]:
        diagnostics["log_partition_lower"] = max(bounds["lower"])
    if bounds["upper"]:
        diagnostics["log_partition_upper"] = min(bounds["upper"])
    outcome = Outcome(iterations=iterations, diagnostics=diagnostics)
    if answer is not None:
        outcome.converged = answer.status == Status.CONVERGED
        outcome.marginals = answer.marginals
        outcome.log_partition = answer.log_partition
        outcome.log_partition_kind = answer.log_partition_kind
    if exact is not None:
        own = answer is None or answer.log_partition_kind == "exact"
        outcome.log_partition, outcome.log_partition_kind = exact, "exact" if own else "lower"
        diagnostics["log_partition_exact"] = True
    return outcome
