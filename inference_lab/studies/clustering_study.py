"""Definitions of studies of clustering."""

from __future__ import annotations

import hashlib
import itertools
import json
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict, force_setattr, replace

from inference_lab.results.clustering_records import COSTS
from inference_lab.results.records import Limit
from inference_lab.studies.definition import (
    Natural,
    StudyDefinition,
    StudyError,
    Values,
    check_names,
)
from inference_lab.studies.study_points import split_name

#: Types of fields: a share, numbers of constraints, published values of a study's first scores.
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveShare = Annotated[float, Meta(gt=0.0, le=1.0)]
Numbers = list[Annotated[float, Meta(ge=0.0)]]
Figures = Annotated[list[float], Meta(min_length=1)]

#: Fields of a method whose default is 1.
_MULTIPLIERS = ("weight_factor", "seeded_classes")


class Method(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """A method of a study: an estimator with settings, and the selection of its constraints.

    Parameters
    ----------
    label : str
        Its name in tables.
    estimator : str
        See `inference_lab.studies.estimators.ESTIMATORS`.
    settings : mapping
        Arguments of the estimator, without the seed. The number of clusters is given only where it
        differs from the number of classes.
        ``init = "kmeans"`` starts from centroids of k-means without constraints.
    selection : {"random", "active", "explore", "seeds"}
        Random pairs of training points; explore and consolidate, with one query for each pair;
        explore alone; or labels of random training points. Estimators without a parameter for
        labels receive the pairs that follow from these.
    seeded_classes : float
        Share of the classes from which seeds are drawn.
    weight : float, list of float, "default", "auto", "variance", "calibrated" or "log-odds"
        Weight of all constraints. From a list, an oracle takes the weight with the best score: an
        upper limit on the gain from a choice. "variance" is the mean squared distance of the
        points from their mean, which puts penalties on the scale of squared distances. "log-odds"
        are the log-odds that a constraint is right under the protocol's noise. "calibrated" is the
        same on the scale of squared distances, as for the problem ``estep``. With "auto" the
        estimator chooses, without knowing the noise; "default" passes no weights to ``fit``.
    weight_factor : float
        Multiplies the weight, unless the estimator chooses it.
    closure : {"none", "drop", "vote", "raise"}
        Policy of the transitive closure before the fit; "none" leaves constraints unchanged.
    vary : mapping of str to list
        Values of `weight_factor`, `seeded_classes` or settings. The study has a method for each
        combination; names in braces in the label are replaced by their values.
    """

    label: str
    estimator: str
    settings: dict[str, Any] = {}
    selection: Literal["random", "active", "explore", "seeds"] = "random"
    weight: (
        float | list[float] | Literal["default", "auto", "variance", "calibrated", "log-odds"]
    ) = 1.0
    closure: Literal["none", "drop", "vote", "raise"] = "none"
    weight_factor: float = 1.0
    seeded_classes: PositiveShare = 1.0
    vary: dict[str, Values] = {}

    @cached_property  # a study asks once for each of its fits
    def key(self) -> str:
        """Return the digest that identifies the results of this method, whatever its label."""
        parts = asdict(self)
        del parts["label"], parts["vary"]
        for name in _MULTIPLIERS:
            # Defaults are left out because keys of records older than these fields must not change.
            if parts[name] == 1.0:
                del parts[name]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def described(self) -> dict[str, Any]:
        """Return the settings and the selection, weight and closure, as records store them."""
        names = ("selection", "weight", "closure")
        return {**self.settings, **{name: getattr(self, name) for name in names}}

    def variants(self) -> list[Method]:
        """Return one method for each combination of `vary`, or this one if it is empty."""
        if not self.vary:
            return [self]
        where = f"method {self.label!r}: vary"
        check_names(self.label, set(self.vary), where, "its label")
        variants = []
        for values in itertools.product(*self.vary.values()):
            named = dict(zip(self.vary, values, strict=True))
            label = self.label.format(**named)
            shares: dict[str, Any] = {
                key: float(named.pop(key)) for key in _MULTIPLIERS if key in named
            }
            settings = {**self.settings, **named}
            variants.append(replace(self, label=label, settings=settings, vary={}, **shares))
        return variants


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A protocol for drawing constraints and scoring labellings.

    Parameters
    ----------
    train : float in (0, 1]
        Share of the points that may occur in constraints.
    scored : {"held-out", "all"}
        Points whose labels are scored.
    noise : float
        Share of the constraints that are flipped to the other kind.
    unit : {"pairs", "share-of-points", "share-of-ordered-pairs", "share-seeded"}
        Unit of the numbers of constraints. "share-of-ordered-pairs" draws ordered pairs; each gets
        an answer, wrong with probability `noise`, and then its order is dropped.
        "share-seeded" is the share of the training points that are seeds, each with the label of
        another class with probability `noise`.
    """

    train: PositiveShare = 1.0
    scored: Literal["held-out", "all"] = "all"
    noise: Share = 0.0
    unit: Literal["pairs", "share-of-points", "share-of-ordered-pairs", "share-seeded"] = "pairs"

    def check(self) -> None:
        """Raise `StudyError` if held-out points are to be scored and there are none."""
        if self.scored == "held-out" and self.train == 1.0:
            raise StudyError("protocol.scored = 'held-out' needs protocol.train below 1")

    def count(self, value: float, n_points: int, n_train: int) -> int:
        """Convert a number of constraints of the definition to a number of pairs or seeds."""
        if self.unit == "share-seeded":
            return min(round(value * n_train), n_train)
        available = n_train * (n_train - 1) // 2
        if self.unit == "share-of-ordered-pairs":
            return min(round(value * n_train**2), 2 * available)
        if self.unit == "share-of-points":
            value = value * n_points
        return min(round(value), available)


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published value, shown beside the result of the study."""

    data: str
    method: str
    constraints: float
    score: str
    value: float
    source: str


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables of means over parts, data and numbers of constraints, a table for each score.

    Parameters
    ----------
    title : str
    parts : list of str
        Titles of the parts whose fits are averaged. They have the same data, constraints and runs.
    by : {"data", "part", "constraints"}
        Quantity that has a column for each value; means are over all others.
    data, methods : list of str
        Data and methods in the tables; by default all of the first part. Data are identified by
        name, independent of the number of classes that methods receive.
    constraints : list of float
        Numbers of constraints in the tables; by default all of the first part.
    scores : list of str
        Scores or costs of the study that have tables; by default all of its scores.
    constant : str
        Title of a part whose fits are used for every number of constraints, because its methods
        ignore constraints.
    baseline : str or None
        Label of the method whose difference to the others is shown, paired by run, for the first
        score.
    published : mapping
        Method to column to the values of the first scores of the study; a column may be "mean". A
        method that is not in the study gets a row of published values alone.
    source : str
        Reference of the published values.
    note : str
        Note below the tables.
    picture : bool
        Whether the first score has a figure.
    """

    title: str
    parts: Annotated[list[str], Meta(min_length=1)]
    by: Literal["data", "part", "constraints"]
    data: list[str] = []
    methods: list[str] = []
    constraints: Numbers = []
    scores: list[str] = []
    constant: str = ""
    baseline: str | None = None
    published: dict[str, dict[str, Figures]] = {}
    source: str = ""
    note: str = ""
    picture: bool = False


class QuickLook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that the quick form of a study (about a minute) replaces; methods by their labels."""

    data: list[str] | UnsetType = UNSET
    methods: list[str] | UnsetType = UNSET
    constraints: Numbers | UnsetType = UNSET
    runs: Natural | UnsetType = UNSET


class StudyPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a study with data, methods or a protocol of its own.

    Parameters
    ----------
    title : str
    data, methods, constraints, runs, protocol, baseline, published, quick
        See `Study`; the default of each is the study's value, and tables are merged.
    only : list of str
        Labels of the study's methods that the part has, instead of `methods`.
    """

    title: str
    data: list[str] = []
    methods: list[Method] = []
    only: list[str] = []
    constraints: Numbers = []
    runs: Natural | None = None
    protocol: Protocol | None = None
    baseline: str | None = None
    published: list[Published] = []
    quick: QuickLook = QuickLook()


class Study(StudyDefinition, frozen=True, kw_only=True):
    """A study, as its file defines it.

    Parameters
    ----------
    data : list of str
        Specs of data, see `inference_lab.studies.study_points`.
    methods : list of Method
    constraints : list of float
    runs : int
        Random draws of constraints and starts, the same for all methods.
    protocol : Protocol
    time_limit : float
        Seconds after which a fit is stopped, and recorded as a timeout.
    scores : list of str
        The first one is used in comparisons with the baseline. Costs of a fit may be named too:
        "objective" is the minimised objective over all points, "violated" the weight of violated
        constraints, "seconds" and "e_step_seconds" are times.
        "primal_gap" and "optimality_gap" compare objectives, so methods must have the same weights.
    baseline : str or None
        Label of the method that others are compared with.
    published : list of Published
    quick : QuickLook
    parts : list of StudyPart
        Parts of a study in which data, methods and protocols are not fully crossed.
    summaries : list of Summary
    details : bool
        Whether each data set has tables and figures; else only the summaries have them.
    """

    data: list[str] = []
    methods: list[Method] = []
    constraints: Numbers = []
    runs: Natural
    protocol: Protocol = Protocol()
    time_limit: Limit = 3600.0
    scores: list[str] = msgspec.field(default_factory=lambda: ["pairwise_f", "nmi"])
    baseline: str | None = None
    published: list[Published] = []
    quick: QuickLook = QuickLook()
    parts: list[StudyPart] = []
    summaries: list[Summary] = []
    details: bool = True

    def __post_init__(self) -> None:
        """Expand methods with `Method.vary` into their variants."""
        methods = [variant for method in self.methods for variant in method.variants()]
        force_setattr(self, "methods", methods)

    def stages(self) -> list[Study]:
        """Return a study for each part, with the study's values for fields left out, or itself."""
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
                quick=replace(self.quick, **msgspec.to_builtins(part.quick)),
                parts=[],
                summaries=[],
                contrasts=[],
                claims=[],
            )
            for part in self.parts
        ]

    def _named(self, part: StudyPart) -> list[Method]:
        """Return the methods that a part names, or all if it names none."""
        labels = [m.label for m in self.methods]
        for label in part.only:
            if label not in labels:
                raise StudyError(
                    f"part {part.title!r}: only names {label!r}, which is not the label of a method"
                )
        return [m for m in self.methods if not part.only or m.label in part.only]

    def quickly(self) -> Study:
        """Return the quick form."""
        if self.parts:
            changed = ("data", "methods", "constraints", "runs", "baseline")
            stages = [stage.quickly() for stage in self.stages()]
            values = [{name: getattr(stage, name) for name in changed} for stage in stages]
            parts = [
                replace(part, only=[], quick=QuickLook(), **stage_values)
                for part, stage_values in zip(self.parts, values, strict=True)
            ]
            result = replace(
                self, parts=parts, baseline=None, quick=QuickLook(), summaries=[], details=True
            )
            return result.without_findings(result._labels())
        changes = msgspec.to_builtins(self.quick)
        if (labels := self.quick.methods) is not UNSET:
            by_label = {m.label: m for m in self.methods}
            missing = [label for label in labels if label not in by_label]
            if missing:
                raise StudyError(f"quick.methods: no method has the label {missing[0]!r}")
            changes["methods"] = [by_label[label] for label in labels]
            if self.baseline not in labels:
                changes["baseline"] = None
        result = replace(self, **changes)
        result = result.without_findings(result._labels())
        result.check()
        return result

    def _labels(self) -> list[str]:
        """Return the labels of the methods of all stages."""
        return list(dict.fromkeys(m.label for stage in self.stages() for m in stage.methods))

    def check(self) -> None:
        """Raise `StudyError` for a definition that cannot be run."""
        from inference_lab.studies.estimators import (
            ESTIMATORS,
            OF_OBJECTIVES,
            PARTIAL,
            PREDICTED,
            SCORES,
        )

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
            self.check_contrasts(self._labels())
            return
        if self.summaries:
            raise StudyError("summaries are over parts, of which the study has none")
        self.protocol.check()
        for name in ("data", "methods", "constraints", "scores"):
            if not getattr(self, name):
                raise StudyError(f"{name} must not be empty")
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
        score_names = (*SCORES, *PREDICTED, *PARTIAL, *OF_OBJECTIVES, *COSTS)
        for score in self.scores:
            if score not in score_names:
                allowed = ", ".join(score_names)
                raise StudyError(f"score {score!r} is unknown; allowed: {allowed}")
        if self.baseline is not None and self.baseline not in labels:
            raise StudyError(f"baseline {self.baseline!r} is not the label of a method: {labels}")
        self.check_contrasts(labels)

    def _check_summary(self, summary: Summary) -> None:
        """Raise `StudyError` if a summary names anything that its parts lack."""
        where = f"summary {summary.title!r}"
        stages = {stage.title: stage for stage in self.stages()}
        named = [*summary.parts, *([summary.constant] if summary.constant else [])]
        for title in named:
            if title not in stages:
                raise StudyError(f"{where}: {title!r} is not the title of a part")
        for title in named:
            stage = stages[title]
            if stage.runs != stages[named[0]].runs:
                raise StudyError(f"{where}: parts must have the same number of runs")
            if title == summary.constant:
                continue
            for value in summary.constraints or stages[named[0]].constraints:
                if value not in stage.constraints:
                    raise StudyError(f"{where}: part {title!r} has no constraints = {value:g}")
        data_names = {split_name(data)[0] for title in summary.parts for data in stages[title].data}
        for data in summary.data:
            if data not in data_names:
                raise StudyError(f"{where}: none of its parts has data {data!r}")
        for label in [*summary.methods, *([summary.baseline] if summary.baseline else [])]:
            if not any(label == m.label for title in named for m in stages[title].methods):
                raise StudyError(f"{where}: {label!r} is the label of no method of its parts")
        for score in summary.scores:
            if score not in (*self.scores, *COSTS):
                raise StudyError(f"{where}: {score!r} is not a score of the study")
        for method, columns in summary.published.items():
            for column, values in columns.items():
                if len(values) > len(self.scores):
                    raise StudyError(
                        f"{where}: published.{method}.{column} must have a figure for each of the "
                        f"first scores, got {values!r}"
                    )
