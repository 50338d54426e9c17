"""Amounts as people write them."""

from __future__ import annotations


def size(n_bytes: float, form: str = ".1f") -> str:
    """A number of bytes; `form` is that of the number before kB, MB, GB, TB or PB."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        n_bytes /= 1000
        if n_bytes < 999.5:
            return f"{n_bytes:{form}} {unit}"
    return f"{n_bytes / 1000:,.0f} PB"
