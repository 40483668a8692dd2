"""Text collections: the readers, and the weights of the published experiments."""

from __future__ import annotations

import gzip
import io
import math
import tarfile

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csr_array

from inference_lab.data.corpus import Corpus, body_of_post, count_terms, latent_semantics
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.folders import DataNotFoundError
from inference_lab.data.texts import load_corpus, read_classic3, read_newsgroups, read_yahoo


def archive(path, members):
    """Write a tar archive of names and contents; a content may be a TarInfo of its own."""
    with tarfile.open(path, "w:gz") as out:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                out.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    return path


def toy_corpus(counts, labels=None):
    values = csr_array(np.array(counts, dtype=np.float64))
    n, d = values.shape
    classes = np.arange(n) % 2 if labels is None else np.array(labels)
    return Corpus("toy", values, classes, ("a", "b"), tuple(f"t{m}" for m in range(d)))


# ---------------------------------------------------------------------- counting


def test_words_are_counted_by_hand():
    counts, terms = count_terms(["Graphics graphics, x11 GIF's the", "", "gif file a"])
    assert terms == ("file", "gif", "graphics")
    assert counts.toarray().tolist() == [[0, 1, 2], [0, 0, 0], [1, 1, 0]]


def test_texts_without_words_are_an_error():
    with pytest.raises(ValueError, match="empty vocabulary"):
        count_terms(["the", "42 !"])


@pytest.mark.parametrize(
    ("post", "body"),
    [
        ("From: a\r\nSubject: b\r\n\r\nhello\r\nthere\r\n", "hello\nthere\n"),
        ("From: a\n\none\n--\ntwo\n-- \nA. B.\n", "one\n--\ntwo\n"),
        ("From: a\n\n> --\nquoted\n----\n", "> --\nquoted\n----\n"),
        ("no header at all", "no header at all"),
        ("From: a\n\n", ""),
    ],
)
def test_headers_and_signatures_go(post, body):
    assert body_of_post(post) == body


def test_weights_follow_the_thesis():
    """By hand: counts times log2(N / df), without rare and frequent terms, at unit length."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.7, size=(40, 12))
    counts[:, 0] = 1  # everywhere
    counts[:, 1] = 0
    counts[:4, 1] = 3  # in four documents
    corpus = toy_corpus(counts)
    df = (counts > 0).sum(axis=0)
    columns = [m for m in range(12) if df[m] >= 5 and df[m] <= 0.95 * 40]
    expected = counts[:, columns] * np.array([math.log2(40 / df[m]) for m in columns])
    rows = expected.sum(axis=1) > 0
    expected = expected[rows] / np.linalg.norm(expected[rows], axis=1, keepdims=True)
    weighted = corpus.weighted()
    assert weighted.terms == tuple(f"t{m}" for m in columns)
    assert {"t0", "t1"}.isdisjoint(weighted.terms)
    np.testing.assert_allclose(weighted.values.toarray(), expected, atol=1e-14)
    assert (weighted.labels == corpus.labels[rows]).all()
    assert (corpus.values.toarray() == counts).all()  # untouched


def test_counts_and_weights_are_of_the_same_documents_and_terms():
    counts = np.random.default_rng(1).poisson(0.4, size=(60, 8))
    counts[7] = 0
    corpus = toy_corpus(counts)
    weighted, pruned = corpus.weighted(), corpus.pruned()
    assert weighted.values.shape == pruned.values.shape
    assert weighted.values.shape[0] < 60
    assert ((weighted.values.toarray() > 0) == (pruned.values.toarray() > 0)).all()
    assert weighted.terms == pruned.terms
    assert (weighted.labels == pruned.labels).all()


def test_a_corpus_whose_parts_do_not_belong_together_is_refused():
    with pytest.raises(ValueError, match="2 rows and 2 columns, but 1 labels and 2 terms"):
        Corpus("toy", csr_array(np.ones((2, 2))), np.zeros(1, dtype=np.int64), ("a",), ("x", "y"))


def test_latent_semantics_keep_inner_products():
    """With all components nothing is lost; with fewer, the best approximation remains."""
    matrix = np.random.default_rng(2).random((9, 6))
    whole = latent_semantics(csr_array(matrix), 6)
    np.testing.assert_allclose(whole @ whole.T, matrix @ matrix.T, atol=1e-12)
    approximation = latent_semantics(matrix, 2)
    np.testing.assert_allclose(approximation, whole[:, :2], atol=1e-12)
    lost = np.linalg.norm(matrix @ matrix.T - approximation @ approximation.T, 2)
    assert lost == pytest.approx(np.linalg.svd(matrix)[1][2] ** 2)
    with pytest.raises(ValueError, match="n_components = 7"):
        latent_semantics(matrix, 7)


# ---------------------------------------------------------------------- newsgroups


def test_posts_are_read_in_order_and_by_group(tmp_path):
    path = archive(
        tmp_path / "news.tar.gz",
        [
            ("news/sci.space/20", b"A: b\n\n\xe9t\xe9\n"),
            ("news/sci.space/3", b"A: b\n\nfirst\n"),
            ("./news/alt.atheism/1", b"A: b\n\nother\n"),
        ],
    )
    posts = read_newsgroups(path)
    assert [(p.group, p.number) for p in posts] == [
        ("alt.atheism", 1),
        ("sci.space", 3),
        ("sci.space", 20),
    ]
    assert "été" in posts[2].text
    assert [p.number for p in read_newsgroups(path, ["sci.space"])] == [3, 20]
    with pytest.raises(DataFormatError, match=r"no posts of talk\.origins"):
        read_newsgroups(path, ["sci.space", "talk.origins"])


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/news/sci.space/1", "news/../1", "news/sci.space/readme", "news"]
)
def test_members_that_are_no_posts_are_refused(tmp_path, name):
    path = archive(tmp_path / "news.tar.gz", [(name, b"x")])
    with pytest.raises(DataFormatError, match="is not a post"):
        read_newsgroups(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["news.tar.gz"]  # nothing unpacked


def test_links_and_giants_are_refused(tmp_path):
    link = tarfile.TarInfo("news/sci.space/1")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(DataFormatError, match="is not a post"):
        read_newsgroups(archive(tmp_path / "a.tar.gz", [("", link)]))
    giant = archive(tmp_path / "b.tar.gz", [("news/sci.space/1", bytes((1 << 22) + 1))])
    with pytest.raises(DataFormatError, match="brings 4194305 bytes"):
        read_newsgroups(giant)


def test_damaged_archives_are_refused(tmp_path):
    whole = archive(tmp_path / "a.tar.gz", [("news/sci.space/1", bytes(range(256)) * 50)])
    for damaged in (b"no archive", whole.read_bytes()[:150]):
        path = tmp_path / "damaged.tar.gz"
        path.write_bytes(damaged)
        with pytest.raises(DataFormatError, match="damaged"):
            read_newsgroups(path)


# ---------------------------------------------------------------------- other files


def test_classic3_is_read_from_matlab(tmp_path):
    counts = np.array([[1, 0, 2], [0, 3, 0]])
    savemat(tmp_path / "c.mat", {"A": csr_array(counts, dtype=np.float64), "labels": [[2], [0]]})
    (tmp_path / "terms.txt").write_text("heart\nwing\nindex\n")
    corpus = read_classic3(tmp_path / "c.mat", tmp_path / "terms.txt")
    assert corpus.values.toarray().tolist() == counts.tolist()
    assert [corpus.class_names[h] for h in corpus.labels] == ["cranfield", "medline"]
    (tmp_path / "terms.txt").write_text("heart\n")
    with pytest.raises(DataFormatError, match="1 terms"):
        read_classic3(tmp_path / "c.mat", tmp_path / "terms.txt")
    (tmp_path / "c.mat").write_bytes(b"nothing of the kind")
    with pytest.raises(DataFormatError, match="no MATLAB file"):
        read_classic3(tmp_path / "c.mat", tmp_path / "terms.txt")


def k_series(tmp_path, counts="3 4\n2 0 5 3 1\n0\n1 2 7\n", classes="1 0 0\n0 1 1\n"):
    paths = tmp_path / "k.txt.gz", tmp_path / "c.txt"
    paths[0].write_bytes(gzip.compress(counts.encode()))
    paths[1].write_text(classes)
    return paths


def test_the_k_series_is_read(tmp_path):
    corpus = read_yahoo(*k_series(tmp_path))
    assert corpus.values.toarray().tolist() == [[5, 0, 0, 1], [0, 0, 0, 0], [0, 0, 7, 0]]
    assert corpus.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ("3\n", "line 1: two numbers"),
        ("3 4\n2 0 5\n0\n1 2 7\n", "line 2: 2 terms are announced"),
        ("3 4\n0\n1 2 7\n", "2 documents; 3 are announced"),
        ("3 4\n0\n0\n1 4 7\n", "outside 3 documents and 4 terms"),
        ("3 4\n0\n0\n1 -1 7\n", "outside"),
        ("3 4\n0\n0\n1 2 -1\n", "outside"),
        ("3 4\n0\n1 x 2\n", "line 3: invalid literal"),
    ],
)
def test_damaged_counts_are_refused(tmp_path, counts, message):
    with pytest.raises(DataFormatError, match=message):
        read_yahoo(*k_series(tmp_path, counts))


def test_damaged_classes_and_truncated_gzip_files_are_refused(tmp_path):
    with pytest.raises(DataFormatError, match="every document in one class"):
        read_yahoo(*k_series(tmp_path, classes="1 0 0\n1 1 1\n"))
    paths = k_series(tmp_path)
    paths[0].write_bytes(paths[0].read_bytes()[:20])
    with pytest.raises(DataFormatError, match="unreadable"):
        read_yahoo(*paths)


# ---------------------------------------------------------------------- real data


#: The first, the last four, and the others together, are the published six classes.
K1A = [494, 248, 44, 21, 70, 278, 125, 187, 54, 24, 158, 18, 74, 65, 9, 14, 141, 114, 60, 142]


@pytest.mark.parametrize(
    ("name", "documents", "terms", "sizes"),
    [
        ("news-different-3", 300, 9077, [100, 100, 100]),
        ("classic3", 3891, 4303, [1033, 1460, 1398]),
        ("classic3-subset", 400, 4303, [100, 200, 100]),
        ("k1a", 2340, 21839, K1A),
    ],
)
def test_published_collections_have_their_sizes(data_dir, name, documents, terms, sizes):
    corpus = load_corpus(name, data_dir)
    assert corpus.values.shape == (documents, terms)
    assert np.bincount(corpus.labels).tolist() == sizes
    assert corpus.values.min() >= 0
    assert (corpus.values.data > 0).all()


def test_news_hold_words_of_their_groups_and_no_headers(data_dir):
    corpus = load_corpus("news-different-3", data_dir)
    for group, word in (("sci.space", "orbit"), ("rec.sport.baseball", "pitcher")):
        column = corpus.terms.index(word)
        rows = corpus.values[:, [column]].toarray().ravel() > 0
        assert (corpus.labels[rows] == corpus.class_names.index(group)).mean() > 0.8
    # Every header has it, some bodies quote one.
    assert corpus.document_frequencies()[corpus.terms.index("newsgroups")] < 15
    assert corpus.weighted().values.shape == (299, 1250)


def test_names_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match="allowed: news-different-3"):
        load_corpus("reuters")
    with pytest.raises(DataNotFoundError, match=r"mini_newsgroups\.tar\.gz"):
        load_corpus("news-20", tmp_path)
