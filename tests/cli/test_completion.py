"""Completion of a command line in a shell."""

import pytest
from click.shell_completion import BashComplete

from dadagrad.cli.main import dadagrad


def completions(words, incomplete):
    complete = BashComplete(dadagrad, {}, "dadagrad", "_DADAGRAD_COMPLETE")
    return complete.get_completions(words, incomplete)


@pytest.mark.parametrize(
    "words",
    [
        ["train"],
        ["train", "data", "--model"],
        ["train", "data", "--config"],
        ["train", "data", "--holdout"],
        ["sweep", "data", "--path"],
        ["ingest"],
        ["inspect"],
        ["predict", "model"],
        ["predict", "model", "data", "--out"],
        ["export", "model", "--out"],
        ["resume"],
    ],
    ids=" ".join,
)
def test_places_are_completed_with_names_of_files(words):
    (item,) = completions(words, "revi")
    assert (item.value, item.type) == ("revi", "file")


def test_names_are_completed_by_their_beginning():
    assert [each.value for each in completions(["train", "--loss"], "sq")] == [
        "squared-hinge",
        "squared",
    ]
    assert [each.value for each in completions(["train", "--update"], "ft")] == ["ftrl"]
