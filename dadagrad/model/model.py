"""Models: the weights that a run has learned, how they predict, and how they are stored.

A stored model is a folder of any store::

    parts-9f...c1/000-00000.zst    the arrays, compressed
    model.json                     written last; names every part, its size and sha256

Parts are never overwritten: a model is replaced by writing new parts and then ``model.json``, in
one atomic write. The parts of the old model are removed last.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import numpy as np

from dadagrad._version import __version__
from dadagrad.data.dataset import Schema
from dadagrad.errors import CorruptionError, DadagradError, InputError, MissingKey, StorageError
from dadagrad.model.base import LinearModel
from dadagrad.model.facts import model_facts
from dadagrad.optim.calibration import CALIBRATIONS
from dadagrad.optim.registry import describe
from dadagrad.storage.arrays import (
    AnyArray,
    ArrayRecord,
    read_arrays,
    read_records,
    sync,
    write_arrays,
)
from dadagrad.storage.documents import (
    Content,
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

VERSION = 1
DOCUMENT = "model.json"
_STATE = "state."  # begin of the names of the arrays of a state of training

_FIELDS = {"schema": dict, "loss": str, "task": str, "report": dict, "digest": str}
_PARTS = re.compile(r"parts-[0-9a-f]{32}")

logger = logging.getLogger(__name__)


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
        checkpoints, and `StorageError` if the store fails.
        """
        storage = url if isinstance(url, Storage) else Storage(url)
        content = content_at(storage)
        if content not in (None, Content.MODEL):
            raise InputError(
                f"{storage.url} holds {content}; save the model to a folder of its own"
            )
        old_folders = _part_folders(storage) if content else set()
        folder = f"parts-{uuid4().hex}"
        with storage.without_empty_folders():
            try:
                named_state = {_STATE + name: array for name, array in (state or {}).items()}
                records = write_arrays(storage, folder, self._arrays() | named_state)
                document = seal(
                    self._to_json(records), f"the description of the model at {storage.url}"
                )
            except BaseException:
                with suppress(StorageError):
                    storage.delete_prefix(folder)
                raise
            try:
                storage.put(DOCUMENT, document)
            except StorageError:
                if storage.is_local:  # another store may have got it
                    storage.delete_prefix(folder)
                raise
        sync(storage, [DOCUMENT])
        # Only the parts of the replaced model: others may belong to a save in progress.
        try:
            for old in old_folders:
                storage.delete_prefix(old)
            storage.remove_leftovers()
        except StorageError as error:
            logger.warning("could not remove the parts of the replaced model: %s", error)

    def save_report(self, url: str | os.PathLike[str] | Storage) -> None:
        """Write the report of this model in place of the report of the same model at `url`."""
        storage = url if isinstance(url, Storage) else Storage(url)
        document = _read_document(storage) | {"report": to_plain(self.report, "report")}
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
            "link": self.link,
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
        records_of_model = tuple(record for record in records if not record.name.startswith(_STATE))
        arrays = read_arrays(storage, records_of_model, place)
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
                user_link=document.get("link", "identity"),
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
        content = content_at(storage)
        reason = f"it is {content}" if content else f"there is no {DOCUMENT}; check the URL"
        raise InputError(f"no model at {storage.url}: {reason}") from None


def _part_folders(storage: Storage) -> set[str]:
    """Return the folders of parts of the model at `storage`; none if its document is damaged."""
    with suppress(CorruptionError, MissingKey):
        records = read_records(read_sealed(storage, DOCUMENT, storage.url), storage.url)
        folders = {part.key.partition("/")[0] for record in records for part in record.parts}
        return set(filter(_PARTS.fullmatch, folders))
    return set()
