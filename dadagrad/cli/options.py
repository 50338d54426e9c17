"""Options that several commands share, and the options of settings."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable
from functools import partial, wraps
from itertools import chain
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dadagrad.cli.display import Display
from dadagrad.cli.failures import MEGABYTES, check_memory
from dadagrad.config import SETTINGS
from dadagrad.data.reading.options import Crosses
from dadagrad.errors import InputError
from dadagrad.optim.registry import Registered
from dadagrad.progress.display import RunDisplay
from dadagrad.settings import GROUPS, Choice, Kind, Setting, Switch
from dadagrad.storage.backends import absolute
from dadagrad.training.callbacks import Callback

Command = TypeVar("Command", bound=Callable[..., Any])

COUNT: dict[str, Any] = {"type": click.IntRange(1), "metavar": "N"}
"""Arguments of ``click.option`` for a number of things."""
ON_ERROR: dict[str, Any] = {"type": click.Choice(("raise", "skip"))}
"""Arguments of ``click.option`` for the treatment of errors."""
NAME_WIDTH = 26
"""Columns of the names of options in a help."""
_WHOLE_HELP = "dadagrad.whole_help"


class Place(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.4
    """A path or URL, which the shell completes with names of files."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


_OF_PLACES = ("URL", "FILE", "DATA")
"""Words in the metavars of options that name places."""

place_argument = partial(click.argument, type=Place())
"""Return ``click.argument`` for paths or URLs."""


class GroupedOption(click.Option):
    """Option that is shown under a heading; ``--help-all`` alone shows one of research.

    `shown_default` describes the default where the value of the option is None.
    """

    def __init__(
        self,
        *args: Any,
        group: str = "Output",
        research: bool = False,
        shown_default: str = "",
        **keywords: Any,
    ) -> None:
        metavar = keywords.get("metavar") or ""
        if "type" not in keywords and any(word in metavar for word in _OF_PLACES):
            keywords["type"] = Place()
        super().__init__(*args, **keywords)
        self.group = group
        self.research = research
        self._shown_default = shown_default

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the default alone, without the range of a number."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra | ({"default": self._shown_default} if self._shown_default else {})


class GroupedCommand(click.Command):
    """Command whose ``--help`` shows the first phrase about each option, by group.

    ``--help-all`` shows everything about all of them.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        option = GroupedOption(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all_help,
            help="Show all options and their full help, and exit.",
        )
        return [*super().get_params(ctx), option]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors name options instead of parameters."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise InputError(self._with_options(str(error), ctx)) from error

    def _with_options(self, message: str, ctx: click.Context) -> str:
        values = (value if isinstance(value, tuple) else (value,) for value in ctx.params.values())
        given = list(chain.from_iterable(values))
        for param in self.params:
            name, option = str(param.name), param.opts[0]
            is_default = ctx.get_parameter_source(name) is ParameterSource.DEFAULT
            if is_default and ctx.params.get("file"):
                continue  # the name is that of a setting in --config FILE
            if isinstance(param, click.Option) and not message.startswith(f"{option} "):
                # A short name may be another word of the sentence.
                shown = f"--{option[2:]}" if param.is_flag else rf"{option} \1"
                message = re.sub(rf"(?<![\w'`/:.,(-]){name}=([^\s,;)]+)", shown, message)
                # The first word may be a URL of that name.
                start = r"^|" if name not in given else ""
                inside = r"(?<=leave out )" if name == "out" else r"(?<=leave )|(?<=leave out )"
                inside = r"(?<![\w'/=-])" if "_" in name else inside
                boundary = start + inside
                message = re.sub(rf"(?:{boundary}){name}\b(?!=|://?)", option, message)
        return message

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = ctx.meta.get(_WHOLE_HELP, False)
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        width = formatter.width - NAME_WIDTH - 4
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (whole or not getattr(option, "research", 0)):
                record = option.get_help_record(ctx)
                assert record is not None, "no option is hidden"
                name, text = record
                groups[getattr(option, "group", "Output")].append(
                    (name.ljust(NAME_WIDTH), text if whole else _first_phrase(text, width))
                )
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records, col_max=NAME_WIDTH)


def _show_all_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_WHOLE_HELP] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _first_phrase(text: str, width: int) -> str:
    """The first sentence of a help, and the default if one line holds both."""
    extra = re.search(r"\s+\[(default: |required).*\]$", text)
    phrase = re.split(r"(?<=\.)\s", text[: extra.start()] if extra else text, maxsplit=1)[0]
    both = phrase + (extra[0] if extra else "")
    return both if len(both) <= width else phrase


def grouped(group: str) -> Callable[..., Callable[[Command], Command]]:
    """Return ``click.option`` for options of one group."""
    return partial(click.option, cls=GroupedOption, group=group)


class SettingType(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.4
    """Argument that is checked and converted by a setting of `TrainConfig`."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._kind.parse(self.name, value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(str(error).removeprefix(f"{self.name} "), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names: Iterable[str] = ()
        if isinstance(self._kind, Registered):
            names = self._kind.registry
        elif isinstance(self._kind, Choice):
            names = self._kind.words or self._kind.names
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def setting_options(*without: str) -> Callable[[Command], Command]:
    """Add an option for each setting of `TrainConfig` but some."""

    def add(command: Command) -> Command:
        for name, setting in reversed(SETTINGS.items()):
            if name not in without:
                command = setting_option(name, setting)(command)
        return command

    return add


def setting_option(name: str, setting: Setting) -> Callable[[Command], Command]:
    """Return the option of one setting; without it the value is None, so that a file decides."""
    option = setting.option or name.replace("_", "-")
    text, default, kind = setting.help, setting.default, setting.kind
    if isinstance(kind, Choice | Registered) and kind.metavar.startswith("NAME"):
        names = kind.registry if isinstance(kind, Registered) else kind.words or kind.names
        text += f" One of {', '.join(names)}."
    add = partial(grouped(setting.group), default=None, help=text, research=setting.research)
    shown = setting.shown_default or ("" if default in (None, ()) else str(default))
    if isinstance(kind, Switch):
        if isinstance(default, bool) and not setting.shown_default:
            shown = f"{'' if default else 'no-'}{option}"
        form = option if "/" in option else f"{option}/--no-{option}"
        return add(f"--{form}", name, shown_default=shown)
    return add(
        f"--{option}",
        name,
        type=SettingType(name, kind),
        metavar=kind.metavar,
        shown_default=shown,
        multiple=isinstance(kind, Crosses),
    )


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--json`` and ``--quiet``, from which the command gets a `display`."""
    output = grouped("Output")

    @output("--quiet", is_flag=True, help="Hide progress and messages.")
    @output("--json", "as_json", is_flag=True, help="Print one JSON object to stdout alone.")
    @wraps(command)
    def with_display(
        *, as_json: bool, quiet: bool, progress: str | None = None, **options: Any
    ) -> None:
        check_memory()
        display = Display(quiet=quiet, as_json=as_json, progress=progress)
        with display.showing_logs():
            command(display=display, **options)

    return with_display


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of threads, workers and memory, from which the command gets `resources`."""
    parallel = grouped("Parallel")

    @parallel(
        "--threads", help="Number of threads without a cluster.", shown_default="cores", **COUNT
    )
    @parallel(
        "--memory",
        callback=_bytes,
        metavar="SIZE",
        help="Memory for the run, such as 8GB. A run that is predicted to need more, "
        "beside what the process has before it, is refused.",
        shown_default="the free memory",
    )
    @parallel("--workers", help="Train on a Dask cluster of N processes here.", **COUNT)
    @parallel("--scheduler", metavar="ADDRESS", help="Use the workers of a Dask scheduler.")
    @wraps(command)
    def with_resources(
        *,
        threads: int | None,
        workers: int | None,
        scheduler: str | None,
        memory: int | None,
        **options: Any,
    ) -> None:
        check_one_of(threads=threads, workers=workers, scheduler=scheduler)
        if workers is not None or scheduler is not None:
            load_dask()
        resources = {"threads": threads, "workers": workers, "client": scheduler, "memory": memory}
        command(resources=resources, **options)

    return with_resources


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Convert ``8GB``, ``500 MiB`` or a plain number of bytes."""
    if value is None:
        return None
    from dask.utils import parse_bytes

    try:
        n_bytes = parse_bytes(value) if value[:1].isdigit() else 0
    except (ValueError, OverflowError):
        n_bytes = 0
    if n_bytes < 1:
        raise click.BadParameter(f"{value!r} is not an amount of memory, such as 8GB or 500MB")
    return n_bytes


def share_or_url(holdout: str | None) -> float | str | None:
    """Return the share of the rows, or the URL of other data, that --holdout is, if it is given."""
    if holdout is None:
        return None
    try:
        share = float(holdout)
    except ValueError:
        return absolute(holdout)
    if not 0.0 <= share < 1.0:
        raise click.UsageError(
            f"--holdout {holdout} is not a share of the rows; give 0.1, or 0 to hold out none"
        )
    return share


def training_output(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the output of a run, from which the command gets `callbacks` for it.

    They come with those of `output_options`.
    """
    output = grouped("Output")

    @output(
        "--progress",
        type=click.Choice(("line", "table")),
        help="Show progress in one line, or in a table. The table has a line at each doubling of "
        "the rows.",
        shown_default="line on a terminal",
    )
    @output_options
    @output("--log", metavar="FILE.jsonl", help="Local file for a log of the run as JSON lines.")
    @output(
        "--dashboard",
        is_flag=False,
        flag_value="127.0.0.1:0",
        metavar="[HOST:PORT]",
        callback=_check_address,
        help="Serve a live page of the run. By default it is at a free port of this machine alone; "
        "on a cluster it is at /dadagrad of Dask's dashboard too.",
    )
    @wraps(command)
    def with_callbacks(
        *, display: Display, log: str | None, dashboard: str | None, **options: Any
    ) -> None:
        callbacks: list[Callback] = [RunDisplay(display)]
        if log is not None:
            from dadagrad.training.trackers import JsonLog

            callbacks.append(JsonLog(log))
        if dashboard is not None:
            from dadagrad.reports.dashboard import Dashboard

            page = Dashboard(dashboard)
            display.say(f"dashboard at {page.url}")
            callbacks.append(page)
        command(display=display, callbacks=callbacks, **options)

    return with_callbacks


def _check_address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the address; `InputError` for another word, such as the next argument."""
    if value is not None:
        from dadagrad.reports.dashboard import parse_address

        try:
            parse_address(value)
        except InputError as error:
            raise InputError(f"{error}, or put --dashboard at the end") from error
    return value


def load_dask() -> None:
    """Load Dask, without its logs about errors of workers, which a command shows in one line.

    The variable DASK_LOGGING__DISTRIBUTED can ask for more.
    """
    check_memory(*MEGABYTES)
    level_name = os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical").upper()
    level = logging.getLevelNamesMapping().get(level_name, logging.CRITICAL)
    import distributed  # noqa: F401 (sets the levels of its loggers)

    # `dask dadagrad` has loaded distributed before. Two of its loggers have levels of their own,
    # and show tracebacks when a scheduler is lost.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(level)


def check_one_of(**options: Any) -> None:
    """Raise `click.UsageError` if more than one of the options is set."""
    names = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other; give one of them")
