"""Cross-validation over constraints: held-out pairs score the settings of a clustering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.hmrf import share_kept
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import IntArray, connected

__all__ = ["ConstraintCV"]


class ConstraintCV:
    """Folds of constrained points, and the share of pairs within a fold that predictions keep.

    For scikit-learn's searches and `cross_val_score`: settings are chosen by pairs not used in the
    fit (Pourrajabi et al. 2014). A fold holds points that occur in pairs; the fit gets all others
    with their pairs, and `score` checks the pairs within the fold. Pairs between the two are
    unused. Points connected by pairs share a fold, unless there are too many.

    Parameters
    ----------
    constraints : Constraints
        With or without implied pairs, which are treated like given ones.
    n_splits : int
        Number of folds.
    random_state : int
        Seeds the drawing of folds.

    Raises
    ------
    ValueError
        If `n_splits` is below 2.

    References
    ----------
    M. Pourrajabi, D. Moulavi, R. Campello, A. Zimek, J. Sander, R. Goebel, "Model selection for
    semi-supervised clustering", EDBT 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from inference_lab.clustering import PCKMeans
    >>> X, truth = load_iris(return_X_y=True)
    >>> pairs = Constraints.sample(truth, 100, np.random.default_rng(0))
    >>> cv, rows = ConstraintCV(pairs, n_splits=3), np.arange(150)
    >>> model = PCKMeans(init="k-means++", n_init=5, random_state=0)
    >>> search = GridSearchCV(model, {"n_clusters": [2, 3, 8]}, cv=cv, scoring=cv.score)
    >>> search.fit(X, rows, **pairs.fit_params(sample_ids=rows)).best_params_
    {'n_clusters': 3}
    """

    def __init__(
        self, constraints: Constraints, n_splits: int = 5, *, random_state: int = 0
    ) -> None:
        if n_splits < 2:
            raise ValueError(f"n_splits must be at least 2, got {n_splits}")
        self.constraints = constraints
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : ignored

        Returns
        -------
        int

        Examples
        --------
        >>> pairs = Constraints([[0, 1], [2, 3]], None, n_points=4)
        >>> ConstraintCV(pairs, n_splits=2).get_n_splits()
        2
        """
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the rows of each fit, and the rows of its test.

        Parameters
        ----------
        X : (n, d) array-like
            Only its number of rows is used.
        y, groups : ignored

        Yields
        ------
        train, test : int64 arrays
            Points in pairs are in exactly one ``test``; all others are in every ``train``.

        Raises
        ------
        ValueError
            If X does not have one row per point of the constraints, or a fold would hold no pair.

        Examples
        --------
        >>> pairs = Constraints([[0, 1], [2, 3]], None, n_points=5)
        >>> for train, test in ConstraintCV(pairs, n_splits=2).split(np.zeros((5, 1))):
        ...     print(train, test)
        [2 3 4] [0 1]
        [0 1 4] [2 3]
        """
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if n != self.constraints.n_points:
            raise ValueError(
                f"X has {n} rows, but the constraints are over {self.constraints.n_points} points"
            )
        fold = self._folds()
        for h in range(self.n_splits):
            test = np.flatnonzero(fold == h)
            if len(self.constraints.restrict(test)) == 0:
                raise ValueError(
                    f"fold {h} of {self.n_splits} holds none of the {len(self.constraints)} pairs; "
                    "give fewer folds, or more pairs"
                )
            yield np.flatnonzero(fold != h), test

    def _folds(self) -> IntArray:
        """Return the fold of each point, -1 for points in no pair."""
        c, rng = self.constraints, np.random.default_rng(self.random_state)
        touched = c.touches(np.arange(c.n_points))
        group = connected(c.n_points, np.concatenate([c.must_link, c.cannot_link]))
        many = np.bincount(group)[group] > touched.size / self.n_splits
        # Points of a group too large for a fold are distributed one by one.
        group = np.where(many, c.n_points + np.arange(c.n_points), group)
        names, place, sizes = np.unique(group[touched], return_inverse=True, return_counts=True)
        where, filled = (
            np.empty(names.size, dtype=np.int64),
            np.zeros(self.n_splits, dtype=np.int64),
        )
        mixed = rng.permutation(names.size)
        for at in mixed[np.argsort(-sizes[mixed], kind="stable")]:
            where[at] = filled.argmin()
            filled[where[at]] += sizes[at]
        fold = np.full(c.n_points, -1, dtype=np.int64)
        fold[touched] = where[place]
        return fold

    def score(self, estimator: Any, X: Any, y: npt.ArrayLike) -> float:
        """Return the share of the pairs among given rows that predictions keep.

        Parameters
        ----------
        estimator : fitted estimator with ``predict``
        X : (m, d) array-like
        y : (m,) array of int
            The numbers of the rows.

        Returns
        -------
        float
            As in `PairwiseClusterer.score`.

        Examples
        --------
        >>> from inference_lab.clustering import PCKMeans
        >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
        >>> pairs = Constraints([[0, 1]], [[2, 3]], n_points=4)
        >>> model = PCKMeans(2, random_state=0).fit(X)
        >>> ConstraintCV(pairs, n_splits=2).score(model, X, np.arange(4))
        0.5
        """
        some = self.constraints.restrict(np.asarray(y), renumber=True)
        return share_kept(some, np.asarray(estimator.predict(X)))
