"""The fold of scikit-learn whose rows ``fit`` or ``score`` gets, which no argument says.

Cross-validation passes some rows of X, and all pairs. `SampleIds` are the public means to look the
pairs up: scikit-learn cuts them with the rows, and a part knows the names of all rows. Without
`SampleIds`, ``fit`` lacks

- the names of the rows of other folds, without which a misspelt name is no error;
- the numbers of its rows in all data, which rows of an array do not keep;
- the index of a data frame from which a step of a pipeline has made an array.

The number of points of `Constraints` replaces none of these: pairs of all rows fit the first rows,
or more rows, as well, and most pairs are arrays of a user.

`origin_of_rows` is the one place that reads them from private variables of scikit-learn's functions
on the call stack. In ``sklearn.model_selection._validation`` they are ``X``, ``train`` and ``test``
where a fold is fitted, ``X_test`` there and where it is scored, and the dictionaries of arguments.
In ``sklearn.pipeline`` it is the ``X`` of the pipeline.

If a version of scikit-learn renames them, ``tests/clustering/test_folds.py`` fails. A fit without
names is then refused where the functions that make folds have no such variables.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from sklearn import __version__ as version

from inference_lab.graph.arrays import IntArray

_VALIDATION = "sklearn.model_selection._validation"
#: All data, the rows that are fitted, and the rows that are scored.
_SPLIT = ("X", "train", "test")
#: The rows of X that are scored.
_SCORED = "X_test"
#: The arguments of ``fit`` and ``score``.
_ARGUMENTS = ("fit_params", "score_params", "score_params_test", "score_params_train")
_PIPELINE = "sklearn.pipeline"
#: The package whose estimators fit others, with numbers of the rows that they pass.
_ESTIMATORS = __name__.rpartition(".")[0]


class Fold(NamedTuple):
    """Data that cross-validation was given, and the rows of them that it passes."""

    X: Any
    rows: IntArray


class Origin(NamedTuple):
    """Origin of the rows that ``fit`` or ``score`` gets."""

    #: The fold of the cross-validation that was given the pairs; None without one.
    fold: Fold | None
    #: The fold of the innermost cross-validation, unless an estimator of this package passes rows
    #: of it to another, or they are all rows in their order.
    split: Fold | None
    #: The data frame that the innermost pipeline was given for as many rows; None without one.
    piped: Any


def n_rows(X: Any) -> int:
    """Return the number of rows of data of any type."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def origin_of_rows(n_points: int, pairs: Any = None) -> Origin:
    """Return the origin of the rows of a calling ``fit`` or ``score``.

    Parameters
    ----------
    n_points : int
        Number of rows.
    pairs : object, optional
        The argument by which the cross-validation that was given the pairs is recognised.

    Raises
    ------
    ValueError
        If scikit-learn's functions make folds, but have not the variables named above.
    """
    fold = split = piped = scored = None
    n_fits = n_folds = n_others = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        n_fits += frame.f_code.co_name == "fit" and module.startswith(_ESTIMATORS)
        # Variables are copied at each reading, and are no dictionary from Python 3.13 on.
        variables = dict(frame.f_locals) if module in (_VALIDATION, _PIPELINE) else {}
        frame = frame.f_back
        if module == _PIPELINE and piped is None:
            X = variables.get("X")
            piped = X if hasattr(X, "iloc") and n_rows(X) == n_points else None
        if module != _VALIDATION:
            continue
        if not variables.keys() >= {*_SPLIT}:
            n_others += 1
            scored = variables.get(_SCORED, scored)
            continue
        n_folds += 1
        X, train, test = (variables[name] for name in _SPLIT)
        if scored is None or scored is not variables.get(_SCORED):
            test = train
        scored = None
        if split is None and n_fits < 2 and not np.array_equal(train, np.arange(n_rows(X))):
            split = Fold(X, _numbers(train))
        arguments = (variables.get(name) or {} for name in _ARGUMENTS)
        if pairs is not None and any(pairs is v for mapping in arguments for v in mapping.values()):
            rows = _numbers(test)
            # An inner search splits the rows that an outer one passes to it.
            fold = Fold(X, rows if fold is None else rows[fold.rows])
    if n_others and not n_folds:
        raise ValueError(
            f"the rows that cross-validation passes cannot be read from scikit-learn {version}; "
            "name the rows by sample_ids=SampleIds(names)"
        )
    return Origin(fold, split, piped)


def _numbers(rows: Any) -> IntArray:
    """Return rows as numbers; splitters may yield masks."""
    array = np.asarray(rows)
    return np.flatnonzero(array) if array.dtype == np.bool_ else array.astype(np.int64)
