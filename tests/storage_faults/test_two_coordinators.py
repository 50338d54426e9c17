"""Several coordinators on one folder: one wins, whatever the store, and no other does damage."""

import os
import signal
import time

import pytest
from helpers.faulty_proxy import Proxy, once_at
from helpers.runs import SETTINGS, digest, refusal, saved, undisturbed

from dadagrad import Model, TrainConfig, train
from dadagrad.training.checkpoints.lease import TakenOver
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter

AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


def environment():
    """Variables with which processes reach the store of this test."""
    return {name: os.environ[name] for name in AWS if name in os.environ}


def test_of_8_that_begin_at_once_one_goes_on(folder, new_program):
    program = new_program(folder, environment=environment())
    processes = [program.train() for _ in range(8)]
    (winner,) = (process for process in processes if process.wait(60) == 0)
    expected = undisturbed(program.passes)
    assert digest(winner) == expected
    for process in set(processes) - {winner}:
        assert refusal(process).startswith(
            (
                f"another run has just begun at {program.checkpoints}: this one stops without",
                f"{program.checkpoints} already holds the checkpoints of a run; go on with it by",
            )
        )
    assert CheckpointReader(program.checkpoints).load().step == 60
    assert Model.load(program.model).digest == expected


@pytest.mark.parametrize("folder", ["files"], indirect=True)
def test_one_that_was_paused_does_no_damage(folder, new_program):
    program = new_program(folder, passes=20, every=20, environment=environment())
    with saved(program, 20) as paused:
        paused.send(signal.SIGSTOP)
        program.assert_undisturbed(program.resume())
        before = CheckpointReader(program.checkpoints).list(verify=True)
        paused.send(signal.SIGCONT)
        message = refusal(paused)
    assert f"another run took over the checkpoints at {program.checkpoints} (its ep" in message
    assert "this run stops without writing; give each run a folder of its own" in message
    after = CheckpointReader(program.checkpoints).list(verify=True)
    assert [info.key for info in after if info.epoch == 2] == [info.key for info in before][:3]
    # Paused while it saved, it may list one of its own whose parts have been removed meanwhile.
    assert all(info.valid for info in after if info.epoch == 2)
    assert CheckpointReader(program.checkpoints).load().step == 600
    assert Model.load(program.model).digest == undisturbed(program.passes)


def test_a_run_stops_as_soon_as_it_knows(local_data, tmp_path):
    """A run learns that a checkpoint was not written long before the next one."""
    url, rounds = str(tmp_path / "run"), 0

    def progress(event):
        nonlocal rounds
        rounds += 1
        time.sleep(0.002)
        if rounds == 10:
            CheckpointWriter(url)

    config = TrainConfig(**SETTINGS, passes=40)
    with pytest.raises(TakenOver):
        train(local_data, config, checkpoints=url, save_every=300, callbacks=[progress])
    assert 300 <= rounds < 550


@pytest.mark.parametrize(("stage", "store"), [("manifest", "rclone"), ("removal", "moto")])
def test_requests_that_arrive_late_do_no_damage(
    stage, store, servers, url, new_program, monkeypatch
):
    """A request of the first one is on its way for so long that the second is done meanwhile."""
    servers[store].set_environment(monkeypatch)
    with Proxy(servers[store]) as proxy:
        proxy.act = once_at(proxy, stage, "hold")
        first = new_program(url, passes=4, keep=1, environment=proxy.server.environment)
        second = new_program(url, passes=4, environment=servers[store].environment)
        late = first.train()
        assert proxy.held.wait(20), late.text()
        second.assert_undisturbed(second.resume())
        proxy.release()
        assert "another run took over the checkpoints at" in refusal(late)
    newest, *others = CheckpointReader(first.checkpoints).list(verify=True)
    assert (newest.epoch, newest.step, newest.valid) == (2, 120, True)
    assert {info.epoch for info in others} <= {1}
    assert CheckpointReader(first.checkpoints).load().step == 120
    assert Model.load(first.model).digest == undisturbed(first.passes)
