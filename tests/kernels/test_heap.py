"""The heap against a sorted list, under all kinds of changes."""

from __future__ import annotations

import numpy as np
import pytest

from inference_lab.kernels.heap import clear, empty_heap, pop, push, remove, rise, settle, sink


@pytest.mark.parametrize("tied", [True, False])
def test_any_sequence_of_changes_leaves_the_least_on_top(tied):
    n = 40
    rng = np.random.default_rng(3)
    key, tie = rng.integers(0, 9, n).astype(float), rng.permutation(n).astype(float)
    heap = empty_heap(key, tie) if tied else empty_heap(key)
    inside: set[int] = set()

    def rank(v: int) -> tuple[float, ...]:
        return (key[v], tie[v]) if tied else (key[v],)

    for _ in range(600):
        out = sorted(set(range(n)) - inside)
        what = rng.choice(["push", "push", "rise", "sink", "settle", "remove", "pop"])
        if what == "push" and out:
            v = int(rng.choice(out))
            push(heap, v)
            inside.add(v)
        elif what != "push" and inside:
            v = int(rng.choice(sorted(inside)))
            if what == "remove":
                remove(heap, v)
                inside.remove(v)
            elif what == "pop":
                best = min(rank(u) for u in inside)
                v = pop(heap)
                assert rank(v) == best
                inside.remove(v)
            else:
                step = {"rise": -3, "sink": 3, "settle": int(rng.integers(-3, 4))}[what]
                key[v] += step
                {"rise": rise, "sink": sink, "settle": settle}[what](heap, v)
        assert set(heap.items[: heap.size[0]].tolist()) == inside
        assert np.array_equal(np.flatnonzero(heap.place >= 0), sorted(inside))
        assert all(heap.items[heap.place[v]] == v for v in inside)
        if inside:
            assert rank(heap.items[0]) == min(rank(v) for v in inside)
    clear(heap)
    assert heap.size[0] == 0
    assert (heap.place == -1).all()
