"""Example scripts as modules."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name):
    """Import ``examples/NAME.py``."""
    spec = importlib.util.spec_from_file_location(
        f"example_{name.replace('/', '_')}", EXAMPLES / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
