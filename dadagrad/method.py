"""A method: a configuration that has met its data.

The configuration says "hinge, l1 = 1e-6"; the data says which label columns and classes there are.
Together they give the outputs (one linear model each, all trained on one stream) and the settings
that the kernels take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.algorithm import is_compiled, learner_name, make_algorithm
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.errors import InputError
from dadagrad.losses import Loss, make_loss

if TYPE_CHECKING:
    from dadagrad.kernels import Problem, Steps
    from dadagrad.learners import Learner
    from dadagrad.updates import Update

Task = Literal["binary", "multiclass", "multilabel", "regression", "ranking"]
MOST_SIDE_BY_SIDE = 8
"""Outputs, uncoupled ones: together their share of the state takes one line of the cache."""

_OF_NUMBERS = ("regression", "ranking")


@dataclass(frozen=True)
class Method:
    """What is learned and how.

    Attributes
    ----------
    config : TrainConfig
        With `batch_size` a number; `step_size` is superseded by `step_sizes`.
    task : {"binary", "multiclass", "multilabel", "regression", "ranking"}
    label_columns : tuple of LabelColumn
    step_sizes : tuple of float
        One setting each; every setting trains all targets, in the same pass over the data.
    n_features : int
    """

    config: TrainConfig
    task: Task
    label_columns: tuple[LabelColumn, ...]
    step_sizes: tuple[float, ...]
    n_features: int

    @cached_property
    def loss(self) -> Loss:
        return make_loss(self.config.loss, self.config.huber_width, self.config.quantile)

    @property
    def online(self) -> bool:
        """Whether every row is a step of its own."""
        return self.config.batch_size == 1

    @property
    def delay(self) -> int:
        """How many steps come between taking the weights and the gradient's own step."""
        assert isinstance(self.config.delay, int)
        return self.config.delay

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels run it; else it runs as it is written down, in NumPy."""
        return is_compiled(self.config)

    @property
    def learns_by_row(self) -> bool:
        """Whether it is a learner, to which the intercept is one more feature."""
        return learner_name(self.config) is not None

    @cached_property
    def algorithm(self) -> Update | Learner:
        """The plain algorithm, of the only setting."""
        (step_size,) = self.step_sizes
        return make_algorithm(self.config, step_size, self.loss)

    @cached_property
    def classes(self) -> NDArray[np.float64]:
        """The distinct labels of a binary or multiclass task, in increasing order."""
        return np.array(self.label_columns[0].values or (), np.float64)

    @property
    def n_targets(self) -> int:
        """Outputs of one setting: classes, label columns, or one."""
        return len(self.classes) if self.task == "multiclass" else len(self.label_columns)

    @property
    def n_settings(self) -> int:
        return len(self.step_sizes)

    @property
    def n_outputs(self) -> int:
        """Linear models trained in the pass, setting by setting."""
        return self.n_targets * self.n_settings

    @property
    def bundle_width(self) -> int:
        """Outputs of a bundle, which are walked together: those that the loss couples, or few.

        Those that have nothing to do with each other cost less side by side than one by one: they
        share what is fetched from memory. More than two leave other threads a bundle of their own.
        Under mirror descent they would also share when their weights are shrunk.
        """
        if self.loss.couples:
            return self.n_targets
        if self.config.update == "mirror-descent":
            return 1
        most = min(MOST_SIDE_BY_SIDE, max(2, self.n_targets // 2))
        return next(width for width in range(most, 0, -1) if self.n_targets % width == 0)

    @property
    def n_bundles(self) -> int:
        return self.n_outputs // self.bundle_width

    def of_bundle(self, bundle: int) -> tuple[Problem, Steps]:
        """`problem` and `steps` of the outputs of one bundle alone."""
        own = slice(bundle, bundle + 1)
        outputs = slice(bundle * self.bundle_width, (bundle + 1) * self.bundle_width)
        problem, steps = self.problem, self.steps
        return (
            problem._replace(
                n_targets=self.bundle_width,
                label_column=problem.label_column[outputs],
                positive=problem.positive[outputs],
            ),
            steps._replace(step_size=steps.step_size[own], l1=steps.l1[own], l2=steps.l2[own]),
        )

    @cached_property
    def problem(self) -> Problem:
        """The loss and the targets as the kernels take them."""
        from dadagrad.kernels import Problem

        if self.task == "multiclass":
            column = np.zeros(self.n_targets, np.int64)
            positive = self.classes
        else:
            column = np.arange(self.n_targets, dtype=np.int64)
            positive = np.array(
                [
                    np.nan if self.task in _OF_NUMBERS else label.values[-1]  # type: ignore[index]
                    for label in self.label_columns
                ]
            )
        return Problem(
            self.loss.code,
            float(self.loss.parameter),
            self.n_targets,
            np.tile(column, self.n_settings),
            np.tile(positive, self.n_settings),
            self.config.fit_intercept,
        )

    @cached_property
    def steps(self) -> Steps:
        """The settings of the update as the kernels take them."""
        from dadagrad.kernels import Steps

        bundles_of_setting = self.n_targets // self.bundle_width
        return Steps(
            np.repeat(np.array(self.step_sizes, np.float64), bundles_of_setting),
            np.full(self.n_bundles, self.config.l1),
            np.full(self.n_bundles, self.config.l2),
            float(self.config.low),
            float(self.config.high),
            float(self.config.delta),
            self.config.update == "ftrl",
        )

    def with_step_sizes(self, step_sizes: tuple[float, ...]) -> Method:
        """The same method with other settings."""
        return replace(self, step_sizes=step_sizes)

    def targets(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each output is to predict: (n_rows, n_outputs) signs, or values of a regression."""
        wanted = labels[:, self.problem.label_column]
        if self.task in _OF_NUMBERS:
            return wanted
        return np.where(wanted == self.problem.positive, 1.0, -1.0)

    @cached_property
    def class_importance(self) -> NDArray[np.float64] | None:
        """The weight of each of `classes`, or None where all weigh the same."""
        given = self.config.class_weight
        if given is None:
            return None
        if self.task not in ("binary", "multiclass"):
            raise InputError(
                f"class_weight needs one label column with classes; this is a {self.task} task"
            )
        if given == "balanced":
            counts = np.array(self.label_columns[0].counts, np.float64)
            balanced: NDArray[np.float64] = counts.sum() / (len(counts) * np.maximum(counts, 1.0))
            return balanced
        weights = {float(label): float(weight) for label, weight in given.items()}
        unknown = sorted(set(weights) - set(self.classes.tolist()))
        if unknown:
            raise InputError(
                f"class_weight names label {unknown[0]:g}, which the data does not have; its "
                f"labels are {_listed(self.classes.tolist())}"
            )
        return np.array([weights.get(label, 1.0) for label in self.classes.tolist()])


def make_method(config: TrainConfig, schema: Schema, batch_size: int) -> Method:
    """Fit `config` to the data.

    Raises `InputError` where the labels do not suit the loss: a classifier of a thousand and more
    distinct values, a single class, labels of a multilabel task with more than two values.
    """
    columns = schema.label_columns
    if not columns:
        raise InputError(
            "the data has no label column, and training needs one; ingest it with its labels, that "
            "is without --no-labels (in Parquet, the column must be named 'label')"
        )
    given = config.step_size
    # Both rows of a pair would have the intercept: their difference does not.
    ranks = make_loss(config.loss).ranks
    if ranks and not schema.queried:
        raise InputError(
            "the ranking loss compares rows of one query, and the data has no queries: ingest "
            "svmlight with a qid:N in each line, give Parquet a column 'query', or arrays a query="
        )
    step_sizes = (1.0,) if isinstance(given, str) else (float(given),)
    method = Method(
        replace(config, batch_size=batch_size, fit_intercept=config.fit_intercept and not ranks),
        _task(config, columns),
        columns,
        step_sizes,
        schema.n_features,
    )
    if config.class_weight is not None:
        _ = method.class_importance
    return method


def _task(config: TrainConfig, columns: tuple[LabelColumn, ...]) -> Task:
    loss = make_loss(config.loss, config.huber_width, config.quantile)
    if (loss.couples or loss.ranks) and len(columns) > 1:
        raise InputError(
            f"the {config.loss} loss is for one label column; the data has {len(columns)}"
        )
    if not loss.classifies:
        for column in columns:
            if column.names is not None:
                raise InputError(
                    f"label column {column.name!r} has the classes {_listed(column.names)}, and "
                    f"the {config.loss} loss is for numbers; choose --loss hinge, squared-hinge or "
                    "logistic, or give labels that are numbers"
                )
        return "ranking" if loss.ranks else "regression"
    for column in columns:
        if column.values is None:
            raise InputError(
                f"label column {column.name!r} has more than 1000 distinct values, which is a "
                f"regression; the {config.loss} loss classifies. Choose --loss squared, absolute "
                "or huber"
            )
        if not column.values:
            raise InputError(f"label column {column.name!r} has no labels; training needs some")
        if len(column.values) < 2:
            raise InputError(
                f"label column {column.name!r} has only one class, "
                f"{_listed(column.names or column.values)}; a classifier needs two or more"
            )
        if len(columns) > 1 and len(column.values) > 2:
            raise InputError(
                f"label column {column.name!r} has {len(column.values)} distinct values; with "
                "several label columns each must have two (has the label, has it not)"
            )
    if len(columns) > 1:
        return "multilabel"
    # A loss over all classes has an output for each, also where there are two.
    binary = len(columns[0].values or ()) == 2 and not loss.couples
    return "binary" if binary else "multiclass"


def _listed(values: object) -> str:
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]  # type: ignore[attr-defined]
    return ", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")
