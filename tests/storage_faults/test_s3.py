"""Models and checkpoints on real S3 servers."""

import pytest
from helpers.checkpoint_stores import same, snapshot

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
