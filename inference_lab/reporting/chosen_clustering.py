"""The page of a clustering chosen by held-out pairs: reason, quality and violated pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inference_lab.formatting import counted
from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.charts import intervals_chart, pairs_chart
from inference_lab.reporting.cluster_profile import ClusterProfile, Stability
from inference_lab.reporting.document import (
    Block,
    Cell,
    Document,
    Items,
    Mark,
    Picture,
    Section,
    Table,
    column,
)
from inference_lab.reporting.profile_sections import (
    cluster_sections,
    clusters_table,
    lead_of,
    percent,
    separating_pictures,
    stability_text,
    uncertain_section,
    violated_section,
)
from inference_lab.results.number_formats import NONE

if TYPE_CHECKING:
    import pandas as pd

#: Standard errors on each side of a 95 % interval.
_WIDE = 1.96
#: Numbers of points and of pairs in a picture, so that a page stays below two megabytes.
_POINTS, _LINES = 2000, 400


class ChosenClustering(NamedTuple):
    """A clustering chosen by pairs, with the data shown on its page."""

    #: A fitted `inference_lab.clustering.ConstrainedClusterCV`, and whether its choice uses pairs.
    search: Any
    used_pairs: bool
    points: FloatArray
    names: list[str]
    #: Columns i, j, kind, weight, violated, and in first and second the rows of the points.
    pairs: pd.DataFrame
    #: Description of the data and their preparation.
    facts: Mapping[str, str]
    profile: ClusterProfile
    stability: Stability | None = None


def with_interval(value: float, error: float, sign: str = "") -> str:
    """Return a score with its 95 % interval, cut off at one; `NONE` without a score."""
    if not (math.isfinite(value) and math.isfinite(error)):
        return NONE if not math.isfinite(value) else f"{value:{sign}z.2f}"
    low, high = value - _WIDE * error, min(1.0, value + _WIDE * error)
    return f"{value:{sign}z.2f} ({low:{sign}z.2f} to {high:{sign}z.2f})"


def clustering_document(of: ChosenClustering, title: str) -> Document:
    """Return the page of a clustering: what the clusters are, then how sure this is."""
    search, profile = of.search, of.profile
    row = search.cv_results_.iloc[search.best_index_]
    violated = of.pairs[of.pairs["violated"]]
    lead = [
        (
            "Result",
            f"{counted(len(search.labels_), 'row')} in "
            f"{counted(len(profile.clusters), 'cluster')}.",
        ),
        *lead_of(profile, of.stability),
    ]
    if len(of.pairs):
        kept = len(of.pairs) - len(violated)
        others = ""
        if len(violated):
            others = f" The other {len(violated)} are listed with the values of both rows."
        sentence = f"The clusters keep {kept} of {counted(len(of.pairs), 'pair')}.{others}"
        lead.append(("Pairs", sentence))
    clusters = Section(
        "Clusters",
        (
            clusters_table(profile, of.stability, _touched(of)),
            *separating_pictures(profile, search.labels_, of.names),
        ),
    )
    reasons = (
        f"Chosen: {row['candidate']}, {counted(int(row['n_clusters']), 'cluster')}.",
        _why(of, row),
    )
    choice: tuple[Block, ...] = (Items(reasons),)
    if search.cv_results_["mean_test_score"].notna().any():
        choice += _candidates(of)
    sure = Section(
        "How sure is this",
        sections=(
            Section("Choice of the method", choice),
            Section("Other samples of the rows", (stability_text(of.stability),)),
            Section(
                "Data and objective", (Items(tuple(f"{k}: {v}" for k, v in of.facts.items())),)
            ),
        ),
    )
    pairs = [violated_section(violated, search.labels_, profile.traits)] if len(of.pairs) else []
    sections = (
        clusters,
        cluster_sections(profile, of.names),
        uncertain_section(profile, of.names),
        *pairs,
        _picture(of),
        sure,
    )
    return Document(title, lead=tuple(lead), sections=sections)


def _touched(of: ChosenClustering) -> list[int]:
    """Return the number of pairs that touch each cluster."""
    labels = of.search.labels_
    ends = labels[of.pairs[["first", "second"]].to_numpy(dtype=np.int64).reshape(-1, 2)]
    return [int((ends == cluster).any(axis=1).sum()) for cluster in np.unique(labels)]


def _why(of: ChosenClustering, row: pd.Series[Any]) -> str:
    """Return the reason of the choice, the candidate of this row, in words."""
    if not math.isfinite(row["mean_test_score"]):
        return "With fewer than two pairs nothing can be judged: the simplest candidate was taken."
    score = with_interval(row["mean_test_score"], row["standard_error"])
    first = (
        f"Its score on held-out pairs is {score}, where 0 is chance and 1 keeps all. It has the "
        "largest expected gain over the first candidate, given the scores and the gains of the "
        "candidates on other data."
    )
    # Why the best score was not chosen, and why the comparison ended early, if so.
    first = " ".join(filter(None, (first, of.search.reason_, _stop(of.search))))
    if not of.used_pairs:
        return f"{first} It uses no pairs, which served for the choice alone."
    gain, error = of.search.gain_
    if not math.isfinite(gain):
        return first
    clear = "The interval excludes zero." if gain > _WIDE * error else "It may be due to chance."
    return f"{first} Over no pairs it gains {with_interval(gain, error, '+')}. {clear}"


def _stop(search: Any) -> str:
    """Return a sentence on a comparison that ended early; empty if it went to its end."""
    words: str = search.stop_in_words()
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _candidates(of: ChosenClustering) -> tuple[Table, Picture]:
    """Return a table and a picture of the scores of all candidates."""
    results = of.search.cv_results_
    rows = list(results.itertuples())
    titles = [f"{row.candidate}, k = {row.n_clusters}" for row in rows]
    best = of.search.best_index_

    def interval(at: int) -> Cell:
        row, score = rows[at], rows[at].mean_test_score
        mark: Mark = "failed" if row.failure else "best" if at == best else ""
        text = with_interval(score, row.standard_error)
        return Cell(text, None if math.isnan(score) else float(score), mark, row.failure)

    columns = (
        column("candidate", titles),
        column("score", range(len(rows)), interval, help="Held-out score, 95 % interval."),
        column(
            "expected gain",
            results["expected_gain"],
            "{:+.2f}".format,
            help="In score, over the first candidate: between its gain here and on other data.",
        ),
        column(
            "behind the best",
            [with_interval(row.behind_best, row.behind_best_error) for row in rows],
            right=True,
            help="Difference to the best score with as many clusters, over the same pairs.",
        ),
        column("must-links kept, %", results["must_link_kept"], percent, help="Of held-out pairs."),
        column("cannot-links kept, %", results["cannot_link_kept"], percent, help="The same."),
        column("seconds", results["mean_fit_time"], "{:.2f}".format, help="Of a fit."),
        column("fits", results["n_fits"], right=True, help="Fits that judge the candidate."),
        column("cut", results["cut"], help="Why no further fits were made; empty after all."),
    )
    table = Table(
        "candidates",
        "Candidates from simple to complex, judged by pairs that no fit had seen; bold: chosen.",
        columns,
        "The score is the share of must-links kept plus the share of cannot-links kept minus one.",
    )
    scored_rows = results.assign(title=titles).dropna(subset="mean_test_score")
    picture = Picture(
        "scores",
        "Held-out score of each candidate with its 95 % interval.",
        "Scores of the candidates with intervals",
        partial(
            intervals_chart,
            scored_rows["title"].tolist(),
            scored_rows["mean_test_score"].to_numpy(dtype=float),
            _WIDE * scored_rows["standard_error"].to_numpy(dtype=float),
            "held-out score",
        ),
    )
    return table, picture


def _picture(of: ChosenClustering) -> Section:
    """Return the section with the points in two dimensions and the pairs between them."""
    import pandas as pd
    from sklearn.decomposition import PCA

    wide, labels = of.points, of.search.labels_
    if wide.shape[1] == 1:
        wide = np.column_stack([wide, np.zeros(len(wide))])
    components = PCA(2).fit(wide)
    place, shares = components.transform(wide), components.explained_variance_ratio_
    axes = (
        f"first component, {shares[0]:.0%} of the variance",
        f"second component, {shares[1]:.0%}",
    )
    pairs = of.pairs.sort_values("violated", ascending=False, kind="stable").head(_LINES)
    ends = pairs[["first", "second"]].to_numpy(dtype=np.int64)
    shown = np.zeros(len(labels), dtype=np.bool_)
    shown[ends.ravel()] = True
    rng = np.random.default_rng(0)
    other_rows = rng.permutation(np.flatnonzero(~shown))
    shown[other_rows[: max(0, _POINTS - int(shown.sum()))]] = True
    rows = np.flatnonzero(shown)
    points = pd.DataFrame(
        {
            "name": [of.names[row] for row in rows],
            "cluster": labels[rows],
            "x": place[rows, 0],
            "y": place[rows, 1],
        }
    )
    lines = pd.DataFrame(
        {
            "name": pairs["i"].astype(str) + " - " + pairs["j"].astype(str),
            "kind": pairs["kind"],
            "violated": pairs["violated"],
            "x": place[ends[:, 0], 0],
            "y": place[ends[:, 0], 1],
            "x2": place[ends[:, 1], 0],
            "y2": place[ends[:, 1], 1],
        }
    )
    cut = [
        f"{shown} of {all_} {what}"
        for shown, all_, what in (
            (len(points), len(labels), "points"),
            (len(lines), len(of.pairs), "pairs"),
        )
        if shown < all_
    ]
    part = f" Shown are {' and '.join(cut)}, violated pairs first." if cut else ""
    picture = Picture(
        "points-and-pairs",
        f"Points by cluster on the two principal components, with pairs as lines: dashed for "
        f"cannot-links, bold where violated.{part}",
        "Points in two dimensions, with lines for pairs",
        partial(pairs_chart, points, lines, axes),
    )
    return Section("Points and pairs", (picture,))
