"""Datasets stored as Zarr groups of partitions."""
