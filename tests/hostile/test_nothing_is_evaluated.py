"""No module of the library calls anything that unpickles or evaluates what it reads.

Dask alone pickles: the tasks that a client, its scheduler and its workers send to each other. They
trust each other, and nothing of that is read from a dataset, a model or a checkpoint.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dadagrad

PACKAGE = Path(dadagrad.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
NAMES = {"eval", "exec", "compile", "__import__", "literal_eval"}
METHODS = {"read_pickle", "to_pickle", "literal_eval", "full_load", "unsafe_load", "load_pickle"}


def wrong(tree: ast.AST) -> list[str]:
    """What in a module unpickles or evaluates, with its lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            modules += [alias.name for alias in node.names if alias.name in METHODS]
        else:
            modules = []
        for module in modules:
            if module.partition(".")[0] in MODULES or module in METHODS | {"numcodecs.pickles"}:
                found.append(f"line {node.lineno}: imports {module}")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of = owner.id if isinstance(owner, ast.Name) else ""
        options = {option.arg: option.value for option in node.keywords}
        if name in NAMES or method in METHODS:
            found.append(f"line {node.lineno}: calls {name or method}")
        if of == "yaml" and method in ("load", "load_all"):
            found.append(f"line {node.lineno}: calls yaml.{method}; safe_load is safe")
        allowed = options.get("allow_pickle")
        loads = "allow_pickle" in options or (of in ("np", "numpy") and method == "load")
        if loads and not (isinstance(allowed, ast.Constant) and allowed.value is False):
            found.append(f"line {node.lineno}: allow_pickle is not False")
    return found


def test_nothing_read_is_unpickled_or_evaluated() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 100
    found = {path.name: wrong(ast.parse(path.read_text())) for path in modules}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "from ast import literal_eval",
        "ast.literal_eval(text)",
        "eval(text)",
        "exec(text)",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=wanted)",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "pandas.read_pickle(file)",
        "yaml.load(text)",
        "from numcodecs.pickles import Pickle",
    ],
)
def test_that_it_would_be_noticed(text: str) -> None:
    assert wrong(ast.parse(text))


def test_what_is_safe_is_let_through() -> None:
    text = (
        "np.load(file, allow_pickle=False); json.loads(text); re.compile(text); yaml.safe_load(x)"
    )
    assert wrong(ast.parse(text)) == []
