"""Blocks of rows for tests, and their rows as plain values."""

import numpy as np
import scipy.sparse

from dadagrad.data.blocks import Block


def make_block(lengths, first_label=0, seed=0):
    """Rows with these numbers of entries, whose labels count from `first_label`."""
    generator = np.random.default_rng(seed)
    rows = [np.sort(generator.choice(1000, size, replace=False)) for size in lengths]
    n_rows = len(lengths)
    return Block(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        ids=np.concatenate([*rows, np.zeros(0)]).astype(np.int64),
        values=generator.normal(size=sum(lengths)).astype(np.float32),
        labels=np.arange(first_label, first_label + n_rows, dtype=np.float64)[:, None],
        weights=generator.random(n_rows).astype(np.float32),
        queries=np.arange(first_label, first_label + n_rows),
        tags=np.array([f"row {first_label + row}" for row in range(n_rows)], object),
    )


def block_rows(block):
    """Label, features by id, weight, tag and query of each row; ids must increase in a row."""
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    rows = []
    for row, (start, stop) in enumerate(zip(block.indptr, block.indptr[1:], strict=False)):
        ids = block.ids[start:stop]
        assert (np.diff(ids) > 0).all()
        rows.append(
            (
                float(block.labels[row, 0]),
                tuple(zip(ids.tolist(), values[start:stop].tolist(), strict=True)),
                1.0 if block.weights is None else float(block.weights[row]),
                "" if block.tags is None else str(block.tags[row]),
                -1 if block.queries is None else int(block.queries[row]),
            )
        )
    return rows


def dense_block(block, n_features):
    """The block as a dense matrix; ids must increase in a row."""
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    matrix = scipy.sparse.csr_array(
        (values, block.ids, block.indptr), shape=(block.n_rows, n_features)
    )
    assert matrix.has_canonical_format
    dense = matrix.toarray()
    return dense if block.row_scale is None else dense * block.row_scale[:, None]


def dense_dataset(dataset):
    """The whole dataset as a dense matrix and labels."""
    matrices, labels = [], []
    for number in range(len(dataset.partitions)):
        rows = dataset.read(number)
        matrices.append(rows.to_csr(dataset.schema.n_features).toarray())
        labels.append(rows.labels)
    return np.concatenate(matrices), np.concatenate(labels)
