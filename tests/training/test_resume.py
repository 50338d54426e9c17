"""Going on from checkpoints: the bits of the run that never stopped."""

import shutil
import signal
import time

import pandas
import pytest
from helpers.training_cases import bits, interrupt_at, make_data
from helpers.zarr_cases import files_of, write_zarr

from dadagrad import InputError, TrainConfig, TrainingError, resume, train
from dadagrad.data import external_shuffle
from dadagrad.data.ingest.ingest import as_dataset
from dadagrad.training import execution
from dadagrad.training.checkpoints.reader import CheckpointReader


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    """Online, stop for a look often, so that saves fall into the middle of partitions."""
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)


def unhurried(event):
    """Give the background writer the time to write each state."""
    time.sleep(0.003)


def everything(result):
    """All that must not depend on having been stopped."""
    names = ("rows", "steps", "passes", "step_size", "batch_size", "nonzeros", "digest",
             "progressive_loss", "progressive_error", "complete", "settings",
             "calibration")  # fmt: skip
    return (*bits(result), *map(result.report.get, names))


def steps_kept(folder):
    return sorted(info.step for info in CheckpointReader(folder).list(verify=True) if info.valid)


def as_of(folder, step, to):
    """A copy of the checkpoints as they were after those of `step`."""
    shutil.copytree(folder, to)
    for manifest in to.glob("manifest-*.json"):
        if int(manifest.stem.split("-")[1]) > step:
            manifest.unlink()
    return str(to)


@pytest.mark.parametrize(("batch_size", "client"), [(1, None), (11, "tcp://127.0.0.1:1")])
def test_a_finished_run_is_only_looked_at_any_number_of_times(tmp_path, batch_size, client):
    """And needs no cluster."""
    url = write_zarr(make_data(), tmp_path / "data")
    config = TrainConfig(step_size=0.3, batch_size=batch_size, passes=2)
    folder = str(tmp_path / "run")
    finished = train(url, config, checkpoints=folder)
    before = files_of(tmp_path / "run")
    announced = []
    for _ in range(2):
        again = resume(folder, client=client, messages=announced.append)
        assert files_of(tmp_path / "run") == before
        assert everything(again) == everything(finished)
        assert again.complete
        assert again.report["seconds"] == pytest.approx(finished.report["seconds"], abs=0.5)
    assert [line for line in announced if f"the run at {folder} is complete" in line]


CASES = {
    "online": ({"update": "dual-averaging", "batch_size": 1}, {}),
    "online, balanced": (
        {"update": "ftrl", "class_weight": "balanced", "loss": "logistic", "batch_size": 1},
        {"labels": "multiclass"},
    ),
    "online, classes": (
        {"update": "mirror-descent", "loss": "softmax", "batch_size": 1, "scale_columns": True},
        {"labels": "multiclass"},
    ),
    "online, regression": (
        {"loss": "absolute", "step_size": "auto", "batch_size": 1}, {"labels": "real"},
    ),
    "online, pairs": ({"loss": "ranking", "l1": 1e-4, "batch_size": 1}, {"labels": "relevance"}),
    "streams": ({"streams": 3, "rounds": 4, "l1": 1e-3, "scale_columns": True}, {}),
    "streams, average": ({"streams": 3, "rounds": 4, "average": True}, {}),
    "streams, settings": (
        {"streams": 2, "update": "mirror-descent", "step_size": (0.1, 0.3), "l2": (0.0, 1e-2)},
        {},
    ),
    "batches": ({"batch_size": 40, "partitions_per_batch": 1, "shuffle": False}, {}),
    "batches, squares of rows": (
        {"l1": 1e-3, "l2": 1e-3, "accumulate": "row", "partitions_per_batch": 2}, {},
    ),
    "batches, settings": ({"update": "mirror-descent", "step_size": (0.1, 0.3)}, {}),
    "batches, labels": ({"update": "ftrl"}, {"labels": "multilabel", "weighted": True}),
    "batches, classes": ({"loss": "multiclass-hinge", "update": "ftrl"}, {"labels": "multiclass"}),
    "batches, pairs": ({"loss": "ranking", "update": "mirror-descent"}, {"labels": "relevance"}),
    "batches, mapping": ({"class_weight": {1.0: 2.5}, "low": -0.2, "high": 0.3}, {}),
    "batches, regression": ({"loss": "huber:width=0.5", "l1": 1e-4}, {"labels": "real"}),
    "batches, auto": ({"step_size": "auto", "scale_columns": True}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_on_any_threads_and_from_any_checkpoint(case, tmp_path):
    settings, labels = CASES[case]
    usual = {"step_size": 0.3, "passes": 2} | ({} if "streams" in settings else {"batch_size": 11})
    config = TrainConfig(**usual | settings)
    data = make_data((30, 17, 41), **labels)
    undisturbed = everything(train(data, config, threads=1))
    assert everything(train(data, config, threads=2)) == undisturbed
    folder = tmp_path / "run"
    options = {"checkpoints": str(folder), "save_every": 2, "keep": 1000, "callbacks": [unhurried]}
    saved = train(data, config, threads=3, **options)
    assert everything(saved) == undisturbed
    steps = steps_kept(folder)
    assert steps[0] == 0
    assert steps[-1] == saved.report["steps"]
    assert len(steps) >= 3
    for step in steps[:: max(1, len(steps) // 3)]:
        copy = as_of(folder, step, tmp_path / str(step))
        again = resume(copy, data=data)
        assert everything(again) == undisturbed
        assert again.report["seconds"] > 0


@pytest.mark.parametrize(
    ("batch_size", "number"), [(1, signal.SIGINT), (11, signal.SIGTERM), (1, signal.SIGHUP)]
)
def test_a_signal_stops_with_a_checkpoint(batch_size, number, tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=batch_size, passes=3)
    undisturbed = train(data, config)
    folder = str(tmp_path / "run")
    handler = signal.getsignal(number)
    result = train(data, config, checkpoints=folder, callbacks=[interrupt_at(50, number)])
    assert not result.complete
    assert not result.report["complete"]
    assert 50 <= result.report["rows"] < 3 * data.n_rows
    assert signal.getsignal(number) is handler
    assert steps_kept(tmp_path / "run")[-1] == result.report["steps"]
    assert result.model.digest != undisturbed.model.digest  # it is that of the state at the stop
    progress = interrupt_at(result.report["rows"] + 60, number)
    assert not resume(folder, data=data, callbacks=[progress]).complete
    assert everything(resume(folder, data=data)) == everything(undisturbed)


def test_a_run_is_gone_on_with_from_its_folder_and_data_alone(tmp_path):
    data, config, folder = make_data(), TrainConfig(step_size=0.3), str(tmp_path / "run")
    with pytest.raises(InputError, match=r"no checkpoint at .*the folder has no run"):
        resume(folder)
    first = train(data, config, checkpoints=folder)
    for again in (data, "no-data-is-read.csv"):
        with pytest.raises(InputError, match=r"already holds the checkpoints of a run.*resume"):
            train(again, config, checkpoints=folder)
    with pytest.raises(InputError, match=r"not what the run at .* was started with.*digest"):
        resume(folder, data=make_data(seed=1))
    with pytest.raises(
        InputError, match="data that was no dataset at a URL; give the same data again"
    ):
        resume(folder)
    assert resume(folder, data=data).model.digest == first.model.digest


@pytest.mark.parametrize(
    ("kind", "order"),
    [("file", {"seed": 3}), ("file", {"shuffle": False}), ("frame", {})],
    ids=str,
)
def test_raw_rows_are_read_again_with_the_options_and_in_the_order_of_the_run(
    tmp_path, kind, order
):
    frame = pandas.DataFrame({"y": [0, 1] * 60, "x": range(120), "w": [1, 2, 3] * 40})
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = frame if kind == "frame" else str(tmp_path / "a.csv")
    options, folder = {"label": "y", "weight": "w"}, str(tmp_path / "run")
    settings = {"passes": 4, "threads": 1, "step_size": 0.3, **order}
    expected = train(data, **settings, **options).model.digest
    train(data, **settings, **options, checkpoints=folder, callbacks=[interrupt_at(200)])
    with pytest.raises(InputError, match=r"not what the run|no column 'label'"):
        resume(folder, data=data)
    with pytest.raises(InputError, match="'labels' is not known; did you mean 'label'"):
        resume(folder, data=data, labels="y")
    assert resume(folder, data=data, **options).model.digest == expected


def test_rows_in_temporary_files_are_those_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(external_shuffle, "RUN_BYTES", 1)
    (tmp_path / "a.csv").write_text("y,x\n" + "0,1\n1,2\n" * 30)
    rows, folder = as_dataset(tmp_path / "a.csv", label="y"), str(tmp_path / "run")
    with pytest.raises(InputError, match="data in memory cannot be read by the workers"):
        train(rows, holdout=0.1, workers=1)
    train(rows, checkpoints=folder)
    with pytest.raises(
        InputError, match="data that was no dataset at a URL; give the same data again"
    ):
        resume(folder)


def test_data_at_a_url_is_found_again_from_another_folder(tmp_path, monkeypatch):
    write_zarr(make_data(), tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(step_size=0.3)
    first = train("data", config, checkpoints="run", metadata={"mine": [1, 2]})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert everything(resume("../run")) == everything(first)
    assert CheckpointReader("../run").load().meta["notes"] == {"mine": [1, 2]}


def test_a_run_that_is_refused_leaves_no_checkpoint(tmp_path):
    folder = tmp_path / "run"
    data = make_data(labels="multiclass")
    for settings, workers, message in (
        ({"batch_size": 1}, 1, "batch_size 1 takes one row after the other"),
        ({"class_weight": {99.0: 1.0}}, None, "class_weight names label '99'"),
        ({}, 1, "data in memory cannot be read by the workers"),
    ):
        with pytest.raises(InputError, match=message):
            train(data, TrainConfig(**settings), workers=workers, checkpoints=str(folder))
    assert not folder.exists()


def test_a_run_that_fails_keeps_what_it_saved_before(tmp_path):
    data = make_data((50, 50), seed=3)
    bad = make_data((50, 50), seed=3)
    bad.read(1).labels[40] = 9.0
    config = TrainConfig(step_size=0.3, batch_size=10, shuffle=False, partitions_per_batch=1)
    folder = tmp_path / "run"
    with pytest.raises(InputError, match="partition part-00001: row 40 has label 9"):
        train(bad, config, checkpoints=str(folder), save_every=1, callbacks=[unhurried])
    assert steps_kept(folder)[-1] == 9
    # The rows before the bad one were learned from as in a run without it.
    reference = train(data, config)
    assert reference.report["steps"] == 10


def test_the_step_size_is_chosen_once(tmp_path, monkeypatch):
    data, config = make_data((60, 60, 60)), TrainConfig(batch_size=11, passes=2)
    expected = train(data, config)
    folder = str(tmp_path / "run")

    def fail(*arguments):
        raise TrainingError("a crash")

    with monkeypatch.context() as patch:
        patch.setattr(execution, "choose_step_size", fail)
        with pytest.raises(TrainingError, match="a crash"):
            train(data, config, checkpoints=folder)
    # A run that died while choosing chooses again.
    stopped = resume(folder, data=data, callbacks=[interrupt_at(33)])
    assert not stopped.complete
    kept = CheckpointReader(folder).load().meta["config"]["step_size"]
    assert kept == stopped.report["step_size"] == expected.report["step_size"]
    monkeypatch.setattr(execution, "choose_step_size", fail)
    assert everything(resume(folder, data=data)) == everything(expected)


def test_saves_by_the_clock_and_seconds_add_up(tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=11, passes=4)
    folder = tmp_path / "run"
    result = train(
        data, config, checkpoints=str(folder), save_seconds=0.01, keep=1000, callbacks=[unhurried]
    )
    steps = steps_kept(folder)
    assert 3 <= len(steps) < result.report["steps"]
    again = resume(str(folder), data=data)
    assert everything(again) == everything(train(data, config))
    # The last state was saved a moment before the end.
    assert again.report["seconds"] >= 0.003 * result.report["steps"]
