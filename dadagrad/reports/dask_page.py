"""The live page of a run at ``/dadagrad`` of Dask's dashboard, and its figures at ``/metrics``.

A plugin of the scheduler adds the page to the scheduler's web server, where it survives reloads and
the loss of workers; the client of the run sends it new content. If the scheduler's environment has
`prometheus_client`, Dask serves the figures with its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin
from tornado import web

from dadagrad.clusters import seconds
from dadagrad.reports.document import Document, base
from dadagrad.reports.page import HEADERS, answer
from dadagrad.storage.documents import strict_json

logger = logging.getLogger(__name__)

_HANDLER = "dadagrad_report"
_FIGURES = (
    ("rows", "Rows learned from"),
    ("rows_per_second", "Rows learned from in a second"),
    ("progressive_loss", "Mean loss of new rows, each before it was learned from"),
    ("progressive_error", "Share of new rows that were predicted wrong"),
    ("holdout_loss", "Loss on the rows held out"),
    ("nonzeros", "Weights other than 0"),
    ("seconds", "Time of the run"),
)
"""Entries of the report that are figures for Prometheus."""


def install(client: Client) -> bool:
    """Add the page to the scheduler of `client`; False, with a warning, if it cannot have it."""
    try:
        client.register_plugin(RunPage())
    except Exception as error:  # whatever the scheduler's environment lacks
        logger.warning(
            "Dask's dashboard cannot show the run at /dadagrad: %s; install dadagrad where the "
            "scheduler runs",
            error,
        )
        return False
    logger.info("the run is at %s", client.dashboard_link.replace("/status", "/dadagrad"))
    return True


def send(client: Client, document: Document) -> None:
    """Send new content of the page; a scheduler that is lost is a matter of the run."""
    with suppress(OSError, TimeoutError, RuntimeError):
        client.sync(
            getattr(client.scheduler, _HANDLER),
            document=strict_json(document),
            callback_timeout=seconds("connect-timeout"),
        )


class RunPage(SchedulerPlugin):
    """Plugin of the scheduler that serves the page of the newest run, and collects its figures."""

    name = "dadagrad-page"
    idempotent = True

    def __init__(self) -> None:
        self.document: Document = base("waiting")
        self._scheduler: Scheduler | None = None

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers[_HANDLER] = self.receive
        # The web server may have a prefix, behind a proxy.
        routes = [(r"(?:/[\w/-]+)?/dadagrad/?(?P<path>[a-z.]*)", _PageHandler, {"page": self})]
        scheduler.http_application.add_handlers(r".*$", routes)
        with suppress(ImportError):  # there may be no dashboard, whose menu Dask makes of a list
            from distributed.dashboard.scheduler import template_variables

            pages = template_variables(scheduler)["pages"]
            pages.extend({"dadagrad"} - set(pages))
        with suppress(ImportError):
            from prometheus_client import REGISTRY

            REGISTRY.register(self)

    async def close(self) -> None:
        with suppress(ImportError):
            from prometheus_client import REGISTRY

            REGISTRY.unregister(self)

    def receive(self, document: str) -> None:
        """Take new content."""
        self.document = json.loads(document)

    @property
    def content(self) -> Document:
        """The document with the workers of the cluster now."""
        assert self._scheduler is not None, "a plugin is started before it is asked"
        workers = [
            {
                "address": each.address,
                "threads": each.nthreads,
                "memory": each.metrics.get("memory"),
                "limit": each.memory_limit,
            }
            for each in self._scheduler.workers.values()
        ]
        return self.document | {"workers": workers}

    def collect(self) -> Iterator[Any]:
        """Yield the figures, as a registry of Prometheus asks for them."""
        from prometheus_client.core import GaugeMetricFamily

        training = self.document.get("training") or {}
        for name, text in _FIGURES:
            if isinstance(training.get(name), int | float):
                yield GaugeMetricFamily(f"dadagrad_{name}", text, value=training[name])
        parts = GaugeMetricFamily(
            "dadagrad_part_seconds", "Time of threads and workers", labels=["part"]
        )
        for name, value in (training.get("seconds_by_part") or {}).items():
            parts.add_metric([name], value)
        yield parts


class _PageHandler(web.RequestHandler):
    """Answers at ``/dadagrad``, ``/dadagrad/content`` and ``/dadagrad/report.json``."""

    def initialize(self, page: RunPage) -> None:
        self._page = page

    def get(self, path: str = "") -> None:
        response = answer(self._page.content, path)
        if response is None:
            raise web.HTTPError(404)
        kind, body = response
        for name, value in (HEADERS | {"Content-Type": kind}).items():
            self.set_header(name, value)
        self.write(body)
