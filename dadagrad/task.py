"""The task of training, which the loss and the labels decide together."""

from __future__ import annotations

from typing import Literal, get_args

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError
from dadagrad.optim import losses
from dadagrad.optim.losses import Link
from dadagrad.summary import listed

Task = Literal["binary", "multiclass", "multilabel", "regression", "ranking"]


def has_classes(task: Task) -> bool:
    """True if the labels of a task are classes; those of others are numbers."""
    return task not in ("regression", "ranking")


def task_of(config: TrainConfig, columns: tuple[LabelColumn, ...]) -> Task:
    """The task; raises `InputError` where the labels do not suit the loss."""
    loss = config.loss
    for kind, word, words in (("link", loss.link, Link), ("task", loss.task, losses.Task)):
        if word not in get_args(words):
            raise InputError(
                f"the {kind} of {loss.name} is {word!r}; it must be one of {get_args(words)}"
            )
    if (loss.couples or loss.ranks) and len(columns) > 1:
        raise InputError(
            f"the {loss.name} loss is for one label column; the data has {len(columns)}"
        )
    if not loss.classifies:
        for column in columns:
            if column.names is not None:
                raise InputError(
                    f"{column.place} has the classes {listed(column.names)}, and the {loss.name} "
                    "loss is for numbers; choose a loss that classifies, such as hinge or logistic "
                    "(in scikit-learn, AdaGradClassifier), or give labels that are numbers"
                )
        return "ranking" if loss.ranks else "regression"
    for column in columns:
        if column.values is None:
            raise InputError(
                f"{column.place} has more than 1000 distinct values, which is a regression; the "
                f"{loss.name} loss classifies. Choose --loss squared, or absolute if some labels "
                "are far off"
            )
        if not column.values:
            raise InputError(f"{column.place} has no labels; training needs some")
        if len(column.values) < 2:
            raise InputError(
                f"{column.place} has only one class, {listed(column.texts)}; a classifier needs two"
            )
        fractions = [value for value in column.values if value % 1]
        if column.names is None and len(column.values) > 2 and fractions:
            raise InputError(
                f"{column.place} has numbers such as {fractions[0]:g}, and the {loss.name} loss is "
                "for classes; choose --loss squared or huber, or give classes that are words"
            )
        if len(columns) > 1 and len(column.values) > 2:
            raise InputError(
                f"{column.place} has {len(column.values)} distinct values; with "
                "several label columns each must have two (has the label, has it not)"
            )
    if len(columns) > 1:
        return "multilabel"
    # A loss over all classes has an output for each, also where there are two.
    binary = len(columns[0].values or ()) == 2 and not loss.couples
    return "binary" if binary else "multiclass"
