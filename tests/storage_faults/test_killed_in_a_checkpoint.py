"""A process that dies while it writes a checkpoint, at each of its writes: resumed, the same bits.

On S3 a proxy passes on half of a request, and the process is killed meanwhile; on
files it is killed at each change of a file.
"""

import json

import pytest
from helpers.faulty_proxy import Proxy, once_at
from helpers.processes import wait_until
from helpers.sudden_death import each_death
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad import train
from dadagrad.training.checkpoints.reader import CheckpointReader


@pytest.mark.parametrize(
    ("stage", "store"), [("part", "moto"), ("manifest", "rclone"), ("model", "moto")]
)
def test_on_s3(stage, store, servers, url, new_program, monkeypatch):
    servers[store].set_environment(monkeypatch)
    with Proxy(servers[store]) as proxy:
        proxy.act = once_at(proxy, stage, "tear")
        process = new_program(url, passes=4, environment=proxy.server.environment).train()
        assert proxy.held.wait(20), process.text()
        process.kill()
        # Where a whole request was on its way, it arrives after the death of who sent it.
        proxy.release()
        wait_until(lambda: not proxy.busy, 10, "the requests under way")
    program = new_program(url, passes=4, environment=servers[store].environment)
    assert all(info.valid for info in CheckpointReader(program.checkpoints).list(verify=True))
    program.assert_undisturbed(program.resume())
    assert all(info.valid for info in CheckpointReader(program.checkpoints).list(verify=True))


CHECKPOINTS = """
import logging
from pathlib import Path
from dadagrad.storage import store
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter
from helpers.checkpoint_stores import orphans, same, snapshot

def act(folder):
    with CheckpointWriter(folder, keep=2, new=True) as writer:
        for step in range(4):
            writer.save(snapshot(step))
            Path(f"{folder}.saved").write_text(str(step))

def check(folder):
    saved = Path(f"{folder}.saved")
    step = int(saved.read_text()) if saved.exists() else -1
    saved.unlink(missing_ok=True)
    listed = CheckpointReader(folder).list(verify=True)
    assert all(info.valid for info in listed), listed
    steps = [info.step for info in listed]
    assert steps == sorted(steps, reverse=True) and len(steps) <= 3, steps
    assert step in (steps or [-1]) or step + 1 in steps, (step, steps)
    if steps:
        assert same(CheckpointReader(folder).load(), snapshot(steps[0]))
    store.LEFTOVER_SECONDS = 0.0
    with CheckpointWriter(folder, keep=1) as writer:
        writer.save(snapshot(9))
    assert [info.step for info in CheckpointReader(folder).list(verify=True)] == [9]
    assert not orphans(folder)
    left = sorted(path.name[:9] for path in Path(folder).iterdir())
    assert left == ["000000000", "epoch-000", "manifest-"], left
"""


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_at_a_change_of_a_file(stride, tmp_path):
    """Writing and removing: checkpoints stay whole, and the next run leaves nothing else."""
    assert each_death(tmp_path, CHECKPOINTS, stride=stride) > 70


RUNS = """
import json, time
from dadagrad.config import TrainConfig
from dadagrad.data import open_dataset
from dadagrad.problem import make_problem
from dadagrad.training import execution
from dadagrad.training.checkpoints import lease
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.engines import threads
from dadagrad.training.engines.warm_up import warm_up
from dadagrad.training.run import resume, train

data, digest, settings = arguments
config = TrainConfig(**json.loads(settings))
execution.CHUNK_ROWS = 20
lease.BEGIN_SECONDS = 0.0  # nobody has to see first whether a process that began is dead
for batch_size in {1, config.batch_size}:  # loaded once, before any process begins
    warm_up(make_problem(config, open_dataset(data).schema, batch_size), lambda line: None)

def act(folder):
    pause = lambda event: time.sleep(0.003)  # the writer in the background keeps up
    train(data, config, checkpoints=f"{folder}/run", save_every=1, callbacks=[pause])

def check(folder):
    url = f"{folder}/run"
    begun = CheckpointReader(url).list()
    result = resume(url) if begun else train(data, config, checkpoints=url)
    assert result.model.digest == digest
"""
SETTINGS = [
    {"update": "dual-averaging", "batch_size": 1, "l1": 1e-4},
    {"update": "ftrl", "batch_size": 16, "class_weight": "balanced", "passes": 2},
]


@pytest.mark.timeout(600)  # some hundred deaths take minutes
@pytest.mark.parametrize(
    ("settings", "stride"),
    [(SETTINGS[0], 83), *(pytest.param(each, 1, marks=pytest.mark.slow) for each in SETTINGS)],
    ids=lambda value: value["update"] if isinstance(value, dict) else str(value),
)
def test_a_run_dies_at_a_change_of_a_file(settings, stride, tmp_path):
    """Resumed, or begun again where it had saved nothing, it makes the same bits."""
    data = write_zarr(make_data((150,) * 2, labels="multiclass"), tmp_path / "data")
    digest = train(data, **settings).model.digest
    arguments = (data, digest, json.dumps(settings))
    assert each_death(tmp_path, RUNS, *arguments, stride=stride) > 60
