"""Streams on a Dask cluster, whose workers hold the state in shards."""
