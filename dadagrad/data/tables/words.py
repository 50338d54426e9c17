"""Words of texts, runs of neighbouring words and hashes, as scikit-learn's `HashingVectorizer`.

A word has at least two letters, digits or underscores, and is taken in lower case. The bytes of
many texts are compared with a table, all at once. Texts with other letters than those of ASCII are
few in most data, and are split one by one first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadagrad.kernels import parsing

_IN_WORDS = np.zeros(256, np.bool_)
_IN_WORDS[list(b"abcdefghijklmnopqrstuvwxyz0123456789_")] = True
_IN_WORDS[128:] = True  # of words that have been split off
_WORD = re.compile(r"\b\w\w+\b")


def runs_of_text(text: str, longest: int) -> list[str]:
    """The runs of 1 to `longest` words of a text, the shorter ones first."""
    words = _WORD.findall(text.lower())
    return [
        " ".join(words[begin : begin + length])
        for length in range(1, longest + 1)
        for begin in range(len(words) - length + 1)
    ]


def runs_of_words(
    texts: Sequence[str], longest: int
) -> Iterator[tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the runs of 1, 2 ... `longest` words.

    Of each length: the distinct runs, and for each place in a text its run and the number of the
    text. The words of a run are joined by a space.
    """
    words, codes, ends = _words(texts)
    n_words = np.diff(ends, prepend=0)
    numbers = np.repeat(np.arange(len(texts)), n_words)
    n_left = np.repeat(ends, n_words) - np.arange(len(codes))  # words of the text from each on
    runs, codes_of_runs = words, codes
    yield words, codes, numbers
    for length in range(2, longest + 1):
        begins = np.flatnonzero(n_left >= length)
        pairs = codes_of_runs[begins] * len(words) + codes[begins + length - 1]
        distinct, codes_of_pairs = _distinct(pa.array(pairs))
        first, last = np.divmod(distinct.to_numpy(), max(len(words), 1))
        runs = pc.binary_join_element_wise(runs.take(first), words.take(last), " ")
        codes_of_runs = np.full(len(codes), -1)
        codes_of_runs[begins] = codes_of_pairs
        yield runs, codes_of_pairs, numbers[begins]


def _words(texts: Sequence[str]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """The distinct words, the words of all texts as numbers of these, and where each text ends."""
    split = (text if text.isascii() else " ".join(runs_of_text(text, 1)) for text in texts)
    encoded = [text.encode() for text in split]
    letters = np.frombuffer(b"\n".join(encoded).lower(), np.uint8)
    inside = _IN_WORDS[letters]
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
    begins, lengths = edges[::2], edges[1::2] - edges[::2]
    is_word = lengths > 1
    inside[begins[~is_word]] = False
    begins, lengths = begins[is_word], lengths[is_word]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    buffers = map(pa.py_buffer, (offsets, letters[inside]))
    words = pa.LargeStringArray.from_buffers(len(begins), *buffers)
    ends = np.searchsorted(begins, np.cumsum([len(text) + 1 for text in encoded]))
    distinct, codes = _distinct(words)
    return pc.cast(distinct, pa.string()), codes, ends


def hash_texts(prefix: str, texts: pa.Array) -> NDArray[np.int64]:
    """Signed hashes of ``prefix + text``."""
    array = pc.cast(texts, pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array) + 1]
    buffer = array.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer else np.zeros(0, np.uint8)
    hashed = np.empty(len(array), np.int64)
    if len(array):
        parsing.hash_texts(np.frombuffer(prefix.encode(), np.uint8), offsets, data, hashed)
    return hashed


def _distinct(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The distinct values of an array, and its values as numbers of these."""
    coded = array.dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy().astype(np.int64)
