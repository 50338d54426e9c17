"""Going on from checkpoints: the bits of the run that never stopped."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest
from helpers.training_cases import UPDATES, make_data, metrics_bytes, state_bytes
from helpers.zarr_cases import write_zarr

from dadagrad.config import TrainConfig
from dadagrad.errors import InputError, TrainingError
from dadagrad.training import run as run_module
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.messages import Report
from dadagrad.training.run import TrainResult, resume, train

each_update = pytest.mark.parametrize("update", UPDATES)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    """Online, stop for a look often, so that saves fall into the middle of partitions."""
    monkeypatch.setattr(run_module, "CHUNK_ROWS", 7)


def unhurried(report: Report) -> None:
    """Give the background writer the time to write each state."""
    time.sleep(0.003)


def everything(result: TrainResult) -> tuple[object, ...]:
    """All that must not depend on having been stopped."""
    end = result.coordinator
    names = ("rows", "steps", "passes", "step_size", "batch_size", "nonzeros", "digest",
             "progressive_loss", "progressive_error", "complete")  # fmt: skip
    facts = [result.report[name] for name in names]
    return (state_bytes(end.state), metrics_bytes(end), result.model.digest, *facts)


def steps_kept(folder: Path) -> list[int]:
    return sorted(info.step for info in CheckpointReader(folder).list(verify=True) if info.valid)


def as_of(folder: Path, step: int, to: Path) -> str:
    """A copy of the checkpoints as they were after those of `step`."""
    shutil.copytree(folder, to)
    for manifest in to.glob("manifest-*.json"):
        if int(manifest.stem.split("-")[1]) > step:
            manifest.unlink()
    return str(to)


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("batch_size", [1, 11])
def test_a_finished_run_is_only_looked_at(tmp_path, batch_size):
    data = make_data()
    config = TrainConfig(step_size=0.3, batch_size=batch_size, passes=2)
    finished = train(data, config, checkpoints=str(tmp_path / "run"))
    before = content_of(tmp_path / "run")
    announced: list[str] = []
    again = resume(str(tmp_path / "run"), data=data, announce=announced.append)
    assert content_of(tmp_path / "run") == before
    assert everything(again) == everything(finished)
    assert again.complete
    assert again.report["seconds"] == pytest.approx(finished.report["seconds"], abs=0.5)
    assert [line for line in announced if f"the run at {tmp_path / 'run'} is complete" in line]


def test_a_finished_run_needs_no_cluster(tmp_path):
    url = write_zarr(make_data(), tmp_path / "data")
    config = TrainConfig(step_size=0.3, batch_size=11)
    finished = train(url, config, checkpoints=str(tmp_path / "run"))
    again = resume(str(tmp_path / "run"), client="tcp://127.0.0.1:1")
    assert again.model.digest == finished.model.digest


SETTINGS = {
    "plain": ({}, {}),
    "penalties": ({"l1": 1e-3, "l2": 1e-3, "accumulate": "row", "partitions_per_batch": 2}, {}),
    "classes": ({"class_weight": "balanced", "loss": "logistic"}, {"labels": "multiclass"}),
    "labels": ({"shuffle": False}, {"labels": "multilabel", "weighted": True}),
    "softmax": ({"loss": "softmax"}, {"labels": "multiclass"}),
    "mapping": ({"class_weight": {1.0: 2.5}, "low": -0.2, "high": 0.3}, {}),
    "regression": ({"loss": "huber:width=0.5"}, {"labels": "real"}),
    "auto": ({"step_size": "auto"}, {}),
}


@each_update
@pytest.mark.parametrize("batch_size", [1, 11])
@pytest.mark.parametrize("name", list(SETTINGS))
def test_from_every_checkpoint_the_same_bits_follow(update, batch_size, name, tmp_path):
    settings, labels = SETTINGS[name]
    config = TrainConfig(
        **{"step_size": 0.3, "passes": 2} | settings, update=update, batch_size=batch_size
    )
    data = make_data((30, 17, 41), **labels)
    undisturbed = everything(train(data, config))
    folder = tmp_path / "run"
    saved = train(
        data, config, checkpoints=str(folder), save_every=9, keep=1000, progress=unhurried
    )
    assert everything(saved) == undisturbed
    steps = steps_kept(folder)
    assert steps[0] == 0
    assert steps[-1] == saved.report["steps"]
    assert len(steps) >= 3
    for step in steps:
        copy = as_of(folder, step, tmp_path / str(step))
        again = resume(copy, data=data, threads=1)
        assert everything(again) == undisturbed
        assert again.report["seconds"] > 0


@pytest.mark.parametrize("batch_size", [1, 11])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint(batch_size, number, tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=batch_size, passes=3)
    undisturbed = everything(train(data, config))
    folder = str(tmp_path / "run")

    def interrupt_at(rows: int):
        def progress(report: Report) -> None:
            if report.metrics.rows >= rows and not interrupted:
                interrupted.append(True)
                signal.raise_signal(number)

        interrupted: list[bool] = []
        return progress

    handler = signal.getsignal(number)
    result = train(data, config, checkpoints=folder, progress=interrupt_at(50))
    assert not result.complete
    assert not result.report["complete"]
    assert 50 <= result.report["rows"] < 3 * data.n_rows
    assert signal.getsignal(number) is handler
    assert steps_kept(tmp_path / "run")[-1] == result.report["steps"]
    # The model of a stopped run is that of its state.
    assert result.model.digest != undisturbed[2]
    second = resume(folder, data=data, progress=interrupt_at(result.report["rows"] + 60))
    assert not second.complete
    assert everything(resume(folder, data=data)) == undisturbed


def test_a_finished_run_can_be_resumed_any_number_of_times(tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=11)
    folder = str(tmp_path / "run")
    first = train(data, config, checkpoints=folder)
    for _ in range(3):
        again = resume(folder, data=data)
        assert everything(again) == everything(first)


def test_a_folder_with_a_run_is_not_started_into(tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3)
    folder = str(tmp_path / "run")
    first = train(data, config, checkpoints=folder)
    with pytest.raises(InputError, match=r"already holds the checkpoints of a run.*resume"):
        train(data, config, checkpoints=folder)
    assert resume(folder, data=data).model.digest == first.model.digest


def test_other_data_is_refused(tmp_path):
    folder = str(tmp_path / "run")
    train(make_data(), TrainConfig(step_size=0.3), checkpoints=folder)
    with pytest.raises(InputError, match=r"not what the run at .* was started with.*digest"):
        resume(folder, data=make_data(seed=1))


def test_data_in_memory_must_be_given_again(tmp_path):
    folder = str(tmp_path / "run")
    train(make_data(), TrainConfig(step_size=0.3), checkpoints=folder)
    with pytest.raises(InputError, match="data in memory; give the same data again"):
        resume(folder)


def test_data_at_a_url_is_found_again_from_another_folder(tmp_path, monkeypatch):
    write_zarr(make_data(), tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(step_size=0.3)
    first = train("data", config, checkpoints="run", notes={"mine": [1, 2]})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert everything(resume("../run")) == everything(first)
    assert CheckpointReader("../run").load().meta["notes"] == {"mine": [1, 2]}


def test_without_checkpoints_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(InputError, match=r"no checkpoint at .*the folder has no run"):
        resume(str(tmp_path / "run"))


def test_a_run_that_is_refused_leaves_no_checkpoint(tmp_path):
    folder = tmp_path / "run"
    data = make_data(labels="multiclass")
    with pytest.raises(InputError, match="batch_size 1 takes one row after the other"):
        train(
            data,
            TrainConfig(batch_size=1),
            workers=1,
            checkpoints=str(folder),
        )
    with pytest.raises(InputError, match="class_weight names label 99"):
        train(data, TrainConfig(class_weight={99.0: 1.0}), checkpoints=str(folder))
    with pytest.raises(InputError, match="data in memory cannot be read by the workers"):
        train(data, TrainConfig(), workers=1, checkpoints=str(folder))
    assert not folder.exists()
    train(data, TrainConfig(step_size=0.3), checkpoints=str(folder))


def test_a_run_that_fails_keeps_what_it_saved_before(tmp_path):
    data = make_data((50, 50), seed=3)
    bad = make_data((50, 50), seed=3)
    bad.read(1).labels[40] = 9.0
    config = TrainConfig(step_size=0.3, batch_size=10, shuffle=False, partitions_per_batch=1)
    folder = tmp_path / "run"
    with pytest.raises(InputError, match="partition part-00001: row 40 has label 9"):
        train(bad, config, checkpoints=str(folder), save_every=1, progress=unhurried)
    assert steps_kept(folder)[-1] == 9
    # The rows before the bad one were learned from as in a run without it.
    reference = train(data, config)
    assert reference.report["steps"] == 10


def test_the_step_size_is_chosen_once(tmp_path, monkeypatch):
    data, config = make_data((60, 60, 60)), TrainConfig(batch_size=11, passes=2)
    folder = str(tmp_path / "run")
    seen: list[Report] = []

    def stop_early(report: Report) -> None:
        seen.append(report)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)

    stopped = train(data, config, checkpoints=folder, progress=stop_early)
    assert (
        CheckpointReader(folder).load().meta["config"]["step_size"] == stopped.report["step_size"]
    )

    def refuse(*arguments: object) -> float:
        raise AssertionError("it had been chosen")

    monkeypatch.setattr(run_module, "choose_step_size", refuse)
    again = resume(folder, data=data)
    monkeypatch.undo()
    assert again.model.digest == train(data, config).model.digest


@pytest.mark.parametrize("batch_size", [1, 11])
def test_a_run_that_dies_while_choosing_starts_again(batch_size, tmp_path, monkeypatch):
    data, config = make_data((60, 60)), TrainConfig(batch_size=batch_size)
    undisturbed = everything(train(data, config))

    def die(*arguments: object) -> float:
        raise TrainingError("a crash")

    folder = str(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "choose_step_size", die)
        with pytest.raises(TrainingError, match="a crash"):
            train(data, config, checkpoints=folder)
    assert everything(resume(folder, data=data)) == undisturbed


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, caplog):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=11)
    folder = tmp_path / "run"
    first = train(data, config, checkpoints=str(folder), save_every=1, keep=100, progress=unhurried)
    newest = max(folder.glob("manifest-*.json"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert everything(resume(str(folder), data=data)) == everything(first)
    assert any("damaged" in record.message for record in caplog.records)


def test_saves_by_the_clock(tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=11, passes=4)
    folder = tmp_path / "run"
    result = train(
        data, config, checkpoints=str(folder), save_seconds=0.01, keep=1000, progress=unhurried
    )
    steps = steps_kept(folder)
    assert 3 <= len(steps) < result.report["steps"]
    assert everything(resume(str(folder), data=data)) == everything(train(data, config))


def test_seconds_add_up_over_stops(tmp_path):
    data, config = make_data(), TrainConfig(step_size=0.3, batch_size=11)
    folder = str(tmp_path / "run")
    first = train(data, config, checkpoints=folder, progress=lambda report: time.sleep(0.01))
    assert first.report["seconds"] >= 0.01 * first.report["steps"]
    # The last state was saved a moment before the end.
    assert resume(folder, data=data).report["seconds"] >= 0.01 * first.report["steps"]


def test_the_configuration_survives_exactly(tmp_path):
    config = TrainConfig(
        loss="huber:width=0.3", update="ftrl", l1=1e-7, l2=3e-9, low=-1.5, step_size=0.1,
        delta=1e-3, batch_size=7, passes=1, shuffle=False, partitions_per_batch=3,
        accumulate="row", seed=11,
    )  # fmt: skip
    folder = str(tmp_path / "run")
    train(make_data(labels="real"), config, checkpoints=folder)
    assert TrainConfig.from_json(CheckpointReader(folder).load().meta["config"]) == config
