"""The energy that every solver minimises: one frozen, array-backed factor graph.

``E(x) = constant + sum_i theta_i(x_i) + sum_ij theta_ij(x_i, x_j) + sum_f theta_f(x_f)
+ sum_s h_s [some x_i is in L_s]``

in natural-log units: a potential is ``exp(-theta)``, lower is better, ``+inf`` forbids. The last
sum are label costs (`inference_lab.graph.label_costs`), which most graphs lack.
Pairwise terms keep their structure, so that a message costs O(k) where it can:

* *diagonal*: ``theta(a, b) = same[a]`` if ``a == b`` else ``differ``. Potts terms of either
  sign, must-links (``same = 0, differ = w``) and cannot-links (``same = w, differ = 0``) are the
  constant case;
* *shared table*: ``theta(a, b) = w_e * T[a, b]`` with one table for many edges;
* *own table*: a dense ``T_e[a, b]`` for each edge.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted
from inference_lab.graph.arrays import (
    TABLE,
    FloatArray,
    GraphArrays,
    Int32Array,
    IntArray,
    blocks,
    connected,
    freeze,
    starts_of,
    sum_in_blocks,
)
from inference_lab.graph.factors import Factors, parse_factors, split
from inference_lab.graph.label_costs import LabelCosts, label_costs
from inference_lab.graph.stored_costs import StoredCosts
from inference_lab.graph.terms import (
    DiagonalTerms,
    EdgeBlock,
    OwnTables,
    PairwiseTerms,
    SharedTable,
    Unaries,
    as_costs,
    as_floats,
    check_costs,
    check_merged,
    closed_forms,
    concatenate,
    merge_parallel,
    pack,
    parse_unary,
    unwrap,
)

#: Batches of labellings are evaluated in blocks of about this many gathered entries.
_ENERGY_BLOCK = 4_000_000


@dataclass(frozen=True, eq=False, repr=False)
class FactorGraph(StoredCosts):
    """A discrete energy over ``n`` variables, stored as flat read-only arrays.

    Build one with `potts`, `pairwise`, `from_terms` or `from_factors`; the attributes below are
    documented with their shapes in `GraphArrays`.

    Guarantees: every cost is ``+inf`` or at most `inference_lab.graph.terms.COST_LIMIT` (1e100) by
    absolute value, so that no sum, product with a count or square of costs overflows; at most one
    pairwise term joins two variables (parallel edges are added up); no edge joins a variable to
    itself and no scope names one twice; nothing changes after construction.

    Precision: energies are floating-point sums, so small costs are lost beside large ones.
    `magnitude` bounds the absolute energy, `resolution` the rounding error near the minimum.
    Methods are independent of the unit of costs; below 1e-190 nothing is proved. They lower
    penalties too large to be paid, see `inference_lab.algorithms.payable_costs.payable`. A
    labelling is optimal up to the resolution at its energy, whatever constant all labellings pay.
    If that exceeds 1e-8 of the energy, bounds are lowered by it and no labelling is reported as
    optimal. Marginals need a temperature of at least the resolution.

    Memory: ``8 sum_i k_i`` bytes of unaries and 16 a variable; 25 bytes an edge plus its values (8
    bytes for Potts); for the adjacency, once a solver uses it, 17 bytes an edge and 24 a variable.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> g.energy([0, 1]), g.energy([0, 0])
    (0.5, 0.6)
    """

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_terms(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike] | Unaries,
        terms: Iterable[PairwiseTerms | EdgeBlock] = (),
        factors: Iterable[tuple[Sequence[int] | IntArray, npt.ArrayLike]] | Factors = (),
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a graph in bulk from unaries, blocks of pairwise terms and dense factors.

        Parameters
        ----------
        unary : (n, k) array, or sequence of n 1-D arrays where cardinalities differ
        terms : iterable of DiagonalTerms, SharedTable and OwnTables
        factors : iterable of (scope, table)
            Dense factors of any arity; arities 0, 1 and 2 join the constant, the unaries and the
            pairwise terms. Many factors of one shape are faster as a single ``(scopes, tables)``,
            arrays of shapes ``(f, arity)`` and ``(f, k_1, ..., k_arity)``.
        constant : float
            Added to every energy; finite.

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            If a cost is not a real number, NaN, ``-inf`` or finite beyond 1e100, a shape does not
            fit, or a term names a missing variable, or one twice.

        Examples
        --------
        >>> import inference_lab as il
        >>> apart = il.DiagonalTerms([(0, 1)], same=2.0)
        >>> close = il.SharedTable([(1, 2)], [[0.0, 1.0], [1.0, 0.0]], weights=0.5)
        >>> three = ((0, 1, 2), [[[0, 1], [0, 1]], [[0, 1], [0, 1]]])
        >>> g = il.FactorGraph.from_terms([[0.0, 1.0]] * 3, [apart, close], [three])
        >>> g, g.energy([0, 1, 1])
        (FactorGraph(3 variables x 2 labels; terms: 2 Potts, 1 higher-order), 3.0)
        """
        unaries = parse_unary(unary)
        blocks = [pack(term, unaries.cardinalities) for term in terms]
        constant = float(as_costs(constant, "constant"))
        parts = split(parse_factors(factors, unaries.cardinalities), unaries)
        # In this order, so that the sum is always rounded the same way.
        constant = functools.reduce(operator.add, parts.constants.tolist(), constant)
        if np.isinf(constant):
            raise ValueError("constant is inf; it must be finite")
        check_costs(np.asarray(constant), "the sum of all constants")
        if parts.unary is not unaries.values:
            check_costs(parts.unary, "the sum of unary and factors, flat,")
        if parts.pairs is not None:
            blocks.append(parts.pairs)
        all_terms = concatenate(blocks)
        block = merge_parallel(all_terms, unaries.cardinalities)
        if block is not all_terms:
            check_merged(block, unaries.cardinalities)
        higher = parts.higher
        return cls(
            cardinalities=freeze(unaries.cardinalities),
            unary_ptr=freeze(unaries.ptr),
            unary_values=freeze(parts.unary),
            edges=freeze(block.edges),
            edge_kinds=freeze(block.kinds),
            edge_weights=freeze(block.weights),
            edge_offsets=freeze(block.offsets),
            pairwise_values=freeze(block.values),
            factor_ptr=freeze(higher.ptr),
            factor_scopes=freeze(higher.scopes.astype(np.int32)),
            table_ptr=freeze(higher.table_ptr),
            table_values=freeze(higher.values),
            constant=constant,
        )

    @classmethod
    def potts(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike],
        edges: npt.ArrayLike,
        weights: npt.ArrayLike,
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build ``sum_i unary[i, x_i] + sum_e weights[e] * [x_i != x_j]``.

        A positive weight pulls the ends together (must-link, ``+inf`` for a hard one), a negative
        weight pushes them apart: ``-w`` and a constant ``+w`` is the cannot-link penalty
        ``w * [x_i = x_j]``.

        Parameters
        ----------
        unary : (n, k) array or sequence of n 1-D arrays
        edges : (m, 2) array of int
        weights : float or (m,) array
        constant : float

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            As in `from_terms`.

        Examples
        --------
        >>> import inference_lab as il
        >>> unary = [[0.0, 1.0], [0.6, 0.0], [0.2, 0.3]]
        >>> g = il.FactorGraph.potts(unary, edges=[(0, 1), (1, 2)], weights=[0.5, -0.4])
        >>> g.energy([0, 1, 0])  # 0.0 + 0.0 + 0.2 of the unaries; both pairs differ
        0.3
        >>> il.solve(g, "brute-force").labels.tolist()
        [0, 1, 0]
        """
        pairs = np.asarray(unwrap(edges, "edges"))
        costs = check_costs(as_floats(weights, "weights", copy=False), "weights")
        if pairs.ndim and costs.shape not in ((), pairs.shape[:1]):
            raise ValueError(
                f"weights must be a number or have shape ({len(pairs)},), got {costs.shape}"
            )
        return cls.from_terms(unary, [DiagonalTerms(pairs, 0.0, costs)], constant=constant)

    @classmethod
    def pairwise(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike],
        edges: npt.ArrayLike,
        tables: npt.ArrayLike | Sequence[npt.ArrayLike],
        weights: npt.ArrayLike | None = None,
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a pairwise graph from tables.

        Parameters
        ----------
        unary : (n, k) array or sequence of n 1-D arrays
        edges : (m, 2) array of int
        tables : (m, k, k) array, list of m 2-D arrays, or one shared (k, k) array
            ``tables[e][a, b]`` is the cost of label ``a`` at ``edges[e, 0]`` and ``b`` at
            ``edges[e, 1]``.
        weights : (m,) array, optional
            Factor of the shared table on each edge.
        constant : float

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            As in `from_terms`, or if `weights` come with tables that are not shared.

        Examples
        --------
        >>> import inference_lab as il
        >>> jumps = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
        >>> unary = [[0.0, 2.0, 5.0], [4.0, 3.0, 0.0]]
        >>> il.FactorGraph.pairwise(unary, [(0, 1)], jumps, weights=[0.5]).energy([0, 2])
        1.0
        """
        tables = unwrap(tables, "tables")
        shared = isinstance(tables, np.ndarray) and tables.dtype != object and tables.ndim == 2
        if not shared and not isinstance(tables, np.ndarray):
            # A nested list of numbers is one table; a list of tables has one more level.
            listed: list[Any] = list(tables)  # type: ignore[arg-type]
            shared = bool(listed) and all(np.ndim(row) == 1 for row in listed)
        if shared:
            term: PairwiseTerms = SharedTable(
                edges, np.asarray(tables), 1.0 if weights is None else weights
            )
        elif weights is not None:
            raise ValueError("weights scale one shared (k, k) table; these tables are not shared")
        else:
            term = OwnTables(edges, tables)
        return cls.from_terms(unary, [term], constant=constant)

    @classmethod
    def from_factors(
        cls,
        cardinalities: npt.ArrayLike,
        factors: Iterable[tuple[Sequence[int] | IntArray, npt.ArrayLike]] | Factors,
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a graph from dense factors of any arity.

        Parameters
        ----------
        cardinalities : (n,) array of int
            Number of labels of each variable, at least 1.
        factors : iterable of (scope, table)
            ``table`` holds energies, one axis a variable of the scope; or stacks, as in
            `from_terms`.
        constant : float

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            As in `from_terms`.

        Examples
        --------
        >>> import inference_lab as il
        >>> factors = [((0,), [0.0, 1.0]), ((0, 1), [[3, 2, 1], [0, 1, 2]])]
        >>> g = il.FactorGraph.from_factors([2, 3], factors)
        >>> g.energy([[0, 2], [1, 0]]).tolist()
        [1.0, 1.0]
        """
        counts = np.asarray(unwrap(cardinalities, "cardinalities"))
        if counts.size and counts.dtype.kind not in "iu":
            raise ValueError(f"cardinalities must be integers, got dtype {counts.dtype}")
        if counts.ndim != 1:
            raise ValueError(f"cardinalities must have shape (n,), got {counts.shape}")
        if (counts < 1).any():
            i = int(np.flatnonzero(counts < 1)[0])
            raise ValueError(f"cardinalities[{i}] = {counts[i]}; every variable needs a label")
        counts = counts.astype(np.int64)
        zeros = Unaries(counts, starts_of(counts), np.zeros(int(counts.sum())))
        return cls.from_terms(zeros, factors=factors, constant=constant)

    def __repr__(self) -> str:
        """Return one line with the sizes."""
        labels = (
            f"{self.n_labels}"
            if self.n_labels is not None or self.n_variables == 0
            else f"{self.cardinalities.min()}-{self.cardinalities.max()}"
        )
        counts = [*np.bincount(self.edge_kinds, minlength=TABLE + 1), self.n_factors]
        names = "Potts", "diagonal", "table", "higher-order"
        kinds = [f"{count} {name}" for count, name in zip(counts, names, strict=True) if count]
        if self.n_label_costs:
            kinds.append(counted(self.n_label_costs, "label cost"))
        return (
            f"FactorGraph({self.n_variables} variables x {labels} labels; "
            f"terms: {', '.join(kinds) or 'unary only'})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the defining arrays only; the others are derived again."""
        stored = {name: getattr(self, name) for name in _STORED}
        return {**stored, "label_costs": tuple(self.label_costs)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore, and freeze the arrays again (pickling forgets the flag)."""
        for name in _STORED:
            value = state[name]
            object.__setattr__(
                self, name, freeze(value) if isinstance(value, np.ndarray) else value
            )
        object.__setattr__(self, "label_costs", LabelCosts(*map(freeze, state["label_costs"])))

    # ------------------------------------------------------------------ the evaluator

    @cached_property
    def resolution(self) -> float:
        """The rounding error of energies near the minimum, and of bounds on it."""
        return self.resolution_at(self.unary_energy)

    @cached_property
    def unary_energy(self) -> float:
        """The energy of the labelling of the cheapest unaries. Linear time, once."""
        return self.energy_of(unary_minimum(self))

    def check_labels(self, labels: npt.ArrayLike) -> IntArray:
        """Return labels as an int64 array of shape (n,) or (b, n), or raise an error.

        Parameters
        ----------
        labels : (n,) or (b, n) array of int

        Returns
        -------
        (n,) or (b, n) int64 array

        Raises
        ------
        ValueError
            If the shape does not fit, the dtype is not integer, or a label is out of range.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.check_labels([0, 1]).dtype
        dtype('int64')
        >>> g.check_labels([0, 2])
        Traceback (most recent call last):
        ...
        ValueError: labels[1] = 2; variable 1 has labels 0 to 1
        """
        array = np.asarray(labels)
        n = self.n_variables
        if array.ndim not in (1, 2) or array.shape[-1] != n:
            raise ValueError(f"labels must have shape ({n},) or (b, {n}), got {array.shape}")
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise ValueError(f"labels must be integers, got dtype {array.dtype}")
        bad = (array < 0) | (array >= self.cardinalities)
        if bad.any():
            place = tuple(int(p) for p in np.argwhere(bad)[0])
            raise ValueError(
                f"labels[{', '.join(map(str, place))}] = {array[place]}; variable {place[-1]} has "
                f"labels 0 to {self.cardinalities[place[-1]] - 1}"
            )
        # In C order, because energies are summed along rows.
        return array.astype(np.int64, order="C")

    @cached_property
    def edge_split(self) -> tuple[IntArray | range, IntArray | range]:
        """Indices of the diagonal and of the table edges; ranges if all are of one family."""
        table = self.edge_kinds == TABLE
        if table.all() or not table.any():
            every, none = range(self.n_edges), range(0)
            return (none, every) if table.any() else (every, none)
        return np.flatnonzero(~table), np.flatnonzero(table)

    def energy(self, labels: npt.ArrayLike) -> Any:
        """Evaluate ``E(x)`` in plain numpy, independently of the kernels that solvers use.

        Parameters
        ----------
        labels : (n,) or (b, n) array of int

        Returns
        -------
        float, or (b,) float64 array for a batch
            ``+inf`` where a forbidden combination is used.

        Raises
        ------
        ValueError
            As in `check_labels`.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.energy([0, 1]), g.energy([[0, 0], [0, 1], [1, 1]]).tolist()
        (0.5, [0.6, 0.5, 1.0])
        """
        array = self.check_labels(labels)
        if array.ndim == 1:
            return self.energy_of(array)
        width = max(1, self.n_variables + self.n_edges + self.factor_scopes.size)
        step = max(1, _ENERGY_BLOCK // width)
        out = np.empty(array.shape[0])
        for start in range(0, array.shape[0], step):
            out[start : start + step] = self._energies(array[start : start + step])
        return out

    def energy_of(self, labels: IntArray) -> float:
        """Evaluate one labelling that is known to fit, as `check_labels` returns it.

        Parameters
        ----------
        labels : (n,) int64 array

        Returns
        -------
        float

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.energy_of(g.check_labels([0, 1]))
        0.5
        """
        return float(self._energies(labels[None])[0])

    def _energies(self, x: IntArray) -> FloatArray:
        # The smallest integer type, because more of a smaller array stays in the cache.
        small = x.astype(np.min_scalar_type(-int(self.cardinalities.max(initial=1))))
        starts = self.unary_ptr[:-1]
        total = sum_in_blocks(
            self.n_variables, lambda part: self.unary_values[starts[part] + x[:, part]]
        )
        # `take` keeps rows contiguous, so that a sum does not depend on the size of the batch.

        def diagonal_costs(edges: Any) -> FloatArray:
            a = np.take(small, self.edges[edges, 0], axis=1)
            b = np.take(small, self.edges[edges, 1], axis=1)
            same: Any = 0.0
            if self._differs_by_label:
                # The clip only keeps the look-up inside the pool; used where a == b.
                label = np.where(a == b, a, 0) * self.edge_kinds[edges]
                same = self.pairwise_values[self.edge_offsets[edges] + label]
            return np.asarray(np.where(a == b, same, self.edge_weights[edges]))

        def table_costs(edges: Any) -> FloatArray:
            a = np.take(small, self.edges[edges, 0], axis=1)
            b = np.take(small, self.edges[edges, 1], axis=1)
            # An int64, because with a Python number products would keep the small type of labels.
            stride = np.int64(self.n_labels or 0) or self.cardinalities[self.edges[edges, 1]]
            entries = self.pairwise_values[self.edge_offsets[edges] + a * stride + b]
            return np.asarray(self.edge_weights[edges] * entries)

        for edges, costs in zip(self.edge_split, (diagonal_costs, table_costs), strict=True):
            if len(edges):
                total = total + sum_in_blocks(len(edges), on_slices(costs, edges))
        if self.n_factors:
            step = np.take(x, self.factor_scopes, axis=1) * self.scope_strides
            index = np.add.reduceat(step, self.factor_ptr[:-1], axis=1)
            total = total + self.table_values[self.table_ptr[:-1] + index].sum(axis=1)
        if self.n_label_costs:
            total = total + self.label_costs.of(x)
        return np.asarray(total + self.constant)

    @cached_property
    def _differs_by_label(self) -> bool:
        """Whether equal labels cost anything at a diagonal term."""
        # Terms of other kinds than Potts may differ, whatever their costs.
        same = (self.pairwise_values[self.edge_offsets[part]] for part in blocks(self.n_edges))
        return bool(self.edge_kinds.any()) or any(bool(costs.any()) for costs in same)

    @cached_property
    def scope_strides(self) -> IntArray:
        """Stride in its table of each position of ``factor_scopes``."""
        sizes = self.cardinalities[self.factor_scopes]
        strides = np.ones(sizes.size, dtype=np.int64)
        arities = np.diff(self.factor_ptr)
        for back in range(2, int(arities.max(initial=0)) + 1):
            at = self.factor_ptr[1:][arities >= back] - back
            strides[at] = strides[at + 1] * sizes[at + 1]
        return strides

    # ------------------------------------------------------------------ derived structure

    @cached_property
    def arrays(self) -> GraphArrays:
        """The arrays that kernels need, with the adjacency (built once)."""
        n, m = self.n_variables, self.n_edges
        ends = self.edges.ravel()
        adj_ptr, half = _by_value(ends, n)
        inc_ptr, inc_slot = _by_value(self.factor_scopes, n)
        neighbour = np.empty(2 * m, dtype=np.int32)
        for part in blocks(2 * m):
            neighbour[part] = ends[half[part] ^ 1]
        return GraphArrays(
            cardinalities=self.cardinalities,
            unary_ptr=self.unary_ptr,
            unary=self.unary_values,
            edges=self.edges,
            kinds=self.edge_kinds,
            weights=self.edge_weights,
            offsets=self.edge_offsets,
            pairwise=self.pairwise_values,
            forms=closed_forms(self.edge_block, self.cardinalities),
            adj_ptr=adj_ptr,
            adj_half=half,
            adj_var=neighbour,
            factor_ptr=self.factor_ptr,
            scopes=self.factor_scopes,
            table_ptr=self.table_ptr,
            tables=self.table_values,
            inc_ptr=inc_ptr,
            inc_slot=inc_slot.astype(np.int64),
            slot_factor=np.repeat(
                np.arange(self.n_factors, dtype=np.int32), np.diff(self.factor_ptr)
            ),
        ).read_only()

    @property
    def adjacency_bytes(self) -> int:
        """The bytes that `arrays` and `degrees` take beside the stored arrays, as an estimate."""
        # The pointers and the degrees; half-edges, neighbours and forms, and while they are built
        # the flags that are sorted; slots.
        return 24 * self.n_variables + 20 * self.n_edges + 12 * self.factor_scopes.size

    @cached_property
    def degrees(self) -> IntArray:
        """Number of pairwise and higher-order terms at each variable, shape (n,)."""
        counts = np.bincount(self.factor_scopes, minlength=self.n_variables)
        # By column, because numpy converts what it counts to int64.
        for end in self.edges.T:
            counts += np.bincount(end, minlength=self.n_variables)
        return np.asarray(freeze(counts))

    @cached_property
    def components(self) -> IntArray:
        """Component of each variable, shape (n,), by first appearance; label costs join all."""
        n, f = self.n_variables, self.n_factors
        if n == 0 or self.n_label_costs:
            return np.asarray(freeze(np.zeros(n, dtype=np.int64)))
        of_factor = np.repeat(np.arange(n, n + f, dtype=np.int32), np.diff(self.factor_ptr))
        scopes = np.stack([self.factor_scopes, of_factor], axis=1)
        pairs = np.concatenate([self.edges, scopes]) if f else self.edges
        return np.asarray(freeze(connected(n + f, pairs)[:n]))

    @cached_property
    def is_forest(self) -> bool:
        """Whether the factor graph (with label costs) has no cycle, so message passing is exact."""
        if self.n_label_costs:
            return self.n_variables <= 1
        incidences = self.n_edges + int(self.factor_scopes.size)
        if incidences >= self.n_variables + self.n_factors > 0:
            return False
        n_components = int(self.components.max()) + 1 if self.n_variables else 0
        return incidences == self.n_variables + self.n_factors - n_components

    @cached_property
    def breadth_first_order(self) -> IntArray:
        """The variables, component by component, each in breadth-first order, shape (n,)."""
        from inference_lab.graph.traversal import breadth_first

        return np.asarray(freeze(breadth_first(self.arrays)))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the defining arrays, in hexadecimal: equal for equal graphs."""
        digest = hashlib.sha256()
        for name in _STORED:
            value = getattr(self, name)
            array = np.asarray(value)
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.n_label_costs:
            digest.update(f"label_costs:{self.label_costs.sets()}".encode())
        return digest.hexdigest()

    # ------------------------------------------------------------------ variations

    def with_evidence(self, evidence: Mapping[int, int]) -> FactorGraph:
        """Return the graph in which the given variables can only take the given labels.

        Variables keep their numbers; the other labels of an observed variable cost ``+inf``.

        Parameters
        ----------
        evidence : mapping of int to int
            The label of each observed variable.

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            If a variable or a label does not exist.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.solve(g.with_evidence({0: 1}), "brute-force").labels.tolist()
        [1, 1]
        """
        values = self.unary_values.copy()
        for variable, label in evidence.items():
            if not 0 <= variable < self.n_variables:
                raise ValueError(
                    f"evidence names variable {variable}; the graph has 0 to {self.n_variables - 1}"
                )
            row = values[self.unary_ptr[variable] : self.unary_ptr[variable + 1]]
            if not 0 <= label < row.size:
                raise ValueError(
                    f"evidence gives variable {variable} label {label}; it has 0 to {row.size - 1}"
                )
            row[np.arange(row.size) != label] = np.inf
        return self.with_unary(values)

    def with_unary(self, values: npt.ArrayLike) -> FactorGraph:
        """Return the graph with other unary costs and everything else shared.

        Parameters
        ----------
        values : flat array of ``sum_i k_i`` costs, or (n, k) where cardinalities are equal

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            If the shape does not fit, or a cost is NaN or ``-inf``.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g.with_unary([[1.0, 0.0], [0.0, 0.0]]).energy([0, 1])
        1.5
        """
        array = as_costs(values, "unary")
        fits = array.ndim == 1 or array.shape == (self.n_variables, self.n_labels)
        if array.size != self.unary_values.size or not fits:
            raise ValueError(
                f"unary must hold {self.unary_values.size} costs, got shape {array.shape}"
            )
        return self._with_costs(unary_values=freeze(array.ravel()))

    def with_label_costs(
        self,
        costs: npt.ArrayLike = 0.0,
        sets: Iterable[tuple[Iterable[int], float]] = (),
    ) -> FactorGraph:
        """Return the graph with these label costs in place of its own, and all else shared.

        Adds ``sum_s h_s [some x_i is in L_s]``: paid once for each used label, or set of labels.
        Solvers that do not support label costs return `unsupported`.

        Parameters
        ----------
        costs : float or (k,) array
            Cost of each label, ``k`` being the largest number of labels of a variable.
        sets : iterable of (label numbers, cost)

        Returns
        -------
        FactorGraph

        Raises
        ------
        ValueError
            If a cost is negative or not finite, or a set is empty, or names a label twice or one
            that no variable has.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> g = g.with_label_costs([2.0, 1.0], sets=[((0, 1), 4.0)])
        >>> g.energy([0, 1]), g.energy([1, 1])
        (7.5, 6.0)
        """
        graph = self._with_costs(
            label_costs=label_costs(int(self.cardinalities.max(initial=0)), costs, sets)
        )
        # Label costs couple variables.
        for name in ("components", "is_forest"):
            graph.__dict__.pop(name, None)
        return graph

    def _with_costs(self, **changes: Any) -> FactorGraph:
        """Return the graph with other unaries or label costs, and what the structure determines."""
        graph = replace(self, **changes)
        for name in _STRUCTURE:
            if name in self.__dict__:
                graph.__dict__[name] = self.__dict__[name]
        if "arrays" in self.__dict__:
            arrays = self.arrays._replace(unary=graph.unary_values)
            graph.__dict__["arrays"] = arrays.read_only()
        return graph


def unary_minimum(graph: FactorGraph) -> IntArray:
    """Return the cheapest label of each variable on its own (the first in ties), shape (n,)."""
    return least_labels(graph, graph.unary_values)


def least_labels(graph: FactorGraph, costs: FloatArray) -> IntArray:
    """Return the label of least cost of each variable (flat input, the first in ties), (n,)."""
    if graph.n_labels is not None:
        return np.asarray(costs.reshape(-1, graph.n_labels).argmin(axis=1), dtype=np.int64)
    return first_least(costs, graph.unary_ptr)


def first_least(costs: FloatArray, ptr: IntArray) -> IntArray:
    """Return the index of the least entry in each non-empty row of ragged costs, shape (rows,)."""
    start = ptr[:-1]
    minima = np.minimum.reduceat(costs, start) if costs.size else costs
    cheapest = np.flatnonzero(costs == np.repeat(minima, np.diff(ptr)))
    return cheapest[np.searchsorted(cheapest, start)] - start


def _by_value(values: Int32Array, end: int) -> tuple[IntArray, Int32Array]:
    """Return the stable ascending order of numbers in ``range(end)``, and the start of each.

    Linear time.
    """
    from scipy.sparse import coo_array

    places = np.arange(values.size, dtype=np.int32)
    ones = np.ones(values.size, dtype=np.int8)
    by_value = coo_array((ones, (values, places)), shape=(end, values.size)).tocsr()
    return by_value.indptr.astype(np.int64), by_value.indices.astype(np.int32, copy=False)


def on_slices(
    costs: Callable[[Any], FloatArray], terms: IntArray | range
) -> Callable[[slice], FloatArray]:
    """Return a function of terms as a function of slices of the listed terms."""
    return costs if isinstance(terms, range) else lambda part: costs(terms[part])


#: Cached properties that do not depend on the costs.
_STRUCTURE = (
    "n_labels",
    "log2_states",
    "degrees",
    "components",
    "is_forest",
    "breadth_first_order",
    "edge_split",
    "scope_strides",
)

#: The fields that define a graph, without its label costs.
_STORED = tuple(f.name for f in fields(FactorGraph) if f.name != "label_costs")
