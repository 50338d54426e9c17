"""Sources of every format, parsed and written as a dataset."""
