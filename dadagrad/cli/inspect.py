"""``dadagrad inspect``: what is in a model, a dataset, or a folder of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dadagrad.amounts import size
from dadagrad.cli.display import Display, number, print_facts, print_json
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad.data.dataset import Dataset, LabelColumn
    from dadagrad.model import Model


@click.command()
@click.argument("url", metavar="MODEL|DATA|CHECKPOINTS")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the largest weights of a model are shown.",
)
@click.option("--verify", is_flag=True, help="Read and check every byte of checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def inspect(url: str, top: int, verify: bool, as_json: bool) -> None:
    """Say what is at a URL, and what is in it."""
    from dadagrad.documents import what_is_at
    from dadagrad.storage import Storage

    with Display().showing_logs():
        found = what_is_at(Storage(url))
        if verify and found != "the checkpoints of a run":
            raise click.UsageError("--verify is for checkpoints")
        if found == "a model":
            _show_model(url, top, as_json=as_json)
        elif found == "the checkpoints of a run":
            _show_checkpoints(url, verify=verify, as_json=as_json)
        else:
            from dadagrad.data.dataset import open_dataset

            try:
                data = open_dataset(url)
            except InputError as error:
                if found is None:
                    raise InputError(
                        f"{url} is no model, no dataset and no folder of checkpoints; check the "
                        f"URL ({error})"
                    ) from error
                raise
            _show_data(data, url, as_json=as_json)


def _show_model(url: str, top: int, *, as_json: bool) -> None:
    from dadagrad.model import Model

    model = Model.load(url)
    training = {name: value for name, value in model.report.items() if name != "config"}
    result: dict[str, Any] = {
        "kind": "model",
        "url": url,
        "task": model.task,
        "loss": model.loss,
        "features": model.n_features,
        "used_features": len(model.ids),
        "nonzeros": int((model.weights != 0).sum()),
        "sparsity": 1.0 - float((model.weights != 0).sum()) / (model.n_features * model.n_outputs),
        "digest": model.digest,
        "labels": [_label(column) for column in model.label_columns],
        "feature_space": model.feature_space,
        "training": training,
        "config": model.report.get("config", {}),
        "outputs": _largest(model, top),
    }
    if as_json:
        print_json(result)
        return
    print_facts({name: result[name] for name in list(result)[:9]})
    _print_labels(result["labels"])
    if model.feature_space is not None:
        click.echo("\nfeature space")
        print_facts(model.feature_space, indent="  ")
    for title in ("training", "config"):
        if result[title] and isinstance(result[title], dict):
            click.echo(f"\n{title}")
            print_facts(result[title], indent="  ")
    for output in result["outputs"]:
        of = f" of {output['output']}" if len(result["outputs"]) > 1 else ""
        click.echo(f"\nlargest weights{of} (intercept {number(output['intercept'])})")
        named = {weight["name"] or str(weight["feature"]): weight for weight in output["weights"]}
        print_facts({name: weight["weight"] for name, weight in named.items()}, indent="  ")


def _largest(model: Model, top: int) -> list[dict[str, Any]]:
    """The intercept and the largest weights of each output."""
    import numpy as np

    from dadagrad.labels import label_text

    if model.task == "multiclass":
        (column,) = model.label_columns
        outputs = [label_text(column, value) for value in column.values or ()]
    else:
        outputs = [column.name for column in model.label_columns]
    described = []
    for number_, output in enumerate(outputs):
        weights = model.weights[:, number_]
        largest = np.argsort(-np.abs(weights), kind="stable")[:top]
        described.append(
            {
                "output": output,
                "intercept": float(model.intercept[number_]),
                "weights": [
                    {
                        "feature": int(model.ids[place]),
                        "name": model.names.get(int(model.ids[place])),
                        "weight": float(weights[place]),
                    }
                    for place in largest
                    if weights[place] != 0.0
                ],
            }
        )
    return described


def _show_data(data: Dataset, url: str, *, as_json: bool) -> None:
    rows = data.n_rows
    result: dict[str, Any] = {
        "kind": "dataset",
        "url": url,
        "examples": rows,
        "features": data.schema.n_features,
        "nnz": data.nnz,
        "nnz_per_example": data.nnz / rows if rows else None,
        "partitions": len(data.partitions),
        "bytes": _stored_bytes(url),
        "weighted": data.schema.weighted,
        "fingerprint": data.fingerprint,
        "labels": [_label(column) for column in data.schema.label_columns],
        "feature_space": data.schema.feature_space,
        "provenance": getattr(data, "provenance", None),
    }
    if as_json:
        print_json(result)
        return
    stored = None if result["bytes"] is None else size(result["bytes"])
    print_facts({name: result[name] for name in list(result)[:10]} | {"bytes": stored})
    _print_labels(result["labels"])
    for title in ("feature_space", "provenance"):
        if result[title] and isinstance(result[title], dict):
            click.echo(f"\n{title.replace('_', ' ')}")
            print_facts(result[title], indent="  ")


def _stored_bytes(url: str) -> int | None:
    """The bytes of all objects at `url`; None where the store cannot list them."""
    from dadagrad.storage import Storage

    try:
        return Storage(url).n_bytes()
    except DadagradError:
        return None


def _label(column: LabelColumn) -> dict[str, Any]:
    from dadagrad.labels import label_text

    if column.values is None:
        return {"name": column.name, "values": None}
    counts = column.counts or (None,) * len(column.values)
    return {
        "name": column.name,
        "values": {
            label_text(column, value): count
            for value, count in zip(column.values, counts, strict=True)
        },
    }


def _print_labels(labels: list[dict[str, Any]]) -> None:
    for label in labels:
        values = label["values"]
        click.echo(f"\nlabel column {label['name']}")
        if values is None:
            click.echo("  more than 1,000 distinct numbers")
        else:
            print_facts(dict(list(values.items())[:20]), indent="  ")
            if len(values) > 20:
                click.echo(f"  and {len(values) - 20} more")


def _examples(meta: dict[str, Any] | None) -> Any:
    """How many examples a checkpoint has seen; 0 if it does not say."""
    tally = (meta or {}).get("tally")
    return tally.get("examples", 0) if isinstance(tally, dict) else 0


def _show_checkpoints(url: str, *, verify: bool, as_json: bool) -> None:
    from dadagrad.training.checkpoint import CheckpointReader

    found = CheckpointReader(url).list(verify=verify)
    meta = next((info.meta for info in found if info.valid and info.meta), {})
    result: dict[str, Any] = {
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
                "examples": _examples(info.meta),
            }
            for info in found
        ],
        "data": meta.get("data"),
        "config": meta.get("config"),
        "notes": meta.get("notes"),
    }
    if as_json:
        print_json(result)
        return
    print_facts({"kind": "checkpoints", "url": url})
    for info in result["checkpoints"]:
        click.echo(f"\nstep {number(info['step'])}{'' if info['valid'] else '  (not usable)'}")
        facts = {name: info[name] for name in ("key", "created", "examples")}
        if info["bytes"] is not None:
            facts["bytes"] = size(info["bytes"])
        if info["problem"]:
            facts["problem"] = info["problem"]
        print_facts(facts, indent="  ")
    for title in ("data", "config", "notes"):
        if result[title] and isinstance(result[title], dict):
            click.echo(f"\n{title}")
            print_facts(result[title], indent="  ")
