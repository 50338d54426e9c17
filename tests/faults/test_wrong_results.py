"""What comes back from a worker and cannot be right: computed again elsewhere, else named."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.fault_cases import CONFIG, bits, make_dataset

from dadagrad.errors import TrainingError
from dadagrad.training.engines.dask.messages import validate
from dadagrad.training.messages import Result
from dadagrad.training.run import train
from dadagrad.training.state.slices import Gradient


def break_results(n_broken: int, dask_worker) -> None:
    """Have this worker send as many gradients that are not finite; negative: without end."""
    from dadagrad.training.engines.dask import tasks as dask_tasks

    compute = dask_tasks.__dict__.setdefault("_unbroken", dask_tasks._compute_slice)
    left = [n_broken]

    def breaking(*arguments):
        result, touched = compute(*arguments)
        if left[0] and isinstance(result.change, Gradient) and result.change.gradient.size:
            left[0] -= 1
            result.change.gradient[0] = np.nan
        return result, touched

    dask_tasks._compute_slice = breaking


@pytest.fixture
def broken(cluster):
    """Breaks the results of one worker or of all; sound again in the end."""
    with cluster.client() as client:
        yield lambda n_broken, workers=None: client.run(break_results, n_broken, workers=workers)
        client.run(break_results, 0)


def test_a_wrong_result_is_computed_again(cluster, data, broken, caplog):
    (address, *_) = cluster.names().values()
    broken(1, [address])
    assert bits(train(data, CONFIG, client=cluster.address)) == bits(train(data, CONFIG))
    (line,) = (record.getMessage() for record in caplog.records if "right" in record.getMessage())
    assert re.fullmatch(
        rf"{data}, partition part-\d{{5}}, rows \d+ to \d+: the gradient that worker {address} "
        "sent cannot be right: its gradient is not finite; it is computed again",
        line,
    )


def test_a_worker_that_sends_only_wrong_results_is_passed_over(cluster, data, broken):
    (address, *_) = cluster.names().values()
    broken(-1, [address])
    config = replace(CONFIG, passes=1)
    assert bits(train(data, config, client=cluster.address)) == bits(train(data, config))


def test_a_run_ends_if_all_workers_send_wrong_results(cluster, data, broken):
    broken(-1)
    with pytest.raises(TrainingError) as caught:
        train(data, CONFIG, client=cluster.address)
    first, second = str(caught.value).split(" and again: ")
    workers = {re.search(r"worker (\S+) sent", said)[1] for said in (first, second)}
    assert workers == set(cluster.names().values())
    assert first.startswith(f"{data}, partition part-0000")


def test_a_row_that_overflows_is_named(cluster, tmp_path):
    """Found where it was computed: the same everywhere, so it is not tried again."""
    url = make_dataset(tmp_path / "data", (40, 40, 40), scale=1e30)
    config = replace(CONFIG, loss="squared", step_size=1e6)
    with pytest.raises(TrainingError, match=r"partition part-0000\d: .* is not finite"):
        train(url, config, client=cluster.address)


def with_change(result: Result, **changes) -> Result:
    return replace(result, change=replace(result.change, **changes))


class TestChecks:
    """Each thing that can be wrong with a gradient."""

    @pytest.fixture
    def sound(self, data):
        from dadagrad.data import open_dataset
        from dadagrad.problem import make_problem
        from dadagrad.training.schedule.base import Slice
        from dadagrad.training.worker.progressive import ProgressiveMetrics

        problem = make_problem(CONFIG, open_dataset(data).schema, 60)
        positions = np.array([0, 3, 7], np.int32)
        gradient = np.ones((3, 1), np.float32)
        metrics = ProgressiveMetrics(20, 60, 20.0, np.ones(1), np.ones(1))
        change = Gradient(gradient, np.zeros((0, 0), np.float32), np.ones((2, 1)))
        return Result(metrics, positions, change), problem, Slice(0, 0, 0, 20, False), np.arange(8)

    def test_a_sound_one(self, sound):
        assert validate(*sound) is None

    def test_nothing_moved(self, sound):
        result, *rest = sound
        none = replace(
            result,
            positions=np.zeros(0, np.int32),
            change=replace(result.change, gradient=np.zeros((0, 1), np.float32)),
        )
        assert validate(none, *rest) is None

    def test_large_but_finite(self, sound):
        result, *rest = sound
        large = with_change(result, gradient=np.full((3, 1), 3e38, np.float32))
        assert validate(large, *rest) is None

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("name", ["gradient", "intercept", "loss", "mistakes"])
    def test_not_finite(self, sound, name, value):
        result, *rest = sound
        owner = result.metrics if name in ("loss", "mistakes") else result.change
        getattr(owner, name).flat[-1] = value
        assert validate(result, *rest) == f"its {name} is not finite"

    @pytest.mark.parametrize("positions", [(0, 3, 8), (-1, 3, 7), (0, 3, 3), (3, 0, 7)])
    def test_positions(self, sound, positions):
        result, *rest = sound
        wrong = replace(result, positions=np.array(positions, np.int32))
        assert validate(wrong, *rest) == "its positions are not increasing numbers below 8"

    def test_shapes(self, sound):
        result, *rest = sound
        wrong = with_change(result, gradient=np.ones((2, 1), np.float32))
        assert validate(wrong, *rest) == "its gradient has the shape (2, 1), not (3, 1)"
        wrong = with_change(result, squares=np.ones((3, 1), np.float32))
        assert validate(wrong, *rest) == "its squares has the shape (3, 1), not (0, 0)"

    @pytest.mark.parametrize("change", [{"rows": 21}, {"weight": np.nan}, {"weight": -1.0}])
    def test_counts(self, sound, change):
        result, *rest = sound
        wrong = replace(result, metrics=replace(result.metrics, **change))
        assert "it counts" in validate(wrong, *rest)
