"""``dadagrad inspect``."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dadagrad import Model, TrainConfig, ingest, open_dataset, train


def test_a_model(run, places):
    result = run("inspect", places.model, "--top", 3, "--json").json
    assert (result["kind"], result["config"]["loss"]) == ("model", "logistic")
    assert result["training"]["steps"] == 3000
    model = Model.load(places.model)
    facts = model.n_features, np.count_nonzero(model.weights), model.digest
    assert tuple(result["model"][name] for name in ("features", "nonzeros", "digest")) == facts
    (output,) = result["weights"]
    for side, sign in (("for", 1), ("against", -1)):
        largest = np.argsort(-sign * model.weights[:, 0])[:3]
        assert [(weight["feature"], weight["weight"]) for weight in output[side]] == [
            (model.ids[place], model.weights[place, 0]) for place in largest
        ]
    shown = run("inspect", places.model, "--top", 1).lines
    raising, lowering = (model.weights[:, 0].argmax(), model.weights[:, 0].argmin())
    assert shown[-1] == " ".join(
        f"{model.weights[place, 0]:+#.4g} {model.ids[place] + 1}" for place in (raising, lowering)
    )  # ids of the file begin at 1
    assert f"for 1: {(model.weights > 0).sum()} weights for -1: " in shown[-2]


def test_a_model_of_many_classes_with_names(run, tmp_path):
    source = tmp_path / "words.vw"
    source.write_text("".join(f"{k} |w word{k} also\n" for k in (1, 2, 3)) * 20)
    ingest(source, str(tmp_path / "data"), format="vw", hash_bits=12, keep_names=True)
    train(str(tmp_path / "data"), step_size=0.5).model.save(tmp_path / "model")
    outputs = run("inspect", tmp_path / "model", "--top", 1, "--json").json["weights"]
    assert [(output["output"], output["for"][0]["name"]) for output in outputs] == [
        ("1", "w^word1"), ("2", "w^word2"), ("3", "w^word3"),
    ]  # fmt: skip
    shown = run("inspect", tmp_path / "model", "--top", 1).stdout
    assert "\nfor 2: " in shown
    assert "  w^word2  " in shown


def test_names_and_classes_control_no_terminal(run, tmp_path):
    names, classes = ["a\nb", "\x1b[31mred", "\u202eabc"], ["no\n", "\x1b[2Jyes\u202e"]
    rows = [{"label": classes[n % 2]} | dict.fromkeys(names, n % 2 + 0.5) for n in range(40)]
    train(rows, label="label", step_size=0.5).model.save(tmp_path / "model")
    ingest(rows, str(tmp_path / "data"), label="label")
    for words in (["inspect", "model"], ["inspect", "data"], ["evaluate", "model", "data"]):
        shown = run(*(tmp_path / each if each in ("model", "data") else each for each in words))
        assert all(line.isprintable() for line in shown.stdout.split("\n"))
    features = [line.split()[-1] for line in run("inspect", tmp_path / "model").lines[-3:]]
    assert sorted(features) == ["\\u202eabc", "\\x1b[31mred", "a\\nb"]


def test_a_model_names_its_settings_as_the_options_do(run, places, tmp_path):
    train(str(places.train), fit_intercept=False, step_size=0.3).save(str(tmp_path / "model"))
    lines = run("inspect", tmp_path / "model").lines
    assert {"settings step size 0.3, no intercept", "intercept 0"} <= {*lines}


def test_a_dataset(run, places):
    data = open_dataset(str(places.train))
    result = run("inspect", places.train, "--json").json
    assert result["bytes"] == sum(p.stat().st_size for p in places.train.rglob("*") if p.is_file())
    negative = result["labels"][0]["values"]["-1"]
    assert run("inspect", places.train).lines == [
        "rows 3,000", "features 400", f"partitions {len(data.partitions)}",
        f"non-zeros {data.nnz:,} ({data.nnz / 3000:.1f} a row)",
        f"label -1 ({negative:,}), 1 ({3000 - negative:,})", "source svmlight",
        f"size {result['bytes'] / 1000:.1f} kB", f"digest {data.digest}",
    ]  # fmt: skip


def test_a_dataset_names_the_column_of_its_label_and_its_queries(run, tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n" + "1,good\n2,bad\n" * 3)
    (tmp_path / "b.txt").write_text("1 qid:7 1:1\n0 qid:7 1:2\n")
    run("ingest", tmp_path / "a.csv", "--label", "kind", "--out", tmp_path / "a.zarr")
    run("ingest", tmp_path / "b.txt", "--out", tmp_path / "b.zarr")
    assert "label 'kind' bad (3), good (3)" in run("inspect", tmp_path / "a.zarr").lines
    assert run("inspect", tmp_path / "b.zarr").lines[0] == "rows 2, in queries"


def test_checkpoints_and_their_damage(run, places, tmp_path):
    config = TrainConfig(step_size=0.2, passes=2)
    options = {"save_every": 3000, "keep": 9, "metadata": {"model": "somewhere"}}
    train(str(places.train), config, checkpoints=str(tmp_path), **options)
    result = run("inspect", tmp_path, "--json").json
    assert (result["kind"], result["notes"]["model"], result["config"]["passes"]) == (
        "checkpoints", "somewhere", 2,
    )  # fmt: skip
    first, *others = result["checkpoints"]
    assert (first["step"], first["rows"], first["valid"]) == (6000, 6000, True)
    assert all(info["valid"] for info in others)
    assert "step 6,000" in run("inspect", tmp_path).lines

    part = next(tmp_path.glob("000000006000-*/000-00000.zst"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert run("inspect", tmp_path, "--json").json["checkpoints"][0]["valid"]
    answer = run("inspect", tmp_path, "--verify", "--json")
    assert answer.code == 2
    assert "manifest-000000006000.json cannot be used" in answer.stderr
    damaged = json.loads(answer.stdout)["checkpoints"]
    assert [info["step"] for info in damaged if not info["valid"]] == [6000]
    lines = run("inspect", tmp_path, "--verify").lines
    assert "step 6,000 (not usable)" in lines
    assert lines[0] == f"checkpoints {len(damaged)}, every byte checked"


def test_an_unknown_url_is_one_error(run, places, tmp_path):
    (tmp_path / "file").write_text("x")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "table.parquet")
    assert "table.parquet: there is no column 'indices'" in run("inspect", tmp_path).error
    for url in (tmp_path / "none", tmp_path / "file"):
        assert "is not a model, a dataset or a folder of checkpoints" in run("inspect", url).error
    assert "make one with `dadagrad ingest" in run("inspect", tmp_path / "file").error
    assert "--verify is for checkpoints" in run("inspect", places.train, "--verify").error
