"""Arguments of ``fit`` become constraints, labels and weights of rows in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from inference_lab.clustering.supervision import supervision_of
from inference_lab.constraints import Constraints, SampleIds

NAMES = pd.Index(["a", "b", "c", "d"])
X = pd.DataFrame({"x": [0.0, 1.0, 5.0, 6.0]}, index=NAMES)
PAIRS = Constraints([(0, 1)], [(1, 2), (2, 3)], n_points=4)
WEIGHTED = PAIRS.with_weights(2.0, [1.0, 3.0])

#: Arguments and the constraints that they mean.
FORMS: dict[str, tuple[dict[str, Any], Constraints]] = {
    "nothing": ({}, Constraints(None, None, n_points=4)),
    "row numbers": (PAIRS.fit_params(), PAIRS),
    "weights": (WEIGHTED.fit_params(), WEIGHTED),
    "names": (WEIGHTED.fit_params(sample_ids=NAMES), WEIGHTED),
    "plain names": ({**PAIRS.fit_params(sample_ids=NAMES), "sample_ids": list(NAMES)}, PAIRS),
    "sets": ({"must_link": {("a", "b")}, "sample_ids": NAMES}, PAIRS.restrict([0, 1])),
    "table": ({"pairs": PAIRS.to_frame(NAMES)}, PAIRS),
    "weighted table": ({"pairs": WEIGHTED.to_frame(NAMES)}, WEIGHTED),
    "table and number": (
        {"pairs": PAIRS.to_frame(NAMES), "cl_weight": 5.0},
        PAIRS.with_weights(cl_weight=5.0),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_pairs_become_constraints_of_rows(form: str) -> None:
    arguments, expected = FORMS[form]
    read = supervision_of(X, arguments)
    assert read.constraints == expected
    assert read.sample_weight is None and read.auto == () and read.n_repeated == 0
    assert read.partial_labels.tolist() == [-1] * 4


def test_labels_and_sample_weights_are_read() -> None:
    read = supervision_of(X, {"y": [-1, 2, -1, 0], "sample_weight": [1, 1, 0, 2]}, n_clusters=3)
    assert read.partial_labels.tolist() == [-1, 2, -1, 0] and read.sample_weight is not None
    assert read.sample_weight.tolist() == [1.0, 1.0, 0.0, 2.0]
    with pytest.raises(ValueError, match=r"y\[1\] = 2 is not a cluster; 0 to n_clusters - 1 = 1"):
        supervision_of(X, {"y": [-1, 2, -1, 0]}, n_clusters=2)
    with pytest.raises(ValueError, match="y and partial_labels both hold labels"):
        supervision_of(X, {"y": [-1, 2, -1, 0], "partial_labels": [0, -1, -1, -1]})


def test_weights_to_be_chosen_are_named() -> None:
    def read(arguments: dict[str, Any], **settings: Any) -> Any:
        read = supervision_of(X, arguments, **settings)
        return (
            read.auto,
            read.constraints.ml_weight,
            np.unique(read.constraints.cl_weights).tolist(),
        )

    auto: dict[str, Any] = {"default_weight": "auto", "allow_auto": True}
    both = ("ml_weight", "cl_weight")
    assert read(PAIRS.fit_params(), **auto) == (both, 1.0, [1.0])
    assert read({"pairs": PAIRS.to_frame(NAMES)}, **auto) == (both, 1.0, [1.0])
    assert read({"pairs": WEIGHTED.to_frame(NAMES)}, **auto) == ((), 2.0, [1.0, 3.0])
    one = {**PAIRS.fit_params(), "ml_weight": 7.0}
    assert read(one, **auto) == (("cl_weight",), 7.0, [1.0])
    assert read(one, default_weight=4.0) == ((), 7.0, [4.0])
    assert read({**one, "cl_weight": "auto"}, allow_auto=True) == (("cl_weight",), 7.0, [1.0])
    assert supervision_of(X, one, **auto).only(np.array([0, 1])).auto == ("cl_weight",)
    with pytest.raises(ValueError, match="ml_weight must be auto, got 'much'"):
        supervision_of(X, {"ml_weight": "much"}, **auto)
    with pytest.raises(TypeError, match=r"cl_weight has dtype .*; real numbers are needed"):
        supervision_of(X, {**one, "cl_weight": "auto"})


def test_parts_of_names_leave_out_pairs_with_other_rows() -> None:
    rows = [3, 2, 0]
    arguments = {**WEIGHTED.fit_params(sample_ids=NAMES), "sample_ids": SampleIds(NAMES)[rows]}
    read = supervision_of(X.iloc[rows], arguments)
    assert read.constraints == Constraints(None, [(0, 1)], 2.0, [3.0], n_points=3)


def test_arguments_that_fit_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fit has no arguments \['must_links'\]"):
        supervision_of(X, {"must_links": [(0, 1)]})
