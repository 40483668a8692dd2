"""Prediction of the difficulty of an energy and of suitable solvers."""

from __future__ import annotations

import importlib.resources
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_lab.contract import energy_scale
from inference_lab.formatting import counted
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.registry.sources import as_problem
from inference_lab.results.json_lines import json_object
from inference_lab.results.number_formats import format_percent
from inference_lab.results.summaries import gap_percent, remarks_of
from inference_lab.selection.instance_features import (
    Measures,
    class_of,
    known_facts,
    measure,
    sample,
)

if TYPE_CHECKING:
    from inference_lab.registry.sources import ProblemSource

#: Names of the classes by frustration.
_CLASSES = (
    "no pair is frustrated",
    "frustration is weak",
    "frustration is of the order of the costs",
    "frustration is strong",
)


@cache
def evidence() -> dict[str, Any]:
    """Return the evidence that comes with the library, made by `reports.difficulty`."""
    text = (importlib.resources.files(__package__) / "evidence.json").read_text("utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`: features of an energy, and their predictions.

    Attributes
    ----------
    measures : Measures
        Sizes, frustrated pairs, core, weights.
    facts : mapping
        Constraints of the problem: number per point, share of wrong constraints.
    lp_gap : float or None
        Gap of the LP relaxation in percent, on the whole graph or a part; 0 means tight, None
        means not solved in time.
    lp_variables : int
        Number of variables of that graph or part; 0 if not solved.
    evidence : mapping
        Problems of a study with similar frustration: their number, data sets, tight relaxations
        and best solvers.
    study : str
        Source of the evidence.
    remarks : tuple of str
        Remarks of the problem's info.
    rules : tuple of mapping
        Rules by which `auto` chooses its stages, in order: ``when`` (conditions that hold),
        ``proviso`` (on the open gap, known during a run only), ``solver``, ``share`` of the
        remaining time, ``why``, and ``records`` (decisions that set the thresholds).
    rules_variables : int
        Number of variables of the graph to which the rules apply: of the largest component that
        persistency leaves; 0 if persistency labels all variables.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.diagnose(g).tight
    True
    """

    measures: Measures
    facts: Mapping[str, float] = field(default_factory=dict)
    lp_gap: float | None = None
    lp_variables: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)
    study: str = ""
    remarks: tuple[str, ...] = ()
    rules: tuple[Mapping[str, Any], ...] = ()
    rules_variables: int = 0

    @property
    def whole(self) -> bool:
        """Whether the relaxation was solved on the whole graph."""
        return self.lp_variables == self.measures.variables > 0

    @property
    def tight(self) -> bool | None:
        """Whether the LP relaxation gives the optimum, known or predicted; None if unknown."""
        if self.lp_gap is not None and (self.whole or self.lp_gap > 0):
            return self.lp_gap == 0
        if not self.evidence.get("problems"):
            return None
        low, high = self.evidence["tight_interval"]
        return True if low > 0.5 else False if high < 0.5 else None

    @property
    def solvers(self) -> list[str]:
        """Specs of the best solvers on problems of the same tightness, the fastest first."""
        figures = self.evidence
        return list((figures["not_tight"] if self.tight is False else figures).get("best", ()))

    def summary(self) -> dict[str, str]:
        """Return the findings as texts, by topic.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.diagnose(g).summary()["frustrated pairs"]
        '0 a variable'
        """
        m = self.measures
        texts = {
            "size": ", ".join(
                [
                    counted(m.variables, "variable"),
                    counted(m.pairs, "pair"),
                    *([counted(m.factors, "larger factor")] if m.factors else []),
                    f"up to {counted(m.labels, 'label')}",
                ]
            ),
            "neighbours": f"{m.mean_degree:.3g} on average, {m.max_degree:,} at most",
            "largest part": f"{100 * m.largest_component:.3g} % of the variables",
            "3-core": f"{100 * m.core:.3g} % of the variables",
            "frustrated pairs": f"{m.frustrated:.3g} a variable",
        }
        if math.isfinite(m.weight_ratio):
            texts["weight"] = f"{m.weight_ratio:.3g} times the range of a variable's costs"
        if "constraints_per_point" in self.facts:
            texts["constraints"] = f"{self.facts['constraints_per_point']:.3g} a point" + (
                f", {100 * self.facts['noise']:.3g} % of them wrong"
                if "noise" in self.facts
                else ""
            )
        if "weight_over_calibrated" in self.facts:
            texts["weight of a constraint"] = (
                f"{self.facts['weight_over_calibrated']:.3g} times the calibrated weight"
            )
        if self.lp_gap is not None:
            where = "" if self.whole else f" on {counted(self.lp_variables, 'variable')} of it"
            tight = "tight" if self.lp_gap == 0 else f"a gap of {format_percent(self.lp_gap)} %"
            texts["LP relaxation"] = tight + where
        figures = self.evidence
        if figures.get("problems"):
            what = _CLASSES[class_of(m.frustration)]
            texts["where " + what] = (
                f"tight on {figures['tight']} of {counted(figures['problems'], 'problem')}, "
                f"proved on {figures['proved_by_any']}, "
                f"of {counted(figures['sets'], 'data set')} ({self.study})"
            )
            texts["best there"] = _told(figures["solvers"])
            if figures["not_tight"]["problems"]:
                texts["best where not tight"] = _told(figures["not_tight"]["solvers"])
        if self.remarks:
            texts["remarks"] = "; ".join(self.remarks)
        if self.rules:
            texts["rules of auto"] = (
                f"for {counted(self.rules_variables, 'variable')}, in this order"
            )
            texts |= {f"{number:>2}": _rule(rule) for number, rule in enumerate(self.rules, 1)}
        else:
            texts["rules of auto"] = "none is needed: persistency labels all variables"
        return texts

    def __repr__(self) -> str:
        """Return the findings, one on each line."""
        lines = [f"{name}: {text}" for name, text in self.summary().items()]
        return "\n".join(["Diagnosis", *(f"  {line}" for line in lines)])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dictionary for strict JSON.

        Returns
        -------
        dict

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.diagnose(g).to_dict()["measures"]["variables"]
        2
        """
        return json_object({**asdict(self), "tight": self.tight, "solvers": self.solvers})


def _told(solvers: list[dict[str, Any]]) -> str:
    """Return the first three solvers with their gaps and times."""
    return "; ".join(
        f"{t['solver']} (gap {format_percent(t['gap'])} %, {t['seconds']:g} s)" for t in solvers[:3]
    )


def _rule(rule: Mapping[str, Any]) -> str:
    """Return a rule as a line."""
    proviso = f", {rule['proviso']}" if rule["proviso"] else ""
    share = f"{100 * rule['share']:g} % of the time left"
    return f"{rule['solver']}, {share}{proviso}: {rule['why']} [{rule['when']}]"


def diagnose(
    graph: ProblemSource,
    *,
    data_dir: Path | None = None,
    time_limit: float = 2.0,
    seed: int = 0,
) -> Diagnosis:
    """Predict how hard an energy is to minimise, and which solvers suit it.

    Features such as frustrated pairs take linear time; the LP relaxation is solved on a small
    graph or on a part of a large one. Records of a study with similar frustration give the
    prediction. The rules by which `auto` would choose its solvers follow.

    Parameters
    ----------
    graph : FactorGraph, Problem, ProblemFamily, str or path
        A graph, or any description of a problem; for constrained clustering, the number of
        constraints and the share of wrong ones are reported too.
    data_dir : path, optional
        The data folder, for a spec.
    time_limit : float
        Seconds for the relaxation, and as many for persistency before the rules of `auto`; 0
        leaves both out.
    seed : int
        Seed of the part.

    Returns
    -------
    Diagnosis

    Raises
    ------
    ValueError
        If the time limit is negative.

    Notes
    -----
    The evidence is of E-steps with hidden Markov random fields; for other energies it is a guess.
    The relaxation on a part is only a hint for the whole.

    Examples
    --------
    >>> import inference_lab as il
    >>> found = il.diagnose("estep(data=wine, constraints=800, noise=0.3)", time_limit=0)
    >>> round(found.measures.frustrated, 1), found.facts["noise"], found.tight
    (2.4, 0.3, False)
    """
    if not time_limit >= 0:
        raise ValueError(f"time_limit must be seconds from 0 on, got {time_limit}")
    problem = as_problem(graph, data_dir)
    energy = problem.graph
    measures = measure(energy)
    lp_gap, size = _relaxed(energy, time_limit, seed) if time_limit else (None, 0)
    figures = evidence()
    rules, rules_variables = _rules(energy, time_limit)
    return Diagnosis(
        measures=measures,
        facts=known_facts(problem.info, measures),
        lp_gap=lp_gap,
        lp_variables=size,
        evidence=figures["classes"][class_of(measures.frustration)],
        study=figures["study"],
        remarks=remarks_of(problem.info),
        rules=rules,
        rules_variables=rules_variables,
    )


def _rules(graph: FactorGraph, time_limit: float) -> tuple[tuple[Mapping[str, Any], ...], int]:
    """Return the rules that `auto` applies to the largest component that persistency leaves."""
    from inference_lab.algorithms.cuts.partial_optimality import reduce
    from inference_lab.algorithms.parts import parts_to_solve, split
    from inference_lab.solvers.auto import foreseen

    if time_limit and not graph.is_forest:
        end = time.monotonic() + time_limit
        reduction = reduce(graph, lambda: time.monotonic() > end, keep_forms=True)
        if reduction.settled:
            return (), 0
        graph = reduction.graph
        parts = parts_to_solve(graph)
        if parts is not None:
            part_of, log2_states = parts
            graph = split(graph, part_of)[int(log2_states.argmax())].graph
    return tuple(rule._asdict() for rule in foreseen(graph)), graph.n_variables


def _relaxed(graph: FactorGraph, time_limit: float, seed: int) -> tuple[float | None, int]:
    """Return the gap of the relaxation in percent, and the number of variables it was solved on."""
    from inference_lab.solving import solve

    part, _ = sample(graph, seed=seed)
    solution = solve(part, "lp-relaxation", time_limit=time_limit, seed=seed)
    if solution.labels is None:
        return None, 0
    gap = gap_percent(
        solution.energy,
        solution.lower_bound,
        small=energy_scale(part),
        tolerance=solution.tolerance,
    )
    # The gap of a run that was stopped early is dropped, because it is not that of the relaxation.
    ended = str(solution.status) in ("optimal", "converged")
    return (gap, part.n_variables) if ended and gap is not None else (None, 0)
