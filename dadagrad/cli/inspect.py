"""``dadagrad inspect``: the content of a model, a dataset, or a folder of checkpoints."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

import dadagrad
from dadagrad.cli.display import Display, number, output_width, print_facts, print_json, size_text
from dadagrad.cli.options import output_options, place_argument
from dadagrad.errors import CorruptionError, DadagradError, InputError
from dadagrad.storage.documents import Content, content_at
from dadagrad.storage.store import Storage
from dadagrad.summary import counted, listed, printable, side_by_side, urls_text


@click.command()
@place_argument("url", metavar="MODEL|DATA|CHECKPOINTS")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=10,
    metavar="N",
    help="Number of largest weights of each sign to show.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Read and check every byte of checkpoints; fail if one is damaged.",
)
@output_options
def inspect(url: str, top: int, verify: bool, display: Display) -> None:
    """Show a model, dataset or checkpoints."""
    content = content_at(Storage(url))
    if verify and content is not Content.CHECKPOINTS:
        raise click.UsageError("--verify is for checkpoints")
    if content is Content.CHECKPOINTS:
        description = _describe_checkpoints(url, verify=verify)
        (print_json if display.as_json else _show_checkpoints)(description)
        damaged = [info["key"] for info in description["checkpoints"] if not info["valid"]]
        if verify and damaged:
            raise CorruptionError(
                f"{url}: {listed(damaged, 3)} cannot be used; `dadagrad resume` goes on from the "
                "newest checkpoint that can"
            )
    elif content is Content.MODEL:
        model = dadagrad.Model.load(url)
        if display.as_json:
            from dadagrad.reports.document import describe_model

            print_json({"kind": "model"} | describe_model(model, top, url))
        else:
            _show_model(model, top)
    else:
        try:
            data = dadagrad.open_dataset(url)
        except InputError as error:
            raise InputError(
                f"{url} is not a model, a dataset or a folder of checkpoints: {error}"
            ) from error
        description = _describe_data(data, url)
        if display.as_json:
            print_json(description)
        else:
            print_facts(
                data.facts() | {"size": size_text(description["bytes"]), "digest": data.digest}
            )


def _describe_data(data: dadagrad.Dataset, url: str) -> dict[str, Any]:
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
        "labels": [column.to_report() for column in data.schema.label_columns],
        "feature_space": data.schema.feature_space.plain or None,
        "provenance": getattr(data, "provenance", None),
    }


def _describe_checkpoints(url: str, *, verify: bool) -> dict[str, Any]:
    from dadagrad.training.checkpoints.reader import CheckpointReader

    checkpoints = CheckpointReader(url).list(verify=verify)
    meta = next((info.meta for info in checkpoints if info.valid and info.meta), {})
    names = ("key", "step", "valid", "problem", "created", "bytes")
    return {
        "kind": "checkpoints",
        "url": url,
        "verified": verify,
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
    rows = (metrics.get("rows") for metrics in listed if isinstance(metrics, dict))
    return sum(count for count in rows if isinstance(count, int))


def _show_model(model: dadagrad.Model, top: int) -> None:
    from dadagrad.model.facts import MAX_OUTPUTS, largest_weights, sides

    print_facts(model.facts())
    for output in range(min(model.n_outputs, MAX_OUTPUTS)):
        columns = []
        for title, sign in zip(sides(model, output), (1, -1), strict=True):
            n_weights = int((sign * model.effects[:, output] > 0).sum())
            lines = [
                f"{each['weight']:+#9.4g}  {printable(str(each['name'] or each['feature']))}"
                for each in largest_weights(model, output, sign, top)
            ]
            columns.append([f"{printable(title)}: {counted(n_weights, 'weight')}", *lines])
        click.echo("\n" + side_by_side(columns, min(output_width(), 100)))
    if model.n_outputs > MAX_OUTPUTS:
        click.echo(f"\n... and {model.n_outputs - MAX_OUTPUTS} more outputs; --json shows all")


def _show_checkpoints(description: dict[str, Any]) -> None:
    from dadagrad.model.facts import settings_text

    urls, notes = (description["data"] or {}).get("url"), description["notes"] or {}
    checked = ", every byte checked" if description["verified"] else ""
    facts = {
        "checkpoints": f"{len(description['checkpoints'])}{checked}",
        "data": urls and urls_text(urls),
        "model": notes.get("model"),
        "loss": (description["config"] or {}).get("loss"),
        "settings": settings_text(description["config"] or {}) or None,
    }
    print_facts(facts)
    for info in description["checkpoints"]:
        unusable = "" if info["valid"] else "  (not usable)"
        title = f"step {number(info['step'])}{unusable}"
        facts = {name: info[name] for name in ("key", "created", "rows", "problem")}
        print_facts(facts | {"bytes": size_text(info["bytes"])}, title=title)
