"""Loop of iterative methods: budget, bounds, offers and convergence."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

from inference_lab.algorithms.payable_costs import payable
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum

State = TypeVar("State")


class Progress(NamedTuple):
    """Result of one step of an `IterativeSolver`.

    Attributes
    ----------
    converged : bool
        Further steps would change nothing.
    lower_bound : float
        A proved lower bound on the minimum energy; ``inf`` proves that all energies are infinite.
    iterations : int
        Iterations that the step counts for.
    finished : bool
        The method takes no further steps, converged or not.
    residual : float
        The error that rounding may leave in the bound, see `Run.bound`.

    Examples
    --------
    >>> Progress(lower_bound=2.5).converged
    False
    """

    converged: bool = False
    lower_bound: float = -math.inf
    iterations: int = 1
    finished: bool = False
    residual: float = 0.0


@dataclass(frozen=True)
class IterativeSolver(Solver, Generic[State]):
    """Base class of solvers that repeat one step until it changes nothing or the budget is spent.

    A subclass defines `start` and `step`, and if they apply `decode` and `finish`. The state, of
    any type, holds everything that changes during a run.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class Restarts(IterativeSolver):
    ...     '''Draw labellings at random.'''
    ...     max_sweeps: int = 100
    ...
    ...     def start(self, graph, run):
    ...         return np.zeros(graph.n_variables, dtype=np.int64)
    ...
    ...     def step(self, state, run, done):
    ...         state[:] = run.rng.integers(0, run.graph.cardinalities)
    ...         return Progress()
    ...
    ...     def decode(self, state, run, done):
    ...         return state
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [1.0, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, Restarts(), seed=0)
    >>> s.energy, s.iterations
    (0.5, 100)
    """

    #: The setting that limits the iterations, if the class has it.
    iteration_setting: ClassVar[str] = "max_sweeps"

    @property
    def most_iterations(self) -> float:
        """Most iterations by the settings."""
        limit = getattr(self, self.iteration_setting, None)
        return math.inf if limit is None else float(limit)

    @abstractmethod
    def start(self, graph: FactorGraph, run: Run) -> State | Outcome:
        """Return the state before the first step, or the outcome of a run that needs none.

        Parameters
        ----------
        graph : FactorGraph
            Not to be changed.
        run : Run

        Returns
        -------
        object or Outcome

        Examples
        --------
        >>> import inference_lab as il
        >>> from inference_lab.solvers.loopy_bp import LoopyBP
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> LoopyBP().start(g, il.Run(g)).feasible
        True
        """

    @abstractmethod
    def step(self, state: State, run: Run, done: int) -> Progress | None:
        """Change the state by one step, after `done` iterations.

        Parameters
        ----------
        state : object
        run : Run
        done : int

        Returns
        -------
        Progress or None
            None if the budget ended within the step, which then does not count.

        Examples
        --------
        >>> import inference_lab as il
        >>> from inference_lab.solvers.loopy_bp import LoopyBP
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = il.Run(g)
        >>> state = LoopyBP().start(g, run)
        >>> [LoopyBP().step(state, run, done).converged for done in range(2)]
        [False, True]
        """

    def decode(self, state: State, run: Run, done: int) -> IntArray | None:
        """Return the labelling to offer after `done` iterations, or None.

        Parameters
        ----------
        state : object
        run : Run
        done : int

        Returns
        -------
        (n,) array of int, or None

        Examples
        --------
        >>> import inference_lab as il
        >>> from inference_lab.solvers.loopy_bp import LoopyBP
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> run = il.Run(g)
        >>> state = LoopyBP().start(g, run)
        >>> _ = LoopyBP().step(state, run, 0), LoopyBP().step(state, run, 1)
        >>> LoopyBP().decode(state, run, 2).tolist()
        [0, 1]
        """
        return None

    def finish(self, state: State, run: Run, outcome: Outcome) -> Outcome:
        """Return the outcome after the last step, with the additions of the method.

        Parameters
        ----------
        state : object
        run : Run
        outcome : Outcome
            With `converged` and `iterations`.

        Returns
        -------
        Outcome

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.solve(g, "loopy-bp").diagnostics["updates"]
        4
        """
        return outcome

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Repeat steps until one converges, a labelling is proved, or the budget is spent."""
        graph = payable(graph, run)
        state = self.start(graph, run)
        if isinstance(state, Outcome):
            return state
        done = 0
        last = Progress()
        while not (
            last.converged
            or last.finished
            or run.proved
            or done >= self.most_iterations
            or run.should_stop(done)
        ):
            progress = self.step(state, run, done)
            if progress is None:
                break
            last = progress
            done += last.iterations
            if last.lower_bound > -math.inf:
                run.bound(last.lower_bound, last.residual)
            if last.lower_bound == math.inf:
                return Outcome(infeasible=True, iterations=done)
            labels = self.decode(state, run, done)
            if labels is not None:
                run.offer(labels)
        if done == 0 and run.best_labels is None:
            # The budget ended within the first step.
            run.offer(unary_minimum(graph))
        outcome = Outcome(last.converged, iterations=done)
        if done >= self.most_iterations:
            limit = getattr(self, self.iteration_setting, None)
            outcome.stopped_by = (
                f"{self.most_iterations:.0f} iterations"
                if limit is None
                else f"{self.iteration_setting}={limit}"
            )
        return self.finish(state, run, outcome)
