"""The errors a user can meet. Each message says what was given, what was needed, what to do."""

from __future__ import annotations


class DadagradError(Exception):
    """Base of every error that dadagrad raises on purpose."""


class InputError(DadagradError, ValueError):
    """Something the user gave is wrong: data, a file, an option, a combination of options."""


class StorageError(DadagradError, OSError):
    """A store cannot be reached, refuses, or is full."""


class AlreadyExists(StorageError):
    """A create-only write found the key taken."""


class CorruptionError(DadagradError):
    """Stored bytes are not what their manifest or metadata says they are."""


class TrainingError(DadagradError):
    """Training cannot go on: a loss that is not finite, a piece that fails again and again."""
