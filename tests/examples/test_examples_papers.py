"""The experiments of ``examples/papers`` at small sizes."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dadagrad import evaluate
from dadagrad.optim.updates import DualAveraging, MirrorDescent
from examples.papers import __main__ as program
from examples.papers import record
from examples.papers.algorithms import learn, make_dataset
from examples.papers.record import Options, Outcome


def make(name):
    """The outcome of an experiment at a small size."""
    return importlib.import_module(f"examples.papers.{name}").run(Options(quick=True))


def rows(outcome):
    found = outcome.tables[0]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


EXPERIMENTS = (
    "motivating_example", "per_coordinate", "strongly_convex", "projected_gradient",
    "text_classification", "ada_fd_classification", "ranking", "digits_network",
)  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_fills_its_tables(name):
    if name == "digits_network":
        pytest.importorskip("torch", reason="PyTorch, of the extra torch, takes gigabytes")
    for table in make(name).tables:
        assert table.rows
        numbers = [cell for row in table.rows for cell in row if isinstance(cell, float)]
        assert np.isfinite(numbers).all()


def test_projections_are_timed_and_must_agree(monkeypatch):
    assert all(row["heap"] > 0 for row in rows(make("l1_projections")))
    script = importlib.import_module("examples.papers.l1_projections")
    heap = script.BALLS["heap"]
    monkeypatch.setitem(script.BALLS, "pivots", lambda n, radius: heap(n, 0.1 * radius))
    with pytest.raises(RuntimeError, match="do not agree"):
        script.run(Options(quick=True))


def test_one_preconditioner_serves_the_grid_of_online_regression():
    """The best setting has the regret of the package's own updates at that setting."""
    script = importlib.import_module("examples.papers.ada_fd_regression")
    drawn, targets = script.draw(30, 20)
    for row in rows(make("ada_fd_regression")):
        if row["preconditioner"] == "RADAGRAD":  # a mean over projections
            continue
        make_preconditioner = script.algorithms(1)[row["preconditioner"]][0]
        kind = {"dual averaging": DualAveraging, "mirror descent": MirrorDescent}[row["update"]]
        update = kind(row["step size"], make_preconditioner(delta=row["delta"]))
        state, regret = update.init(20, 1), 0.0
        for x, target in zip(drawn, targets, strict=True):
            error = float(x @ update.weights(state)[:, 0]) - target
            regret += abs(error)
            state = update.step(state, np.sign(error) * x[:, None])
        assert row["regret"] == pytest.approx(regret, rel=1e-6)


def test_kernels_are_those_of_scipy():
    script = importlib.import_module("examples.papers.digits_kernels")
    support = np.random.default_rng(0).random((5, 3))
    kernel = script.Kernel(support)
    distances = cdist(support, support, "sqeuclidean")
    width = script.WIDTH * distances.mean()
    np.testing.assert_allclose(kernel(support), np.exp(-distances / width))
    assert all(row["test error"] < 0.3 for row in rows(make("digits_kernels")))


def test_parts_of_the_census_are_one_pass():
    script = importlib.import_module("examples.papers.census_income")
    digits = importlib.import_module("examples.papers.sets").digits()
    test = make_dataset(digits.test_x, digits.test_y == 1, np.arange(len(digits.test_y)))
    parts = script.shuffle(digits.x, digits.y == 1, 0)
    together = make_dataset(
        digits.x, digits.y == 1, np.random.default_rng(0).permutation(len(digits.y))
    )
    for name, value in (("RDA", 1.0), ("AdaGrad-RDA", 0.1), ("AROW", 1.0)):
        followed = script.follow(name, value, 0.0, parts, test)
        result = learn(name, together, value)
        assert followed[-1, 0] == evaluate(result.model, test)["error"]


def test_the_program_writes_tables_plots_and_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "EXPERIMENTS", ("strongly_convex",))
    program.main(["all", "--quick", "--out", str(tmp_path)])
    assert "| SVM in a ball | 1,000 |" in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text()
    assert "![Objective less its minimum](results/strongly_convex.svg)" in page
    saved = json.loads((tmp_path / "results" / "strongly_convex.json").read_text())
    assert saved["tables"][0]["rows"][0][0] == "SVM in a ball"
    for ending in ("svg", "png"):
        assert (tmp_path / "results" / f"strongly_convex.{ending}").stat().st_size > 1000


def test_claims_are_held_against_the_saved_record():
    page = (program.HERE / "README.md").read_text()
    for file in (program.HERE / "results").glob("*.json"):
        for _, text, verdict, figures in record.claims(
            program.experiment(file.stem), file.stem, file.parent
        ):
            assert verdict in ("met", "refuted")
            assert f"| {text} | {verdict} | {figures} |" in page


def test_a_claim_is_refuted_by_other_figures(tmp_path):
    outcome = make("strongly_convex")
    for factor, verdict in ((1.0, "met"), (1e9, "refuted")):
        (table,) = outcome.tables
        lines = [(game, t, factor * gap, bound, slope) for game, t, gap, bound, slope in table.rows]
        changed = Outcome([replace(table, rows=lines)])
        record.write("strongly_convex", changed, tmp_path, size="--quick")
        claims = record.claims(program.experiment("strongly_convex"), "strongly_convex", tmp_path)
        assert [line[2] for line in claims] == [verdict]


def test_an_experiment_without_its_data_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "EXPERIMENTS", ("ranking",))
    program.main(["all", "--out", str(tmp_path)])
    assert "ranking needs data sets; give their folder by --data" in capsys.readouterr().err
    assert not (tmp_path / "results" / "ranking.json").exists()
