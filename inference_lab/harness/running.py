"""One run: warm up, solve in an isolated process under limits, evaluate and record the answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from msgspec.structs import replace

from inference_lab.contract import Solution, Solver, TracePoint, energy_scale, proof_tolerance
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.inputs import (
    PreparedProblem,
    RunSettings,
    solver_source,
)
from inference_lab.harness.isolated_run import (
    Limits,
    attempt,
    crashed,
    is_warm,
    now,
    one_line,
    unanswered,
    warm_up_apart,
)
from inference_lab.harness.warm_up import warm_up, warmth
from inference_lab.problem import Problem
from inference_lab.processes.isolation import ProcessResult, SharedIncumbent
from inference_lab.processes.workers import Crash
from inference_lab.registry.registry import as_solver, is_ours
from inference_lab.results.json_lines import json_object
from inference_lab.results.label_codec import encode_labels
from inference_lab.results.records import STANDARD_SCORES, Record, thin_trace

#: A run is killed after this multiple of its time limit plus these seconds. The slack is generous,
#: so that only runs that ignore their limit are killed.
_WALL_SLACK = 1.5
_WALL_CONSTANT = 30.0
#: The multiple for limits on processor time, which a busy machine provides slowly.
_BUSY_SLACK = 20.0

#: Seconds that a warm-up may take, without compilation. The library's own solvers get more, because
#: they are known to end; others may not.
_WARM_UP_LIMIT = 60.0
_FOREIGN_WARM_UP_LIMIT = 10.0


def _info(instance: PreparedProblem) -> Mapping[str, Any]:
    """Return the metadata of a problem, with the number of its label costs if it has any."""
    n = instance.problem.graph.n_label_costs
    return {"label_costs": n, **instance.problem.info} if n else instance.problem.info


def blank(
    instance: PreparedProblem, solver: Solver, seed: int, repeat: int, settings: RunSettings
) -> Record:
    """Return the record of a run before it starts: its request without results."""
    graph = instance.problem.graph
    return Record(
        problem=instance.problem.name,
        problem_hash=graph.content_hash,
        n_variables=graph.n_variables,
        n_edges=graph.n_edges,
        n_factors=graph.n_factors,
        n_labels=int(graph.cardinalities.max()) if graph.n_variables else 0,
        optimum=instance.problem.optimum,
        optimum_source=instance.problem.optimum_source,
        truth_energy=instance.truth_energy,
        energy_scale=energy_scale(graph),
        problem_info=json_object(_info(instance), text=True),
        solver=solver.spec,
        solver_name=solver.name(),
        settings=json_object(solver.settings(), text=True),
        solver_version=solver.version,
        solver_source=solver_source(solver),
        seed=seed,
        time_limit=settings.time_limit,
        temperature=settings.temperature,
        absolute_gap=settings.absolute_gap,
        repeat=repeat,
        threads=settings.threads,
        clock=settings.clock,
        setup_seconds=instance.setup_seconds,
        status="error",
        started=now(),
    )


def _finish(record: Record, problem: Problem, solution: Solution, trace_limit: int) -> Record:
    return replace(
        record,
        status=str(solution.status),
        message=one_line(solution.message) if solution.message else "",
        # Records use ``inf`` for a missing energy or gap.
        energy=math.inf if solution.labels is None else solution.energy,
        claimed_energy=solution.claimed_energy,
        lower_bound=solution.lower_bound,
        gap=math.inf if math.isnan(solution.gap) else solution.gap,
        resolution=_resolution(problem.graph, solution.energy),
        tolerance=solution.tolerance if math.isfinite(solution.energy) else None,
        **_label_fields(problem, solution.labels),
        seconds=max(0.0, solution.seconds),
        compile_seconds=solution.compile_seconds,
        iterations=solution.iterations,
        log_partition=solution.log_partition,
        log_partition_kind=solution.log_partition_kind,
        trace=thin_trace(solution.trace, trace_limit),
        diagnostics=json_object(solution.diagnostics),
    )


def _resolution(graph: FactorGraph, energy: float) -> float | None:
    return graph.resolution_at(energy) if math.isfinite(energy) else None


def run(
    instance: PreparedProblem, source: str | Solver, seed: int, repeat: int, settings: RunSettings
) -> Record:
    """Run a solver on a problem; return a record even if it raises, crashes or hangs."""
    solver = as_solver(source)
    limits = limits_of(settings)
    ours = is_ours(solver)
    warm = warmed_up(solver, instance, settings)
    asked = blank(instance, solver, seed, repeat, settings)
    # Loaded here, because each run's process would load them again, which takes longer than most
    # runs. Scores need the last ones.
    import_module("inference_lab.solving")
    if instance.problem.truth is not None:
        for module in ("inference_lab.results.scoring", "sklearn.metrics", "scipy.sparse.csgraph"):
            import_module(module)
    incumbent = SharedIncumbent(instance.problem.graph.n_variables) if limits.hold else None
    warm_again = warm and limits.hold and not ours
    return attempt(
        asked,
        _solved,
        asked,
        instance.problem,
        solver,
        incumbent,
        settings.trace_limit,
        warm_again,
        limits=limits,
        answered=partial(_evaluated_again, instance.problem),
        salvage=partial(_salvage, instance.problem, incumbent),
    )


def is_warmed_up(solver: Solver, instance: PreparedProblem, settings: RunSettings) -> bool:
    """Whether `warmed_up` was called in this process for the solver and this kind of problem."""
    return is_warm(warmth(solver, instance.problem.graph, settings.temperature))


def warmed_up(solver: Solver, instance: PreparedProblem, settings: RunSettings) -> bool:
    """Warm a solver up for a problem unless done before; return whether it succeeded."""
    graph = instance.problem.graph
    ours = is_ours(solver)
    wall = _WARM_UP_LIMIT if ours else _FOREIGN_WARM_UP_LIMIT
    return warm_up_apart(
        warmth(solver, graph, settings.temperature),
        warm_up,
        solver,
        graph,
        settings.temperature,
        limits=limits_of(settings)._replace(wall=wall),
        here=ours,
    )


def limits_of(settings: RunSettings) -> Limits:
    """Return the limits of a run's process, beyond the time limit that the run checks itself."""
    limit = settings.time_limit
    slack = _BUSY_SLACK if settings.clock == "cpu" else _WALL_SLACK
    wall = None if limit is None else slack * limit + _WALL_CONSTANT
    return Limits(settings.isolated, settings.memory, wall)


def _solved(
    record: Record,
    problem: Problem,
    solver: Solver,
    incumbent: SharedIncumbent | None,
    trace_limit: int,
    warm: bool,
) -> tuple[Record, Any]:
    """Run a solver, after a warm-up if `warm`; return the record and the labels."""
    from inference_lab.solving import solve

    if warm:
        warm_up(solver, problem.graph, record.temperature)

    def tell_bound(point: TracePoint) -> None:
        if incumbent is not None and point.lower_bound > incumbent.bound:
            incumbent.bound = point.lower_bound

    solution = solve(
        problem.graph,
        solver,
        seed=record.seed,
        time_limit=record.time_limit,
        temperature=record.temperature,
        absolute_gap=record.absolute_gap,
        clock=record.clock,
        threads=record.threads,
        on_offer=None if incumbent is None else tell_bound,
        on_improve=None if incumbent is None else incumbent.write,
    )
    return _finish(record, problem, solution, trace_limit), solution.labels


def _evaluated_again(problem: Problem, asked: Record, answer: tuple[Record, Any]) -> Record:
    """Evaluate the labels again, on a graph that the solver could not modify."""
    record, labels = answer
    try:
        energy = math.inf if labels is None else float(problem.graph.energy(labels))
        if energy == record.energy:
            return record
        has = f"it has {energy:.9g}"
    except Exception as problem_with_labels:
        has = f"it is none: {one_line(problem_with_labels)}"
    return crashed(
        asked,
        Crash(
            f"the run reports the energy {record.energy:.9g} for its labelling, but {has}: the "
            "solver changed the graph",
            "",
        ),
    )


def _salvage(
    problem: Problem, incumbent: SharedIncumbent | None, asked: Record, ended: ProcessResult
) -> Record:
    """Return the record of a run without an answer, with the best labelling it had offered."""
    record = unanswered(asked, ended)
    assert incumbent is not None
    record = replace(record, lower_bound=incumbent.bound)
    offer = incumbent.read()
    if offer is None:
        return record
    labels, _, seconds = offer
    try:
        energy = float(problem.graph.energy(labels))
        label_fields = _label_fields(problem, labels)
    except Exception:
        # The run corrupted the shared memory, or a user's score raises.
        return record
    return replace(
        record,
        energy=energy,
        gap=energy - incumbent.bound,
        resolution=_resolution(problem.graph, energy),
        tolerance=proof_tolerance(problem.graph, energy) if math.isfinite(energy) else None,
        seconds=seconds,
        trace=(TracePoint(seconds, energy, energy, incumbent.bound),),
        **label_fields,
    )


def _label_fields(problem: Problem, labels: IntArray | None) -> dict[str, Any]:
    """Return the fields of a record that describe a labelling, except its energy."""
    scores = {} if labels is None else problem.score(labels)
    digest = ""
    if labels is not None:
        little_endian = np.ascontiguousarray(labels, dtype="<i8")
        digest = hashlib.sha256(little_endian.tobytes()).hexdigest()[:16]
    return {
        "labels_hash": digest,
        "labels": encode_labels(labels),
        **{name: scores.get(name) for name in STANDARD_SCORES},
        "scores": json_object({k: v for k, v in scores.items() if k not in STANDARD_SCORES}),
    }
