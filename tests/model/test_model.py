"""Models: scores, labels, probabilities, and their files; lies are in `tests/hostile`."""

import os
import pickle
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from helpers.checkpoint_stores import Fails, Slow, memory_url
from helpers.training_cases import dense_rows
from hypothesis import given
from hypothesis import strategies as st

import dadagrad
from dadagrad import Model
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.storage.arrays import write_arrays
from dadagrad.storage.documents import seal, unseal
from dadagrad.storage.store import Storage

SPACE = {"format": "text", "hash_bits": 6, "ngrams": 2}


def labels_of(task, n_outputs):
    if task == "multiclass":
        return (LabelColumn("class", tuple(float(2 * one) for one in range(n_outputs))),)
    if task == "regression":
        return tuple(LabelColumn(f"y{one}") for one in range(n_outputs))
    return tuple(LabelColumn(f"l{one}", (-1.0, one + 1.0), (3, 4)) for one in range(n_outputs))


def make_model(seed=0, task="binary", n_outputs=1, k=20, loss="logistic"):
    rng = np.random.default_rng(seed)
    return Model(
        n_features=64,
        ids=np.sort(rng.choice(64, k, replace=False)).astype(np.int64),
        weights=rng.normal(size=(k, n_outputs)).astype(np.float32),
        intercept=rng.normal(size=n_outputs),
        loss=loss,
        task=task,
        label_columns=labels_of(task, n_outputs),
        feature_space=FeatureSpace(SPACE),
        names={3: "good", 40: "bad\nä\ud800"},
        report={"steps": 7, "holdout": float("nan"), "loss": 0.1 + 0.2},
    )


def make_rows(seed, n_rows, implicit, scaled):
    rng = np.random.default_rng(seed)
    # Few features are searched for among the weights, and many merged with them.
    counts = rng.integers(0, rng.choice([2, 9]), n_rows)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # Ids up to 100: some the model does not know.
    ids = [np.sort(rng.choice(100, count, replace=False)) for count in counts]
    flat = np.concatenate([*ids, np.zeros(0)]).astype(np.int64)
    values = None if implicit else rng.normal(size=len(flat)).astype(np.float32)
    scale = rng.random(n_rows).astype(np.float32) if scaled else None
    return Rows.from_csr(indptr, flat, values, np.zeros((n_rows, 1)), None, scale)


@given(
    st.integers(0, 1000),
    st.integers(0, 12),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([0, 1, 20, 64]),
)
def test_scores_of_rows_and_of_slices(seed, n_rows, implicit, scaled, n_outputs, k):
    model = make_model(seed, "multilabel", n_outputs, k)
    rows = make_rows(seed, n_rows, implicit, scaled)
    weights = np.zeros((100, n_outputs))
    weights[model.ids] = model.weights
    scores = model.scores(rows)
    assert (scores.dtype, scores.shape) == (np.float64, (n_rows, n_outputs))
    np.testing.assert_allclose(
        scores, dense_rows(rows, 100) @ weights + model.intercept, atol=1e-12
    )
    np.testing.assert_array_equal(
        model.scores(rows.slice(n_rows // 3, n_rows)), scores[n_rows // 3 :]
    )


def test_a_model_that_has_scored_rows_pickles_no_larger():
    model, rows = make_model(), make_rows(0, 12, implicit=False, scaled=False)
    size = len(pickle.dumps(model))
    scores = model.scores(rows)
    pickled = pickle.dumps(model)
    assert len(pickled) == size
    np.testing.assert_array_equal(pickle.loads(pickled).scores(rows), scores)


def test_labels():
    scores = np.array([[-1.0, 2.0, 2.0], [0.0, -1e-300, 1e-300]])
    multiclass = make_model(task="multiclass", n_outputs=3)
    assert multiclass.predict_labels(scores).tolist() == [2.0, 4.0]
    multilabel = make_model(task="multilabel", n_outputs=3)
    assert multilabel.predict_labels(scores).tolist() == [[-1.0, 2.0, 3.0], [-1.0, -1.0, 3.0]]
    regression = make_model(task="regression", n_outputs=3)
    assert regression.predict_labels(scores).tolist() == scores.tolist()
    one = make_model(task="regression", n_outputs=1)
    assert one.predict_labels(scores[:, :1]).tolist() == [-1.0, 0.0]
    assert make_model().predict_labels(scores[:, 1:2]).tolist() == [1.0, -1.0]
    with pytest.raises(InputError, match=r"shape \(2, 3\) were given.*\(n_rows, 1\)"):
        one.predict_labels(scores)


def test_probabilities():
    scores = np.array([[-1e4], [-2.0], [0.0], [2.0], [1e4]])
    binary = make_model().probabilities(scores)
    expected = 1.0 / (1.0 + np.exp(-np.clip(scores[:, 0], -700, 700)))
    np.testing.assert_allclose(binary[:, 1], expected, rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(binary.sum(axis=1), 1.0, rtol=1e-15)
    assert binary[3, 0] == binary[1, 1]  # exact on both sides: 1 - p would lose digits

    many = np.array([[-1.0, 0.0, 3.0], [-1e4, -1e4, -1e4], [-1e4, 1e4, -1e4]])
    classes = make_model(task="multiclass", n_outputs=3).probabilities(many)
    sigmoid = 1.0 / (1.0 + np.exp(-many[0]))
    np.testing.assert_allclose(classes[0], sigmoid / sigmoid.sum(), rtol=1e-15)
    np.testing.assert_array_equal(classes[1:], [[1 / 3] * 3, [0.0, 1.0, 0.0]])

    softmax = make_model(task="multiclass", n_outputs=3, loss="softmax").probabilities(many)
    np.testing.assert_allclose(softmax[0], np.exp(many[0]) / np.exp(many[0]).sum(), rtol=1e-15)
    np.testing.assert_array_equal(softmax[1:], classes[1:])
    columns = make_model(task="multilabel", n_outputs=3).probabilities(many)
    np.testing.assert_allclose(columns[0], sigmoid, rtol=1e-15)
    with pytest.raises(InputError, match="trained with hinge loss"):
        make_model(loss="hinge").probabilities(scores)


def test_the_digest_is_that_of_the_bits_of_weights_and_intercepts():
    model = make_model()
    assert replace(model, weights=np.nextafter(model.weights, 9)).digest != model.digest
    more = replace(model, n_features=model.n_features + 1)
    assert replace(more, ids=more.ids + 1).digest != more.digest == model.digest
    assert replace(model, intercept=model.intercept + 1e-12).digest != model.digest
    assert replace(model, report={}, names={}).digest == model.digest


def test_data_of_another_feature_space_is_refused():
    own = {"format": "svmlight", "zero_based": False}
    for space, change, message in (
        (SPACE, {"n_features": 65}, "the data has 65 features and the model 64"),
        (
            SPACE,
            {"feature_space": FeatureSpace(SPACE | {"ngrams": 3})},
            "has ngrams 3, and the model ngrams 2;",
        ),
        (SPACE, {"feature_space": FeatureSpace()}, r"it has format None"),
        (own, {"feature_space": FeatureSpace(own | {"zero_based": True})}, "feature space"),
        (own, {"n_features": 63}, None),  # a source that numbers its features may lack some
        (own, {"n_features": 71}, None),  # or have more
    ):
        model = replace(make_model(), feature_space=FeatureSpace(space))
        schema = replace(Schema(64, (), feature_space=FeatureSpace(space)), **change)
        with nullcontext() if message is None else pytest.raises(InputError, match=message):
            model.check_compatible(schema)


def test_inconsistent_models_are_refused():
    for change, message in (
        ({"ids": np.array([5, 5], np.int64)}, "increase strictly"),
        ({"ids": np.array([-1, 5], np.int64)}, "increase strictly within 0 to 63"),
        ({"ids": np.array([5, 64], np.int64)}, "increase strictly within 0 to 63"),
        ({"ids": np.array([5], np.int64)}, r"weights of a model are float32, shape \(2, 1\)"),
        ({"ids": np.array([5, 6], np.int32)}, "ids of a model are int32"),
        ({"intercept": np.zeros(2)}, "intercept of a model"),
        ({"task": "sorting"}, "'sorting'"),
        ({"label_columns": ()}, "0 were given"),
        ({"label_columns": (LabelColumn("y"),)}, "'y' has no list of values"),
    ):
        with pytest.raises(InputError, match=message):
            replace(make_model(k=2), **change)


# --- on disk


@pytest.mark.parametrize(
    ("task", "n_outputs", "k"),
    [("binary", 1, 0), ("multiclass", 3, 20), ("multilabel", 2, 20), ("regression", 1, 20)],
)
def test_round_trip(task, n_outputs, k, tmp_path):
    model = make_model(3, task, n_outputs, k)
    for url in (str(tmp_path / "model"), memory_url()):
        model.save(url)
        loaded = Model.load(url)
        assert loaded.digest == model.digest  # the bits of all arrays
        for name in ("ids", "weights", "intercept"):
            before, after = getattr(model, name), getattr(loaded, name)
            assert (before.dtype, before.shape) == (after.dtype, after.shape)
        for name in ("n_features", "loss", "task", "label_columns", "feature_space", "names"):
            assert getattr(loaded, name) == getattr(model, name)
        assert repr(loaded.report) == repr(model.report)


def test_a_replaced_model_and_a_killed_save_leave_nothing_behind(tmp_path):
    make_model(1).save(tmp_path)
    before = set(tmp_path.rglob("*"))
    for name, age in (("model.json#1", 3600), ("model.json#2", 0), ("notes.txt#1", 3600)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    make_model(2).save(tmp_path)
    after = set(tmp_path.rglob("*"))
    # Another save may be writing the second file, and the third is none of ours.
    written = {tmp_path / "model.json#2", tmp_path / "notes.txt#1"}
    assert before & after == {tmp_path / "model.json"}
    assert len(before) == len(after - written) == len(after) - 2
    assert Model.load(tmp_path).digest == make_model(2).digest


def test_a_save_removes_the_parts_of_a_writer_that_was_killed_long_before(tmp_path):
    url = tmp_path / "100 % of #1"
    killed, at_its_first, in_progress = (f"parts-{digit * 32}" for digit in "abc")
    for name in (f"{killed}/000-00000.zst", f"{at_its_first}/000-00000.zst#1", f"{in_progress}/a"):
        (url / name).parent.mkdir(parents=True)
        (url / name).touch()
    for path in (killed, f"{killed}/000-00000.zst", at_its_first, in_progress):
        os.utime(url / path, (time.time() - 90_000, time.time() - 90_000))
    make_model(1).save(url)
    (own,) = {path.name for path in url.iterdir()} - {"model.json", in_progress}
    os.utime(url / own, (time.time() - 90_000, time.time() - 90_000))
    make_model(2).save(url)
    assert (url / in_progress / "a").exists()
    assert len(list(url.iterdir())) == 3
    assert Model.load(url).digest == make_model(2).digest


def test_a_save_whose_parts_are_removed_meanwhile_keeps_the_old_model(tmp_path, monkeypatch):
    def remove_and_write(storage, folder, arrays):
        if "intercept" in arrays:
            storage.delete_prefix(f"{folder}/weights")
        return write_arrays(storage, folder, arrays)

    make_model(1).save(tmp_path)
    monkeypatch.setattr("dadagrad.model.model.write_arrays", remove_and_write)
    with pytest.raises(StorageError, match=r"have been removed while it was saved.*save it again"):
        make_model(2).save(tmp_path)
    assert Model.load(tmp_path).digest == make_model(1).digest


@pytest.mark.parametrize("how", ["raises", "raises torn"])
def test_a_save_that_fails_leaves_the_old_model(how):
    url = memory_url()
    old, new = make_model(1), make_model(2)
    old.save(url)
    n_keys = len(Storage(url).list())
    for count in range(1, n_keys + (how == "raises")):  # the last is the document, never torn
        with pytest.raises(StorageError, match="the store is full"):
            new.save(Fails(url, count, how))
        assert Model.load(url).digest == old.digest
        if count < n_keys:
            # What was written goes; a failed write of model.json may yet have arrived.
            assert len(Storage(url).list()) == n_keys
    new.save(url)
    assert Model.load(url).digest == new.digest


def test_a_model_of_the_first_version_is_read(tmp_path):
    """Its digest was another one."""
    model = make_model()
    model.save(tmp_path)
    body = unseal((tmp_path / "model.json").read_bytes(), "test") | {"version": 1, "digest": "0"}
    (tmp_path / "model.json").write_bytes(seal(body, "test"))
    assert Model.load(tmp_path).digest == model.digest


def test_a_model_whose_document_cannot_be_written_leaves_no_parts(tmp_path):
    (tmp_path / "model.json" / "folder").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"cannot write model\.json"):
        make_model().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_replaced_while_it_is_read():
    url = memory_url()
    make_model(1).save(url)
    slow = Slow(url, lambda: make_model(2).save(url))
    assert Model.load(slow).digest == make_model(2).digest


def test_a_report_is_saved_with_its_own_model_alone(tmp_path):
    first, second = make_model(1), make_model(2)
    first.save(tmp_path)
    first.report["holdout"] = 0.5
    first.save_report(tmp_path)
    assert Model.load(tmp_path).report["holdout"] == 0.5
    second.save(tmp_path)
    with pytest.raises(InputError, match=r"is another one, whose report stays as it is"):
        first.save_report(tmp_path)
    assert Model.load(tmp_path).digest == second.digest


def test_every_damaged_part_is_noticed(tmp_path):
    make_model().save(tmp_path)
    for path in tmp_path.rglob("*.zst"):
        data = path.read_bytes()
        for damaged in (data[:-1] + bytes([data[-1] ^ 16]), b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(CorruptionError, match=rf"{path.name}.*; restore the model"):
                Model.load(tmp_path)
            path.write_bytes(data)
    Model.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body.update(format="x"), "not the description of a model"),
        (lambda body: body["arrays"][0].update(dtype="<u8"), "ids of a model are uint64"),
        (lambda body: body["arrays"].pop(1), "does not describe a model: 'weights'"),
        (lambda body: body.pop("loss"), "loss is missing"),
        (lambda body: body.update(version=9), r"version 9.*reads version 1 or 2"),
        (lambda body: body["schema"]["feature_space"].update(hash_bits=10**12), "is 1 to 31"),
    ],
)
def test_a_description_that_lies(change, message):
    url = memory_url()
    make_model().save(url)
    storage = Storage(url)
    document = storage.get("model.json")
    body = unseal(document, "test")
    change(body)
    storage.put("model.json", seal(body, "test"))
    with pytest.raises((CorruptionError, InputError), match=message):
        Model.load(url)
    storage.put("model.json", document.replace(b'"steps":7', b'"steps":8'))
    with pytest.raises(CorruptionError, match=r"damaged.*; restore the model"):
        Model.load(url)


def test_a_folder_of_something_else():
    for key, what in (
        ("zarr.json", "a dataset"),
        ("part-0.parquet", "a dataset"),
        ("manifest-000000000001.json", "the checkpoints of a run"),
    ):
        url = memory_url()
        Storage(url).put(key, b"{}")
        with pytest.raises(InputError, match=f"no model at {url}: it is {what}"):
            Model.load(url)
        with pytest.raises(InputError, match=f"holds {what}"):
            make_model().save(url)
        assert Storage(url).list() == [key]
    with pytest.raises(InputError, match=r"there is no model\.json"):
        Model.load(memory_url())


def test_a_result_in_the_place_of_a_model_is_named(tmp_path):
    result = dadagrad.train((np.eye(2), [0, 1]), step_size=0.5)
    swept = dadagrad.sweep((np.eye(2), [0, 1]), step_size=[0.1, 0.5])
    for use in (
        lambda: dadagrad.evaluate(result, (np.eye(2), [0, 1])),
        lambda: dadagrad.predict(result, np.eye(2), tmp_path / "a.csv"),
        lambda: dadagrad.export(result, tmp_path / "a.csv"),
        lambda: dadagrad.report(swept),
    ):
        with pytest.raises(InputError, match=r"a \w+Result was given .* `result\.model`"):
            use()
    assert not list(tmp_path.iterdir())
