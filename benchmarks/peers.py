"""Beside other projects: ``make peers``, or ``python benchmarks/peers.py --only TEXT``.

A row is a problem, a solver of ours and one of another project. Each side has a process of its own
and solves the problem repeatedly, in turn with the other.

A side is a generator. It yields after reading its input from our graph, after making the model, and
after solving the problem; the seconds of processor time between are recorded. The last value is an
`Answer`.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd

import inference_lab as il
from inference_lab.constraints import Constraints
from inference_lab.data.folders import DataNotFoundError
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.processes.workers import Crash, Worker
from inference_lab.registry.sources import as_problem
from inference_lab.results.records import environment

ROOT = Path(__file__).resolve().parents[1]
#: The page, and the records that it shows.
PAGE = ROOT / "docs" / "peers.md"
#: Marker lines of the page; `publish` writes everything between them.
MARKS = ("<!-- measured -->", "<!-- end of what is measured -->")

#: The distribution and the module of each project.
PEERS = {
    "toulbar2": ("pytoulbar2", "pytoulbar2"),
    "OR-Tools": ("ortools", "ortools"),
    "pgmpy": ("pgmpy", "pgmpy"),
    "pyAgrum": ("pyagrum", "pyagrum"),
    "gco": ("gco-wrapper", "gco"),
    "PyMaxflow": ("PyMaxflow", "maxflow"),
    "QPBO": ("thinqpbo", "thinqpbo"),
    "dwave-samplers": ("dwave-samplers", "dwave.samplers"),
    "PGMax": ("pgmax", "pgmax.infer"),
    "active-semi-supervised-clustering": (
        "active-semi-supervised-clustering",
        "active_semi_clustering",
    ),
    "k-means-constrained": ("k-means-constrained", "k_means_constrained"),
}

#: Draws of pairs for a clustering.
DRAWS = 10
#: Wall seconds that one solution may take beyond the limit of its solver.
PATIENCE = 240.0
#: Processor seconds of a row above which medians of few runs suffice.
ENOUGH = 1.0
#: Energies are equal within this share of their size.
_SAME = 1e-6


class Row(NamedTuple):
    """A line of the table.

    Attributes
    ----------
    group : str
        The heading of its group of rows.
    problem : str
        A spec, or ``pairs(data=...)`` for clusterings.
    ours : str
        A solver's spec, or an estimator.
    peer, call : str
        One of `PEERS`, and which of `CALLS` runs it.
    temperature : float
    limit : float, optional
        CPU seconds of ours, and of a peer that takes all of its time.
    """

    group: str
    problem: str
    ours: str
    peer: str
    call: str
    temperature: float = 0.0
    limit: float | None = None

    @property
    def name(self) -> str:
        """Return the name that identifies a row."""
        return f"{self.problem} | {self.ours} | {self.peer} {self.call}"


def _instance(name: str) -> str:
    return f"instances(instance={name})"


_IRIS = "estep(data=iris, constraints=100, noise=0.1, centroids=constraints)"
_WINE = "estep(data=wine, constraints=200, noise=0.2)"
_DIGITS = "estep(data=digits-389, constraints=1000, noise=0.2, centroids=kmeans)"
_CANCER = "estep(data=breast-cancer, constraints=1000, noise=0.1)"
_IMAGE = "image-denoising(levels=2, height=400, width=400)"
# Both expand each variable in turn, from the same labelling.
_EXPANSION = "alpha-expansion(order=sequential)"
_ROOF = "persistency(then=icm)"
_ANNEALING = "simulated-annealing(restarts=15, reheats=0, sweeps=16000, end_ratio=0.03)"
_BELIEFS = "loopy-bp(damping=0.5, max_sweeps=200, tolerance=0)"
_PUBLISHED = (
    "toulbar2/celar6sub0",
    "uai2014_map/wcsp_13",
    "uai2014_map/Promedas_40",
    "toulbar2/cap131",
    "toulbar2/1aho",
    "uai2014_mar/linkage_14",
)
_SMALL = ("libdai/alarm", "small_merlin/ChestClinic", "small_pgmpy/grid4x4")
_LARGE = ("libdai/alarm", "uai2014_mar/Promedus_24", "uai2014_mar/Segmentation_11")
_PAIRS = "Clusterings with 60 pairs, violated pairs in place of energies"
_ASSC = "active-semi-supervised-clustering"
_SIZES = "Clusters of 0.8 to 1.2 times the same size, sums of squared distances as energies"
_BEST, _MARGINALS = ("Trees of cliques: " + what for what in ("best labels", "marginals"))
_SWEEPS = "Belief propagation, 200 sweeps"

ROWS = (
    *(
        Row("Exact search", _instance(name), "branch-and-bound", "toulbar2", "toulbar2", limit=60.0)
        for name in _PUBLISHED
    ),
    *(
        Row("E-steps", problem, "ilp", "OR-Tools", "cpsat", limit=20.0)
        for problem in (_IRIS, _WINE, _DIGITS)
    ),
    *(Row("E-steps", _IRIS, ours, "pgmpy", "mplp") for ours in ("lp-relaxation", "loopy-bp")),
    Row("Cuts", "stereo(pair=tsukuba)", _EXPANSION, "gco", "expansion"),
    Row("Cuts", "stereo(pair=teddy)", _EXPANSION, "gco", "expansion"),
    Row("Cuts", _IMAGE, _ROOF, "PyMaxflow", "maxflow"),
    Row("Cuts", _IMAGE, _ROOF, "QPBO", "qpbo"),
    Row("Cuts", _CANCER, _ROOF, "QPBO", "qpbo"),
    *(
        Row("Max-cut in 5 CPU s", _instance(f), _ANNEALING, "dwave-samplers", call, limit=5.0)
        for f in ("maxcut_qubo/G1", "maxcut_qubo/G14")
        for call in ("tabu", "annealing")
    ),
    *(Row(_BEST, _instance(name), "junction-tree", "pgmpy", "best") for name in _SMALL),
    *(
        Row(_MARGINALS, _instance(name), "junction-tree", "pgmpy", "marginals", 1.0)
        for name in _SMALL
    ),
    *(
        Row(_MARGINALS, _instance(name), "junction-tree", "pyAgrum", "shafer_shenoy", 1.0)
        for name in _LARGE
    ),
    *(
        Row(_SWEEPS, _instance(name), _BELIEFS, "PGMax", "belief_propagation")
        for name in ("uai2014_map/Grids_25", "uai2014_map/Segmentation_14")
    ),
    *(
        Row(_PAIRS, f"pairs(data={data})", kind, _ASSC, kind)
        for data in ("iris", "wine")
        for kind in ("PCKMeans", "MPCKMeans", "COPKMeans")
    ),
    *(
        Row(_SIZES, f"sizes(n={n}, k={k})", "SizeConstrainedKMeans", "k-means-constrained", "fit")
        for n, k in ((1000, 10), (5000, 50), (5000, 500))
    ),
)


# ---------------------------------------------------------------------- sides


@dataclass
class Answer:
    """Result of one side.

    Attributes
    ----------
    labels : list
        Labels of the variables; for clusterings one list a draw, None if the fit failed.
    bound : float, optional
        Claimed lower bound on the energy.
    proved : bool
        Whether it claims optimality.
    claimed : float, optional
        The energy that it reports for its labels.
    marginals : list, optional
        Marginals of the variables in order.
    model_s : float
        Seconds of the call spent on the model, if model and solution are one call.
    note : str
    """

    labels: list[Any] | None = None
    bound: float | None = None
    proved: bool = False
    claimed: float | None = None
    marginals: list[float] | None = None
    model_s: float = 0.0
    note: str = ""


Side = Iterator[Answer | None]


class Pairs(NamedTuple):
    """Points to cluster, their classes, and the known pairs of each draw."""

    points: npt.NDArray[np.float64]
    truth: npt.NDArray[np.int64]
    draws: list[Constraints]
    constrained: list[npt.NDArray[np.int64]]


class Sized(NamedTuple):
    """Points to cluster into `k` clusters of bounded size."""

    points: npt.NDArray[np.float64]
    k: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest size of a cluster."""
        mean = len(self.points) / self.k
        return math.floor(0.8 * mean), math.ceil(1.2 * mean)

    def energy(self, labels: Sequence[int]) -> float:
        """Return the sum of squared distances to means; infinite if a size is out of bounds."""
        sizes = np.bincount(labels, minlength=self.k)
        low, high = self.bounds
        if sizes.min() < low or sizes.max() > high:
            return math.inf
        sums = np.zeros((self.k, self.points.shape[1]))
        np.add.at(sums, labels, self.points)
        return float(((self.points - (sums / sizes[:, None])[labels]) ** 2).sum())


@cache
def load(problem: str) -> Any:
    """Return the graph of a spec, the `Pairs` of ``pairs(data=...)`` or `Sized` of ``sizes(n, k)``.

    Pairs are 60 among half of the points, which are standardised. Sizes are bounded for standard
    normal points in ten dimensions.
    """
    if problem.startswith("sizes("):
        n, k = map(int, re.findall(r"\d+", problem))
        return Sized(np.random.default_rng(0).normal(size=(n, 10)), k)
    if not problem.startswith("pairs("):
        return as_problem(problem).graph
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    name = problem.removeprefix("pairs(data=").removesuffix(")")
    points, truth = getattr(datasets, f"load_{name}")(return_X_y=True)
    draws, constrained = [], []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        constrained.append(rng.permutation(len(points))[: len(points) // 2])
        draws.append(Constraints.sample(truth, 60, rng, among=constrained[-1]))
    return Pairs(StandardScaler().fit_transform(points), truth, draws, constrained)


def ours(graph: FactorGraph, solver: Any, temperature: float, limit: float | None) -> Side:
    """Solve by one of our solvers."""
    yield None
    yield None
    solution = il.solve(
        graph, solver, seed=0, temperature=temperature, time_limit=limit, clock="cpu"
    )
    yield None
    if (solution.labels if temperature == 0 else solution.marginals) is None:
        raise RuntimeError(f"{solution.status}: {solution.message}")
    share = solution.diagnostics.get("share_fixed")
    yield Answer(
        # If marginals are requested, no method has to search for labels.
        solution.labels.tolist() if solution.labels is not None and temperature == 0 else None,
        bound=solution.lower_bound if np.isfinite(solution.lower_bound) else None,
        proved=solution.status == il.Status.OPTIMAL,
        marginals=None if solution.marginals is None else _joined(solution.marginals),
        note="" if share is None else f"fixes {share:.1%}",
    )


def _joined(marginals: Any) -> list[float]:
    return list(np.concatenate([np.ravel(row) for row in marginals]).tolist())


def _adapter(graph: FactorGraph, limit: float | None, solver: str, owner: Any, build: str) -> Side:
    """Solve through our adapter; time in its method `build` counts as the model's."""
    spent: list[float] = []
    real = getattr(owner, build)

    def timed(*arguments: Any, **named: Any) -> Any:
        begin = time.process_time()
        try:
            return real(*arguments, **named)
        finally:
            spent.append(time.process_time() - begin)

    with mock.patch.object(owner, build, timed):
        for answer in ours(graph, solver, 0.0, limit):
            if answer is not None:
                answer.model_s = sum(spent)
                if not answer.proved:
                    answer.note = "stopped by its limit, which is one of wall time"
            yield answer


def toulbar2(graph: FactorGraph, limit: float | None) -> Side:
    """Search by toulbar2 with its defaults and the upper bound of a descent."""
    from inference_lab.solvers.toulbar2 import Toulbar2

    yield from _adapter(graph, limit, "toulbar2", Toulbar2, "_network")


def cpsat(graph: FactorGraph, limit: float | None) -> Side:
    """Search by CP-SAT with one worker and the labelling of a descent."""
    from inference_lab.solvers import ortools_cpsat

    yield from _adapter(graph, limit, "ortools-cpsat", ortools_cpsat._Model, "build")


def mplp(graph: FactorGraph, limit: float | None) -> Side:
    """Decode by pgmpy's ``Mplp`` with its defaults."""
    from pgmpy.inference import Mplp

    from inference_lab.convert import to_pgmpy

    yield None
    model = to_pgmpy(graph)[0]
    yield None
    labels = Mplp(model).map_query()
    yield None
    yield Answer([int(labels[f"x{i}"]) for i in range(graph.n_variables)])


def pgmpy_tree(graph: FactorGraph, limit: float | None, temperature: float) -> Side:
    """Pass beliefs on pgmpy's tree of cliques; our adapter reads labels or marginals from them.

    Its own ``map_query`` of all variables would make one table over all of them.
    """
    return ours(graph, "pgmpy-junction-tree", temperature, limit)


def shafer_shenoy(graph: FactorGraph, limit: float | None) -> Side:
    """Find all marginals by pyAgrum's ``ShaferShenoyMRFInference``, with one thread."""
    import pyagrum

    terms: list[Any] = [((i,), graph.unary_of(i)) for i in range(graph.n_variables)]
    terms += [(scope, table) for scope, table in graph.factors() if len(scope) > 1]
    yield None
    field = pyagrum.MarkovRandomField()
    for i, k in enumerate(graph.cardinalities.tolist()):
        field.add(pyagrum.LabelizedVariable(f"x{i}", "", k))
    for scope, table in terms:
        names = [f"x{i}" for i in scope]
        factor = field.addFactor(names)
        # In its arrays the first variable is the last axis.
        axes = [names.index(name) for name in reversed(factor.names)]
        factor[:] = np.ascontiguousarray(np.exp(table.min() - table).transpose(axes))
    yield None
    inference = pyagrum.ShaferShenoyMRFInference(field)
    inference.setNumberOfThreads(1)
    inference.makeInference()
    rows = [inference.posterior(f"x{i}").toarray() for i in range(graph.n_variables)]
    yield None
    yield Answer(marginals=_joined(rows))


@cache
def _multiples(graph: FactorGraph) -> tuple[Any, Any, Any, Any]:
    """Return unaries, edges, and the weight of each edge on one table in integers.

    If terms are not multiples of one table, the resulting model has a different energy.
    """
    last = np.array([graph.edge_table(e)[0, -1] for e in range(graph.n_edges)])
    shape = graph.edge_table(0) / last[0]
    unit = shape[shape > 0].min()
    unary = graph.unary_values.reshape(graph.n_variables, -1)
    return unary, graph.edges, np.rint(last * unit), np.rint(shape / unit)


def expansion(graph: FactorGraph, limit: float | None) -> Side:
    """Expand labels in turn by gco, from the labels 0, in integers."""
    import gco

    unary, ends, weights, shape = (array.astype(np.int32) for array in _multiples(graph))
    ends.sort(axis=1)
    yield None
    yield None
    # It builds its network meanwhile, which takes a hundredth of the time.
    labels = gco.cut_general_graph(ends, weights, unary, shape, down_weight_factor=1)
    yield None
    yield Answer(labels.tolist())


@cache
def _binary(graph: FactorGraph) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return unaries and tables of a graph of two labels."""
    unary = graph.unary_values.reshape(-1, 2)
    return unary, np.array([graph.edge_table(e) for e in range(graph.n_edges)])


def maxflow(graph: FactorGraph, limit: float | None) -> Side:
    """Cut a graph of two labels by PyMaxflow (Boykov and Kolmogorov's algorithm)."""
    import maxflow as package

    unary, tables = _binary(graph)
    i, j = graph.edges.T
    # E(x) as a constant, costs of label 1 and costs of the labels 0 and 1 of two ends.
    constant = graph.constant + unary[:, 0].sum() + tables[:, 0, 0].sum()
    cost = unary[:, 1] - unary[:, 0]
    np.add.at(cost, i, tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(cost, j, tables[:, 1, 1] - tables[:, 1, 0])
    between = tables[:, 0, 1] + tables[:, 1, 0] - tables[:, 0, 0] - tables[:, 1, 1]
    if between.min() < 0:
        raise ValueError("a term is not submodular")
    yield None
    network = package.Graph[float](len(unary), len(tables))
    nodes = network.add_nodes(len(unary))
    # A variable on the sink's side has label 1; an arc is cut from the source's side to the sink's.
    network.add_edges(i, j, between, np.zeros(len(between)))
    network.add_grid_tedges(nodes, np.maximum(cost, 0.0), np.maximum(-cost, 0.0))
    yield None
    flow = network.maxflow()
    yield None
    labels = network.get_grid_segments(nodes).astype(int)
    energy = constant + flow + np.minimum(cost, 0.0).sum()
    yield Answer(labels.tolist(), bound=energy, proved=True, claimed=energy)


def qpbo(graph: FactorGraph, limit: float | None) -> Side:
    """Solve the roof dual by QPBO; undecided variables get their cheapest label."""
    import thinqpbo

    unary, tables = _binary(graph)
    rows, quads, ends = unary.tolist(), tables.reshape(-1, 4).tolist(), graph.edges.tolist()
    yield None
    network = thinqpbo.QPBODouble(len(rows), len(quads))
    network.add_node(len(rows))
    for i, row in enumerate(rows):
        network.add_unary_term(i, *row)
    for pair, quad in zip(ends, quads, strict=True):
        network.add_pairwise_term(*pair, *quad)
    network.merge_parallel_edges()
    yield None
    network.solve()
    network.compute_weak_persistencies()
    yield None
    labels = np.array([network.get_label(i) for i in range(len(rows))])
    fixed = labels >= 0
    yield Answer(
        np.where(fixed, labels, unary.argmin(axis=1)).tolist(),
        bound=network.compute_twice_lower_bound() / 2.0 + graph.constant,
        proved=bool(fixed.all()),
        note=f"fixes {fixed.mean():.1%}",
    )


def dwave(graph: FactorGraph, limit: float, sampler: str) -> Side:
    """Sample by dwave-samplers until the processor time is used up; keep the best sample."""
    import dimod
    from dwave import samplers

    unary, tables = _binary(graph)
    i, j = graph.edges.T
    yield None
    linear = unary[:, 1] - unary[:, 0]
    np.add.at(linear, i, tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(linear, j, tables[:, 0, 1] - tables[:, 0, 0])
    both = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    constant = graph.constant + unary[:, 0].sum() + tables[:, 0, 0].sum()
    model = dimod.BinaryQuadraticModel.from_numpy_vectors(
        linear, (i, j, both), constant, dimod.BINARY
    )
    yield None
    sample = getattr(samplers, sampler)().sample
    best = None
    seed, begin = 1, time.process_time()
    while (remaining_s := limit - (time.process_time() - begin)) > 0.0:
        effort = {"num_reads": 10, "num_sweeps": 1000}
        if sampler == "TabuSampler":  # which limits wall time
            effort = {"num_reads": 1, "timeout": max(20, round(1000 * remaining_s))}
        first = sample(model, seed=seed, **effort).first
        seed += 1
        if best is None or first.energy < best.energy:
            best = first
    yield None
    assert best is not None
    labels = [int(best.sample[i]) for i in range(graph.n_variables)]
    yield Answer(labels, claimed=float(best.energy))


def belief_propagation(graph: FactorGraph, limit: float | None) -> Side:
    """Pass all messages at once by PGMax, 200 times, in single precision."""
    from pgmax import fgraph, fgroup, infer, vgroup

    n, k = graph.n_variables, int(graph.cardinalities[0])
    unary = graph.unary_values.reshape(n, k)
    tables = np.array([graph.edge_table(e) for e in range(graph.n_edges)])
    yield None
    variables = vgroup.NDVarArray(num_states=k, shape=(n,))
    model = fgraph.FactorGraph(variable_groups=[variables])
    model.add_factors(
        fgroup.PairwiseFactorGroup(
            variables_for_factors=[[variables[i], variables[j]] for i, j in graph.edges.tolist()],
            log_potential_matrix=-tables,
        )
    )
    passing = infer.build_inferer(model.bp_state, backend="bp")
    start = passing.init(evidence_updates={variables: -unary})
    effort = {"num_iters": 200, "damping": 0.5, "temperature": 0.0}
    # Compilation counts for neither side.
    passing.run(start, **effort).ftov_msgs.block_until_ready()
    yield None
    done = passing.run(start, **effort)
    labels = infer.decode_map_states(passing.get_beliefs(done))[variables]
    labelling = np.asarray(labels).tolist()
    yield None
    yield Answer(labelling)


def fit(pairs: Pairs, kind: str, *, peer: bool = False) -> Side:
    """Fit an estimator of ours, or of active-semi-supervised-clustering, to all draws."""
    if peer:
        owner: Any = importlib.import_module(
            "active_semi_clustering.semi_supervised.pairwise_constraints"
        )
    else:
        owner = importlib.import_module("inference_lab.clustering")
    estimator = getattr(owner, kind)

    def labels(draw: int, constraints: Constraints) -> Any:
        if peer:
            np.random.seed(draw)  # noqa: NPY002  # the only generator that it has
            together, apart = (
                [tuple(p) for p in links.tolist()]
                for links in (constraints.must_link, constraints.cannot_link)
            )
            model = estimator(3)
            model.fit(pairs.points, ml=together, cl=apart)
            return model.labels_
        seeded = "random_state" in estimator().get_params()
        model = estimator(3, random_state=draw) if seeded else estimator(3)
        return model.fit(pairs.points, **constraints.fit_params()).labels_

    answers: list[Any] = []
    failures = []
    yield None
    yield None
    for draw, constraints in enumerate(pairs.draws):
        try:
            answers.append([int(a) for a in labels(draw, constraints)])
        except Exception as error:
            # A failed fit is a result.
            answers.append(None)
            failures.append(f"{type(error).__name__}: {error}"[:80])
    yield None
    note = f"{len(failures)} of {len(answers)} fits fail ({failures[0]})" if failures else ""
    yield Answer(answers, note=note)


def fit_sizes(problem: Sized, *, peer: bool = False) -> Side:
    """Fit an estimator of ours, or of k-means-constrained, with three starts of each."""
    settings = {"n_clusters": problem.k, "n_init": 3, "random_state": 0}
    low, high = problem.bounds
    if peer:
        from k_means_constrained import KMeansConstrained

        model = KMeansConstrained(size_min=low, size_max=high, **settings)
    else:
        from inference_lab.clustering import SizeConstrainedKMeans

        model = SizeConstrainedKMeans(min_size=low, max_size=high, **settings)
    yield None
    yield None
    labels = model.fit(problem.points).labels_.tolist()
    yield None
    yield Answer(labels)


def fake(graph: FactorGraph, limit: float | None, does: str) -> Side:
    """Act as a package in tests: work for a while, claim a wrong result, or die."""
    yield None
    yield None
    begin = time.process_time()
    while time.process_time() - begin < (0.3 if does == "slow" else 0.03):
        pass
    if does == "dies":
        os._exit(3)
    if does == "raises":
        raise MemoryError("too large")
    if does == "hangs":
        time.sleep(60.0)
    yield None
    labels = (graph.cardinalities - 1).tolist()
    true = float(graph.energy(labels))
    yield Answer(labels, proved=does == "lies", claimed=true - (does == "lies"))


CALLS: dict[str, Callable[..., Side]] = {
    **{
        call.__name__: call
        for call in (
            toulbar2,
            cpsat,
            mplp,
            shafer_shenoy,
            expansion,
            maxflow,
            qpbo,
            belief_propagation,
        )
    },
    "best": partial(pgmpy_tree, temperature=0.0),
    "marginals": partial(pgmpy_tree, temperature=1.0),
    "tabu": partial(dwave, sampler="TabuSampler"),
    "annealing": partial(dwave, sampler="SimulatedAnnealingSampler"),
    **{
        f"fake {does}": partial(fake, does=does)
        for does in "works slow lies dies raises hangs".split()
    },
}


def _side(row: Row, name: str) -> Side:
    problem = load(row.problem)
    if isinstance(problem, Pairs):
        return fit(problem, row.ours, peer=name == "peer")
    if isinstance(problem, Sized):
        return fit_sizes(problem, peer=name == "peer")
    if name == "peer":
        return CALLS[row.call](problem, row.limit)
    return ours(problem, row.ours, row.temperature, row.limit)


def _seconds() -> float:
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def once(row: Row, name: str) -> dict[str, Any]:
    """Solve the problem of a row; return the answer, and the seconds of model and solution."""
    warnings.simplefilter("ignore")
    steps = _side(row, name)
    next(steps)
    stamps = [_seconds()]
    for _ in range(2):
        next(steps)
        stamps.append(_seconds())
    answer = next(steps)
    assert answer is not None
    model, solving = np.diff(stamps)
    answer.model_s, inside = float(model) + answer.model_s, answer.model_s
    return {**asdict(answer), "cpu_s": float(solving) - inside}


# ---------------------------------------------------------------------- measuring

#: Result of a row, a column each; columns of a side occur twice, after ``ours_`` and ``peer_``:
#: median, least and most processor time, time of making the model if separate, energy of the labels
#: by our graph (for clusterings the median of violated pairs), and claims.
Measured = dict[str, Any]
_SIDE: Measured = {
    **dict.fromkeys(("cpu_s", "low_s", "high_s", "model_s", "energy", "bound"), math.nan),
    "proved": False,
    "version": "",
}


def unmeasured(row: Row, note: str = "") -> Measured:
    """Return a line without figures."""
    sides = {f"{side}_{name}": of for side in ("ours", "peer") for name, of in _SIDE.items()}
    return {"row": row.name, "runs": 0, **sides, "note": note}


def ratios(one: Measured) -> tuple[float, float]:
    """Return our processor time over the peer's, with and without the time of its model."""
    peer = one["peer_cpu_s"]
    return one["ours_cpu_s"] / (peer + one["peer_model_s"]), one["ours_cpu_s"] / peer


def measure(row: Row, runs: int = 3, patience: float = PATIENCE) -> Measured:
    """Run both sides of a row in turn.

    Each makes `runs` runs after a warm-up run, and up to five times as many if these take less than
    a second. A run may take `patience` wall seconds beyond its limit.
    """
    measured = unmeasured(row)
    distribution, module = PEERS[row.peer]
    try:
        importlib.import_module(module)
        measured["peer_version"] = version(distribution)
        load(row.problem)
    except (ImportError, PackageNotFoundError):
        return unmeasured(row, f"not measured: {distribution} is not installed")
    except DataNotFoundError as missing:
        return unmeasured(row, f"not measured: {str(missing)[:160]}")
    workers = {name: Worker() for name in ("ours", "peer")}
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    failures = []
    spent, made = 0.0, -1
    try:
        while workers and made < (runs if spent >= ENOUGH else 5 * runs):
            for name in list(workers):
                worker = workers[name]
                worker.submit(partial(once, row, name))
                if wait([worker.connection], patience + (row.limit or 0.0)):
                    answer = worker.result()
                else:
                    answer = Crash(f"no answer within {patience:g} s", "")
                if isinstance(answer, Crash):
                    failures.append(f"{_called(row, name)}: {answer.message}")
                    workers.pop(name).stop()
                elif made >= 0:  # the first one compiles and imports
                    answers[name].append(answer)
                    spent += answer["cpu_s"] + answer["model_s"]
            made += 1
    finally:
        for worker in workers.values():
            worker.stop()
    measured["runs"] = max(map(len, answers.values()))
    measured["note"] = "; ".join([*failures, *judge(row, load(row.problem), measured, answers)])
    return measured


def _called(row: Row, name: str) -> str:
    return "ours" if name == "ours" else row.peer


def judge(
    row: Row, problem: Any, measured: Measured, answers: dict[str, list[dict[str, Any]]]
) -> list[str]:
    """Fill in the values of the answers, energies by our graph; return the remarks."""
    notes = []
    for name, runs in answers.items():
        if not runs:
            continue
        called = _called(row, name)
        seconds = [one["cpu_s"] for one in runs]
        shown, energy = runs[-1], math.nan
        if isinstance(problem, Pairs):
            energy, nmi = clustering(problem, shown["labels"])
            notes.append(f"{called}: NMI {nmi:.3f}")
        elif shown["labels"] is not None:
            energies = [float(problem.energy(one["labels"])) for one in runs]
            # Of truncated runs any may be the best: take the middle one, as for seconds.
            middle = int(np.argsort(energies)[len(energies) // 2])
            shown, energy = runs[middle], energies[middle]
        claimed = shown["claimed"]
        if claimed is not None and not same(claimed, energy):
            notes.append(f"{called} claims {claimed:.10g} for labels that cost {energy:.10g}")
        if shown["note"]:
            notes.append(f"{called}: {shown['note']}")
        figures = {
            "cpu_s": statistics.median(seconds),
            "low_s": min(seconds),
            "high_s": max(seconds),
            "model_s": statistics.median(one["model_s"] for one in runs),
            "energy": energy,
            "bound": math.nan if shown["bound"] is None else shown["bound"],
            "proved": shown["proved"],
        }
        measured |= {f"{name}_{key}": value for key, value in figures.items()}
    for name, other in (("ours", "peer"), ("peer", "ours")):
        what = "proof" if measured[f"{name}_proved"] else "bound"
        highest = measured[f"{name}_energy" if what == "proof" else f"{name}_bound"]
        energy = measured[f"{other}_energy"]
        if energy < highest and not same(energy, highest):
            notes.append(f"the {what} of {_called(row, name)} is refuted")
    marginals = [runs[-1]["marginals"] for runs in answers.values() if runs]
    if len(marginals) == 2 and None not in marginals:
        notes.append(f"marginals differ by at most {np.abs(np.subtract(*marginals)).max():.0e}")
    return notes


def same(a: float, b: float) -> bool:
    """Return whether two energies are equal up to rounding."""
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=_SAME)


def clustering(pairs: Pairs, labels: Sequence[Any]) -> tuple[float, float]:
    """Return the median of violated pairs, and the mean NMI of the points without pairs."""
    from sklearn.metrics import normalized_mutual_info_score

    from inference_lab.clustering.violations import violations

    violated, shared = [], []
    for constraints, constrained, labelling in zip(
        pairs.draws, pairs.constrained, labels, strict=True
    ):
        if labelling is None:
            continue
        broken = violations(constraints, np.array(labelling))
        violated.append(broken.must_link + broken.cannot_link)
        others = np.setdiff1d(np.arange(len(pairs.truth)), constrained)
        shared.append(
            normalized_mutual_info_score(pairs.truth[others], np.array(labelling)[others])
        )
    if not violated:
        return math.nan, math.nan
    return float(np.median(violated)), float(np.mean(shared))


# ---------------------------------------------------------------------- the page

_HEADER = ["problem", "ours", "peer", "CPU s", "ratio", "energy", "bound", "proved by; notes"]
_SUMMARY = ["chapter", "rows", "ours faster", "peer faster", "ours lower", "peer lower"]


def read(path: Path) -> dict[str, Measured]:
    """Return the earlier records by row."""
    frame = pd.read_csv(path, keep_default_na=False, na_values=["nan"], dtype={"peer_version": str})
    return {str(one["row"]): one for one in frame.to_dict("records")}


def table(measured: dict[str, Measured]) -> str:
    """Return a summary of the measured rows and a table for each group, as Markdown."""
    summary = [_cells(_SUMMARY), "|---|" + "---:|" * 5]
    parts = []
    for group, members in groupby(ROWS, key=lambda row: row.group):
        rows = [row for row in members if row.name in measured]
        if rows:
            results = [measured[row.name] for row in rows]
            ratio = np.array([ratios(one)[0] for one in results])
            ours, peer = (
                np.array([one[f"{s}_energy"] for one in results]) for s in ("ours", "peer")
            )
            apart = ~np.isclose(ours, peer, rtol=1e-6, atol=0.0)
            counts = (ratio < 0.95, ratio > 1.05, apart & (ours < peer), apart & (ours > peer))
            summary.append(_cells([group, str(len(rows)), *(str(c.sum()) for c in counts)]))
            lines = [_line(row, one) for row, one in zip(rows, results, strict=True)]
            head = [f"## {group}", "", _cells(_HEADER), "|---|---|---|" + "---:|" * 4 + "---|"]
            parts.append("\n".join([*head, *lines]))
    return "\n\n".join(["\n".join(summary), *parts]) + "\n"


def _line(row: Row, one: Measured) -> str:
    proved = [_called(row, name) for name in ("ours", "peer") if one[f"{name}_proved"]]
    by = "both" if len(proved) == 2 else "".join(proved)
    name = row.problem.removeprefix("instances(instance=").removesuffix(")")
    model = one["peer_model_s"]
    # Time of the model, if it is a hundredth or more.
    apart = f" + {_digits(model)}" if model >= 0.01 * one["peer_cpu_s"] else ""
    ratio, without = ratios(one)
    pairs = [[one[f"{side}_{what}"] for side in ("ours", "peer")] for what in ("energy", "bound")]
    return _cells(
        [
            name if row.problem.startswith("instances(") else f"`{row.problem}`",
            f"`{row.ours}`",
            row.peer if row.peer == row.call else f"{row.peer}, `{row.call}`",
            f"{_digits(one['ours_cpu_s'])} / {_digits(one['peer_cpu_s'])}{apart}",
            "" if math.isnan(ratio) else f"{ratio:.2g} ({without:.2g})",
            *(
                ""
                if np.isnan(pair).all()
                else " / ".join(f"{v:.7g}".replace("nan", "-") for v in pair)
                for pair in pairs
            ),
            "; ".join(filter(None, (by, one["note"].replace("|", "/")))),
        ]
    )


def _cells(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _digits(seconds: float) -> str:
    if math.isnan(seconds):
        return ""
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def facts(measured: dict[str, Measured]) -> str:
    """Return versions and the machine in a sentence, and how often rows were run."""
    peers = {row.name: row.peer for row in ROWS}
    versions = {peers[name]: one["peer_version"] for name, one in measured.items()}
    here = {"Python": platform.python_version()}
    here |= {name: version(name) for name in ("numpy", "numba", "scipy")}
    theirs, mine = (
        ", ".join(f"{name} {number}" for name, number in numbers.items() if number)
        for numbers in (versions, here)
    )
    runs = [one["runs"] for one in measured.values() if one["runs"]]
    return (
        f"{theirs}; here {mine}; {environment()['processor']}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f} at the end; medians of {min(runs, default=0)} to "
        f"{max(runs, default=0)} runs."
    )


def publish(page: Path, text: str) -> None:
    """Write the tables into the page."""
    begin, end = MARKS
    head, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def main() -> None:
    """Measure, and write the page on request."""
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose names hold this text")
    parser.add_argument("--runs", type=int, default=3, help="of each side")
    parser.add_argument(
        "--docs", action="store_true", help="write docs/peers.md and docs/peers.csv"
    )
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    records = PAGE.with_suffix(".csv")
    # If only some rows are measured again, the others stay.
    measured = read(records) if options.docs else {}
    for row in (row for row in ROWS if options.only in row.name):
        one = measured[row.name] = measure(row, options.runs)
        print(f"{row.name}: {ratios(one)[0]:.2g} {one['note']}", flush=True)
    text = f"{facts(measured)}\n\n{table(measured)}"
    print(f"\n{text}")
    if options.docs:
        ordered = [measured[row.name] for row in ROWS if row.name in measured]
        pd.DataFrame(ordered).to_csv(records, index=False, na_rep="nan")
        publish(PAGE, text)


if __name__ == "__main__":
    main()
