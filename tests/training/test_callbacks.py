"""Callbacks are told of a run, and never change it; logs, and trackers with the real packages."""

import json
import math
import os
import pickle
import sqlite3
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import pytest
from helpers.processes import run_python
from helpers.training_cases import make_data, train_until
from sklearn.base import clone

from dadagrad import (
    AdaGradClassifier,
    Callback,
    InputError,
    Model,
    TrainConfig,
    resume,
    sweep,
    train,
)
from dadagrad.training import trackers
from dadagrad.training.callbacks import BeginEvent, CheckpointEvent, EndEvent, RoundEvent
from dadagrad.training.trackers import JsonLog

CONFIG = TrainConfig(step_size=0.3, passes=2, batch_size=11)


class Recorder(Callback):
    def __init__(self):
        self.events = []

    def on_begin(self, event):
        self.events.append(event)

    on_round = on_checkpoint = on_end = on_begin

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def test_a_run_is_told_from_begin_to_end(tmp_path):
    data, recorder = make_data(), Recorder()
    folder = str(tmp_path / "run")
    result = train(data, CONFIG, callbacks=recorder, checkpoints=folder, save_every=4)
    assert result.model.digest == train(data, CONFIG).model.digest
    (begin,), rounds, (end,) = map(recorder.of, (BeginEvent, RoundEvent, EndEvent))
    assert recorder.events[:: len(recorder.events) - 1] == [begin, end]
    assert (begin.rows, begin.rows_done, begin.config.passes) == (data.n_rows, 0, 2)
    assert [event.steps for event in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[-1].rows == 2 * data.n_rows
    assert rounds[-1].first_error == result.report["progressive_error"]
    assert rounds[-1].error == result.report["by_pass"][1]["error"]
    assert rounds[-1].step_size == 0.3
    assert [event.ends_pass for event in rounds].count(True) == 2
    saved = recorder.of(CheckpointEvent)
    assert [event.steps for event in saved][-1] == result.report["steps"]
    assert all((tmp_path / "run" / event.key).exists() for event in saved[-1:])
    assert end.result is result
    with pytest.raises(FrozenInstanceError):
        rounds[0].steps = 0
    for event in recorder.events:
        json.dumps(event.to_json())
        assert len(repr(event)) < 5000  # without its histograms


def test_an_error_of_a_callback_ends_the_run_with_it(tmp_path):
    recorder = Recorder()

    def fail(event):
        if event.rows > 50:
            raise OSError("no answer from the tracker")

    folder = str(tmp_path / "run")
    with pytest.raises(OSError, match="no answer from the tracker"):
        train(make_data(), CONFIG, callbacks=[recorder, fail], checkpoints=folder, save_every=2)
    (end,) = recorder.of(EndEvent)
    assert isinstance(end.error, OSError)
    assert end.result is None
    again = resume(folder, data=make_data(), callbacks=[recorder])
    assert again.model.digest == train(make_data(), CONFIG).model.digest
    assert recorder.of(BeginEvent)[1].rows_done > 0


def test_the_learning_curve_is_the_same_after_a_resume_and_kept_in_the_model(tmp_path):
    data = make_data((300, 170, 410))
    whole = train(data, CONFIG).report["curve"]
    assert whole["rows"][-1] == 2 * data.n_rows
    assert all(after > before for before, after in pairwise(whole["rows"]))
    assert len(whole["rows"]) > 40
    folder = str(tmp_path / "run")
    train_until(lambda event: event.rows > 500, data, CONFIG, checkpoints=folder, save_every=5)
    result = resume(folder, data=data)
    names = ("rows", "pass_number", "loss", "error")
    assert {name: result.report["curve"][name] for name in names} == {
        name: whole[name] for name in names
    }
    result.save(str(tmp_path / "model"))
    assert Model.load(tmp_path / "model").report["curve"] == result.report["curve"]


@pytest.mark.parametrize("save_every", [2, 1_000])  # the latter begins again at the start
def test_a_log_has_a_line_for_each_event_and_goes_on_after_a_resume(tmp_path, save_every):
    data, checkpoints, log = make_data(), str(tmp_path / "run"), tmp_path / "log.jsonl"
    train_until(
        lambda event: event.rows > 60, data, CONFIG,
        callbacks=[JsonLog(log)], checkpoints=checkpoints, save_every=save_every,
    )  # fmt: skip
    before = log.read_text()
    result = resume(checkpoints, data=data, callbacks=[JsonLog(str(log))])
    assert log.read_text().startswith(before)
    lines = log.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event["event"] for event in events]
    assert (kinds.count("begin"), kinds.count("end")) == (2, 2)
    assert kinds.count("checkpoint") > 1
    rounds = [event for event in events if event["event"] == "round"]
    assert rounds[-1]["rows"] == 2 * data.n_rows
    assert rounds[-1]["nonzeros"] == result.report["nonzeros"]
    assert events[-1]["digest"] == result.model.digest


def test_a_log_has_the_same_lines_of_each_run(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "MIN_SECONDS", math.inf)
    log = JsonLog(tmp_path / "log.jsonl")
    for _ in range(2):
        train(make_data(), CONFIG, callbacks=[log])
    lines = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    rows = [event.get("rows") for event in lines if event["event"] == "round"]
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]


def test_a_run_outlives_a_log_and_a_trace_that_cannot_be_written_any_more(tmp_path, caplog):
    log, trace = tmp_path / "log.jsonl", tmp_path / "trace.json"

    def put_folders_there(event):
        for path in (log, trace):
            if path.is_file():
                path.unlink()
                (path / "folder").mkdir(parents=True)

    callbacks = [put_folders_there, JsonLog(str(log))]
    result = train(make_data(), CONFIG, callbacks=callbacks, trace=str(trace))
    assert result.model.digest == train(make_data(), CONFIG).model.digest
    assert caplog.text.count("the log of the run ends early: cannot write the log") == 1
    assert caplog.text.count("the trace of the run is missing: cannot write") == 1


def test_sweeps_and_estimators_have_callbacks_too():
    recorder = Recorder()
    sweep(make_data(), step_size=[0.1, 0.3], l1=[0.0, 1e-3], callbacks=[recorder])
    assert recorder.of(EndEvent)[0].result is not None
    X, y = [[0.0, 1.0], [1.0, 0.0]] * 20, [0, 1] * 20
    classifier = AdaGradClassifier(callbacks=[recorder]).fit(X, y).partial_fit(X, y)
    assert len(recorder.of(BeginEvent)) == len(recorder.of(EndEvent)) == 3
    last = recorder.of(EndEvent)[-1].result
    assert (last.model.digest, last.report) == (classifier.model_.digest, classifier.report_)


def test_what_is_no_callback_is_refused():
    for callbacks in (["log.jsonl"], "log", 5, Recorder):
        with pytest.raises(InputError, match=r"give objects of dadagrad\.Callback"):
            train(make_data(), replace(CONFIG, passes=1), callbacks=callbacks)


def test_only_callbacks_that_began_are_told_of_the_end():
    class Failing(Callback):
        def on_begin(self, event):
            raise RuntimeError("not ready")

    before, after = Recorder(), Recorder()
    with pytest.raises(RuntimeError, match="not ready"):
        train(make_data(), CONFIG, callbacks=[before, Failing(), after])
    assert [type(event) for event in before.events] == [BeginEvent, EndEvent]
    assert not after.events


def test_an_error_at_the_end_does_not_hide_the_error_of_the_run():
    class FailsToEnd(Callback):
        def on_end(self, event):
            raise OSError("no answer from the tracker")

    def fail(event):
        raise RuntimeError("the run fails")

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="the run fails") as raised:
        train(make_data(), CONFIG, callbacks=[FailsToEnd(), recorder, fail])
    assert "no answer from the tracker" in raised.value.__notes__[0]
    with pytest.raises(OSError, match="no answer from the tracker"):
        train(make_data(), CONFIG, callbacks=[FailsToEnd(), recorder])
    assert len(recorder.of(EndEvent)) == 2


def test_an_estimator_whose_callback_keeps_its_events_can_be_copied():
    recorder = Recorder()
    X, y = [[0.0, 1.0], [1.0, 0.0]] * 20, [0, 1] * 20
    estimator = AdaGradClassifier(callbacks=[recorder]).fit(X, y)
    for copied in (clone(estimator), pickle.loads(pickle.dumps(estimator))):
        (events,) = (callback.events for callback in copied.callbacks)
        assert [event.steps for event in events[1:-1]] == list(range(40, 201, 40))
        with pytest.raises(InputError, match="until the callback returns"):
            events[1].count_nonzeros()
        assert events[-1].result.model.digest == estimator.model_.digest


PROGRAM = """
import numpy as np
import mlflow, trackio
import dadagrad
from dadagrad.training.trackers import MlflowCallback, WandbCallback

X = np.random.default_rng(0).normal(size=(300, 4))
data = dadagrad.dataset_from_arrays(X, X[:, 0] > 0)
callbacks = [
    WandbCallback(trackio, project="reviews", auto_log_gpu=False),
    MlflowCallback(mlflow, run_name="reviews"),
]
result = dadagrad.train(data, passes=2, step_size=0.3, callbacks=callbacks)
with mlflow.start_run(mlflow.last_active_run().info.run_id):
    dadagrad.train(data, passes=3, step_size=0.3, callbacks=[MlflowCallback(mlflow)])
print(result.report["progressive_loss"])
"""


def test_trackio_and_mlflow_get_the_numbers_of_a_run(tmp_path):
    stores = {
        "TRACKIO_DIR": str(tmp_path), "MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    loss = float(run_python("-c", PROGRAM, env=os.environ | stores).stdout.split()[-1])
    with sqlite3.connect(tmp_path / "reviews.db") as store:
        rows = [json.loads(row) for (row,) in store.execute("SELECT metrics FROM metrics")]
        (config,) = (json.loads(row) for (row,) in store.execute("SELECT config FROM configs"))
    assert [row["rows"] for row in rows] == [256, 300, 600, 600]
    assert rows[-1]["progressive_loss"] == rows[1]["loss"] == loss
    assert config["loss"] == "hinge"
    (run,) = (path.parent for path in tmp_path.glob("store/*/*/meta.yaml"))
    assert (run / "params" / "loss").read_text() == "hinge"
    lines = (run / "metrics" / "loss").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["256", "300", "600", "256", "300", "600", "900"]
    assert (run / "params" / "passes").read_text() == "2"  # of the first run
    assert float((run / "metrics" / "progressive_loss").read_text().split()[1]) == loss
    assert "end_time: null" not in (run / "meta.yaml").read_text()
