"""Ids and positions travel as bits, steps or numbers; what is sent must be for what rows touch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from training_cases import make_data, method_of

from dadagrad.config import TrainConfig
from dadagrad.errors import TrainingError
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Weights
from dadagrad.training.shares import StateShare
from dadagrad.training.state import State
from dadagrad.training.touched import pack, packed_bytes, unpack
from dadagrad.training.worker import compute, touched


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


def test_what_was_sent_can_be_walked_again():
    data = make_data((30, 17))
    rows, piece = data.read(0), Piece(0, 0, 5, 9, False)
    config = TrainConfig(step_size=0.3, batch_size=1, exchange="local-steps")
    method = method_of(data, config)
    whole = State.zero(method)
    for sent in (
        StateShare(whole.pull(rows.vocabulary)),
        StateShare(whole.pull(rows.vocabulary[touched(rows, piece)]), True),
    ):
        sent.share.accumulators.flags.writeable = False  # as what comes over a network may be
        first, second = (compute(method, rows, piece, sent, "here") for _ in range(2))
        assert first.state.accumulators.any()
        np.testing.assert_array_equal(first.positions, second.positions)
        np.testing.assert_array_equal(first.state.accumulators, second.state.accumulators)
        assert not sent.share.accumulators.any()


@pytest.mark.parametrize("exchange", ["gradients", "local-steps"])
@pytest.mark.parametrize("too_many", [-1, 1])
def test_what_was_sent_for_other_rows_is_refused(exchange, too_many):
    data = make_data((30, 17))
    rows, piece = data.read(0), Piece(0, 0, 5, 9, False)
    positions = touched(rows, piece)
    assert positions is not None
    n_sent = len(positions) + too_many
    if exchange == "gradients":
        config = TrainConfig(step_size=0.3, batch_size=8)
        sent = Weights(np.zeros((n_sent, 1), np.float32), np.zeros(1), True)
    else:
        config = TrainConfig(step_size=0.3, batch_size=1, exchange=exchange)
        whole = State.zero(method_of(data, config))
        sent = StateShare(whole.pull(np.arange(n_sent)), True)
    with pytest.raises(TrainingError, match=f"for {n_sent} features .* touch {len(positions)}"):
        compute(method_of(data, config), rows, piece, sent, "here")
