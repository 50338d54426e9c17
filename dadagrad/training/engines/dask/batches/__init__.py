"""Batches on a Dask cluster: weights go to the workers, gradients come back."""
