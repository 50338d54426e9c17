"""``dadagrad inspect``."""

from __future__ import annotations

import numpy as np
import pytest

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import open_dataset
from dadagrad.data.ingest import ingest
from dadagrad.model import Model
from dadagrad.training.run import train


def test_a_model(run, places):
    result = run("inspect", places.model, "--top", 3, "--json").json
    model = Model.load(places.model)
    assert result["kind"] == "model"
    assert result["loss"] == "logistic"
    assert result["features"] == model.n_features
    assert result["nonzeros"] == np.count_nonzero(model.weights)
    assert result["sparsity"] == pytest.approx(1 - result["nonzeros"] / model.n_features)
    assert result["training"]["steps"] == 3000
    assert result["config"]["loss"] == "logistic"
    (output,) = result["outputs"]
    largest = np.sort(np.abs(model.weights[:, 0]))[::-1][:3]
    assert [abs(weight["weight"]) for weight in output["weights"]] == largest.tolist()
    first = output["weights"][0]
    assert model.weights[np.searchsorted(model.ids, first["feature"]), 0] == first["weight"]
    text = run("inspect", places.model, "--top", 1).stdout
    assert f"  {first['feature']}  {first['weight']:.5g}\n" in text


def test_a_model_of_many_classes_with_names(run, tmp_path):
    source = tmp_path / "words.vw"
    source.write_text("".join(f"{k} |w word{k} also\n" for k in (1, 2, 3)) * 20)
    ingest(source, str(tmp_path / "data"), format="vw", hash_bits=12, keep_names=True)
    result = train(str(tmp_path / "data"), TrainConfig(step_size=0.5))
    result.model.save(tmp_path / "model")
    outputs = run("inspect", tmp_path / "model", "--top", 1, "--json").json["outputs"]
    assert [output["output"] for output in outputs] == ["1", "2", "3"]
    assert [output["weights"][0]["name"] for output in outputs] == [
        "w^word1", "w^word2", "w^word3",
    ]  # fmt: skip
    text = run("inspect", tmp_path / "model", "--top", 1).stdout
    assert "largest weights of 2 (intercept" in text
    assert "  w^word2  " in text


def test_data(run, places):
    result = run("inspect", places.train, "--json").json
    data = open_dataset(str(places.train))
    assert result["kind"] == "dataset"
    assert result["examples"] == 3000
    assert result["features"] == 400
    assert result["nnz"] == data.nnz
    assert result["partitions"] == len(data.partitions)
    stored = sum(path.stat().st_size for path in places.train.rglob("*") if path.is_file())
    assert result["bytes"] == stored
    (label,) = result["labels"]
    assert sum(label["values"].values()) == 3000
    assert set(label["values"]) == {"-1", "1"}
    text = run("inspect", places.train).stdout
    assert "examples         3,000\n" in text
    assert f"  1   {label['values']['1']:,}\n" in text


def test_data_in_memory(run, places):
    ingest(places.text, "memory://inspected/data")
    result = run("inspect", "memory://inspected/data", "--json").json
    assert result["bytes"] > 10_000
    assert result["examples"] == 3000


def test_checkpoints(run, places, tmp_path):
    train(
        str(places.train),
        TrainConfig(step_size=0.2, passes=2),
        checkpoints=str(tmp_path / "c"),
        save_every=3000,
        keep=9,
        notes={"model": "somewhere"},
    )
    result = run("inspect", tmp_path / "c", "--json").json
    assert result["kind"] == "checkpoints"
    found = result["checkpoints"]
    assert found[0]["step"] == 6000
    assert found[0]["examples"] == 6000
    assert all(item["valid"] for item in found)
    assert result["notes"]["model"] == "somewhere"
    assert result["config"]["passes"] == 2
    text = run("inspect", tmp_path / "c").stdout
    assert "step 6,000\n" in text

    part = next((tmp_path / "c").glob("000000006000-*/000-00000.zst"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert run("inspect", tmp_path / "c", "--json").json["checkpoints"][0]["valid"]
    damaged = run("inspect", tmp_path / "c", "--verify", "--json").json["checkpoints"]
    assert [item["step"] for item in damaged if not item["valid"]] == [6000]
    assert "(not usable)" in run("inspect", tmp_path / "c", "--verify").stdout


def test_nothing_known(run, places, tmp_path):
    (tmp_path / "file").write_text("x")
    for url in (tmp_path, tmp_path / "none", tmp_path / "file"):
        assert "is no model, no dataset and no folder of checkpoints" in run("inspect", url).error
    assert "--verify is for checkpoints" in run("inspect", places.train, "--verify").error
