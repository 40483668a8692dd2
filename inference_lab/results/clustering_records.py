"""Records of fits: one fit of a clustering method in a study, and the store of the records."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec import field

from inference_lab.results.atomic_files import exclusive_lock, write_whole
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import FAILURES, RunRecord, any_of, environment

#: Costs of a fit, reported beside its scores.
COSTS = ("objective", "violated", "seconds", "e_step_seconds")


class FitKey(NamedTuple):
    """The inputs of a fit; fits with the same key are interchangeable."""

    # Limits are excluded because they only decide whether a fit fails.

    data: str
    method_key: str
    constraints: float
    run: int
    train: float
    scored: str
    noise: float
    unit: str

    @property
    def request(self) -> FitKey:
        """The inputs of the fit; see `RunKey.request`."""
        return self

    @property
    def task(self) -> str:
        """The data and the number of constraints, in words."""
        noisy = f", {self.noise:g} of them wrong" if self.noise else ""
        return f"{self.data}, {self.constraints:g} {self.unit}{noisy}"


class StudyRecord(RunRecord, frozen=True, kw_only=True):
    """One fit of one method: the fields of every `RunRecord`, and these."""

    SCHEMA: ClassVar[int] = 3
    SETTINGS: ClassVar[tuple[str, ...]] = ("settings",)
    NUMBERS: ClassVar[tuple[str, ...]] = ("scores", "e_steps")

    schema: int = 3
    study: str
    data: str
    method: str
    #: Digest of the settings.
    method_key: str
    estimator: str
    settings: Mapping[str, Any] = {}
    constraints: float
    run: int
    #: `train`, `scored`, `noise`, `unit`: The protocol, as in the definition of the study.
    train: float
    scored: str
    noise: float
    unit: str
    status: Annotated[str, any_of(("ok", *FAILURES))]
    #: Scores on the points that the protocol scores. In a line null stands for a number that is not
    #: known, and for an infinite one, which ``not_finite`` names: a weight of hard pairs, and the
    #: violated weight of such pairs.
    scores: Mapping[str, Any] = {}
    objective: float = math.nan
    #: Seconds of the fit without loading of kernels, and of its E-steps.
    seconds: float = math.nan
    e_step_seconds: float = math.nan
    #: Summed weight of violated constraints.
    violated: float = math.nan
    #: The weight chosen.
    weight: float = math.nan
    iterations: int = 0
    #: Number of E-steps that called a solver, number proved optimal, and mean gap.
    e_steps: Mapping[str, Any] = {}
    #: Identity of machine and versions, which ``environments.json`` beside the records describes.
    environment: str = field(default_factory=lambda: environment()["id"])

    @property
    def key(self) -> FitKey:
        """The inputs of the fit; see `FitKey`."""
        return FitKey._make(getattr(self, name) for name in FitKey._fields)

    @property
    def identity(self) -> str:
        """A digest of all fields, unique because times of fits differ in their microseconds."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    def score(self, name: str) -> Any:
        """Return a score or cost by its name."""
        return getattr(self, name) if name in COSTS else self.scores.get(name)

    @property
    def outcome(self) -> str:
        """The adjusted Rand index, the objective and the time, or the reason of a failure."""
        if self.failed:
            return f"{self.status}: {self.message}"
        ari = self.scores.get("ari")
        agreement = f"ARI {math.nan if ari is None else float(ari):.3f}, "
        return agreement + f"objective {self.objective:.7g}, {self.seconds:.3g} s"


class FitStore(LineStore[StudyRecord]):
    """A file of records of fits, see `LineStore`."""

    kind = StudyRecord


def environments(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Return the descriptions of the environments in the records of a folder, by identity."""
    path = Path(folder) / "environments.json"
    if not path.exists():
        return {}
    read: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return read


def note_environments(folder: Path, more: Mapping[str, Mapping[str, Any]]) -> None:
    """Add environments to the file ``environments.json`` of a folder."""
    path = folder / "environments.json"
    # Locked because shards start at the same time.
    with exclusive_lock(path.with_suffix(".lock")):
        text = json.dumps({**more, **environments(folder)}, indent=1, sort_keys=True) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text.encode())
