"""Training that goes on from a model: the state that it starts from, and the data as it needs them.

A model is saved with the state of its training (`TrainResult.save`), whose bits are those after the
last row. So a run over the rows of today that starts from the model of yesterday makes the model of
one run over both, in this order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dadagrad.config import CHOSEN, TrainConfig
from dadagrad.data.dataset import Dataset
from dadagrad.data.units import Units
from dadagrad.data.views import check_features, with_label_columns
from dadagrad.errors import CorruptionError, InputError
from dadagrad.model.model import Model
from dadagrad.problem import Problem
from dadagrad.storage.arrays import AnyArray
from dadagrad.training.checkpoints.snapshot import Start
from dadagrad.training.messages import Place
from dadagrad.training.progressive import HISTOGRAM, SUMS, ProgressiveMetrics
from dadagrad.training.result import TrainResult
from dadagrad.training.state import zero_state
from dadagrad.training.state.base import TrainingState

InitialModel: TypeAlias = "TrainResult | InitialState | str"

_FIXED = (
    "update", "loss", "accumulate", "fit_intercept", "preconditioner", "average",
    "scale_columns", "center", "calibration",
)  # fmt: skip
"""Settings that cannot change where training goes on from a state."""

_DECIDE_COMPILATION = ("regularizer", "batch_size", "l1", "l2")
"""Settings of which a change is refused where it makes another kind of state."""


@dataclass(frozen=True)
class InitialState:
    """The state of an earlier run, with its model and its configuration."""

    model: Model
    config: TrainConfig
    arrays: Mapping[str, AnyArray]

    @classmethod
    def load(cls, initial: InitialModel, objects: Mapping[str, Any]) -> InitialState:
        """Return the state of a result, or that saved with the model at a URL.

        `objects` are settings; those of a user's own classes are needed to read the configuration.
        Raises `InputError` if the model was saved without a state.
        """
        if isinstance(initial, InitialState):
            return initial
        model, arrays = load_with_state(initial)
        if not arrays:
            if isinstance(initial, Model):
                raise InputError("a Model has no state of its training; give the result of train")
            raise InputError(
                f"the model at {initial} was saved without the state of its training; train it "
                "again with --keep-state"
            )
        return cls(model, config_of(initial, model, objects), arrays)

    def adopt(self, data: Dataset) -> Dataset:
        """Return `data` with the labels of the model, and at least its features."""
        check_features(self.model.schema, data.schema)
        n_features = max(self.model.n_features, data.schema.n_features)
        columns, any_numbers = self.model.label_columns, not self.model.has_classes
        return with_label_columns(data, columns, n_features, any_numbers=any_numbers)

    def begin(self, problem: Problem) -> tuple[Problem, Start]:
        """Return `problem` with the choices of the run before, and the start from its state."""
        model = self.model
        # A run changes its state, and others may start from the same.
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        before = Problem(self.config, model.task, model.label_columns, model.n_features)
        try:
            units = Units.take(arrays, model.n_features, len(model.label_columns))
        except ValueError as error:
            raise _corruption(error) from None
        before = before.with_units(units.grown(problem.n_features))
        problem = continue_problem(problem, before)
        if problem.n_features > model.n_features and not problem.compiled:
            raise InputError(
                f"the data has {problem.n_features} features and the initial model "
                f"{model.n_features}, and an algorithm that runs in NumPy takes no new features; "
                "train on all of the data from the start"
            )
        try:
            earlier = ProgressiveMetrics.from_arrays(arrays) if SUMS in arrays else None
            arrays = {name: arrays[name] for name in arrays if name not in (SUMS, HISTOGRAM)}
            t = float(arrays.pop("t")[0])
            if problem.n_features > model.n_features:
                arrays = _grow(arrays, model.n_features, problem.n_features)
            return problem, Start(
                continue_state(problem, arrays, t), Place(earlier=earlier), names=model.names
            )
        except (KeyError, ValueError, IndexError) as error:
            raise _corruption(error) from None


def _corruption(error: Exception) -> CorruptionError:
    return CorruptionError(f"the state of the initial model does not fit: {error}")


def load_with_state(source: Any) -> tuple[Model, Mapping[str, AnyArray]]:
    """Return a model, that of a `TrainResult` or at a URL, and the arrays of its state, if any."""
    if isinstance(source, Model):
        return source, {}
    if isinstance(source, TrainResult):
        return source.model, source.state_arrays()
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"{type(source).__name__} is not the result of a run; give one, or the URL of its model"
        )
    return Model.load(source), Model.load_state(source)


def config_of(source: Any, model: Model, objects: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of the run that made `model`, which was loaded from `source`.

    A result has its own; else `objects` are settings, of which those of a user's own classes are
    needed to read it.
    """
    if isinstance(source, TrainResult):
        best: Problem = source.coordinator.problem.settings[source.report["best"]]
        return best.config
    own_objects = {
        name: value
        for name, value in objects.items()
        if not isinstance(value, str | int | float | list | tuple | dict | None)
    }
    return TrainConfig.from_json(model.report["config"], own_objects)


def continue_problem(problem: Problem, before: Problem) -> Problem:
    """Return `problem` with the choices of `before` if it can continue from its state."""
    config, chosen = problem.config, before.config
    choices = {name: getattr(chosen, name) for name in CHOSEN if getattr(config, name) == "auto"}
    config = replace(config, **choices)
    problem = replace(problem, config=config, units=before.units)
    if problem.units.centers is not None and not all(
        each.takes_centers for each in problem.settings
    ):
        raise InputError(
            f"the initial model of {problem.loss.name} loss began at the best constant, which "
            "would change the strength of these penalties; give it those that it had, or train "
            "from the start"
        )
    old, new = chosen.to_json(), config.to_json()
    fixed = _FIXED if before.compiled == problem.compiled else (*_FIXED, *_DECIDE_COMPILATION)
    changes = [(name, old[name], new[name]) for name in fixed]
    changes.append(("the number of settings side by side", before.n_settings, problem.n_settings))
    for name, was, value in changes:
        if was != value:
            raise InputError(
                f"{name} was {was!r} and is {value!r} now; training cannot continue from the state "
                "of the one with the other: give the same, or train from the start"
            )
    return problem


def continue_state(problem: Problem, arrays: Mapping[str, AnyArray], t: float) -> TrainingState:
    """Return the state that had these `arrays` after `t` steps, for the settings of `problem`."""
    zero = zero_state(problem)
    momentum = zero.arrays.get("momentum")
    # With other streams or penalties it begins anew, or there is none.
    if momentum is not None and arrays["momentum"].shape != momentum.shape:
        arrays = {**arrays, "momentum": momentum}
    return zero.restored(dict(arrays), t)


def _grow(arrays: dict[str, AnyArray], before: int, after: int) -> dict[str, AnyArray]:
    """Return the arrays of a compiled state with zeros for new features, which are the last."""
    grown = {}
    for name, array in arrays.items():
        grown[name] = array
        if name != "intercept" and array.shape[1] == before:
            grown[name] = np.zeros((array.shape[0], after, *array.shape[2:]), array.dtype)
            grown[name][:, :before] = array
    return grown
