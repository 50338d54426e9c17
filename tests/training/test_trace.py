"""The trace of a run: every task, as browsers show it."""

import json
from urllib.parse import quote

import pytest
from helpers.processes import local_cluster
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad import StorageError, TrainConfig, train

SIZES = (30, 17, 41)
STREAMS = TrainConfig(step_size=0.3, streams=3, rounds=4)


def tasks_of(path, name):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["name"] == name]


def test_all_rows_are_in_tasks_of_the_threads(tmp_path):
    path = tmp_path / "my trace.json"
    url = f"file://{quote(str(path))}"
    result = train(make_data(SIZES), STREAMS, threads=2, trace=url)
    assert result.model.digest == train(make_data(SIZES), STREAMS).model.digest
    learned = tasks_of(path, "learn")
    assert sum(task["args"]["rows"] for task in learned) == sum(SIZES)
    assert tasks_of(path, "read")
    assert tasks_of(path, "merge")
    assert tasks_of(path, "process_name")[0]["args"] == {"name": "coordinator"}
    for task in learned:
        assert task["ph"] == "X"
        assert 0.0 <= task["ts"] <= task["ts"] + task["dur"] <= 1e6 * result.report["seconds"] + 1e5


def test_tasks_of_workers_are_in_lanes_of_their_own(tmp_path):
    data = write_zarr(make_data(SIZES), tmp_path / "data")
    path = tmp_path / "trace.json"
    with local_cluster(1, processes=False, protocol="tcp") as cluster:
        train(data, STREAMS, client=cluster.scheduler_address, trace=str(path))
    learned = tasks_of(path, "learn")
    assert sum(task["args"]["rows"] for task in learned) == sum(SIZES)
    names = {each["pid"]: each["args"]["name"] for each in tasks_of(path, "process_name")}
    assert all(names[task["pid"]].startswith("tcp://127.0.0.1") for task in learned)
    assert "coordinator" in names.values()


def test_a_trace_that_cannot_be_written_ends_the_run_before_its_first_row(tmp_path):
    (tmp_path / "file").write_text("")
    seen = []
    url = str(tmp_path / "file" / "trace.json")
    with pytest.raises(StorageError, match=r"trace\.json"):
        train(make_data(SIZES), STREAMS, trace=url, callbacks=[seen.append])
    assert not seen
