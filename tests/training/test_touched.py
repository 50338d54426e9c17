"""Features that are sent for some rows must be those that the rows touch."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.training_cases import make_data, method_of

from dadagrad.config import TrainConfig
from dadagrad.errors import TrainingError
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, Weights
from dadagrad.training.worker.compute import compute, touched


def test_what_was_sent_can_be_walked_again():
    data = make_data((30, 17))
    rows, slice_ = data.read(0), Slice(0, 0, 5, 9, False)
    config = TrainConfig(step_size=0.3, batch_size=1, streams=2)
    problem = method_of(data, config)
    whole = State.zero(problem)
    for sent in (
        FeatureSlice(whole.pull(rows.vocabulary)),
        FeatureSlice(whole.pull(rows.vocabulary[touched(rows, slice_)]), True),
    ):
        sent.content.accumulators.flags.writeable = False  # as what comes over a network may be
        first, second = (compute(problem, rows, slice_, sent, "here") for _ in range(2))
        assert first.change.accumulators.any()
        np.testing.assert_array_equal(first.positions, second.positions)
        np.testing.assert_array_equal(first.change.accumulators, second.change.accumulators)
        assert not sent.content.accumulators.any()


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("too_many", [-1, 1])
def test_what_was_sent_for_other_rows_is_refused(streams, too_many):
    data = make_data((30, 17))
    rows, slice_ = data.read(0), Slice(0, 0, 5, 9, False)
    positions = touched(rows, slice_)
    assert positions is not None
    n_sent = len(positions) + too_many
    if streams == 1:
        config = TrainConfig(step_size=0.3, batch_size=8)
        sent = FeatureSlice(Weights(np.zeros((n_sent, 1), np.float32), np.zeros(1)), True)
    else:
        config = TrainConfig(step_size=0.3, batch_size=1, streams=streams)
        whole = State.zero(method_of(data, config))
        sent = FeatureSlice(whole.pull(np.arange(n_sent)), True)
    with pytest.raises(TrainingError, match=f"for {n_sent} features .* touch {len(positions)}"):
        compute(method_of(data, config), rows, slice_, sent, "here")
