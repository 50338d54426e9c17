"""Raw text into hashed word n-grams, exactly as scikit-learn's HashingVectorizer hashes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.delimited import LONGEST_SHOWN, Layout, OnError, Problems, parse_rows

DEFAULT_HASH_BITS = 20
"""HashingVectorizer's own default: about a million features."""

MAX_HASH_BITS = 30
"""The hash has 31 bits without its sign, and scikit-learn's ids 32 with it."""


def parse(
    chunk: bytes,
    *,
    path: str,
    offset: int,
    layout: Layout,
    label: int | None,
    text: int,
    ngrams: int = 1,
    hash_bits: int = DEFAULT_HASH_BITS,
    binary: bool = False,
    alternate_sign: bool = True,
    on_error: OnError = "raise",
) -> Block:
    """Parse whole rows of a delimited text file.

    Parameters
    ----------
    chunk
        Whole rows, in UTF-8.
    path, offset
        The file, and where in it the chunk starts: for messages.
    layout
        How its rows are laid out; a header is skipped at offset 0.
    label, text
        The positions of the two columns, from 0; None where there is no label.
    ngrams
        Features are the runs of 1 to `ngrams` words of two letters or more, in lower case.
    hash_bits
        A feature's id is its hash modulo ``2**hash_bits``.
    binary
        Whether an n-gram counts once however often it occurs; no values are stored then.
    alternate_sign
        Whether the hash also gives the sign of a count, so that collisions cancel on average.
    on_error
        ``"raise"`` an `InputError` at the first wrong row, or ``"skip"`` and count wrong rows.

    Returns
    -------
    Block
        Its labels are (n_rows, 1) float64 if all are numbers, else (n_rows,) texts; (n_rows, 0)
        where there is no label.
    """
    problems = Problems(chunk, path, offset, on_error)
    rows, lines, skipped = parse_rows(problems, layout)
    kept, labels, unlabelled = read_labels(problems, rows, lines, label)
    if not kept:
        empty = np.zeros(0)
        return Block(
            np.zeros(1, np.int64),
            empty.astype(np.int64),
            None,
            empty[:, None],
            skipped=skipped + unlabelled,
        )
    matrix = _vectorizer(ngrams, hash_bits, binary, alternate_sign).transform(
        [rows[number][text] for number in kept]
    )
    values = None
    if not binary:
        matrix.eliminate_zeros()
        values = matrix.data
    return Block(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        values,
        labels,
        skipped=skipped + unlabelled,
    )


@lru_cache(maxsize=4)
def _vectorizer(ngrams: int, hash_bits: int, binary: bool, alternate_sign: bool) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        ngram_range=(1, ngrams),
        n_features=2**hash_bits,
        binary=binary,
        alternate_sign=alternate_sign,
        norm=None,
        dtype=np.float32,
    )


def read_labels(
    problems: Problems, rows: list[list[str]], lines: list[int], column: int | None
) -> tuple[list[int], NDArray[Any], int]:
    """The labels of `rows`: numbers if all of them are, else texts.

    Returns
    -------
    kept
        The numbers of the rows that have a label.
    labels
        (n_kept, 1) float64, or (n_kept,) object array of str; (n_kept, 0) for no `column`.
    skipped
        How many rows have none; an error is raised for the first unless these are skipped.
    """
    if column is None:
        return list(range(len(rows))), np.zeros((len(rows), 0)), 0
    labels = [fields[column].strip() for fields in rows]
    numbers = _as_numbers(labels)
    kept = []
    for row, label in enumerate(labels):
        if label and (numbers is None or np.isfinite(numbers[row])):
            kept.append(row)
        elif problems.on_error == "raise":
            found = f"is {label[:LONGEST_SHOWN]}" if label else "is missing"
            raise problems.at(
                lines[row],
                f"the label, column {column} counted from 0, {found}; every row needs a class or "
                "a finite number there (--on-error skip leaves out rows that have none, and "
                "--no-labels reads a file without labels, to be predicted)",
            )
    skipped = len(labels) - len(kept)
    if numbers is not None:
        return kept, numbers[kept, None], skipped
    texts = np.empty(len(kept), object)
    texts[:] = [labels[row] for row in kept]
    return kept, texts, skipped


def _as_numbers(labels: list[str]) -> NDArray[np.float64] | None:
    """The labels as (n_rows,) float64, NaN where one is empty; None if one is no number."""
    try:
        numbers = np.array([float(label or "nan") for label in labels], np.float64)
    except ValueError:
        return None
    # Python reads 1_000 as a number; nobody else does.
    return None if any("_" in label for label in labels) else numbers
