"""Means that dense columns lose before they are learned from, for which intercepts make up."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import as_dataset, bits, dense_rows
from helpers.zarr_cases import write_zarr
from sklearn.datasets import dump_svmlight_file

from dadagrad import (
    AdaGradClassifier,
    InputError,
    TrainConfig,
    dataset_from_arrays,
    evaluate,
    ingest,
    resume,
    train,
)
from dadagrad.training import execution, units

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
    x[np.random.default_rng(1).random(x.shape) < 0.02] = 0.0
    x[-40:, 2] = 0.0
    return x, y


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_that_on_rows_without_the_means(mode):
    x, y = with_gaps()
    usual = {"step_size": 0.2, "shuffle": False, "center": True, "scale_columns": False}
    config = TrainConfig(**usual | MODES[mode])
    here = train(pieces(x, y, 300, 260, 40), config)
    means = here.coordinator.problem.units.means
    assert means == pytest.approx(x.mean(axis=0), rel=0.1, abs=0.5)
    chosen = TrainConfig.from_json(here.model.report["config"])
    centered = pieces(x - means, y, 300, 260, 40)
    there = train(centered, replace(chosen, center=False))
    assert here.report["progressive_loss"] == there.report["progressive_loss"]
    assert np.array_equal(here.model.weights, there.model.weights)
    scores = here.model.decision_function(x), there.model.decision_function(x - means)
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_on_any_threads_and_from_a_checkpoint(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 50)
    data = pieces(*with_gaps(), 300, 260, 40)
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
    url = write_zarr(pieces(*with_gaps(), 300, 260, 40), tmp_path / "data")
    settings = {"center": True, "passes": 2, **settings}
    plain = train(url, client=scheduler, **settings | {"center": False})
    assert bits(train(url, client=scheduler, **settings)) == bits(train(url, **settings))
    assert bits(train(url, client=scheduler, **settings | {"center": False})) == bits(plain)


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
    means = train((x, y)).coordinator.problem.units.means
    assert means[0] == pytest.approx(1e6, rel=1e-5)


def test_sparse_columns_constants_and_columns_near_0_are_left_alone():
    x, y = numbers(600)
    sparse = np.where(np.random.default_rng(0).random((600, 8)) < 0.3, 5.0, 0.0)
    for others in (np.hstack([x, sparse]), np.ones((600, 3)), x - SHIFTS, 0.5 + 0.0 * x):
        assert train((others, y)).coordinator.problem.units.means is None
    with_constant = train((np.hstack([x, np.ones((600, 1))]), y)).coordinator.problem.units.means
    assert with_constant[-1] == 0.0 < abs(with_constant[2])


def test_what_nothing_makes_up_for_is_not_centered(monkeypatch, caplog):
    data = numbers(600)
    for settings in ({"fit_intercept": False}, {"center": False}):
        assert train(data, **settings).coordinator.problem.units.means is None
    assert not caplog.text
    monkeypatch.setattr(units, "MAX_GATHERED", 1)
    assert train(data).coordinator.problem.units.means is None
    with pytest.raises(InputError, match="center= needs an intercept"):
        train(data, fit_intercept=False, center=True)


def test_a_given_step_size_is_that_of_the_papers_and_a_warning_says_what_it_costs(caplog):
    data = numbers(600)
    assert train(data, step_size=0.1).coordinator.problem.units.means is None
    assert "some are far from 0, which slows learning; subtract their means with" in caplog.text


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
