"""A synthetic corpus with the statistics of Reuters RCV1, for the demo, tests and benchmarks.

Words are drawn from a power law, documents have log-normal lengths, values are log tf-idf scaled to
length 1, and feature ids do not depend on frequencies. The label of a document (+1 or -1, half of
each) is drawn first. A sparse set of words leans to one label, so that the best classifier is a
sparse linear one; a few labels are wrong, so that none is perfect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, cut
from dadagrad.data.dataset import MemoryDataset, Schema
from dadagrad.data.labels import LabelCollector
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError

TextFormat = Literal["svmlight", "vw"]

BLOCK_ROWS = 8192
"""Rows of a block. Each block has its own random numbers: a longer corpus begins alike."""

DIGITS = 5
"""Decimals of a value: arrays and text hold the same numbers."""

_SKEW = 1.1  # exponent of the power law
_HEAD = 40.0  # flattens its head, as stop words are left out
_LENGTH_SPREAD = 0.7  # of the logarithm of a document's length: RCV1's deciles are 24 and 157
_LEANING = 0.2  # share of the words that lean to a label
_LEAN = 1.5  # average log odds of a leaning word
_WRONG = 0.02  # share of wrong labels


@dataclass(frozen=True)
class Corpus:
    """A corpus that is made block by block.

    Documents have `nnz_per_row` distinct words on average. Equal parameters give equal bits; more
    rows continue fewer. Parts share words and labelling but not documents, as training and test
    data do.
    """

    n_rows: int
    n_features: int = 47_236
    nnz_per_row: float = 76.0
    seed: int = 0
    part: int = 0

    def __post_init__(self) -> None:
        if self.n_rows < 1 or self.seed < 0 or self.part < 0:
            raise InputError(
                f"a corpus needs n_rows >= 1, seed >= 0 and part >= 0, not {self.n_rows}, "
                f"{self.seed} and {self.part}"
            )
        if self.n_features < 16 or not 1.0 <= self.nnz_per_row <= self.n_features / 4:
            raise InputError(
                f"a corpus needs n_features >= 16 and nnz_per_row from 1 to n_features / 4, not "
                f"{self.n_features} and {self.nnz_per_row}"
            )

    def blocks(self) -> Iterator[Block]:
        """The rows, `BLOCK_ROWS` at a time; ids are sorted within a row, labels (n_rows, 1)."""
        words = _Words(self.n_features, self.nnz_per_row, self.seed)
        for number, start in enumerate(range(0, self.n_rows, BLOCK_ROWS)):
            # Whole blocks are drawn and cut: the rows do not depend on the length of the corpus.
            yield cut(words.block(self.part, number), 0, min(BLOCK_ROWS, self.n_rows - start))

    def dataset(self) -> MemoryDataset:
        """The corpus as a dataset in memory, of which each block is a partition."""
        parts, collector = [], LabelCollector()
        for block in self.blocks():
            labels = collector.encode(block.labels)
            parts.append(Rows.from_csr(block.indptr, block.ids, block.values, labels))
        return MemoryDataset(parts, Schema(self.n_features, collector.settle().columns))

    def write_text(self, path: str | os.PathLike[str], format: TextFormat = "svmlight") -> int:
        """Write the corpus as text to a new file; returns the number of bytes."""
        with open(path, "wb") as file:
            return sum(file.write(_text_of(block, format)) for block in self.blocks())


class _Words:
    """Words of all blocks. Arrays are by rank: 0 is the most common word."""

    def __init__(self, n_features: int, nnz_per_row: float, seed: int) -> None:
        random = np.random.default_rng([seed, 0])
        self._seed = seed
        self._median_length = _median_length(n_features, nnz_per_row)
        lengths = _lengths(self._median_length)
        pairs = n_features // 2
        strength = random.exponential(_LEAN, pairs) * random.choice([-1.0, 1.0], pairs)
        self._ids = random.permutation(n_features)
        self._idf = np.empty(n_features)  # by id
        self._idf[self._ids] = -np.log(_share_with(_frequencies(n_features), lengths).mean(axis=1))
        # Of pairs of neighbouring ranks, 0 for most.
        self._lean = np.where(random.random(pairs) < _LEANING, strength, 0.0)

    def block(self, part: int, number: int) -> Block:
        """All rows of block `number` of a part."""
        random = np.random.default_rng([self._seed, 1, part, number])
        lengths = np.exp(random.normal(np.log(self._median_length), _LENGTH_SPREAD, BLOCK_ROWS))
        lengths = np.maximum(lengths, 1.0).astype(np.int64)
        labels = random.choice([-1.0, 1.0], BLOCK_ROWS)
        rows = np.repeat(np.arange(BLOCK_ROWS), lengths)
        ranks = _rank(random.random(len(rows)), len(self._ids))
        # Leaning words change places with their neighbours in rank, by the odds of the label.
        pair = np.minimum(ranks >> 1, len(self._lean) - 1)
        leaning = np.flatnonzero(self._lean[pair])
        odds = self._lean[pair[leaning]] * labels[rows[leaning]]
        second = random.random(len(leaning)) < 1.0 / (1.0 + np.exp(odds))
        ranks[leaning] = 2 * pair[leaning] + second
        # One sort finds the distinct words of each document, their counts and their order.
        keys = np.sort(rows * len(self._ids) + self._ids[ranks])
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        rows, ids = np.divmod(keys[first], len(self._ids))
        raw = (1.0 + np.log(counts)) * self._idf[ids]
        length = np.sqrt(np.bincount(rows, np.square(raw), BLOCK_ROWS))
        rounded = np.maximum(np.rint(raw / length[rows] * 10**DIGITS), 1.0)
        wrong = random.random(BLOCK_ROWS) < _WRONG
        return Block(
            np.searchsorted(rows, np.arange(BLOCK_ROWS + 1)),
            ids,
            (rounded / 10**DIGITS).astype(np.float32),
            np.where(wrong, -labels, labels)[:, None],
        )


def _text_of(block: Block, format: TextFormat) -> bytes:
    """Lines of text, in which features are numbered from 1 in svmlight and from 0 in vw."""
    first, ends = {"svmlight": (1, ""), "vw": (0, " |")}[format]
    ids = pc.cast(pa.array(block.ids + first), pa.string())
    values = pc.cast(pa.array(block.values), pa.string())
    entries = pc.binary_join_element_wise(ids, values, ":")
    features = pc.binary_join(pa.LargeListArray.from_arrays(block.indptr, entries), " ")
    labels = pc.cast(pa.array(np.asarray(block.labels, np.int64)[:, 0]), pa.string())
    lines = pc.binary_join_element_wise(labels, features, f"{ends} ")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _rank(uniform: NDArray[np.float64], n_features: int) -> NDArray[np.int64]:
    """Ranks of probability ~ (rank + _HEAD) ** -_SKEW, by the inverse of its integral."""
    power = 1.0 - _SKEW
    low, high = _HEAD**power, (n_features + _HEAD) ** power
    ranks = (low + uniform * (high - low)) ** (1.0 / power) - _HEAD
    whole: NDArray[np.int64] = np.minimum(ranks.astype(np.int64), n_features - 1)
    return whole


def _frequencies(n_features: int) -> NDArray[np.float64]:
    """The probability of each rank, (n_features,), as `_rank` draws it."""
    power = 1.0 - _SKEW
    edges = (np.arange(n_features + 1) + _HEAD) ** power
    chances: NDArray[np.float64] = np.diff(edges) / (edges[-1] - edges[0])
    return chances


def _lengths(median: float) -> NDArray[np.float64]:
    """Nine lengths that represent the distribution."""
    normal = np.array([-1.593, -0.967, -0.589, -0.282, 0.0, 0.282, 0.589, 0.967, 1.593])
    return np.maximum(np.floor(median * np.exp(_LENGTH_SPREAD * normal)), 1.0)


def _share_with(
    frequencies: NDArray[np.float64], lengths: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The probability that a document of each length has each word, (n_words, n_lengths)."""
    return -np.expm1(lengths * np.log1p(-frequencies)[:, None])


def _median_length(n_features: int, nnz_per_row: float) -> float:
    """The median length in words that gives documents `nnz_per_row` distinct ones on average."""
    # Neighbours in rank are alike: some thousand groups represent all words.
    edges = np.unique(np.geomspace(1, n_features + 1, 2000).astype(np.int64)) - 1
    sizes = np.diff(edges)
    frequencies = np.add.reduceat(_frequencies(n_features), edges[:-1]) / sizes
    low, high = 0.5, 50.0 * nnz_per_row
    for _ in range(40):
        middle = np.sqrt(low * high)
        distinct = sizes @ _share_with(frequencies, _lengths(middle)).mean(axis=1)
        low, high = (middle, high) if distinct < nnz_per_row else (low, middle)
    return float(high)
