"""The data sets of `quality.py`, `peers.py` and other benchmarks, as sparse matrices."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from criteo_rows import StandIn, features
from numpy.typing import NDArray

from dadagrad import Dataset, dataset_from_arrays
from dadagrad.data.synthetic import Corpus

CENSUS_TRAIN = 199_523
CLICKS = 150_000
DOCUMENTS = (60_000, 20_000)  # to learn from, and to test on
TRAIN_SHARE = 0.7  # of the rows of a set that comes without a split
WORDS = re.compile(r"[a-z']+")
COUNTED = (
    "bad worst awful terrible", "great excellent wonderful best", "not no don't didn't", "i my",
    "love loved", "waste boring poor", "but", "and", "the", "film", "movie", "very", "only", "even",
    "perfect amazing beautiful", "stupid worse horrible",
)  # fmt: skip
# Attributes of adult that a9a cuts into five ranges: first column, a number for each range.
ADULT = {0: (22, 30, 37, 45, 60), 13: (8e4, 14e4, 18e4, 22e4, 35e4), 34: (7, 9, 10, 13, 15),
         77: (25, 38, 40, 45, 55)}  # fmt: skip
ADULT_MONEY = {73: 8000.0, 75: 1900.0}  # two columns each: none, and some


@dataclass(frozen=True)
class RealSet:
    """Rows to learn from and to test on; labels are numbers of classes, or any numbers."""

    x: scipy.sparse.csr_array
    y: NDArray[Any]
    test_x: scipy.sparse.csr_array
    test_y: NDArray[Any]

    def ordered(self, seed: int) -> RealSet:
        """The same with the rows to learn from in a random order."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        return RealSet(self.x[order], self.y[order], self.test_x, self.test_y)

    def datasets(self) -> tuple[Dataset, Dataset]:
        """Datasets to learn from and to test on."""
        test = dataset_from_arrays(self.test_x, self.test_y)
        return dataset_from_arrays(self.x, self.y), test


def split(
    x: Any, y: Sequence[Any] | NDArray[Any], n_train: int, *, classes: bool = True
) -> RealSet:
    """The first `n_train` rows to learn from, the others to test on."""
    rows = scipy.sparse.csr_array(x, dtype=np.float32)
    # scikit-learn takes indices of 32 bits alone.
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    labels = np.asarray(y)
    if classes:
        labels = np.unique(labels, return_inverse=True)[1]
    return RealSet(rows[:n_train], labels[:n_train], rows[n_train:], labels[n_train:])


def split_randomly(x: Any, y: NDArray[Any], *, classes: bool = True) -> RealSet:
    order = np.random.default_rng(0).permutation(len(y))
    rows, n_train = scipy.sparse.csr_array(x)[order], int(TRAIN_SHARE * len(y))
    return split(rows, y[order], n_train, classes=classes)


def a9a(data: Path) -> RealSet:
    from sklearn.datasets import load_svmlight_files

    files = [str(data / "adult_a9a" / name) for name in ("a9a", "a9a.t")]
    x, y, test_x, test_y = load_svmlight_files(files, n_features=123)
    return split(scipy.sparse.vstack([x, test_x]), np.append(y, test_y), len(y))


def a9a_units(data: Path) -> RealSet:
    """a9a with columns in units from 0.001 to 10,000."""
    binary = a9a(data)
    units = scipy.sparse.diags_array(10 ** np.random.default_rng(0).uniform(-3, 4, 123))
    rows = scipy.sparse.vstack([binary.x, binary.test_x]) @ units
    return split(rows, np.append(binary.y, binary.test_y), len(binary.y))


def adult(data: Path) -> RealSet:
    """a9a with six numbers as people write them: age, weight, education, hours, gain and loss."""
    binary, rng = a9a(data), np.random.default_rng(0)
    rows = scipy.sparse.vstack([binary.x, binary.test_x]).toarray()
    columns, left_out = [], []
    for first, numbers in ADULT.items():
        noise = 1 + 0.1 * rng.normal(size=len(rows))
        columns.append(np.round(rows[:, first : first + 5] @ np.array(numbers) * noise))
        left_out += range(first, first + 5)
    for first, amount in ADULT_MONEY.items():
        is_first = rows[:, first + 1] > 0
        columns.append(np.where(is_first, amount * np.exp(0.5 * rng.normal(size=len(rows))), 0.0))
        left_out += [first, first + 1]
    table = np.column_stack([np.delete(rows, left_out, axis=1), *columns])
    return split(table, np.append(binary.y, binary.test_y), len(binary.y))


def w8a(data: Path) -> RealSet:
    from sklearn.datasets import load_svmlight_file

    return split_randomly(*load_svmlight_file(str(data / "w8a" / "w8a")))


def census(data: Path) -> RealSet:
    values, positive = read_census(data)
    return split(one_hot(values), positive, CENSUS_TRAIN)


def census_pairs(data: Path) -> RealSet:
    """Values and pairs of values."""
    values, positive = read_census(data)
    return split(one_hot(with_pairs(values)), positive, CENSUS_TRAIN)


def with_pairs(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Numbers of values and of all pairs of them, by row; -1 is none."""
    first, second = np.triu_indices(values.shape[1], 1)
    blocks = []
    n_values = int(values.max()) + 1
    for block in np.array_split(values, 16):
        pairs = n_values * (1 + block[:, first]) + block[:, second]
        present = (block[:, first] >= 0) & (block[:, second] >= 0)
        blocks.append(np.hstack([block, np.where(present, pairs, -1)]).astype(np.int32))
    return np.vstack(blocks)


def one_hot(numbers: NDArray[np.int32]) -> scipy.sparse.csr_array:
    """Ones at the numbers of each row; -1 is none."""
    present = numbers >= 0
    features, columns = np.unique(numbers[present], return_inverse=True)
    indptr = np.append(0, np.cumsum(present.sum(axis=1)))
    ones = np.ones(len(columns), np.float32)
    return scipy.sparse.csr_array((ones, columns, indptr), shape=(len(numbers), len(features)))


def newsgroups(data: Path, *, tf_idf: bool = False) -> RealSet:
    """Logarithms of counts, times the rarity of the word in `tf_idf`; rows of length 1."""
    content = scipy.io.loadmat(data / "newsgroups20" / "20Newsgroups.mat")
    rows = scipy.sparse.csr_array(content["fea"]).astype(np.float64)
    documents = (rows > 0).sum(axis=0)
    rows.data = np.log1p(rows.data)
    if tf_idf:
        rows = rows @ scipy.sparse.diags_array(np.log(rows.shape[0] / np.maximum(documents, 1)) + 1)
    lengths = np.sqrt(rows.power(2).sum(axis=1))
    rows = scipy.sparse.csr_array(scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-9)) @ rows)
    train, test = (content[name].ravel() - 1 for name in ("trainIdx", "testIdx"))
    order = np.append(train, test)
    return split(rows[order], content["gnd"].ravel()[order], len(train))


def pixels(data: Path) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    def read(name: str, header: int) -> NDArray[np.uint8]:
        content = gzip.decompress((data / "mnist" / f"{name}-ubyte.gz").read_bytes())
        return np.frombuffer(content[header:], np.uint8)

    images = np.append(read("train-images-idx3", 16), read("t10k-images-idx3", 16))
    labels = np.append(read("train-labels-idx1", 8), read("t10k-labels-idx1", 8))
    return images.reshape(-1, 784).astype(np.float64), labels


def mnist(data: Path, scale: float = 1 / 255) -> RealSet:
    images, labels = pixels(data)
    return split(images * scale, labels, 60_000)


def mnist_moments(data: Path) -> RealSet:
    """Sums and moments of the pixels, from 0.1 to 10,000,000."""
    images, labels = pixels(data)
    squares, place = images.reshape(-1, 28, 28), np.arange(28.0)
    rows, columns = squares.sum(axis=2), squares.sum(axis=1)
    bright = (squares > 100).reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    powers = [sums @ place**power for sums in (rows, columns) for power in (0, 1, 2)]
    table = np.column_stack([*powers, rows, columns, np.square(rows[:, ::4]), bright])
    return split(table, labels, 60_000)


def rcv1(data: Path) -> RealSet:
    """The sample of Reuters RCV1 in VW's format."""
    folder = data / "rcv1_vw_small"
    lines = [
        line.split("|f", 1)
        for name in ("rcv1_small.dat", "rcv1_small_test.data")
        for line in (folder / name).read_text().splitlines()
    ]
    n_train = len((folder / "rcv1_small.dat").read_text().splitlines())
    rows = [[entry.partition(":") for entry in text.split()] for _, text in lines]
    indptr = np.append(0, np.cumsum([len(row) for row in rows]))
    ids = np.array([int(name) for row in rows for name, _, _ in row])
    values = np.array([float(value or 1) for row in rows for _, _, value in row])
    matrix = scipy.sparse.csr_array((values, ids, indptr))
    return split(matrix, [float(label.split()[0]) for label, _ in lines], n_train)


def digits(data: Path) -> RealSet:
    """scikit-learn's 8 x 8 digits, from 0 to 16."""
    from sklearn.datasets import load_digits

    return split_randomly(*load_digits(return_X_y=True))


def cancer(data: Path) -> RealSet:
    """scikit-learn's breast cancer table, 30 measurements."""
    from sklearn.datasets import load_breast_cancer

    return split_randomly(*load_breast_cancer(return_X_y=True))


# Made rows


def criteo(data: Path) -> RealSet:
    """The stand-in for Criteo's click logs, hashed to 2^20 features."""
    blocks = list(StandIn(CLICKS).blocks())
    ids = np.concatenate([features(block, 20) for block in blocks])
    indptr = np.arange(0, ids.size + 1, ids.shape[1])
    rows = scipy.sparse.csr_array((np.ones(ids.size), ids.ravel(), indptr), (len(ids), 1 << 20))
    rows.sum_duplicates()
    clicked = np.concatenate([block.clicked for block in blocks])
    return split(rows, clicked, int(0.8 * CLICKS))


def rcv1_shaped(data: Path) -> RealSet:
    """A corpus with the statistics of Reuters RCV1."""
    parts = [corpus_rows(Corpus(n_rows, part=part)) for part, n_rows in enumerate(DOCUMENTS)]
    rows, labels = zip(*parts, strict=True)
    return split(scipy.sparse.vstack(rows), np.concatenate(labels), DOCUMENTS[0])


def corpus_rows(corpus: Corpus) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Rows and labels, -1 or 1, of a corpus."""
    matrices, labels = [], []
    for block in corpus.blocks():
        content = block.values, block.ids, block.indptr
        matrices.append(scipy.sparse.csr_array(content, (block.n_rows, corpus.n_features)))
        labels.append(block.labels[:, 0])
    return scipy.sparse.vstack(matrices, format="csr"), np.concatenate(labels)


# Film reviews


def imdb(data: Path) -> RealSet:
    """Words and pairs of words, present or not, rows of length 1."""
    texts, labels, _, n_train = read_reviews(data)
    return split(words_and_pairs(texts), labels, n_train)


def imdb_ratings(data: Path) -> RealSet:
    """The same rows; the labels are ratings, 1 to 4 and 7 to 10."""
    texts, _, ratings, n_train = read_reviews(data)
    return split(words_and_pairs(texts), ratings, n_train, classes=False)


def words_and_pairs(texts: list[str]) -> scipy.sparse.csr_matrix:
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(
        n_features=1 << 21, ngram_range=(1, 2), binary=True, alternate_sign=False
    )
    return words.transform(texts)


def imdb_counts(data: Path) -> RealSet:
    """Lengths of each text, and counts of signs and words."""
    texts, labels, _, n_train = read_reviews(data)
    return split(np.array([counts(text) for text in texts]), labels, n_train)


def counts(text: str) -> list[float]:
    words = WORDS.findall(text.lower())
    numbers_of_words: dict[str, int] = {}
    for word in words:
        numbers_of_words[word] = numbers_of_words.get(word, 0) + 1
    signs = [text.count(sign) for sign in '!?",.']
    upper, numbers = sum(map(str.isupper, text)), sum(map(str.isdigit, text))
    size, n = len(text), max(len(words), 1)
    shares = [size / n, len(numbers_of_words) / n, upper / max(size, 1)]
    groups = [sum(numbers_of_words.get(word, 0) for word in group.split()) for group in COUNTED]
    return [
        size,
        n,
        len(numbers_of_words),
        size**2 / 1000,
        *signs,
        upper,
        numbers,
        *shares,
        *groups,
    ]


def read_reviews(data: Path) -> tuple[list[str], list[str], NDArray[np.float64], int]:
    """The texts, labels and ratings, those to learn from first, and the number of these."""
    parts: dict[str, list[tuple[str, str, float]]] = {"train": [], "test": []}
    archive = data / "imdb" / "aclImdb_labelled.tsv.xz"
    with lzma.open(archive, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            part, label, _, rating, text = line.split("\t", 4)
            if part in parts:
                parts[part].append((text, label, float(rating)))
    texts, labels, ratings = zip(*parts["train"], *parts["test"], strict=True)
    return list(texts), list(labels), np.array(ratings), len(parts["train"])


# Census


def read_census(data: Path) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """A number for each attribute's value, (n_rows, 33), -1 where missing; and the class."""
    (archive,) = (data / "kdd_census_income").glob("*.tar.xz")
    numbers_of_values: dict[tuple[int, str], int] = {}
    with tarfile.open(archive, "r:xz") as files:
        inner = files.extractfile(files.getmembers()[0])
        assert inner is not None
        lines = io.TextIOWrapper(inner, encoding="utf-8")
        for line in lines:
            if line.strip().lower() == "@data":
                break
        numbers, classes = [], []
        for row in csv.reader(lines):
            if row:
                numbers.append([number_of(numbers_of_values, key) for key in enumerate(row[:-1])])
                classes.append(row[-1].startswith("50000+"))
    return np.array(numbers, np.int32), np.array(classes)


def number_of(numbers: dict[tuple[int, str], int], key: tuple[int, str]) -> int:
    return -1 if key[1] == "?" else numbers.setdefault(key, len(numbers))


CHOSEN_ON: dict[str, Callable[[Path], RealSet]] = {
    "IMDB, words and pairs of words": imdb,
    "a9a": a9a,
    "census, pairs of values": census_pairs,
    "MNIST": mnist,
    "20 Newsgroups, tf-idf": lambda data: newsgroups(data, tf_idf=True),
    "a9a in other units": a9a_units,
    "IMDB, counts": imdb_counts,
    "MNIST, moments": mnist_moments,
}
"""Sets on which rules and defaults were chosen."""

CONFIRMED_ON: dict[str, Callable[[Path], RealSet]] = {
    "RCV1, 1,000 rows": rcv1,
    "w8a": w8a,
    "census, values": census,
    "20 Newsgroups, logarithms": newsgroups,
    "MNIST, 0 to 255": lambda data: mnist(data, 1.0),
    "adult, raw numbers": adult,
    "digits, 0 to 16": digits,
    "breast cancer": cancer,
}
"""Sets that were looked at afterwards."""
