"""Models: the weights that a run has learned, how they predict, and how they are stored.

A stored model is a folder of any store::

    parts-9f...c1/000-00000.zst    the arrays, compressed
    model.json                     written last; names every part, its size and sha256

Parts are never overwritten: a model is replaced by writing new parts and then ``model.json``, in
one atomic write. The parts of the old model are removed last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dadagrad._version import __version__
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, DadagradError, InputError, MissingKey, StorageError
from dadagrad.model.compatibility import check_features
from dadagrad.model.facts import ModelFacts
from dadagrad.model.memory_rows import MemoryPrediction
from dadagrad.optim.calibration import (
    CALIBRATIONS,
    Calibration,
    Uncalibrated,
    probabilities,
)
from dadagrad.optim.losses import LOSSES, MAX_LOG_MEAN, Link, Softmax
from dadagrad.optim.registry import describe
from dadagrad.problem import Task
from dadagrad.storage.arrays import (
    AnyArray,
    ArrayRecord,
    read_arrays,
    read_records,
    sync,
    write_arrays,
)
from dadagrad.storage.documents import (
    check_format,
    fields,
    from_plain,
    read_sealed,
    seal,
    to_plain,
    what_is_at,
)
from dadagrad.storage.store import Storage

VERSION = 1
DOCUMENT = "model.json"
_STATE = "state."  # begin of the names of the arrays of a state of training

_FIELDS = {"schema": dict, "loss": str, "task": str, "report": dict, "digest": str}
_PARTS = re.compile(r"parts-[0-9a-f]{32}")

logger = logging.getLogger(__name__)

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Model(ModelFacts, MemoryPrediction):
    """Linear models that predict. Two models of the same run have equal `digest`.

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
        The labels of the training data, whose values `predict_labels` returns. Each class of a
        multiclass task has one output, and each column of any other task.
    feature_space : dict or None
        How the source became features, as in `Schema`.
    names : mapping of int to str
        Names of features that have one.
    calibration : Calibration
        The function from scores to probabilities.
    report : dict
        Plain JSON about the training: steps, rows, progressive loss, configuration.
    """

    n_features: int
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    intercept: Vector
    loss: str
    task: Task
    label_columns: tuple[LabelColumn, ...]
    feature_space: dict[str, Any] | None = None
    names: Mapping[int, str] = dataclass_field(default_factory=dict)
    calibration: Calibration = Uncalibrated()  # noqa: RUF009 (frozen)
    report: dict[str, Any] = dataclass_field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise InputError(f"the task is {self.task!r}; it must be one of {get_args(Task)}")
        columns = self.label_columns
        if self.task in ("binary", "multiclass") and len(columns) != 1:
            raise InputError(f"a {self.task} model has one label column; {len(columns)} were given")
        for column in () if self.task in ("regression", "ranking") else columns:
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
        """The sha256 of the little-endian bytes of the weights, the ids and the intercepts."""
        digest = hashlib.sha256()
        for array, dtype in ((self.weights, "<f4"), (self.ids, "<i8"), (self.intercept, "<f8")):
            digest.update(np.ascontiguousarray(array, dtype).data)
        return digest.hexdigest()

    def scores(self, rows: Rows) -> Vector:
        """<w, x> + b of every row and output, (n_rows, n_outputs) float64.

        Features that the model does not know weigh 0.
        """
        from scipy.sparse import csr_array

        first, last = rows.indptr[0], rows.indptr[-1]
        values = np.ones(rows.nnz) if rows.values is None else rows.values[first:last]
        entries = values, rows.indices[first:last], rows.indptr - first
        matrix = csr_array(entries, shape=(rows.n_rows, rows.n_local))
        weights = np.zeros((rows.n_local, self.n_outputs))
        if len(self.ids):
            position = np.searchsorted(self.ids, rows.vocabulary)
            np.minimum(position, len(self.ids) - 1, out=position)
            known = self.ids[position] == rows.vocabulary
            weights[known] = self.weights[position[known]]
        # A product with a vector is twice as fast as one with a single column.
        products = matrix @ (weights[:, 0] if self.n_outputs == 1 else weights)
        scores: Vector = np.reshape(products, (rows.n_rows, self.n_outputs))
        if rows.row_scale is not None:
            scores *= rows.row_scale[:, None]
        scores += self.intercept
        return scores

    @property
    def link(self) -> Link:
        """The meaning of a score; for a loss of a user's own class it is the identity."""
        name = self.loss.partition(":")[0]
        return LOSSES[name].link if name in LOSSES else "identity"

    @property
    def has_probabilities(self) -> bool:
        """True if scores are log-odds, or were calibrated."""
        classifies = self.task in ("binary", "multiclass", "multilabel")
        return self.link == "logit" or (classifies and self.calibration.is_fitted)

    def predict_labels(self, scores: Vector) -> Vector:
        """The label values that (n_rows, n_outputs) `scores` stand for.

        (n_rows,) float64 for one label column, else (n_rows, n_label_columns). A score above 0
        stands for the larger of two values, and the largest score for one of several classes. A
        regression and a ranking return the score, a regression with Poisson loss its exponential.
        """
        labels = self._checked(scores)
        values = [column.values or () for column in self.label_columns]
        if self.task == "multiclass":
            chosen: Vector = np.array(values[0])[labels.argmax(axis=1)]
            return chosen
        if self.task in ("binary", "multilabel"):
            low, high = (np.array([each[end] for each in values]) for end in (0, -1))
            labels = np.where(labels > 0.0, high, low)
        elif self.link == "log":
            labels = np.exp(np.minimum(labels, MAX_LOG_MEAN))
        return labels[:, 0] if len(self.label_columns) == 1 else labels

    def probabilities(self, scores: Vector) -> Vector:
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

    def _checked(self, scores: Vector) -> Vector:
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

    def save(
        self, url: str | os.PathLike[str] | Storage, state: Mapping[str, AnyArray] | None = None
    ) -> None:
        """Write the model to a folder of any store, in place of a model that is there.

        The arrays of a `state` of training are written with it, for `load_state`. A reader sees the
        old model or the new one, at any time. Raises `InputError` if the folder holds a dataset or
        checkpoints, and `StorageError` if the store fails.
        """
        storage = url if isinstance(url, Storage) else Storage(url)
        content = what_is_at(storage)
        if content not in (None, "a model"):
            raise InputError(
                f"{storage.url} holds {content}; save the model to a folder of its own"
            )
        old_folders = _part_folders(storage) if content else set()
        folder = f"parts-{uuid4().hex}"
        try:
            kept = {_STATE + name: array for name, array in (state or {}).items()}
            records = write_arrays(storage, folder, self._arrays() | kept)
            document = seal(
                self._to_json(records), f"the description of the model at {storage.url}"
            )
        except BaseException:
            with suppress(StorageError):
                storage.delete_prefix(folder)
            raise
        storage.put(DOCUMENT, document)
        sync(storage, [DOCUMENT])
        # Only the parts of the replaced model: others may belong to a save in progress.
        try:
            for old in old_folders:
                storage.delete_prefix(old)
            storage.remove_leftovers()
        except StorageError as error:
            logger.warning("could not remove the parts of the replaced model: %s", error)

    @classmethod
    def load(cls, url: str | os.PathLike[str] | Storage) -> Model:
        """Read a model that `save` wrote.

        Raises `InputError` if there is no model, or one of a later release, `CorruptionError` if it
        is damaged, and `StorageError` if the store cannot be read.
        """
        storage = url if isinstance(url, Storage) else Storage(url)
        document = _read_document(storage)
        while True:
            try:
                return cls._from_json(storage, document)
            except CorruptionError:
                # Parts are also missing if a newer model has just replaced this one.
                previous, document = document, _read_document(storage)
                if document == previous:
                    raise

    @classmethod
    def load_state(cls, url: str | os.PathLike[str] | Storage) -> dict[str, AnyArray]:
        """Read the arrays of the state that was saved with a model; none without a state."""
        storage = url if isinstance(url, Storage) else Storage(url)
        place = f"{storage.url}: {DOCUMENT}"
        records = read_records(_read_document(storage), place)
        kept = tuple(record for record in records if record.name.startswith(_STATE))
        arrays = read_arrays(storage, kept, place)
        return {name.removeprefix(_STATE): array for name, array in arrays.items()}

    def _arrays(self) -> dict[str, AnyArray]:
        names = json.dumps({str(key): name for key, name in sorted(self.names.items())})
        return {
            "ids": self.ids,
            "weights": self.weights,
            "intercept": self.intercept,
            # There can be millions of names, and arrays are compressed.
            "names": np.frombuffer(names.encode(), np.uint8),
        }

    def _to_json(self, records: tuple[ArrayRecord, ...]) -> dict[str, Any]:
        return {
            "format": "dadagrad-model",
            "version": VERSION,
            "library": __version__,
            "digest": self.digest,
            "loss": self.loss,
            "task": self.task,
            "calibration": describe(self.calibration),
            "schema": to_plain(self.schema.to_json(), "schema"),
            "arrays": [asdict(record) for record in records],
            "report": to_plain(self.report, "report"),
        }

    @classmethod
    def _from_json(cls, storage: Storage, document: dict[str, Any]) -> Model:
        place = f"{storage.url}: {DOCUMENT}"
        check_format(document, "model", VERSION, place)
        content = fields(document, _FIELDS, place)
        records = read_records(document, place)
        own = tuple(record for record in records if not record.name.startswith(_STATE))
        arrays = read_arrays(storage, own, place)
        try:
            schema = Schema.from_json(from_plain(content["schema"]))
            names = json.loads(arrays["names"].tobytes())
            model = cls(
                n_features=schema.n_features,
                ids=arrays["ids"],
                weights=arrays["weights"],
                intercept=arrays["intercept"],
                loss=content["loss"],
                task=content["task"],
                label_columns=schema.label_columns,
                feature_space=schema.feature_space,
                names={int(key): str(name) for key, name in names.items()},
                calibration=CALIBRATIONS.make(document.get("calibration", "none")),
                report=from_plain(content["report"]),
            )
        except (
            DadagradError, LookupError, TypeError, ValueError, AttributeError, RecursionError,
        ) as error:  # fmt: skip
            raise CorruptionError(f"{place} does not describe a model: {error}") from None
        for name in ("weights", "intercept"):
            if not np.isfinite(arrays[name]).all():
                raise CorruptionError(f"{place}: the {name} are not finite")
        if model.digest != content["digest"]:
            raise CorruptionError(f"{place} names another digest than that of its arrays")
        return model


def _read_document(storage: Storage) -> dict[str, Any]:
    try:
        return read_sealed(storage, DOCUMENT, f"{storage.url}: {DOCUMENT}")
    except MissingKey:
        content = what_is_at(storage)
        reason = f"it is {content}" if content else f"there is no {DOCUMENT}; check the URL"
        raise InputError(f"no model at {storage.url}: {reason}") from None


def _part_folders(storage: Storage) -> set[str]:
    """Return the folders of parts of the model at `storage`; none if its document is damaged."""
    with suppress(CorruptionError, MissingKey):
        records = read_records(read_sealed(storage, DOCUMENT, storage.url), storage.url)
        folders = {part.key.partition("/")[0] for record in records for part in record.parts}
        return set(filter(_PARTS.fullmatch, folders))
    return set()
