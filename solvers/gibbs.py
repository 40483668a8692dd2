"""Gibbs sampling: marginals with standard errors, from chains of labellings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, least_labels
from inference_lab.kernels.messages import local_costs, unflatten
from inference_lab.kernels.struct import One, record
from inference_lab.specs.settings import setting

#: Steps of a kernel between two checks of the clock: a few milliseconds.
_STEPS = 1_000_000
#: A label this many temperatures above the best is never drawn (probability 2e-22).
_CUTOFF = 50.0
#: Chains whose split R-hat is below this everywhere are taken to agree (Gelman et al. 2013).
_AGREEMENT = 1.1
#: A sample is offered when its energy is below the best by more than this share of it.
_RELATIVE_GAIN = 1e-12


class GibbsWorkspace(NamedTuple):
    """Scratch arrays as long as the largest cardinality."""

    cost: FloatArray
    infinite: IntArray
    weight: FloatArray


class DrawNumbers:
    """The single numbers of a chain."""

    #: Energy of the labelling, updated by finite costs.
    energy: float
    #: Least such energy at the end of a sweep.
    lowest: float
    #: Visits of the last sweep that left a violated hard term.
    violated: int


class Draws(NamedTuple):
    """The accumulated results of a chain."""

    #: (like the unaries): sums of the conditionals.
    sums: FloatArray
    #: (n,): the labelling of least energy at the end of a sweep.
    best: IntArray
    #: (1,): the single numbers.
    now: One[DrawNumbers]


def start_draws(graph: FactorGraph) -> Draws:
    """Allocate the results of a chain."""
    n = graph.n_variables
    now = record(DrawNumbers)
    return Draws(np.zeros(graph.unary_values.size), np.empty(n, dtype=np.int64), now)


@lean_kernel
def gibbs_visits(
    g: GraphArrays,
    x: IntArray,
    order: IntArray,
    uniforms: FloatArray,
    temperature: float,
    draws: Draws,
    work: GibbsWorkspace,
) -> None:
    """Draw the label of each variable in `order` from its conditional, in place."""
    # Labels of infinite unary are excluded, and so are labels that violate more hard terms than
    # others.
    n = x.size
    energy, violated = draws.now[0].energy, draws.now[0].violated
    cost = work.cost
    weight = work.weight
    for v in range(order.size):
        i = order[v]
        k = g.cardinalities[i]
        first = g.unary_ptr[i]
        local_costs(g, x, i, cost, work.infinite)
        fewest = -1
        for a in range(k):
            count = work.infinite[a]
            if not np.isinf(g.unary[first + a]) and (fewest < 0 or count < fewest):
                fewest = count
        minimum = np.inf
        for a in range(k):
            weight[a] = np.inf
            if not np.isinf(g.unary[first + a]) and work.infinite[a] == fewest:
                weight[a] = cost[a]
                minimum = min(minimum, weight[a])
        total = 0.0
        for a in range(k):
            above = (weight[a] - minimum) / temperature
            weight[a] = np.exp(-above) if above < _CUTOFF else 0.0
            total += weight[a]
        rest = uniforms[v] * total
        label = -1
        for a in range(k):
            if weight[a] > 0.0:
                # The last label with weight is the fallback if rounding leaves a rest.
                if rest >= 0.0:
                    label = a
                rest -= weight[a]
                draws.sums[first + a] += weight[a] / total
        energy += cost[label] - cost[x[i]]
        x[i] = label
        violated += fewest > 0
        if (v + 1) % n == 0 or v + 1 == order.size:
            minimum = draws.now[0].lowest
            if violated == 0 and energy < minimum - _RELATIVE_GAIN * abs(minimum):
                draws.now[0].lowest = energy
                for j in range(n):
                    draws.best[j] = x[j]
            if v + 1 < order.size:
                violated = 0
    draws.now[0].energy = energy
    draws.now[0].violated = violated


class ChainAverages:
    """Averages of probabilities along chains, with their errors, in memory linear in the graph.

    Each chain adds one probability per label and draw. Draws are averaged over *batches* and over
    the two halves of every chain. The spread of batches gives the standard error if they are long
    against the chain's memory. The spread of halves shows whether chains agree (split R-hat).
    Each chain has at least 4 draws; the first ``skipped`` are left out, so that the others fill
    whole batches.

    References
    ----------
    J. M. Flegal, G. L. Jones, "Batch means and spectral variance estimators in Markov chain Monte
    Carlo", Annals of Statistics 38(2), 2010.
    A. Gelman et al., "Bayesian data analysis", 3rd ed., 2013, sec. 11.4.
    """

    def __init__(self, size: int, chains: int, draws: int) -> None:
        # As many batches as draws in a batch, with an even number of batches per chain.
        self.batches_per_half = max(1, math.isqrt(draws) // 2)
        self.batch_length = draws // (2 * self.batches_per_half)
        self.skipped = draws - 2 * self.batches_per_half * self.batch_length
        self.batch = np.zeros((chains, size))
        self.half = np.zeros((chains, size))
        self.added = np.zeros(chains, dtype=np.int64)
        # Sums and sums of squares of the means of batches, and of halves.
        self.batch_sum, self.batch_square = np.zeros(size), np.zeros(size)
        self.half_sum, self.half_square = np.zeros(size), np.zeros(size)
        self.batches = self.halves = 0

    def room(self, chain: int) -> int:
        """Return the number of draws that the current batch of a chain still takes."""
        return int(self.batch_length - self.added[chain] % self.batch_length)

    def add(self, chain: int, probabilities: FloatArray, draws: int = 1) -> None:
        """Add the sum of `draws` draws of a chain, at most as many as there is `room` for."""
        self.batch[chain] += probabilities
        self.added[chain] += draws
        if self.added[chain] % self.batch_length:
            return
        mean = self.batch[chain] / self.batch_length
        self.batch[chain] = 0.0
        self.batch_sum += mean
        self.batch_square += mean**2
        self.batches += 1
        self.half[chain] += mean
        if self.added[chain] // self.batch_length % self.batches_per_half == 0:
            mean = self.half[chain] / self.batches_per_half
            self.half[chain] = 0.0
            self.half_sum += mean
            self.half_square += mean**2
            self.halves += 1

    def mean(self, sizes: IntArray) -> FloatArray:
        """Return the averages, normalised for each variable; there must be a draw."""
        total = self.batch_sum * self.batch_length + self.batch.sum(axis=0)
        sums = np.add.reduceat(total, starts_of(sizes)[:-1])
        return np.asarray(total / np.repeat(sums, sizes))

    def errors(self) -> tuple[FloatArray, FloatArray]:
        """Return standard error and R-hat of each average; NaN where there were too few draws."""
        # The standard error is the larger of the estimates by batches and by halves of chains,
        # because only the second shows that chains have not mixed. R-hat relates the variance of
        # the halves' means to the variance of the indicator ``[x_i = a]`` within them.
        by_batches = _variance(self.batch_sum, self.batch_square, self.batches)
        by_halves = _variance(self.half_sum, self.half_square, self.halves)
        stderr = np.sqrt(
            np.fmax(by_batches / max(1, self.batches), by_halves / max(1, self.halves))
        )
        within = np.maximum((self.half_sum - self.half_square) / max(1, self.halves), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(by_halves == 0.0, 0.0, by_halves / within)
        return stderr, np.sqrt(1.0 + ratio)

    def summary(self, graph: FactorGraph, mean: FloatArray) -> dict[str, Any]:
        """Return the errors of the averages, as diagnostics: arrays and their extremes."""
        stderr, rhat = self.errors()
        ptr = graph.unary_ptr[:-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            size = mean * (1.0 - mean) / stderr**2
        # A label that is certain or excluded gives no information on the size of the sample.
        size[(mean <= 0.0) | (mean >= 1.0)] = np.inf
        stderr_of = np.maximum.reduceat(stderr, ptr)
        size_of = np.minimum.reduceat(size, ptr)
        rhat_of = np.maximum.reduceat(rhat, ptr)
        return {
            "stderr": unflatten(graph, stderr),
            "variable_stderr": stderr_of,
            "effective_sample_size": size_of,
            "rhat": rhat_of,
            "max_stderr": float(stderr_of.max()),
            "mean_stderr": float(stderr_of.mean()),
            "min_effective_sample_size": float(size_of.min()),
            "max_rhat": float(rhat_of.max()),
        }


def _variance(total: FloatArray, square: FloatArray, count: int) -> FloatArray:
    """Return the variance of `count` numbers with these sums; NaN for fewer than two."""
    if count < 2:
        return np.full(total.size, np.nan)
    spread = square - total**2 / count
    # The remainder of a difference of equal numbers is rounding error.
    spread[spread <= 1e-14 * square] = 0.0
    return np.asarray(spread / (count - 1))


def draw_independent(
    graph: FactorGraph, temperature: float, rng: np.random.Generator, draws: int
) -> IntArray:
    """Draw labellings from the unaries alone, ``exp(-sum_i theta_i / T)`` normalised."""
    # The label of least cost less Gumbel noise is a draw from this distribution.
    noise = rng.gumbel(size=(draws, graph.unary_values.size))
    return np.array([least_labels(graph, graph.unary_values / temperature - row) for row in noise])


@dataclass(frozen=True)
class Gibbs(IterativeSolver["_GibbsSampler"]):
    """Gibbs sampling from ``p(x) ~ exp(-E(x) / T)`` (Geman, Geman 1984).

    Each sweep draws the label of every variable from its conditional given all others. Marginals
    are averages of these conditionals (Rao-Blackwellised; Gelfand, Smith 1990) over all chains
    after burn-in. The best sample and the most probable labels are offered as labellings.

    Violated hard terms count before costs: no move of a chain violates more of them.

    Parameters
    ----------
    sweeps : int
        Draws kept of each chain, at least 4.
    burn_in : int
        Sweeps of each chain before the first draw is kept.
    chains : int
        Independent chains, interleaved. The first starts from the labelling given to the run, if
        any, the others from draws of the unaries alone.

    Guarantees
    ----------
    ``exp(-E / T)`` is stationary. The averages tend to the marginals if single changes through
    feasible labellings connect all feasible labellings. Without hard terms over two variables or
    more this holds, and the diagnostic ``ergodic`` is True. With them it may fail (two variables
    that must be equal never change), and neither standard errors nor R-hat reveal it unless chains
    start on both sides.

    `converged` means that all sweeps were made and split R-hat is below 1.1 everywhere.

    Diagnostics
    -----------
    ``stderr`` (like the marginals): the larger of two standard errors, by batch means and by
    half-chain means. For each variable ``variable_stderr`` (largest), ``effective_sample_size``
    (smallest) and ``rhat`` (split R-hat, largest). ``max_stderr``, ``mean_stderr``,
    ``min_effective_sample_size``, ``max_rhat``. ``burned_in`` (False: a limit cut burn-in short,
    and all draws were averaged), ``draws``, ``feasible_chains``, ``ergodic``.

    Complexity
    ----------
    A sweep costs O(k + degree) a variable for diagonal terms, O(k) more a table, O(k * arity) more
    a higher-order factor. Memory: n labels and 2 numbers a label for each chain,
    5 numbers a label besides.

    References
    ----------
    S. Geman, D. Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration
    of images", IEEE PAMI 6(6), 1984.
    A. E. Gelfand, A. F. M. Smith, "Sampling-based approaches to calculating marginal densities",
    JASA 85, 1990, eq. (2.9).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "gibbs", temperature=1.0)
    >>> s.marginals.round(2)
    array([[0.7 , 0.3 ],
           [0.41, 0.59]])
    >>> s.diagnostics["max_stderr"] < 0.01
    True
    """

    version: ClassVar[int] = 2

    sweeps: int = setting(1000, at_least=4)
    burn_in: int = setting(100, at_least=0)
    chains: int = setting(4, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Support every graph at T > 0."""
        if temperature > 0.0:
            return None
        return "gibbs samples at T > 0; simulated-annealing finds labellings in this way"

    @property
    def most_iterations(self) -> int:
        """Limit on the sweeps of a chain, burn-in included."""
        return self.burn_in + self.sweeps

    def start(self, graph: FactorGraph, run: Run) -> _GibbsSampler | Outcome:
        """Start the chains."""
        if graph.n_variables:
            return _GibbsSampler(self, graph, run)
        run.offer(np.empty(0, dtype=np.int64))
        return Outcome(
            converged=True,
            marginals=unflatten(graph, np.empty(0)),
            log_partition=-graph.constant / run.temperature,
            log_partition_kind="exact",
        )

    def step(self, state: _GibbsSampler, run: Run, done: int) -> Progress | None:
        """Sweep every chain as often as fits between two checks of the clock."""
        if done == self.burn_in:
            state.forget()
        sweeps, keep = self.stretch(done, state)
        if run.max_iterations is not None:
            sweeps = min(sweeps, run.max_iterations - done)
        return Progress(iterations=sweeps) if state.advance(sweeps, keep) else None

    def finish(self, state: _GibbsSampler, run: Run, outcome: Outcome) -> Outcome:
        """Average the draws, and offer the most probable labels."""
        graph = state.graph
        done = outcome.iterations
        hard = (graph.pairwise_values, graph.edge_weights, graph.table_values)
        draws = int(state.averages.added.sum())
        outcome.diagnostics = {
            "burned_in": done > self.burn_in,
            "ergodic": all(np.isfinite(values).all() for values in hard),
            "feasible_chains": int(state.feasible.sum()),
            "draws": draws,
        }
        if draws:
            mean = state.averages.mean(graph.cardinalities)
            outcome.marginals = unflatten(graph, mean)
            outcome.diagnostics |= state.averages.summary(graph, mean)
            agree = outcome.diagnostics["max_rhat"] < _AGREEMENT
            outcome.converged = agree and done == self.most_iterations
            run.offer(least_labels(graph, -mean))
        if not state.feasible.any():
            run.offer(state.x[0])
        return outcome

    def stretch(self, done: int, state: _GibbsSampler) -> tuple[int, bool]:
        """Return the number of sweeps to make at once, and whether to average them."""
        n_samples = done - self.burn_in
        if n_samples < 0:
            # Burn-in is averaged, too, in case the time runs out before its end.
            return min(-n_samples, state.averages.room(0), state.sweeps_at_once), True
        skipped = state.averages.skipped
        if n_samples < skipped:
            return min(skipped - n_samples, state.sweeps_at_once), False
        return min(state.averages.room(0), state.sweeps_at_once), True


class _GibbsSampler:
    """The chains of a run and their averages, with the arrays of `gibbs_visits`."""

    def __init__(self, settings: Gibbs, graph: FactorGraph, run: Run) -> None:
        self.graph, self.run = graph, run
        n, width = graph.n_variables, int(graph.cardinalities.max())
        self.work = GibbsWorkspace(
            np.empty(width), np.empty(width, dtype=np.int64), np.empty(width)
        )
        self.draws = start_draws(graph)
        self._sizes = graph.unary_values.size, settings.chains, settings.sweeps
        self.averages = ChainAverages(*self._sizes)
        steps = 10.0 + width * (1.0 + float(graph.degrees.mean()))
        self.block = max(1, int(_STEPS / steps))
        self.sweeps_at_once = max(1, self.block // n)
        self.order = np.arange(n, dtype=np.int64)
        self.x = draw_independent(graph, run.temperature, run.rng, settings.chains)
        if run.initial is not None:
            self.x[0] = run.initial
        # The energy of a chain is unknown until it is feasible and was offered.
        self.energy = np.full(settings.chains, np.inf)
        self.feasible: npt.NDArray[np.bool_] = np.zeros(settings.chains, dtype=np.bool_)

    def visit(self, x: IntArray, sweeps: int, energy: float, lowest: float) -> bool:
        """Make `sweeps` sweeps of one chain; return False if time ran out on the way."""
        # ``draws`` then describe these sweeps, which start from `energy`. Only energies below
        # `lowest` are recorded.
        rng = self.run.rng
        self.draws.sums[:] = 0.0
        now = self.draws.now[0]
        now.energy = energy
        now.lowest = lowest
        now.violated = 0
        order = self.order if sweeps == 1 else np.tile(self.order, sweeps)
        step = self.block if sweeps == 1 else order.size
        for lo in range(0, order.size, step):
            if lo and self.run.remaining <= 0.0:
                return False
            part = order[lo : lo + step]
            gibbs_visits(
                self.graph.arrays,
                x,
                part,
                rng.random(part.size),
                self.run.temperature,
                self.draws,
                self.work,
            )
        return True

    def advance(self, sweeps: int, keep: bool) -> bool:
        """Make `sweeps` sweeps of every chain; return whether all were finished."""
        for chain, x in enumerate(self.x):
            best = self.run.best_energy
            if not self.visit(x, sweeps, float(self.energy[chain]), best):
                return False
            now = self.draws.now[0]
            self.feasible[chain] = now.violated == 0
            if keep:
                self.averages.add(chain, self.draws.sums, sweeps)
            self.energy[chain] = now.energy
            if self.feasible[chain] and math.isinf(now.energy):
                self.energy[chain] = self.run.offer(x)
            elif now.lowest < best:
                self.run.offer(self.draws.best)
        return True

    def forget(self) -> None:
        """End burn-in: drop the averages so far."""
        # Chains that are still infeasible continue from a feasible one.
        if self.feasible.any():
            inside = int(np.flatnonzero(self.feasible)[0])
            self.x[~self.feasible] = self.x[inside]
            self.energy[~self.feasible] = self.energy[inside]
        self.averages = ChainAverages(*self._sizes)
