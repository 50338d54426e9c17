"""``dadagrad resume``: continue a run that stopped."""

from __future__ import annotations

from typing import Literal

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import absolute, make_resources, output_options, resource_options
from dadagrad.cli.run_support import (
    SAVE_SECONDS,
    RunProgress,
    check_destination,
    finish,
    newest_meta,
)
from dadagrad.errors import InputError


@click.command()
@click.argument("checkpoints")
@click.option(
    "--model", metavar="URL", help="Where to save the model.  [default: as given to train]"
)
@click.option("--data", metavar="URL", help="Dataset of the run, if it was moved.")
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    help="Treatment of a partition that is missing or damaged: raise ends the run, skip leaves "
    "the partition out.  [default: as given to train]",
)
@resource_options
@output_options
def resume(
    checkpoints: str,
    model: str | None,
    data: str | None,
    on_error: Literal["raise", "skip"] | None,
    threads: int | None,
    workers: int | None,
    scheduler: str | None,
    memory: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Continue a run from its newest valid checkpoint.

    CHECKPOINTS is the folder that `train` was given. The model has the same bits as that of a run
    that never stopped. It is saved at the URL that `train` was given.
    """
    resources = make_resources(threads, workers, scheduler, memory)
    display = Display(quiet=quiet)
    with display.showing_logs():
        meta = newest_meta(checkpoints)
        notes = dict(meta["notes"])
        model = model or notes.get("model")
        if model is None:
            raise InputError(
                f"the run at {checkpoints} was not started by `dadagrad train` and names no URL "
                "for its model; give --model URL"
            )
        rows = dadagrad.open_dataset(meta["data"]["url"] if data is None else absolute(data))
        check_destination(model)
        done = int(meta["tally"]["rows"]) if "tally" in meta else 0
        config = dadagrad.TrainConfig.from_json(meta["config"])
        with RunProgress(display, config, rows, done=done) as progress:
            result = dadagrad.resume(
                checkpoints,
                data=rows,
                **resources,
                save_every=notes.get("save_every"),
                save_seconds=notes.get("save_seconds", SAVE_SECONDS),
                keep=notes.get("keep", 3),
                progress=progress.progress,
                announce=progress.announce,
                on_error=on_error,
            )
    finish(result, display, notes, model, checkpoints, as_json=as_json)
