"""The equation: losses, regularizers, preconditioners, updates and baselines."""
