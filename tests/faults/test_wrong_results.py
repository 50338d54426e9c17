"""Results of a worker that cannot be right: computed again elsewhere, else named."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.fault_cases import CONFIG, STREAMS
from helpers.training_cases import bits

from dadagrad import TrainingError, open_dataset, train
from dadagrad.optim.calibration import N_BINS
from dadagrad.problem import make_problem
from dadagrad.training.engines.dask.messages import validate
from dadagrad.training.messages import Result
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import FeatureSlice, Gradient


def break_results(n_broken, what="numbers"):
    """Have this worker make as many wrong results; negative: without end."""
    from dadagrad.training.engines.dask import batches
    from dadagrad.training.engines.dask.streams import tasks as stream_tasks
    from dadagrad.training.worker.compute import compute

    left = [n_broken]

    def breaking(*arguments):
        result = compute(*arguments)
        change = result.change
        numbers = next(iter(change.content.arrays.values()))
        if left[0] and numbers.size:
            left[0] -= 1
            if what == "ids":
                return replace(result, change=replace(change, ids=change.ids[::-1]))
            numbers[...] = np.nan
        return result

    batches.compute = stream_tasks.compute = breaking


@pytest.fixture
def broken(cluster):
    """Breaks the results of one worker or of all; sound again in the end."""
    with cluster.client() as client:
        yield lambda *how, workers=None: client.run(break_results, *how, workers=workers)
        client.run(break_results, 0)


def test_a_wrong_result_is_computed_again(cluster, data, expected, broken, caplog):
    (address, *_) = cluster.names().values()
    broken(1, workers=[address])
    assert bits(train(data, CONFIG, client=cluster.address)) == expected
    (line,) = (record.getMessage() for record in caplog.records if "right" in record.getMessage())
    assert re.fullmatch(
        rf"{data}, partition part-\d{{5}}, rows \d+ to \d+: the gradient that worker {address} "
        "sent cannot be right: its gradient is not finite; it is computed again",
        line,
    )


def test_a_run_ends_if_all_workers_send_wrong_results(cluster, data, broken):
    broken(-1)
    with pytest.raises(TrainingError) as caught:
        train(data, CONFIG, client=cluster.address)
    first, second = str(caught.value).split(" and again: ")
    workers = {re.search(r"worker (\S+) sent", said)[1] for said in (first, second)}
    assert workers == set(cluster.names().values())
    assert first.startswith(f"{data}, partition part-0000")


def column(*values):
    return np.array(values, np.float32)[:, None]


SOUND = Result(
    ProgressiveMetrics(20, 60, 20.0, np.ones(1), np.ones(1), np.zeros((1, N_BINS, 2))),
    FeatureSlice(
        np.array([0, 3, 7]),
        Gradient(column(1, 1, 1), np.zeros((0, 0), np.float32), np.ones((2, 1))),
    ),
)
SLICE = Slice(0, 0, 0, 20, False)


def changed(result, **changes):
    """`result` with other values of some fields, of its metrics, its positions or its change."""
    parts = []
    for part in (result.metrics, result.change.content, result.change):
        names = changes.keys() & {field.name for field in fields(part)}
        parts.append(replace(part, **{name: changes.pop(name) for name in names}))
    metrics, content, features = parts
    return Result(metrics, replace(features, content=content))


def test_each_thing_that_can_be_wrong_with_a_gradient(data):
    problem = make_problem(CONFIG, open_dataset(data).schema, 60)
    for changes, error in (
        ({}, None),
        ({"ids": np.zeros(0, np.int32), "gradient": column()}, None),
        ({"gradient": column(3e38, 3e38, 3e38)}, None),  # large, but finite
        ({"gradient": column(1, 1, np.nan)}, "its gradient is not finite"),
        ({"gradient": column(1, -np.inf, 1)}, "its gradient is not finite"),
        ({"intercept": np.full((2, 1), np.inf)}, "its intercept is not finite"),
        ({"loss": np.array([np.nan])}, "its loss is not finite"),
        ({"mistakes": np.array([np.inf])}, "its mistakes is not finite"),
        *(
            ({"ids": np.array(x)}, "its positions are not increasing numbers below 8")
            for x in [(0, 3, 8), (-1, 3, 7), (0, 3, 3), (3, 0, 7)]
        ),
        ({"gradient": column(1, 1)}, "its gradient has the shape (2, 1), not (3, 1)"),
        ({"squares": column(1, 1, 1)}, "its squares has the shape (3, 1), not (0, 0)"),
        ({"rows": 21}, "it counts 21 rows of weight 20"),
        ({"weight": np.nan}, "it counts 20 rows of weight nan"),
        ({"weight": -1.0}, "it counts 20 rows of weight -1"),
    ):
        assert validate(changed(SOUND, **changes), problem, SLICE, np.arange(8)) == error


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("numbers", "its accumulators is not finite"),
        ("ids", r"its positions are not increasing numbers below \d+"),
    ],
)
def test_a_round_with_a_wrong_state_of_a_stream_begins_again(
    cluster, data, broken, caplog, what, reason
):
    (address, *_) = cluster.names().values()
    broken(1, what, workers=[address])
    config = replace(STREAMS, rounds=5, passes=2)
    assert bits(train(data, config, client=cluster.address)) == bits(train(data, config))
    error = f"the changes of a stream cannot be right: {reason}"
    worker = rf"\(on the Dask worker at {address}\)"
    assert re.search(f"{error} {worker}; the round begins again", caplog.text)
    broken(-1, what)
    with pytest.raises(TrainingError, match=f"cannot be right: {reason} .* and again: the changes"):
        train(data, config, client=cluster.address)


def test_of_several_settings_only_one_with_an_infinite_loss_may_have_diverged(data):
    config = replace(CONFIG, step_size=[1e30, 0.1])
    problem = make_problem(config, open_dataset(data).schema, 60)
    sound = changed(
        SOUND,
        gradient=np.array([[1, 1], [np.nan, 1], [1, 1]], np.float32),
        intercept=np.ones((2, 2)),
        mistakes=np.ones(2),
        histogram=np.zeros((2, N_BINS, 2)),
    )
    for loss, error in (
        ([np.inf, 1.0], None),
        ([1.0, 1.0], "its gradient is not finite"),
        ([1.0, np.inf], "its gradient is not finite"),
        ([np.nan, 1.0], "its gradient is not finite"),
        ([np.inf, np.nan], "its loss is not finite"),
    ):
        result = changed(sound, loss=np.array(loss))
        assert validate(result, problem, SLICE, np.arange(8)) == error
