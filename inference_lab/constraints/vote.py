r"""Vote of must-links against cannot-links among contradictory pairs.

Correlation clustering (N. Bansal, A. Blum, S. Chawla, Machine Learning 56, 2004) by greedy search:
merge the two groups with the largest surplus of must-links (M. Keuper et al., "Efficient
decomposition of image and mesh graphs by lifted multicuts", ICCV 2015), move single members, and
split groups that no must-link holds together, until nothing changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray, connected

#: A move must gain this share of the largest weight: so that rounding cannot cycle.
_LEAST_GAIN = 1e-9


def vote(n: int, pairs: IntArray, evidence: FloatArray) -> IntArray:
    """Split units into groups that agree with most of the evidence; lower numbers win ties."""
    group = np.arange(n)
    finite = np.abs(evidence[np.isfinite(evidence)])
    margin = _LEAST_GAIN * float(finite.max(initial=0.0))
    # Pairs within a unit are dropped, because its votes for itself would never end.
    voiced = (evidence != 0) & (pairs[:, 0] != pairs[:, 1])
    pairs, evidence = pairs[voiced], evidence[voiced]
    edges: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    for (i, j), weight in zip(pairs.tolist(), evidence.tolist(), strict=True):
        edges[i].append((j, weight))
        edges[j].append((i, weight))
    while True:
        merged = _merge(int(group.max(initial=-1)) + 1, group[pairs], evidence, margin)[group]
        moved = np.array(_move(edges, merged.tolist(), margin), dtype=np.int64)
        joining = (moved[pairs[:, 0]] == moved[pairs[:, 1]]) & (evidence > 0)
        components = connected(n, pairs[joining])
        if np.array_equal(components, group):
            return group
        group = components


def _merge(n: int, pairs: IntArray, evidence: FloatArray, margin: float) -> IntArray:
    """Merge the two units with the most evidence between them until none has any."""
    near: list[dict[int, float]] = [{} for _ in range(n)]
    for (i, j), weight in zip(pairs.tolist(), evidence.tolist(), strict=True):
        if i != j:
            near[i][j] = near[j][i] = near[i].get(j, 0.0) + weight
    heap = [
        (-weight, i, j)
        for i, others in enumerate(near)
        for j, weight in others.items()
        if i < j and weight > margin
    ]
    heapq.heapify(heap)
    members: list[list[int]] = [[i] for i in range(n)]
    while heap:
        negative, i, j = heapq.heappop(heap)
        if near[i].get(j) != -negative:  # merged since, or the evidence has changed
            continue
        # The unit with fewer neighbours joins the other: O(m log m) entries move in all.
        into, gone = (i, j) if len(near[i]) >= len(near[j]) else (j, i)
        members[into] += members[gone]
        members[gone] = []
        del near[into][gone]
        for other, weight in near[gone].items():
            if other == into:
                continue
            del near[other][gone]
            total = near[into].get(other, 0.0) + weight
            near[into][other] = near[other][into] = total
            if total > margin:
                heapq.heappush(heap, (-total, min(into, other), max(into, other)))
        near[gone] = {}
    group = np.empty(n, dtype=np.int64)
    for number, units in enumerate(members):
        group[units] = number
    return group


def _move(
    edges: Sequence[Sequence[tuple[int, float]]], group: list[int], margin: float
) -> list[int]:
    """Move units to the groups that agree with them best, until none gains."""
    waiting = list(range(len(group)))
    queued = [True] * len(group)
    unused = len(group)
    while waiting:
        following: list[int] = []
        for unit in waiting:
            queued[unit] = False
            here = group[unit]
            agreement = {here: 0.0}
            for other, weight in edges[unit]:
                agreement[group[other]] = agreement.get(group[other], 0.0) + weight
            best = here
            support = agreement[here]
            if support < -margin:  # better alone
                best = unused
                support = 0.0
            for number, value in agreement.items():
                if value > support + margin:
                    best, support = number, value
            if best == here:
                continue
            unused = max(unused, best + 1)
            group[unit] = best
            for other, _ in edges[unit]:
                if not queued[other]:
                    queued[other] = True
                    following.append(other)
        waiting = sorted(following)
    return group
