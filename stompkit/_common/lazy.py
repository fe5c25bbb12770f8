"""Import names of a package on first access."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Return a name of a package, for its ``__getattr__``; *modules* maps names to modules.

    The module is imported once. Raises AttributeError for an unknown name.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{modules[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
