"""Linear models: weights, intercepts and labels, and how they predict.

A single row, a dict or a text, becomes features in plain Python, without the libraries for tables,
which take milliseconds to start: `RowReader` has the formulas of `TableEncoder` for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, LabelColumn, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.labels import class_labels
from dadagrad.data.rows import Entries, Rows
from dadagrad.data.views import check_features
from dadagrad.errors import InputError
from dadagrad.model.id_reader import IdReader
from dadagrad.model.stored_weights import model_digest, range_digests
from dadagrad.optim.arrays import Array
from dadagrad.optim.calibration import Calibration, Uncalibrated, probabilities
from dadagrad.optim.losses import LOSSES, MAX_LOG_MEAN, Link, Softmax
from dadagrad.task import Task, has_classes

_MAX_SINGLE = 64  # rows that are read one by one

_MANY_FEATURES = 32
"""Ratio of the features of a model to those of rows from which on a search beats a table."""


def refuse_not_finite(scores: Array, place: str, numbers: NDArray[np.int64] | None = None) -> None:
    """Raise `InputError` about a score that is not finite; `numbers` are those of rows in a place.

    `place` ends in the word for them, such as "row".
    """
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise InputError(
            f"the score of {place} {row if numbers is None else numbers[row]} is not finite: a "
            "value is not finite, or too large for this model"
        )


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel:
    """Fields of a `dadagrad.Model`, which describes them, and what their scores stand for."""

    n_features: int
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    intercept: Array
    loss: str
    task: Task
    label_columns: tuple[LabelColumn, ...]
    feature_space: FeatureSpace = field(default_factory=FeatureSpace)
    names: Mapping[int, str] = field(default_factory=dict)
    calibration: Calibration = Uncalibrated()  # noqa: RUF009 (frozen)
    report: dict[str, Any] = field(default_factory=dict)
    user_link: Link = "identity"

    def __post_init__(self) -> None:
        for kind, word, words in (("task", self.task, Task), ("link", self.user_link, Link)):
            if word not in get_args(words):
                raise InputError(f"the {kind} is {word!r}; it must be one of {get_args(words)}")
        columns = self.label_columns
        if self.task in ("binary", "multiclass") and len(columns) != 1:
            raise InputError(f"a {self.task} model has one label column; {len(columns)} were given")
        for column in columns if self.has_classes else ():
            if not column.values:
                raise InputError(
                    f"label column {column.name!r} has no list of values; a {self.task} model "
                    "needs to know them"
                )
        k, n_outputs = len(self.ids), len(self.output_names)
        for name, dtype, shape in (
            ("ids", np.int64, (k,)),
            ("weights", np.float32, (k, n_outputs)),
            ("intercept", np.float64, (n_outputs,)),
        ):
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise InputError(
                    f"the {name} of a model are {array.dtype}, shape {array.shape}; with {k} ids "
                    f"and {n_outputs} outputs they must be {np.dtype(dtype)}, shape {shape}"
                )
        inside = not k or (self.ids[0] >= 0 and self.ids[-1] < self.n_features)
        if not inside or (self.ids[1:] <= self.ids[:-1]).any():
            raise InputError(
                f"the ids of a model must increase strictly within 0 to {self.n_features - 1}"
            )

    @property
    def has_classes(self) -> bool:
        """True if the labels are classes; a regression and a ranking have numbers."""
        return has_classes(self.task)

    @property
    def n_outputs(self) -> int:
        return len(self.intercept)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Name of each output: that of a class, or that of a label column."""
        if self.task == "multiclass":
            return self.label_columns[0].texts
        return tuple(column.name for column in self.label_columns)

    @property
    def schema(self) -> Schema:
        """Schema of the training data, as far as the model needs it."""
        return Schema(self.n_features, self.label_columns, False, self.feature_space)

    @cached_property
    def digest(self) -> str:
        """The `model_digest` of the weights and intercepts: equal for equal bits alone."""
        return model_digest(range_digests(self.ids, self.weights), self.intercept)

    @cached_property
    def effects(self) -> NDArray[np.float32]:
        """Weights of the names of features, (n_ids, n_outputs).

        A word whose sign is hashed may have the value -1: its effect is minus the weight.
        """
        space = self.feature_space
        if not space.of_table or space.binary or not self.names:
            return self.weights
        from dadagrad.data.tables.single_row import sign_of_names

        signs = sign_of_names(space, map(self.names.get, self.ids.tolist()))
        return np.array(signs, np.float32)[:, None] * self.weights

    def common_features(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions in the vocabulary of `rows` and in `ids` of the features of both."""
        if not len(self.ids):
            return self.ids, self.ids
        if self.n_features < _MANY_FEATURES * rows.n_local:
            from dadagrad.kernels.id_sets import look_up  # needs numba, which loads slowly

            inside = rows.vocabulary[: np.searchsorted(rows.vocabulary, self.n_features)]
            position = look_up(self._positions, inside).astype(np.int64)
            in_rows = np.flatnonzero(position >= 0)
        else:
            position = np.searchsorted(self.ids[:-1], rows.vocabulary)  # of the last, if beyond it
            in_rows = np.flatnonzero(self.ids[position] == rows.vocabulary)
        return in_rows, position[in_rows]

    def weights_of(self, rows: Rows) -> Array:
        """Weights of the vocabulary of `rows`, (n_local, n_outputs); 0 for unknown features."""
        weights = np.zeros((rows.n_local, self.n_outputs))
        in_rows, in_model = self.common_features(rows)
        weights[in_rows] = self.weights[in_model]
        return weights

    @cached_property
    def _positions(self) -> NDArray[np.int32]:
        """The position in `ids` of every feature; -1 for a feature without a weight."""
        positions = np.full(self.n_features, -1, np.int32)
        positions[self.ids] = np.arange(len(self.ids))
        return positions

    def __getstate__(self) -> dict[str, Any]:
        """Leave the positions out of pickles and copies: they may be larger than the weights."""
        return {name: kept for name, kept in self.__dict__.items() if name != "_positions"}

    def scores(self, rows: Rows) -> Array:
        """<w, x> + b of every row and output, (n_rows, n_outputs) float64.

        Features that the model does not know weigh 0.
        """
        from scipy.sparse import csr_array, get_index_dtype

        first, last = rows.indptr[0], rows.indptr[-1]
        values = np.ones(rows.nnz) if rows.values is None else rows.values[first:last]
        # Of the type of the positions if that can count the entries, or SciPy would copy these.
        pointers = (rows.indptr - first).astype(get_index_dtype(maxval=rows.nnz))
        entries = values, rows.indices[first:last], pointers
        matrix = csr_array(entries, shape=(rows.n_rows, rows.n_local))
        weights = self.weights_of(rows)
        # A product with a vector is twice as fast as one with a single column.
        products = matrix @ (weights[:, 0] if self.n_outputs == 1 else weights)
        scores: Array = np.reshape(products, (rows.n_rows, self.n_outputs))
        if rows.row_scale is not None:
            scores *= rows.row_scale[:, None]
        scores += self.intercept
        return scores

    @property
    def link(self) -> Link:
        """The meaning of a score."""
        name = self.loss.partition(":")[0]
        return LOSSES[name].link if name in LOSSES else self.user_link

    @property
    def has_probabilities(self) -> bool:
        """True if scores are log-odds, or were calibrated."""
        return self.link == "logit" or (self.has_classes and self.calibration.is_fitted)

    def predict_labels(self, scores: Array) -> Array:
        """The label values that (n_rows, n_outputs) `scores` stand for.

        (n_rows,) float64 for one label column, else (n_rows, n_label_columns). A score above 0
        stands for the larger of two values, and the largest score for one of several classes. A
        regression and a ranking return the score, a regression with Poisson loss its exponential.
        """
        labels = self._checked(scores)
        values = [column.values or () for column in self.label_columns]
        if self.task == "multiclass":
            chosen: Array = np.array(values[0])[labels.argmax(axis=1)]
            return chosen
        if self.has_classes:
            low, high = (np.array([each[end] for each in values]) for end in (0, -1))
            labels = np.where(labels > 0.0, high, low)
        elif self.link == "log":
            labels = np.exp(np.minimum(labels, MAX_LOG_MEAN))
        return labels[:, 0] if len(self.label_columns) == 1 else labels

    def probabilities(self, scores: Array) -> Array:
        """Probabilities of the labels.

        Binary and multiclass: (n_rows, n_classes), in the order of the label's values, rows that
        sum to 1. Multilabel: (n_rows, n_label_columns), of the larger of each column's values.
        The calibration gives them, of which that of several classes is divided by the sum. Without
        one, scores of softmax loss become exp(score), divided by the sum.

        Raises `InputError` for a model without a calibration and of another loss than logistic and
        softmax, whose scores are not log-odds.
        """
        if not self.has_probabilities:
            raise InputError(
                f"this model was trained with {self.loss} loss and without a calibration, so that "
                "its scores are not probabilities; train with calibration 'platt' to have them"
            )
        coupled = self.loss == Softmax.name
        return probabilities(self.calibration, self.task, self._checked(scores), coupled=coupled)

    def _checked(self, scores: Array) -> Array:
        scores = np.asarray(scores, np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_outputs:
            raise InputError(
                f"scores of shape {scores.shape} were given; this model's have the shape "
                f"(n_rows, {self.n_outputs})"
            )
        return scores

    def check_compatible(self, schema: Schema) -> None:
        """Raise `InputError` unless data of `schema` has the features this model was trained on."""
        check_features(self.schema, schema)

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the predicted labels of rows.

        Parameters
        ----------
        data : matrix, data frame, dict, list, Dataset or str
            Rows in the feature space of the model: (n_rows, n_features) of NumPy, SciPy or lists, a
            dataset or its URL; or rows as those from which it was trained: a data frame, a dict of
            one row by column, a list of dicts, a list or a Series of texts (of a model of one
            column of text), a file. A dict of a model without a table has values by feature: its
            name, or its id in the files, which is a text of digits too if there are no names.

        Returns
        -------
        (n_rows,) array, or (n_rows, n_label_columns)
            Numbers, or texts where the labels were texts, or booleans if they were false and true.

        Raises
        ------
        InputError
            The rows are not those of the model, or a score is not finite.

        Notes
        -----
        A single dict, text or sparse row takes some 20 to 50 microseconds.
        """
        labels = self.predict_labels(self.decision_function(data))
        column = self.label_columns[0]
        if column.names is None or labels.ndim > 1:
            return labels
        return self._names_of_labels[np.searchsorted(column.values or (), labels)]

    def predict_proba(self, data: Any) -> Array:
        """Return `probabilities` for rows of `data`, as `predict` takes them."""
        return self.probabilities(self.decision_function(data))

    def decision_function(self, data: Any) -> Array:
        """Return the (n_rows, n_outputs) scores of rows of `data`, as `predict` takes them."""
        scores = self._scores_of(data)
        refuse_not_finite(scores, "row")
        return scores

    def _scores_of(self, data: Any) -> Array:
        is_sparse = hasattr(data, "tocsr")  # one of SciPy by keys is a dict, too
        if isinstance(data, dict) and not is_sparse:
            return self._score_entries([self._reader(data)])
        if isinstance(data, list | tuple):
            of_text = self.feature_space.of_text
            one_by_one = all(isinstance(row, str if of_text else dict) for row in data)
            if one_by_one and self.feature_space.of_table:
                # A row may lack columns that others have.
                same = of_text or all(row.keys() == data[0].keys() for row in data)
                one_by_one = same and len(data) <= _MAX_SINGLE
            if one_by_one:
                return self._score_entries(map(self._reader, data))
        if is_sparse and data.shape[0] <= 1:
            self._check_width(data.shape[1])
            data = data.tocsr()
            entries = data.indices, data.data.astype(np.float32)
            return self._score_entries([entries] * data.shape[0])
        if _is_small_matrix(data):
            self._check_width(data.shape[1])
            known = slice(self.ids.searchsorted(data.shape[1]))  # all, or those of a narrower one
            values = data[:, self.ids[known]].astype(np.float32)
            scores: Array = values @ self.weights[known].astype(np.float64) + self.intercept
            return scores
        # These modules load slowly.
        from dadagrad.data.ingest.ingest import as_dataset
        from dadagrad.model.raw import is_unprepared, read_raw, rows_to_predict

        data = rows_to_predict(data)
        if is_unprepared(self.schema, data):
            parts = [self.scores(raw.rows) for raw in read_raw(self.schema, data)]
        else:
            dataset: Dataset = as_dataset(data)
            if self.feature_space and dataset.schema.feature_space:
                self.check_compatible(dataset.schema)
            else:
                self._check_width(dataset.schema.n_features)
            parts = [self.scores(dataset.read(n)) for n in range(len(dataset.partitions))]
        return np.concatenate([np.zeros((0, len(self.intercept))), *parts])

    def _check_width(self, n_features: int) -> None:
        """Raise `InputError` unless the rows of a matrix can be those of the model."""
        if self._scales_cells:
            raise InputError(
                "the rows are a matrix, and the model was trained on a table whose numbers it "
                "scales; give rows with names of columns: a data frame or dicts"
            )
        if n_features != self.n_features and not self.feature_space.keeps_ids:
            raise InputError(
                f"the rows have {n_features} features, and the model was trained on "
                f"{self.n_features}; give rows of the same features"
            )

    def _score_entries(self, rows: Iterable[Entries]) -> Array:
        """Scores of rows, each given by its entries."""
        last, scores = len(self.ids) - 1, []
        for ids, values in rows:
            if last < 0:
                scores.append(self.intercept)
                continue
            position = self.ids.searchsorted(ids)
            np.minimum(position, last, out=position)
            is_feature = self.ids[position] == ids
            weights = self.weights[position].astype(np.float64)
            scores.append((values * is_feature) @ weights + self.intercept)
        return np.array(scores).reshape(-1, self.n_outputs)

    @cached_property
    def _scales_cells(self) -> bool:
        """True if the features are scaled cells: a matrix of raw cells would pass for them."""
        if not self.feature_space.of_table:
            return False
        from dadagrad.data.tables.encoder import scales_cells  # loads slowly

        return scales_cells(self.feature_space)

    @cached_property
    def _names_of_labels(self) -> NDArray[Any]:
        labels = class_labels(self.label_columns[0])
        return labels if labels.dtype == bool else labels.astype(object)

    @cached_property
    def _reader(self) -> Callable[[Any], Entries]:
        """Entries of a single row."""
        if self.feature_space.of_table:
            from dadagrad.data.tables.encoder import TableEncoder
            from dadagrad.data.tables.single_row import RowReader

            return RowReader(TableEncoder.of_space(self.feature_space))
        return IdReader(self.schema, {name: feature for feature, name in self.names.items()})


def _is_small_matrix(data: Any) -> bool:
    """True for a plain array of a few rows of finite real numbers."""
    is_matrix = type(data) is np.ndarray and data.ndim == 2 and data.dtype.kind in "fiub"
    return is_matrix and len(data) <= _MAX_SINGLE and bool(np.isfinite(data).all())
