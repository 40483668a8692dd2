"""Definitions of studies of clustering."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from inference_lab.studies.reading import StudyError, read_value

__all__ = ["Method", "Part", "Protocol", "Published", "Study"]

#: What the quick form of a study can change.
_QUICK: Mapping[str, Any] = {
    "data": list[str],
    "methods": list[str],
    "constraints": list[float],
    "runs": int,
}


@dataclass(frozen=True)
class Method:
    """A method of a study: an estimator with settings, and how it gets its constraints.

    Parameters
    ----------
    label : str
        Its name in tables.
    estimator : str
        See `inference_lab.studies.estimators.ESTIMATORS`.
    settings : mapping
        Arguments of the estimator; not the number of clusters, nor the seed.
    selection : {"random", "active"}
        Random pairs of training points, or explore and consolidate, as many questions as pairs.
    weight : float or list of float
        Weight of all constraints. Of several, the one of the best score is taken, as if somebody
        knew: an upper limit of what choosing it can bring.
    closure : {"none", "drop", "vote", "raise"}
        Policy with which constraints are closed first; "none" leaves them as they are.
    """

    label: str
    estimator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    selection: Literal["random", "active"] = "random"
    weight: float | list[float] = 1.0
    closure: Literal["none", "drop", "vote", "raise"] = "none"

    @property
    def key(self) -> str:
        """Return what identifies the results of this method, whatever its label is."""
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "label"}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Protocol:
    """How constraints are drawn and what is scored.

    Parameters
    ----------
    train : float in (0, 1]
        Share of the points that constraints may touch.
    scored : {"held-out", "all"}
        Whose labels count.
    noise : float
        Share of the constraints that are turned into the other kind.
    unit : {"pairs", "share-of-points", "share-of-pairs"}
        What the numbers of constraints are.
    """

    train: float = 1.0
    scored: Literal["held-out", "all"] = "all"
    noise: float = 0.0
    unit: Literal["pairs", "share-of-points", "share-of-pairs"] = "pairs"

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if not 0.0 < self.train <= 1.0:
            raise StudyError(f"protocol.train must be above 0 and at most 1, got {self.train}")
        if not 0.0 <= self.noise <= 1.0:
            raise StudyError(f"protocol.noise must be between 0 and 1, got {self.noise}")
        if self.scored == "held-out" and self.train == 1.0:
            raise StudyError("protocol.scored = 'held-out' needs protocol.train below 1")

    def count(self, value: float, n_points: int, n_train: int) -> int:
        """Return the number of pairs that a number in the definition means."""
        available = n_train * (n_train - 1) // 2
        if self.unit == "share-of-points":
            value = value * n_points
        elif self.unit == "share-of-pairs":
            value = value * available
        return min(round(value), available)


@dataclass(frozen=True)
class Published:
    """A published figure, to be set beside ours."""

    data: str
    method: str
    constraints: float
    score: str
    value: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a study that differs from the others in its data, methods or protocol.

    Parameters
    ----------
    title : str
    data, methods, constraints, runs, protocol, baseline, published, quick
        See `Study`; what is not given is the study's, and tables are merged.
    """

    title: str
    data: list[str] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    constraints: list[float] = field(default_factory=list)
    runs: int | None = None
    protocol: Protocol | None = None
    baseline: str | None = None
    published: list[Published] = field(default_factory=list)
    quick: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study, as its file defines it.

    Parameters
    ----------
    title, question : str
    data : list of str
        Specs of data, see `inference_lab.studies.points`.
    methods : list of Method
    constraints : list of float
    runs : int
        Random draws of constraints and starts, the same for all methods.
    protocol : Protocol
    time_limit : float
        Seconds after which a fit is ended, and recorded as a timeout.
    scores : list of str
        The first one is the score of the figures, and the one that methods are compared by.
    baseline : str or None
        Label of the method that others are compared with.
    answer : str
        What the results say, in words, written by whoever looked at them.
    notes : list of str
        Deviations from the published protocol, and why.
    published : list of Published
    quick : mapping
        Values of `data`, `methods` (labels), `constraints` and `runs` for a look in a minute.
    parts : list of Part
        Where not all data go with all methods and one protocol.
    """

    title: str
    question: str
    data: list[str] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    constraints: list[float] = field(default_factory=list)
    runs: int
    protocol: Protocol = field(default_factory=Protocol)
    time_limit: float = 3600.0
    scores: list[str] = field(default_factory=lambda: ["pairwise_f", "nmi"])
    baseline: str | None = None
    answer: str = ""
    notes: list[str] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    quick: Mapping[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    name: str = ""

    def stages(self) -> list[Study]:
        """Return a study without parts for each part, or the study itself if it has none."""
        if not self.parts:
            return [self]
        return [
            replace(
                self,
                title=part.title,
                data=part.data or self.data,
                methods=part.methods or self.methods,
                constraints=part.constraints or self.constraints,
                runs=self.runs if part.runs is None else part.runs,
                protocol=part.protocol or self.protocol,
                baseline=part.baseline or self.baseline,
                published=[*self.published, *part.published],
                quick={**self.quick, **part.quick},
                parts=[],
            )
            for part in self.parts
        ]

    def quickly(self) -> Study:
        """Return the quick form.

        Raises
        ------
        StudyError
            If it names something that the study has not.
        """
        if self.parts:
            stages = [stage.quickly() for stage in self.stages()]
            parts = [
                replace(
                    part,
                    data=stage.data,
                    methods=stage.methods,
                    constraints=stage.constraints,
                    runs=stage.runs,
                    baseline=stage.baseline,
                    quick={},
                )
                for part, stage in zip(self.parts, stages, strict=True)
            ]
            return replace(self, parts=parts, baseline=None, quick={})
        changes: dict[str, Any] = {}
        for key, value in self.quick.items():
            if key not in _QUICK:
                raise StudyError(f"quick.{key} is unknown; allowed: {', '.join(_QUICK)}")
            changes[key] = read_value(value, _QUICK[key], f"quick.{key}")
        if "methods" in changes:
            by_label = {m.label: m for m in self.methods}
            missing = [label for label in changes["methods"] if label not in by_label]
            if missing:
                raise StudyError(f"quick.methods names {missing[0]!r}, which is no method's label")
            changes["methods"] = [by_label[label] for label in changes["methods"]]
            if self.baseline not in self.quick["methods"]:
                changes["baseline"] = None
        result = replace(self, **changes)
        result.check()
        return result

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises
        ------
        StudyError
        """
        from inference_lab.studies.estimators import ESTIMATORS, SCORES

        if self.parts:
            titles = [part.title for part in self.parts]
            for stage in self.stages():
                if titles.count(stage.title) > 1:
                    raise StudyError(f"two parts are called {stage.title!r}")
                try:
                    stage.check()
                except StudyError as problem:
                    raise StudyError(f"part {stage.title!r}: {problem}") from None
            return
        self.protocol.check()
        if not (math.isfinite(self.time_limit) and self.time_limit > 0):
            raise StudyError(f"time_limit must be positive seconds, got {self.time_limit}")
        for name in ("data", "methods", "constraints", "scores"):
            if not getattr(self, name):
                raise StudyError(f"{name} must not be empty")
        if self.runs < 1:
            raise StudyError(f"runs must be at least 1, got {self.runs}")
        if any(value < 0 for value in self.constraints):
            raise StudyError("constraints must not be negative")
        labels = [m.label for m in self.methods]
        for label in labels:
            if labels.count(label) > 1:
                raise StudyError(f"two methods are labelled {label!r}")
        for method in self.methods:
            if method.estimator not in ESTIMATORS:
                raise StudyError(
                    f"method {method.label!r}: estimator {method.estimator!r} is unknown; "
                    f"allowed: {', '.join(sorted(ESTIMATORS))}"
                )
        for score in self.scores:
            if score not in SCORES:
                raise StudyError(f"score {score!r} is unknown; allowed: {', '.join(SCORES)}")
        if self.baseline is not None and self.baseline not in labels:
            raise StudyError(f"baseline {self.baseline!r} is no method's label: {labels}")
