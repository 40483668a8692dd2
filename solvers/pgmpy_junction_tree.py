"""Junction tree as pgmpy implements it: exact optimum, marginals and log-partition."""

from __future__ import annotations

import importlib
import math
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from inference_lab.algorithms.payable_costs import payable
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.specs.settings import setting

_EPS = float(np.finfo(np.float64).eps)
#: Products of potentials stay above exp(-600), so that none becomes zero by itself.
_RANGE = 600.0
#: pgmpy compares every term with every clique, at up to 50 us each.
_MAX_COMPARISONS = 60_000
#: Axes of a table; numpy's limit is 64, and pgmpy adds some internally.
_MAX_AXES = 30

#: A scope and its table of costs.
Term = tuple[tuple[int, ...], FloatArray]


@dataclass(frozen=True)
class PgmpyJunctionTree(Solver):
    """Compute optimum, marginals and log-partition exactly by pgmpy's ``BeliefPropagation``.

    pgmpy's junction tree and belief updates, with three corrections. Each connected component gets
    its own tree, as pgmpy fails on disconnected graphs. Fill-in is greedy min-fill, so the table
    sizes are known beforehand. Updates pass once to the root and once back, because pgmpy's own
    schedule takes small beliefs for converged. At temperature 0 energies are scaled so that no
    product of potentials vanishes.

    Parameters
    ----------
    max_entries : int
        Most entries of all clique tables together.

    Guarantees
    ----------
    Exact, up to rounding. The bound is the optimum, less an allowance for rounding.

    Iterations
    ----------
    One: the two passes.

    Diagnostics
    -----------
    ``width``, ``cliques``, ``entries`` (of all clique tables).

    Complexity
    ----------
    Linear in the size of the clique tables, exponential in the width.

    References
    ----------
    S. Lauritzen, D. Spiegelhalter, "Local computations with probabilities on graphical structures
    and their application to expert systems", JRSS B 50, 1988.
    A. Ankan, J. Textor, "pgmpy: a Python toolkit for Bayesian networks", JMLR 25, 2024.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "pgmpy-junction-tree")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    >>> round(il.solve(g, "pgmpy-junction-tree", temperature=1.0).log_partition, 6)
    0.498153
    """

    max_entries: int = setting(1_000_000, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: tables too large, or potentials out of range."""
        terms = graph.n_variables + graph.n_edges + graph.n_factors
        if terms * graph.n_variables > _MAX_COMPARISONS:
            return (
                f"pgmpy compares {terms} terms with up to {graph.n_variables} cliques; "
                f"at most {_MAX_COMPARISONS} comparisons are tried"
            )
        width, entries = _sizes(graph, _min_fill_cliques(graph))
        if entries > self.max_entries or width >= _MAX_AXES:
            return (
                f"a clique of {width + 1} variables, tables of at least {entries} "
                f"entries (min-fill); max_entries is {self.max_entries}, and at most {_MAX_AXES} "
                "variables are tried"
            )
        if temperature > 0:
            span = math.fsum(range_of(table) for _, table in merged_terms(graph))
            if span / temperature > _RANGE:
                return (
                    f"costs range over {span / temperature:.0f} temperatures; pgmpy multiplies "
                    f"potentials as they are, which is safe up to {_RANGE:.0f}"
                )
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build a tree for each component, pass beliefs, and read the answer."""
        with run.paused():
            pgmpy_inference()
        graph = payable(graph, run)
        trivial = graph.sum_of_minima
        if run.temperature == 0:
            run.bound(trivial)
        if trivial == math.inf:
            return Outcome(infeasible=True)
        if graph.n_variables and run.temperature == 0:
            run.offer(unary_minimum(graph))
        cliques = _min_fill_cliques(graph)
        terms = merged_terms(graph)
        if any(table.min() == math.inf for _, table in terms):
            # Terms over the same variables may forbid all labels only together.
            return Outcome(infeasible=True)
        span = math.fsum(range_of(table) for _, table in terms)
        unit = run.temperature or max(span / _RANGE, 1e-300)
        answer = _Answer(graph, run.temperature == 0)
        width, entries = _sizes(graph, cliques)
        diagnostics = {"width": width, "cliques": 0, "entries": entries}
        component = graph.components
        for c in range(int(component.max(initial=-1)) + 1):
            members = [term for term in terms if component[term[0][0]] == c]
            fill = [
                pair
                for clique in cliques
                for pair in combinations(sorted(clique), 2)
                if component[pair[0]] == c
            ]
            # pgmpy spends about this long on each comparison.
            if 2e-5 * len(members) ** 2 > run.remaining:
                return Outcome(diagnostics=diagnostics)
            tree = _Tree(members, fill, unit, "maximize" if answer.best else "marginalize")
            diagnostics["cliques"] += len(tree.order)
            if not tree.calibrate(run):
                return Outcome(diagnostics=diagnostics)
            if not answer.take(tree):
                return Outcome(infeasible=True, iterations=1, diagnostics=diagnostics)
        if answer.best:
            run.offer(answer.labels)
            bound = graph.constant + math.fsum(answer.energies)
            size = abs(graph.constant) + sum(map(abs, answer.energies))
            # Each factor of a product has an error of half a unit in the last place, or a unit.
            steps = 8.0 * (len(terms) + 2 * diagnostics["cliques"])
            rounding = _EPS * (steps * unit + 8.0 * len(terms) * size)
            run.bound(bound - rounding, 2.0 * rounding)
            return Outcome(converged=True, iterations=1, diagnostics=diagnostics)
        return Outcome(
            converged=True,
            iterations=1,
            marginals=answer.marginals(),
            log_partition=-(graph.constant + math.fsum(answer.energies)) / unit,
            log_partition_kind="exact",
            diagnostics=diagnostics,
        )


def merged_terms(graph: FactorGraph) -> list[Term]:
    """List unaries, edges and factors; those over the same variables are added up."""
    # pgmpy looks factors up by the set of their variables and keeps only one per set.
    terms: dict[frozenset[int], Term] = {
        frozenset([i]): ((i,), graph.unary_of(i)) for i in range(graph.n_variables)
    }
    for scope, table in graph.factors():
        if len(scope) == 1:
            continue
        key = frozenset(scope)
        if key in terms:
            first, before = terms[key]
            table = before + np.transpose(table, [scope.index(i) for i in first])
            scope = first
        terms[key] = (scope, table)
    return list(terms.values())


def range_of(table: FloatArray) -> float:
    """Return the difference between the largest and the least finite cost, 0 without any."""
    finite = table[np.isfinite(table)]
    return float(finite.max() - finite.min()) if finite.size else 0.0


def pgmpy_inference() -> Any:
    """Import ``pgmpy.inference`` without warnings of pgmpy about its own deprecated modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return importlib.import_module("pgmpy.inference")


def _min_fill_cliques(graph: FactorGraph) -> list[frozenset[int]]:
    """Return the cliques of a tree decomposition by greedy min-fill."""
    from networkx import Graph
    from networkx.algorithms.approximation import treewidth_min_fill_in

    joined: Any = Graph()
    joined.add_nodes_from(range(graph.n_variables))
    joined.add_edges_from(graph.edges.tolist())
    for f in range(graph.n_factors):
        joined.add_edges_from(combinations(graph.higher_order(f)[0], 2))
    return list(treewidth_min_fill_in(joined)[1])


def _sizes(graph: FactorGraph, cliques: list[frozenset[int]]) -> tuple[int, int]:
    """Return the width of cliques, and the number of entries of their tables."""
    labels = graph.cardinalities.tolist()
    entries = sum(math.prod(labels[i] for i in clique) for clique in cliques)
    return max(0, *(len(clique) - 1 for clique in cliques)), entries


class _Tree:
    """pgmpy's junction tree of a component, and the order of its updates."""

    def __init__(
        self, terms: list[Term], fill: list[tuple[int, int]], unit: float, operation: str
    ) -> None:
        self.unit = unit
        self.operation = operation
        self.shift = math.fsum(float(table.min()) for _, table in terms)
        from pgmpy.factors.discrete import DiscreteFactor
        from pgmpy.models import DiscreteMarkovNetwork

        model: Any = DiscreteMarkovNetwork()
        for scope, table in terms:
            # Variable ``i`` is the node ``"x{i}"``, because pgmpy treats a node ``0`` as missing.
            names = [f"x{i}" for i in scope]
            model.add_nodes_from(names)
            model.add_edges_from(combinations(names, 2))
            values = np.exp(-(table - table.min()) / unit)
            model.add_factors(DiscreteFactor(names, table.shape, values))
        # With these edges the graph is chordal, so pgmpy adds no fill-in.
        model.add_edges_from((f"x{i}", f"x{j}") for i, j in fill)
        self.bp: Any = pgmpy_inference().BeliefPropagation(model)
        tree = self.bp.junction_tree
        #: Cliques from the root outwards, each with its parent.
        self.order: list[tuple[Any, Any]] = [(next(iter(tree.nodes())), None)]
        for clique, parent in self.order:
            self.order += [(n, clique) for n in tree[clique] if n != parent]

    def calibrate(self, run: Run) -> bool:
        """Send beliefs to the root, then back; False if time runs out."""
        tree = self.bp.junction_tree
        self.bp.clique_beliefs = {clique: tree.get_factors(clique) for clique in tree.nodes()}
        self.bp.sepset_beliefs = {frozenset(edge): None for edge in tree.edges()}
        steps = [(clique, parent) for clique, parent in reversed(self.order) if parent is not None]
        # A separator's belief of 0 divides a belief of 0, which pgmpy replaces by 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            for sender, receiver in [*steps, *((p, c) for c, p in reversed(steps))]:
                if run.remaining <= 0.0:
                    return False
                self.bp._update_beliefs(sender, receiver, self.operation)
        return True

    def belief(self, clique: Any) -> tuple[list[int], FloatArray]:
        """Return the variables of a clique, and its belief with an axis for each."""
        factor = self.bp.clique_beliefs[clique]
        return [int(name[1:]) for name in factor.variables], np.asarray(factor.values)


class _Answer:
    """The results read from the trees of all components."""

    def __init__(self, graph: FactorGraph, best: bool) -> None:
        self.graph = graph
        self.best = best
        self.labels: IntArray = np.full(graph.n_variables, -1, dtype=np.int64)
        self.energies: list[float] = []
        self.rows: list[FloatArray] = [np.empty(0)] * graph.n_variables

    def take(self, tree: _Tree) -> bool:
        """Read the labels or the marginals of a component; False if no labelling is feasible."""
        _, root = tree.belief(tree.order[0][0])
        total = float(root.max() if self.best else root.sum())
        if total == 0.0:
            return False
        self.energies.append(tree.shift - tree.unit * math.log(total))
        for clique, _ in tree.order:
            variables, values = tree.belief(clique)
            if self.best:
                # Labels chosen nearer to the root are kept.
                index = tuple(
                    slice(None) if self.labels[i] < 0 else int(self.labels[i]) for i in variables
                )
                rest = values[index]
                free = [i for i in variables if self.labels[i] < 0]
                self.labels[free] = np.unravel_index(int(np.argmax(rest)), rest.shape)
            else:
                for axis, i in enumerate(variables):
                    others = tuple(a for a in range(values.ndim) if a != axis)
                    row = values.sum(axis=others)
                    self.rows[i] = row / row.sum()
        return True

    def marginals(self) -> FloatArray | list[FloatArray]:
        """Return the marginals in the form of the graph's unaries."""
        if self.graph.n_labels is not None and self.rows:
            return np.stack(self.rows)
        return self.rows
