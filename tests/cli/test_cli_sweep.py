"""``dadagrad sweep``: the table, the best model, and the files of the path."""

import csv
import json
import signal
from xml.etree import ElementTree

from dadagrad import Model, sweep

GRID = ("--step-size", "0.05,0.4", "--l1", "0,1e-3", "--holdout", "0.1")


def test_the_best_model_is_saved_and_the_path_written(run, places, tmp_path):
    model, files = (
        tmp_path / "model",
        [tmp_path / f"path.{kind}" for kind in ("json", "csv", "svg")],
    )
    paths = [argument for file in files for argument in ("--path", file)]
    answer = run("sweep", places.train, "--model", model, *GRID, "--loss", "hinge,logistic", *paths)
    expected = sweep(
        str(places.train), loss=["hinge", "logistic"], step_size=[0.05, 0.4], l1=[0, 1e-3],
        holdout=0.1,
    )  # fmt: skip
    assert Model.load(model).digest == expected.best.model.digest
    marked = [line for line in answer.lines if line.startswith("* ")]
    assert len(marked) == 1
    assert marked[0].split()[1] == expected.best.model.loss
    assert len([line for line in answer.lines if "hinge" in line or "logistic" in line]) == 8
    rows = json.loads(files[0].read_text())
    assert [row["nonzeros"] for row in rows] == [row["nonzeros"] for row in expected.path]
    with files[1].open() as file:
        assert [float(row["l1"]) for row in csv.DictReader(file)] == [0.0, 1e-3]
    picture = ElementTree.parse(files[2]).getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"non-zero weights", "l1 0.001"} <= {each.text for each in picture.iter()}
    again = run("sweep", places.train, "--model", model, "--overwrite", *GRID, "--json").json
    assert len(again["settings"]) == 4


def test_a_grid_may_be_in_a_file(run, places, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(
        'loss = ["hinge", "logistic"]\nstep_size = [0.1, 0.3]\nl1 = 1e-4\nholdout = 0.2\n'
    )
    sweep = ("sweep", places.train, "--json", "--overwrite", "--model", tmp_path / "m")
    options = ("--loss", "hinge,logistic", "--step-size", "0.1,0.3", "--holdout", "0.2")
    for more in ((), ("--loss", "logistic"), ("--holdout", places.test)):
        by_file = run(*sweep, "--config", file, *more).json
        by_options = run(*sweep, *options, "--l1", "1e-4", *more).json
        losses = [
            [each["progressive_loss"] for each in answer["settings"]]
            for answer in (by_file, by_options)
        ]
        assert losses[0] == losses[1]


def test_a_file_without_a_loss_is_refused(run, places, tmp_path):
    (tmp_path / "grid.toml").write_text("loss = []")
    sweep = ("sweep", places.train, "--model", tmp_path / "m", "--config", tmp_path / "grid.toml")
    assert run(*sweep).error.endswith("grid.toml: loss must have at least one name")


def test_the_path_of_models_without_weights_is_written_but_not_drawn(run, places, tmp_path):
    picture, table = tmp_path / "path.svg", tmp_path / "path.csv"
    files = ("--path", picture, "--path", table)
    sizes = ("--step-size", "0.1", "--l1", "100,1000")
    refused = run("sweep", places.train, "--model", tmp_path / "m", *sizes, *files)
    assert refused.code == 2
    assert "no setting has a non-zero weight to draw; give smaller penalties" in refused.stderr
    assert refused.stdout.endswith(f"saved to {tmp_path / 'm'}.\n")
    assert len(table.read_text().splitlines()) == 3
    assert not picture.exists()


def test_a_file_is_replaced_with_overwrite_alone(run, places, tmp_path):
    path = tmp_path / "path.csv"
    path.write_text("mine")
    command = ("sweep", places.train, "--model", tmp_path / "m", *GRID, "--path", path)
    assert f"there is a file at {path} already" in run(*command).error
    assert (path.read_text(), (tmp_path / "m").exists()) == ("mine", False)
    run(*command, "--overwrite")
    assert path.read_text().startswith("loss,")


def test_wrong_input_is_refused_in_one_line(run, places, tmp_path):
    command = ("sweep", places.train, "--model", tmp_path / "m", "--step-size", "0.1,0.2")
    for options, message in (
        (("--path", f"{__file__}/path.csv"), "is not a folder that may be written to"),
        (("--path", "path.txt"), "--path path.txt must end in .json, .csv or .svg"),
        (("--loss", "hinge,squared"), "loss 'squared' cannot be compared with others"),
        (("--loss", "hinges"), "'hinges'"),
        (("--holdout", "2"), "--holdout 2 is not a share of the rows"),
        (("--holdout", "test.zarr"), "no dataset at"),
    ):
        assert message in run(*command, *options).error
        assert not (tmp_path / "m").exists()


def test_a_sweep_that_is_stopped_ends_with_the_code_of_the_signal(
    run, stop_after, places, tmp_path
):
    stop_after(1, signal.SIGTERM)
    answer = run("sweep", places.train, "--model", tmp_path / "model", *GRID, "--passes", "9")
    assert (answer.code, "nothing was saved" in answer.stderr) == (143, True)
