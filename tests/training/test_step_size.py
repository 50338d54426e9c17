"""`step_size="auto"`: the best of a grid on the first rows, whatever else is set."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from helpers.training_cases import as_dataset, dense_rows, make_data, make_schedule_of, problem_of

from dadagrad import TrainConfig, TrainingError, dataset_from_arrays, evaluate, train
from dadagrad.data.rows import Rows
from dadagrad.training import step_size as module
from dadagrad.training.step_size import GRID, choose_step_size
from dadagrad.training.worker.partition_reader import Loader

CASES = [("dual-averaging", "binary"), ("mirror-descent", "multiclass"), ("ftrl", "real")]


def choose(data, config):
    problem, schedule = problem_of(data, config), make_schedule_of(data, config)
    return choose_step_size(data, problem, schedule, 1, Loader(data)).step_size


def grid_of(data, labels):
    """The step sizes that are tried: those of a regression in units of its targets."""
    targets = np.concatenate([data.read(k).labels for k in range(len(data.partitions))])
    scale = float(np.sqrt(np.mean(np.square(targets)))) if labels == "real" else 1.0
    return [step_size * scale for step_size in GRID]


@pytest.mark.parametrize(("update", "labels"), CASES)
def test_the_choice_is_about_the_best_of_the_grid(update, labels):
    data = make_data((400, 400), labels=labels)
    loss = "squared" if labels == "real" else "logistic"
    config = TrainConfig(loss=loss, update=update, batch_size=1, shuffle=False, average=False)
    chosen = choose(data, config)
    grid = grid_of(data, labels)
    assert chosen in grid
    losses = {
        step_size: train(data, replace(config, step_size=step_size)).report["progressive_loss"]
        for step_size in grid
    }
    assert losses[chosen] <= 1.2 * min(losses.values())
    assert losses[chosen] < 0.9 * max(losses.values())


def test_batches_and_passes_do_not_matter():
    data = make_data((200, 200, 200))
    config = TrainConfig(batch_size=1, shuffle=False, average=False)
    chosen = choose(data, config)
    for other in ({"batch_size": 64}, {"batch_size": 9, "partitions_per_batch": 1}, {"passes": 5}):
        assert choose(data, replace(config, **other)) == chosen


def test_train_takes_the_choice_and_says_so():
    data, config = make_data((300, 300)), TrainConfig(batch_size=16)
    chosen = choose(data, config)
    result = train(data, config)
    assert result.report["step_size"] == chosen
    assert result.model.digest == train(data, replace(config, step_size=chosen)).model.digest
    assert result.model.report["config"]["step_size"] == chosen


def test_the_trial_takes_a_pass_over_small_data_and_a_tenth_of_one_over_large():
    for n_rows, entries, tried in (
        (1_000, 50, 1_000),
        (9_000, 50, 5_000),
        (50_000, 50, 10_000),
        (700_000, 50, 16_384),
        (4_600_000, 50, 100_000),
        (4_000_000, 1_000, 16_777),
        (20_000_000, 50, 262_144),
    ):
        data = make_data((40,) * 5)
        size = {"n_rows": n_rows // 5, "nnz": n_rows // 5 * entries}
        data.partitions = tuple(replace(each, **size) for each in data.partitions)
        schedule = make_schedule_of(data, TrainConfig(batch_size=1))
        parts = module.first_rows(data, schedule, True)
        assert sum(rows for _, rows in parts) == tried
        assert [partition for partition, _ in parts] == list(schedule.order(0))[: len(parts)]


def test_the_trial_takes_more_rows_of_data_with_rare_labels():
    for rare, tried in ((0.5, 8_000), (0.05, 10_000), (0.001, 16_384)):
        data = make_data((40,) * 5)
        data.partitions = tuple(replace(each, n_rows=8_000) for each in data.partitions)
        (label,) = data.schema.label_columns
        label = replace(label, counts=(round(40_000 * (1 - rare)), round(40_000 * rare)))
        data.schema = replace(data.schema, label_columns=(label,))
        schedule = make_schedule_of(data, TrainConfig(batch_size=1))
        assert sum(rows for _, rows in module.first_rows(data, schedule, True)) == tried


def test_rows_without_weight_cannot_tell():
    rows = make_data((50,)).read(0)
    data = as_dataset([replace(rows, weights=np.zeros(50, np.float32))])
    with pytest.raises(TrainingError, match="no row of positive weight in the first rows; give"):
        choose(data, TrainConfig(batch_size=16))


def test_one_row_will_do():
    data = make_data((1,), labels="real")
    chosen = choose(data, TrainConfig(loss="squared", batch_size=1, shuffle=False))
    assert chosen in grid_of(data, "real")


def test_the_unit_of_the_targets_does_not_matter():
    factor = 1e3
    data, scaled = make_data((300,), labels="real"), make_data((300,), labels="real")
    scaled.read(0).labels[:] *= factor
    config = TrainConfig(loss="squared", batch_size=1)
    assert choose(scaled, config) == pytest.approx(factor * choose(data, config), rel=1e-12)


@pytest.mark.parametrize("loss", ["absolute", "huber", "quantile"])
def test_outlying_labels_do_not_make_the_steps_of_robust_losses_larger(loss):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=4000)
    spoilt = np.where(rng.random(4000) < 0.02, 1e7, y)
    error = np.abs(train((x, spoilt), loss=loss).model.predict(x) - y).mean()
    assert error < 1.2 * np.abs(train((x, y), loss=loss).model.predict(x) - y).mean()


def test_data_that_diverges_at_some_step_sizes_is_learned_with_others():
    # Values of 1e4 in a squared loss: the largest step sizes overflow 32 bits within a few rows.
    data = make_data((300,), labels="real")
    data.read(0).values[:] *= np.float32(1e4)
    config = TrainConfig(loss="squared", batch_size=1)
    assert np.isfinite(train(data, config).report["progressive_loss"])


def rows_of_ids(ids, labels, n_features, value=1.0):
    """A dataset whose rows have the (n_rows, n_ids) features `ids`, all of one value."""
    indptr = np.arange(0, ids.size + 1, ids.shape[1])
    values = np.full(ids.size, value, np.float32)
    rows = Rows.from_csr(indptr, ids.ravel(), values, labels[:, None].astype(float))
    return as_dataset([rows], n_features)


def make_noisy(n_rows, seed, noise=True):
    """Rows of ten attributes with ten values each, of which few decide, labelled with noise."""
    rng = np.random.default_rng(seed)
    values = (10 * rng.random((n_rows, 10)) ** 2).astype(int)
    weights = np.random.default_rng(1).normal(size=(10, 10))
    scores = weights[np.arange(10), values].sum(axis=1)
    threshold = rng.logistic(size=n_rows) / 0.6 if noise else 0.0
    labels = np.where(scores > threshold, 1.0, -1.0)
    return rows_of_ids(10 * np.arange(10) + values, labels, 100)


def test_the_average_is_chosen_where_the_last_weights_swing():
    data, test = make_noisy(8_000, 2), make_noisy(8_000, 3, noise=False)
    result, last = train(data), train(data, average=False)
    assert result.model.report["config"]["average"] is True
    errors = [evaluate(each.model, test)["error"] for each in (result, last)]
    assert errors[0] < 0.9 * errors[1]


def test_the_last_weights_are_chosen_where_features_are_rare():
    rng = np.random.default_rng(4)
    weights = rng.normal(size=2_000)
    ids = np.sort(rng.integers(0, 2_000, (4_000, 8)), axis=1)
    data = rows_of_ids(ids, np.sign(weights[ids].sum(axis=1)), 2_000)
    assert train(data).model.report["config"]["average"] is False


@pytest.mark.parametrize("settings", [{"l1": 1e-6}, {"batch_size": 50}])
def test_the_average_is_not_tried_where_it_has_no_compiled_form(settings):
    result = train(make_noisy(1_000, 2), **settings)
    assert result.model.report["config"]["average"] is False


def test_near_ties_are_decided_by_the_rows_that_two_settings_predict_differently():
    """Six rows more of 1,000 are chance if 200 rows differ, and none if only these six do."""
    losses, mistakes = np.array([2.0, 1.0]), np.zeros((2, 1_000))
    mistakes[0, :100], mistakes[1, :106] = 1.0, 1.0
    assert module._best(losses, mistakes.sum(axis=1), mistakes) == 0
    mistakes[1] = np.roll(mistakes[1], 500)
    assert module._best(losses, mistakes.sum(axis=1), mistakes) == 1


def test_only_the_best_step_sizes_learn_to_the_end(monkeypatch):
    steps, learn = [], module._Rival.learn

    def spy(self, parts, spread):
        steps.extend(rows.n_rows for rows, _ in parts)
        return learn(self, parts, spread)

    monkeypatch.setattr(module._Rival, "learn", spy)
    choose(make_noisy(4_000, 2), TrainConfig(batch_size=1))
    assert sum(steps) == 11 * 500 + 6 * 500 + 4 * 1_000 + 3 * 2_000


def make_topics(n_rows, seed):
    """Short texts of eight classes, each of which has 25 words of its own."""
    rng = np.random.default_rng(seed)
    words = np.random.default_rng(1).integers(0, 2_000, (8, 25))
    labels = rng.integers(0, 8, n_rows)
    common = (2_000 * rng.random((n_rows, 30)) ** 2).astype(int)
    topical = words[labels[:, None], rng.integers(0, 25, (n_rows, 30))]
    ids = np.sort(np.where(rng.random((n_rows, 30)) < 0.2, topical, common), axis=1)
    return rows_of_ids(ids, labels, 2_000, 30**-0.5)


def test_large_steps_that_do_not_pass_the_target_do_little_harm():
    data, test = make_topics(4_000, 2), make_topics(4_000, 3)
    errors = [
        evaluate(train(data, step_size=2.0, importance_aware=aware).model, test)["error"]
        for aware in ("auto", False)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_rows_without_weight_set_no_scale():
    data = make_data((300,), labels="real", weighted=True)
    rows = data.read(0)
    weights = np.where(np.arange(300) % 10, 1.0, 0.0).astype(np.float32)
    spoilt = replace(rows, weights=weights, labels=np.where(weights[:, None], rows.labels, 1e9))
    spoilt.values[np.repeat(weights == 0.0, np.diff(rows.indptr))] = 1e9
    kept = weights > 0.0
    without = dataset_from_arrays(scipy.sparse.csr_array(dense_rows(rows)[kept]), rows.labels[kept])
    settings = {"loss": "squared", "scale_columns": True, "shuffle": False}
    steps = [
        train(each, **settings).report["step_size"] for each in (as_dataset([spoilt]), without)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)


def test_labels_that_are_too_large_are_named():
    data = make_data((50,), labels="real")
    data.read(0).labels[:] = 1e200
    with pytest.raises(TrainingError, match=r"label .* is 1e\+200.*; divide the labels"):
        choose(data, TrainConfig(loss="squared", batch_size=1))


@pytest.mark.parametrize("preconditioner", ["sketch", "fd-son"])
def test_a_sketch_that_diverges_names_what_helps(preconditioner):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 40))
    settings = {"loss": "squared", "preconditioner": preconditioner}
    with pytest.raises(
        TrainingError, match="choose corrected-sketch, or a larger delta than 1e-06"
    ):
        train((x, x @ rng.normal(size=40)), **settings)


def test_labels_in_other_units_are_no_outliers_of_others():
    rng = np.random.default_rng(0)
    x, units = rng.normal(size=(2000, 4)), np.array([1.0, 1.0, 1e6])
    y = (x @ rng.normal(size=(4, 3)) + 0.1 * rng.normal(size=(2000, 3))) * units
    model = train((x, y), loss="absolute", passes=5).model
    assert (abs(model.decision_function(x) - y).mean(axis=0) / units).max() < 0.1


def test_rows_of_a_query_do_not_help_each_other_in_the_trial():
    """The best step sizes would be those that learn a query while its rows are read."""
    errors = {}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, effects = rng.normal(size=(4000, 10)), np.repeat(3.0 * rng.normal(size=200), 20)
        y = x[:, :3].sum(axis=1) + effects + 0.5 * rng.normal(size=4000)
        for queries in (None, np.arange(4000) // 20):
            data = dataset_from_arrays(x, y, query=queries, shuffle=seed)
            scores = train(data, loss="squared", passes=2).model.decision_function(x)
            error = np.sqrt(np.mean((scores[:, 0] - x[:, :3].sum(axis=1)) ** 2))
            errors.setdefault(queries is None, []).append(error)
    assert np.mean(errors[False]) < 1.2 * np.mean(errors[True])
