"""Which store a URL means, and what its errors mean to the user."""

from __future__ import annotations

import base64
import os
import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from dadagrad.errors import AlreadyExists, InputError, StorageError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, MemoryStore, ObjectStore, RetryConfig

SCHEMES = ("file", "memory", "s3", "gs", "az", "http", "https")

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION "
    "(AWS_SKIP_SIGNATURE=true for a public bucket)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class MissingKey(StorageError):
    """There is no object of that key."""


class TooLarge(StorageError):
    """An object is larger than the reader said it may be."""


def open_backend(scheme: str, rest: str, url: str) -> tuple[ObjectStore, str]:
    """The store of a URL that is not local, and the prefix in it."""
    import obstore.store as stores

    user, _, location = rest.rpartition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    name, _, prefix = location.partition("/")
    if scheme == "memory":
        with _memory_lock:
            return _memory_stores.setdefault(name, stores.MemoryStore()), _normal(prefix)
    if not name:
        raise InputError(f"{url} names no bucket or host; write {scheme}://NAME/PREFIX")
    if user and scheme not in ("http", "https"):
        raise InputError(
            f"{url} was given with credentials in it; set {_CREDENTIALS[scheme]} instead"
        )
    retry: RetryConfig = {"max_retries": 6, "retry_timeout": timedelta(seconds=10)}
    client: ClientConfig = {"connect_timeout": "4s", "read_timeout": "15s", "timeout": "10m"}
    try:
        if scheme == "s3":
            return _open_s3(name, client, retry), _normal(prefix)
        if scheme == "gs":
            return stores.GCSStore(name, client_options=client, retry_config=retry), _normal(prefix)
        if scheme == "az":
            return (
                stores.AzureStore(name, client_options=client, retry_config=retry),
                _normal(prefix),
            )
        client["allow_http"] = scheme == "http"
        if user:  # not in the URL, where every error would show it
            token = base64.b64encode(unquote(user).encode()).decode()
            client["default_headers"] = {"authorization": f"Basic {token}"}
        store = stores.HTTPStore(f"{scheme}://{name}", client_options=client, retry_config=retry)
        return store, _normal(unquote(prefix))
    except Exception as error:
        hint = f"; set {_CREDENTIALS[scheme]}" if scheme in _CREDENTIALS else ""
        raise InputError(f"cannot open {url}: {_first_line(error)}{hint}") from None


def _open_s3(bucket: str, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    from obstore.store import S3Store

    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    options: dict[str, Any] = {
        "region": region,
        "virtual_hosted_style_request": False,
        "conditional_put": "etag",
    }
    if endpoint:
        options["endpoint"] = endpoint
        client["allow_http"] = endpoint.startswith("http://")
    return S3Store(bucket, client_options=client, retry_config=retry, **options)


def segments(key: str) -> list[str]:
    """The parts of a key; raises `InputError` for a key that leaves its prefix."""
    parts = [part for part in key.split("/") if part]
    if key.startswith("/") or any(part in (".", "..") or "\0" in part for part in parts):
        raise InputError(f"{key!r} is no key; it must be relative, without '.' and '..'")
    return parts


def _normal(prefix: str) -> str:
    return "/".join(segments(prefix.lstrip("/")))


def path_of_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InputError(f"{url} names the host {parts.netloc!r}; write file:///PATH")
    # A '?' or '#' in a path is a character like any other.
    return unquote(url.split("://", 1)[1].removeprefix("localhost"))


def redact(text: str) -> str:
    """`text` without the ``user:password@`` of any URL in it."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def _first_line(error: Exception) -> str:
    # obstore appends a debug dump of several lines, request headers included.
    return redact(str(error).strip().partition("\n")[0])


def check_size(size: int, limit: int | None, url: str, key: str) -> None:
    if limit is not None and size > limit:
        raise TooLarge(f"{url}: {key} has {size} bytes where at most {limit} were expected")


def explained(error: Exception, action: str, url: str, key: str, scheme: str) -> StorageError:
    """What went wrong, in words that say what to do."""
    import obstore.exceptions as kinds

    text, start = str(error), f"cannot {action} {key or 'the objects'} in {url}"
    if "NoSuchBucket" in text or "ContainerNotFound" in text or "bucket does not exist" in text:
        return StorageError(f"{start}: there is no such bucket; create it or correct the URL")
    missing = FileNotFoundError | IsADirectoryError | NotADirectoryError
    if isinstance(error, missing) or (
        action != "write" and ("os error 20)" in text or "os error 21)" in text)
    ):
        return MissingKey(f"{start}: there is no such object; check the URL")
    if isinstance(error, kinds.AlreadyExistsError | kinds.PreconditionError):
        return AlreadyExists(f"{start}: it exists already")
    denied = (PermissionError, kinds.PermissionDeniedError, kinds.UnauthenticatedError)
    if isinstance(error, denied) or "os error 13" in text or "os error 1)" in text:
        hint = f"check {_CREDENTIALS[scheme]}" if scheme in _CREDENTIALS else "check its owner"
        return StorageError(f"{start}: permission denied; {hint}")
    if "os error 28" in text or "os error 122" in text or getattr(error, "errno", 0) in (28, 122):
        return StorageError(
            f"{start}: no space is left on the device; free some or write elsewhere"
        )
    if "error sending request" in text or "operation timed out" in text:
        return StorageError(
            f"{start}: the endpoint cannot be reached ({_first_line(error)}); check the network, "
            "the host name" + (" and AWS_ENDPOINT_URL" if scheme == "s3" else "")
        )
    return StorageError(f"{start}: {_first_line(error)}")
