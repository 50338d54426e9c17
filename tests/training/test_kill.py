"""A real process, really killed, at any moment: the bits of the run that never was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad.config import TrainConfig
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.run import train

# One process imports everything and then, again and again, forks a child that trains, and kills
# it. The parent has no threads, so that forking is sound. Prints how often it killed, per trial.
TRIALS = """
import json, os, random, signal, sys, time
import dadagrad.kernels.training, dadagrad.kernels.id_sets, dadagrad.data.zarr.dataset
import dadagrad.training.checkpoints.lease, dadagrad.training.engines.threads
import dadagrad.training.checkpoints.snapshot
from dadagrad.config import TrainConfig
from dadagrad.training import run
from dadagrad.training.checkpoints.writer import CheckpointReader

data, folder, seed, n_trials, settings = sys.argv[1:]
run.CHUNK_ROWS = 20
# A child that is killed as it begins is dead for sure: the next one need not wait to see whether.
dadagrad.training.checkpoints.lease.BEGIN_SECONDS = 0.0
config = TrainConfig(**json.loads(settings))
# Loaded here, once, what every child would have to load: a child lives for a moment.
from dadagrad.data import open_dataset
from dadagrad.problem import make_problem
from dadagrad.training.warm_up import warm_up
for batch_size in (1, config.batch_size):
    warm_up(make_problem(config, open_dataset(data).schema, batch_size), lambda line: None)


def child(checkpoints):
    options = dict(save_seconds=0.002, progress=lambda report: time.sleep(0.003))
    try:
        if CheckpointReader(checkpoints).list():
            result = run.resume(checkpoints, **options)
        else:
            result = run.train(data, config, checkpoints=checkpoints, **options)
        with open(checkpoints + ".done", "w") as file:
            file.write(result.model.digest)
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)


rng = random.Random(int(seed))
for trial in range(int(n_trials)):
    checkpoints = f"{folder}/trial-{trial}"
    kills = 0
    while True:
        pid = os.fork()
        if pid == 0:
            child(checkpoints)
        end = time.monotonic() + rng.uniform(0.02, 0.15 + 0.15 * kills)
        while not (status := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)
                break
            time.sleep(0.001)
        if os.WIFSIGNALED(status[1]):
            kills += 1
            continue
        assert os.WEXITSTATUS(status[1]) == 0, "the child failed"
        break
    print(trial, kills, open(checkpoints + ".done").read(), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: what a dead process has written is there all the same, and most
    of the time would go to waiting for the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dadagrad-", dir=memory) as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("n_trials", "settings"),
    [
        (4, {"step_size": "auto", "update": "dual-averaging", "batch_size": 1, "l1": 1e-4}),
        (3, {"step_size": 0.3, "update": "mirror-descent", "batch_size": 16, "l1": 1e-4}),
        (3, {"step_size": "auto", "update": "ftrl", "batch_size": 16, "class_weight": "balanced"}),
    ],
    ids=["online", "exact", "auto"],
)
def test_killed_at_any_moment_and_resumed_the_bits_are_the_same(n_trials, settings, folder):
    data = write_zarr(make_data((150,) * 4, labels="multiclass"), folder / "data")
    settings = settings | {"passes": 2}
    undisturbed = train(data, TrainConfig(**settings)).model.digest
    arguments = [data, str(folder), "7", str(n_trials), json.dumps(settings)]
    command = [sys.executable, "-c", TRIALS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    outcomes = [line.split() for line in done.stdout.splitlines()]
    assert len(outcomes) == n_trials
    assert [digest for _, _, digest in outcomes] == [undisturbed] * n_trials
    assert sum(int(kills) for _, kills, _ in outcomes) >= n_trials


SLOW_RUN = """
import sys, time
from dadagrad import TrainConfig, train
config = TrainConfig(step_size=0.3, batch_size=4, passes=100)
result = train(sys.argv[1], config, checkpoints=sys.argv[2], save_seconds=0.05,
               progress=lambda report: (print("round", flush=True), time.sleep(0.01)))
print("complete" if result.complete else "stopped", result.report["steps"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_told_to_end_saves_and_ends(number, tmp_path):
    data = write_zarr(make_data(), tmp_path / "data")
    folder = tmp_path / "run"
    command = [sys.executable, "-c", SLOW_RUN, data, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "round\n"
        process.send_signal(number)
        begun = time.monotonic()
        *_, last = process.stdout.read().splitlines()
    assert time.monotonic() - begun < 10
    assert process.returncode == 0
    outcome, steps = last.split()
    assert outcome == "stopped"
    assert CheckpointReader(Path(folder)).load().step == int(steps)
