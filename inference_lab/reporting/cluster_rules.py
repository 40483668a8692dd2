"""Short rules that describe a cluster, from shallow decision trees on the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.reporting.table_traits import Trait

#: Conditions of a rule, folds that it is held out of, and rows that trees are grown on.
_DEPTH, _FOLDS, _ROWS = 3, 5, 20_000
#: Fewest rows of a cluster with a rule.
_FEWEST = 6
#: Loss of F1 that a further condition must make up for.
_PRICE = 0.01

Mask = npt.NDArray[np.bool_]


class RuleCondition(NamedTuple):
    """A condition on a column: a value above `low` and at most `high`, or a category or not."""

    trait: Trait
    low: float = -math.inf
    high: float = math.inf
    category: int | None = None
    equal: bool = True

    def holds(self, rows: IntArray) -> Mask:
        """Return which of the rows fulfil the condition; missing numbers do not."""
        values = self.trait.values[rows]
        if self.category is not None:
            equal: Mask = values == self.category
            return equal if self.equal else ~equal
        inside: Mask = (values > self.low) & (values <= self.high)
        return inside

    def sentence(self) -> str:
        """Return the condition in words."""
        name = self.trait.name
        if self.category is not None:
            return (
                f"{name} {'=' if self.equal else 'is not'} {self.trait.categories[self.category]}"
            )
        low, high = (self.trait.shown(value) if math.isfinite(value) else "" for value in self[1:3])
        if self.trait.kind == "date":
            words = {(True, False): f"after {low}", (False, True): f"up to {high}"}
        else:
            words = {(True, False): f"above {low}", (False, True): f"at most {high}"}
        return f"{name} {words.get((bool(low), bool(high)), f'above {low} and at most {high}')}"


class ClusterRule(NamedTuple):
    """A rule that describes a cluster, and its shares on rows that it was not made from.

    `accuracy` is the share of all rows on the right side, `precision` the share of the rows that
    the rule selects that are in the cluster, `recall` the share of the cluster that it selects.
    """

    conditions: tuple[RuleCondition, ...]
    accuracy: float
    precision: float
    recall: float

    def sentence(self) -> str:
        """Return the rule in words, empty if there is none."""
        return " and ".join(condition.sentence() for condition in self.conditions)


def rules_of(traits: Sequence[Trait], labels: IntArray, clusters: IntArray) -> list[ClusterRule]:
    """Return a rule for each cluster."""
    from sklearn.model_selection import StratifiedKFold

    nothing = ClusterRule((), math.nan, math.nan, math.nan)
    matrix, columns = _features(traits)
    if not columns or clusters.size < 2:
        return [nothing] * clusters.size
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(labels.size)[:_ROWS])
    rules = []
    for cluster in clusters:
        inside = labels[rows] == cluster
        least = min(int(inside.sum()), int((~inside).sum()))
        if least < _FEWEST:
            rules.append(nothing)
            continue
        selected = np.zeros(rows.size, dtype=np.bool_)
        for train, test in StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(
            matrix[rows], inside
        ):
            conditions = _best(matrix, columns, rows[train], inside[train])
            selected[test] = _selected(conditions, rows[test])
        right = int((selected & inside).sum())
        rules.append(
            ClusterRule(
                _best(matrix, columns, rows, inside),
                float((selected == inside).mean()),
                right / int(selected.sum()) if selected.any() else math.nan,
                right / int(inside.sum()),
            )
        )
    return rules


def _features(traits: Sequence[Trait]) -> tuple[FloatArray, list[RuleCondition]]:
    """Return numbers, and 0 and 1 for categories, with the condition that each column stands for.

    Missing numbers are medians, because trees would send them to either side.
    """
    values: list[FloatArray] = []
    columns: list[RuleCondition] = []
    for trait in traits:
        if not trait.compared:
            continue
        if trait.kind == "category":
            for code in range(len(trait.categories)):
                values.append((trait.values == code).astype(float))
                columns.append(RuleCondition(trait, category=code))
        else:
            values.append(
                np.where(np.isnan(trait.values), np.nanmedian(trait.values), trait.values)
            )
            columns.append(RuleCondition(trait))
    return np.column_stack(values) if values else np.empty((0, 0)), columns


def _selected(conditions: Sequence[RuleCondition], rows: IntArray) -> Mask:
    """Return which of the rows fulfil all conditions; none do if there are none."""
    selected = np.full(rows.size, bool(conditions))
    for condition in conditions:
        selected &= condition.holds(rows)
    return selected


def _best(
    matrix: FloatArray, columns: Sequence[RuleCondition], rows: IntArray, inside: Mask
) -> tuple[RuleCondition, ...]:
    """Return the path of a shallow tree with the largest F1, as conditions in round numbers."""
    from sklearn.tree import DecisionTreeClassifier

    leaf = max(3, int(inside.sum()) // 20)
    grown = DecisionTreeClassifier(
        max_depth=_DEPTH, min_samples_leaf=leaf, class_weight="balanced", random_state=0
    ).fit(matrix[rows], inside)
    best: tuple[RuleCondition, ...] = ()
    best_value = 0.0
    for conditions in _paths(grown.tree_, columns):
        selected = _selected(conditions, rows)
        right = int((selected & inside).sum())
        value = 2.0 * right / (int(selected.sum()) + int(inside.sum())) - _PRICE * len(conditions)
        if value > best_value:
            best, best_value = conditions, value
    return best


def _paths(tree: Any, columns: Sequence[RuleCondition]) -> list[tuple[RuleCondition, ...]]:
    """Return the conditions of each node of a tree but the root."""
    paths: list[tuple[RuleCondition, ...]] = []
    waiting: list[tuple[int, tuple[RuleCondition, ...]]] = [(0, ())]
    while waiting:
        node, conditions = waiting.pop()
        if conditions:
            paths.append(conditions)
        if tree.children_left[node] < 0:
            continue
        column, limit = columns[tree.feature[node]], float(tree.threshold[node])
        if column.category is None:
            limit = _rounded(column.trait, limit)
            sides = column._replace(high=limit), column._replace(low=limit)
        else:
            sides = column._replace(equal=False), column
        children = int(tree.children_left[node]), int(tree.children_right[node])
        for child, side in zip(children, sides, strict=True):
            waiting.append((child, _joined(conditions, side)))
    return paths


def _rounded(trait: Trait, limit: float) -> float:
    """Return a limit in round numbers; at the unit of the values it is rounded down."""
    steps = limit / trait.step
    whole = math.floor(steps + 1e-9) if trait.step == trait.fine_step else round(steps)
    return round(whole * trait.step, 12)


def _joined(
    conditions: tuple[RuleCondition, ...], side: RuleCondition
) -> tuple[RuleCondition, ...]:
    """Return conditions with a further one, which narrows one on the same column."""
    same = [c for c in conditions if c.trait.name == side.trait.name]
    if side.category is not None:
        if any(c.equal for c in same):
            return conditions
        others = conditions if not side.equal else tuple(c for c in conditions if c not in same)
        return (*others, side)
    if not same:
        return (*conditions, side)
    (old,) = same
    narrow = old._replace(low=max(old.low, side.low), high=min(old.high, side.high))
    return tuple(narrow if c is old else c for c in conditions)
