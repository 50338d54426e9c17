"""Prepare docstrings for the reference; Griffe calls this for each object."""

from __future__ import annotations

import inspect
import re
from typing import Any

from griffe import Attribute, Extension, Module, Object, ObjectNode

TABLE = re.compile(r"^( *=+(?:  +=+)+\n(?:.*\S.*\n)* *=+(?:  +=+)+)$", re.M)
"""A table of reStructuredText, which Markdown does not know."""


class Docstrings(Extension):
    """Drop docstrings of the types of values and imported names; keep tables as written."""

    def on_module(self, *, mod: Module, **_: Any) -> None:
        if mod.parent is None:  # its names are loaded when they are asked for
            return
        imported = {name for name, member in mod.members.items() if member.is_alias}
        for name in imported - set(map(str, mod.exports or ())):
            del mod.members[name]

    def on_instance(self, *, node: Any, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if isinstance(obj, Attribute) and isinstance(node, ObjectNode):
            value = node.obj
            is_field = type(value).__name__ == "_tuplegetter"
            if is_field or obj.docstring.value == inspect.getdoc(type(value)):
                obj.docstring = None
                return
        obj.docstring.value = TABLE.sub(r"```text\n\1\n```", obj.docstring.value)
