"""Decoding: the most likely codeword of a noisy block, from parity checks or a trellis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting

#: Parity checks of the Hamming code of length 7: column ``j`` is ``j + 1`` in binary.
_HAMMING = ((3, 4, 5, 6), (1, 2, 5, 6), (0, 2, 4, 6))
#: Generators of the convolutional code of rate 1/2 and memory 2, octal 7 and 5.
_GENERATORS = (0b111, 0b101)
_MEMORY = 2
#: Largest number of bits in a check that is one table, of ``2^r`` entries.
_MAX_TABLE = 16


@dataclass(frozen=True)
class DecodingProblem(Problem):
    """A decoding problem."""

    #: The variables of the bits that count in scores.
    bits: IntArray | None = None
    #: The bit of such a variable is its label shifted right by this number of places.
    shift: int = 0

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare the decoded bits with the sent bits."""
        if self.truth is None or self.bits is None:
            return {}
        found = self.graph.check_labels(labels)[self.bits] >> self.shift
        wrong = found != self.truth[self.bits] >> self.shift
        errors = float(wrong.mean())
        return {"bit_errors": errors, "block_error": float(wrong.any()), "accuracy": 1.0 - errors}


@dataclass(frozen=True)
class Decoding(ProblemFamily):
    """Energies ``sum_i -ln p(y_i | x_i) + sum_c (0 if parity check c holds, else inf)``.

    ``y`` is a random code word received over a noisy channel, so the minimum is the most likely
    word, and marginals at temperature 1 give bit-wise decoding. Energies of the AWGN
    channel leave out the constant of the normal density.

    Parameters
    ----------
    code : {"gallager", "hamming", "repeat-accumulate", "convolutional"}
        "gallager": random regular parity checks of `check_degree` bits, `bit_degree` at each
        bit. "hamming": blocks of 7 bits with 3 checks each, and nothing between the blocks.
        "repeat-accumulate": each of ``length / repeats`` bits is repeated, the repetitions are
        permuted and added up modulo 2 as they come; the sums are sent. "convolutional": the
        generators 7 and 5 (octal), rate 1/2, as a chain of states, ended by zeros: a tree, which
        the Viterbi algorithm solves.
    length : int
        Number of bits sent.
    bit_degree, check_degree : int
        Degrees of Gallager codes; `length` must be a multiple of `check_degree`. Their rate is at
        least ``1 - bit_degree / check_degree``.
    repeats : int
        Repetitions in repeat-accumulate codes; `length` must be a multiple of it.
    channel : {"bsc", "awgn"}
        Flips bits with probability `noise`; or adds normal noise of deviation `noise` to +1
        (bit 0) and -1 (bit 1).
    noise : float
    checks : {"table", "chain"}
        A check of r bits is one table of ``2^r`` entries (r at most 16), or r - 2 tables of
        three variables along a chain of partial sums, which are further variables.
    seed : int
        Seeds the code, the word and the noise, independently of each other.

    Notes
    -----
    For Gallager and Hamming codes the word sent is uniform over all words, and each check demands
    the parity that it has in this word: a coset of the code. On these channels that is exactly as
    hard as the code itself, needs no encoder, and does not favour labels of low number as the
    zero word would.

    References
    ----------
    R. Gallager, "Low-density parity-check codes", IRE Trans. Information Theory 8, 1962, sec. II.
    D. Divsalar, H. Jin, R. McEliece, "Coding theorems for turbo-like codes", Allerton 1998. A.
    Viterbi, "Error bounds for convolutional codes and an asymptotically optimum decoding
    algorithm", IEEE Trans. Information Theory 13, 1967. F. Kschischang, B. Frey, H.-A. Loeliger,
    "Factor graphs and the sum-product algorithm", IEEE Trans. Information Theory 47, 2001.

    Examples
    --------
    >>> problem = Decoding(length=24).build()
    >>> problem.graph
    FactorGraph(24 variables x 2 labels; terms: 12 higher-order)
    >>> problem.score(problem.truth)
    {'bit_errors': 0.0, 'block_error': 0.0, 'accuracy': 1.0}
    """

    code: Literal["gallager", "hamming", "repeat-accumulate", "convolutional"] = setting(
        "gallager", always=True
    )
    length: int = setting(504, at_least=1)
    bit_degree: int = setting(3, at_least=1)
    check_degree: int = setting(6, at_least=2)
    repeats: int = setting(3, at_least=2)
    channel: Literal["bsc", "awgn"] = "bsc"
    noise: float = setting(0.05, above=0, below=math.inf)
    checks: Literal["table", "chain"] = "table"
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        factor, why = {
            "gallager": (self.check_degree, "check_degree"),
            "hamming": (7, "the length of the code"),
            "repeat-accumulate": (self.repeats, "repeats"),
            "convolutional": (2, "the bits sent for each bit"),
        }[self.code]
        if self.length % factor:
            raise ValueError(
                f"length must be a multiple of {factor}, {why}, for code={self.code}, "
                f"got {self.length}"
            )
        if self.code == "convolutional" and self.length < 2 * (_MEMORY + 1):
            raise ValueError(
                f"length must be at least {2 * (_MEMORY + 1)} for code=convolutional, "
                f"got {self.length}"
            )
        if self.channel == "bsc" and not 0.0 < self.noise < 0.5:
            raise ValueError(f"noise of the BSC must be between 0 and 0.5, got {self.noise}")
        if self.checks == "table" and self.code == "gallager" and self.check_degree > _MAX_TABLE:
            raise ValueError(
                f"check_degree must be at most {_MAX_TABLE} for checks=table, got "
                f"{self.check_degree}; checks=chain takes any"
            )

    def build(self, data_dir: Path | None = None) -> DecodingProblem:
        """Draw code, word and noise, and set up the energy."""
        code, word, noise = np.random.default_rng(self.seed).spawn(3)
        if self.code == "convolutional":
            return self._convolutional(word, noise)
        if self.code == "repeat-accumulate":
            return self._repeat_accumulate(code, word, noise)
        n = self.length
        if self.code == "gallager":
            rows = np.concatenate(
                [code.permutation(n).reshape(-1, self.check_degree) for _ in range(self.bit_degree)]
            )
        else:
            rows = (np.array(_HAMMING) + 7 * np.arange(n // 7)[:, None, None]).reshape(-1, 4)
        sent = word.integers(0, 2, n)
        unary, errors = self._received(sent, noise)
        parity = sent[rows].sum(axis=1) % 2
        return self._problem(unary, sent, rows, parity, np.arange(n), errors)

    def _received(self, sent: IntArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Return ``-ln p(y | bit)``, shape (n, 2), and the share of bits that look flipped."""
        if self.channel == "bsc":
            received = sent ^ (rng.random(sent.size) < self.noise)
            cost = np.array([-math.log1p(-self.noise), -math.log(self.noise)])
            unary = cost[received[:, None] ^ np.arange(2)]
        else:
            signal = 1.0 - 2.0 * sent + rng.normal(0.0, self.noise, sent.size)
            unary = (signal[:, None] - np.array([1.0, -1.0])) ** 2 / (2.0 * self.noise**2)
        return unary, float((unary.argmin(axis=1) != sent).mean())

    def _problem(
        self,
        unary: FloatArray,
        truth: IntArray,
        rows: IntArray,
        parity: IntArray,
        bits: IntArray,
        errors: float,
    ) -> DecodingProblem:
        """Set up parity checks, all of the same number of bits."""
        degree = rows.shape[1]
        if self.checks == "chain" and degree > 3:
            # Variable s_t is the sum of the first t + 2 bits; the last two bits close the chain.
            sums = np.cumsum(truth[rows[:, :-2]], axis=1)[:, 1:] % 2
            first = truth.size
            extra = first + np.arange(sums.size).reshape(sums.shape)
            truth = np.concatenate([truth, sums.ravel()])
            unary = np.concatenate([unary, np.zeros((sums.size, 2))])
            begin = np.stack([rows[:, 0], rows[:, 1], extra[:, 0]], axis=1)
            middle = np.stack([extra[:, :-1], rows[:, 2:-2], extra[:, 1:]], axis=2).reshape(-1, 3)
            end = np.stack([extra[:, -1], rows[:, -2], rows[:, -1]], axis=1)
            rows = np.concatenate([begin, middle, end])
            parity = np.concatenate([np.zeros(len(begin) + len(middle), np.int64), parity])
            degree = 3
        odd = np.indices((2,) * degree).sum(axis=0) % 2
        tables = np.where(odd == np.arange(2).reshape(2, *(1,) * degree), 0.0, np.inf)
        graph = FactorGraph.from_terms(unary, factors=[(rows, tables[parity])])
        return DecodingProblem(
            self.spec, graph, truth=truth, info={"channel_errors": errors}, bits=bits
        )

    def _repeat_accumulate(
        self, code: np.random.Generator, word: np.random.Generator, noise: np.random.Generator
    ) -> DecodingProblem:
        """Build the chain of sums ``s_t = s_(t-1) + u_(pi(t))``; variables: bits, then sums."""
        n, k = self.length, self.length // self.repeats
        information = word.integers(0, 2, k)
        source = code.permutation(np.repeat(np.arange(k), self.repeats))
        sums = np.cumsum(information[source]) % 2
        received, errors = self._received(sums, noise)
        unary = np.concatenate([np.zeros((k, 2)), received])
        place = k + np.arange(n)
        rows = np.stack([place[:-1], source[1:], place[1:]], axis=1)
        equal = np.where(np.eye(2) > 0, 0.0, np.inf)
        triple = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2 == 0, 0.0, np.inf)
        factors = [([int(source[0]), k], equal), *((row, triple) for row in rows.tolist())]
        graph = FactorGraph.from_terms(unary, factors=factors)
        return DecodingProblem(
            self.spec,
            graph,
            truth=np.concatenate([information, sums]),
            info={"channel_errors": errors},
            bits=np.arange(k),
        )

    def _convolutional(
        self, word: np.random.Generator, noise: np.random.Generator
    ) -> DecodingProblem:
        """Build the trellis; variable ``t`` is the state after ``t`` bits, the last one highest."""
        steps = self.length // 2
        states = 1 << _MEMORY
        information = np.concatenate(
            [word.integers(0, 2, steps - _MEMORY), np.zeros(_MEMORY, dtype=np.int64)]
        )
        padded = np.concatenate([np.zeros(_MEMORY, dtype=np.int64), information])
        # Bits t - memory + 1 .. t as a number, the last one highest.
        truth = np.zeros(steps + 1, dtype=np.int64)
        for i in range(_MEMORY):
            truth |= padded[i : i + steps + 1] << i
        old, new = np.meshgrid(np.arange(states), np.arange(states), indexing="ij")
        possible = (old >> 1) == (new & (states // 2 - 1))
        register = ((new >> (_MEMORY - 1)) << _MEMORY) | old
        # Bits of the register that each generator adds up: axes old, new, output, bit.
        taps = (register[:, :, None] & np.array(_GENERATORS))[..., None] >> np.arange(_MEMORY + 1)
        outputs = (taps & 1).sum(axis=3) % 2
        sent = outputs[truth[:-1], truth[1:]]
        received, errors = self._received(sent.ravel(), noise)
        cost = received.reshape(steps, 2, 2)
        tables = cost[:, 0][:, outputs[:, :, 0]] + cost[:, 1][:, outputs[:, :, 1]]
        tables[:, ~possible] = np.inf
        unary = np.zeros((steps + 1, states))
        unary[[0, -1], 1:] = np.inf
        edges = np.stack([np.arange(steps), np.arange(1, steps + 1)], axis=1)
        return DecodingProblem(
            self.spec,
            FactorGraph.from_terms(unary, [OwnTables(edges, tables)]),
            truth=truth,
            info={"channel_errors": errors},
            bits=np.arange(1, steps + 1 - _MEMORY),
            shift=_MEMORY - 1,
        )
