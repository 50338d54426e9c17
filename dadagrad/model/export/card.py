"""Model card: what a model is, how good it is, its limits and how to make it again, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, BinaryIO, ClassVar

from dadagrad._version import __version__
from dadagrad.data.dataset import IN_MEMORY
from dadagrad.model.base import LinearModel
from dadagrad.model.export.base import FORMATS, Format
from dadagrad.model.facts import commands, largest_weights, model_facts, sides
from dadagrad.optim.registry import register
from dadagrad.summary import printable, urls_text, utf8

MAX_WEIGHTS = 10
"""Largest weights of each sign and output that a card names, and outputs of which it does."""

_METRICS = (
    "rows", "error", "loss", "auc", "pr_auc", "f1", "log_loss", "calibration_error", "rmse", "mae",
    "r2", "ndcg",
)  # fmt: skip


@register(FORMATS, "card")
class Card(Format):
    """A model card (Mitchell et al. 2019) in Markdown."""

    suffix: ClassVar[str] = ".md"

    def make(self, model: LinearModel) -> str:
        report, again = model.report, "\n".join(commands(model.report))
        sections = {
            "Data": _data(model),
            "Metrics": _metrics(report),
            "Largest weights": _weights(model),
            "Limits": _limits(model),
            "Make it again": again and f"```sh\n{again}\n```\n\ndadagrad {__version__}.",
        }
        facts = "".join(f"- {n}: {_escaped(text)}\n" for n, text in model_facts(model).items())
        data = report.get("data", IN_MEMORY)
        name = "data in memory" if data == IN_MEMORY else urls_text(data)
        title = f"# Model card\n\nA linear model of {_escaped(name)}.\n\n"
        rest = "".join(f"\n## {name}\n\n{text}\n" for name, text in sections.items() if text)
        return utf8(f"{title}{facts}- digest: {model.digest}\n{rest}")

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        file.write(self.make(model).encode())


def _escaped(text: str) -> str:
    """Text whose names Markdown shows as they are, in one line."""
    return re.sub(r"[\\`*_~<&\[\]]", r"\\\g<0>", printable(" ".join(text.split())))


def _data(model: LinearModel) -> str:
    lines = [f"- {model.n_features:,} features, {len(model.ids):,} with a weight"]
    if model.feature_space:
        lines.append(f"- {model.feature_space}")
    for column in model.label_columns:
        if column.values is not None and column.counts is not None:
            counts = zip(column.texts, column.counts, strict=True)
            rows = ", ".join(f"{name} {count:,}" for name, count in counts)
            lines.append(f"- {_escaped(f'rows by {column.name}: {rows}')}")
    return "\n".join(lines)


def _metrics(report: Mapping[str, Any]) -> str:
    """Metrics of new rows: of the first pass before learning, and of those held out."""
    columns = {
        "before learning": {
            name: report.get(f"progressive_{name}") for name in ("error", "loss")
        },
        "best constant": {name: report.get(f"constant_{name}") for name in ("error", "loss")},
        "held out": report.get("holdout", {}),
    }  # fmt: skip
    shown = {name: values for name, values in columns.items() if any(values.values())}
    lines = [f"| metric | {' | '.join(shown)} |", "|---|" + "---:|" * len(shown)]
    for metric in _METRICS:
        cells = [values.get(metric) for values in shown.values()]
        if any(cell is not None for cell in cells):
            texts = ["" if cell is None else _number(cell) for cell in cells]
            lines.append(f"| {metric.replace('_', ' ')} | {' | '.join(texts)} |")
    return "\n".join(lines) if shown else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _weights(model: LinearModel) -> str:
    lines = []
    for output, name in enumerate(model.output_names[:MAX_WEIGHTS]):
        weights = [*largest_weights(model, output, 1, MAX_WEIGHTS)]
        weights += largest_weights(model, output, -1, MAX_WEIGHTS)
        texts = [f"{each['name'] or each['feature']} {each['weight']:+.3g}" for each in weights]
        side = f" {sides(model, output)[0]}" if model.task == "binary" else ""
        lines.append(f"- {_escaped(f'{name}{side}: ' + ', '.join(texts))}")
    return "\n".join(lines)


def _limits(model: LinearModel) -> str:
    lines = [
        "- The score is a sum over features: effects of combinations are learned only if these are "
        "features.",
        "- Features that the training data did not have weigh nothing.",
        "- The metrics hold for rows like those of the data, and not for others.",
    ]
    if model.feature_space.hash_bits:
        lines.append("- Features are hashed: different words can share a weight.")
    if model.has_probabilities:
        kind = model.calibration.name if model.calibration.is_fitted else "no calibration"
        weights = model.report.get("config", {}).get("class_weight")
        factors = ", times the weights of classes in training" if weights else ""
        lines.append(
            f"- Probabilities ({kind}) are right for the shares of classes in the data{factors}."
        )
    return "\n".join(lines)
