"""The page of formats is a specification: a reader that knows only that page agrees."""

import json

import numpy as np
import pytest
from helpers.format_reader import read_model, read_partitions, read_schema, scores

import dadagrad

TEXT = "yes\tgood film\nno\tbad film film\nyes\tvery good\nno\tvery bad plot\n" * 5
TABLE = "colour,size,weight\nred,1.5,2\nblue,2.5,1\nred,,3\ngreen,0.5,2\n" * 5
SVMLIGHT = "1 3:0.5 9:2\n2 1:1\n3 3:-1 4:0.25\n" * 5


@pytest.mark.parametrize(
    ("name", "content", "options", "settings"),
    [
        ("a.tsv", TEXT, {"format": "text", "norm": "l2", "hash_bits": 10}, {"loss": "logistic"}),
        ("a.csv", TABLE, {"label": "colour", "hash_bits": 10}, {"loss": "multiclass-hinge"}),
        ("a.svmlight", SVMLIGHT, {}, {"loss": "squared"}),
    ],
    ids=["text", "table", "svmlight"],
)
def test_another_program_reads_a_dataset_and_predicts_with_a_model(
    tmp_path, name, content, options, settings
):
    (tmp_path / name).write_text(content)
    data, folder = tmp_path / "data.zarr", tmp_path / "model"
    dadagrad.ingest(tmp_path / name, data, **options)
    result = dadagrad.train(str(data), step_size=0.1, **settings)
    result.model.save(str(folder))
    body, arrays = read_model(folder)
    assert body["task"] == result.model.task
    assert json.loads(arrays["names"].tobytes()) == {
        str(key): text for key, text in result.model.names.items()
    }
    dataset = dadagrad.open_dataset(str(data))
    schema, _ = read_schema(data)
    assert schema["n_features"] == dataset.schema.n_features
    for number, partition in enumerate(read_partitions(data)):
        rows = dataset.read(number)
        columns = [f"obs/{column}" for column in dataset.schema.label_names]
        np.testing.assert_array_equal(
            np.column_stack([partition.arrays[column] for column in columns]), rows.labels
        )
        expected = result.model.scores(rows)
        np.testing.assert_allclose(scores(partition, arrays), expected, rtol=1e-6, atol=1e-9)
