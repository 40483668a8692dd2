"""Run one solver on one graph."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inference_lab.contract import Outcome, Run, Solution, Solver, Status, TracePoint, proves
from inference_lab.factor_graph import FactorGraph, IntArray
from inference_lab.feasibility import contradiction, n_entries, unary_minimum
from inference_lab.loading import imports_timed, meter
from inference_lab.registry import as_solver

#: Seconds that a run may be late.
_LATE = 0.1


def solve(
    graph: FactorGraph,
    solver: str | Solver = "loopy-bp",
    *,
    seed: int | None = 0,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    temperature: float = 0.0,
    initial: npt.ArrayLike | None = None,
    on_offer: Callable[[TracePoint], None] | None = None,
    on_improve: Callable[[IntArray, float, float], None] | None = None,
) -> Solution:
    """Run a solver on a graph and return what it found, evaluated anew.

    Parameters
    ----------
    graph : FactorGraph
    solver : str or Solver
        A name, a spec such as ``"loopy-bp(damping=0.5)"``, or a solver object.
    seed : int or None
        Seed of the run's random generator; None draws a fresh one.
    time_limit : float, optional
        Seconds of wall time; importing modules and compiling kernels do not count.
    max_iterations : int, optional
        Limit on sweeps, or what the method counts; settings of the solver may be tighter.
    temperature : float
        0 asks for the best labelling; T > 0 for marginals of ``exp(-E / T)``.
    initial : (n,) array of int, optional
        A labelling to start from; the answer is never worse.
    on_offer : callable, optional
        Called with each `TracePoint` as it happens, for progress displays.
    on_improve : callable, optional
        Called with labels (not to be changed), energy and seconds when a labelling is the best so
        far. The solver's clock is stopped meanwhile, as it is in `on_offer`.

    Returns
    -------
    Solution
        With status `unsupported` (and the reason) where the method does not cover the problem,
        `infeasible` where it is proved that no labelling has finite energy.

    Raises
    ------
    SpecError
        If the solver's spec cannot be used.
    ValueError
        If an argument is out of range or `initial` does not fit the graph.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "icm")
    >>> s.energy, s.labels.tolist()
    (0.5, [0, 1])
    """
    # Numba's compiler tells the meter from then on.
    importlib.import_module("inference_lab._numba")
    # Within the run of another solver, what is loaded here does not count as that one's time.
    with meter.running():
        method = as_solver(solver)
    if not isinstance(graph, FactorGraph):
        raise TypeError(f"graph must be a FactorGraph, got {type(graph).__name__}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be finite and not negative, got {temperature}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive seconds, got {time_limit}")
    if max_iterations is not None and max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    start = None if initial is None else graph.check_labels(initial)
    if start is not None and start.ndim != 1:
        raise ValueError(f"initial must have shape ({graph.n_variables},), got {start.shape}")

    reason = method.supports(graph, temperature)
    refused = Solution(
        labels=None,
        energy=math.inf,
        lower_bound=-math.inf,
        status=Status.UNSUPPORTED,
        message=reason or "",
        temperature=temperature,
        seed=seed,
        solver=method.spec,
    )
    if reason is not None:
        return refused
    before = meter.seconds
    with imports_timed():
        run = Run(
            graph,
            temperature=temperature,
            rng=np.random.default_rng(seed),
            initial=start,
            time_limit=time_limit,
            max_iterations=max_iterations,
            on_offer=on_offer,
            on_improve=on_improve,
            stopwatch=lambda: meter.seconds - before,
        )
        why = contradiction(graph)
        if why is not None:
            outcome = Outcome(infeasible=True)
        elif 1e-9 * method.start_up * n_entries(graph) > run.remaining + _LATE:
            run.offer(unary_minimum(graph))
            outcome = Outcome(diagnostics={"not_begun": "its start would take all of the time"})
        else:
            outcome = method.run(graph, run)
        seconds = run.seconds
    loading = meter.seconds - before
    if not isinstance(outcome, Outcome):
        raise TypeError(
            f"run() of {method.name()} returned {type(outcome).__name__}; an Outcome is expected"
        )
    if outcome.unsupported:
        return replace(
            refused, message=outcome.unsupported, seconds=seconds, compile_seconds=loading
        )
    labels = run.best_labels
    # The incumbent's energy is evaluated once more, so that nothing a solver does to the run's
    # state can put a wrong number into a table.
    energy = math.inf if labels is None else float(graph.energy(labels))
    bound = run.lower_bound
    if outcome.infeasible:
        status, message = Status.INFEASIBLE, why or ""
        bound = math.inf
    elif proves(energy, bound) and temperature == 0:
        status, message = Status.OPTIMAL, ""
    else:
        status = Status.CONVERGED if outcome.converged else Status.LIMIT
        message = "" if math.isfinite(energy) else "no labelling of finite energy was found"
    return Solution(
        labels=labels,
        energy=energy,
        lower_bound=bound,
        status=status,
        message=message,
        claimed_energy=outcome.claimed_energy,
        marginals=outcome.marginals,
        log_partition=outcome.log_partition,
        log_partition_kind=outcome.log_partition_kind,
        iterations=outcome.iterations,
        seconds=seconds,
        compile_seconds=loading,
        temperature=temperature,
        seed=seed,
        solver=method.spec,
        trace=run.trace,
        diagnostics=outcome.diagnostics,
    )
