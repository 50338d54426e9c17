"""Write the help of every command into the page that asks for it."""

from __future__ import annotations

from typing import Any

import click

from dadagrad.cli import dadagrad

PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the place in a page by the help texts; MkDocs calls this for each page."""
    if PLACE not in markdown:
        return markdown
    context = click.Context(dadagrad)
    sections = [section(context, name) for name in dadagrad.list_commands(context)]
    return markdown.replace(PLACE, "\n\n".join(sections))


def section(parent: click.Context, name: str) -> str:
    """Title and help of one command."""
    command = dadagrad.get_command(parent, name)
    assert command is not None
    with click.Context(command, info_name=f"dadagrad {name}", max_content_width=96) as context:
        return f"## {name}\n\n```text\n{command.get_help(context)}\n```"
