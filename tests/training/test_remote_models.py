"""Models whose weights the workers of a cluster write, because this process may not hold them."""

import shutil
import threading
import time
from pathlib import Path

import dask.config
import numpy as np
import pytest
from helpers.training_cases import interrupt_at, make_data
from helpers.wide_cases import write_wide
from helpers.zarr_cases import write_zarr

from dadagrad import Model, TrainConfig, dry_run, resume, sweep, train
from dadagrad.clusters.monitor import ClusterMonitor
from dadagrad.errors import InputError, StorageError, TrainingError
from dadagrad.training.engines.dask.futures import RoundLost
from dadagrad.training.engines.dask.streams import shard_store
from dadagrad.training.memory import workers
from dadagrad.training.state.remote import RemoteWeights

CONFIG = TrainConfig(step_size=0.3, streams=3, rounds=6, l1=1e-4)


@pytest.fixture(autouse=True)
def states_stay_on_workers(monkeypatch):
    monkeypatch.setattr(workers, "MAX_GATHERED", 0)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Rows of 2^15 features, so that each of the eight shards has several ranges."""
    return write_wide(tmp_path_factory.mktemp("wide") / "data", 15, 4, 300)


@pytest.fixture(scope="module")
def expected(wide):
    return train(wide, CONFIG).model


def parts_of(url):
    """The folder of the parts of a model, and the names of its subfolders of weights."""
    (folder,) = Path(url).glob("parts-*")
    assert not (folder / "probe").exists()
    return folder, sorted(each.name for each in folder.iterdir() if each.is_dir())


@pytest.mark.parametrize(
    "settings",
    [{}, {"average": True, "l1": 0.0}, {"update": "mirror-descent", "step_size": 0.01}],
    ids=str,
)
def test_workers_write_the_weights_of_a_run_on_threads(scheduler, wide, tmp_path, settings):
    url, alone = str(tmp_path / "model"), str(tmp_path / "alone")
    result = train(wide, CONFIG, client=scheduler, save_to=url, **settings)
    assert result.coordinator.state.ids is None, "the weights came to this process"
    whole = train(wide, CONFIG, save_to=alone, **settings)
    model = Model.load(url)
    for name in ("ids", "weights", "intercept"):
        np.testing.assert_array_equal(getattr(model, name), getattr(whole.model, name))
    assert result.digest == model.digest == whole.digest == Model.load(alone).digest
    assert parts_of(url)[1] == [f"{number:04d}" for number in range(8)]
    nonzeros = np.count_nonzero(model.weights)
    assert result.report["nonzeros"] == model.report["nonzeros"] == nonzeros
    assert result.model.digest == model.digest
    assert result.saved_to == url


def test_columns_of_other_units_have_the_weights_of_their_values(scheduler, tmp_path):
    data = write_zarr(make_data((90, 70, 110), n_features=10_000), tmp_path / "data")
    url, settings = str(tmp_path / "model"), {"scale_columns": True, "l1": 0.0}
    result = train(data, CONFIG, client=scheduler, save_to=url, **settings)
    assert result.coordinator.state.ids is None
    assert Model.load(url).digest == train(data, CONFIG, **settings).model.digest


@pytest.mark.parametrize(
    "error",
    [StorageError("it is another folder on this machine"), InputError("there are no credentials")],
    ids=str,
)
def test_workers_that_cannot_write_leave_the_model_to_this_process(
    scheduler_here, wide, expected, tmp_path, monkeypatch, caplog, error
):
    def another(url, folder):
        raise error

    monkeypatch.setattr(shard_store, "shared_storage", another)
    url = str(tmp_path / "model")
    result = train(wide, CONFIG, client=scheduler_here, save_to=url)
    assert "the workers cannot write the model" in caplog.text
    assert Model.load(url).digest == result.digest == expected.digest
    assert parts_of(url)[1] == ["weights"]


def test_a_model_is_whole_if_a_worker_is_lost_while_it_writes(
    scheduler_here, wide, expected, tmp_path, monkeypatch
):
    shared_storage, calls = shard_store.shared_storage, []

    def lose_the_third(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise RoundLost("worker 1 has left the cluster")
        return shared_storage(*arguments)

    monkeypatch.setattr(shard_store, "shared_storage", lose_the_third)
    url = str(tmp_path / "model")
    train(wide, CONFIG, client=scheduler_here, save_to=url)
    assert len(calls) == 3 + 8
    assert Model.load(url).digest == expected.digest
    parts_of(url)  # there are no others


def test_workers_may_wait_for_the_store_of_a_model(
    scheduler_here, wide, expected, tmp_path, monkeypatch
):
    """For longer than they are else given to answer."""
    shared_storage, waited = shard_store.shared_storage, []

    def wait_first(*arguments):
        folders = list(url.glob("parts-*"))
        if folders != waited:
            waited[:] = folders
            time.sleep(0.8)
        return shared_storage(*arguments)

    url = tmp_path / "model"
    monkeypatch.setattr(shard_store, "shared_storage", wait_first)
    monkeypatch.setitem(dask.config.config["dadagrad"], "worker-ttl", "500ms")
    result = train(wide, CONFIG, client=scheduler_here, save_to=str(url))
    assert result.digest == Model.load(url).digest == expected.digest


def test_workers_that_write_are_not_waited_for_if_the_scheduler_is_lost(
    scheduler_here, wide, tmp_path, monkeypatch
):
    shared_storage, may_write, lost = shard_store.shared_storage, threading.Event(), []

    def wait(*arguments):
        lost.append(True)
        may_write.wait(3)
        return shared_storage(*arguments)

    monkeypatch.setattr(shard_store, "shared_storage", wait)
    monkeypatch.setattr(ClusterMonitor, "is_lost", property(lambda monitor: lost and lost.pop()))
    with pytest.raises(TrainingError, match="the scheduler has not answered"):
        train(wide, CONFIG, client=scheduler_here, save_to=str(tmp_path / "model"))
    may_write.set()


def test_workers_stop_writing_when_their_folder_is_removed(
    scheduler_here, wide, expected, tmp_path, monkeypatch
):
    """A client that is stopped removes it."""
    shared_storage, url = shard_store.shared_storage, tmp_path / "model"

    def remove_once(*arguments):
        if not removed:
            removed.extend(url.glob("parts-*"))
            shutil.rmtree(removed[0])
        return shared_storage(*arguments)

    removed = []
    monkeypatch.setattr(shard_store, "shared_storage", remove_once)
    train(wide, CONFIG, client=scheduler_here, save_to=str(url))
    assert Model.load(url).digest == expected.digest
    assert parts_of(url)[0] != removed[0]


def test_a_run_that_fails_leaves_no_parts(scheduler_here, wide, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise StorageError("the disk is full")

    monkeypatch.setattr("dadagrad.model.writer.ModelWriter.commit", fail)
    url = tmp_path / "model"
    with pytest.raises(StorageError, match="the disk is full"):
        train(wide, CONFIG, client=scheduler_here, save_to=str(url))
    assert not url.exists()


def test_a_result_does_not_take_the_model_of_a_later_run_for_its_own(scheduler, wide, tmp_path):
    url = str(tmp_path / "model")
    first, second = (train(wide, CONFIG, client=scheduler, save_to=url, l1=l1) for l1 in (0.1, 0.0))
    assert second.model.digest == second.digest != first.digest
    with pytest.raises(InputError, match=r"is not at .* any more: another one was saved there"):
        _ = first.model


def test_the_weights_of_a_stopped_run_stay_on_the_workers(scheduler, wide, expected, tmp_path):
    folder, url = str(tmp_path / "run"), str(tmp_path / "model")
    stop = {"checkpoints": folder, "callbacks": [interrupt_at(500)]}
    stopped = train(wide, CONFIG, client=scheduler, save_to=url, **stop)
    assert (stopped.complete, stopped.saved_to, stopped.digest) == (False, None, None)
    assert stopped.report["nonzeros"] > 0
    assert "Trained on" in stopped._repr_html_()
    with pytest.raises(InputError, match=r"was stopped.*go on with it from its checkpoints"):
        _ = stopped.model
    assert not Path(url).exists()
    resume(folder, client=scheduler, save_to=url)
    assert Model.load(url).digest == expected.digest
    again = str(tmp_path / "again")
    complete = resume(folder, client=scheduler, save_to=again)
    assert complete.coordinator.state.ids is None, "the weights came to this process"
    assert Model.load(again).digest == expected.digest
    unsaved = resume(folder, client=scheduler)
    assert isinstance(unsaved.coordinator.state, RemoteWeights), "the state came to this process"
    assert unsaved.digest == expected.digest
    with pytest.raises(InputError, match="the state of this run stayed on the workers"):
        unsaved.save(str(tmp_path / "with state"), keep_state=True)
    unsaved.save(str(tmp_path / "without"), keep_state=False)
    assert Model.load(tmp_path / "without").digest == expected.digest


def test_relative_paths_are_those_of_this_process(scheduler, wide, expected, tmp_path, monkeypatch):
    """Workers have another working directory."""
    monkeypatch.chdir(tmp_path)
    stop = {"checkpoints": "run", "callbacks": [interrupt_at(500)]}
    assert not train(wide, CONFIG, client=scheduler, **stop).complete
    result = resume("run", client=scheduler, save_to="model")
    assert result.coordinator.state.stored is not None, "the workers have not written the model"
    assert result.model.digest == expected.digest


def test_a_sweep_goes_on_with_the_last_setting(scheduler, wide):
    """The states of several come to this process, from which half of them are dropped."""
    settings = {"step_size": [0.3, 30.0], "l1": 0.0, "rounds": 20}
    here, there = (sweep(wide, CONFIG, client=each, **settings) for each in (None, scheduler))
    assert there.best.coordinator.problem.n_settings == 1
    assert there.best.digest == here.best.digest


def test_names_and_rows_held_out_need_the_weights_here(scheduler, wide, tmp_path):
    names, url = {number: f"f{number}" for number in range(1 << 13)}, str(tmp_path / "model")
    rows = make_data((90, 70, 110), n_features=1 << 13)
    train(write_zarr(rows, tmp_path / "data", names=names), CONFIG, client=scheduler, save_to=url)
    model = Model.load(url)
    assert model.names == {number: names[number] for number in model.ids.tolist()}
    train(wide, CONFIG, client=scheduler, save_to=url, holdout=0.25)
    assert Model.load(url).report["holdout"]["rows"] == 300


def test_the_first_partition_may_be_skipped(scheduler_here, wide, tmp_path):
    data, url = tmp_path / "data", str(tmp_path / "model")
    shutil.copytree(wide, data)
    shutil.rmtree(data / "part-00000")
    result = train(str(data), CONFIG, client=scheduler_here, save_to=url, on_error="skip")
    assert result.report["skipped_partitions"] == ["part-00000"]
    assert result.digest == train(str(data), CONFIG, on_error="skip").digest


def test_a_model_that_cannot_be_saved_is_refused_before_the_run(scheduler, wide, tmp_path):
    run = {"client": scheduler, "callbacks": [lambda event: pytest.fail("it began")]}
    with pytest.raises(InputError, match="leave out keep_state"):
        train(wide, CONFIG, save_to=str(tmp_path / "model"), keep_state=True, **run)
    with pytest.raises(InputError, match="holds a dataset; save the model to a folder of its own"):
        train(wide, CONFIG, save_to=wide, **run)


def test_the_model_is_no_part_of_the_estimate_if_workers_write_it(scheduler, wide):
    url = "model"
    here = dry_run(wide, CONFIG, client=scheduler)
    there = dry_run(wide, CONFIG, client=scheduler, save_to=url)
    assert here.coordinator["model"] > there.coordinator["model"] == 0
    assert dry_run(wide, CONFIG, save_to=url).coordinator["model"] > 0
