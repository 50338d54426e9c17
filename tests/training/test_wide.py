"""Models wider than a worker's memory, and the partitions that a worker keeps."""

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from helpers.cluster_processes import Cluster
from helpers.training_cases import bits, make_data
from helpers.wide_cases import kept, peak_memory, set_cache, write_wide

import dadagrad
from dadagrad import TrainConfig, train
from dadagrad.training.memory.workers import cache_bytes
from dadagrad.training.state import compiled as states

BITS = 25
LIMIT = 400 << 20
CONFIG = TrainConfig(step_size=0.3, batch_size=500)


@pytest.fixture(scope="module")
def cluster(nursery):
    """The address of a scheduler, and a worker with little memory that a nanny watches."""
    with Cluster(nursery) as made:
        made.add_worker("--memory-limit", str(LIMIT), nanny=True)
        yield made.address


def ask(address, function, *arguments):
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        (answer,) = client.run(function, *arguments).values()
    return answer


def test_a_worker_trains_a_model_that_is_wider_than_its_memory(cluster, tmp_path):
    wide = write_wide(tmp_path / "data", BITS, 5, 3000)
    first = ask(cluster, os.getpid)
    predicted = dadagrad.dry_run(wide, CONFIG, client=cluster)
    assert predicted.coordinator["state"] > LIMIT - predicted.worker["libraries"]
    assert predicted.worker["total"] < predicted.worker["limit"] == LIMIT
    on_cluster = train(wide, CONFIG, client=cluster)
    digest, report = on_cluster.model.digest, on_cluster.report
    del on_cluster  # there is memory for one of them
    assert digest == train(wide, CONFIG).model.digest
    assert ask(cluster, os.getpid) == first, "it was killed and another started"
    assert ask(cluster, peak_memory) < LIMIT
    moved = predicted.bytes_per_step
    assert moved["down"] + moved["up"] == pytest.approx(report["bytes_per_step"], rel=0.3)


@pytest.mark.parametrize(
    ("update", "labels"),
    [("dual-averaging", "four labels"), ("mirror-descent", "multiclass"), ("pa", "binary")],
)
def test_weights_are_made_a_few_features_at_a_time(update, labels, monkeypatch):
    data = make_data(labels=labels)
    config = TrainConfig(update=update, step_size=0.3, l1=0.0 if update == "pa" else 1e-2)
    end = train(data, config).coordinator
    whole = end.state.weights(end.problem)
    for chunk in (1, 7, 1000):
        monkeypatch.setattr(states, "CHUNK_WEIGHTS", chunk)
        ids, weights = end.state.nonzero_weights(end.problem)
        np.testing.assert_array_equal(ids, np.flatnonzero(whole.any(axis=1)))
        np.testing.assert_array_equal(weights, whole[ids])
        assert 0 < len(ids) < len(whole)
        assert (ids.dtype, weights.dtype) == (np.int64, np.float32)


def test_making_a_model_takes_little_memory_beside_it():
    data = make_data()
    data.schema = replace(data.schema, n_features=1 << 22)
    end = train(data, TrainConfig(step_size=0.3)).coordinator
    tracemalloc.start()
    try:
        end.state.nonzero_weights(end.problem)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 << 20  # all weights are 16 MiB


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    return write_wide(tmp_path_factory.mktemp("narrow") / "data", 12, 6, 200, 20)


def test_partitions_dropped_from_the_cache_are_read_again_to_the_same_bits(cluster, narrow):
    """Two partitions stay of the four that are open."""
    n_kept = 2
    config = TrainConfig(step_size=0.3, batch_size=40, passes=2)
    data = dadagrad.open_dataset(narrow)
    most_bytes = n_kept * max(data.read(number).nbytes for number in range(len(data.partitions)))
    seen = []
    ask(cluster, set_cache, most_bytes)

    def look(event):
        if event.cursor.round % 10 == 5:
            seen.append(ask(cluster, kept))

    result = train(narrow, config, client=cluster, callbacks=[look])
    assert bits(result) == bits(train(narrow, config))
    assert max(n_bytes for _, n_bytes in seen) <= most_bytes
    assert max(found for found, _ in seen) == n_kept


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 40, "partitions_per_batch": 1}, {"batch_size": 1, "streams": 2, "rounds": 8}],
    ids=str,
)
def test_a_last_pass_keeps_what_is_open_and_others_all_there_is(cluster, narrow, settings):
    most = {0: [], 1: []}
    ask(cluster, set_cache, 1 << 30)

    def look(event):
        if event.cursor.pass_number in most and ("streams" in settings or event.steps % 6 == 5):
            most[event.cursor.pass_number].append(ask(cluster, kept)[0])

    train(
        narrow, TrainConfig(step_size=0.3, passes=2, **settings), client=cluster, callbacks=[look]
    )
    assert most[0] == sorted(most[0])
    assert most[0][-1] == 6
    assert most[1] == sorted(most[1], reverse=True)
    assert most[1][-1] < 6


def test_the_cache_takes_a_share_of_the_free_memory_of_a_worker():
    assert cache_bytes(1000, 200) == 320
    assert cache_bytes(100, 200) == 0
    assert cache_bytes(None, 0) > 1 << 20
