"""Model file: any energy in a readable format (UAI, libDAI, weighted CSP, ...), and evidence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from inference_lab.data.folders import find_file
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io import read
from inference_lab.problem import Problem, ProblemFamily


@dataclass(frozen=True)
class File(ProblemFamily):
    """The energy in a model file, see `inference_lab.io.read`.

    Parameters
    ----------
    path : str
        A path, absolute or relative to the working directory or else to the data folder.
    evidence : str, optional
        An evidence file, found in the same way.
    format : str, optional
        The format, if the suffix is ambiguous: ``max-cut``, ``qubo``, ``clique-partitioning``, or
        any other of `inference_lab.io.supported_formats`.
    costs : bool
        Whether the numbers of a UAI file are costs, and not potentials.

    Examples
    --------
    >>> File(path="map/small_merlin/cancer.uai", evidence="map/small_merlin/cancer.evid").spec
    'file(path=map/small_merlin/cancer.uai, evidence=map/small_merlin/cancer.evid)'
    """

    path: str
    evidence: str | None = None
    format: str | None = None
    costs: bool = False

    def build(self, data_dir: Path | None = None) -> Problem:
        """Read the file."""
        model = find_file(self.path, data_dir, "")
        evidence = None if self.evidence is None else find_file(self.evidence, data_dir, "")
        graph = read(model, evidence=evidence, format=self.format, costs=self.costs)
        info: dict[str, int | str] = {**sizes(graph), "sha256": file_digest(model)}
        if evidence is not None:
            info["evidence_sha256"] = file_digest(evidence)
        return Problem(self.spec, graph, info=info)


def sizes(graph: FactorGraph) -> dict[str, int]:
    """Return the sizes of a model for the info of a problem."""
    return {
        "variables": graph.n_variables,
        "max_labels": int(graph.cardinalities.max(initial=0)),
        "edges": graph.n_edges,
        "higher_order": graph.n_factors,
    }


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the stored bytes of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
