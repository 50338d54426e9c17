"""The command line: ``dadagrad COMMAND``, and the same commands as ``dask dadagrad COMMAND``."""

from dadagrad.cli.main import dadagrad, main

__all__ = ["dadagrad", "main"]
