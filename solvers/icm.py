"""Iterated conditional modes: change one label at a time while the energy falls."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import AWAIT, KEEP, SPREAD, Descent
from inference_lab.kernels.label_costs import count_users, priced_sweep
from inference_lab.specs.settings import setting

#: A labelling is offered, and so evaluated, when so large a share of the labels has changed.
_SHARE = 0.1

#: Variables are numbered along their terms where those join numbers no further apart, on average,
#: than this share of all: a third where they are joined at random, little on chains and pictures.
_NEAR = 0.125

#: Variables between two looks at the clock: some tens of milliseconds.
_STRETCH = 50_000


@dataclass(frozen=True)
class ICM(Solver):
    """Coordinate descent on the energy (Besag 1986; spec of the E-step in Basu et al. 2004).

    Each sweep moves each variable to its cheapest label given all others, until a sweep changes
    nothing. The number of violated ``+inf`` terms is compared first, then the finite cost.

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable, or from random labels. An initial labelling
        of the run takes precedence.
    restarts : int
        Further descents, from random labellings; the best result is kept.
    order : {"auto", "random", "sequential", "symmetric"}
        Draw a new order for each sweep, use variable numbers, or alternate between both directions.
        By default symmetric if variables are numbered along their terms, as on chains and grids,
        where it needs fewer sweeps and gives lower minima; else random.
    ties : {"auto", "keep", "spread"}
        Keep the label if no other is better; or, after a gain, move to an equally cheap label of a
        neighbour, until a sweep gains nothing. Spreading over plateaus gives lower minima where
        whole costs tie, as in stereo pairs. By default spread if variables are numbered along their
        terms. Both are the same with infinite costs, factors or label costs.
    max_sweeps : int or None
        Limit on the sweeps of one descent; None goes on until a sweep changes nothing.

    Guarantees
    ----------
    The energy never rises; at the end no single change lowers it (a local minimum). No bound.

    Complexity
    ----------
    A sweep costs O(k + degree) a variable for diagonal terms, O(k) more a table, and the size of
    the sets for label costs. Variables with unchanged neighbours are skipped. Memory: n labels and
    flags.

    References
    ----------
    J. Besag, "On the statistical analysis of dirty pictures", JRSS B 48(3), 1986.
    S. Basu, M. Bilenko, R. Mooney, "A probabilistic framework for semi-supervised clustering",
    KDD 2004, eq. (15).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "icm(restarts=2)").energy
    0.5
    """

    label_costs: ClassVar[bool] = True

    init: Literal["unary", "random"] = "unary"
    restarts: int = setting(0, at_least=0)
    order: Literal["auto", "random", "sequential", "symmetric"] = "auto"
    ties: Literal["auto", "keep", "spread"] = "auto"
    max_sweeps: int | None = setting(None, at_least=1)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Descend from the start, then from random restarts."""
        sweeps = 0
        descents = 0
        converged = True
        for attempt in range(self.restarts + 1):
            if attempt and run.should_stop(sweeps):
                converged = False
                break
            if attempt == 0 and run.initial is not None:
                x = run.initial.copy()
            elif attempt == 0 and self.init == "unary":
                x = unary_minimum(graph)
            else:
                x = run.rng.integers(0, graph.cardinalities, dtype=np.int64)
            done, stable = self._descend(graph, run, x, sweeps)
            sweeps += done
            descents += 1
            converged = converged and stable
        return Outcome(
            converged=converged,
            iterations=sweeps,
            diagnostics={"descents": descents},
        )

    def _descend(self, graph: FactorGraph, run: Run, x: IntArray, before: int) -> tuple[int, bool]:
        """Sweep until stable; return the sweeps made and whether the last changed nothing."""
        dirty = np.ones(graph.n_variables, dtype=np.bool_)
        prices = graph.label_costs
        used = count_users(prices, x) if graph.n_label_costs else None
        turns = _Turns(graph, self.order, run.rng)
        run.offer(x)
        spread = self.ties == "spread" or (self.ties == "auto" and _numbered_along(graph))
        ties = AWAIT if spread else KEEP
        done = unseen = changes = 0
        stable = False
        descent = Descent(graph.arrays)
        while not (stable or done == self.max_sweeps or run.should_stop(before + done)):
            order = turns.draw(dirty)
            if spread:
                ties = SPREAD if changes else AWAIT
            changes = 0
            for first in range(0, order.size, _STRETCH):
                part = order[first : first + _STRETCH]
                if used is None:
                    changes += descent.sweep(x, part, dirty, ties)
                else:
                    changes += priced_sweep(
                        graph.arrays, prices, x, used, part, dirty, descent.cost, descent.infinite
                    )
                if run.remaining <= 0.0:
                    break
            stable = changes == 0 and not dirty.any() and run.remaining > 0.0
            done += 1
            unseen += changes
            if unseen > _SHARE * graph.n_variables:
                run.offer(x)
                unseen = 0
        if unseen:
            run.offer(x)
        return done, stable


class _Turns:
    """In which order the sweeps of a descent visit variables."""

    def __init__(
        self,
        graph: FactorGraph,
        order: Literal["auto", "random", "sequential", "symmetric"],
        rng: np.random.Generator,
    ) -> None:
        if order == "auto":
            order = "symmetric" if _numbered_along(graph) else "random"
        self._rng = rng
        there = np.arange(graph.n_variables, dtype=np.int64)
        ways = [there, there[::-1].copy()] if order == "symmetric" else [there]
        self._ways = None if order == "random" else itertools.cycle(ways)

    def draw(self, dirty: npt.NDArray[np.bool_]) -> IntArray:
        """Return the order of a sweep, all that are dirty among it."""
        # In a fixed order a variable that is woken is visited in the same sweep if its turn is to
        # come; to draw an order of all would take longer than to visit those that are dirty.
        if self._ways is not None:
            return next(self._ways)
        return self._rng.permutation(np.flatnonzero(dirty))


def _numbered_along(graph: FactorGraph) -> bool:
    """Whether pairwise terms join variables of numbers near each other."""
    if not graph.n_edges:
        return False
    distance = np.abs(graph.edges[:, 0] - graph.edges[:, 1]).mean()
    return bool(distance <= _NEAR * graph.n_variables)
