"""Runs by the commands of cluster/: as plain processes on this machine, with a real S3 server.

Hosts, ports and folders are replaced by those of the test, nothing else.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess

import numpy as np
import psutil
import pytest
import yaml
from click.testing import CliRunner
from helpers.cluster_cases import CLUSTER, blocks, environment, replaced
from helpers.processes import free_port, running, wait_for_port, wait_until
from helpers.servers import BUCKET, rclone_server

from dadagrad import Model, TrainConfig, train
from dadagrad.cli import dadagrad
from dadagrad.training.schedule import streams

SETTINGS = "--step-size 0.3"


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("reviews") / "reviews.tsv"
    words = rng.integers(0, 200, (400, 12)) ** 2 // 200
    labels = (words.sum(axis=1) > words.sum() / 400).astype(int)
    lines = (
        f"{label}\t{' '.join(f'word{word}' for word in row)}\n"
        for label, row in zip(labels, words, strict=True)
    )
    path.write_text("".join(lines))
    return path


def shell(script, folder, variables):
    """Standard output of a script, which must succeed."""
    options = {"capture_output": True, "text": True, "timeout": 100}
    answer = subprocess.run(["bash", "-ec", script], cwd=folder, env=variables, **options)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def digest_of_threads(url, model):
    """Digest of training on threads of this process, with the same settings."""
    chosen = {name: model.report[name] for name in ("batch_size", "streams")}
    return train(url, step_size=0.3, **chosen).model.digest


@pytest.mark.slow
def test_by_hand_with_tls(reviews, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MIN_ROWS_ALONE", 8_192)  # as in the process that trains
    folder, port = tmp_path / "work", free_port()
    folder.mkdir()
    (folder / "reviews.tsv").write_bytes(reviews.read_bytes())
    (tmp_path / "store").mkdir()
    with rclone_server(tmp_path / "store") as server:
        server.set_environment(monkeypatch)
        keys = {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
        variables = environment(tmp_path, **keys)
        make_certificates, use_tls = blocks("TLS")
        shell(make_certificates, folder, variables)
        (folder / "cluster").mkdir()
        shutil.copy(CLUSTER / "dask.yaml", folder / "cluster")
        variables_of_tls = (CLUSTER / "tls.env.example").read_text()
        places = {"/etc/dadagrad/tls": str(folder / "tls")}
        (folder / "cluster/tls.env.example").write_text(replaced(variables_of_tls, places))
        places = {
            "--port 8786": f"--host 127.0.0.1 --port {port} --dashboard-address 127.0.0.1:0",
            "SCHEDULER:8786": f"127.0.0.1:{port}",
            "s3://bucket": f"s3://{BUCKET}",
            "--or-resume": f"--or-resume {SETTINGS}",
        }
        scheduler, worker, run = (replaced(block, places) for block in blocks("By hand"))
        serving = [
            ["bash", "-c", f"{use_tls} {one.replace('dask ', 'exec dask ', 1)}"]
            for one in (scheduler, worker)
        ]
        logs = [tmp_path / "s.log", tmp_path / "w.log"]
        with (
            running(serving[0], environment=variables, log=logs[0], folder=folder),
            running(serving[1], environment=variables, log=logs[1], folder=folder),
        ):
            wait_for_port(port)
            shell(use_tls + run, folder, variables)
            said = logs[0].read_text()
        assert f"Scheduler at:     tls://127.0.0.1:{port}" in said
        model = Model.load(f"s3://{BUCKET}/model")
        assert model.report["rows"] == 400
        assert model.digest == digest_of_threads(f"s3://{BUCKET}/train.zarr", model)


def processes(service, places, keys):
    """The command and the variables of a service of compose.yaml, as docker compose makes them."""

    def made(text):
        text = re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda found: keys[found[1]], text)
        return replaced(text.replace("$$", "$"), places)

    given = service["command"]
    words = shlex.split(made(given)) if isinstance(given, str) else [made(one) for one in given]
    variables = {name: made(text) for name, text in service["environment"].items()}
    return [*service.get("entrypoint", []), *words], variables


def test_the_services_of_compose(reviews, tmp_path, monkeypatch):
    services = yaml.safe_load((CLUSTER / "compose.yaml").read_text())["services"]
    store, scheduler = free_port(), free_port()
    places = {
        "store:9000": f"127.0.0.1:{store}",
        " :9000": f" 127.0.0.1:{store}",
        "scheduler:8786": f"127.0.0.1:{scheduler}",
        "--port 8786": f"--host 127.0.0.1 --port {scheduler}",
        " :8787": " 127.0.0.1:0",
        "/data": str(tmp_path / "data"),
        "/in/reviews.tsv": str(reviews),
        "--or-resume": f"--or-resume {SETTINGS}",
    }
    keys = {"AWS_ACCESS_KEY_ID": "choose-one", "AWS_SECRET_ACCESS_KEY": "choose-another"}
    ingest = blocks("Docker compose")[0].replace("\\\n", "").splitlines()[2]
    ingest = replaced(ingest[ingest.index("dadagrad ingest") :], places)
    with contextlib.ExitStack() as stack:
        for name in ("store", "scheduler", "worker"):
            command, more = processes(services[name], places, keys)
            variables = environment(tmp_path, **more)
            options = {"log": tmp_path / f"{name}.log", "folder": tmp_path}
            stack.enter_context(running(command, environment=variables, **options))
            if name != "worker":
                wait_for_port(store if name == "store" else scheduler)
        command, more = processes(services["train"], places, keys)
        for name, text in more.items():
            monkeypatch.setenv(name, text)
        for program, *arguments in (shlex.split(ingest), command):
            assert program == "dadagrad"
            result = CliRunner().invoke(dadagrad, arguments)
            assert result.exit_code == 0, result.output
        model = Model.load("s3://dadagrad/model")
        assert model.report["rows"] == 400
        assert model.digest == digest_of_threads("s3://dadagrad/train.zarr", model)
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert keys["AWS_SECRET_ACCESS_KEY"] not in logs


SBATCH = """#!/bin/bash
# Starts what SLURM would start on another machine, and says its number as SLURM does.
cp "$1" "$JOBS/$$.sh"
setsid bash "$JOBS/$$.sh" >"$JOBS/$$.log" 2>&1 </dev/null &
echo "$!" >>"$JOBS/started"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/bash
for job in "$@"; do kill -TERM -- "-$job"; done
"""
SCONTROL = """#!/bin/bash
echo "$@" >>"$JOBS/requeued"
"""


@pytest.mark.slow
def test_a_slurm_job_that_runs_out_of_time_goes_on_when_it_is_started_again(reviews, tmp_path):
    """With what stands for SLURM's commands: they start the jobs as processes of this machine."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    variables = environment(
        tmp_path,
        JOBS=str(jobs),
        SLURM_SUBMIT_DIR=str(CLUSTER.parent),
        SLURM_JOB_ID="77",
        DASK_JOBQUEUE__SLURM__CORES="1",
        DASK_JOBQUEUE__SLURM__PROCESSES="1",
        DASK_JOBQUEUE__SLURM__MEMORY="2GB",
        DASK_JOBQUEUE__SLURM__INTERFACE="lo",
    )
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL), ("scontrol", SCONTROL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    ingest = f"dadagrad ingest {reviews} --format text --out train --partition-nnz 2000"
    shell(ingest, tmp_path, variables)
    script = ["bash", str(CLUSTER / "slurm.sh"), "1", "train", str(tmp_path / "train")]
    script += ["--checkpoints", str(tmp_path / "run"), "--model", str(tmp_path / "model")]
    script += ["--or-resume", "--batch-size", "20", "--passes", "20", *SETTINGS.split()]
    script += ["--checkpoint-every", "50", "--quiet"]
    options = {"environment": variables, "folder": tmp_path, "patience": 20.0}
    with running(script, log=tmp_path / "first.log", **options) as job:
        wait_until(lambda: any(tmp_path.glob("run/manifest-*50*.json")), 60.0, "a checkpoint")
        job.send_signal(signal.SIGUSR1)
        assert job.wait(60) == 143
    assert (jobs / "requeued").read_text() == "requeue 77\n"
    assert not (tmp_path / "model/model.json").exists()
    with running(script, log=tmp_path / "second.log", **options) as job:
        assert job.wait(60) == 0
    assert (jobs / "requeued").read_text() == "requeue 77\n"
    model = Model.load(str(tmp_path / "model"))
    config = TrainConfig(batch_size=20, passes=20, step_size=0.3)
    assert model.digest == train(str(tmp_path / "train"), config).model.digest
    # The jobs of the workers are gone, each of them.
    numbers = [int(line) for line in (jobs / "started").read_text().split()]
    assert len(numbers) >= 2
    psutil.wait_procs([psutil.Process(one) for one in numbers if psutil.pid_exists(one)], 20)
    assert not [one for one in numbers if psutil.pid_exists(one)]
