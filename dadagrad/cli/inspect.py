"""``dadagrad inspect``: the content of a model, a dataset, or a folder of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, number, print_facts, print_json
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad import Dataset, Model
    from dadagrad.data.dataset import LabelColumn

MAX_LABELS = 20
"""Labels of a column that are printed."""


@click.command()
@click.argument("url", metavar="MODEL|DATA|CHECKPOINTS")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of the largest weights of a model to show.",
)
@click.option("--verify", is_flag=True, help="Read and check every byte of checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def inspect(url: str, top: int, verify: bool, as_json: bool) -> None:
    """Show a model, a dataset or a folder of checkpoints."""
    from dadagrad.storage.documents import what_is_at
    from dadagrad.storage.store import Storage

    with Display().showing_logs():
        content = what_is_at(Storage(url))
        if verify and content != "the checkpoints of a run":
            raise click.UsageError("--verify is for checkpoints")
        if content == "a model":
            description = _describe_model(dadagrad.Model.load(url), url, top)
            show: Callable[[dict[str, Any]], None] = _show_model
        elif content == "the checkpoints of a run":
            description = _describe_checkpoints(url, verify=verify)
            show = _show_checkpoints
        else:
            try:
                description = _describe_data(dadagrad.open_dataset(url), url)
            except InputError as error:
                if content is not None:
                    raise
                raise InputError(
                    f"{url} is not a model, a dataset or a folder of checkpoints; check the URL "
                    f"({error})"
                ) from error
            show = _show_data
        (print_json if as_json else show)(description)


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

    from dadagrad.model.labels import label_text

    if model.task == "multiclass":
        (column,) = model.label_columns
        names = [label_text(column, value) for value in column.values or ()]
    else:
        names = [column.name for column in model.label_columns]
    outputs = []
    for output, name in enumerate(names):
        weights = model.weights[:, output]
        largest = np.argsort(-np.abs(weights), kind="stable")[:top]
        ids = model.ids[largest[weights[largest] != 0.0]].tolist()
        values = weights[largest][weights[largest] != 0.0].tolist()
        outputs.append(
            {
                "output": name,
                "intercept": float(model.intercept[output]),
                "weights": [
                    {"feature": feature, "name": model.names.get(feature), "weight": weight}
                    for feature, weight in zip(ids, values, strict=True)
                ],
            }
        )
    return outputs


def _show_model(description: dict[str, Any]) -> None:
    print_facts({name: description[name] for name in list(description)[:9]})
    _show_labels(description["labels"])
    _show_sections(description, ("feature_space", "training", "config"))
    for output in description["outputs"]:
        name = f" of {output['output']}" if len(description["outputs"]) > 1 else ""
        weights = {
            weight["name"] or str(weight["feature"]): weight["weight"]
            for weight in output["weights"]
        }
        intercept = number(output["intercept"])
        print_facts(weights, title=f"largest weights{name} (intercept {intercept})")


def _describe_data(data: Dataset, url: str) -> dict[str, Any]:
    return {
        "kind": "dataset",
        "url": url,
        "rows": data.n_rows,
        "features": data.schema.n_features,
        "nnz": data.nnz,
        "nnz_per_row": data.nnz / data.n_rows if data.n_rows else None,
        "partitions": len(data.partitions),
        "bytes": _stored_bytes(url),
        "weighted": data.schema.weighted,
        "digest": data.digest,
        "labels": [_describe_labels(column) for column in data.schema.label_columns],
        "feature_space": data.schema.feature_space,
        "provenance": getattr(data, "provenance", None),
    }


def _stored_bytes(url: str) -> int | None:
    """Return the bytes of all objects at `url`; None if the store cannot list them."""
    from dadagrad.storage.store import Storage

    try:
        return Storage(url).n_bytes()
    except DadagradError:
        return None


def _show_data(description: dict[str, Any]) -> None:
    facts = {name: description[name] for name in list(description)[:10]}
    if facts["bytes"] is not None:
        facts["bytes"] = decimal(facts["bytes"])
    print_facts(facts)
    _show_labels(description["labels"])
    _show_sections(description, ("feature_space", "provenance"))


def _describe_labels(column: LabelColumn) -> dict[str, Any]:
    """Return the name of a label column, and the number of rows of each label."""
    from dadagrad.model.labels import label_text

    if column.values is None:
        return {"name": column.name, "values": None}
    counts = column.counts or (None,) * len(column.values)
    labels = [label_text(column, value) for value in column.values]
    return {"name": column.name, "values": dict(zip(labels, counts, strict=True))}


def _show_labels(columns: list[dict[str, Any]]) -> None:
    for column in columns:
        title, values = f"label column {column['name']}", column["values"]
        if values is None:
            click.echo(f"\n{title}\n  more than 1,000 distinct numbers")
            continue
        print_facts(dict(list(values.items())[:MAX_LABELS]), title=title)
        if len(values) > MAX_LABELS:
            click.echo(f"  and {len(values) - MAX_LABELS} more")


def _describe_checkpoints(url: str, *, verify: bool) -> dict[str, Any]:
    from dadagrad.training.checkpoints.writer import CheckpointReader

    checkpoints = CheckpointReader(url).list(verify=verify)
    meta = next((info.meta for info in checkpoints if info.valid and info.meta), {})
    return {
        "kind": "checkpoints",
        "url": url,
        "checkpoints": [
            {
                "key": info.key,
                "step": info.step,
                "valid": info.valid,
                "problem": info.problem,
                "created": info.created,
                "bytes": info.bytes,
                "rows": _rows(info.meta),
            }
            for info in checkpoints
        ],
        "data": meta.get("data"),
        "config": meta.get("config"),
        "notes": meta.get("notes"),
    }


def _rows(meta: dict[str, Any] | None) -> Any:
    """Return the number of rows learned from before a checkpoint; 0 if it is not recorded."""
    metrics = (meta or {}).get("tally")
    return metrics.get("rows", 0) if isinstance(metrics, dict) else 0


def _show_checkpoints(description: dict[str, Any]) -> None:
    print_facts({"kind": "checkpoints", "url": description["url"]})
    for info in description["checkpoints"]:
        facts = {name: info[name] for name in ("key", "created", "rows")}
        if info["bytes"] is not None:
            facts["bytes"] = decimal(info["bytes"])
        if info["problem"]:
            facts["problem"] = info["problem"]
        unusable = "" if info["valid"] else "  (not usable)"
        print_facts(facts, title=f"step {number(info['step'])}{unusable}")
    _show_sections(description, ("data", "config", "notes"))


def _show_sections(description: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if description[name] and isinstance(description[name], dict):
            print_facts(description[name], title=name.replace("_", " "))
