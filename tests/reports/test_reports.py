"""Reports say what the model and the run say, on one page that needs nothing else."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.training_cases import make_data, train_until
from helpers.zarr_cases import write_zarr
from sklearn.metrics import roc_auc_score, roc_curve

from dadagrad import (
    InputError,
    Model,
    dataset_from_arrays,
    evaluate,
    export,
    ingest,
    report,
    resume,
    sweep,
    train,
)
from dadagrad.cli import dadagrad
from dadagrad.reports.charts import Axis, Chart, Series
from dadagrad.storage.store import Storage

EVIL = "<script>alert(1)</script>&\"'"


def run(*words):
    return CliRunner().invoke(dadagrad, words)


VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements of a page; raises where they are not nested well."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.seen = []
        self.texts = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def headings(self):
        return re.findall(r"(Learning curve|Holdout|Largest weights|Time and passes|Settings that "
                          r"were tried|Data and settings|Checkpoints|Make it again)",
                          self.text)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A dataset with a hostile column, class and path."""
    folder = tmp_path_factory.mktemp("reports") / "<b>data"
    folder.mkdir()
    draws = np.random.default_rng(0)
    lines = ["label,size," + '"' + EVIL.replace('"', '""') + '"']
    for _ in range(400):
        size, other = draws.normal(size=2)
        label = "<i>yes" if size + 0.3 * draws.normal() > 0 else "no"
        lines.append(f"{label},{size:.4f},{other:.4f}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    ingest([str(folder / "t.csv")], str(folder / "t.zarr"), partition_nnz=200)
    return str(folder / "t.zarr")


def test_a_page_has_everything_and_escapes_what_comes_from_data(table, tmp_path):
    result = train(table, loss="logistic", passes=2, holdout=0.2, step_size=0.3)
    text = report(result, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == text
    page = Page(text)
    assert page.headings() == [
        "Learning curve", "Holdout", "Largest weights", "Time and passes", "Data and settings",
        "Make it again",
    ]  # fmt: skip
    assert not {tag for tag, _ in page.seen} & {"script", "b", "link", "img", "iframe"}
    assert EVIL in page.text
    assert "for <i>yes" in page.text
    assert not re.search(r"(?:https?:)?//(?!www\.w3\.org)", text.replace(table, ""))
    assert sum(tag == "svg" and "role" in attrs for tag, attrs in page.seen) == 5
    numbers = re.findall(r'(?:d|x|y|cx|cy)="([^"]*)"', text)
    assert not any("nan" in value or "inf" in value for value in numbers)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    card, _, again = export(result.model, format="card").partition("## Make it again")
    assert table in again
    assert not re.search(r"(?<!\\)<", card)


def test_the_json_has_the_same_numbers_as_an_evaluation(table, tmp_path):
    train(table, loss="logistic", step_size=0.3).save(str(tmp_path / "model"))
    model = Model.load(tmp_path / "model")
    report(str(tmp_path / "model"), tmp_path / "report.json", holdout=table)
    plain = json.loads((tmp_path / "report.json").read_text())
    kind = plain["format"], plain["version"], plain["status"]
    assert kind == ("dadagrad-report", 1, "complete")
    measured = evaluate(model, table)
    held = plain["holdout"]
    for name in ("error", "auc", "pr_auc", "f1", "log_loss", "calibration_error"):
        assert held[name] == measured[name]
    rates = np.array(held["curves"]["roc"])
    assert np.trapezoid(rates[:, 1], rates[:, 0]) == pytest.approx(held["auc"], abs=2e-3)
    assert plain["model"]["digest"] == model.digest
    (output,) = plain["weights"]
    side, sign = ("for", 1) if output["for"] else ("against", -1)
    place, first = int((sign * model.weights[:, 0]).argmax()), output[side][0]
    largest = int(model.ids[place])
    assert first["weight"] == model.weights[place, 0]
    assert (first["feature"], first["name"]) == (largest, model.names[largest])


def test_a_picture_of_a_curve_lies_on_it():
    draws = np.random.default_rng(1)
    X, y = draws.normal(size=(5_000, 3)), draws.integers(0, 2, 5_000)
    X[:, 0] += y
    data = dataset_from_arrays(X, y)
    model = train(data, loss="logistic", step_size=0.3).model
    curves = evaluate(model, data, curves=True)["curves"]
    scores = model.scores(data.read(0))[:, 0]
    rates = roc_curve(data.read(0).labels[:, 0], scores, drop_intermediate=False)
    points = np.array(curves["roc"])
    assert len(points) <= 201
    assert set(map(tuple, points.round(9))) <= set(zip(*np.round(rates[:2], 9), strict=True))
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(
        roc_auc_score(data.read(0).labels[:, 0], scores), abs=2e-3
    )
    assert points[0].tolist() == [0.0, 0.0]
    assert points[-1].tolist() == [1.0, 1.0]
    shares = np.array(curves["calibration"])
    assert shares[:, 2].sum() == 5_000


def test_a_run_that_stopped_is_reported_from_its_checkpoints(tmp_path):
    url = write_zarr(make_data((60, 50, 40, 70)), tmp_path / "data")
    folder = str(tmp_path / "run")
    options = {"step_size": 0.3, "batch_size": 10, "checkpoints": folder, "save_every": 4}
    train_until(lambda event: event.rows > 150, url, **options)
    page = Page(report(folder))
    assert page.headings() == [
        "Learning curve", "Largest weights", "Checkpoints", "Data and settings", "Make it again",
    ]  # fmt: skip
    assert "stopped" in page.text
    resume(folder)
    plain = json.loads(report(folder, format="json"))
    assert plain["status"] == "complete"
    assert plain["curve"]["rows"][-1] == 220


def test_the_learning_curve_of_one_partition_shows_the_begin():
    curve = train(make_data((3_000,)), step_size=0.3).report["curve"]
    assert curve["rows"][0] <= 256
    assert len(curve["rows"]) >= 5


def test_a_sweep_shows_error_against_weights(tmp_path):
    data = make_data((200, 200))
    best = sweep(data, step_size=[0.1, 0.3], l1=[0.0, 1e-3, 1e-2], holdout=0.2).best
    page = Page(report(best))
    assert "Settings that were tried" in page.headings()
    charts = [attrs["aria-label"] for tag, attrs in page.seen if "aria-label" in attrs]
    assert "error on the rows held out against non-zero weights" in charts
    assert len(json.loads(report(best, format="json"))["sweep"]) == 6


@pytest.mark.parametrize("labels", ["regression", "multiclass", "multilabel", "relevance"])
def test_every_task_has_a_page(labels):
    losses = {"regression": "squared", "relevance": "ranking"}
    data = make_data((60, 50, 40), labels=labels)
    result = train(data, loss=losses.get(labels, "hinge"), holdout=0.3, step_size=0.3)
    page = report(result)
    assert "Holdout" in Page(page).headings()
    assert bool(re.search(r"\d classes · ", page)) == (labels == "multiclass")


def test_weights_of_several_numbers_have_the_names_of_their_columns():
    result = train((np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]])), loss="squared", step_size=0.3)
    document = json.loads(report(result, format="json"))
    titles = [output["classes"] for output in document["weights"]]
    assert titles == [[f"raising label_{n}", f"lowering label_{n}"] for n in (0, 1)]


def test_a_page_says_how_many_outputs_it_leaves_out():
    result = train((np.eye(23), np.arange(23)), step_size=0.3)
    assert "... and 3 more outputs." in report(result)


def test_the_command_writes_a_page_and_does_not_replace_a_file(table, tmp_path):
    model, page = str(tmp_path / "model"), str(tmp_path / "page.html")
    train(table, step_size=0.3).save(model)
    assert run("report", model, "--out", page).exit_code == 0
    assert Path(page).read_text().startswith("<!doctype html>")
    again = run("report", model, "--out", page)
    assert again.exit_code == 2
    assert "there is a file" in again.stderr
    assert run("report", model, "--out", page, "--overwrite").exit_code == 0
    assert json.loads(run("report", model, "--out", "-", "--format", "json").stdout)["model"]
    missing = run("report", str(tmp_path), "--out", "-")
    assert "is not a model or a folder of checkpoints" in missing.stderr


def test_a_report_goes_to_any_store_in_the_form_that_is_asked_for(table):
    text = report(train(table, step_size=0.3), "memory://pages/report.html")
    assert Storage("memory://pages").get("report.html").decode() == text
    with pytest.raises(InputError, match="format must be"):
        report("memory://pages", format="pdf")
    with pytest.raises(InputError, match=r"as \.pdf; give a name that ends in \.html or \.json"):
        report("memory://pages", "memory://pages/report.pdf")
    with pytest.raises(InputError, match="top must be a whole number of at least 0, not -1"):
        report("memory://pages", top=-1)


def test_labels_of_points_do_not_lie_on_one_another():
    points = [(x, 1.0) for x in (0.1, 0.15, 0.75, 0.98)]
    line = Series("", points, labels=["l1 0.0001", "l1 1e-05", "l1 1e-06", "no penalty"])
    axis = Axis("", 0.0, 1.0)
    notes = list(Chart("", axis, axis, [line]).notes(line))
    assert len(notes) >= 2
    boxes = [(x - 7 * len(text) * (end == "end"), 7 * len(text)) for x, _, end, text in notes]
    ends = [begin + width for begin, width in boxes]
    assert all(end < begin for end, (begin, _) in zip(ends, boxes[1:], strict=False))


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0.0, 1.0, False), (0.123, 0.124, False), (0.24, 0.693, False),
                             (406, 14_400, True), (1, 10**9, True), (5, 5, True), (3, 3, False)],
)  # fmt: skip
def test_axes_have_a_few_round_ticks_inside(low, high, log):
    axis = Axis.over([low, high], "x", log=log)
    ticks = axis.ticks()
    assert (1 if log else 3) <= len(ticks) <= 8
    assert all(-1e-6 <= axis.share(tick) <= 1 + 1e-6 for tick in ticks)
    assert 0.0 <= axis.share(low) <= axis.share(high) <= 1.0
