"""Runs of a solver on the random graphs, smallest first, made once and shared by the checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from inference_lab.compile_timer import timer
from inference_lab.conformance.graphs import (
    Exhaustive,
    fresh,
    pristine,
    reference,
    size_of,
    tolerance_of,
)
from inference_lab.conformance.verdicts import ConformanceFailure, NotApplicable, last_line
from inference_lab.contract import Solution, Solver, Status, TracePoint
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, LABEL_COSTS, SCALES
from inference_lab.solving import solve

#: Temperatures of the runs at ``T > 0``, used in rotation.
TEMPERATURES = (1.0, 0.5, 2.0)
#: Seed of the runs that are compared with each other.
SAMPLE_SEED = 7
#: Seconds after which a run that still makes offers is stopped; it has at most 2500 labellings.
PATIENCE = 60.0


def call_of(family: str, seed: int, /, **how: Any) -> str:
    """Format the call that reproduces a run; `how` are the arguments of `solve`."""
    arguments = "".join(f", {name}={value!r}" for name, value in how.items())
    return f"solve(random_graph({family!r}, {seed}), solver{arguments})"


@dataclass(frozen=True)
class Planned:
    """A planned run, on a graph that the solver supports."""

    family: str
    seed: int
    how: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The call that makes the run."""
        return call_of(self.family, self.seed, **self.how)

    @property
    def temperature(self) -> float:
        """The temperature of the run."""
        return float(self.how.get("temperature", 0.0))

    @property
    def limited(self) -> bool:
        """Whether the run has a budget."""
        return "max_iterations" in self.how or "time_limit" in self.how

    @property
    def reference(self) -> Exhaustive:
        """All energies of the graph."""
        return reference(self.family, self.seed)

    @property
    def graph(self) -> FactorGraph:
        """The original graph, which is never passed to the solver."""
        return pristine(self.family, self.seed)

    def tolerance(self, energy: float) -> float:
        """Return the tolerance for comparisons with this energy."""
        return tolerance_of(self.graph, energy)


@dataclass(frozen=True)
class Case(Planned):
    """One run on one random graph, with either a solution or an error."""

    solution: Solution | None
    error: str


#: The groups of shared runs: without a budget at ``T = 0`` and above, with a limit on iterations,
#: with a very short time limit, and on graphs with costs of unusual sizes.
GROUPS = ("cold", "warm", "limited", "hurried", "scaled")


class Runs:
    """Runs of one solver over the random graphs, made once and shared by its checks."""

    def __init__(self, solver: Solver, graphs_per_family: int) -> None:
        self.solver = solver
        self.seeds = range(graphs_per_family)
        #: Description of the first run that was stopped.
        self.endless = ""
        self.groups: dict[str, list[Case]] = {}
        self._compared: dict[tuple[str, float], Solution] = {}
        self._covered: dict[tuple[str, int, float], bool] = {}
        #: Returns a context for each call, given its description.
        self.watch: Callable[[str], AbstractContextManager[None]] = lambda where: nullcontext()

    def _covers(self, graph: FactorGraph, temperature: float) -> bool:
        # Exceptions count as no support, because another check reports a `supports` that raises.
        try:
            with self.watch("solver.supports(...)"):
                reason = self.solver.missing() or self.solver.unsupported_reason(graph, temperature)
                return reason is None
        except Exception:
            return False

    def _covers_drawn(self, family: str, seed: int, temperature: float) -> bool:
        """Return the cached result of `_covers` for a graph shared by groups of runs."""
        asked = family, seed, temperature
        if asked not in self._covered:
            self._covered[asked] = self._covers(fresh(family, seed), temperature)
        return self._covered[asked]

    def _solve(
        self, graph: FactorGraph, where: str, *, solver: Solver | None = None, **how: Any
    ) -> Solution:
        """Solve, and turn every exception of the solver into a failure."""
        if self.endless:
            raise ConformanceFailure(self.endless)
        begin = time.perf_counter() - timer.seconds

        def on_offer(_: TracePoint) -> None:
            # Compilation is excluded, because it may take longer on a busy machine without a cache.
            if time.perf_counter() - timer.seconds - begin > PATIENCE:
                self.endless = (
                    f"{where}: a run must end by itself where there is nothing left to do; "
                    f"this one went on for {PATIENCE:g} s and was stopped"
                )
                raise ConformanceFailure(self.endless)

        method = self.solver if solver is None else solver
        try:
            with self.watch(where):
                return solve(graph, method, on_offer=on_offer, **how)
        except ConformanceFailure:
            raise
        except (Exception, SystemExit) as problem:
            raise ConformanceFailure(f"{where}: the run raised {last_line(problem)}") from problem

    def plan(self, group: str) -> list[Planned]:
        """List the planned runs of a group of `GROUPS`, smallest graphs first."""
        restricted = {
            "limited": ("max_iterations", (1, 3)),
            # Very short limits, because claims must hold after any interruption.
            "hurried": ("time_limit", (1e-5, 2e-3)),
        }
        if group == "cold":
            listed = self._planned(self.seeds, (0.0,))
        elif group == "warm":
            listed = self._planned(self.seeds, TEMPERATURES)
        elif group == "scaled":
            listed = [planned for family in SCALES for planned in self._planned_scaled(family)]
        else:
            name, limits = restricted[group]
            listed = [
                planned
                for temperatures in ((0.0,), TEMPERATURES)
                for first, limit in enumerate(limits)
                for planned in self._planned(self.seeds[first:4:2], temperatures, **{name: limit})
            ]
        return sorted(listed, key=lambda planned: size_of(planned.family, planned.seed))

    def _planned(self, seeds: range, temperatures: Sequence[float], **how: Any) -> list[Planned]:
        """List runs on every supported family, with the temperatures in rotation."""
        listed = []
        # Large penalties go through every check, because users replace infinite costs by them.
        for family in (*FAMILIES, *LABEL_COSTS, "penalties"):
            for seed in seeds:
                temperature = temperatures[seed % len(temperatures)]
                arguments: dict[str, Any] = {
                    "seed": seed,
                    **({"temperature": temperature} if temperature else {}),
                }
                arguments.update(how)
                if self._covers_drawn(family, seed, temperature):
                    listed.append(Planned(family, seed, arguments))
        return listed

    def _planned_scaled(self, family: str) -> Iterator[Planned]:
        """Yield a run at ``T = 0``, a hot and a cold one, on the first supported graphs."""
        for k, share in enumerate((0.0, 1.0, 2.0**-30)):
            for seed in range(k * len(self.seeds), (k + 1) * len(self.seeds)):
                graph = fresh(family, seed)
                terms = graph.n_variables + graph.n_edges + graph.n_factors
                temperature = share * graph.magnitude / terms
                # The temperature scales with the costs, so it vanishes if they do.
                if (share == 0 or temperature > 1e-300) and self._covers(graph, temperature):
                    how = {"temperature": temperature} if share else {}
                    yield Planned(family, seed, {"seed": seed, **how})
                    break

    def _make(self, planned: Planned, *, solver: Solver | None = None, **changes: Any) -> Solution:
        """Make a planned run, with changed arguments of `solve` if given."""
        how = {**planned.how, **changes}
        where = call_of(planned.family, planned.seed, **how)
        return self._solve(fresh(planned.family, planned.seed), where, solver=solver, **how)

    def run(self, planned: Planned) -> Case:
        """Make a planned run; return its solution or its error."""
        identity = planned.family, planned.seed, planned.how
        try:
            return Case(*identity, self._make(planned), "")
        except ConformanceFailure as failure:
            return Case(*identity, None, str(failure))

    def group(self, name: str) -> list[Case]:
        """Return the runs of a group of `GROUPS`, made once."""
        if name not in self.groups:
            self.groups[name] = [self.run(planned) for planned in self.plan(name)]
        return self.groups[name]

    @property
    def cases(self) -> list[Case]:
        """All runs on the families of random graphs, smallest graphs first."""
        listed = [case for group in GROUPS for case in self.group(group)]
        return sorted(listed, key=lambda case: size_of(case.family, case.seed))

    def _finished(self) -> Iterator[tuple[Case, Solution]]:
        """Yield the runs that returned; other checks report the runs that raised."""
        if not self.cases:
            raise NotApplicable("the solver supports none of the random graphs")
        if all(case.error or case.family == "infeasible" for case in self.cases):
            raise NotApplicable("every run on a feasible graph raised an exception")
        for case in self.cases:
            if case.solution is not None:
                yield case, case.solution

    def _soft(self) -> Iterator[tuple[Case, Solution]]:
        """Yield the runs at ``T > 0`` on feasible graphs, with outcomes in form."""
        if not self.group("warm"):
            raise NotApplicable("the solver supports none of the random graphs at T > 0")
        for case, solution in self._finished():
            if (
                case.temperature > 0
                and case.family != "infeasible"
                and solution.status not in (Status.INFEASIBLE, Status.ERROR)
            ):
                yield case, solution

    def _sample(self, families: Iterable[str]) -> Iterator[Planned]:
        """Yield runs on one graph of each family, at ``T = 0`` and ``T = 1`` if supported."""
        count = 0
        for family in sorted(families, key=lambda name: size_of(name, 1)):
            for temperature in (0.0, 1.0):
                if self._covers_drawn(family, 1, temperature):
                    count += 1
                    yield Planned(family, 1, {"temperature": temperature, "seed": SAMPLE_SEED})
        if count == 0:
            raise NotApplicable("the solver supports none of the random graphs")
