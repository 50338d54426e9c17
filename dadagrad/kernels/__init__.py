"""Compiled loops over non-zeros, cached on disk."""

from __future__ import annotations

from typing import Any


def is_compiled(kernel: Any) -> bool:
    """Return True if the cache on disk has any version of `kernel`, which takes seconds to make."""
    if kernel.stats.cache_hits:
        return True
    cache_file = getattr(kernel._cache, "_cache_file", None)
    return bool(cache_file is not None and cache_file._load_index())
