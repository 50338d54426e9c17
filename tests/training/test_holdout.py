"""A share of the rows that is held out, and training that ends when its loss stops falling."""

import threading
import time

import numpy as np
import pytest
from helpers.training_cases import make_data, train_until
from helpers.zarr_cases import write_zarr

from dadagrad import AdaGradClassifier, InputError, TrainConfig, dry_run, evaluate, resume, train
from dadagrad.data.dataset import MemoryDataset
from dadagrad.data.views import hold_out
from dadagrad.training import execution

SIZES = (300, 200, 350, 150)


def test_the_model_is_that_of_the_other_rows_and_is_measured_on_those_held_out():
    data = make_data(SIZES)
    result = train(data, step_size=0.3, holdout=0.2, seed=4)
    learned, held = hold_out(data, 0.2, 4)
    assert result.model.digest == train(learned, step_size=0.3, seed=4).model.digest
    measured = evaluate(result.model, held)
    reported = {name: result.report["holdout"][name] for name in measured}
    assert reported | {"seconds": 0} == measured | {"seconds": 0}
    assert (result.report["rows"], measured["rows"]) == (800, 200)
    assert dry_run(data, holdout=0.2).rows == 800


def test_a_run_of_one_thread_reads_one_partition_at_a_time():
    reading, together = threading.Lock(), []

    class Watched(MemoryDataset):
        def read(self, partition):
            if not reading.acquire(blocking=False):
                together.append(partition)
                return super().read(partition)
            time.sleep(0.01)
            rows = super().read(partition)
            reading.release()
            return rows

    data = make_data((20,) * 12)
    parts = [data.read(number) for number in range(12)]
    train(Watched(parts, data.schema), step_size=0.3, holdout=0.5, threads=1)
    assert not together


def overfitting():
    return TrainConfig(
        loss="squared", step_size=1.0, passes=30, holdout=0.3, early_stopping=True, seed=1
    )


def test_training_ends_when_the_loss_stops_falling_and_the_best_pass_is_kept():
    data = make_data((60, 50), labels="real")
    result = train(data, overfitting())
    losses = result.report["holdout"]["loss_of_pass"]
    best = int(np.argmin(losses)) + 1
    assert best == len(losses) - 1 > 1
    assert result.report["passes"] == len(losses) < 30
    alone = train(data, loss="squared", step_size=1.0, passes=best, holdout=0.3, seed=1)
    assert result.model.digest == alone.model.digest
    assert result.report["holdout"]["loss"] == losses[best - 1]


@pytest.mark.parametrize("step", [0, 60, 200])
def test_a_run_with_early_stopping_resumes_to_the_same_bits(tmp_path, monkeypatch, step):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    data = make_data((60, 50), labels="real")
    url, folder = write_zarr(data, tmp_path / "data"), str(tmp_path / "run")
    expected = train(url, overfitting())
    options = {"checkpoints": folder, "save_every": 9}
    train_until(lambda event: event.steps > step, url, overfitting(), **options)
    for _ in range(2):  # the second finds nothing to do
        result = resume(folder)
        assert result.model.digest == expected.model.digest
        assert (
            result.report["holdout"]["loss_of_pass"] == expected.report["holdout"]["loss_of_pass"]
        )


def test_probabilities_are_those_of_the_best_pass():
    data = make_data((300, 300), seed=4, entries=3)
    settings = {"step_size": 3.0, "holdout": 0.2}
    stopped = train(data, passes=9, early_stopping=True, **settings)
    losses = stopped.report["holdout"]["loss_of_pass"]
    n_passes = int(np.argmin(losses)) + 1
    assert n_passes < len(losses)
    expected = train(data, passes=n_passes, **settings)
    assert stopped.digest == expected.digest
    assert stopped.model.calibration == expected.model.calibration


def test_an_estimator_holds_rows_out():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 5)), np.arange(400) % 2
    fitted = AdaGradClassifier(holdout=0.25, early_stopping=True, passes=20).fit(X, y)
    assert fitted.report_["holdout"]["rows"] == 100
    with pytest.raises(InputError, match="partial_fit holds no rows out"):
        fitted.partial_fit(X, y)


def test_early_stopping_without_rows_held_out_is_refused():
    with pytest.raises(InputError, match="early_stopping measures the loss on a share of the rows"):
        TrainConfig(early_stopping=True)
