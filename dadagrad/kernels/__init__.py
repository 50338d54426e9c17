"""Compiled loops over non-zeros."""
