"""Export of models for other programs: a class for each format, registered under its name."""

from dadagrad.model.export.base import FORMATS, Format, export
from dadagrad.model.export.card import Card
from dadagrad.model.export.onnx import Onnx
from dadagrad.model.export.scikit_learn import ScikitLearn
from dadagrad.model.export.tables import CsvWeights, ParquetWeights

__all__ = [
    "FORMATS",
    "Card",
    "CsvWeights",
    "Format",
    "Onnx",
    "ParquetWeights",
    "ScikitLearn",
    "export",
]
