"""Models and checkpoints on real S3 servers."""

import logging
import pickle

import pytest
from helpers.checkpoint_stores import same, snapshot
from helpers.servers import BUCKET

from dadagrad.errors import StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter


@pytest.fixture(params=["rclone", "moto"])
def server(request, servers, monkeypatch):
    servers[request.param].set_environment(monkeypatch)
    return servers[request.param]


def test_checkpoints_round_trip_and_old_ones_go(server, servers, url, caplog):
    honours = server is servers["moto"]
    with CheckpointWriter(url, keep=2) as writer:
        assert writer.create_only is honours
        assert ("does not honour create-only" in caplog.text) is not honours
        for step in range(1, 5):
            writer.save(snapshot(step))
    assert same(CheckpointReader(url).load(), snapshot(4))
    assert same(CheckpointReader(url).load(3), snapshot(3))
    infos = CheckpointReader(url).list(verify=True)
    assert [(info.step, info.valid) for info in infos] == [(4, True), (3, True)]
    keys = Storage(url).list()
    assert len([key for key in keys if key.endswith(".zst")]) == 2 * len(snapshot(1).arrays)
    assert not any("probe-" in key for key in keys)
    # A writer that comes later fences this one off.
    newer = CheckpointWriter(url)
    newer.save(snapshot(3))
    with pytest.raises(StorageError, match="another run took over"):
        writer.save(snapshot(9))
    assert same(CheckpointReader(url).load(), snapshot(3))


def test_credentials_stay_out_of_everything(server, url, caplog):
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
    texts += [pickle.dumps(storage).decode("latin-1"), repr(vars(storage)), repr(storage)]
    texts += [storage.get(key).decode("latin-1") for key in storage.list()]
    assert any("manifest" in text for text in texts)
    assert not [text for text in texts if server.secret in text or server.key in text]
