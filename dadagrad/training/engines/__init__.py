"""Engines: threads of this process, or a Dask cluster."""
