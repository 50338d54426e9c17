"""``dadagrad train``: learn a model."""

from __future__ import annotations

from typing import Any, Literal

import click

import dadagrad
from dadagrad.cli.config_file import read_config
from dadagrad.cli.display import Display
from dadagrad.cli.dry_run import show
from dadagrad.cli.options import (
    GroupedCommand,
    absolute,
    grouped,
    make_resources,
    output_options,
    resource_options,
    setting_options,
)
from dadagrad.cli.resume import resume
from dadagrad.cli.run_support import (
    SAVE_SECONDS,
    RunProgress,
    check_before,
    check_checkpoints,
    finish,
)


@click.command(cls=GroupedCommand)
@click.argument("data")
@grouped("Common")(
    "--model", metavar="URL", help="Where to save the model (required unless --dry-run)."
)
@grouped("Common")(
    "--holdout", metavar="DATA", help="Dataset on which the model is evaluated afterwards."
)
@setting_options
@grouped("Common")(
    "--config",
    "file",
    metavar="FILE.toml",
    help="TOML file of settings by their names in TrainConfig; options replace them.",
)
@grouped("Checkpoints")(
    "--checkpoints", metavar="URL", help="Folder for checkpoints, from which a run can be resumed."
)
@grouped("Checkpoints")(
    "--checkpoint-every",
    type=click.IntRange(1),
    metavar="STEPS",
    help="Number of steps between checkpoints; replaces --checkpoint-seconds.",
)
@grouped("Checkpoints")(
    "--checkpoint-seconds",
    type=click.FloatRange(0.0, min_open=True),
    metavar="S",
    help="Number of seconds between checkpoints.  [default: 60]",
)
@grouped("Checkpoints")(
    "--keep",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of checkpoints to keep, the newest ones.",
)
@grouped("Checkpoints")(
    "--or-resume",
    is_flag=True,
    help="Resume the run whose checkpoints are in the folder, if any, with its own settings. For "
    "jobs that are restarted automatically.",
)
@grouped("Data")(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Treatment of a partition that is missing or damaged: raise ends the run, skip leaves "
    "the partition out.",
)
@click.option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Predict memory, steps and network traffic of the run and exit.",
)
@resource_options
@output_options
def train(
    data: str,
    model: str | None,
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
    """Train a linear model on a dataset.

    DATA is a dataset that `ingest` made, or Parquet. With --checkpoints, `dadagrad resume`
    continues a run that stopped (by Ctrl-C, a crash or a lost machine) and makes the same model,
    bit by bit.
    """
    _check_checkpoint_options(model, checkpoints, checkpoint_every, checkpoint_seconds)
    if dry:
        model = None
    elif model is None:
        raise click.UsageError("Missing option '--model'")
    elif or_resume and _has_checkpoints(checkpoints):
        values = click.get_current_context().params
        options = {str(option.name): values[str(option.name)] for option in resume.params}
        click.get_current_context().invoke(resume, **options)
        return
    resources = make_resources(threads, workers, scheduler, memory)
    display = Display(quiet=quiet)
    rows = dadagrad.open_dataset(absolute(data))
    config = read_config(file, settings, rows.schema)
    if model is None:
        show(dadagrad.dry_run(rows, config, **resources, checkpoints=checkpoints), as_json=as_json)
        return
    from dadagrad.training.run import resolve_config

    on_cluster = workers is not None or scheduler is not None
    resolved = resolve_config(rows, config, on_cluster=on_cluster)
    check_before(resolved, rows, model, holdout)
    if checkpoints is not None:
        check_checkpoints(checkpoints)
    notes: dict[str, Any] = {
        "model": absolute(model),
        "holdout": None if holdout is None else absolute(holdout),
        "save_every": checkpoint_every,
        "save_seconds": checkpoint_seconds or SAVE_SECONDS,
        "keep": keep,
    }
    with display.showing_logs(), RunProgress(display, config, rows) as progress:
        result = dadagrad.train(
            rows,
            config,
            **resources,
            checkpoints=None if checkpoints is None else absolute(checkpoints),
            save_every=checkpoint_every,
            save_seconds=notes["save_seconds"],
            keep=keep,
            progress=progress.progress,
            announce=progress.announce,
            notes=notes,
            on_error=on_error,
        )
    finish(result, display, notes, model, checkpoints, as_json=as_json)


def _has_checkpoints(checkpoints: str | None) -> bool:
    if checkpoints is None:
        raise click.UsageError("--or-resume needs --checkpoints URL")
    from dadagrad.training.checkpoints.writer import CheckpointReader

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
