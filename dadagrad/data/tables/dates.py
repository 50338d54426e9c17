"""Dates in cells: as times, and the order of day, month and year in which texts are written.

Dates are read as ISO 8601 writes them, or in one of `ORDERS` where the first rows show which. The
order is a part of the column, so that 05/04/2024 is the same day in all rows.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dadagrad.data.parquet.columns import is_text
from dadagrad.data.tables.cells import trimmed

DateOrder: TypeAlias = Literal["", "ymd", "dmy", "mdy", "named"]
"""Order of day, month and year in texts; the empty one is that of ISO 8601. Months that are named
may stand before or after the day.
"""

EXAMPLES: dict[DateOrder, str] = {
    "": "2024-05-31", "ymd": "2024/05/31", "dmy": "31/05/2024", "mdy": "05/31/2024",
    "named": "31 May 2024",
}  # fmt: skip
"""A date in each order."""

DAY = 86_400_000_000
"""Microseconds of a day."""

MAX_WRONG = 0.05
"""Texts of something else for each date, at most, in a column of dates."""

_SEPARATED = r"^(?P<first>\d{1,4})[-/.](?P<second>\d{1,2})[-/.](?P<third>\d{1,4})(?:[ T].*)?$"
_MONTHS = pa.array(
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
)
_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_WEEKDAY = "(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_NAMED = (
    rf"(?i)^(?:{_WEEKDAY},? +)?(?P<first>\d{{1,2}}|{_MONTH})\.?[-/ ]+(?P<second>\d{{1,2}}|{_MONTH})"
    r"[.,]*[-/ ]+(?P<year>\d{4})(?P<time>[ T].*?)?(?: (?:\+0000|GMT|UTC))?$"
)
_SHORT, _YEAR = r"(\d{1,2})", r"(\d{4})"
_TO_ISO: dict[DateOrder, tuple[str, str]] = {
    "ymd": (rf"^{_YEAR}[-/.]{_SHORT}[-/.]{_SHORT}\b", r"\1-\2-\3"),
    "dmy": (rf"^{_SHORT}[-/.]{_SHORT}[-/.]{_YEAR}\b", r"\3-\2-\1"),
    "mdy": (rf"^{_SHORT}[-/.]{_SHORT}[-/.]{_YEAR}\b", r"\3-\1-\2"),
}
_TWO_DIGITS = (
    (r"^(\d{4})-(\d)-", r"\1-0\2-"),
    (r"^(\d{4}-\d\d)-(\d)($|[ T])", r"\1-0\2\3"),
    (r"([ T])(\d:)", r"\10\2"),
)
# Nanoseconds, as polars and pandas write them, last: they end in the year 2262.
_TIMES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
_FIRST_TEXTS = 20


def to_times(cells: pa.Array, order: DateOrder = "") -> tuple[pa.Array, NDArray[np.bool_]]:
    """Times of cells in microseconds, null where one is missing, and the cells without a time.

    Texts are in the `order` of day, month and year, or as ISO 8601 writes them.
    """
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if not is_text(cells.type):
        wrong = np.zeros(len(cells), bool)
        return pc.cast(cells, pa.timestamp("us"), safe=False), wrong
    texts = trimmed(pc.cast(cells, pa.string()), None)
    times = _as_times(_as_iso(texts, order) if order else texts)
    missing = pc.is_null(texts).to_numpy(zero_copy_only=False)
    return times, times.is_null().to_numpy(zero_copy_only=False) & ~missing


def find_order(cells: pa.Array) -> DateOrder | None:
    """The order of day, month and year in nearly all texts; None if they are no dates.

    None as well if it is not clear: no day is above 12, and no separator tells.
    """
    if not is_text(cells.type):
        return ""
    if _are_times(cells, ""):
        return ""
    of_numbers = _order_of_parts(trimmed(pc.cast(cells, pa.string()), None))
    orders: tuple[DateOrder | None, ...] = (of_numbers, "named")
    return next((order for order in orders if order and _are_times(cells, order)), None)


def to_days(times: pa.Array) -> NDArray[np.float64]:
    """Times as days since 1970, NaN where one is missing."""
    microseconds = pc.cast(times, pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(microseconds / DAY)


def _are_times(texts: pa.Array, order: DateOrder) -> bool:
    """True if nearly all texts are times; the encoder names the first row with something else."""
    # Texts that are no times are tried more often, so a few come first.
    first = texts.slice(0, _FIRST_TEXTS)
    if not len(first) or 2 * np.count_nonzero(to_times(first, order)[1]) > len(first):
        return False
    wrong = np.count_nonzero(to_times(texts, order)[1])
    return bool(wrong <= MAX_WRONG * (len(texts) - wrong))


def _order_of_parts(texts: pa.Array) -> DateOrder | None:
    """The order in which numbers of dates are possible, by the numbers above 12."""
    parts = pc.drop_null(pc.extract_regex(texts, _SEPARATED))
    first, second, third = (pc.struct_field(parts, [number]) for number in range(3))
    if not len(parts):
        return None
    if pc.min(pc.utf8_length(first)).as_py() == 4:
        return "ymd"
    if pc.min(pc.utf8_length(third)).as_py() != 4:
        return None
    late = [pc.sum(pc.greater(pc.cast(each, pa.int16()), 12)).as_py() for each in (first, second)]
    if max(late) > 0 and min(late) <= MAX_WRONG * max(late):
        return "dmy" if late[0] > late[1] else "mdy"
    is_dotted = pc.all(pc.match_substring(pc.drop_null(texts), ".")).as_py()
    return "dmy" if is_dotted and not any(late) else None


def _as_iso(texts: pa.Array, order: DateOrder) -> pa.Array:
    """Texts of dates in an `order` as ISO 8601 writes them; others stay."""
    if order == "named":
        texts = _named_as_iso(texts)
    else:
        texts = pc.replace_substring_regex(texts, *_TO_ISO[order], max_replacements=1)
    for pattern, replacement in _TWO_DIGITS:
        texts = pc.replace_substring_regex(texts, pattern, replacement, max_replacements=1)
    return texts


def _named_as_iso(texts: pa.Array) -> pa.Array:
    """Texts of dates with names of months as ISO 8601 writes them; others stay."""
    parts = pc.extract_regex(texts, _NAMED)
    first, second, year, time = (pc.struct_field(parts, [number]) for number in range(4))
    begins = pc.match_substring_regex(first, "^[A-Za-z]")
    name, day = pc.if_else(begins, first, second), pc.if_else(begins, second, first)
    place = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(name), 0, 3), value_set=_MONTHS)
    month = pc.cast(pc.add(place, 1), pa.string())
    padded = (pc.utf8_lpad(each, 2, "0") for each in (month, day))
    dates = pc.binary_join_element_wise(year, *padded, "-")
    times = pc.binary_join_element_wise(dates, pc.coalesce(time, ""), "")
    return pc.coalesce(times, texts)


def _as_times(texts: pa.Array) -> pa.Array:
    """Texts as times in microseconds, null where one is not a time."""
    for kind in _TIMES:
        try:
            return pc.cast(pc.cast(texts, kind), pa.timestamp("us"), safe=False)
        except pa.ArrowInvalid:
            continue
    if len(texts) == 1:
        return pa.nulls(1, pa.timestamp("us"))
    middle = len(texts) // 2  # halves, to find few texts among many times
    return pa.concat_arrays([_as_times(texts.slice(0, middle)), _as_times(texts.slice(middle))])
