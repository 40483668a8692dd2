"""Definitions of studies of clustering."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from inference_lab.reporting.answers import Claim
from inference_lab.reporting.contrasts import Contrast
from inference_lab.results.clustering_records import COSTS
from inference_lab.studies.datasets import told_apart
from inference_lab.studies.designs import check_names, check_values
from inference_lab.studies.toml_config import StudyError, read_value

__all__ = ["Method", "Part", "Protocol", "Published", "Study", "Summary"]

#: What the quick form of a study can change.
_QUICK: Mapping[str, Any] = {
    "data": list[str],
    "methods": list[str],
    "constraints": list[float],
    "runs": int,
}


#: Fields of a method that are 1 unless it says otherwise.
_MULTIPLIERS = ("weight_factor", "seeded_classes")


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
        Arguments of the estimator; not the seed, and the number of clusters only where it is not
        that of the data.
        ``init = "kmeans"`` stands for centroids of k-means without constraints.
    selection : {"random", "active", "explore", "seeds"}
        Random pairs of training points; explore and consolidate, as many questions as pairs;
        explore alone; or labels of random training points, which estimators without labels get as
        the pairs that follow.
    seeded_classes : float
        Share of the classes of which points may be seeds.
    weight : float, list of float, "auto", "variance", "calibrated" or "log-odds"
        Weight of all constraints. Of several, the one of the best score is taken, as if somebody
        knew: an upper limit of what choosing it can bring. "variance" is the mean squared distance
        of the points from their mean, which puts penalties on the scale of squared distances.
        "log-odds" is by how much likelier a constraint is right than wrong under the protocol's
        noise, and "calibrated" the same on the scale of squared distances, as for the problem
        ``estep``. "auto" is left to the estimator, which is not told the noise.
    weight_factor : float
        Multiplies the weight, if it is not left to the estimator.
    closure : {"none", "drop", "vote", "raise"}
        Policy with which constraints are closed first; "none" leaves them as they are.
    vary : mapping of str to list
        Values of `weight_factor`, `seeded_classes` or settings: the study has a method for each
        combination, whose label has the values where it names them in braces.
    """

    label: str
    estimator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    selection: Literal["random", "active", "explore", "seeds"] = "random"
    weight: float | list[float] | Literal["auto", "variance", "calibrated", "log-odds"] = 1.0
    closure: Literal["none", "drop", "vote", "raise"] = "none"
    weight_factor: float = 1.0
    seeded_classes: float = 1.0
    vary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return what identifies the results of this method, whatever its label is."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        del parts["label"], parts["vary"]
        for name in _MULTIPLIERS:
            # Keys are what they were before there were these.
            if parts[name] == 1.0:
                del parts[name]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def told(self) -> dict[str, Any]:
        """Return the settings with how the method gets its constraints, as records tell them."""
        names = ("selection", "weight", "closure")
        return {**self.settings, **{name: getattr(self, name) for name in names}}

    def variants(self) -> list[Method]:
        """Return the methods that this one stands for: itself, if nothing varies."""
        where = f"method {self.label!r}: vary"
        for name, values in self.vary.items():
            check_values(values, f"{where}.{name}")
        if not self.vary:
            return [self]
        check_names(self.label, set(self.vary), where, "its label")
        found = []
        for chosen in itertools.product(*self.vary.values()):
            named = dict(zip(self.vary, chosen, strict=True))
            label = self.label.format(**named)
            shares: dict[str, Any] = {
                key: float(named.pop(key)) for key in _MULTIPLIERS if key in named
            }
            settings = {**self.settings, **named}
            found.append(replace(self, label=label, settings=settings, vary={}, **shares))
        return found


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
    unit : {"pairs", "share-of-points", "share-of-ordered-pairs", "share-seeded"}
        What the numbers of constraints are. "share-of-ordered-pairs" draws ordered pairs, of which
        each is answered, and wrongly with probability `noise`; then their order is forgotten.
        "share-seeded" is the share of the training points that are seeds, each with the label of
        another class with probability `noise`.
    """

    train: float = 1.0
    scored: Literal["held-out", "all"] = "all"
    noise: float = 0.0
    unit: Literal["pairs", "share-of-points", "share-of-ordered-pairs", "share-seeded"] = "pairs"

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if not 0.0 < self.train <= 1.0:
            raise StudyError(f"protocol.train must be above 0 and at most 1, got {self.train}")
        if not 0.0 <= self.noise <= 1.0:
            raise StudyError(f"protocol.noise must be between 0 and 1, got {self.noise}")
        if self.scored == "held-out" and self.train == 1.0:
            raise StudyError("protocol.scored = 'held-out' needs protocol.train below 1")

    def count(self, value: float, n_points: int, n_train: int) -> int:
        """Return the number of pairs, or seeds, that a number in the definition means."""
        if self.unit == "share-seeded":
            return min(round(value * n_train), n_train)
        available = n_train * (n_train - 1) // 2
        if self.unit == "share-of-ordered-pairs":
            return min(round(value * n_train**2), 2 * available)
        if self.unit == "share-of-points":
            value = value * n_points
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
class Summary:
    """Tables of means over parts, data and numbers of constraints, a table for each score.

    Parameters
    ----------
    title : str
    parts : list of str
        Titles of the parts whose fits are taken. They have the same data, constraints and runs.
    by : {"data", "part", "constraints"}
        What has a column of its own; the mean is over all else.
    data, methods : list of str
        Those that are taken; by default those of the first part. Data go by their names, whatever
        number of classes methods are told.
    constraints : list of float
        The same.
    scores : list of str
        Those of the study's scores, or costs, that have tables; by default all of its scores.
    constant : str
        Title of a part whose fits stand for any number of constraints: that of methods that do not
        look at them.
    baseline : str or None
        Label of the method whose difference to the others is shown, paired by run, for the first
        score.
    published : mapping
        Method to column to a figure for each of the first scores of the study; a column may be
        "mean". A method that the study has not is a row of published figures alone.
    source : str
        Where they are from.
    note : str
        Said below the tables.
    picture : bool
        Whether there is a figure of the first score.
    """

    title: str
    parts: list[str]
    by: Literal["data", "part", "constraints"]
    data: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    constraints: list[float] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    constant: str = ""
    baseline: str | None = None
    published: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    note: str = ""
    picture: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a study that differs from the others in its data, methods or protocol.

    Parameters
    ----------
    title : str
    data, methods, constraints, runs, protocol, baseline, published, quick
        See `Study`; what is not given is the study's, and tables are merged.
    only : list of str
        Labels of those of the study's methods that the part has, instead of `methods`.
    """

    title: str
    data: list[str] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
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
        Specs of data, see `inference_lab.studies.datasets`.
    methods : list of Method
    constraints : list of float
    runs : int
        Random draws of constraints and starts, the same for all methods.
    protocol : Protocol
    time_limit : float
        Seconds after which a fit is ended, and recorded as a timeout.
    scores : list of str
        The first one is the score of the figures, and the one that methods are compared by.
        Of what a fit costs, "objective" is what the estimator minimised, over all points,
        "violated" the weight of violated constraints, "seconds" and "e_step_seconds" are times.
    baseline : str or None
        Label of the method that others are compared with.
    answer : str
        What the results say, written by whoever looked at them: a Jinja text over the tables of
        the report, see `inference_lab.reporting.answers`.
    notes : list of str
        Deviations from the published protocol, and why.
    published : list of Published
    quick : mapping
        Values of `data`, `methods` (labels), `constraints` and `runs` for a look in a minute.
    parts : list of Part
        Where not all data go with all methods and one protocol.
    summaries : list of Summary
    contrasts : list of Contrast
        What is asked of the fits before they are made, over all parts. Facts of a fit are its
        data, part, constraints, noise and run; a draw is a run by default.
    claims : list of Claim
        What was published, and what the records say to it.
    details : bool
        Whether there are tables and figures of each set of data; else of the summaries only.
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
    summaries: list[Summary] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    details: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        """Write out the methods that stand for several."""
        methods = [each for method in self.methods for each in method.variants()]
        object.__setattr__(self, "methods", methods)

    def stages(self) -> list[Study]:
        """Return a study without parts for each part, or the study itself if it has none.

        What a part does not say is as the study has it.
        """
        if not self.parts:
            return [self]
        return [
            replace(
                self,
                title=part.title,
                data=part.data or self.data,
                methods=part.methods or self._named(part),
                constraints=part.constraints or self.constraints,
                runs=self.runs if part.runs is None else part.runs,
                protocol=part.protocol or self.protocol,
                baseline=part.baseline or self.baseline,
                published=[*self.published, *part.published],
                quick={**self.quick, **part.quick},
                parts=[],
                summaries=[],
                contrasts=[],
                claims=[],
            )
            for part in self.parts
        ]

    def _named(self, part: Part) -> list[Method]:
        """Return those of the methods that a part names, all if it names none."""
        labels = [m.label for m in self.methods]
        for label in part.only:
            if label not in labels:
                raise StudyError(
                    f"part {part.title!r}: only names {label!r}, which is no method's label"
                )
        return [m for m in self.methods if not part.only or m.label in part.only]

    def quickly(self) -> Study:
        """Return the quick form."""
        if self.parts:
            changed = ("data", "methods", "constraints", "runs", "baseline")
            stages = [stage.quickly() for stage in self.stages()]
            values = [{name: getattr(stage, name) for name in changed} for stage in stages]
            parts = [
                replace(part, only=[], quick={}, **each)
                for part, each in zip(self.parts, values, strict=True)
            ]
            result = replace(self, parts=parts, baseline=None, quick={}, summaries=[], details=True)
            return result._without_findings()
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
        result = replace(self, **changes)._without_findings()
        result.check()
        return result

    def _labels(self) -> list[str]:
        """Return the labels of the methods of all stages."""
        return list(dict.fromkeys(m.label for stage in self.stages() for m in stage.methods))

    def _without_findings(self) -> Study:
        """Return the study without what all records say, with the contrasts that it can answer."""
        labels = self._labels()
        asked = [c for c in self.contrasts if not c.problem(labels)]
        return replace(self, answer="", claims=[], contrasts=asked)

    def check(self) -> None:
        """Refuse what cannot be run."""
        from inference_lab.studies.estimators import ESTIMATORS, PARTIAL, PREDICTED, SCORES

        if self.parts:
            titles = [part.title for part in self.parts]
            for stage in self.stages():
                if titles.count(stage.title) > 1:
                    raise StudyError(f"two parts are called {stage.title!r}")
                try:
                    stage.check()
                except StudyError as problem:
                    raise StudyError(f"part {stage.title!r}: {problem}") from None
            for summary in self.summaries:
                self._check_summary(summary)
            self._check_contrasts()
            return
        if self.summaries:
            raise StudyError("summaries are over parts, of which the study has none")
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
            if (method.selection == "seeds") != (self.protocol.unit == "share-seeded"):
                raise StudyError(
                    f"method {method.label!r}: selection = 'seeds' and protocol.unit = "
                    "'share-seeded' go with each other only"
                )
            if not 0.0 < method.seeded_classes <= 1.0:
                raise StudyError(
                    f"method {method.label!r}: seeded_classes must be above 0 and at most 1, got "
                    f"{method.seeded_classes}"
                )
        known = (*SCORES, *PREDICTED, *PARTIAL, *COSTS)
        for score in self.scores:
            if score not in known:
                allowed = ", ".join(known)
                raise StudyError(f"score {score!r} is unknown; allowed: {allowed}")
        if self.baseline is not None and self.baseline not in labels:
            raise StudyError(f"baseline {self.baseline!r} is no method's label: {labels}")
        self._check_contrasts()

    def _check_contrasts(self) -> None:
        """Refuse contrasts of methods that the study has not."""
        for number, contrast in enumerate(self.contrasts):
            if wrong := contrast.problem(self._labels()):
                raise StudyError(f"contrasts[{number}]: {wrong}")

    def _check_summary(self, summary: Summary) -> None:
        """Refuse a summary of what the parts do not have."""
        where = f"summary {summary.title!r}"
        stages = {stage.title: stage for stage in self.stages()}
        named = [*summary.parts, *([summary.constant] if summary.constant else [])]
        for title in named:
            if title not in stages:
                raise StudyError(f"{where}: {title!r} is no part's title")
        if not summary.parts:
            raise StudyError(f"{where}: parts must not be empty")
        for title in named:
            stage = stages[title]
            if stage.runs != stages[named[0]].runs:
                raise StudyError(f"{where}: parts must have the same number of runs")
            if title == summary.constant:
                continue
            for value in summary.constraints or stages[named[0]].constraints:
                if value not in stage.constraints:
                    raise StudyError(f"{where}: part {title!r} has no constraints = {value:g}")
        held = {told_apart(data)[0] for title in summary.parts for data in stages[title].data}
        for data in summary.data:
            if data not in held:
                raise StudyError(f"{where}: none of its parts has data {data!r}")
        for label in [*summary.methods, *([summary.baseline] if summary.baseline else [])]:
            if not any(label == m.label for title in named for m in stages[title].methods):
                raise StudyError(f"{where}: {label!r} is the label of no method of its parts")
        for score in summary.scores:
            if score not in (*self.scores, *COSTS):
                raise StudyError(f"{where}: {score!r} is no score of the study")
        for method, columns in summary.published.items():
            for column, values in columns.items():
                if not isinstance(values, list) or not 0 < len(values) <= len(self.scores):
                    raise StudyError(
                        f"{where}: published.{method}.{column} must have a figure for each of the "
                        f"first scores, got {values!r}"
                    )
