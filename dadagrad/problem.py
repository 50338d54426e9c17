"""A problem: a configuration together with the schema of the data.

The configuration has the loss and the penalties; the data has the label columns and classes.
Together they give the outputs (a linear model each, in one stream) and the settings of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.units import Units
from dadagrad.errors import InputError
from dadagrad.optim.baselines import Learner
from dadagrad.optim.losses import Loss
from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.registry import parameters
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import GradientUpdate
from dadagrad.summary import listed
from dadagrad.task import Task, task_of

if TYPE_CHECKING:
    from dadagrad.kernels.training import Hyperparameters, Targets

MAX_GROUP_WIDTH = 8
"""Independent outputs of a group: their part of the state fills one cache line."""


@dataclass(frozen=True)
class Problem:
    """Configuration and schema together: targets, outputs and sizes.

    Attributes
    ----------
    config : TrainConfig
        With `batch_size` a number. Each of its alternatives is a setting, and every setting trains
        all targets, in the same pass over the data.
    units : Units
        The units that rows are learned from in, in which a state is.
    """

    config: TrainConfig
    task: Task
    label_columns: tuple[LabelColumn, ...]
    n_features: int
    units: Units = field(default=Units(), repr=False, compare=False)
    configs: tuple[TrainConfig, ...] = ()
    """Configurations of several settings, if they are not the alternatives of `config`."""

    def __getstate__(self) -> dict[str, object]:
        # Compiled functions are not sent to workers.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def loss(self) -> Loss:
        return self.config.loss

    @property
    def online(self) -> bool:
        """True if every row is a step of its own."""
        return self.config.batch_size == 1

    @cached_property
    def compiled(self) -> bool:
        """True if compiled kernels run the problem; else it runs in NumPy."""
        return self.config.has_kernels and (self.loss.has_kernels or not self.online)

    @property
    def averages(self) -> bool:
        """True if compiled kernels keep the average of the weights."""
        return self.compiled and self.config.average is True

    @cached_property
    def has_momentum(self) -> bool:
        """True if merges of streams keep a momentum (`dadagrad.training.coordinator.merge`).

        Of several settings, those without a penalty have one.
        """
        penalties = np.add(self.hyperparameters.l1, self.hyperparameters.l2)
        return self.compiled and self.config.n_streams > 1 and bool(np.any(penalties == 0.0))

    @property
    def chooses_average(self) -> bool:
        """True if the trial of step sizes decides whether the model is the average."""
        config = self.settings[0].config
        tried = config.average == config.step_size == "auto" and config.update.has_step_size
        penalized = any(each.config.l1 or each.config.l2 for each in self.settings)
        return tried and self.compiled and self.online and not penalized

    @property
    def learns_by_row(self) -> bool:
        """True if the update is a `Learner`, for which the intercept is one more feature."""
        return self.config.update.by_row

    @cached_property
    def settings(self) -> tuple[Problem, ...]:
        """The problem of each setting alone."""
        configs = self.configs or self.config.alternatives()
        if len(configs) == 1:
            return (self,)
        return tuple(replace(self, config=each, configs=()) for each in configs)

    @property
    def step_size(self) -> float:
        """The step size of the only setting; 1 before one is chosen."""
        step_size = self.config.step_size
        assert not isinstance(step_size, tuple), "of one setting"
        return 1.0 if step_size == "auto" else step_size

    @cached_property
    def algorithm(self) -> GradientUpdate | Learner:
        """The update with everything that it needs, of the only setting."""
        algorithm = self.config.update.bind(
            loss=self.loss,
            step_size=self.step_size,
            preconditioner=self.config.preconditioner,
            regularizer=self.config.penalties,
        )
        assert isinstance(algorithm, GradientUpdate | Learner)
        return algorithm

    @cached_property
    def classes(self) -> NDArray[np.float64]:
        """Distinct labels of a binary or multiclass task, in increasing order."""
        return np.array(self.label_columns[0].values or (), np.float64)

    @cached_property
    def n_targets(self) -> int:
        """Number of outputs of one setting: classes, label columns, or one."""
        return len(self.classes) if self.task == "multiclass" else len(self.label_columns)

    @cached_property
    def n_settings(self) -> int:
        return len(self.settings)

    @cached_property
    def n_outputs(self) -> int:
        """Number of linear models trained in one pass: targets for each setting."""
        return self.n_targets * self.n_settings

    @cached_property
    def group_width(self) -> int:
        """Number of outputs of a group, which are trained together.

        All outputs that the loss couples form one group. Independent outputs are grouped to share
        cache lines, in groups small enough that each of two threads has one. A group shares the
        time of a feature's last update, so lazy shrinking, as in mirror descent, has groups of one.
        """
        if self.loss.couples:
            return self.n_targets
        if self.config.update.shrinks_lazily:
            return 1
        widest = min(MAX_GROUP_WIDTH, max(2, self.n_targets // 2))
        return next(width for width in range(widest, 0, -1) if self.n_targets % width == 0)

    @cached_property
    def n_groups(self) -> int:
        return self.n_outputs // self.group_width

    def of_group(self, group: int) -> tuple[Targets, Hyperparameters]:
        """The `kernel_targets` and `hyperparameters` of the outputs of one group alone."""
        if self.n_settings > 1:
            setting, group_of_setting = divmod(group, self.n_groups // self.n_settings)
            return self.settings[setting].of_group(group_of_setting)
        outputs = slice(group * self.group_width, (group + 1) * self.group_width)
        targets, steps = self.kernel_targets, self.hyperparameters
        return (
            targets._replace(
                n_targets=self.group_width,
                label_column=targets.label_column[outputs],
                positive=targets.positive[outputs],
            ),
            steps._replace(
                step_size=steps.step_size[group], l1=steps.l1[group], l2=steps.l2[group]
            ),
        )

    @cached_property
    def user_slope(self) -> object:
        """The compiled slope of a user's own loss; None for any other."""
        from dadagrad.kernels.training import compile_slope

        return compile_slope(self.loss) if self.loss.code is None else None

    @cached_property
    def kernel_targets(self) -> Targets:
        """The loss and the targets as the kernels take them."""
        from dadagrad.kernels.training import Targets

        if self.task == "multiclass":
            column = np.zeros(self.n_targets, np.int64)
            positive = self.classes
        else:
            column = np.arange(self.n_targets, dtype=np.int64)
            positive = np.array(
                [
                    label.values[-1] if self.loss.classifies else np.nan  # type: ignore[index]
                    for label in self.label_columns
                ]
            )
        code, parameter = -1, 0.0  # of a user's own loss
        if self.loss.code is not None:
            code, parameter = self.loss.code, next(iter(parameters(self.loss).values()), 0.0)
        return Targets(
            code,
            float(parameter),
            self.n_targets,
            np.tile(column, self.n_settings),
            np.tile(positive, self.n_settings),
            self.config.fit_intercept,
        )

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """The settings of the update as the kernels take them."""
        from dadagrad.kernels.training import Hyperparameters

        delta = getattr(self.config.preconditioner, "delta", Diagonal().delta)
        aware = self.config.importance_aware
        penalties = [setting.config.penalties for setting in self.settings]
        boxes = [each if isinstance(each, ElasticBox) else ElasticBox() for each in penalties]

        unit = float(self.loss_factors[0]) if len(self.label_columns) == 1 else 1.0

        def of_groups(of_settings: list[float]) -> NDArray[np.float64]:
            return np.repeat(np.array(of_settings, np.float64), self.n_targets // self.group_width)

        return Hyperparameters(
            of_groups([setting.step_size for setting in self.settings]),
            of_groups([box.l1 / unit for box in boxes]),
            of_groups([box.l2 / unit for box in boxes]),
            float(boxes[0].low),
            float(boxes[0].high),
            float(delta),
            self.config.update.is_proximal,
            self.loss.has_kink if aware == "auto" else aware,
        )

    def choose(self, step_size: float, average: bool) -> Problem:
        """Return the same problem with what a trial has chosen."""
        average = average if self.chooses_average else self.config.average is True
        return self._with_choices(step_size=step_size, average=average)

    def _with_choices(self, **choices: Any) -> Problem:
        """Return the same problem with some settings changed in each configuration."""
        config, *configs = (replace(each, **choices) for each in (self.config, *self.configs))
        return replace(self, config=config, configs=tuple(configs))

    def with_configs(self, configs: Sequence[TrainConfig]) -> Problem:
        """Return the same problem with other settings side by side.

        They may differ in the settings `SWEPT`, and in built-in losses of the same outputs.
        """
        several = tuple(
            replace(
                each, batch_size=self.config.batch_size, fit_intercept=self.config.fit_intercept
            )
            for each in configs
        )
        return replace(self, config=several[0], configs=several if len(several) > 1 else ())

    def with_units(self, units: Units) -> Problem:
        """Return the same problem with these `units`."""
        scaled = units.scales is not None or self.config.scale_columns is True
        centered = not (units.means is None and units.centers is None)
        centered = centered or self.config.center is True
        problem = self._with_choices(scale_columns=scaled, center=centered)
        return replace(problem, units=units)

    @property
    def may_center(self) -> bool:
        """True if columns and labels may lose means; by default not with a given step size."""
        config = self.config
        if config.center != "auto":
            return config.center
        return config.fit_intercept and config.step_size == "auto" and config.update.has_step_size

    @property
    def takes_centers(self) -> bool:
        """True if the loss has centers, and penalties weigh against it as without them.

        Where the loss of centered labels is in another unit, so are `hyperparameters`, for one
        label column.
        """
        centered, config = self.loss.center(np.ones((1, 1)), np.ones(1)), self.config
        if centered is None or (centered[1] == 1.0).all():
            return centered is not None
        has_units = self.compiled and config.regularizer is None and len(self.label_columns) == 1
        return has_units or not (config.l1 or config.l2 or config.regularizer)

    def center(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The (n_rows, n_label_columns) `labels` as they are learned from with `Units.centers`."""
        assert self.units.centers is not None
        centered = self.loss.center(labels, self.units.centers)
        assert centered is not None, "only losses with centers have some"
        return centered[0]

    @cached_property
    def loss_factors(self) -> NDArray[np.float64]:
        """Factors of the losses of centered labels, (n_label_columns,), that make them true."""
        centers = self.units.centers
        if centers is None:
            centers = np.zeros(len(self.label_columns))
        centered = self.loss.center(centers[None], centers)
        return np.ones_like(centers) if centered is None else centered[1]

    def targets(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Targets of each output: (n_rows, n_outputs) signs, or values of a regression."""
        columns = labels[:, self.kernel_targets.label_column]
        if not self.loss.classifies:
            return columns
        return np.where(columns == self.kernel_targets.positive, 1.0, -1.0)

    @cached_property
    def class_importance(self) -> NDArray[np.float64] | None:
        """Weight of each of `classes`; None if all weigh the same."""
        class_weight = self.config.class_weight
        if class_weight is None:
            return None
        if self.task not in ("binary", "multiclass"):
            raise InputError(
                f"class_weight needs one label column with classes; this is a {self.task} task"
            )
        if class_weight == "balanced":
            counts = np.array(self.label_columns[0].counts or (), np.float64)
            if not len(counts):
                raise InputError("the data does not count its classes; give class_weight by label")
            return np.float64(counts.sum()) / (len(counts) * np.maximum(counts, 1.0))
        (column,) = self.label_columns
        positions = {label: column.position(label) for label in class_weight}
        unknown = [label for label, position in positions.items() if position is None]
        # A part of the data may lack a class. A label that is misspelt leaves a class without one.
        if unknown and len(set(positions.values()) - {None}) < len(column.texts):
            raise InputError(
                f"class_weight names label {unknown[0]!r}, which the data does not have; its "
                f"labels are {listed(column.texts)}"
            )
        importance = np.ones(len(column.texts))
        for label, position in positions.items():
            if position is not None:
                importance[position] = class_weight[label]
        if not importance.any():
            raise InputError("class_weight is 0 for all labels; give at least one more than that")
        return importance


def make_problem(config: TrainConfig, schema: Schema, batch_size: int) -> Problem:
    """Combine a configuration with the schema of the data.

    `InputError` says that the labels do not suit the loss: more than a thousand distinct values
    or a single class for a classifier, or more than two values of a label of a multilabel task.
    """
    columns = schema.label_columns
    if not columns:
        raise InputError(
            "the data has no label column, and training needs one; ingest it with its labels, that "
            "without --no-labels (in Parquet, the column must be named 'label'; a matrix in memory "
            "is given with its labels, as a pair (X, y))"
        )
    task, ranks = task_of(config, columns), config.loss.ranks
    if ranks and not schema.queried:
        raise InputError(
            "the ranking loss compares rows of one query, and the data has no queries: ingest "
            "svmlight with a qid:N in each line, or a table with --query, or give Parquet of ids a "
            "column 'query', or dataset_from_arrays a query="
        )
    # The intercepts of the two rows of a pair cancel.
    intercept = config.fit_intercept and not ranks
    if config.center is True and not intercept:
        missing = "a ranking has none" if ranks else "it is left out"
        raise InputError(
            f"--center subtracts means, for which an intercept makes up, and {missing}; leave out "
            "--center"
        )
    config = replace(config, batch_size=batch_size, fit_intercept=intercept)
    problem = Problem(config, task, columns, schema.n_features)
    if config.class_weight is not None:
        _ = problem.class_importance
    return problem
