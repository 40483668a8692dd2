"""Model files: `read` and `write` by suffix.

A format is one module with ``parse(data, path) -> FactorGraph`` and
``serialise(graph) -> iterable of str``, and one line in the table below. Compression and evidence
are the same for all of them and live here. Files are data: nothing in them is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from inference_lab.factor_graph import FactorGraph
from inference_lab.io import uai
from inference_lab.io._evidence import parse_evidence
from inference_lab.io._files import COMPRESSIONS, FormatError, read_bytes, write_text

__all__ = ["FormatError", "read", "supported_suffixes", "write"]


class Format(NamedTuple):
    """How to read and write one kind of model file."""

    parse: Callable[[bytes, str], FactorGraph]
    serialise: Callable[[FactorGraph], Iterable[str]]


_FORMATS: dict[str, Format] = {
    ".uai": Format(uai.parse, uai.serialise),
}


def supported_suffixes() -> tuple[str, ...]:
    """Return the suffixes of the files that `read` and `write` know.

    Examples
    --------
    >>> supported_suffixes()
    ('.uai', '.uai.gz', '.uai.xz')
    """
    return tuple(suffix + packed for suffix in _FORMATS for packed in ("", *COMPRESSIONS))


def _format_of(path: Path) -> Format:
    name = path.name.lower()
    for packed in COMPRESSIONS:
        name = name.removesuffix(packed)
    for suffix, found in _FORMATS.items():
        if name.endswith(suffix):
            return found
    raise FormatError(
        f"{path}: unknown kind of model file; supported: {', '.join(supported_suffixes())}"
    )


def read(
    path: str | os.PathLike[str], *, evidence: str | os.PathLike[str] | None = None
) -> FactorGraph:
    """Read a model file as an energy.

    Parameters
    ----------
    path : path
        Its suffix says the format, see `supported_suffixes`; upper and lower case are the same.
    evidence : path, optional
        Observed variables, as UAI evidence (plain, ``.gz`` or ``.xz``): ``count variable label
        ...``, or the same with the number of samples, 1, in front.

    Returns
    -------
    FactorGraph
        The other labels of an observed variable cost ``+inf``. Evidence of probability zero
        gives a graph on which every solver answers `infeasible`.

    Raises
    ------
    FormatError
        If the suffix is unknown, or a file is damaged or says something impossible; the message
        names the file, the place, and what was expected there. It is a ValueError.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import tempfile, inference_lab as il
    >>> from pathlib import Path
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     il.write(g, Path(folder) / "small.uai.gz")
    ...     again = il.read(Path(folder) / "small.uai.gz")
    >>> again
    FactorGraph(2 variables x 2 labels; terms: 1 Potts)
    >>> round(again.energy([0, 1]), 12)
    0.5
    """
    path = Path(path)
    kind = _format_of(path)
    graph = kind.parse(read_bytes(path), str(path))
    if evidence is None:
        return graph
    observed = parse_evidence(read_bytes(Path(evidence)), str(evidence), graph.cardinalities)
    return graph.with_evidence(observed)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a model file; `read` gives the same energies back.

    The same graph always gives the same bytes, compressed or not. What a format cannot hold
    exactly is said in its module (`inference_lab.io.uai` for ``.uai``).

    Parameters
    ----------
    graph : FactorGraph
    path : path
        Its suffix says the format, see `supported_suffixes`. An existing file is overwritten.

    Raises
    ------
    FormatError
        If the suffix is unknown.
    ValueError
        If the format cannot express the graph; nothing is written then.
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    kind = _format_of(path)
    write_text(path, kind.serialise(graph))
