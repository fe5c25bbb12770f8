"""Imports on demand: names of a package, and the extras of missing libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

__all__ = ["extra_advice", "imported"]

#: Extras of the package by the libraries that only some features need.
_EXTRAS: Final = {
    "cryptography": "signing",
    "deltalake": "delta",
    "numpy": "spark",
    "prometheus_client": "metrics",
    "psycopg": "postgresql",
    "py4j": "spark",
    "pyarrow": "spark",
    "pymysql": "mysql",
    "pymysqlreplication": "mysql",
    "pyspark": "spark",
    "redis": "redis",
    "sqlalchemy": "sql",
}


def imported(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Return a name of a package, for its ``__getattr__``; *modules* maps names to modules.

    The module is imported once. Raises AttributeError for an unknown name.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{modules[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value


def extra_advice(error: BaseException | None) -> str:
    """Return what to install for a missing library; empty if no extra has it."""
    library = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if library not in _EXTRAS:
        return ""
    return f"this needs {library}: pip install 'stompkit[{_EXTRAS[library]}]'"
