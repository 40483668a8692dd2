"""LP relaxation of the energy with Kleinberg-Tardos rounding, and its value as a proved bound."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from inference_lab._numba import kernel
from inference_lab.algorithms.linear.backends import (
    check_backend,
    seconds_to_start,
    solve_relaxation,
    why_too_large,
    why_unavailable,
)
from inference_lab.algorithms.linear.model import (
    LinearModel,
    build_linear_model,
    model_size,
    sum_of_minima,
)
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.feasibility import n_entries
from inference_lab.kernels.label_costs import descend_on
from inference_lab.kernels.messages import edge_cost
from inference_lab.specs.settings import setting

#: After this many phases the labels still missing are taken by argmax (as in the released code).
_MAX_PHASES = 5000
#: A variable with a label of at least this value counts as integral.
_INTEGRAL = 1.0 - 1e-7
#: Steps of the derandomised rounding a second, for the decision whether there is time for it.
_STEPS_PER_SECOND = 1e7
#: Most steps it takes where no time limit is set (about half a minute).
_MAX_STEPS = 3e8
#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 200
#: Seconds that the polish may take when the time is over, since it gains so much.
_AFTER_THE_END = 0.1
#: Seconds that a sweep takes for each entry of the graph, at most.
_SECONDS_A_SWEEP = 1e-8
#: How many of the best rounded labellings are polished.
_POLISHED = 4
#: Draws are made in blocks of about this many steps, between which the clock is looked at.
_BLOCK_WORK = 4_000_000


# ------------------------------------------------------------------ expectations


@kernel
def _pair_expectation(g: GraphArrays, e: int, u: FloatArray, big: float) -> float:
    """Return the exact expected cost of edge ``e`` after Kleinberg-Tardos rounding of ``u``.

    A phase with label h assigns i and j together with probability proportional to
    ``min(u_ih, u_jh)``, i alone to ``(u_ih - u_jh)^+``; after that the other one is independent:
    ``P(a, b) = ([a = b] min(u_ia, u_ja) + (u_ia - u_ja)^+ u_jb + (u_jb - u_ib)^+ u_ia) /
    sum_h max(u_ih, u_jh)``. Costs above `big` count as `big`.
    """
    i, j = g.edges[e, 0], g.edges[e, 1]
    si, sj = g.unary_ptr[i], g.unary_ptr[j]
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    k = min(ki, kj)
    norm = 0.0
    for a in range(max(ki, kj)):
        p = u[si + a] if a < ki else 0.0
        q = u[sj + a] if a < kj else 0.0
        norm += max(p, q)
    total = 0.0
    if g.kinds[e] != TABLE:
        together = 0.0
        for a in range(k):
            low = min(u[si + a], u[sj + a])
            if low > 0.0:
                p = low * (1.0 + abs(u[si + a] - u[sj + a])) / norm
                together += p
                total += p * min(edge_cost(g, e, a, a), big)
        apart = 1.0 - together
        if apart > 1e-12:
            total += apart * min(g.weights[e], big)
        return total
    for a in range(ki):
        p = u[si + a]
        if p == 0.0:
            continue
        rest_i = max(0.0, p - (u[sj + a] if a < kj else 0.0))
        for b in range(kj):
            q = u[sj + b]
            if q == 0.0:
                continue
            mass = rest_i * q + max(0.0, q - (u[si + b] if b < ki else 0.0)) * p
            if a == b:
                mass += min(p, q)
            if mass > 0.0:
                total += mass / norm * min(edge_cost(g, e, a, b), big)
    return total


@kernel
def _half_expectation(g: GraphArrays, h: int, u: FloatArray, a: int, big: float) -> float:
    """Return the expected cost of an edge when the end at half-edge ``h`` has label ``a``."""
    e = h >> 1
    side = h & 1
    other = g.edges[e, 1 - side]
    start, k = g.unary_ptr[other], g.cardinalities[other]
    if g.kinds[e] != TABLE:
        differ = min(g.weights[e], big)
        if a >= k:
            return float(differ)
        same = min(edge_cost(g, e, a, a), big)
        q = u[start + a]
        return float(q * same + (1.0 - q) * differ)
    total = 0.0
    for b in range(k):
        q = u[start + b]
        if q > 0.0:
            cost = edge_cost(g, e, a, b) if side == 0 else edge_cost(g, e, b, a)
            total += q * min(cost, big)
    return total


@kernel
def _factor_estimate(g: GraphArrays, f: int, u: FloatArray, big: float) -> float:
    """Return the expected cost of a factor under independent labels with marginals ``u``."""
    lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
    y = np.zeros(hi - lo, dtype=np.int64)
    total = 0.0
    for t in range(g.table_ptr[f], g.table_ptr[f + 1]):
        mass = 1.0
        for s in range(lo, hi):
            mass *= u[g.unary_ptr[g.scopes[s]] + y[s - lo]]
        if mass > 0.0:
            total += mass * min(g.tables[t], big)
        s = hi - lo - 1
        while s >= 0:
            y[s] += 1
            if y[s] < g.cardinalities[g.scopes[lo + s]]:
                break
            y[s] = 0
            s -= 1
    return total


@kernel
def expected_energy(g: GraphArrays, u: FloatArray, big: float) -> float:
    """Return the expected energy of Kleinberg-Tardos rounding, without the constant.

    Exact for unary and pairwise terms; factors of higher order are taken as if their variables
    were independent. Costs above `big` count as `big` (``inf`` leaves them).

    Parameters
    ----------
    g : GraphArrays
    u : flat (sum k_i,) float64 array, each variable's part a distribution
    big : float

    Complexity: O(k) a diagonal term, O(entries) a table.
    """
    total = 0.0
    for c in range(u.size):
        if u[c] > 0.0:
            total += u[c] * min(g.unary[c], big)
    for e in range(g.edges.shape[0]):
        total += _pair_expectation(g, e, u, big)
    for f in range(g.factor_ptr.size - 1):
        total += _factor_estimate(g, f, u, big)
    return total


@kernel
def _energy(g: GraphArrays, x: IntArray) -> float:
    """Return the energy of a labelling without the constant."""
    total = 0.0
    for i in range(x.size):
        total += g.unary[g.unary_ptr[i] + x[i]]
    for e in range(g.edges.shape[0]):
        total += edge_cost(g, e, x[g.edges[e, 0]], x[g.edges[e, 1]])
    for f in range(g.factor_ptr.size - 1):
        index = 0
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            index = index * g.cardinalities[g.scopes[s]] + x[g.scopes[s]]
        total += g.tables[g.table_ptr[f] + index]
    return total


# ------------------------------------------------------------------ rounding


@kernel
def kleinberg_tardos(
    g: GraphArrays,
    u: FloatArray,
    x: IntArray,
    rng: np.random.Generator,
    rows: IntArray,
    energies: FloatArray,
) -> None:
    """Round ``u`` at random, once for each row of `rows`.

    Repeat: draw a label h and a threshold alpha from (0, 1]; every variable without a label that
    has ``u_ih >= alpha`` gets h; until all have one.

    Parameters
    ----------
    g : GraphArrays
    u : flat (sum k_i,) float64 array, each variable's part a distribution
    x : (n,) int64 array
        The labels of integral variables, which every draw shares; -1 for the f others.
    rng : numpy.random.Generator
    rows : (draws, f) int64 array
        Receives the labels of the variables with ``x = -1``, in their order.
    energies : (draws,) float64 array
        Receives the energies, without the constant.

    Complexity: O(k f) expected and one evaluation of the energy a draw.

    References
    ----------
    J. Kleinberg, E. Tardos, "Approximation algorithms for classification problems with pairwise
    relationships", JACM 49(5), 2002, section 2.
    """
    free = np.flatnonzero(x < 0)
    labelled = x.copy()
    width = 0
    for i in free:
        width = max(width, g.cardinalities[i])
    left = np.empty(free.size, dtype=np.int64)
    for d in range(energies.size):
        n_left = free.size
        for p in range(n_left):
            left[p] = p
        for _ in range(_MAX_PHASES):
            if n_left == 0:
                break
            h = int(rng.random() * width)
            alpha = 1.0 - rng.random()
            kept = 0
            for q in range(n_left):
                p = left[q]
                i = free[p]
                if h < g.cardinalities[i] and u[g.unary_ptr[i] + h] >= alpha:
                    rows[d, p] = h
                else:
                    left[kept] = p
                    kept += 1
            n_left = kept
        for q in range(n_left):
            i = free[left[q]]
            best = 0
            for a in range(g.cardinalities[i]):
                if u[g.unary_ptr[i] + a] > u[g.unary_ptr[i] + best]:
                    best = a
            rows[d, left[q]] = best
        for p in range(free.size):
            labelled[free[p]] = rows[d, p]
        energies[d] = _energy(g, labelled)


@kernel
def _fractional_components(g: GraphArrays, x: IntArray) -> tuple[IntArray, IntArray]:
    """Return the variables with ``x = -1`` component by component, and where each starts."""
    n = x.size
    order = np.empty(n, dtype=np.int64)
    starts = np.empty(n + 1, dtype=np.int64)
    seen = x >= 0
    count = 0
    tail = 0
    head = 0
    for root in range(n):
        if seen[root]:
            continue
        starts[count] = tail
        count += 1
        seen[root] = True
        order[tail] = root
        tail += 1
        while head < tail:
            i = order[head]
            head += 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                j = g.adj_var[p]
                if not seen[j]:
                    seen[j] = True
                    order[tail] = j
                    tail += 1
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    j = g.scopes[s]
                    if not seen[j]:
                        seen[j] = True
                        order[tail] = j
                        tail += 1
    starts[count] = tail
    return order[:tail].copy(), starts[: count + 1].copy()


@kernel
def derandomise(g: GraphArrays, u: FloatArray, x: IntArray, big: float, max_steps: float) -> float:
    """Round ``u`` by the method of conditional expectations over Kleinberg-Tardos phases.

    Each phase takes the label h and threshold alpha under which the expected energy, given all
    labels so far, is smallest; the expectation is that of `expected_energy`, kept up to date term
    by term. Given that a variable is still free, its label and those of the others that are free
    are distributed as at the start, so the expectation of a pair of free variables never changes.
    The phases of different connected components do not depend on each other, so each component is
    rounded on its own.

    Parameters
    ----------
    g : GraphArrays
    u : flat (sum k_i,) float64 array, each variable's part a distribution
    x : (n,) int64 array
        Labels of the integral variables, -1 for the others, which are filled in.
    big : float
        What an infinite cost counts as; more than the spread of all finite costs.
    max_steps : float
        Work limit. Beyond it the rest of `x` stays -1.

    Returns
    -------
    float
        Steps taken.

    Guarantees
    ----------
    For graphs without higher-order factors the energy (infinite costs counted as `big`) is at
    most `expected_energy`; for ML-only Potts terms and unary costs >= 0 that is at most
    twice the value of the LP (Kleinberg and Tardos 2002).

    Complexity
    ----------
    For a component of f variables and m edges: O(k (f + m)) a phase for the diagonal family and
    at most f phases (usually far fewer). Memory O(f k + m).
    """
    order, starts = _fractional_components(g, x)
    n = x.size
    # `belief` is u, and one-hot once a variable has its label.
    belief = u.copy()
    cost = np.empty(u.size)
    in_prefix = np.zeros(n, dtype=np.bool_)
    pair = np.zeros(g.edges.shape[0])
    n_factors = g.factor_ptr.size - 1
    factor = np.zeros(n_factors)
    trial = np.zeros(n_factors)
    steps = 0.0

    # Costs towards everything that has a label are collected at the free variables.
    for i in order:
        si = g.unary_ptr[i]
        for a in range(g.cardinalities[i]):
            value = min(g.unary[si + a], big)
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                if x[g.adj_var[p]] >= 0:
                    value += _half_expectation(g, g.adj_half[p], belief, a, big)
            cost[si + a] = value
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            if x[g.adj_var[p]] < 0 and g.adj_half[p] & 1 == 0:
                e = g.adj_half[p] >> 1
                pair[e] = _pair_expectation(g, e, u, big)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            factor[f] = _factor_estimate(g, f, belief, big)
            trial[f] = factor[f]

    for c in range(starts.size - 1):
        members = order[starts[c] : starts[c + 1]]
        n_left = members.size
        width = 0
        for i in members:
            width = max(width, g.cardinalities[i])
        # For each label the members by falling u, those without it left out.
        ranked = np.empty((width, n_left), dtype=np.int64)
        n_ranked = np.zeros(width, dtype=np.int64)
        keys = np.empty(n_left)
        for h in range(width):
            for q in range(n_left):
                i = members[q]
                keys[q] = -u[g.unary_ptr[i] + h] if h < g.cardinalities[i] else 0.0
            by_key = np.argsort(keys)
            for q in range(n_left):
                if keys[by_key[q]] < 0.0:
                    ranked[h, n_ranked[h]] = members[by_key[q]]
                    n_ranked[h] += 1
        while n_left > 0:
            if steps > max_steps:
                return steps
            best_change = np.inf
            best_h = -1
            best_length = 0
            for h in range(width):
                # Drop those that have got their label since.
                kept = 0
                for q in range(n_ranked[h]):
                    if x[ranked[h, q]] < 0:
                        ranked[h, kept] = ranked[h, q]
                        kept += 1
                n_ranked[h] = kept
                change = 0.0
                for q in range(kept):
                    i = ranked[h, q]
                    si = g.unary_ptr[i]
                    k = g.cardinalities[i]
                    change += cost[si + h]
                    for a in range(k):
                        change -= u[si + a] * cost[si + a]
                    steps += k
                    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                        j = g.adj_var[p]
                        if x[j] >= 0:
                            continue
                        half = g.adj_half[p]
                        e = half >> 1
                        steps += 1.0
                        if g.kinds[e] == TABLE:
                            steps += g.cardinalities[j]
                        if in_prefix[j]:
                            change += min(edge_cost(g, e, h, h), big)
                            change -= _half_expectation(g, half ^ 1, u, h, big)
                        else:
                            change += _half_expectation(g, half, u, h, big) - pair[e]
                    in_prefix[i] = True
                    if g.inc_ptr[i + 1] > g.inc_ptr[i]:
                        for a in range(k):
                            belief[si + a] = 1.0 if a == h else 0.0
                        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                            f = g.slot_factor[g.inc_slot[p]]
                            value = _factor_estimate(g, f, belief, big)
                            steps += g.table_ptr[f + 1] - g.table_ptr[f]
                            change += value - trial[f]
                            trial[f] = value
                    # A threshold cannot separate equal values.
                    last = q + 1 == kept
                    if not last:
                        j = ranked[h, q + 1]
                        last = u[g.unary_ptr[j] + h] < u[si + h]
                    if last and change < best_change:
                        best_change = change
                        best_h = h
                        best_length = q + 1
                for q in range(kept):
                    i = ranked[h, q]
                    in_prefix[i] = False
                    if g.inc_ptr[i + 1] > g.inc_ptr[i]:
                        for a in range(g.unary_ptr[i], g.unary_ptr[i + 1]):
                            belief[a] = u[a]
                        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                            f = g.slot_factor[g.inc_slot[p]]
                            trial[f] = factor[f]
            # Commit the best phase.
            for q in range(best_length):
                i = ranked[best_h, q]
                x[i] = best_h
                for a in range(g.cardinalities[i]):
                    belief[g.unary_ptr[i] + a] = 1.0 if a == best_h else 0.0
            for q in range(best_length):
                i = ranked[best_h, q]
                for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                    j = g.adj_var[p]
                    if x[j] < 0:
                        half = g.adj_half[p] ^ 1
                        for a in range(g.cardinalities[j]):
                            cost[g.unary_ptr[j] + a] += _half_expectation(g, half, belief, a, big)
                for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                    f = g.slot_factor[g.inc_slot[p]]
                    factor[f] = _factor_estimate(g, f, belief, big)
                    trial[f] = factor[f]
            n_left -= best_length
    return steps


# ------------------------------------------------------------------ the solver


def _scale_of_costs(graph: FactorGraph) -> float:
    """Return more than the spread of all finite costs, the surrogate of an infinite one.

    ``inf`` where nothing is infinite, so that no cost is touched.
    """
    if not graph.has_infinite:
        return math.inf
    total = 1.0
    for values in (graph.unary_values, graph.table_values):
        total += float(np.abs(values[np.isfinite(values)]).sum())
    pool = graph.pairwise_values
    finite = np.isfinite(pool)
    largest = float(np.abs(pool[finite]).max()) if finite.any() else 0.0
    weights = graph.edge_weights[np.isfinite(graph.edge_weights)]
    table = graph.edge_kinds == TABLE
    total += largest * float((~table).sum() + np.abs(graph.edge_weights[table]).sum()) + float(
        np.abs(weights).sum()
    )
    return 2.0 * total


def node_distributions(model: LinearModel, x: FloatArray) -> FloatArray:
    """Return the node part of an LP solution as exact distributions, flat (sum k_i,).

    Negative values and sums off 1 within the solver's tolerance are mended; variables that are
    integral within 1e-7 become so.
    """
    u = np.clip(x[: model.n_node_columns], 0.0, 1.0)
    if u.size == 0:
        return u
    sizes = np.diff(model.label_ptr)
    u[u < 1.0 - _INTEGRAL] = 0.0
    top = np.repeat(np.maximum.reduceat(u, model.label_ptr[:-1]), sizes)
    total = np.repeat(np.add.reduceat(u, model.label_ptr[:-1]), sizes)
    u = np.where(top >= _INTEGRAL, u >= _INTEGRAL, u / total)
    return np.asarray(u, dtype=np.float64)


@dataclass(frozen=True)
class LPRelaxation(Solver):
    """Solve the local-polytope relaxation, round it, polish; its value is a proved lower bound.

    The LP is that of `inference_lab.algorithms.linear.model.build_linear_model`: for the diagonal
    family the compact LP of constrained clustering, for everything else the local polytope, of any
    arity. The lower bound is computed from the duals by a formula that holds for any vector, so it
    is valid whatever the LP solver's tolerances; where a rounded labelling meets it, the labelling
    is proved optimal.

    Parameters
    ----------
    backend : str
        ``"highs"`` solves with HiGHS through scipy; any other is the name of a solver in
        ``pulp.listSolvers()``, for instance ``"PULP_CBC_CMD"``. (CBC writes its duals
        with 8 digits, so its bounds fall short by about 1e-8 of the energy and prove less often.)
    draws : int
        Number of random roundings.
    rounding : {"all", "kleinberg-tardos", "derandomised", "argmax"}
        Random phases of Kleinberg and Tardos, the same derandomised by conditional expectations
        (with exact expectations for pairwise terms, so its result is no worse than the mean over
        draws; higher-order factors are estimated with independent labels, and label costs left
        out, without a guarantee),
        the largest label of each variable, or all of these.
    polish : bool
        Descend by ICM from the best few labellings.

    Guarantees
    ----------
    ``lower bound <= optimum`` always. The relaxation is exact on forests, and for pairwise
    submodular terms of two labels, must-links among them. For must-links only, and costs that are
    not negative, derandomised rounding is within twice the bound. Nothing of that kind holds
    with cannot-links: two linked points with equal ``u`` are rounded to the same label.

    Diagnostics
    -----------
    ``columns``, ``rows``, ``build_seconds``, ``lp_seconds``, ``lp_status``; ``lp_value`` (what
    the LP solver reports); ``integral_share`` (share of variables with integral ``u``) and
    ``fractional`` (number of the others); ``rounding`` with the distribution over draws:
    ``draws``, ``feasible`` (draws of finite energy), ``mean``, ``std`` and ``best`` of those,
    ``mean_ratio`` and ``best_ratio`` to the bound where it is positive, ``expected`` (the mean in
    closed form; None with higher-order factors or label costs, where there is none);
    ``argmax_energy``, ``derandomised_energy``, ``polished_energy``; ``notes``.

    Complexity
    ----------
    The simplex method, typically a few iterations a constraint; rounding O(k n) a draw;
    derandomising as in `derandomise`, left out (with a note) where time does not allow it. Memory
    as in `inference_lab.algorithms.linear.model.LinearModel`.

    References
    ----------
    M. Bilenko, S. Basu, "A comparison of inference techniques for semi-supervised clustering with
    hidden Markov random fields", 2004; S. Basu, PhD thesis, 2005, eqs. (A.1)-(A.8).
    J. Kleinberg, E. Tardos, "Approximation algorithms for classification problems with pairwise
    relationships", JACM 49(5), 2002.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "lp-relaxation")
    >>> s.energy, round(s.lower_bound, 9), s.status.value
    (0.5, 0.5, 'optimal')
    """

    label_costs: ClassVar[bool] = True

    backend: str = "highs"
    draws: int = setting(100, at_least=1)
    rounding: Literal["all", "kleinberg-tardos", "derandomised", "argmax"] = "all"
    polish: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        check_backend(self.backend)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Say why not: a temperature, a backend that is not installed, or a matrix too large."""
        return (
            Solver.supports(self, graph, temperature)
            or why_unavailable(self.backend)
            or why_too_large(graph)
        )

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build, solve, bound, round, polish."""
        trivial = sum_of_minima(graph)
        run.bound(trivial)
        if trivial == math.inf:
            return Outcome(infeasible=True)
        if graph.n_variables == 0:
            energy = run.offer(np.empty(0, dtype=np.int64))
            return Outcome(converged=True, claimed_energy=energy)
        if seconds_to_start(model_size(graph).nonzeros) > run.remaining:
            return self._without_lp(graph, run, {"lp_status": "no time for an LP of this size"})
        begin = time.perf_counter()
        model = build_linear_model(graph)
        built = time.perf_counter()
        result = solve_relaxation(
            model, self.backend, time_limit=run.remaining, max_iterations=run.max_iterations
        )
        diagnostics: dict[str, Any] = {
            "columns": model.n_columns,
            "rows": model.n_rows,
            "build_seconds": built - begin,
            "lp_seconds": time.perf_counter() - built,
            "lp_status": result.message,
        }
        if result.infeasible:
            return Outcome(infeasible=True, iterations=result.iterations, diagnostics=diagnostics)
        run.bound(result.bound)
        if result.x is None:
            return self._without_lp(graph, run, diagnostics, result.iterations)
        diagnostics["lp_value"] = result.value
        finished, claimed = self._round(graph, run, model, result.x, diagnostics)
        return Outcome(
            converged=finished,
            iterations=result.iterations,
            claimed_energy=claimed,
            diagnostics=diagnostics,
        )

    def _without_lp(
        self, graph: FactorGraph, run: Run, diagnostics: dict[str, Any], iterations: int = 0
    ) -> Outcome:
        """Answer from the cheapest labels where there is no solution of the LP to round."""
        labels = unary_minimum(graph)
        run.offer(labels)
        seconds = run.remaining + _AFTER_THE_END
        sweeps = min(_POLISH_SWEEPS, seconds / (_SECONDS_A_SWEEP * n_entries(graph)))
        if self.polish and sweeps >= 1.0:
            descend_on(graph, labels, run.rng.permutation(labels.size), int(sweeps))
            run.offer(labels)
        return Outcome(iterations=iterations, diagnostics=diagnostics)

    def _round(
        self,
        graph: FactorGraph,
        run: Run,
        model: LinearModel,
        solution: FloatArray,
        diagnostics: dict[str, Any],
    ) -> tuple[bool, float]:
        """Round and polish; return whether all was done, and the best energy by own account."""
        g = graph.arrays
        u = node_distributions(model, solution)
        argmax = model.labels(u)
        top = u[graph.unary_ptr[:-1] + argmax]
        shared = np.where(top == 1.0, argmax, -1)
        free = np.flatnonzero(shared < 0)
        diagnostics["fractional"] = int(free.size)
        diagnostics["integral_share"] = 1.0 - free.size / graph.n_variables
        notes: list[str] = []
        found: dict[bytes, tuple[float, IntArray]] = {}

        def keep(labels: IntArray) -> float:
            energy = _energy(g, labels) + graph.constant
            energy += float(graph.label_costs.of(labels[None])[0])
            found[labels.tobytes()] = (energy, labels)
            run.offer(labels)
            return float(energy)

        every = self.rounding == "all"
        # Without fractional variables all kinds of rounding are the same.
        if every or self.rounding == "argmax" or free.size == 0:
            diagnostics["argmax_energy"] = keep(argmax)
        finished = True
        if every or self.rounding == "kleinberg-tardos":
            energies = self._draw(graph, run, u, shared, keep)
            finished = energies.size == self.draws
            if not finished:
                notes.append(f"time for {energies.size} of {self.draws} draws")
            diagnostics["rounding"] = self._distribution(graph, run, u, energies)
        if every or self.rounding == "derandomised":
            rounded = self._derandomise(graph, run, u, shared)
            if rounded is None:
                finished = finished and every
                notes.append("derandomised rounding left out: it would take too long")
            else:
                diagnostics["derandomised_energy"] = keep(rounded)
        if not found:
            keep(argmax)
        if self.polish and not run.proved:
            candidates = sorted(found.values(), key=lambda pair: pair[0])[:_POLISHED]
            order = run.rng.permutation(graph.n_variables)
            for _, start in candidates:
                if run.should_stop():
                    finished = False
                    notes.append("no time to polish all candidates")
                    break
                labels = start.copy()
                descend_on(graph, labels, order, _POLISH_SWEEPS)
                energy = keep(labels)
                diagnostics["polished_energy"] = min(
                    energy, diagnostics.get("polished_energy", math.inf)
                )
        if notes:
            diagnostics["notes"] = notes
        return finished, min(energy for energy, _ in found.values())

    def _draw(
        self,
        graph: FactorGraph,
        run: Run,
        u: FloatArray,
        shared: IntArray,
        keep: Any,
    ) -> FloatArray:
        """Round at random, hand the few best labellings to `keep`, return all energies."""
        free = np.flatnonzero(shared < 0)
        if free.size == 0:
            return np.full(self.draws, keep(shared))
        # Blocks of draws small enough that the time limit is looked at often.
        work = graph.n_variables + graph.n_edges + 10 * free.size + graph.table_values.size
        block = max(1, min(self.draws, _BLOCK_WORK // work))
        energies: list[FloatArray] = []
        best: list[tuple[float, IntArray]] = []
        done = 0
        while done < self.draws and not (done and run.should_stop()):
            size = min(block, self.draws - done)
            rows = np.empty((size, free.size), dtype=np.int64)
            values = np.empty(size)
            kleinberg_tardos(graph.arrays, u, shared, run.rng, rows, values)
            if graph.n_label_costs:
                drawn = np.tile(shared, (size, 1))
                drawn[:, free] = rows
                values += graph.label_costs.of(drawn)
            energies.append(values + graph.constant)
            best += [
                (float(values[d]), rows[d].copy())
                for d in np.argsort(values, kind="stable")[:_POLISHED]
            ]
            best = sorted(best, key=lambda pair: pair[0])[:_POLISHED]
            done += size
        for _, row in best:
            labels = shared.copy()
            labels[free] = row
            keep(labels)
        return np.concatenate(energies)

    def _distribution(
        self, graph: FactorGraph, run: Run, u: FloatArray, energies: FloatArray
    ) -> dict[str, Any]:
        """Describe the energies of the draws."""
        finite = energies[np.isfinite(energies)]
        bound = run.lower_bound
        figures: dict[str, Any] = {"draws": int(energies.size), "feasible": int(finite.size)}
        if finite.size:
            figures |= {
                # Relative to the best, so that equal energies have exactly that mean.
                "mean": float(finite.min() + (finite - finite.min()).mean()),
                "std": float((finite - finite.min()).std()),
                "best": float(finite.min()),
            }
            if bound > 0:
                figures["mean_ratio"] = figures["mean"] / bound
                figures["best_ratio"] = figures["best"] / bound
        figures["expected"] = (
            None
            if graph.n_factors or graph.n_label_costs
            else expected_energy(graph.arrays, u, math.inf) + graph.constant
        )
        return figures

    @staticmethod
    def _derandomise(
        graph: FactorGraph, run: Run, u: FloatArray, shared: IntArray
    ) -> IntArray | None:
        """Round by conditional expectations; None where time does not allow it."""
        labels = shared.copy()
        limit = min(_MAX_STEPS, 0.5 * run.remaining * _STEPS_PER_SECOND)
        derandomise(graph.arrays, u, labels, _scale_of_costs(graph), limit)
        return labels if (labels >= 0).all() else None
