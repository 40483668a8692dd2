"""A race of candidates over folds of pairs, which ends early for those that cannot win any more.

All candidates are fitted without the first fold, then without the second, and so on. After some
folds, candidates that are far behind are cut. A limit on processor time cuts fits that would not
end in time; Ctrl-C ends the race.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, parallel_config

from inference_lab.clustering.held_out_pairs import PairShares, pair_shares
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import IntArray
from inference_lab.processes.joblib_backend import ExecutorBackend

#: Share of the time limit that one fit may take.
_FIT_SHARE = 0.25
#: Fits that did not end in time, after which no further candidate is begun.
_LATE = 2
#: Time that is kept for the final fit, which may have ten starts in place of two, over that of a
#: fit that is compared.
_FINAL = 3.0


class FoldFit(NamedTuple):
    """Outcome of a fit without a fold.

    Labels are None if the fit failed, with the reason in ``failure``, or was ``late``. Seconds are
    wall time, and processor time of the named process.
    """

    labels: IntArray | None
    failure: str
    seconds: float
    cpu_seconds: float
    process: str
    late: bool = False


def this_process() -> str:
    """Return a name of this process that no other one has, here or on another machine."""
    return f"{platform.node()}-{os.getpid()}"


@dataclass(eq=False)
class Runner:
    """A candidate in the race: an estimator with a number of clusters, and its fits so far."""

    name: str
    n_clusters: int
    estimator: Any
    uses_pairs: bool
    prior_gain: float = 0.0
    fits: list[IntArray] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    #: The reason why a fit was impossible, and the reason why further fits were not made.
    failure: str = ""
    cut: str = ""
    #: Whether it was cut because others are ahead, or for lack of time.
    behind: bool = False
    out_of_time: bool = False

    def fall_behind(self, done: int, total: int) -> None:
        """Cut the candidate after some of the folds, because others are ahead."""
        self.behind, self.cut = True, f"behind after {done} of {total} folds"

    def run_out_of_time(self, limit: float | None) -> None:
        """Cut the candidate, because its next fit would not end within the limit."""
        self.out_of_time, self.cut = True, f"time limit of {limit:g} s"

    @property
    def runs(self) -> bool:
        """Whether further fits are wanted."""
        return not self.failure and not self.cut

    @property
    def judged(self) -> bool:
        """Whether there is a fit to judge."""
        return bool(self.fits) and not self.failure

    @property
    def mean_cpu(self) -> float | None:
        """Mean processor time of the fits, None without any."""
        return float(np.mean(self.cpu_seconds)) if self.cpu_seconds else None

    def labels(self, n_fits: int) -> list[IntArray]:
        """Return the labels of the first fits; without pairs, one fit serves all folds."""
        return self.fits[:n_fits] if self.uses_pairs else self.fits * n_fits


class Clock:
    """Processor time of a search in this process and in the workers that make its fits."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._since = process_time()
        self._elsewhere = 0.0

    def add(self, fit: FoldFit) -> None:
        """Count a fit, unless it was made in this process."""
        if fit.process != this_process():
            self._elsewhere += fit.cpu_seconds

    @property
    def spent(self) -> float:
        """Processor seconds so far."""
        return process_time() - self._since + self._elsewhere

    def remaining(self, share: float = 1.0) -> float:
        """Return the processor seconds that are left of a share of the limit."""
        return np.inf if self.limit is None else share * self.limit - self.spent


@dataclass(eq=False)
class Race:
    """The fits of a search: points, pairs with their folds, and the workers.

    ``fit(estimator, points, constraints, held_out, seconds)`` returns a `FoldFit`;
    ``final_scale`` is the number of all points over that of `points`.
    """

    points: Any
    constraints: Constraints
    folds: Sequence[IntArray]
    fit: Callable[..., FoldFit]
    clock: Clock
    n_jobs: int | None = None
    executor: Executor | None = None
    final_scale: float = 1.0
    report: Callable[[str], None] | None = None
    #: Whether Ctrl-C has ended the race.
    interrupted: bool = False
    #: Share of the time limit for the fits that are made.
    _share: float = 1.0

    def __post_init__(self) -> None:
        """Make the masks of the pairs that are held out of each fit."""
        self.masks = [fold == at for fold in self.folds for at in range(int(fold.max()) + 1)]
        self.late = 0

    @property
    def checkpoints(self) -> list[int]:
        """Numbers of fits after which candidates are compared: within and after repetitions."""
        splits = len(self.masks) // len(self.folds)
        ends = {splits * repeat for repeat in range(1, len(self.folds) + 1)}
        return sorted({(splits + 1) // 2, *ends})

    def run(
        self,
        runners: Sequence[Runner],
        cut: Callable[[Sequence[Runner], int, int], None],
        share: float = 1.0,
    ) -> None:
        """Make the fits of all runners within a share of the time limit.

        ``cut(runners, done, total)`` ends those far behind.
        """
        begin, self._share = 0, share
        for end in self.checkpoints:
            try:
                self._advance(runners, range(begin, end))
            except KeyboardInterrupt:
                if not any(runner.judged for runner in runners):
                    raise
                self.interrupted = True
                for runner in runners:
                    if runner.runs and len(runner.fits) < self.n_fits(runner):
                        runner.cut = "interrupted"
                return
            begin = end
            if end < len(self.masks):
                cut(runners, end, len(self.masks))
                self._tell(runners, end)

    def n_fits(self, runner: Runner) -> int:
        """Return the number of fits of a runner that is never cut."""
        return len(self.masks) if runner.uses_pairs else 1

    def shares(self, runner: Runner, n_fits: int | None = None) -> PairShares | None:
        """Return the pairs kept by the first fits, by default all; None if the runner failed.

        Pairs that these fits have not held out are left out, see `judged_pairs`.
        """
        if not runner.judged:
            return None
        if n_fits is None:
            n_fits = self.n_judged(runner)
        return pair_shares(runner.labels(n_fits), self.folds, self.constraints)

    def n_judged(self, runner: Runner) -> int:
        """Return the number of folds on which a runner is judged."""
        return len(runner.fits) if runner.uses_pairs else len(self.masks)

    def judged_pairs(self, n_fits: int) -> IntArray:
        """Return the pairs that the first fits have held out, in the order of `PairShares`."""
        return np.flatnonzero(np.any(self.masks[:n_fits], axis=0))

    # -------------------------------------------------------------- fits

    def _advance(self, runners: Sequence[Runner], numbers: range) -> None:
        """Make the fits of these numbers, fold by fold, from simple to complex."""
        begun: list[Runner] = []
        jobs = self._jobs(runners, numbers, begun)
        if self.executor is None:
            config: Any = nullcontext()
            n_jobs = self.n_jobs
        else:
            # The number of workers is not known, so all fits of a stage are in flight.
            n_jobs = len(runners) * len(numbers)
            config = parallel_config(ExecutorBackend(self.executor), n_jobs=n_jobs)
        with config:
            results = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
            for at, result in enumerate(results):
                self._take(begun[at], result)

    def _jobs(
        self, runners: Sequence[Runner], numbers: range, begun: list[Runner]
    ) -> Iterator[Any]:
        """Yield the calls, and list their runners; runners without enough time are cut."""
        for number in numbers:
            for runner in runners:
                if not runner.runs or number >= self.n_fits(runner):
                    continue
                seconds = self._allowance(runners, runner)
                if seconds <= 0.0:
                    runner.run_out_of_time(self.clock.limit)
                    continue
                begun.append(runner)
                mask = self.masks[number] if runner.uses_pairs else np.zeros_like(self.masks[0])
                yield delayed(self.fit)(
                    runner.estimator, self.points, self.constraints, mask, seconds
                )

    def _allowance(self, runners: Sequence[Runner], runner: Runner) -> float:
        """Return the processor seconds that the next fit may take, 0 if it would not end in time.

        The first candidate has no limit, so that there is always an answer. A candidate without a
        fit is expected to take as long as the slowest one so far.
        """
        if self.clock.limit is None or (runner is runners[0] and not runner.fits):
            return np.inf
        means = [other.mean_cpu for other in runners if other.mean_cpu is not None]
        slowest = max(means, default=0.0)
        expected = runner.mean_cpu if runner.mean_cpu is not None else slowest
        if runner.mean_cpu is None and self.late >= _LATE:
            return 0.0
        # The final fit is most often made by a candidate that has ended its fits.
        final = _FINAL * self.final_scale * slowest
        left = self.clock.remaining(self._share) - final
        return 0.0 if expected > left else min(left, _FIT_SHARE * self.clock.limit)

    def _take(self, runner: Runner, result: FoldFit) -> None:
        """Add the outcome of a fit."""
        self.clock.add(result)
        first = not runner.seconds
        runner.seconds.append(result.seconds)
        if result.late:
            self.late += 1
            runner.run_out_of_time(self.clock.limit)
        elif result.labels is None:
            runner.failure = runner.failure or result.failure
        else:
            runner.fits.append(result.labels)
            runner.cpu_seconds.append(result.cpu_seconds)
        if first and self.report is not None:
            what = f"first fit {result.cpu_seconds:.2g} s"
            if result.late:
                what = f"stopped after {result.cpu_seconds:.2g} s"
            elif result.labels is None:
                what = f"failed: {result.failure}"
            self.report(f"{runner.name}, {runner.n_clusters} clusters: {what}")

    def _tell(self, runners: Sequence[Runner], done: int) -> None:
        """Report the fits so far, their time, and the time to come."""
        if self.report is None:
            return
        racing = [runner for runner in runners if runner.runs and runner.uses_pairs]
        to_come = len(self.masks) - done
        seconds = sum((runner.mean_cpu or 0.0) * to_come for runner in racing)
        seconds = min(seconds, self.clock.remaining(self._share))
        self.report(
            f"{done} of {len(self.masks)} folds in {self.clock.spent:.3g} s of processor time, at "
            f"most {seconds:.2g} s to come; still compared: "
            + ("; ".join(f"{runner.name}, {runner.n_clusters}" for runner in racing) or "none")
        )
