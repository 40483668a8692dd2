"""Result files of the UAI competitions: labellings, marginals, and the partition function.

A file starts with the name of its task, ``MPE`` or ``MAP``, ``MAR`` or ``PR``. Any suffix is
accepted; ``.gz`` and ``.xz`` are unpacked. The content follows:

* ``MPE``, ``MAP``: the number of variables, and the label of each;
* ``MAR``: the number of variables, and for each its number of labels and their probabilities;
* ``PR``: the **base-10** logarithm of the partition function, or of the probability of the
  evidence.

Solvers may write several solutions separated by ``-BEGIN-``; the last one counts. Some
competitions require the number of samples of evidence, 1, in front of a solution; it is accepted
when reading, and not written.

References
----------
UAI 2014 inference competition, "Result file format",
https://personal.utdallas.edu/~vibhav.gogate/uai14-competition/resformat.html
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.io._files import FormatError, read_bytes, write_text
from inference_lab.io._tokens import Tokens, first_word

__all__ = [
    "LogPartition",
    "read_labels",
    "read_log_partition",
    "read_marginals",
    "write_labels",
    "write_log_partition",
    "write_marginals",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


_LN_10 = math.log(10.0)
_BEGIN = re.compile(rb"(?<![^ \t\n\v\f\r])-BEGIN-(?![^ \t\n\v\f\r])")

#: Tolerance on the sum of probabilities, because files print six digits or fewer.
_SUM_TOLERANCE = 1e-2


class LogPartition(NamedTuple):
    """A logarithm of a partition function, in both bases.

    Attributes
    ----------
    natural : float
        ``ln Z``, as in `Solution.log_partition` at temperature 1.
    base_10 : float
        ``log10 Z``, as competitions print it.

    Examples
    --------
    >>> LogPartition(natural=2.302585092994046, base_10=1.0).base_10
    1.0
    """

    natural: float
    base_10: float


def _solution(path: Path, *tasks: str) -> Tokens:
    """Return the numbers of the last solution in a file for one of these tasks."""
    data = read_bytes(path)
    start = first_word(data, str(path), *tasks).end()
    for found in _BEGIN.finditer(data):
        start = found.end()
    # Earlier solutions are replaced by empty lines, so that messages give the right line numbers.
    return Tokens(b"\n" * data.count(b"\n", 0, start) + b" " + data[start:], str(path))


def read_labels(path: str | os.PathLike[str]) -> IntArray:
    """Read a labelling (``.MPE``, ``.MAP``).

    Parameters
    ----------
    path : path

    Returns
    -------
    (n,) int64 array

    Raises
    ------
    FormatError
        If the file is damaged, or is a result of another task.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_labels(Path(folder) / "small.MPE", [0, 1, 2])
    ...     read_labels(Path(folder) / "small.MPE").tolist()
    [0, 1, 2]
    """
    tokens = _solution(Path(path), "MPE", "MAP")
    values = tokens.values
    skip = 1 if values.size > 2 and values[0] == 1 and values[1] == values.size - 2 else 0
    n = tokens.integer(skip, "the number of variables")
    if values.size != 1 + skip + n:
        raise tokens.error(
            skip, f"{n} variables are announced, and {values.size - 1 - skip} labels are there"
        )
    return tokens.integers(
        1 + skip + np.arange(n),
        0,
        2**31,
        lambda i: f"variable {i}: expected a label, an integer >= 0",
    ).astype(np.int64)


def write_labels(path: str | os.PathLike[str], labels: npt.ArrayLike, task: str = "MPE") -> None:
    """Write a labelling.

    Parameters
    ----------
    path : path
    labels : (n,) array of int
    task : {"MPE", "MAP"}
        The first word of the file; competitions have used both names.

    Raises
    ------
    ValueError
        If the labels are not integers >= 0 in one dimension, or the task is unknown.

    Examples
    --------
    >>> write_labels("small.MPE", [0, 1, 2])
    >>> print(Path("small.MPE").read_text(), end="")
    MPE
    3 0 1 2
    """
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"labels must be integers of shape (n,), got {array.dtype} of shape {array.shape}"
        )
    if (array < 0).any():
        i = int(np.argmax(array < 0))
        raise ValueError(f"labels[{i}] = {array[i]}; labels count from 0")
    if task not in ("MPE", "MAP"):
        raise ValueError(f"task must be 'MPE' or 'MAP', got {task!r}")
    numbers = " ".join(map(str, [array.size, *array.tolist()]))
    write_text(Path(path), [f"{task}\n{numbers}\n"])


def read_marginals(path: str | os.PathLike[str]) -> list[FloatArray]:
    """Read marginals (``.MAR``).

    Parameters
    ----------
    path : path

    Returns
    -------
    list of n 1-D float64 arrays
        The probabilities of the labels of each variable, as they are printed: their sum is 1 up
        to rounding.

    Raises
    ------
    FormatError
        If the file is damaged, is a result of another task, or holds numbers that are not
        probabilities.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> write_marginals("small.MAR", [[0.25, 0.75], [1.0]])
    >>> [row.tolist() for row in read_marginals("small.MAR")]
    [[0.25, 0.75], [1.0]]
    """
    tokens = _solution(Path(path), "MAR")
    values = tokens.values
    # Both layouts are tried, because only the length of the rest shows whether the number of
    # samples is present.
    starts = [0, 1] if values.size > 1 and values[0] == 1 else [0]
    problem: FormatError | None = None
    for start in starts:
        try:
            return _marginals(tokens, start)
        except FormatError as found:
            problem = problem or found
    raise problem or tokens.error(0, "expected marginals")


def _marginals(tokens: Tokens, start: int) -> list[FloatArray]:
    values = tokens.values
    end = int(values.size)
    n = tokens.integer(start, "the number of variables", high=max(0, end - start - 1) // 2)
    at = start + 1
    rows: list[FloatArray] = []
    for i in range(n):
        k = tokens.integer(at, f"the number of labels of variable {i}", high=end - at - 1)
        row = values[at + 1 : at + 1 + k]
        good = (row >= 0.0) & (row <= 1.0)
        if not good.all():
            place = at + 1 + int(np.argmin(good))
            raise tokens.error(
                place,
                f"variable {i}: expected a probability, 0 to 1, got {tokens.shown(place)}",
            )
        if abs(float(row.sum()) - 1.0) > _SUM_TOLERANCE:
            raise tokens.error(
                at, f"variable {i}: the probabilities of its {k} labels add up to {row.sum():.6g}"
            )
        rows.append(row.copy())
        at += 1 + k
    tokens.check_end(at, "the last variable")
    return rows


def write_marginals(
    path: str | os.PathLike[str], marginals: FloatArray | Sequence[npt.ArrayLike]
) -> None:
    """Write marginals, with all digits of the doubles.

    Parameters
    ----------
    path : path
    marginals : (n, k) array, or sequence of 1-D arrays
        As in `Solution.marginals`.

    Raises
    ------
    ValueError
        If a row is not a distribution; no file is written then.

    Examples
    --------
    >>> write_marginals("small.MAR", [[0.25, 0.75], [0.5, 0.5]])
    >>> print(Path("small.MAR").read_text(), end="")
    MAR
    2 2 0.25 0.75 2 0.5 0.5
    """
    parts = [str(len(marginals))]
    for i, given in enumerate(marginals):
        row = np.asarray(given, dtype=np.float64)
        if row.ndim != 1 or row.size == 0 or not ((row >= 0.0) & (row <= 1.0)).all():
            raise ValueError(f"marginals[{i}] must be probabilities of shape (k,), got {given!r}")
        if abs(float(row.sum()) - 1.0) > _SUM_TOLERANCE:
            raise ValueError(f"marginals[{i}] adds up to {row.sum():.6g}, not to 1")
        parts += [str(row.size), *map(repr, row.tolist())]
    write_text(Path(path), [f"MAR\n{' '.join(parts)}\n"])


def read_log_partition(path: str | os.PathLike[str]) -> LogPartition:
    """Read the logarithm of a partition function (``.PR``), which files store in base 10.

    Parameters
    ----------
    path : path

    Returns
    -------
    LogPartition
        ``-inf`` in both bases where the evidence has probability zero.

    Raises
    ------
    FormatError
        If the file is damaged, or is a result of another task.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log_partition(Path(folder) / "small.PR", 2.302585092994046)
    ...     read_log_partition(Path(folder) / "small.PR")
    LogPartition(natural=2.302585092994046, base_10=1.0)
    """
    tokens = _solution(Path(path), "PR")
    values = tokens.values
    if values.size not in (1, 2) or (values.size == 2 and values[0] != 1):
        raise tokens.error(
            0, f"expected one number, the base-10 logarithm of the sum, got {values.size}"
        )
    value = float(values[-1])
    if math.isnan(value) or value == math.inf:
        raise tokens.error(
            values.size - 1,
            f"expected a base-10 logarithm, got {tokens.shown(int(values.size) - 1)}",
        )
    return LogPartition(value * _LN_10, value)


def write_log_partition(path: str | os.PathLike[str], log_partition: float) -> None:
    """Write the logarithm of a partition function.

    Parameters
    ----------
    path : path
    log_partition : float
        The **natural** logarithm, as in `Solution.log_partition`; the file stores it in base 10.

    Raises
    ------
    ValueError
        If it is NaN or ``+inf``.

    Examples
    --------
    >>> write_log_partition("small.PR", 0.0)
    >>> read_log_partition("small.PR").natural
    0.0
    """
    if math.isnan(log_partition) or log_partition == math.inf:
        raise ValueError(f"log_partition must be a number or -inf, got {log_partition!r}")
    write_text(Path(path), [f"PR\n{float(log_partition) / _LN_10!r}\n"])
