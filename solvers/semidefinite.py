"""Semidefinite relaxation with cutting planes: bounds where linear relaxations are weak."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from inference_lab.algorithms.cuts.partial_optimality import SHRINKING, reduce
from inference_lab.algorithms.cuts.reduction import Reduction, unchanged
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.presolve import n_entries, trivial_outcome
from inference_lab.algorithms.semidefinite.potts_energy import PottsEnergy, PottsPart, build_model
from inference_lab.algorithms.semidefinite.relaxation import MATRICES, SDPRelaxation
from inference_lab.contract import Outcome, Run, proves
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend
from inference_lab.kernels.ejection_chains import (
    begin_pass,
    extend,
    fill,
    roll_back,
    start_chains,
)
from inference_lab.kernels.messages import with_tables
from inference_lab.registry.registry import as_solver
from inference_lab.solving import solve
from inference_lab.specs.settings import setting

#: Iterations between two updates of bound, labellings and violated inequalities.
_CHECK = 25
#: Labellings rounded at the first update, and at later ones.
_FIRST_DRAWS = 20
_DRAWS = 4
#: Sweeps of the descent after a rounding; ICM needs about ten.
_SWEEPS = 100
#: A pass of Kernighan-Lin moves ends this many moves after its best state; gains below this share
#: of the largest cost are rounding.
_PASS = 100
_RELATIVE_GAIN = 1e-12
#: Share of the remaining time for the first labelling.
_SHARE = 0.2
#: Most entries (see `n_entries`) of a graph whose form `supports` checks, and seconds per entry to
#: set up the matrices' costs.
_MOMENT_ENTRIES = 200_000
_SECONDS_AN_ENTRY = 4e-7
#: Seconds by which a run may exceed its time limit.
_AFTER_THE_END = 0.1
#: Seconds of the first iteration per cube of the order, before any iteration is measured.
_SECONDS = 4e-10


@dataclass(frozen=True)
class Semidefinite(IterativeSolver["_Ascent"]):
    """Bound and round a Potts-like or binary energy by its semidefinite relaxation.

    ``E(x) = sum_i u_i(x_i) + sum_ij c_ij [x_i = x_j]`` with ``c_ij`` of either sign, and any
    pairwise energy over two labels, is linear in the Gram matrix of vectors that represent the
    labels (Frieze and Jerrum 1997; Goemans and Williamson 1995). The semidefinite relaxation is
    tightened by violated inequalities and solved by alternating directions, see
    `inference_lab.algorithms.semidefinite.relaxation`. Its matrices are rounded to labellings,
    which descend by ICM and Kernighan-Lin passes.

    Costs are finite; `persistency` in front resolves hard must-links and cannot-links where it can.
    Diagonal terms with label-dependent costs are supported for two labels only. On frustrated terms
    (noisy constraints, spin glasses, max-cut) the bounds are close where linear relaxations are
    weak.

    Parameters
    ----------
    cuts : bool
        Add violated inequalities.
    heuristic : str
        Spec of a solver for a first labelling, which gets at most a fifth of the remaining time;
        empty for none.
    persistency : bool
        First rule out labels that some optimal labelling does without
        (`inference_lab.algorithms.cuts.partial_optimality`).
    tolerance : float
        Residuals, per square root of the order, at which the relaxation counts as solved.
    progress : float
        A part of the problem is given up when its bound gains less than this share of its gap ...
    patience : int
        ... within this many iterations.
    iterations : int
        Limit on the iterations; each deals with all parts of the problem.
    max_bytes : int
        Problems whose matrices need more memory are not supported.

    Guarantees
    ----------
    Every reported bound is proved, whether or not the method has converged: a factorisation proves
    dual feasibility in spite of rounding
    (`inference_lab.algorithms.semidefinite.relaxation.SDPRelaxation`). If the costs are multiples
    of a number, bounds are rounded up to the next possible energy. `converged` means that the
    relaxation with all inequalities found is solved to the tolerance. There is no approximation
    factor for signed costs. Deterministic for a seed. Trees are solved exactly. With persistency
    the bound holds up to rounding.

    Iterations
    ----------
    Iterations of the alternating direction method.

    Diagnostics
    -----------
    ``orders`` of the matrices, largest first (at most 10), ``rows`` (inequalities at the end),
    ``primal_residual`` and ``dual_residual`` (the largest of all parts).

    Complexity
    ----------
    An iteration is an eigenvalue decomposition, O(N^3) for a connected part of N variables (0.1 s
    for N = 1000). Memory: ``96 N^2`` bytes.

    References
    ----------
    A. Frieze, M. Jerrum, "Improved approximation algorithms for max k-cut and max bisection",
    Algorithmica 18, 1997, section 2 (labels as corners of a simplex).
    M. Goemans, D. Williamson, "Improved approximation algorithms for maximum cut and satisfiability
    problems using semidefinite programming", JACM 42, 1995.
    F. Rendl, G. Rinaldi, A. Wiegele, "Solving Max-Cut to optimality by intersecting semidefinite
    and polyhedral relaxations", Mathematical Programming 121, 2010.
    Z. Wen, D. Goldfarb, W. Yin, "Alternating direction augmented Lagrangian methods for
    semidefinite programming", Mathematical Programming Computation 2, 2010.

    Examples
    --------
    Five variables in a ring, each preferring to differ from its neighbours, with two labels: one
    pair must agree, which the linear relaxation misses.

    >>> import inference_lab as il
    >>> ring = [(i, (i + 1) % 5) for i in range(5)]
    >>> g = il.FactorGraph.potts([[0.0, 0.0]] * 5, ring, -1.0, constant=5.0)
    >>> il.solve(g, "lp-relaxation").lower_bound
    0.0
    >>> s = il.solve(g, "semidefinite")
    >>> s.energy, s.lower_bound, s.status.value
    (1.0, 1.0, 'optimal')
    """

    version: ClassVar[int] = 3
    startup_cost: ClassVar[float] = 200.0
    iteration_setting: ClassVar[str] = "iterations"

    cuts: bool = True
    heuristic: str = "simulated-annealing"
    persistency: bool = True
    tolerance: float = setting(1e-6, at_least=0)
    progress: float = setting(0.003, at_least=0)
    patience: int = setting(500, at_least=1)
    iterations: int = setting(10_000, at_least=1)
    max_bytes: int = setting(2**30, at_least=1)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.heuristic:
            as_solver(self.heuristic)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: a temperature, or terms of another form."""
        # The run checks the form of large graphs, because that takes time. It also checks the size,
        # once the remaining labels are known.
        reason = super().supports(graph, temperature)
        if reason is not None or n_entries(graph) > _MOMENT_ENTRIES:
            return reason
        model = build_model(graph)
        return model if isinstance(model, str) else None

    def start(self, graph: FactorGraph, run: Run) -> _Ascent | Outcome:
        """Reduce the graph, look for a labelling and set up the relaxations."""
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        first = unary_minimum(graph)
        run.offer(first)
        building = _SECONDS_AN_ENTRY * n_entries(graph)
        reduction = unchanged(graph, 0)
        if self.persistency and run.remaining > building:
            reserve_s = building + run.estimated_seconds(SHRINKING)
            reduction = reduce(graph, lambda: run.remaining <= reserve_s, keep_forms=True)
        if building > run.remaining + _AFTER_THE_END:
            return Outcome(diagnostics={"matrices": "no time to set them up"})
        model = build_model(reduction.graph)
        if isinstance(model, str):
            # A table of a Potts-like term may have lost different labels at its ends.
            reduction = unchanged(graph, 0)
            model = build_model(graph)
        if isinstance(model, str):
            return Outcome(unsupported=model)
        if too_large := self._too_large(model):
            return Outcome(unsupported=too_large)
        search = _LocalSearch(graph, run)
        search.improve(first)
        if run.initial is not None:
            search.improve(run.initial)
        if self.heuristic and any(not part.separable for part in model.parts):
            self._find_first(graph, run, search)
        return _Ascent(self, model, reduction, run, search)

    def step(self, state: _Ascent, run: Run, done: int) -> Progress | None:
        """Iterate once on each part; bound and round at intervals."""
        active = state.active()
        # A last iteration and a last update take as long as two iterations.
        needed = 2.0 * sum(piece.seconds for piece in active)
        if not active or needed > run.remaining:
            return None
        for piece in active:
            begin = run.seconds
            piece.relaxation.iterate()
            # `run.seconds` excludes compilation.
            piece.seconds = run.seconds - begin
        if (done + 1) % _CHECK == 0:
            state.look(_DRAWS if done >= _CHECK else _FIRST_DRAWS)
        return Progress()

    def finish(self, state: _Ascent, run: Run, outcome: Outcome) -> Outcome:
        """Bound and round a last time."""
        if outcome.iterations % _CHECK:
            state.look(_DRAWS, last=True)
        relaxations = [piece.relaxation for piece in state.pieces.values()]
        outcome.diagnostics = {
            "orders": sorted((r.order for r in relaxations), reverse=True)[:10],
            "rows": sum(len(r.rows) for r in relaxations),
        }
        if outcome.iterations:
            outcome.diagnostics["primal_residual"] = max(r.primal for r in relaxations)
            outcome.diagnostics["dual_residual"] = max(r.dual for r in relaxations)
        outcome.converged = run.proved or all(p.converged for p in state.pieces.values())
        return outcome

    def _too_large(self, model: PottsEnergy) -> str:
        """Return the reason why the matrices exceed `max_bytes`, or an empty string."""
        orders = [part.order for part in model.parts if not part.separable]
        needed = MATRICES * 8 * sum(order**2 for order in orders)
        if needed <= self.max_bytes:
            return ""
        return (
            f"matrices of order {max(orders)} need {needed} bytes in all; "
            f"max_bytes is {self.max_bytes}"
        )

    def _find_first(self, graph: FactorGraph, run: Run, search: _LocalSearch) -> None:
        """Search for a first labelling with the heuristic."""
        limit = None if run.time_limit is None else _SHARE * run.remaining
        if limit is not None and limit <= 0.0:
            return
        solution = solve(
            graph,
            self.heuristic,
            seed=int(run.rng.integers(2**32)),
            time_limit=limit,
            max_iterations=run.max_iterations,
            initial=run.best_labels,
        )
        if solution.labels is not None:
            search.improve(solution.labels)


class _LocalSearch:
    """Labellings of the graph, improved by local search before they are offered."""

    def __init__(self, graph: FactorGraph, run: Run) -> None:
        self.graph = graph
        self.run = run
        self._order = run.rng.permutation(graph.n_variables)
        self._chains = start_chains(graph)
        self._tables = with_tables(graph)
        self._done: set[bytes] = set()

    def improve(self, x: IntArray) -> None:
        """Descend from a labelling, then by Kernighan-Lin passes, and offer the results."""
        x = x.copy()
        descend(self.graph, x, self._order, _SWEEPS)
        if x.tobytes() in self._done:
            return
        self._done.add(x.tobytes())
        self.run.offer(x)
        gained = True
        while gained and self.run.remaining > 0.0:
            tolerance = _RELATIVE_GAIN * float(fill(self.graph.arrays, x, self._chains))
            begin_pass(self.graph.arrays, x, self._chains)
            extend(
                self.graph.arrays, x, self._chains, _PASS, tolerance, False, 1 << 60, self._tables
            )
            roll_back(self.graph.arrays, x, self._chains, self._tables)
            gained = bool(self._chains.now[0].best_moves > 0)
        self.run.offer(x)


@dataclass
class _Piece:
    """The state of a part of the problem."""

    # ``labels`` are the best labels of its nodes so far, with their ``energy``; ``bounds`` the
    # bounds at all updates, before they are rounded up; ``seconds`` the time of the last iteration.

    part: PottsPart
    relaxation: SDPRelaxation
    labels: IntArray
    energy: float
    seconds: float
    done: bool = False
    converged: bool = False
    proved: bool = False
    bounds: list[float] = field(default_factory=list)

    def round(self, draw: int) -> IntArray:
        """Round the relaxation to labels of the nodes, in one of four ways."""
        return self.relaxation.round(draw % 4 * (self.part.n_labels - 1))


class _Ascent:
    """The state of a run: the relaxations of the parts, and the best labels of their nodes."""

    def __init__(
        self,
        settings: Semidefinite,
        model: PottsEnergy,
        reduction: Reduction,
        run: Run,
        search: _LocalSearch,
    ) -> None:
        self.settings, self.model, self.reduction = settings, model, reduction
        self.run, self.search = run, search
        self.labels = [part.unary.argmin(axis=1).astype(np.int64) for part in model.parts]
        self.pieces: dict[int, _Piece] = {}
        # Nodes without couplings have their least costs as energies.
        self.settled = [model.constant]
        for number, part in enumerate(model.parts):
            if part.separable:
                self.settled += [part.constant, *part.unary.min(axis=1)]
                continue
            order = part.order
            self.pieces[number] = _Piece(
                part,
                SDPRelaxation(part, settings.cuts, run.rng),
                self.labels[number],
                math.inf,
                _SECONDS * order**3,
            )
        self.adopt()
        self.improve(self.labels)
        self.report()

    def active(self) -> list[_Piece]:
        """Return the pieces that are not done."""
        return [piece for piece in self.pieces.values() if not piece.done]

    def adopt(self) -> None:
        """Adopt the best labelling for the parts whose energy it lowers."""
        if self.run.best_labels is None:
            return
        node_labels = self.model.nodes_of(self.reduction.restrict(self.run.best_labels))
        for number, piece in self.pieces.items():
            energy = piece.relaxation.energy(node_labels[number])
            if energy < piece.energy:
                piece.labels = node_labels[number]
                piece.energy = energy
                self.labels[number] = node_labels[number]

    def improve(self, labels: list[IntArray]) -> None:
        """Improve a labelling of the parts, and offer it."""
        self.search.improve(self.reduction.expand(self.model.expand(labels)))

    def look(self, draws: int, last: bool = False) -> None:
        """Bound, round and look for violated inequalities."""
        run = self.run
        active = self.active()
        for draw in range(draws):
            if run.remaining <= 0.0 and draw:
                break
            labels = list(self.labels)
            for number, piece in self.pieces.items():
                if not piece.done:
                    labels[number] = piece.round(draw)
            self.improve(labels)
        self.adopt()
        for piece in active:
            if piece.seconds > run.remaining:
                break
            piece.relaxation.improve_bound(piece.labels, piece.energy)
            piece.bounds.append(piece.relaxation.raw_bound)
        self.report()
        if last or run.proved:
            return
        for piece in active:
            self.judge(piece)
            if piece.done or run.remaining <= 0.0:
                continue
            piece.relaxation.separate(lambda: run.remaining <= 0.0)

    def judge(self, piece: _Piece) -> None:
        """Decide whether to continue with a piece."""
        relaxation, settings = piece.relaxation, self.settings
        bound = relaxation.bound
        residual = max(relaxation.primal, relaxation.dual)
        left_open = max(self.run.tolerance_at(self.run.best_energy), relaxation.residual)
        solved = relaxation.exhausted and residual <= settings.tolerance
        if proves(piece.energy, bound, left_open):
            piece.done = piece.converged = piece.proved = True
        elif solved:
            piece.done = piece.converged = True
        else:
            looks = max(1, settings.patience // _CHECK)
            if len(piece.bounds) > looks:
                gain = piece.bounds[-1] - piece.bounds[-1 - looks]
                piece.done = gain < settings.progress * (piece.energy - piece.bounds[-1])

    def report(self) -> None:
        """Report the bound of the whole problem."""
        # The gaps of several proved pieces may add up to more than a proof leaves open.
        bounds = [p.energy if p.proved else p.relaxation.bound for p in self.pieces.values()]
        terms = [*self.settled, *bounds, -self.model.slack]
        residual = math.fsum(piece.relaxation.residual for piece in self.pieces.values())
        # The parts are summed in another order than the energy.
        rounding = 2.0 * self.model.slack + 8.0 * self.run.graph.resolution_at(math.fsum(terms))
        self.run.bound(math.fsum(terms), residual + rounding)
