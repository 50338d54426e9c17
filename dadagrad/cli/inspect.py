"""``dadagrad inspect``: the content of a model, a dataset, or a folder of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, number, print_facts, print_json
from dadagrad.cli.failures import check_memory
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad import Dataset, Model
    from dadagrad.data.dataset import LabelColumn

MAX_LABELS = 20
"""Labels of a column that are printed."""
_SECTIONS = ("feature_space", "training", "config", "provenance", "data", "notes")
"""Entries of a description that are printed under a title."""


@click.command()
@click.argument("url", metavar="MODEL|DATA|CHECKPOINTS")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    metavar="N",
    help="Number of the largest weights of a model to show.",
)
@click.option("--verify", is_flag=True, help="Read and check every byte of checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def inspect(url: str, top: int, verify: bool, as_json: bool) -> None:
    """Show a model, a dataset or a folder of checkpoints."""
    from dadagrad.storage.documents import what_is_at
    from dadagrad.storage.store import Storage

    check_memory()
    with Display().showing_logs():
        content = what_is_at(Storage(url))
        if verify and content != "the checkpoints of a run":
            raise click.UsageError("--verify is for checkpoints")
        if content == "a model":
            description = _describe_model(dadagrad.Model.load(url), url, top)
        elif content == "the checkpoints of a run":
            description = _describe_checkpoints(url, verify=verify)
        else:
            description = _describe_data(_open_data(url, content), url)
        (print_json if as_json else _show)(description)


def _open_data(url: str, content: str | None) -> Dataset:
    try:
        return dadagrad.open_dataset(url)
    except InputError as error:
        if content is not None:
            raise
        raise InputError(
            f"{url} is not a model, a dataset or a folder of checkpoints; check the URL ({error})"
        ) from error


def _describe_model(model: Model, url: str, top: int) -> dict[str, Any]:
    nonzeros = int((model.weights != 0).sum())
    return {
        "kind": "model",
        "url": url,
        "task": model.task,
        "loss": model.loss,
        "features": model.n_features,
        "used_features": len(model.ids),
        "nonzeros": nonzeros,
        "sparsity": 1.0 - nonzeros / (model.n_features * model.n_outputs),
        "digest": model.digest,
        "labels": [_describe_labels(column) for column in model.label_columns],
        "feature_space": model.feature_space,
        "training": {name: value for name, value in model.report.items() if name != "config"},
        "config": model.report.get("config", {}),
        "outputs": _largest_weights(model, top),
    }


def _largest_weights(model: Model, top: int) -> list[dict[str, Any]]:
    """Return the intercept and the largest weights of each output."""
    import numpy as np

    outputs = []
    for output, name in enumerate(model.output_names):
        weights = model.weights[:, output]
        largest = np.argsort(-np.abs(weights), kind="stable")[:top]
        largest = largest[weights[largest] != 0.0]
        shown = [
            {"feature": feature, "name": model.names.get(feature), "weight": weight}
            for feature, weight in zip(
                model.ids[largest].tolist(), weights[largest].tolist(), strict=True
            )
        ]
        intercept = float(model.intercept[output])
        outputs.append({"output": name, "intercept": intercept, "weights": shown})
    return outputs


def _describe_data(data: Dataset, url: str) -> dict[str, Any]:
    from dadagrad.storage.store import Storage

    n_bytes = None
    with suppress(DadagradError):  # a web server cannot list the objects
        n_bytes = Storage(url).n_bytes()
    return {
        "kind": "dataset",
        "url": url,
        "rows": data.n_rows,
        "features": data.schema.n_features,
        "nnz": data.nnz,
        "nnz_per_row": data.nnz / data.n_rows if data.n_rows else None,
        "partitions": len(data.partitions),
        "bytes": n_bytes,
        "weighted": data.schema.weighted,
        "digest": data.digest,
        "labels": [_describe_labels(column) for column in data.schema.label_columns],
        "feature_space": data.schema.feature_space,
        "provenance": getattr(data, "provenance", None),
    }


def _describe_labels(column: LabelColumn) -> dict[str, Any]:
    """Return the name of a label column, and the number of rows of each label."""
    if column.values is None:
        return {"name": column.name, "values": None}
    counts = column.counts or (None,) * len(column.values)
    return {"name": column.name, "values": dict(zip(column.texts, counts, strict=True))}


def _describe_checkpoints(url: str, *, verify: bool) -> dict[str, Any]:
    from dadagrad.training.checkpoints.writer import CheckpointReader

    checkpoints = CheckpointReader(url).list(verify=verify)
    meta = next((info.meta for info in checkpoints if info.valid and info.meta), {})
    names = ("key", "step", "valid", "problem", "created", "bytes")
    return {
        "kind": "checkpoints",
        "url": url,
        "checkpoints": [
            {name: getattr(info, name) for name in names} | {"rows": _rows(info.meta)}
            for info in checkpoints
        ],
        "data": meta.get("data"),
        "config": meta.get("config"),
        "notes": meta.get("notes"),
    }


def _rows(meta: dict[str, Any] | None) -> Any:
    """Return the number of rows learned from before a checkpoint; 0 if it is not recorded."""
    passes = (meta or {}).get("passes")
    listed = passes if isinstance(passes, list) else []
    return sum(metrics.get("rows", 0) for metrics in listed if isinstance(metrics, dict))


def _show(description: dict[str, Any]) -> None:
    for title, facts in _paragraphs(description):
        if facts.get("bytes") is not None:
            facts["bytes"] = decimal(facts["bytes"])
        print_facts(facts, title=title)


def _paragraphs(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield titles, and the names and values below them; single values first."""
    separate = ("labels", "checkpoints", "outputs", *_SECTIONS)
    yield "", {name: value for name, value in description.items() if name not in separate}
    for column in description.get("labels", []):
        values = column["values"] or {"values": "more than 1,000 distinct numbers"}
        shown = dict(list(values.items())[:MAX_LABELS])
        more = {"...": f"{len(values) - MAX_LABELS} more"} if len(values) > MAX_LABELS else {}
        yield f"label column {column['name']}", shown | more
    for info in description.get("checkpoints", []):
        names = ["key", "created", "rows"]
        names += [name for name in ("bytes", "problem") if info[name] is not None]
        unusable = "" if info["valid"] else "  (not usable)"
        yield f"step {number(info['step'])}{unusable}", {name: info[name] for name in names}
    for name in _SECTIONS:
        if isinstance(description.get(name), dict) and description[name]:
            yield name.replace("_", " "), description[name]
    outputs = description.get("outputs", [])
    for output in outputs:
        name = f" of {output['output']}" if len(outputs) > 1 else ""
        entries = output["weights"]
        weights = {each["name"] or str(each["feature"]): each["weight"] for each in entries}
        yield f"largest weights{name} (intercept {number(output['intercept'])})", weights
