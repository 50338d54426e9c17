"""Means that dense columns lose before they are learned from, for which intercepts make up."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import as_dataset, bits, dense_rows, make_data
from helpers.zarr_cases import write_zarr
from sklearn.datasets import dump_svmlight_file

from dadagrad import (
    AdaGradClassifier,
    InputError,
    Model,
    TrainConfig,
    dataset_from_arrays,
    dry_run,
    evaluate,
    ingest,
    resume,
    train,
)
from dadagrad.training import execution, units
from dadagrad.training.memory import workers

N_COLUMNS = 6
SHIFTS = np.float32([3.0, -40.0, 1000.0, 0.0, 7.0, 0.25])
MODES = {
    "rows": {"batch_size": 1},
    "rows, tried": {"batch_size": 1, "step_size": "auto"},
    "rows, ftrl": {"batch_size": 1, "update": "ftrl", "l1": 1e-3},
    "rows, AROW": {"update": "arow"},
    "streams": {"streams": 3, "rounds": 4},
    "streams, average": {"streams": 2, "average": True},
    "batches": {"batch_size": 20, "partitions_per_batch": 2},
    "in NumPy": {"regularizer": "l2-norm:strength=0.001"},
}


def numbers(n_rows, seed=0, shifts=SHIFTS):
    """Rows of columns that are far from 0, and labels that they explain."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rows, N_COLUMNS)) * [1.0, 2.0, 8.0, 1.0, 0.5, 1.0]
    noise = rng.normal(size=n_rows)
    y = np.where(z @ [1.0, 0.5, -0.1, 0.5, 0.0, 1.0] + 0.5 * noise > 0.0, 1.0, -1.0)
    return (z + shifts).astype(np.float32), y


def pieces(x, y, *sizes):
    """A dataset of partitions of these sizes."""
    rows, bounds = dataset_from_arrays(x, y).read(0), np.cumsum((0, *sizes))
    parts = [rows.slice(*bounds[number : number + 2]) for number in range(len(sizes))]
    return as_dataset([_compacted(part) for part in parts], N_COLUMNS)


def _compacted(rows):
    """The same rows without the columns in the vocabulary that they lack."""
    used, indices = np.unique(rows.indices, return_inverse=True)
    return replace(rows, vocabulary=rows.vocabulary[used], indices=indices.astype(np.int32))


def with_gaps(n_rows=600):
    """Numbers of which some are 0, in some partitions all of a column."""
    x, y = numbers(n_rows)
    x[np.random.default_rng(1).random(x.shape) < 0.01] = 0.0
    x[-20:, 2] = 0.0
    return x, y


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_that_on_rows_without_the_means(mode):
    x, y = with_gaps()
    usual = {"step_size": 0.2, "shuffle": False, "center": True, "scale_columns": False}
    config = TrainConfig(**usual | MODES[mode])
    here = train(pieces(x, y, 300, 280, 20), config)
    means = here.coordinator.problem.units.means
    assert means == pytest.approx(x.mean(axis=0), rel=0.1, abs=0.5)
    chosen = TrainConfig.from_json(here.model.report["config"])
    centered = pieces(x - means, y, 300, 280, 20)
    there = train(centered, replace(chosen, center=False))
    assert here.report["progressive_loss"] == there.report["progressive_loss"]
    assert np.array_equal(here.model.weights, there.model.weights)
    scores = here.model.decision_function(x), there.model.decision_function(x - means)
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_on_any_threads_and_from_a_checkpoint(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 50)
    data = pieces(*with_gaps(), 300, 280, 20)
    config = TrainConfig(**{"step_size": 0.2, "center": True, "passes": 2} | MODES[mode])
    whole = train(data, config)
    assert bits(train(data, config, threads=3)) == bits(whole)
    folder = str(tmp_path / "run")

    def stop(event):
        if event.rows > 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, config, checkpoints=folder, save_every=1, callbacks=[stop])
    assert bits(resume(folder, data=data)) == bits(whole)


@pytest.mark.parametrize("settings", [{"streams": 3}, {"batch_size": 20}, {"batch_size": 200}])
def test_workers_of_a_cluster_subtract_the_same_means(scheduler, tmp_path, settings):
    url = write_zarr(pieces(*with_gaps(), 300, 280, 20), tmp_path / "data")
    settings = {"center": True, "passes": 2, **settings}
    plain = train(url, client=scheduler, **settings | {"center": False})
    assert bits(train(url, client=scheduler, **settings)) == bits(train(url, **settings))
    assert bits(train(url, client=scheduler, **settings | {"center": False})) == bits(plain)


def test_entries_are_subtracted_from_as_in_a_dense_matrix():
    rng = np.random.default_rng(0)
    for kind in ("values", "ones", "scaled"):
        x = np.where(rng.random((50, 8)) < 0.6, rng.normal(size=(50, 8)) + 2.0, 0.0)
        x[:, [2, 5]] = 0.0
        x = (x != 0.0).astype(np.float32) if kind == "ones" else x.astype(np.float32)
        rows = _compacted(dataset_from_arrays(x, np.arange(50) % 2).read(0))
        if kind == "scaled":
            scale = rng.random(50).astype(np.float32)
            rows, x = replace(rows, row_scale=scale), x * scale[:, None]
        columns, means = np.array([0, 2, 7]), np.float32([1.5, -2.0, 3.0])
        x[:, columns] -= means
        assert np.array_equal(rows.center_columns(columns, means).to_csr(8).toarray(), x)


def test_columns_that_are_far_from_0_are_learned_as_fast_as_others():
    errors = []
    for shifts in (0.0 * SHIFTS, SHIFTS):
        data, test = numbers(1000, 0, shifts), numbers(1000, 1, shifts)
        errors.append(evaluate(train(data).model, test)["error"])
    assert errors[1] < 1.1 * errors[0]
    assert evaluate(train(data, center=False).model, test)["error"] > 1.5 * errors[0]


def test_a_column_may_be_a_million_times_as_far_from_0_as_it_is_wide():
    x, y = numbers(600)
    x[:, 0] = 1e6 + np.round(x[:, 0] / 0.0625) * 0.0625
    assert means_of((x, y))[0] == pytest.approx(1e6, rel=1e-5)


def test_numbers_beside_categories_and_frequent_ones_are_centered():
    x, y = numbers(600)
    rng = np.random.default_rng(0)
    categories = np.eye(30)[rng.integers(0, 30, 600)]
    assert np.count_nonzero(means_of((np.hstack([x, categories]), y))) == N_COLUMNS
    ones = (rng.random((600, 5)) < 0.97).astype(np.float32)
    assert means_of((ones, y)) == pytest.approx(np.full(5, 0.97), abs=0.03)


def test_a_value_that_is_rare_in_a_dense_column_does_not_become_huge():
    """Else the squared loss of its row is that of thousands."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(6000, 8)) + 3.0
    y = x[:, :5] @ [1.0, 0.5, -0.5, 1.0, 0.0]
    x[:, 5:7] = 1000.0 + 8.0 * rng.normal(size=(6000, 2))
    x[:, 7] = np.where(rng.random(6000) < 0.0005, 2.0, 1.0)
    model = train((x[:3000], y[:3000]), loss="squared").model
    assert np.mean((model.predict(x[3000:]) - y[3000:]) ** 2) < 0.5 * y.var()


def test_sparse_columns_constants_and_columns_near_0_are_left_alone():
    x, y = numbers(600)
    sparse = np.where(np.random.default_rng(0).random((600, 80)) < 0.3, 5.0, 0.0)
    for others in (np.hstack([x, sparse]), np.ones((600, 3)), x - SHIFTS, 0.5 + 0.0 * x):
        assert means_of((others, y)) is None
    with_constant = means_of((np.hstack([x, np.ones((600, 1))]), y))
    assert with_constant[-1] == 0.0 < abs(with_constant[2])


def means_of(data, **settings):
    return train(data, **settings).coordinator.problem.units.means


def test_small_partitions_are_measured_together():
    assert means_of(pieces(*numbers(160), *[8] * 20))[2] == pytest.approx(1000.0, abs=10.0)


def test_what_is_not_to_be_centered_is_not_and_nothing_is_said(caplog):
    for settings in ({"fit_intercept": False}, {"center": False}):
        assert means_of(numbers(600), **settings) is None
    assert "far from 0" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "limit", "remedy"),
    [({"step_size": 0.1}, 1 << 30, "give center="), ({}, 5, "subtract their means before")],
    ids=str,
)
def test_a_warning_says_what_to_do_where_means_are_kept(
    settings, limit, remedy, caplog, monkeypatch
):
    monkeypatch.setattr(units, "MAX_GATHERED", limit)
    assert means_of(numbers(600), **settings) is None
    assert "far from 0 for their spread, which slows learning" in caplog.text
    assert remedy in caplog.text


def test_frequent_categories_of_a_table_are_nothing_to_warn_of(caplog):
    rows = [{"country": "DE" if n % 50 == 0 else "US", "y": n % 2} for n in range(500)]
    train(rows, label="y", step_size=0.1)
    assert "far from 0" not in caplog.text


def test_small_and_wide_data_are_centered():
    rng = np.random.default_rng(0)
    for n_rows, n_columns in ((30, 4), (200, 4000)):
        x = rng.normal(size=(n_rows, n_columns)) + 50.0
        assert np.count_nonzero(means_of((x, np.arange(n_rows) % 2))) == n_columns


def test_means_without_an_intercept_are_refused():
    data = dataset_from_arrays(*numbers(600))
    for settings in ({"fit_intercept": False}, {"loss": "ranking"}):
        if settings == {"loss": "ranking"}:
            data = make_data(labels="relevance")
        with pytest.raises(InputError, match=r"for which an intercept makes up, and .*; leave out"):
            dry_run(data, center=True, **settings)


def test_a_new_process_goes_on_with_means(tmp_path):
    """It compiles the kernels on a few rows of its own before."""
    for day in range(2):
        x, y = numbers(600, day)
        write_zarr(dataset_from_arrays(x, y), tmp_path / str(day))
    urls = [str(tmp_path / str(day)) for day in range(2)]
    train(urls[0], save_to=str(tmp_path / "model"))
    program = (
        "import sys, dadagrad\n"
        "for size in (1, 20):\n"
        "    run = dadagrad.train(sys.argv[1], initial_model=sys.argv[2], batch_size=size)\n"
        "    print(run.digest)\n"
    )
    expected = [
        train(urls[1], initial_model=str(tmp_path / "model"), batch_size=size).digest
        for size in (1, 20)
    ]
    arguments = [sys.executable, "-c", program, urls[1], str(tmp_path / "model")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == expected


def test_training_goes_on_with_the_means_that_it_had(tmp_path):
    first, later = numbers(600, 0), numbers(600, 1)
    begun = train(first, save_to=str(tmp_path / "model"))
    expected = train(later, initial_model=begun)
    assert np.array_equal(
        expected.coordinator.problem.units.means, begun.coordinator.problem.units.means
    )
    assert train(later, initial_model=str(tmp_path / "model")).digest == expected.digest
    with pytest.raises(InputError, match="center was True and is False now"):
        train(later, initial_model=begun, center=False)


def test_a_state_that_stays_on_workers_keeps_the_means_of_an_earlier_model(
    scheduler_here, tmp_path, monkeypatch
):
    for day in range(2):
        write_zarr(dataset_from_arrays(*numbers(600, day)), tmp_path / str(day))
    begun, later = str(tmp_path / "begun"), str(tmp_path / "1")
    train(str(tmp_path / "0"), save_to=begun)
    settings = {"initial_model": begun, "streams": 2, "rounds": 2}
    expected = train(later, **settings)
    monkeypatch.setattr(workers, "MAX_GATHERED", 0)
    url = str(tmp_path / "model")
    train(later, client=scheduler_here, save_to=url, **settings)
    assert Model.load(url).digest == expected.digest


def test_columns_that_are_new_later_are_not_centered(tmp_path):
    days = []
    for day, n_columns in enumerate((N_COLUMNS - 1, N_COLUMNS)):
        x, y = numbers(300, day)
        folder = tmp_path / str(day)
        dump_svmlight_file(x[:, :n_columns], y, f"{folder}.svm")
        ingest(f"{folder}.svm", f"{folder}.zarr")
        days.append(f"{folder}.zarr")
    begun = train(days[0])
    grown = train(days[1], initial_model=begun).coordinator.problem.units.means
    assert np.array_equal(grown, [*begun.coordinator.problem.units.means, 0.0])


def test_partial_fit_learns_numbers_that_are_far_from_0_in_pieces():
    x, y = numbers(2000)
    estimator = AdaGradClassifier()
    for start in range(0, 2000, 100):
        estimator.partial_fit(x[start : start + 100], y[start : start + 100], classes=[-1, 1])
    test_x, test_y = numbers(1000, 1)
    assert np.mean(estimator.predict(test_x) != test_y) < 0.16


def test_weights_and_intercept_are_those_of_raw_columns():
    x, y = numbers(600)
    model = train((x, y)).model
    rows = dense_rows(dataset_from_arrays(x, y).read(0), N_COLUMNS)
    by_hand = rows @ model.weights[np.searchsorted(model.ids, np.arange(N_COLUMNS))]
    scores = model.decision_function(x)
    np.testing.assert_allclose(scores, by_hand + model.intercept, rtol=1e-3, atol=1e-3)
