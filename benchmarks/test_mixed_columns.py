"""Halves of the sets, and features of the comparison of mixed columns."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
from mixed_columns import BASE, CHOOSING, JUDGING, RESULTS, SETS, WEIGHTS, table, ways, weighed

from inference_lab.data.table_features import TableFeatures


def frame() -> pd.DataFrame:
    """Return a table with a skewed number and two columns of categories."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "spent": rng.lognormal(sigma=2, size=300),
            "age": rng.integers(18, 90, 300),
            "city": rng.choice(list("abcde"), 300),
            "sex": rng.choice(["f", "m"], 300),
        }
    )


def test_halves_share_no_set() -> None:
    assert sorted(SETS) == list(SETS) == sorted([*CHOOSING, *JUDGING])
    assert len(JUDGING) >= 8


def test_the_library_has_the_features_of_the_choice() -> None:
    data = frame()
    distances = [
        ((points[:50, None] - points[None, :50]) ** 2).sum(axis=2)
        for points in (weighed(data, WEIGHTS[BASE]), TableFeatures().fit(data).transform(data))
    ]
    # The library has one feature of two categories, at the same distances.
    np.testing.assert_allclose(*distances, atol=1e-9)


def test_all_ways_yield_numbers() -> None:
    data = frame()
    for name, features in ways().items():
        points = features(data)
        assert points.shape[0] == len(data) and np.isfinite(points).all(), name


def test_results_are_those_of_the_sets() -> None:
    with RESULTS.open(encoding="utf-8") as file:
        records = [{**row, "ari": float(row["ari"])} for row in csv.DictReader(file)]
    assert {record["set"] for record in records} == set(SETS)
    assert len(records) == len(SETS) * len(ways())
    assert f"| {BASE} |" in table([r for r in records if r["half"] == "judging"])
    by_way = pd.DataFrame(records).pivot(index="set", columns="way", values="ari")
    assert (by_way["library"] - by_way[BASE]).abs().mean() < 0.02
