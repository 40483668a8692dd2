"""One side of a row in a process of its own: ours, or a call of another project's package.

    python peer_sides.py '{"problem": ..., "call": ..., ...}'

The process says when it is ready, with the version of the package; then it solves the problem once
for each line that it is given, and answers each with a line.

A side is a generator. It stops where what it needs has been read from our graph, where the model is
made, and where the problem is solved; the seconds of processor time between are told. What it
yields at last is an `Answer`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

import inference_lab as il
from inference_lab.constraints import Constraints
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.registry.sources import as_problem

#: Draws of pairs for a clustering.
DRAWS = 10


@dataclass
class Answer:
    """What a side found.

    Attributes
    ----------
    labels : list
        Of the variables; for clusterings one list a draw, None where the fit failed.
    bound : float, optional
        Below which it says that no energy is.
    proved : bool
        Whether it says that nothing is better.
    claimed : float, optional
        The energy that it gives its labels.
    marginals : list, optional
        One after another.
    model_s : float
        Seconds of its solving that the model took, where both are one call.
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
    """Points to be clustered, their classes, and which pairs are known in each draw."""

    points: npt.NDArray[np.float64]
    truth: npt.NDArray[np.int64]
    draws: list[Constraints]
    known: list[npt.NDArray[np.int64]]


def load(problem: str) -> Any:
    """Return the graph that a spec names, or the `Pairs` of ``pairs(data=...)``.

    These are 60 pairs among half of the points, which are standardised.
    """
    if not problem.startswith("pairs("):
        return as_problem(problem).graph
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    name = problem.removeprefix("pairs(data=").removesuffix(")")
    points, truth = getattr(datasets, f"load_{name}")(return_X_y=True)
    draws, known = [], []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        known.append(rng.permutation(len(points))[: len(points) // 2])
        draws.append(Constraints.sample(truth, 60, rng, among=known[-1]))
    return Pairs(StandardScaler().fit_transform(points), truth, draws, known)


def ours(graph: FactorGraph, solver: Any, temperature: float, limit: float | None) -> Side:
    """Solve by one of ours."""
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
        # Where marginals are asked for, no method is asked to look for labels.
        solution.labels.tolist() if solution.labels is not None and temperature == 0 else None,
        bound=solution.lower_bound if np.isfinite(solution.lower_bound) else None,
        proved=solution.status == il.Status.OPTIMAL,
        marginals=None if solution.marginals is None else _joined(solution.marginals),
        note="" if share is None else f"fixes {share:.1%}",
    )


def _joined(marginals: Any) -> list[float]:
    return list(np.concatenate([np.ravel(row) for row in marginals]).tolist())


@contextmanager
def _clocked(owner: Any, method: str) -> Iterator[list[float]]:
    """Note the processor time of each call of a method."""
    spent: list[float] = []
    real = getattr(owner, method)

    def call(*arguments: Any, **named: Any) -> Any:
        begin = time.process_time()
        try:
            return real(*arguments, **named)
        finally:
            spent.append(time.process_time() - begin)

    with mock.patch.object(owner, method, call):
        yield spent


def _adapter(graph: FactorGraph, solver: str, limit: float | None, owner: Any, method: str) -> Side:
    """Solve through our adapter; what builds the model is told apart."""
    with _clocked(owner, method) as spent:
        for answer in ours(graph, solver, 0.0, limit):
            if answer is not None:
                answer.model_s = sum(spent)
                if not answer.proved:
                    answer.note = "stopped by its limit, which is one of wall time"
            yield answer


def toulbar2(graph: FactorGraph, limit: float | None) -> Side:
    """Search by toulbar2 with its defaults; a descent gives its first upper bound."""
    from inference_lab.solvers.toulbar2 import Toulbar2

    yield from _adapter(graph, "toulbar2", limit, Toulbar2, "_network")


def cpsat(graph: FactorGraph, limit: float | None) -> Side:
    """Search by CP-SAT with one worker; a descent gives its first labelling."""
    from inference_lab.solvers import ortools_cpsat

    yield from _adapter(graph, "ortools-cpsat", limit, ortools_cpsat._Model, "build")


def _pgmpy_model(graph: FactorGraph) -> Any:
    from inference_lab.convert import to_pgmpy

    return to_pgmpy(graph)[0]


def _pgmpy_labels(graph: FactorGraph, found: dict[str, int]) -> list[int]:
    return [int(found[f"x{i}"]) for i in range(graph.n_variables)]


def mplp(graph: FactorGraph, limit: float | None) -> Side:
    """Decode by pgmpy's ``Mplp``, as it is."""
    from pgmpy.inference import Mplp

    yield None
    model = _pgmpy_model(graph)
    yield None
    found = Mplp(model).map_query()
    yield None
    yield Answer(_pgmpy_labels(graph, found))


def best(graph: FactorGraph, limit: float | None) -> Side:
    """Pass beliefs on pgmpy's tree of cliques; our adapter reads the best labels from them.

    Its own ``map_query`` of all variables makes a table of all of them, whatever their number.
    """
    return ours(graph, "pgmpy-junction-tree", 0.0, limit)


def marginals(graph: FactorGraph, limit: float | None) -> Side:
    """Pass beliefs on pgmpy's tree of cliques; our adapter reads all marginals from them."""
    return ours(graph, "pgmpy-junction-tree", 1.0, limit)


def _terms(graph: FactorGraph) -> list[tuple[list[int], npt.NDArray[np.float64]]]:
    """Return the scope and the table of each term, unaries first."""
    terms = [([i], graph.unary_of(i)) for i in range(graph.n_variables)]
    terms += [(ends, graph.edge_table(e)) for e, ends in enumerate(graph.edges.tolist())]
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        terms.append((list(scope), table))
    return terms


def shafer_shenoy(graph: FactorGraph, limit: float | None) -> Side:
    """Find all marginals by pyAgrum's ``ShaferShenoyMRFInference``, with one thread."""
    import pyagrum

    terms = _terms(graph)
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

    Where terms are no multiples of one table, what is made of these has another energy.
    """
    last = np.array([graph.edge_table(e)[0, -1] for e in range(graph.n_edges)])
    shape = graph.edge_table(0) / last[0]
    unit = shape[shape > 0].min()
    unary = graph.unary_values.reshape(graph.n_variables, -1)
    return unary, graph.edges, np.rint(last * unit), np.rint(shape / unit)


def expansion(graph: FactorGraph, limit: float | None) -> Side:
    """Expand labels in turn by gco, from the labels 0, in integers."""
    import gco

    unary, ends, weights, shape = (some.astype(np.int32) for some in _multiples(graph))
    ends.sort(axis=1)
    yield None
    yield None
    # It makes its network on the way, which takes a hundredth of the time.
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
    # Who is with the sink has label 1; an arc is cut from the source's side to the sink's.
    network.add_edges(i, j, between, np.zeros(len(between)))
    network.add_grid_tedges(nodes, np.maximum(cost, 0.0), np.maximum(-cost, 0.0))
    yield None
    flow = network.maxflow()
    yield None
    labels = network.get_grid_segments(nodes).astype(int)
    energy = constant + flow + np.minimum(cost, 0.0).sum()
    yield Answer(labels.tolist(), bound=energy, proved=True, claimed=energy)


def qpbo(graph: FactorGraph, limit: float | None) -> Side:
    """Solve the roof dual by QPBO; who has no label gets its cheapest."""
    import thinqpbo

    unary, tables = _binary(graph)
    cheapest = unary.argmin(axis=1)
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
        np.where(fixed, labels, cheapest).tolist(),
        bound=network.compute_twice_lower_bound() / 2.0 + graph.constant,
        proved=bool(fixed.all()),
        note=f"fixes {fixed.mean():.1%}",
    )


def _spins(graph: FactorGraph) -> Any:
    """Return a graph of two labels as dimod has it, labels being binary variables."""
    import dimod

    unary, tables = _binary(graph)
    i, j = graph.edges.T
    linear = unary[:, 1] - unary[:, 0]
    np.add.at(linear, i, tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(linear, j, tables[:, 0, 1] - tables[:, 0, 0])
    both = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    constant = graph.constant + unary[:, 0].sum() + tables[:, 0, 0].sum()
    return dimod.BinaryQuadraticModel.from_numpy_vectors(
        linear, (i, j, both), constant, dimod.BINARY
    )


def _sampled(limit: float, sample: Callable[[float, int], Any]) -> Any:
    """Return the best of the samples that are drawn until the processor time is used up.

    ``sample(seconds, seed)`` draws some.
    """
    begin = time.process_time()
    best = None
    seed = 1
    while (left := limit - (time.process_time() - begin)) > 0.0:
        first = sample(left, seed).first
        seed += 1
        if best is None or first.energy < best.energy:
            best = first
    return best


def _sides(best: Any) -> Answer:
    labels = [int(best.sample[i]) for i in range(len(best.sample))]
    return Answer(labels, claimed=float(best.energy))


def tabu(graph: FactorGraph, limit: float) -> Side:
    """Search by ``TabuSampler`` of dwave-samplers; its limit is one of wall time."""
    from dwave.samplers import TabuSampler

    yield None
    model = _spins(graph)
    yield None
    sampler = TabuSampler()
    best = _sampled(
        limit,
        lambda left, seed: sampler.sample(
            model, num_reads=1, timeout=max(20, round(1000 * left)), seed=seed
        ),
    )
    yield None
    yield _sides(best)


def annealing(graph: FactorGraph, limit: float) -> Side:
    """Anneal by ``SimulatedAnnealingSampler``, ten times at once, a thousand sweeps each."""
    from dwave.samplers import SimulatedAnnealingSampler

    yield None
    model = _spins(graph)
    yield None
    sampler = SimulatedAnnealingSampler()
    best = _sampled(
        limit,
        lambda left, seed: sampler.sample(model, num_reads=10, num_sweeps=1000, seed=seed),
    )
    yield None
    yield _sides(best)


def burer(graph: FactorGraph, limit: float) -> Side:
    """Search by MQLib's ``BURER2002``, for so many seconds."""
    import MQLib

    unary, tables = _binary(graph)
    i, j = graph.edges.T
    weights = tables[:, 0, 1] - tables[:, 0, 0]
    yield None
    matrix = np.zeros((len(unary), len(unary)))
    matrix[i, j] = matrix[j, i] = -weights
    model = MQLib.Instance("M", matrix)
    yield None
    found = MQLib.runHeuristic("BURER2002", model, limit, lambda *_: 1, 1)
    yield None
    yield Answer((np.asarray(found["solution"]) > 0).astype(int).tolist())


def belief_propagation(
    graph: FactorGraph, limit: float | None, sweeps: int, damping: float
) -> Side:
    """Pass all messages at once by PGMax, so often, in single precision."""
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
    # Compilation is nobody's solving time.
    passing.run(
        start, num_iters=sweeps, damping=damping, temperature=0.0
    ).ftov_msgs.block_until_ready()
    yield None
    done = passing.run(start, num_iters=sweeps, damping=damping, temperature=0.0)
    labels = infer.decode_map_states(passing.get_beliefs(done))[variables]
    found = np.asarray(labels).tolist()
    yield None
    yield Answer(found)


def fit(pairs: Pairs, solver: str) -> Side:
    """Fit one of our estimators to all draws."""
    import inference_lab.clustering as clustering

    kind = getattr(clustering, solver)
    seeded = "random_state" in kind().get_params()

    def labels(draw: int, given: Constraints) -> Any:
        estimator = kind(3, random_state=draw) if seeded else kind(3)
        return estimator.fit(pairs.points, **given.fit_params()).labels_

    return _fits(pairs, labels)


def peer_fit(pairs: Pairs, limit: float | None, kind: str) -> Side:
    """Fit one of active-semi-supervised-clustering's estimators to all draws."""
    from active_semi_clustering.semi_supervised import pairwise_constraints

    def labels(draw: int, given: Constraints) -> Any:
        np.random.seed(draw)  # noqa: NPY002  # the only generator that it has
        together, apart = (
            [tuple(p) for p in some.tolist()] for some in (given.must_link, given.cannot_link)
        )
        model = getattr(pairwise_constraints, kind)(3)
        model.fit(pairs.points, ml=together, cl=apart)
        return np.asarray(model.labels_)

    return _fits(pairs, labels)


def _fits(pairs: Pairs, labels: Callable[[int, Constraints], Any]) -> Side:
    found: list[Any] = []
    failures = []
    yield None
    yield None
    for draw, given in enumerate(pairs.draws):
        try:
            found.append([int(a) for a in labels(draw, given)])
        except Exception as error:
            # That a fit fails is a result.
            found.append(None)
            failures.append(f"{type(error).__name__}: {error}"[:80])
    yield None
    note = f"{len(failures)} of {len(found)} fits fail ({failures[0]})" if failures else ""
    yield Answer(found, note=note)


def fake(graph: FactorGraph, limit: float | None, does: str) -> Side:
    """Stand in for a package, in tests: work for a while, claim what is wrong, or die."""
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
    call.__name__: call
    for call in (
        *(toulbar2, cpsat, mplp, best, marginals, shafer_shenoy, expansion, maxflow, qpbo),
        *(tabu, annealing, burer, belief_propagation, fake),
    )
}
for _kind in ("PCKMeans", "MPCKMeans", "COPKMeans"):
    CALLS[_kind] = partial(peer_fit, kind=_kind)


def side(task: dict[str, Any], problem: Any, limit: float | None) -> Side:
    """Return the generator of a task's side."""
    if task["call"] is not None:
        return CALLS[task["call"]](problem, limit, **task["settings"])
    if isinstance(problem, Pairs):
        return fit(problem, task["ours"])
    return ours(problem, task["ours"], task["temperature"], limit)


def _seconds() -> float:
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def once(steps: Side) -> tuple[float, float, Answer]:
    """Return the seconds of processor time of model and solution, and the answer."""
    next(steps)
    stamps = [_seconds()]
    for _ in range(2):
        next(steps)
        stamps.append(_seconds())
    answer = next(steps)
    assert answer is not None
    model, solving = np.diff(stamps)
    return model + answer.model_s, solving - answer.model_s, answer


def main() -> None:
    """Solve as often as asked."""
    task = json.loads(sys.argv[1])
    # What packages print is not for whoever reads the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    problem = load(task["problem"])
    # Everything is loaded and compiled once that has been done.
    first = None if task["limit"] is None else min(1.0, task["limit"])
    once(side(task, problem, first))
    name = task["distribution"]
    print(json.dumps({"version": "" if name is None else version(name)}), file=answers)
    for _ in sys.stdin:
        model_s, cpu_s, answer = once(side(task, problem, task["limit"]))
        told = {**asdict(answer), "model_s": model_s, "cpu_s": cpu_s}
        print(json.dumps(told), file=answers)


if __name__ == "__main__":
    main()
