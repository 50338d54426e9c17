"""Settings of all tests, and the marker of those that start processes."""

import os
import signal
from types import CodeType, FunctionType, ModuleType

import pytest
from hypothesis import settings

from dadagrad.training.schedule import streams

settings.register_profile("dadagrad", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("many", deadline=None, max_examples=8000)
settings.load_profile("dadagrad")

PROCESS_MODULES = {
    "subprocess",
    "multiprocessing",
    "distributed",
    "helpers.processes",
    "helpers.servers",
    "helpers.cluster_processes",
}
PROCESS_WORDS = {"LocalCluster", "subprocess", "multiprocessing", "workers", "--workers", "n_jobs"}


@pytest.fixture(scope="session", autouse=True)
def _without_flushes():
    """Leave files in memory: no test cuts the power, and flushing takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _streams_of_few_rows():
    """Let streams share the rows of small data too: one would learn from the first 8,192 alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MIN_ROWS_ALONE", 5)
        yield


def pytest_addoption(parser):
    """Add the option that writes the golden files of tests/cli/test_screens.py."""
    parser.addoption("--write-screens", action="store_true", help="write tests/cli/screens")


def pytest_configure(config):
    """Have pytest-xdist keep the order of `pytest_collection_modifyitems`, and heed signals."""
    config.option.loadscopereorder = False
    # nohup and jobs in the background ignore these, and processes inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Mark each test that is slow or starts processes, itself or by its fixtures and helpers.

    Their files come first: those at the end are short, so that all cores have work to the end.
    """
    known = {}
    for item in items:
        if isinstance(item, pytest.Function):
            fixtures = item._fixtureinfo.name2fixturedefs.values()
            used = [item.function, *(definition.func for defs in fixtures for definition in defs)]
            starts_some = any(starts_processes(function, known) for function in used)
            if starts_some or item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.process)
    first = {item.path for item in items if item.get_closest_marker("process")}
    items.sort(key=lambda item: item.path not in first)


def starts_processes(function, known):
    """True if a function names anything that starts processes, or calls one that does."""
    function = getattr(function, "__func__", getattr(function, "__wrapped__", function))
    if not isinstance(function, FunctionType) or function.__module__.startswith("dadagrad"):
        return False
    if function not in known:
        known[function] = False  # ends the recursion of functions that call each other
        words = set(names_in(function.__code__))
        used = [function.__globals__[word] for word in words if word in function.__globals__]
        known[function] = bool(words & PROCESS_WORDS) or any(
            module_of(value) in PROCESS_MODULES or starts_processes(value, known) for value in used
        )
    return known[function]


def names_in(constant):
    """Names, strings and keywords in a function, and in the functions and tuples inside it."""
    if isinstance(constant, CodeType):
        yield from constant.co_names
        constant = constant.co_consts
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple):
        for each in constant:
            yield from names_in(each)


def module_of(value):
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return str(name)
