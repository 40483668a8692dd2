"""Pairs and classes as people hold them, and the names of rows."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab.clustering as clustering
from inference_lab.constraints import Constraints, SampleIds, point_indices

PAIRS = [(0, 1), (4, 2)]
EXPECTED = Constraints(PAIRS, None, n_points=6)


def read_only() -> Any:
    array = np.array(PAIRS)
    array.flags.writeable = False
    return array


FORMS: dict[str, Callable[[], Any]] = {
    "list": lambda: PAIRS,
    "tuple": lambda: tuple(PAIRS),
    "lists": lambda: [list(pair) for pair in PAIRS],
    "set": lambda: set(PAIRS),
    "frozenset": lambda: frozenset(PAIRS),
    "set of sets": lambda: {frozenset(pair) for pair in PAIRS},
    "list of sets": lambda: [set(pair) for pair in PAIRS],
    "keys": lambda: dict.fromkeys(PAIRS).keys(),
    "zip": lambda: zip([0, 4], [1, 2], strict=True),
    "generator": lambda: (pair for pair in PAIRS),
    "map": lambda: map(tuple, PAIRS),
    "iterator": lambda: iter(PAIRS),
    "whole floats": lambda: np.array(PAIRS, dtype=np.float64),
    "float32": lambda: np.array(PAIRS, dtype=np.float32),
    "objects": lambda: np.array(PAIRS, dtype=object),
    "int8": lambda: np.array(PAIRS, dtype=np.int8),
    "uint64": lambda: np.array(PAIRS, dtype=np.uint64),
    "big-endian": lambda: np.array(PAIRS, dtype=">i8"),
    "big-endian floats": lambda: np.array(PAIRS, dtype=">f8"),
    "read-only": read_only,
    "Fortran order": lambda: np.asfortranarray(PAIRS),
    "frame": lambda: pd.DataFrame(PAIRS),
    "Int64 frame": lambda: pd.DataFrame(PAIRS).astype("Int64"),
    "Float64 frame": lambda: pd.DataFrame(PAIRS).astype("Float64"),
    "mixed frame": lambda: pd.DataFrame(PAIRS).astype({0: "Int64", 1: "float64"}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_pairs_in_any_collection_are_the_same(form: Callable[[], Any]) -> None:
    assert Constraints(form(), None, n_points=6) == EXPECTED
    assert Constraints(None, form(), n_points=6.0) == Constraints(  # type: ignore[arg-type]
        None, PAIRS, n_points=6
    )
    X = np.arange(6.0)[:, np.newaxis]
    for estimator in (
        clustering.PCKMeans(2, random_state=0),
        clustering.SizeConstrainedKMeans(2, random_state=0),
        clustering.CorrelationClustering(random_state=0),
        clustering.ConstrainedClusterCV(2, random_state=0, n_repeats=1),
    ):
        model = estimator.fit(X, must_link=form(), ml_weight=1.0)
        assert model.constraints_.must_link.tolist() == [[0, 1], [2, 4]]


NONE: list[Any] = [None, [], (), set(), iter([]), np.empty((0, 2)), np.empty(0), pd.DataFrame()]


@pytest.mark.parametrize("pairs", NONE, ids=lambda pairs: type(pairs).__name__)
def test_no_pairs_are_no_error(pairs: Any) -> None:
    if isinstance(pairs, pd.DataFrame):
        pairs = pd.DataFrame({"i": [], "j": []})
    assert len(Constraints(pairs, pairs, n_points=3)) == 0


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([(0, 1), (2, 0.5)], TypeError, r"must_link\[1, 1\] = 0.5 is not an integer; pairs hold"),
        ([(np.nan, 1)], TypeError, r"must_link\[0, 0\] = nan is not an integer"),
        ([(np.inf, 1)], TypeError, r"must_link\[0, 0\] = inf is not an integer"),
        ([(True, False)], TypeError, r"must_link\[0, 0\] = True is not an integer"),
        ([("a", "b")], TypeError, r"must_link\[0, 0\] = 'a' is not an integer.* sample_ids"),
        ([("a", 1)], TypeError, r"must_link\[0, 0\] = 'a' is not an integer"),
        ([(None, 1)], TypeError, r"must_link\[0, 0\] = None is not an integer"),
        ([(0, 1j)], TypeError, r"must_link\[0, 0\] = 0j is not an integer"),
        (
            pd.DataFrame({0: [0, 2], 1: [1, None]}).astype("Int64"),
            TypeError,
            r"must_link\[1, 1\] = <NA> is not an integer",
        ),
        (np.array([[0, 1]], dtype="m8[ns]"), TypeError, r"must_link\[0, 0\] = .* is not an int"),
        ([(-1, 2)], ValueError, r"must_link\[0, 0\] = -1 is not a point"),
        ([(-1.0, 2.0)], ValueError, r"must_link\[0, 0\] = -1 is not a point"),
        ([(0, 1e20)], ValueError, r"must_link\[0, 1\] = 100000000000000000000 is not a point"),
        ([(0, 2**80)], ValueError, r"must_link\[0, 1\] = 1208925819614629174706176 is not a p"),
        (np.eye(6, dtype=bool), ValueError, r"shape \(6, 6\).*np.argwhere\(np.triu\(matrix\)\)"),
        ([(0, 1, 2)], ValueError, r"must_link has shape \(1, 3\)"),
        ([0, 1], ValueError, r"must_link has shape \(2,\)"),
        ([{3}], ValueError, r"must_link has shape \(1, 1\)"),
        (3, ValueError, r"must_link has shape \(\)"),
        ("ab", ValueError, r"must_link has shape \(\)"),
        ({(0, 1): 2.0}, TypeError, "must_link is a mapping"),
        (
            pd.DataFrame({"i": [0], "j": [1], "kind": ["must-link"]}),
            ValueError,
            r"read by fit\(X, pairs=frame\)",
        ),
    ],
    ids=repr,
)
def test_other_pairs_are_refused_with_their_place(pairs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Constraints(pairs, None, n_points=6)
    with pytest.raises(error, match=message):
        clustering.PCKMeans(2).fit(np.arange(6.0)[:, np.newaxis], must_link=pairs)


def test_pairs_of_a_set_have_no_order_for_weights() -> None:
    with pytest.raises(ValueError, match=r"must_link is a set.* so ml_weight must be one number"):
        Constraints({(0, 1), (4, 2)}, None, [1.0, 2.0], n_points=6)
    named = {("a", "b"), ("c", "d")}
    with pytest.raises(ValueError, match=r"cannot_link is a set.* so cl_weight must be one number"):
        clustering.PCKMeans(2).fit(
            np.eye(5), cannot_link=named, cl_weight=[1.0, 2.0], sample_ids=list("abcde")
        )
    assert Constraints({(0, 1)}, None, 2.5, n_points=6).ml_weight == 2.5


def test_weights_may_be_objects() -> None:
    weights = pd.Series([1, 2], dtype="Int64").astype(object)
    assert Constraints(PAIRS, None, weights, n_points=6).ml_weights.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="ml_weight has dtype object"):
        Constraints(PAIRS, None, np.array([1.0, True], dtype=object), n_points=6)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(6, 11)), max_size=20))
def test_every_type_gives_the_constraints_of_integers(pairs: list[tuple[int, int]]) -> None:
    expected = Constraints(np.array(pairs, dtype=np.int64).reshape(-1, 2), None, n_points=12)
    assert expected.n_repeated == len(pairs) - len(set(pairs))
    for form in (set(pairs), iter(pairs), np.array(pairs, dtype=float).reshape(-1, 2)):
        assert Constraints(form, None, n_points=12) == expected


def test_texts_beside_numbers_stay_names() -> None:
    """NumPy would make the number 1 a text, which names no row."""
    names = np.array(["a", 1, "b"], dtype=object)
    model = clustering.CorrelationClustering().fit(
        np.zeros((3, 1)), must_link=[("a", 1)], sample_ids=names
    )
    assert model.labels_.tolist() == [0, 0, 1]


def test_point_indices_are_whole_numbers_of_any_type() -> None:
    column = pd.Series([4, 2], dtype="Int64")
    assert point_indices(column, 6, name="among").tolist() == [4, 2]
    assert EXPECTED.touches(np.array([0.0, 3.0])).tolist() == [0]


# ---------------------------------------------------------------------- classes


COLUMNS: dict[str, Any] = {
    "str": pd.Series(["cat", None, "cat", "dog"]),
    "object": pd.Series(["cat", np.nan, "cat", "dog"], dtype=object),
    "None": np.array(["cat", None, "cat", "dog"], dtype=object),
    "category": pd.Series(["cat", None, "cat", "dog"], dtype="category"),
    "string": pd.Series(["cat", pd.NA, "cat", "dog"], dtype="string"),
    "float64": pd.Series([0, np.nan, 0, 1.0]),
    "Int64": pd.Series([0, None, 0, 1], dtype="Int64"),
    "boolean": pd.Series([True, None, True, False], dtype="boolean"),
    "date": pd.to_datetime(pd.Series(["2024-01-01", None, "2024-01-01", "2024-01-02"])),
    "list with NaN": ["cat", np.nan, "cat", "dog"],
    "list with NA": ["cat", pd.NA, "cat", "dog"],
    "mixed": np.array(["cat", None, "cat", 7], dtype=object),
}


@pytest.mark.parametrize("unlabelled", [-1, None, np.nan, pd.NA, "?"], ids=repr)
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_missing_classes_make_no_pairs(column: Any, unlabelled: Any) -> None:
    for scheme in ("pairs", "chains"):
        constraints = Constraints.from_labels(column, unlabelled=unlabelled, scheme=scheme)  # type: ignore[arg-type]
        assert constraints.must_link.tolist() == [[0, 2]]
        expected = [[0, 3], [2, 3]] if scheme == "pairs" else [[0, 3]]
        assert constraints.cannot_link.tolist() == expected


def test_other_words_for_unknown_classes() -> None:
    constraints = Constraints.from_labels(["cat", "?", "cat", None], unlabelled="?")
    assert constraints.must_link.tolist() == [[0, 2]] and len(constraints.cannot_link) == 0
    unpaired = Constraints.from_labels(["cat", "?", "cat"], unlabelled="cat")
    assert len(unpaired) == 0


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_samples_need_the_class_of_every_point(column: Any) -> None:
    with pytest.raises(ValueError, match=r"labels\[1\] is missing"):
        Constraints.sample(column, 2, np.random.default_rng(0))


def test_oracles_do_not_answer_for_missing_classes() -> None:
    classes = pd.Series(["cat", None, "dog", "cat"])
    outcome = clustering.ExploreConsolidate(2, budget=9).run(np.arange(4.0)[:, None], classes)
    answers = {(q.first, q.second): q.answer for q in outcome.questions}
    assert answers and all((a is None) == (1 in pair) for pair, a in answers.items())


def test_constraints_of_numbers_load_no_pandas() -> None:
    code = (
        "import sys, numpy as np; from inference_lab.constraints import Constraints, SampleIds;"
        "Constraints.from_labels([0, -1, 0]); Constraints({(0, 1)}, None, n_points=2);"
        "SampleIds(['a', 'b']); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------- names of rows


NAMES = ["a", "b", "c"]


def test_former_arguments_for_names_are_warned_of(tmp_path: Path) -> None:
    c, path = Constraints([(0, 1)], [(0, 2)], n_points=3), tmp_path / "pairs.csv"
    frame = c.to_frame(sample_ids=NAMES)
    c.write_csv(path, sample_ids=NAMES)
    calls: list[tuple[Callable[..., Any], str, Any]] = [
        (c.to_frame, "index", frame),
        (lambda **names: Constraints.from_frame(frame, **names), "index", c),
        (lambda **names: Constraints.read_csv(path, **names), "ids", c),
        (lambda **names: c.write_csv(tmp_path / "other.csv", **names), "ids", None),
        (SampleIds, "ids", None),
    ]
    for call, old, expected in calls:
        with pytest.warns(FutureWarning, match=f"{old} of .* is now sample_ids") as caught:
            result = call(**{old: NAMES})
        assert caught[0].filename == __file__
        with pytest.raises(TypeError, match=f"{old} and sample_ids are one argument"):
            call(**{old: NAMES, "sample_ids": NAMES})
        if expected is not None:
            assert (
                result.equals(expected) if isinstance(result, pd.DataFrame) else result == expected
            )
    assert (tmp_path / "other.csv").read_bytes() == path.read_bytes()


def test_names_of_rows_have_one_name() -> None:
    for name in clustering.__all__:
        fit = getattr(getattr(clustering, name), "fit", None)
        if fit is None or "must_link" not in inspect.signature(fit).parameters:
            continue
        assert {"pairs", "sample_ids", "cannot_link"} <= set(inspect.signature(fit).parameters)
    for method in ("from_frame", "to_frame", "read_csv", "write_csv", "fit_params"):
        parameters = inspect.signature(getattr(Constraints, method)).parameters
        assert "sample_ids" in parameters and not {"ids", "index"} & set(parameters)


def test_missing_names_are_refused() -> None:
    for names in (["a", None, "c"], np.array(["a", pd.NA], dtype=object), [1.0, np.nan]):
        with pytest.raises(ValueError, match=r"sample_ids\[1\] is .*, which equals nothing"):
            SampleIds(names)  # type: ignore[arg-type]
