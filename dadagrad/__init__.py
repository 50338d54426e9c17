"""Out-of-core, distributed AdaGrad for sparse linear models."""

__version__ = "0.1.0"
