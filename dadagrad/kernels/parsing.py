"""Compiled kernels that turn bytes of text into sparse rows.

All kernels rely on one guarantee of their callers: the text ends in a newline. No scanner steps
over a newline without returning, so none reads past the end, and no byte needs a bounds check.

Numbers are exact: a decimal with at most 18 significant digits is rounded correctly here wherever
that can be proved (Clinger's fast path, or a division in twice the precision); the rare rest is
left as NaN for the caller to convert with ``float``. A parsed number is never NaN otherwise.

A cached kernel may call only functions of its own file: numba notices no other file's changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Outcomes of a line: DONE, or what is wrong with it.
DONE, MISSING_LABEL, BAD_LABEL, BAD_FEATURE, BAD_ID, BAD_VALUE = range(6)
BAD_QUERY, UNSORTED, NO_BAR, BAD_NAMESPACE, BASE_MARGIN, NEEDS_HASHING = range(6, 12)

NO_QUERY = np.iinfo(np.int64).min
MAX_ID = 4_611_686_018_427_387_899
"""Largest id of a feature in a file. It ends in 9, so that a tenth of it may be followed by any
digit; datasets have at most 2^62 features."""

_NEWLINE, _HASH, _COMMA, _COLON, _BAR, _QUOTE, _CARET = 10, 35, 44, 58, 124, 39, 94
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_EXACT_POWERS = np.array([10.0**power for power in range(23)])
_EXACT_INTEGER = 1 << 53
# Numbers that can take one more digit; digits beyond that are only counted.
_MAX_MANTISSA, _MAX_EXPONENT = 10**17 - 1, 10**5 - 1
_SPLITTER = 134217729.0  # 2**27 + 1: splits a float64 into two halves of 26 bits
_LOWER, _UPPER = 1 - 2.0**-50, 1 + 2.0**-50
_MASK = 0xFFFFFFFF
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Output(NamedTuple):
    """Arrays that the kernels fill; positions are those of bytes in the text.

    The `names` are the positions of the names of features, `namespaces` those of the names of
    their namespaces (VW). `lines`, `first_labels` and `tags` are the positions of a row's line,
    first label and tag; -1 for no label or tag. `queries` is `NO_QUERY` for a row without one.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    names: NDArray[np.int32]
    namespaces: NDArray[np.int32]
    labels: NDArray[np.float64]
    queries: NDArray[np.int64]
    weights: NDArray[np.float32]
    lines: NDArray[np.int32]
    first_labels: NDArray[np.int32]
    tags: NDArray[np.int32]

    def first(self, n_rows: int) -> Output:
        """Views of the first rows and their entries."""
        n_entries = int(self.indptr[n_rows])
        per_entry, per_row = self[1:5], self[5:]
        entries = [column[:n_entries] for column in per_entry]
        rows = [column[:n_rows] for column in per_row]
        return Output._make([self.indptr[: n_rows + 1], *entries, *rows])


def allocate(n_rows: int, n_entries: int) -> Output:
    """Arrays for at most `n_rows` and `n_entries`; memory that is not used costs nothing."""
    per_entry = (np.int64, np.float32, np.int32, np.int32)
    per_row = (np.float64, np.int64, np.float32, np.int32, np.int32, np.int32)
    entries = [np.empty(n_entries, kind) for kind in per_entry]
    rows = [np.empty(n_rows, kind) for kind in per_row]
    return Output._make([np.empty(n_rows + 1, np.int64), *entries, *rows])


@njit(cache=True, nogil=True)
def _byte(text: NDArray[np.uint8], at: int) -> int:
    """One byte as a signed number: numba turns mixed unsigned and signed ones to floats."""
    return np.int64(text[at])  # type: ignore[return-value]


@njit(cache=True, nogil=True)
def _is_space(byte: int) -> bool:
    return byte == 32 or byte == 9 or (11 <= byte <= 13)


@njit(cache=True, nogil=True)
def _skip_space(text: NDArray[np.uint8], at: int) -> int:
    while _is_space(text[at]):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _next_line(text: NDArray[np.uint8], at: int) -> int:
    while text[at] != _NEWLINE:
        at += 1
    return at + 1


@njit(cache=True, nogil=True)
def _divide(mantissa: int, power: float) -> float:
    """mantissa / power rounded correctly, or NaN where twice the precision cannot tell."""
    high = float(mantissa)
    low = float(mantissa - int(high))
    quotient = high / power
    # Dekker's product: quotient * power == product + error, exactly.
    product = quotient * power
    split = _SPLITTER * quotient
    q_high = split - (split - quotient)
    q_low = quotient - q_high
    split = _SPLITTER * power
    p_high = split - (split - power)
    p_low = power - p_high
    error = ((q_high * p_high - product) + q_high * p_low + q_low * p_high) + q_low * p_low
    # The remainder is exact, the correction right to a relative 2**-52: if both ends of a wider
    # interval round to the same number, so does the true quotient.
    correction = ((high - product) - error + low) / power
    lower = quotient + correction * _LOWER
    return lower if lower == quotient + correction * _UPPER else np.nan


@njit(cache=True, nogil=True)
def _digits(text: NDArray[np.uint8], at: int, number: int, limit: int) -> tuple[int, int, bool]:
    """Append digits to `number` while it is `limit` or less: the number, the end, and True if all
    digits fitted."""
    fits = True
    while _ZERO <= text[at] <= _NINE:
        if number <= limit:
            number = number * 10 + _byte(text, at) - _ZERO
        else:
            fits = False
        at += 1
    return number, at, fits


@njit(cache=True, nogil=True)
def _number(text: NDArray[np.uint8], at: int) -> tuple[float, int]:
    """Decimal number at `at` and its end; NaN if the caller has to convert it; end -1 if there is
    none."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    mantissa, stop, exact = _digits(text, at, 0, _MAX_MANTISSA)
    n_digits = stop - at
    at = stop
    exponent = 0
    if text[at] == _POINT:
        mantissa, stop, fits = _digits(text, at + 1, mantissa, _MAX_MANTISSA)
        exact &= fits
        exponent = at + 1 - stop
        n_digits -= exponent
        at = stop
    if n_digits == 0:
        return 0.0, -1
    if text[at] == 101 or text[at] == 69:  # e, E
        at += 1
        is_negative_power = text[at] == _MINUS
        if is_negative_power or text[at] == _PLUS:
            at += 1
        shift, stop, _ = _digits(text, at, 0, _MAX_EXPONENT)
        if stop == at:
            return 0.0, -1
        exponent += -shift if is_negative_power else shift
        at = stop
    value = np.nan
    if mantissa == 0:
        value = 0.0
    elif exact and -22 <= exponent <= 22:
        if exponent == 0:
            value = float(mantissa)
        elif mantissa <= _EXACT_INTEGER:
            if exponent < 0:
                value = mantissa / _EXACT_POWERS[-exponent]
            else:
                value = mantissa * _EXACT_POWERS[exponent]
        elif exponent < 0:
            value = _divide(mantissa, _EXACT_POWERS[-exponent])
    return -value if negative else value, at


@njit(cache=True, nogil=True)
def _integer(text: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Integer of the digits at `at` and their end; -1 if there are none, or too many."""
    number, stop, fits = _digits(text, at, 0, MAX_ID // 10)
    return number if fits and stop > at else -1, stop


@njit(cache=True, nogil=True)
def _ends_token(byte: int) -> bool:
    return _is_space(byte) or byte in (_NEWLINE, _HASH)


@njit(cache=True, nogil=True)
def _is_query(text: NDArray[np.uint8], at: int) -> bool:
    """True if ``qid:`` is at `at`."""
    q, i, d = 113, 105, 100
    name = text[at] == q and text[at + 1] == i and text[at + 2] == d
    return bool(name and text[at + 3] == _COLON)


@njit(cache=True, nogil=True)
def _svmlight_label(
    text: NDArray[np.uint8], at: int, row: int, label_optional: bool, out: Output
) -> tuple[int, int, bool]:
    """One label, or several with commas between: outcome, end, and True if several."""
    out.labels[row], stop = _number(text, at)
    out.first_labels[row] = at
    several = False
    while stop >= 0 and text[stop] == _COMMA:
        several = True
        _, stop = _number(text, stop + 1)
    if stop >= 0 and _ends_token(text[stop]):
        return DONE, stop, several
    if not _is_query(text, at) and (stop < 0 or text[stop] != _COLON or several):
        return BAD_LABEL, at, False
    out.labels[row], out.first_labels[row] = np.nan, -1
    return DONE if label_optional else MISSING_LABEL, at, False


@njit(cache=True, nogil=True)
def svmlight_features(
    text: NDArray[np.uint8], at: int, row: int, entry: int, out: Output
) -> tuple[int, int, int]:
    """Tokens after the label: outcome, its position, and the number of entries so far."""
    ids, values, names = out.ids, out.values, out.names
    out.queries[row] = NO_QUERY
    previous = -1
    while True:
        at = _skip_space(text, at)
        if text[at] == _NEWLINE:
            return DONE, at + 1, entry
        if text[at] == _HASH:
            return DONE, _next_line(text, at), entry
        if _is_query(text, at):
            query, stop = _integer(text, at + 4)
            if query < 0 or not _ends_token(text[stop]) or out.queries[row] != NO_QUERY:
                return BAD_QUERY, at, entry
            out.queries[row] = query
            at = stop
            continue
        feature, stop = _integer(text, at)
        if stop == at or text[stop] != _COLON:
            return BAD_FEATURE, at, entry
        if feature < 0:
            return BAD_ID, at, entry
        stop += 1
        digit = _byte(text, stop) - _ZERO
        if 0 <= digit <= 9 and _is_space(text[stop + 1]):  # mostly ":1": worth a shortcut
            value, stop = float(digit), stop + 1
        else:
            value, stop = _number(text, stop)
            if stop < 0 or not _ends_token(text[stop]):
                return BAD_VALUE, at, entry
        if feature <= previous:
            return UNSORTED, at, entry
        previous = feature
        ids[entry] = feature
        values[entry] = value
        names[entry] = at
        entry += 1
        at = stop


@njit(cache=True, nogil=True)
def _scramble(block: int) -> int:
    block = (block * 0xCC9E2D51) & _MASK
    block = ((block << 15) | (block >> 17)) & _MASK
    return (block * 0x1B873593) & _MASK


@njit(cache=True, nogil=True)
def _murmur3(data: NDArray[np.uint8], start: int, stop: int) -> int:
    """MurmurHash3_x86_32 of ``data[start:stop]`` with seed 0, as a signed number of 32 bits."""
    state = 0
    at = start
    while at + 4 <= stop:
        low = _byte(data, at) | _byte(data, at + 1) << 8
        state ^= _scramble(low | _byte(data, at + 2) << 16 | _byte(data, at + 3) << 24)
        state = ((state << 13) | (state >> 19)) & _MASK
        state = (state * 5 + 0xE6546B64) & _MASK
        at += 4
    if at < stop:
        block = 0
        for byte in range(stop - at):
            block |= _byte(data, at + byte) << (8 * byte)
        state ^= _scramble(block)
    state ^= stop - start
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & _MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >= 1 << 31 else state


@njit(cache=True, nogil=True)
def _bucket(data: NDArray[np.uint8], start: int, stop: int, hash_bits: int) -> int:
    """|hash| modulo 2**hash_bits, as in scikit-learn's FeatureHasher."""
    return abs(_murmur3(data, start, stop)) & ((1 << hash_bits) - 1)


@njit(cache=True, nogil=True)
def _ends_name(byte: int) -> bool:
    return _is_space(byte) or byte in (_COLON, _BAR, _NEWLINE)


@njit(cache=True, nogil=True)
def _same_name(text: NDArray[np.uint8], at: Any, other: Any) -> bool:
    """True if the same name begins at both positions."""
    at, other = np.int64(at), np.int64(other)
    while text[at] == text[other] and not _ends_name(text[at]):
        at += 1
        other += 1
    return bool(_ends_name(text[at]) and _ends_name(text[other]))


@njit(cache=True, nogil=True)
def _factor(text: NDArray[np.uint8], at: int) -> tuple[float, int]:
    """Optional ``:number`` after a name, by default 1, and its end; -1 if it is wrong."""
    if text[at] != _COLON:
        return 1.0, at
    value, stop = _number(text, at + 1)
    if stop >= 0 and text[stop] != _COLON and _ends_name(text[stop]):
        return value, stop
    return 0.0, -1


@njit(cache=True, nogil=True)
def _vw_header(
    text: NDArray[np.uint8], at: int, row: int, unlabelled: bool, out: Output
) -> tuple[int, int, int]:
    """``[label [importance [base]]] [tag]|``: outcome, its position, and that of the bar."""
    bar = at
    while text[bar] != _BAR:
        if text[bar] == _NEWLINE:
            return NO_BAR, at, bar
        bar += 1
    stop = bar
    while stop > at and _is_space(text[stop - 1]):
        stop -= 1
    tag = stop
    while tag > at and not _is_space(text[tag - 1]):
        tag -= 1
    out.labels[row], out.first_labels[row], out.weights[row], out.tags[row] = np.nan, -1, 1, -1
    # As in Vowpal Wabbit: text attached to the bar is a tag, and so is a last word in quotes.
    if tag < stop and (stop == bar or text[tag] == _QUOTE):
        out.tags[row] = stop = tag
    numbers = 0
    while True:
        at = _skip_space(text, at)
        if at >= stop:
            break
        value, end = _number(text, at)
        if end < 0 or not (_is_space(text[end]) or text[end] == _BAR) or numbers == 3:
            return BAD_LABEL, at, bar
        if numbers == 0:
            out.labels[row], out.first_labels[row] = value, at
        elif numbers == 1 and value < 0:
            return BAD_LABEL, at, bar
        elif numbers == 1:
            out.weights[row] = value
        elif value != 0:
            return BASE_MARGIN, at, bar
        numbers += 1
        at = end
    return DONE if numbers or unlabelled else MISSING_LABEL, bar, bar


@njit(cache=True, nogil=True)
def vw_features(
    text: NDArray[np.uint8],
    at: int,
    entry: int,
    hash_bits: int,
    scratch: NDArray[np.uint8],
    out: Output,
) -> tuple[int, int, int]:
    """Namespaces and features after the first bar: outcome, its position, entries so far.

    `scratch` has space for ``namespace^feature``, which the text holds with a byte between them.
    """
    ids, values = out.ids, out.values
    names, namespaces = out.names, out.namespaces
    while True:
        namespace = at
        while not _ends_name(text[at]):
            at += 1
        prefix = at - namespace
        scale, stop = _factor(text, at)
        if stop < 0 or (prefix == 0 and stop > at):
            return BAD_NAMESPACE, namespace, entry
        if prefix > 0:
            for byte in range(prefix):
                scratch[byte] = text[namespace + byte]
            scratch[prefix] = _CARET
            prefix += 1
        at = stop
        is_first = entry == 0 or hash_bits > 0
        if not is_first:
            is_first = _same_name(text, namespace, namespaces[0])
        while True:
            at = _skip_space(text, at)
            if text[at] == _NEWLINE:
                return DONE, at + 1, entry
            if text[at] == _BAR:
                at += 1
                break
            name = at
            while not _ends_name(text[at]):
                at += 1
            value, stop = _factor(text, at)
            if at == name:
                return BAD_FEATURE, name, entry
            if stop < 0:
                return BAD_VALUE, name, entry
            if hash_bits == 0:
                feature, end = _integer(text, name)
                if not is_first or end != at:
                    return NEEDS_HASHING, name, entry
                if feature < 0:
                    return BAD_ID, name, entry
            elif prefix > 0:
                for byte in range(at - name):
                    scratch[prefix + byte] = text[name + byte]
                feature = _bucket(scratch, 0, prefix + at - name, hash_bits)
            else:
                feature = _bucket(text, name, at, hash_bits)
            value *= scale
            # Too large for float32: the caller, who knows the text, tells the user.
            values[entry] = value if abs(value) <= _FLOAT32_MAX else np.nan
            ids[entry] = feature
            names[entry] = name
            namespaces[entry] = namespace
            entry += 1
            at = stop


@njit(cache=True, nogil=True)
def rows(
    text: NDArray[np.uint8],
    label_optional: bool,
    skip: bool,
    hash_bits: int,
    scratch: NDArray[np.uint8] | None,
    out: Output,
) -> tuple[int, int, bool, int, int, int]:
    """Parse `text` into `out`, which has enough space; entries keep the order of the text.

    The format is svmlight if `scratch` is None: Numba then compiles no code for the other. For
    Vowpal Wabbit, `scratch` is longer than the text, and names are hashed unless `hash_bits` is 0.

    Returns rows, lines skipped, True if any row has several labels, and the outcome with the
    positions of the first wrong line and token (if it is an error). `NEEDS_HASHING` is never
    skipped: it is the options that are wrong, not the line.
    """
    at = row = entry = skipped = 0
    first, first_line, first_at = DONE, 0, 0
    any_several = False
    out.indptr[0] = 0
    while at < len(text):
        line = at
        at = _skip_space(text, at)
        if text[at] == _NEWLINE or (text[at] == _HASH and scratch is None):
            at = _next_line(text, at)
            continue
        out.lines[row] = line
        several, stop = False, entry
        if scratch is None:
            outcome, at, several = _svmlight_label(text, at, row, label_optional, out)
            if outcome == DONE:
                outcome, at, stop = svmlight_features(text, at, row, entry, out)
        else:
            outcome, at, bar = _vw_header(text, at, row, label_optional, out)
            if outcome == DONE:
                outcome, at, stop = vw_features(text, bar + 1, entry, hash_bits, scratch, out)
        if outcome == DONE:
            any_several |= several
            entry = stop
            row += 1
            out.indptr[row] = entry
        elif skip and outcome != NEEDS_HASHING:
            if not skipped:
                first, first_line, first_at = outcome, line, at
            skipped += 1
            at = _next_line(text, at)
        else:
            return row, skipped, any_several, outcome, line, at
    return row, skipped, any_several, first, first_line, first_at


@njit(cache=True, nogil=True)
def hash_texts(
    prefix: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Fill `out` with the signed 32-bit MurmurHash3 of texts with a common prefix.

    Text k is ``data[offsets[k]:offsets[k + 1]]``. The absolute value modulo ``2**bits`` is
    the feature of scikit-learn's FeatureHasher.
    """
    longest = 0
    for text in range(len(out)):
        longest = max(longest, offsets[text + 1] - offsets[text])
    n_prefix = len(prefix)
    scratch = np.empty(n_prefix + longest, np.uint8)
    scratch[:n_prefix] = prefix
    for text in range(len(out)):
        start, size = offsets[text], offsets[text + 1] - offsets[text]
        for byte in range(size):
            scratch[n_prefix + byte] = data[start + byte]
        out[text] = _murmur3(scratch, 0, n_prefix + size)


@njit(cache=True, nogil=True)
def pack_rows(
    ids: NDArray[np.int64], values: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Pack (n_rows, n_cells) entries, absent where the id is -1, as CSR arrays.

    The ids of a row are sorted; values of equal ids add up.
    """
    n_rows, n_cells = ids.shape
    indptr = np.zeros(n_rows + 1, np.int64)
    out_ids = np.empty(n_rows * n_cells, np.int64)
    out_values = np.empty(n_rows * n_cells, np.float32)
    end = 0
    for row in range(n_rows):
        start = end
        for cell in range(n_cells):
            feature = ids[row, cell]
            if feature < 0:
                continue
            at = end
            while at > start and out_ids[at - 1] > feature:
                at -= 1
            if at > start and out_ids[at - 1] == feature:
                out_values[at - 1] += values[row, cell]
                continue
            for moved in range(end, at, -1):
                out_ids[moved] = out_ids[moved - 1]
                out_values[moved] = out_values[moved - 1]
            out_ids[at] = feature
            out_values[at] = values[row, cell]
            end += 1
        indptr[row + 1] = end
    return indptr, out_ids[:end].copy(), out_values[:end].copy()


@njit(cache=True, nogil=True)
def group_by_namespace(
    text: NDArray[np.uint8], out: Output, wanted: NDArray[np.uint8], ends: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The number of the namespace of each entry among those `wanted`, or -1.

    Name k is ``wanted[ends[k]:ends[k + 1]]``.
    """
    groups = np.empty(len(out.ids), np.int32)
    for entry in range(len(groups)):
        at = out.namespaces[entry]
        if entry and at == out.namespaces[entry - 1]:
            groups[entry] = groups[entry - 1]
            continue
        size = 0
        while not _ends_name(text[at + size]):
            size += 1
        groups[entry] = -1
        for name in range(len(ends) - 1):
            start = ends[name]
            same = ends[name + 1] - start == size
            for byte in range(size if same else 0):
                same = same and wanted[start + byte] == text[at + byte]
            if same:
                groups[entry] = name
    return groups


@njit(cache=True, nogil=True)
def combinations(
    indptr: NDArray[np.int64], groups: NDArray[np.int32], cross: NDArray[np.int64], limit: int
) -> NDArray[np.int32]:
    """Combinations of one entry of each group of `cross` in a row: (n, len(cross)) entries.

    There are at most `limit` of them. Of a group that follows itself in `cross`, each set of
    entries counts once, and none with itself.
    """
    done, width = 0, len(cross)
    parts = np.empty((limit, width), np.int32)
    members = np.empty((width, int(np.diff(indptr).max()) if len(indptr) > 1 else 0), np.int32)
    counts, chosen = np.empty(width, np.int64), np.empty(width, np.int64)
    for row in range(len(indptr) - 1):
        n_combinations = 1
        for part in range(width):
            counts[part] = 0
            for entry in range(indptr[row], indptr[row + 1]):
                if groups[entry] == cross[part]:
                    members[part, counts[part]] = entry
                    counts[part] += 1
            n_combinations *= counts[part]
        for combination in range(n_combinations):
            rest, right = combination, True
            for part in range(width - 1, -1, -1):
                chosen[part] = rest % counts[part]
                rest //= counts[part]
            for part in range(1, width):
                is_same = cross[part] == cross[part - 1]
                right = right and not (is_same and chosen[part] <= chosen[part - 1])
            if right:
                for part in range(width):
                    parts[done, part] = members[part, chosen[part]]
                done += 1
    return parts[:done]
