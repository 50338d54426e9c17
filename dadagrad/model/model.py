"""Models: the weights that a run has learned, how they predict, and how they are stored."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad._version import __version__
from dadagrad.data.dataset import Schema
from dadagrad.errors import CorruptionError, DadagradError, InputError, MissingKey
from dadagrad.model.base import LinearModel
from dadagrad.model.facts import model_facts
from dadagrad.model.stored_weights import StoredWeights, model_digest
from dadagrad.model.writer import DOCUMENT, ModelWriter
from dadagrad.optim.calibration import CALIBRATIONS
from dadagrad.optim.registry import describe
from dadagrad.storage.arrays import AnyArray, read_arrays, read_records, sync, write_arrays
from dadagrad.storage.documents import (
    check_format,
    content_at,
    fields,
    from_plain,
    read_sealed,
    seal,
    to_plain,
)
from dadagrad.storage.store import Storage
from dadagrad.summary import html_table

VERSIONS = (1, 2)
"""Versions that are read, of which the last is written; the first has other digests."""
_STATE = "state."  # begin of the names of the arrays of a state of training

_FIELDS = {"schema": dict, "loss": str, "task": str, "report": dict, "digest": str}


@contextmanager
def _advising() -> Iterator[None]:
    """Say what to do about a model that is damaged."""
    try:
        yield
    except CorruptionError as error:
        raise CorruptionError(
            f"{error}; restore the model from a copy, or train it again"
        ) from None


class Model(LinearModel):
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
    feature_space : FeatureSpace
        How the source became features.
    names : mapping of int to str
        Names of features that have one.
    calibration : Calibration
        The function from scores to probabilities.
    report : dict
        Plain JSON about the training: steps, rows, progressive loss, configuration.
    user_link : {"identity", "logit", "log"}
        The `link` of a loss of a user's own class.
    """

    def facts(self) -> dict[str, str]:
        """Facts by name; only those that apply."""
        return model_facts(self)

    def __repr__(self) -> str:
        facts = self.facts()
        classes = f", {facts['classes']}" if "classes" in facts else ""
        return f"Model({facts['task']}{classes}, weights {facts['weights']})"

    def _repr_html_(self) -> str:
        return html_table("Model", self.facts())

    def save(
        self, url: str | os.PathLike[str] | Storage, state: Mapping[str, AnyArray] | None = None
    ) -> None:
        """Write the model to a folder of any store, in place of a model that is there.

        The arrays of a `state` of training are written with it, for `load_state`. A reader sees the
        old model or the new one, at any time. Raises `InputError` if the folder holds a dataset or
        checkpoints, or is a file, and `StorageError` if the store fails.
        """
        with ModelWriter(url) as writer:
            write_model(writer, self, state or {})

    def save_report(self, url: str | os.PathLike[str] | Storage) -> None:
        """Write the report of this model in place of the report of the same model at `url`.

        Raises `InputError` if there is another model.
        """
        storage = url if isinstance(url, Storage) else Storage(url)
        document = _read_document(storage) | {"report": to_plain(self.report, "report")}
        if document.get("version") == VERSIONS[-1] and document.get("digest") != self.digest:
            raise InputError(
                f"the model at {storage.url} is another one, whose report stays as it is; save "
                "each model to a folder of its own"
            )
        storage.put(DOCUMENT, seal(document, f"the description of the model at {storage.url}"))
        sync(storage, [DOCUMENT])

    @classmethod
    @_advising()
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
    @_advising()
    def load_state(cls, url: str | os.PathLike[str] | Storage) -> dict[str, AnyArray]:
        """Read the arrays of the state that was saved with a model; none without a state."""
        storage = url if isinstance(url, Storage) else Storage(url)
        place = f"{storage.url}: {DOCUMENT}"
        records = read_records(_read_document(storage), place)
        records_of_state = tuple(record for record in records if record.name.startswith(_STATE))
        arrays = read_arrays(storage, records_of_state, place)
        return {name.removeprefix(_STATE): array for name, array in arrays.items()}

    @classmethod
    def _from_json(cls, storage: Storage, document: dict[str, Any]) -> Model:
        place = f"{storage.url}: {DOCUMENT}"
        check_format(document, "model", VERSIONS, place)
        content = fields(document, _FIELDS, place)
        records = read_records(document, place)
        records_of_model = tuple(record for record in records if not record.name.startswith(_STATE))
        arrays = read_arrays(storage, records_of_model, place)
        try:
            schema = Schema.from_json(from_plain(content["schema"]))
            model = cls(
                n_features=schema.n_features,
                ids=arrays["ids"],
                weights=arrays["weights"],
                intercept=arrays["intercept"],
                loss=content["loss"],
                task=content["task"],
                label_columns=schema.label_columns,
                feature_space=schema.feature_space,
                names=decode_names(arrays["names"]),
                calibration=CALIBRATIONS.make(document.get("calibration", "none")),
                report=from_plain(content["report"]),
                user_link=document.get("link", "identity"),
            )
        except (
            DadagradError, LookupError, TypeError, ValueError, AttributeError, RecursionError,
        ) as error:  # fmt: skip
            raise CorruptionError(f"{place} does not describe a model: {error}") from None
        for name in ("weights", "intercept"):
            if not np.isfinite(arrays[name]).all():
                raise CorruptionError(f"{place}: the {name} are not finite")
        return model


def as_model(model: Any) -> Model:
    """Return `model`, or load it from its URL; `InputError` for anything else."""
    if isinstance(model, str | os.PathLike):
        return Model.load(model)
    if not isinstance(model, Model):
        raise InputError(
            f"a {type(model).__name__} was given in the place of a model; give a Model, such as "
            "`result.model` or `estimator.model_`, or the URL of one"
        )
    return model


def _read_document(storage: Storage) -> dict[str, Any]:
    try:
        return read_sealed(storage, DOCUMENT, f"{storage.url}: {DOCUMENT}")
    except MissingKey:
        content = content_at(storage)
        reason = f"it is {content}" if content else f"there is no {DOCUMENT}; check the URL"
        raise InputError(f"no model at {storage.url}: {reason}") from None


def encode_names(names: Mapping[int, str]) -> NDArray[np.uint8]:
    """Names of features as bytes: there can be millions, and arrays are compressed."""
    plain = {str(feature): name for feature, name in sorted(names.items())}
    return np.frombuffer(json.dumps(plain).encode(), np.uint8)


def decode_names(array: NDArray[np.uint8]) -> dict[int, str]:
    """Names of features from the bytes of `encode_names`."""
    return {int(feature): str(name) for feature, name in json.loads(array.tobytes()).items()}


def write_model(
    writer: ModelWriter,
    model: Model,
    state: Mapping[str, AnyArray],
    weights: StoredWeights | None = None,
) -> None:
    """Write a model as `Model.save` does; its weights may be in the folder of `writer` already."""
    storage, folder = writer.storage, writer.folder
    if weights is None:
        weights = StoredWeights.write(storage, f"{folder}/weights", model.ids, model.weights)
    arrays: dict[str, AnyArray] = {
        "intercept": model.intercept,
        "names": encode_names(model.names),
        **{_STATE + name: array for name, array in state.items()},
    }
    records = weights.records + write_arrays(storage, folder, arrays)
    writer.commit(
        {
            "format": "dadagrad-model",
            "version": VERSIONS[-1],
            "library": __version__,
            "digest": model_digest(weights.digests, model.intercept),
            "loss": model.loss,
            "task": model.task,
            "calibration": describe(model.calibration),
            "link": model.link,
            "schema": to_plain(model.schema.to_json(), "schema"),
            "arrays": [asdict(record) for record in records],
            "report": to_plain(model.report, "report"),
        }
    )
