"""Profiles of clusters: the columns that set each apart, a rule, typical and uncertain rows."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from inference_lab.formatting import counted, listed
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.reporting.cluster_rules import ClusterRule, rules_of
from inference_lab.reporting.table_traits import MISSING_TEXT, Trait, traits_of

if TYPE_CHECKING:
    import pandas as pd

#: Typical rows, and rows nearest the border, of each cluster.
_SHOWN_ROWS = 3
#: Words for the least Jaccard similarities (Hennig 2007).
_COMES_BACK = (("come back", 0.75), ("come back in part", 0.6), ("do not come back", -math.inf))
#: Contrasts in a summary of a cluster.
_SUMMARY = 3
#: Share below which a membership is uncertain: a posterior, or one minus the ratio of distances.
UNCERTAIN = {"posterior": 0.8, "distance": 0.1}


class Membership(NamedTuple):
    """How sure each row belongs to its cluster.

    `confidence` is the posterior of the cluster of a row, or one minus the ratio of its distances
    to the centres of its own and of the second cluster; below zero, the second is nearer.
    `distance` is the distance to the centre of the own cluster.
    """

    kind: Literal["posterior", "distance"]
    confidence: FloatArray
    second: IntArray
    distance: FloatArray

    @property
    def uncertain(self) -> Any:
        """Whether each row is uncertain, as an array of bool."""
        return self.confidence < UNCERTAIN[self.kind]


class Stability(NamedTuple):
    """Mean Jaccard similarity of each cluster to the most similar cluster of each refit.

    `refits` of `planned` refits to resampled rows and pairs were made in `cpu_s` seconds of
    processor time, with `rows` rows on average.

    Examples
    --------
    >>> import pandas as pd
    >>> from inference_lab.clustering import cluster_table
    >>> rows = pd.DataFrame({"height": [1.0, 1.5, 2.0, 8.0, 8.5, 9.0]})
    >>> rows.to_csv("plants.csv", index=False)
    >>> stability = cluster_table("plants.csv", k=2).profile_.stability()
    >>> stability.refits, stability.planned
    (20, 20)
    """

    jaccard: FloatArray
    refits: int
    planned: int
    rows: int
    cpu_s: float


@dataclass(frozen=True)
class ClusterProfile:
    """Description of clusters in the units of the table.

    Attributes
    ----------
    clusters : pandas.DataFrame
        A row for each cluster: ``rows``, their ``share``, a ``summary`` of the contrasts, a
        ``rule`` with its held-out ``accuracy``, ``precision`` and ``recall``, and the number of
        ``uncertain`` rows.
    contrasts : pandas.DataFrame
        The columns that set each ``cluster`` apart, the strongest first: ``column``, ``category``
        (None for numbers), ``inside`` and ``outside`` (medians, or shares of the category),
        ``overall``, and the ``difference`` of the means inside and outside in standard deviations
        of the column, with its 95 % interval ``low`` to ``high``.
    rows : pandas.DataFrame
        Rows of the table with their ``cluster``, ``role`` (typical or border), ``confidence`` and
        ``second`` cluster.
    uncertain : pandas.DataFrame
        All uncertain rows, the least certain first, with the same columns.
    separation : pandas.Series
        Share of the variance of each column that lies between clusters, the largest first.

    Examples
    --------
    >>> import pandas as pd
    >>> from inference_lab.clustering import cluster_table
    >>> rows = pd.DataFrame({"height": [1.0, 1.5, 2.0, 8.0, 8.5, 9.0], "kind": list("aaabbb")})
    >>> rows.to_csv("plants.csv", index=False)
    >>> profile = cluster_table("plants.csv", k=2, drop=["kind"]).profile_
    >>> profile.clusters["rows"].tolist()
    [3, 3]
    >>> sorted(profile.contrasts["inside"])
    [1.5, 8.5]
    """

    clusters: pd.DataFrame
    contrasts: pd.DataFrame
    rows: pd.DataFrame
    uncertain: pd.DataFrame
    separation: pd.Series[Any]
    traits: list[Trait] = field(repr=False)
    rules: list[ClusterRule] = field(repr=False)
    membership: Membership = field(repr=False)
    resample: Callable[[float], Stability] = field(repr=False)

    def stability(self, seconds: float = 10.0) -> Stability:
        """Refit the estimator to resampled rows and pairs, and compare the clusters.

        Parameters
        ----------
        seconds : float
            Processor time after which no further refit begins; at most 20 are made, at least one.

        Returns
        -------
        Stability
            The mean Jaccard similarity of each cluster. Above 0.75 a cluster comes back, below 0.6
            it should not be relied on (Hennig 2007).

        Examples
        --------
        >>> import pandas as pd
        >>> from inference_lab.clustering import cluster_table
        >>> rows = pd.DataFrame({"height": [1.0, 1.5, 2.0, 8.0, 8.5, 9.0]})
        >>> rows.to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).profile_.stability().jaccard.round(1).tolist()
        [1.0, 1.0]
        """
        return self.resample(seconds)

    def _repr_html_(self) -> str:
        """Return the summary of the clusters as a table for notebooks."""
        head = ("Cluster", "Rows", "Sets it apart", "Rule")
        lines = ["<table><thead><tr>", *(f"<th>{title}</th>" for title in head), "</tr></thead>"]
        lines.append("<tbody>")
        for cluster, row in self.clusters.iterrows():
            cells = (cluster, f"{row['rows']:,} ({row['share']:.0%})", row["summary"], row["rule"])
            texts = (f'<td style="text-align:left">{html.escape(str(c))}</td>' for c in cells)
            lines += ["<tr>", *texts, "</tr>"]
        return "".join([*lines, "</tbody></table>"])


def profile_of(
    table: pd.DataFrame,
    labels: IntArray,
    membership: Membership,
    resample: Callable[[float], Stability],
) -> ClusterProfile:
    """Return the profile of clusters of the rows of a table."""
    import pandas as pd

    traits = traits_of(table)
    clusters, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    contrasts = pd.DataFrame(
        [row for trait in traits if trait.compared for row in _contrasts(trait, place, clusters)],
        columns=_CONTRASTS,
    )
    # A difference whose interval includes zero may be chance, so it comes last.
    sure = (contrasts["low"] > 0) | (contrasts["high"] < 0)
    size = contrasts["difference"].abs()
    contrasts = contrasts.assign(sure=sure, size=size)
    contrasts = contrasts.sort_values(
        ["cluster", "sure", "size"], ascending=[True, False, False], kind="stable"
    )
    contrasts = contrasts[[*_CONTRASTS]].reset_index(drop=True)
    # Columns of text have NaN in place of None.
    category = contrasts["category"].astype(object)
    contrasts["category"] = category.where(category.notna(), None)
    rules = rules_of(traits, labels, clusters)
    by_name = {trait.name: trait for trait in traits}
    uncertain = membership.uncertain
    summary = pd.DataFrame(
        {
            "rows": sizes,
            "share": sizes / sizes.sum(),
            "summary": [
                summary_of(contrasts[contrasts["cluster"] == cluster], by_name)
                for cluster in clusters
            ],
            "rule": [rule.sentence() for rule in rules],
            "accuracy": [rule.accuracy for rule in rules],
            "precision": [rule.precision for rule in rules],
            "recall": [rule.recall for rule in rules],
            "uncertain": np.bincount(place, weights=uncertain).astype(np.int64),
        },
        index=pd.Index(clusters, name="cluster"),
    )
    variances = {t.name: _between(t, place) for t in traits if t.compared}
    return ClusterProfile(
        summary,
        contrasts,
        _examples(table, labels, clusters, membership),
        _uncertain(table, labels, membership),
        pd.Series(variances, dtype=float).sort_values(ascending=False, kind="stable"),
        traits,
        rules,
        membership,
        resample,
    )


_CONTRASTS = (
    "cluster",
    "column",
    "category",
    "inside",
    "outside",
    "overall",
    "difference",
    "low",
    "high",
)


def _contrasts(trait: Trait, place: IntArray, clusters: IntArray) -> list[tuple[Any, ...]]:
    """Return the contrasts of a column: one for each cluster, or for each of its categories."""
    present = ~np.isnan(trait.values)
    values, place = trait.values[present], place[present]
    rows: list[tuple[Any, ...]] = []
    if trait.kind != "category":
        statistics = _differences(values, place, clusters.size, 0.0)
        overall = float(np.median(values))
        for at, cluster in enumerate(clusters.tolist()):
            inside = place == at
            medians = [
                float(np.median(v)) if v.size else math.nan
                for v in (values[inside], values[~inside])
            ]
            rows.append((cluster, trait.name, None, *medians, overall, *statistics[at]))
        return rows
    for code, category in enumerate(trait.categories):
        if len(trait.categories) == 2 and code == 0:
            # The second category of two has the opposite differences.
            continue
        equal = (values == code).astype(float)
        statistics = _differences(equal, place, clusters.size, 1.0)
        for at, cluster in enumerate(clusters.tolist()):
            inside = place == at
            shares = [
                float(v.mean()) if v.size else math.nan for v in (equal[inside], equal[~inside])
            ]
            row = (cluster, trait.name, category, *shares, float(equal.mean()), *statistics[at])
            if len(trait.categories) == 2 and row[6] < 0:
                row = _opposite(row, trait.categories[0])
            rows.append(row)
    return rows


def _opposite(row: tuple[Any, ...], category: str) -> tuple[Any, ...]:
    """Return the contrast of the other of two categories."""
    cluster, name, _, inside, outside, overall, difference, low, high = row
    shares = (1.0 - inside, 1.0 - outside, 1.0 - overall)
    return (cluster, name, category, *shares, -difference, -high, -low)


def _differences(
    values: FloatArray, place: IntArray, k: int, prior: float
) -> list[tuple[float, float, float]]:
    """Return for each cluster the standardised difference to the other rows, and its interval.

    Means inside and outside differ by this many standard deviations of all rows. The interval is
    Welch's. For shares, one row of each kind is added on both sides (Agresti and Caffo 2000), so
    that no interval has the width zero.
    """
    from scipy.stats import t

    deviation = float(values.std())
    if not prior:
        # Squares of large numbers, such as dates, would cancel.
        values = values - values.mean()
    # Numbers of rows, sums and sums of squares of each cluster.
    sums = np.array(
        [np.bincount(place, weights, k) for weights in (np.ones_like(values), values, values**2)]
    )
    results = []
    for at in range(k):
        sides = sums[:, at], sums.sum(axis=1) - sums[:, at]
        if not all(side[0] for side in sides):
            results.append((math.nan, math.nan, math.nan))
            continue
        raw = float(sides[0][1] / sides[0][0] - sides[1][1] / sides[1][0])
        moments = [_moments(side + prior * np.array([2.0, 1.0, 1.0]), deviation) for side in sides]
        (mean, error, free), (other, other_error, other_free) = moments
        variance = error + other_error
        # Welch's degrees of freedom.
        freedom = variance**2 / max(error**2 / free + other_error**2 / other_free, 1e-300)
        half = float(t.ppf(0.975, max(freedom, 1.0))) * math.sqrt(variance)
        low, high = mean - other - half, mean - other + half
        results.append((raw / deviation, low / deviation, high / deviation))
    return results


def _moments(side: FloatArray, deviation: float) -> tuple[float, float, float]:
    """Return a mean, its squared error, and the degrees of freedom, of a number and two sums.

    A single row has the deviation of all rows.
    """
    n, total, square = side.tolist()
    mean = total / n
    variance = max(0.0, square / n - mean**2) * n / (n - 1.0) if n > 1 else deviation**2
    return mean, variance / n, max(n - 1.0, 1.0)


def _between(trait: Trait, place: IntArray) -> float:
    """Return the share of the variance between clusters; of categories, of all their shares."""
    present = ~np.isnan(trait.values)
    values, place = trait.values[present], place[present]
    parts = [values]
    if trait.kind == "category":
        parts = [(values == code).astype(float) for code in range(len(trait.categories))]
    sizes = np.maximum(np.bincount(place), 1)
    total = between = 0.0
    for part in parts:
        means = np.bincount(place, part) / sizes
        total += float(((part - part.mean()) ** 2).sum())
        between += float(((means[place] - part.mean()) ** 2).sum())
    return between / total if total else 0.0


def summary_of(contrasts: pd.DataFrame, traits: dict[str, Trait]) -> str:
    """Return the strongest contrasts of a cluster in words, one for each column."""
    sure = contrasts[(contrasts["low"] > 0) | (contrasts["high"] < 0)]
    strongest = sure.drop_duplicates("column").head(_SUMMARY)
    if not len(strongest):
        return "No column differs clearly from the other rows."
    rows: list[Any] = list(strongest.itertuples())
    parts = [contrast_sentence(row, traits[row.column]) for row in rows]
    return f"{'; '.join(parts)}."


def contrast_sentence(row: Any, trait: Trait) -> str:
    """Return a contrast in words, with the values inside and outside the cluster."""
    if trait.kind == "category":
        return f"{row.column} is {row.category} in {row.inside:.0%} (elsewhere {row.outside:.0%})"
    more, less = ("later", "earlier") if trait.kind == "date" else ("higher", "lower")
    step = None if trait.kind == "date" else trait.fine_step
    medians = trait.shown(row.inside, step), trait.shown(row.outside, step)
    words = more if row.difference > 0 else less
    return f"{row.column} is {words} (median {medians[0]}, elsewhere {medians[1]})"


def _examples(
    table: pd.DataFrame, labels: IntArray, clusters: IntArray, membership: Membership
) -> pd.DataFrame:
    """Return the typical rows of each cluster, and the nearest to its border."""
    import pandas as pd

    parts = []
    for cluster in clusters.tolist():
        rows = np.flatnonzero(labels == cluster)
        typical = rows[np.argsort(membership.distance[rows], kind="stable")[:_SHOWN_ROWS]]
        others = np.setdiff1d(rows, typical)
        border = others[np.argsort(membership.confidence[others], kind="stable")[:_SHOWN_ROWS]]
        for role, part in (("typical", typical), ("border", border)):
            parts.append(_with_membership(table, labels, membership, part, role))
    return pd.concat(parts)


def _uncertain(table: pd.DataFrame, labels: IntArray, membership: Membership) -> pd.DataFrame:
    rows = np.flatnonzero(membership.uncertain)
    rows = rows[np.argsort(membership.confidence[rows], kind="stable")]
    return _with_membership(table, labels, membership, rows, "uncertain")


def _with_membership(
    table: pd.DataFrame, labels: IntArray, membership: Membership, rows: IntArray, role: str
) -> pd.DataFrame:
    """Return rows of the table with what is known of their membership in front."""
    import pandas as pd

    front = pd.DataFrame(
        {
            "row": rows,
            "cluster": labels[rows],
            "role": role,
            "confidence": membership.confidence[rows],
            "second": membership.second[rows],
        },
        index=table.index[rows],
    )
    return pd.concat([front, table.iloc[rows]], axis="columns")


def differences_of(traits: list[Trait], first: int, second: int) -> tuple[str, str]:
    """Return the columns in which two rows differ, the most first, and in which they are alike."""
    different: list[tuple[float, str]] = []
    alike: list[str] = []
    for trait in traits:
        cells = trait.cell(first), trait.cell(second)
        if cells[0] == cells[1]:
            alike.append(f"{trait.name} {cells[0]}")
            continue
        size = 0.0
        if trait.kind == "category":
            # Two random rows differ by the square root of two deviations in a number.
            size = math.sqrt(2.0)
        elif trait.compared and MISSING_TEXT not in cells:
            spread = float(np.nanstd(trait.values))
            size = abs(float(trait.values[first] - trait.values[second])) / spread
        different.append((size, f"{trait.name} {cells[0]} / {cells[1]}"))
    different.sort(key=lambda pair: -pair[0])
    return "; ".join(text for _, text in different), "; ".join(alike)


def membership_sentence(profile: ClusterProfile) -> str:
    """Return the number of uncertain rows in words."""
    membership = profile.membership
    n, uncertain = membership.confidence.size, int(membership.uncertain.sum())
    return (
        f"{counted(n - uncertain, 'row')} ({(n - uncertain) / n:.0%}) lie clearly in their cluster."
    )


def stability_sentence(stability: Stability, clusters: list[Any]) -> str:
    """Return in words which clusters come back in other samples."""
    groups: dict[str, list[str]] = {word: [] for word, _ in _COMES_BACK}
    for cluster, value in zip(clusters, stability.jaccard.tolist(), strict=True):
        groups[next(word for word, least in _COMES_BACK if value >= least)].append(str(cluster))
    filled = {word: names for word, names in groups.items() if names}
    if len(filled) == 1:
        return f"In other samples of the rows, all clusters {next(iter(filled))}."
    parts = [f"{listed(names, most=20)} {word}" for word, names in filled.items()]
    return f"In other samples of the rows, of the clusters {'; '.join(parts)}."
