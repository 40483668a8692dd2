"""Model files: `read` and `write`, by suffix or by the name of the format.

A format is one module with ``parse(data, path) -> FactorGraph`` and one entry in the table below;
UAI files are also written. Compression and evidence are handled here for all formats. Files are
data: nothing in them is ever executed.

One rule holds for the text of all formats, plain or packed, and for evidence
(`inference_lab.io._text`):

* a byte order mark of UTF-8 is skipped, lines end in LF, CRLF or CR, and blank lines do not count;
* ``#`` begins a comment that ends with its line. Within a name of a ``.wcsp`` or ``.cfn`` file, and
  within quotes, it is text. In ``.cfn`` files ``//`` begins a comment, too;
* in all formats without names, which is all but these two, a line whose first word is ``c`` is a
  comment.

=================== =========== ============================== ========= =========================
format              suffix      problem or origin              written   module
=================== =========== ============================== ========= =========================
uai                 ``.uai``    UAI competitions               yes       `inference_lab.io.uai`
fg                  ``.fg``     libDAI                         no        `inference_lab.io.fg`
wcsp                ``.wcsp``   weighted CSP, toulbar2         no        `inference_lab.io.wcsp`
cfn                 ``.cfn``    cost function network          no        `inference_lab.io.cfn`
dd                  ``.dd``     graph matching                 no        `inference_lab.io.dd`
max-cut             (none)      Biq Mac library, G-set, rudy   no        `inference_lab.io.biqmac`
qubo                ``.qubo``   qbsolv, Biq Mac library        no        `inference_lab.io.biqmac`
clique-partitioning (none)      CP-Lib                         no        `inference_lab.io.biqmac`
=================== =========== ============================== ========= =========================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from inference_lab.formatting import listed, nearest, shortened
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_cost_chain import chain
from inference_lab.io import biqmac, cfn, dd, fg, uai, wcsp
from inference_lab.io._evidence import parse_evidence
from inference_lab.io._files import COMPRESSIONS, FormatError, read_bytes, write_text

__all__ = ["FormatError", "read", "supported_formats", "supported_suffixes", "write"]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


#: The parser of each format.
_FORMATS: dict[str, Callable[[bytes, str], FactorGraph]] = {
    "uai": uai.parse,
    "fg": fg.parse,
    "wcsp": wcsp.parse,
    "cfn": cfn.parse,
    "dd": dd.parse,
    "max-cut": biqmac.parse_max_cut,
    "qubo": biqmac.parse_qubo,
    "clique-partitioning": biqmac.parse_clique_partitioning,
}

#: Formats whose files have no suffix of their own.
_NAMELESS = ("max-cut", "clique-partitioning")


def supported_formats() -> tuple[str, ...]:
    """Return the names of the formats that `read` supports.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> supported_formats()
    ('uai', 'fg', 'wcsp', 'cfn', 'dd', 'max-cut', 'qubo', 'clique-partitioning')
    """
    return tuple(_FORMATS)


def supported_suffixes() -> tuple[str, ...]:
    """Return the file suffixes from which `read` infers the format.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> supported_suffixes()[:4]
    ('.uai', '.uai.gz', '.uai.xz', '.fg')
    """
    return tuple(
        f".{kind}{packed}"
        for kind in _FORMATS
        if kind not in _NAMELESS
        for packed in ("", *COMPRESSIONS)
    )


def _format_of(path: Path, wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in _FORMATS:
            raise FormatError(
                f"unknown format {wanted!r}{nearest(wanted, _FORMATS)}; supported: "
                f"{', '.join(_FORMATS)}"
            )
        return wanted
    name = path.name.lower()
    if name.endswith(COMPRESSIONS):
        name = name[: name.rindex(".")]
    _, dot, kind = name.rpartition(".")
    if dot and kind in _FORMATS and kind not in _NAMELESS:
        return kind
    raise FormatError(
        f"{path}: unknown kind of model file; supported: {', '.join(supported_suffixes())}; "
        f"or name the format, as in file(path={path}, format=uai): {', '.join(_FORMATS)}"
    )


def _holds(folder: Path) -> str:
    """Format the list of model files in a folder."""
    models = sorted(p.name for p in folder.iterdir() if p.name.endswith(supported_suffixes()))
    return f", which holds {listed(models)}" if models else ""


def read(
    path: str | os.PathLike[str],
    *,
    evidence: str | os.PathLike[str] | None = None,
    format: str | None = None,
    costs: bool = False,
) -> FactorGraph:
    """Read a model file as an energy.

    Parameters
    ----------
    path : path
        Its suffix selects the format, see `supported_suffixes`; case is ignored.
    evidence : path, optional
        Observed variables, as UAI evidence (plain, ``.gz`` or ``.xz``): ``count variable label
        ...``, or the same with the number of samples, 1, in front.
    format : str, optional
        One of `supported_formats`, for files whose suffix does not determine it.
    costs : bool
        For UAI files only: read the table entries as costs rather than as potentials ``exp(-c)``
        of costs ``c``. Such files exist, and nothing in them marks them.

    Returns
    -------
    FactorGraph
        The other labels of an observed variable cost ``+inf``. Evidence of probability zero
        gives a graph on which every solver returns `infeasible`.

    Raises
    ------
    FormatError
        If the suffix or format is unknown, or a file is damaged, inconsistent, or declares more
        than the limits allow; the message names the file, the position, and the content expected
        there. It is a ValueError.
    ValueError
        If `costs` is set for another format, because only UAI files are ambiguous.
    OSError
        If a file cannot be opened.

    Notes
    -----
    Time and memory are linear in the size of the content and of the arrays it declares. The sizes
    that small files may declare are bounded: 2**24 table entries more than the file has numbers,
    a million labels of variables in no factor, costs of 1e100. Packed files may unpack into 32 MiB
    or a hundred times their size, and any file into 2 GiB. A variable twice in a scope is an error;
    a loop of a max-cut problem is never cut, and one of a QUBO is its linear term.

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
    if path.is_dir():
        raise FormatError(f"{path} is a folder{_holds(path)}; a model file is needed")
    kind = _format_of(path, format)
    if costs and kind != "uai":
        raise ValueError(
            f"costs=True means that the numbers of a UAI file are costs; {path} is read as {kind}"
        )
    data = read_bytes(path)
    if costs:
        graph = uai.parse(data, str(path), costs=True)
    else:
        graph = _FORMATS[kind](data, str(path))
    if evidence is None:
        return graph
    observed = parse_evidence(read_bytes(Path(evidence)), str(evidence), graph.cardinalities)
    return graph.with_evidence(observed)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a UAI file; `read` returns a graph with the same energies.

    The same graph always gives the same bytes, compressed or not. Costs of up to 1e18 are kept to
    the precision of doubles, see `inference_lab.io.uai`.

    The format has no label costs. They are written as terms with an auxiliary variable for each
    variable and set, which follow the variables of the graph, so that minimal energies, marginals
    and partition functions are preserved (`inference_lab.graph.label_cost_chain`). `read` then
    returns a graph with more variables, of which the first are the variables of `graph`.

    Parameters
    ----------
    graph : FactorGraph
    path : path
        Its suffix is ``.uai``, ``.uai.gz`` or ``.uai.xz``. An existing file is overwritten.

    Raises
    ------
    TypeError
        If `graph` is not a graph, for instance if the two arguments are swapped.
    FormatError
        If the suffix is unknown, or the format is read only.
    ValueError
        If the format cannot express the graph; no file is written then.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.write(g, "small.uai")
    >>> round(il.read("small.uai").energy([0, 1]), 12)
    0.5
    """
    if not isinstance(graph, FactorGraph):
        raise TypeError(
            f"write takes a FactorGraph, then a path; got {shortened(repr(graph), 200)}"
        )
    path = Path(path)
    kind = _format_of(path, None)
    if kind != "uai":
        raise FormatError(f"{path}: files of the format {kind} can be read only; write .uai")
    write_text(path, uai.serialise(chain(graph) if graph.n_label_costs else graph))
