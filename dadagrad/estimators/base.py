"""Base of the estimators: parameters, training and prediction."""

from __future__ import annotations

import inspect
import os
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from dadagrad.config import SETTINGS, TrainConfig
from dadagrad.data.arrays import dataset_from_arrays
from dadagrad.data.dask_blocks import BlockedMatrix, is_dask
from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.ingest.sources import DaskMatrixSource
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import (
    FLOATS,
    MORE_PARAMETER_DOCS,
    MORE_PARAMETERS,
    check_numbers,
    check_weights,
    computed,
    is_stored,
    losses_of,
    make_init,
    open_stored,
    seed_of,
    unchanged_by_failure,
)
from dadagrad.estimators.fitting import FittedState, fit, partial_fit, restore
from dadagrad.model.evaluate import score_partitions
from dadagrad.model.model import Model
from dadagrad.optim.losses import LOSSES, Loss
from dadagrad.optim.registry import Registered
from dadagrad.settings import parameter_docs
from dadagrad.training.callbacks import Callbacks
from dadagrad.training.engines.resources import read_source
from dadagrad.training.result import TrainResult

Columns: TypeAlias = tuple[LabelColumn, ...]


class LinearEstimator(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """Linear model that is trained by adaptive subgradient steps.

    A subclass names the tasks of its losses and the settings of `TrainConfig` that are not
    among its parameters; `__init__` and the docs of the parameters follow.
    """

    loss: Loss | str
    shuffle: bool
    random_state: Any
    threads: int | None
    client: Any
    checkpoints: str | None
    callbacks: Callbacks | None
    verbose: int

    _more_parameters: Mapping[str, Any] = {}
    """Parameters of a subclass that others lack or have other defaults of, and their defaults."""
    _more_parameter_docs = ""
    _tasks: tuple[str, ...]
    _excluded_settings: tuple[str, ...]
    _state: FittedState
    _calls: int
    """Number of calls of `partial_fit` since the last `fit`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        settings = {name: SETTINGS[name] for name in SETTINGS if name not in cls._excluded_settings}
        settings["loss"] = replace(settings["loss"], default=losses_of(cls._tasks)[0])
        settings["passes"] = replace(settings["passes"], default=5)
        for name in cls._more_parameters.keys() & settings.keys():
            settings[name] = replace(settings[name], default=cls._more_parameters[name])
        defaults = {name: setting.default for name, setting in settings.items()}
        defaults |= {**MORE_PARAMETERS, **cls._more_parameters}
        cls.__init__ = make_init(cls, defaults)  # type: ignore[method-assign]
        if cls.__doc__ is not None:  # None under python -OO
            docs = parameter_docs(settings) + MORE_PARAMETER_DOCS + cls._more_parameter_docs
            cls.__doc__ = cls.__doc__.replace("{parameters}", docs)

    @abstractmethod
    def _encode_labels(
        self, y: NDArray[Any], kept: NDArray[np.bool_], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], Columns]:
        """Check labels; return (n_kept, n_label_columns) numbers of the kept, and their columns."""

    @abstractmethod
    def _adopt_labels(self, data: Dataset, *, new_labels: bool) -> Dataset:
        """Return a stored dataset with the label columns of the first call, or keep its own."""

    @abstractmethod
    def _decode_labels(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        """Return (n_rows, n_label_columns) numbers in the form of predictions."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _fitted(self) -> FittedState:
        check_is_fitted(self)
        return self._state

    @property
    def coef_(self) -> Any:
        """Weights, (n_outputs, n_features) float64; made when first asked for."""
        return self._fitted.coefficients

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Intercepts, (n_outputs,); 0 without `fit_intercept`."""
        return self._fitted.model.intercept

    @property
    def model_(self) -> Model:
        """The model, which can be saved and used by `dadagrad predict`."""
        return self._fitted.model

    @property
    def report_(self) -> dict[str, Any]:
        """Counts, losses and the step size of training, as plain JSON."""
        return self._fitted.report

    @property
    def t_(self) -> float:
        """Steps so far, by weight: a row of weight 2 counts as two."""
        state = self._fitted.state
        return float(self._fitted.report.get("rows", 0)) if state is None else state.t

    @classmethod
    def from_model(
        cls, model: Model | TrainResult | str | os.PathLike[str], **objects: Any
    ) -> Self:
        """Return a fitted estimator that predicts with a model.

        Parameters
        ----------
        model : Model, TrainResult, str or path
            A model, the result of `dadagrad.train`, or the URL of a model.
        **objects
            Settings that are objects of a user's own classes, such as ``loss``.

        Returns
        -------
        estimator
            Its parameters are the settings of the training. `partial_fit` goes on from a model that
            was saved with its state (`TrainResult.save`).

        Raises
        ------
        InputError
            The model is of another task, or there is none at the URL.
        """
        state = restore(model, objects)
        trained, config = state.model, state.problem.config
        if config.loss.task not in cls._tasks:
            raise InputError(
                f"the model is a {trained.task} with {trained.loss} loss; {cls.__name__} supports "
                f"{', '.join(losses_of(cls._tasks))}"
            )
        plain = trained.report["config"]
        names = inspect.signature(cls).parameters.keys() & SETTINGS.keys()
        settings = {name: getattr(config, name) for name in names}
        settings |= {n: plain[n] for n in names if isinstance(SETTINGS[n].kind, Registered)}
        estimator = cls(**settings | objects, random_state=config.seed)
        estimator._adopt_labels(state.origin, new_labels=True)
        estimator.n_features_in_ = trained.n_features
        if state.feature_names is not None:
            estimator.feature_names_in_ = state.feature_names
        return estimator._keep(state, passes=trained.report.get("passes", 1), calls=0)

    def sparsify(self) -> Self:
        """Make `coef_` a sparse matrix, which is smaller if l1 left few weights; return self."""
        self._state = replace(self._fitted, sparse=True)
        return self

    def densify(self) -> Self:
        """Make `coef_` an array again, as after `fit`; return self."""
        self._state = replace(self._fitted, sparse=False)
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train from the start.

        Parameters
        ----------
        X : array, sparse matrix, data frame, dask array or data frame, Dataset, or URL of one
            (n_rows, n_features). Values are kept as float32. Dask blocks are computed one at a
            time, once; a dataset is read partition by partition.
        y : (n_rows,), (n_rows, n_labels) of 0 and 1, or (n_rows, n_targets)
            Labels of any type that can be sorted, or the numbers of a regression; None for a
            dataset, which has its own.
        sample_weight : (n_rows,), optional
            Weights of at least 0. Rows of weight 0 are left out; a whole number stands for as many
            rows.

        Returns
        -------
        self

        Raises
        ------
        InputError
            Data and settings do not fit. The error is also a `ValueError`.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from these rows in one pass, starting from the current model if there is one.

        With ``batch_size=1``, ``shuffle=False``, ``scale_columns=False`` and a fixed step size, any
        number of calls gives the same bits as one `fit` of all rows with ``passes=1``.
        ``step_size="auto"`` chooses the step size on the rows of the first call, and a column is
        scaled by the first call that has values of it. The parameters are those of `fit`.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return predictions: labels, numbers of a regression, or scores of a ranking.

        (n_rows,), or (n_rows, n_label_columns) if y had two dimensions, 0 and 1 for a classifier.
        The row of a query with the largest score is ranked first. X is any input of `fit`; the
        result is an array in memory.
        """
        model, scores = self.model_, self._scores(X)
        labels = model.predict_labels(scores)
        return self._decode_labels(labels.reshape(len(scores), len(model.label_columns)))

    @unchanged_by_failure
    def _fit(
        self, X: Any, y: Any, sample_weight: Any, query: Any = None, *, saved: bool = True
    ) -> Self:
        """Train from the start, with the checkpoints that are wanted if it is to be `saved`."""
        self._check_loss()
        seed = seed_of(self.random_state)
        data = self._make_dataset(X, y, sample_weight, query, seed, reset=True, new_labels=True)
        if data is None:
            raise InputError("every sample_weight is zero; training needs a row of weight above 0")
        config = self._config(seed)
        resources = {"threads": self.threads, "client": self.client}
        checkpoints = self.checkpoints if saved else None
        state = fit(data, config, resources, checkpoints, self.verbose, self.callbacks)
        return self._keep(state, passes=state.report["passes"], calls=0)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, query: Any = None) -> Self:
        self._check_loss()
        if getattr(self, "holdout", 0.0):
            raise InputError("partial_fit holds no rows out: leave out holdout, or call fit")
        before = getattr(self, "_state", None)
        if before is not None:
            before.refuse_columns(X)
        calls = 0 if before is None else self._calls
        # The order of rows differs from call to call, and is the same in each run.
        seed = int(np.random.SeedSequence([seed_of(self.random_state), calls]).generate_state(1)[0])
        new = before is None
        data = self._make_dataset(X, y, sample_weight, query, seed, reset=new, new_labels=False)
        if data is not None:
            state = partial_fit(
                data, self._config(seed), self.threads, before, self.verbose, self.callbacks
            )
            return self._keep(state, passes=1, calls=calls + 1)
        if new:
            raise InputError("every sample_weight is zero; a first call needs one above 0")
        return self

    def _keep(self, state: FittedState, *, passes: int, calls: int) -> Self:
        state.feature_names = getattr(self, "feature_names_in_", None)
        self._state, self.n_iter_, self._calls = state, passes, calls
        return self

    def _make_dataset(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        query: Any,
        seed: int,
        *,
        reset: bool,
        new_labels: bool,
    ) -> Dataset | None:
        """Return the input as a dataset; None if no row has a weight above 0.

        `reset` and `new_labels` are True if the call decides the features and the labels; else they
        must be those of the calls before.
        """
        if is_stored(X):
            arguments = {"y": y, "sample_weight": sample_weight, "query": query}
            return self._open(open_stored(X), arguments, reset=reset, new_labels=new_labels)
        matrix = None
        if is_dask(X):
            matrix = BlockedMatrix(X)
            validate_data(self, matrix.meta, y, reset=reset, skip_check_array=True)
            y = matrix.gather(y, "y")
            sample_weight = matrix.gather(sample_weight, "sample_weight")
        else:
            y, sample_weight = computed(y, "y"), computed(sample_weight, "sample_weight")
            X, y = check_numbers(self, X, y=y, reset=reset, multi_output=True)
        n_rows = y.shape[0]
        kept, weights = np.ones(n_rows, np.bool_), None
        if sample_weight is not None:
            weights = check_weights(sample_weight, n_rows)
            kept = weights > 0
        if not kept.any():
            return None
        kept_labels, columns = self._encode_labels(y, kept, new_labels=new_labels)
        labels = np.zeros((n_rows, kept_labels.shape[1]))
        labels[kept] = kept_labels
        order = seed if self.shuffle else None
        if matrix is not None:
            source = DaskMatrixSource(matrix, labels, weights)
            data: Dataset = read_source(source, self.client, order)
        else:
            data = dataset_from_arrays(X, labels, sample_weight=weights, query=query, shuffle=order)
        data.schema = replace(data.schema, label_columns=columns)
        return data

    def _open(
        self, data: Dataset, arguments: dict[str, Any], *, reset: bool, new_labels: bool
    ) -> Dataset:
        """Check a stored dataset, and return it with the label columns of the first call."""
        for name, value in arguments.items():
            if value is not None:
                raise InputError(f"X is a dataset, which has its own {name}; leave out {name}")
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = data.schema.n_features
        else:
            self.model_.check_compatible(data.schema)
        return self._adopt_labels(data, new_labels=new_labels)

    def _check_loss(self) -> None:
        loss = LOSSES.make(self.loss)
        if loss.task not in self._tasks:
            raise InputError(
                f"{type(self).__name__} does not support the loss {loss.name!r}; choose one of "
                f"{', '.join(losses_of(self._tasks))}"
            )

    def _config(self, seed: int) -> TrainConfig:
        settings = {name: value for name, value in self.get_params().items() if name in SETTINGS}
        return TrainConfig(**settings | {"seed": seed})

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Return the (n_rows, n_outputs) scores of the rows of X, in their order."""
        check_is_fitted(self)
        if self._state.are_columns(X):
            return self.model_.decision_function(X)
        if is_stored(X):
            data, model = open_stored(X), self.model_
            model.check_compatible(data.schema)
            parts = [scores for _, _, scores in score_partitions(model, data)]
            return np.concatenate([np.zeros((0, model.n_outputs)), *parts])
        if is_dask(X):
            matrix = BlockedMatrix(X)
            validate_data(self, matrix.meta, reset=False, skip_check_array=True)
            return np.concatenate([self._block_scores(block) for block in matrix.computed()])
        return self._block_scores(check_numbers(self, X, reset=False))

    def _block_scores(self, X: Any) -> NDArray[np.float64]:
        if not X.shape[0]:  # a filter may leave a block without rows
            return np.zeros((0, len(self.intercept_)))
        # Sparse coefficients are float64, and a product needs both alike.
        dtype = np.float64 if self._state.sparse else FLOATS
        X = check_array(X, accept_sparse="csr", dtype=dtype, input_name="X", estimator=self)
        products = safe_sparse_dot(X, self._state.coefficients.T, dense_output=True)
        scores: NDArray[np.float64] = products + self._state.model.intercept
        return scores

    def _score_arguments(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Return the arguments of `score`; a dataset has its own labels and weights."""
        if not is_stored(X):
            return X, computed(y, "y"), computed(sample_weight, "sample_weight")
        data = open_stored(X)
        rows = map(data.read, range(len(data.partitions)))
        labels, weights = zip(*((part.labels, part.weights) for part in rows), strict=True)
        if y is None:
            y = self._decode_labels(np.concatenate(labels))
        if sample_weight is None and data.schema.weighted:
            sample_weight = np.concatenate(weights)
        return data, y, sample_weight
