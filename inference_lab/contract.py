"""The contract of solvers: `Solver.run` takes a graph and a `Run`, and returns an `Outcome`.

The `Run` holds temperature, budget, random generator and incumbent. `inference_lab.solving.solve`
makes it, and returns a `Solution` with an energy evaluated by the graph.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.precision import energy_step, typical_range
from inference_lab.specs.settings import Settings

__all__ = [
    "OPTIMALITY_TOLERANCE",
    "Marginals",
    "Outcome",
    "Run",
    "Solution",
    "Solver",
    "Status",
    "TracePoint",
    "UnsolvedError",
    "UnsolvedWarning",
    "energy_scale",
    "proof_tolerance",
    "proves",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


#: A bound above an energy by at most this share of it is above by rounding.
_ABOVE = 2.0**-40

#: Where rounding errors are a larger share of the energy, nothing is proved to be optimal.
OPTIMALITY_TOLERANCE = 1e-8

#: Marginals: an (n, k) array, or a list of 1-D arrays where cardinalities differ.
Marginals: TypeAlias = "FloatArray | list[FloatArray]"


class Status(StrEnum):
    """How a run ended; each member has a sentence. The harness sets the last three.

    Examples
    --------
    >>> from inference_lab.contract import Status
    >>> Status.LIMIT.value, Status.LIMIT == "limit", Status.UNSUPPORTED.sentence
    ('limit', True, "the method's theory does not cover this problem")
    """

    OPTIMAL = "optimal", "the answer is proved to be exact"
    CONVERGED = "converged", "the method reached its own fixed point"
    LIMIT = "limit", "a limit stopped the method before it converged"
    INFEASIBLE = "infeasible", "it is proved that every labelling has infinite energy"
    UNSUPPORTED = "unsupported", "the method's theory does not cover this problem"
    NOT_INSTALLED = "not-installed", "the method needs a package that is not installed"
    ERROR = "error", "the method failed"
    TIMEOUT = "timeout", "it ran far beyond its time limit and was killed"
    MEMORY = "memory", "it exceeded its memory limit"
    CRASH = "crash", "its process died"

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Status:
        """Make a string member with its sentence."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member


class TracePoint(NamedTuple):
    """One line of a run's history.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "icm").trace[-1].best_energy
    0.5
    """

    seconds: float
    energy: float
    best_energy: float
    lower_bound: float


def proves(energy: float, lower_bound: float, tolerance: float) -> bool:
    """Whether a lower bound shows that a labelling of this energy is optimal.

    It may be below the energy by the tolerance, and above it by rounding alone.

    Parameters
    ----------
    energy, lower_bound : float
    tolerance : float
        In the unit of the costs, see `proof_tolerance`.

    Returns
    -------
    bool

    Examples
    --------
    >>> proves(2.0, 2.0 - 1e-9, 1e-8), proves(2.0, 1.9, 1e-8), proves(2.0, 2.1, 0.5)
    (True, False, False)
    """
    above = min(tolerance, _ABOVE * max(abs(energy), abs(lower_bound)))
    return math.isfinite(energy) and -above <= energy - lower_bound <= tolerance


def proof_tolerance(graph: FactorGraph, energy: float) -> float:
    """Return the distance from a lower bound to an energy at which the bound proves it optimal.

    It is the rounding error of energies of this size, `FactorGraph.resolution_at`, and never a
    share of the energy: a constant, or a penalty that all labellings pay, makes no gap smaller.
    Where all energies are multiples of a step, see `energy_step`, every distance below a step is a
    proof. It is 0 where rounding exceeds `OPTIMALITY_TOLERANCE` of the energy, because large costs
    cancel; no bound proves anything there.

    Parameters
    ----------
    graph : FactorGraph
    energy : float

    Returns
    -------
    float

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.3], [0.7, 0.0]], [(0, 1)], [math.pi])
    >>> proof_tolerance(g, 0.7) < 1e-15
    True
    >>> round(proof_tolerance(il.FactorGraph.potts([[0.0, 4.0], [6.0, 0.0]], [], []), 0.0), 6)
    2.0
    """
    return _tolerance(graph, energy, graph.resolution_at(energy), energy_step(graph))


def _tolerance(graph: FactorGraph, energy: float, rounding: float, step: float) -> float:
    """Return the tolerance of proofs for a known rounding error and a known step."""
    if step > 4.0 * rounding:
        # Below a whole step, despite the rounding of both sides.
        return (1.0 - 1e-9) * step - 2.0 * rounding
    resolved = rounding <= OPTIMALITY_TOLERANCE * max(energy_scale(graph), abs(energy))
    return rounding if resolved else 0.0


def energy_scale(graph: FactorGraph) -> float:
    """Return the scale of tolerances on energies: the graph's magnitude, but at most 1.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    float

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> energy_scale(g), energy_scale(g.with_unary([0.0] * 4))
    (1.0, 0.5)
    """
    return min(1.0, graph.magnitude) or 1.0


#: Largest residual of a method's arithmetic that a proof may leave open, relative to the range of
#: a typical term.
_LARGEST_RESIDUAL = 2.0**-27
#: Residuals of at most so many rounding errors of the energy count, too.
_FEW = 16.0

#: An evaluation that takes this many seconds is timed once, a shorter one three times.
_LONG_EVALUATION = 0.01


def run_bytes(graph: FactorGraph, method: int) -> int:
    """Estimate the bytes of a run: adjacency, labellings, and the arrays of the method.

    Parameters
    ----------
    graph : FactorGraph
    method : int
        The bytes of the arrays of the method.

    Returns
    -------
    int

    Examples
    --------
    >>> import inference_lab as il
    >>> run_bytes(il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5]), 20)
    152
    """
    # The labelling of the method, the offered one, the best one and its copy. Extremes of terms
    # other than Potts terms need two copies of their costs, before the method begins.
    copies = 2 * 8 * graph.pairwise_values.size if graph.edge_kinds.any() else 0
    return graph.adjacency_bytes + 4 * 8 * graph.n_variables + max(copies, method)


class Run:
    """The state of one run: the solver's inputs, and the incumbent it reports to.

    A bound within `tolerance_at` of the best energy is raised to it, which proves it. Other bounds
    are lowered by the rounding error of the graph, if this is too large for any proof.

    Attributes
    ----------
    graph : FactorGraph
        The graph to minimise.
    resolution : float
        The rounding error of bounds: of its largest costs, or less for a method that lowers those
        that are never paid, see `inference_lab.algorithms.payable_costs.payable`.
    temperature : float
        0 for the best labelling, T > 0 for marginals of ``exp(-E / T)``.
    initial : (n,) int64 array or None
        A labelling to start from, if the solver can; it has already been offered.
    initial_marginals : float64 array or None
        Marginals to start from at T > 0, in the layout of ``graph.arrays.unary``.
    max_iterations : int or None
        Limit on sweeps (or the solver's own kind of iteration).
    time_limit : float or None
        Seconds of the run's clock, measured from its start.
    absolute_gap : float
        A gap that the user accepts as a proof, in the unit of the costs.
    clock : callable
        Returns the time in seconds; it stops during compilation. Nested runs share it.
    best_labels, best_energy, lower_bound, trace
        The incumbent: best labelling offered so far, its energy, best bound so far, history.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> from inference_lab.contract import Run
    >>> run = Run(g, max_iterations=10)
    >>> run.offer([0, 1]), run.best_labels.tolist(), run.should_stop(10)
    (0.5, [0, 1], True)
    """

    def __init__(
        self,
        graph: FactorGraph,
        *,
        temperature: float = 0.0,
        seed: int | np.random.Generator | None = None,
        initial: IntArray | None = None,
        initial_marginals: FloatArray | None = None,
        time_limit: float | None = None,
        max_iterations: int | None = None,
        absolute_gap: float = 0.0,
        on_offer: Callable[[TracePoint], None] | None = None,
        on_improve: Callable[[IntArray, float, float], None] | None = None,
        stopwatch: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.graph = graph
        self.resolution = graph.largest_error
        self.temperature = temperature
        self._seed = seed
        self.initial = initial
        self.initial_marginals = initial_marginals
        self.time_limit = time_limit
        self.max_iterations = max_iterations
        self.absolute_gap = absolute_gap
        self.best_labels: IntArray | None = None
        self.best_energy = math.inf
        self.lower_bound = -math.inf
        # The residual of that bound.
        self._residual = 0.0
        self.trace: list[TracePoint] = []
        # The best labelling and its energy, which solvers cannot replace.
        self._incumbent: tuple[IntArray, float] | None = None
        self._on_offer = on_offer
        self._on_improve = on_improve
        # Seconds in `paused`, which are not the solver's time.
        self._paused = 0.0
        self._stopped = False
        self.clock: Callable[[], float] = lambda: clock() - stopwatch()
        self._start = clock()
        if initial is not None:
            self.offer(initial)

    @cached_property
    def rng(self) -> np.random.Generator:
        """The only source of randomness a solver may use; made at its first use."""
        return np.random.default_rng(self._seed)

    @property
    def seconds(self) -> float:
        """The solver's own time so far, without evaluation, recording and loading."""
        # The difference can be negative by rounding.
        return max(0.0, self.clock() - self._start - self._paused)

    @property
    def remaining(self) -> float:
        """Seconds left under the time limit (``inf`` without one), never negative."""
        if self.time_limit is None:
            return math.inf
        return max(0.0, self.time_limit - (self.clock() - self._start))

    def estimated_seconds(self, evaluations: float) -> float:
        """Estimate the seconds that this many evaluations of the energy take.

        Parameters
        ----------
        evaluations : float

        Returns
        -------
        float

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> 0 < Run(g).estimated_seconds(1000) < 10
        True
        """
        return evaluations * self._evaluation

    @cached_property
    def _evaluation(self) -> float:
        labels = np.zeros(self.graph.n_variables, dtype=np.int64)

        def seconds() -> float:
            begin = self.clock()
            self.graph.energy(labels)
            return self.clock() - begin

        # The least of three, because another process may interrupt a short one.
        taken = seconds()
        return taken if taken > _LONG_EVALUATION else min(taken, seconds(), seconds())

    def should_stop(self, iterations: int = 0) -> bool:
        """Whether the budget is used up after this many iterations.

        Parameters
        ----------
        iterations : int
            Number of completed iterations.

        Returns
        -------
        bool

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [Run(g, max_iterations=2).should_stop(done) for done in range(4)]
        [False, False, True, True]
        """
        if self.max_iterations is not None and iterations >= self.max_iterations:
            return True
        return self.time_limit is not None and self.remaining <= 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the solver's clock, for work that only observes it.

        Returns
        -------
        context manager

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = Run(g)
        >>> with run.paused():
        ...     picture = str(g)  # takes none of the solver's time
        """
        if self._stopped:
            # The outer pause subtracts the time.
            yield
            return
        begin = self.clock()
        self._stopped = True
        try:
            yield
        finally:
            self._stopped = False
            self._paused += self.clock() - begin

    def offer(self, labels: npt.ArrayLike) -> float:
        """Report a labelling; keep it if it is the best so far; return its energy.

        Parameters
        ----------
        labels : (n,) array of int

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the labels do not fit the graph.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = Run(g)
        >>> run.offer([1, 1]), run.offer([0, 1]), run.offer([1, 1]), run.best_energy
        (1.0, 0.5, 1.0, 0.5)
        """
        now = self.seconds
        with self.paused():
            checked = self.graph.check_labels(labels)
            if self.best_labels is not None and np.array_equal(checked, self.best_labels):
                energy = self.best_energy
            else:
                energy = self.graph.energy_of(checked)
                if self.best_labels is None or energy < self.best_energy:
                    self._incumbent = checked, energy
                    self.best_labels = checked.copy()
                    self.best_energy = energy
                    self.lower_bound = self._met(self.lower_bound, self._residual)
                    if self._on_improve is not None:
                        self._on_improve(self.best_labels, energy, now)
            self._record(now, energy)
        return energy

    def incumbent_energy(self) -> float:
        """Return the energy of the best labelling, ``inf`` without one.

        If a solver has assigned `best_labels` itself, these are evaluated again.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the labelling does not fit the graph.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = Run(g)
        >>> run.offer([0, 1]), run.incumbent_energy()
        (0.5, 0.5)
        """
        if self.best_labels is None:
            return math.inf
        if self._incumbent is not None and np.array_equal(self.best_labels, self._incumbent[0]):
            return self._incumbent[1]
        return float(self.graph.energy(self.best_labels))

    def bound(self, value: float, residual: float = 0.0) -> None:
        """Report a proved lower bound on the minimum energy; the largest is kept.

        Parameters
        ----------
        value : float
        residual : float
            The error that the method's own arithmetic leaves, in the unit of the costs, such as
            that of costs rounded to integers: it has excluded all labellings that are better than
            the best one by more. A bound this close to the best energy proves it. It counts up to
            2^-27 of the range of a typical term, or 16 rounding errors of the energy; more is no
            rounding error.

        Raises
        ------
        ValueError
            If the bound is NaN.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = Run(g)
        >>> run.bound(0.2), run.bound(0.1)
        (None, None)
        >>> run.lower_bound
        0.2
        """
        if math.isnan(value):
            raise ValueError("a lower bound cannot be NaN")
        if _tolerance(self.graph, value, self.resolution, self._step) == 0.0:
            value -= self.resolution
        value = self._met(float(value), residual)
        if value > self.lower_bound:
            now = self.seconds
            with self.paused():
                self.lower_bound, self._residual = value, residual
                self._record(now, self.best_energy)

    def is_resolved(self, energy: float) -> bool:
        """Whether rounding at this energy is below `OPTIMALITY_TOLERANCE` of it.

        Parameters
        ----------
        energy : float

        Returns
        -------
        bool

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> Run(g).is_resolved(0.5), Run(g.with_unary([1e15, -1e15, 0.0, 0.0])).is_resolved(0.5)
        (True, False)
        """
        return _tolerance(self.graph, energy, self.resolution, 0.0) > 0.0

    @cached_property
    def _step(self) -> float:
        return energy_step(self.graph)

    @cached_property
    def _above(self) -> float:
        # Sums of many terms in the order of a method may round further than `FactorGraph.energy`.
        graph = self.graph
        return math.sqrt(1 + graph.n_variables + graph.n_edges + graph.n_factors)

    @cached_property
    def _typical_range(self) -> float:
        return typical_range(self.graph)

    def tolerance_at(self, energy: float) -> float:
        """Return the tolerance of proofs at an energy, see `proof_tolerance`.

        Parameters
        ----------
        energy : float

        Returns
        -------
        float

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> round(Run(g).tolerance_at(0.5), 9)
        0.1
        """
        return _tolerance(self.graph, energy, self.graph.resolution_at(energy), self._step)

    def _met(self, bound: float, residual: float) -> float:
        """Return the bound, or the best energy if the bound proves it or rounding hides it."""
        gap = self.best_energy - bound
        if not math.isfinite(gap):
            return bound
        rounding = self.graph.resolution_at(self.best_energy)
        if residual > _FEW * rounding:
            # Where no term has a range, all labellings of finite energy are equal. Where penalties
            # are in most terms, labellings of this energy pay less than their range.
            paid = rounding * 2.0**50
            limit = _LARGEST_RESIDUAL * min(self._typical_range or math.inf, paid)
            residual = min(residual, max(_FEW * rounding, limit))
        if gap < -max(rounding * self._above, residual):
            return bound
        tolerance = self.tolerance_at(self.best_energy)
        near = tolerance > 0.0 and gap <= max(tolerance, rounding + residual)
        return self.best_energy if gap < 0.0 or near else bound

    @property
    def proved(self) -> bool:
        """Whether the incumbent meets the bound, so that the run can end."""
        gap = self.best_energy - self.lower_bound
        # A bound further above the energy is wrong and proves nothing.
        return math.isfinite(self.best_energy) and 0.0 <= gap <= self.absolute_gap

    def _record(self, seconds: float, energy: float) -> None:
        point = TracePoint(seconds, energy, self.best_energy, self.lower_bound)
        self.trace.append(point)
        if self._on_offer is not None:
            self._on_offer(point)


@dataclass
class Outcome:
    """The result of a solver; labellings and bounds went to the `Run`.

    Attributes
    ----------
    converged : bool
        The method reached its own fixed point or exhausted its search.
    infeasible : bool
        It is proved that no labelling has finite energy.
    unsupported : str
        Reason why the method does not cover the graph, if `Solver.supports` could not find it
        quickly; else empty.
    stopped_by : str
        The solver's own limit that ended the run before it converged, such as
        ``"max_sweeps=1000"``; empty if none did. Limits of the run need no mention.
    iterations : int
        Sweeps, or the method's own unit.
    claimed_energy : float or None
        The energy of the best labelling as computed by the solver.
    marginals : (n, k) array, list of 1-D arrays, or None
    log_partition : float or None
        Estimate of ``log sum_x exp(-E(x) / T)``.
    log_partition_kind : {"exact", "lower", "upper", "estimate"} or None
        Whether it is the value itself, a bound, or neither.
    diagnostics : dict
        Further figures, JSON-able where possible.

    Examples
    --------
    >>> from inference_lab.contract import Outcome
    >>> Outcome(converged=True, iterations=3, diagnostics={"restarts": 2}).infeasible
    False
    """

    converged: bool = False
    infeasible: bool = False
    unsupported: str = ""
    stopped_by: str = ""
    iterations: int = 0
    claimed_energy: float | None = None
    marginals: Marginals | None = None
    log_partition: float | None = None
    log_partition_kind: str | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Solver(Settings, ABC):
    """Base of all solvers: a frozen dataclass of settings that can run on a graph.

    A complete solver of one's own, usable by `inference_lab.solve` and `inference_lab.compare`,
    and testable with ``inference-lab check FILE``:

    >>> from dataclasses import dataclass
    >>> from inference_lab.contract import Outcome, Run, Solver
    >>> from inference_lab.specs.settings import setting
    >>> @dataclass(frozen=True)
    ... class RandomGuess(Solver):
    ...     '''Draw labellings at random and keep the best.'''
    ...     draws: int = setting(100, at_least=1)
    ...
    ...     def run(self, graph, run):
    ...         done = 0
    ...         while done < self.draws and not run.should_stop(done):
    ...             run.offer(run.rng.integers(0, graph.cardinalities))
    ...             done += 1
    ...         return Outcome(iterations=done)
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [1.0, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, RandomGuess(), seed=0).energy
    0.5
    """

    #: The version of the method; raise it when results change, so that records are not mixed up.
    version: ClassVar[int] = 1
    #: Whether the method supports `FactorGraph.label_costs`. A class that defines `run` or `step`
    #: must declare this itself; an inherited value does not count, because a method that ignores
    #: label costs reports bounds of another energy.
    label_costs: ClassVar[bool] = False
    #: Uninterruptible time, in evaluations of the energy, as measured on a grid of a million
    #: variables. `solve` does not begin a run with a shorter limit.
    startup_cost: ClassVar[float] = 0.0

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return None if the method covers the problem, else the reason for a refusal.

        The default covers every graph at temperature 0. Label costs are covered by the class
        attribute `label_costs`. Slow tests belong in `run`, see `Outcome.unsupported`.

        Parameters
        ----------
        graph : FactorGraph
        temperature : float

        Returns
        -------
        str or None

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> from inference_lab.solvers.icm import ICM
        >>> ICM().supports(g, 0.0), ICM().supports(g, 1.0)
        (None, 'icm finds labellings, not marginals')
        """
        return None if temperature == 0 else f"{self.name()} finds labellings, not marginals"

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Estimate the bytes that a run takes beside the graph at its peak; 0 if unknown.

        `inference_lab.solve` raises MemoryError instead of a run that needs more than there is.

        Parameters
        ----------
        graph : FactorGraph
        temperature : float

        Returns
        -------
        int

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> from inference_lab.solvers.icm import ICM
        >>> ICM().peak_bytes(g, 0.0) < 1000
        True
        """
        return 0

    def missing(self) -> str | None:
        """Return the missing requirements of the method and how to install them, else None.

        A solver of another package checks for it by `inference_lab.specs.extras.how_to_install`.

        Returns
        -------
        str or None

        Examples
        --------
        >>> from inference_lab.solvers.icm import ICM
        >>> ICM().missing()
        """
        return None

    def unsupported_reason(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason to refuse a run: unsupported label costs, or `supports`.

        Parameters
        ----------
        graph : FactorGraph
        temperature : float

        Returns
        -------
        str or None

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> from inference_lab.solvers.trw_s import TRWS
        >>> TRWS().unsupported_reason(g.with_label_costs(1.0), 0.0)
        'trw-s does not support label costs, and this graph has some'
        """
        if graph.n_label_costs and not self._supports_label_costs():
            return f"{self.name()} does not support label costs, and this graph has some"
        return self.supports(graph, temperature)

    @classmethod
    def _supports_label_costs(cls) -> bool:
        """Whether the class that defines `run` or `step`, or one derived from it, has support."""
        for base in cls.__mro__:
            if "label_costs" in vars(base):
                return bool(vars(base)["label_costs"])
            if "run" in vars(base) or "step" in vars(base):
                break
        return False

    @abstractmethod
    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Solve the graph; offer labellings and bounds to `run`, and stop when its budget is spent.

        Parameters
        ----------
        graph : FactorGraph
            Not to be changed.
        run : Run

        Returns
        -------
        Outcome

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> from inference_lab.solvers.icm import ICM
        >>> run = Run(g)
        >>> ICM().run(g, run).converged, run.best_energy
        (True, 0.5)
        """


class UnsolvedWarning(UserWarning):
    """A method does not cover the problem or is not installed, so the solution has no labels."""


class UnsolvedError(RuntimeError):
    """A run without an answer: the method does not cover the problem, failed or was killed."""


@dataclass(frozen=True, repr=False)
class Solution:
    """The result of one run.

    Attributes
    ----------
    labels : (n,) int64 array, or None
        The best labelling offered during the run; None if there was none.
    energy : float
        Its energy, evaluated by the graph; ``inf`` if none was found, NaN if no run was made.
    claimed_energy : float or None
        The solver's own number, for comparison.
    lower_bound : float
        Proved lower bound on the minimum energy; ``-inf`` if none.
    tolerance : float
        The gap at which a bound proves the energy, see `proof_tolerance`.
    status : Status
    message : str
        The reason for the status, if it needs one; for `limit`, which limit it was.
    marginals, log_partition, log_partition_kind
        As in `Outcome`; None at temperature 0.
    iterations : int
    seconds : float
        The solver's time: without evaluation of offers and compilation.
    compile_seconds : float
        Time in which kernels were compiled, or loaded from the disk, during the run.
    temperature : float
    seed : int or None
    solver : str
        Spec string of the solver.
    trace : list of TracePoint
    diagnostics : dict

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "ilp")
    >>> s.labels.tolist(), s.energy, s.lower_bound, s.gap, s.status.value
    ([0, 1], 0.5, 0.5, 0.0, 'optimal')
    """

    labels: IntArray | None
    energy: float
    lower_bound: float
    status: Status
    message: str = ""
    tolerance: float = 0.0
    claimed_energy: float | None = None
    marginals: Marginals | None = None
    log_partition: float | None = None
    log_partition_kind: str | None = None
    iterations: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    temperature: float = 0.0
    seed: int | None = None
    solver: str = ""
    trace: list[TracePoint] = field(default_factory=list)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the settings, the result and the time, in three lines."""
        bounded = self.lower_bound > -math.inf
        energy = "none" if math.isnan(self.energy) else f"{self.energy:.10g}"
        bound = f"{self.lower_bound:.10g}" if bounded else "none"
        gap = f"{self.gap:.3g}" if bounded else "none"
        labels = "none" if self.labels is None else np.array2string(self.labels, threshold=12)
        return (
            f"Solution({self.solver}: {self.status}, {self.message or self.status.sentence})\n"
            f"  energy {energy}, bound {bound}, gap {gap}\n"
            f"  labels {labels}; {self.seconds:.3g} s, {counted(self.iterations, 'iteration')}"
        )

    def raise_for_status(self) -> Self:
        """Return the solution itself if the method gave an answer, else raise.

        Returns
        -------
        Solution

        Raises
        ------
        UnsolvedError
            If the method does not cover the problem, failed, or its process was ended.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.solve(g, "icm").raise_for_status().energy
        0.5
        """
        answered = (Status.OPTIMAL, Status.CONVERGED, Status.LIMIT, Status.INFEASIBLE)
        if self.status in answered:
            return self
        raise UnsolvedError(
            f"{self.solver} gave no answer: {self.status}, {self.message or self.status.sentence}"
        )

    @property
    def gap(self) -> float:
        """``energy - lower_bound``, zero within `tolerance`; ``inf`` without a bound."""
        if self.energy == self.lower_bound:
            return 0.0
        # A bound above the energy is a contradiction and must be visible.
        return 0.0 if self._is_proved else self.energy - self.lower_bound

    @property
    def _is_proved(self) -> bool:
        return self.status is Status.OPTIMAL and proves(
            self.energy, self.lower_bound, self.tolerance
        )

    @property
    def feasible(self) -> bool:
        """Whether the labelling has finite energy."""
        return math.isfinite(self.energy)
