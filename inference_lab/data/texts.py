"""Readers of text collections, and the named collections.

Files are read in place; archives are read member by member and nothing is unpacked to disk.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.data.corpus import Corpus, body_of_post, clean, count_terms
from inference_lab.data.datasets import DataFormatError, read_lines
from inference_lab.data.published import find_published

_PathLike: TypeAlias = "str | os.PathLike[str]"

#: Newsgroups of the three published subsets (Basu, Bilenko and Mooney 2004, sec. 4.1).
NEWS_SUBSETS: Mapping[str, tuple[str, ...]] = {
    "news-different-3": ("alt.atheism", "rec.sport.baseball", "sci.space"),
    "news-related-3": ("talk.politics.guns", "talk.politics.mideast", "talk.politics.misc"),
    "news-similar-3": ("comp.graphics", "comp.os.ms-windows.misc", "comp.windows.x"),
}

#: A post, and all of them, may not unpack to more bytes than this.
_LARGEST_POST = 1 << 22
_LARGEST_ARCHIVE = 1 << 28
_MEMBER = re.compile(r"(?:\./)?[^/.][^/]*/(?P<group>[a-z0-9][a-z0-9.+-]*)/(?P<number>[0-9]+)")


# ---------------------------------------------------------------------- files


@dataclass(frozen=True)
class Post:
    """A Usenet post as it was sent, with its header."""

    group: str
    number: int
    text: str


def read_newsgroups(path: _PathLike, groups: Sequence[str] | None = None) -> list[Post]:
    """Read posts from a tar archive of files ``FOLDER/GROUP/NUMBER``."""
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
                        f"{path}: member {member.name!r} is not a post; expected "
                        "files FOLDER/GROUP/NUMBER"
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
    """Read the MEDLINE, CISI and CRANFIELD abstracts from a MATLAB file with `A` and `labels`."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError
    from scipy.sparse import csr_array

    try:
        content = loadmat(path, spmatrix=False, variable_names=("A", "labels"))
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
    return Corpus("classic3", clean(values), labels, names, words)


def read_yahoo(counts: _PathLike, classes: _PathLike) -> Corpus:
    """Read the Yahoo! News K-series in the form of CLUTO."""
    lines = _integers(counts)
    shape = next(lines, (0, []))[1]
    if len(shape) != 2:
        raise DataFormatError(f"{counts}, line 1: two numbers are expected")
    n, d = shape
    rows, columns, entries = [], [], []
    document = 0
    for at, numbers in lines:
        if len(numbers) != 1 + 2 * numbers[0]:
            raise DataFormatError(
                f"{counts}, line {at}: {numbers[0]} terms are announced, and "
                f"{(len(numbers) - 1) / 2:g} follow"
            )
        rows += [document] * numbers[0]
        columns += numbers[1::2]
        entries += numbers[2::2]
        document += 1
    if document != n:
        raise DataFormatError(f"{counts}: {document} documents; {n} are announced")
    values = _matrix(np.array(rows), np.array(columns), np.array(entries), (n, d), counts)
    member = np.array([numbers for _, numbers in _integers(classes)])
    if member.ndim != 2 or member.shape[1] != n or not (member.sum(axis=0) == 1).all():
        raise DataFormatError(
            f"{classes}: rows of {n} zeros and ones, with every document in one class, are expected"
        )
    names = tuple(f"class {h}" for h in range(len(member)))
    # The words themselves are not part of the collection.
    terms = tuple(f"term {t}" for t in range(d))
    return Corpus("k1a", values, member.argmax(axis=0).astype(np.int64), names, terms)


def _lines(path: _PathLike) -> list[str]:
    """Return the lines of a text file that are not blank."""
    return [line for line in read_lines(Path(path), "latin-1") if line.strip()]


def _integers(path: _PathLike) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of each line that is not blank, and the whole numbers in it."""
    for at, line in enumerate(_lines(path), start=1):
        try:
            yield at, [int(field) for field in line.split()]
        except ValueError as problem:
            raise DataFormatError(f"{path}, line {at}: {problem}") from None


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
    return clean(csr_array((count.astype(np.float64), (row, column)), shape=(n, d)))


# ---------------------------------------------------------------------- by name


def _news(name: str, data_dir: Path | None) -> Corpus:
    """Load some newsgroups, or all."""
    path = find_published("text/mini_newsgroups.tar.gz", data_dir)
    return _of_posts(name, read_newsgroups(path, NEWS_SUBSETS.get(name)))


def _classic3(data_dir: Path | None) -> Corpus:
    return read_classic3(
        find_published("text/classic3.mat", data_dir),
        find_published("text/classic3_terms.txt", data_dir),
    )


def _classic3_subset(data_dir: Path | None) -> Corpus:
    """Draw 100 CRANFIELD, 100 MEDLINE and 200 CISI abstracts, always the same."""
    corpus = _classic3(data_dir)
    rng = np.random.default_rng(0)
    documents = [
        rng.permutation(np.flatnonzero(corpus.labels == corpus.class_names.index(name)))[:size]
        for name, size in (("cranfield", 100), ("medline", 100), ("cisi", 200))
    ]
    return replace(corpus.rows(np.sort(np.concatenate(documents))), name="classic3-subset")


def _yahoo(data_dir: Path | None) -> Corpus:
    return read_yahoo(
        find_published("text/k1a_sparse.txt", data_dir),
        find_published("text/k1a_correct.txt", data_dir),
    )


_CORPORA: Mapping[str, tuple[str, Callable[[Path | None], Corpus]]] = {
    "news-different-3": (
        "300 posts: atheism, baseball, space",
        partial(_news, "news-different-3"),
    ),
    "news-related-3": (
        "300 posts: politics of guns, of the Middle East, others",
        partial(_news, "news-related-3"),
    ),
    "news-similar-3": (
        "300 posts: graphics, MS Windows, X Windows",
        partial(_news, "news-similar-3"),
    ),
    "news-20": ("2000 posts of 20 groups", partial(_news, "news-20")),
    "classic3": ("3891 abstracts: MEDLINE, CISI, CRANFIELD", _classic3),
    "classic3-subset": ("400 of them: 100, 200 and 100", _classic3_subset),
    "k1a": ("2340 Yahoo! news, 20 classes", _yahoo),
}


def corpora() -> dict[str, str]:
    """Return the names that `load_corpus` accepts, each with a one-line description."""
    return {name: description for name, (description, _) in _CORPORA.items()}


def load_corpus(name: str, data_dir: _PathLike | None = None) -> Corpus:
    """Load a text collection by name, as counts."""
    if name not in _CORPORA:
        raise ValueError(f"collection {name!r} is unknown; allowed: {', '.join(_CORPORA)}")
    return _CORPORA[name][1](None if data_dir is None else Path(data_dir))
