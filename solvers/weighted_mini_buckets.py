"""Weighted mini-buckets: upper bounds on the log-partition of graphs of any treewidth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.elimination.edge_deletion import SplitGraph, split_variables
from inference_lab.algorithms.elimination.interactions import (
    coupling_terms,
    first_allowed,
    interactions,
)
from inference_lab.algorithms.elimination.order import Elimination, elimination_order
from inference_lab.algorithms.elimination.tree_passes import TreePasses
from inference_lab.algorithms.label_cost_encoding import run_on_star
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import n_entries
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.settings import setting

#: Most entries of all terms: variables are split one by one.
_MOST_ENTRIES = 200_000
#: Entries of all tables at first.
_FIRST_ENTRIES = 2.0**12
#: Factor by which they grow once a sweep gains little.
_GROWTH = 8.0
#: Steps of the search for an order in a second.
_STEPS_PER_SECOND = 1e8
#: Share of the time for this search.
_ORDER_SHARE = 0.1
#: Size of the first steps, halved when the bound rises.
_STEP = 1.0
#: Least marginal in a step, so that costs stay finite at labels that a copy rules out.
_LEAST_MARGINAL = 1e-12


@dataclass(frozen=True)
class WeightedMiniBuckets(Solver):
    """Elimination with bounded tables by Hölder's inequality (Liu and Ihler 2011).

    Where the table of a variable is too large, its terms are divided among copies ``r`` of weight
    ``w_r``, ``sum_r w_r = 1``. Each has a table of its own, and ``sum_x prod_r f_r(x) <= prod_r
    (sum_x f_r(x)^(1 / w_r))^w_r``. Costs at the copies, which add up to zero, are moved to lower
    the bound: at the minimum the marginals of all copies agree. A sweep moves ``w_r (log p_r -
    sum_s w_s log p_s)`` to each. Where sweeps gain little, tables are made larger.

    Parameters
    ----------
    max_entries : int
        Most entries of all tables.
    tolerance : float
        Gain in the bound below which a sweep is the last for tables of a size.
    max_sweeps : int
        Most sweeps for tables of a size.

    Guarantees
    ----------
    `log_partition` is an upper bound (kind ``"upper"``), also after a time limit, and ``"exact"``,
    with exact marginals, if no variable needs a copy. Hard terms and factors of any arity are
    covered. Otherwise the marginals are means over copies, without a guarantee. `converged` means
    that the last sweep gained less than the tolerance. Deterministic.

    Complexity
    ----------
    A sweep makes two passes over the tables, 9 bytes and about 30 ns an entry.

    An iteration is some 30 million additions.

    References
    ----------
    Q. Liu, A. Ihler, "Bounding the partition function using Hölder's inequality", ICML 2011.
    R. Dechter, I. Rish, "Mini-buckets: a general scheme for bounded inference", J. ACM 50(2), 2003.

    Examples
    --------
    >>> import inference_lab as il
    >>> edges = [(i, j) for i in range(6) for j in range(i)]
    >>> g = il.FactorGraph.potts([[0.0, 0.2 * i] for i in range(6)], edges, 0.3)
    >>> s = il.solve(g, "weighted-mini-buckets(max_entries=80)", temperature=1.0)
    >>> s.log_partition_kind, round(s.log_partition, 2)
    ('upper', 1.2)
    >>> round(il.solve(g, "brute-force", temperature=1.0).log_partition, 2)
    1.13
    """

    label_costs: ClassVar[bool] = True

    max_entries: int = setting(2**22, at_least=2)
    tolerance: float = setting(1e-2, at_least=0)
    max_sweeps: int = setting(50, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover graphs with up to 200,000 entries of all terms, at T > 0."""
        if temperature == 0:
            return "weighted-mini-buckets bounds log Z: it needs a temperature above 0"
        if n_entries(graph) > _MOST_ENTRIES:
            return (
                f"its terms have {n_entries(graph)} entries, more than {_MOST_ENTRIES}; try trw-bp"
            )
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Bound with small tables first, then with larger ones."""
        graph = payable(graph, run)
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        domains = allowed_labels(graph)
        if not domains.feasible:
            return Outcome(converged=True, infeasible=True)
        run.offer(first_allowed(graph, domains))
        couples = coupling_terms(graph, domains)
        steps = _ORDER_SHARE * run.remaining * _STEPS_PER_SECOND
        order = elimination_order(interactions(graph, domains, couples), most_steps=steps)
        outcome = Outcome(diagnostics={"sweeps": 0})
        entries = min(_FIRST_ENTRIES, self.max_entries)
        while order.complete and not run.should_stop(outcome.iterations):
            split = split_variables(graph, domains, order.order, entries)
            if split is not None:
                ended = self._tighten(graph, run, split, order, outcome)
                if outcome.infeasible or not ended or not split.pairs:
                    break
            if entries == self.max_entries:
                if split is None:
                    outcome.unsupported = f"its terms need tables of over {entries} entries"
                break
            entries = min(_GROWTH * entries, self.max_entries)
        return outcome

    def _tighten(
        self, graph: FactorGraph, run: Run, split: SplitGraph, order: Elimination, outcome: Outcome
    ) -> bool:
        """Lower the bound with the tables of one split; return whether time was left."""
        plan = split.plan(order)
        if plan.tree is None:
            # Without the equality of copies the graph is a relaxation.
            outcome.converged = outcome.infeasible = True
            return True
        copies = _Copies(split)
        outcome.diagnostics["copies"] = len(split.pairs)
        heat = run.temperature * copies.weights[plan.tree.variables]
        passes = TreePasses(plan, plan.tree, heat, True)
        costs = split.graph.unary_values
        change = np.zeros(1)
        step = _STEP
        upper_bound = math.inf
        outcome.converged = False
        for _ in range(self.max_sweeps):
            unary = costs + step * change
            g = split.graph.arrays._replace(unary=unary).read_only()
            total = split.graph.constant + passes.upward(g, run, outcome)
            if total == math.inf:
                outcome.converged = outcome.infeasible = True
                return True
            if math.isnan(total):
                return False
            gain = upper_bound + total / run.temperature
            if gain < 0.0:
                step *= 0.5
                continue
            upper_bound = -total / run.temperature
            costs = unary
            if outcome.log_partition is None or upper_bound < outcome.log_partition:
                outcome.log_partition, outcome.log_partition_kind = upper_bound, "upper"
            marginals = passes.downward(g, run, outcome)
            if marginals is None:
                return False
            outcome.diagnostics["sweeps"] += 1
            outcome.marginals = split.marginals(graph, copies.mean(marginals))
            run.offer(split.labels(passes.decoded()))
            outcome.converged = gain < self.tolerance or not split.pairs
            if outcome.converged:
                break
            change = run.temperature * copies.moves(marginals)
        else:
            outcome.stopped_by = f"max_sweeps={self.max_sweeps}"
        if not split.pairs:
            outcome.log_partition_kind = "exact"
        return True


class _Copies:
    """Weights of copies, and the moves of costs between them."""

    def __init__(self, split: SplitGraph) -> None:
        ptr = split.graph.unary_ptr
        first = np.arange(split.graph.n_variables)
        for variable, copy in split.pairs:
            first[copy] = first[variable]
        #: (n,): one over the number of copies of each variable.
        self.weights = 1.0 / np.bincount(first)[first]
        sizes = np.diff(ptr)
        owner = np.repeat(np.arange(first.size), sizes)
        self._weights = self.weights[owner]
        # The entry of each label at the first copy.
        self._first = ptr[first[owner]] + np.arange(owner.size) - ptr[owner]

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the weighted mean over copies of each entry."""
        return np.asarray(np.bincount(self._first, self._weights * values)[self._first])

    def moves(self, marginals: FloatArray) -> FloatArray:
        """Return the changes of costs, over T, that a full step makes; they add up to zero."""
        logs = np.log(np.maximum(marginals, _LEAST_MARGINAL))
        return self._weights * (logs - self.mean(logs))
