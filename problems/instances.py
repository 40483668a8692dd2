"""Public instance: a benchmark model from the data folder, with its best known value and its proof.

The table ``instances.csv`` beside this file holds checksums, licence, origin, best known energy and
proof of each. The content of models is checked, because their names are ambiguous.
"""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from inference_lab.data.datasets import DataFormatError
from inference_lab.data.published import find_published
from inference_lab.formatting import nearest
from inference_lab.io import read
from inference_lab.io._files import read_bytes
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.problems.file import sizes
from inference_lab.specs.grammar import SpecError


@dataclass(frozen=True)
class Instance:
    """Metadata of an instance."""

    #: ``collection/model``.
    name: str
    #: `file`, `sha256`: The model below ``map/`` of the data folder, and the digest of its content;
    #: it may be compressed there.
    file: str
    sha256: str
    #: `evidence`, `evidence_sha256`: The evidence that belongs to it; empty without any.
    evidence: str
    evidence_sha256: str
    #: As in `inference_lab.io.read`.
    format: str
    #: Whether the file holds potentials, whose ``-ln`` are energies, or costs that are energies.
    #: The energy of a max-cut problem is minus the cut.
    scale: str
    variables: int
    max_labels: int
    #: The best known energy, with the evidence applied; ``inf`` if no labelling is feasible.
    energy: float
    #: ``optimal`` and ``infeasible`` are proved.
    status: str
    #: The source of the proof, or of the value for ``best_known``.
    proof: str
    #: SPDX identifier of the licence of the collection in which the file was published.
    licence: str
    #: ``owner/repository@commit:path`` on GitHub.
    origin: str


@cache
def _table() -> dict[str, Instance]:
    text = (resources.files("inference_lab.problems") / "instances.csv").read_text("utf-8")
    rows = msgspec.convert(list(csv.DictReader(text.splitlines())), list[Instance], strict=False)
    return {one.name: one for one in rows}


def available_instances() -> dict[str, str]:
    """Return the names of all instances with one-line descriptions."""
    return {
        one.name: f"{one.variables} variables, up to {one.max_labels} labels; "
        f"{one.status.replace('_', ' ')}: {one.energy:.6g} ({one.proof})"
        for one in _table().values()
    }


def find(name: str) -> Instance:
    """Return the metadata of the instance of a name."""
    if name in _table():
        return _table()[name]
    collections = sorted({key.partition("/")[0] for key in _table()})
    prefix, slash, _ = name.partition("/")
    if slash and prefix in collections:
        valid = ", ".join(n for n in _table() if n.startswith(f"{prefix}/"))
    else:
        valid = ", ".join(f"{collection}/..." for collection in collections)
    raise SpecError(f"unknown instance {name!r}{nearest(name, _table())}; valid names: {valid}")


@dataclass(frozen=True)
class Instances(ProblemFamily):
    """A public instance with its published results.

    Parameters
    ----------
    instance : str
        One of `available_instances`.

    Examples
    --------
    >>> Instances("uai2014_map/Grids_30").spec
    'instances(instance=uai2014_map/Grids_30)'
    """

    instance: str

    def __post_init__(self) -> None:
        """Check the name."""
        super().__post_init__()
        find(self.instance)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Read the instance, with its evidence."""
        instance = find(self.instance)
        model = _locate(instance, instance.file, instance.sha256, data_dir)
        evidence = None
        if instance.evidence:
            evidence = _locate(instance, instance.evidence, instance.evidence_sha256, data_dir)
        costs = instance.format == "uai" and instance.scale == "cost"
        graph = read(model, evidence=evidence, format=instance.format, costs=costs)
        published = ("sha256", "status", "proof", "scale", "licence", "origin")
        info: dict[str, int | float | str] = {
            **sizes(graph),
            **{name: getattr(instance, name) for name in published},
        }
        if instance.evidence:
            info["evidence_sha256"] = instance.evidence_sha256
        if math.isfinite(instance.energy):
            info["best_known"] = instance.energy
        optimal = instance.status == "optimal"
        return Problem(
            self.spec,
            graph,
            optimum=instance.energy if optimal else None,
            optimum_source=instance.proof if optimal else "",
            info=info,
        )


def _locate(instance: Instance, file: str, digest: str, data_dir: Path | None) -> Path:
    """Return a file of the data folder if it has this content, compressed or not."""
    path = find_published(f"map/{file}", data_dir)
    has = hashlib.sha256(read_bytes(path)).hexdigest()
    if has != digest:
        raise DataFormatError(
            f"{path} is not the file that instance {instance.name!r} needs: the SHA-256 of its "
            f"content is {has}, not {digest}"
        )
    return path
