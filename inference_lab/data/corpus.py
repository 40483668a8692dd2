"""Text collections as matrices: words counted, and the weights of the published experiments.

A collection is a matrix of term counts, one row a document, with a class for each. The weights of
the papers on text clustering (Basu 2005, sec. 2.5) come from it by `Corpus.weighted`: counts times
``log2(N / df)``, without rare and very common terms, rows of length one. `Corpus.pruned` keeps the
counts of the same documents and terms, which divergences between distributions need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

#: Terms in fewer documents are dropped, and terms in a larger share of them.
_FEWEST_DOCUMENTS = 5
_LARGEST_SHARE = 0.95

#: Words of two letters or more, without digits.
_TERM = r"(?<!\w)[a-z]{2,}(?!\w)"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as rows of term counts or weights, each with a class.

    ``values`` (n, d) is a CSR array of float64, not negative; ``labels`` (n,) are classes 0..K-1;
    ``terms`` are the terms that the columns count.
    """

    name: str
    values: Any
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    terms: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        n, d = self.values.shape
        if self.labels.shape != (n,) or len(self.terms) != d:
            raise ValueError(
                f"{self.name}: {n} rows and {d} columns, but {self.labels.size} labels and "
                f"{len(self.terms)} terms"
            )

    def __repr__(self) -> str:
        """Return the name and the sizes."""
        n, d = self.values.shape
        return f"Corpus({self.name!r}, {n} documents, {d} terms, {len(self.class_names)} classes)"

    def document_frequencies(self) -> npt.NDArray[np.int64]:
        """Return the number of documents with each term, shape (d,)."""
        return np.bincount(
            self.values.indices[self.values.data != 0], minlength=self.values.shape[1]
        ).astype(np.int64)

    def rows(self, chosen: npt.ArrayLike) -> Corpus:
        """Return some of the documents, in the order given."""
        at = np.asarray(chosen)
        return replace(self, values=self.values[at], labels=self.labels[at])

    def pruned(
        self, fewest: int = _FEWEST_DOCUMENTS, largest_share: float = _LARGEST_SHARE
    ) -> Corpus:
        """Return the counts without rare and very common terms, and without empty documents."""
        n = self.values.shape[0]
        df = self.document_frequencies()
        columns = np.flatnonzero((df >= fewest) & (df <= largest_share * n))
        values = self.values[:, columns]
        rows = np.flatnonzero(np.diff(values.indptr) > 0)
        return replace(
            self,
            values=values[rows],
            labels=self.labels[rows],
            terms=tuple(self.terms[t] for t in columns),
        )

    def weighted(
        self, fewest: int = _FEWEST_DOCUMENTS, largest_share: float = _LARGEST_SHARE
    ) -> Corpus:
        """Return pruned counts times ``log2(N / df)``, rows of length one.

        S. Basu, "Semi-supervised clustering", PhD thesis, University of Texas, 2005, sec. 2.5.
        """
        from scipy.sparse import diags_array
        from sklearn.preprocessing import normalize

        n = self.values.shape[0]
        pruned = self.pruned(fewest, largest_share)
        frequency = dict(zip(self.terms, self.document_frequencies().tolist(), strict=True))
        df = np.array([frequency[term] for term in pruned.terms], dtype=np.float64)
        idf = np.log2(n / df) if df.size else df
        return replace(pruned, values=normalize((pruned.values @ diags_array(idf)).tocsr()))


def latent_semantics(values: Any, n_components: int) -> npt.NDArray[np.float64]:
    """Return documents in the space of the largest singular vectors, shape (n, n_components).

    Each axis points to where the entry of largest size is positive, so that the answer does not
    depend on the library underneath. O(n d min(n, d)).
    """
    from sklearn.utils.extmath import svd_flip

    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)
    if not 1 <= n_components <= min(dense.shape):
        raise ValueError(
            f"n_components = {n_components}; a matrix of {dense.shape[0]} x {dense.shape[1]} has 1 "
            f"to {min(dense.shape)}"
        )
    left, sizes, right = np.linalg.svd(dense, full_matrices=False)
    left, _ = svd_flip(left, right)
    return np.ascontiguousarray(left[:, :n_components] * sizes[:n_components])


def body_of_post(text: str) -> str:
    r"""Return a post without its header and signature.

    The header ends at the first blank line; a signature begins at the last line that is ``--``.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    blank = next((at for at, line in enumerate(lines) if not line.strip()), None)
    body = lines if blank is None else lines[blank + 1 :]
    marks = [at for at, line in enumerate(body) if line.rstrip() == "--"]
    if marks:
        body = [*body[: marks[-1]], ""]
    return "\n".join(body)


def count_terms(texts: Iterable[str]) -> tuple[Any, tuple[str, ...]]:
    """Count the words of texts, in lower case and without English stop words.

    Words are runs of two or more letters a to z. Stop words are taken from scikit-learn.
    """
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(stop_words="english", token_pattern=_TERM, dtype=np.float64)
    counts = counter.fit_transform(texts)
    return clean(csr_array(counts)), tuple(counter.get_feature_names_out().tolist())


def clean(values: Any) -> Any:
    """Return the matrix with each entry once, sorted, and no zeros stored."""
    values.sum_duplicates()
    values.eliminate_zeros()
    return values
