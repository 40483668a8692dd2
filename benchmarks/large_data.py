"""Fits of a million rows, and fits on a sample: ``python benchmarks/large_data.py PART``.

``million``: whole fits of 1,000,000 x 20, each in a process of its own, beside k-means of
scikit-learn with ten starts. ``memmap``: `fit_on_sample` on 10,000,000 x 20 in single precision, in
a file of 800 MB that is removed afterwards. ``sample``: `fit_on_sample` beside whole fits of a
million rows. All are mixtures of ten Gaussians and 100,000 pairs of which a tenth is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scaling import peak_rss_bytes
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from inference_lab.clustering import (
    ConstrainedClusterCV,
    ConstrainedGaussianMixture,
    MPCKMeans,
    PCKMeans,
    TVClust,
    fit_on_sample,
)
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import IntArray

MILLION, FEATURES, CLUSTERS, PAIRS = 1_000_000, 20, 10, 100_000
#: Standard deviation of the centres of clusters; that of points in a cluster is one.
SPREAD = 0.8

MODELS: dict[str, Callable[[], Any]] = {
    "KMeans": lambda: KMeans(CLUSTERS, n_init=10, random_state=0),
    "PCKMeans": lambda: PCKMeans(CLUSTERS, random_state=0),
    "MPCKMeans": lambda: MPCKMeans(CLUSTERS, random_state=0),
    "ConstrainedGaussianMixture": lambda: ConstrainedGaussianMixture(CLUSTERS, random_state=0),
    "TVClust": lambda: TVClust(15, random_state=0),
    "ConstrainedClusterCV": lambda: ConstrainedClusterCV(CLUSTERS, random_state=0),
}
SAMPLED = ("PCKMeans", "ConstrainedGaussianMixture", "TVClust")


def alike(n: int, seed: int = 0) -> tuple[Any, IntArray]:
    """Return points of round clusters of equal size, and their labels."""
    rng = np.random.default_rng(seed)
    centres = SPREAD * rng.normal(size=(CLUSTERS, FEATURES))
    labels = rng.integers(CLUSTERS, size=n)
    return centres[labels] + rng.normal(size=(n, FEATURES)), labels


def uneven(n: int, seed: int = 0) -> tuple[Any, IntArray]:
    """Return points of clusters of unequal sizes and shapes, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLUSTERS, n, p=rng.dirichlet(np.ones(CLUSTERS)))
    centres = rng.normal(size=(CLUSTERS, FEATURES))
    scales = np.exp(0.4 * rng.normal(size=(CLUSTERS, FEATURES)))
    return centres[labels] + rng.normal(size=(n, FEATURES)) * scales[labels], labels


def pairs(labels: IntArray, count: int) -> dict[str, Any]:
    """Return pairs of random points, a tenth of them wrong."""
    rng = np.random.default_rng(1)
    drawn = Constraints.sample(labels, count, rng).flip(0.1, rng)
    return {"must_link": drawn.must_link, "cannot_link": drawn.cannot_link}


def timed(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[float, Any]:
    """Return the processor seconds of a call, and its result."""
    begin = time.process_time()
    result = call(*arguments, **named)
    return time.process_time() - begin, result


def compile_kernels(name: str) -> None:
    """Make one small fit, which compiles kernels or loads them."""
    points, labels = alike(2_000)
    MODELS[name]().fit(points, **({} if name == "KMeans" else pairs(labels, 500)))


def whole_fit(name: str) -> None:
    """Print time and memory of one estimator on a million points."""
    compile_kernels(name)
    points, labels = alike(MILLION)
    arguments = {} if name == "KMeans" else pairs(labels, PAIRS)
    before = peak_rss_bytes() / 1e9
    spent, model = timed(MODELS[name]().fit, points, **arguments)
    ari = adjusted_rand_score(labels, model.labels_)
    print(
        f"| {name} | {spent:.1f} | {before:.2f} | {peak_rss_bytes() / 1e9:.2f} | {ari:.4f} |",
        flush=True,
    )


def million(names: list[str]) -> None:
    """Print a table of whole fits of a million rows."""
    print("| estimator | CPU s | GB before | peak GB | adjusted Rand |\n|---|---:|---:|---:|---:|")
    for name in names or list(MODELS):
        subprocess.run([sys.executable, __file__, "fit", name], check=True)


class Memory(threading.Thread):
    """Thread that watches the anonymous memory of this process, without mapped files (Linux)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        """Read the memory twenty times a second."""
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.05)

    @staticmethod
    def now() -> float:
        """Return the gigabytes that are used now."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024e-9


def memmap(names: list[str]) -> None:
    """Print time and memory of fits on samples of ten million rows in a file."""
    rng = np.random.default_rng(0)
    centres = SPREAD * rng.normal(size=(CLUSTERS, FEATURES))
    labels = rng.integers(CLUSTERS, size=10 * MILLION)
    file, path = tempfile.mkstemp(suffix=".npy")
    os.close(file)
    try:
        X = np.lib.format.open_memmap(path, "w+", np.float32, (labels.size, FEATURES))
        for rows in np.array_split(np.arange(labels.size), 20):
            X[rows[0] : rows[-1] + 1] = centres[labels[rows]] + rng.normal(size=(rows.size, 20))
        X.flush()
        X = np.load(path, mmap_mode="r")
        arguments = pairs(labels, PAIRS)
        memory = Memory()
        memory.start()
        print("| estimator | CPU s | of them predict | GB before | peak GB | adjusted Rand |")
        print("|---|---:|---:|---:|---:|---:|")
        for name in names or SAMPLED:
            compile_kernels(name)
            model, before, memory.peak = MODELS[name](), memory.now(), 0.0
            spent, sampled = timed(fit_on_sample, model, X, random_state=0, **arguments)
            peak = memory.peak
            predicted, _ = timed(model.predict, X)
            print(
                f"| {name} | {spent:.1f} | {predicted:.1f} | {before:.2f} | {peak:.2f} "
                f"| {adjusted_rand_score(labels, sampled):.4f} |",
                flush=True,
            )
    finally:
        os.remove(path)


def sample(names: list[str], seeds: int) -> None:
    """Print the adjusted Rand index of fits on samples less that of whole fits."""
    print("| estimator | data | seed | pairs | rows | whole fit | sample less whole | CPU s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in names or SAMPLED:
        compile_kernels(name)
        for seed in range(seeds):
            for draw in (alike, uneven):
                X, labels = draw(MILLION, seed)
                for count in (PAIRS // 10, PAIRS):
                    arguments = pairs(labels, count)
                    spent, model = timed(MODELS[name]().fit, X, **arguments)
                    whole = adjusted_rand_score(labels, model.labels_)
                    for rows in (20_000, 200_000):
                        less, sampled = timed(
                            fit_on_sample, MODELS[name](), X, rows, random_state=0, **arguments
                        )
                        gain = adjusted_rand_score(labels, sampled) - whole
                        print(
                            f"| {name} | {draw.__name__} | {seed} | {count:,} | {rows:,} "
                            f"| {whole:.4f} | {gain:+.4f} | {less:.1f}, whole {spent:.1f} |",
                            flush=True,
                        )


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("million", "memmap", "sample", "fit"))
    parser.add_argument("estimators", nargs="*", choices=[*MODELS, []], help="only these")
    parser.add_argument("--seeds", type=int, default=3, help="sets of each kind, for sample")
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.part == "fit":
            for name in options.estimators:
                whole_fit(name)
        elif options.part == "million":
            million(options.estimators)
        elif options.part == "memmap":
            memmap(options.estimators)
        else:
            sample(options.estimators, options.seeds)


if __name__ == "__main__":
    main()
