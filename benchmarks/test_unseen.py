"""Sets, records and tables of the benchmark on data that chose no default."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import unseen
from peers import MARKS
from unseen import (
    FAMILIES,
    HALVES,
    KINDS,
    METHODS,
    NOT_TOLD,
    PAGE,
    PUBLISHED,
    REAL,
    SETS,
    TOLD,
    WITHOUT,
    Fit,
    Task,
    draw,
    entry_of,
    gains,
    pairs_of,
    publish_records,
    read_records,
    real_points,
    row_of,
    run,
    table,
)

GENERATED = [kind for kind in KINDS if kind != REAL]


def test_page_has_the_table_of_the_published_fits() -> None:
    begin, end = MARKS
    page = PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0]
    assert page.strip() == table(pd.read_csv(PUBLISHED)).strip()


def test_page_ranks_tvclust_with_and_without_the_number_of_clusters() -> None:
    assert METHODS["TVClust"].told and not METHODS["TVClust, number open"].told
    assert set(TOLD) | set(NOT_TOLD) <= set(METHODS)
    assert all(METHODS[name].told for name in TOLD) and "TVClust" in TOLD


def test_halves_share_no_set() -> None:
    """No generated set has the arguments of one in the other half, and no table is in both."""
    choosing, judging = (SETS[half] for half in HALVES)
    tables = [{entry["table"] for entry in half[REAL]} for half in (choosing, judging)]
    assert not tables[0] & tables[1]
    for kind in GENERATED:
        for entry in choosing["generated"][kind]:
            assert entry not in judging["generated"][kind]
        assert choosing["generated"].keys() == judging["generated"].keys()
    assert [e["kind"] for e in choosing[REAL]] == [e["kind"] for e in judging[REAL]] == GENERATED


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", GENERATED)
def test_generated_sets_are_as_named_and_repeat(half: str, kind: str) -> None:
    for seed in (0, 1):
        entry = entry_of(half, kind, seed)[1]
        points = draw(half, kind, seed)
        draw.cache_clear()
        again = draw(half, kind, seed)
        assert np.array_equal(points.points, again.points)
        assert np.isfinite(points.points).all()
        assert len(points.points) == len(points.labels) == entry["n"] <= 500
        assert points.n_clusters == entry.get("k", 2)
        assert not np.array_equal(points.points, draw(half, kind, seed + 2).points)
    assert entry_of(half, kind, 0)[0] != entry_of(half, kind, 1)[0]
    assert entry_of(half, kind, 0)[0] == entry_of(half, kind, 2)[0]


def test_generators_make_the_named_property() -> None:
    rng = np.random.default_rng(0)
    points, labels = FAMILIES["binary"](rng, n=90, d=5, k=3, spread=0.5)
    assert set(np.unique(points)) == {0.0, 1.0} and labels.max() == 2
    for name, settings in (("dirichlet", {"precision": 9.0}), ("softmax", {"apart": 1.0})):
        shares, _ = FAMILIES[name](rng, n=60, d=4, k=3, **settings)
        assert np.allclose(shares.sum(axis=1), 1.0) and shares.min() >= 0.0
    _, labels = FAMILIES["sizes"](rng, n=130, d=2, k=3, apart=2.0, ratio=3.0)
    assert np.bincount(labels).tolist() == [90, 30, 10]
    points, _ = FAMILIES["scales"](rng, n=90, d=4, k=3, apart=1.0, decades=3.0)
    assert points.std(axis=0).max() > 100.0 * points.std(axis=0).min()
    points, labels = FAMILIES["rings"](rng, n=90, k=2, noise=0.0)
    assert np.allclose(np.hypot(*points.T), labels + 1.0)
    points, labels = FAMILIES["shared"](rng, n=4000, d=3, k=2, apart=1.0, correlation=0.9)
    inside = np.concatenate([points[labels == h] - points[labels == h].mean(0) for h in (0, 1)])
    assert np.corrcoef(inside.T)[0, 1] == pytest.approx(0.9, abs=0.02)


def test_wrong_answers_and_amounts() -> None:
    points = draw("choosing", "rings", 0)
    pairs = pairs_of(points, 0, 2.0, 0.1)
    assert len(pairs) == 2 * len(points.labels)
    labels = points.labels
    wrong = (labels[pairs.must_link[:, 0]] != labels[pairs.must_link[:, 1]]).sum()
    wrong += (labels[pairs.cannot_link[:, 0]] == labels[pairs.cannot_link[:, 1]]).sum()
    assert wrong == round(0.1 * len(pairs))


def test_real_sets_are_read_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(
        {
            "species": ["a"] * 5 + ["b"] * 4 + ["c"],
            "left": range(10),
            "size": [1.0, np.nan, *range(3, 11)],
            "shape": ["round", "long"] * 5,
        }
    )
    monkeypatch.setattr(unseen, "table_of", lambda name: frame)
    entry = {"table": "x/y", "class": ["species"], "left_out": ["left"], "classes": 2}
    points, classes = real_points(entry, np.random.default_rng(0))
    assert points.tolist() == [
        [size, float(row % 2 == 1), float(row % 2 == 0)]
        for row, size in enumerate(frame["size"])
        if row not in (1, 9)
    ]
    assert classes.tolist() == [0] * 4 + [1] * 4


def test_missing_fits_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.csv"
    kinds = ["small n"]
    run(path, "choosing", [WITHOUT, "PCKMeans"], range(1), kinds)
    records = read_records(path)
    assert len(records) == 1 + 9
    assert all(result.clusters == 3 for result in records.values())
    with path.open("a") as stream:
        stream.write("choosing,small n,1")
    assert read_records(path) == records
    monkeypatch.setattr(unseen, "fit", None)
    run(path, "choosing", [WITHOUT, "PCKMeans"], range(1), kinds)


def test_figures_of_a_method(tmp_path: Path) -> None:
    """Sets are the units, so that a set with more seeds counts no more."""
    records = {}
    for kind, seed, ari in (("rings", 0, 0.9), ("rings", 2, 0.9), ("binary", 0, 0.4)):
        records[Task("judging", kind, seed, 0.0, 0.0, WITHOUT)] = Fit(0.5, 2, 0.1)
        records[Task("judging", kind, seed, 0.0, 0.0, "PCKMeans, no pairs")] = Fit(0.6, 2, 0.1)
        records[Task("judging", kind, seed, 0.1, 0.0, "PCKMeans")] = Fit(ari, 2, 0.1)
    publish_records(records, tmp_path / "fits.csv")
    published = pd.read_csv(tmp_path / "fits.csv")
    row = row_of(gains(published), "PCKMeans")
    assert row.gain == pytest.approx((0.4 - 0.1) / 2)
    assert row.low == pytest.approx(-0.1) and row.high == pytest.approx(0.4)
    assert row.lost_fits == pytest.approx(1 / 3) and row.lost_cells == 0.5
    assert row.no_pairs == pytest.approx(0.1)
    assert "| `PCKMeans` | +0.150 | -0.100 to +0.400 | 33% | 50% | +0.100 | 2 | 3 |" in table(
        published
    )
