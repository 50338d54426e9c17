"""The documentation is true: its snippets run, and its commands and options exist."""

import gzip
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from helpers.processes import local_cluster

from dadagrad import ingest, train
from dadagrad.cli import dadagrad

ROOT = Path(__file__).parents[1]
# Commands keep the names of their help option from their first use.
CONTEXT = click.Context(dadagrad, **dadagrad.context_settings)
COMMANDS = {name: dadagrad.get_command(CONTEXT, name) for name in dadagrad.list_commands(CONTEXT)}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """Language and text of each block of code."""
    return re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def commands(block):
    """The words after `dadagrad` in each line of a shell block."""
    lines = map(shlex.split, block.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words and words[0] == "dadagrad"]


FIRST_STEPS = ["README.md", *(f"docs/{name}.md" for name in (
    "tutorial", "guides/coming-from", "guides/export", "guides/tools",
))]  # fmt: skip
"""Pages that say how to make all files that they use."""
OTHERS = [
    name
    for page in PAGES
    if blocks(page) and (name := str(page.relative_to(ROOT))) not in FIRST_STEPS
]


def run_blocks(page, substitutes, *more):
    """Run all blocks of a page, with the words `more` where a command has such an option.

    A command that writes where an earlier one of the page has written has its own words alone.
    """
    names, written = {}, set()
    for language, block in blocks(ROOT / page):
        if "import torch" in block:  # an extra, whose tests run it
            continue
        for text, substitute in substitutes.items():
            block = block.replace(text, substitute)
        if language == "python":
            exec(compile(block, page, "exec"), names)
            continue
        for words in commands(block):
            if words == ["demo"]:  # has a test of its own, with processes
                continue
            known = {option for each in COMMANDS[words[0]].params for option in each.opts}
            places = {words[n + 1] for n, word in enumerate(words) if word in ("--model", "--out")}
            if not places & written:
                words += [word for word in more if word in known and word not in words]
            written |= places
            result = CliRunner().invoke(dadagrad, words, catch_exceptions=False)
            assert result.exit_code == 0, (words, result.output)


def write_vw(path):
    lines = [f"{1 if n % 3 else -1} 'row{n} |words w{n % 3} x:0.5 |b k{n % 7}" for n in range(90)]
    path.write_text("\n".join(lines) + "\n")


def test_every_block_is_run_or_called_text():
    for page in PAGES:
        fences = re.findall(r"^[ >]*(?:```|~~~)(.*)$", page.read_text("utf-8"), re.M)
        assert set(fences[::2]) <= {"sh", "python", "text"}, page
        assert not any(fences[1::2])
        assert len(blocks(page)) + fences.count("text") == len(fences) // 2


@pytest.mark.parametrize("page", FIRST_STEPS)
def test_the_first_steps_run_as_written(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    for name in ("train.vw", "test.vw"):  # a user of Vowpal Wabbit has such files
        write_vw(tmp_path / name)
    run_blocks(page, {})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files and datasets that the guides name."""
    folder = tmp_path_factory.mktemp("guides")
    (folder / "logs").mkdir()
    write_vw(folder / "part-0.vw")
    part = gzip.compress((folder / "part-0.vw").read_bytes())
    (folder / "logs" / "part-0.vw.gz").write_bytes(part)
    queries = [f"{n % 3} qid:{n // 5} 1:{n % 3} 2:{n % 7}" for n in range(50)]
    (folder / "queries.txt").write_text("\n".join(queries) + "\n")
    (folder / "train.svmlight").write_text("1 3:0.5 9:2\n-1 1:1\n" * 20)
    (folder / "reviews.tsv").write_text("1\ta good film\n0\ta dull plot\n" * 20)
    jobs = [f"{n % 2},{n},school{n % 3},job{n % 5},{20 + n % 40}" for n in range(300)]
    table = "\n".join(["income,id,education,occupation,age", *jobs]) + "\n"
    for name in ("adult", "test", "new"):
        (folder / f"{name}.csv").write_text(table)
    clicks = folder / "bucket" / "clicks" / "part-0.csv.gz"
    clicks.parent.mkdir(parents=True)
    clicks.write_bytes(gzip.compress(table.replace("income", "clicked").encode()))
    columns = {"label": "income", "ignore": ["id"], "hash_bits": 10}
    for name in ("data", "test", "monday", "tuesday"):
        ingest(folder / "adult.csv", folder / f"{name}.zarr", **columns)
    run = train(str(folder / "data.zarr"), step_size=0.3, checkpoints=str(folder / "checkpoints"))
    run.save(str(folder / "model"))
    return folder


@pytest.mark.parametrize("page", OTHERS)
def test_snippets_run(files, tmp_path, monkeypatch, page):
    """Places that only their reader has are replaced by places of this machine."""
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    places = {"s3://bucket/train.zarr": "data.zarr", "s3://bucket/": "bucket/", ":8080": ":0"}
    if "tcp://" not in (ROOT / page).read_text("utf-8"):
        run_blocks(page, places, "--overwrite")
        return
    with local_cluster(1, processes=False, protocol="tcp") as cluster:
        run_blocks(page, places | {"tcp://host:8786": cluster.scheduler_address}, "--overwrite")


def test_commands_and_options_exist():
    options = {
        option
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    options |= {"--help", "--help-all", "--dist", "--strict", "--check"}
    for page in PAGES:
        for language, block in blocks(page):
            for name, *words in commands(block) if language == "sh" else ():
                assert COMMANDS[name].make_context(name, words, parent=CONTEXT) is not None
        code = " ".join(re.findall(r"`([^`\n]+)`", page.read_text("utf-8")))
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code))
        assert named <= options, page
