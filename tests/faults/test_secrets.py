"""Credentials stay where they are: in nothing that is sent, logged or shown."""

import pickle
from dataclasses import replace

import cloudpickle
import psutil
import pytest
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, At
from helpers.servers import BUCKET, rclone_server
from helpers.training_cases import bits, make_data
from helpers.zarr_cases import write_zarr

from dadagrad import train
from dadagrad.storage.store import Storage

DATA = make_data((60, 50, 40))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with rclone_server(tmp_path_factory.mktemp("rclone")) as made:
        yield made


@pytest.fixture
def cluster(nursery, server, monkeypatch):
    """Workers that have credentials of their own, and log all there is to log."""
    server.set_environment(monkeypatch)
    environment = dict(server.environment)
    environment["DASK_DISTRIBUTED__LOGGING__DISTRIBUTED"] = "debug"
    with Cluster(nursery, 1, environment) as made:
        yield made


@pytest.fixture
def sent(monkeypatch):
    """All that is given to Dask to be sent, pickled as Dask does."""
    from distributed import Client

    seen = []
    submit = Client.submit

    def spy(self, function, *arguments, **options):
        shown = repr((function, arguments, options)).encode()
        plain = [one for one in arguments if not hasattr(one, "key")]
        seen.extend([shown, pickle.dumps((function, plain, options))])
        return submit(self, function, *arguments, **options)

    monkeypatch.setattr(Client, "submit", spy)
    return seen


def check_clean(server, *texts):
    for text in texts:
        plain = text.encode() if isinstance(text, str) else text
        assert server.secret.encode() not in plain
        assert server.key.encode() not in plain


def test_credentials_are_in_no_task_key_graph_or_log(cluster, server, sent, caplog, tmp_path):
    folder = tmp_path / "data"
    url = f"s3://{BUCKET}/train"
    upload(write_zarr(DATA, folder), "train")
    caplog.set_level("DEBUG")
    config = replace(CONFIG, batch_size=20)
    with cluster.client() as client:
        stories = []
        at = At(10, lambda: stories.append(client.run_on_scheduler(everything_known)), pause=0.01)
        result = at.train(cluster, url, config, checkpoints=f"s3://{BUCKET}/run")
    assert bits(result) == bits(train(str(folder), config))
    assert len(sent) > 50
    assert any(b"Job" in one for one in sent)
    assert b"dadagrad-compute_slices" in stories[0]
    assert b"part-00001" in stories[0]  # the job, with the partitions
    logs = "\n".join(process.text() for process in (cluster.scheduler, *cluster.workers))
    assert "Registered to" in logs
    check_clean(server, *sent, stories[0], logs, caplog.text, repr(result), str(result.report))


def upload(folder, prefix):
    source, target = Storage(folder), Storage(f"s3://{BUCKET}/{prefix}")
    for key in source.list():
        target.put(key, source.get(key))


def everything_known(dask_scheduler):
    """Whatever a scheduler has of tasks, what they are given, messages and events."""
    tasks = {key: task.run_spec for key, task in dask_scheduler.tasks.items()}
    told = (tasks, dask_scheduler.get_events(), list(dask_scheduler.transition_log))
    return b"".join([repr(told).encode(), *(cloudpickle.dumps(given) for given in tasks.values())])


def test_credentials_are_in_no_list_of_processes(server, monkeypatch, tmp_path):
    """Workers that a run starts get them with its environment."""
    server.set_environment(monkeypatch)
    upload(write_zarr(DATA, tmp_path / "data"), "listed")
    lines = []

    def look(event):
        for process in psutil.Process().children(recursive=True):
            line = " ".join(process.cmdline())
            lines.extend([line] if "rclone" not in line else [])

    train(f"s3://{BUCKET}/listed", CONFIG, workers=1, callbacks=[look])
    assert any("spawn_main" in line for line in lines)
    check_clean(server, *lines)
