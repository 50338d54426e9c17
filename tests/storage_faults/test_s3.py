"""Models and checkpoints on real S3 servers."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest
from helpers.servers import BUCKET, Server

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import StorageError
from dadagrad.model.model import Model
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.writer import CheckpointReader, CheckpointWriter, Snapshot

HONOURS = {"rclone": False, "moto": True}


@pytest.fixture(params=["rclone", "moto"])
def server(
    request: pytest.FixtureRequest, servers: dict[str, Server], monkeypatch: pytest.MonkeyPatch
) -> Server:
    servers[request.param].set_environment(monkeypatch)
    return servers[request.param]


@pytest.fixture
def name(server: Server, servers: dict[str, Server]) -> str:
    return next(name for name, one in servers.items() if one is server)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name.translate(str.maketrans('[]', '--'))}"


def snapshot(step: int) -> Snapshot:
    rng = np.random.default_rng(step)
    arrays = {"sums": rng.normal(size=(1000, 2)).astype(np.float32), "t": np.array(float(step))}
    return Snapshot(step, arrays, {"cursor": [0, step], "best": float("inf")})


def assert_same(left: Snapshot, right: Snapshot) -> None:
    assert left.step == right.step
    assert left.meta == right.meta
    assert left.arrays.keys() == right.arrays.keys()
    for key in left.arrays:
        assert left.arrays[key].tobytes() == right.arrays[key].tobytes()


def all_objects(server: Server, prefix: str) -> dict[str, bytes]:
    client = server.client
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]  # type: ignore[attr-defined]
    return {
        entry["Key"]: client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()  # type: ignore[attr-defined]
        for entry in listed
    }


def test_probe_tells_whether_create_only_is_honoured(
    server: Server, name: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = CheckpointWriter(url)
    assert writer.create_only is HONOURS[name]
    assert ("does not honour create-only" in caplog.text) is not HONOURS[name]


def test_checkpoints_round_trip_and_old_ones_go(server: Server, url: str) -> None:
    with CheckpointWriter(url, keep=2) as writer:
        for step in range(1, 5):
            writer.save(snapshot(step))
    assert_same(CheckpointReader(url).load(), snapshot(4))
    assert_same(CheckpointReader(url).load(3), snapshot(3))
    infos = CheckpointReader(url).list(verify=True)
    assert [(info.step, info.valid) for info in infos] == [(4, True), (3, True)]
    keys = all_objects(server, url.split("/", 3)[3])
    assert len([key for key in keys if key.endswith(".zst")]) == 4
    assert not any("probe-" in key for key in keys)


def test_a_damaged_part_makes_the_older_one_win(
    server: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
    prefix = url.split("/", 3)[3]
    key = next(key for key in all_objects(server, f"{prefix}/{2:012d}-"))
    server.client.put_object(Bucket=BUCKET, Key=key, Body=b"torn")  # type: ignore[attr-defined]
    assert_same(CheckpointReader(url).load(), snapshot(1))
    assert "skipped the damaged checkpoint manifest-000000000002" in caplog.text


def test_the_older_of_two_writers_is_fenced(server: Server, url: str) -> None:
    older = CheckpointWriter(url)
    older.save(snapshot(1))
    newer = CheckpointWriter(url)
    with pytest.raises(StorageError, match="another run took over"):
        older.save(snapshot(2))
    newer.save(snapshot(3))
    with pytest.raises(StorageError, match="another run took over"):
        older.save(snapshot(9))
    assert_same(CheckpointReader(url).load(), snapshot(3))


def test_model_round_trip(server: Server, url: str) -> None:
    model = Model(
        n_features=50,
        ids=np.array([3, 40], np.int64),
        weights=np.array([[0.5], [-2.0]], np.float32),
        intercept=np.array([0.25]),
        loss="logistic",
        task="binary",
        label_columns=(LabelColumn("label", (0.0, 1.0), (4, 6)),),
    )
    model.save(url)
    first = set(all_objects(server, url.split("/", 3)[3]))
    model.save(url)
    second = set(all_objects(server, url.split("/", 3)[3]))
    assert len(first) == len(second)
    assert len(first & second) == 1  # model.json
    assert Model.load(url).digest == model.digest


def test_credentials_stay_out_of_everything(
    server: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with CheckpointWriter(url) as writer:
        writer.submit(snapshot(1))
    reader = CheckpointReader(url)
    with pytest.raises(StorageError) as absent:
        CheckpointReader(f"s3://no-such-bucket-{BUCKET}/x").load()
    logged = [record.getMessage() for record in caplog.records]
    texts = [repr(writer), repr(reader), repr(reader.list()), str(absent.value), *logged]
    # What is sent to workers.
    storage = Storage(url)
    storage.list()
    texts += [pickle.dumps(storage).decode("latin-1"), repr(vars(storage)), repr(storage)]
    texts += [data.decode("latin-1") for data in all_objects(server, url.split("/", 3)[3]).values()]
    assert any("manifest" in text for text in texts)
    assert not [text for text in texts if server.secret in text or server.key in text]
