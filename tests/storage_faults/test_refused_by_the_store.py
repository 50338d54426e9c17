"""A store that knows who asks and says no: which bucket, and what to check."""

import json
import urllib.request
from dataclasses import replace

import boto3
import pytest
from helpers.cluster_processes import Cluster
from helpers.runs import refusal, write_data
from helpers.servers import BUCKET

from dadagrad import StorageError, open_dataset, train
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.writer import CheckpointWriter


def ask_who_is_there(server, after):
    """Have moto check who asks, and whether he may, but for so many requests first."""
    url = f"{server.endpoint}/moto-api/reset-auth"
    kind = {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(url, after.encode(), kind)).close()


@pytest.fixture
def reader(servers):
    """A server that lets this user read and list, and nothing else."""
    server = servers["moto"]
    known = {"aws_access_key_id": server.key, "aws_secret_access_key": server.secret}
    iam = boto3.client("iam", endpoint_url=server.endpoint, region_name="us-east-1", **known)
    iam.create_user(UserName="reader")
    rights = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [rights]})
    iam.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=policy)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    ask_who_is_there(server, "0")
    try:
        yield replace(server, key=key["AccessKeyId"], secret=key["SecretAccessKey"])
    finally:
        ask_who_is_there(server, "inf")
        iam.delete_access_key(UserName="reader", AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName="reader", PolicyName="reads")
        iam.delete_user(UserName="reader")


UNKNOWN = (
    r"permission denied \((InvalidAccessKeyId|SignatureDoesNotMatch)\); check AWS_ACCESS_KEY_ID"
)


def test_a_bucket_that_may_only_be_read(reader, new_program, tmp_path, monkeypatch):
    """A run that could not save its model is refused before it begins."""
    reader.set_environment(monkeypatch)
    assert Storage(f"s3://{BUCKET}/nothing").list() == []
    program = new_program(f"s3://{BUCKET}/refused", environment=reader.environment)
    for url, name in ((program.model, "model.part"), (program.checkpoints, "probe-")):
        message = refusal(program.train())
        assert message.startswith(f"cannot write {name}")
        assert f" in {url}: permission denied (AccessDenied); check AWS_ACCESS_KEY_ID" in message
        assert "that they may read, list, write and delete in this bucket" in message
        assert reader.key not in message
        program.model = str(tmp_path / "model")


def test_credentials_that_nobody_knows(reader, servers, monkeypatch):
    """Each server has words of its own for that."""
    for server in (
        replace(reader, key="AKIAUNKNOWNUNKNOWNUN", secret="unknown-secret"),
        replace(reader, secret="wrong-secret-value"),
        replace(servers["rclone"], key="unknown-key", secret="unknown-secret"),
        replace(servers["rclone"], secret="wrong-secret-value"),
    ):
        server.set_environment(monkeypatch)
        for ask, problem in (
            (lambda: CheckpointWriter(f"s3://{BUCKET}/run"), UNKNOWN),
            (lambda: Storage(f"s3://{BUCKET}/run").list(), UNKNOWN),
            # Whether an object is there is asked without wanting a word of it.
            (lambda: open_dataset(f"s3://{BUCKET}/data"), "permission denied"),
        ):
            with pytest.raises(StorageError, match=problem) as denied:
                ask()
            assert f"s3://{BUCKET}/" in str(denied.value)
            assert not [part for part in (server.key, server.secret) if part in str(denied.value)]


def test_credentials_that_the_workers_of_a_cluster_lack(servers, nursery, monkeypatch):
    """The message names the worker: the user has them."""
    server = servers["rclone"]
    server.set_environment(monkeypatch)
    url = write_data(f"s3://{BUCKET}/of-the-user")
    there = replace(server, secret="wrong-secret-value").environment
    denied = (
        r"permission denied .*AWS_ACCESS_KEY_ID.* \(on the Dask worker at tcp://127\.0\.0\.1:\d+\)"
    )
    with Cluster(nursery, 1, there) as cluster, pytest.raises(StorageError, match=denied):
        train(url, step_size=0.3, client=cluster.address)


def test_no_credentials(monkeypatch):
    """obstore then asks the metadata server of a cloud, in vain."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError, match="no credentials found; set AWS_ACCESS_KEY_ID"):
        Storage("s3://bucket/x").get("key")
