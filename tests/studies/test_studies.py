"""Studies: definitions, draws, records that resume, and reports made from records alone."""

from __future__ import annotations

import csv
import itertools
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rendered import REPORTS, rendered
from sklearn.cluster import KMeans

import inference_lab as il
from inference_lab.cli import main
from inference_lab.clustering import PCKMeans
from inference_lab.processes.isolation import can_isolate
from inference_lab.results.clustering_records import FitStore, environments
from inference_lab.results.scoring import adjusted_rand
from inference_lab.studies import (
    Study,
    StudyError,
    fit_campaign,
    load_study,
    render_study,
    run_study,
)
from inference_lab.studies.clustering_study import Method, Protocol
from inference_lab.studies.fit_campaign import cells
from inference_lab.studies.learning_curves import curve_panels, mean_of, paired
from inference_lab.studies.methods import (
    draw_constraints,
    draw_run,
    draw_seeds,
    fit_method,
    nested_pairs,
)
from inference_lab.studies.study_points import (
    StudyPoints,
    known_points,
    load_points,
    split_name,
)

STUDIES = sorted(
    path.parent.name for path in REPORTS.glob("*/study.toml") if isinstance(load_study(path), Study)
)

SMALL = """
title = "A small study"
question = "Does it run?"
data = ["iris"]
constraints = [5, 20]
runs = 2
scores = ["pairwise_f", "nmi"]
baseline = "PCKMeans"
answer = "It does."
notes = ["Iris only."]

[[contrasts]]
name = "with pairs"
metric = "nmi"
solver = "PCKMeans"
baseline = "without"
draw = "run"
primary = true
margin = 0.005

[protocol]
train = 0.5
scored = "held-out"

[[methods]]
label = "PCKMeans"
estimator = "pckmeans"

[[methods]]
label = "without"
estimator = "pckmeans"
settings = { init = "perturbed" }
weight = 0

[[published]]
data = "iris"
method = "PCKMeans"
constraints = 20
score = "nmi"
value = 0.875
source = "nowhere"

[quick]
constraints = [5]
runs = 1
methods = ["without"]
"""

PARTED = """
title = "Two parts"
question = "Do they stay apart?"
runs = 2
constraints = [5, 10]
scores = ["accuracy"]

[[methods]]
label = "PCKMeans"
estimator = "pckmeans"

[quick]
runs = 1

[[parts]]
title = "As it is"
data = ["iris"]

[[parts]]
title = "Half of it wrong"
data = ["iris"]
constraints = [10]
protocol = { noise = 0.5 }
quick = { constraints = [10] }

[[parts.published]]
data = "iris"
method = "PCKMeans"
constraints = 10
score = "accuracy"
value = 0.25
source = "nowhere"
"""


SUMMED = """
title = "SummaryMeans up"
question = "How much is it in all?"
runs = 2
constraints = [5, 10]
scores = ["accuracy", "clusters"]
details = false
data = ["iris", "lange-toy"]

[[methods]]
label = "PCKMeans"
estimator = "pckmeans"

[[methods]]
label = "without"
estimator = "pckmeans"
weight = 0

[[parts]]
title = "never"
constraints = [0]
only = ["without"]

[[parts]]
title = "right"
only = ["PCKMeans"]

[[parts]]
title = "wrong"
data = ["iris, k+1", "lange-toy"]
only = ["PCKMeans"]
protocol = { noise = 0.4 }

[[summaries]]
title = "By data"
parts = ["right", "wrong"]
by = "data"
constant = "never"
baseline = "without"
picture = true
source = "nowhere"
published = { PCKMeans = { mean = [0.75] }, elsewhere = { iris = [0.5, 3] } }

[[summaries]]
title = "By part"
parts = ["right", "wrong"]
by = "part"
constraints = [10]

[[summaries]]
title = "Costs"
parts = ["right"]
by = "data"
scores = ["objective", "e_step_seconds"]
"""


def write(folder, text=SMALL):
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder


def table(path):
    """Return the rows of a CSV file as mappings."""
    return list(csv.DictReader(path.read_text().splitlines()))


def essence(records):
    """Return everything that must not depend on when and where a study is run."""
    return {r.key: (r.status, r.scores, r.objective, r.violated, r.iterations) for r in records}


# ---------------------------------------------------------------------- definitions


def test_a_definition_is_read(tmp_path):
    study = load_study(write(tmp_path / "small"))
    assert (study.name, study.runs, study.constraints) == ("small", 2, [5.0, 20.0])
    assert study.protocol == Protocol(train=0.5, scored="held-out")
    assert study.methods[1] == Method("without", "pckmeans", {"init": "perturbed"}, weight=0.0)
    quick = study.quickly()
    assert (quick.runs, [m.label for m in quick.methods], quick.baseline) == (1, ["without"], None)


#: Definitions, and for each of them replacements that make it wrong, with the message.
WRONG = {
    SMALL: [
        ("runs = 2", "runs = 0", "`int` >= 1 - at `$.runs`"),
        ("runs = 2", 'runs = "2"', "Expected `int`, got `str` - at `$.runs`"),
        ("runs = 2", "runs = 2\ntime_limit = 0", "`float` > 0.0 - at `$.time_limit`"),
        ("runs = 2", "run = 2", "unknown field `run`"),
        ("runs = 2", 'runs = 2\nname = "x"', "name is unknown"),
        ("[5, 20]", "[5, -20]", "`float` >= 0.0 - at `$.constraints[1]`"),
        ("[5, 20]", "[]", "constraints must not be empty"),
        ('["iris"]', '"iris"', "Expected `array`, got `str` - at `$.data`"),
        ('"nmi"]', '"purity"]', "score 'purity' is unknown; allowed: pairwise_f"),
        ('baseline = "PCKMeans"', 'baseline = "x"', "baseline 'x' is not the label of a method"),
        ("train = 0.5", "train = 1.5", "`float` <= 1.0 - at `$.protocol.train`"),
        ("train = 0.5", "train = 1.0", "'held-out' needs protocol.train below 1"),
        ('label = "without"', 'label = "PCKMeans"', "two methods are labelled 'PCKMeans'"),
        ('"pckmeans"', '"kmeans"', "method 'PCKMeans': estimator 'kmeans' is unknown; allowed: "),
        ("weight = 0", 'closure = "some"', "Invalid enum value 'some' - at `$.methods[1].closure`"),
        ("weight = 0", "weight = [1, false]", "`$.methods[1].weight[1]`"),
        ("weight = 0", 'selection = "seeds"', "'share-seeded' go with each other only"),
        ("weight = 0", "seeded_classes = 0", "`float` > 0.0 - at `$.methods[1].seeded_classes`"),
        ('source = "nowhere"', "", "missing required field `source` - at `$.published[0]`"),
        ('methods = ["without"]', 'methods = ["x"]', "quick.methods: no method has the label 'x'"),
        ('methods = ["without"]', "seeds = 3", "unknown field `seeds` - at `$.quick`"),
        ("constraints = [5]", "constraints = 5", "got `int` - at `$.quick.constraints`"),
        ('baseline = "without"', 'baseline = "w"', "contrasts[0]: baseline 'w' is none of the"),
        ("title =", "title", "study.toml: Expected '='"),
    ],
    PARTED: [
        ('data = ["iris"]', "data = []", "part 'As it is': data must not be empty"),
        ("Half of it wrong", "As it is", "two parts are called 'As it is'"),
        ("noise = 0.5", "noise = 5", "`float` <= 1.0 - at `$.parts[1].protocol.noise`"),
        ("constraints = [10]", "levels = [10]", "unknown field `levels` - at `$.parts[1]`"),
        ("quick = { constraints = [10] }", "quick = { x = 1 }", "`x` - at `$.parts[1].quick`"),
    ],
    SUMMED: [
        ('parts = ["right", "wrong"]\nby = "data"', 'parts = []\nby = "data"', "length >= 1"),
        ('constant = "never"', 'constant = "ever"', "'ever' is not the title of a part"),
        ('baseline = "without"', 'baseline = "with"', "'with' is the label of no method"),
        ("constraints = [10]", "constraints = [20]", "part 'right' has no constraints = 20"),
        ('by = "part"', 'by = "part"\nscores = ["nmi"]', "'nmi' is not a score of the study"),
        ('by = "part"', 'by = "part"\ndata = ["wine"]', "none of its parts has data 'wine'"),
        ("mean = [0.75]", "mean = 0.75", "Expected `array`, got `float` - at `$.summaries"),
        ('only = ["without"]', 'only = ["x"]', "only names 'x', which is not the label"),
        ("details = false", "details = 0", "Expected `bool`, got `int`"),
    ],
}


@pytest.mark.parametrize(
    ("text", "old", "new", "message"), [(text, *row) for text in WRONG for row in WRONG[text]]
)
def test_errors_in_definitions_are_named(tmp_path, text, old, new, message):
    assert old in text
    folder = write(tmp_path / "wrong", text.replace(old, new, 1))
    with pytest.raises(StudyError, match=re.escape(message)) as caught:
        load_study(folder)
    assert "study.toml" in str(caught.value)


def test_a_missing_definition_is_an_error(tmp_path):
    with pytest.raises(StudyError, match=r"study\.toml"):
        load_study(tmp_path)


def test_parts_inherit_and_override_settings(tmp_path):
    study = load_study(write(tmp_path / "parted", PARTED))
    first, second = study.stages()
    assert (first.constraints, second.constraints) == ([5.0, 10.0], [10.0])
    assert (first.protocol.noise, second.protocol.noise) == (0.0, 0.5)
    assert [len(stage.methods) for stage in (first, second)] == [1, 1]
    assert ([p.value for p in first.published], [p.value for p in second.published]) == ([], [0.25])
    assert len(cells(study)) == 2 * 2 + 2
    quick = study.quickly()
    assert [stage.runs for stage in quick.stages()] == [1, 1]
    assert len(cells(quick)) == 3


def test_the_key_of_a_method_is_its_settings_and_not_its_label():
    method = Method("a", "pckmeans", {"n_init": 2}, weight=[1.0, math.inf])
    assert method.key == replace(method, label="b").key
    others = [
        replace(method, settings={"n_init": 3}),
        replace(method, weight=1.0),
        replace(method, selection="active"),
        replace(method, closure="vote"),
        replace(method, estimator="hmrf-kmeans"),
    ]
    assert len({m.key for m in (method, *others)}) == 6


# ---------------------------------------------------------------------- draws


@pytest.mark.parametrize("n", [2, 3, 10, 4000])
def test_pairs_are_distinct_and_nested(n):
    total = n * (n - 1) // 2
    counts = sorted({min(c, total) for c in (1, 2, 50, 3000)})
    drawn = [nested_pairs(n, c, np.random.default_rng(3)) for c in counts]
    for shorter, longer in itertools.pairwise(drawn):
        assert (longer[: len(shorter)] == shorter).all()
    last = drawn[-1]
    assert last.shape == (counts[-1], 2)
    assert (0 <= last[:, 0]).all() and (last[:, 0] < last[:, 1]).all() and (last[:, 1] < n).all()
    assert len(np.unique(last, axis=0)) == len(last)


def test_all_pairs_are_equally_likely():
    """A chi-squared test over the 45 pairs of 10 points, at a level of one in a million."""
    from scipy.stats import chi2

    counts = np.zeros((10, 10))
    for seed in range(600):
        pairs = nested_pairs(10, 15, np.random.default_rng(seed))
        counts[pairs[:, 0], pairs[:, 1]] += 1
    seen = counts[np.triu_indices(10, 1)]
    assert seen.sum() == 600 * 15
    assert ((seen - 200) ** 2 / 200).sum() < chi2.ppf(1 - 1e-6, 44)


@pytest.mark.parametrize("selection", ["random", "active", "explore"])
@pytest.mark.parametrize("data", ["iris", "lange-toy"])
def test_no_held_out_point_is_in_any_constraint(data, selection):
    """Constraints are not wrong either, and closing them touches no other points."""
    points = load_points(data)
    protocol = Protocol(train=0.5, scored="held-out")
    for run in range(5):
        draw = draw_run(points, protocol, run)
        assert np.intersect1d(draw.training, draw.scored).size == 0
        assert draw.training.size + draw.scored.size == len(points.labels)
        drawn = draw_constraints(points, protocol, draw, 150.0, selection)
        for constraints in (drawn, drawn.close("raise")):
            touched = np.concatenate(
                [constraints.must_link.ravel(), constraints.cannot_link.ravel()]
            )
            assert touched.size > 100
            assert np.isin(touched, draw.training).all()
            ml, cl = constraints.must_link, constraints.cannot_link
            assert (points.labels[ml[:, 0]] == points.labels[ml[:, 1]]).all()
            assert (points.labels[cl[:, 0]] != points.labels[cl[:, 1]]).all()


def test_more_constraints_contain_the_fewer_and_runs_differ():
    points, protocol = load_points("iris"), Protocol(train=0.5)

    def pairs(run, count, selection="random"):
        drawn = draw_constraints(
            points, protocol, draw_run(points, protocol, run), count, selection
        )
        kinds = (("ml", drawn.must_link), ("cl", drawn.cannot_link))
        return {(kind, *map(int, pair)) for kind, links in kinds for pair in links}

    assert pairs(0, 10.0) < pairs(0, 40.0) < pairs(0, 200.0)
    assert len(pairs(0, 200.0)) == 200
    assert pairs(0, 40.0, "active") <= pairs(0, 80.0, "active")
    assert pairs(0, 40.0) != pairs(1, 40.0)


def test_explore_alone_asks_about_the_farthest_point_as_long_as_it_may():
    """It queries as explore does while clusters are missing, then continues in the same way."""
    points, protocol = load_points("lange-toy"), Protocol()
    draw = draw_run(points, protocol, 0)

    def pairs(count, selection):
        drawn = draw_constraints(points, protocol, draw, count, selection)
        return {*map(tuple, drawn.must_link.tolist()), *map(tuple, drawn.cannot_link.tolist())}

    assert pairs(1.0, "explore") == pairs(1.0, "active")
    alone, both = pairs(60.0, "explore"), pairs(60.0, "active")
    # After one negative answer of two, consolidate needs no second query; explore alone makes it.
    assert len(alone) == 60 < len(both)


def test_units_of_the_number_of_constraints():
    assert Protocol().count(40.4, 100, 100) == 40
    assert Protocol(unit="share-of-points").count(0.3, 200, 100) == 60
    assert Protocol().count(1e9, 200, 10) == 45


def test_noise_turns_just_that_share():
    points = load_points("iris")
    clean, noisy = Protocol(), Protocol(noise=0.2)
    draw = draw_run(points, clean, 0)
    first = draw_constraints(points, clean, draw, 100.0, "random")
    second = draw_constraints(points, noisy, draw, 100.0, "random")

    def of(c):
        return {tuple(p) for p in c.must_link.tolist()}, {tuple(p) for p in c.cannot_link.tolist()}

    (ml, cl), (noisy_ml, noisy_cl) = of(first), of(second)
    assert ml | cl == noisy_ml | noisy_cl
    assert len(ml & noisy_cl) + len(cl & noisy_ml) == 20


def test_best_of_several_weights_is_taken():
    points = load_points("lange-toy")
    protocol = Protocol(unit="share-of-points")
    weights = [1.0, 30.0, 4000.0]
    alone = [
        fit_method(Method("x", "pckmeans", weight=w), points, protocol, 0.3, 1) for w in weights
    ]
    best = fit_method(Method("x", "pckmeans", weight=weights), points, protocol, 0.3, 1)
    assert best.scores["pairwise_f"] == max(fit.scores["pairwise_f"] for fit in alone)
    assert best.weight in weights


def test_scores_are_of_the_held_out_points_only():
    """Points of class 1 are separated by position; the scored ones are all of class 0 or 1."""
    points = load_points("iris")
    protocol = Protocol(train=0.5, scored="held-out")
    from inference_lab.results.scoring import nmi

    fit = fit_method(Method("x", "pckmeans"), points, protocol, 20.0, 0)
    draw = draw_run(points, protocol, 0)
    constraints = draw_constraints(points, protocol, draw, 20.0, "random")
    seed = int(np.random.SeedSequence(draw.seed.entropy).spawn(4)[3].generate_state(1)[0])
    model = PCKMeans(3, init="neighbourhoods", random_state=seed).fit(
        points.values, **constraints.fit_params(), ml_weight=1.0, cl_weight=1.0
    )
    scored = draw.scored
    assert fit.scores["nmi"] == nmi(points.labels[scored], model.labels_[scored])
    assert fit.objective == model.objective_


def test_a_table_for_the_metric_is_a_gradient_step():
    points = load_points("iris")
    protocol = Protocol()

    def objective(**step):
        method = Method("x", "hmrf-kmeans", {"metric": step, "max_iter": 5} if step else {})
        return fit_method(method, points, protocol, 20.0, 0).objective

    assert objective(rate=1e-3) < objective(rate=1e-12)
    with pytest.raises(ValueError, match="rate must be finite and above 0"):
        objective(rate=-1.0)


def test_summaries_are_means_of_the_records(tmp_path, unforked):
    """Means are over parts, data, numbers of constraints and runs, with one part for all."""
    study = load_study(write(tmp_path / "summed", SUMMED))
    records = run_study(study, tmp_path / "summed")
    text = render_study(study, records, tmp_path / "summed").read_text()

    def scores(method, data, noise=None, min_constraints=0.0, score="accuracy"):
        values = [
            r.scores[score]
            for r in records
            if r.method == method
            and r.data in data
            and r.noise in ((0.0, 0.4) if noise is None else (noise,))
            and r.constraints >= min_constraints
        ]
        return np.array(values)

    iris, toy = ("iris", "iris, k+1"), ("lange-toy",)
    rows = {
        (caption, line.split("|")[1].strip()): [cell.strip() for cell in line.split("|")[2:-1]]
        for caption, block in re.findall(r"</a>(.*?) \(\[CSV\](.*?)(?=<a id|\Z)", text, re.S)
        for line in block.splitlines()
        if line.startswith("|")
    }
    cells = rows["By data: mean accuracy.", "PCKMeans"]
    assert cells[0].startswith(f"{scores('PCKMeans', iris).mean():.2f} ± ")
    both = [scores("PCKMeans", data).mean() for data in (iris, toy)]
    assert cells[2].startswith(f"{np.mean(both):.2f} ± ") and cells[2].endswith("(0.75)")
    assert rows["By data: mean accuracy.", "elsewhere"] == ["- (0.50)", "-", "-"]
    assert rows["By data: mean number of clusters.", "elsewhere"][0] == "- (3.00)"
    alone = [scores("without", data).mean() for data in (iris, toy)]
    assert rows["By data: mean accuracy.", "without"][2].startswith(f"{np.mean(alone):.2f} ± ")
    less = rows["By data: accuracy less that of without, paired by run.", "PCKMeans"]
    assert less[1].startswith(f"{both[1] - alone[1]:+.2f} ± ")
    wins = sum(b > a for b, a in zip(both, alone, strict=True))
    assert less[2].startswith(f"{np.mean(both) - np.mean(alone):+.2f} ± ")
    assert less[2].endswith(f"({wins}/2)")
    parts = rows["By part: mean number of clusters.", "PCKMeans"]
    wrong = [scores("PCKMeans", data, 0.4, 10, "clusters").mean() for data in (iris, toy)]
    assert parts[1].startswith(f"{np.mean(wrong):.2f} ± ") and np.mean(wrong) == 3.0
    iris_costs = [r.objective for r in records if r.data == "iris" and r.method == "PCKMeans"]
    cost = rows["Costs: mean objective.", "PCKMeans"][0]
    assert cost.startswith(f"{np.mean(iris_costs):.3g} ± ")
    assert "Costs: mean seconds of E-steps." in text
    assert "figures/by-data-accuracy.svg" in text and "## right" not in text
    assert "Published figures: nowhere." in text


def test_times_have_a_logarithmic_axis():
    means = [("", "A", column, mean_of([0.1, 30.0])) for column in "12"]
    charts = {score: curve_panels(means, score).to_dict() for score in ("nmi", "seconds")}
    scales = {s: c["layer"][1]["encoding"]["y"]["scale"]["type"] for s, c in charts.items()}
    assert scales == {"nmi": "linear", "seconds": "log"}


def test_ordered_pairs_are_nested_and_wrong_at_random():
    points = load_points("iris")
    n = len(points.labels)

    def pairs(share, noise=0.0):
        protocol = Protocol(noise=noise, unit="share-of-ordered-pairs")
        c = draw_constraints(points, protocol, draw_run(points, protocol, 0), share, "random")
        kinds = ((True, c.must_link), (False, c.cannot_link))
        return {tuple(pair): kind for kind, links in kinds for pair in links.tolist()}

    few, many = pairs(0.01), pairs(0.05)
    assert few.items() <= many.items()
    # Of 1125 ordered pairs some are one pair both ways.
    assert 0.97 * 0.05 * n * n < len(many) < 0.05 * n * n
    assert all((points.labels[a] == points.labels[b]) == kind for (a, b), kind in many.items())
    noisy = pairs(0.05, 0.2)
    assert noisy.keys() == many.keys()
    changed = np.mean([noisy[pair] != many[pair] for pair in many])
    assert changed == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / len(many)))


def test_seeds_are_nested_and_wrong_at_random():
    """More seeds come from more points, or more classes; wrong ones have another class's label."""
    points = load_points("digits-389")
    protocol = Protocol(train=0.9, scored="held-out", unit="share-seeded", noise=0.3)
    draw = draw_run(points, protocol, 0)
    few, many, every = (
        draw_seeds(points, protocol, draw, *shares) for shares in ((0.3, 0.6), (0.8, 0.6), (0.8, 1))
    )
    assert (every >= 0).sum() == round(0.8 * len(draw.training))
    assert set(np.flatnonzero(every >= 0)) <= set(draw.training)
    for fewer, more in ((few, many), (many, every)):
        seeds = fewer >= 0
        assert (fewer[seeds] == more[seeds]).all() and (more >= 0).sum() > seeds.sum()
    assert np.unique(points.labels[many >= 0]).size == 2
    seeds = every >= 0
    assert set(every[seeds]) == {0, 1, 2}
    assert 0.2 < (every != points.labels)[seeds].mean() < 0.4
    right = draw_seeds(points, replace(protocol, noise=0.0), draw, 0.8, 1)
    assert (right[seeds] == points.labels[seeds]).all()
    # The fit receives these seeds.
    outcomes = {}
    for estimator in ("constrained-kmeans", "cop-kmeans"):
        method = Method(estimator, estimator, selection="seeds")
        outcomes[estimator] = fit_method(method, points, replace(protocol, noise=0.0), 0.5, 0)
        assert outcomes[estimator].scores["ari"] > 0.5 and outcomes[estimator].violated == 0.0
    assert Method("Seeds", "seeded-kmeans", seeded_classes=0.5).key != (
        Method("Seeds", "seeded-kmeans").key
    )


def test_weights_on_the_scale_of_the_data_and_given_numbers_of_clusters():
    points, protocol = load_points("iris"), Protocol()
    fit = fit_method(Method("x", "pckmeans", weight="variance"), points, protocol, 20.0, 0)
    assert fit.weight == pytest.approx(np.var(points.values, axis=0).sum())
    auto = fit_method(Method("x", "pckmeans", weight="auto"), points, protocol, 20.0, 0)
    pairs = draw_constraints(points, protocol, draw_run(points, protocol, 0), 20.0, "random")
    seed = int(np.random.SeedSequence([0, points.key]).spawn(4)[3].generate_state(1)[0])
    outcomes = pairs.fit_params() | {"ml_weight": "auto", "cl_weight": "auto"}
    used = PCKMeans(3, random_state=seed).fit(points.values, **outcomes).constraints_
    assert auto.weight == np.concatenate([used.ml_weights, used.cl_weights]).mean() != 1.0
    outcomes = load_points("iris, k-1")
    assert outcomes.key == points.key and outcomes.n_classes == 2
    assert fit_method(Method("x", "pckmeans"), outcomes, protocol, 5.0, 0).scores["clusters"] == 2
    five = Method("x", "pckmeans", {"n_clusters": 5})
    assert fit_method(five, points, protocol, 5.0, 0).scores["clusters"] == 5
    with pytest.raises(StudyError, match="none would be left"):
        load_points("iris, k-3")


# ---------------------------------------------------------------------- points


def test_points_have_names_and_unknown_ones_are_refused():
    with pytest.raises(StudyError, match="data 'irises' are unknown; allowed: iris"):
        load_points("irises")
    assert {"iris", "news-similar-3", "classic3-subset-counts", "k1a-lsi20"} <= set(known_points())
    keys = {StudyPoints(name, None, np.zeros(1, dtype=np.int64)).key for name in known_points()}
    assert len(keys) == len(known_points())


def test_forms_of_texts(data_dir):
    weights = load_points("news-similar-3", data_dir)
    counts = load_points("news-similar-3-counts", data_dir)
    lsi = load_points("news-similar-3-lsi20", data_dir)
    assert (weights.distortion, counts.distortion, lsi.distortion) == ("cosine", "kl", "euclidean")
    assert weights.values.shape == counts.values.shape == (300, 1095)
    assert lsi.values.shape == (300, 20)
    wide = load_points("news-similar-3-wide", data_dir)
    assert wide.distortion == "cosine" and wide.values.shape == (300, 3454)
    assert np.diff(wide.values.tocsc().indptr).min() == 2
    assert (counts.values.data == np.round(counts.values.data)).all()
    assert (weights.labels == lsi.labels).all() and weights.n_classes == 3
    tenth = load_points("letters-ijl-tenth", data_dir)
    assert tenth.values.shape == (226, 16)
    assert (tenth.values == load_points("letters-ijl-tenth", data_dir).values).all()


# ---------------------------------------------------------------------- running


def ends(events):
    """Return a progress callable that records reported ends."""
    return lambda event: event.record is not None and events.append(event)


def test_records_resume_and_are_the_same_each_time(tmp_path, unforked):
    study = load_study(write(tmp_path / "small"))
    whole = run_study(study, tmp_path / "one")
    assert len(whole) == 1 * 2 * 2 * 2 == len(cells(study))
    assert all(r.status == "ok" for r in whole)
    assert {r.environment for r in whole} == set(environments(tmp_path / "one"))

    events = []

    class Enough(Exception):
        pass

    def stop_after_three(event):
        ends(events)(event)
        if len(events) == 3:
            raise Enough

    with pytest.raises(Enough):
        run_study(study, tmp_path / "two", progress=stop_after_three)
    first = {event.record.key for event in events}
    store = tmp_path / "two" / "records.jsonl"
    odd = store.read_bytes().splitlines(keepends=True)[0].replace(b'"ok"', b'"well"')
    with store.open("ab") as file:
        file.write(odd + b'{"schema": 1, "study": "sm')  # killed while writing
    events.clear()
    with pytest.warns(UserWarning, match=r"`\$.status`|cut off"):
        again = run_study(study, tmp_path / "two", progress=ends(events))
    assert len(events) == 5 and not first & {event.record.key for event in events}
    assert (events[-1].done, events[-1].total, events[-1].failed) == (8, 8, 0)
    assert essence(again) == essence(whole)
    assert [r.key for r in again] == [r.key for r in whole]
    events.clear()
    # Another label does not repeat a run, but another weight does.
    relabelled = replace(study, methods=[replace(study.methods[0], label="x"), study.methods[1]])
    heavier = replace(study, methods=[replace(study.methods[0], weight=2.0), study.methods[1]])
    for other, fitted in ((relabelled, 0), (heavier, 4)):
        with pytest.warns(UserWarning, match="left out"):
            run_study(other, tmp_path / "two", progress=ends(events))
        assert len(events) == fitted


def test_workers_give_the_same_records(tmp_path):
    study = load_study(write(tmp_path / "small")).quickly()
    alone = run_study(study, tmp_path / "one")
    assert essence(run_study(study, tmp_path / "two", jobs=2)) == essence(alone)
    assert essence(run_study(study, tmp_path / "three", isolate=False)) == essence(alone)


def test_merged_shards_equal_one_call(tmp_path, unforked):
    """Shards on the command line agree as well."""

    def call(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    folder = write(tmp_path / "small")
    whole = run_study(load_study(folder), tmp_path / "whole")
    parts = [tmp_path / "part1", tmp_path / "part2"]
    for number, part in enumerate(parts, start=1):
        shard = ("--shard", f"{number}/2", "--out", part)
        done = call("reproduce", folder, "--quiet", *shard)
        assert done.exit_code == 0, done.output
        assert len(FitStore(part / "records.jsonl").read()) == 4
    target = tmp_path / "all"
    (parts[1] / "environments.json").write_text('{"elsewhere": {"cpu_count": 4}}')
    for added in (8, 0):
        done = call("merge", *parts, "--out", target)
        assert done.exit_code == 0 and done.stdout.startswith(f"{added} records added")
    assert set(environments(target)) == {"elsewhere", whole[0].environment}
    events = []
    merged = run_study(load_study(folder), target, progress=ends(events))
    assert essence(merged) == essence(whole) and events == []
    # Comparisons of runs and of fits are not combined.
    assert "reproduce STUDY --render" in call("report", target).output
    il.compare("potts-grid(height=2, width=2)", "icm", store=tmp_path / "runs" / "runs.jsonl")
    done = call("merge", target, tmp_path / "runs", "--out", tmp_path / "both")
    assert done.exit_code == 2 and "something else" in done.output


HOSTILE = """
import os, signal, time
from dataclasses import dataclass
import numpy as np
from inference_lab.contract import Outcome, Solver

@dataclass(frozen=True)
class Hostile(Solver):
    how: str

    def run(self, graph, run):
        if self.how == "hangs":
            time.sleep(600)
        if self.how == "eats":
            np.ones(1 << 28)
        if self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(converged=True)
"""


@pytest.mark.skipif(not can_isolate(), reason="this system cannot fork")
def test_fits_that_hang_die_or_eat_memory_are_records_and_the_others_go_on(tmp_path, undrawn):
    (tmp_path / "hostile.py").write_text(HOSTILE)
    ways = {"hangs": "timeout", "dies": "crash", "eats": "memory", "works": "ok"}
    methods = [
        Method(how, "pckmeans", {"e_step": f"{tmp_path}/hostile.py:Hostile(how={how})"})
        for how in ways
    ]
    study = replace(load_study(write(tmp_path / "small")), methods=methods, baseline=None)
    study = replace(study, constraints=[5.0], runs=1, time_limit=1.0)
    records = run_study(study, tmp_path, memory_limit=1 << 30)
    assert {r.method: r.status for r in records} == ways
    for record in records:
        assert record.exit_code == {"dies": -9, "hangs": -15}.get(record.method, 0)
        assert (record.memory_limit, record.time_limit) == (1 << 30, 1.0)
        assert record.wall_seconds > 0 and record.peak_memory > 0
    page = render_study(study, records, tmp_path).read_text()
    assert "3 of 4 fits failed" in page and "killed by SIGKILL" in page
    for rerun, again in (("timeout", {"hangs"}), ("failed", set(ways) - {"works"})):
        events = []
        run_study(study, tmp_path, rerun=rerun, memory_limit=1 << 30, progress=ends(events))
        assert {event.solver for event in events} == again


def test_failures_are_recorded_shown_and_run_again(tmp_path, undrawn, unforked):
    text = SMALL.replace("settings = {", "settings = { n_init = 0,")
    study = load_study(write(tmp_path / "small", text))
    records = run_study(study, tmp_path)
    failed = [r for r in records if r.status == "error"]
    assert len(failed) == 4 and {r.method for r in failed} == {"without"}
    assert "n_init" in failed[0].message and "ValueError" in failed[0].message
    page = render_study(study, records, tmp_path).read_text()
    assert "4 of 8 fits failed: without on iris: ValueError" in page
    events = []
    run_study(study, tmp_path, progress=ends(events))
    assert len(events) == 0
    run_study(study, tmp_path, rerun="failed", progress=ends(events))
    assert len(events) == 4


# ---------------------------------------------------------------------- reports


def test_a_violated_hard_constraint_makes_the_mean_weight_infinite(tmp_path, undrawn, unforked):
    study = load_study(write(tmp_path / "small"))
    first, *others = run_study(study, tmp_path)
    render_study(study, [replace(first, violated=math.inf), *others], tmp_path)
    shown = {
        row["method"]: row["violated weight (mean)"]
        for row in table(tmp_path / "tables/effort.csv")
    }
    assert [method for method, weight in shown.items() if weight == "inf"] == [first.method]


def test_statistics_of_runs_by_hand():
    mean = mean_of([1.0, 2.0, 3.0, 4.0])
    assert mean.value == 2.5
    assert mean.half == pytest.approx(3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2, rel=1e-6)
    assert math.isnan(mean_of([]).value) and math.isnan(mean_of([1.0]).half)
    same = paired([0.5, 0.25], [0.5, 0.25])
    assert (same.value, same.p_value) == (0.0, 1.0)
    # All of six differences above zero: one sign pattern of 64 on either side.
    better = paired([2.0, 3.0, 4.0, 5.0, 6.0, 7.5], [1.0, 1.5, 1.75, 2.0, 2.25, 2.5])
    assert better.p_value == pytest.approx(2 / 64)


def test_a_report_comes_from_the_records_alone(tmp_path, unforked):
    """Rendering fits and loads nothing, and is reproducible byte for byte."""
    study = load_study(write(tmp_path / "small"))
    records = run_study(study, tmp_path / "small")
    page = render_study(study, records, tmp_path / "small")
    files = ["README.md", "figures/nmi.svg", "figures/pairwise-f.svg"]
    first = {name: (tmp_path / "small" / name).read_bytes() for name in files}
    blind = run_study(study, tmp_path / "small", jobs=0, data_dir=str(tmp_path / "none"))
    render_study(study, blind, tmp_path / "small")
    assert {name: (tmp_path / "small" / name).read_bytes() for name in files} == first

    text = page.read_text()
    assert text.startswith("# A small study\n\n**Question.** Does it run?\n\n**Answer.** It does.")
    nmi_values = [
        r.scores["nmi"] for r in records if r.method == "PCKMeans" and r.constraints == 20
    ]
    cell = f"{np.mean(nmi_values):.3f}"
    row = next(
        line for line in text.splitlines() if line.startswith("| PCKMeans |") and "(0" in line
    )
    assert row.rstrip(" |").endswith("(0.875)") and f" {cell} ± " in row
    assert "Published figures: nowhere." in text and "\n- Iris only.\n" in text
    (asked,) = table(tmp_path / "small" / "tables" / "contrasts.csv")
    gains = [
        pair["PCKMeans"] - pair["without"]
        for pair in (
            {r.method: r.scores["nmi"] for r in records if (r.constraints, r.run) == place}
            for place in itertools.product((5.0, 20.0), (0, 1))
        )
    ]
    assert float(asked["gain"]) == pytest.approx(sum(gains) / 4)
    assert (asked["sets above"], asked["draws"]) == (f"{int(sum(gains) > 0)}", "2")
    first, second = table(tmp_path / "small" / "tables" / "nmi-iris.csv")
    assert (first["method"], second["method"]) == ("PCKMeans", "without")
    assert float(first["20"]) == pytest.approx(np.mean(nmi_values), rel=1e-11)


def test_parts_have_sections_figures_and_published_values_of_their_own(tmp_path, undrawn, unforked):
    study = load_study(write(tmp_path / "parted", PARTED))
    records = run_study(study, tmp_path / "parted")
    assert len(records) == 6
    text = render_study(study, records, tmp_path / "parted").read_text()
    first, second = text.split("## As it is")[1].split("## Half of it wrong")
    assert "(0.250)" not in first and "(0.250)" in second
    assert "50 % of the constraints are turned" in second and "turned" not in first
    assert "not been run" not in text
    # Labels are as in the definition.
    stale = [replace(record, method="an earlier name") for record in records]
    assert render_study(study, stale, tmp_path / "parted").read_text() == text
    figures = sorted(p.name for p in (tmp_path / "parted" / "figures").iterdir())
    # The other has one number of constraints.
    assert figures == ["as-it-is-accuracy.pdf", "as-it-is-accuracy.svg"]
    (row,) = table(tmp_path / "parted" / "tables" / "half-of-it-wrong-accuracy-iris.csv")
    wrong = [r.scores["accuracy"] for r in records if r.noise == 0.5]
    assert float(row["10"]) == pytest.approx(np.mean(wrong), rel=1e-11)


def test_report_counts_missing_fits(tmp_path, undrawn, unforked):
    study = load_study(write(tmp_path / "small"))
    records = run_study(study, tmp_path / "small")[:5]
    text = render_study(study, records, tmp_path / "small").read_text()
    assert "3 of 8 fits have not been run yet." in text


# ---------------------------------------------------------------------- the studies themselves


def shrunk(study):
    """Return the quick form, with one run, few constraints, small data and rapid cooling."""
    small = []
    for stage, part in zip(study.quickly().stages(), study.quickly().parts, strict=True):
        constraints = stage.constraints[:1]
        large = part.title.startswith(("Texture", "News in 20"))
        data = ["lange-toy"] if large else stage.data[:1]
        if study.name == "certified":  # a lower bound of 150 points takes 20 s
            data = ["iris, standardised, n=40"]
        methods = [
            replace(m, settings={**m.settings, "cooling": 0.2}) if "cooling" in m.settings else m
            for m in part.methods
        ]
        changed = {"data": data, "constraints": constraints, "methods": methods, "runs": 1}
        small.append(replace(part, **changed))
    return replace(study.quickly(), parts=small)


@pytest.mark.parametrize("name", [s for s in STUDIES if load_study(REPORTS / s).parts])
def test_studies_run_in_small(name, tmp_path, data_dir, undrawn, monkeypatch):
    study = shrunk(load_study(REPORTS / name))
    # Processes and warm-ups are tested elsewhere.
    monkeypatch.setattr(fit_campaign, "warm_up_apart", lambda *arguments, **settings: None)
    records = run_study(study, tmp_path, data_dir=str(data_dir), isolate=False)
    assert [r.message for r in records if r.status != "ok"] == []
    text = render_study(study, records, tmp_path).read_text()
    for part in study.parts:
        assert f"## {part.title}\n" in text


@pytest.mark.parametrize("name", STUDIES)
def test_definitions_name_data_that_exist(name):
    study = load_study(REPORTS / name)
    for stage in study.stages():
        assert {split_name(name)[0] for name in stage.data} <= set(known_points())
        for shown in stage.published:
            assert shown.data in stage.data
            assert shown.method in {m.label for m in stage.methods}
            assert shown.constraints in stage.constraints
            assert shown.score in stage.scores


@pytest.mark.parametrize("name", [s for s in STUDIES if (REPORTS / s / "README.md").exists()])
def test_reports_are_rendered_from_the_records_beside_them(name, undrawn):
    """The page in the repository follows from the records, and no fit is missing."""
    study = load_study(REPORTS / name)
    _, files = rendered(name)
    page = files["README.md"].decode()
    assert page == (REPORTS / name / "README.md").read_text()
    shown = set(re.findall(r"\(figures/(\S+?)\)", page))
    assert {p.name for p in (REPORTS / name / "figures").glob("*.svg")} == shown
    for path in sorted((REPORTS / name / "tables").iterdir()):
        assert files[f"tables/{path.name}"] == path.read_bytes(), path
    assert study.answer
    assert "have not been run" not in page


def test_reports_stay_small():
    """Records are packed, and files that a command can make are not kept."""
    made = ("*/index.html", "*/figures/*.pdf", "*/tables/*.tex")
    files = [
        path
        for path in REPORTS.rglob("*")
        if path.is_file() and not any(map(path.relative_to(REPORTS).match, made))
    ]
    stores = [path for path in files if "jsonl" in path.name and "plan" not in path.name]
    assert {path.suffix for path in stores} <= {".gz", ".xz"}
    assert not any("<metadata" in p.read_text() for p in files if p.suffix == ".svg")
    # Larger files are compressed more.
    assert all(path.suffix == ".xz" for path in stores if path.stat().st_size > 1_000_000)
    assert sum(path.stat().st_size for path in files) < 12_500_000


def test_methods_named_by_class_have_the_defaults_of_users():
    points, protocol = load_points("iris"), Protocol(unit="share-of-points", noise=0.1)
    draw = draw_run(points, protocol, 0)
    pairs = draw_constraints(points, protocol, draw, 0.5, "random")
    seed = int(np.random.SeedSequence(draw.seed.entropy).spawn(4)[3].generate_state(1)[0])
    direct = PCKMeans(3, random_state=seed).fit(points.values, **pairs.fit_params())
    method = Method(label="default", estimator="PCKMeans", weight="default")
    fit = fit_method(method, points, protocol, 0.5, 0)
    assert fit.scores["ari"] == adjusted_rand(points.labels, direct.labels_)
    assert fit.objective == direct.objective_
    assert fit.weight == pytest.approx(direct.constraints_.ml_weights[0])
    alone = KMeans(3, n_init=10, random_state=seed).fit(points.values)
    method = Method(label="no pairs", estimator="k-means", weight="default")
    fit = fit_method(method, points, protocol, 0.5, 0)
    assert fit.scores["ari"] == adjusted_rand(points.labels, alone.labels_)
