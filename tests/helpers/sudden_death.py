"""Processes that end at each of their changes of files: the first, the second, until none is left.

A small library in C, put before that of the system, counts writes, creations, renames and deletions
of files below a folder, and ends the process in the middle of one. Python sees no more than a part:
object stores write by themselves.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.processes import run_python

HERE = Path(__file__).parent

PROGRAM = """
import ctypes, itertools, os, shutil, sys, traceback

library, root, stride, *arguments = sys.argv[1:]
die_at = ctypes.CDLL(library).die_at

def status(function, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def act_until(folder, n):
    die_at(f"{folder}/".encode(), ctypes.c_long(n))
    act(folder)

def run():
    for n in itertools.count(1, int(stride)):
        folder = f"{root}/{n}"
        os.mkdir(folder)
        code = status(act_until, folder, n)
        if code == 0:
            return n - int(stride)
        assert code == -9, (n, code)
        assert status(check, folder) == 0, n
        shutil.rmtree(folder)
"""


def each_death(folder, program, *arguments, stride=1):
    """Number of changes of files in ``act``; a process has died at each, or at every `stride`-th.

    `program` defines ``act(folder)`` and ``check(folder)``, which is called after each death and
    raises if something is wrong; both in processes of their own. `arguments` are ``arguments``.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler called cc")
    library = folder / "die_at.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "die_at.c"], check=True)
    root = folder / "deaths"
    root.mkdir()
    paths = (str(HERE.parent), os.environ.get("PYTHONPATH", ""))
    variables = {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(paths)}
    done = run_python(
        *("-c", f"{PROGRAM}\n{program}\nprint(run())", library, root, stride, *arguments),
        env=os.environ | variables,
        timeout=None,
    )
    return int(done.stdout)
