"""Names of sources: the files that they stand for, and the formats of these."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from itertools import chain

from dadagrad.data.reading.files import COMPRESSED_NAME, STDIN, read_head
from dadagrad.data.reading.options import FORMATS, Format
from dadagrad.errors import InputError
from dadagrad.storage.backends import path_of_url
from dadagrad.storage.files import SourceFile, is_file, is_url, list_objects, map_files
from dadagrad.storage.store import Storage

_SUFFIXES: dict[str, Format] = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".vw": "vw",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "anndata",
    ".npz": "npz",
    **dict.fromkeys((".csv", ".tsv", ".tab", ".arff"), "csv"),
}
_FORMAT_BY_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"\x89HDF": "anndata"}
_ZIP, _TAR = b"PK\x03\x04", slice(257, 263)
_OTHER_FORMATS = {
    b"ARROW1\0\0": "an Arrow file; write Parquet, or give the table of pyarrow.feather.read_table",
    b"\x93NUMPY": "an array of NumPy; give (X, y) in Python",
    b"SQLite format 3\0": "a database of SQLite; export a table as CSV",
    b"\x80\x04": "a pickle, which is not read; write CSV or Parquet",
    b"\x80\x05": "a pickle, which is not read; write CSV or Parquet",
}
"""Beginnings of files that are not read, and what they are."""
_SVMLIGHT_LINE = re.compile(
    # A label, or, in rows to be predicted, a feature at once.
    r"\s*([-+.\deE]+(,[-+.\deE]+)*|qid:\d+|\d+:[-+.\deE]+)"
    r"(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)*\s*(#.*)?"
)
_QUERY = re.compile(r"\?[^/]*=")
_VW_LINE = re.compile(r"\s*([-+.\deE]+\s+){0,3}('?\S+)?\s*\|.*")


def expand(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Files that `sources` name: files, globs and folders (see `_files_in`), also by URL.

    Zarr stores (folders ``.zarr``, or with Zarr's metadata in them) stay as they are.
    """
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    names = [STDIN if os.fspath(each) == "-" else local_path(each) for each in sources]
    if not names:
        raise InputError("no source was given; give files, folders or globs")
    return list(chain.from_iterable(map_files(_files_named, names)))


def _files_named(source: str) -> list[str]:
    """The files that one source names; raises `InputError` if there are none."""
    missing = f"there is no file {source}" if source else "an empty name was given"
    if is_url(source):
        named = _objects_at(source)
    elif os.path.isdir(source):
        named, missing = _files_in(source), f"the folder {source} has no files in it"
    elif os.path.exists(source):
        named = [source]
    else:
        matches = sorted(glob.glob(source, recursive=True))
        named = [m for m in matches if not os.path.isdir(m) or m.endswith(".zarr")]
        if all(os.path.basename(name).startswith("_") for name in named):  # notes of writers
            in_folders = map(_files_in, filter(os.path.isdir, matches))
            named = list(dict.fromkeys(chain.from_iterable(in_folders))) or named
    if not named:
        raise InputError(f"{missing}; give files, folders or globs")
    return named


def local_path(source: str | os.PathLike[str]) -> str:
    """The path of a file, also of a ``file://`` URL; other URLs stay as they are."""
    name = os.fspath(source)
    return path_of_url(name) if name.startswith("file://") else os.path.expanduser(name)


def _files_in(folder: str) -> list[str]:
    """The files of a folder, sorted; where it has only folders, as ``year=2024``, their files."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(
            f"cannot list the files in {folder}: {error.strerror}; check its owner, or name files"
        ) from error
    if folder.rstrip("/").endswith(".zarr") or {"zarr.json", ".zgroup"} & set(names):
        return [folder]
    paths = [os.path.join(folder, name) for name in names if not name.startswith((".", "_"))]
    files = [path for path in paths if os.path.isfile(path)]
    return files or [file for path in filter(os.path.isdir, paths) for file in _files_in(path)]


def _other_format(head: bytes) -> str | None:
    """The kind of a file that begins with `head` and is not read, and what to do; or None."""
    if head[:4] == _ZIP:
        if _first_in_zip(head).startswith(("[Content_Types]", "_rels/", "xl/", "docProps/")):
            return "a file of Office; save a sheet as CSV, or give pandas.read_excel(...)"
        return "a zip archive; unpack it, or compress each file with gzip"
    if head[_TAR] in (b"ustar\0", b"ustar "):
        return "a tar archive; unpack it"
    return next((kind for magic, kind in _OTHER_FORMATS.items() if head.startswith(magic)), None)


def _first_in_zip(head: bytes) -> str:
    """Name of the first file in a zip archive, of which `head` is the beginning."""
    return head[30:][: int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")


def _objects_at(url: str) -> list[str]:
    """The object at a URL; those in it if it is a folder, or those that fit it if it is a glob."""
    is_web = url.startswith(("http://", "https://"))
    may_exist = "?" not in url or is_web or _QUERY.search(url)  # a query is refused
    if is_web and "*" in url:
        raise InputError(f"{url} is a glob, and a web server does not list its files; name each")
    if may_exist and (_is_zarr(url) or (names_format(url) and is_file(url))):
        return [url]
    return list_objects(url) or ([url] if may_exist and is_file(url) else [])


def _is_zarr(url: str) -> bool:
    storage = Storage(url)  # refuses credentials in a URL
    may_be_zarr = not glob.has_magic(url) and not names_format(url)
    return url.rstrip("/").endswith(".zarr") or (may_be_zarr and storage.exists("zarr.json"))


def names_format(path: str) -> Format | None:
    """Format of a file by its name, if it has a name of a format."""
    name = COMPRESSED_NAME.sub("", path.lower().rstrip("/"))
    return _SUFFIXES.get(os.path.splitext(name)[1])


def guess_format(path: str) -> Format:
    """Format of a source, by its name, or else by its first line."""
    named = names_format(path)
    if named not in (None, "csv"):
        return named
    if os.path.isdir(path) or (is_url(path) and _is_zarr(path)):
        return "parquet"
    file = SourceFile.look_up(path)
    if file.version is None and not is_url(path):
        raise InputError(f"cannot tell the format of {path}, a pipe; give it with --format")
    head = read_head(file)
    if head[:4] in _FORMAT_BY_MAGIC:
        return _FORMAT_BY_MAGIC[head[:4]]
    if head[:4] == _ZIP and _first_in_zip(head).endswith(".npy"):
        return "npz"
    if other := _other_format(head):
        raise InputError(f"{path} is {other}")
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if line.strip()]
    first = lines[0].removesuffix("\r") if lines else ""
    if named == "csv" or "\t" in first:
        return "csv"
    if first.startswith(("{", "[")):
        return "jsonl"
    if first and _SVMLIGHT_LINE.fullmatch(first):
        return "svmlight"
    if _VW_LINE.fullmatch(first):
        return "vw"
    if "," in first:
        return "csv"
    evidence = f"its first line is {first[:60]!r}" if first else "it is empty"
    raise InputError(
        f"cannot tell the format of {path}: {evidence}; give one with --format {'|'.join(FORMATS)}"
    )
