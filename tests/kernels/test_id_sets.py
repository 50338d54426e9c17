"""Sets of feature ids, against sorting them; and numbers as they travel."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dadagrad.kernels.id_sets import (
    DistinctIds,
    common,
    distinct_ids,
    pack,
    packed_bytes,
    relabel,
    unite,
    unpack,
)

id_sets = st.sets(st.integers(0, 4_200), max_size=80)


@given(sets=st.lists(id_sets, min_size=1, max_size=4), n_more=st.integers(0, 100))
@example(sets=[{0, 62}, {63}], n_more=0)
@example(sets=[{0, 63}, {64}], n_more=0)
@example(sets=[{0, 4095}, {4096}], n_more=0)
def test_the_union_of_sets_and_the_places_in_it(sets, n_more):
    arrays = [np.array(sorted(ids), np.int64) for ids in sets]
    n_features = max((int(ids[-1]) for ids in arrays if len(ids)), default=0) + 1 + n_more
    memory = DistinctIds(n_features)
    for _ in range(2):  # the second time, nothing is left of the first
        union, places = memory.unite(arrays)
        np.testing.assert_array_equal(union, np.unique(np.concatenate(arrays)))
        for ids, own in zip(arrays, places, strict=True):
            np.testing.assert_array_equal(union[own], ids)


@given(ids=st.lists(st.integers(0, 2**62), max_size=300), repeats=st.integers(1, 30))
@example(ids=list(range(0, 2**31, 2**17)), repeats=2)  # more than the first table holds
def test_distinct_ids_of_any_size(ids, repeats):
    ids = np.array(ids * repeats, np.int64)
    distinct, places = distinct_ids(ids)
    expected = np.unique(ids, return_inverse=True)
    np.testing.assert_array_equal(distinct, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@given(first=id_sets, second=id_sets)
def test_two_increasing_arrays_are_united_and_compared(first, second):
    ids, others = (np.array(sorted(some), np.int64) for some in (first, second))
    united, places, other_positions = unite(ids, others)
    np.testing.assert_array_equal(united, np.union1d(ids, others))
    np.testing.assert_array_equal(united[places], ids)
    np.testing.assert_array_equal(united[other_positions], others)
    _, *expected = np.intersect1d(ids, others, return_indices=True)
    np.testing.assert_array_equal(common(ids, others), expected)


@given(indices=st.lists(st.integers(0, 399), max_size=100), n_more=st.integers(0, 70))
def test_relabelling_gives_distinct_features_and_their_places(indices, n_more):
    indices = np.array(indices, np.int32)
    n_local = int(indices.max(initial=0)) + 1 + n_more
    positions, relabelled = relabel(indices, n_local)
    distinct, places = np.unique(indices, return_inverse=True)
    np.testing.assert_array_equal(positions, distinct)
    np.testing.assert_array_equal(relabelled, places)
    assert positions.dtype == relabelled.dtype == np.int32


@given(
    numbers=st.sets(st.integers(0, 700)),
    offset=st.sampled_from([0, 1, 2**16 - 1, 2**16, 2**20, 2**30]),
    stride=st.sampled_from([1, 20, 2**16]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
@example(numbers=set(range(64)), offset=0, stride=1, dtype=np.int32)
@example(numbers=set(range(65)), offset=0, stride=1, dtype=np.int64)
@example(numbers={0, 1}, offset=2**16 - 1, stride=1, dtype=np.int64)
@example(numbers={0, 1}, offset=2**16, stride=1, dtype=np.int64)
def test_numbers_come_as_they_went(numbers, offset, stride, dtype):
    numbers = np.array(sorted(numbers), dtype) * stride
    numbers[len(numbers) // 2 :] += offset
    sent = pack(numbers)
    assert sent.nbytes <= numbers.nbytes
    back = unpack(sent, dtype)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, numbers)
    if len(numbers) and np.diff(numbers, prepend=0).max() < 2**16:
        assert sent.nbytes <= packed_bytes(len(numbers), int(numbers[-1]) + 1) + 8


def test_ids_beyond_32_bits_come_as_they_went():
    few = np.array([3, 2**31, 2**40])
    many = 2**33 + np.arange(3_000_000)
    for ids in (few, many, many - many[0]):
        np.testing.assert_array_equal(unpack(pack(ids), np.int64), ids)


def test_many_numbers_take_a_bit_for_each_place_and_some_16_for_each_step():
    numbers = np.arange(0, 80_000, 2, dtype=np.int32)
    assert pack(numbers).nbytes == 10_000
    some = numbers[:: len(numbers) // 100]
    assert pack(some).nbytes == some.nbytes / 2
    for n_numbers in (len(numbers), len(some)):
        sent = pack(numbers[:: len(numbers) // n_numbers])
        assert sent.nbytes <= packed_bytes(n_numbers, 80_000) + 8
    far = np.array([0, 2**16], np.int32)
    assert pack(far).nbytes == far.nbytes
