"""Answers and claims of studies follow from their tables, and notes from data and records."""

from __future__ import annotations

import re

import numpy as np
import pytest
from places import DATA
from rendered import REPORTS, rendered

from inference_lab.results.clustering_records import FitStore
from inference_lab.studies import load_study
from inference_lab.studies.clustering_study import Protocol
from inference_lab.studies.methods import draw_constraints, draw_run
from inference_lab.studies.study_points import load_points

# On the worker of the tests that compare reports with files: each is made once for both.
pytestmark = [pytest.mark.xdist_group("test_studies"), pytest.mark.usefixtures("undrawn")]

#: Studies of solvers with too many records for quick tables. Another test makes these reports.
LARGE = ("estep-regimes", "estep-scaling")

STUDIES = sorted(path.parent.name for path in REPORTS.glob("*/study.toml"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_of_answers_and_claims_is_of_a_table(name):
    study = load_study(REPORTS / name)
    for text in (study.answer, *(claim.evidence for claim in study.claims)):
        plain = re.sub(r"{{.*?}}", "", text)
        assert re.findall(r"(?<![\w.-])\d+(?:\.\d+)?", plain) == []
    page = (REPORTS / name / "README.md").read_text(encoding="utf-8")
    assert "records differ" not in page and "{{" not in page


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in LARGE])
def test_tables_hold_every_value_of_answers_and_claims(name):
    document, _ = rendered(name)
    assert document.warnings == ()


def test_note_on_draws_follows_from_draws_and_records():
    """Compute the draws with a pair that the split of the toy into upper and lower violates."""
    folder = REPORTS / "lange2005"
    points, protocol = load_points("lange-toy"), Protocol(unit="share-of-points")
    upper = points.values[:, 1] > points.values[:, 1].mean()

    def has_violated_pair(share: float, run: int) -> bool:
        pairs = draw_constraints(points, protocol, draw_run(points, protocol, run), share, "random")
        must, cannot = upper[pairs.must_link], upper[pairs.cannot_link]
        return bool((must[:, 0] != must[:, 1]).any() or (cannot[:, 0] == cannot[:, 1]).any())

    share = {run: has_violated_pair(0.01, run) for run in range(50)}
    right = {
        record.run: record.scores["accuracy"]
        for record in FitStore(folder / "records.jsonl").read()
        if (record.method, record.data) == ("Annealed mixture, mean field", "lange-toy")
        and (record.constraints, record.noise) == (0.01, 0.0)
    }
    assert right.keys() == share.keys()
    separated, others = (
        np.mean([right[run] for run in right if share[run] is outcome]) for outcome in (True, False)
    )
    (note,) = [note for note in load_study(folder).notes if note.startswith("With 1 % of")]
    assert f"{sum(share.values())} of 50 draws" in note
    assert f"has {separated:.2f} of the points right, on the others {others:.2f}" in note
    assert note.endswith("With 5 % all do.") and all(
        has_violated_pair(0.05, run) for run in range(50)
    )


NEWS = ("news-different-3", "news-related-3", "news-similar-3")

#: Texts of notes, and the data sets whose numbers of points and features they state.
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
def test_sizes_in_notes_equal_the_sizes_of_the_data(name, words, data):
    sentence = words.format(*(load_points(dataset, DATA).values.shape for dataset in data))
    assert any(sentence in note for note in load_study(REPORTS / name).notes)
