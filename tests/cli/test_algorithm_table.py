"""The table of the guide to algorithms is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dadagrad.config import TrainConfig
from dadagrad.data.ingest.ingest import ingest
from dadagrad.data.synthetic import Corpus
from dadagrad.model.model import Model
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.regularizers import REGULARIZERS
from dadagrad.optim.updates import UPDATES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "algorithms.md"
N_FEATURES = 300


def table() -> list[tuple[str, list[str]]]:
    """The options of every line and variant, with the six cells beside them."""
    text = GUIDE.read_text("utf-8")
    match = re.search(r"<!-- algorithms -->\n(.*?)<!-- /algorithms -->", text, re.DOTALL)
    assert match is not None
    variants = []
    for line in match[1].splitlines()[2:]:
        options, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        first, *others = re.findall("`([^`]*)`", options)
        name = first.split()[0]
        variants += [(given, cells) for given in (first, *(f"{name} {more}" for more in others))]
    return variants


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("table")
    Corpus(30, N_FEATURES, 6.0, seed=1).write_text(folder / "rows.svmlight")
    ingest(folder / "rows.svmlight", str(folder / "data"), n_features=N_FEATURES)
    return str(folder / "data")


def test_every_choice_is_in_the_table():
    shown = {tuple(shlex.split(options)[:2]) for options, _ in table()}
    for option, names in (
        ("--update", UPDATES.names),
        ("--preconditioner", PRECONDITIONERS.names[1:]),
        ("--regularizer", REGULARIZERS.names[:-1]),
    ):
        values = {
            value.partition(":")[0] for key, *rest in shown if key == option for value in rest
        }
        assert values == set(names)


@pytest.mark.parametrize(("options", "cells"), table(), ids=lambda value: str(value)[:40])
def test_a_line_of_the_table(run, rows, tmp_path, options, cells):
    online, batches, cluster, streams, resumes, runs = cells
    given = shlex.split(options)
    if "--step-size" not in given:
        given += ["--step-size", "0.1"]
    for number, (cell, more) in enumerate(
        ((online, ["--batch-size", "1"]), (batches, ["--batch-size", "10"]))
    ):
        model = tmp_path / f"model{number}"
        checkpoints = ["--checkpoints", tmp_path / f"run{number}"]
        answer = run("train", rows, "--model", model, *given, *more, *checkpoints, "--json")
        if cell == "no":
            assert "learns row by row" in answer.error
            continue
        assert cell == "yes"
        digest = answer.json["digest"]
        assert run("resume", tmp_path / f"run{number}", "--json").json["digest"] == digest
        config = TrainConfig.from_json(Model.load(model).report["config"])
        assert config.has_kernels == (runs == "compiled")
    assert resumes == "yes"
    model = tmp_path / "local"
    answer = run("train", rows, "--model", model, *given, "--streams", 16, "--json")
    if streams == "no":
        assert re.search("merges the sums of each coordinate", answer.error)
    else:
        assert streams == "yes"
        config = TrainConfig.from_json(Model.load(model).report["config"])
        assert (config.streams, config.batch_size) == (16, 1)
    if cluster == "no":
        refused = run("train", rows, "--model", tmp_path / "none", *given, "--workers", "1")
        assert "row by row, which no cluster can share" in refused.error
    else:
        assert cluster == batches == "yes"
