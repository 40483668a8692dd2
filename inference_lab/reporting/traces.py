"""Energies and bounds of runs over time: time to a target, and quality at fixed times.

The trace of a run is a step function, constant from one point to the next. Before the first
labelling the energy is ``inf``, before the first bound the bound is ``-inf``. After the end of a
run, its last values hold.

A run that failed or was ended by force counts up to its last report. Reports count as far as the
record confirms them: no energy below that of the returned labelling, and no bound above the final
one. A run without a kept labelling has therefore never had one.

Seconds are the solver's own, without compilation and without evaluation. Traces are thinned to
`inference_lab.results.records.TRACE_LIMIT` points; a time can be late by one step between these.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from inference_lab.contract import OPTIMALITY_TOLERANCE
from inference_lab.results.records import Record
from inference_lab.results.summaries import tolerance_of

FloatArray = npt.NDArray[np.float64]


def target_energy(reference: npt.ArrayLike, percent: float) -> FloatArray:
    """Return the largest energy whose primal gap to a reference is at most `percent`."""
    if not 0 <= percent < 100:
        raise ValueError(f"percent must be in [0, 100), got {percent}")
    best = np.asarray(reference, dtype=np.float64)
    share = 1.0 - percent / 100.0
    with np.errstate(over="ignore"):
        return np.where(best < 0, best * share, best / share)


def _share(energies: FloatArray) -> FloatArray:
    """Return the difference that counts as none between energies of different sources."""
    return OPTIMALITY_TOLERANCE * np.maximum(1.0, np.abs(energies))


class Traces:
    """The step functions of many runs, searched together."""

    def __init__(self, records: Sequence[Record]) -> None:
        counts = np.array([len(r.trace) + 1 for r in records], dtype=np.int64)
        total = int(counts.sum())
        points = chain.from_iterable(
            chain(
                chain.from_iterable(r.trace),
                (max(r.seconds, r.trace[-1].seconds) if r.trace else r.seconds,),
                (r.energy, r.energy, r.lower_bound),
            )
            for r in records
        )
        table = np.fromiter(points, np.float64, 4 * total).reshape(total, 4)
        #: Number of runs.
        self.n = len(records)
        self._tolerance = np.array([tolerance_of(r) for r in records])
        self._run = np.repeat(np.arange(self.n), counts)
        self._starts = np.cumsum(counts) - counts
        # NaN is replaced by a neutral value: never, no labelling, and no bound.
        nothing = np.array([np.inf, np.inf, np.inf, -np.inf])
        table = np.where(np.isnan(table), nothing, table)
        # The last point of each run holds the final values of its record.
        last = np.repeat(self._starts + counts - 1, counts)
        self._seconds = table[:, 0]
        self._energy = np.maximum(table[:, 2], table[last, 2])
        self._bound = np.minimum(table[:, 3], table[last, 3])

    def _first(self, reached: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the time of the first point of each run where `reached` holds."""
        if self.n == 0:
            return np.zeros(0)
        times = np.where(reached, self._seconds, np.inf)
        first: FloatArray = np.minimum.reduceat(times, self._starts)
        return first

    def time_to_target(self, energies: npt.ArrayLike) -> FloatArray:
        """Return the time at which each run first had a labelling of at most its target energy."""
        target = np.asarray(energies, dtype=np.float64)
        with np.errstate(over="ignore"):
            limit = target + _share(target)
        limit = np.where(np.isfinite(target), limit, -np.inf)
        return self._first(np.isfinite(self._energy) & (self._energy <= limit[self._run]))

    def time_to_proof(self) -> FloatArray:
        """Return the time at which the bound of each run met its energy, ``inf`` if never."""
        with np.errstate(invalid="ignore", over="ignore"):
            gap = self._energy - self._bound
            met = (gap <= self._tolerance[self._run]) & (gap >= -_share(self._energy))
        return self._first(met & np.isfinite(self._energy))

    def energies_at(self, times: npt.ArrayLike) -> FloatArray:
        """Return the best energy of each run at fixed times, of shape (runs, times)."""
        moments = np.asarray(times, dtype=np.float64)
        energy = np.full((self.n, moments.size), np.inf)
        for column, moment in enumerate(moments if self.n else ()):
            past = np.where(self._seconds <= moment, self._energy, np.inf)
            energy[:, column] = np.minimum.reduceat(past, self._starts)
        return energy
