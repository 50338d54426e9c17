"""Workers that are killed, stopped or called away: the run goes on, with the same bits."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace

import psutil
import pytest
from helpers.cluster_processes import Cluster, Nursery, Process
from helpers.fault_cases import CONFIG, At, KillingDataset, bits, train_with
from helpers.processes import wait_until

from dadagrad.errors import TrainingError
from dadagrad.training.run import train


@pytest.fixture(scope="module")
def expected(data) -> tuple[object, ...]:
    """The bits of the run that nobody disturbed, on threads."""
    return bits(train(data, CONFIG))


def kill_one(cluster: Cluster, seed: int) -> At:
    """Have one of the workers killed at a random moment, and another started."""
    rng = random.Random(seed)

    def kill() -> None:
        time.sleep(rng.uniform(0.0, 0.03))  # anywhere in a step, not only at its end
        rng.choice(cluster.living).kill()
        cluster.add_worker()

    return At(rng.randrange(1, 50), kill)


@pytest.mark.parametrize("seed", range(2))
def test_a_worker_is_killed_at_a_random_moment(cluster, data, expected, seed):
    assert bits(train_with(kill_one(cluster, seed), cluster, data)) == expected


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(2, 52, 10))
def test_a_worker_is_killed_at_any_of_50_moments(cluster, data, expected, first):
    for seed in range(first, first + 10):
        cluster.have_workers(2)
        assert bits(train_with(kill_one(cluster, seed), cluster, data)) == expected, seed


def test_all_workers_are_killed_and_others_join(cluster, data, expected):
    """Tasks had been asked of those that were; Dask alone would leave them where they are."""

    def kill_all() -> None:
        for worker in cluster.living:
            worker.send(signal.SIGKILL)
        cluster.wait_for_workers(0)
        cluster.add_worker()

    at = At(30, kill_all)
    assert bits(train_with(at, cluster, data)) == expected
    longest = max(at.gaps_above(0.0))
    assert 0.2 < longest < 30.0  # the workers were really away


def test_a_worker_is_killed_while_the_workers_get_ready(cluster, data, expected, monkeypatch):
    """Some answers to the call for preparations never come."""
    from dadagrad.training.engines.dask import driver as dask_driver

    def prepare(problem, dask_worker):
        import os
        import signal

        if dask_worker.name == doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    doomed = sorted(cluster.names())[0]
    monkeypatch.setattr(dask_driver, "prepare", prepare)
    result = train(data, CONFIG, client=cluster.address)
    assert bits(result) == expected
    assert doomed not in cluster.names()


@pytest.mark.slow
def test_results_that_have_arrived_are_not_computed_again(cluster, data, monkeypatch):
    """Those that were left on a worker are let go when it has gone."""
    from dadagrad.training.engines.dask import driver as dask_driver

    monkeypatch.setattr(dask_driver, "MAX_SPENT_TASKS", 10_000)
    doomed, other = cluster.names().values()
    before: list[int] = []
    with cluster.client() as client:
        client.run(count_work, workers=[other])

        def kill() -> None:
            assert len(client.has_what([doomed])[doomed]) > 40
            before.append(client.run(n_worked, workers=[other])[other])
            cluster.by_address(doomed).kill()

        at = At(52, kill, pause=0.01)
        result = train(data, CONFIG, client=cluster.address, progress=at)
        at.join()
        after = client.run(n_worked, workers=[other])[other] - before[0]
    # Two tasks in each step that was left, and some that were begun before the loss was noticed.
    left = result.report["steps"] - 52
    assert left <= 10
    assert after < 2 * left + 25
    cluster.by_address(other).kill()  # it counts


def count_work() -> None:
    """Have this worker count the tasks that it works on slices in."""
    from dadagrad.training.engines.dask import tasks as dask_tasks

    work = dask_tasks.compute_slices

    def counting(*arguments):
        counting.calls += 1
        return work(*arguments)

    counting.calls = 0
    dask_tasks.compute_slices = counting


def n_worked() -> int:
    from dadagrad.training.engines.dask import tasks as dask_tasks

    return dask_tasks.compute_slices.calls


def nanny_and_worker(cluster: Cluster) -> tuple[Process, psutil.Process]:
    """A third worker of `cluster`, and the nanny that looks after it."""
    nanny = cluster.add_worker(nanny=True)
    cluster.wait_for_workers(3)
    (worker,) = (child for child in nanny.children() if "spawn_main" in " ".join(child.cmdline()))
    return nanny, worker


@pytest.mark.slow
def test_a_nanny_is_killed(cluster, data, expected):
    """Its worker does not outlive it."""
    nanny, worker = nanny_and_worker(cluster)
    at = At(20, nanny.kill)
    assert bits(train_with(at, cluster, data)) == expected
    wait_until(lambda: not worker.is_running(), 30, "the worker to follow its nanny")


@pytest.mark.slow
def test_the_worker_of_a_nanny_is_killed_and_starts_again(cluster, data, expected):
    _, worker = nanny_and_worker(cluster)
    at = At(20, worker.kill)
    assert bits(train_with(at, cluster, data)) == expected
    cluster.wait_for_workers(3)


@pytest.mark.slow
def test_a_worker_is_preempted(cluster, data, expected):
    def preempt() -> None:
        cluster.add_worker()
        cluster.living[0].send(signal.SIGTERM)

    assert bits(train_with(At(20, preempt), cluster, data)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 30])
def test_a_worker_freezes_for_longer_than_its_time_to_live(nursery, data, expected, rounds):
    """It is given up; what it does when it goes on, perhaps in the same step, does not matter."""
    environment = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "1s"}
    with Cluster(nursery, 2, environment) as cluster:
        frozen = cluster.living[0]

        def freeze() -> None:
            frozen.send(signal.SIGSTOP)
            with cluster.client() as client:
                wait_until(lambda: len(client.nthreads()) == 1, 60, "the worker to be given up")
            frozen.send(signal.SIGCONT)

        at = At(rounds, freeze, pause=0.02)
        assert bits(train_with(at, cluster, data)) == expected


@pytest.mark.slow
def test_a_worker_freezes_for_a_while(cluster, data, expected):
    def freeze() -> None:
        cluster.living[0].send(signal.SIGSTOP)
        time.sleep(3)
        cluster.living[0].send(signal.SIGCONT)

    at = At(20, freeze)
    assert bits(train_with(at, cluster, data)) == expected
    assert at.gaps_above(1.0)


@pytest.mark.slow
def test_a_worker_that_freezes_at_the_end_does_not_delay_it(cluster, data, expected):
    """Letting go of the run's data is asked of the workers, and not waited for."""
    cluster.add_worker()
    cluster.wait_for_workers(3)
    config = replace(CONFIG, partitions_per_batch=1)  # one or two of the three have work
    stopped = cluster.living[2]
    with cluster.client() as client:
        client.wait_for_workers(3)
    seen = []

    def stop_at_the_end(report) -> None:
        seen.append(report)
        if report.cursor.pass_number == config.passes:
            stopped.send(signal.SIGSTOP)

    begun = time.monotonic()
    result = train(data, config, client=cluster.address, progress=stop_at_the_end)
    assert time.monotonic() - begun < 60
    assert bits(result) == bits(train(data, config))
    stopped.send(signal.SIGCONT)


def test_a_run_ends_in_time_if_no_worker_comes_back(cluster, data, monkeypatch, caplog):
    import dask.config

    from dadagrad.training.engines.dask import monitor as dask_watch

    monkeypatch.setitem(dask.config.config["dadagrad"], "no-workers-timeout", "3s")
    monkeypatch.setattr(dask_watch, "WARN_SECONDS", 1.0)

    def kill_all() -> None:
        for worker in cluster.living:
            worker.kill()

    at = At(10, kill_all)
    with pytest.raises(TrainingError) as caught:
        train(data, CONFIG, client=cluster.address, progress=at)
    at.join()
    assert str(caught.value) == (
        "the cluster has had no worker for 3 seconds; when the cluster is back, go on from the "
        "last checkpoint with `dadagrad resume`"
    )
    assert "the cluster has had no worker; waiting up to 3 seconds for some" in caplog.text


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_given_up(nursery: Nursery, data, tmp_path):
    environment = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with Cluster(nursery, 1, environment) as cluster:
        killing = KillingDataset(data, partition=3)
        with pytest.raises(TrainingError, match="workers of the cluster keep dying at the same"):
            train(killing, CONFIG, client=cluster.address)
