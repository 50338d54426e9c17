"""Positions travel as numbers or as bits, and what is sent must be for what the rows touch."""

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


@given(positions=st.sets(st.integers(0, 700)), offset=st.sampled_from([0, 1, 2**20, 2**30]))
@example(positions=set(range(64)), offset=0)
@example(positions=set(range(65)), offset=0)
def test_positions_come_as_they_went(positions, offset):
    numbers = np.array(sorted(positions), np.int32)
    numbers[len(numbers) // 2 :] += offset
    sent = pack(numbers)
    assert sent.nbytes <= numbers.nbytes
    back = unpack(sent)
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, numbers)
    if len(numbers):
        assert sent.nbytes <= packed_bytes(len(numbers), int(numbers[-1]) + 1) + 8


def test_many_positions_take_a_bit_for_each_place():
    positions = np.arange(0, 80_000, 2, dtype=np.int32)
    assert pack(positions).nbytes == 10_000
    few = positions[:: len(positions) // 100]
    assert pack(few).nbytes == few.nbytes


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
