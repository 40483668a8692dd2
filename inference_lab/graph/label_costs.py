"""Label costs, paid once for each label, or set of labels, that any variable takes.

``sum_s h_s [some x_i is in L_s]`` (Delong, Osokin, Isack, Boykov, "Fast approximate energy
minimization with label costs", IJCV 96, 2012): a term over all variables at once, which prices
the number of labels in use: open facilities, clusters, models.
Costs are finite and not negative. Negative ones would be neither submodular in moves nor a minimum
of linear functions, on which the bounds rest. Forbid a label by ``inf`` in the unaries.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray, freeze, starts_of
from inference_lab.graph.terms import as_costs, check_costs


class LabelCosts(NamedTuple):
    """Sets of labels with the cost of using any label of each, read-only, as kernels take them.

    The form is canonical: labels rise within a set, sets are ordered and differ, no cost is 0.

    * ``costs`` (s,) float64, positive;
    * ``ptr`` (s+1,) int64 into ``labels`` int64: the labels of each set;
    * ``of_ptr`` (k+1,) int64 into ``of_set`` int64: the sets of each label.
    """

    costs: FloatArray
    ptr: IntArray
    labels: IntArray
    of_ptr: IntArray
    of_set: IntArray

    def sets(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the sets of labels with their costs."""
        ends = zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist(), self.costs.tolist(), strict=True)
        return [(tuple(self.labels[a:b].tolist()), cost) for a, b, cost in ends]

    def of(self, labels: IntArray) -> FloatArray:
        """Return the label costs of labellings (b, n), shape (b,)."""
        if self.costs.size == 0:
            return np.zeros(len(labels))
        used = np.zeros((len(labels), self.of_ptr.size - 1), dtype=bool)
        used[np.arange(len(labels))[:, None], labels] = True
        paid = np.logical_or.reduceat(used[:, self.labels], self.ptr[:-1], axis=1)
        # Row by row, so that a sum does not depend on the size of the batch.
        return np.asarray(np.where(paid, self.costs, 0.0).sum(axis=1))

    def least(self) -> float:
        """Return the least label costs of any labelling of at least one variable."""
        if self.costs.size == 0:
            return 0.0
        alone = np.zeros(self.of_ptr.size - 1)
        np.add.at(alone, self.labels, np.repeat(self.costs, np.diff(self.ptr)))
        return float(alone.min())


def _pack(sets: Sequence[tuple[tuple[int, ...], float]], n_labels: int) -> LabelCosts:
    """Store sets in canonical form."""
    labels = np.array([a for members, _ in sets for a in members], dtype=np.int64)
    sizes = np.array([len(members) for members, _ in sets], dtype=np.int64)
    owner = np.repeat(np.arange(len(sets)), sizes)
    counts = np.bincount(labels, minlength=n_labels)
    return LabelCosts(
        costs=freeze(np.array([cost for _, cost in sets], dtype=np.float64)),
        ptr=freeze(starts_of(sizes)),
        labels=freeze(labels),
        of_ptr=freeze(starts_of(counts)),
        of_set=freeze(owner[np.argsort(labels, kind="stable")]),
    )


#: No label costs.
NO_LABEL_COSTS = _pack([], 0)


def label_costs(
    n_labels: int,
    costs: npt.ArrayLike = 0.0,
    sets: Iterable[tuple[Iterable[int], float]] = (),
) -> LabelCosts:
    """Check label costs and bring them into canonical form: equal sets are added up."""
    single = _nonnegative(as_costs(costs, "label costs"), "label costs")
    if single.ndim > 1 or (single.ndim == 1 and single.size != n_labels):
        raise ValueError(
            f"label costs must be a number or have shape ({n_labels},), one a label, got shape "
            f"{single.shape}"
        )
    label_sets: list[tuple[tuple[int, ...], float]]
    label_sets = [((a,), cost) for a, cost in enumerate(np.broadcast_to(single, n_labels).tolist())]
    for s, (raw, cost) in enumerate(sets):
        members = _members(raw, n_labels, f"the labels of sets[{s}]")
        value = _nonnegative(as_costs(cost, f"the cost of sets[{s}]"), f"the cost of sets[{s}]")
        if value.ndim:
            raise ValueError(f"the cost of sets[{s}] must be a number, got shape {value.shape}")
        label_sets.append((members, float(value)))
    merged: dict[tuple[int, ...], float] = {}
    for members, cost in label_sets:
        merged[members] = merged.get(members, 0.0) + cost
    check_costs(np.array(list(merged.values())), "the sum of label costs of one set, in turn,")
    positive = sorted((members, cost) for members, cost in merged.items() if cost > 0.0)
    return _pack(positive, n_labels) if positive else NO_LABEL_COSTS


def _nonnegative(costs: FloatArray, name: str) -> FloatArray:
    """Refuse costs that are negative or infinite."""
    wrong = (costs < 0.0) | np.isinf(costs)
    if wrong.any():
        place = tuple(int(p) for p in np.argwhere(wrong)[0])
        where = f"{name}[{place[0]}]" if place else name
        raise ValueError(
            f"{where} is {costs[place]}; label costs are finite and not negative (forbid a "
            "label by +inf in the unaries)"
        )
    return costs


def _members(raw: Iterable[int], n_labels: int, name: str) -> tuple[int, ...]:
    """Return the labels of a set in rising order."""
    try:
        listed = [operator.index(a) for a in raw]
    except TypeError:
        raise ValueError(f"{name} must be integers, got {raw!r}") from None
    members = tuple(sorted(set(listed)))
    if not members or len(members) < len(listed):
        raise ValueError(f"{name} are {listed}; a set names one label or more, each once")
    if members[0] < 0 or members[-1] >= n_labels:
        raise ValueError(
            f"{name} are {listed}; variables of this graph have labels 0 to {n_labels - 1}"
        )
    return members
