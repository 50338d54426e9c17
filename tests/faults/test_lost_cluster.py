"""A cluster or a coordinator that goes away: said in time, and the run goes on where it was."""

import json
import os
import re
import signal
import threading
import time
from dataclasses import replace

import dask.config
import pytest
from distributed import Client
from helpers.fault_cases import CONFIG, At
from helpers.processes import START_SECONDS, wait_until

from dadagrad import DadagradError, TrainingError, ingest, train
from dadagrad.clusters import monitor
from dadagrad.data.ingest import readers
from dadagrad.reports.dashboard import Dashboard


def kill_scheduler(cluster):
    cluster.scheduler.send(signal.SIGKILL)


def restart_scheduler(cluster):
    """The client connects again by itself; what was under way is gone all the same."""
    cluster.scheduler.kill()
    cluster.start_scheduler()


def freeze_scheduler(cluster):
    """Its connections stay open, and say nothing."""
    cluster.scheduler.send(signal.SIGSTOP)


def kill_workers(cluster):
    for worker in cluster.living:
        worker.kill()


LOSSES = {
    kill_scheduler: ("the connection to the scheduler was lost", 5.0),
    kill_workers: ("the cluster has had no worker for 1 seconds", 20.0),
    restart_scheduler: ("", 20.0),
    freeze_scheduler: ("the scheduler has not answered for 3 seconds", 30.0),
}
"""Faults, what the run says, and the seconds in which it says it."""


each_loss = pytest.mark.parametrize(
    "loss",
    [pytest.param(x, marks=pytest.mark.slow if "_scheduler" in x.__name__ else []) for x in LOSSES],
)


@pytest.fixture
def impatient(monkeypatch):
    settings = dask.config.config["dadagrad"]
    monkeypatch.setitem(settings, "no-workers-timeout", "1s")
    monkeypatch.setitem(settings, "connect-timeout", "3s")
    monkeypatch.setattr(monitor, "WARN_SECONDS", 0.5)


@each_loss
@pytest.mark.usefixtures("impatient")
def test_a_run_ends_in_time_if_its_cluster_does_not_come_back(loss, cluster, data, caplog):
    message, seconds = LOSSES[loss]
    at = At(25, lambda: loss(cluster))
    with pytest.raises(TrainingError) as caught:
        at.train(cluster, data, callbacks=[Dashboard()])  # the scheduler shows the run, too
    assert at.since < seconds
    at.join()
    advice = "when the cluster is back, go on from the last checkpoint with `dadagrad resume`, if"
    assert re.match(f"{message}.*; {advice} the run has some", str(caught.value))
    warning = "the cluster has had no worker; waiting up to 1 seconds for some"
    assert (warning in caplog.text) == (loss is kill_workers)
    if loss is not kill_workers:
        cluster.scheduler.kill()  # the next test gets another


@each_loss
@pytest.mark.usefixtures("impatient")
def test_an_ingest_ends_in_time_if_its_cluster_does_not_come_back(
    loss, cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(readers, "TASK_BYTES", 1 << 14)
    (tmp_path / "a.svm").write_text("1 1:1 2:0.5\n0 2:1\n" * 50_000)  # some 50 tasks
    begun = []

    def lose(*counts):
        if not begun:
            begun.append(time.monotonic())
            loss(cluster)

    with pytest.raises(DadagradError, match="; when the cluster is back, start again"):
        ingest(tmp_path / "a.svm", str(tmp_path / "out"), client=cluster.address, progress=lose)
    assert time.monotonic() - begun[0] < LOSSES[loss][1]
    if loss is not kill_workers:
        cluster.scheduler.kill()


class TestCommandLine:
    """`dadagrad train` as a process of its own."""

    SETTINGS = ("--step-size", "0.3", "--batch-size", "60", "--l1", "1e-4", "--passes", "10")

    @pytest.fixture
    def started(self, nursery, data, tmp_path):
        def start(cluster):
            return nursery.start(
                *("dadagrad", "train", data, *self.SETTINGS, "--scheduler", cluster.address),
                *("--model", str(tmp_path / "model"), "--checkpoints", str(tmp_path / "run")),
                *("--checkpoint-every", "10", "--json"),
                environment={"DASK_DADAGRAD__CONNECT_TIMEOUT": "1s"},
            )

        return start

    def wait_for_checkpoint(self, folder, steps):
        def newest():
            names = [path.name for path in (folder / "run").glob("manifest-*")]
            return max((int(re.findall(r"\d+", name)[0]) for name in names), default=-1)

        wait_until(lambda: newest() >= steps, 60, f"the checkpoint of step {steps}")

    def refusal(self, run):
        """The last line of a run that ends in time, and says nothing else that matters."""
        begun = time.monotonic()
        assert run.wait(60) == 2
        assert time.monotonic() - begun < 10.0
        assert run.out.read_text() == ""
        log = run.log.read_text()
        assert "Traceback" not in log
        return log.splitlines()[-1]

    def test_the_scheduler_is_killed(self, started, nursery, cluster, data, tmp_path):
        run = started(cluster)
        self.wait_for_checkpoint(tmp_path, 10)
        cluster.scheduler.kill()
        assert self.refusal(run) == (
            "dadagrad: error: the connection to the scheduler was lost; when the cluster is "
            "back, go on from the last checkpoint with `dadagrad resume`, if the run has some, or "
            "start again"
        )
        cluster.restart(2)
        options = ("--json", "--scheduler", cluster.address)
        again = nursery.start("dadagrad", "resume", str(tmp_path / "run"), *options)
        assert again.wait(60) == 0, again.text()
        expected = train(data, replace(CONFIG, passes=10)).model.digest
        assert json.loads(again.out.read_text())["digest"] == expected

    def test_the_scheduler_is_killed_before_the_first_step(self, started, cluster, tmp_path):
        """Dask asks for it until ``dadagrad.connect-timeout`` is over, and then fails as it can."""
        run = started(cluster)
        self.wait_for_checkpoint(tmp_path, 0)
        cluster.scheduler.kill()
        assert re.match(
            r"dadagrad: error: the connection to the scheduler .*was lost; when", self.refusal(run)
        )


async def give_up(address, dask_scheduler):
    """Remove a worker, as a scheduler does that has not heard of it for too long."""
    await dask_scheduler.remove_worker(address, stimulus_id="test")


def test_a_result_on_a_worker_that_froze_comes_from_another(cluster):
    """The connection to a frozen process stays open, and nobody answers there."""
    with Client(cluster.address, set_as_default=False, direct_to_workers=True) as client:
        process_of = client.run(os.getpid)
        frozen, other = process_of
        process = cluster.by_address(frozen)
        on_frozen = {"pure": False, "workers": [frozen], "allow_other_workers": True}
        assert client.submit(os.getpid, key="known", **on_frozen).result(10) == process_of[frozen]
        kept = client.submit(os.getpid, key="kept", **on_frozen)
        wait_until(kept.done, START_SECONDS, "the result")
        watching = monitor.ClusterMonitor(client, TrainingError)
        try:
            wait_until(lambda: watching.take_status() is not None, 10, "the monitor to know both")
            process.send(signal.SIGSTOP)
            fetched = []
            waiting = threading.Thread(target=lambda: fetched.append(kept.result(10)))
            waiting.start()
            time.sleep(0.5)  # it is asked for by then
            client.run_on_scheduler(give_up, frozen)
            waiting.join(10)
        finally:
            watching.stop()
            process.kill()
    assert fetched == [process_of[other]]
