"""Group of commands, which loads each when it is called and shows an error as one line.

No heavy library is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from dadagrad._version import __version__
from dadagrad.errors import DadagradError

_COMMANDS = {
    "ingest": "ingest",
    "train": "train",
    "resume": "train",
    "evaluate": "evaluate",
    "predict": "evaluate",
    "inspect": "inspect",
    "demo": "demo",
}
"""Module of this package for each command."""


class Failure(click.ClickException):
    """Error that is shown as one line on stderr and ends the command with an exit code."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"dadagrad: error: {self.message}", file=file, err=file is None)


class Interrupted(Failure):
    """Stop of the command by the user, such as with Ctrl-C."""

    exit_code = 130


@contextmanager
def _failing_in_one_line() -> Iterator[None]:
    try:
        yield
    except Failure:
        raise
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "dadagrad"
        message = error.format_message().rstrip(".")
        raise Failure(f"{message}; see `{path} --help`") from error
    except click.ClickException as error:
        raise Failure(error.format_message()) from error
    except DadagradError as error:
        raise Failure(str(error)) from error
    except BrokenPipeError:
        raise  # click ends quietly: the reader of the output has gone
    except OSError as error:
        if error.strerror is None:
            raise
        place = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{place}{error.strerror}; check permissions and free space") from error
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted") from error


class Program(click.Group):
    """Group of the commands, in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
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
        with _failing_in_one_line():
            return super().make_context(info_name, args or ["--help"], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _failing_in_one_line():
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
    dadagrad(prog_name="dadagrad")
