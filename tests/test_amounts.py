"""Numbers of bytes in words."""

from __future__ import annotations

import pytest

from dadagrad.amounts import size


@pytest.mark.parametrize(
    ("n_bytes", "fixed", "short"),
    [
        (0, "0 bytes", "0 bytes"),
        (999, "999 bytes", "999 bytes"),
        (1024, "1.0 kB", "1.02 kB"),
        (998_400, "998.4 kB", "998 kB"),
        (999_600, "1.0 MB", "1 MB"),
        (6_432_100_000, "6.4 GB", "6.43 GB"),
        (2_500_000_000_000_000_000, "2,500 PB", "2,500 PB"),
    ],
)
def test_sizes(n_bytes: int, fixed: str, short: str) -> None:
    assert (size(n_bytes), size(n_bytes, ".3g")) == (fixed, short)
