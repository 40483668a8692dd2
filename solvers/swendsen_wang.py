"""Swendsen-Wang sampling: marginals of Potts and binary models by moves of whole clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.parity import unite
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import DIAGONAL, TABLE, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import dense_stack, freeze
from inference_lab.kernels.union_find import find
from inference_lab.solvers.gibbs import (
    MarkovChains,
    add_averages,
    gibbs_visits,
    no_variables,
)
from inference_lab.specs.settings import setting

#: At this temperature no bond of finite gain is drawn, and all allowed labels are equally probable.
_HOTTEST = 1e300
#: A sample is offered when its energy is below the best by more than this share of it.
_RELATIVE_GAIN = 1e-12


class BondModel(NamedTuple):
    """An energy as unaries plus bonds, the form that cluster moves need."""

    #: ``ptr`` (n + 1,) int64, ``unary`` (ptr[n],) float64.
    ptr: IntArray
    unary: FloatArray
    #: ``edges`` (m, 2) int64, ``gain`` float64, ``offset`` (m,) int64, ``kind`` (m,) int64.
    edges: IntArray
    gain: FloatArray
    #: ``tie`` (float64, like ``gain``): the cost of a bond of infinite gain at each label.
    tie: FloatArray
    offset: IntArray
    kind: IntArray
    signed: bool


class ClusterScratch(NamedTuple):
    """The clusters of one sweep."""

    # ``parent`` (n,) int64: the union-find forest; ``weight`` (like the unaries): at the place of
    # each root, first the cost and then the probability of each label of its cluster.

    parent: IntArray
    weight: FloatArray


@inlined
def _draw(m: BondModel, weight: FloatArray, root: int, uniform: float) -> int:
    """Draw the label of a root with a uniform number."""
    label = 0
    rest = uniform
    for a in range(m.ptr[root + 1] - m.ptr[root]):
        if weight[m.ptr[root] + a] > 0.0:
            # The last label with weight is the fallback if rounding leaves a rest.
            if rest >= 0.0:
                label = a
            rest -= weight[m.ptr[root] + a]
    return label


@inlined
def _is_bonded(m: BondModel, x: IntArray, e: int, uniform: float, temperature: float) -> bool:
    """Whether a bond is drawn on an edge: on satisfied ones with ``1 - exp(-|gain| / T)``."""
    i = m.edges[e, 0]
    j = m.edges[e, 1]
    gain = 0.0
    if m.signed:
        if (m.gain[e] > 0.0) == (x[i] == x[j]):
            gain = abs(m.gain[e])
    elif x[i] == x[j]:
        gain = m.gain[m.offset[e] + x[i] * m.kind[e]]
    return bool(gain > 0.0 and uniform < -np.expm1(-gain / temperature))


@inlined
def _own(m: BondModel, x: IntArray, i: int, root: int, a: int) -> int:
    """Return the label that ``i`` gets when the root of its cluster gets ``a``."""
    return int(a ^ x[root] ^ x[i]) if m.signed else a


@inlined
def _bond_cost(m: BondModel, at: int, temperature: float) -> float:
    """Return the cost of a bond, ``-T log(exp(gain / T) - 1)``."""
    # A bond of infinite gain is certain, and has the cost of agreeing.
    gain = m.gain[at]
    if np.isinf(gain):
        return float(m.tie[at])
    if gain <= 0.0:
        return np.inf
    scaled = gain / temperature
    return float(-temperature * (scaled + np.log(-np.expm1(-scaled))))


@lean_kernel
def _add_up_clusters(
    m: BondModel,
    x: IntArray,
    bond_uniforms: FloatArray,
    temperature: float,
    scratch: ClusterScratch,
) -> None:
    """Join the ends of the bonds drawn, and write the cost of each label of each cluster."""
    parent, weight = scratch.parent, scratch.weight
    for i in range(x.size):
        parent[i] = i
        for t in range(m.ptr[i], m.ptr[i + 1]):
            weight[t] = 0.0
    for e in range(m.edges.shape[0]):
        if _is_bonded(m, x, e, bond_uniforms[e], temperature):
            p = find(parent, m.edges[e, 0])
            q = find(parent, m.edges[e, 1])
            # The root has the fewest labels, so that every member has its labels, too.
            if m.ptr[p + 1] - m.ptr[p] > m.ptr[q + 1] - m.ptr[q]:
                parent[p] = q
            else:
                parent[q] = p
    for i in range(x.size):
        root = find(parent, i)
        for a in range(m.ptr[root + 1] - m.ptr[root]):
            weight[m.ptr[root] + a] += m.unary[m.ptr[i] + _own(m, x, i, root, a)]
    for e in range(m.edges.shape[0]):
        if m.kind[e] == 1 and _is_bonded(m, x, e, bond_uniforms[e], temperature):
            root = find(parent, m.edges[e, 0])
            for a in range(m.ptr[root + 1] - m.ptr[root]):
                weight[m.ptr[root] + a] += _bond_cost(m, m.offset[e] + a, temperature)


@lean_kernel
def _turn_into_probabilities(m: BondModel, temperature: float, scratch: ClusterScratch) -> bool:
    """Replace the costs of each cluster's labels; return False if some cluster has no label."""
    weight = scratch.weight
    for i in range(scratch.parent.size):
        if scratch.parent[i] != i:
            continue
        least = np.inf
        for t in range(m.ptr[i], m.ptr[i + 1]):
            least = min(least, weight[t])
        if np.isinf(least):
            return False
        total = 0.0
        for t in range(m.ptr[i], m.ptr[i + 1]):
            weight[t] = np.exp((least - weight[t]) / temperature)
            total += weight[t]
        for t in range(m.ptr[i], m.ptr[i + 1]):
            weight[t] /= total
    return True


@lean_kernel
def _energy(m: BondModel, x: IntArray) -> float:
    """Return the energy of a labelling, up to a constant."""
    energy = 0.0
    for i in range(x.size):
        energy += m.unary[m.ptr[i] + x[i]]
    for e in range(m.edges.shape[0]):
        i = m.edges[e, 0]
        j = m.edges[e, 1]
        if m.signed:
            if x[i] != x[j] and not np.isinf(m.gain[e]):
                energy += m.gain[e]
        elif x[i] == x[j]:
            at = m.offset[e] + x[i] * m.kind[e]
            energy += m.tie[at] if np.isinf(m.gain[at]) else -m.gain[at]
    return energy


@lean_kernel
def cluster_sweep(
    m: BondModel,
    x: IntArray,
    bond_uniforms: FloatArray,
    label_uniforms: FloatArray,
    temperature: float,
    scratch: ClusterScratch,
    sums: FloatArray,
) -> float:
    """Make one Swendsen-Wang update in place, and add the conditional of each label to `sums`."""
    # Bonds are drawn on satisfied edges with probability ``1 - exp(-|gain| / T)``; then each
    # cluster of bonded variables takes a label with probability proportional to ``exp(-cost / T)``.
    # The cost adds up the unaries of its members and, if the gain depends on the label,
    # ``-T log(exp(gain / T) - 1)`` of each of its bonds. With `signed`, the members keep their
    # pattern and the label is the root's. Returns the energy up to a constant; ``inf``, and no
    # change, if some cluster has no label.
    parent, weight = scratch.parent, scratch.weight
    _add_up_clusters(m, x, bond_uniforms, temperature, scratch)
    if not _turn_into_probabilities(m, temperature, scratch):
        return np.inf
    for i in range(x.size):
        root = find(parent, i)
        for a in range(m.ptr[root + 1] - m.ptr[root]):
            sums[m.ptr[i] + _own(m, x, i, root, a)] += weight[m.ptr[root] + a]
    # Labels are drawn last, the roots after their members, which need the root's old label.
    for i in range(x.size):
        root = find(parent, i)
        if root != i:
            x[i] = _own(m, x, i, root, _draw(m, weight, root, label_uniforms[root]))
    for i in range(x.size):
        if parent[i] == i:
            x[i] = _draw(m, weight, i, label_uniforms[i])
    return _energy(m, x)


def _where(graph: FactorGraph, e: int) -> str:
    i, j = (int(v) for v in graph.edges[e])
    return f"edge {e} = ({i}, {j})"


def model_of(graph: FactorGraph) -> BondModel | str:
    """Return the energy as unaries and bonds, or the reason why it has no such form."""
    if graph.n_factors:
        scope = graph.higher_order(0)[0]
        return f"cluster moves need pairwise terms; factor 0 joins variables {scope}"
    if int(graph.cardinalities.max(initial=1)) <= 2:
        return _binary_model(graph)
    return _attractive_model(graph)


def _attractive_model(graph: FactorGraph) -> BondModel | str:
    """Return bonds for any number of labels, if agreeing never costs more than disagreeing."""
    tables = np.flatnonzero(graph.edge_kinds == TABLE)
    if tables.size:
        return (
            "cluster moves of more than two labels need terms that depend only on where labels "
            f"agree; {_where(graph, int(tables[0]))} has a table"
        )
    kind = (graph.edge_kinds == DIAGONAL).astype(np.int64)
    common = graph.cardinalities[graph.edges].min(axis=1)
    counts = np.where(kind == 1, common, 1)
    offset = np.cumsum(counts) - counts
    label = np.arange(int(counts.sum())) - np.repeat(offset, counts)
    tie = graph.pairwise_values[np.repeat(graph.edge_offsets, counts) + label]
    differ = np.repeat(graph.edge_weights, counts)
    gain = np.full(tie.size, np.inf)
    np.subtract(differ, tie, out=gain, where=np.isfinite(differ))
    if (gain < 0.0).any():
        at = int(np.flatnonzero(gain < 0.0)[0])
        e = int(np.searchsorted(offset, at, side="right")) - 1
        return (
            f"cluster moves of more than two labels need attractive terms; at {_where(graph, e)} "
            f"agreeing costs {tie[at]:g}, disagreeing {differ[at]:g}"
        )
    edges = graph.edges.astype(np.int64)
    return BondModel(
        graph.unary_ptr, graph.unary_values, edges, gain, tie, offset, kind, signed=False
    )


def _binary_model(graph: FactorGraph) -> BondModel | str:
    """Return bonds of either sign between variables of two labels, with the rest as unaries."""
    unary = graph.unary_values.copy()
    ptr = graph.unary_ptr
    sizes = graph.cardinalities[graph.edges]
    i, j = graph.edges[:, 0], graph.edges[:, 1]
    # A variable of one label makes the term a unary of the other end.
    for shape, side in (((1, 1), 0), ((2, 1), 0), ((1, 2), 1)):
        alone = np.flatnonzero((sizes == shape).all(axis=1))
        costs = dense_stack(graph.edge_block, alone, *shape).reshape(alone.size, max(shape))
        own = ptr[graph.edges[alone, side], None] + np.arange(max(shape))
        np.add.at(unary, own, costs)
    both = np.flatnonzero((sizes == 2).all(axis=1))
    t00, t01, t10, t11 = dense_stack(graph.edge_block, both, 2, 2).reshape(-1, 4).T
    equal = np.isinf(t01) & np.isinf(t10)
    unequal = np.isinf(t00) & np.isinf(t11) & ~equal
    soft = ~(equal | unequal)
    odd = np.flatnonzero(soft & np.isinf(t00 + t01 + t10 + t11))
    if odd.size:
        return (
            "cluster moves know hard terms that make two labels equal, or that make them differ; "
            f"{_where(graph, int(both[odd[0]]))} forbids something else"
        )
    first, second = ptr[i[both]], ptr[j[both]]
    gain = np.where(equal, np.inf, -np.inf)
    # t(a, b) = t(0, 0) + alpha a + beta b + gain [a != b]
    t00s, t01s, t10s, t11s = (t[soft] for t in (t00, t01, t10, t11))
    gain[soft] = (t01s + t10s - t00s - t11s) / 2.0
    np.add.at(unary, first[soft] + 1, (t11s - t00s - t01s + t10s) / 2.0)
    np.add.at(unary, second[soft] + 1, (t11s - t00s + t01s - t10s) / 2.0)
    np.add.at(unary, first[equal], t00[equal])
    np.add.at(unary, first[equal] + 1, t11[equal])
    np.add.at(unary, first[unequal], t01[unequal])
    np.add.at(unary, first[unequal] + 1, t10[unequal])
    m = both.size
    return BondModel(
        ptr,
        # Read-only like a graph's own unaries, so that kernels are compiled once.
        freeze(unary),
        graph.edges[both].astype(np.int64),
        gain,
        np.zeros(m),
        np.arange(m, dtype=np.int64),
        np.zeros(m, dtype=np.int64),
        signed=True,
    )


def hard_pattern(model: BondModel, n: int) -> IntArray | None:
    """Return labels that satisfy all hard bonds, regardless of the unaries, or None."""
    hard = np.isinf(model.gain) & model.signed
    if not hard.any():
        return np.zeros(n, dtype=np.int64)
    united = unite(n, model.edges[hard], model.gain[hard] < 0.0)
    return None if united is None else united[1].astype(np.int64)


@dataclass(frozen=True)
class SwendsenWang(IterativeSolver["_ClusterSampler"]):
    """Swendsen-Wang sampling from ``p(x) ~ exp(-E(x) / T)`` (Swendsen, Wang 1987).

    Edges whose ends agree are bonded with probability ``1 - exp(-w / T)``, with ``w`` the extra
    cost of disagreeing; each cluster then takes a common label with probability ``~ exp(-sum of its
    unaries / T)`` (Edwards, Sokal 1988, with fields). Averages of these conditionals are the
    marginals. Each sweep ends in one of `gibbs`, because strong unaries that disagree within a
    cluster hinder its moves.

    Covered are

    * attractive diagonal terms of any number of labels, ``theta(a, a) <= theta(a, b)``: Potts
      terms, and diagonals that depend on the label, whose bonds then affect the cluster's
      label;
    * all pairwise terms between variables of two labels: each is unaries plus a bond of either
      sign. A repulsive bond is drawn where labels differ and keeps them different, so that a
      cluster keeps its pattern or inverts it. With frustration clusters tend to span the
      graph and such moves gain little over `gibbs`;
    * hard must-links, and for two labels hard cannot-links.

    Parameters
    ----------
    sweeps : int
        Draws kept of each chain, at least 4.
    burn_in : int
        Sweeps of each chain before the first draw is kept.
    single_sweeps : int
        Gibbs sweeps after each cluster update; 0 is the pure method.
    chains : int
        Independent chains, interleaved. They start from random labels, the first from the
        labelling given to the run if it is feasible.

    Guarantees
    ----------
    ``exp(-E / T)`` is stationary, and one sweep can reach every feasible labelling from every
    other: the averages tend to the marginals. Contradictory hard links are proved infeasible.
    `converged` means that all sweeps were made and split R-hat is below 1.1 everywhere. Diagnostics
    as in `gibbs`.

    Complexity
    ----------
    A sweep costs O(k) a variable and O(1) an edge, O(k) an edge whose diagonal depends on the
    label. Memory: unaries and edges once more, and for each chain n labels and 2 numbers a label.

    References
    ----------
    R. H. Swendsen, J.-S. Wang, "Nonuniversal critical dynamics in Monte Carlo simulations",
    Physical Review Letters 58(2), 1987.
    R. G. Edwards, A. D. Sokal, "Generalization of the Fortuin-Kasteleyn-Swendsen-Wang
    representation and Monte Carlo algorithm", Physical Review D 38(6), 1988.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "swendsen-wang", temperature=1.0).marginals.round(2)
    array([[0.7 , 0.3 ],
           [0.41, 0.59]])
    """

    sweeps: int = setting(1000, at_least=4)
    burn_in: int = setting(100, at_least=0)
    single_sweeps: int = setting(1, at_least=0)
    chains: int = setting(4, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support attractive diagonal terms, and pairwise terms of two labels, at T > 0."""
        if temperature == 0.0:
            return "swendsen-wang samples at T > 0; it finds marginals, not labellings"
        model = model_of(graph)
        return model if isinstance(model, str) else None

    @property
    def most_iterations(self) -> int:
        """Limit on the sweeps of a chain, burn-in included."""
        return self.burn_in + self.sweeps

    def start(self, graph: FactorGraph, run: Run) -> _ClusterSampler | Outcome:
        """Start the chains."""
        if graph.n_variables == 0:
            return no_variables(graph, run)
        model = model_of(graph)
        if isinstance(model, str):
            raise ValueError(model)
        start = hard_pattern(model, graph.n_variables)
        state = None if start is None else _ClusterSampler(self, graph, model, start, run)
        return state if state is not None and state.feasible else Outcome(infeasible=True)

    def step(self, state: _ClusterSampler, run: Run, done: int) -> Progress | None:
        """Sweep every chain once."""
        if done == self.burn_in:
            state.forget()
        skipped = 0 <= done - self.burn_in < state.averages.skipped
        return Progress() if state.sweep(keep=not skipped) else None

    def finish(self, state: _ClusterSampler, run: Run, outcome: Outcome) -> Outcome:
        """Average the draws."""
        done = outcome.iterations
        outcome.diagnostics = {"burned_in": done > self.burn_in}
        add_averages(state.averages, state.graph, run, outcome, done == self.most_iterations)
        return outcome


class _ClusterSampler(MarkovChains):
    """The chains of a run and their averages."""

    def __init__(
        self,
        settings: SwendsenWang,
        graph: FactorGraph,
        model: BondModel,
        start: IntArray,
        run: Run,
    ) -> None:
        super().__init__(graph, run, settings.chains, settings.sweeps)
        self.settings = settings
        self.model = model
        n = graph.n_variables
        self.scratch = ClusterScratch(
            np.empty(n, dtype=np.int64), np.empty(graph.unary_values.size)
        )
        self.order = np.tile(np.arange(n, dtype=np.int64), settings.single_sweeps)
        self.x = np.tile(start, (settings.chains, 1))
        # Only hard bonds are drawn at the highest temperature, and any label they allow is taken.
        bonds = np.full(len(model.edges), 0.5)
        energies = [self.update(x, bonds, _HOTTEST) for x in self.x]
        self.feasible = bool(np.isfinite(energies).all())
        self.best = np.inf
        if self.feasible:
            if run.initial is not None and np.isfinite(run.best_energy):
                self.x[0] = run.initial
            run.offer(self.x[0])

    def update(self, x: IntArray, bonds: FloatArray, temperature: float) -> float:
        """Make one update, with the conditionals in the draws' sums; return the energy."""
        sums = self.draws.sums
        sums[:] = 0.0
        uniforms = self.run.rng.random(x.size)
        return float(cluster_sweep(self.model, x, bonds, uniforms, temperature, self.scratch, sums))

    def sweep(self, keep: bool) -> bool:
        """Update every chain; return whether all were finished before time ran out."""
        for chain, x in enumerate(self.x):
            if chain and self.run.remaining <= 0.0:
                return False
            bonds = self.run.rng.random(len(self.model.edges))
            energy = self.update(x, bonds, self.run.temperature)
            if energy < self.best - _RELATIVE_GAIN * abs(energy):
                self.best = energy
                self.run.offer(x)
            if self.order.size:
                self.draws.now[0] = (energy, self.best, 0)
                # Conditionals of both kinds of steps have the marginals as their mean.
                gibbs_visits(
                    self.graph.arrays, x, self.order, self.run.rng.random(self.order.size),
                    self.run.temperature, 1.0, self.draws, self.work,
                )  # fmt: skip
                if self.draws.now[0].least < self.best:
                    self.best = float(self.draws.now[0].least)
                    self.run.offer(self.draws.best)
            if keep:
                self.averages.add(chain, self.draws.sums / (1 + self.settings.single_sweeps))
        return True
