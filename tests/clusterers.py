"""All clustering estimators, with settings under which they are quick."""

from __future__ import annotations

from typing import Any

import numpy as np

import inference_lab.clustering as clustering
from inference_lab.clustering import DPMeans
from inference_lab.clustering.prediction import PairScore
from inference_lab.clustering.supervision import Supervision
from inference_lab.constraints import Constraints

#: They choose among estimators, and read pairs only.
_OTHERS = ("ConstrainedClusterCV", "CorrelationClustering")
#: All estimators but these.
KINDS: list[Any] = [
    getattr(clustering, name)
    for name in clustering.__all__
    if hasattr(getattr(clustering, name), "fit_predict") and name not in _OTHERS
]
QUICK: dict[str, dict[str, Any]] = {
    "AnnealedConstrainedKMeans": {"cooling": 0.1},
    "AnnealedConstrainedMixture": {"cooling": 0.1},
}
#: Estimators that are fitted to pairs.
PAIRED = [kind for kind in KINDS if issubclass(kind, PairScore) and kind is not DPMeans]


def estimator_of(kind: Any, **settings: Any) -> Any:
    """Return an estimator of a kind with three clusters and a seed, if it has these parameters."""
    parameters = kind().get_params()
    values = {"n_clusters": 3, "random_state": 0, **QUICK.get(kind.__name__, {}), **settings}
    return kind(**{name: value for name, value in values.items() if name in parameters})


def by_pairs(pairs: Constraints) -> Supervision:
    """Return supervision by pairs alone."""
    return Supervision(pairs, np.full(pairs.n_points, -1), None)
