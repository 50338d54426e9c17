"""Datasets in memory: any matrix gives the rows it has, and nothing wrong goes through."""

import numpy as np
import pytest
import scipy.sparse
from helpers.blocks import dense_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dadagrad import InputError, dataset_from_arrays

small = st.sampled_from([0.0, 0.0, 1.0, -2.5, 3.0])
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=small)


FORMS = [
    np.asarray,
    np.asfortranarray,
    scipy.sparse.csr_array,
    scipy.sparse.csr_matrix,
    scipy.sparse.csc_array,
    scipy.sparse.coo_matrix,
    scipy.sparse.lil_array,
    scipy.sparse.bsr_array,
    scipy.sparse.dia_array,
    scipy.sparse.dok_array,
]


@given(st.sampled_from(FORMS), matrices, st.integers(1, 20))
@settings(max_examples=100)
def test_every_form_of_a_matrix_gives_its_rows(form, matrix, nnz):
    y = np.arange(len(matrix))
    dataset = dataset_from_arrays(form(matrix), y, partition_nnz=nnz)
    found, labels = dense_dataset(dataset)
    np.testing.assert_array_equal(found, matrix)
    np.testing.assert_array_equal(labels[:, 0], y)
    assert dataset.schema.n_features == matrix.shape[1]
    assert dataset.n_rows == len(matrix)


def test_duplicates_are_summed_and_zeros_dropped_without_touching_the_input():
    data, indices, indptr = [1.0, 2.0, 0.0, 5.0, 1.0, -1.0, 1e-60], [3, 3, 1, 0, 2, 2, 1], [0, 3, 7]
    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(2, 4))
    dataset = dataset_from_arrays(matrix, [0, 1])
    assert dense_dataset(dataset)[0].tolist() == [[0, 0, 0, 3], [5, 0, 0, 0]]
    assert dataset.nnz == 2  # what cancels, and what is too small for float32, leaves nothing
    assert (matrix.data.tolist(), matrix.indices.tolist()) == (data, indices)


def test_rows_that_repeat_a_value_store_it_once():
    present = scipy.sparse.random_array((500, 40), density=0.2, rng=1) > 0
    lengths = np.maximum(np.asarray(present.sum(axis=1)), 1.0)
    matrix = scipy.sparse.csr_array(present / np.sqrt(lengths)[:, None])
    dataset = dataset_from_arrays(matrix, np.arange(500))
    assert dataset.read(0).values is None
    np.testing.assert_array_equal(dense_dataset(dataset)[0], matrix.toarray().astype(np.float32))
    matrix.data[-1] *= 2
    other = dataset_from_arrays(matrix, np.arange(500))
    assert other.read(0).row_scale is None
    np.testing.assert_array_equal(dense_dataset(other)[0], matrix.toarray().astype(np.float32))


def test_shuffle_is_a_permutation_set_by_the_seed():
    matrix, y = np.eye(50), np.arange(50)
    one, two, other = (
        dense_dataset(dataset_from_arrays(matrix, y, shuffle=seed, partition_nnz=size))
        for seed, size in ((1, 10), (1, 1000), (2, 10))
    )
    np.testing.assert_array_equal(one[1], two[1])
    assert not np.array_equal(one[1], other[1])
    assert not np.array_equal(one[1][:, 0], y)
    np.testing.assert_array_equal(one[0].argmax(axis=1), one[1][:, 0])
    assert sorted(one[1][:, 0]) == y.tolist()


def test_rows_of_weight_zero_are_as_if_never_there():
    matrix = np.array([[1.0, 0], [0, 2], [3, 0]])
    weighted = dataset_from_arrays(matrix, [0, 7, 1], sample_weight=[2, 0, 1])
    assert weighted.n_rows == 2
    assert weighted.schema.weighted
    assert weighted.schema.label_columns[0].values == (0.0, 1.0)
    weights = weighted.read(0).weights
    assert weights.tolist() == [2, 1]
    plain = dataset_from_arrays(matrix, [0, 7, 1], sample_weight=[1, 0, 1])
    assert plain.digest == dataset_from_arrays(matrix[[0, 2]], [0, 1]).digest


def test_label_columns():
    matrix = np.eye(3)
    assert dataset_from_arrays(matrix, [1, 2, 2]).schema.label_names == ["label"]
    two = dataset_from_arrays(matrix, np.arange(6).reshape(3, 2))
    assert two.schema.label_names == ["label_0", "label_1"]
    assert two.schema.label_columns[0].counts == (1, 1, 1)
    texts = dataset_from_arrays(matrix, ["b", "a", "b"])
    (column,) = texts.schema.label_columns
    assert (column.values, column.counts, column.names) == ((0.0, 1.0), (1, 2), ("a", "b"))
    assert dense_dataset(texts)[1][:, 0].tolist() == [1, 0, 1]
    many = dataset_from_arrays(np.ones((1001, 1)), np.arange(1001)).schema.label_columns[0]
    assert (many.values, many.counts) == (None, None)


def test_labels_that_are_rounded_are_named(caplog):
    large = 2**53 - 1
    dataset_from_arrays(np.eye(2), [large - 1, large])
    assert not caplog.records
    dataset_from_arrays(np.eye(2), [large + 1, large + 2])
    assert "such as 9007199254740992, are rounded" in caplog.text


def test_wrong_arrays_are_named():
    for X, y, options, message in (
        (np.ones(3), [1, 2, 3], {}, r"shape \(3,\); it must have two dimensions"),
        (np.ones((2, 2)), [1], {}, r"y has shape \(1,\) and X 2 rows"),
        (np.array([[1.0, np.nan], [1, 1]]), [1, 2], {}, "row 0, feature 1 is nan"),
        (np.array([[1.0, 1], [1e39, 1]]), [1, 2], {}, "row 1, feature 0 is 1e.39"),
        (np.ones((2, 2)), [1, np.inf], {}, "row 1 has label inf"),
        (np.ones((2, 2)), [1, 2], {"sample_weight": [1]}, r"sample_weight has shape \(1,\)"),
        (np.ones((2, 2)), [1, 2], {"sample_weight": [1, -1]}, "row 1 has weight -1"),
        (np.ones((2, 2)), [1, 2], {"sample_weight": [0, 0]}, "no rows of weight above 0"),
        (np.ones((0, 2)), [], {}, "the arrays have no rows;"),
        (np.array([["a", "b"]]), [1], {}, "it must hold real numbers"),
        (np.ones((1, 1)) * 1j, [1], {}, "it must hold real numbers"),
        (np.ones((2, 2)), ["a", None], {}, "both texts and other things"),
        (np.eye(2), [0, 1], {"query": [0.5, 1]}, "query has dtype float64"),
    ):
        with pytest.raises(InputError, match=message):
            dataset_from_arrays(X, y, **options)
