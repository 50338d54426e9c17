"""Raw text into hashed word n-grams, exactly as scikit-learn's HashingVectorizer hashes them."""

from __future__ import annotations

import numpy as np

from dadagrad.data.blocks import Block
from dadagrad.data.ingest.delimited import Layout, read_cells, read_labels
from dadagrad.data.ingest.options import Options


def parse(
    chunk: bytes,
    *,
    path: str,
    offset: int,
    options: Options,
    layout: Layout,
    label: int | None,
    text: int,
) -> Block:
    """Parse whole rows of a delimited text file, in UTF-8.

    Features are the runs of 1 to ``options.ngrams`` words of two letters or more, in lower case;
    the id of a feature is its hash modulo ``2**hash_bits``.

    Parameters
    ----------
    path, offset
        File of the chunk and position of the chunk in it. At offset 0 a header is left out.
    label, text
        Positions of the two columns, from 0; a `label` of None means that there are no labels.

    Returns
    -------
    Block
        Its labels are those of `read_labels`.
    """
    from sklearn.feature_extraction.text import HashingVectorizer  # loads slowly

    cells = read_cells(chunk, layout, path=path, offset=offset, on_error=options.on_error)
    cells, labels = read_labels(cells, label)
    texts = cells.columns[text].to_pylist()
    if not texts:
        no_ids = np.zeros(0, np.int64)
        return Block(np.zeros(1, np.int64), no_ids, None, labels, skipped=cells.skipped)
    vectorizer = HashingVectorizer(
        ngram_range=(1, options.ngrams),
        n_features=2 ** (options.hashed_bits or 0),
        binary=options.binary,
        alternate_sign=options.alternate_sign,
        norm=None,
        dtype=np.float32,
    )
    matrix = vectorizer.transform(texts)
    if not options.binary:
        matrix.eliminate_zeros()
    return Block(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        None if options.binary else matrix.data,
        labels,
        skipped=cells.skipped,
    )
