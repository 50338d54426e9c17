"""Export of models for other programs: a class for each format, registered under its name."""

from dadagrad.model.export import card, onnx, scikit_learn
from dadagrad.model.export.base import FORMATS, export

__all__ = ["FORMATS", "card", "export", "onnx", "scikit_learn"]
