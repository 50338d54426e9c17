"""A grid of settings in one stream: the worse are dropped, and the rest are runs of their own."""

import signal
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from helpers.training_cases import UPDATES, as_dataset, make_data
from helpers.zarr_cases import write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import Callback, InputError, evaluate, sweep, train
from dadagrad.data.views import hold_out

SIZES = (90, 60, 120, 50)
GRID = {"step_size": [0.02, 0.1, 0.4, 1.5], "l1": [0.0, 1e-2]}


@settings(max_examples=8)
@given(
    update=st.sampled_from(UPDATES),
    mode=st.sampled_from([{"batch_size": 1}, {"batch_size": 9}, {"streams": 3, "rounds": 8}]),
    losses=st.sampled_from([("hinge", "logistic"), ("softmax", "multiclass-hinge"), ("hinge",)]),
    passes=st.integers(1, 2),
)
def test_the_best_model_has_the_bits_of_a_run_of_its_own(update, mode, losses, passes):
    data = make_data(SIZES, labels="multiclass", weighted=True)
    common = {"update": update, "holdout": 0.2, "passes": passes, **mode}
    result = sweep(data, loss=losses, **GRID, **common)
    assert [(row["loss"], row["step_size"], row["l1"]) for row in result.table] == list(
        product(losses, *GRID.values())
    )
    assert sorted(row["l1"] for row in result.path) == GRID["l1"]
    measure = "error" if len(losses) > 1 else "loss"
    best = min(result.path, key=lambda row: row["holdout"][measure])
    for row in result.path:
        setting = {name: row[name] for name in ("loss", "step_size", "l1")}
        alone = train(data, **setting, **common)
        assert row["nonzeros"] == alone.report["nonzeros"]
        assert row["progressive_loss"] == pytest.approx(alone.report["progressive_loss"])
        assert row["holdout"]["loss"] == alone.report["holdout"]["loss"]
        if row is best:
            assert result.best.model.digest == alone.model.digest
            assert result.best.report["progressive_error"] == pytest.approx(
                alone.report["progressive_error"]
            )
            for name in ("rows", "step_size", "nonzeros"):
                assert result.best.report[name] == alone.report[name]


def test_half_of_the_rivals_are_dropped_at_each_place():
    result = sweep(make_data((800,)), **GRID)
    for l1 in GRID["l1"]:
        rows = sorted(row["rows"] for row in result.table if row["l1"] == l1)
        assert rows == [100, 100, 200, 800]
    assert [row["holdout"] for row in result.path] == [None, None]


def test_six_penalties_at_least_are_trained_to_the_end():
    strengths = [0.0, *(10.0**-number for number in range(1, 12))]
    result = sweep(make_data((800,)), step_size=0.3, l1=strengths)
    assert sorted(row["rows"] for row in result.table) == [100] * 6 + [800] * 6
    assert max(row["l1"] for row in result.path) < 0.1  # the strongest leave nothing to learn


@pytest.mark.parametrize("weights", [(0, 0, 1, 1, 1), (1, 1, 0, 0, 0)])
@pytest.mark.parametrize("grid", [{"step_size": [1e-4, 0.3]}, {"l1": [1.0, 0.0]}])
def test_rows_of_weight_0_compare_no_settings(weights, grid):
    rows = make_data((200,)).read(0)
    data = as_dataset([replace(rows, weights=np.full(200, each, np.float32)) for each in weights])
    common = {"step_size": 0.3, "shuffle": False}
    best = sweep(data, **(common | grid)).best
    assert (best.report["step_size"], best.report["settings"][0]["l1"]) == (0.3, 0.0)
    assert best.model.digest == train(data, **common).model.digest


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(tmp_path, threads):
    url = write_zarr(make_data(SIZES), tmp_path / "data")
    result = sweep(url, **GRID, threads=threads)
    assert result.best.model.digest == sweep(make_data(SIZES), **GRID).best.model.digest


def test_a_grid_of_one_is_a_run():
    data = make_data(SIZES)
    result = sweep(data, step_size=0.3, holdout=0.1)
    assert result.best.model.digest == train(data, step_size=0.3, holdout=0.1).model.digest
    held = hold_out(data, 0.1, 0)[1]
    (row,) = result.table
    assert row["holdout"]["loss"] == evaluate(result.best.model, held)["loss"]


def test_settings_are_compared_on_other_data():
    data, other = make_data(SIZES), make_data((150,), seed=9)
    result = sweep(data, step_size=[0.01, 0.3], l1=[0.0, 1e-2], holdout=other)
    settings = [{name: row[name] for name in ("step_size", "l1")} for row in result.path]
    alone = [evaluate(train(data, **each).model, other)["loss"] for each in settings]
    assert [row["holdout"]["loss"] for row in result.path] == alone
    assert result.best.report["holdout"]["loss"] == min(alone)
    assert result.best.report["rows"] == sum(SIZES)


def test_settings_that_diverge_are_dropped_first():
    data = make_data((300,), labels="real")
    result = sweep(data, loss="squared", step_size=[1e25, 0.1, 1e26, 0.2], fit_intercept=False)
    assert [row["progressive_loss"] is None for row in result.table] == [True, False, True, False]
    assert result.best.report["step_size"] in (0.1, 0.2)


def test_wrong_grids_are_refused():
    for arguments, message in (
        ({"loss": []}, "loss must have at least one loss, not an empty list"),
        ({"loss": ["hinge", "squared"]}, "loss 'squared' cannot be compared with others"),
        ({"loss": ["hinge", "softmax"]}, "have different outputs"),
        ({"step_size": [0.1, 0.2], "preconditioner": "full"}, "need one of the updates"),
        ({"loss": ["hinge", "logistic"], "update": "arow"}, "several settings side by side need"),
    ):
        with pytest.raises(InputError, match=message):
            sweep(make_data(), **arguments)


def test_a_sweep_that_is_stopped_before_it_learns_has_no_rows():
    class Stop(Callback):
        def on_begin(self, event):
            signal.raise_signal(signal.SIGTERM)

    stopped = sweep(make_data(), step_size=[0.1, 0.4], batch_size=7, callbacks=[Stop()])
    assert not stopped.complete
    assert (stopped.best.report["rows"], stopped.best.report["stopped_by"]) == (0, "SIGTERM")


def test_there_is_a_learning_curve_if_it_is_that_of_the_best_setting():
    n_points = []
    grid = {"step_size": [0.1, 0.4, 1.6], "l1": [0.0, 0.02], "batch_size": 9, "passes": 6}
    for seed in range(2):
        best = sweep(make_data((90,) * 4, seed=seed), holdout=0.3, **grid).best
        curve = best.report["curve"]
        losses = [x for x, n in zip(curve["loss"], curve["pass_number"], strict=True) if n == 1]
        n_points.append(len(losses))
        assert not losses or losses[-1] == best.report["progressive_loss"]
    assert n_points[0] > n_points[1] == 0
