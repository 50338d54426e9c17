"""Rows that are held out, and training that ends when the loss on them stops falling."""

import threading
import time

import numpy as np
import pandas as pd
import pytest
from helpers.training_cases import make_data, train_until
from helpers.zarr_cases import write_zarr

from dadagrad import (
    AdaGradClassifier,
    InputError,
    Model,
    TrainConfig,
    dry_run,
    evaluate,
    resume,
    train,
)
from dadagrad.data.dataset import MemoryDataset
from dadagrad.data.ingest.ingest import as_dataset
from dadagrad.data.views import hold_out
from dadagrad.errors import CorruptionError
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


OVERFITTING = TrainConfig(
    loss="squared", step_size=1.0, passes=30, holdout=0.3, early_stopping=True, seed=1
)


@pytest.mark.parametrize("step", [0, 60, 200])
def test_a_run_with_early_stopping_resumes_to_the_same_bits(tmp_path, monkeypatch, step):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    data = make_data((60, 50), labels="real")
    url, folder = write_zarr(data, tmp_path / "data"), str(tmp_path / "run")
    expected = train(url, OVERFITTING)
    options = {"checkpoints": folder, "save_every": 9}
    train_until(lambda event: event.steps > step, url, OVERFITTING, **options)
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


@pytest.mark.parametrize("kind", ["share", "other data"])
def test_training_ends_when_the_loss_stops_falling_and_the_best_pass_is_kept(kind):
    data, other = make_data((60, 50), labels="real"), make_data((40, 10), seed=5, labels="real")
    learned, other = hold_out(data, 0.3, 1) if kind == "share" else (data, other)
    holdout = 0.3 if kind == "share" else other
    stopped = train(data, OVERFITTING, holdout=holdout)
    losses = stopped.report["holdout"]["loss_of_pass"]
    settings = {"loss": "squared", "step_size": 1.0, "seed": 1}
    alone = [train(learned, passes=n + 1, **settings).model for n in range(len(losses))]
    assert losses == [evaluate(model, other)["loss"] for model in alone]
    best = int(np.argmin(losses))
    assert len(losses) == best + 2  # the first pass is the best on other data
    assert (best > 0) == (kind == "share")
    assert stopped.model.digest == alone[best].digest
    assert stopped.report["holdout"]["loss"] == losses[best]
    passes = len(losses)
    assert (stopped.report["passes"], stopped.report["rows"]) == (passes, passes * learned.n_rows)


@pytest.mark.parametrize("kind", ["dataset", "frame", "file"])
def test_other_rows_get_the_features_and_classes_of_the_data(tmp_path, kind):
    frame = pd.DataFrame({"job": ["nurse", "cook", "smith"] * 30, "rich": ["yes", "no", "no"] * 30})
    other = frame[::-1].iloc[:31].assign(job="cook")
    frame.to_csv(tmp_path / "data.csv", index=False)
    other.to_csv(tmp_path / "other.csv", index=False)
    holdouts = {
        "frame": other,
        "file": str(tmp_path / "other.csv"),
        "dataset": as_dataset(other, like=as_dataset(frame, label="rich")),
    }
    data = str(tmp_path / "data.csv") if kind == "file" else frame
    result = train(data, label="rich", holdout=holdouts[kind])
    measured = result.report["holdout"]
    assert measured["rows"] == 31
    assert measured["error"] == pytest.approx((other["rich"] == "yes").mean())


def test_a_run_that_stops_by_other_data_resumes_with_the_same_data_alone(tmp_path):
    data, other = make_data((60, 50), labels="real"), make_data((40, 10), seed=5, labels="real")
    urls = [write_zarr(each, tmp_path / name) for name, each in (("data", data), ("other", other))]
    settings = {"loss": "squared", "step_size": 1.0, "passes": 30, "early_stopping": True}
    expected = train(urls[0], holdout=urls[1], **settings)
    folder = str(tmp_path / "run")
    train_until(
        lambda event: event.steps > 200,
        urls[0], holdout=urls[1], checkpoints=folder, save_every=9, **settings,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"the holdout at .* is not what the run at"):
        resume(folder, holdout=data)
    for holdout in (None, urls[1]):
        result = resume(folder, holdout=holdout)
        assert result.model.digest == expected.model.digest
        losses = [each.report["holdout"]["loss_of_pass"] for each in (result, expected)]
        assert losses[0] == losses[1]


def test_a_model_is_saved_before_rows_that_cannot_be_read_are_measured(tmp_path):
    data, other = make_data(SIZES), str(tmp_path / "other")
    write_zarr(make_data((40,), seed=5), tmp_path / "other")
    (tmp_path / "other/part-00000/X/indices/c/0").write_bytes(b"damaged")
    with pytest.raises(CorruptionError, match="other: partition part-00000, X/indices"):
        train(data, step_size=0.3, holdout=other, save_to=str(tmp_path / "model"))
    assert Model.load(tmp_path / "model").digest == train(data, step_size=0.3).digest
