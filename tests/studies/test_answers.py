"""What answers say: every number is a quotation of a table, and words are as the numbers are."""

from __future__ import annotations

import csv
import re
from functools import cache
from html import unescape
from itertools import pairwise

import numpy as np
import pytest
from places import DATA
from rendered import REPORTS, rendered

from inference_lab.reporting.document import Cell, Column, Table
from inference_lab.reporting.quoting import bare_numbers, quoted
from inference_lab.results.best_known import read_known
from inference_lab.results.clustering_records import FitStore
from inference_lab.results.records import RecordStore
from inference_lab.studies import load_study
from inference_lab.studies.definition import Protocol
from inference_lab.studies.methods import draw_constraints, draw_run
from inference_lab.studies.points import load_points

# On the worker of those that compare the reports with their files: each is made once for both.
pytestmark = [pytest.mark.xdist_group("test_studies"), pytest.mark.usefixtures("undrawn")]

STUDIES = sorted(path.parent.name for path in REPORTS.glob("*/study.toml"))

REGIMES = ("em-regimes", "estep-regimes")
#: Of solvers: so many records that the tables take long. The committed ones stand here.
COMMITTED = ("estep-regimes", "estep-scaling")


@cache
def tables(name: str) -> tuple[Table, ...]:
    """Return the tables of a report, made of its records; answer and claims agree with them."""
    if name not in COMMITTED:
        document, _ = rendered(name)
        assert document.warnings == ()
        return tuple(document.tables())
    found = []
    for path in sorted((REPORTS / name / "tables").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            head, *rows = csv.reader(lines)
        cells = tuple(tuple(map(Cell, row)) for row in rows)
        found.append(Table(path.stem, "", tuple(map(Column, head)), cells))
    return tuple(found)


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_of_an_answer_is_quoted_and_on_the_page(name):
    answer = load_study(REPORTS / name).answer
    assert bare_numbers(answer) == []
    page = (REPORTS / name / "README.md").read_text(encoding="utf-8")
    assert "records differ" not in page
    if name not in COMMITTED:
        shown = quoted(answer, tables(name)).text
        assert " ".join(shown.split()) in " ".join(unescape(page.replace("\\", "")).split())


def ends(text: str) -> tuple[float, float]:
    """Return the ends of an interval as a cell shows it, or its number twice."""
    first, *more = (
        float(number) for number in re.findall(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?", text)
    )
    if "±" in text:
        return first - more[0], first + more[0]
    return (first, more[0]) if " to " in text else (first, first)


def holds(relation: str, texts: list[str]) -> bool:
    """Whether cells are as a word says; that is a relation, or what each of them reads."""
    if relation in ("marked", "unmarked"):
        return {text.endswith("*") for text in texts} == {relation == "marked"}
    if relation in ("gain", "equivalent", "undecided"):
        return set(texts) == {relation}
    low, high = np.array([ends(text) for text in texts]).T
    return bool(
        {
            "above": (low > 0).all(),
            "not above": (low <= 0).all(),
            "below": (high < 0).all(),
            "open": ((low <= 0) & (high >= 0)).all(),
            "nothing": (low == 0).all() and (high == 0).all(),
            "overlapping": low.max() <= high.min(),
            "rising": all(a < b for a, b in pairwise(low + high)),
            "falling": all(a > b for a, b in pairwise(low + high)),
        }[relation]
    )


@pytest.mark.parametrize("name", STUDIES)
def test_words_of_answers_and_claims_are_as_the_tables(name):
    study = load_study(REPORTS / name)
    claims = (f"{claim.claim} {claim.verdict}" for claim in study.claims)
    said = " ".join(" ".join([study.answer, *claims]).split())
    for words, relation, *places in WORDS[name]:
        cells = [
            f"{row} | {column}"
            for row, _, columns in (place.rpartition(" | ") for place in places)
            for column in columns.split("; ")
        ]
        shown = [quoted(f"{{{cell}}}", tables(name)) for cell in cells]
        assert words in said
        assert [each.wrong for each in shown] == [[]] * len(shown)
        assert holds(relation, [each.text for each in shown]), (words, relation, shown)


@pytest.mark.parametrize("name", REGIMES)
def test_no_cell_of_a_map_shows_a_loss(name):
    maps = [table for table in tables(name) if table.name.startswith("gains-")]
    assert len(maps) == 3
    assert "loss" not in {row[-1].text for table in maps for row in table.rows}
    assert re.search("[Nn]o cell (of the maps )?shows a loss", load_study(REPORTS / name).answer)


def test_what_a_note_says_of_draws_follows_from_draws_and_records():
    """Which draws hold a pair that the split of the toy into upper and lower violates."""
    folder = REPORTS / "lange2005"
    points, protocol = load_points("lange-toy"), Protocol(unit="share-of-points")
    upper = points.values[:, 1] > points.values[:, 1].mean()

    def told(share: float, run: int) -> bool:
        pairs = draw_constraints(points, protocol, draw_run(points, protocol, run), share, "random")
        must, cannot = upper[pairs.must_link], upper[pairs.cannot_link]
        return bool((must[:, 0] != must[:, 1]).any() or (cannot[:, 0] == cannot[:, 1]).any())

    share = {run: told(0.01, run) for run in range(50)}
    right = {
        record.run: record.scores["accuracy"]
        for record in FitStore(folder / "records.jsonl").read()
        if (record.method, record.data) == ("Annealed mixture, mean field", "lange-toy")
        and (record.constraints, record.noise) == (0.01, 0.0)
    }
    assert right.keys() == share.keys()
    told_apart, others = (
        np.mean([right[run] for run in right if share[run] is held]) for held in (True, False)
    )
    (note,) = [each for each in load_study(folder).notes if each.startswith("With 1 % of")]
    assert f"{sum(share.values())} of 50 draws" in note
    assert f"has {told_apart:.2f} of the points right, on the others {others:.2f}" in note
    assert note.endswith("With 5 % all do.") and all(told(0.05, run) for run in range(50))


def test_a_primal_gap_that_a_note_tells_in_other_words_follows_from_records():
    """How far the energies of ICM are above the best known, as shares of these."""
    folder = REPORTS / "estep-scaling"
    known = read_known(folder / "best-known.jsonl.gz").values()
    best = {one.problem: one.energy for one in known}
    above: dict[int, list[float]] = {}
    for record in RecordStore(folder / "runs.jsonl.xz"):
        if record.solver == "icm":
            lowest = best[record.problem]
            above.setdefault(record.n_variables, []).append(record.energy / lowest - 1)
    few, many = (100 * np.mean(above[n]) for n in (1000, 1_000_000))
    (note,) = [each for each in load_study(folder).notes if each.startswith("A primal gap is")]
    assert f"{few:.1f} % above it with a thousand points and {many:.1f} % with a million" in note


NEWS = ("news-different-3", "news-related-3", "news-similar-3")

#: Words of notes, and the data whose numbers of points and features they tell.
SIZES = [
    ("basu2002", "news-20 {0[0]} posts and {0[1]} terms", ("news-20",)),
    (
        "basu2002",
        "{0[0]}, {1[0]} and {2[0]} posts and {0[1]}, {1[1]} and {2[1]} terms",
        NEWS,
    ),
    ("basu2002", "k1a {0[0]} pages and {0[1]} terms", ("k1a",)),
    ("basu2004", "leaves {0[1]}, {1[1]} and {2[1]} terms", NEWS),
    (
        "basu2004",
        "two documents or more: {0[1]}, {1[1]} and {2[1]}.",
        tuple(f"{name}-wide" for name in NEWS),
    ),
    ("basu2004", "{0[0]} and {1[0]} points", ("letters-ijl-tenth", "pendigits-389-tenth")),
    ("basu2005-active", "of which {0[1]} terms remain", ("classic3-subset",)),
    ("bilenko2004", "{0[0]} and {1[0]} points", ("letters-ijl-tenth", "pendigits-389-tenth")),
]


@pytest.mark.skipif(not DATA.is_dir(), reason="the data folder is not here")
@pytest.mark.parametrize(("name", "words", "data"), SIZES)
def test_sizes_that_notes_tell_are_those_of_the_data(name, words, data):
    told = words.format(*(load_points(each, DATA).values.shape for each in data))
    assert any(told in note for note in load_study(REPORTS / name).notes)


_LOOPY = "loopy-bp(damping=0.5)"
#: Words of answers, or of claims and their verdicts; what they say of cells; and of which:
#: ``table | row | column; column``.
WORDS: dict[str, list[tuple[str, ...]]] = {
    "basu2002": [
        ("Much, on texts", "below", "more-and-more-seeds-nmi-less | K-means | 0.1"),
        (
            "beat k-means from a fifth on, as the thesis says, holds against either",
            "below",
            "more-and-more-seeds-nmi-less | K-means | 0.2; 0.3; 0.4; 0.5; 0.6; 0.7; 0.8; 0.9; 1",
            "more-and-more-seeds-nmi-less | K-means++, best of ten | 0.2; 0.3; 0.4; 0.5; 0.6; 0.7; "
            "0.8; 0.9; 1",
        ),
        (
            "To hold on to the labels adds nothing",
            "open",
            "more-and-more-seeds-nmi-less | Constrained k-means | 0.1; 0.2; 0.3; 0.4; 0.5; 0.6; "
            "0.7; 0.8; 0.9; 1",
        ),
        ("is below by", "below", "more-and-more-seeds-nmi-less | COP-KMeans | 0.1; 0.5"),
        (
            "The more labels are wrong, the less it is",
            "falling",
            "wrong-seeds-nmi | Seeded k-means | Texts; 10 % of the seeds wrong; 20 % of the seeds "
            "wrong; 30 % of the seeds wrong; 40 % of the seeds wrong; 50 % of the seeds wrong",
        ),
        (
            "worth having as long as most are right",
            "below",
            "wrong-seeds-nmi-less | K-means++, best of ten | Texts; 10 % of the seeds wrong; "
            "20 % of the seeds wrong; 30 % of the seeds wrong; 40 % of the seeds wrong",
        ),
        (
            "no longer above k-means++ for certain",
            "open",
            "wrong-seeds-nmi-less | K-means++, best of ten | 50 % of the seeds wrong",
        ),
        (
            "that it falls faster is not certain",
            "open",
            "wrong-seeds-nmi-less | Constrained k-means | 20 % of the seeds wrong; 30 % of the "
            "seeds wrong; 40 % of the seeds wrong; 50 % of the seeds wrong",
        ),
        *(
            (
                "seeds for some of the classes bring some of it",
                "rising",
                f"half-of-the-points-seeds-of-each-collection-nmi | K-means | {data}",
                *(
                    "seeds-for-some-of-the-classes-nmi | Seeded k-means, "
                    f"{share} of the classes | {data}"
                    for share in (0.25, 0.75, 1)
                ),
            )
            for data in ("news-20", "k1a")
        ),
    ],
    "basu2004": [
        (
            "above it for certain from four hundred on only",
            "open",
            "cosine-by-constraints-nmi-less | K-means++, best of ten | 50; 100; 200",
        ),
        (
            "above it for certain from four hundred on only",
            "below",
            "cosine-by-constraints-nmi-less | K-means++, best of ten | 400; 800",
        ),
        (
            "constraints in the E-step bring nothing",
            "open",
            "cosine-wide-vocabulary-against-baseline | KMEANS-I | all; 100; 400; 800",
        ),
        (
            "there with many constraints too",
            "above",
            "cosine-wide-vocabulary-against-baseline | KMEANS-I-C-D, 10 iterations | 100; 400; 800",
        ),
        (
            "most comes from the initialisation",
            "below",
            "cosine-against-baseline | KMEANS | 800",
            "i-divergence-against-baseline | KMEANS | 800",
        ),
        (
            "for KMEANS-I, which only starts from the constraints",
            "above",
            "cosine-against-baseline | KMEANS-I | 800",
        ),
        (
            "for KMEANS-I, which only starts from the constraints",
            "open",
            "i-divergence-against-baseline | KMEANS-I | 800",
        ),
        ("above KMEANS-I-C, which has them", "above", "cosine-against-baseline | KMEANS-I | all"),
        ("add nothing for texts", "open", "i-divergence-against-baseline | KMEANS-I | all"),
        (
            "they help where the unit weight",
            "below",
            "euclidean-distance-by-data-nmi-less | HMRF-KMEANS-I | iris; letters-ijl-tenth",
        ),
        (
            "unit weights do nothing whatever",
            "nothing",
            "euclidean-distance-by-data-nmi-less | HMRF-KMEANS-I | pendigits-389-tenth",
        ),
        (
            "above KMEANS-I-C, on all three sets",
            "above",
            "cosine-against-baseline | KMEANS-I-C-D, 10 iterations | all",
            "cosine-by-data-nmi-less | KMEANS-I-C-D, 10 iterations | news-different-3; "
            "news-related-3; news-similar-3",
        ),
        (
            "without any constraints too",
            "above",
            "cosine-against-baseline | KMEANS-I-C-D, 10 iterations | 0",
        ),
        (
            "is left on the similar groups only",
            "not above",
            "many-constraints-cosine-by-data-nmi-less | KMEANS-I-C-D, 10 iterations | "
            "news-different-3; news-related-3",
        ),
        (
            "more steps lower that further",
            "rising",
            "cosine-effort | KMEANS-I-C-D, 10 iterations | objective below KMEANS-I-C's (%)",
            "cosine-effort | KMEANS-I-C-D, 30 iterations | objective below KMEANS-I-C's (%)",
        ),
        (
            "NMI falls below that of KMEANS-I-C",
            "below",
            "cosine-against-baseline | KMEANS-I-C-D, 30 iterations | 400; 800",
        ),
        (
            "changes no score at all",
            "nothing",
            "i-divergence-against-baseline | KMEANS-I-C-D, step 1e-8 | all; 0; 50; 100; 200; 400; "
            "800",
        ),
        (
            "there is no gain either",
            "not above",
            "i-divergence-against-baseline | KMEANS-I-C-D, step 0.1 | all; 0; 50; 100; 200; 400; "
            "800",
        ),
        (
            "are in the way on the related ones. does not hold",
            "open",
            "i-divergence-by-data-nmi-less | KMEANS-I | news-different-3-counts; "
            "news-related-3-counts; news-similar-3-counts",
        ),
        (
            "with both distortions, and without any constraints too. holds under conditions",
            "not above",
            "i-divergence-by-data-nmi-less | KMEANS-I-C-D, step 0.1 | mean",
            "cosine-by-data-nmi-less | KMEANS-I-C-D, 30 iterations | mean",
        ),
        (
            "and both than KMEANS. holds under conditions",
            "falling",
            "euclidean-distance-by-data-nmi | KMEANS | letters-ijl-tenth",
            "euclidean-distance-by-data-nmi | HMRF-KMEANS-I | letters-ijl-tenth",
        ),
    ],
    "basu2005-active": [
        (
            "Yes for texts",
            "marked",
            "texts-cosine-against-baseline | Explore and consolidate | 50; 100; 200; 500",
        ),
        (
            "on four of which it is above for certain",
            "above",
            "texts-by-data-nmi-less | Explore and consolidate | news-different-3; news-related-3; "
            "news-similar-3; classic3-subset; mean",
        ),
        (
            "it takes fifty questions, if they are chosen",
            "rising",
            "texts-by-questions-nmi | Explore and consolidate | 20",
            "texts-by-questions-nmi | K-means++, best of ten | 10",
            "texts-by-questions-nmi | Explore and consolidate | 50; 200",
        ),
        (
            "Exploring alone is between the two",
            "rising",
            "texts-cosine-against-baseline | Explore alone | 50",
            "texts-cosine-against-baseline | Explore and consolidate | 50",
        ),
        (
            "and from two hundred on it is where both phases are",
            "overlapping",
            "texts-cosine-against-baseline | Explore alone | 200",
            "texts-cosine-against-baseline | Explore and consolidate | 200",
        ),
        (
            "worse than both phases. holds under conditions",
            "above",
            "texts-cosine-against-baseline | Explore alone | all; 20; 50; 100; 200; 500; 1000",
        ),
        (
            "below random ones, for certain",
            "marked",
            "texts-singletons-forgotten-against-baseline | Explore and consolidate | 10",
        ),
        (
            "about what five hundred random ones do",
            "overlapping",
            "texts-cosine-nmi-news-different-3 | Explore and consolidate | 50",
            "texts-cosine-nmi-news-different-3 | Random | 500",
        ),
        *(
            (words, relation, f"texts-cosine-nmi-{data} | Random | 100; 200")
            for data in ("news-different-3", "news-related-3", "classic3-subset")
            for words, relation in (
                ("NMI falls on three of the four smaller", "falling"),
                ("less than the intervals of either", "overlapping"),
            )
        ),
        (
            "NMI falls on three of the four smaller",
            "rising",
            "texts-cosine-nmi-news-similar-3 | Random | 100; 200",
        ),
        (
            "which is not significant",
            "unmarked",
            "texts-cosine-against-baseline | Explore and consolidate | 10",
        ),
        (
            "changes for certain with five hundred only",
            "below",
            "texts-cosine-against-baseline | Random, weight 0 | 500",
        ),
        (
            "changes for certain with five hundred only",
            "open",
            "texts-cosine-against-baseline | Random, weight 0 | 10; 20; 50; 100; 200; 1000",
        ),
        (
            "no number of them significant",
            "unmarked",
            "iris-squared-euclidean-distance-against-baseline | Explore and consolidate | all; 10; "
            "20; 50; 100; 200; 500; 1000",
        ),
        (
            "and is not significant either",
            "unmarked",
            "iris-squared-euclidean-distance-against-baseline | Random, weight 0 | 100; 200; 500; "
            "1000",
        ),
    ],
    "bilenko2004": [
        (
            "none of which is certain",
            "undecided",
            "contrasts | exact E-steps | verdict",
            "contrasts | exact E-steps, 25 and 50 constraints | verdict",
            "contrasts | exact E-steps, 400 constraints | verdict",
            "contrasts | loopy BP | verdict",
            "contrasts | mean field | verdict",
        ),
        (
            "on these eight sets as published",
            "above",
            "contrasts | exact E-steps | 95 % interval",
            "contrasts | exact E-steps, 25 and 50 constraints | 95 % interval",
        ),
        (
            "nor whether it is more with few constraints than with many",
            "overlapping",
            "contrasts | exact E-steps, 25 and 50 constraints | 95 % interval",
            "contrasts | exact E-steps, 400 constraints | 95 % interval",
        ),
        (
            "less than half a hundredth either way",
            "equivalent",
            "contrasts | exact E-steps, metric fixed | verdict",
            "contrasts | loopy BP, metric fixed | verdict",
        ),
        (
            "Cheaper methods gain the same",
            "above",
            "contrasts | loopy BP | 95 % interval",
            "contrasts | loopy BP, damped | 95 % interval",
            "contrasts | LP with rounding | 95 % interval",
        ),
        ("Of mean field nothing can be said", "open", "contrasts | mean field | 95 % interval"),
        (
            "change little",
            "overlapping",
            "by-data-pairwise-f-less | Exact (ILP) | mean",
            "by-data-pairwise-f-less | BP, released code | mean",
            "by-data-pairwise-f-less | LP, released code | mean",
        ),
        (
            "ICM is no worse than global inference. cannot be told",
            "open",
            "contrasts | exact E-steps, 400 constraints | 95 % interval",
        ),
        (
            "10 to 15 times, says the thesis. holds under conditions",
            "falling",
            *(
                f"time-by-constraints-e-step-seconds | {method} | 100"
                for method in ("LP + rounding", "Loopy BP", "ICM")
            ),
        ),
    ],
    "estep-scaling": [
        (
            "TRW-S needs more sweeps the larger",
            "rising",
            *(f"seconds-by-size | {solver} | exponent" for solver in ("mean-field", "icm")),
            *(f"seconds-by-size | {solver} | exponent" for solver in (_LOOPY, "trw-s")),
        ),
        (
            "auto has the smallest primal gap to the best energy known with a thousand points",
            "rising",
            *(f"gaps-by-size | {solver} | 1,000" for solver in ("auto", "memetic", _LOOPY)),
        ),
        (
            "memetic search with ten thousand",
            "rising",
            *(f"gaps-by-size | {solver} | 10,000" for solver in ("memetic", "auto", _LOOPY)),
        ),
        (
            "and with a hundred thousand",
            "rising",
            *(f"gaps-by-size | {solver} | 100,000" for solver in ("auto", _LOOPY, "memetic")),
        ),
        (
            "loopy BP with a million",
            "rising",
            *(f"gaps-by-size | {solver} | 1,000,000" for solver in (_LOOPY, "mean-field", "auto")),
        ),
        (
            "after a tenth of a second ICM has the lowest energies",
            "rising",
            *(f"quality-at-times | {solver} | 0.1 s" for solver in ("icm", "icm(restarts=10)")),
            "quality-at-times | memetic | 0.1 s",
        ),
        (
            "after ten seconds loopy BP",
            "rising",
            *(
                f"quality-at-times | {solver} | 10 s"
                for solver in (_LOOPY, "memetic", "mean-field")
            ),
        ),
    ],
    "khashabi2015": [
        (
            "so that no single level is certain",
            "open",
            "all-methods-ari-less | RDP-means, released code | p = 1; p = 0.95; p = 0.9; p = 0.8",
        ),
        (
            "LCVQE is far below both",
            "below",
            "all-methods-ari-less | LCVQE | p = 1; p = 0.95; p = 0.9; p = 0.8",
        ),
        (
            "RDP-means stays at",
            "overlapping",
            "a-wrong-number-of-clusters-ari | RDP-means, released code | k - 2; p = 1; k + 3",
        ),
        (
            "while PCKMeans falls",
            "falling",
            "a-wrong-number-of-clusters-ari | PCKMeans | p = 1; k + 3; k - 1; k - 2",
        ),
        ("not certain either", "open", "all-methods-r-0-01-ari-less | TVClust | p = 0.8"),
        *(
            (
                "But on some data it fails",
                "falling",
                f"all-methods-by-data-ari | PCKMeans | {data}",
                f"all-methods-by-data-ari | TVClust | {data}",
            )
            for data in ("wine", "glass")
        ),
        (
            "With wrong answers a better E-step finds better clusters",
            "above",
            "e-steps-ari-less | RDP-means, loopy BP | E-steps, p = 0.9",
            "e-steps-ari-less | RDP-means, alpha-expansion | E-steps, p = 0.9",
        ),
        (
            "neither certain over five sets",
            "open",
            "e-steps-ari-less | RDP-means, loopy BP | E-steps, p = 1",
            "e-steps-ari-less | RDP-means, alpha-expansion | E-steps, p = 1",
        ),
        *(
            (
                "and fewer",
                "falling",
                f"e-steps-clusters | RDP-means, xi fixed | E-steps, p = {p}",
                f"e-steps-clusters | RDP-means, loopy BP | E-steps, p = {p}",
            )
            for p in ("1", "0.9")
        ),
        (
            "neither certain",
            "open",
            "e-steps-ari-less | RDP-means, icm | E-steps, p = 1; E-steps, p = 0.9",
        ),
        (
            "the order turns round: TVClust is best",
            "above",
            "a-hundred-thousand-points-ari-less | TVClust | "
            "100,000 points, p = 1; 100,000 points, p = 0.9; 100,000 points, p = 0.8",
        ),
        *(
            (
                "the order turns round: TVClust is best",
                "falling",
                f"a-hundred-thousand-points-ari | TVClust | 100,000 points, p = {p}",
                f"a-hundred-thousand-points-ari | PCKMeans | 100,000 points, p = {p}",
                f"a-hundred-thousand-points-ari | MPCKMeans | 100,000 points, p = {p}",
            )
            for p in ("1", "0.9", "0.8")
        ),
        *(
            (
                "with wrong ones it stays behind",
                "falling",
                f"a-hundred-thousand-points-ari | TVClust | 100,000 points, p = {p}",
                f"a-hundred-thousand-points-ari | PCKMeans, loopy BP | 100,000 points, p = {p}",
            )
            for p in ("0.9", "0.8")
        ),
        (
            "while PCKMeans falls to",
            "falling",
            *(
                "a-hundred-thousand-points-a-wrong-number-of-clusters-ari | PCKMeans | "
                f"100,000 points, {at}"
                for at in ("p = 1", "k + 3", "k - 2")
            ),
        ),
        *(
            (
                "a lower objective than the paper's sweeps on all eight sets",
                "falling",
                f"ten-thousand-points-e-steps-objective | RDP-means, xi fixed | {data}",
                f"ten-thousand-points-e-steps-objective | RDP-means, alpha-expansion | {data}",
            )
            for data in (
                "iris",
                "wine",
                "ecoli",
                "glass",
                "balance",
                "gaussians-round",
                "gaussians-long",
                "gaussians-uneven",
            )
        ),
        (
            ", not certain).",
            "open",
            "ten-thousand-points-e-steps-ari-less | RDP-means, alpha-expansion | mean",
        ),
        (
            "is best on average, with right and with wrong answers. holds under conditions",
            "falling",
            "table-1-pairwise-f | RDP-means, released code | mean",
            "table-1-pairwise-f | TVClust, released code | mean",
        ),
    ],
    "lange2005": [
        (
            "On the toy data, yes",
            "marked",
            "toy-data-table-2-against-baseline | Mixture, mean field | 0.05; 0.1; 0.15; 0.3; 0.5",
            "toy-data-table-2-against-baseline | PCKMeans, best of 13 | 0.05; 0.1; 0.15; 0.3; 0.5",
            "toy-data-table-2-against-baseline | Constrained EM | 0.05; 0.1; 0.15",
        ),
        (
            "over the three exact ones gain",
            "above",
            "toy-data-other-e-steps-against-baseline | Annealed mixture, exact | all",
        ),
        (
            "at none of them for certain",
            "unmarked",
            "toy-data-other-e-steps-against-baseline | Annealed mixture, exact | 0.05; 0.15; 0.5",
        ),
        (
            "no rule is better for certain",
            "open",
            *(
                "toy-data-rules-for-alpha-against-baseline | "
                f"Annealed mixture, mean field, alpha {rule} | all"
                for rule in ("by violations", "on average")
            ),
        ),
        (
            "On news and texture annealing does not help",
            "above",
            *(
                f"{table}-against-baseline | Mixture, mean field | all"
                for table in (
                    "news-in-20-dimensions-table-4",
                    "texture-segmentation-table-5",
                )
            ),
        ),
        (
            "worse than no annealing",
            "marked",
            "texture-segmentation-table-5-against-baseline | Mixture, mean field | all",
        ),
        (
            "and from two fifths on rarely or never",
            "falling",
            *(
                f"toy-data-other-aspect-ratios-accuracy-lange-toy-1-{ratio} | "
                "Annealed k-means, mean field | 0.15"
                for ratio in (2, 1, 4)
            ),
        ),
        *(
            (
                "no E-step finds left and right",
                "marked",
                f"toy-data-other-e-steps-against-baseline | PCKMeans, {e_step} | 0.05; 0.15; 0.5",
            )
            for e_step in ("ICM", "mean field", "loopy BP", "exact")
        ),
        (
            "Better E-steps violate less",
            "falling",
            *(
                f"toy-data-other-e-steps-effort | PCKMeans, {e_step} | violated weight (mean)"
                for e_step in ("ICM", "mean field", "exact")
            ),
        ),
        (
            "needs 1 % of constraints, the two others 50 %. holds under conditions",
            "rising",
            "toy-data-table-2-accuracy-lange-toy | Annealed mixture, mean field | 0.01; 0.05",
        ),
        (
            "hardly moves the boundary: 0.995 (constrained EM 0.835). holds under conditions",
            "rising",
            *(
                "toy-data-a-fifth-of-the-constraints-flipped-boundary-accuracy-lange-toy | "
                f"Annealed mixture, mean field{weight} | 0.5"
                for weight in ("", ", weight 1.4")
            ),
        ),
    ],
    "estep-regimes": [
        (
            "the clusters are equivalent",
            "equivalent",
            "contrasts | loopy BP, calibrated weights: clusters | verdict",
        ),
        (
            "with calibrated weights the energy at which loopy BP ends",
            "undecided",
            "contrasts | loopy BP, calibrated weights: energy | verdict",
        ),
        (
            "it finds lower energies and better clusters",
            "gain",
            "contrasts | loopy BP, weights far too large, no noise: energy | verdict",
            "contrasts | loopy BP, weights far too large, no noise: clusters | verdict",
        ),
        (
            "it still finds energies lower by",
            "gain",
            "contrasts | loopy BP, weights far too large, noise: energy | verdict",
        ),
        (
            "but no better clusters",
            "undecided",
            "contrasts | loopy BP, weights far too large, noise: clusters | verdict",
        ),
        (
            "Over all regimes the gain",
            "gain",
            "contrasts | loopy BP against ICM in the same time: clusters | verdict",
            "contrasts | loopy BP against ICM in the same time: energy | verdict",
            "contrasts | loopy BP, neighbourhood centroids: clusters | verdict",
        ),
        (
            "A lower energy goes with better clusters",
            "gain",
            "contrasts | a lower energy against a higher one: clusters | verdict",
        ),
        (
            "mean field, in less time, gains",
            "gain",
            "contrasts | mean field against ICM in the same time: clusters | verdict",
        ),
        (
            "Rounding the LP brings nothing certain",
            "undecided",
            "contrasts | the rounded LP against ICM in the same time: clusters | verdict",
            "contrasts | the rounded LP against ICM in the same time: energy | verdict",
        ),
    ],
    "default-weight": [
        (
            "that it gains on other data is not certain",
            "undecided",
            "contrasts | auto against one | verdict",
            "contrasts | auto against one, answers right | verdict",
            "contrasts | auto against one, a tenth wrong | verdict",
            "contrasts | auto against one, a fifth wrong | verdict",
        ),
        (
            "the same to within a hundredth",
            "equivalent",
            "contrasts | auto against one, points that no pair names | verdict",
        ),
        ("its weight would gain", "gain", "contrasts | told the noise, against one | verdict"),
        (
            "With right answers the mean squared distance",
            "above",
            "as-they-are-ari-less | Variance | All answers right",
        ),
        (
            "with a fifth of the answers wrong it loses",
            "below",
            "contrasts | variance against one, a fifth wrong | 95 % interval",
            "contrasts | no weight, against one | 95 % interval",
        ),
    ],
    "em-regimes": [
        (
            "a better E-step makes better clusters than one descent of ICM",
            "gain",
            "contrasts | loopy BP against ICM, calibrated: constrained points | verdict",
            "contrasts | exact against ICM, calibrated: constrained points | verdict",
            "contrasts | ICM 30 times against once: constrained points | verdict",
        ),
        (
            "neither is certain",
            "undecided",
            "contrasts | loopy BP against ICM in the same time: constrained points | verdict",
            "contrasts | exact against ICM in the same time as loopy BP: constrained points | "
            "verdict",
        ),
        (
            "On untouched points loopy BP and thirty runs are equivalent",
            "equivalent",
            "contrasts | loopy BP against ICM in the same time: the others | verdict",
        ),
        (
            "above thirty runs of ICM with one constraint a point",
            "gain",
            "contrasts | exact against ICM 30 times, one constraint a point, none wrong: "
            "constrained points | verdict",
        ),
        (
            "and equivalent with five",
            "equivalent",
            "contrasts | exact against ICM 30 times, five constraints a point, none wrong: "
            "constrained points | verdict",
        ),
        (
            "The gain is largest where constraints are right",
            "gain",
            "contrasts | exact against ICM, no constraint wrong, three times the weight or more: "
            "constrained points | verdict",
        ),
        (
            "ten times the weight nothing is certain",
            "undecided",
            "contrasts | exact against ICM, ten times the weight, noise: constrained points | "
            "verdict",
        ),
        (
            "most of what constraints bring is lost to wrong ones",
            "falling",
            *(
                "by-the-share-of-constraints-that-are-wrong-ari-constrained | "
                f"loopy BP, kmeans, x 1 | {share} of the constraints wrong"
                for share in ("0", "0.2", "0.3")
            ),
        ),
        (
            "is robust against wrong ones. cannot be told",
            "undecided",
            "contrasts | calibrated against ten times the weight, loopy BP: constrained points | "
            "verdict",
        ),
        (
            ", not certain. Marginals",
            "undecided",
            "contrasts | calibrated against ten times the weight, loopy BP: constrained points | "
            "verdict",
        ),
    ],
}
