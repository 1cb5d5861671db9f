"""Packages that hand out what their modules hold, and import a module only when something of it is asked for.

A worker starts for every op: the records that processes exchange must not bring in with them whatever works on them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def forwarding(package: str, **modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`: module -> the names in it that the package hands out, separated by spaces.

    Type checkers are shown imports of the same names instead, under TYPE_CHECKING: a module's `__getattr__` would let
    them take any name. tests/core/test_lazy_imports.py keeps the two equal. None may be a module's own name, which the
    package has as soon as the module is imported.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def forward(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    return forward
