"""Export of weights as a table: a row for each non-zero weight and each intercept."""

from __future__ import annotations

from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dadagrad.model.export.base import FORMATS, Format
from dadagrad.model.model import Model
from dadagrad.optim.registry import register


@register(FORMATS, "parquet")
class ParquetWeights(Format):
    """Columns ``output``, ``feature``, ``name`` and ``weight``; an intercept has no feature."""

    suffix: ClassVar[str] = ".parquet"

    def make(self, model: Model) -> pa.Table:
        places, outputs = np.nonzero(model.weights)
        features = np.concatenate([np.zeros(model.n_outputs, np.int64), model.ids[places]])
        is_intercept = np.arange(len(features)) < model.n_outputs
        names: list[str | None] = ["(intercept)"] * model.n_outputs
        names += [model.names.get(feature) for feature in model.ids[places].tolist()]
        columns: dict[str, Any] = {
            "output": np.array(model.output_names, object)[
                np.concatenate([np.arange(model.n_outputs), outputs])
            ],
            "feature": pa.array(features, mask=is_intercept),
            "name": pa.array(names, pa.string()),
            "weight": np.concatenate([model.intercept, model.weights[places, outputs]]),
        }
        return pa.table(columns)

    def write(self, model: Model, file: BinaryIO) -> None:
        pyarrow.parquet.write_table(self.make(model), file, compression="zstd")


@register(FORMATS, "csv")
class CsvWeights(ParquetWeights):
    """The same as CSV with a header."""

    suffix: ClassVar[str] = ".csv"

    def write(self, model: Model, file: BinaryIO) -> None:
        pyarrow.csv.write_csv(self.make(model), file)
