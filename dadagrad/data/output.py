"""Where a dataset is written: refusing what must not be lost, removing what can go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dadagrad.errors import DadagradError, InputError
from dadagrad.storage import Storage

_ROOT = "zarr.json"
_OURS = re.compile(r"part-\d+/|zarr\.json$")
_SHOWN = 3


def prepare_output(storage: Storage, *, overwrite: bool, remove: bool) -> None:
    """Make sure a dataset can be written to `storage`.

    The parts that an ingest left behind which did not finish are no dataset, and may go. With
    `remove`, they do; so does a dataset that is to be overwritten: its root metadata first, so
    that nobody takes what is left for a dataset.

    Raises
    ------
    InputError
        If there is a dataset and not `overwrite`, or anything that no ingest wrote.
    """
    keys = storage.list()
    if not keys:
        return
    if _ROOT in keys and not overwrite:
        raise InputError(
            f"there is a dataset at {storage.url} already; give another URL, or --overwrite to "
            "replace it"
        )
    foreign = [key for key in keys if not _OURS.match(key)]
    if foreign:
        raise InputError(
            f"{storage.url} holds things that are no part of a dataset, like "
            f"{', '.join(foreign[:_SHOWN])}; give a URL with nothing in it"
        )
    if remove:
        _remove(storage, keys)


def _remove(storage: Storage, keys: list[str]) -> None:
    if _ROOT in keys:
        storage.delete(_ROOT)
    for part in sorted({key.partition("/")[0] for key in keys if "/" in key}):
        storage.delete_prefix(part)


@contextmanager
def removing_leftovers(storage: Storage) -> Iterator[None]:
    """Remove what was written if the block does not end well, as far as the storage lets us."""
    try:
        yield
    except BaseException:
        with suppress(DadagradError):
            _remove(storage, [key for key in storage.list() if _OURS.match(key)])
        raise
