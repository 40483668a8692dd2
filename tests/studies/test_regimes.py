"""Studies of regimes: methods that vary, sampled points, calibrated weights."""

from __future__ import annotations

import re

import numpy as np
import pytest
from places import ROOT
from rendered import recorded

from inference_lab.constraints.centroids import kmeans_centroids, squared_distances
from inference_lab.registry.sources import as_problem
from inference_lab.results.scoring import adjusted_rand
from inference_lab.selection.algorithm_selection import evidence
from inference_lab.studies import StudyError, load_study
from inference_lab.studies.clustering_study import Method, Protocol, Study
from inference_lab.studies.methods import draw_constraints, draw_run, fit_method
from inference_lab.studies.study_points import load_points

PER_POINT = Protocol(unit="share-of-points", noise=0.2)


def varied(label="{init}, x {weight_factor}", **vary):
    vary = vary or {"init": ["kmeans", "random"], "weight_factor": [1, 3]}
    return Method(label, "pckmeans", weight="calibrated", vary=vary)


def test_method_with_lists_has_several_variants():
    study = Study(title="t", question="q", data=["iris"], methods=[varied()], runs=1)
    assert [m.label for m in study.methods] == [
        "kmeans, x 1",
        "kmeans, x 3",
        "random, x 1",
        "random, x 3",
    ]
    assert [m.weight_factor for m in study.methods] == [1.0, 3.0, 1.0, 3.0]
    assert study.methods[2].settings == {"init": "random"}
    assert len({m.key for m in study.methods}) == 4
    # A variant written out is the same method; without a factor, a method keeps its former key.
    written = Method("k", "pckmeans", {"init": "kmeans"}, weight="calibrated", weight_factor=3.0)
    assert written.key == study.methods[1].key
    assert Method("soft", "gaussian-mixture").key == "13c82fb90356"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (dict(label="all alike", weight_factor=[1, 3]), "'weight_factor' is not in its label"),
        (dict(label="{init}", weight_factor=[1]), "'init' has no values"),
        (dict(label="{weight_factor:g}", weight_factor=[1]), "is not a name in braces"),
    ],
)
def test_varied_settings_are_named_in_the_label(method, message):
    with pytest.raises(StudyError, match=message):
        varied(**method).variants()


def test_points_enlarged_are_of_the_same_kind(data_dir):
    iris, many = load_points("iris"), load_points("iris, k+1, enlarged to 30000")
    assert many.values.shape == (30_000, 4) and many.n_classes == 4
    assert np.bincount(many.labels).tolist() == [10_000] * 3
    assert np.flatnonzero(np.diff(many.labels))[0] < 100  # in random order
    for label in range(3):
        few, here = iris.values[iris.labels == label], many.values[many.labels == label]
        assert here.mean(axis=0) == pytest.approx(few.mean(axis=0), abs=0.03)
        assert np.cov(here.T) == pytest.approx(np.cov(few.T, bias=True), abs=0.02)
    # Classes keep their shape: a crescent is emptier in its middle than a Gaussian, of which a
    # twentieth has a squared distance below 0.10 in units of its covariance.
    moon = load_points("crescent-full-moon, enlarged to 9000")
    crescent = moon.values[moon.labels == 1] - moon.values[moon.labels == 1].mean(axis=0)
    whitened = np.linalg.solve(np.linalg.cholesky(np.cov(crescent.T)), crescent.T)
    assert np.quantile((whitened**2).sum(axis=0), 0.05) > 0.2
    again = load_points("iris, enlarged to 30000")
    assert again.n_classes == 3 and np.array_equal(again.values, many.values)
    assert load_points("iris, enlarged to 500, n=40").drawn(np.random.default_rng(0)).few is None
    # Some of its classes have two points.
    scaled = load_points("ecoli, standardised, enlarged to 20000", data_dir).values
    assert np.isfinite(scaled).all() and scaled.std(axis=0) == pytest.approx(1.0, abs=0.1)
    with pytest.raises(StudyError, match="there are 150 points already"):
        load_points("iris, enlarged to 100")
    with pytest.raises(StudyError, match="only tables of numbers can be enlarged"):
        load_points("news-similar-3, enlarged to 100000", data_dir)


def test_points_drawn_and_standardised():
    points = load_points("iris, standardised, n=40")
    assert points.values.std(axis=0) == pytest.approx(np.ones(4))
    one, same, other = (points.drawn(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert one.values.shape == (40, 4) and np.array_equal(one.values, same.values)
    assert not np.array_equal(one.values, other.values)
    rows = {tuple(row): label for row, label in zip(points.values, points.labels, strict=True)}
    assert [rows[tuple(row)] for row in one.values] == one.labels.tolist()
    assert len(load_points("iris, n=1000").drawn(np.random.default_rng(0)).labels) == 150
    for wrong in ("iris, n=1", "iris, n=x", "nothing, n=20"):
        with pytest.raises(StudyError):
            load_points(wrong)


def test_a_fit_is_scored_on_constrained_points_and_on_others():
    points = load_points("gaussians-uneven, standardised, n=60")
    method = Method("m", "pckmeans", {"init": "kmeans"}, weight="calibrated", weight_factor=3.0)
    fit = fit_method(method, points, PER_POINT, 0.25, run=0)
    drawn = points.drawn(np.random.default_rng([0, points.key, 1]))
    pairs = draw_constraints(drawn, PER_POINT, draw_run(drawn, PER_POINT, 0), 0.25, "random")
    assert len(pairs) == 15
    touched = np.unique(np.concatenate([pairs.must_link.ravel(), pairs.cannot_link.ravel()]))
    assert 0 < touched.size < 60
    # Without weight, each point goes to its centroid of k-means, which has converged.
    free = Method("f", "pckmeans", {"init": "kmeans"}, weight=0.0)
    scores = fit_method(free, points, PER_POINT, 0.25, run=0).scores
    entropy = draw_run(drawn, PER_POINT, 0).seed.entropy
    seed = int(np.random.SeedSequence(entropy).spawn(4)[3].generate_state(1)[0])
    centroids = kmeans_centroids(drawn.values, drawn.n_classes, np.random.default_rng(seed))
    labels = squared_distances(drawn.values, centroids).argmin(axis=1)
    others = np.setdiff1d(np.arange(60), touched)
    for name, rows in (("ari_constrained", touched), ("ari_untouched", others)):
        assert scores[name] == pytest.approx(adjusted_rand(drawn.labels[rows], labels[rows]))
    assert "ari_constrained" not in fit_method(free, points, PER_POINT, 0, run=0).scores
    assert {"ari", "ari_constrained", "ari_untouched"} <= set(fit.scores)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_calibrated_weights_equal_the_weights_of_the_problem(noise):
    problem = as_problem(
        "estep(data=iris, standardise=true, constraints=none, constraints_per_point=2, "
        f"noise={noise}, weight=calibrated, weight_factor=3)"
    )
    protocol = Protocol(unit="share-of-points", noise=noise)
    points = load_points("iris, standardised, n=200")
    hard = Method("m", "pckmeans", weight="calibrated", weight_factor=3.0)
    assert fit_method(hard, points, protocol, 2, 0).weight == pytest.approx(problem.info["weight"])
    soft = Method("s", "gaussian-mixture", {"e_step": "mean-field"}, weight="log-odds")
    odds = np.log((300 * (1 - noise) + 0.5) / (300 * noise + 0.5))
    assert fit_method(soft, points, protocol, 2, 0).weight == pytest.approx(odds)


def test_definitions_on_the_page_about_studies_can_be_read(tmp_path):
    page = (ROOT / "docs" / "howto" / "own-study.md").read_text()
    grid, design, asked, method = re.findall(r"```toml\n(.*?)```", page, re.S)
    path = tmp_path / "study.toml"
    path.write_text(grid.split("[labels]")[0] + design + asked)
    problems = load_study(path).all_problems()
    assert len(problems) == 6 + 40 and problems[-1].startswith("estep(data=")
    head = 'title = "t"\nquestion = "q"\ndata = ["wine, standardised, n=100"]\n'
    path.write_text(head + "constraints = [1]\nruns = 1\n" + method)
    assert len(load_study(path).methods) == 6


# On the worker that renders them, because reading the records takes seconds.
@pytest.mark.xdist_group("test_solver_studies")
def test_note_on_the_pilots_follows_from_the_records():
    study, comparison = recorded("estep-regimes")
    (note,) = [note for note in study.notes if note.startswith("Pilots")]
    easy = [
        record.status == "optimal"
        for record in comparison.records
        if record.solver == "lp-relaxation"
        and record.problem_info["centroids"] in ("kmeans", "em")
        and record.problem_info["weight_factor"] == 1.0
        and record.problem_info["constraints_per_point"] <= 2.0
    ]
    assert f"but for one: {sum(easy)} of {len(easy)} problems" in note
    assert sum(easy) == len(easy) - 1
    figures = evidence()
    right = [figures["predictors"][name] for name in ("constraints_noise", "frustration")]
    assert re.findall(r"(\d+) %", note) == [f"{100 * share:.0f}" for share in right]
    assert figures["study"] == "estep-regimes"
