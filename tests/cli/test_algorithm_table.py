"""README's table of what runs where is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dadagrad.algorithm import is_compiled
from dadagrad.cli import algorithm_options
from dadagrad.config import TrainConfig
from dadagrad.data.ingest import ingest
from dadagrad.model import Model
from dadagrad.synthetic import Corpus

README = Path(__file__).parents[2] / "README.md"
N_FEATURES = 300


def table() -> list[tuple[str, list[str]]]:
    """The options of every line and variant, with the six cells beside them."""
    text = README.read_text("utf-8")
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
        ("--update", algorithm_options.UPDATES),
        ("--metric", algorithm_options.METRICS[1:]),
        ("--regularizer", algorithm_options.REGULARIZERS),
        ("--domain", algorithm_options.DOMAINS),
    ):
        assert {name for what, *rest in shown if what == option for name in rest} == set(names)


@pytest.mark.parametrize(("options", "cells"), table(), ids=lambda value: str(value)[:40])
def test_a_line_of_the_table(run, rows, tmp_path, options, cells):
    online, batches, cluster, local_steps, resumes, runs = cells
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
        assert is_compiled(config) == (runs == "compiled")
    assert resumes == "yes"
    model = tmp_path / "local"
    answer = run("train", rows, "--model", model, *given, "--exchange", "local-steps", "--json")
    if local_steps == "no":
        assert re.search("streams that walk apart|merges the sums of each coordinate", answer.error)
    else:
        assert local_steps == "yes"
        config = TrainConfig.from_json(Model.load(model).report["config"])
        assert (config.exchange, config.batch_size) == ("local-steps", 1)
    if cluster == "no":
        refused = run("train", rows, "--model", tmp_path / "none", *given, "--workers", "1")
        assert "row by row, which no cluster can share" in refused.error
    else:
        assert cluster == batches == "yes"
