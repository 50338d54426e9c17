"""Quality on real data, where a folder of it is at hand.

``DADAGRAD_DATA`` names a folder with ``imdb/aclImdb_labelled.tsv.xz`` (split, label, id, rating and
text, by tabs) and ``adult_a9a/a9a`` and ``a9a.t`` (svmlight).
"""

import lzma
import os
from pathlib import Path

import pytest

import dadagrad

if "DADAGRAD_DATA" not in os.environ:
    pytest.skip("DADAGRAD_DATA names no folder of real data", allow_module_level=True)
pytestmark = [pytest.mark.data, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def imdb(tmp_path_factory):
    """Datasets of the training and test reviews: binary uni- and bigrams, rows normalised."""
    folder = tmp_path_factory.mktemp("imdb")
    source = Path(os.environ["DADAGRAD_DATA"]) / "imdb" / "aclImdb_labelled.tsv.xz"
    files = {split: folder / f"{split}.tsv" for split in ("train", "test")}
    lines = {split: [] for split in files}
    with lzma.open(source, "rt", encoding="utf-8") as reviews:
        for line in reviews:
            split, label, _, _, text = line.split("\t", 4)
            lines[split].append(f"{label}\t{text}")
    for split, path in files.items():
        path.write_text("".join(lines[split]), encoding="utf-8")
        options = {"ngrams": 2, "hash_bits": 21, "binary": True, "norm": "l2", "shuffle": 0}
        dadagrad.ingest(str(path), str(folder / split), **options)
    return folder


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        *(({"batch_size": size}, 0.098) for size in (1, 97)),
        *(({"batch_size": size, "step_size": 0.3}, 0.0965) for size in (1, 97)),
        *(({"streams": 16, "step_size": step_size}, 0.099) for step_size in ("auto", 0.3)),
        *(({"streams": 64, "step_size": step_size}, 0.102) for step_size in ("auto", 0.3)),
        # A third of the best step size, and three times that, do not diverge.
        *(({"streams": n, "step_size": eta}, 0.13) for n in (16, 64) for eta in (0.1, 0.9)),
    ],
    ids=str,
)
def test_one_pass_over_imdb(imdb, settings, most):
    result = dadagrad.train(str(imdb / "train"), **settings)
    assert dadagrad.evaluate(result.model, str(imdb / "test"))["error"] <= most


@pytest.mark.parametrize(
    "loss", ["hinge", "squared-hinge", "logistic", "multiclass-hinge", "softmax"]
)
def test_one_pass_over_a9a(tmp_path, loss):
    source = Path(os.environ["DADAGRAD_DATA"]) / "adult_a9a"
    for name in ("a9a", "a9a.t"):
        dadagrad.ingest(str(source / name), str(tmp_path / name), format="svmlight")
    model = dadagrad.train(str(tmp_path / "a9a"), loss=loss).model
    measured = dadagrad.evaluate(model, str(tmp_path / "a9a.t"))
    assert measured["error"] <= 0.155  # the best that a linear model does is about 0.15
    assert measured["calibration_error"] <= 0.02
