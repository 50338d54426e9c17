"""Going on from the model of yesterday: the bits of one run over all days in their order."""

import numpy as np
import pytest
from helpers.training_cases import UPDATES, make_data, train_until
from helpers.zarr_cases import write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import (
    AdaGradClassifier,
    InputError,
    Model,
    dataset_from_arrays,
    ingest,
    resume,
    train,
)
from dadagrad.training import execution

MODES = ({"batch_size": 1}, {"batch_size": 9}, {"streams": 3, "rounds": 4})


@settings(max_examples=12)
@given(
    update=st.sampled_from(UPDATES),
    mode=st.sampled_from(MODES),
    labels=st.sampled_from(["binary", "multiclass"]),
    step_size=st.sampled_from(["auto", 0.3]),
    l1=st.sampled_from([0.0, 1e-3]),
)
def test_days_one_by_one_have_the_bits_of_all_at_once(update, mode, labels, step_size, l1):
    days = [make_data((20, 31), seed=seed, labels=labels, weighted=True) for seed in range(3)]
    config = {"update": update, "l1": l1, "step_size": step_size, **mode}
    result = train(days[0], **config)
    for day in days[1:]:
        before = result.model.digest
        after = train(day, initial_model=result)
        assert train(day, initial_model=result).model.digest == after.model.digest
        assert result.model.digest == before
        result = after
    at_once = train(days, **config).model
    assert result.model.digest == at_once.digest
    assert slopes(result.model) == pytest.approx(slopes(at_once))


def test_the_model_says_how_many_rows_earlier_runs_had():
    result = train(make_data((20, 31)), step_size=0.3, passes=2)
    assert "earlier" not in result.model.facts()["trained on"]
    for rows in ("51 rows", "102 rows"):
        result = train(make_data((20, 31), seed=1), initial_model=result)
        assert result.model.facts()["trained on"].endswith(f"after {rows} of earlier runs")


@pytest.mark.parametrize("mode", MODES)
def test_later_days_of_a_ranking_have_the_pairs_of_all_at_once(mode):
    days = [make_data((20, 31), seed=seed, labels="relevance") for seed in range(2)]
    config = {"loss": "ranking", "step_size": 0.3, **mode}
    after = train(days[1], initial_model=train(days[0], **config))
    assert after.model.digest == train(days, **config).model.digest


def slopes(model):
    return model.calibration.slope, model.calibration.offset


def test_raw_files_that_are_not_shuffled_are_learned_from_in_their_order(tmp_path):
    days = [str(tmp_path / f"{day}.csv") for day in range(2)]
    for day in range(2):
        rows = "".join(f"{n % 3 % 2},{n % 7}{day}\n" for n in range(80))
        (tmp_path / f"{day}.csv").write_text("label,c\n" + rows)
    config = {"step_size": 0.3, "shuffle": False, "categories": "c"}
    first = train(days[0], **config)
    ingest(days[0], str(tmp_path / "data"), categories="c", shuffle=False)
    assert train(str(tmp_path / "data"), step_size=0.3).model.digest == first.model.digest
    after = train(days[1], initial_model=first, shuffle=False)
    assert after.model.digest == train(days, **config).model.digest
    assert train(days[0], **config | {"shuffle": True}).model.digest != first.model.digest


def test_the_number_of_streams_and_the_penalty_may_change():
    result = train(make_data(), step_size=0.3)
    for changes in ({"streams": 3}, {"streams": 3, "l1": 1e-3}, {"streams": 2}, {}):
        result = train(make_data(), initial_model=result, step_size=0.3, **changes)
    assert np.isfinite(result.model.weights).all()


@pytest.mark.parametrize("update", ["arow", "dual-averaging"])
def test_the_state_is_saved_with_the_model(tmp_path, update):
    days = [make_data(seed=seed) for seed in range(2)]
    chosen = {"step_size": 0.3} if update == "dual-averaging" else {}
    config = {"update": update, "scale_columns": True, **chosen}
    url = str(tmp_path / "model")
    first = train(days[0], **config)
    first.save(url)
    assert Model.load(url).digest == first.model.digest
    second = train(days[1], initial_model=url)
    assert second.model.digest == train(days, **config).model.digest
    first.save(url, keep_state=False)
    with pytest.raises(InputError, match=r"was saved without the state.* keep_state=True"):
        train(days[1], initial_model=url)


def test_an_object_that_is_not_the_result_of_a_run_is_refused():
    data = dataset_from_arrays(np.eye(6), [0, 1] * 3)
    with pytest.raises(InputError, match="dict is not the result of a run; give one, or the URL"):
        train(data, initial_model={"step_size": 0.3})


def test_labels_that_are_text_keep_their_meaning_and_a_new_one_is_refused():
    X = np.eye(6)
    days = [["cat", "dog", "eel"] * 2, ["dog", "eel"] * 3, ["dog", "fox"] * 3]
    data = [dataset_from_arrays(X, np.array(day, object)) for day in days]
    result = train(data[0], step_size=0.3)
    after = train(data[1], initial_model=result)
    assert after.model.digest == train(data[:2], step_size=0.3).model.digest
    with pytest.raises(InputError, match=r"has the label 'fox', which .* it knows cat, dog, eel"):
        train(data[2], initial_model=result)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_run_from_a_model_resumes_from_its_checkpoints_alone(tmp_path, monkeypatch, scaled):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    days = [write_zarr(make_data(seed=seed), tmp_path / str(seed)) for seed in range(2)]
    config = {"step_size": 0.3, "scale_columns": scaled}
    expected = train(days, **config)
    folder = str(tmp_path / "run")
    for stop_after in (0, 40):
        first = train(days[0], **config)
        train_until(
            lambda event, stop_after=stop_after: event.steps > stop_after, days[1],
            initial_model=first, checkpoints=folder + str(stop_after), save_every=7,
        )  # fmt: skip
        assert resume(folder + str(stop_after)).model.digest == expected.model.digest


def test_settings_that_a_state_cannot_change_are_refused():
    result = train(make_data(), step_size=0.3)
    with pytest.raises(InputError, match="loss was 'hinge' and is 'logistic' now"):
        train(make_data(), initial_model=result, loss="logistic")
    with pytest.raises(InputError, match="the data has 61 features and the model 60"):
        train(make_data(n_features=61), initial_model=result)


def test_later_days_of_svmlight_may_have_new_features(tmp_path):
    for day, lines in enumerate(["1 1:1 3:2\n-1 2:1\n", "1 1:1 7:2\n-1 2:1 5:1\n"]):
        (tmp_path / f"{day}.svm").write_text(lines)
        ingest(str(tmp_path / f"{day}.svm"), str(tmp_path / f"{day}.zarr"))
    days = [str(tmp_path / f"{day}.zarr") for day in range(2)]
    for config in ({"l1": 1e-3}, {"update": "mirror-descent", "l2": 0.1}):
        after = train(days[1], initial_model=train(days[0], step_size=0.3, **config))
        assert after.model.digest == train(days, step_size=0.3, **config).model.digest


def test_features_keep_the_names_of_earlier_days(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    cities, names = ("Bern", "Oslo"), {"city=Bern", "city=Oslo"}
    days = [[{"city": city, "y": n % 2} for n in range(60)] for city in cities]
    first = train(days[0], label="y", categories="city")
    assert set(train(days[1], initial_model=first).model.names.values()) >= names
    folder = str(tmp_path / "run")
    train_until(
        lambda event: event.steps > 20, days[1], initial_model=first, checkpoints=folder,
        save_every=7,
    )  # fmt: skip
    resumed = resume(folder, data=days[1], label="y", categories="city")
    assert set(resumed.model.names.values()) >= names
    later = ingest(days[1], str(tmp_path / "later"), like=first.model)
    assert later.rows == 60
    estimator = AdaGradClassifier.from_model(first).partial_fit(str(tmp_path / "later"))
    assert set(estimator.model_.names.values()) >= names


def test_a_state_that_is_mostly_0_is_saved_whatever_its_size(tmp_path):
    rows = [{"c": "uv"[n % 2], "x": 0.1 * n, "y": "abc"[n % 3]} for n in range(90)]
    train(rows, label="y", average=True, save_to=str(tmp_path / "model"))
    assert train(rows, initial_model=str(tmp_path / "model")).complete


@pytest.mark.parametrize("algorithm", [{"preconditioner": "full"}, {"update": "pa"}])
def test_an_algorithm_in_numpy_refuses_new_features(tmp_path, algorithm):
    for day, n_features in enumerate((2, 3)):
        (tmp_path / f"{day}.svm").write_text(f"1 1:1 {n_features}:2\n-1 2:1\n")
    monday, tuesday = (str(tmp_path / f"{day}.svm") for day in range(2))
    before = train(monday, step_size=0.3, **algorithm)
    with pytest.raises(InputError, match="the data has 3 features and the initial model 2"):
        train(tuesday, initial_model=before)
