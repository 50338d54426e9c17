"""``dadagrad resume``: going on with training after a stop."""

from __future__ import annotations

from typing import Literal

import click

from dadagrad.cli.display import Display
from dadagrad.cli.options import absolute, make_where, output_options, where_options
from dadagrad.cli.running import SAVE_SECONDS, Watching, check_destination, finish, newest_meta
from dadagrad.errors import InputError


@click.command()
@click.argument("checkpoints")
@click.option("--model", metavar="URL", help="Where the model goes.  [default: as given to train]")
@click.option("--data", metavar="URL", help="Where the data is now, if it was moved.")
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    help="Whether a partition that is missing or damaged ends the run, or is left out.  "
    "[default: as given to train]",
)
@where_options
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
    """Go on with the run whose checkpoints are at CHECKPOINTS, from the newest that is whole.

    The model has the same bits as that of a run that never stopped, and goes where `train` was
    told to put it.
    """
    where = make_where(threads, workers, scheduler, memory)
    display = Display(quiet=quiet)
    from dadagrad.config import TrainConfig
    from dadagrad.data.dataset import open_dataset
    from dadagrad.training import run

    with display.showing_logs():
        meta = newest_meta(checkpoints)
        notes = dict(meta["notes"])
        model = model or notes.get("model")
        if model is None:
            raise InputError(
                f"the run at {checkpoints} was not started by `dadagrad train`, so that it is not "
                "known where its model goes; give --model URL"
            )
        rows = open_dataset(meta["data"]["url"] if data is None else absolute(data))
        check_destination(model)
        done = int(meta["tally"]["examples"]) if "tally" in meta else 0
        config = TrainConfig.from_json(meta["config"])
        with Watching(display, config, rows, done=done) as watching:
            result = run.resume(
                checkpoints,
                data=rows,
                where=where,
                save_every=notes.get("save_every"),
                save_seconds=notes.get("save_seconds", SAVE_SECONDS),
                keep=notes.get("keep", 3),
                progress=watching.progress,
                announce=watching.announce,
                on_error=on_error,
            )
    finish(result, display, notes, model, checkpoints, as_json=as_json)
