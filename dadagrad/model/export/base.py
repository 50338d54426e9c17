"""Formats of export by name, and tables with a row for each non-zero weight and intercept."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.model.base import LinearModel
from dadagrad.model.model import Model, as_model
from dadagrad.optim.registry import Named, Registry, register
from dadagrad.storage.output import output_file


class Format(Named, ABC):
    """A format that models are exported to."""

    suffix: ClassVar[str]
    """End of the names of files from which the format is chosen."""

    @abstractmethod
    def make(self, model: LinearModel) -> Any:
        """Return the exported model as an object of the other program.

        Raises `InputError` if the format has no place for such a model.
        """

    @abstractmethod
    def write(self, model: LinearModel, file: BinaryIO) -> None:
        """Write the exported model."""


FORMATS: Registry[Format] = Registry("format", Format, takes_own=False)  # type: ignore[type-abstract]
"""Formats by name."""


@register(FORMATS, "parquet")
class ParquetWeights(Format):
    """Columns ``output``, ``feature``, ``name``, ``weight`` and ``effect``.

    An intercept has no feature. The effect is the weight of the name (`LinearModel.effects`).
    """

    suffix: ClassVar[str] = ".parquet"

    def make(self, model: LinearModel) -> pa.Table:
        places, outputs = np.nonzero(model.weights)
        features = np.concatenate([np.zeros(model.n_outputs, np.int64), model.ids[places]])
        is_intercept = np.arange(len(features)) < model.n_outputs
        names: list[str | None] = ["(intercept)"] * model.n_outputs
        names += model.schema.names_of(model.ids[places], model.names)
        columns: dict[str, Any] = {
            "output": np.array(model.output_names, object)[
                np.concatenate([np.arange(model.n_outputs), outputs])
            ],
            "feature": pa.array(features, mask=is_intercept),
            "name": pa.array(names, pa.string()),
            "weight": np.concatenate([model.intercept, model.weights[places, outputs]]),
            "effect": np.concatenate([model.intercept, model.effects[places, outputs]]),
        }
        return pa.table(columns)

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        pyarrow.parquet.write_table(self.make(model), file, compression="zstd")


@register(FORMATS, "csv")
class CsvWeights(ParquetWeights):
    """The same as CSV with a header."""

    suffix: ClassVar[str] = ".csv"

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        pyarrow.csv.write_csv(self.make(model), file)


@register(FORMATS, "npz")
class NumpyWeights(Format):
    """Arrays ``output``, ``intercept``, ``feature``, and ``weight`` by feature and output."""

    suffix: ClassVar[str] = ".npz"

    def make(self, model: LinearModel) -> dict[str, NDArray[Any]]:
        return {
            "output": np.array(model.output_names),
            "intercept": model.intercept,
            "feature": model.ids,
            "weight": model.weights,
        }

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        np.savez_compressed(file, allow_pickle=False, **self.make(model))


def export(
    model: Model | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    format: Format | str | None = None,
    overwrite: bool = False,
) -> Any:
    """Export a model to a file, or to an object of another program.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    out : str, optional
        Path or URL of the file. It appears once it is complete.
    format : {"sklearn", "onnx", "csv", "parquet", "npz", "card"}, optional
        By default that of the suffix of `out`: ``.skops``, ``.onnx``, ``.csv``, ``.parquet``,
        ``.npz`` or ``.md``.

        - "sklearn": a fitted estimator of scikit-learn (SGDClassifier, LogisticRegression
          or SGDRegressor). Its file is one of skops, which runs no code when it
          is loaded, as a pickle would.
        - "onnx": a graph from texts, if the model was trained on a column of hashed text, else from
          ids and values.
        - "csv", "parquet": the non-zero weights with the names of features, and the intercepts.
        - "npz": arrays of the same without the names of features.
        - "card": a model card in Markdown.
    overwrite : bool
        True to replace a file at `out`.

    Returns
    -------
    object
        Without `out`: the estimator, an `onnx.ModelProto`, a `pyarrow.Table` or the text of the
        card. With `out`, None.

    Raises
    ------
    InputError
        The format is not known or has no place for the model, the package that it needs is missing,
        or `out` exists.
    """
    model = as_model(model)
    if format is None:
        suffixes = {FORMATS[name].suffix: name for name in FORMATS}
        suffix = "" if out is None else os.path.splitext(os.fspath(out))[1].lower()
        if suffix not in suffixes:
            raise InputError(
                f"the format of {out} is not known; give one of {', '.join(FORMATS)}, or a name "
                f"that ends in {', '.join(suffixes)}"
            )
        format = suffixes[suffix]
    chosen = FORMATS.make(format)
    if out is None:
        return chosen.make(model)
    with output_file(os.fspath(out), overwrite) as file:
        chosen.write(model, file)
    return None


def import_package(package: str, what: str) -> Any:
    """Import a package of an extra; `InputError` says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        name = package.partition(".")[0]
        raise InputError(
            f"{what} needs the package {name}, which is missing; pip install {name}"
        ) from None
