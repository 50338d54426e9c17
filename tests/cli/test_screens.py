"""Screens of the command line at three widths, compared with ``screens/WIDTH.txt``.

``pytest tests/cli/test_screens.py --write-screens`` writes the files; look at what has changed.
"""

import io
import re
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from dadagrad import Callback, Model, TrainConfig, ingest, open_dataset, train
from dadagrad.cli.display import Display
from dadagrad.progress.display import Line, RunTable
from dadagrad.summary import run_lines, significant
from dadagrad.training.callbacks import BeginEvent, RoundEvent
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Cursor

SCREENS = Path(__file__).parent / "screens"
REPORT = {
    "rows": 50_000, "seconds": 0.95, "rows_per_second": 52_632.0, "passes": 2, "step_size": 0.4,
    "batch_size": 1, "streams": 1, "features": 2**21, "outputs": 1, "nonzeros": 654_352,
    "skipped": 0, "settings": [{}], "best": 0, "constant_error": 0.5, "constant_loss": 1.0,
    "progressive_error": 0.1124, "progressive_loss": 0.3152,
    "by_pass": [
        {"rows": 25_000, "nnz": 8_764_562, "loss": 0.3152, "error": 0.1124},
        {"rows": 25_000, "nnz": 8_764_562, "loss": 0.0983, "error": 0.0025},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of named features, and a model of three classes."""
    folder = tmp_path_factory.mktemp("screens")
    words = {1: "good film story", 2: "bad film acting", 3: "film music"}
    lines = [f"{k} |w {words[k]} {'very' * (n % 3 == 0)}\n" for n in range(60) for k in words]
    (folder / "rows.vw").write_text("".join(lines))
    ingest(folder / "rows.vw", str(folder / "reviews.zarr"), format="vw", hash_bits=12,
           keep_names=True)  # fmt: skip
    model = train(str(folder / "reviews.zarr"), step_size=0.5, l1=1e-3).model
    model.save(folder / "several")
    report = model.report | {"seconds": 1.5, "data": "reviews.zarr"}
    replace(model, report=report).save(folder / "several")
    return folder


def progress_lines(width):
    facts, left = ("error 10.4 %", "loss 0.301"), "0:00:21 left"
    lines = [
        Line("pass 1", 3_000, 100_000, facts, "471 k rows/s", "0:03:41 left"),
        Line("pass 1", 58_300, 100_000, facts, "471 k rows/s", left),
        Line("pass 2/5", 100, 100, ("training error 3.20 %", facts[1]), "1.02 M rows/s", left),
        Line("reading", 12, 34, ("3,110 rows",), "589.2 kB/s", left),
        Line("reading", 12, 0, ("3,110 rows", "12 bytes"), "589.2 kB/s"),
    ]
    shown = [line.fitted(width).plain for line in lines]
    assert max(map(len, shown)) <= width
    return "\n".join(shown)


def table_of_a_run(monkeypatch):
    """The lines of three reports in a first pass and one in a second."""
    lines = []
    monkeypatch.setattr("time.monotonic", lambda: 1.0)
    table = RunTable(lines.append, 0, has_errors=True)
    monkeypatch.setattr("time.monotonic", lambda: 2.0)

    def metrics(rows, mistakes):
        return ProgressiveMetrics(
            rows, 9 * rows, rows, np.array([0.3 * rows]), np.array([mistakes]), np.zeros((1, 0, 2))
        )

    begin = BeginEvent(TrainConfig(), "data", "binary", 25_000, 0, 9, 1, (0.4,), None)
    first = [metrics(1_000, 260), metrics(1_500, 380), metrics(25_000, 2_811)]
    for number, passed in enumerate(first):
        cursor = Cursor(1, 0) if passed is first[-1] else Cursor(0, number + 1)
        table.update(RoundEvent(begin, 0, cursor, (passed,), 1.0, 1.0, None, lambda: 654_352))
    both = (first[-1], metrics(25_000, 63))
    table.update(RoundEvent(begin, 0, Cursor(2, 0), both, 2.0, 1.0, None, lambda: 660_001))
    return "\n".join(lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_screens(run, folder, monkeypatch, capsys, request, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(folder)
    screens = {
        f"dadagrad {' '.join(words)}": run(*words).stdout
        for words in (
            ["--help"], ["train", "--help"], ["ingest", "--help"], ["predict", "--help"],
            ["inspect", "several", "--top", "3"], ["inspect", "reviews.zarr"],
            ["sweep", "reviews.zarr", "--model", "best", "--overwrite", "--holdout", "0.2",
             "--step-size", "0.1,0.4", "--l1", "0,1e-3"],
        )
    }  # fmt: skip
    # Metadata name the folder of the sources, and codecs of the versions of libraries.
    data = "dadagrad inspect reviews.zarr"
    screens[data] = re.sub("(?m)^(size|digest) .*\\n( .*\\n)*", "", screens[data])
    Display().show_lines(run_lines(REPORT, "hinge", auto=True))
    screens["the result of a run"] = capsys.readouterr().out
    screens["progress on a terminal"] = progress_lines(width)
    screens["progress elsewhere"] = table_of_a_run(monkeypatch)
    shown = "\n\n".join(f"{'=' * 10} {name}\n{text.rstrip()}" for name, text in screens.items())
    file = SCREENS / f"{width}.txt"
    if request.config.getoption("--write-screens"):
        file.write_text(shown + "\n")
    assert shown + "\n" == file.read_text(), "look at it, then run pytest with --write-screens"


def test_each_option_has_one_line_of_help(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("ingest", "train", "resume", "sweep", "evaluate", "predict"):
        lines = run(command, "--help").stdout.partition("Common:")[2].splitlines()
        for before, line in pairwise(lines):
            # A name that is too long stands alone, above its line.
            assert not line.startswith(" " * 28) or "  " not in before.strip(), (command, line)


def test_objects_have_short_reprs_and_tables_for_notebooks(folder):
    data, model = open_dataset(str(folder / "reviews.zarr")), Model.load(folder / "several")
    result = train(data, step_size=0.5)
    reprs = {
        "ZarrDataset(": data,
        "Model(multiclass, hinge loss, 1, 2, 3, weights ": model,
        "TrainResult(180 rows, error ": result,
    }
    for start, thing in reprs.items():
        assert repr(thing).startswith(start)
        assert len(repr(thing)) < 80 + len(str(folder))
    for thing in (data, model, result):
        html = thing._repr_html_()
        assert html.count("<tr>") == html.count("</td></tr>") > 4
    named = replace(
        model, label_columns=(replace(model.label_columns[0], names=("<b>", "b", "c")),)
    )
    assert "&lt;b&gt;, b, c" in named._repr_html_()


def test_a_run_that_is_stopped_before_the_first_row_has_no_errors(folder):
    class Stop(Callback):
        def on_begin(self, event):
            signal.raise_signal(signal.SIGINT)

    result = train(str(folder / "reviews.zarr"), step_size=0.5, callbacks=Stop())
    assert repr(result) == "TrainResult(stopped)"
    assert "Stopped before the first row" in result._repr_html_()
    assert "nan" not in result.model._repr_html_()


def test_a_terminal_without_unicode_gets_a_bar_of_ascii():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    console.print(Line("pass 1", 1, 2, ("error 10.4 %",)))
    out.seek(0)
    assert out.read().rstrip() == f"pass 1  {'#' * 12}{'-' * 12}   50 %  error 10.4 %"


@given(st.floats(1e-4, 9.9e5))
@example(999.6)
def test_a_loss_has_three_digits_and_no_exponent(loss):
    text = significant(loss)
    assert "e" not in text
    assert abs(float(text.replace(",", "")) - loss) <= 0.00501 * loss
