"""Which store a URL means, and what its errors mean to the user."""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from dadagrad.errors import AlreadyExists, InputError, StorageError
from dadagrad.storage_requests import (
    TIMEOUT,
    GaveUp,
    Patience,
    is_without_credentials,
    may_pass,
    patience_seconds,
    timeout_seconds,
    what_failed,
)

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


LARGE_BYTES = 1 << 20
"""What is written in larger pieces may take `_UPLOAD_TIMES` longer before the store answers."""

_UPLOAD_TIMES = 4  # the part of 64 MiB at 1.1 MB/s, in 60 seconds

_patience: dict[tuple[str, str, str], Patience] = {}


@dataclass(frozen=True)
class Backend:
    """A store that is not local.

    Attributes
    ----------
    store : ObjectStore
    patience : Patience or None
        None where nothing fails for a moment.
    """

    store: ObjectStore = field(repr=False)
    patience: Patience | None = None
    _open: Callable[[float], ObjectStore] | None = field(default=None, repr=False)

    @cached_property
    def uploads(self) -> ObjectStore:
        """The same store for large writes: the clock that looks for a stalled answer runs while
        they are still being sent."""
        return self.store if self._open is None else self._open(_UPLOAD_TIMES)


def open_backend(scheme: str, rest: str, url: str) -> tuple[Backend, str]:
    """The store of a URL that is not local, and the prefix in it."""
    import obstore.store as stores

    user, _, location = rest.rpartition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    name, _, prefix = location.partition("/")
    if scheme == "memory":
        with _memory_lock:
            store = _memory_stores.setdefault(name, stores.MemoryStore())
        return Backend(store), _normal(prefix)
    if not name:
        raise InputError(f"{url} names no bucket or host; write {scheme}://NAME/PREFIX")
    if user and scheme not in ("http", "https"):
        raise InputError(
            f"{url} was given with credentials in it; set {_CREDENTIALS[scheme]} instead"
        )
    if scheme in ("http", "https"):
        prefix = unquote(prefix)

    def open_store(times: float = 1.0) -> ObjectStore:
        return _open(scheme, name, user, times)

    patience = _patience_with(scheme, name)
    try:
        return Backend(open_store(), patience, open_store), _normal(prefix)
    except InputError:
        raise
    except Exception as error:
        hint = f"; set {_CREDENTIALS[scheme]}" if scheme in _CREDENTIALS else ""
        raise InputError(f"cannot open {url}: {_first_line(error)}{hint}") from None


def _patience_with(scheme: str, name: str) -> Patience:
    """What all of this process that ask the same bucket or host of the same endpoint share."""
    key = (scheme, name, _s3_endpoint() if scheme == "s3" else "")
    with _memory_lock:
        patience = _patience.setdefault(key, Patience(f"{scheme}://{name}"))
    patience.seconds = patience_seconds()
    return patience


def _open(scheme: str, name: str, user: str, times: float) -> ObjectStore:
    import obstore.store as stores

    timeout = timeout_seconds()
    # Short: what lasts longer is waited out by `Patience`, which can say so.
    retry: RetryConfig = {
        "max_retries": 2,
        "retry_timeout": timedelta(seconds=5),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1)},
    }
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(4.0, timeout)),
        "read_timeout": timedelta(seconds=times * timeout),
        "timeout": "10m",
    }
    if scheme == "s3":
        return _open_s3(name, client, retry)
    if scheme == "gs":
        return stores.GCSStore(name, client_options=client, retry_config=retry)
    if scheme == "az":
        return stores.AzureStore(name, client_options=client, retry_config=retry)
    client["allow_http"] = scheme == "http"
    if user:  # not in the URL, where every error would show it
        token = base64.b64encode(unquote(user).encode()).decode()
        client["default_headers"] = {"authorization": f"Basic {token}"}
    return stores.HTTPStore(f"{scheme}://{name}", client_options=client, retry_config=retry)


def _s3_endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _open_s3(bucket: str, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    from obstore.store import S3Store

    environment, endpoint = os.environ, _s3_endpoint()
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

    waited = error.seconds if isinstance(error, GaveUp) else 0.0
    error = error.error if isinstance(error, GaveUp) else error
    what = f"{key} in {url}" if key else f"the objects in {url}" if action == "list" else url
    text, start = str(error), f"cannot {action} {what}"
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
        return StorageError(f"{start}: permission denied; {_what_to_check(text, url, scheme)}")
    if "ExpiredToken" in text or is_without_credentials(error):
        problem = "the credentials have expired" if "Expired" in text else "no credentials found"
        return StorageError(f"{start}: {problem}; set {_CREDENTIALS.get(scheme, 'them')}")
    if "os error 28" in text or "os error 122" in text or getattr(error, "errno", 0) in (28, 122):
        return StorageError(
            f"{start}: no space is left on the device; free some or write elsewhere"
        )
    if "os error 27" in text or getattr(error, "errno", 0) == 27:
        return StorageError(
            f"{start}: the file would be larger than is allowed; raise the limit (ulimit -f) or "
            "write elsewhere"
        )
    if may_pass(error):
        return StorageError(f"{start}: {_no_answer(error, waited, scheme)}")
    return StorageError(f"{start}: {_first_line(error)}")


def _what_to_check(text: str, url: str, scheme: str) -> str:
    if scheme not in _CREDENTIALS:
        return "check its owner"
    if "RequestTimeTooSkewed" in text:
        return "the clocks of this machine and of the store differ; set this one"
    bucket = url.partition("://")[2].partition("/")[0]
    if "SignatureDoesNotMatch" in text or "InvalidAccessKeyId" in text:
        return f"the store does not know these credentials; check {_CREDENTIALS[scheme]}"
    return (
        f"check {_CREDENTIALS[scheme]}, and that they may read, list, write and delete in the "
        f"bucket {bucket!r}"
    )


def _no_answer(error: Exception, waited: float, scheme: str) -> str:
    """Of a failure that did not pass in time."""
    what = what_failed(error)
    tried = f"{what} (tried for {waited:.0f} s: {_first_line(error)})"
    if what.startswith("the store answers"):
        return f"{tried}; try again when it is well"
    advice = "check the network, the host name" + (" and AWS_ENDPOINT_URL" * (scheme == "s3"))
    slow = f"; on a slow network, raise {TIMEOUT}" if what.startswith("no answer") else ""
    return f"{tried}; {advice}{slow}"
