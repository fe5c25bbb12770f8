"""Names of a package that are imported when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Return a name of a package, for its ``__getattr__``; *modules* says where in it each is.

    It is imported once. Raises AttributeError for a name that is not among them.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{modules[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
