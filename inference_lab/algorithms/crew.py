"""Threads that share the sweeps of one run, and the waves of variables that they update at once.

No two variables of a wave share a term (`inference_lab.kernels.waves`), so that nobody waits for a
lock, and whoever updates which, the result is that of one thread. Threads live within a ``with``
block: runs are made in forked processes, and a fork copies no thread, but the locks that one holds.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from inference_lab.contract import Run
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import Each, FactorGraph
from inference_lab.graph.terms import freeze
from inference_lab.kernels.waves import tiles, waves

#: Waves are made of so many variables in a row. The last waves of a window are too short to share;
#: with a million points there are four windows, which threads can sort at once.
_WINDOW = 1 << 18
#: Labels times terms in a piece of a wave, a tenth of a millisecond or two; handing over a piece,
#: and waiting for the others, takes some hundredths.
_PIECE = 1 << 15
#: As many times as long are pieces where nothing waits: columns are passed side by side then.
_LONGER = 32
#: Below so many tiles across and along, threads would mostly wait.
_FEWEST = 4
#: Tiles across at most: longer rows of pixels are read faster.
_MOST = 8
#: Variables between two looks at the clock of one thread: some tens of milliseconds.
_ALONE = 50_000

#: The pieces of an order that can be done at once, from where to where.
Stage: TypeAlias = "Sequence[tuple[int, int]]"


class Waves(NamedTuple):
    """Variables in an order that is cut into parts, of which a wave can be swept at once.

    ``order`` (n,) int64; ``parts``: where each part starts, with the end behind, or None where each
    variable is one; ``starts``: the first part of each wave, with the end behind.
    """

    order: IntArray
    parts: IntArray | None
    starts: IntArray

    @classmethod
    def of(cls, graph: FactorGraph, order: IntArray, each: Each = map) -> Self:
        """Sort an order into waves: of tiles where it has no others of some size.

        Windows are sorted as `each` calls for them. On forests, where what is exact goes from the
        roots to the leaves, the order stays as it is: tiles may turn single terms round.
        """
        # As read-only as that of the graph: kernels are compiled for one of the two.
        order = freeze(order.copy())
        ordered, starts = waves(graph.arrays, order, _WINDOW, each)
        if (starts.size - 1) * 4 * _piece(graph) > order.size and not graph.is_forest:
            bands = math.isqrt(_work(graph) // (2 * _PIECE))
            if bands >= _FEWEST:
                across, distances = min(bands, _MOST), graph.breadth_first_order
                tiled, parts, first = tiles(graph.arrays, order, distances, bands, across)
                if parts.size > 2 * first.size:
                    return cls(tiled, parts, first)
        return cls(ordered, None, starts)

    def stages(self, graph: FactorGraph) -> list[Stage]:
        """Return the pieces of each wave; of those in a row that are too short many are one."""
        size = _piece(graph)
        starts = self.starts if self.parts is None else self.parts[self.starts]
        found: list[Stage] = []
        done = 0

        def pass_to(first: int) -> None:
            found.extend(in_turn(done, first))

        for wave in np.flatnonzero(np.diff(starts) >= 2 * size).tolist():
            first, last = starts[wave : wave + 2].tolist()
            pass_to(first)
            if self.parts is None:
                found.append(_cut(first, last, size))
            else:
                cuts = np.unique(self.parts[self.starts[wave] : self.starts[wave + 1] + 1])
                found.append(list(pairwise(cuts.tolist())))
            done = last
        pass_to(self.order.size)
        return found


def in_turn(first: int, last: int) -> list[Stage]:
    """Return the pieces of an order that one thread does alone, with looks at the clock between."""
    return [[(at, min(at + _ALONE, last))] for at in range(first, last, _ALONE)]


def in_any_order(graph: FactorGraph) -> Stage:
    """Return pieces of all variables, for a step in which none depends on another."""
    return _cut(0, graph.n_variables, _LONGER * _piece(graph))


def _cut(first: int, last: int, size: int) -> Stage:
    """Return pieces of about that size, and at least."""
    cuts = np.linspace(first, last, max(1, (last - first) // size) + 1).astype(np.int64)
    return list(pairwise(cuts.tolist()))


def _work(graph: FactorGraph) -> int:
    """Return the labels of all variables, times their terms."""
    return int(graph.cardinalities @ (1 + graph.degrees))


def _piece(graph: FactorGraph) -> int:
    """Return how many variables are worth a piece of their own."""
    return max(1, _PIECE * graph.n_variables // max(1, _work(graph)))


class Crew:
    """Threads for the sweeps of one run, of which the one that calls is the first.

    The others are started when there is something for them to do, and gone after the ``with``
    block.

    Parameters
    ----------
    threads : int or None
        None is 1.
    run : Run, optional
        Of which the crew evaluates labellings, too.

    Examples
    --------
    >>> with Crew(2) as crew:
    ...     crew.sweep([[(0, 2), (2, 5)], [(5, 6)]], lambda member, first, last: last - first)
    6
    """

    def __init__(self, threads: int | None, run: Run | None = None) -> None:
        self.size = threads or 1
        self._run = run
        self._others: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Return the crew itself."""
        if self._run is not None:
            self._run.each = self.each
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait until the threads have ended."""
        if self._run is not None:
            self._run.each = map
        if self._others is not None:
            self._others.shutdown()

    def sweep(
        self,
        stages: Sequence[Stage],
        work: Callable[[int, int, int], int],
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """Call ``work(member, first, last)`` for each piece of each stage; return the sum.

        A stage begins when the one before is done, unless `stop` says that it is time. Members have
        numbers below `size`, and do one piece at a time.
        """
        if self.size == 1 or all(len(pieces) == 1 for pieces in stages):
            done = 0
            for pieces in stages:
                for first, last in pieces:
                    done += work(0, first, last)
                if stop():
                    break
            return done
        return self._share(stages, work, stop)

    def each(self, function: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
        """Call a function with each of several things; return what it returns, in their order."""
        given = list(things)
        found: list[Any] = [None] * len(given)

        def work(member: int, first: int, last: int) -> int:
            found[first] = function(given[first])
            return 1

        self.sweep([[(at, at + 1) for at in range(len(given))]], work)
        return found

    def _share(
        self,
        stages: Sequence[Stage],
        work: Callable[[int, int, int], int],
        stop: Callable[[], bool],
    ) -> int:
        if self._others is None:
            self._others = ThreadPoolExecutor(self.size - 1)
        pool = self._others
        left = [deque(pieces) for pieces in stages]
        over = False

        def look() -> None:
            nonlocal over
            over = stop()

        end_of_stage = threading.Barrier(self.size, look)

        def do(member: int) -> int:
            done = 0
            try:
                for pieces in left:
                    while (piece := _next(pieces)) is not None:
                        done += work(member, *piece)
                    end_of_stage.wait()
                    if over:
                        break
            except BaseException:
                # Nobody is to wait for this one.
                end_of_stage.abort()
                raise
            return done

        others = []
        try:
            others = [pool.submit(do, member) for member in range(1, self.size)]
            return do(0) + sum(other.result() for other in others)
        except threading.BrokenBarrierError:
            for other in others:
                error = other.exception()
                if error is not None and not isinstance(error, threading.BrokenBarrierError):
                    raise error from None
            raise
        except BaseException:
            end_of_stage.abort()
            raise


def _next(pieces: deque[tuple[int, int]]) -> tuple[int, int] | None:
    """Take a piece, None if there is none left."""
    try:
        return pieces.popleft()
    except IndexError:
        return None
