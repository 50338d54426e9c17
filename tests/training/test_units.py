"""Columns divided by their mean absolute value, labels less a center: no unit matters."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import (
    N_FEATURES,
    UPDATES,
    as_dataset,
    bits,
    dense_rows,
    dense_weights,
    make_data,
)
from helpers.zarr_cases import write_zarr

from dadagrad import (
    AdaGradClassifier,
    AdaGradRegressor,
    InputError,
    TrainConfig,
    TrainingError,
    dataset_from_arrays,
    evaluate,
    train,
)
from dadagrad.optim.losses import Logistic
from dadagrad.optim.preconditioners import Normalized
from dadagrad.optim.updates import UPDATES as CLASSES
from dadagrad.training import units

UNITS = 2.0 ** np.random.default_rng(5).integers(-12, 18, N_FEATURES)
MODES = {
    "rows, classes": ({"batch_size": 1, "update": "ftrl", "l1": 1e-3}, "multiclass"),
    "rows, average": ({"batch_size": 1, "step_size": "auto"}, "binary"),
    "rows, pairs": ({"batch_size": 1, "loss": "ranking"}, "relevance"),
    "batches": ({"batch_size": 13, "update": "mirror-descent", "l2": 1e-2}, "multilabel"),
    "streams": ({"streams": 3, "rounds": 4, "l1": 1e-3}, "binary"),
    "in NumPy": ({"preconditioner": "sketch:rank=4"}, "binary"),
}


def in_units(data, units):
    """The same rows with columns that are multiplied by `units`."""
    parts = [data.read(number) for number in range(len(data.partitions))]
    factors = [units[rows.vocabulary][rows.indices].astype(np.float32) for rows in parts]
    pairs = zip(parts, factors, strict=True)
    return as_dataset([replace(rows, values=rows.values * factor) for rows, factor in pairs])


def all_columns(sizes, labels="binary"):
    """Data with a first row that has all columns."""
    data = make_data((*sizes, 0), labels=labels)
    ids, first = np.arange(N_FEATURES), data.read(0).slice(0, 1)
    entries = {"indices": ids.astype(np.int32), "values": np.ones(N_FEATURES, np.float32)}
    full = replace(first, vocabulary=ids, indptr=np.array([0, N_FEATURES]), **entries)
    return as_dataset([full, *(data.read(number) for number in range(len(sizes)))])


@pytest.mark.parametrize("update", UPDATES)
def test_a_run_is_the_plain_update_in_the_normalized_preconditioner(update):
    data = make_data((60,), seed=3)
    rows = data.read(0)
    x, y = dense_rows(rows), rows.labels[:, 0]
    means = np.abs(x).sum(axis=0) / np.maximum((x != 0.0).sum(axis=0), 1)
    scales = np.where(means > 0.0, means, np.median(means[means > 0.0]))
    plain = CLASSES[update](0.3, Normalized(delta=0.0))
    state, loss = plain.init(N_FEATURES, 1), Logistic()
    for features, label in zip(x, y, strict=True):
        score = features @ plain.weights(state)[:, 0]
        slope = loss.slope(score, label)
        state = plain.step(state, slope * features[:, None], scales=scales)
    run = train(data, loss="logistic", update=update, step_size=0.3, batch_size=1,
                preconditioner="diagonal:delta=0", fit_intercept=False,
                scale_columns=True)  # fmt: skip
    expected = plain.weights(state)
    difference = dense_weights(run.model) - expected
    assert np.abs(difference).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("mode", MODES)
def test_scores_have_the_same_bits_in_other_units(mode):
    settings, labels = MODES[mode]
    data = all_columns((40, 30, 50), labels)
    config = TrainConfig(**{"step_size": 0.2, "scale_columns": True, "shuffle": False, **settings})
    here, there = (train(each, config) for each in (data, in_units(data, UNITS)))
    assert here.report["progressive_loss"] == there.report["progressive_loss"]
    ids = here.model.ids
    assert np.array_equal(ids, there.model.ids)
    assert np.array_equal(here.model.weights, there.model.weights * UNITS[ids, None])
    assert np.array_equal(here.model.intercept, there.model.intercept)


def table(n_rows, seed):
    """Age, income and five rates of people, of which all tell something about the label."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rows, 7))
    y = np.where(z @ np.ones(7) + 0.5 * rng.normal(size=n_rows) > 0.0, 1.0, -1.0)
    x = np.column_stack([40 + 10 * z[:, 0], np.exp(10.8 + z[:, 1]), np.exp(z[:, 2:] - 3)])
    return dataset_from_arrays(x.astype(np.float32), y)


def test_a_table_of_raw_numbers_is_scaled_by_default():
    data, test = table(4000, 0), table(4000, 1)
    errors = {
        scaled: evaluate(train(data, scale_columns=scaled).model, test)["error"]
        for scaled in ("auto", True, False)
    }
    assert errors["auto"] == errors[True] < 0.22 < 0.3 < errors[False]


def test_values_of_one_range_and_ones_are_left_alone():
    spread = make_data((400, 300))
    ones = as_dataset([replace(spread.read(number), values=None) for number in range(2)])
    for data in (spread, ones):
        chosen = train(data, step_size=0.2)
        assert chosen.model.report["config"]["scale_columns"] is False
        assert bits(chosen) == bits(train(data, step_size=0.2, scale_columns=False))


def test_a_row_may_have_more_entries_than_are_measured(monkeypatch):
    data = in_units(all_columns((30, 20)), UNITS)
    monkeypatch.setattr(units, "MAX_ENTRIES", 3)
    result = train(data, TrainConfig(step_size=0.3, scale_columns=True, shuffle=False))
    assert np.array_equal(result.coordinator.problem.units.scales, UNITS)


def test_first_rows_of_weight_0_are_not_measured(monkeypatch):
    monkeypatch.setattr(units, "MAX_ROWS", 100)
    rows, settings = table(400, 0).read(0), {"step_size": 0.3, "shuffle": False}
    nothing = replace(rows, weights=np.zeros(400, np.float32))
    later = replace(rows, weights=np.where(np.arange(400) < 150, 0, 1).astype(np.float32))
    result = train(as_dataset([nothing, nothing, nothing, later], 7), **settings)
    expected = train(as_dataset([rows.slice(150, 400)], 7), **settings)
    scales, needed = (each.coordinator.problem.units.scales for each in (result, expected))
    assert np.array_equal(scales, needed)


def test_later_calls_of_partial_fit_keep_the_scales_of_the_first():
    data = [table(600, seed) for seed in (0, 1)]
    x, y = zip(*((dense_rows(d.read(0), 7), d.read(0).labels[:, 0]) for d in data), strict=True)
    units = 2.0 ** np.array([3, -20, 5, 0, -2, 9, 1])
    here, there = AdaGradClassifier(step_size=0.3), AdaGradClassifier(step_size=0.3)
    for features, labels in zip(x, y, strict=True):
        here.partial_fit(features, labels, classes=[-1.0, 1.0])
        there.partial_fit(features * units, labels, classes=[-1.0, 1.0])
    assert np.array_equal(here.decision_function(x[0]), there.decision_function(x[0] * units))


def test_a_column_that_is_new_in_a_later_call_of_partial_fit_is_scaled_by_its_rows():
    data = [table(600, seed) for seed in (0, 1)]
    x, y = zip(*((dense_rows(d.read(0), 7), d.read(0).labels[:, 0]) for d in data), strict=True)
    x[0][:, 4] = 0.0
    units = 2.0 ** np.array([0, 0, 0, 0, 12, 0, 0])
    scores = []
    for rows in (x[1], x[1] * units):
        estimator = AdaGradClassifier(step_size=0.3).partial_fit(x[0], y[0], classes=[-1.0, 1.0])
        scores.append(estimator.partial_fit(rows, y[1]).decision_function(rows))
    assert np.array_equal(*scores)


def test_the_smallest_values_make_no_weight_overflow():
    x = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 1e-20, 1e-42]
    model = train((x, np.sign(x[:, 0])), scale_columns=True, step_size=0.5).model
    assert np.isfinite(model.weights).all()
    assert (model.weights[:2] != 0.0).all()


def train_on_overflow(expected, **settings):
    """Else the weight would be 0 from then on, and nobody would know."""
    rows = [{"label": n % 2, "x": n % 3, "time": 1e20 * (n % 5 == 0)} for n in range(120)]
    with pytest.raises(TrainingError, match=expected):
        train(rows, scale="none", scale_columns=False, **settings)


NAMED = r"feature \d+ \('time'\) have left .* scale the"


@pytest.mark.parametrize("mode", [{"batch_size": 1}, {"streams": 3}, {"batch_size": 10}], ids=str)
def test_sums_that_overflow_end_the_run_with_the_name_of_the_feature(mode):
    train_on_overflow(NAMED, step_size=0.5, **mode)
    train_on_overflow(f"{NAMED}|step_size='auto'", step_size="auto", **mode)


def test_an_error_of_a_worker_names_the_feature(scheduler_here):
    train_on_overflow(NAMED, step_size=0.5, batch_size=10, client=scheduler_here)


def far_from_0(data, offset):
    """The same rows with labels that are larger by `offset`."""
    parts = [data.read(number) for number in range(len(data.partitions))]
    return as_dataset([replace(rows, labels=rows.labels + offset) for rows in parts])


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "quantile:q=0.8"])
def test_a_regression_learns_labels_that_are_far_from_0_as_well(loss):
    data = make_data((900, 300), labels="real", weighted=True)
    near, far = (train(far_from_0(data, n), loss=loss, passes=2).model for n in (0.0, 1000.0))
    rows = data.read(0)
    assert far.scores(rows) - 1000.0 == pytest.approx(near.scores(rows), abs=1e-5)


@pytest.mark.parametrize("settings", [{"streams": 3}, {"batch_size": 20}], ids=str)
def test_workers_of_a_cluster_learn_from_the_same_labels(scheduler, tmp_path, settings):
    url = write_zarr(far_from_0(make_data(labels="real"), 50.0), tmp_path / "data")
    settings = {"loss": "squared", "passes": 2, **settings}
    assert bits(train(url, client=scheduler, **settings)) == bits(train(url, **settings))


@pytest.mark.parametrize("settings", [{}, {"streams": 4, "rounds": 3}, {"batch_size": 10}])
def test_a_regression_of_counts_has_no_unit_of_counts(settings):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    y = rng.poisson(np.exp(1.0 + 0.4 * x[:, 0])).astype(float)
    y[:20], few = 0.0, {"loss": "poisson", "shuffle": False} | settings
    counts, hundreds = (train((x, factor * y), **few) for factor in (1.0, 100.0))
    np.testing.assert_allclose(hundreds.model.weights, counts.model.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        hundreds.model.intercept - counts.model.intercept, np.log(100.0), rtol=1e-6
    )
    losses = [each.report["progressive_loss"] for each in (counts, hundreds)]
    assert losses[1] == pytest.approx(100.0 * losses[0], rel=1e-6)
    assert evaluate(counts.model, (x, y))["loss"] < counts.report["constant_loss"]


@pytest.mark.parametrize(("penalty", "strength"), [("l1", 10.0), ("l2", 50.0)])
def test_penalties_of_counts_are_those_of_counts_that_are_not_centered(penalty, strength):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 4))
    y = rng.poisson(100.0 * np.exp(x @ [0.3, -0.2, 0.1, 0.0])).astype(float)
    settings = {"loss": "poisson", "passes": 100, penalty: strength}
    centered, plain = (train((x, y), center=on, **settings).model for on in (True, False))
    free = train((x, y), **settings | {penalty: 0.0}).model
    scores = [model.decision_function(np.eye(4)) - model.intercept for model in (centered, plain)]
    assert scores[0] == pytest.approx(scores[1], abs=0.02)
    assert abs(free.decision_function(np.eye(4)) - free.intercept - scores[0]).max() > 0.05


def test_counts_that_are_0_at_first_start_at_0(monkeypatch):
    monkeypatch.setattr(units, "MAX_ROWS", 100)
    x = np.ones((400, 1))
    y = np.where(np.arange(400) < 200, 0.0, 3.0)
    result = train((x, y), loss="poisson", shuffle=False)
    assert result.coordinator.problem.units.centers == [0.0]
    assert np.isfinite(result.report["progressive_loss"])


def test_the_steps_of_the_papers_start_at_0():
    """A step size is given, or no intercept is learned, or a penalty weighs against the loss."""
    data = far_from_0(make_data(labels="real"), 50.0)
    counts = {"loss": "poisson", "regularizer": "l2-norm:strength=0.001"}
    for settings in ({"step_size": 0.1}, {"fit_intercept": False}, counts):
        assert (
            train(data, **{"loss": "squared"} | settings).coordinator.problem.units.centers is None
        )


def test_a_saved_model_goes_on_from_its_center(tmp_path):
    first, later = (far_from_0(make_data(labels="real", seed=n), 9.0 + n) for n in range(2))
    begun = train(first, loss="squared", save_to=str(tmp_path / "model"))
    expected = train(later, initial_model=begun)
    assert expected.coordinator.problem.units.centers == pytest.approx([9.0], abs=1.0)
    assert train(later, initial_model=str(tmp_path / "model")).digest == expected.digest


def test_counts_do_not_go_on_with_a_penalty_that_would_have_another_strength():
    data = far_from_0(make_data(labels="real"), 50.0)
    begun = train(data, loss="poisson")
    assert train(data, initial_model=begun).complete
    assert train(data, initial_model=begun, l1=1e-4).complete
    with pytest.raises(InputError, match="began at the best constant, which would change"):
        train(data, initial_model=begun, regularizer="l2-norm:strength=0.001")


def noisy(n_rows, offset=100.0, seed=1):
    """Rows of five numbers, and labels near `offset` that they explain but for a little noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 5))
    return x, x @ [1.0, 2.0, -1.0, 0.5, 0.0] + 0.3 * rng.normal(size=n_rows) + offset


def rmse(model, seed=2):
    x, y = noisy(2000, seed=seed)
    return np.sqrt(np.mean((model.predict(x) - y) ** 2))


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_settings_of_a_report_make_the_model_again(loss):
    data = noisy(3000)
    model = train(data, loss=loss).model
    config = TrainConfig.from_json(model.report["config"])
    assert config.center is True
    assert train(data, config).model.digest == model.digest
    assert train(data, config, center=False).model.digest != model.digest


def test_small_partitions_have_the_center_of_all_their_rows():
    x, y = noisy(3000)
    y[0] = -1e5
    rows = dataset_from_arrays(x, y).read(0)
    one_by_one = as_dataset([rows.slice(n, n + 1) for n in range(400)], 5)
    result = train(one_by_one, loss="absolute", shuffle=False)
    assert result.coordinator.problem.units.centers == pytest.approx([100.0], abs=1.0)


def test_many_equal_labels_at_first_teach_nothing_and_do_no_harm():
    x, y = noisy(20_000)
    y[:6000] = 100.0
    assert rmse(train((x, y), loss="absolute", shuffle=False).model) < 0.8


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_a_regression_learns_in_small_pieces(size):
    x, y = noisy(2000)
    regressor = AdaGradRegressor()
    for start in range(0, len(y), size):
        regressor.partial_fit(x[start : start + size], y[start : start + size])
    assert rmse(regressor) < 0.6


def test_labels_without_centers_are_left_alone():
    counts = {"loss": "poisson", "regularizer": "l2-norm:strength=0.001"}
    for settings in ({"loss": "hinge"}, counts):
        result = train((np.eye(4), [0.0, 1.0, 1.0, 0.0]), center=True, **settings)
        assert result.coordinator.problem.units.centers is None
