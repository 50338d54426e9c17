"""Rules of the layout: no circles, few files, short files, public names, a light import."""

import ast
import graphlib
import importlib
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from helpers.processes import run_python

import dadagrad

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dadagrad"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILES = 16
MAX_LINES = 400
CLUMSY_STARTS = re.compile(r"(What|Of|Those|Whether|How|Where|That|Who|So|As)\b")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def tree(path):
    return ast.parse(path.read_text("utf-8"))


def imported_modules(name):
    """Modules of the package that a module imports, at its top or anywhere inside."""
    modules = set()
    for node in ast.walk(tree(MODULES[name])):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                modules.add(submodule if submodule in MODULES else str(node.module))
    return (modules & set(MODULES)) - {name, "dadagrad"}


def module_path(name):
    """The folders of a module, and its file."""
    parts = tuple(name.split("."))
    return (*parts, "__init__") if MODULES[name].stem == "__init__" else parts


def test_neighbours_do_not_import_each_other_in_a_circle():
    """Files and folders of one folder have an order, so modules have one, too."""
    folders = {}
    for name in MODULES.keys() - {"dadagrad"}:
        for imported in imported_modules(name):
            importer, neighbour = module_path(name), module_path(imported)
            depth = next(n for n, part in enumerate(importer) if part != neighbour[n])
            graph = folders.setdefault(importer[:depth], {})
            graph.setdefault(importer[depth], set()).add(neighbour[depth])
    for folder, graph in folders.items():
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            pytest.fail(f"circle in {'/'.join(folder)}: {' -> '.join(error.args[1])}")


def test_the_top_level_has_no_file_of_a_trial():
    """In a clone; a folder that is not one tells nothing of what is committed."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone, or there is no git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = {name.partition("/")[0] for name in listed.stdout.splitlines()}
    folders = {"cluster", "dadagrad", "docs", "examples", "tests"}
    allowed = folders | {"LICENSE", "README.md", "pyproject.toml"}
    assert {name for name in names if name[0] != "."} - allowed == set()


def test_a_folder_has_few_files():
    folders = [path for path in (PACKAGE, *PACKAGE.rglob("*")) if path.is_dir()]
    sizes = {str(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MAX_FILES} == {}


def test_a_file_is_short_unless_it_is_compiled():
    lines = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in FILES
        if "njit"
        not in path.read_text("utf-8")  # compiled loops share one file, as Numba caches it
    }
    assert {name: size for name, size in lines.items() if size > MAX_LINES} == {}


def test_a_docstring_begins_with_a_noun_or_an_imperative():
    clumsy = []
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if CLUMSY_STARTS.match(text):
                    clumsy.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert clumsy == []


def test_no_file_of_arrays_is_unpickled():
    """Ruff refuses other ways to unpickle or evaluate what is read."""
    allowed = {
        found for path in FILES for found in re.findall(r"allow_pickle=\w+", path.read_text())
    }
    assert allowed == {"allow_pickle=False"}


def test_the_import_is_light():
    program = (
        "import sys, time; start = time.process_time(); import dadagrad; "
        "print(time.process_time() - start, *sys.modules)"
    )
    runs = [run_python("-c", program, cwd=ROOT).stdout.split() for _ in range(3)]
    heavy = {"numpy", "scipy", "numba", "dask", "distributed", "zarr", "pyarrow", "sklearn"}
    assert (heavy | {"torch"}).isdisjoint(runs[0][1:])
    assert min(float(seconds) for seconds, *_ in runs) < 0.05  # seconds of this process alone


def test_every_public_name_exists():
    assert set(dadagrad.__all__) == {name for name in dadagrad.__all__ if getattr(dadagrad, name)}
    assert set(dadagrad.__all__) <= set(dir(dadagrad))


def test_without_pytorch_its_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "dadagrad.torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dadagrad\[torch\]'"):
        importlib.import_module("dadagrad.torch")
