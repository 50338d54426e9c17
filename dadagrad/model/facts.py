"""Facts about a model for people, and the commands that make it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from dadagrad.config import SETTINGS
from dadagrad.errors import InputError
from dadagrad.model.base import LinearModel
from dadagrad.settings import Switch
from dadagrad.summary import (
    counted,
    duration,
    facts_before_learning,
    listed,
    percent,
    significant,
    urls_text,
)

MAX_OUTPUTS = 20
"""Outputs whose largest weights are shown."""


def model_facts(model: LinearModel) -> dict[str, str]:
    """Facts by name; only those that apply."""
    n_weights = model.n_features * len(model.intercept)
    nonzeros = np.count_nonzero(model.weights)
    facts = {"task": f"{model.task}, {model.loss} loss"}
    if model.has_classes:
        name = "classes" if len(model.label_columns) == 1 else "labels"
        columns = model.label_columns
        names = columns[0].texts if len(columns) == 1 else [column.name for column in columns]
        facts[name] = listed(names)
    facts["weights"] = f"{nonzeros:,} of {n_weights:,} ({percent(nonzeros / n_weights)})"
    if len(model.intercept) == 1:
        facts["intercept"] = significant(float(model.intercept[0]) + 0.0)  # of -0.0: 0.0
    facts |= _training_facts(model.report, model.loss)
    if model.feature_space:
        facts["source"] = str(model.feature_space)
    return facts


def sides(model: LinearModel, output: int) -> list[str]:
    """Titles for the weights above and below 0 of an output."""
    name = model.output_names[output]
    if not model.has_classes:
        of_column = f" {name}" if model.n_outputs > 1 else ""
        return [f"raising{of_column}", f"lowering{of_column}"]
    if model.task == "binary":
        texts = model.label_columns[0].texts
        return [f"for {texts[-1]}", f"for {texts[0]}"]
    return [f"for {name}", f"against {name}"]


def _training_facts(report: Mapping[str, Any], loss: str) -> dict[str, str]:
    """Facts of the run that made the model, as far as its report has them."""
    facts = {}
    if "rows" in report:
        facts["trained on"] = f"{counted(report['rows'] // max(report.get('passes', 1), 1), 'row')}"
        if report.get("data") not in (None, "memory"):
            facts["trained on"] += f" of {urls_text(report['data'])}"
        facts["trained on"] += f", {counted(report.get('passes', 1), 'pass')}"
        if "seconds" in report:
            facts["trained on"] += f", {duration(report['seconds'])}"
        if earlier := report.get("earlier_rows"):
            facts["trained on"] += f", after {counted(earlier, 'row')} of earlier runs"
    for name, value, best in facts_before_learning(report, loss):
        facts[name] = f"{value} ({best})" if best else value
    settings = settings_text(report.get("config", {}))
    return facts | ({"settings": settings} if settings else {})


def changed_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, as plain JSON, that are not defaults and have an effect."""
    return {
        name: value
        for name, value in _given_settings(config).items()
        if SETTINGS[name].default != "auto"
        or not (value is False or (type(value) is int and value == 1))
    }


def _given_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that are not defaults, with what "auto" came to."""
    return {
        name: value
        for name, value in config.items()
        if name in SETTINGS and str(value) != str(SETTINGS[name].default)
    }


def largest_weights(model: LinearModel, output: int, sign: int, top: int) -> list[dict[str, Any]]:
    """The largest weights of one sign of an output: feature, its name or None, and weight.

    The weight of a word whose sign is hashed is its effect.
    """
    weights = model.effects[:, output]
    largest = np.argsort(-sign * weights, kind="stable")[:top]
    ids = model.ids[largest]
    columns = ids.tolist(), model.schema.names_of(ids, model.names), weights[largest].tolist()
    return [
        {"feature": feature, "name": name, "weight": weight}
        for feature, name, weight in zip(*columns, strict=True)
        if sign * weight > 0.0
    ]


def settings_text(config: Mapping[str, Any]) -> str:
    """The settings of a run, as plain JSON, that are not defaults and have an effect."""
    texts = []
    for name, value in changed_settings(config).items():
        if name == "loss":
            continue
        plain = (SETTINGS[name].option or name).replace("_", " ")
        if isinstance(value, bool):
            texts.append(plain if value else f"no {plain}")
        else:
            texts.append(f"{plain} {value:.4g}" if isinstance(value, float) else f"{plain} {value}")
    return ", ".join(texts)


def commands(report: Mapping[str, Any], url: str | None = None) -> list[str]:
    """Return the commands that train the model of a report again, and save it at a URL.

    None are known for a run that went on from another model, or whose rows were read from raw
    files, by options that are not among the settings; or if an option cannot have the value of a
    setting, such as an object of a user's own class.
    """
    config, data = report.get("config"), report.get("data")
    if not config or not report.get("repeatable", True):
        return []
    unknown = "DATA" if data in (None, "memory", "the table") else str(data)
    words = ["dadagrad", "train", *(map(str, data) if isinstance(data, list) else [unknown])]
    for name, value in _given_settings(config).items():
        setting = SETTINGS[name]
        option = setting.option or name.replace("_", "-")
        if isinstance(setting.kind, Switch):
            words.append(f"--{'' if value else 'no-'}{option}")
            continue
        text = _option_text(value)
        try:
            setting.kind.parse(name, text)
        except InputError:
            return []
        words += [f"--{option}", text]
    words += ["--model", url or "model"]
    return [shlex.join(words)]


def _option_text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{label}={weight:g}" for label, weight in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
