"""Rows of Criteo's click logs: the published files, and a seeded stand-in of the same shape.

A row has a label (click or not), 13 whole numbers and 26 categories, each of which may be missing.
Every row has 39 features of value 1: the pair of column and value, hashed. Numbers above 2 share
buckets, floor(ln(x)^2) (Juan et al., Field-aware Factorization Machines, RecSys 2016); a missing
value is a value like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv
from scipy.optimize import brentq
from scipy.special import expit

NUMBERS, CATEGORIES = 13, 26

# Of Kaggle's file: distinct values of each category (the published counts), and, roughly, the base
# rate, the medians of the numbers and the shares of missing values.
BASE_RATE = 0.256
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
MEDIANS = (1, 2, 6, 4, 2800, 32, 3, 7, 38, 1, 1, 1, 4)
NUMBERS_MISSING = (0.45, 0, 0.21, 0.22, 0.03, 0.22, 0.04, 0, 0.04, 0.45, 0.04, 0.76, 0.22)
CATEGORIES_MISSING = (
    0, 0, 0.03, 0.03, 0, 0.12, 0, 0, 0, 0, 0, 0.03, 0, 0, 0, 0.03, 0, 0, 0.44, 0.44, 0.03, 0.76, 0,
    0.03, 0.44, 0.44,
)  # fmt: skip

BLOCK_ROWS, BLOCK_BYTES = 16_384, 1 << 24

# Of the stand-in. With these weights the best reachable log loss (0.439), and that of a linear
# model on a few million rows (0.46), are near those that are published for the real rows.
_SKEW = 1.1  # exponent of the power law of categories
_SPREAD = 1.5  # standard deviation of the logarithm of a number
_WEIGHT = 0.235  # standard deviation of the weight of a value
_PAIR_WEIGHT = 0.15  # of a pair of values
_PAIRS = ((0, 21), (2, 32), (5, 26), (9, 35), (13, 17), (14, 29), (18, 20), (22, 37))
_MISSING = 1 << 32

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class RawRows:
    """Rows as they were published.

    Attributes
    ----------
    clicked : (n_rows,) bool
    numbers : (n_rows, 13) float64, NaN where missing
    categories : (n_rows, 26) int64, -1 where missing
    log_odds : (n_rows, 2) float64 or None
        True log odds of a click, and those without the effects of pairs, of the stand-in only.
    """

    clicked: NDArray[np.bool_]
    numbers: NDArray[np.float64]
    categories: NDArray[np.int64]
    log_odds: NDArray[np.float64] | None = None


def features(rows: RawRows, bits: int) -> NDArray[np.int64]:
    """Feature ids below 2^bits, (n_rows, 39), sorted in each row; equal ids are collisions."""
    ids = (_mix(_keys(rows.numbers, rows.categories)) >> np.uint64(64 - bits)).astype(np.int64)
    ids.sort(axis=1)
    return ids


def read_tsv(path: Path, n_rows: int | None = None) -> Iterator[RawRows]:
    """The first rows of a published file (Kaggle's train.txt, a day of Terabyte), plain or gzip."""
    numbers = [f"I{number + 1}" for number in range(NUMBERS)]
    categories = [f"C{number + 1}" for number in range(CATEGORIES)]
    types = {"label": pa.bool_(), **dict.fromkeys(numbers, pa.float64())}
    batches = csv.open_csv(
        path,
        csv.ReadOptions(column_names=["label", *numbers, *categories], block_size=BLOCK_BYTES),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(
            column_types=types | dict.fromkeys(categories, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    remaining = math.inf if n_rows is None else n_rows
    for batch in batches:
        rows = batch.slice(0, min(remaining, batch.num_rows))
        if not rows.num_rows:
            return
        remaining -= rows.num_rows
        yield RawRows(
            rows["label"].to_numpy(zero_copy_only=False),
            np.stack([rows[name].to_numpy(zero_copy_only=False) for name in numbers], axis=1),
            np.stack([_from_hexadecimal(rows[name]) for name in categories], axis=1),
        )


def _from_hexadecimal(column: pa.Array) -> NDArray[np.int64]:
    numbers = pc.binary_join_element_wise("0x", column, "").cast(pa.int64())
    return numbers.fill_null(-1).to_numpy()


class Text:
    """Conversion of rows to VW text, features as integers of the unnamed namespace.

    Each id becomes a record of fixed width, from tables of its last four digits and of those
    before. The zero bytes that pad records are then removed all at once.
    """

    def __init__(self, bits: int) -> None:
        self._before = np.array([b" %d" % number for number in range((1 << bits) // 10_000 + 1)])
        self._last = np.array([b"%04d" % number for number in range(10_000)])
        self._labels = np.array([b"-1 |", b"1 |"])
        tables = {"label": self._labels, "before": self._before, "last": self._last}
        columns = [(name, table.dtype) for name, table in tables.items()]
        self._record = np.dtype([*columns, ("end", "S1")])

    def __call__(self, clicked: NDArray[np.bool_], ids: NDArray[np.int64]) -> bytes:
        """Lines of rows; an id that a row has twice is written once."""
        records = np.zeros(ids.shape, self._record)
        records["before"] = self._before[ids // 10_000]
        records["last"] = self._last[ids % 10_000]
        records[:, 1:][ids[:, 1:] == ids[:, :-1]] = np.zeros((), self._record)
        records["label"][:, 0] = self._labels[clicked.astype(np.int64)]
        records["end"][:, -1] = b"\n"
        return records.tobytes().translate(None, b"\0")


@dataclass(frozen=True)
class StandIn:
    """Rows whose labels follow planted weights of values and of pairs of values.

    Categories have the real cardinalities and follow a power law; columns are independent.
    Each block has its own random numbers: more rows continue fewer.
    """

    n_rows: int
    seed: int = 0

    def blocks(self) -> Iterator[RawRows]:
        calibration = self._log_odds(*self._draw(np.random.default_rng([self.seed, 0])))
        bias = [brentq(_rate_above_base, -20, 20, args=(column,)) for column in calibration.T]
        for number, first in enumerate(range(0, self.n_rows, BLOCK_ROWS)):
            random = np.random.default_rng([self.seed, 1, number])
            numbers, categories = self._draw(random)
            log_odds = self._log_odds(numbers, categories) + bias
            clicked = random.random(BLOCK_ROWS) < expit(log_odds[:, 0])
            n = min(BLOCK_ROWS, self.n_rows - first)
            yield RawRows(clicked[:n], numbers[:n], categories[:n], log_odds[:n])

    def _draw(self, random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Numbers and categories of a block."""
        normal = random.standard_normal((BLOCK_ROWS, NUMBERS))
        numbers = np.floor(np.exp(np.log(np.add(MEDIANS, 1.5)) + _SPREAD * normal)) - 1.0
        numbers[random.random(numbers.shape) < NUMBERS_MISSING] = np.nan
        uniform = random.random((BLOCK_ROWS, CATEGORIES))
        # The inverse of the integral of (1 + rank)^-skew.
        power = 1.0 - _SKEW
        last = (1.0 + np.array(CARDINALITIES)) ** power
        ranks = (1.0 + uniform * (last - 1.0)) ** (1.0 / power) - 1.0
        ranks = np.minimum(ranks, np.array(CARDINALITIES) - 1).astype(np.uint64)
        columns = np.arange(CATEGORIES, dtype=np.uint64) << np.uint64(32)
        names = (_mix(columns | ranks) >> np.uint64(32)).astype(np.int64)
        missing = random.random(names.shape) < CATEGORIES_MISSING
        return numbers, np.where(missing, -1, names)

    def _log_odds(
        self, numbers: NDArray[np.float64], categories: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Log odds with and without the effects of pairs, (n_rows, 2), up to a constant each."""
        keys = _keys(numbers, categories)
        salt = np.uint64(2 * self.seed + 1)
        first, second = np.array(_PAIRS).T
        pairs = _mix(keys[:, first]) + keys[:, second]
        of_values = _WEIGHT * _normal(keys, salt).sum(axis=1)
        of_pairs = _PAIR_WEIGHT * _normal(pairs, salt + np.uint64(1)).sum(axis=1)
        return np.stack([of_values + of_pairs, of_values], axis=1)


def _rate_above_base(bias: float, log_odds: NDArray[np.float64]) -> float:
    return float(expit(log_odds + bias).mean()) - BASE_RATE


def _keys(numbers: NDArray[np.float64], categories: NDArray[np.int64]) -> Keys:
    """A number for each pair of column and value, (n_rows, 39)."""
    buckets = numbers.copy()
    large = numbers > 2
    buckets[large] = 2 + np.floor(np.log(numbers[large]) ** 2)
    missing = np.isnan(numbers)
    buckets[missing] = 0
    values = np.hstack([buckets.astype(np.int64), categories]) & (_MISSING - 1)
    values[np.hstack([missing, categories < 0])] = _MISSING
    columns = np.arange(NUMBERS + CATEGORIES) << 33
    return (columns | values).astype(np.uint64)


def _normal(keys: Keys, salt: np.uint64) -> NDArray[np.float64]:
    """A number for each key, the same each time, as if drawn from the normal distribution."""
    # The sum of the four parts of a hash is nearly normal.
    hashes, part = _mix(keys + _mix(np.atleast_1d(salt))), np.uint64(0xFFFF0000FFFF)
    halves = (hashes & part) + ((hashes >> np.uint64(16)) & part)
    sums = (halves + (halves >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return (sums / 65536 - 2.0) * np.sqrt(3.0)


def _mix(keys: Keys) -> Keys:
    """A hash of 64 bits (the finalizer of SplitMix64)."""
    keys = keys + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
