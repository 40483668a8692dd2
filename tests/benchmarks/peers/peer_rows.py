"""What is compared with whom: a row is a problem, a solver of ours and one of another project."""

from __future__ import annotations

from typing import Any, NamedTuple


class Peer(NamedTuple):
    """Another project's package.

    Attributes
    ----------
    requirements : tuple of str
        What pip is given, options included.
    module : str
        What is imported if it is there.
    distribution : str
        Whose version is told.
    """

    requirements: tuple[str, ...]
    module: str
    distribution: str


PEERS = {
    "toulbar2": Peer(("pytoulbar2",), "pytoulbar2", "pytoulbar2"),
    "OR-Tools": Peer(("ortools",), "ortools", "ortools"),
    "pgmpy": Peer(("pgmpy",), "pgmpy", "pgmpy"),
    "pyAgrum": Peer(("pyagrum",), "pyagrum", "pyagrum"),
    "gco": Peer(("gco-wrapper",), "gco", "gco-wrapper"),
    "PyMaxflow": Peer(("PyMaxflow",), "maxflow", "PyMaxflow"),
    "QPBO": Peer(("thinqpbo",), "thinqpbo", "thinqpbo"),
    "dwave-samplers": Peer(("dwave-samplers",), "dwave.samplers", "dwave-samplers"),
    "MQLib": Peer(("wheel", "--no-build-isolation", "mqlib"), "MQLib", "mqlib"),
    # Its own list of requirements has TensorFlow and sphinx in it; this is what it imports.
    "PGMax": Peer(
        ("--no-deps", "pgmax", "jax<0.7", "jaxlib<0.7", "ml_dtypes", "opt_einsum"),
        "pgmax.infer",
        "pgmax",
    ),
    # What it asks for has been renamed since.
    "active-semi-supervised-clustering": Peer(
        ("--no-deps", "active-semi-supervised-clustering", "metric-learn"),
        "active_semi_clustering",
        "active-semi-supervised-clustering",
    ),
}

#: From sources that no registry has: no row; the page has figures with their conditions.
ABSENT = ("Middlebury MRF", "libDAI", "SRMP", "OpenGM")


class Row(NamedTuple):
    """A line of the table.

    Attributes
    ----------
    group : str
        What is compared, the heading of some rows.
    problem : str
        A spec, or ``pairs(data=...)`` for clusterings.
    ours : str
        A solver's spec, or an estimator.
    peer, call : str
        One of `PEERS`, and which function of `peer_sides` calls it.
    temperature : float
    limit : float, optional
        CPU seconds that ours may take, and what a peer that takes all of its time is given.
    settings : dict
        Of the peer, for the function that calls it.
    quick : bool
        Whether ``--quick`` has it.
    """

    group: str
    problem: str
    ours: str
    peer: str
    call: str
    temperature: float = 0.0
    limit: float | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012  # never written to
    quick: bool = False

    @property
    def name(self) -> str:
        """What tells rows apart."""
        return f"{self.problem} | {self.ours} | {self.peer} {self.call}"


def _instance(name: str) -> str:
    return f"instances(instance={name})"


def _exact() -> list[Row]:
    names = ["toulbar2/celar6sub0", "uai2014_map/wcsp_13", "uai2014_map/Promedas_40"]
    names += ["toulbar2/cap131", "toulbar2/1aho", "uai2014_mar/linkage_14"]
    return [
        Row(
            "Exact search",
            _instance(name),
            "branch-and-bound",
            "toulbar2",
            "toulbar2",
            limit=60.0,
            quick=name.endswith("celar6sub0"),
        )
        for name in names
    ]


def _programs() -> list[Row]:
    iris = "estep(data=iris, constraints=100, noise=0.1, centroids=constraints)"
    wine = "estep(data=wine, constraints=200, noise=0.2)"
    digits = "estep(data=digits-389, constraints=1000, noise=0.2, centroids=kmeans)"
    group = "E-steps"
    rows = [
        Row(group, problem, "ilp", "OR-Tools", "cpsat", limit=20.0, quick=problem == iris)
        for problem in (iris, wine, digits)
    ]
    return [
        *rows,
        *(Row(group, iris, ours, "pgmpy", "mplp") for ours in ("lp-relaxation", "loopy-bp")),
    ]


def _cuts() -> list[Row]:
    # Each variable is expanded in turn by both, from the same labelling.
    expansion = "alpha-expansion(order=sequential)"
    grid = "image-denoising(levels=2, height=400, width=400)"
    group = "Cuts"
    return [
        Row(group, "stereo(pair=tsukuba)", expansion, "gco", "expansion"),
        Row(group, "stereo(pair=teddy)", expansion, "gco", "expansion"),
        Row(group, grid, "persistency(then=icm)", "PyMaxflow", "maxflow", quick=True),
        Row(group, grid, "persistency(then=icm)", "QPBO", "qpbo"),
        Row(
            group,
            "estep(data=breast-cancer, constraints=1000, noise=0.1)",
            "persistency(then=icm)",
            "QPBO",
            "qpbo",
        ),
    ]


def _max_cut() -> list[Row]:
    ours = "simulated-annealing(restarts=15, reheats=0, sweeps=16000, end_ratio=0.03)"
    return [
        Row("Max-cut in 5 CPU s", _instance(f"maxcut_qubo/{name}"), ours, peer, call, limit=5.0)
        for name in ("G1", "G14")
        for peer, call in (
            ("dwave-samplers", "tabu"),
            ("dwave-samplers", "annealing"),
            ("MQLib", "burer"),
        )
    ]


def _trees() -> list[Row]:
    def row(name: str, peer: str, call: str, quick: bool = False) -> Row:
        kind, temperature = ("best labels", 0.0) if call == "best" else ("marginals", 1.0)
        group = f"Trees of cliques: {kind}"
        return Row(group, _instance(name), "junction-tree", peer, call, temperature, quick=quick)

    small = ("libdai/alarm", "small_merlin/ChestClinic", "small_pgmpy/grid4x4")
    large = ("uai2014_mar/Promedus_24", "uai2014_mar/Segmentation_11")
    return [
        *(
            row(name, "pgmpy", call, quick=name == "libdai/alarm")
            for call in ("best", "marginals")
            for name in small
        ),
        *(row(name, "pyAgrum", "shafer_shenoy") for name in ("libdai/alarm", *large)),
    ]


def _belief_propagation() -> list[Row]:
    return [
        Row(
            "Belief propagation, 200 sweeps",
            _instance(name),
            "loopy-bp(damping=0.5, max_sweeps=200, tolerance=0)",
            "PGMax",
            "belief_propagation",
            settings={"sweeps": 200, "damping": 0.5},
        )
        for name in ("uai2014_map/Grids_25", "uai2014_map/Segmentation_14")
    ]


def _clusterings() -> list[Row]:
    return [
        Row(
            "Clusterings with 60 pairs, violated pairs in place of energies",
            f"pairs(data={data})",
            kind,
            "active-semi-supervised-clustering",
            kind,
        )
        for data in ("iris", "wine")
        for kind in ("PCKMeans", "MPCKMeans", "COPKMeans")
    ]


ROWS = (
    *_exact(),
    *_programs(),
    *_cuts(),
    *_max_cut(),
    *_trees(),
    *_belief_propagation(),
    *_clusterings(),
)
