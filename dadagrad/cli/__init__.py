"""The command line: ``dadagrad COMMAND``, and the same commands as ``dask dadagrad COMMAND``."""

from dadagrad.cli.program import dadagrad, main

__all__ = ["dadagrad", "main"]
