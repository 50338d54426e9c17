"""Metrics: the norm in which an update measures how far it moves."""

from __future__ import annotations

from dadagrad.metrics.diagonal import Diagonal

__all__ = ["Diagonal"]
