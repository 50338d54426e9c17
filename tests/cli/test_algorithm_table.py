"""The table of the guide to algorithms is true."""

import re
import shlex
from pathlib import Path

import pytest

from dadagrad import Model, TrainConfig, ingest
from dadagrad.data.synthetic import Corpus
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.regularizers import REGULARIZERS
from dadagrad.optim.updates import UPDATES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "algorithms.md"
N_FEATURES = 100


def table():
    """The options of every line and variant, with the six cells beside them."""
    text = GUIDE.read_text("utf-8")
    match = re.search(r"<!-- algorithms -->\n(.*?)<!-- /algorithms -->", text, re.DOTALL)
    variants = []
    for line in match[1].splitlines()[2:]:
        options, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        first, *others = re.findall("`([^`]*)`", options)
        name = first.split()[0]
        variants += [(given, cells) for given in (first, *(f"{name} {more}" for more in others))]
    return variants


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    Corpus(30, N_FEATURES, 6.0, seed=1).write_text(folder / "rows.svmlight")
    ingest(folder / "rows.svmlight", str(folder / "data"), n_features=N_FEATURES)
    return str(folder / "data")


def test_every_choice_is_in_the_table():
    shown = [shlex.split(options) for options, _ in table()]
    for option, names in (
        ("--update", tuple(UPDATES)),
        ("--preconditioner", tuple(PRECONDITIONERS)[1:]),
        ("--regularizer", tuple(REGULARIZERS)[:-1]),
    ):
        assert {words[1].partition(":")[0] for words in shown if words[0] == option} == set(names)


@pytest.mark.parametrize(("options", "cells"), table(), ids=lambda value: str(value)[:40])
def test_a_line_of_the_table(run, rows, tmp_path, options, cells):
    online, batches, cluster, streams, resumes, runs = cells
    given = shlex.split(options)
    update = UPDATES.make(given[1]) if given[0] == "--update" else None
    if "--step-size" not in given and (update is None or update.has_step_size):
        given += ["--step-size", "0.1"]
    model, command = tmp_path / "model", ("train", rows, *given, "--json", "--overwrite", "--model")
    for cell, batch_size in ((online, 1), (batches, 10)):
        folder = tmp_path / f"run{batch_size}"
        answer = run(*command, model, "--batch-size", batch_size, "--checkpoints", folder)
        if cell == "no":
            assert "learns row by row" in answer.error
        else:
            assert cell == resumes == "yes"
            digest = answer.json["digest"]
            assert run("resume", folder, "--json").json["digest"] == digest
            config = TrainConfig.from_json(Model.load(model).report["config"])
            assert config.has_kernels == (runs == "compiled")
    answer = run(*command, model, "--streams", 16)
    if streams == "no":
        assert "merges the sums of each coordinate" in answer.error
    else:
        assert (streams, answer.json["batch_size"]) == ("yes", 1)
    if cluster == "no":
        refused = run(*command, model, "--workers", "1")
        assert "row by row, which no cluster can share" in refused.error
    else:
        assert cluster == batches == "yes"
