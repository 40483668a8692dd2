"""Profiles of clusters: contrasts, rules and rows in the units of the table."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.reporting.cluster_profile import (
    ClusterProfile,
    Membership,
    Stability,
    _contrasts,
    differences_of,
    profile_of,
    stability_sentence,
)
from inference_lab.reporting.cluster_rules import RuleCondition, rules_of
from inference_lab.reporting.table_traits import traits_of


def customers(n: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table in which income and segment make two clusters, and age and region none."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    table = pd.DataFrame(
        {
            "income": np.where(labels == 1, 70_000.0, 30_000.0) + rng.normal(0, 5_000, n),
            "age": rng.integers(18, 80, n),
            "segment": np.where(rng.random(n) < 0.9, np.where(labels == 1, "trade", "retail"), "x"),
            "region": rng.choice(list("nesw"), n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(200 * labels, "D"),
            "member": labels == 1,
            "note": [f"note {at}" for at in range(n)],
            "number": np.arange(n),
        },
        index=[f"C{at:03}" for at in range(n)],
    )
    table.loc[["C005", "C010"], "income"] = np.nan
    table.loc["C007", "segment"] = None
    return table, labels.astype(np.int64)


def profile(table: pd.DataFrame, labels: np.ndarray, **changes: Any) -> ClusterProfile:
    """Return a profile with distances that grow with the number of the row."""
    n = len(labels)
    confidence = np.linspace(1.0, 0.0, n)
    membership = Membership("distance", confidence, 1 - labels, np.arange(float(n)))
    nothing = Stability(np.array([]), 0, 20, 0, 0.0)
    return profile_of(table, labels, membership._replace(**changes), lambda seconds: nothing)


def test_profiles_name_the_columns_that_differ() -> None:
    table, labels = customers()
    of = profile(table, labels)
    assert of.clusters["rows"].tolist() == [300, 300]
    assert set(of.separation.index[:4]) == {"income", "segment", "since", "member"}
    assert of.separation["age"] < 0.05 and "note" not in of.separation
    assert "number" not in of.separation
    first = of.contrasts[of.contrasts["cluster"] == 1].set_index("column")
    income = first.loc["income"]
    inside = table["income"][labels == 1]
    assert income["inside"] == pytest.approx(inside.median())
    others = table["income"][labels == 0]
    deviation = table["income"].std(ddof=0)
    assert income["difference"] == pytest.approx((inside.mean() - others.mean()) / deviation)
    assert income["low"] < income["difference"] < income["high"] < income["low"] + 0.1
    trade = first[first["category"] == "trade"].iloc[0]
    assert trade["inside"] == pytest.approx((table["segment"][labels == 1] == "trade").mean())
    assert trade["outside"] == 0.0 and trade["low"] > 1.0
    summary = of.clusters["summary"][1]
    assert "since is later (median 2020-07-19, elsewhere 2020-01-01)" in summary
    assert "member is True in 100% (elsewhere 0%)" in summary
    html = of._repr_html_()
    assert "member is True in 100%" in html and "<td" in html
    assert "&lt;b&gt;" in profile(table.rename(columns={"member": "<b>"}), labels)._repr_html_()


def test_dates_in_texts_are_dates() -> None:
    table, labels = customers()
    table["since"] = table["since"].dt.strftime("%d.%m.%Y")
    summary = profile(table[["since"]], labels).clusters["summary"][1]
    assert summary == "since is later (median 2020-07-19, elsewhere 2020-01-01)."


def test_columns_without_a_difference_are_not_in_the_summary() -> None:
    table, labels = customers()
    of = profile(table[["age", "region"]], labels)
    assert of.clusters["summary"].tolist() == ["No column differs clearly from the other rows."] * 2


@given(seed=st.integers(0, 10**6), n=st.integers(3, 60))
def test_intervals_agree_with_other_code(seed: int, n: int) -> None:
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(seed)
    labels = np.r_[0, 0, 1, 1, rng.integers(0, 2, n)].astype(np.int64)
    values = 1e6 + rng.normal(size=labels.size) * (1 + labels)
    (row, _) = profile(pd.DataFrame({"x": values}), labels).contrasts.itertuples()
    sides = values[labels == 0], values[labels == 1]
    interval = ttest_ind(*sides, equal_var=False).confidence_interval()
    deviation = values.std()
    assert row.difference == pytest.approx((sides[0].mean() - sides[1].mean()) / deviation)
    assert [row.low, row.high] == pytest.approx([v / deviation for v in interval], rel=1e-6)


def test_intervals_cover_the_difference() -> None:
    """The share of intervals without the true difference, zero, is near 5 %."""
    rng = np.random.default_rng(0)
    missed = {"number": 0, "category": 0}
    for _ in range(400):
        labels = (rng.random(60) < 0.3).astype(np.int64)
        table = pd.DataFrame({"x": rng.normal(size=60), "c": rng.choice(["a", "b", "c"], 60)})
        for trait in traits_of(table):
            *_, low, high = _contrasts(trait, labels, np.array([0, 1]))[0]
            missed[trait.kind] += not low <= 0.0 <= high
    assert 8 <= missed["number"] <= 34 and 4 <= missed["category"] <= 34


def test_rules_are_short_and_their_shares_are_of_other_rows() -> None:
    table, labels = customers()
    of = profile(table[["income", "age", "region"]], labels)
    rule = of.rules[1]
    assert re.fullmatch(r"income above [45]\d,000", rule.sentence())
    assert rule.precision > 0.97 and rule.recall > 0.97 and rule.accuracy > 0.97
    # A rule for random clusters is right as often as chance.
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 2, len(labels))
    useless = rules_of(traits_of(table[["age", "region"]]), noise, np.array([0, 1]))
    assert 0.4 < useless[0].precision < 0.62
    # Few rows, or no column, have none.
    alone = np.zeros(len(labels), dtype=np.int64)
    alone[:3] = 1
    assert profile(table, alone).clusters["rule"].tolist() == ["", ""]
    assert math.isnan(profile(table[["note"]], labels).clusters["precision"][0])


def test_rules_select_the_rows_that_their_words_select() -> None:
    table, _ = customers()
    rng = np.random.default_rng(2)
    labels = ((table["age"] > 40) & (table["age"] <= 60) & (table["region"] == "n")).to_numpy()
    labels = np.where(rng.random(len(labels)) < 0.02, ~labels, labels).astype(np.int64)
    (_, rule) = rules_of(traits_of(table[["age", "region"]]), labels, np.array([0, 1]))
    assert "region = n" in rule.sentence() and rule.precision > 0.7
    rows = np.arange(len(labels))
    selected = np.all([condition.holds(rows) for condition in rule.conditions], axis=0)
    bounds = {c.trait.name: c for c in rule.conditions}
    age = bounds["age"]
    words = table["region"] == "n"
    if math.isfinite(age.low):
        words &= table["age"] > age.low
        assert f"above {age.low:.0f}" in rule.sentence()
    if math.isfinite(age.high):
        words &= table["age"] <= age.high
        assert f"at most {age.high:.0f}" in rule.sentence()
    assert selected.tolist() == words.tolist()


def test_missing_numbers_fulfil_no_condition() -> None:
    (trait,) = traits_of(pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0]}))
    rows = np.arange(4)
    assert RuleCondition(trait, low=0.0).holds(rows).tolist() == [True, False, True, True]
    assert RuleCondition(trait, high=3.0).holds(rows).tolist() == [True, False, True, False]


def test_typical_and_border_rows_come_from_the_membership() -> None:
    table, labels = customers()
    of = profile(table, labels)
    first = of.rows[of.rows["cluster"] == 0]
    assert first.index.tolist() == ["C000", "C002", "C004", "C598", "C596", "C594"]
    assert first["role"].tolist() == ["typical"] * 3 + ["border"] * 3
    assert first["income"].tolist()[0] == table["income"].iloc[0]
    # Distances within a tenth of each other, and posteriors below 80 %, are uncertain.
    assert len(of.uncertain) == 60 and of.uncertain.index[0] == "C599"
    posterior = profile(table, labels, kind="posterior")
    assert len(posterior.uncertain) == round(0.8 * 600)
    assert posterior.clusters["uncertain"].sum() == len(posterior.uncertain)


def test_differences_of_rows_come_in_the_order_of_their_size() -> None:
    table = pd.DataFrame(
        {
            "same": [1.0, 1.0, 2.0, 5.0],
            "small": [10.0, 11.0, 20.0, 90.0],
            "large": [0.0, 100.0, 50.0, 40.0],
            "word": ["a", "b", "a", "b"],
            "gap": [np.nan, 1.0, 2.0, 3.0],
        }
    )
    different, alike = differences_of(traits_of(table), 0, 1)
    assert different == "large 0 / 100; word a / b; small 10 / 11; gap missing / 1"
    assert alike == "same 1"


def test_sentences_on_stability() -> None:
    def sentence(*values: float) -> str:
        of = Stability(np.array(values), 20, 20, 100, 1.0)
        return stability_sentence(of, list(range(len(values))))

    assert sentence(0.9, 0.8) == "In other samples of the rows, all clusters come back."
    assert sentence(0.9, 0.7, 0.2) == (
        "In other samples of the rows, of the clusters 0 come back; 1 come back in part; "
        "2 do not come back."
    )


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_any_table_has_a_profile(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    labels = (np.arange(n) % k).astype(np.int64)
    table = pd.DataFrame(
        {
            "constant": 1.0,
            "empty": np.full(n, np.nan),
            "none": pd.Series([None] * n, dtype=object),
            "flag": rng.integers(0, 2, n),
            "gaps": np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n)),
            "tiny": 1e-9 * rng.normal(size=n),
            "huge": 1e12 * rng.normal(size=n),
            "infinite": np.where(np.arange(n) == 3, np.inf, rng.normal(size=n)),
            "when": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(np.arange(n) % 7, "D"),
            "kind": pd.Categorical(rng.choice(list("uv"), n)),
        }
    )
    of = profile(table, labels, second=labels)
    assert len(of.clusters) == min(n, k) and of._repr_html_()
    numbers = of.contrasts[["difference", "low", "high"]].to_numpy(dtype=float)
    assert not np.isinf(numbers).any()
