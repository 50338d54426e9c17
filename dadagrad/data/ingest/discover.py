"""Files that a source names, and the format of a file."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from dadagrad.data.ingest.files import plan_ranges, read_chunks
from dadagrad.data.ingest.options import FORMATS, Format
from dadagrad.errors import InputError

_HEAD_BYTES = 1 << 20
_COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst)$")
_SUFFIXES: dict[str, Format] = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".vw": "vw",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "anndata",
    ".npz": "npz",
}
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"PK\x03\x04": "npz", b"\x89HDF": "anndata"}
_SVMLIGHT_LINE = re.compile(
    # A label, or, in rows to be predicted, a feature at once.
    r"\s*([-+.\deE]+(,[-+.\deE]+)*|qid:\d+|\d+:[-+.\deE]+)"
    r"(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)*\s*(#.*)?"
)
_VW_LINE = re.compile(r"\s*([-+.\deE]+\s+){0,3}('?\S+)?\s*\|.*")


def expand(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Files that `sources` name: files, folders (all files in them, sorted) and globs.

    URLs and Zarr stores (folders ``.zarr``, or with Zarr's metadata in them) stay as they are.
    """
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    files: list[str] = []
    for source in [os.path.expanduser(os.fspath(source)) for source in sources]:
        if "://" in source or (os.path.exists(source) and not os.path.isdir(source)):
            files.append(source)
        elif os.path.isdir(source):
            files.extend(_files_in(source))
        else:
            matches = sorted(glob.glob(source, recursive=True))
            if not matches:
                raise InputError(f"there is no file {source}; give files, folders or globs")
            files.extend(match for match in matches if not os.path.isdir(match))
    if not files:
        raise InputError("no source was given; give files, folders or globs")
    return files


def _files_in(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(
            f"cannot list the files in {folder}: {error.strerror}; check its owner, or name files"
        ) from error
    if folder.rstrip("/").endswith(".zarr") or {"zarr.json", ".zgroup"} & set(names):
        return [folder]
    files = [os.path.join(folder, name) for name in names if not name.startswith((".", "_"))]
    files = [file for file in files if os.path.isfile(file)]
    if not files:
        raise InputError(f"the folder {folder} has no files in it; name one that has")
    return files


def guess_format(path: str, *, prefer_text: bool) -> Format:
    """Format of a source, by its name, or else by its first line.

    Parameters
    ----------
    prefer_text
        True if a delimited file holds text, because options ask for a text column or n-grams.
    """
    name = _COMPRESSED.sub("", path.lower().rstrip("/"))
    suffix = os.path.splitext(name)[1]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if os.path.isdir(path):
        return "anndata" if os.path.isdir(os.path.join(path, "obs")) else "parquet"
    if "://" in path:
        raise InputError(
            f"cannot tell the format of {path}; give one with --format (text formats are read from "
            "files: copy them here, or pipe them to /dev/stdin)"
        )
    if not os.path.isfile(path):
        raise InputError(f"cannot tell the format of {path}, a pipe; give it with --format")
    ranges = plan_ranges(path)
    head = next(read_chunks(replace(ranges[0], stop=None), _HEAD_BYTES))[0] if ranges else b""
    if head[:4] in _MAGIC:
        return _MAGIC[head[:4]]
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if line.strip()]
    first = lines[0].removesuffix("\r") if lines else ""
    if suffix in (".csv", ".tsv", ".tab") or "\t" in first:
        words = any(
            " " in field.strip() for line in lines[:10] for field in re.split("[\t,]", line)
        )
        return "text" if prefer_text or words else "csv"
    if first and _SVMLIGHT_LINE.fullmatch(first):
        return "svmlight"
    if _VW_LINE.fullmatch(first):
        return "vw"
    seen = f"its first line is {first[:60]!r}" if first else "it is empty"
    raise InputError(
        f"cannot tell the format of {path}: {seen}; give one with --format {'|'.join(FORMATS)}"
    )


def source_bytes(path: str) -> int:
    """Size of a file; 0 for pipes, folders and URLs, which have none."""
    return os.path.getsize(path) if os.path.isfile(path) else 0
