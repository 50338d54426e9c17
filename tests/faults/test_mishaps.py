"""Whatever happens to the workers of a run, it goes on, with the same bits."""

import contextlib
import os
import random
import signal
import time
from dataclasses import replace
from itertools import product

import pytest
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, STREAMS, At
from helpers.processes import wait_until
from helpers.training_cases import bits

from dadagrad import train
from dadagrad.training.engines.dask import driver
from dadagrad.training.engines.dask.streams.driver import StreamDriver


@contextlib.contextmanager
def stopped(process):
    """Have a process stand still for as long as the block lasts."""
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


def kill_one(cluster):
    """Anywhere in a step, not only at its end."""
    time.sleep(random.uniform(0.0, 0.03))
    random.choice(cluster.living).kill()
    cluster.add_worker()


def kill_all(cluster):
    """Tasks had been asked of those that were; Dask alone would leave them where they are."""
    for worker in cluster.living:
        worker.send(signal.SIGKILL)
    cluster.wait_for_workers(0)
    cluster.add_worker()


def preempt(cluster):
    cluster.add_worker()
    cluster.living[0].send(signal.SIGTERM)


def freeze_for_a_while(cluster):
    with stopped(cluster.living[0]):
        time.sleep(2)


def freeze_until_given_up(cluster):
    """The worker may go on later, perhaps in the same step."""
    with stopped(cluster.living[0]), cluster.client() as client:
        wait_until(lambda: len(client.nthreads()) == 1, 60, "the worker to be given up")


def retire_many(cluster):
    for _ in range(4):
        cluster.add_worker()
        time.sleep(0.3)
        with cluster.client() as client:
            client.retire_workers([next(iter(client.nthreads()))])


def suspend_scheduler(cluster):
    """A machine that slept: time has passed, and nobody has failed to answer."""
    with stopped(cluster.scheduler):
        time.sleep(0.5)


MISHAPS = {
    kill_one: 7,
    kill_all: 7,  # no partition is being read, so that tasks wait for no other
    freeze_for_a_while: 20,
    preempt: 20,
    retire_many: 5,
    suspend_scheduler: 25,
}
"""Faults, and the rounds after which they happen."""

FAST = ((kill_one, CONFIG), (kill_one, STREAMS), (kill_all, CONFIG))


@pytest.mark.parametrize(
    ("mishap", "config"),
    [
        pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow)
        for case in product(MISHAPS, (CONFIG, STREAMS))
    ],
    ids=lambda each: getattr(each, "__name__", "streams" if each is STREAMS else "batches"),
)
def test_the_run_goes_on_with_the_same_bits(mishap, config, cluster, data):
    pause = 0.05 if mishap is retire_many else 0.0
    at = At(MISHAPS[mishap], lambda: mishap(cluster), pause=pause)
    assert bits(at.train(cluster, data, config)) == bits(train(data, config))
    assert at.longest_gap < 15  # no worker goes on asking the dead
    if mishap in (kill_all, freeze_for_a_while):
        assert at.longest_gap > 0.2  # nobody worked meanwhile


@pytest.mark.parametrize("fault", [kill_one, pytest.param(kill_all, marks=pytest.mark.slow)])
def test_workers_die_before_the_last_state_is_gathered(cluster, data, monkeypatch, fault):
    gather, faults = StreamDriver._gather, [fault]

    def kill_and_gather(driver):
        while faults:
            faults.pop()(cluster)
        gather(driver)

    monkeypatch.setattr(StreamDriver, "_gather", kill_and_gather)
    config = replace(STREAMS, rounds=5, passes=1)
    result = train(data, config, client=cluster.address)
    assert bits(result) == bits(train(data, config))
    assert not faults
    begun = time.monotonic()
    train(data, config, client=cluster.address)
    assert time.monotonic() - begun < 15  # no thread of a worker waits for that which died


BEAT_OFTEN = """
import distributed.scheduler
distributed.scheduler.heartbeat_interval = lambda n_workers: 0.2
"""
"""A scheduler hears from its workers so often that it waits for none of them for longer.

(As text: to import this module takes it longer than a worker has to live.)
"""


@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(STREAMS, marks=pytest.mark.slow)], ids=["batches", "streams"]
)
@pytest.mark.parametrize("rounds", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_a_worker_freezes_for_longer_than_its_time_to_live(nursery, data, config, rounds):
    """Its connections stay, and Dask alone would wait for it for five minutes."""
    environment = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"}
    with Cluster(nursery, 2, environment) as cluster:
        with cluster.client() as client:
            client.run_on_scheduler(exec, BEAT_OFTEN)
        at = At(rounds, lambda: freeze_until_given_up(cluster), pause=0.02)
        assert bits(at.train(cluster, data, config)) == bits(train(data, config))


def test_a_worker_is_killed_while_the_workers_get_ready(cluster, data, expected, monkeypatch):
    """Some answers to the call for preparations never come."""

    def prepare(problem, dask_worker):
        if dask_worker.name == doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    doomed = sorted(cluster.names())[0]
    monkeypatch.setattr(driver, "prepare", prepare)
    assert bits(train(data, CONFIG, client=cluster.address)) == expected
    assert doomed not in cluster.names()


@pytest.mark.slow
def test_a_worker_that_freezes_at_the_end_does_not_delay_it(cluster, data):
    """Letting go of the run's data is asked of the workers, and not waited for."""
    cluster.have_workers(3)
    config = replace(CONFIG, partitions_per_batch=1)  # one or two of the three have work

    def stop_at_the_end(report):
        if report.cursor.pass_number == config.passes:
            cluster.living[2].send(signal.SIGSTOP)

    begun = time.monotonic()
    result = train(data, config, client=cluster.address, callbacks=[stop_at_the_end])
    assert time.monotonic() - begun < 60
    assert bits(result) == bits(train(data, config))
