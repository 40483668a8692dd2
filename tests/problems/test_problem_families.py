"""Contract of every classical problem family: names, seeds, pickling, errors, sizes."""

from __future__ import annotations

import pickle
import time
from dataclasses import fields

import numpy as np
import pytest

import inference_lab as il
from inference_lab.problem import Problem
from inference_lab.registry.sources import as_problem, problem_registry
from inference_lab.results.json_lines import jsonable

#: Small problems of every family that need no file; a second seed gives another problem.
SPECS = [
    "stereo(pair=synthetic, height=16, width=24, labels=5)",
    "stereo(pair=synthetic, smoothness=quadratic, cost=squared, data_cap=20, height=19)",
    "image-denoising(image=shapes, height=12, width=15)",
    "image-denoising(image=shapes, levels=2, noise=impulse, height=13)",
    "image-denoising(image=shapes, smoothness=potts, height=12, width=15, diagonals=true)",
    "max-cut(graph=random, vertices=20, weights=integer)",
    "max-cut(graph=torus, side=4, weights=gaussian)",
    "max-cut(graph=torus, side=3, dimensions=3, weights=pm1)",
    "protein-side-chains(residues=12)",
    "protein-side-chains(residues=12, clash=inf)",
    "decoding(length=24)",
    "decoding(length=24, channel=awgn, noise=0.8)",
    "clique-partitioning(vertices=9, weights=uniform)",
    "clique-partitioning(vertices=9, weights=signs)",
    "clique-partitioning(vertices=9, weights=correlation)",
    "segmentation(image=shapes, height=20, width=30)",
    "segmentation(image=shapes, regions=3, models=kmeans, height=20, width=30)",
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_makes_the_same_problem_again(spec: str) -> None:
    family = problem_registry.make(spec)
    one, two = family.build(), as_problem(spec)
    # The name omits defaults, and constructs an equal family.
    assert one.name == family.spec
    assert problem_registry.make(one.name) == family
    assert one.graph.content_hash == two.graph.content_hash
    # A problem made of a spec has its settings beside the facts.
    settings = {field.name: getattr(family, field.name) for field in fields(family) if field.init}
    assert jsonable(dict(two.info)) == jsonable({**settings, **one.info})
    other = as_problem(spec[:-1] + ", seed=1)")
    assert other.graph.content_hash != one.graph.content_hash
    if one.truth is not None:
        assert two.truth is not None
        assert one.truth.dtype == np.int64
        assert np.array_equal(one.truth, two.truth)
        assert np.isfinite(one.graph.energy(one.truth))


@pytest.mark.parametrize("spec", SPECS)
def test_a_problem_travels_and_is_scored(spec: str) -> None:
    problem = as_problem(spec)
    again = pickle.loads(pickle.dumps(problem))
    labels = np.zeros(problem.graph.n_variables, dtype=np.int64)
    assert type(again) is type(problem)
    assert again.score(labels) == problem.score(labels)
    for name, value in problem.score(labels).items():
        assert isinstance(value, float), name
    if problem.truth is not None and "accuracy" in problem.score(problem.truth):
        assert problem.score(problem.truth)["accuracy"] == 1.0


def test_comparison_shows_the_scored_problems() -> None:
    specs = [SPECS[0], SPECS[2], SPECS[5], SPECS[8], SPECS[10]]
    records = il.compare(specs, ["icm"], time_limit=5).records
    assert [record.status for record in records] == ["converged"] * len(specs)
    scored = [record.accuracy is not None for record in records]
    assert scored == [True, True, False, False, True]


BAD = [
    ("stereo(pair=tsukuba2)", "pair must be one of synthetic, tsukuba, teddy"),
    ("stereo(labels=0)", "labels must be at least 1, got 0"),
    ("stereo(cap=0)", "cap must be above 0, got 0"),
    ("stereo(weight=-1)", "weight must be finite and at least 0, got -1"),
    ("stereo(factor=inf)", "factor must be finite and at least 0, got inf"),
    ("image-denoising(levels=1)", "levels must be between 2 and 256, got 1"),
    ("image-denoising(strength=-2)", "strength of gaussian noise must be finite"),
    ("image-denoising(noise=impulse, strength=2)", "must be a share between 0 and 1, got 2"),
    ("image-denoising(strength=inf)", "strength of gaussian noise must be finite"),
    ("image-denoising(cap=nan)", "cap must be above 0, got nan"),
    ("image-denoising(data_cap=0)", "data_cap must be above 0"),
    ("image-denoising(weight=inf)", "weight must be finite"),
    ("image-denoising(height=0)", "height must be at least 1, got 0"),
    ("segmentation(regions=1)", "regions must be at least 2, got 1"),
    ("segmentation(truth=a.png)", "truth is a setting of files"),
    ("segmentation(share=0)", "share must be above 0 and at most 1, got 0"),
    ("segmentation(annotator=-1)", "annotator must be at least 0"),
    ("segmentation(weight=nan)", "weight must be finite"),
    ("max-cut(density=2)", "density must be between 0 and 1, got 2"),
    ("max-cut(vertices=0)", "vertices must be at least 1"),
    ("max-cut(graph=torus, side=1000, dimensions=3)", "at most 2^26 vertices, got 1000 ** 3"),
    ("max-cut(low=1, high=0)", "low must be at most high"),
    ("max-cut(low=0, high=0)", "a number other than 0 between them"),
    ("protein-side-chains(residues=0)", "residues must be at least 1"),
    ("protein-side-chains(diameter=0)", "diameter must be finite and above 0"),
    ("protein-side-chains(clash=0)", "clash must be above 0"),
    ("decoding(length=500)", "length must be a multiple of 6, check_degree, got 500"),
    ("decoding(noise=0.5)", "noise of the BSC must be between 0 and 0.5, got 0.5"),
    ("decoding(channel=awgn, noise=0)", "noise must be finite and above 0, got 0"),
    ("decoding(check_degree=18)", "check_degree must be between 2 and 16, got 18"),
]


@pytest.mark.parametrize(("spec", "message"), BAD, ids=[spec for spec, _ in BAD])
def test_bad_settings_are_named(spec: str, message: str) -> None:
    with pytest.raises(il.SpecError) as caught:
        problem_registry.make(spec)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        "stereo(pair=synthetic, height=288, width=384, labels=16)",
        "image-denoising(image=shapes, height=288, width=384, levels=16)",
        "segmentation(image=shapes, height=288, width=384)",
    ],
)
def test_build_time_of_an_image_of_usual_size(spec: str) -> None:
    """Loops over pixels would take minutes; the limit is 20 times the usual time."""
    begin = time.process_time()
    graph = as_problem(spec).graph
    assert graph.n_variables == 288 * 384
    assert time.process_time() - begin < 10.0
    # One table for all edges: linear memory, and messages in O(k).
    assert graph.pairwise_values.size <= 256 + graph.n_edges
    assert (graph.arrays.forms > 0).all() or graph.is_diagonal


@pytest.mark.parametrize(
    "spec",
    [
        "max-cut(vertices=1)",
        "clique-partitioning(vertices=1, weights=correlation)",
        "max-cut(graph=torus, side=1)",
        "protein-side-chains(residues=1)",
        "stereo(height=1, width=1, labels=1)",
        "stereo(height=2, width=3, labels=9)",
        "image-denoising(height=1, width=1)",
        "decoding(length=2, check_degree=2, bit_degree=1)",
    ],
)
def test_the_smallest_problems(spec: str) -> None:
    problem = as_problem(spec)
    assert isinstance(problem, Problem)
    solution = il.solve(problem.graph, "brute-force")
    assert solution.status == "optimal"
    assert problem.truth is None or problem.graph.energy(problem.truth) >= solution.energy - 1e-9
