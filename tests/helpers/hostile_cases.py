"""Mutations of documents and files, and the errors that a reader may raise about them."""

import copy
import hashlib
import json
import os
import textwrap
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from dadagrad import DadagradError
from helpers.processes import run_python

CORPUS = Path(__file__).parents[1] / "hostile" / "corpus"
MEMORY = 1 << 30
"""Address space that a reader gets besides what its libraries have taken."""

HOSTILE = [
    None, True, False, 0, 1, -1, -3, 2**31 - 1, 2**31, 2**53 + 1, 2**60, 2**63 - 1, 2**63, 2**64,
    10**40, -(2**63) - 1, 0.5, 1.0, -0.0, 1e300, float("nan"), float("inf"), float("-inf"),
    "", "0", "../../etc/passwd", "/etc/passwd", "a/b", "x\0y", "\ud800", "|O", "pickle", "object",
    "float16", "é" * 300, [], [0], [2**60], [1, 2, 3], [[]], [None], {}, {"name": "pickle"},
    {"$float": "inf"}, {"$float": "nan"}, {"$float": 3},
]  # fmt: skip
"""Replacements of any value of a JSON document."""


def paths(document, prefix=()):
    """Paths of all values in a JSON document."""
    children = ()
    if isinstance(document, dict):
        children = document.items()
    elif isinstance(document, list):
        children = enumerate(document)
    for key, value in children:
        yield (*prefix, key)
        yield from paths(value, (*prefix, key))


def holder(document, path):
    """The object or list that holds the value at `path`, and its key there."""
    *parents, key = path
    for parent in parents:
        document = document[parent]
    return document, key


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def mutated(draw, document):
    """`document`, plain JSON, with one to three values replaced, left out, doubled or swapped."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        found = list(paths(document))
        if not found:
            break
        target, key = holder(document, draw(st.sampled_from(found)))
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double", "swap"]))
        if how == "replace":
            number = st.integers(-(2**65), 2**65) | st.floats()
            target[key] = draw(
                st.sampled_from(HOSTILE).map(copy.deepcopy)
                | number
                | st.text(max_size=5)
                | st.just(100).map(nested)
            )
        elif how == "remove":
            del target[key]
        elif how == "double" and isinstance(target, list):
            target.append(copy.deepcopy(target[key]))
        elif how == "double":
            target[f"{key}x"] = copy.deepcopy(target[key])
        else:
            other_path = draw(st.sampled_from(found))
            try:
                place, other = holder(document, other_path)
                value, target[key] = copy.deepcopy(target[key]), copy.deepcopy(place[other])
                place[other] = value
            except (KeyError, IndexError, TypeError):
                continue  # one of the two lies in the other
    return document


@st.composite
def mutated_bytes(draw, data, most=4):
    """`data` with some of its bytes changed, cut out, repeated or put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(len(out) - 1, 0)))
        size = draw(st.sampled_from([1, 1, 2, 4, 8, 16]))
        how = draw(st.sampled_from(["bits", "bytes", "cut", "repeat", "insert", "end"]))
        if how == "bits" and out:
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "bytes":
            new = st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x80", b"\1"]).map(
                lambda byte, size=size: byte * size
            )
            out[at : at + size] = draw(new | st.binary(min_size=size, max_size=size))
        elif how == "cut":
            del out[at : at + size]
        elif how == "repeat":
            out[at:at] = out[at : at + size] * draw(st.sampled_from([1, 2, 40]))
        elif how == "insert":
            out[at:at] = draw(st.binary(max_size=size))
        else:
            del out[at:]
    return bytes(out)


@contextmanager
def only_our_errors(forgive=True):
    """Allow success, or an error of the package in one line; anything else is a bug.

    The error is raised again unless `forgive`.
    """
    try:
        yield
    except DadagradError as error:
        text = str(error)
        assert text
        assert "\n" not in text, text
        assert len(text) < 3000, text[:3000]
        if not forgive:
            raise


def corpus(name):
    """Cases that broke a reader once, from a JSON file of the corpus."""
    return json.loads((CORPUS / name).read_text())


def changed(document, path, value):
    """A copy of `document` with another value at `path`, whose steps are separated by spaces."""
    document = copy.deepcopy(document)
    target, key = holder(document, [int(step) if step.isdigit() else step for step in path.split()])
    target[key] = value
    return document


def sealed(body):
    """A sealed document of any body, plain JSON or its bytes: the seal fits."""
    text = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    digest = hashlib.sha256(text).hexdigest().encode()
    return b'{"sha256":"' + digest + b'","body":' + text + b"}\n"


def to_bytes(document):
    """Plain JSON, also with NaN and with lone surrogates."""
    return json.dumps(document).encode()


def in_little_memory(program, *arguments):
    """Run `program` in a process that can allocate `MEMORY` bytes after it called ``limit()``.

    The program calls it once everything is imported and warm; `arguments` are ``sys.argv[1:]``.
    Returns what the program prints.
    """
    prelude = f"""
        import resource, sys
        def limit():
            # Not the address space: each thread reserves some that it never uses.
            pages = int(open("/proc/self/statm").read().split()[5])
            most = pages * resource.getpagesize() + {MEMORY}
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(program)
    # Arrow's own allocator takes 1 GiB of addresses ahead of its first use, and goes without
    # where it gets none: whether it did depended on the threads that had ended meanwhile.
    variables = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    return run_python("-c", code, *arguments, env=variables).stdout
