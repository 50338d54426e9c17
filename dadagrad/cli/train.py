"""``dadagrad train``: learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from dadagrad.cli.algorithm_options import algorithm_options
from dadagrad.cli.display import Display
from dadagrad.cli.options import absolute, make_where, output_options, where_options
from dadagrad.cli.resume import resume
from dadagrad.cli.running import (
    SAVE_SECONDS,
    Watching,
    check_before,
    check_checkpoints,
    finish,
)
from dadagrad.cli.settings import make_config, parse_class_weight

LOSSES = (
    "hinge", "squared-hinge", "logistic", "squared", "absolute", "huber", "quantile", "poisson",
    "multiclass-hinge", "softmax", "ranking",
)  # fmt: skip


def _number_or(kind: type[int] | type[float], *words: str) -> Callable[..., Any]:
    """Reads a number, or one of the words."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None or value in words:
            return value
        try:
            return kind(value)
        except ValueError:
            needed = "a whole number" if kind is int else "a number"
            others = "".join(f" nor {word!r}" for word in words)
            raise click.BadParameter(f"{value!r} is neither {needed}{others}") from None

    return read


@click.command()
@click.argument("data")
@click.option("--model", metavar="URL", help="Where the model goes; needed but for --dry-run.")
@click.option("--loss", type=click.Choice(LOSSES), help="[default: hinge]")
@click.option(
    "--huber-width", type=float, help="Where huber turns from squared to linear.  [default: 1]"
)
@click.option(
    "--quantile", type=float, help="Share of labels below a quantile's prediction.  [default: 0.5]"
)
@algorithm_options
@click.option("--l1", type=float, help="Strength of l1 |w|, per step.  [default: 0]")
@click.option("--l2", type=float, help="Strength of l2/2 w^2, per step.  [default: 0]")
@click.option("--low", type=float, help="Least value of a weight.  [default: -inf]")
@click.option("--high", type=float, help="Greatest value of a weight.  [default: inf]")
@click.option(
    "--delta",
    type=float,
    help="Added to the root of each feature's sum of squared gradients, by which its steps are "
    "divided. Larger values (0.01 to 1) calm the first steps of features that are rare; where "
    "gradients are tiny, smaller ones let them learn.  [default: 1e-6]",
)
@click.option(
    "--step-size",
    callback=_number_or(float, "auto", "free"),
    metavar="auto|free|X",
    help="auto tries several on the first rows; free needs none.  [default: auto]",
)
@click.option(
    "--batch-size",
    callback=_number_or(int, "auto"),
    metavar="auto|N",
    help="Rows of a step; auto is 1 here, and fits the data on a cluster.  [default: auto]",
)
@click.option(
    "--lanes",
    type=int,
    help="Partitions that give their rows to each batch side by side: at least as many as there "
    "are threads on a cluster, more where neighbouring rows are alike. Changes the model, and is "
    "not used with --batch-size 1.  [default: 4]",
)
@click.option(
    "--delay",
    callback=_number_or(int, "auto"),
    metavar="auto|K",
    help="With K, a step takes the gradient at the weights of K steps before, so that K batches "
    "travel and are worked on while one makes its step. Changes the model; needs batches. auto is "
    "1 on a cluster where --batch-size is auto too, else 0.  [default: auto]",
)
@click.option(
    "--exchange",
    type=click.Choice(("gradients", "local-steps")),
    help="gradients: each step takes the gradient of a batch, exactly. local-steps: streams walk "
    "rows of their own, a step for each, and are merged a few dozen times a pass: for clusters, "
    "with far fewer messages. Changes the model.  [default: gradients]",
)
@click.option(
    "--streams",
    type=int,
    help="Of local steps; as many workers can be busy. Changes the model.  [default: 16]",
)
@click.option(
    "--rounds",
    type=int,
    help="How often the streams of local steps are merged in the first pass.  [default: 40]",
)
@click.option(
    "--squares",
    type=click.Choice(("batch", "example")),
    help="What is summed up to divide steps by: the square of a batch's mean gradient, or the mean "
    "of its rows' squares, for shorter steps where the rows of a batch disagree. The same with "
    "--batch-size 1.  [default: batch]",
)
@click.option("--passes", type=int, help="How often the data is walked.  [default: 1]")
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="New order of partitions each pass.  [default: shuffle]",
)
@click.option(
    "--intercept/--no-intercept",
    "fit_intercept",
    default=None,
    help="A constant added to every row's margin, free of penalties.  [default: intercept]",
)
@click.option(
    "--class-weight",
    metavar="balanced|LABEL=W,...",
    help="Multiplies the weight of rows by that of their class.",
)
@click.option("--seed", type=int, help="Of the order of partitions.  [default: 0]")
@click.option(
    "--config",
    "file",
    metavar="FILE.toml",
    help="Settings by their names in TrainConfig; the command line wins.",
)
@click.option("--holdout", metavar="DATA", help="Evaluate the model on this data afterwards.")
@click.option("--checkpoints", metavar="URL", help="Folder for checkpoints, to resume from.")
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    metavar="STEPS",
    help="Steps between checkpoints, instead of seconds.",
)
@click.option(
    "--checkpoint-seconds",
    type=click.FloatRange(0.0, min_open=True),
    metavar="S",
    help="Seconds between checkpoints.  [default: 60]",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="How many of the newest checkpoints are kept.",
)
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Whether a partition that is missing or damaged ends the run, or is left out.",
)
@click.option(
    "--or-resume",
    is_flag=True,
    help="Go on with the run whose checkpoints are there, if any: what decides the model is then "
    "as it was. For jobs that are started again after whatever ended them.",
)
@click.option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Say what the run would take (memory here and of a worker, steps, bytes that move for "
    "each) and whether it fits, and do nothing.",
)
@where_options
@output_options
def train(
    data: str,
    model: str | None,
    class_weight: str | None,
    file: str | None,
    holdout: str | None,
    checkpoints: str | None,
    checkpoint_every: int | None,
    checkpoint_seconds: float | None,
    keep: int,
    on_error: Literal["raise", "skip"],
    or_resume: bool,
    dry: bool,
    threads: int | None,
    workers: int | None,
    scheduler: str | None,
    memory: int | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Train a linear model on DATA, a dataset that `ingest` made or Parquet.

    With --checkpoints, a run that stopped for whatever reason (Ctrl-C, a crash, a lost machine)
    goes on by `dadagrad resume` to the same bits.
    """
    _check_checkpoint_options(model, checkpoints, checkpoint_every, checkpoint_seconds)
    if dry:
        model = None
    elif model is None:
        raise click.UsageError("Missing option '--model'")
    elif or_resume and _has_checkpoints(checkpoints):
        place: dict[str, Any] = {"threads": threads, "workers": workers, "scheduler": scheduler}
        place["memory"] = memory
        what = {"checkpoints": checkpoints, "model": model, "data": data, "on_error": on_error}
        click.get_current_context().invoke(resume, **what, **place, as_json=as_json, quiet=quiet)
        return
    where = make_where(threads, workers, scheduler, memory)
    display = Display(quiet=quiet)
    from dadagrad.data.dataset import open_dataset
    from dadagrad.training import run

    rows = open_dataset(absolute(data))
    if class_weight is not None:
        settings["class_weight"] = parse_class_weight(class_weight)
    config = make_config(file, settings, rows.schema)
    if model is None:
        from dadagrad.cli.dry_run import show
        from dadagrad.training.dry_run import dry_run

        show(dry_run(rows, config, where=where, checkpoints=checkpoints), as_json=as_json)
        return
    check_before(run.prepared(rows, config, where), rows, model, holdout)
    if checkpoints is not None:
        check_checkpoints(checkpoints)
    notes: dict[str, Any] = {
        "model": absolute(model),
        "holdout": None if holdout is None else absolute(holdout),
        "save_every": checkpoint_every,
        "save_seconds": checkpoint_seconds or SAVE_SECONDS,
        "keep": keep,
    }
    with display.showing_logs(), Watching(display, config, rows) as watching:
        result = run.train(
            rows,
            config,
            where=where,
            checkpoints=None if checkpoints is None else absolute(checkpoints),
            save_every=checkpoint_every,
            save_seconds=notes["save_seconds"],
            keep=keep,
            progress=watching.progress,
            announce=watching.announce,
            notes=notes,
            on_error=on_error,
        )
    finish(result, display, notes, model, checkpoints, as_json=as_json)


def _has_checkpoints(checkpoints: str | None) -> bool:
    if checkpoints is None:
        raise click.UsageError("--or-resume needs --checkpoints URL")
    from dadagrad.training.checkpoint import CheckpointReader

    return bool(CheckpointReader(checkpoints).list())


def _check_checkpoint_options(
    model: str | None, checkpoints: str | None, every: int | None, seconds: float | None
) -> None:
    if checkpoints is not None and model is not None and absolute(checkpoints) == absolute(model):
        raise click.UsageError("--model and --checkpoints name the same folder; give each its own")
    if checkpoints is None and (every is not None or seconds is not None):
        raise click.UsageError("--checkpoint-every and --checkpoint-seconds need --checkpoints URL")
    if every is not None and seconds is not None:
        raise click.UsageError(
            "--checkpoint-every and --checkpoint-seconds exclude each other; give one of them"
        )
