"""``dadagrad train`` and ``dadagrad resume``: learn a model, and continue a run that stopped."""

from __future__ import annotations

import shlex
from typing import Any

import click

import dadagrad
from dadagrad.cli.config_file import NOT_READING, ConfigFile, config_option
from dadagrad.cli.display import Display
from dadagrad.cli.ingest import RAW, open_data, reading_options
from dadagrad.cli.options import (
    COUNT,
    ON_ERROR,
    GroupedCommand,
    SettingType,
    check_one_of,
    grouped,
    place_argument,
    resource_options,
    setting_options,
    share_or_url,
    training_output,
)
from dadagrad.cli.run_support import check_data, check_destinations, finish, show_dry_run
from dadagrad.config import TrainConfig, make_config
from dadagrad.errors import InputError, OnError
from dadagrad.settings import Number
from dadagrad.storage.backends import absolute
from dadagrad.training.callbacks import Callback

common, saving, output = grouped("Common"), grouped("Checkpoints"), grouped("Output")
trace_option = grouped("Parallel")(
    "--trace",
    metavar="URL",
    research=True,
    help="Where to save a trace for a browser. It has the begin, end and thread of each task.",
)
overwrite_option = output("--overwrite", is_flag=True, help="Replace an existing model and trace.")


@click.command(cls=GroupedCommand)
@place_argument("data", nargs=-1, required=True)
@common("--model", metavar="URL", help="Where to save the model. Required unless --dry-run.")
@common(
    "--holdout",
    metavar="SHARE|DATA",
    help="Rows to measure the model on. Either a share of DATA, such as 0.1, or other data.",
)
@common(
    "--initial-model",
    metavar="URL",
    help="Model whose training goes on with DATA. Its settings are the defaults.",
)
@common(
    "--keep-state/--no-keep-state",
    default=None,
    help="Save the state for a later --initial-model.",
    shown_default="if it has at most 32 MiB",
)
@setting_options("holdout")  # a share of the rows, or a dataset
@reading_options(group=RAW, without=NOT_READING)
@config_option
@grouped("Data")(
    "--on-error",
    default="raise",
    help="Treatment of damaged partitions and raw rows. raise ends the run at the first, skip "
    "leaves them out.",
    **ON_ERROR,
)
@resource_options
@trace_option
@saving("--checkpoints", metavar="URL", help="Folder of checkpoints, for a later resume.")
@saving("--checkpoint-every", help="Steps between checkpoints.", **COUNT)
@saving(
    "--checkpoint-seconds",
    type=SettingType("checkpoint_seconds", Number(above=0.0)),
    metavar="S",
    help="Seconds between checkpoints.",
    shown_default="60",
)
@saving(
    "--keep", help="Number of checkpoints to keep, the newest ones.", shown_default="3", **COUNT
)
@saving(
    "--or-resume",
    is_flag=True,
    help="Resume the run at --checkpoints, if any. It must have the same "
    "settings. For jobs that are restarted automatically.",
)
@output("--dry-run", is_flag=True, help="Predict memory, steps and network traffic only.")
@overwrite_option
@training_output
def train(
    data: tuple[str, ...],
    model: str | None,
    file: str | None,
    holdout: str | None,
    initial_model: str | None,
    keep_state: bool | None,
    checkpoints: str | None,
    checkpoint_every: int | None,
    checkpoint_seconds: float | None,
    keep: int | None,
    on_error: OnError,
    or_resume: bool,
    overwrite: bool,
    trace: str | None,
    dry_run: bool,
    resources: dict[str, Any],
    reading: dict[str, Any],
    display: Display,
    callbacks: list[Callback],
    **settings: Any,
) -> None:
    """Train a model on datasets or raw files.

    DATA is a dataset that `ingest` made, Parquet, or a raw file, which is read as by `ingest`.
    Each pass learns from several datasets in their order. With --checkpoints, `dadagrad resume`
    continues a run that stopped (by Ctrl-C, a crash or a lost machine) and makes the same model,
    bit by bit.
    """
    # These modules need numba, which loads slowly.
    from dadagrad.data.ingest.sources import is_raw
    from dadagrad.storage.output import check_new_file
    from dadagrad.training.checkpoints.reader import CheckpointReader
    from dadagrad.training.checkpoints.snapshot import check_settings
    from dadagrad.training.holdout import split_setting
    from dadagrad.training.initial import InitialState

    _check_checkpoint_options(model, checkpoints, checkpoint_every, checkpoint_seconds, keep)
    resumes = False
    if or_resume:
        if checkpoints is None:
            raise click.UsageError("--or-resume needs --checkpoints URL")
        resumes = bool(CheckpointReader(checkpoints).list())
    if model is None and not dry_run:
        raise click.UsageError("Missing option '--model'")
    if model is not None and not dry_run:
        check_destinations(model, checkpoints, overwrite=overwrite or resumes)
        if trace is not None and not resumes:
            check_new_file(trace, overwrite)
    config_file = ConfigFile.read(file)
    reading, values = config_file.replaced(reading, settings)
    if checkpoints is not None and all(map(is_raw, data)):
        raise click.UsageError(
            "--checkpoints needs a dataset, which a later process can read, too; make one of the "
            f"files with `dadagrad ingest {shlex.quote(data[0])} --out URL`"
        )
    other, values = split_setting(share_or_url(holdout or config_file.holdout), values)
    initial = None if initial_model is None else InitialState.load(absolute(initial_model), values)
    config = make_config(None if initial is None else initial.config, values)
    rows = open_data(
        data, reading, display, resources,
        like=initial_model, shuffle=config.row_order, on_error=on_error,
    )  # fmt: skip
    rows = rows if initial is None else initial.adopt(rows)
    if model is None or dry_run:
        prediction = dadagrad.dry_run(
            rows, config, **resources, holdout=other, checkpoints=checkpoints, save_to=model
        )
        show_dry_run(prediction, display)
        return
    check_data(rows, config, resources)
    notes: dict[str, Any] = {
        "model": absolute(model),
        "on_error": on_error,
        "keep_state": keep_state,
        "save_every": checkpoint_every,
        "save_seconds": checkpoint_seconds,
        "keep": keep,
    }
    options = _run_options(notes, resources, display, callbacks, on_error, trace)
    if resumes:
        assert checkpoints is not None
        check_settings(CheckpointReader(checkpoints).newest_meta()["config"], config, checkpoints)
        result = dadagrad.resume(checkpoints, data=rows, holdout=other, **options)
        finish(result, display, notes["model"], checkpoints)
        return
    result = dadagrad.train(
        rows,
        config,
        holdout=other,
        checkpoints=None if checkpoints is None else absolute(checkpoints),
        metadata=notes,
        initial_model=initial,
        **options,
    )
    auto = config.step_size == "auto" and config.update.has_step_size
    finish(result, display, model, checkpoints, auto=auto)


def _check_checkpoint_options(
    model: str | None,
    checkpoints: str | None,
    every: int | None,
    seconds: float | None,
    keep: int | None,
) -> None:
    if checkpoints is not None and model is not None and absolute(checkpoints) == absolute(model):
        raise click.UsageError("--model and --checkpoints name the same folder; give each its own")
    named = {"--checkpoint-every": every, "--checkpoint-seconds": seconds, "--keep": keep}
    for option, value in named.items():
        if checkpoints is None and value is not None:
            raise click.UsageError(f"{option} has no effect without --checkpoints URL; give both")
    check_one_of(checkpoint_every=every, checkpoint_seconds=seconds)


@click.command(cls=GroupedCommand)
@place_argument("checkpoints")
@common("--model", metavar="URL", help="Where to save the model.", shown_default="as in train")
@common(
    "--data",
    metavar="URL",
    multiple=True,
    help="Dataset of the run, if it was moved. Give it once for each of several, in their order.",
)
@common("--holdout", metavar="URL", help="Data to measure on, if they were moved.")
@grouped("Data")(
    "--on-error",
    help="Treatment of a missing or damaged partition.",
    shown_default="as in train",
    **ON_ERROR,
)
@resource_options
@trace_option
@overwrite_option
@training_output
def resume(
    checkpoints: str,
    model: str | None,
    data: tuple[str, ...],
    holdout: str | None,
    on_error: OnError | None,
    overwrite: bool,
    trace: str | None,
    resources: dict[str, Any],
    display: Display,
    callbacks: list[Callback],
) -> None:
    """Continue a run from its newest checkpoint.

    CHECKPOINTS is the folder that `train` was given. The model has the same bits as that of a run
    that never stopped. It is saved at the URL that `train` was given.
    """
    from dadagrad.data.ingest.ingest import as_dataset
    from dadagrad.storage.output import check_new_file
    from dadagrad.training.checkpoints.reader import CheckpointReader

    meta = CheckpointReader(checkpoints).newest_meta()
    given = {"model": model, "on_error": on_error}
    notes = meta["notes"] | {name: value for name, value in given.items() if value is not None}
    if trace is not None:
        check_new_file(trace, overwrite)
    if "model" not in notes:
        raise InputError(
            f"the run at {checkpoints} was not started by `dadagrad train` and names no URL "
            "for its model; give --model URL"
        )
    check_destinations(notes["model"], overwrite=overwrite or model is None)
    config = TrainConfig.from_json(meta["config"])
    try:
        places = [absolute(each) for each in data] or meta["data"]["url"]
        rows = as_dataset(places, shuffle=config.row_order)
    except InputError as error:
        moved = "" if data else "; if the dataset of the run was moved, give --data URL"
        raise InputError(f"{error}{moved}") from error
    options = _run_options(notes, resources, display, callbacks, on_error, trace)
    holdout = None if holdout is None else absolute(holdout)
    try:
        result = dadagrad.resume(checkpoints, data=rows, holdout=holdout, **options)
    except InputError as error:
        url = (meta.get("holdout_data") or {}).get("url")
        if holdout is not None or url is None or str(url) not in str(error):
            raise
        advice = "if the data to measure on were moved, give --holdout URL"
        raise InputError(f"{error}; {advice}") from error
    finish(result, display, notes["model"], checkpoints)


def _run_options(
    notes: dict[str, Any],
    resources: dict[str, Any],
    display: Display,
    callbacks: list[Callback],
    on_error: OnError | None,
    trace: str | None,
) -> dict[str, Any]:
    """Arguments of `train` and `resume` alike; the `notes` say where and how the run is saved."""
    names = ("save_every", "save_seconds", "keep", "keep_state")
    return {
        **resources,
        **{name: notes[name] for name in names if notes.get(name) is not None},
        "callbacks": callbacks,
        "messages": display.say,
        "save_to": notes["model"],
        "on_error": on_error,
        "trace": trace,
    }
