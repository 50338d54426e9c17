"""Whether a kernel has to be compiled first, which takes seconds and wants to be announced."""

from __future__ import annotations

from typing import Any


def is_compiled(kernel: Any) -> bool:
    """Whether the cache on disk knows any version of `kernel`, a cached function of numba."""
    if kernel.stats.cache_hits:
        return True
    cache_file = getattr(kernel._cache, "_cache_file", None)
    return bool(cache_file is not None and cache_file._load_index())
