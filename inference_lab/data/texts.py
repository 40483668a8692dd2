"""Text collections as matrices: readers, and the preprocessing of the published experiments.

A collection is a matrix of term counts, one row a document, with a class for each. The weights of
the papers on text clustering (Basu 2005, sec. 2.5) come from it by `Corpus.weighted`: counts times
``log2(N / df)``, without rare and very common terms, rows of length one. `Corpus.pruned` keeps the
counts of the same documents and terms, which divergences between distributions need.

Files are read where they lie; archives are read member by member and nothing is unpacked to disk.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.data.datasets import DataFormatError
from inference_lab.data.images import find_file

__all__ = [
    "NEWS_SUBSETS",
    "Corpus",
    "Post",
    "body_of_post",
    "corpora",
    "count_terms",
    "latent_semantics",
    "load_corpus",
    "read_classic3",
    "read_classic4",
    "read_newsgroups",
    "read_yahoo",
]

_PathLike: TypeAlias = "str | os.PathLike[str]"

#: Newsgroups of the three published subsets (Basu, Bilenko and Mooney 2004, sec. 4.1).
NEWS_SUBSETS: Mapping[str, tuple[str, ...]] = {
    "news-different-3": ("alt.atheism", "rec.sport.baseball", "sci.space"),
    "news-related-3": ("talk.politics.guns", "talk.politics.mideast", "talk.politics.misc"),
    "news-similar-3": ("comp.graphics", "comp.os.ms-windows.misc", "comp.windows.x"),
}

#: Terms in fewer documents are dropped, and those in a larger share of them.
_FEWEST_DOCUMENTS = 5
_LARGEST_SHARE = 0.95

#: Words of two letters or more; digits and what is joined to them are no terms.
_TERM = re.compile(r"(?<!\w)[a-z]{2,}(?!\w)")

#: A post, and all of them, may not unpack to more bytes than this.
_LARGEST_POST = 1 << 22
_LARGEST_ARCHIVE = 1 << 28
_MEMBER = re.compile(r"(?:\./)?[^/.][^/]*/(?P<group>[a-z0-9][a-z0-9.+-]*)/(?P<number>[0-9]+)")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as rows of term counts or weights, each with a class.

    Parameters
    ----------
    name : str
    values : (n, d) CSR array of float64
        Not negative.
    labels : (n,) array of int64
        Classes 0..K-1.
    class_names : tuple of str
    terms : tuple of str
        What the columns count.
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
        """Name and sizes only."""
        n, d = self.values.shape
        return f"Corpus({self.name!r}, {n} documents, {d} terms, {len(self.class_names)} classes)"

    def document_frequencies(self) -> npt.NDArray[np.int64]:
        """Return in how many documents each term occurs, shape (d,)."""
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
        """Return the counts without rare and very common terms, and without empty documents.

        Parameters
        ----------
        fewest : int
            Terms in fewer documents are dropped.
        largest_share : float
            Terms in a larger share of the documents are dropped.

        Returns
        -------
        Corpus
            Documents in which no term is left are left out.
        """
        n = self.values.shape[0]
        df = self.document_frequencies()
        kept = np.flatnonzero((df >= fewest) & (df <= largest_share * n))
        values = self.values[:, kept]
        some = np.flatnonzero(np.diff(values.indptr) > 0)
        return replace(
            self,
            values=values[some],
            labels=self.labels[some],
            terms=tuple(self.terms[t] for t in kept),
        )

    def weighted(
        self, fewest: int = _FEWEST_DOCUMENTS, largest_share: float = _LARGEST_SHARE
    ) -> Corpus:
        """Return counts times ``log2(N / df)``, pruned, with rows of length one.

        Parameters
        ----------
        fewest, largest_share
            See `pruned`; documents and terms are the same.

        References
        ----------
        S. Basu, "Semi-supervised clustering", PhD thesis, University of Texas, 2005, sec. 2.5.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> counts = csr_array([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]])
        >>> corpus = Corpus("toy", counts, np.array([0, 1, 0, 1]), ("a", "b"), ("x", "y"))
        >>> corpus.weighted(fewest=1).values.toarray().round(3).tolist()[0]
        [0.979, 0.203]
        """
        from scipy.sparse import diags_array
        from sklearn.preprocessing import normalize

        n = self.values.shape[0]
        kept = self.pruned(fewest, largest_share)
        frequency = dict(zip(self.terms, self.document_frequencies().tolist(), strict=True))
        df = np.array([frequency[term] for term in kept.terms], dtype=np.float64)
        idf = np.log2(n / df) if df.size else df
        return replace(kept, values=normalize((kept.values @ diags_array(idf)).tocsr()))


def latent_semantics(values: Any, n_components: int) -> npt.NDArray[np.float64]:
    """Return documents in the space of the largest singular vectors, shape (n, n_components).

    Each axis points to where the entry of largest size is positive, so that the answer does not
    depend on the library underneath.

    Parameters
    ----------
    values : (n, d) matrix, dense or sparse
    n_components : int
        At least 1 and at most min(n, d).

    Raises
    ------
    ValueError
        If there are not so many components.

    Complexity
    ----------
    O(n d min(n, d)): for collections of some thousand documents.

    Examples
    --------
    >>> latent_semantics(np.array([[3.0, 0.0], [0.0, 1.0]]), 1).tolist()
    [[3.0], [0.0]]
    """
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)
    if not 1 <= n_components <= min(dense.shape):
        raise ValueError(
            f"n_components = {n_components}; a matrix of {dense.shape[0]} x {dense.shape[1]} has 1 "
            f"to {min(dense.shape)}"
        )
    left, sizes, _ = np.linalg.svd(dense, full_matrices=False)
    left = left[:, :n_components]
    largest = np.abs(left).argmax(axis=0)
    signs = np.where(left[largest, np.arange(n_components)] < 0, -1.0, 1.0)
    return np.ascontiguousarray(left * (signs * sizes[:n_components]))


# ---------------------------------------------------------------------- counting


def body_of_post(text: str) -> str:
    r"""Return a post without its header and signature.

    The header ends at the first blank line; a signature begins at the last line that is ``--``.

    Examples
    --------
    >>> body_of_post("From: a@b\nSubject: hello\n\nsome text\n-- \nA. B.\n")
    'some text\n'
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

    Words are runs of two or more letters a to z. Stop words are those of scikit-learn.

    Returns
    -------
    (n, d) CSR array of float64, and the terms in alphabetical order

    Raises
    ------
    ValueError
        If no text has a word.

    Examples
    --------
    >>> counts, terms = count_terms(["The cat sat", "a cat, a Cat!"])
    >>> terms, counts.toarray().tolist()
    (('cat', 'sat'), [[1.0, 1.0], [2.0, 0.0]])
    """
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counted = [Counter(_TERM.findall(text.lower())) for text in texts]
    terms = tuple(sorted(set().union(*counted) - ENGLISH_STOP_WORDS))
    if not terms:
        raise ValueError("no text has a word of two letters or more that is no stop word")
    place = {term: column for column, term in enumerate(terms)}
    entries = [
        (row, place[term], count)
        for row, words in enumerate(counted)
        for term, count in words.items()
        if term in place
    ]
    rows, columns, counts = np.array(entries, dtype=np.int64).T
    shape = (len(counted), len(terms))
    return _clean(csr_array((counts.astype(np.float64), (rows, columns)), shape=shape)), terms


# ---------------------------------------------------------------------- files


@dataclass(frozen=True)
class Post:
    """A Usenet post as it was sent, header and all."""

    group: str
    number: int
    text: str


def read_newsgroups(path: _PathLike, groups: Sequence[str] | None = None) -> list[Post]:
    """Read posts from a tar archive of files ``FOLDER/GROUP/NUMBER``.

    Parameters
    ----------
    path : path
        Such as ``mini_newsgroups.tar.gz``.
    groups : sequence of str, optional
        Only these; default: all.

    Returns
    -------
    list of Post
        By group and number. Bytes are read as Latin-1.

    Raises
    ------
    DataFormatError
        If it is no such archive, is damaged, unpacks to too much, or lacks a group.
    OSError
        If it cannot be opened.
    """
    posts = []
    total = 0
    wanted = None if groups is None else set(groups)
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name = _MEMBER.fullmatch(member.name)
                if not member.isreg() or name is None:
                    raise DataFormatError(
                        f"{path}: member {member.name!r} is no post; files FOLDER/GROUP/NUMBER are "
                        "expected"
                    )
                total += member.size
                if member.size > _LARGEST_POST or total > _LARGEST_ARCHIVE:
                    raise DataFormatError(
                        f"{path}: {member.name!r} brings {member.size} bytes; at most "
                        f"{_LARGEST_POST} a post and {_LARGEST_ARCHIVE} together are read"
                    )
                if wanted is not None and name["group"] not in wanted:
                    continue
                content = archive.extractfile(member)
                assert content is not None  # regular files have one
                text = content.read().decode("latin-1")
                posts.append(Post(name["group"], int(name["number"]), text))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataFormatError(f"{path}: damaged or no tar archive: {problem}") from problem
    missing = (wanted or set()) - {post.group for post in posts}
    if missing:
        raise DataFormatError(f"{path}: no posts of {', '.join(sorted(missing))}")
    return sorted(posts, key=lambda post: (post.group, post.number))


def _of_posts(name: str, posts: Sequence[Post]) -> Corpus:
    counts, terms = count_terms(body_of_post(post.text) for post in posts)
    groups = tuple(sorted({post.group for post in posts}))
    labels = np.array([groups.index(post.group) for post in posts], dtype=np.int64)
    return Corpus(name, counts, labels, groups, terms)


def read_classic3(path: _PathLike, terms: _PathLike) -> Corpus:
    """Read the MEDLINE, CISI and CRANFIELD abstracts from a MATLAB file with `A` and `labels`.

    Parameters
    ----------
    path : path
        ``classic3.mat``.
    terms : path
        One term a line, in the order of the columns.

    Raises
    ------
    DataFormatError
        If the files are not these.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError
    from scipy.sparse import csr_array

    try:
        content = loadmat(path, variable_names=("A", "labels"))
        values = csr_array(content["A"], dtype=np.float64)
        labels = np.asarray(content["labels"]).ravel().astype(np.int64)
    except (
        ValueError,
        KeyError,
        TypeError,
        NotImplementedError,
        MatReadError,
        zlib.error,
    ) as problem:
        raise DataFormatError(
            f"{path}: no MATLAB file with counts A and labels: {problem}"
        ) from problem
    names = ("medline", "cisi", "cranfield")
    words = tuple(line.strip() for line in _lines(terms))
    if values.shape != (labels.size, len(words)) or not np.isin(labels, (0, 1, 2)).all():
        raise DataFormatError(
            f"{path}: counts of shape {values.shape}, {labels.size} labels and {len(words)} terms; "
            "a row for each label, all in 0..2, and a column for each term are expected"
        )
    return Corpus("classic3", _clean(values), labels, names, words)


def read_classic4(counts: _PathLike, documents: _PathLike, terms: _PathLike) -> Corpus:
    """Read the CACM, CISI, CRANFIELD and MEDLINE abstracts from triples of numbers.

    Parameters
    ----------
    counts : path
        A line ``documents terms entries``, then ``document term count``, counted from one.
    documents : path
        Name and class of each document.
    terms : path
        One term a line.

    Returns
    -------
    Corpus
        With the document that has no terms: `Corpus.pruned` leaves it out.

    Raises
    ------
    DataFormatError
        If the files are not these.
    """
    lines = _integers(counts)
    shape = next(lines, (0, []))[1]
    if len(shape) != 3:
        raise DataFormatError(f"{counts}, line 1: three numbers are expected")
    n, d, stored = shape
    entries = _table(lines, 3, counts, stored)
    row, column = entries[:, 0] - 1, entries[:, 1] - 1
    values = _matrix(row, column, entries[:, 2], (n, d), counts)
    classes: list[str] = []
    for at, line in enumerate(_lines(documents), start=1):
        fields = line.split()
        if len(fields) < 2:
            raise DataFormatError(f"{documents}, line {at}: a name and a class are expected")
        # "cacm.000001" and its class: the name says what the class is called.
        classes.append(fields[0].split(".")[0].strip('"'))
    words = tuple(line.strip() for line in _lines(terms))
    if len(classes) != n or len(words) != d:
        raise DataFormatError(
            f"{counts} tells of {n} documents and {d} terms, but {documents} has {len(classes)} "
            f"and {terms} has {len(words)}"
        )
    names, labels = np.unique(classes, return_inverse=True)
    return Corpus("classic4", values, labels.astype(np.int64), tuple(names.tolist()), words)


def read_yahoo(counts: _PathLike, classes: _PathLike, name: str = "k1a") -> Corpus:
    """Read the Yahoo! News K-series in the form of CLUTO.

    Parameters
    ----------
    counts : path
        A line ``documents terms``, then for each document ``n term count term count ...``, terms
        counted from zero.
    classes : path
        A row of 0 and 1 for each class: its documents.
    name : str

    Raises
    ------
    DataFormatError
        If the files are not these.
    """
    lines = _integers(counts)
    shape = next(lines, (0, []))[1]
    if len(shape) != 2:
        raise DataFormatError(f"{counts}, line 1: two numbers are expected")
    n, d = shape
    rows, columns, found = [], [], []
    document = 0
    for at, numbers in lines:
        if len(numbers) != 1 + 2 * numbers[0]:
            raise DataFormatError(
                f"{counts}, line {at}: {numbers[0]} terms are announced, and "
                f"{(len(numbers) - 1) / 2:g} follow"
            )
        rows += [document] * numbers[0]
        columns += numbers[1::2]
        found += numbers[2::2]
        document += 1
    if document != n:
        raise DataFormatError(f"{counts}: {document} documents; {n} are announced")
    values = _matrix(np.array(rows), np.array(columns), np.array(found), (n, d), counts)
    member = np.array([numbers for _, numbers in _integers(classes)])
    if member.ndim != 2 or member.shape[1] != n or not (member.sum(axis=0) == 1).all():
        raise DataFormatError(
            f"{classes}: rows of {n} zeros and ones, with every document in one class, are expected"
        )
    names = tuple(f"class {h}" for h in range(len(member)))
    # The words themselves are not part of the collection.
    terms = tuple(f"term {t}" for t in range(d))
    return Corpus(name, values, member.argmax(axis=0).astype(np.int64), names, terms)


def _lines(path: _PathLike) -> Iterator[str]:
    """Yield the lines of a text file, plain or gzipped, that are not blank."""
    opened = gzip.open if str(path).endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="latin-1") as stream:
            for line in stream:
                if line.strip():
                    yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise DataFormatError(f"{path}: unreadable: {problem}") from problem


def _integers(path: _PathLike) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of each line that is not blank, and the whole numbers in it."""
    for at, line in enumerate(_lines(path), start=1):
        try:
            yield at, [int(field) for field in line.split()]
        except ValueError as problem:
            raise DataFormatError(f"{path}, line {at}: {problem}") from None


def _table(
    lines: Iterator[tuple[int, list[int]]], width: int, path: _PathLike, stored: int
) -> npt.NDArray[np.int64]:
    rows = []
    for at, numbers in lines:
        if len(numbers) != width:
            raise DataFormatError(f"{path}, line {at}: {width} numbers are expected")
        rows.append(numbers)
    if len(rows) != stored:
        raise DataFormatError(f"{path}: {len(rows)} entries; {stored} are announced")
    return np.array(rows, dtype=np.int64).reshape(-1, width)


def _matrix(
    row: npt.NDArray[np.int64],
    column: npt.NDArray[np.int64],
    count: npt.NDArray[np.int64],
    shape: tuple[int, int],
    path: _PathLike,
) -> Any:
    from scipy.sparse import csr_array

    n, d = shape
    if row.size and (
        row.min() < 0 or row.max() >= n or column.min() < 0 or column.max() >= d or count.min() < 0
    ):
        raise DataFormatError(f"{path}: an entry lies outside {n} documents and {d} terms")
    return _clean(csr_array((count.astype(np.float64), (row, column)), shape=(n, d)))


def _clean(values: Any) -> Any:
    """Return the matrix with each entry once, sorted, and no zeros stored."""
    values.sum_duplicates()
    values.eliminate_zeros()
    return values


# ---------------------------------------------------------------------- by name


def _news(name: str, groups: tuple[str, ...] | None, data_dir: Path | None) -> Corpus:
    path = find_file(
        "mini_newsgroups.tar.gz",
        data_dir,
        "text",
        source="https://archive.ics.uci.edu/dataset/113/twenty+newsgroups",
    )
    return _of_posts(name, read_newsgroups(path, groups))


def _classic3(data_dir: Path | None) -> Corpus:
    return read_classic3(
        find_file("classic3.mat", data_dir, "text"),
        find_file("classic3_terms.txt", data_dir, "text"),
    )


def _classic3_subset(data_dir: Path | None) -> Corpus:
    """Draw 100 CRANFIELD, 100 MEDLINE and 200 CISI abstracts, always the same."""
    corpus = _classic3(data_dir)
    rng = np.random.default_rng(0)
    chosen = [
        rng.permutation(np.flatnonzero(corpus.labels == corpus.class_names.index(name)))[:size]
        for name, size in (("cranfield", 100), ("medline", 100), ("cisi", 200))
    ]
    return replace(corpus.rows(np.sort(np.concatenate(chosen))), name="classic3-subset")


def _classic4(data_dir: Path | None) -> Corpus:
    return read_classic4(
        find_file("classic4_docbyterm.txt.gz", data_dir, "text"),
        find_file("classic4_documents.txt.gz", data_dir, "text"),
        find_file("classic4_terms.txt.gz", data_dir, "text"),
    )


def _yahoo(name: str, data_dir: Path | None) -> Corpus:
    return read_yahoo(
        find_file("k1a_sparse.txt.gz", data_dir, "text"),
        find_file(f"{name}_correct.txt.gz", data_dir, "text"),
        name,
    )


_CORPORA: Mapping[str, tuple[str, Callable[[Path | None], Corpus]]] = {
    "news-different-3": (
        "300 posts: atheism, baseball, space",
        lambda data_dir: _news("news-different-3", NEWS_SUBSETS["news-different-3"], data_dir),
    ),
    "news-related-3": (
        "300 posts: politics of guns, of the Middle East, others",
        lambda data_dir: _news("news-related-3", NEWS_SUBSETS["news-related-3"], data_dir),
    ),
    "news-similar-3": (
        "300 posts: graphics, MS Windows, X Windows",
        lambda data_dir: _news("news-similar-3", NEWS_SUBSETS["news-similar-3"], data_dir),
    ),
    "news-20": ("2000 posts of 20 groups", lambda data_dir: _news("news-20", None, data_dir)),
    "classic3": ("3891 abstracts: MEDLINE, CISI, CRANFIELD", _classic3),
    "classic3-subset": ("400 of them: 100, 200 and 100", _classic3_subset),
    "classic4": ("7095 abstracts: CACM, CISI, CRANFIELD, MEDLINE", _classic4),
    "k1a": ("2340 Yahoo! news, 20 classes", lambda data_dir: _yahoo("k1a", data_dir)),
    "k1b": ("2340 Yahoo! news, 6 classes", lambda data_dir: _yahoo("k1b", data_dir)),
}


def corpora() -> dict[str, str]:
    """Return the names that `load_corpus` knows, each with a one-line description.

    Examples
    --------
    >>> corpora()["k1b"]
    '2340 Yahoo! news, 6 classes'
    """
    return {name: said for name, (said, _) in _CORPORA.items()}


def load_corpus(name: str, data_dir: _PathLike | None = None) -> Corpus:
    """Load a text collection by name, as counts.

    Parameters
    ----------
    name : str
        One of `corpora`.
    data_dir : path, optional
        Folder that holds ``text/``; default: the environment variable ``INFERENCE_LAB_DATA``.

    Raises
    ------
    ValueError
        If there is no collection of that name.
    DataNotFoundError, DataFormatError
        If its files are not there, or are not what they should be.
    """
    if name not in _CORPORA:
        raise ValueError(f"collection {name!r} is unknown; allowed: {', '.join(_CORPORA)}")
    return _CORPORA[name][1](None if data_dir is None else Path(data_dir))
