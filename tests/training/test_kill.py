"""A real process, really killed, at any moment: the bits of the run that never was."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad.config import TrainConfig
from dadagrad.training.run import train

# One process imports everything and then, again and again, forks a child that trains, and kills
# it. The parent has no threads, so that forking is sound. Prints how often it killed, and
# the digest, per trial.
TRIALS = """
import json, os, random, signal, sys, time
import dadagrad.data.zarr.dataset
from dadagrad.config import TrainConfig
from dadagrad.data import open_dataset
from dadagrad.problem import make_problem
from dadagrad.training import execution, run
from dadagrad.training.checkpoints import lease
from dadagrad.training.engines import threads
from dadagrad.training.engines.warm_up import warm_up

data, folder, seed, *settings = sys.argv[1:]
execution.CHUNK_ROWS = 20
# A child that is killed as it begins is dead for sure: the next one need not wait to see whether.
lease.BEGIN_SECONDS = 0.0
configs = [TrainConfig(**json.loads(each)) for each in settings]
# Loaded here, once, what every child would have to load: a child lives for a moment.
for config in configs:
    for batch_size in {1, config.batch_size}:
        warm_up(make_problem(config, open_dataset(data).schema, batch_size), lambda line: None)


def child(config, checkpoints):
    options = dict(save_seconds=0.002, callbacks=[lambda event: time.sleep(0.003)])
    if run.CheckpointReader(checkpoints).list():
        result = run.resume(checkpoints, **options)
    else:
        result = run.train(data, config, checkpoints=checkpoints, **options)
    with open(checkpoints + ".done", "w") as file:
        file.write(result.model.digest)


def end_of_child(config, checkpoints, seconds):
    pid = os.fork()
    if pid == 0:
        try:
            child(config, checkpoints)
            os._exit(0)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


rng = random.Random(int(seed))
for trial, config in enumerate(configs):
    checkpoints = f"{folder}/trial-{trial}"
    kills = 0
    while status := end_of_child(config, checkpoints, rng.uniform(0.02, 0.15 * 1.3**kills)):
        assert os.WIFSIGNALED(status), "the child failed"
        kills += 1
    print(kills, open(checkpoints + ".done").read(), flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    """In memory where that can be: what a dead process has written is there all the same, and most
    of the time would go to waiting for the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dadagrad-", dir=memory) as name:
        yield Path(name)


SETTINGS = (
    {"step_size": "auto", "update": "dual-averaging", "batch_size": 1, "l1": 1e-4, "passes": 2},
    {"step_size": "auto", "update": "ftrl", "batch_size": 16, "class_weight": "balanced",
     "passes": 2},
)  # fmt: skip


def test_killed_at_any_moment_and_resumed_the_bits_are_the_same(folder):
    data = write_zarr(make_data((150,) * 4, labels="multiclass"), folder / "data")
    undisturbed = [train(data, TrainConfig(**settings)).model.digest for settings in SETTINGS]
    command = [sys.executable, "-c", TRIALS, data, str(folder), "7", *map(json.dumps, SETTINGS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    kills, digests = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert list(digests) == undisturbed
    assert min(map(int, kills)) >= 1
