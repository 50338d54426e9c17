"""The documentation is true: the tutorial runs, and its commands and options exist."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dadagrad.cli import dadagrad

ROOT = Path(__file__).parents[1]
CONTEXT = click.Context(dadagrad)
COMMANDS = {name: dadagrad.get_command(CONTEXT, name) for name in dadagrad.list_commands(CONTEXT)}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """Language and text of each block of code."""
    return re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def commands(block):
    """The words after `dadagrad` in each line of a shell block."""
    lines = map(shlex.split, block.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words and words[0] == "dadagrad"]


@pytest.mark.parametrize(
    "page",
    [
        "README.md", "docs/tutorial.md", "docs/guides/coming-from.md", "docs/guides/export.md",
        "docs/guides/tools.md",
    ],
)  # fmt: skip
def test_the_first_steps_run_as_written(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    for name in ("train.vw", "test.vw"):  # a user of Vowpal Wabbit has such files
        lines = [
            f"{1 if n % 3 else -1} 'row{n} |words w{n % 3} x:0.5 |b k{n % 7}" for n in range(90)
        ]
        Path(name).write_text("\n".join(lines) + "\n")
    for language, block in blocks(ROOT / page):
        if language == "python":
            exec(compile(block, page, "exec"), {})
            continue
        for words in commands(block):
            if words == ["demo"]:  # has a test of its own, with processes
                continue
            result = CliRunner().invoke(dadagrad, words, catch_exceptions=False)
            assert result.exit_code == 0, (words, result.output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    for language, block in blocks(page):
        for name, *words in commands(block) if language == "sh" else ():
            assert COMMANDS[name].make_context(name, words) is not None
    options = {
        option
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    options |= {"--help", "--help-all", "--dist", "--strict", "--check"}
    named = {
        option
        for code in re.findall(r"`([^`\n]+)`", page.read_text("utf-8"))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code)
    }
    assert named <= options
