"""The model: what is left of a run when all that is wanted of it is to predict.

Weights that are not zero, the ids of their features, intercepts, classes, and how the source
became features. `dadagrad.model_files` says how it lies on disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.losses import MOST_LOG_MEAN, WITH_PROBABILITIES, Poisson, Softmax
from dadagrad.method import Task

if TYPE_CHECKING:
    from dadagrad.storage import Storage

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """Linear models that can predict, and nothing else.

    Two models of the same run have equal `digest`.

    Attributes
    ----------
    n_features : int
        Columns of the feature space; a dataset with another number is refused.
    ids : (k,) int64
        The features of which some weight is not zero, strictly increasing.
    weights : (k, n_outputs) float32
        Their weights; all other features weigh 0.
    intercept : (n_outputs,) float64
    loss : str
    task : {"binary", "multiclass", "multilabel", "regression", "ranking"}
    label_columns : tuple of LabelColumn
        The labels it was trained on: their values are what `predict_labels` answers. One output
        belongs to each class of a multiclass task, and to each column of any other.
    feature_space : dict or None
        How the source became features, as in `Schema`.
    names : mapping of int to str
        Names of features, where known.
    report : dict
        Plain JSON about the training: steps, examples, progressive loss, configuration.
    """

    n_features: int
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    intercept: Vector
    loss: str
    task: Task
    label_columns: tuple[LabelColumn, ...]
    feature_space: dict[str, Any] | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise InputError(f"the task is {self.task!r}; it must be one of {get_args(Task)}")
        n_outputs = self._expected_outputs()
        for name, dtype, shape in (
            ("ids", np.int64, (len(self.ids),)),
            ("weights", np.float32, (len(self.ids), n_outputs)),
            ("intercept", np.float64, (n_outputs,)),
        ):
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise InputError(
                    f"the {name} of a model are {array.dtype}, shape {array.shape}; with "
                    f"{len(self.ids)} ids and {n_outputs} outputs they must be "
                    f"{np.dtype(dtype)}, shape {shape}"
                )
        inside = not len(self.ids) or (self.ids[0] >= 0 and self.ids[-1] < self.n_features)
        if not inside or (self.ids[1:] <= self.ids[:-1]).any():
            raise InputError(
                f"the ids of a model must increase strictly within 0 to {self.n_features - 1}"
            )

    def _expected_outputs(self) -> int:
        """How many outputs the task and the labels ask for."""
        columns = self.label_columns
        if self.task in ("binary", "multiclass") and len(columns) != 1:
            raise InputError(f"a {self.task} model has one label column; {len(columns)} were given")
        for column in columns:
            if self.task not in ("regression", "ranking") and not column.values:
                raise InputError(
                    f"label column {column.name!r} has no list of values; a {self.task} model "
                    "needs to know them"
                )
        return len(columns[0].values or ()) if self.task == "multiclass" else len(columns)

    @property
    def n_outputs(self) -> int:
        return len(self.intercept)

    @cached_property
    def digest(self) -> str:
        """sha256 over the little-endian bytes of the weights, the ids and the intercepts."""
        digest = hashlib.sha256()
        for array, dtype in ((self.weights, "<f4"), (self.ids, "<i8"), (self.intercept, "<f8")):
            digest.update(np.ascontiguousarray(array, dtype).data)
        return digest.hexdigest()

    def margins(self, rows: Rows) -> Vector:
        """<w, x> + b of every row and output, (n_rows, n_outputs) float64.

        Features that the model does not know weigh 0.
        """
        from scipy.sparse import csr_array

        first, last = rows.indptr[0], rows.indptr[-1]
        values = np.ones(rows.nnz) if rows.values is None else rows.values[first:last]
        matrix = csr_array(
            (values, rows.indices[first:last], rows.indptr - first),
            shape=(rows.n_rows, rows.n_local),
        )
        weights = self._weights_of(rows.vocabulary)
        # A product with a vector is twice as fast as one with a single column.
        weights = weights[:, 0] if self.n_outputs == 1 else weights
        margins: Vector = np.reshape(matrix @ weights, (rows.n_rows, self.n_outputs))
        if rows.row_scale is not None:
            margins *= rows.row_scale[:, None]
        margins += self.intercept
        return margins

    def _weights_of(self, vocabulary: NDArray[np.int64]) -> Vector:
        """The (n_local, n_outputs) weights of some features."""
        weights = np.zeros((len(vocabulary), self.n_outputs))
        if len(self.ids):
            place = np.searchsorted(self.ids, vocabulary)
            np.minimum(place, len(self.ids) - 1, out=place)
            known = self.ids[place] == vocabulary
            weights[known] = self.weights[place[known]]
        return weights

    @property
    def has_probabilities(self) -> bool:
        """Whether the margins stand for probabilities."""
        return self.loss in WITH_PROBABILITIES

    def predict_labels(self, margins: Vector) -> Vector:
        """The label values that (n_rows, n_outputs) `margins` stand for.

        (n_rows,) float64 where there is one label column, else (n_rows, n_label_columns). A margin
        above 0 stands for the larger of two values; of several classes the one with the largest
        margin is chosen, the first among equals; a regression answers the margin, or its
        exponential with Poisson loss, and a ranking the margin, which is a score.
        """
        margins = self._checked(margins)
        if self.task in ("regression", "ranking"):
            if self.loss == Poisson.name:
                margins = np.exp(np.minimum(margins, MOST_LOG_MEAN))
            return margins[:, 0] if self.n_outputs == 1 else margins
        if self.task == "multiclass":
            chosen: Vector = np.array(self.label_columns[0].values)[margins.argmax(axis=1)]
            return chosen
        pairs = [column.values or () for column in self.label_columns]
        low, high = (np.array([pair[end] for pair in pairs]) for end in (0, -1))
        labels: Vector = np.where(margins > 0.0, high, low)
        return labels[:, 0] if self.task == "binary" else labels

    def probabilities(self, margins: Vector) -> Vector:
        """Probabilities of the labels, for a model trained with logistic or softmax loss.

        Binary and multiclass: (n_rows, n_classes), in the order of the label's values, rows that
        sum to 1. Multilabel: (n_rows, n_label_columns), of the larger of each column's values.
        Several classes are one logistic model each, whose probabilities are normalised; with
        softmax loss they are exp(margin), normalised.

        Raises
        ------
        InputError
            For a model of another loss, whose margins are no log-odds.
        """
        if not self.has_probabilities:
            raise InputError(
                f"this model was trained with {self.loss} loss, whose margins are no "
                "probabilities; train with loss 'logistic' or 'softmax' to have them"
            )
        margins = self._checked(margins)
        if self.loss == Softmax.name:
            parts = np.exp(margins - margins.max(axis=1, keepdims=True))
            shares: Vector = parts / parts.sum(axis=1, keepdims=True)
            return shares
        decay = np.exp(-np.abs(margins))  # never overflows
        positive: Vector = np.where(margins >= 0.0, 1.0, decay) / (1.0 + decay)
        if self.task == "multilabel":
            return positive
        if self.task == "binary":
            negative = np.where(margins >= 0.0, decay, 1.0) / (1.0 + decay)
            return np.hstack([negative, positive])
        # Where no class has any probability left, they tie.
        total = positive.sum(axis=1, keepdims=True)
        even = np.full_like(positive, 1.0 / self.n_outputs)
        np.divide(positive, total, out=even, where=total > 0.0)
        return even

    def _checked(self, margins: Vector) -> Vector:
        margins = np.asarray(margins, np.float64)
        if margins.ndim != 2 or margins.shape[1] != self.n_outputs:
            raise InputError(
                f"margins of shape {margins.shape} were given; this model's have the shape "
                f"(n_rows, {self.n_outputs})"
            )
        return margins

    def check_compatible(self, schema: Schema) -> None:
        """Raise `InputError` unless data of `schema` has the features this model was trained on.

        Where the source numbers its features itself, the highest number says little: held-out rows
        may lack the last features or have new ones, which weigh 0. Elsewhere the number of
        features must be the same.
        """
        mine, theirs = self.feature_space or {}, schema.feature_space or {}
        differing = sorted(
            key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)
        )
        if differing:
            there = ", ".join(f"{key} {theirs.get(key)!r}" for key in differing)
            here = ", ".join(f"{key} {mine.get(key)!r}" for key in differing)
            raise InputError(
                f"the data is in another feature space than the model: it has {there}, the model "
                f"was trained with {here}; make the data with the options the training data was "
                "made with"
            )
        if schema.n_features != self.n_features and not schema.numbers_own_features:
            raise InputError(
                f"the model was trained on {self.n_features} features and the data has "
                f"{schema.n_features}; make the data with the options the training data was made "
                "with"
            )

    def save(self, url: str | os.PathLike[str] | Storage) -> None:
        """Write the model to a folder of any store, in place of a model that is there.

        A reader sees the old model or the new one, whatever happens meanwhile.

        Raises
        ------
        InputError
            If the folder holds a dataset or the checkpoints of a run.
        StorageError
            If the store fails.
        """
        from dadagrad.model_files import save_model

        save_model(self, url)

    @classmethod
    def load(cls, url: str | os.PathLike[str] | Storage) -> Model:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            If there is no model, or one that a later release wrote.
        CorruptionError
            If it is damaged.
        StorageError
            If the store cannot be read.
        """
        from dadagrad.model_files import load_model

        return load_model(url)
