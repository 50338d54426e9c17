"""Credentials stay where they are: in nothing that is sent, logged or shown."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, At, bits, everything_known, make_dataset
from helpers.servers import BUCKET, moto_server

from dadagrad.errors import DadagradError
from dadagrad.training.run import train

SECRET = "moto-secret-value"
KEY = "moto-access-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with moto_server(tmp_path_factory.mktemp("moto")) as made:
        yield made


@pytest.fixture
def cluster(nursery, server, monkeypatch):
    """Workers that have credentials of their own, and log all there is to log."""
    server.set_environment(monkeypatch)
    names = ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ALLOW_HTTP")
    values = (server.endpoint, server.key, server.secret, "us-east-1", "true")
    environment = {f"AWS_{name}": value for name, value in zip(names, values, strict=True)}
    environment["DASK_DISTRIBUTED__LOGGING__DISTRIBUTED"] = "debug"
    with Cluster(nursery, 1, environment) as made:
        yield made


@pytest.fixture
def sent(monkeypatch) -> list[bytes]:
    """All that is given to Dask to be sent, pickled as Dask does."""
    from distributed import Client

    seen: list[bytes] = []
    submit = Client.submit

    def spy(self, function, *arguments, **options):
        shown = repr((function, arguments, options)).encode()
        plain = [one for one in arguments if not hasattr(one, "key")]
        seen.extend([shown, pickle.dumps((function, plain, options))])
        return submit(self, function, *arguments, **options)

    monkeypatch.setattr(Client, "submit", spy)
    return seen


def clean(text: bytes | str) -> bool:
    plain = text.encode() if isinstance(text, str) else text
    return SECRET.encode() not in plain and KEY.encode() not in plain


def logs_of(cluster: Cluster) -> str:
    return "\n".join(process.text() for process in (cluster.scheduler, *cluster.workers))


def test_they_are_in_no_task_key_graph_or_log(cluster, data, sent, caplog, tmp_path):
    folder = tmp_path / "data"
    url = f"s3://{BUCKET}/train"
    upload(make_dataset(folder, (60, 50, 40)), "train")
    caplog.set_level("DEBUG")
    config = replace(CONFIG, batch_size=20)
    with cluster.client() as client:
        stories: list[bytes] = []
        at = At(10, lambda: stories.append(client.run_on_scheduler(everything_known)), pause=0.01)
        result = train(
            url, config, client=cluster.address, checkpoints=f"s3://{BUCKET}/run", progress=at
        )
        at.join()
    assert bits(result) == bits(train(str(folder), config))
    assert len(sent) > 50
    assert any(b"Job" in one for one in sent)
    assert all(map(clean, sent))
    assert b"dadagrad-compute_slices" in stories[0]
    assert b"part-00001" in stories[0]  # the job, with the partitions
    logs = logs_of(cluster)
    assert "Registered to" in logs
    for text in (stories[0], logs, caplog.text, repr(result), str(result.report)):
        assert clean(text)


@pytest.mark.slow
def test_they_are_in_no_message_about_a_store(cluster, tmp_path, caplog):
    """The message comes from a worker."""
    upload(make_dataset(tmp_path / "data", (60, 50, 40)), "gone")
    client_s3().delete_object(Bucket=BUCKET, Key="gone/part-00001/X/indices/c/0")
    with pytest.raises(DadagradError) as caught:
        train(f"s3://{BUCKET}/gone", CONFIG, client=cluster.address)
    assert "part-00001" in str(caught.value)
    for text in (str(caught.value), repr(caught.value), logs_of(cluster), caplog.text):
        assert clean(text)


def client_s3():
    import os

    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}, proxies={}),
    )


def upload(folder: str, prefix: str) -> None:
    client = client_s3()
    for path in Path(folder).rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder)}"
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
