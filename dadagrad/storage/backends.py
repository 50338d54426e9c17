"""Stores that are not local: how a URL opens one, and how its errors read."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from datetime import timedelta
from errno import EACCES, EDQUOT, EFBIG, EISDIR, ENOSPC, ENOTDIR, EPERM
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from dadagrad.errors import AlreadyExists, InputError, Interface, MissingKey, StorageError
from dadagrad.storage.retries import (
    UPLOAD_TIMES,
    RetryPolicy,
    RetryTimeout,
    first_line,
    lacks_credentials,
    patience_seconds,
    timeout_seconds,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, MemoryStore, ObjectStore

SCHEMES = ("file", "memory", "s3", "gs", "az", "http", "https")
URL = re.compile(rf"[\w+.-]+://|({'|'.join(SCHEMES)}):/", re.IGNORECASE)
"""Start of a URL, also of one that lacks a slash."""

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION "
    "(AWS_SKIP_SIGNATURE=true for a public bucket)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_PUBLIC = "web servers are read without a user and password; copy the data to a folder or bucket"

_VARIABLES = {"s3": "AWS_", "az": "AZURE_"}  # those of gs go into no header, and may hold JSON
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_ENDPOINT = re.compile(
    r"https?://([^\s/@]*@)?([\w.-]+|\[[\da-f:.]+\])(:\d{1,5})?(/[\w./~-]*)?",
    re.ASCII | re.IGNORECASE,
)

Version: TypeAlias = tuple[int, str]

_memory_stores: dict[str, MemoryStore] = {}
_policies: dict[tuple[str, str], RetryPolicy] = {}


def absolute(url: str) -> str:
    """Make a path absolute; leave a URL, an empty text, and - for standard input as they are."""
    is_path = URL.match(url) is None and url not in ("", "-")
    return os.path.abspath(os.path.expanduser(url)) if is_path else url


def path_of_url(url: str) -> str:
    """The path of a ``file://`` URL, in which '?' and '#' are characters like any other."""
    path = url.partition("://")[2].removeprefix("localhost")
    if not path.startswith("/"):
        raise InputError(f"{url} names a host; write file:///PATH")
    return unquote(path)


def parse(scheme: str, rest: str, url: str) -> tuple[str, str]:
    """Return the bucket or host of a URL that is not local, and the prefix in it."""
    if scheme == "memory" and Interface.is_command_line:
        raise InputError(
            f"cannot open {url}: it would end with this command; give a path, or the URL of a "
            "store such as s3://bucket/name"
        )
    if "@" in rest.partition("/")[0] or (scheme != "memory" and "?" in rest):
        remedy = f"set {_CREDENTIALS[scheme]} instead" if scheme in _CREDENTIALS else _PUBLIC
        raise InputError(f"{url} was given with credentials or a query in it; {remedy}")
    name, _, prefix = rest.partition("/")
    if scheme != "memory" and not name:
        raise InputError(f"{url} names no bucket or host; write {scheme}://NAME/PREFIX")
    if scheme in ("http", "https"):
        prefix = unquote(prefix)
    return name, "/".join(segments(prefix.lstrip("/")))


def shared_policy(scheme: str, name: str) -> RetryPolicy | None:
    """Return this process's retry policy for a bucket or host; None if nothing can fail."""
    if scheme in ("file", "memory"):
        return None
    place = f"{scheme}://{name}"
    policy = _policies.setdefault((place, _s3_endpoint()), RetryPolicy(place))
    policy.seconds = patience_seconds()
    return policy


def give_up_stores() -> None:
    """Have requests to stores that are away end soon, in all threads; a signal handler calls it."""
    for policy in list(_policies.values()):
        policy.give_up()


def open_store(scheme: str, name: str, url: str, *, for_uploads: bool = False) -> ObjectStore:
    """Open the store of a URL; raises `InputError` if the environment lacks what it needs."""
    import obstore.store as stores

    if scheme == "file":
        return stores.LocalStore("/")  # a prefix would be created before anything is written
    if scheme == "memory":
        return _memory_stores.setdefault(name, stores.MemoryStore())
    timeout = timeout_seconds()
    seconds = timeout * (UPLOAD_TIMES if for_uploads else 1)
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(4.0, timeout)),
        "read_timeout": timedelta(seconds=seconds),
        "timeout": "10m",
    }
    prefix = _VARIABLES.get(scheme, "")
    for variable, text in os.environ.items() if prefix else ():
        if variable.startswith(prefix) and _CONTROL.search(text):  # the client would panic
            raise InputError(
                f"cannot open {url}: the environment variable {variable} has a line end or another "
                "control character in it; set it without"
            )
    endpoint = _s3_endpoint() if scheme == "s3" else ""
    if endpoint and not _ENDPOINT.fullmatch(endpoint):  # the client would panic
        raise InputError(f"cannot open {url}: AWS_ENDPOINT_URL must be http(s)://HOST[:PORT]")
    if scheme == "http" or endpoint.startswith("http://"):
        client["allow_http"] = True
    clouds: dict[str, Callable[..., ObjectStore]] = {
        "s3": stores.S3Store,
        "gs": stores.GCSStore,
        "az": stores.AzureStore,
    }
    if scheme not in clouds:
        name = f"{scheme}://{name}"
    try:
        kind = clouds.get(scheme, stores.HTTPStore)
        return kind(name, client_options=client, retry_config={"max_retries": 0})
    except Exception as error:
        hint = f"; set {_CREDENTIALS[scheme]}" if scheme in _CREDENTIALS else ""
        raise InputError(f"cannot open {url}: {first_line(error)}{hint}") from None


def _s3_endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


class ChangedObject(Exception):
    """An object is another than when it was opened, or the store sends too few of its bytes."""


def version_of(meta: ObjectMeta) -> Version:
    """The size of an object, and its tag, which another content does not have."""
    return meta["size"], meta["e_tag"] or str(meta["last_modified"])


class ObjectFile(io.RawIOBase):
    """A seekable file over an object of `size` bytes; each read is one call of `read_range`."""

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]) -> None:
        self._size, self._read_range = size, read_range
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        start, stop = self._position, min(self._position + len(view), self._size)
        if start >= stop:
            return 0
        view[: stop - start] = self._read_range(start, stop)
        self._position = stop
        return stop - start

    def readall(self) -> bytes:
        return self.read(max(self._size - self._position, 0)) or b""


def segments(key: str) -> list[str]:
    """Return the parts of a key; raises `InputError` for a key that leaves its prefix."""
    parts = [part for part in key.split("/") if part]
    if key.startswith("/") or any(part in (".", "..") or "\0" in part for part in parts):
        raise InputError(f"{key!r} is not a key; it must be relative, without '.' and '..'")
    return parts


def explain(error: Exception, action: str, url: str, key: str, scheme: str) -> StorageError:
    """Make the error to raise for one of obstore or of the system: what failed and what to do."""
    if scheme not in ("file", "memory"):  # the name of a file in a folder may have a query
        key = re.sub(r"\?.*", "?...", key)
    subject = f"{key} in {url}" if key else url
    if action == "list":
        subject = f"the objects in {subject}"
    kind, problem = _diagnose(error, action, scheme)
    return kind(f"cannot {action} {subject}: {problem}")


def _diagnose(error: Exception, action: str, scheme: str) -> tuple[type[StorageError], str]:
    """Return the kind of an error, and the problem with its remedy."""
    import obstore.exceptions as kinds

    credentials = _CREDENTIALS.get(scheme, "them")
    if lacks_credentials(error):
        return StorageError, f"no credentials found; set {credentials}"
    if isinstance(error, RetryTimeout):
        return StorageError, str(error)
    if isinstance(error, UnicodeEncodeError):
        return StorageError, "its name is not UTF-8 text; give it another"
    text = str(error)
    if isinstance(error, ChangedObject) or re.search("status code: 416|Invalid range", text):
        return StorageError, (
            "it was changed or cut short while it was read; start again when nothing writes there"
        )
    system = re.search(r"os error (\d+)\)", text)
    number = int(system[1]) if system else getattr(error, "errno", None)
    missing = FileNotFoundError | IsADirectoryError | NotADirectoryError
    if re.search("NoSuchBucket|ContainerNotFound|bucket does not exist", text):
        return StorageError, "there is no such bucket; create it or correct the URL"
    if isinstance(error, missing) or (action != "write" and number in (ENOTDIR, EISDIR)):
        return MissingKey, "there is no such object; check the URL"
    if isinstance(error, kinds.AlreadyExistsError | kinds.PreconditionError):
        return AlreadyExists, "it exists already"
    if number in (EPERM, EACCES):
        return StorageError, "permission denied; check its owner"
    refused = kinds.PermissionDeniedError | kinds.UnauthenticatedError
    if isinstance(error, refused) or re.search("status code: 40[13]", text):  # a refused listing
        if scheme not in _CREDENTIALS:
            return StorageError, f"permission denied; {_PUBLIC}"
        code = re.search(r"<Code>(\w+)</Code>", text)  # such as InvalidAccessKeyId
        return StorageError, (
            f"permission denied{f' ({code[1]})' if code else ''}; check {credentials}, that they "
            "may read, list, write and delete in this bucket, and the clock of this machine"
        )
    if "ExpiredToken" in text:
        return StorageError, f"the credentials have expired; set {credentials}"
    if number is not None:
        full = dict.fromkeys((ENOSPC, EDQUOT), "free some space or ")
        remedy = {**full, EFBIG: "raise the limit (ulimit -f) or "}.get(number, "")
        hint = f"; {remedy}write elsewhere" if action == "write" else ""
        return StorageError, f"{os.strerror(number)}{hint}"
    if re.search("Range request not supported|non-partial response", text):
        return StorageError, "the server sends whole files only; copy the data to another place"
    if "Content-Length Header missing" in text:
        return StorageError, "the server does not tell its length; copy the data to another place"
    if scheme == "s3" and re.search("status code: 400|without LOCATION", text):
        return StorageError, (
            f"{first_line(error).rstrip(' :')}; check AWS_REGION, AWS_ENDPOINT_URL, and whether "
            "AWS_SESSION_TOKEN has expired"
        )
    endpoint = " and AWS_ENDPOINT_URL" * (scheme == "s3")
    return StorageError, f"{first_line(error).rstrip(' :')}; check the URL{endpoint}"
