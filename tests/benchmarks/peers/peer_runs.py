"""Both sides of a row, in turn, each in a process of its own; what they say is looked at here."""

from __future__ import annotations

import json
import math
import os
import selectors
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from peer_rows import PEERS, Row
from peer_sides import Pairs, load

from inference_lab.data.datasets import DataNotFoundError

#: Wall seconds that one solution may take, beyond the limit that the solver is given.
PATIENCE = 240.0
#: Processor seconds of a row after which medians of few runs will do.
ENOUGH = 1.0
#: Energies are the same within this share of their size.
_SAME = 1e-6


class Failure(Exception):
    """A side has no answer, for the reason told."""


class Process:
    """A side, asked for one solution after another."""

    def __init__(self, python: Path, task: dict[str, Any], patience: float) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.patience = patience
        self.process = subprocess.Popen(
            [python, Path(__file__).with_name("peer_sides.py"), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **_ONE_THREAD},
        )
        self.rest = b""

    def answer(self) -> dict[str, Any]:
        """Return the next line of the process.

        Raises
        ------
        Failure
            If the process ends, or takes too long.
        """
        assert self.process.stdout is not None
        until = time.monotonic() + self.patience
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(until - time.monotonic()):
                    raise Failure(f"no answer within {self.patience:g} s")
                chunk = os.read(self.process.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise Failure(self._reason())
                self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        return dict(json.loads(line))

    def solve(self) -> dict[str, Any]:
        """Ask for a solution and return it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(self._reason()) from None
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def _reason(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        said = [line.strip() for line in self.errors if line.strip()]
        return f"exit code {code}" + (f": {said[-1][:120]}" if said else "")


_ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


@dataclass
class Side:
    """What one side did in all of its runs.

    Attributes
    ----------
    cpu_s, low_s, high_s : float
        Median, least and most processor time of solving; of making the model that is
        solved, where that is apart, `model_s`, the median.
    energy : float
        Of its labels, by our graph; for clusterings the median of violated pairs.
    bound : float
    proved : bool
    version : str
    """

    cpu_s: float = math.nan
    low_s: float = math.nan
    high_s: float = math.nan
    model_s: float = math.nan
    energy: float = math.nan
    bound: float = math.nan
    proved: bool = False
    version: str = ""


@dataclass
class Measured:
    """What came of a row.

    Attributes
    ----------
    row : str
        Its name.
    runs : int
        Of each side.
    ours, peer : Side
    note : str
        What the figures do not say, failures of a side among it.
    """

    row: str
    runs: int = 0
    ours: Side = field(default_factory=Side)
    peer: Side = field(default_factory=Side)
    note: str = ""

    @property
    def ratio(self) -> float:
        """Our processor time over theirs, what its model takes included."""
        return self.ours.cpu_s / (self.peer.cpu_s + self.peer.model_s)

    @property
    def strict(self) -> float:
        """Our processor time over theirs when its model is there already."""
        return self.ours.cpu_s / self.peer.cpu_s

    def flat(self) -> dict[str, Any]:
        """Return all values under names of their own."""
        sides = {
            f"{name}_{one.name}": getattr(getattr(self, name), one.name)
            for name in ("ours", "peer")
            for one in fields(Side)
        }
        return {"row": self.row, "runs": self.runs, **sides, "note": self.note}

    @classmethod
    def of(cls, values: dict[str, str]) -> Measured:
        """Return what `flat` gave, from text."""
        sides = {}
        for name in ("ours", "peer"):
            found: dict[str, Any] = {}
            for one in fields(Side):
                text = values[f"{name}_{one.name}"]
                kind = type(one.default)
                found[one.name] = text == "True" if kind is bool else kind(text)
            sides[name] = Side(**found)
        return cls(values["row"], int(values["runs"]), **sides, note=values["note"])


def measure(
    row: Row, pythons: dict[str, Path], runs: int = 3, patience: float = PATIENCE
) -> Measured:
    """Run both sides of a row in turn.

    Parameters
    ----------
    row : Row
    pythons : dict
        The interpreter of ``"ours"`` and ``"peer"``.
    runs : int
        Of each side, after one that does not count; up to five times as many where these take
        less than a second.
    patience : float
        Wall seconds that one of them may take beyond its limit.
    """
    measured = Measured(row.name)
    try:
        problem = load(row.problem)
    except DataNotFoundError as missing:
        measured.note = f"not measured: {str(missing)[:160]}"
        return measured
    processes: dict[str, Process] = {}
    answers: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    failures = []
    try:
        for name in answers:
            wait = patience + (row.limit or 0.0)
            processes[name] = Process(pythons[name], task(row, name), wait)
            try:
                getattr(measured, name).version = processes[name].answer()["version"]
            except Failure as failure:
                failures.append(f"{_called(row, name)}: {failure}")
                processes.pop(name).close()
        spent = 0.0
        while processes and measured.runs < (runs if spent >= ENOUGH else 5 * runs):
            for name in list(processes):
                try:
                    answer = processes[name].solve()
                except Failure as failure:
                    failures.append(f"{_called(row, name)}: {failure}")
                    processes.pop(name).close()
                else:
                    answers[name].append(answer)
                    spent += answer["cpu_s"] + answer["model_s"]
            measured.runs += 1
    finally:
        for process in processes.values():
            process.close()
    measured.note = "; ".join([*failures, *judge(row, problem, measured, answers)])
    return measured


def task(row: Row, name: str) -> dict[str, Any]:
    """Return what the process of a side is told."""
    asked = {
        "problem": row.problem,
        "ours": row.ours,
        "temperature": row.temperature,
        "limit": row.limit,
        "settings": row.settings,
        "call": None,
        "distribution": None,
    }
    if name == "peer":
        asked |= {"call": row.call, "distribution": PEERS[row.peer].distribution}
    return asked


def _called(row: Row, name: str) -> str:
    return "ours" if name == "ours" else row.peer


def judge(
    row: Row, problem: Any, measured: Measured, answers: dict[str, list[dict[str, Any]]]
) -> list[str]:
    """Fill in what the answers come to, energies by our graph; return what is to be remarked."""
    notes = []
    for name, given in answers.items():
        if not given:
            continue
        side, called = getattr(measured, name), _called(row, name)
        seconds = [one["cpu_s"] for one in given]
        side.cpu_s, side.low_s, side.high_s = (
            statistics.median(seconds),
            min(seconds),
            max(seconds),
        )
        side.model_s = statistics.median(one["model_s"] for one in given)
        shown = given[-1]
        if isinstance(problem, Pairs):
            side.energy, nmi = clustering(problem, shown["labels"])
            notes.append(f"{called}: NMI {nmi:.3f}")
        elif shown["labels"] is not None:
            energies = [float(problem.energy(one["labels"])) for one in given]
            # Of runs that are cut off, any may be the best: the middle one, as for seconds.
            shown = given[int(np.argsort(energies)[len(energies) // 2])]
            side.energy = float(problem.energy(shown["labels"]))
        claimed = shown["claimed"]
        if claimed is not None and not same(claimed, side.energy):
            notes.append(f"{called} claims {claimed:.10g} for labels that cost {side.energy:.10g}")
        if shown["bound"] is not None:
            side.bound = shown["bound"]
        side.proved = shown["proved"]
        if shown["note"]:
            notes.append(f"{called}: {shown['note']}")
    return [*notes, *contradictions(row, measured), *agreement(answers)]


def same(a: float, b: float) -> bool:
    """Whether two energies are the same but for rounding."""
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=_SAME)


def contradictions(row: Row, measured: Measured) -> list[str]:
    """Return which proofs and bounds of a side the labels of the other refute."""
    notes = []
    for name, other in (("ours", measured.peer), ("peer", measured.ours)):
        side = getattr(measured, name)
        highest = side.energy if side.proved else side.bound
        if other.energy < highest and not same(other.energy, highest):
            what = "proof" if side.proved else "bound"
            notes.append(f"the {what} of {_called(row, name)} is refuted")
    return notes


def agreement(answers: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return how far the marginals of both sides are apart."""
    found = [given[-1]["marginals"] for given in answers.values() if given]
    if len(found) < 2 or None in found:
        return []
    return [f"marginals differ by at most {np.abs(np.subtract(*found)).max():.0e}"]


def clustering(pairs: Pairs, labels: Sequence[Any]) -> tuple[float, float]:
    """Return the median of violated pairs, and the mean NMI of the points that no pair touches."""
    from sklearn.metrics import normalized_mutual_info_score

    from inference_lab.clustering.hmrf import violations

    violated, shared = [], []
    for given, known, found in zip(pairs.draws, pairs.known, labels, strict=True):
        if found is None:
            continue
        broken = violations(given, np.array(found))
        violated.append(broken.must_link + broken.cannot_link)
        others = np.setdiff1d(np.arange(len(pairs.truth)), known)
        shared.append(normalized_mutual_info_score(pairs.truth[others], np.array(found)[others]))
    if not violated:
        return math.nan, math.nan
    return float(np.median(violated)), float(np.mean(shared))
