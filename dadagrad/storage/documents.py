"""JSON documents with a checksum, which can hold NaN and infinities.

A *sealed* document is written last, after everything it names, and makes a model or a checkpoint
exist. A single changed byte is noticed. Nothing is unpickled or evaluated.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from dadagrad._version import __version__
from dadagrad.errors import CorruptionError, InputError, TooLarge
from dadagrad.storage.store import Storage

MAX_DOCUMENT_BYTES = 64 * 2**20
"""A sealed document larger than this is refused unread."""

_FLOAT = "$float"

T = TypeVar("T")


class UnknownVersion(InputError):
    """A document is whole, but this release does not know its version."""


def field(plain: object, name: str, kind: type[T], place: str) -> T:
    """Return ``plain[name]``; raises `CorruptionError` unless it is a `kind`."""
    value = plain.get(name) if isinstance(plain, dict) else None
    if type(value) is not kind:
        raise CorruptionError(f"{place}: {name} is missing or not of type {kind.__name__}")
    return value


def fields(plain: object, kinds: Mapping[str, type[Any]], place: str) -> dict[str, Any]:
    """Return the values of `plain` that `kinds` names, each checked as `field` checks it."""
    return {name: field(plain, name, kind, place) for name, kind in kinds.items()}


def check_format(body: Mapping[str, Any], name: str, versions: Sequence[int], place: str) -> None:
    """Check that a document is `name`, in one of these `versions`.

    Raises `CorruptionError` if it is another thing, `UnknownVersion` if it has another version.
    """
    if body.get("format") != f"dadagrad-{name}":
        raise CorruptionError(f"{place} is not the description of a {name}")
    given_version = field(body, "version", int, place)
    if given_version not in versions:
        raise UnknownVersion(
            f"{place} has format version {given_version}, and this is dadagrad {__version__}, "
            f"which reads version {' or '.join(map(str, versions))}; use the release that wrote it"
        )


def seal(body: dict[str, Any], place: str) -> bytes:
    """Return `body`, plain JSON, as a document with its own sha256; `InputError` if too large."""
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    document = f'{{"sha256":"{digest}","body":{text}}}\n'.encode()
    if len(document) > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"{place} has {len(document)} bytes of JSON where at most {MAX_DOCUMENT_BYTES} fit; "
            "keep large content in arrays"
        )
    return document


def unseal(document: bytes, place: str) -> dict[str, Any]:
    """Return the body of a sealed document; raises `CorruptionError` if it has changed."""
    try:
        plain = json.loads(document)
        digest, body = field(plain, "sha256", str, place), field(plain, "body", dict, place)
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        raise CorruptionError(f"{place} is not a JSON document") from None
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise CorruptionError(f"{place} is damaged: its content has another sha256")
    return body


def read_sealed(storage: Storage, key: str, place: str) -> dict[str, Any]:
    """Read the body of the sealed document `key`.

    Raises `CorruptionError` if it is damaged, `MissingKey` if it does not exist.
    """
    try:
        document = storage.get(key, max_bytes=MAX_DOCUMENT_BYTES)
    except TooLarge:
        raise CorruptionError(f"{place} has more than {MAX_DOCUMENT_BYTES} bytes") from None
    return unseal(document, place)


def to_plain(value: Any, place: str) -> Any:
    """Return `value` as strict JSON that keeps NaN and infinities; `from_plain` is the inverse.

    Tuples come back as lists, and NumPy scalars as Python numbers. `InputError` names the place of
    a value that has no form in JSON.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{place}[{number}]") for number, item in enumerate(value)]
    if not isinstance(value, dict):
        raise InputError(f"{place} is a {type(value).__name__}, which is not plain JSON")
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"{place} has the key {key!r}; the keys of plain JSON are text")
    # A key that starts with $ gets a second $, so that it cannot look like a float.
    return {
        "$" + key if key.startswith("$") else key: to_plain(item, f"{place}.{key}")
        for key, item in value.items()
    }


def from_plain(value: Any) -> Any:
    """Return the value that `to_plain` turned into `value`."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and value.get(_FLOAT) in ("nan", "inf", "-inf"):
        return float(value[_FLOAT])
    return {
        key[1:] if key.startswith("$$") else key: from_plain(item) for key, item in value.items()
    }


def strict_json(value: Any) -> str:
    """Return `value` as JSON for other programs, in which infinities and NaN are null."""
    return json.dumps(_without_nan(value), allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


def timestamp() -> str:
    """Return the time, to the second, as documents have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Content(StrEnum):
    """Kinds of things that can be at a URL, as messages name them."""

    MODEL = "a model"
    DATASET = "a dataset"
    CHECKPOINTS = "the checkpoints of a run"


def content_at(storage: Storage) -> Content | None:
    """Return the kind of things at a URL; None if it is unknown."""
    if storage.exists("model.json"):
        return Content.MODEL
    if storage.exists("zarr.json"):
        return Content.DATASET
    keys = storage.list_if_possible()
    if any(re.fullmatch(r"manifest-[^/]*\.json", key) for key in keys):
        return Content.CHECKPOINTS
    return Content.DATASET if any(key.endswith(".parquet") for key in keys) else None
