"""The libDAI format ``.fg``: sparse tables of potentials, the first variable varying fastest.

``E(x) = - sum_f ln phi_f(x_f)``. Numbers are separated by any white space:

* the number of factors;
* for each factor the number of its variables, these variables, the number of labels of each, the
  number of listed entries, and ``index value`` for each of them. The first variable of the scope
  varies fastest in the index, unlike in UAI files; entries that are not listed are zero.

Reading
    A listed or omitted zero forbids (``+inf``); a table of zeros only is an error, as in UAI
    files. If an entry is listed twice, its last value counts. Variables keep their numbers;
    numbers below the largest that no factor names are variables with one label. Numbers out of the
    range of doubles (``1e-400``) keep their energy. Factors without variables are the constant.

This format is read only.

References
----------
J. M. Mooij, "libDAI: A Free and Open Source C++ Library for Discrete Approximate Inference in
Graphical Models", JMLR 11 (2010); "libDAI file formats" of its manual.
"""

from __future__ import annotations

import math

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, shown_scope
from inference_lab.io._files import FormatError
from inference_lab.io._potentials import check_possible, energies_of
from inference_lab.io._text import plain_text
from inference_lab.io._tokens import Tokens


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a libDAI file."""
    tokens = Tokens(plain_text(data, path), path)
    end = int(tokens.values.size)
    n_factors = tokens.integer(0, "the number of factors", high=max(0, end - 1) // 2)
    labels: dict[int, int] = {}
    scopes: list[list[int]] = []
    sizes: list[int] = []
    heads: list[int] = []
    indices, places = [], []
    at = 1
    total = 0
    limit = _limits.MAX_ENTRIES + end
    # Variable numbers are limited, because each unnamed variable has a label and takes memory.
    high = _limits.MAX_FREE_LABELS + end
    for f in range(n_factors):
        what = f"the number of variables of factor {f}"
        arity = tokens.integer(at, what, high=max(0, end - at - 2) // 2)
        scope = tokens.scope(at + 1, arity, high, f"factor {f}")
        label_counts = tokens.integers(
            at + 1 + arity + np.arange(arity),
            1,
            2**31,
            f"factor {f}: expected the numbers of labels of its variables, integers >= 1",
        ).astype(np.int64)
        for s, (v, k) in enumerate(zip(scope, label_counts.tolist(), strict=True)):
            if labels.setdefault(v, k) != k:
                message = f"factor {f} gives variable {v} {k} labels, another factor {labels[v]}"
                raise tokens.error(at + 1 + arity + s, message)
        at += 1 + 2 * arity
        what = f"the number of entries of factor {f}"
        count = tokens.integer(at, what, high=max(0, end - at - 1) // 2)
        shown = f"factor {f} over {shown_scope(tuple(scope))}"
        size = math.prod(label_counts.tolist())
        if count > size:
            raise tokens.error(at, f"{shown} has {size} entries, but {count} are listed")
        total += size
        if total > limit:
            raise tokens.error(at, f"{shown}: too many entries in all; at most {limit} are read")
        listed = at + 1 + 2 * np.arange(count)
        expected = f"{shown}: expected the index of an entry, 0 to {size - 1}"
        index = tokens.integers(listed, 0, size, expected)
        indices.append(total - size + index.astype(np.int64))
        places.append(listed + 1)
        # The scope is reversed, because tables here are in C order: the last varies fastest.
        scopes.append(scope[::-1])
        sizes.append(size)
        heads.append(at)
        at += 1 + 2 * count
    tokens.check_end(at, "the last factor")
    layout = Scopes.of_lists(scopes)

    def fail(place: int, why: str) -> FormatError:
        f = int(np.searchsorted(heads, place, side="right")) - 1
        return tokens.error(
            place,
            f"factor {f} over {shown_scope(tuple(scopes[f][::-1]))}, entry "
            f"{tokens.shown(place - 1)}: the potential {tokens.shown(place)} {why}; potentials are "
            "finite numbers >= 0",
        )

    energies = np.full(total, math.inf)
    none = np.empty(0, dtype=np.int64)
    values = energies_of(tokens, np.concatenate([none, *places]), fail)
    energies[np.concatenate([none, *indices])] = values
    lengths = np.array(sizes, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    minima = np.minimum.reduceat(energies, starts) if sizes else energies
    check_possible(tokens, layout, minima, np.array(heads, dtype=np.int64))
    cardinalities = np.ones(max(labels, default=-1) + 1, dtype=np.int64)
    cardinalities[list(labels)] = list(labels.values())
    return assemble(
        path,
        lambda f, why: tokens.error(heads[f], f"{layout.shown(f)}: {why}"),
        Tables(cardinalities, layout, lengths, starts, energies),
    )
