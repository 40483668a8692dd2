"""Public instance: a benchmark model from the data folder, with its best known value and its proof.

The table ``instances.csv`` beside this file holds checksums, licence, origin, best known energy and
proof of each. Models are identified by content, because names are ambiguous.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from inference_lab.data.datasets import DATA_VARIABLE, DataFormatError, DataNotFoundError
from inference_lab.data.folders import data_folder
from inference_lab.formatting import nearest
from inference_lab.io import read
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.problems.file import file_digest, sizes
from inference_lab.specs.grammar import SpecError


@dataclass(frozen=True)
class Instance:
    """Metadata of an instance."""

    #: ``collection/model``.
    name: str
    #: `file`, `sha256`: The model below ``map/`` of the data folder, and the digest of the stored
    #: file.
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

    @property
    def source(self) -> str:
        """Address of the file where it was published."""
        repository, _, rest = self.origin.partition("@")
        commit, _, path = rest.partition(":")
        return f"https://github.com/{repository}/blob/{commit}/{path}"


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
    collections = sorted({known.partition("/")[0] for known in _table()})
    chosen, slash, _ = name.partition("/")
    if slash and chosen in collections:
        said = ", ".join(n for n in _table() if n.startswith(f"{chosen}/"))
    else:
        said = ", ".join(f"{collection}/..." for collection in collections)
    raise SpecError(f"unknown instance {name!r}{nearest(name, _table())}; valid names: {said}")


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
        known = find(self.instance)
        model = _locate(known, known.file, known.sha256, data_dir)
        evidence = None
        if known.evidence:
            evidence = _locate(known, known.evidence, known.evidence_sha256, data_dir)
        costs = known.format == "uai" and known.scale == "cost"
        graph = read(model, evidence=evidence, format=known.format, costs=costs)
        published = ("sha256", "status", "proof", "scale", "licence", "origin")
        info: dict[str, int | float | str] = {
            **sizes(graph),
            **{name: getattr(known, name) for name in published},
        }
        if known.evidence:
            info["evidence_sha256"] = known.evidence_sha256
        if math.isfinite(known.energy):
            info["best_known"] = known.energy
        optimal = known.status == "optimal"
        return Problem(
            self.spec,
            graph,
            optimum=known.energy if optimal else None,
            optimum_source=known.proof if optimal else "",
            info=info,
        )


def _locate(known: Instance, file: str, digest: str, data_dir: Path | None) -> Path:
    """Find a file by its name in the table, or else by its content."""
    root = data_folder(data_dir)
    remedy = (
        f"Give the folder that holds map/ with --data-dir or ${DATA_VARIABLE}. "
        f"The model was published at {known.source} "
        f"(licence {known.licence}; SHA-256 of the file as it is looked for: {digest})"
    )
    if root is None:
        raise DataNotFoundError(
            f"instance {known.name!r} needs map/{file}, and no data folder is given. {remedy}"
        )
    named = [folder / file for folder in (root / "map", root) if (folder / file).is_file()]
    for path in (*named, *_files(root, known)):
        if file_digest(path) == digest:
            return path
    if named:
        raise DataFormatError(
            f"{named[0]} is not the file that instance {known.name!r} needs: its SHA-256 is "
            f"{file_digest(named[0])}, not {digest}"
        )
    where = f"{root} does not hold it" if root.is_dir() else f"{root} is not a folder"
    raise DataNotFoundError(f"instance {known.name!r} needs map/{file}; {where}. {remedy}")


def _files(root: Path, known: Instance) -> Iterator[Path]:
    """Yield all files that may be the instance under another name."""
    for folder in (root / "map", root / known.name.partition("/")[0]):
        if folder.is_dir():
            yield from sorted(path for path in folder.rglob("*") if path.is_file())
