"""Settings of a training run, each written once.

A field of `TrainConfig` carries its help, its permitted values and its place on the command line.
The options of ``dadagrad train``, the parameters of the estimators and the reference documentation
are made from the fields. A setting decides bits of the model; threads, workers, checkpoints and
displays do not, and are arguments of `dadagrad.train`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal

from dadagrad.errors import InputError
from dadagrad.optim import baselines, projection_tree
from dadagrad.optim.calibration import CALIBRATIONS, Calibration
from dadagrad.optim.losses import LOSSES, Loss
from dadagrad.optim.preconditioners import PRECONDITIONERS, Diagonal, Preconditioner
from dadagrad.optim.registry import Registered, describe
from dadagrad.optim.regularizers import REGULARIZERS, ElasticBox, Regularizer, add_penalties
from dadagrad.optim.updates import UPDATES, GradientUpdate, Update
from dadagrad.settings import (
    Choice,
    ClassWeights,
    Number,
    Setting,
    Several,
    Spec,
    Switch,
    check_names,
    parameter_docs,
    setting,
)

__all__ = ["SETTINGS", "SWEPT", "TrainConfig", "baselines", "make_config", "projection_tree"]

CHOSEN = ("step_size", "average", "scale_columns", "center")
"""Settings that may be chosen on the first rows."""

SWEPT = ("step_size", "l1", "l2")
"""Settings that may have several values, tried side by side in one pass."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Settings of a training run, checked when they are made."""

    loss: Spec[Loss] = setting(
        "hinge",
        Registered(LOSSES),
        "Loss that training minimizes, such as logistic. hinge, squared-hinge and logistic "
        "classify; squared, absolute, huber (:width=1), quantile (:q=0.5) and poisson are for "
        "regression; multiclass-hinge and softmax compare all classes; ranking compares rows of "
        "a query.",
        "Common",
    )
    update: Spec[Update] = setting(
        "dual-averaging",
        Registered(UPDATES),
        "Rule that turns gradients into weights. dual-averaging, mirror-descent and ftrl step in "
        "the preconditioner; the others learn without penalties. coin-betting needs no step size.",
        "Algorithm",
    )
    preconditioner: Spec[Preconditioner] = setting(
        "diagonal",
        Registered(PRECONDITIONERS),
        "Matrix that scales steps. An example is sketch:rank=20. Training with diagonal is "
        "compiled; the others run in NumPy.",
    )
    l1: float | tuple[float, ...] = setting(
        0.0,
        Several(Number(minimum=0)),
        "Strength of the penalty l1 |w|_1 at each step. The intercept is free of it.",
        "Common",
    )
    l2: float | tuple[float, ...] = setting(
        0.0,
        Several(Number(minimum=0)),
        "Strength of the penalty l2/2 |w|^2 at each step. The intercept is free of it.",
        "Common",
    )
    low: float = setting(
        -math.inf,
        Number(finite=False),
        "Lower bound on each weight, at most 0.",
        "Regularizers and constraints",
    )
    high: float = setting(
        math.inf,
        Number(finite=False),
        "Upper bound on each weight, at least 0.",
        "Regularizers and constraints",
    )
    regularizer: Spec[Regularizer | None] = setting(
        None,
        Registered(REGULARIZERS, optional=True),
        "Norm to penalize, or set of allowed weights. Examples "
        "are group:strength=0.001,size=4 and, for each output, l1-ball:radius=10.",
        "Regularizers and constraints",
    )
    step_size: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto",
        Several(Number(above=0, words=("auto",))),
        "Step size; auto tries a grid on the first rows. Several values, also of l1 and l2, are "
        "trained in one pass in all combinations; of these, train keeps the one with the least "
        "progressive loss.",
        "Common",
    )
    batch_size: int | Literal["auto"] = setting(
        "auto",
        Number(whole=True, minimum=1, words=("auto",)),
        "Rows of a step; 1 is the online algorithm. auto is 1, or on a cluster, where streams are "
        "not possible, a 256th of the rows.",
        "Algorithm",
    )
    passes: int = setting(
        1, Number(whole=True, minimum=1), "Number of passes over the data.", "Common"
    )
    shuffle: bool = setting(True, Switch(), "Take partitions and raw rows in random order.", "Data")
    partitions_per_batch: int = setting(
        4,
        Number(whole=True, minimum=1),
        "Number of partitions that each batch takes rows from. Choose at least as many as a "
        "cluster has threads, more where neighbouring rows are alike. Changes the model if a "
        "batch has more than one row.",
        "Parallel",
        research=True,
    )
    streams: int | Literal["auto"] = setting(
        "auto",
        Number(whole=True, minimum=1, below=100_001, words=("auto",)),
        "Number of streams that learn side by side. Each takes one step for each of its rows, and "
        "all are merged now and then. As many threads or workers can be busy. Changes the model. "
        "auto is 1, or on a cluster, without a batch size, 16 to 256 by the non-zeros of the data.",
        "Parallel",
    )
    rounds: int | Literal["auto"] = setting(
        "auto",
        Number(whole=True, minimum=1, words=("auto",)),
        "Number of merges of the streams in the first pass. Later passes merge less often. auto is "
        "40 for up to 100,000 rows, fewer for more, and 14 from 800,000 on.",
        "Parallel",
        research=True,
    )
    accumulate: Literal["batch", "row"] = setting(
        "batch",
        Choice(("batch", "row")),
        "Squares that are summed to divide the steps. batch takes the square of a batch's mean "
        "gradient; row takes the mean of the squares of its rows, for shorter steps where the rows "
        "of a batch disagree.",
        research=True,
    )
    fit_intercept: bool = setting(
        True,
        Switch(),
        "Learn a constant, free of penalties, per output.",
        option="intercept",
    )
    average: bool | Literal["auto"] = setting(
        "auto",
        Switch(auto=True),
        "Use the mean of the weights of all steps. Step t counts 2t - 1 times. auto tries "
        "both where it tries step sizes for the online algorithm or streams, without l1 and l2, "
        "and is False elsewhere. With l1 or l2, averaging runs in NumPy.",
    )
    importance_aware: bool | Literal["auto"] = setting(
        "auto",
        Switch(auto=True),
        "Follow the loss along each step. No step passes the target of its row then. For online "
        "steps of compiled updates and losses that do not couple outputs (Karampatziakis and "
        "Langford 2011). auto is True for hinge, absolute and quantile.",
    )
    scale_columns: bool | Literal["auto"] = setting(
        "auto",
        Switch(auto=True),
        "Divide columns by their mean absolute values. The means are of the first rows. Penalties "
        "and bounds hold for the weights of the divided columns. auto does so where the mean "
        "values of frequent columns differ more than 20-fold, or are above 20 or below 0.001, as "
        "in raw tables.",
    )
    center: bool | Literal["auto"] = setting(
        "auto",
        Switch(auto=True),
        "Subtract means, for which the intercept makes up: of columns that nearly all rows have if "
        "some are far from 0, and of labels of regressions. auto does so where step_size is auto.",
        research=True,
    )
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = setting(
        None,
        ClassWeights(),
        "Factor of the weight of each row, by its class. balanced weighs classes by one over "
        "their number of rows. A class that is not named weighs 1.",
        "Data",
    )
    calibration: Spec[Calibration] = setting(
        "platt",
        Registered(CALIBRATIONS),
        "Fit of probabilities to progressive scores. platt is a logistic curve and isotonic any "
        "that does not fall; with none, only logistic and softmax loss have probabilities.",
    )
    holdout: float = setting(
        0.0,
        Number(minimum=0, below=1),
        "Share of the rows that is held out, to measure the model on; the seed decides which.",
        "Common",
    )
    early_stopping: bool = setting(
        False,
        Switch(),
        "Stop when the held-out loss no longer falls. A pass must lower it by 0.1 %.",
        "Common",
    )
    seed: int = setting(
        0,
        Number(whole=True, minimum=0),
        "Random seed of the order of rows. Those of a dataset keep their order inside partitions.",
        "Common",
    )

    def __post_init__(self) -> None:
        for name, described in SETTINGS.items():
            value = getattr(self, name)
            value = value.tolist() if hasattr(value, "tolist") else value  # numbers of NumPy
            object.__setattr__(self, name, described.kind.convert(name, value))
        if self.alternatives() == (self,):
            _check_algorithm(self)
        else:  # each has been checked by itself
            check_compiled(self, "several values of step_size, l1 or l2 need")
        _check_streams(self)

    def alternatives(self) -> tuple[TrainConfig, ...]:
        """The configurations that are trained side by side: all combinations of values."""
        if not any(isinstance(getattr(self, name), tuple) for name in SWEPT):
            return (self,)
        combinations = product(*(_values(getattr(self, name)) for name in SWEPT))
        return tuple(replace(self, **dict(zip(SWEPT, each, strict=True))) for each in combinations)

    @property
    def row_order(self) -> int | None:
        """Seed of the order of rows that are not a dataset yet; None if they keep their order."""
        return self.seed if self.shuffle else None

    @property
    def n_streams(self) -> int:
        """Number of streams; 1 until it is chosen."""
        return 1 if self.streams == "auto" else self.streams

    @property
    def penalties(self) -> Regularizer:
        """The regularizer together with l1, l2 and the bounds."""
        assert not isinstance(self.l1, tuple), "of one alternative"
        assert not isinstance(self.l2, tuple), "of one alternative"
        return add_penalties(self.regularizer, self.l1, self.l2, self.low, self.high)

    @property
    def is_compiled(self) -> bool:
        """True if compiled loops run it, whose sums can be merged if there are several streams."""
        return self.has_kernels and self.loss.has_kernels

    @property
    def has_kernels(self) -> bool:
        """True if compiled loops can run it with a loss that has a compiled slope.

        A user's class that is derived from a built-in one has formulas of its own.
        """
        return (
            self.update.has_kernels
            and UPDATES.is_built_in(self.update)
            and type(self.preconditioner) is Diagonal
            and (self.regularizer is None or type(self.regularizer) is ElasticBox)
            and not (self.average is True and {*_values(self.l1), *_values(self.l2)} != {0.0})
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON types: objects by name, infinities as text."""
        plain = {name: getattr(self, name) for name in SETTINGS}
        for name, described in SETTINGS.items():
            if isinstance(described.kind, Registered) and plain[name] is not None:
                plain[name] = describe(plain[name])
            elif isinstance(plain[name], tuple):
                plain[name] = list(plain[name])
        plain["low"], plain["high"] = str(self.low), str(self.high)
        return plain

    @classmethod
    def from_json(
        cls, plain: Mapping[str, Any], objects: Mapping[str, Any] | None = None
    ) -> TrainConfig:
        """Invert `to_json`; `objects` are those of a user's own classes, by setting.

        Raises `InputError` if a setting is not known, or an object is missing or is not the one
        that `plain` names.
        """
        values = dict(plain)
        for name, value in (objects or {}).items():
            if value is not None:
                described = describe(SETTINGS[name].kind.convert(name, value))
                if described != values.get(name):
                    raise InputError(
                        f"{name} {described!r} was given, and the run has {name} "
                        f"{values.get(name)!r}; give that one"
                    )
                values[name] = value
        for bound in ("low", "high"):
            if isinstance(values.get(bound), str):
                values[bound] = SETTINGS[bound].kind.parse(bound, values[bound])
        return make_config(None, values)


SETTINGS: dict[str, Setting] = {each.name: each.metadata["setting"] for each in fields(TrainConfig)}
"""Settings by name, in the order of the fields of `TrainConfig`."""


def make_config(
    config: TrainConfig | None, values: Mapping[str, Any], names: Iterable[str] = ()
) -> TrainConfig:
    """Return `config` (by default `TrainConfig()`) with some settings replaced by `values`.

    `InputError` names a setting that is not known, and the settings and other `names` that are like
    it.
    """
    if not isinstance(config, TrainConfig | None):
        raise InputError(
            f"config is a {type(config).__name__}; give a TrainConfig, or settings by name (labels "
            "go with X, as a pair (X, y), and the URL of the model is save_to)"
        )
    check_names(values, SETTINGS, names)
    return TrainConfig(**values) if config is None else replace(config, **values)


TrainConfig.__doc__ = (
    f"{TrainConfig.__doc__}\n\n    Parameters\n    ----------\n    {parameter_docs(SETTINGS)}\n    "
)


def _check_algorithm(config: TrainConfig) -> None:
    """Refuse settings that cannot be combined; `InputError` says why and what to do."""
    update = config.update
    if not isinstance(update, GradientUpdate | baselines.Learner):
        raise InputError(
            f"update {update.name!r} takes neither gradients nor rows; derive its class from "
            "dadagrad.optim.updates.GradientUpdate or dadagrad.optim.baselines.Learner"
        )
    if update.uses_penalties:
        if config.accumulate == "row" and not config.has_kernels:
            raise InputError(
                "accumulate 'row' is for the preconditioner 'diagonal' with l1, l2 and bounds, "
                "and for averaging without l1 and l2; leave it out, or change the other settings"
            )
        _ = config.penalties
        return
    if not update.takes_batches and config.batch_size not in (1, "auto"):
        raise InputError(
            f"update {update.name!r} learns row by row, so batch_size {config.batch_size} is not "
            "possible; leave it out"
        )
    for name in ("preconditioner", "regularizer", "l1", "l2", "low", "high", "accumulate"):
        value = getattr(config, name)
        if value != SETTINGS[name].kind.convert(name, SETTINGS[name].default):
            supported = ", ".join(each for each in UPDATES if UPDATES[each].uses_penalties)
            text = describe(value) if isinstance(SETTINGS[name].kind, Registered) else value
            raise InputError(
                f"update {update.name!r} does not support {name}={text!r}; leave out {name}, or "
                f"choose one of the updates {supported}"
            )


def _values(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check_streams(config: TrainConfig) -> None:
    """Refuse settings that do not go with several streams; `InputError` says why."""
    if config.n_streams == 1:
        if config.rounds != SETTINGS["rounds"].default:
            raise InputError(
                f"rounds={config.rounds} is the number of merges of several streams, and streams "
                f"is {config.streams}; leave out rounds, or give a number of streams"
            )
        return
    streams = f"streams={config.streams}"
    check_compiled(config, f"{streams} merges the sums of each coordinate, which needs")
    if config.batch_size not in (1, "auto"):
        raise InputError(
            f"with {streams} each row is a step of its stream, so batch_size {config.batch_size} "
            "is not possible; leave out batch_size or streams"
        )


def check_compiled(config: TrainConfig, needs: str) -> None:
    """Refuse settings that compiled loops cannot run; the message begins with `needs`."""
    if not config.is_compiled:
        raise InputError(
            f"{needs} one of the updates dual-averaging, mirror-descent and ftrl in the "
            "preconditioner 'diagonal' with l1, l2 and bounds (of which averaging takes only the "
            "bounds), with a compiled loss; change one or the other"
        )
