"""Datasets stored as Parquet files, whose row groups are the partitions."""
