"""Data sets of the experiments; scikit-learn's digits are in their place at small sizes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.synthetic import Corpus
from examples.papers.record import Options

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # scripts, which are no package

import quality_sets
from quality_sets import RealSet

Labels = NDArray[np.bool_]
GROUPS = {"comp": range(1, 6), "rec": range(7, 11), "sci": range(11, 15), "talk": range(16, 20)}
"""Classes of the four large groups of 20 Newsgroups."""
RCV1_CATEGORIES = ("ECAT", "CCAT", "GCAT", "MCAT")
SMALL_ATTRIBUTES = 24
"""Values of the census attributes that have a product with every other."""


def texts(options: Options) -> Iterator[tuple[str, Any, dict[str, Labels]]]:
    """Sets of texts with 0/1 features: name, rows, and labels by category."""
    if options.quick:
        images = digits()
        yield "digits", images.x, {str(digit): images.y == digit for digit in (1,)}
        return
    if corpus := rcv1(options):
        yield corpus
    data = options.folder
    rows, labels = reviews(options)
    yield "IMDB", rows, {"positive": labels}
    news = whole(quality_sets.newsgroups(data))
    groups = {name: np.isin(news.y, classes) for name, classes in GROUPS.items()}
    yield "20 Newsgroups", binary(news.x), groups
    sample = whole(quality_sets.rcv1(data))
    yield "RCV1, 1,500 rows", binary(sample.x), {"CCAT": sample.y == 1}
    rows, labels = make_corpus(60_000, 47_236)
    yield "Made-up corpus", rows, {"positive": labels}


def rcv1(options: Options) -> tuple[str, Any, dict[str, Labels]] | None:
    """The whole of RCV1 with scikit-learn's features, if it can be had."""
    from sklearn.datasets import fetch_rcv1

    try:
        corpus = fetch_rcv1(download_if_missing=options.fetch)
    except OSError:
        return None
    names = list(corpus.target_names)
    columns = [names.index(category) for category in RCV1_CATEGORIES]
    about = corpus.target[:, columns].toarray().T > 0
    return "RCV1", binary(corpus.data), dict(zip(RCV1_CATEGORIES, about, strict=True))


def reviews(options: Options, min_rows: int = 100) -> tuple[Any, Labels]:
    """IMDB: words and pairs of words that are in `min_rows` rows or more, present or not."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts, labels, _ = quality_sets.read_reviews(options.folder)
    words = CountVectorizer(ngram_range=(1, 2), binary=True, min_df=min_rows, dtype=np.float32)
    return scipy.sparse.csr_array(words.fit_transform(texts)), np.array(labels) == max(labels)


def make_corpus(n_rows: int, n_features: int) -> tuple[Any, Labels]:
    """A made-up corpus with the statistics of RCV1, words present or not."""
    rows, labels = quality_sets.corpus_rows(Corpus(n_rows, n_features))
    return binary(rows), labels > 0


def newsgroups(options: Options) -> RealSet:
    """20 Newsgroups with rows of length 1, to learn from and to test on."""
    return digits() if options.quick else quality_sets.newsgroups(options.folder, tf_idf=True)


def census(options: Options) -> RealSet:
    """0/1 values of attributes with few values, and of their products."""
    if options.quick:
        return digits()
    values, positive = quality_sets.read_census(options.folder)
    few = [k for k, column in enumerate(values.T) if len(np.unique(column)) <= SMALL_ATTRIBUTES]
    rows = quality_sets.one_hot(quality_sets.with_pairs(values[:, few]))
    return quality_sets.split(rows, positive, quality_sets.CENSUS_TRAIN)


def images(options: Options) -> RealSet:
    """MNIST with pixels from 0 to 1."""
    return digits() if options.quick else quality_sets.mnist(options.folder)


def digits() -> RealSet:
    """The digits of scikit-learn with pixels 0 or 1."""
    data = quality_sets.digits(Path())
    rows = [scipy.sparse.csr_array((each > 7).astype(np.float32)) for each in (data.x, data.test_x)]
    return RealSet(rows[0], data.y, rows[1], data.test_y)


def whole(data: RealSet) -> RealSet:
    """All rows together, as those to learn from."""
    rows = scipy.sparse.csr_array(scipy.sparse.vstack([data.x, data.test_x]))
    return RealSet(rows, np.append(data.y, data.test_y), data.test_x[:0], data.test_y[:0])


def binary(rows: Any) -> Any:
    """The same rows with ones for all values."""
    rows = scipy.sparse.csr_array(rows, dtype=np.float32, copy=True)
    rows.data[:] = 1.0
    return rows
