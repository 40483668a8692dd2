"""Other constrained clusterings beside ours: processor time, violations, NMI on untouched points.

Peers are skipped, saying so, where they are not installed:
``pip install --no-deps active-semi-supervised-clustering metric-learn``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

import inference_lab.clustering as ours
from inference_lab.clustering.hmrf import violations
from inference_lab.constraints import Constraints

OURS = ["PCKMeans", "MPCKMeans", "COPKMeans", "ConstrainedLinkage"]
OURS += ["ConstrainedSpectral", "FlexibleSpectral"]
PEERS = ["PCKMeans", "MPCKMeans", "COPKMeans"]
DRAWS = 20


def peer(name: str) -> Callable[[Any, Constraints, int], Any]:
    """Return a fit of the Python package of this name's methods, or skip."""
    package = "active_semi_clustering.semi_supervised.pairwise_constraints"
    module = pytest.importorskip(
        package, reason="active-semi-supervised-clustering is not installed", exc_type=ImportError
    )

    def fit(points: Any, pairs: Constraints, seed: int) -> Any:
        np.random.seed(seed)  # noqa: NPY002  # the only generator that it has
        ml, cl = (
            [tuple(p) for p in given.tolist()] for given in (pairs.must_link, pairs.cannot_link)
        )
        model = getattr(module, name)(3)
        model.fit(points, ml=ml, cl=cl)
        return np.asarray(model.labels_)

    return fit


def own(name: str) -> Callable[[Any, Constraints, int], Any]:
    """Return a fit of ours."""
    kind = getattr(ours, name)

    def fit(points: Any, pairs: Constraints, seed: int) -> Any:
        seeded = {"random_state": seed} if "random_state" in kind().get_params() else {}
        return kind(3, **seeded).fit(points, **pairs.fit_params()).labels_

    return fit


@pytest.mark.parametrize(
    ("source", "name"),
    [*(("ours", name) for name in OURS), *(("peer", name) for name in PEERS)],
)
def test_beside_each_other(source: str, name: str, benchmark: Any) -> None:
    """Iris and wine, standardised; 60 pairs of half of the points; twenty draws."""
    fit = own(name) if source == "ours" else peer(name)
    rows, failed = benchmark.pedantic(lambda: runs(fit), rounds=1)
    told = f"{source} {name}: {len(failed)} of {2 * (DRAWS + 1)} failed {failed[:1]}"
    if rows:
        spent, violated = np.median([row[:2] for row in rows], axis=0)
        told += f"; {1e3 * spent:.1f} ms, {violated:.0f} violated"
        for data in ("iris", "wine"):
            nmi = np.array([row[2] for row in rows if row[3] == data])
            error = nmi.std(ddof=1) / np.sqrt(nmi.size)
            told += f", NMI on {data} {nmi.mean():.3f} +- {error:.3f}"
    benchmark.extra_info["told"] = told
    print(told)


def runs(fit: Callable[[Any, Constraints, int], Any]) -> tuple[list[Any], list[str]]:
    """Return seconds of processor, violations and NMI of the fits, and what others failed of."""
    rows: list[Any] = []
    failed: list[str] = []
    for data in (load_iris, load_wine):
        points, truth = data(return_X_y=True)
        points = StandardScaler().fit_transform(points)
        for draw in range(-1, DRAWS):
            rng = np.random.default_rng(abs(draw))
            known = rng.permutation(len(points))[: len(points) // 2]
            pairs = Constraints.sample(truth, 60, rng, among=known)
            since = time.process_time()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    labels = fit(points, pairs, draw + 1)
            except Exception as error:
                # A peer's own failure is a result.
                failed.append(f"{type(error).__name__}: {error}"[:100])
                continue
            spent = time.process_time() - since
            if draw < 0:
                # Nothing is loaded or compiled any more in the fits that count.
                continue
            untouched = np.setdiff1d(np.arange(len(points)), known)
            found = violations(pairs, labels)
            nmi = normalized_mutual_info_score(truth[untouched], labels[untouched])
            broken = found.must_link + found.cannot_link
            rows.append((spent, broken, nmi, data.__name__.removeprefix("load_")))
    return rows, failed
