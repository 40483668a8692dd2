"""The arrays of a factor graph: sizes, views of single terms, and the extremes of costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import (
    DIAGONAL,
    POTTS,
    TABLE,
    FloatArray,
    Int32Array,
    IntArray,
    freeze,
    sum_in_blocks,
)
from inference_lab.graph.label_costs import NO_LABEL_COSTS, LabelCosts
from inference_lab.graph.terms import EdgeBlock, dense

#: Differences of energies below this are lost, because their products and squares underflow.
_FINEST = 1e-200

#: Up to this many labels, extremes of rows are computed label by label.
_FEW = 8


class _Extent(NamedTuple):
    """Sums over terms of the largest absolute and the least finite cost."""

    size: float
    low: float
    #: The sum of the absolute values of the least costs.
    low_size: float
    #: Whether a term has no finite cost.
    forbidding: bool


@dataclass(frozen=True, eq=False, repr=False)
class StoredCosts:
    """The stored arrays of `FactorGraph`, with the facts on them that need no evaluation.

    The attributes are documented with their shapes in `GraphArrays`.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> g.n_variables, g.n_edges, g.magnitude
    (2, 1, 2.1)
    """

    cardinalities: IntArray
    unary_ptr: IntArray
    unary_values: FloatArray
    edges: Int32Array
    edge_kinds: npt.NDArray[np.uint8]
    edge_weights: FloatArray
    edge_offsets: IntArray
    pairwise_values: FloatArray
    factor_ptr: IntArray
    factor_scopes: Int32Array
    table_ptr: IntArray
    table_values: FloatArray
    constant: float = 0.0
    label_costs: LabelCosts = NO_LABEL_COSTS

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return int(self.cardinalities.size)

    @property
    def n_edges(self) -> int:
        """Number of pairwise terms."""
        return int(self.edges.shape[0])

    @property
    def n_factors(self) -> int:
        """Number of factors of arity 3 and more."""
        return int(self.factor_ptr.size - 1)

    @property
    def n_label_costs(self) -> int:
        """Number of labels and sets of labels with a label cost."""
        return int(self.label_costs.costs.size)

    @cached_property
    def n_labels(self) -> int | None:
        """The number of labels if all variables have the same, else None."""
        if self.n_variables == 0:
            return None
        first = int(self.cardinalities[0])
        return first if (self.cardinalities == first).all() else None

    @cached_property
    def log2_states(self) -> float:
        """Binary logarithm of the number of labellings."""
        return float(np.log2(self.cardinalities).sum())

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether all terms on two and more variables, except label costs, are diagonal."""
        return self.n_factors == 0 and bool((self.edge_kinds != TABLE).all())

    @cached_property
    def has_infinite(self) -> bool:
        """Whether some cost is ``+inf``."""
        costs = self.unary_values, self.pairwise_values, self.edge_weights, self.table_values
        return any(values.max(initial=0.0) == np.inf for values in costs)

    def edge_extremes(self) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest finite cost of each pairwise term. Linear time.

        Returns
        -------
        low, high : (m,) float64 array
            ``inf`` and ``-inf`` where no cost is finite.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [costs.tolist() for costs in g.edge_extremes()]
        [[0.0], [0.5]]
        """
        # Most graphs have Potts terms only; the others read stretches of the pool.
        low, high = self._potts_extremes(slice(None))
        potts = self.edge_kinds == POTTS
        if potts.all():
            return low, high
        others: Any = np.flatnonzero(~potts) if potts.any() else slice(None)
        table, weights = self.edge_kinds[others] == TABLE, self.edge_weights[others]
        starts, longest, which = self.stretches(others)
        minima, maxima = _extremes(self.pairwise_values, starts, starts + longest)
        minima, maxima = minima[which], maxima[which]
        # A negative weight swaps minimum and maximum; tables with infinite entries have none.
        factor = np.where(table, weights, 1.0)
        one, other = factor * minima, factor * maxima
        low[others] = np.where(table, np.minimum(one, other), np.minimum(minima, weights))
        dearest = np.maximum(maxima, _finite_or_less(weights))
        high[others] = np.where(table, np.maximum(one, other), dearest)
        return low, high

    def _potts_extremes(self, edges: slice) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest finite cost of terms as if all were Potts terms."""
        same, weights = self.pairwise_values[self.edge_offsets[edges]], self.edge_weights[edges]
        if self.n_labels is None or self.n_labels < 2:
            # Two variables with one label each cannot differ.
            alone = (self.cardinalities[self.edges[edges]] < 2).all(axis=1)
            weights = np.where(alone, same, weights)
        high = np.maximum(_finite_or_less(same), _finite_or_less(weights))
        return np.minimum(same, weights), high

    def pool_sizes(self, edges: IntArray | slice = slice(None)) -> IntArray:
        """Return the number of entries of `pairwise_values` that each term has, shape (m,).

        Parameters
        ----------
        edges : array of int or slice
            The terms; by default all.

        Returns
        -------
        (m,) int64 array

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.pool_sizes().tolist()
        [1]
        """
        kinds = self.edge_kinds[edges]
        first, second = self.cardinalities[self.edges[edges]].T
        diagonal = np.where(kinds == DIAGONAL, np.minimum(first, second), 1)
        return np.where(kinds == TABLE, first * second, diagonal)

    def stretches(self, edges: IntArray | slice) -> tuple[IntArray, IntArray, IntArray]:
        """Return start and length of each distinct stretch of the pool, and each term's stretch.

        Parameters
        ----------
        edges : array of int or slice
            The terms.

        Returns
        -------
        starts, lengths : (d,) int64 arrays
            Ranges of `pairwise_values`, which may overlap.
        stretch : int64 array
            The range of each term.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [array.tolist() for array in g.stretches(slice(None))]
        [[0], [1], [0]]
        """
        starts, which = np.unique(self.edge_offsets[edges], return_inverse=True)
        longest = np.zeros(starts.size, dtype=np.int64)
        np.maximum.at(longest, which, self.pool_sizes(edges))
        return starts, longest, which

    @cached_property
    def least_unaries(self) -> FloatArray:
        """The cost of the cheapest label of each variable, shape (n,)."""
        return freeze(self.least_of(slice(0, self.n_variables)))

    def least_of(self, variables: slice) -> FloatArray:
        """Return the cost of the cheapest label of successive variables.

        Parameters
        ----------
        variables : slice

        Returns
        -------
        float64 array

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.5]], [(0, 1)], [0.5])
        >>> g.least_of(slice(1, 2)).tolist()
        [0.5]
        """
        return self._by_variable(np.minimum, self._unaries_of(variables), variables)

    def _unaries_of(self, variables: slice) -> FloatArray:
        """Return the unaries of successive variables, a view."""
        return self.unary_values[self.unary_ptr[variables.start] : self.unary_ptr[variables.stop]]

    def _by_variable(self, ufunc: np.ufunc, values: FloatArray, variables: slice) -> FloatArray:
        """Reduce values in the layout of the unaries to one for each of successive variables."""
        if self.n_labels is not None and self.n_labels <= _FEW:
            # Label by label, because numpy is slow on short rows.
            return np.asarray(functools.reduce(ufunc, values.reshape(-1, self.n_labels).T))
        # No row is empty, because each variable has a label.
        starts = self.unary_ptr[variables] - self.unary_ptr[variables.start]
        return np.asarray(ufunc.reduceat(values, starts)) if values.size else values

    def _unary_extremes(self, variables: slice) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest finite cost of successive variables."""
        costs = _finite_or_less(self._unaries_of(variables))
        return self.least_of(variables), self._by_variable(np.maximum, costs, variables)

    def _extremes_by_range(self) -> Callable[[slice], FloatArray]:
        """Return a function of a range of the terms, with the order and rows of `term_extremes`."""
        constant = np.array([self.constant])
        # A label cost can be avoided, so its least cost is 0.
        prices = np.zeros(self.n_label_costs), self.label_costs.costs
        tables = _extremes(self.table_values, self.table_ptr[:-1], self.table_ptr[1:])
        stored = tuple(map(np.concatenate, zip(tables, prices, strict=True)))
        # Each Potts term is read by itself, stretches of the pool once for all other terms.
        edges = self.edge_extremes() if self.edge_kinds.any() else None
        families: tuple[tuple[int, Callable[[slice], Any]], ...] = (
            (self.n_variables, self._unary_extremes),
            (1, lambda part: (constant, constant)),
            (self.n_edges, lambda part: (edges[0][part], edges[1][part]))
            if edges
            else (self.n_edges, self._potts_extremes),
            (stored[0].size, lambda part: (stored[0][part], stored[1][part])),
        )

        def extremes(terms: slice) -> FloatArray:
            parts, first = [], 0
            for size, extremes_of in families:
                start, stop = max(terms.start - first, 0), min(terms.stop - first, size)
                if start < stop:
                    parts.append(extremes_of(slice(start, stop)))
                first += size
            return np.concatenate(parts, axis=1)

        return extremes

    @property
    def _n_terms(self) -> int:
        """Number of rows of `term_extremes`."""
        return self.n_variables + 1 + self.n_edges + self.n_factors + self.n_label_costs

    def term_extremes(self) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest finite cost of each term.

        Returns
        -------
        low, high : float64 arrays
            In this order: unaries, the constant, edges, higher-order factors, label costs. `low` is
            ``inf`` where a term has no finite cost.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [array.tolist() for array in g.term_extremes()]
        [[0.0, 0.0, 0.0, 0.0], [1.0, 0.6, 0.0, 0.5]]
        """
        low, high = self._extremes_by_range()(slice(0, self._n_terms))
        return low, high

    @cached_property
    def _extent(self) -> _Extent:
        """The extent of all terms and the constant."""
        extremes, count = self._extremes_by_range(), self._n_terms
        if self.has_infinite:
            finite = extremes(slice(0, count))
            finite = finite[:, np.isfinite(finite[0])]
            extremes, count = lambda terms: finite[:, terms], finite.shape[1]

        def sizes(terms: slice) -> FloatArray:
            low, high = extremes(terms)
            return np.stack([np.maximum(np.abs(low), np.abs(high)), low, np.abs(low)])

        size, low, low_size = sum_in_blocks(count, sizes).tolist()
        return _Extent(size, low, low_size, count < self._n_terms)

    @property
    def magnitude(self) -> float:
        """The sum of the largest finite absolute cost of each term, a bound on finite energies."""
        return self._extent.size

    @property
    def sum_of_minima(self) -> float:
        """The sum of the least costs of all terms, less rounding: a lower bound on the energy."""
        extent = self._extent
        if extent.forbidding:
            return math.inf
        used = self.label_costs.least() if self.n_variables else 0.0
        return extent.low + used - 2.0**-46 * (extent.low_size + used)

    @property
    def largest_error(self) -> float:
        """The rounding error of sums of the largest costs, at least 1e-200."""
        return max(self.magnitude * 2.0**-50, _FINEST)

    def resolution_at(self, energy: float) -> float:
        """Return the rounding error of energies up to a given one.

        It is ``2^-50`` of the largest absolute cost that labellings of such energies can pay, at
        most ``2^-50`` of the `magnitude`, and at least 1e-200.

        Parameters
        ----------
        energy : float

        Returns
        -------
        float

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.resolution_at(0.5) == 0.5 * 2.0**-50
        True
        """
        extent = self._extent
        paid = min(extent.size, extent.low_size + max(energy - extent.low, 0.0))
        return max(paid * 2.0**-50, _FINEST)

    @property
    def unary(self) -> FloatArray:
        """The unaries as an ``(n, k)`` view; only where all cardinalities are equal."""
        if self.n_variables and self.n_labels is None:
            raise ValueError("cardinalities differ; use unary_values and unary_ptr")
        return self.unary_values.reshape(self.n_variables, self.n_labels or 1)

    def unary_of(self, variable: int) -> FloatArray:
        """Return the unary costs ``(k_i,)`` of one variable (a read-only view).

        Parameters
        ----------
        variable : int

        Returns
        -------
        (k,) float64 array

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.unary_of(1).tolist()
        [0.6, 0.0]
        """
        return self.unary_values[self.unary_ptr[variable] : self.unary_ptr[variable + 1]]

    @property
    def edge_block(self) -> EdgeBlock:
        """The pairwise terms in storage form."""
        return EdgeBlock(
            self.edges, self.edge_kinds, self.edge_weights, self.edge_offsets, self.pairwise_values
        )

    def edge_table(self, e: int) -> FloatArray:
        """Return pairwise term ``e`` as a dense ``(k_i, k_j)`` table.

        Parameters
        ----------
        e : int
            Row of `edges`.

        Returns
        -------
        (k_i, k_j) float64 array

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.edge_table(0).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
        """
        return dense(self.edge_block, e, self.cardinalities)

    def higher_order(self, f: int) -> tuple[tuple[int, ...], FloatArray]:
        """Return scope and table of higher-order factor ``f``.

        Parameters
        ----------
        f : int
            From 0 to `n_factors` - 1.

        Returns
        -------
        scope : tuple of int
        table : float64 array
            With one axis a variable of the scope.

        Examples
        --------
        >>> import numpy as np, inference_lab as il
        >>> g = il.FactorGraph.from_factors([2, 2, 2], [((2, 0, 1), np.arange(8).reshape(2, 2, 2))])
        >>> scope, table = g.higher_order(0)
        >>> scope, table.shape
        ((2, 0, 1), (2, 2, 2))
        """
        scope = tuple(
            int(v) for v in self.factor_scopes[self.factor_ptr[f] : self.factor_ptr[f + 1]]
        )
        table = self.table_values[self.table_ptr[f] : self.table_ptr[f + 1]]
        return scope, table.reshape([int(self.cardinalities[v]) for v in scope])

    def factors(self) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
        """Iterate over all factors as (scope, dense table): the non-zero unaries, then the rest.

        The constant and label costs are omitted. For export and for small graphs.

        Yields
        ------
        scope : tuple of int
        table : float64 array

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [(scope, table.tolist()) for scope, table in g.factors()]
        [((0,), [0.0, 1.0]), ((1,), [0.6, 0.0]), ((0, 1), [[0.0, 0.5], [0.5, 0.0]])]
        """
        for i in range(self.n_variables):
            row = self.unary_of(i)
            if row.any():
                yield (i,), row
        for e in range(self.n_edges):
            yield (int(self.edges[e, 0]), int(self.edges[e, 1])), self.edge_table(e)
        for f in range(self.n_factors):
            yield self.higher_order(f)


def _extremes(
    values: FloatArray, starts: IntArray, ends: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest finite cost of each (non-empty) stretch of a pool."""
    finite = _finite_or_less(values)
    if starts.size and ends[-1] == values.size and (starts[1:] == ends[:-1]).all():
        # Each stretch ends where the next begins.
        return np.minimum.reduceat(values, starts), np.maximum.reduceat(finite, starts)
    bounds = np.stack([starts, ends], axis=1).ravel()
    low = np.minimum.reduceat(np.append(values, np.inf), bounds)[::2]
    return low, np.maximum.reduceat(np.append(finite, -np.inf), bounds)[::2]


def _finite_or_less(values: FloatArray) -> FloatArray:
    """Return costs with ``-inf`` in place of ``+inf``, which maxima ignore."""
    infinite = np.isposinf(values)
    return np.where(infinite, -np.inf, values) if infinite.any() else values
