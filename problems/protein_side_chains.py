"""Protein side chains: a rotamer for each residue, so that side chains fit beside each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting

#: Number of dihedral angles of the side chain of each kind of residue, how often it occurs in
#: proteins (%), and the distance of its end from the backbone (Angstrom, rounded).
RESIDUES = {
    "Gly": (0, 7.1, 0.0),
    "Ala": (0, 8.3, 1.5),
    "Ser": (1, 6.6, 2.0),
    "Cys": (1, 1.4, 2.0),
    "Thr": (1, 5.3, 2.0),
    "Val": (1, 6.9, 2.0),
    "Pro": (1, 4.7, 1.9),
    "Leu": (2, 9.7, 2.6),
    "Ile": (2, 5.9, 2.4),
    "Asp": (2, 5.5, 2.5),
    "Asn": (2, 4.1, 2.5),
    "His": (2, 2.3, 3.1),
    "Phe": (2, 3.9, 3.4),
    "Tyr": (2, 2.9, 3.8),
    "Trp": (2, 1.1, 3.9),
    "Met": (3, 2.4, 3.0),
    "Glu": (3, 6.7, 3.1),
    "Gln": (3, 3.9, 3.1),
    "Lys": (4, 5.8, 3.5),
    "Arg": (4, 5.5, 4.1),
}

#: Share of the diameter below which the repulsion grows no further.
_OVERLAP = 0.8254
#: Largest value of the repulsion.
_SOFT = 10.0


@dataclass(frozen=True)
class ProteinSideChains(ProblemFamily):
    """Energies ``sum_i u_i(r_i) + sum_ij v_ij(r_i, r_j)`` over rotamers of residues.

    A rotamer sets each of the dihedral angles of a side chain to one of three values. A residue
    thus has 1, 3, 9, 27 or 81 labels, as in the published problems. ``u`` is minus the
    logarithm of the rotamer's frequency, ``v`` a repulsion between the ends of side chains,

    ``v = clash min(1, (1 - d / diameter) / (1 - 0.8254))`` at a distance ``d < diameter``, else 0.

    The model is drawn: a compact chain of residues of the usual frequencies, and side chains that
    point away from the backbone in random directions. No pair of a hidden set of rotamers, the
    native one, clashes. Published proteins are in the collections ``uai2008_protein`` and
    ``uai2012_protein`` of ``instances``.

    Parameters
    ----------
    residues : int
    max_rotamers : int
        Residues of more rotamers keep their most frequent ones.
    diameter : float
        Diameter of the end of a side chain, in Angstrom.
    clash : float
        Largest cost of a pair, or ``inf`` to forbid the costliest pairs; others are of scale 10.
    seed : int

    References
    ----------
    C. Yanover, O. Schueler-Furman, Y. Weiss, "Minimizing and learning energy functions for
    side-chain prediction", J. Comput. Biol. 15(7), 2008, eq. 1-2. A. Canutescu, A. Shelenkov,
    R. Dunbrack, "A graph-theory algorithm for rapid protein side-chain prediction", Protein
    Science 12, 2003 (the shape of the repulsion and its constants).

    Examples
    --------
    >>> ProteinSideChains(residues=12, max_rotamers=9, seed=1).build().graph
    FactorGraph(12 variables x 1-9 labels; terms: 1 Potts, 1 diagonal, 24 table)
    """

    residues: int = setting(50, at_least=1)
    max_rotamers: int = setting(81, at_least=1)
    diameter: float = setting(4.5, above=0, below=math.inf)
    clash: float = setting(10.0, above=0)
    seed: int = setting(0, at_least=0)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the model."""
        rng = np.random.default_rng(self.seed)
        kinds = list(RESIDUES.values())
        often = np.array([kind[1] for kind in kinds])
        chain = rng.choice(len(kinds), self.residues, p=often / often.sum())
        backbone = _compact_chain(self.residues, rng)
        unary: list[FloatArray] = []
        ends: list[FloatArray] = []
        native = np.zeros(self.residues, dtype=np.int64)
        centre = backbone.mean(axis=0)
        for i, kind in enumerate(chain):
            angles, _, reach = kinds[kind]
            shares = np.sort(rng.dirichlet(np.full(3**angles, 0.5)))[::-1][: self.max_rotamers]
            shares = np.maximum(shares, 1e-6)
            unary.append(-np.log(shares / shares.sum()))
            outward = _unit(backbone[i] - centre + rng.normal(size=3))
            spread = _unit(outward + 0.8 * rng.normal(size=(shares.size, 3)))
            ends.append(backbone[i] + reach * spread)
            native[i] = rng.integers(shares.size)
        edges, tables = self._pairs(backbone, ends, native)
        graph = FactorGraph.from_terms(unary, [OwnTables(edges, tables)])
        return Problem(self.spec, graph, info={"native_energy": graph.energy(native)})

    def _pairs(
        self, backbone: FloatArray, ends: list[FloatArray], native: IntArray
    ) -> tuple[IntArray, list[FloatArray]]:
        """Return the pairs of residues that interact, and their tables."""
        from scipy.spatial import KDTree

        reach = max(kind[2] for kind in RESIDUES.values())
        near = KDTree(backbone).query_pairs(2.0 * reach + self.diameter, output_type="ndarray")
        pairs: list[tuple[int, int]] = []
        tables: list[FloatArray] = []
        for i, j in near[np.lexsort((near[:, 1], near[:, 0]))].tolist():
            distance = np.sqrt(((ends[i][:, None] - ends[j][None]) ** 2).sum(axis=2))
            # Native rotamers may touch, but not clash.
            distance[native[i], native[j]] = max(distance[native[i], native[j]], self.diameter)
            if distance.min() < self.diameter:
                pairs.append((i, j))
                tables.append(self._repulsion(distance))
        return np.array(pairs, dtype=np.int64).reshape(-1, 2), tables

    def _repulsion(self, distance: FloatArray) -> FloatArray:
        overlap = np.maximum(1.0 - distance / self.diameter, 0.0) / (1.0 - _OVERLAP)
        if math.isinf(self.clash):
            return np.where(overlap >= 1.0, np.inf, _SOFT * overlap)
        return np.asarray(self.clash * np.minimum(overlap, 1.0))


def _unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _compact_chain(n: int, rng: np.random.Generator) -> FloatArray:
    """Return positions of residues 3.8 Angstrom apart in a chain that stays in a ball."""
    # The ball has the volume that n residues fill (about 135 cubic Angstrom each). Among random
    # steps, the one that ends farthest from the placed residues is taken.
    radius = (3.0 * 135.0 * n / (4.0 * math.pi)) ** (1.0 / 3.0)
    places = np.zeros((n, 3))
    for i in range(1, n):
        candidates = places[i - 1] + 3.8 * _unit(rng.normal(size=(16, 3)))
        others = places[max(0, i - 200) : i]
        nearest = ((candidates[:, None] - others[None]) ** 2).sum(axis=2).min(axis=1)
        # Capped, because more room than between neighbours in a chain is no better.
        value = np.minimum(np.sqrt(nearest), 5.0)
        value -= np.maximum(np.linalg.norm(candidates, axis=1) - radius, 0.0)
        places[i] = candidates[int(value.argmax())]
    return places
