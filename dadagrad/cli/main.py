"""Group of commands, which loads each when it is called.

No heavy library is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from dadagrad._version import __version__
from dadagrad.cli.failures import check_memory, failing_in_one_line, interruptible
from dadagrad.cli.supervisor import supervised

_COMMANDS = {
    "ingest": "ingest",
    "train": "train",
    "resume": "train",
    "sweep": "sweep",
    "evaluate": "evaluate",
    "predict": "evaluate",
    "inspect": "inspect",
    "report": "evaluate",
    "export": "evaluate",
    "demo": "demo",
}
"""Module of this package for each command."""


class Program(click.Group):
    """Group of the commands, in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        check_memory("numpy")
        command: click.Command = getattr(
            importlib.import_module(f"dadagrad.cli.{module}"), cmd_name
        )
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with failing_in_one_line():
            return super().make_context(info_name, args or ["--help"], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with failing_in_one_line(), interruptible():
            return super().invoke(ctx)


@click.group(
    name="dadagrad",
    cls=Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="dadagrad")
def dadagrad() -> None:
    """Train sparse linear models on data that does not fit in memory.

    `ingest` makes a dataset of text and tables, `train` learns a model from it, `resume` continues
    a run that stopped, and `evaluate` measures the model. `demo` shows all of them in a minute.

    Data, models and checkpoints are paths or URLs (s3://bucket/name, gs://, az://); credentials
    come from the usual environment variables.
    """


def main() -> None:
    """Run the command ``dadagrad``."""
    supervised(lambda: dadagrad(prog_name="dadagrad"))
