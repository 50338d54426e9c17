"""The content of a report as plain JSON, from a model, a folder of checkpoints or a live run.

`docs/guides/reports.md` describes the entries. Those that are not known are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dadagrad._version import __version__
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import IN_MEMORY
from dadagrad.data.ingest.ingest import as_dataset, check_known
from dadagrad.errors import DadagradError, InputError, OnError
from dadagrad.model.evaluate import evaluate
from dadagrad.model.facts import changed_settings, commands, largest_weights, sides
from dadagrad.model.model import Model, as_model
from dadagrad.storage.documents import Content, content_at, timestamp
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Snapshot
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.snapshot import restore
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.execution import Run
from dadagrad.training.result import TrainResult

VERSION = 1
TOP = 15
"""Largest weights of each sign that are shown for an output."""

Document = dict[str, Any]


def describe(
    run: Model | TrainResult | str | os.PathLike[str],
    holdout: Any = None,
    *,
    top: int = TOP,
    **options: Any,
) -> Document:
    """Describe a model, a result, or a run by the URL of its model or of its checkpoints.

    With `holdout`, the model is measured on these data; they and `options` are as for
    `dadagrad.evaluate`. Raises `InputError` if there is neither a model nor a run at the URL, and
    as `dadagrad.evaluate`.
    """
    check_known(options)
    if options and holdout is None:
        raise InputError(f"{min(options)} is for reading holdout; give both")
    if isinstance(run, str | os.PathLike):
        model, document = _describe_url(os.fspath(run), top)
    else:
        model = as_model(run.model if isinstance(run, TrainResult) else run)
        document = describe_model(model, top)
    if holdout is not None:
        if model is None:
            raise InputError(f"the run at {run} has learned from no rows: nothing can be measured")
        data = as_dataset(holdout, like=model, **options)
        measured = evaluate(model, data, curves=True)
        document["holdout"] = {"data": data.url, **measured}
    return document


def base(status: str) -> Document:
    """Return the entries of every report."""
    return {
        "format": "dadagrad-report",
        "version": VERSION,
        "library": __version__,
        "created": timestamp(),
        "status": status,
    }


def describe_settings(
    status: str, report: Mapping[str, Any], rows: int | None, url: str | None = None
) -> Document:
    """Describe the data and the settings of a run by its report; its model is at a URL."""
    config = report.get("config", {})
    return base(status) | {
        "url": url,
        "data": {"url": report.get("data"), "rows": rows},
        "config": config,
        "settings": changed_settings(config),
        "again": commands(report, url),
    }


def describe_model(model: Model, top: int = TOP, url: str | None = None) -> Document:
    """Describe a model and, by its report, the run that made it."""
    report, passes = model.report, model.report.get("by_pass")
    status = "stopped" if report.get("complete") is False else "complete"
    document = describe_settings(status, report, passes[0]["rows"] if passes else None, url)
    document["model"] = {
        "task": model.task,
        "loss": model.loss,
        "labels": [column.to_report() for column in model.label_columns],
        "features": model.n_features,
        "outputs": model.n_outputs,
        "nonzeros": int(np.count_nonzero(model.weights)),
        "digest": model.digest,
        "feature_space": model.feature_space.plain or None,
    }
    parts = [name for name in ("curve", "sweep", "holdout") if report.get(name)]
    document |= {name: report[name] for name in parts}
    elsewhere = ("config", "data", "repeatable", *parts)
    document["training"] = {name: report[name] for name in report if name not in elsewhere}
    document["weights"] = [
        {
            "output": name,
            "classes": sides(model, number),
            "intercept": float(model.intercept[number]),
            "for": largest_weights(model, number, 1, top),
            "against": largest_weights(model, number, -1, top),
        }
        for number, name in enumerate(model.output_names)
    ]
    return document


def _describe_url(url: str, top: int) -> tuple[Model | None, Document]:
    """Load and describe a model, or a run by its newest checkpoint.

    The model is None if it cannot be made of the checkpoint.
    """
    content = content_at(Storage(url))
    if content is Content.MODEL:
        loaded = Model.load(url)
        return loaded, describe_model(loaded, top, url)
    if content is not Content.CHECKPOINTS:
        raise InputError(
            f"{url} is not a model or a folder of checkpoints"
            f"{f': it is {content}' if content else ''}; check the URL"
        )
    reader = CheckpointReader(url)
    snapshot = reader.load()
    meta = snapshot.meta
    checkpoints = [
        {"steps": info.step, "created": info.created, "bytes": info.bytes, "valid": info.valid}
        for info in reader.list()
    ]
    model = _model_of(snapshot, url)
    if model is not None:
        document = describe_model(model, top)
    else:
        report = {"config": meta["config"], "data": meta["data"]["url"]}
        document = describe_settings("stopped", report, None)
        document |= {"curve": meta["curve"]} if meta.get("curve") else {}
    return model, document | {"url": url, "checkpoints": checkpoints}


def _model_of(snapshot: Snapshot, url: str) -> Model | None:
    """Make the model of a checkpoint.

    None before the first round, without the data, or if settings are objects of own classes.
    """
    meta = snapshot.meta
    if not snapshot.arrays or meta["data"]["url"] == IN_MEMORY:
        return None
    try:
        data = as_dataset(meta["data"]["url"])
        config = TrainConfig.from_json(meta["config"])
    except DadagradError:
        return None
    skipped = meta.get("skipped")
    on_error: OnError = "raise" if skipped is None else "skip"
    resources = Resources(threads=1)
    run = Run(
        data, config, resources,
        on_error=on_error, skipped=skipped, messages=lambda message: None,
    )  # fmt: skip
    run.problem, start = restore(snapshot, run.problem, url)
    done = start.place.cursor.pass_number >= config.passes
    watcher = Watcher(seconds_before=start.seconds)
    return run.result(run.coordinator(start), done, watcher, url, start).model
