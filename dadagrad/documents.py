"""JSON documents that carry their own checksum, and that hold NaN and infinities.

A *sealed* document is written last, after everything it names: it makes a model or a checkpoint
exist. One changed byte in it is noticed. Nothing is ever unpickled or evaluated.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dadagrad.errors import CorruptionError, InputError, StorageError

if TYPE_CHECKING:
    from dadagrad.storage import Storage

MAX_DOCUMENT_BYTES = 64 * 2**20
"""A sealed document larger than this is refused unread."""

_FLOAT = "$float"

T = TypeVar("T")


def field(plain: object, name: str, kind: type[T], where: str) -> T:
    """``plain[name]``, or `CorruptionError` unless it is there and is a `kind`."""
    value = plain.get(name) if isinstance(plain, dict) else None
    if type(value) is not kind:
        raise CorruptionError(f"{where}: {name} is missing or is no {kind.__name__}")
    return value


def seal(body: dict[str, Any], where: str) -> bytes:
    """`body`, plain JSON, as a document that carries its own sha256.

    Raises `InputError` naming `where` if the document were too large to be read back.
    """
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    document = f'{{"sha256":"{digest}","body":{text}}}\n'.encode()
    if len(document) > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"{where} has {len(document)} bytes of JSON where at most {MAX_DOCUMENT_BYTES} fit; "
            "keep large content in arrays"
        )
    return document


def unseal(document: bytes, where: str) -> dict[str, Any]:
    """The body of a sealed document; raises `CorruptionError` if one byte of it changed."""
    try:
        plain = json.loads(document)
        digest, body = field(plain, "sha256", str, where), field(plain, "body", dict, where)
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        raise CorruptionError(f"{where} is no JSON document") from None
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise CorruptionError(f"{where} is damaged: its content has another sha256")
    return body


def read_sealed(storage: Storage, key: str, where: str) -> dict[str, Any]:
    """The body of the sealed document `key`.

    Raises `CorruptionError` if it is damaged, `MissingKey` if it is not there.
    """
    try:
        document = storage.get(key, max_bytes=MAX_DOCUMENT_BYTES)
    except StorageError:
        size = storage.size(key)
        if size <= MAX_DOCUMENT_BYTES:
            raise
        raise CorruptionError(f"{where} has {size} bytes; no such document has") from None
    return unseal(document, where)


def to_plain(value: Any, where: str) -> Any:
    """`value` as strict JSON in which NaN and infinities survive; the inverse is `from_plain`.

    Takes dictionaries with text keys, lists, tuples (they come back as lists), text, numbers,
    NumPy scalars (they come back as Python numbers), booleans and None. Anything else raises
    `InputError` naming its place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if not isinstance(value, dict):
        raise InputError(f"{where} is a {type(value).__name__}, which is no plain JSON")
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"{where} has the key {key!r}; the keys of plain JSON are text")
    # A key that starts with $ gets another one, so that no user's key can look like a float.
    return {
        "$" + key if key.startswith("$") else key: to_plain(item, f"{where}.{key}")
        for key, item in value.items()
    }


def from_plain(value: Any) -> Any:
    """The value that `to_plain` turned into `value`."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and value.get(_FLOAT) in ("nan", "inf", "-inf"):
        return float(value[_FLOAT])
    return {
        key[1:] if key.startswith("$$") else key: from_plain(item) for key, item in value.items()
    }


def what_is_at(storage: Storage) -> str | None:
    """What dadagrad would call the things at a URL, for messages; None if it is nothing known."""
    if storage.exists("model.json"):
        return "a model"
    if storage.exists("zarr.json"):
        return "a dataset"
    try:
        keys = storage.list()
    except StorageError:  # a web server that cannot list
        return None
    if any(re.fullmatch(r"manifest-[^/]*\.json", key) for key in keys):
        return "the checkpoints of a run"
    return "a dataset" if any(key.endswith(".parquet") for key in keys) else None
