"""Starts of a fit: settings, seeds, and the choice of the best one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from inference_lab.specs.settings import Range, setting

#: Metadata of a field that holds a positive number, as `setting` makes them.
AT_LEAST_ONE = {"range": Range(at_least=1)}
#: Size of a sample of points that starts are fitted to, in all and per cluster.
_SAMPLE, _SAMPLE_EACH = 5_000, 100
#: A sample is used if there are more points than this multiple of its size
#: (docs/decisions/032-starts-on-a-sample.md).
SAMPLED = 4
#: Relative differences of objectives up to this size count as rounding.
_ROUNDING = 1e-10


@dataclass(eq=False, repr=False, kw_only=True)
class SharedSettings:
    """Settings of the estimators with several starts."""

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)
    n_init: int = setting(1, at_least=1)
    n_jobs: int | None = None
    max_iter: int = setting(100, at_least=1)
    random_state: Any = None


class Start(Protocol):
    """The result of one start."""

    @property
    def objective(self) -> float:
        """The objective, ``inf`` if unknown."""

    @property
    def unmet(self) -> int:
        """The number of violated hard pairs."""


F = TypeVar("F", bound=Start)


def generator_of(random_state: Any) -> np.random.Generator:
    """Return a generator seeded by ``random_state`` in scikit-learn's sense."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    return np.random.default_rng(random_state)


def sample_size(n_clusters: int) -> int:
    """Return the number of points in a sample that stands for all points."""
    return max(_SAMPLE, _SAMPLE_EACH * n_clusters)


def best_of(
    inits: Sequence[Any],
    fit_once: Callable[[np.random.Generator, Any], F],
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> F:
    """Return the fit of least objective over starts, one for each of `inits`.

    Each start has a generator of its own, so the result does not depend on the number of processes.
    """
    # Results are compared as they arrive, so that only one besides the best is in memory.
    shared = Parallel(n_jobs=n_jobs, return_as="generator")
    seeded = zip(rng.spawn(len(inits)), inits, strict=True)
    fits = shared(delayed(fit_once)(child, init) for child, init in seeded)
    best: F = next(fits)
    for fit in fits:
        # Among fits that differ only by rounding the first is kept, whatever the order of sums.
        # If it violates fewer hard pairs, as where all objectives are infinite, the later is kept.
        same = math.isclose(fit.objective, best.objective, rel_tol=_ROUNDING)
        better = fit.unmet < best.unmet if same else fit.objective < best.objective
        if better:
            best = fit
    return best
