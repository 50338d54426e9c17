"""A model on disk: a folder of any store.

::

    parts-9f...c1/000-00000.zst    the arrays, compressed
    model.json                     written last; names every part, its size and sha256

Parts are never overwritten: a model is replaced by writing new parts and then ``model.json``, in
one atomic write. The parts of the old one go last.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any, cast
from uuid import uuid4

import numpy as np

from dadagrad import __version__
from dadagrad.data.dataset import Schema
from dadagrad.documents import field, from_plain, read_sealed, seal, to_plain, what_is_at
from dadagrad.errors import CorruptionError, DadagradError, InputError, StorageError
from dadagrad.method import Task
from dadagrad.model import Model
from dadagrad.parts import AnyArray, ArrayRecord, read_arrays, sync, write_arrays
from dadagrad.storage import MissingKey, Storage

FORMAT = "dadagrad-model"
VERSION = 1
DOCUMENT = "model.json"

logger = logging.getLogger(__name__)


def save_model(model: Model, url: str | os.PathLike[str] | Storage) -> None:
    """Write `model`; see `Model.save`."""
    storage = url if isinstance(url, Storage) else Storage(url)
    found = what_is_at(storage)
    if found not in (None, "a model"):
        raise InputError(f"{storage.url} holds {found}; save the model to a folder of its own")
    old = _part_keys(storage) if found else set()
    folder = f"parts-{uuid4().hex}"
    try:
        records = write_arrays(storage, folder, _arrays(model))
        sync(storage, [part.key for record in records for part in record.parts])
        document = seal(_body(model, records), f"the description of the model at {storage.url}")
    except BaseException:
        with contextlib.suppress(StorageError):
            storage.delete_prefix(folder)
        raise
    storage.put(DOCUMENT, document)
    sync(storage, [DOCUMENT])
    # Only what the replaced model named: other parts may be those of a save still under way.
    try:
        for key in old:
            storage.delete(key)
    except StorageError as error:
        logger.warning("could not remove the parts of the replaced model: %s", error)


def load_model(url: str | os.PathLike[str] | Storage) -> Model:
    """Read a model; see `Model.load`."""
    storage = url if isinstance(url, Storage) else Storage(url)
    where = f"{storage.url}: {DOCUMENT}"
    body = _read_document(storage, where)
    while True:
        try:
            return _parse(storage, body, where)
        except CorruptionError:
            # Parts are also missing where a newer model has taken the place of the one begun.
            before, body = body, _read_document(storage, where)
            if body == before:
                raise


def _read_document(storage: Storage, where: str) -> dict[str, Any]:
    try:
        return read_sealed(storage, DOCUMENT, where)
    except MissingKey:
        found = what_is_at(storage)
        raise InputError(
            f"no model at {storage.url}: it is {found}"
            if found
            else f"no model at {storage.url}: there is no {DOCUMENT}; check the URL"
        ) from None


def _arrays(model: Model) -> dict[str, AnyArray]:
    names = json.dumps({str(key): name for key, name in sorted(model.names.items())})
    return {
        "ids": model.ids,
        "weights": model.weights,
        "intercept": model.intercept,
        # There can be millions of names: as an array they are compressed.
        "names": np.frombuffer(names.encode(), np.uint8),
    }


def _body(model: Model, records: tuple[ArrayRecord, ...]) -> dict[str, Any]:
    schema = Schema(model.n_features, model.label_columns, False, model.feature_space)
    return {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "digest": model.digest,
        "loss": model.loss,
        "task": model.task,
        "schema": to_plain(schema.to_json(), "schema"),
        "arrays": [record.to_json() for record in records],
        "report": to_plain(model.report, "report"),
    }


def _parse(storage: Storage, body: dict[str, Any], where: str) -> Model:
    if body.get("format") != FORMAT:
        raise CorruptionError(f"{where} is no description of a model")
    version = field(body, "version", int, where)
    if version != VERSION:
        raise InputError(
            f"{where} has format version {version}, and this is dadagrad {__version__}, which "
            f"reads version {VERSION}; use the release that wrote it"
        )
    records = tuple(
        ArrayRecord.from_json(array, where) for array in field(body, "arrays", list, where)
    )
    arrays = read_arrays(storage, records, where)
    try:
        schema = Schema.from_json(from_plain(field(body, "schema", dict, where)))
        names = json.loads(arrays["names"].tobytes())
        model = Model(
            n_features=schema.n_features,
            ids=arrays["ids"],
            weights=arrays["weights"],
            intercept=arrays["intercept"],
            loss=field(body, "loss", str, where),
            task=cast(Task, field(body, "task", str, where)),
            label_columns=schema.label_columns,
            feature_space=schema.feature_space,
            names={int(key): str(name) for key, name in names.items()},
            report=from_plain(field(body, "report", dict, where)),
        )
    except CorruptionError:
        raise
    except (
        DadagradError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise CorruptionError(f"{where} describes no model: {error}") from None
    for name in ("weights", "intercept"):
        if not np.isfinite(arrays[name]).all():
            raise CorruptionError(f"{where}: the {name} are not finite")
    if model.digest != field(body, "digest", str, where):
        raise CorruptionError(f"{where} names another digest than that of its arrays")
    return model


def _part_keys(storage: Storage) -> set[str]:
    """The parts of the model that is there; none of one that cannot be understood."""
    with contextlib.suppress(CorruptionError, MissingKey):
        body = read_sealed(storage, DOCUMENT, storage.url)
        records = [
            ArrayRecord.from_json(array, storage.url)
            for array in field(body, "arrays", list, storage.url)
        ]
        return {part.key for record in records for part in record.parts}
    return set()
