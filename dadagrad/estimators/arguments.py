"""Parameters of the estimators, and checks of the arguments of their methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from functools import wraps
from numbers import Integral
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from dadagrad.data import open_dataset
from dadagrad.data.arrays import check_complete
from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import check_length
from dadagrad.data.tables.formats import is_frame, to_table
from dadagrad.errors import InputError
from dadagrad.optim.losses import LOSSES

Method = TypeVar("Method", bound=Callable[..., Any])

MORE_PARAMETERS = dict.fromkeys(
    ("random_state", "threads", "client", "checkpoints", "callbacks")
) | {"verbose": 0}
"""Parameters of the estimators, with their defaults, that are not settings of `TrainConfig`."""

MORE_PARAMETER_DOCS = """
    random_state : int, RandomState or None, default=None
        Random seed of the order of rows. None is 0: the same call gives the same bits.
    threads : int or None, default=None
        Number of threads; None is that of the cores.
    client : "current", str, distributed.Client or None, default=None
        Dask cluster on which `fit` trains on a dataset or a dask collection, whose blocks its
        workers compute: "current" is the active client, and a str the address of a scheduler. An
        estimator with a `Client` cannot be cloned or pickled: give searches one of the others.
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
    fields = [
        (name, Any, field(default=default, kw_only=number > 0))
        for number, (name, default) in enumerate(defaults.items())
    ]
    initialize: Callable[..., None] = make_dataclass(cls.__name__, fields).__init__  # type: ignore[misc]
    initialize.__annotations__, initialize.__module__ = {}, cls.__module__
    return initialize


def unchanged_by_failure(method: Method) -> Method:
    """Make a method of an estimator leave it as it was before if the method fails."""

    @wraps(method)
    def guarded(estimator: Any, *args: Any, **keywords: Any) -> Any:
        before = estimator.__dict__.copy()
        try:
            return method(estimator, *args, **keywords)
        except BaseException:
            estimator.__dict__ = before
            raise

    return cast(Method, guarded)


FLOATS = (np.float64, np.float32)
"""Dtypes of X that are not converted."""


def check_numbers(estimator: Any, X: Any, **settings: Any) -> Any:
    """Return a matrix that scikit-learn has checked, or what it returns with these settings.

    Raises `InputError` for a data frame of other things than numbers, and says what takes it.
    """
    check_complete(X, "X")
    try:
        return validate_data(estimator, X, accept_sparse="csr", dtype=FLOATS, **settings)
    except (ValueError, TypeError) as error:
        problem = _other_than_numbers(X) if is_frame(X) else None
        if problem is None:
            raise
        name = type(estimator).__name__
        raise InputError(
            f"{problem}; estimators take numbers. Dates, categories and missing values of a data "
            f"frame become features by dadagrad.train((X, y)), and {name}.from_model(result) makes "
            "an estimator of its result"
        ) from error


def _other_than_numbers(frame: Any) -> str | None:
    """Describe the first column of a data frame that has other things than numbers."""
    table = to_table(frame, "X")
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        floats = pa.types.is_floating(kind)
        if not (floats or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            return f"X: column {name!r} does not hold numbers"
        if column.null_count or (floats and pc.any(pc.is_nan(column)).as_py()):
            return f"X: column {name!r} has missing values"
    return None


def is_stored(X: object) -> bool:
    """Return True if X is a dataset or the URL of one."""
    return isinstance(X, Dataset | str | os.PathLike)


def open_stored(X: Dataset | str | os.PathLike[str]) -> Dataset:
    """Return a dataset, which X is or is the URL of."""
    return X if isinstance(X, Dataset) else open_dataset(os.fspath(X))


def computed(column: Any, name: str) -> Any:
    """Compute `column` if it is a dask collection; `InputError` if some of it is missing."""
    column = column.compute() if is_dask(column) else column
    check_complete(column, name)
    return column


def check_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Return weights as a checked (n_rows,) array; a single number is the weight of every row."""
    sample_weight = np.asarray(sample_weight)
    if sample_weight.ndim == 0:
        sample_weight = np.full(n_rows, sample_weight)
    weights: NDArray[np.float64] = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        ensure_non_negative=True,
        input_name="sample_weight",
    )
    check_length(weights, n_rows, "sample_weight", "the arguments")
    return weights


def seed_of(random_state: Any) -> int:
    """Return the seed of `random_state`; None stands for 0, not for NumPy's global generator."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return int(random_state)
    raise InputError(
        "random_state must be None, a whole number of at least 0 or a RandomState, not "
        f"{random_state!r}"
    )
