"""Sections of a page that describe clusters to people who know the table, not the method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_lab.formatting import counted
from inference_lab.graph.arrays import IntArray
from inference_lab.reporting.charts import points_chart, quantiles_chart, shares_chart
from inference_lab.reporting.cluster_profile import (
    UNCERTAIN,
    ClusterProfile,
    Stability,
    differences_of,
    membership_sentence,
    stability_sentence,
)
from inference_lab.reporting.document import (
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    Text,
    column,
)
from inference_lab.reporting.table_traits import Trait
from inference_lab.results.number_formats import NONE

if TYPE_CHECKING:
    import pandas as pd

#: Contrasts and columns of rows in the tables of a cluster, uncertain rows, categories of a bar.
_CONTRASTS, _COLUMNS, _UNCERTAIN_ROWS, _CATEGORIES = 8, 8, 20, 7
#: Columns in a picture, points in it, and quantiles of its lines.
_PANELS, _POINTS = 3, 2000
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def percent(share: float) -> Cell:
    """Return the cell of a share in per cent."""
    if math.isnan(share):
        return Cell(NONE)
    return Cell(f"{100 * share:.0f}", 100 * float(share))


def lead_of(profile: ClusterProfile, stability: Stability | None) -> list[tuple[str, str]]:
    """Return a paragraph for each cluster, and one on how clear the clusters are."""
    entries = []
    for cluster, row in profile.clusters.iterrows():
        size = f"Cluster {cluster}: {counted(int(row['rows']), 'row')} ({row['share']:.0%})"
        entries.append((size, f"{row['summary']} {rule_sentence(row)}".strip()))
    sure = membership_sentence(profile)
    if stability is not None and stability.refits:
        sure = f"{sure} {stability_sentence(stability, profile.clusters.index.tolist())}"
    return [*entries, ("Certainty", sure)]


def rule_sentence(row: Any) -> str:
    """Return the rule of a cluster, with its shares on held-out rows, in words."""
    if not row["rule"] or math.isnan(row["precision"]):
        return ""
    return (
        f"Rule of thumb: {row['rule']}. It finds {row['recall']:.0%} of these rows, and "
        f"{row['precision']:.0%} of the rows that it finds are right."
    )


def clusters_table(
    profile: ClusterProfile, stability: Stability | None, touched: Sequence[int]
) -> Table:
    """Return the table of all clusters."""
    clusters = profile.clusters
    columns = [
        column("cluster", clusters.index.tolist()),
        column("rows", clusters["rows"].tolist()),
        column("share, %", clusters["share"].tolist(), percent),
        column("uncertain rows", clusters["uncertain"].tolist(), help=_uncertain_help(profile)),
    ]
    if stability is not None and stability.refits:
        columns.append(
            column(
                "comes back, %",
                stability.jaccard.tolist(),
                percent,
                help="Mean overlap with the most similar cluster in other samples of the rows. "
                "Above 75 the cluster comes back; below 60 do not rely on it.",
            )
        )
    columns += [
        column("pairs", list(touched), help="Pairs that touch a row of the cluster."),
        column("rule", [text or NONE for text in clusters["rule"]], right=False),
        column("rule finds, %", clusters["recall"].tolist(), percent, help=_RECALL),
        column("rule is right, %", clusters["precision"].tolist(), percent, help=_PRECISION),
    ]
    return Table("sizes", "The clusters, each with a short rule for its rows.", tuple(columns))


_RECALL = "Share of the rows of the cluster that the rule finds, on rows it was not made from."
_PRECISION = "Share of the rows that the rule finds that are in the cluster, on such rows."


def _uncertain_help(profile: ClusterProfile) -> str:
    limit = UNCERTAIN[profile.membership.kind]
    if profile.membership.kind == "posterior":
        return f"Rows whose probability of being in their cluster is below {limit:.0%}."
    return (
        f"Rows whose distance to the centre of their cluster is more than {1 - limit:.0%} of that "
        "to the centre of another."
    )


def separating_pictures(profile: ClusterProfile, labels: IntArray, names: list[str]) -> list[Block]:
    """Return pictures of the columns that separate the clusters the most."""
    by_name = {trait.name: trait for trait in profile.traits}
    order = [by_name[name] for name in profile.separation.index if profile.separation[name] > 0]
    numbers = [trait for trait in order if trait.kind == "number"]
    categories = [trait for trait in order[:_PANELS] if trait.kind == "category"]
    pictures: list[Block] = []
    if numbers:
        pictures.append(
            Picture(
                "separating-columns",
                "The numbers that differ the most between the clusters: median (dot), the middle "
                "half of the rows (bar), and all but the lowest and highest 5% (line).",
                "Spread of the separating columns in each cluster",
                partial(quantiles_chart, _quantiles(numbers[:_PANELS], labels)),
            )
        )
    if len(numbers) > 1:
        rows = np.flatnonzero(~np.isnan(numbers[0].values) & ~np.isnan(numbers[1].values))
        rows = np.random.default_rng(0).permutation(rows)[:_POINTS]
        part = (
            f" Shown are {len(rows):,} of {len(labels):,} rows." if len(rows) < len(labels) else ""
        )
        pictures.append(
            Picture(
                "separating-plane",
                f"Rows by {numbers[0].name} and {numbers[1].name}, coloured by cluster.{part}",
                "Rows over the two separating columns",
                partial(_plane, numbers[0], numbers[1], labels, names, rows),
            )
        )
    for trait in categories:
        pictures.append(
            Picture(
                f"shares-{trait.name}",
                f"Shares of {trait.name} in each cluster.",
                f"Shares of {trait.name} in each cluster",
                partial(shares_chart, _shares(trait, labels), trait.name),
            )
        )
    return pictures


def _plane(x: Trait, y: Trait, labels: IntArray, names: list[str], rows: IntArray) -> Any:
    import pandas as pd

    points = pd.DataFrame(
        {
            "name": [names[row] for row in rows],
            "cluster": labels[rows],
            "x": x.values[rows],
            "y": y.values[rows],
        }
    )
    return points_chart(points, (x.name, y.name))


def _quantiles(traits: Sequence[Trait], labels: IntArray) -> pd.DataFrame:
    """Return the quantiles of each column in each cluster."""
    import pandas as pd

    rows = []
    for trait in traits:
        for cluster in np.unique(labels).tolist():
            values = trait.values[labels == cluster]
            values = values[~np.isnan(values)]
            if values.size:
                rows.append((trait.name, cluster, *np.quantile(values, _QUANTILES).tolist()))
    titles = ["panel", "cluster", "low", "lower", "median", "upper", "high"]
    return pd.DataFrame(rows, columns=titles)


def _shares(trait: Trait, labels: IntArray) -> pd.DataFrame:
    """Return the shares of the most frequent categories in each cluster, and of the others."""
    import pandas as pd

    counts = np.bincount(trait.values.astype(np.int64), minlength=len(trait.categories))
    frequent = np.argsort(-counts, kind="stable")[:_CATEGORIES]
    rows = []
    for cluster in np.unique(labels).tolist():
        codes = trait.values[labels == cluster].astype(np.int64)
        shares = np.bincount(codes, minlength=len(trait.categories)) / codes.size
        rows += [(cluster, trait.categories[code], float(shares[code])) for code in frequent]
        others = 1.0 - float(shares[frequent].sum())
        if len(trait.categories) > frequent.size:
            rows.append((cluster, "others", others))
    return pd.DataFrame(rows, columns=["cluster", "category", "share"])


def cluster_sections(profile: ClusterProfile, names: list[str]) -> Section:
    """Return a section for each cluster: its contrasts, and rows that show it."""
    by_name = {trait.name: trait for trait in profile.traits}
    parts = []
    for cluster, row in profile.clusters.iterrows():
        contrasts = profile.contrasts[profile.contrasts["cluster"] == cluster].head(_CONTRASTS)
        rows = profile.rows[profile.rows["cluster"] == cluster]
        order = [by_name[name] for name in dict.fromkeys(contrasts["column"])]
        order += [trait for trait in profile.traits if trait not in order and trait.compared]
        blocks: list[Block] = []
        if rule_sentence(row):
            blocks.append(Text((rule_sentence(row),)))
        blocks.append(_contrasts_table(contrasts, by_name, cluster))
        caption = f"Typical rows of cluster {cluster}, and the rows nearest to its border."
        blocks.append(_rows_table(f"rows-{cluster}", caption, rows, order, names))
        parts.append(Section(f"Cluster {cluster}", tuple(blocks)))
    return Section("What sets each cluster apart", sections=tuple(parts))


def _contrasts_table(contrasts: pd.DataFrame, traits: dict[str, Trait], cluster: Any) -> Table:
    """Return the table of the contrasts of a cluster."""
    rows: list[Any] = list(contrasts.itertuples())

    def value(row: Any, number: float) -> str:
        trait = traits[row.column]
        if trait.kind == "category":
            return f"{number:.0%}"
        return trait.shown(number, trait.fine_step if trait.kind == "number" else None)

    def title(row: Any) -> str:
        return row.column if row.category is None else f"{row.column} = {row.category}"

    columns = (
        column("column", [title(row) for row in rows], right=False),
        column("in the cluster", [value(row, row.inside) for row in rows], right=True),
        column("other rows", [value(row, row.outside) for row in rows], right=True),
        column("all rows", [value(row, row.overall) for row in rows], right=True),
        column(
            "difference",
            range(len(rows)),
            lambda at: Cell(
                f"{rows[at].difference:+.1f} ({rows[at].low:+z.1f} to {rows[at].high:+z.1f})",
                float(rows[at].difference),
            ),
            help="Mean in the cluster minus mean of the other rows, in standard deviations of the "
            "column, with the 95% interval. Beyond 0.8 in size it is large.",
        ),
    )
    return Table(
        f"contrasts-{cluster}",
        f"Columns that set cluster {cluster} apart: medians of numbers, shares of categories.",
        columns,
    )


def _rows_table(
    name: str, caption: str, rows: pd.DataFrame, traits: Sequence[Trait], names: list[str]
) -> Table:
    """Return a table of rows with the values of some columns."""
    places = rows["row"].tolist()
    front = [
        column("row", [names[row] for row in places], right=False),
        column("example", rows["role"].tolist()),
        column("nearest other", [f"cluster {second}" for second in rows["second"]], right=False),
    ]
    values: list[Column] = [
        column(trait.name, [trait.cell(row) for row in places], right=trait.kind == "number")
        for trait in traits[:_COLUMNS]
    ]
    return Table(name, caption, (*front, *values))


def uncertain_section(profile: ClusterProfile, names: list[str]) -> Section:
    """Return the section on the rows that may belong to another cluster."""
    rows = profile.uncertain
    intro = membership_sentence(profile)
    if not len(rows):
        return Section("Uncertain rows", (Text((intro,)),))
    by_name = {trait.name: trait for trait in profile.traits}
    traits = [by_name[name] for name in profile.separation.index]
    shown = rows.head(_UNCERTAIN_ROWS)
    table = _rows_table(
        "uncertain-rows",
        "The least certain rows.",
        shown.assign(role=shown["cluster"]),
        traits,
        names,
    )
    columns = [replace(c, title="cluster") if c.title == "example" else c for c in table.columns]
    text = f"{intro} The others could as well be in another: {_uncertain_help(profile).lower()}"
    return Section(
        "Uncertain rows", (Text((text,)), Table(table.name, table.caption, tuple(columns)))
    )


def violated_section(violated: pd.DataFrame, labels: IntArray, traits: list[Trait]) -> Section:
    """Return the section on the violated pairs, with the values of both rows."""
    if not len(violated):
        return Section("Violated pairs", (Text(("None.",)),))
    ends = violated[["first", "second"]].to_numpy(dtype=np.int64).tolist()
    differences = [differences_of(traits, first, second) for first, second in ends]
    columns = [
        column("row", violated["i"].astype(str), right=False),
        column("other row", violated["j"].astype(str), right=False),
        column("kind", violated["kind"]),
        column("its cluster", [int(labels[first]) for first, _ in ends]),
        column("the other's", [int(labels[second]) for _, second in ends]),
        column("different", [text for text, _ in differences], right=False),
        column("alike", [text for _, text in differences], right=False),
    ]
    if violated["weight"].nunique() > 1:
        columns.append(column("weight", violated["weight"], "{:g}".format))
    table = Table(
        "violated-pairs",
        "Pairs that the clusters contradict, with the values of both rows: wrong answers are among "
        "these more often than among the others.",
        tuple(columns),
        "The columns that differ the most come first.",
    )
    return Section("Violated pairs", (table,), folded=len(violated) > 50)


def stability_text(stability: Stability | None) -> Text:
    """Return what was done to measure how stable the clusters are."""
    if stability is None or not stability.refits:
        return Text(("The clusters were not made again from other samples of the rows.",))
    planned = ""
    if stability.refits < stability.planned:
        planned = f" (of {stability.planned}; the time was over)"
    return Text(
        (
            f"The chosen estimator was fitted again {counted(stability.refits, 'time')}{planned}, "
            f"in {stability.cpu_s:.1f} s of processor time, each time to some "
            f"{stability.rows:,} rows and to pairs, drawn with replacement. A cluster comes back "
            "to the share of its overlap with the most similar cluster of a refit: rows in both "
            "over rows in either (Hennig 2007).",
        )
    )
