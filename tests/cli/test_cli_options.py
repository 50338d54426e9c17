"""What the options of several commands come to."""

from __future__ import annotations

import logging

import pytest

from dadagrad.cli.options import make_where

LOGGERS = ("distributed", "distributed.client", "tornado.application")


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (None, logging.CRITICAL),
        ("critical", logging.CRITICAL),  # as a command leaves it to those that it starts
        ("info", logging.INFO),
        ("loud", logging.CRITICAL),
    ],
)
def test_dask_says_what_its_variable_asks_for_and_nothing_without(monkeypatch, given, level):
    monkeypatch.delenv("DASK_LOGGING__DISTRIBUTED", raising=False)
    if given is not None:
        monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", given)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        make_where(None, 2, None)
        assert {logger.level for logger in loggers} == {level}
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)
