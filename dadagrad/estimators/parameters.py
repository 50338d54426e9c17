"""Parameters of the estimators, from the settings of `TrainConfig` and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from dadagrad.optim.losses import LOSSES

MORE_PARAMETERS = dict.fromkeys(
    ("random_state", "threads", "client", "checkpoints", "callbacks")
) | {"verbose": 0}
"""Parameters of the estimators, with their defaults, that are not settings of `TrainConfig`."""

MORE_PARAMETER_DOCS = """
    random_state : int, RandomState or None, default=None
        Random seed of the order of rows. None is 0: the same call gives the same bits.
    threads : int or None, default=None
        Number of threads; None is 2.
    client : "current", str, distributed.Client or None, default=None
        Dask cluster on which `fit` trains on a dataset: "current" is the active client, and a str
        the address of a scheduler.
    checkpoints : str or None, default=None
        URL of a folder. `fit` leaves checkpoints there, and resumes from them when it is called
        with the same data and settings again.
    callbacks : list of Callback or callable, default=None
        Receivers of the events of training, as in `dadagrad.train`.
    verbose : int, default=0
        1 shows messages, progress and the result of training on standard error."""


def losses_of(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the losses of these tasks."""
    return tuple(name for name in LOSSES if LOSSES[name].task in tasks)


def make_init(cls: type, defaults: Mapping[str, Any]) -> Callable[..., None]:
    """Return an `__init__` for `cls` that stores its parameters; the first may be positional.

    scikit-learn reads the parameters of an estimator from the signature of its `__init__`.
    """
    kinds = [Parameter.POSITIONAL_OR_KEYWORD, *[Parameter.KEYWORD_ONLY] * (len(defaults) - 1)]
    parameters = [
        Parameter(name, kind, default=default)
        for (name, default), kind in zip(defaults.items(), kinds, strict=True)
    ]
    signature = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters])

    def initialize(self: Any, *args: Any, **keywords: Any) -> None:
        arguments = signature.bind(self, *args, **keywords)
        arguments.apply_defaults()
        for name in defaults:
            setattr(self, name, arguments.arguments[name])

    initialize.__signature__ = signature  # type: ignore[attr-defined]
    initialize.__module__, initialize.__name__ = cls.__module__, "__init__"
    initialize.__qualname__ = f"{cls.__qualname__}.__init__"
    return initialize
