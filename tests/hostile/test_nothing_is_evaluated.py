"""The package calls nothing that unpickles or evaluates what it reads.

Dask alone pickles: the tasks that a client, its scheduler and its workers send to each other. They
trust each other, and no task is read from a dataset, a model or a checkpoint.
"""

import ast
import re
from pathlib import Path

import dadagrad

IMPORTS = re.compile(
    r"(pickle|cPickle|_pickle|cloudpickle|dill|joblib|marshal|shelve|numcodecs\.pickles)\b.*"
    r"|.*\.(literal_eval|read_pickle|full_load|unsafe_load)"
)
CALLS = re.compile(
    r"(.*\.)?(eval|exec|__import__|literal_eval|read_pickle|to_pickle|full_load|unsafe_load)"
    r"|compile|yaml\.load(_all)?"
)


def unsafe(text):
    """Imports and calls of a module that unpickle or evaluate."""
    bad = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}{alias.name}" for alias in node.names]
            bad += [name for name in names if IMPORTS.fullmatch(name)]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            options = {option.arg: ast.unparse(option.value) for option in node.keywords}
            loads = "allow_pickle" in options or called in ("np.load", "numpy.load")
            if CALLS.fullmatch(called) or (loads and options.get("allow_pickle") != "False"):
                bad.append(f"line {node.lineno}: {ast.unparse(node)}")
    return bad


def test_the_package_is_safe():
    modules = sorted(Path(dadagrad.__file__).parent.rglob("*.py"))
    assert len(modules) > 80
    assert {path.name: bad for path in modules if (bad := unsafe(path.read_text()))} == {}


def test_unsafe_code_is_noticed():
    for text in (
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "from ast import literal_eval",
        "from numcodecs.pickles import Pickle",
        "eval(text)",
        "compile(text)",
        "np.load(file)",
        "np.load(file, allow_pickle=wanted)",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "pandas.read_pickle(file)",
        "yaml.load(text)",
    ):
        assert unsafe(text), text
    assert unsafe("np.load(file, allow_pickle=False); re.compile(text); yaml.safe_load(x)") == []
