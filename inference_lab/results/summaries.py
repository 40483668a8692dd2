"""Summaries of records: each problem, each solver on each problem, and each solver."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from inference_lab.contract import OPTIMALITY_TOLERANCE, Status, proves
from inference_lab.results.records import Record

#: A claim that is further from an energy than this share of it is a contradiction, not rounding.
CONTRADICTION_TOLERANCE = 1e-6
#: A bound above an energy by more than so many rounding errors is one, too.
_ROUNDING_ERRORS = 2.0**24

#: Statuses of runs that ended before their method did.
_CUT_SHORT = ("limit", "timeout", "memory")

_S = TypeVar("_S")
_T = TypeVar("_T")


def gap_percent(
    energy: float,
    bound: float,
    *,
    best: float | None = None,
    small: float = 1.0,
    tolerance: float = 0.0,
) -> float | None:
    """Return ``100 (energy - bound) / max(|best|, |bound|)``: the gap of an energy in percent."""
    # `best` is the best energy known of the problem (default: `energy`). With the same `best` and
    # `bound` for all answers to a problem, gaps order as energies do. The denominator is that of
    # the primal gap (Berthold 2013): a relative MIP gap that stays finite for a best energy of 0.
    # If it is 0 up to rounding, `inference_lab.contract.energy_scale` replaces it. A constant makes
    # it smaller, so tables have the distance itself beside it. `tolerance` counts as no gap.
    if not (math.isfinite(energy) and math.isfinite(bound)):
        return None
    if proves(energy, bound, tolerance):
        return 0.0
    scale = max(abs(energy if best is None else best), abs(bound))
    gap = 100.0 * (energy - bound) / (scale if scale > slack(0.0, small) else small)
    # Larger gaps are dropped because their means would not be finite.
    return gap if abs(gap) <= 1e300 else None


def slack(energy: float, small: float = 1.0) -> float:
    """Return the tolerance for claims of an energy, and for published optima."""
    return CONTRADICTION_TOLERANCE * max(small, abs(energy))


def tolerance_of(record: Record) -> float:
    """Return the gap at which a bound proves the energy of a record."""
    if record.tolerance is None:
        # Earlier records were judged by a share of the energy.
        return _share(record.energy, record.energy_scale)
    return record.tolerance


def _share(energy: float, small: float) -> float:
    return OPTIMALITY_TOLERANCE * max(small, abs(energy)) if math.isfinite(energy) else 0.0


@dataclass(frozen=True)
class ProblemSummary:
    """One problem over all runs."""

    name: str
    hash: str
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    #: `best_energy`, `best_energy_by`: The lowest energy found, and the solver that found it first
    #: in the order of the runs.
    best_energy: float
    best_energy_by: str
    #: `best_bound`, `best_bound_by`: The largest lower bound, the known optimum included, and its
    #: source.
    best_bound: float
    best_bound_by: str
    #: Whether a limit cut the run short that gave the best bound, which a longer one may raise.
    best_bound_cut_short: bool
    #: `optimum`, `truth_energy`, `energy_scale`: As in `Record`.
    optimum: float | None
    truth_energy: float | None
    #: Gap of the best energy to the best bound; None if either is infinite.
    gap_percent: float | None
    energy_scale: float = 1.0
    #: The gaps at which a run's bound, and the best bound, prove the best energy; and the distance
    #: above the best energy at which a bound is a contradiction.
    tolerance: float = 0.0
    tolerance_to_best: float = 0.0
    bound_slack: float = 0.0
    #: Remarks of the problem's info.
    remarks: tuple[str, ...] = ()

    def slack(self, energy: float) -> float:
        """Return the tolerance for claims of an energy, and for the known optimum."""
        return slack(energy, self.energy_scale)

    def is_best(self, energy: float) -> bool:
        """Whether an energy is the best that was found, up to rounding."""
        return proves(energy, self.best_energy, self.tolerance)

    @property
    def is_proved(self) -> bool:
        """Whether the best bound proves the best energy, or that there is none."""
        if self.best_energy == self.best_bound == math.inf:
            return True
        return proves(self.best_energy, self.best_bound, self.tolerance_to_best)

    def gap(self, energy: float) -> float | None:
        """Return the gap of an energy to the best bound; None if either is infinite."""
        if not (math.isfinite(energy) and math.isfinite(self.best_bound)):
            return None
        proved = proves(energy, self.best_bound, self.tolerance_to_best)
        return 0.0 if proved else energy - self.best_bound

    def gap_to_best(self, energy: float) -> float | None:
        """Return the gap of an energy to the best bound in percent, see `gap_percent`."""
        return self._percent(energy, self.best_bound, self.tolerance_to_best)

    def over_best(self, energy: float) -> float | None:
        """Return the distance of an energy to the best energy found, in percent of the latter."""
        return self._percent(energy, self.best_energy, self.tolerance)

    def _percent(self, energy: float, bound: float, tolerance: float) -> float | None:
        return gap_percent(
            energy, bound, best=self.best_energy, small=self.energy_scale, tolerance=tolerance
        )

    @property
    def known_energy(self) -> float:
        """The best energy known, from a run or from the known optimum."""
        return self.best_energy if self.optimum is None else min(self.best_energy, self.optimum)


@dataclass(frozen=True)
class Row:
    """One solver on one problem, over all seeds."""

    problem: str
    solver: str
    #: `runs`, `failed`, `unsupported`, `answered`: Number of all runs, of failed runs, of runs that
    #: the method does not support, and of runs with a labelling of finite energy (or a proof of
    #: infeasibility).
    runs: int
    failed: int
    unsupported: int
    answered: int
    #: `energy`, `energy_min`, `energy_max`: Median and range over the runs that found a labelling;
    #: ``inf`` if none did.
    energy: float
    energy_min: float
    energy_max: float
    #: Gap of the median energy to the best bound known for the problem, from any solver: in the
    #: unit of the energy, and in percent.
    gap: float | None
    gap_percent: float | None
    #: Distance of the median energy to the best energy that any solver found, in percent.
    over_best_percent: float | None
    #: Median of the solver's own bounds over the runs.
    lower_bound: float
    #: Number of runs with an energy proved optimal, by their own bound or the best known.
    proved: int
    #: ``"yes"`` if each run's own bound proves its energy, ``"by NAME"`` if another's does,
    #: ``"within G"`` up to the absolute gap G that the user accepts,
    #: ``"k/n"`` if only some are proved, ``"no"``.
    proved_by: str
    #: Number of runs that found the best energy known.
    best: int
    #: Median of the solver's time over the runs that neither failed nor were refused.
    seconds: float | None
    #: `accuracy`, `pairwise_f`, `nmi`, `ari`: Means.
    accuracy: float | None
    pairwise_f: float | None
    nmi: float | None
    ari: float | None
    #: Means of the problem's own scores, over the runs that have them.
    scores: Mapping[str, float]
    #: Median estimate, and its kind.
    log_partition: float | None
    log_partition_kind: str | None
    #: Status of all runs; ``"3 limit, 1 error"`` if they differ.
    status: str
    #: Reasons for failed and refused runs, and limits that stopped others, each once.
    messages: tuple[str, ...]


def summarise_problem(
    name: str, records: Sequence[Record], names: Mapping[str, str]
) -> ProblemSummary:
    """Summarise the runs on one problem."""
    first = records[0]
    labelled = [r for r in records if math.isfinite(r.energy)]
    best = min(labelled, key=lambda r: r.energy, default=None)
    energy = math.inf if best is None else best.energy
    tolerance = 0.0 if best is None else tolerance_of(best)
    above = slack(energy, first.energy_scale) if math.isfinite(energy) else math.inf
    if best is not None and best.resolution is not None:
        above = min(above, _ROUNDING_ERRORS * best.resolution)
    bounds = [(r.lower_bound, names[r.solver], r.status in _CUT_SHORT) for r in records]
    if first.optimum is not None:
        bounds.insert(0, (first.optimum, "known optimum", False))
    bound, bound_by, cut_short = max(bounds, key=lambda b: b[0])
    to_best = tolerance
    if first.optimum is not None and bound_by == "known optimum":
        # Published optima have some ten digits.
        to_best = max(tolerance, _share(first.optimum, first.energy_scale))
    return ProblemSummary(
        name=name,
        hash=first.problem_hash,
        n_variables=first.n_variables,
        n_edges=first.n_edges,
        n_factors=first.n_factors,
        n_labels=first.n_labels,
        best_energy=energy,
        best_energy_by="" if best is None else names.get(best.solver, ""),
        best_bound=bound,
        best_bound_by=bound_by if bound > -math.inf else "",
        best_bound_cut_short=cut_short and not proves(energy, bound, to_best),
        optimum=first.optimum,
        truth_energy=first.truth_energy,
        gap_percent=gap_percent(energy, bound, small=first.energy_scale, tolerance=to_best),
        energy_scale=first.energy_scale,
        tolerance=tolerance,
        tolerance_to_best=to_best,
        bound_slack=above,
        remarks=remarks_of(first.problem_info),
    )


def remarks_of(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the remarks in a problem's info; ignore values of other types from files."""
    remarks = info.get("remarks")
    return tuple(map(str, remarks)) if isinstance(remarks, list | tuple) else ()


def summarise_runs(problem: ProblemSummary, records: Sequence[Record]) -> Row:
    """Summarise the runs of one solver on one problem."""
    energies = [r.energy for r in records if math.isfinite(r.energy)]
    energy = _median(energies)
    unsupported = sum(r.refused for r in records)
    timed = [r.seconds for r in records if not (r.failed or r.refused)]
    proofs = [proof(r, problem) for r in records]
    statuses = grouped(records, lambda r: r.status)
    estimates = [r.log_partition for r in records if r.log_partition is not None]
    return Row(
        problem=problem.name,
        solver=records[0].solver,
        runs=len(records),
        failed=sum(r.failed for r in records),
        unsupported=unsupported,
        answered=sum(r.answered for r in records),
        energy=math.inf if energy is None else energy,
        energy_min=min(energies, default=math.inf),
        energy_max=max(energies, default=math.inf),
        gap=None if energy is None else problem.gap(energy),
        gap_percent=None if energy is None else problem.gap_to_best(energy),
        over_best_percent=None if energy is None else problem.over_best(energy),
        # The lower of the two middle values, because the mean of -inf and inf is not a bound.
        lower_bound=float(statistics.median_low(r.lower_bound for r in records)),
        proved=len(proofs) - proofs.count("no"),
        proved_by=(
            proofs[0]
            if len(set(proofs)) == 1
            else f"{len(proofs) - proofs.count('no')}/{len(proofs)}"
            if "no" in proofs
            else next(p for p in proofs if p != "yes")
        ),
        best=sum(_is_best(r, problem) for r in records),
        seconds=_median(timed),
        accuracy=_mean(r.accuracy for r in records),
        pairwise_f=_mean(r.pairwise_f for r in records),
        nmi=_mean(r.nmi for r in records),
        ari=_mean(r.ari for r in records),
        scores=_mean_scores(records),
        log_partition=_median(estimates),
        log_partition_kind=next(
            (r.log_partition_kind for r in records if r.log_partition is not None), None
        ),
        status=(
            records[0].status
            if len(statuses) == 1
            else ", ".join(f"{len(group)} {status}" for status, group in statuses.items())
        ),
        messages=tuple(
            dict.fromkeys(
                r.message
                for r in records
                if r.message and (r.status == Status.LIMIT or not _solved(r))
            )
        ),
    )


def proof(record: Record, problem: ProblemSummary) -> str:
    """Return the bound that proves the run's answer: ``"yes"``, ``"by NAME"`` or ``"no"``.

    ``"within G"`` is a proof by the absolute gap G that the run accepted.
    """
    if record.status == "infeasible":
        return "yes" if problem.known_energy == math.inf else "no"
    # No energy lies below the best one, so a bound above that is refuted.
    if record.lower_bound > problem.best_energy + problem.bound_slack:
        return "no"
    tolerance = tolerance_of(record)
    if proves(record.energy, record.lower_bound, tolerance):
        return "yes"
    if proves(record.energy, record.lower_bound, record.absolute_gap):
        return f"within {record.absolute_gap:g}"
    if proves(record.energy, problem.best_bound, max(tolerance, problem.tolerance_to_best)):
        return f"by {problem.best_bound_by}"
    return "no"


def _is_best(record: Record, problem: ProblemSummary) -> bool:
    if problem.known_energy == math.inf:
        return record.status == "infeasible"
    reference = problem.known_energy
    tolerance = tolerance_of(record)
    if reference < problem.best_energy:
        tolerance = max(tolerance, _share(reference, problem.energy_scale))
    return proves(record.energy, reference, tolerance)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None and not math.isnan(v)]
    return statistics.fmean(present) if present else None


def _mean_scores(records: Sequence[Record]) -> dict[str, float]:
    names = dict.fromkeys(name for record in records for name in record.scores)
    values_by_name = {name: [r.scores.get(name) for r in records] for name in names}
    means = {
        n: _mean(v for v in vs if isinstance(v, int | float)) for n, vs in values_by_name.items()
    }
    return {name: mean for name, mean in means.items() if mean is not None}


def _median(values: Iterable[float]) -> float | None:
    present = list(values)
    return float(statistics.median(present)) if present else None


def _solved(record: Record) -> bool:
    nothing = record.refused or record.failed or record.status == "infeasible"
    return not nothing and math.isfinite(record.energy)


def grouped(records: Iterable[_T], key: Callable[[_T], _S]) -> dict[_S, list[_T]]:
    """Group records, or rows, by a key, with keys and groups in the order of the records."""
    groups: dict[_S, list[_T]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups
