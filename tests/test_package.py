"""Names of the package, and a module whose extra is missing."""

import importlib
import sys

import pytest

import dadagrad


def test_every_public_name_exists():
    assert set(dadagrad.__all__) == {name for name in dadagrad.__all__ if getattr(dadagrad, name)}
    assert set(dadagrad.__all__) <= set(dir(dadagrad))


def test_without_pytorch_its_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "dadagrad.torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dadagrad\[torch\]'"):
        importlib.import_module("dadagrad.torch")
