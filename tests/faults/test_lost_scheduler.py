"""A scheduler or a coordinator that goes away: said at once, and the run goes on where it was."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import Any

import dask.config
import pytest
from helpers.cluster_processes import Cluster, Nursery, Process
from helpers.fault_cases import CONFIG, At, bits
from helpers.processes import wait_until

from dadagrad.errors import InputError, TrainingError
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.run import resume, train

SETTINGS = ["--step-size", "0.3", "--batch-size", "60", "--l1", "1e-4", "--passes", "20"]


def test_a_scheduler_is_killed_and_another_takes_its_place(cluster, data, tmp_path):
    folder = str(tmp_path / "run")
    at = At(25, lambda: cluster.scheduler.send(signal.SIGKILL))
    with pytest.raises(TrainingError) as caught:
        train(data, CONFIG, client=cluster.address, checkpoints=folder, save_every=5, progress=at)
    assert at.begun is not None
    assert time.monotonic() - at.begun < 5.0
    assert str(caught.value) == (
        "the connection to the scheduler was lost; when the cluster is back, go on from the last "
        "checkpoint with `dadagrad resume`"
    )
    assert 0 < CheckpointReader(folder).load().step <= 25
    # Nothing runs there: that is said, and changes nothing.
    with (
        dask.config.set({"dadagrad.connect-timeout": "1s"}),
        pytest.raises(InputError, match="no Dask scheduler answers at"),
    ):
        resume(folder, client=cluster.address)
    cluster.restart(2)
    assert bits(resume(folder, client=cluster.address)) == bits(train(data, CONFIG))


@pytest.mark.slow
def test_a_scheduler_is_restarted_at_once(cluster, data):
    """The client connects again by itself; what was under way is gone all the same."""

    def restart() -> None:
        cluster.scheduler.kill()
        cluster.start_scheduler()

    at = At(25, restart)
    with pytest.raises(TrainingError, match="go on from the last checkpoint with `dadagrad res"):
        train(data, CONFIG, client=cluster.address, progress=at)
    at.join()
    assert at.begun is not None
    assert time.monotonic() - at.begun < 20.0
    cluster.scheduler.kill()


@pytest.mark.slow
def test_a_scheduler_freezes(nursery, data, monkeypatch):
    """Its connections stay open, and say nothing."""
    monkeypatch.setitem(dask.config.config["dadagrad"], "connect-timeout", "6s")
    with Cluster(nursery, 1) as cluster:
        at = At(25, lambda: cluster.scheduler.send(signal.SIGSTOP))
        with pytest.raises(TrainingError, match="the scheduler has not answered for 6 seconds"):
            train(data, CONFIG, client=cluster.address, progress=at)
        assert at.begun is not None
        assert time.monotonic() - at.begun < 40.0


@pytest.mark.slow
def test_a_scheduler_that_slept_with_the_coordinator_is_not_given_up(cluster, data, monkeypatch):
    """A machine that slept: time has passed, and nobody has failed to answer."""
    from dadagrad.training.engines.dask import monitor as dask_watch

    monkeypatch.setitem(dask.config.config["dadagrad"], "connect-timeout", "1s")
    monkeypatch.setattr(dask_watch, "LOOK_SECONDS", 0.1)

    def sleep() -> None:
        cluster.scheduler.send(signal.SIGSTOP)
        time.sleep(0.5)
        cluster.scheduler.send(signal.SIGCONT)

    at = At(25, sleep)
    assert bits(train(data, CONFIG, client=cluster.address, progress=at)) == bits(
        train(data, CONFIG)
    )
    at.join()


@pytest.fixture(scope="module")
def undisturbed(nursery, data, tmp_path_factory) -> str:
    """The digest of the model of the run that nobody disturbed, on threads."""
    folder = tmp_path_factory.mktemp("undisturbed")
    options = ("--json", "--model", str(folder / "model"))
    done = nursery.start("dadagrad", "train", data, *SETTINGS, *options)
    assert done.wait(60) == 0, done.text()
    return json.loads(done.out.read_text())["digest"]


class TestCommandLine:
    """`dadagrad train` as a process of its own."""

    def train(
        self, nursery: Nursery, cluster: Cluster, data: str, folder, **environment: str
    ) -> Process:
        return nursery.start(
            *("dadagrad", "train", data, *SETTINGS, "--json", "--model", str(folder / "model")),
            *("--checkpoints", str(folder / "run"), "--checkpoint-every", "10"),
            *("--scheduler", cluster.address),
            environment=environment,
        )

    def resume(self, nursery: Nursery, cluster: Cluster, folder) -> str:
        options = ("--json", "--scheduler", cluster.address)
        again = nursery.start("dadagrad", "resume", str(folder / "run"), *options)
        assert again.wait(60) == 0, again.text()
        return json.loads(again.out.read_text())["digest"]

    def reached(self, folder, steps: int) -> None:
        """Wait until there is a checkpoint of so many steps."""

        def newest() -> int:
            names = [path.name for path in (folder / "run").glob("manifest-*")]
            return max((int(re.findall(r"\d+", name)[0]) for name in names), default=0)

        wait_until(lambda: newest() >= steps, 60, f"the checkpoint of step {steps}")

    @pytest.mark.slow
    def test_the_coordinator_is_killed(self, nursery, cluster, data, tmp_path, undisturbed):
        run = self.train(nursery, cluster, data, tmp_path)
        self.reached(tmp_path, 10)
        run.kill()
        assert run.out.read_text() == ""  # it was not over
        assert self.resume(nursery, cluster, tmp_path) == undisturbed

    def test_the_scheduler_is_killed(self, nursery, cluster, data, tmp_path, undisturbed):
        run = self.train(nursery, cluster, data, tmp_path)
        self.reached(tmp_path, 10)
        cluster.scheduler.kill()
        begun = time.monotonic()
        assert run.wait(60) == 2
        assert time.monotonic() - begun < 10.0
        last = run.log.read_text().splitlines()[-1]
        assert last.startswith("dadagrad: error: the connection to the scheduler was lost; when")
        assert run.out.read_text() == ""
        assert "Traceback" not in run.log.read_text()
        cluster.restart(2)
        assert self.resume(nursery, cluster, tmp_path) == undisturbed

    def test_the_scheduler_is_killed_before_the_first_step(self, nursery, cluster, data, tmp_path):
        """Dask asks for it until ``dadagrad.connect-timeout`` is over, and then fails as it can."""
        run = self.train(nursery, cluster, data, tmp_path, DASK_DADAGRAD__CONNECT_TIMEOUT="2s")
        wait_until(lambda: any((tmp_path / "run").glob("manifest-*")), 60, "the first checkpoint")
        cluster.scheduler.kill()
        assert run.wait(60) == 2
        last = run.log.read_text().splitlines()[-1]
        assert re.match(r"dadagrad: error: the connection to the scheduler .*was lost; when", last)
        assert "Traceback" not in run.log.read_text()

    def test_the_scheduler_is_killed_while_there_is_no_worker(self, nursery, data, tmp_path):
        with Cluster(nursery) as cluster:
            run = self.train(nursery, cluster, data, tmp_path, DASK_DADAGRAD__CONNECT_TIMEOUT="2s")
            with cluster.client() as client:
                wait_until(lambda: len(known_clients(client)) == 2, 60, "the run to connect")
            time.sleep(0.5)  # mostly it waits by then; at any other moment it says a line as well
            cluster.scheduler.kill()
            assert run.wait(60) == 2
        (line,) = run.log.read_text().splitlines()
        assert line.startswith("dadagrad: error: ")


def known_clients(client: Any) -> list[str]:
    """The clients that the scheduler of a client knows, itself among them."""
    return client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients))
