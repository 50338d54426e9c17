"""Runs in trackers of experiments, with the real packages and local stores."""

import json
import os
import sqlite3

from helpers.processes import run_python

PROGRAM = """
import numpy as np
import mlflow, trackio
import dadagrad
from dadagrad.training.trackers import MlflowCallback, WandbCallback

X = np.random.default_rng(0).normal(size=(300, 4))
data = dadagrad.dataset_from_arrays(X, X[:, 0] > 0)
callbacks = [
    WandbCallback(trackio, project="reviews", auto_log_gpu=False),
    MlflowCallback(mlflow, run_name="reviews"),
]
result = dadagrad.train(data, passes=2, step_size=0.3, callbacks=callbacks)
with mlflow.start_run(mlflow.last_active_run().info.run_id):
    dadagrad.train(data, passes=3, step_size=0.3, callbacks=[MlflowCallback(mlflow)])
print(result.report["progressive_loss"])
"""


def test_trackio_and_mlflow_get_the_numbers_of_a_run(tmp_path):
    stores = {
        "TRACKIO_DIR": str(tmp_path), "MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    loss = float(run_python("-c", PROGRAM, env=os.environ | stores).stdout.split()[-1])
    with sqlite3.connect(tmp_path / "reviews.db") as store:
        rows = [json.loads(row) for (row,) in store.execute("SELECT metrics FROM metrics")]
        (config,) = (json.loads(row) for (row,) in store.execute("SELECT config FROM configs"))
    assert [row["rows"] for row in rows] == [256, 300, 600, 600]
    assert rows[-1]["progressive_loss"] == rows[1]["loss"] == loss
    assert config["loss"] == "hinge"
    (run,) = (path.parent for path in tmp_path.glob("store/*/*/meta.yaml"))
    assert (run / "params" / "loss").read_text() == "hinge"
    lines = (run / "metrics" / "loss").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["256", "300", "600", "256", "300", "600", "900"]
    assert (run / "params" / "passes").read_text() == "2"  # of the first run
    assert float((run / "metrics" / "progressive_loss").read_text().split()[1]) == loss
    assert "end_time: null" not in (run / "meta.yaml").read_text()
