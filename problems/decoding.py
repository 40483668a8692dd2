"""Decoding: the most likely codeword of a noisy block, from parity checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class DecodingProblem(Problem):
    """A decoding problem."""

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare the decoded bits with the sent bits."""
        wrong = self.graph.check_labels(labels) != self.truth
        errors = float(wrong.mean())
        return {"bit_errors": errors, "block_error": float(wrong.any()), "accuracy": 1.0 - errors}


@dataclass(frozen=True)
class Decoding(ProblemFamily):
    """Energies ``sum_i -ln p(y_i | x_i) + sum_c (0 if parity check c holds, else inf)``.

    ``y`` is a random word of a Gallager code (low-density parity checks, LDPC) received over a
    noisy channel, so the minimum is the most likely word, and marginals at temperature 1 give
    bit-wise decoding. Energies of the AWGN channel leave out the constant of the normal density.

    Parameters
    ----------
    length : int
        Number of bits sent, a multiple of `check_degree`.
    bit_degree, check_degree : int
        Checks of each bit, and bits of each check, which is a table of ``2 ** check_degree``
        entries. The rate is at least ``1 - bit_degree / check_degree``.
    channel : {"bsc", "awgn"}
        Flips bits with probability `noise`; or adds normal noise of deviation `noise` to +1
        (bit 0) and -1 (bit 1).
    noise : float
    seed : int
        Seeds the code, the word and the noise, independently of each other.

    Notes
    -----
    The word sent is uniform over all words, and each check demands the parity that it has in this
    word: a coset of the code. On these channels that is exactly as hard as the code itself, needs
    no encoder, and does not favour labels of low number as the zero word would.

    References
    ----------
    R. Gallager, "Low-density parity-check codes", IRE Trans. Information Theory 8, 1962, sec. II.
    F. Kschischang, B. Frey, H.-A. Loeliger, "Factor graphs and the sum-product algorithm", IEEE
    Trans. Information Theory 47, 2001.

    Examples
    --------
    >>> problem = Decoding(length=24).build()
    >>> problem.graph
    FactorGraph(24 variables x 2 labels; terms: 12 higher-order)
    >>> problem.score(problem.truth)
    {'bit_errors': 0.0, 'block_error': 0.0, 'accuracy': 1.0}
    """

    length: int = setting(504, at_least=1)
    bit_degree: int = setting(3, at_least=1)
    check_degree: int = setting(6, at_least=2, at_most=16)
    channel: Literal["bsc", "awgn"] = "bsc"
    noise: float = setting(0.05, above=0, below=math.inf)
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.length % self.check_degree:
            raise ValueError(
                f"length must be a multiple of {self.check_degree}, check_degree, got {self.length}"
            )
        if self.channel == "bsc" and not 0.0 < self.noise < 0.5:
            raise ValueError(f"noise of the BSC must be between 0 and 0.5, got {self.noise}")

    def build(self, data_dir: Path | None = None) -> DecodingProblem:
        """Draw code, word and noise, and set up the energy."""
        code, word, noise = np.random.default_rng(self.seed).spawn(3)
        n, degree = self.length, self.check_degree
        rows = np.concatenate(
            [code.permutation(n).reshape(-1, degree) for _ in range(self.bit_degree)]
        )
        sent = word.integers(0, 2, n)
        unary = self._received(sent, noise)
        odd = np.indices((2,) * degree).sum(axis=0) % 2
        tables = np.where(odd == np.arange(2).reshape(2, *(1,) * degree), 0.0, np.inf)
        return DecodingProblem(
            self.spec,
            FactorGraph.from_terms(unary, factors=[(rows, tables[sent[rows].sum(axis=1) % 2])]),
            truth=sent,
            info={"channel_errors": float((unary.argmin(axis=1) != sent).mean())},
        )

    def _received(self, sent: IntArray, rng: np.random.Generator) -> FloatArray:
        """Return ``-ln p(y | bit)``, shape (n, 2)."""
        if self.channel == "bsc":
            received = sent ^ (rng.random(sent.size) < self.noise)
            cost = np.array([-math.log1p(-self.noise), -math.log(self.noise)])
            return np.asarray(cost[received[:, None] ^ np.arange(2)])
        signal = 1.0 - 2.0 * sent + rng.normal(0.0, self.noise, sent.size)
        return np.asarray((signal[:, None] - [1.0, -1.0]) ** 2 / (2.0 * self.noise**2))
